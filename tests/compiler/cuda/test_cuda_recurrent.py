"""Recurrent layers with their gradients as CUDA text, run on an emulated GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda_checks import LOSES, check
from cuda_host import reason

from ganglion import layers, ops, tree
from ganglion.compiler.ir.gradient import gradients
from ganglion.compiler.ir.graph import Graph, Input, Program
from ganglion.compiler.ir.simplify import simplify
from ganglion.variables import Scope

pytestmark = pytest.mark.skipif(reason() is not None, reason=str(reason()))

X = np.random.default_rng(0).normal(size=(3, 5, 2)).astype("float32")
MASK = np.array([[0, 1, 1, 0, 1], [1, 1, 0, 0, 0], [0, 0, 0, 0, 0]], bool)
IMAGES = np.random.default_rng(1).normal(size=(2, 3, 4, 4, 2)).astype("float32")
NOISE = {"dropout": 0.3, "recurrent_dropout": 0.3, "seed": 1}

LAYERS = {
    "SimpleRNN": lambda: layers.SimpleRNN(6, "relu", return_sequences=True),
    "GRU": lambda: layers.GRU(6, zero_output_for_mask=True, return_sequences=True),
    "GRU, reset before": lambda: layers.GRU(6, reset_after=False, go_backwards=True),
    "LSTM, dropout": lambda: layers.LSTM(6, **NOISE),
    "Bidirectional": lambda: layers.Bidirectional(
        layers.LSTM(4, return_sequences=True)
    ),
    "RNN": lambda: layers.RNN([layers.LSTMCell(4), layers.GRUCell(3)]),
    "ConvLSTM2D": lambda: layers.ConvLSTM2D(3, 2, padding="same"),
    "TimeDistributed": lambda: layers.TimeDistributed(layers.BatchNormalization()),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("masked", [False, True])
def test_values_and_gradients(name: str, masked: bool) -> None:
    layer = LAYERS[name]()
    x = IMAGES if name == "ConvLSTM2D" else X
    data: dict[str, Any] = {"x": x}
    if masked:
        data["mask"] = MASK[: len(x), : x.shape[1]]
    layer(x)
    with Scope(training=True) as scope:
        inputs = {n: Input(n, array.shape, array.dtype) for n, array in data.items()}
        given = {"mask": inputs["mask"]} if masked else {}
        outputs = tree.flatten(layer(inputs["x"], **given))
        loss = sum((ops.sum(y * y) for y in outputs), start=0.0)
        wrt = [scope.read(weight) for weight in layer.trainable_weights]
        slopes = gradients(loss, [*wrt, inputs["x"]])
    inputs |= {value.name: value for value in scope.reads.values()}
    data |= {value.name: variable.array for variable, value in scope.reads.items()}
    results = {"loss": loss} | {f"y{i}": y for i, y in enumerate(outputs)}
    results |= {f"d{value.name}": slope for value, slope in slopes.items()}
    graph = simplify(Graph.of("layer", inputs.values(), results))
    program = Program(graph, tuple(inputs), (), tuple(results))
    check(program, data, {}, tolerance=LOSES["float32"], precise="float32")
