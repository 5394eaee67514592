"""Random graphs of pointwise ops, for the simplifier and the backends."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from ganglion.compiler.ir import arrays, contraction, shaping
from ganglion.compiler.ir import pointwise as p
from ganglion.compiler.ir.graph import Constant, Graph, Input, Value
from ganglion.compiler.ir.table import OPS

SIZES = (1, 2, 3)


UNARY = ("negative", "absolute", "tanh", "sigmoid", "sin", "exp", "stop_gradient")


BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum")


NUMBERS = (0.0, 1.0, -1.0, 0.5, 2.0, 0.1)


class Maker:
    """Grows a graph step by step out of what hypothesis draws."""

    def __init__(self, data: st.DataObject, dtype: str, smooth: bool) -> None:
        self.data, self.dtype, self.smooth = data, dtype, smooth
        # Large enough for NumPy's sums and products to depend on the layout.
        sizes = [(2, 3), (3,), (3, 2), *([] if smooth else [(16, 20), (20, 16)])]
        shapes = data.draw(st.lists(st.sampled_from(sizes), min_size=1, max_size=3))
        self.inputs = [Input(f"x{i}", shape, dtype) for i, shape in enumerate(shapes)]
        self.values: list[Value] = list(self.inputs)

    def pick(self) -> Value:
        # The newest values first, so that graphs grow deep as well as wide.
        back = self.data.draw(st.integers(0, min(3, len(self.values) - 1)))
        return self.values[-1 - back]

    def constant(self, shape: tuple[int, ...]) -> Value:
        number = self.data.draw(st.sampled_from(NUMBERS))
        if self.data.draw(st.booleans()):
            return shaping.broadcast(Constant(number, self.dtype), shape=shape)
        return Constant(np.full(shape, number), self.dtype)

    def partner(self, x: Value) -> Value:
        same = [value for value in self.values if value.shape == x.shape]
        if self.data.draw(st.booleans()):
            return self.data.draw(st.sampled_from(same))
        return self.constant(x.shape)

    def step(self) -> None:
        moves = [self.unary, self.binary, self.choose, self.reduce, self.reshape]
        moves += [self.transpose, self.broadcast, self.slice_pad, self.product]
        self.values.append(self.data.draw(st.sampled_from(moves))(self.pick()))

    def unary(self, x: Value) -> Value:
        names = ("tanh", "sigmoid", "sin", "negative") if self.smooth else UNARY
        return OPS[self.data.draw(st.sampled_from(names))](x)

    def binary(self, x: Value) -> Value:
        names = ("add", "subtract", "multiply") if self.smooth else BINARY
        return OPS[self.data.draw(st.sampled_from(names))](x, self.partner(x))

    def choose(self, x: Value) -> Value:
        if self.smooth:
            return p.sigmoid(x)
        condition = p.less(x, self.partner(x))
        if self.data.draw(st.booleans()):
            condition = shaping.fill(self.data.draw(st.booleans()), condition)
        return p.where(condition, x, self.partner(x))

    def reduce(self, x: Value) -> Value:
        axes = tuple(i for i in range(x.ndim) if self.data.draw(st.booleans()))
        if self.smooth or not axes or self.data.draw(st.booleans()):
            return shaping.sum_(x, axes=axes)
        return arrays.max_(x, axes=axes)

    def reshape(self, x: Value) -> Value:
        options = [(x.size,), (1, x.size), (x.size, 1), x.shape]
        if x.size % 2 == 0:
            options.append((2, x.size // 2))
        return shaping.reshape(x, shape=self.data.draw(st.sampled_from(options)))

    def transpose(self, x: Value) -> Value:
        axes = self.data.draw(st.permutations(range(x.ndim)))
        return shaping.transpose(x, axes=tuple(axes))

    def broadcast(self, x: Value) -> Value:
        wide = tuple(
            self.data.draw(st.sampled_from(SIZES)) if n == 1 else n for n in x.shape
        )
        lead = (2,) if x.ndim < 3 and self.data.draw(st.booleans()) else ()
        return shaping.broadcast(x, shape=lead + wide)

    def slice_pad(self, x: Value) -> Value:
        starts = tuple(self.data.draw(st.integers(0, n - 1)) for n in x.shape)
        steps = tuple(self.data.draw(st.integers(1, 2)) for _ in x.shape)
        if self.data.draw(st.booleans()):
            return arrays.slice_(x, starts=starts, stops=x.shape, steps=steps)
        pairs = tuple((0, start) for start in starts)
        interior = (0,) * x.ndim
        return arrays.pad(x, pairs=pairs, interior=interior, value=0.0)

    def product(self, x: Value) -> Value:
        if x.ndim != 2:
            return p.negative(x)
        return contraction.matmul(x, shaping.transpose(self.partner(x), axes=(1, 0)))

    def graph(self, steps: int) -> Graph:
        for _ in range(steps):
            if self.values[-1].size > 400:
                self.values.append(shaping.sum_(self.values[-1], axes=(0,)))
            self.step()
        ends = {"last": self.values[-1], "middle": self.pick()}
        return Graph.of("random", self.inputs, ends)
