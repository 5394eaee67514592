"""A kernel under construction: memory, expressions and loops in LLVM IR."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ganglion.compiler.cpu import functions
from ganglion.compiler.cpu.text import (
    BOOL,
    I64,
    WIDTH,
    Maths,
    Position,
    Text,
    Val,
    lanes,
    memory_type,
)
from ganglion.compiler.plan.kernels import (
    Apply,
    Buffer,
    Expr,
    Index,
    Indirect,
    Literal,
    Load,
    Shuffled,
    Uniform,
    View,
    walk,
)

Range = tuple[Position, Position]


def shared_ranges(shape: Sequence[int]) -> list[Range]:
    """Return the ranges of some axes; threads share the first."""
    first: list[Range] = [("%lo", "%hi")] if shape else []
    return [*first, *((0, size) for size in shape[1:])]


@dataclass(frozen=True)
class Emitted:
    """A kernel's text, the buffers it is called with, and how threads may split it."""

    text: str
    declared: frozenset[str]
    buffers: tuple[Buffer, ...]
    parallel: int
    grain: int
    helpers: frozenset[str] = frozenset()  # definitions of functions that it calls


class Emitter:
    """A kernel under construction: its function, and the buffers it is called with."""

    def __init__(self) -> None:
        self.text = Text("kernel", "ptr noalias %args, i64 %lo, i64 %hi")
        self.maths = Maths(self.text)
        self.buffers: list[Buffer] = []
        self._bases: dict[Buffer, str] = {}
        # Views to prefetch, and how many elements farther on.
        self.prefetched: dict[View, int] = {}

    def base(self, buffer: Buffer) -> str:
        """Return the address of a buffer; loaded at the top of the function."""
        if buffer not in self._bases:
            number = len(self.buffers)
            self.buffers.append(buffer)
            slot, name = self.text.fresh("slot"), self.text.fresh("base")
            self.text.prelude += [
                f"  {slot} = getelementptr inbounds ptr, ptr %args, i64 {number}",
                f"  {name} = load ptr, ptr {slot}, align 8",
            ]
            self._bases[buffer] = name
        return self._bases[buffer]

    def address(self, buffer: Buffer, index: Position) -> str:
        """Return the address of an element of a buffer."""
        return self.text.address(self.base(buffer), memory_type(buffer.dtype), index)

    def emitted(self, parallel: int, grain: int = 1) -> Emitted:
        """End the function."""
        text, declared = self.text.finish(), frozenset(self.text.declared)
        return Emitted(text, declared, tuple(self.buffers), parallel, grain)

    # ---- memory --------------------------------------------------------------------

    def load(self, address: str, dtype: np.dtype, width: int) -> Val:
        """Load neighbouring elements."""
        kind = lanes(memory_type(dtype), width)
        name = self.text.let(f"load {kind}, ptr {address}, align {dtype.itemsize}")
        if dtype == BOOL:
            zero = "0" if width == 1 else "zeroinitializer"
            name = self.text.let(f"icmp ne {kind} {name}, {zero}")
        return Val(name, dtype, width)

    def store(self, value: Val, address: str) -> None:
        """Store neighbouring elements."""
        name, kind = value.name, value.type
        if value.dtype == BOOL:
            kind = lanes("i8", value.width)
            name = self.text.let(f"zext {value.type} {name} to {kind}")
        align = value.dtype.itemsize
        self.text.do(f"store {kind} {name}, ptr {address}, align {align}")

    def load_view(self, view: View, at: list[str], vector: int, width: int) -> Val:
        """Load a view at some indices; `vector` is the axis that lanes run along."""
        index = self.text.affine(at, view.strides, view.offset)
        if view in self.prefetched and width > 1:
            farther = self.text.add(index, self.prefetched[view])
            self.prefetch(self.address(view.buffer, farther))
        return self._strided(view.buffer, index, view.strides[vector:], width)

    def prefetch(self, address: str, level: int = 2) -> None:
        """Have a line of memory brought into the cache of some level."""
        self.text.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        how = f"i32 0, i32 {4 - level}, i32 1"  # to be read, how near, data
        self.text.do(f"call void @llvm.prefetch.p0(ptr {address}, {how})")

    def _strided(
        self, buffer: Buffer, index: str, strides: tuple[int, ...], width: int
    ) -> Val:
        """Load lanes that lie as far apart as the first of some strides."""
        self.base(buffer)
        step = strides[0] if width > 1 else 0
        if step == 1:
            return self.load(self.address(buffer, index), buffer.dtype, width)
        if step == 0:
            scalar = self.load(self.address(buffer, index), buffer.dtype, 1)
            return self.maths.splat(scalar, width)
        scalars = []
        for lane in range(width):
            address = self.address(buffer, self.text.add(index, lane * step))
            scalars.append(self.load(address, buffer.dtype, 1))
        return self.maths.gathered(scalars)

    def store_view(
        self, value: Val, view: View, at: list[str], vector: int, width: int
    ) -> None:
        """Store into a view."""
        index = self.text.affine(at, view.strides, view.offset)
        self.base(view.buffer)
        if width == 1 or view.strides[vector] == 1:
            self.store(value, self.address(view.buffer, index))
            return
        for lane in range(width):
            offset = self.text.add(index, lane * view.strides[vector])
            scalar = self.maths.lane(value, lane)
            self.store(scalar, self.address(view.buffer, offset))

    # ---- expressions ---------------------------------------------------------------

    def expression(self, expr: Expr, at: list[str], vector: int, width: int) -> Val:
        """Emit an expression at some indices."""
        return self.expressions([expr], at, vector, width)[0]

    def expressions(
        self, exprs: list[Expr], at: list[str], vector: int, width: int
    ) -> list[Val]:
        """Emit expressions that share what they have in common."""
        known: dict[int, Val] = {}
        loaded: dict[View, Val] = {}
        for expr in walk(*exprs):
            if isinstance(expr, Load):
                if expr.view not in loaded:
                    value = self.load_view(expr.view, at, vector, width)
                    loaded[expr.view] = value
                known[id(expr)] = loaded[expr.view]
            else:
                known[id(expr)] = self._operation(expr, at, vector, width, known)
        return [known[id(expr)] for expr in exprs]

    def _operation(
        self, expr: Expr, at: list[str], vector: int, width: int, known: dict[int, Val]
    ) -> Val:
        if isinstance(expr, Apply):
            args = [known[id(arg)] for arg in expr.args]
            return functions.apply(self.maths, expr.op, args, expr.dtype)
        if isinstance(expr, Literal):
            return self.maths.constant(expr.value, expr.dtype, width)
        if isinstance(expr, Index):
            return self._index(expr, at, vector, width)
        if isinstance(expr, Indirect):
            return self._indirect(expr, at, vector, width, known[id(expr.row)])
        if isinstance(expr, Uniform):
            state, element = self.base(expr.state), known[id(expr.element)]
            return functions.uniform(self.maths, state, element, expr.dtype)
        assert isinstance(expr, Shuffled)
        state, position = self.base(expr.state), known[id(expr.position)]
        return functions.shuffled(self.maths, state, position, expr.rows)

    def _index(self, expr: Index, at: list[str], vector: int, width: int) -> Val:
        first = Val(self.text.affine(at, expr.strides, expr.offset), I64, 1)
        index = self.maths.splat(first, width)
        if width > 1 and expr.strides[vector]:
            steps = ", ".join(f"i64 {i * expr.strides[vector]}" for i in range(width))
            index = self.maths.add(index, Val(f"<{steps}>", I64, width))
        return self.maths.cast(index, expr.dtype)

    def _indirect(
        self, expr: Indirect, at: list[str], vector: int, width: int, row: Val
    ) -> Val:
        """Load from the row an index names; lanes may lie in different rows."""
        within = self.text.affine(at, expr.within, expr.offset)
        if width == 1 or not _varies(expr.row, vector):
            first = row if width == 1 else self.maths.lane(row, 0)
            start, exists = self.row_start(first, expr.rows, expr.row_size)
            index = self.text.add(start, within)
            value = self._strided(expr.table, index, expr.within[vector:], width)
            return self._or_nan(value, exists)
        scalars = []
        for lane in range(width):
            number = self.maths.lane(row, lane)
            start, exists = self.row_start(number, expr.rows, expr.row_size)
            index = self.text.add(start, within)
            index = self.text.add(index, lane * expr.within[vector])
            value = self.load(self.address(expr.table, index), expr.table.dtype, 1)
            scalars.append(self._or_nan(value, exists))
        return self.maths.gathered(scalars)

    def row_start(self, row: Val, rows: int, size: int) -> tuple[str, Val]:
        """Return where a row starts, and whether it exists; one that does not is 0."""
        index = self.maths.cast(row, I64)
        count, zero = (self.maths.constant(n, I64, 1) for n in (rows, 0))
        exists = self.maths.compare("icmp ult", index, count)
        safe = self.maths.select(exists, index, zero)
        return self.text.times(safe.name, size), exists

    def _or_nan(self, value: Val, exists: Val) -> Val:
        """Make reads outside of a table show: not a number, and so is the loss."""
        if value.dtype.kind != "f":
            return value
        nan = self.maths.constant(math.nan, value.dtype, value.width)
        return self.maths.select(exists, value, nan)

    # ---- loops over axes -------------------------------------------------------------

    def nest(self, ranges: Sequence[Range], body: Callable[[list[str]], None]) -> None:
        """Run a body for every iteration point of some ranges, the last one fastest."""

        def inside(at: list[str]) -> None:
            if len(at) == len(ranges):
                body(at)
            else:
                start, stop = ranges[len(at)]
                self.text.each(start, stop, 1, lambda index: inside([*at, index]))

        inside([])

    def pieces(self, count: int, body: Callable[[str], None]) -> Emitted:
        """Run a body for the pieces of a thread, and end the function."""
        self.text.each("%lo", "%hi", 1, body)
        return self.emitted(count)

    def in_vectors(
        self, start: Position, stop: Position, body: Callable[[str, int], None]
    ) -> None:
        """Run a body along an axis, a vector at a time, then for what is left."""
        text = self.text
        if isinstance(stop, int):
            middle = stop // WIDTH * WIDTH
            text.each(start, middle, WIDTH, lambda index: body(index, WIDTH))
            if stop > middle:  # one narrower vector
                body(str(middle), stop - middle)
            return
        count = text.let(f"sub nsw i64 {stop}, {start}")
        vectors = text.add(str(start), text.let(f"and i64 {count}, {-WIDTH}"))
        text.each(start, vectors, WIDTH, lambda index: body(index, WIDTH))
        text.each(vectors, stop, 1, lambda index: body(index, 1))


def _varies(expr: Expr, axis: int) -> bool:
    """Return whether an expression changes along an axis."""
    return any(
        (isinstance(part, Load) and part.view.strides[axis])
        or (isinstance(part, Index) and part.strides[axis])
        or (isinstance(part, Indirect) and part.within[axis])
        for part in walk(expr)
    )
