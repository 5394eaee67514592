"""Contractions in LLVM IR: one register-tiled micro-kernel for all of them.

A tile holds some rows times some vectors of columns in registers; every step of the
inner loops loads the vectors once and multiplies them by one broadcast element a row.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ganglion.backends.cpu_emitter import Emitted, Emitter
from ganglion.backends.cpu_text import WIDTH, Val, llvm_type
from ganglion.plan.kernel import Axis, Contract

REGISTERS = 28  # accumulators that fit beside the operands in 32 vector registers
ROWS_AT_MOST, VECTORS_AT_MOST = 14, 4
MANY = 8  # pieces, from which on no piece needs to be cut


def emit_contract(kernel: Contract) -> Emitted:
    """Return a contraction as text."""
    return _Contraction(kernel).emit()


def _tiles(size: int, most: int) -> list[tuple[int, int]]:
    """Cut an axis into tiles of nearly equal size: (first, size) of each.

    >>> _tiles(28, 12)
    [(0, 10), (10, 9), (19, 9)]
    """
    count = -(-size // most)
    base, longer = divmod(size, count)
    tiles, at = [], 0
    for number in range(count):
        length = base + (number < longer)
        tiles.append((at, length))
        at += length
    return tiles


class _Contraction:
    """One contraction under construction."""

    def __init__(self, kernel: Contract) -> None:
        self.kernel = kernel
        self.emitter = Emitter()
        self.text, self.maths = self.emitter.text, self.emitter.maths
        self.dtype = kernel.out.buffer.dtype
        self.element = llvm_type(self.dtype)
        (self.columns,) = kernel.columns
        self.rows, self.tiled = kernel.rows[:-1], kernel.rows[-1]
        vectors = -(-self.columns.size // WIDTH)
        rows = min(self.tiled.size, ROWS_AT_MOST)
        fit = max(1, REGISTERS // rows)
        self.vectors = min(vectors, fit, VECTORS_AT_MOST)
        most = WIDTH if vectors == 1 else ROWS_AT_MOST
        self.rows_at_most = min(REGISTERS // self.vectors, most)

    def emit(self) -> Emitted:
        """Emit pieces: a place of the batch, or a part of one where those are few."""
        kernel = self.kernel
        outer = (*kernel.batch, *self.rows)
        pieces = math.prod(axis.size for axis in outer)
        blocks = _tiles(self.tiled.size, self.rows_at_most)
        if pieces >= MANY:

            def piece(number: list[str]) -> None:
                left, right, out = self._origin(outer, number[0])
                self._rows(left, right, out, blocks, self._all_panels)

            self.emitter.nest([("%lo", "%hi")], piece)
            return self.emitter.emitted(pieces)
        # The larger operand is the one to go through only once.
        if kernel.right.buffer.size > kernel.left.buffer.size:
            return self._by_panels(outer, pieces, blocks)
        return self._by_tiles(outer, pieces, blocks)

    def _by_tiles(
        self, outer: tuple[Axis, ...], pieces: int, blocks: list[tuple[int, int]]
    ) -> Emitted:
        """Cut into tiles of rows, each of which runs over all columns."""
        text, count = self.text, len(blocks)
        starts = [(first, size, n) for first, size, n in _runs(blocks)]

        def tile(number: list[str]) -> None:
            where, block = self._divided(number[0], count)
            left, right, out = self._origin(outer, where)
            first = 0
            for start, size, length in starts:

                def here(
                    start: int = start, size: int = size, first: int = first
                ) -> None:
                    local = text.let(f"sub i64 {block}, {first}")
                    row = text.add(text.times(local, size), str(start))
                    self._all_panels(left, right, out, row, size)

                self._when(block, first, first + length, here)
                first += length

        self.emitter.nest([("%lo", "%hi")], tile)
        return self.emitter.emitted(pieces * count)

    def _by_panels(
        self, outer: tuple[Axis, ...], pieces: int, blocks: list[tuple[int, int]]
    ) -> Emitted:
        """Cut into panels of columns, each of which runs over all rows."""
        text = self.text
        wide = self.vectors * WIDTH
        whole, rest = divmod(self.columns.size, wide)
        count = whole + bool(rest)

        def panel(number: list[str]) -> None:
            where, block = self._divided(number[0], count)
            left, right, out = self._origin(outer, where)
            column = text.times(block, wide)
            for first, last, widths in (
                (0, whole, [WIDTH] * self.vectors),
                (whole, count, _widths(rest)),
            ):

                def here(widths: list[int] = widths) -> None:
                    def tile(
                        left: str, right: str, out: str, row: str, size: int
                    ) -> None:
                        self._tile(left, right, out, row, size, column, widths)

                    self._rows(left, right, out, blocks, tile)

                if first < last:
                    self._when(block, first, last, here)

        self.emitter.nest([("%lo", "%hi")], panel)
        return self.emitter.emitted(pieces * count)

    def _divided(self, number: str, count: int) -> tuple[str, str]:
        quotient = self.text.let(f"sdiv i64 {number}, {count}")
        return quotient, self.text.let(f"srem i64 {number}, {count}")

    def _when(
        self, value: str, first: int, last: int, body: Callable[[], None]
    ) -> None:
        """Run a body where first <= value < last."""
        text = self.text
        above = text.let(f"icmp sge i64 {value}, {first}")
        below = text.let(f"icmp slt i64 {value}, {last}")
        hit = text.let(f"and i1 {above}, {below}")
        yes, no = text.fresh("yes"), text.fresh("no")
        text.do(f"br i1 {hit}, label {yes}, label {no}")
        text.label(yes)
        body()
        text.do(f"br label {no}")
        text.label(no)

    def _origin(self, axes: tuple[Axis, ...], number: str) -> tuple[str, str, str]:
        """Return the offsets of a piece in left, right and out."""
        text, kernel = self.text, self.kernel
        left, right = str(kernel.left.offset), str(kernel.right.offset)
        out = str(kernel.out.offset)
        rest = number
        for position, axis in enumerate(reversed(axes)):
            last = position == len(axes) - 1
            index = rest
            if not last:
                index = text.let(f"srem i64 {rest}, {axis.size}")
                rest = text.let(f"sdiv i64 {rest}, {axis.size}")
            left = text.add(left, text.times(index, axis.left))
            right = text.add(right, text.times(index, axis.right))
            out = text.add(out, text.times(index, axis.out))
        return left, right, out

    def _rows(
        self,
        left: str,
        right: str,
        out: str,
        blocks: list[tuple[int, int]],
        body: Callable[[str, str, str, str, int], None],
    ) -> None:
        """Run a body for every tile of rows."""
        for start, size, count in _runs(blocks):

            def tile(row: str, _: list[str], size: int = size) -> list[str]:
                body(left, right, out, row, size)
                return []

            self.text.loop(str(start), str(start + size * count), size, tile)

    def _all_panels(self, left: str, right: str, out: str, row: str, size: int) -> None:
        """Run over all columns for one tile of rows."""
        text = self.text
        wide = self.vectors * WIDTH
        whole = self.columns.size // wide * wide

        def panel(column: str, _: list[str]) -> list[str]:
            self._tile(left, right, out, row, size, column, [WIDTH] * self.vectors)
            return []

        text.loop("0", str(whole), wide, panel)
        rest = self.columns.size - whole
        if rest:
            self._tile(left, right, out, row, size, str(whole), _widths(rest))

    def _tile(
        self,
        left: str,
        right: str,
        out: str,
        row: str,
        size: int,
        column: str,
        widths: list[int],
    ) -> None:
        text, kernel = self.text, self.kernel
        a = text.add(left, text.times(row, self.tiled.left))
        b = text.add(right, text.times(column, self.columns.right))
        a = text.address(self.emitter.base(kernel.left.buffer), self.element, a)
        b = text.address(self.emitter.base(kernel.right.buffer), self.element, b)
        zeros = [self.maths.constant(0, self.dtype, w) for w in widths] * size
        totals = self._inner(0, a, b, zeros, size, widths)
        c = text.add(out, text.times(row, self.tiled.out))
        c = text.add(c, text.times(column, self.columns.out))
        base = self.emitter.base(kernel.out.buffer)
        for r in range(size):
            for v in range(len(widths)):
                place = text.add(c, str(r * self.tiled.out + v * WIDTH))
                self.emitter.put(
                    totals[r * len(widths) + v],
                    text.address(base, self.element, place),
                )

    def _inner(
        self,
        depth: int,
        a: str,
        b: str,
        totals: list[Val],
        size: int,
        widths: list[int],
    ) -> list[Val]:
        text, axes = self.text, self.kernel.inner
        if depth == len(axes):
            return self._step(a, b, totals, size, widths)
        axis = axes[depth]

        def step(index: str, carried: list[str]) -> list[str]:
            here = text.address(a, self.element, text.times(index, axis.left))
            there = text.address(b, self.element, text.times(index, axis.right))
            inner = [
                Val(n, t.dtype, t.width) for n, t in zip(carried, totals, strict=True)
            ]
            made = self._inner(depth + 1, here, there, inner, size, widths)
            return [one.name for one in made]

        kinds = [(t.type, t.name) for t in totals]
        ends = text.loop("0", str(axis.size), 1, step, kinds)
        return [Val(n, t.dtype, t.width) for n, t in zip(ends, totals, strict=True)]

    def _step(
        self, a: str, b: str, totals: list[Val], size: int, widths: list[int]
    ) -> list[Val]:
        text = self.text
        right = []
        for v, width in enumerate(widths):
            address = text.address(b, self.element, str(v * WIDTH))
            right.append(self.emitter.load(address, self.dtype, width))
        made = []
        for r in range(size):
            address = text.address(a, self.element, str(r * self.tiled.left))
            one = self.emitter.load(address, self.dtype, 1)
            spread: dict[int, Val] = {}
            for v, width in enumerate(widths):
                if width not in spread:
                    spread[width] = self.maths.splat(one, width)
                old = totals[r * len(widths) + v]
                made.append(self.maths.fma(spread[width], right[v], old))
        return made


def _widths(columns: int) -> list[int]:
    """Cut columns into vectors, the last one narrower."""
    rest = columns % WIDTH
    return [WIDTH] * (columns // WIDTH) + ([rest] if rest else [])


def _runs(blocks: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Group tiles of one size: (start, size, how many)."""
    runs: list[tuple[int, int, int]] = []
    for start, size in blocks:
        if runs and runs[-1][1] == size:
            first, _, count = runs[-1]
            runs[-1] = (first, size, count + 1)
        else:
            runs.append((start, size, 1))
    return runs
