"""Programs with loops over time, and all gradients of them."""

from collections.abc import Callable

import numpy as np

from ganglion.compiler.ir.arrays import reverse, slice_
from ganglion.compiler.ir.contraction import matmul
from ganglion.compiler.ir.gradient import gradients
from ganglion.compiler.ir.graph import Graph, Input, Program, Value
from ganglion.compiler.ir.pointwise import add, multiply, sigmoid, tanh
from ganglion.compiler.ir.scan import make_scan
from ganglion.compiler.ir.shaping import broadcast, sum_
from ganglion.compiler.ir.simplify import simplify

Values = list[Value]
Step = Callable[[Values, Values], tuple[Values, Values]]


def _weights(features: int, units: int, gates: int) -> dict[str, Input]:
    shapes = {
        "kernel": (features, gates * units),
        "recurrent": (units, gates * units),
        "bias": (gates * units,),
    }
    return {name: Input(name, shape, "float32") for name, shape in shapes.items()}


def _gates(weights: dict[str, Input], h: Value, x: Value, count: int) -> Values:
    z = add(matmul(x, weights["kernel"]), matmul(h, weights["recurrent"]))
    z = add(z, broadcast(weights["bias"], shape=z.shape))
    rows, units = z.shape[0], z.shape[1] // count
    return [
        slice_(z, starts=(0, i * units), stops=(rows, (i + 1) * units), steps=(1, 1))
        for i in range(count)
    ]


def lstm(weights: dict[str, Input]) -> Step:
    def step(state: Values, slices: Values) -> tuple[Values, Values]:
        h, c = state
        i, f, g, o = _gates(weights, h, slices[0], 4)
        c = add(multiply(sigmoid(f), c), multiply(sigmoid(i), tanh(g)))
        h = multiply(sigmoid(o), tanh(c))
        return [h, c], [h]

    return step


def biased_input(weights: dict[str, Input]) -> Step:
    """Return a step in which a bias and a factor stand behind the input product."""

    def step(state: Values, slices: Values) -> tuple[Values, Values]:
        z = matmul(slices[0], weights["kernel"])
        z = add(multiply(z, z), broadcast(weights["bias"], shape=z.shape))
        h = tanh(add(z, matmul(state[0], weights["recurrent"])))
        return [h], [h]

    return step


def mixing(weights: dict[str, Input]) -> Step:
    """Return a step in which the rows of a batch do meet."""

    def step(state: Values, slices: Values) -> tuple[Values, Values]:
        (z,) = _gates(weights, state[0], slices[0], 1)
        h = tanh(add(z, reverse(state[0], axes=(0,))))
        return [h], [h]

    return step


def loop_program(
    make_step: Callable[[dict[str, Input]], Step],
    carries: int,
    steps: int,
    batch: int,
    features: int,
    units: int,
    backwards: bool = False,
) -> tuple[Program, dict[str, np.ndarray]]:
    """Return a program of a loop's results and of all gradients, and data for it."""
    weights = _weights(features, units, 4 if carries == 2 else 1)
    inputs = weights | {"x": Input("x", (steps, batch, features), "float32")}
    for number in range(carries):
        inputs[f"h{number}"] = Input(f"h{number}", (batch, units), "float32")
    state = [inputs[f"h{number}"] for number in range(carries)]
    last, ys = make_scan(make_step(weights), state, [inputs["x"]], steps, backwards)
    loss = sum_(multiply(ys[0], ys[0]), axes=(0, 1, 2))
    for value in last:
        loss = add(loss, sum_(value, axes=(0, 1)))
    slopes = gradients(loss, inputs.values())
    outputs = {"loss": loss, "y": ys[0]}
    outputs |= {f"d{name}": slopes[value] for name, value in inputs.items()}
    graph = simplify(Graph.of("loop", inputs.values(), outputs))
    rng = np.random.default_rng(0)
    data = {
        name: rng.normal(0, 0.3, value.shape).astype("float32")
        for name, value in inputs.items()
    }
    return Program(graph, tuple(inputs), (), tuple(outputs)), data


def nested_program() -> tuple[Program, dict[str, np.ndarray]]:
    """Return a program of a loop in a loop, and data for it."""
    x = Input("x", (4, 3, 8), "float32")
    scale = Input("scale", (8,), "float32")

    def outer(state: Values, slices: Values) -> tuple[Values, Values]:
        def inner(carried: Values, rows: Values) -> tuple[Values, Values]:
            new = tanh(add(multiply(carried[0], scale), rows[0]))
            return [new], [new]

        last, rows = make_scan(inner, state, slices, 3)
        return last, [sum_(rows[0], axes=(0,))]

    start = Input("start", (8,), "float32")
    last, ys = make_scan(outer, [start], [x], 4)
    loss = add(sum_(ys[0], axes=(0, 1)), sum_(last[0], axes=(0,)))
    inputs = [x, scale, start]
    slopes = gradients(loss, inputs)
    outputs = {"loss": loss, "y": ys[0]} | {f"d{v.name}": slopes[v] for v in inputs}
    graph = simplify(Graph.of("nested", inputs, outputs))
    rng = np.random.default_rng(0)
    data = {v.name: rng.normal(0, 1, v.shape).astype("float32") for v in inputs}
    program = Program(graph, tuple(data), (), tuple(outputs))
    return program, data
