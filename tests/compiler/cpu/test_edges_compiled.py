"""The calls at the edges, compiled: NaN, integers, empty axes."""

from __future__ import annotations

from typing import Any

import cpu_checks
import cuda_checks
import cuda_host
import numpy as np
import pytest
from ops_cases import Call
from ops_cases_edges import EDGES, EMPTY, NO_ROWS

import ganglion
from ganglion import config, layers, ops, tree
from ganglion.compiler.ir.graph import Graph, Input, Program, Value
from ganglion.compiler.ir.simplify import simplify
from ganglion.variables import Scope

pytest.importorskip("llvmlite", reason="llvmlite is not installed")

TOGETHER = 40  # calls in one program: to compile them one by one takes long


def program_of(calls: list[Call]) -> tuple[Program, cpu_checks.Arrays]:
    """Return calls as one program, and what it runs on."""
    data: cpu_checks.Arrays = {}
    inputs: list[Input] = []

    def lifted(leaf: Any) -> Any:
        if not isinstance(leaf, np.ndarray):
            return leaf
        inputs.append(Input(f"x{len(inputs)}", leaf.shape, leaf.dtype))
        data[inputs[-1].name] = leaf
        return inputs[-1]

    outputs: dict[str, Value] = {}
    for number, call in enumerate(calls):
        args, kwargs = tree.map_leaves(lifted, (call.args, call.kwargs))
        with Scope():
            values = tree.flatten(getattr(ops, call.name)(*args, **kwargs))
        for index, value in enumerate(values):
            outputs[f"{number}/{call.name}/{index}"] = value
    return cpu_checks.pure(simplify(Graph.of("edges", inputs, outputs))), data


@pytest.mark.parametrize("first", range(0, len(EDGES), TOGETHER))
def test_on_the_cpu(first: int) -> None:
    program, data = program_of(EDGES[first : first + TOGETHER])
    cpu_checks.check(program, data, {}, rtol=2e-5, atol=2e-5)


@pytest.mark.skipif(
    cuda_host.reason() is not None, reason=str(cuda_host.reason() or "")
)
def test_nothing_and_whole_numbers_on_a_gpu(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("GANGLION_HOME", str(tmp_path))
    config.set_backend("numpy")
    chosen = {
        (call.name, np.shape(leaf)): call
        for call in EDGES
        for leaf in tree.flatten(call.args)
        if leaf is EMPTY or leaf is NO_ROWS
    }
    products = [call for call in EDGES if call.name in ("matmul", "inner", "in_top_k")]
    program, data = program_of([*chosen.values(), *products])
    cuda_checks.check(program, data, {}, tolerance=2e-5)


@pytest.mark.parametrize("kind", ["int8", "uint8", "int32", "int64"])
def test_whole_numbers_are_exact_and_trap_nowhere(kind: str) -> None:
    """Machines stop at a remainder by 0, and of the smallest number by -1."""
    low, high = np.iinfo(kind).min, np.iinfo(kind).max
    a = np.array([7, low, low, 0, high, high, high - 1, 3, 7], kind)
    b = np.array([0, -1, 1, 0, 3, 1, 2, 0, 2]).astype(kind)
    inputs = [Input("a", a.shape, kind), Input("b", b.shape, kind)]
    names = ("mod", "floor_divide", "power")
    with Scope():
        outputs: dict[str, Value] = {
            name: getattr(ops, name)(*inputs) for name in names
        }
        outputs["cube"] = ops.power(inputs[0], 7)
    program = cpu_checks.pure(Graph.of("g", inputs, outputs))
    cpu_checks.check(program, {"a": a, "b": b}, {}, rtol=0, atol=0)
    with np.errstate(all="ignore"):
        for name in ("mod", "floor_divide"):
            right = getattr(np, name)(a, b)
            np.testing.assert_array_equal(getattr(ops, name)(a, b), right)
        exponents = np.abs(b.astype("int64")) % 64
        right = np.power(a, exponents.astype(kind))
        np.testing.assert_array_equal(ops.power(a, exponents.astype(kind)), right)
        np.testing.assert_array_equal(ops.power(a, 7), np.power(a, np.array(7, kind)))


# ---- models --------------------------------------------------------------------------


def model_of(*stack: Any, shape: tuple[int, ...]) -> Any:
    model = ganglion.Sequential([ganglion.Input(shape), *stack])
    model.compile("sgd", "mse")
    return model


MODELS = [
    ((0,), [layers.Dense(2)], np.zeros((3, 2))),
    ((0, 3), [layers.Flatten(), layers.Dense(2)], np.zeros((3, 2))),
    ((0,), [layers.ReLU()], np.zeros((3, 0))),
    ((0,), [layers.Softmax()], np.zeros((3, 0))),
    ((0,), [layers.BatchNormalization()], np.zeros((3, 0))),
    ((0,), [layers.Reshape((-1, 2))], np.zeros((3, 0, 2))),
    ((0,), [layers.Embedding(3, 2)], np.zeros((3, 0, 2))),
    ((0, 3), [layers.GlobalAveragePooling1D()], np.full((3, 3), np.nan)),
    ((0, 3), [layers.ZeroPadding1D(1)], np.zeros((3, 2, 3))),
    ((2, 0), [layers.Conv1D(2, 1)], np.zeros((3, 2, 2))),
]


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
@pytest.mark.parametrize(("shape", "stack", "expected"), MODELS, ids=str)
def test_models_on_inputs_without_elements(backend, shape, stack, expected) -> None:
    config.set_backend(backend)
    stack = [type(layer).from_config(layer.get_config()) for layer in stack]
    model = model_of(*stack, shape=shape)
    x = np.zeros((3, *shape), "float32")
    np.testing.assert_array_equal(model.predict(x, verbose=0), expected)
    model.evaluate(x, expected, verbose=0)


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_training_with_an_input_without_elements(backend) -> None:
    config.set_backend(backend)
    nothing, some = ganglion.Input((0,)), ganglion.Input((2,))
    joined = layers.Concatenate()([nothing, layers.Dropout(0.5)(some)])
    outputs = [layers.Dense(1)(joined), layers.Dense(1)(nothing)]
    model = ganglion.Model([nothing, some], outputs)
    model.compile("adam", "mse")
    x = [np.zeros((4, 0), "float32"), np.ones((4, 2), "float32")]
    y = [np.ones((4, 1)), np.ones((4, 1))]
    history = model.fit(x, y, epochs=2, verbose=0).history
    assert np.isfinite(history["loss"]).all()
    assert [weight.shape for weight in model.layers[-1].weights] == [(0, 1), (1,)]
