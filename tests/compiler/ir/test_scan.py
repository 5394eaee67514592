"""A loop over time: values and gradients as if every step were written out."""

from collections.abc import Callable

import numpy as np
import pytest

from ganglion.compiler.ir.arrays import concat, slice_
from ganglion.compiler.ir.contraction import matmul
from ganglion.compiler.ir.gradient import gradients
from ganglion.compiler.ir.graph import Graph, Input, ShapeError, Value, evaluate
from ganglion.compiler.ir.pointwise import add, multiply, sigmoid, tanh
from ganglion.compiler.ir.scan import make_scan
from ganglion.compiler.ir.shaping import broadcast, reshape, sum_
from ganglion.compiler.ir.simplify import simplify

Values = list[Value]
STEPS, BATCH, FEATURES, UNITS = 5, 3, 4, 6
SHAPES = {
    "x": (STEPS, BATCH, FEATURES),
    "kernel": (FEATURES, 4 * UNITS),
    "recurrent": (UNITS, 4 * UNITS),
    "bias": (4 * UNITS,),
    "peephole": (UNITS,),
    "h": (BATCH, UNITS),
    "c": (BATCH, UNITS),
}


@pytest.fixture
def inputs() -> dict[str, Input]:
    return {name: Input(name, shape, "float64") for name, shape in SHAPES.items()}


def _cell(inputs: dict[str, Input]) -> Callable[..., tuple[Values, Values]]:
    """Return a step of an LSTM whose forget gate looks at weights of its own."""

    def step(state: list[Value], slices: list[Value]) -> tuple[Values, Values]:
        (h, c), (x,) = state, slices
        z = add(matmul(x, inputs["kernel"]), matmul(h, inputs["recurrent"]))
        z = add(z, broadcast(inputs["bias"], shape=z.shape))
        spans = [((0, i * UNITS), (BATCH, (i + 1) * UNITS)) for i in range(4)]
        i, f, g, o = (slice_(z, starts=a, stops=b, steps=(1, 1)) for a, b in spans)
        forget = multiply(sigmoid(f), broadcast(inputs["peephole"], shape=c.shape))
        c = add(multiply(forget, c), multiply(sigmoid(i), tanh(g)))
        h = multiply(sigmoid(o), tanh(c))
        return [h, c], [h]

    return step


def _written_out(
    step: Callable[..., tuple[Values, Values]],
    state: list[Value],
    x: Value,
    reverse: bool,
) -> tuple[Values, Values]:
    rows: dict[int, Value] = {}
    for number in reversed(range(STEPS)) if reverse else range(STEPS):
        starts, stops = (number, 0, 0), (number + 1, BATCH, FEATURES)
        row = slice_(x, starts=starts, stops=stops, steps=(1, 1, 1))
        state, (y,) = step(state, [reshape(row, shape=x.shape[1:])])
        rows[number] = reshape(y, shape=(1, *y.shape))
    return state, [concat(*(rows[i] for i in range(STEPS)), axis=0)]


def _losses(last: list[Value], ys: list[Value]) -> Value:
    total = sum_(multiply(ys[0], multiply(ys[0], ys[0])), axes=(0, 1, 2))
    for value in last:
        total = add(total, sum_(multiply(value, value), axes=(0, 1)))
    return total


@pytest.mark.parametrize("reverse", [False, True])
def test_gradients_are_those_of_steps_written_out(
    inputs: dict[str, Input], reverse: bool
) -> None:
    rng = np.random.default_rng(0)
    known = {value: rng.standard_normal(value.shape) for value in inputs.values()}
    step, state = _cell(inputs), [inputs["h"], inputs["c"]]
    loop = make_scan(step, state, [inputs["x"]], STEPS, reverse)
    written = _written_out(step, state, inputs["x"], reverse)
    results = []
    for last, ys in (loop, written):
        loss = _losses(last, ys)
        slopes = gradients(loss, inputs.values())
        outputs = {"loss": loss} | {name: slopes[x] for name, x in inputs.items()}
        graph = simplify(Graph.of("step", inputs.values(), outputs))
        results.append(evaluate(list(graph.outputs.values()), known))
    for name, ours, theirs in zip(outputs, *results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-13, err_msg=name)


def test_input_products_and_weight_gradients_are_outside(
    inputs: dict[str, Input],
) -> None:
    loop = make_scan(_cell(inputs), [inputs["h"], inputs["c"]], [inputs["x"]], STEPS)
    loss = _losses(*loop)
    slopes = gradients(loss, [inputs["kernel"], inputs["recurrent"], inputs["bias"]])
    outputs = {"loss": loss} | {f"d{i}": v for i, v in enumerate(slopes.values())}
    graph = simplify(Graph.of("step", inputs.values(), outputs))
    loops = [node for node in graph.nodes if node.op.name == "scan"]
    assert len(loops) == 2  # there and back: the gradient asks for no third
    for node in loops:
        names = [inner.op.name for inner in node.attrs["body"].nodes]
        assert names.count("matmul") == 1  # the recurrent product alone
        assert "pad" not in names
    assert sum(node.op.name == "matmul" for node in graph.nodes) == 3


def test_a_carry_that_changes_its_shape_is_refused(inputs: dict[str, Input]) -> None:
    def step(state: list[Value], slices: list[Value]) -> tuple[Values, Values]:
        return [reshape(state[0], shape=(UNITS, BATCH))], []

    with pytest.raises(ShapeError, match="must keep its shape"):
        make_scan(step, [inputs["h"]], [], 3)
