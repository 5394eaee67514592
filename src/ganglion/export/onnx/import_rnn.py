"""Recurrent operators as layers: gates in Keras' order, batches first."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ganglion import layers, ops
from ganglion.export.onnx.import_layers import optional, weight
from ganglion.export.onnx.parsing import OnnxNode

if TYPE_CHECKING:
    from ganglion.export.onnx.importer import Importer

# ONNX' order of gates in Keras': input, output, forget, cell; and i, f, c, o.
_GATES = {"LSTM": (0, 2, 3, 1), "GRU": (0, 1, 2), "RNN": (0,)}
_KINDS = {"LSTM": layers.LSTM, "GRU": layers.GRU, "RNN": layers.SimpleRNN}
_DEFAULTS = {
    "LSTM": ("sigmoid", "tanh", "tanh"),
    "GRU": ("sigmoid", "tanh"),
    "RNN": ("tanh",),
}
_REFUSED = ("clip", "activation_alpha", "activation_beta")


def recurrent(f: Importer, node: OnnxNode, values: Sequence[Any]) -> Any:
    """Build an LSTM, a GRU or a plain RNN, in one or both directions."""
    _check(node, values)
    x, is_batch_first = values[0], bool(node.attrs.get("layout", 0))
    steps = x if is_batch_first else ops.transpose(x, (1, 0, 2))
    direction = node.attrs.get("direction", "forward")
    ways = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
    sequences, states = [], []
    for number, is_reverse in enumerate(ways[direction]):
        layer = _layer(f, node, values, number, is_reverse)
        sequence, *last = f.called(layer, steps, _weights(node, values, number))
        # Keras gives the steps in the order in which they were taken.
        sequences.append(ops.flip(sequence, axis=1) if is_reverse else sequence)
        states.append(last)
    if is_batch_first:
        return [
            ops.stack(sequences, axis=2),
            *(ops.stack(parts, axis=1) for parts in zip(*states, strict=True)),
        ]
    time_major = [ops.transpose(sequence, (1, 0, 2)) for sequence in sequences]
    return [
        ops.stack(time_major, axis=1),
        *(ops.stack(parts, axis=0) for parts in zip(*states, strict=True)),
    ]


def _check(node: OnnxNode, values: Sequence[Any]) -> None:
    attrs = node.attrs
    if any(attrs.get(name) for name in (*_REFUSED, "input_forget")):
        raise ValueError(f"{', '.join(_REFUSED)} and `input_forget` are not supported")
    if optional(values, 4) is not None or optional(values, 7) is not None:
        raise ValueError("lengths of sequences and peepholes are not supported")
    for state in values[5:7]:
        array = getattr(state, "array", None)
        if state is not None and (array is None or array.any()):
            raise ValueError("only states that begin with zeros are supported")
    count = 2 if attrs.get("direction") == "bidirectional" else 1
    if weight(values[1], "kernel").shape[0] != count:
        raise ValueError("its weights do not fit its direction")


def _layer(
    f: Importer, node: OnnxNode, values: Sequence[Any], number: int, is_reverse: bool
) -> Any:
    defaults = _DEFAULTS[node.op]
    count = len(defaults)
    names = [name.lower() for name in node.attrs.get("activations", ())]
    own = tuple(names[number * count : (number + 1) * count]) or defaults
    if node.op == "LSTM" and own[1] != own[2]:
        raise ValueError(f"the activations {own} are not supported")
    functions = {"activation": own[min(1, count - 1)]}
    if node.op != "RNN":
        functions["recurrent_activation"] = own[0]
    if node.op == "GRU":
        functions["reset_after"] = bool(node.attrs.get("linear_before_reset", 0))
    units = weight(values[2], "recurrent kernel").shape[-1]
    make = partial(
        _KINDS[node.op],
        units,
        return_sequences=True,
        return_state=True,
        go_backwards=is_reverse,
        use_bias=optional(values, 3) is not None,
        **functions,
    )
    return f.layer(node, [f"{name}#{number}" for name in node.inputs[1:4]], make)


def _weights(node: OnnxNode, values: Sequence[Any], number: int) -> list[np.ndarray]:
    gates = _GATES[node.op]

    def ordered(array: np.ndarray) -> np.ndarray:
        parts = np.split(array, len(gates), axis=-1)
        return np.concatenate([parts[gate] for gate in gates], axis=-1)

    kernels = [weight(values[n], "kernel")[number] for n in (1, 2)]
    weights = [ordered(kernel.T) for kernel in kernels]
    if optional(values, 3) is not None:
        both = weight(values[3], "bias")[number].reshape(2, -1)
        keeps_both = node.op == "GRU" and node.attrs.get("linear_before_reset", 0)
        bias = both if keeps_both else both.sum(axis=0, dtype=both.dtype)
        weights.append(ordered(bias))
    return weights
