"""A kernel under construction: memory, expressions and loops in LLVM IR."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ganglion.compiler.cpu.philox import Random
from ganglion.compiler.cpu.pointwise import BOOL, Maths
from ganglion.compiler.cpu.text import WIDTH, Text, Val, lanes, memory_type
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

I64 = np.dtype("int64")


@dataclass(frozen=True)
class Emitted:
    """A kernel's text, what it is called with, and how it may be cut."""

    text: str
    declared: frozenset[str]
    buffers: tuple[Buffer, ...]
    parallel: int
    grain: int


class Emitter:
    """A kernel under construction: its function, and the buffers it is called with."""

    def __init__(self, name: str = "kernel") -> None:
        self.text = Text(name, "ptr noalias %args, i64 %lo, i64 %hi")
        self.maths = Maths(self.text)
        self.random = Random(self.text, self.maths)
        self.buffers: list[Buffer] = []
        self._bases: dict[Buffer, str] = {}
        # Views of which more will be needed, and how many elements farther on.
        self.ahead: dict[View, int] = {}

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

    def emitted(self, parallel: int, grain: int = 1) -> Emitted:
        """End the function."""
        return Emitted(
            self.text.finish(),
            frozenset(self.text.declared),
            tuple(self.buffers),
            parallel,
            grain,
        )

    # ---- memory --------------------------------------------------------------------

    def load(self, address: str, dtype: np.dtype, width: int) -> Val:
        """Load neighbouring elements."""
        kind = lanes(memory_type(dtype), width)
        align = dtype.itemsize
        name = self.text.let(f"load {kind}, ptr {address}, align {align}")
        if dtype == BOOL:
            zero = "0" if width == 1 else "zeroinitializer"
            name = self.text.let(f"icmp ne {kind} {name}, {zero}")
        return Val(name, dtype, width)

    def put(self, value: Val, address: str) -> None:
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
        if view in self.ahead and width > 1:
            farther = self.text.add(index, str(self.ahead[view]))
            element = memory_type(view.buffer.dtype)
            self.fetch(self.text.address(self.base(view.buffer), element, farther))
        return self._spread(view.buffer, index, view.strides, vector, width)

    def fetch(self, address: str) -> None:
        """Have a line of memory brought into the second-level cache."""
        self.text.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        self.text.do(f"call void @llvm.prefetch.p0(ptr {address}, i32 0, i32 2, i32 1)")

    def _spread(
        self,
        buffer: Buffer,
        index: str,
        strides: tuple[int, ...],
        vector: int,
        width: int,
    ) -> Val:
        dtype, element = buffer.dtype, memory_type(buffer.dtype)
        base = self.base(buffer)
        step = strides[vector] if width > 1 else 0
        if width > 1 and step == 1:
            address = self.text.address(base, element, index)
            return self.load(address, dtype, width)
        if step == 0:
            one = self.load(self.text.address(base, element, index), dtype, 1)
            return self.maths.splat(one, width)
        parts = []
        for lane in range(width):
            place = self.text.add(index, str(lane * step))
            parts.append(self.load(self.text.address(base, element, place), dtype, 1))
        return self.maths.gathered(parts)

    def put_view(
        self, value: Val, view: View, at: list[str], vector: int, width: int
    ) -> None:
        """Store into a view."""
        index = self.text.affine(at, view.strides, view.offset)
        element, base = memory_type(view.buffer.dtype), self.base(view.buffer)
        if width == 1 or view.strides[vector] == 1:
            self.put(value, self.text.address(base, element, index))
            return
        for lane in range(width):
            place = self.text.add(index, str(lane * view.strides[vector]))
            one = self.maths.lane(value, lane)
            self.put(one, self.text.address(base, element, place))

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
        for one in walk(*exprs):
            if isinstance(one, Load) and one.view in loaded:
                known[id(one)] = loaded[one.view]
                continue
            known[id(one)] = self._one(one, at, vector, width, known)
            if isinstance(one, Load):
                loaded[one.view] = known[id(one)]
        return [known[id(expr)] for expr in exprs]

    def _one(
        self, expr: Expr, at: list[str], vector: int, width: int, known: dict[int, Val]
    ) -> Val:
        if isinstance(expr, Load):
            return self.load_view(expr.view, at, vector, width)
        if isinstance(expr, Literal):
            return self.maths.constant(expr.value, expr.dtype, width)
        if isinstance(expr, Index):
            return self._index(expr, at, vector, width)
        if isinstance(expr, Apply):
            args = [known[id(arg)] for arg in expr.args]
            return self.maths.apply(expr.op, args, expr.dtype)
        if isinstance(expr, Indirect):
            return self._indirect(expr, at, vector, width, known[id(expr.row)])
        if isinstance(expr, Uniform):
            element = known[id(expr.element)]
            return self.random.uniform(self.base(expr.state), element, expr.dtype)
        assert isinstance(expr, Shuffled)
        position = known[id(expr.position)]
        return self.random.shuffled(self.base(expr.state), position, expr.rows)

    def _index(self, expr: Index, at: list[str], vector: int, width: int) -> Val:
        base = Val(self.text.affine(at, expr.strides, expr.offset), I64, 1)
        wide = self.maths.splat(base, width)
        if width > 1 and expr.strides[vector]:
            steps = ", ".join(f"i64 {i * expr.strides[vector]}" for i in range(width))
            wide = Val(
                self.text.let(f"add {wide.type} {wide.name}, <{steps}>"), I64, width
            )
        return self.maths.cast(wide, expr.dtype)

    def _indirect(
        self, expr: Indirect, at: list[str], vector: int, width: int, row: Val
    ) -> Val:
        """Load from the row an index names; lanes may lie in different rows."""
        within = self.text.affine(at, expr.within, expr.offset)
        same_row = width == 1 or not _varies(expr.row, vector)
        if same_row:
            first = row if width == 1 else self.maths.lane(row, 0)
            start, exists = self.row_start(first, expr.rows, expr.row_size)
            place = self.text.add(start, within)
            found = self._spread(expr.table, place, expr.within, vector, width)
            return self._or_nan(found, exists)
        parts = []
        for lane in range(width):
            one = self.maths.lane(row, lane)
            start, exists = self.row_start(one, expr.rows, expr.row_size)
            place = self.text.add(start, within)
            place = self.text.add(place, str(lane * expr.within[vector]))
            element = memory_type(expr.table.dtype)
            address = self.text.address(self.base(expr.table), element, place)
            found = self.load(address, expr.table.dtype, 1)
            parts.append(self._or_nan(found, exists))
        return self.maths.gathered(parts)

    def row_start(self, row: Val, rows: int, size: int) -> tuple[str, Val]:
        """Return where a row starts, and whether it exists; one that does not is 0."""
        index = self.maths.cast(row, I64)
        exists = self.maths.compare(
            "icmp ult", index, self.maths.constant(rows, I64, 1)
        )
        safe = self.maths.select(exists, index, self.maths.constant(0, I64, 1))
        return self.text.times(safe.name, size), exists

    def _or_nan(self, found: Val, exists: Val) -> Val:
        """Make what lies outside of a table show: not a number, and so is the loss."""
        if found.dtype.kind != "f":
            return found
        return self._or_number(found, exists, math.nan)

    def or_zero(self, found: Val, exists: Val) -> Val:
        """Leave out what goes to a row that does not exist."""
        return self._or_number(found, exists, 0)

    def _or_number(self, found: Val, exists: Val, number: float) -> Val:
        other = self.maths.constant(number, found.dtype, found.width)
        name = self.text.let(
            f"select i1 {exists.name}, {found.type} {found.name}, "
            f"{other.type} {other.name}"
        )
        return Val(name, found.dtype, found.width)

    # ---- loops over axes -------------------------------------------------------------

    def nest(
        self, sizes: list[tuple[str, str]], body: Callable[[list[str]], None]
    ) -> None:
        """Run a body for every place of some ranges, the last one fastest."""

        def inside(depth: int, at: list[str]) -> None:
            if depth == len(sizes):
                body(at)
                return
            start, stop = sizes[depth]

            def step(index: str, _: list[str]) -> list[str]:
                inside(depth + 1, [*at, index])
                return []

            self.text.loop(start, stop, 1, step)

        inside(0, [])

    def lanes_of(self, start: str, stop: str, body: Callable[[str, int], None]) -> None:
        """Run a body along an axis, many lanes at a time, then one by one."""
        text = self.text
        if start == "0" and stop.isdigit():
            whole = str(int(stop) // WIDTH * WIDTH)
        else:
            count = text.let(f"sub nsw i64 {stop}, {start}")
            cut = text.let(f"and i64 {count}, {-WIDTH}")
            whole = text.add(start, cut)

        def many(index: str, _: list[str]) -> list[str]:
            body(index, WIDTH)
            return []

        def single(index: str, _: list[str]) -> list[str]:
            body(index, 1)
            return []

        text.loop(start, whole, WIDTH, many)
        if whole.isdigit() and stop.isdigit():
            if int(stop) > int(whole):  # the rest is one narrower vector
                body(whole, int(stop) - int(whole))
            return
        text.loop(whole, stop, 1, single)


def _varies(expr: Expr, axis: int) -> bool:
    """Return whether an expression changes along an axis."""
    for one in walk(expr):
        if isinstance(one, Load) and one.view.strides[axis]:
            return True
        if isinstance(one, Index) and one.strides[axis]:
            return True
        if isinstance(one, Indirect) and one.within[axis]:
            return True
    return False
