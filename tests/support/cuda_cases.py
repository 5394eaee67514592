"""Programs that the CUDA backend is checked on, emulated and on a GPU."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from cpu_checks import pure, training_step
from graph_maker import Maker
from layer_cases import Case

from ganglion import layers, models
from ganglion.compiler.ir import arrays, contraction, pointwise, shaping
from ganglion.compiler.ir.gradient import gradients
from ganglion.compiler.ir.graph import Graph, Input


def product(size, dtype):
    """Return products of awkward sizes, with both operands lying either way."""
    rng = np.random.default_rng(size)
    inputs, ends, data = [], {}, {}
    shapes = ((size, 5, 17), (3, size, 2), (2, 7, size), (size, size, size))
    for number, (m, k, n) in enumerate(shapes):
        a = Input(f"a{number}", (m, k), dtype)
        b = Input(f"b{number}", (k, n), dtype)
        inputs += [a, b]
        ends[f"ab{number}"] = contraction.matmul(a, b)
        ends[f"ba{number}"] = contraction.matmul(
            shaping.transpose(b, axes=(1, 0)), shaping.transpose(a, axes=(1, 0))
        )
        data |= {a.name: rng.normal(size=(m, k)), b.name: rng.normal(size=(k, n))}
    data = {name: array.astype(dtype) for name, array in data.items()}
    return pure(Graph.of("products", inputs, ends)), data, {}


def loops(size, dtype):
    """Return maps and reductions of awkward sizes."""
    rng = np.random.default_rng(size)
    x = Input("x", (size, 3, size), dtype)
    ends = {
        "map": pointwise.exp(x),
        "rows": shaping.sum_(x, axes=(2,)),
        "columns": shaping.sum_(x, axes=(0,)),
        "all": shaping.sum_(x, axes=(0, 1, 2)),
        "largest": arrays.max_(x, axes=(0, 2)),
        "where": arrays.argmax(x, axis=2),
        "running": arrays.cumsum(x, axis=0),
        "transposed": pointwise.negative(shaping.transpose(x, axes=(2, 0, 1))),
    }
    data = {"x": rng.normal(size=x.shape).astype(dtype)}
    return pure(Graph.of("loops", [x], ends)), data, {}


def convolution(rows, channels):
    """Return a training step of a convolution of awkward sizes."""
    arguments = {"filters": channels, "kernel_size": 3, "padding": "same"}
    case = Case("Conv2D", ((rows, 7, 9, channels),), arguments)
    return training_step(case, "float32")


@dataclass
class Stack:
    """Convolutions and batch norms, where a layer would be."""

    shape: tuple[int, ...]
    filters: int
    classes: int = 0

    @property
    def shapes(self):
        return (self.shape,)

    def make(self, _):
        inner = [layers.Input(self.shape[1:])]
        for _ in range(2):
            inner += [layers.Conv2D(self.filters, 3, padding="same", activation=None)]
            inner += [layers.BatchNormalization(), layers.ReLU()]
        return models.Sequential([*inner, layers.MaxPooling2D()])

    def call(self, layer, inputs):
        return layer(inputs)

    def inputs(self):
        return np.random.default_rng(0).normal(size=self.shape).astype("float32")


STACKS = (
    Stack((5, 6, 6, 3), 32),
    Stack((3, 9, 7, 8), 24),
    Stack((2, 5, 5, 4), 5),
    Stack((2, 6, 6, 4), 5),
)


def random_graphs(count):
    """Yield random graphs with their gradients, and what they run on."""
    from hypothesis import HealthCheck, Phase, given, seed, settings
    from hypothesis import strategies as st

    graphs = []

    @seed(7)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data(), st.integers(1, 12))
    def collect(data, steps):
        graphs.append(_graph(Maker(data, "float64", smooth=True).graph(steps), steps))

    collect()
    return graphs[:count]


def _graph(graph, steps):
    last = graph.outputs["last"]
    loss = pointwise.sin(shaping.sum_(last, axes=tuple(range(last.ndim))))
    slopes = gradients(loss, graph.inputs)
    ends = {f"slope {k.name}": v for k, v in slopes.items()} | dict(graph.outputs)
    rng = np.random.default_rng(steps)
    data = {x.name: rng.uniform(-1, 1, x.shape) for x in graph.inputs}
    return pure(Graph.of("random", graph.inputs, ends)), data


def scaled_bytes(rows, inner, columns):
    """Return products of scaled bytes with a matrix, and with another from the left."""
    rng = np.random.default_rng(rows)
    x = Input("x", (rows, inner), "uint8")
    w = Input("w", (inner, columns), "float32")
    g = Input("g", (rows, columns), "float32")
    floats = pointwise.cast(x, dtype="float32")
    floats = pointwise.multiply(floats, shaping.fill(1 / 255, floats))
    ends = {
        "forward": contraction.matmul(floats, w),
        "gradient": contraction.matmul(shaping.transpose(floats, axes=(1, 0)), g),
    }
    data = {
        "x": rng.integers(0, 256, x.shape).astype("uint8"),
        "w": rng.normal(size=w.shape).astype("float32"),
        "g": rng.normal(size=g.shape).astype("float32"),
    }
    return pure(Graph.of("bytes", [x, w, g], ends)), data, {}
