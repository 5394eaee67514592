"""Contractions in LLVM IR: one register-tiled micro-kernel for all of them.

A tile holds some rows times some vectors of columns in registers; every step of the
inner loops loads the vectors once and multiplies them by one broadcast element a row.

Where the plan lists the places at which a group of rows is not all zero, a tile may be
such a group, and its inner loop goes through the list: if the lists leave out enough,
which is seen when it runs. Such tiles have few rows; dense data takes the larger ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from ganglion.compiler.cpu.emitter import Emitted, Emitter
from ganglion.compiler.cpu.pack import as_packed, emit_pack
from ganglion.compiler.cpu.sparse import leaves_out, list_of
from ganglion.compiler.cpu.text import WIDTH, Val, llvm_type
from ganglion.compiler.plan.kernels import Axis, Contract

REGISTERS = 28  # accumulators that fit beside the operands in 32 vector registers
ROWS_AT_MOST, VECTORS_AT_MOST = 14, 4
MANY = 8  # pieces, from which on no piece needs to be cut


class Piece(NamedTuple):
    """Where a piece begins in left, right and out, and its number in the batch."""

    left: str
    right: str
    out: str
    number: str


class Span(NamedTuple):
    """Some rows or columns."""

    start: str
    size: int


class Shape(NamedTuple):
    """The largest tile, and whether its inner loop goes through a list."""

    rows: int
    vectors: int
    listed: bool = False


def emit_contract(kernel: Contract) -> Emitted:
    """Return a contraction as text."""
    return Contraction(kernel).emit()


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


def whole_tiles(size: int, most: int) -> list[tuple[int, int]]:
    """Cut an axis into tiles of one size, the last of which may be smaller.

    >>> whole_tiles(28, 12)
    [(0, 12), (12, 12), (24, 4)]
    """
    return [(start, min(most, size - start)) for start in range(0, size, most)]


class Contraction:
    """One contraction under construction."""

    def __init__(self, kernel: Contract) -> None:
        self.source, self.kernel = kernel, as_packed(kernel)
        self.emitter = Emitter()
        self.text, self.maths = self.emitter.text, self.emitter.maths
        self.dtype = kernel.out.buffer.dtype
        self.element = llvm_type(self.dtype)
        (self.columns,) = self.kernel.columns
        self.rows, self.tiled = kernel.rows[:-1], kernel.rows[-1]
        vectors = -(-self.columns.size // WIDTH)
        rows = min(self.tiled.size, ROWS_AT_MOST)
        fit = max(1, REGISTERS // rows)
        wide = min(vectors, fit, VECTORS_AT_MOST)
        most = WIDTH if vectors == 1 else ROWS_AT_MOST
        self.plain = Shape(min(REGISTERS // wide, most), wide)
        if kernel.places:
            few = min(vectors, VECTORS_AT_MOST)
            self.listed = Shape(kernel.places.group, few, listed=True)

    def emit(self) -> Emitted:
        """Emit pieces: a place of the batch, or a part of one where those are few."""
        kernel = self.kernel
        outer = (*kernel.batch, *self.rows)
        pieces = math.prod(axis.size for axis in outer)
        every = Span("0", self.tiled.size), Span("0", self.columns.size)
        if pieces >= MANY:

            def piece(number: list[str]) -> None:
                self._region(self._piece(outer, number[0]), *every)

            self.emitter.nest([("%lo", "%hi")], piece)
            return self.emitter.emitted(pieces)
        # The larger operand is the one to go through only once. Groups of rows have
        # more or fewer zeros, panels of columns are all the same work.
        even = kernel.places and self.columns.size >= MANY * VECTORS_AT_MOST * WIDTH
        large = kernel.right.buffer.size > kernel.left.buffer.size
        if kernel.packed or even or large:
            return self._by_panels(outer, pieces)
        return self._by_tiles(outer, pieces)

    def _by_tiles(self, outer: tuple[Axis, ...], pieces: int) -> Emitted:
        """Cut into tiles of rows, each of which runs over all columns."""
        text, most = self.text, self.plain.rows
        blocks = _tiles(self.tiled.size, most)
        if self.kernel.places:
            group = self.kernel.places.group
            blocks = whole_tiles(self.tiled.size, max(most // group, 1) * group)
        columns = Span("0", self.columns.size)

        def tile(number: list[str]) -> None:
            where, block = self._divided(number[0], len(blocks))
            piece = self._piece(outer, where)
            first = 0
            for start, size, length in runs(blocks):

                def here(
                    start: int = start, size: int = size, first: int = first
                ) -> None:
                    local = text.let(f"sub i64 {block}, {first}")
                    row = text.add(text.times(local, size), str(start))
                    self._region(piece, Span(row, size), columns)

                self._when(block, first, first + length, here)
                first += length

        self.emitter.nest([("%lo", "%hi")], tile)
        return self.emitter.emitted(pieces * len(blocks))

    def _by_panels(self, outer: tuple[Axis, ...], pieces: int) -> Emitted:
        """Cut into panels of columns, each of which runs over all rows."""
        text = self.text
        listed = self.kernel.places and not self.kernel.packed
        wide = (self.listed if listed else self.plain).vectors * WIDTH
        whole, rest = divmod(self.columns.size, wide)
        count = whole + bool(rest)

        def panel(number: list[str]) -> None:
            where, block = self._divided(number[0], count)
            piece = self._piece(outer, where)
            column = text.times(block, wide)
            if self.kernel.packed:  # each panel begins where the packed ones do
                piece = piece._replace(right=text.let(f"sub i64 0, {column}"))
            for first, last, size in ((0, whole, wide), (whole, count, rest)):

                def here(size: int = size) -> None:
                    rows = Span("0", self.tiled.size)
                    if self.kernel.packed:
                        emit_pack(self.emitter, self.source, column, size)
                    self._region(piece, rows, Span(column, size), by_panels=True)

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
        text.when(text.let(f"and i1 {above}, {below}"), body)

    def _piece(self, axes: tuple[Axis, ...], number: str) -> Piece:
        """Return where a piece lies."""
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
        return Piece(left, right, out, number)

    # ---- a region: some rows times some columns ------------------------------------

    def _region(
        self, piece: Piece, rows: Span, columns: Span, by_panels: bool = False
    ) -> None:
        """Run over a region, through the lists of its rows where that is worth it."""
        text, places = self.text, self.kernel.places
        emit = partial(self._tiles_of, piece, rows, columns, by_panels)
        if not places:
            emit(self.plain)
            return
        few = leaves_out(self.emitter, places, piece.number, rows.start, rows.size)
        text.when(few, partial(emit, self.listed), partial(emit, self.plain))

    def _tiles_of(
        self, piece: Piece, rows: Span, columns: Span, by_panels: bool, shape: Shape
    ) -> None:
        """Run over a region in tiles: panel by panel, or row by row."""
        tile = partial(self._tile, piece, shape.listed)
        if by_panels:
            self._panels(
                columns,
                shape,
                lambda column, widths: self._rows(
                    rows, shape, lambda row, size: tile(row, size, column, widths)
                ),
            )
        else:
            self._rows(
                rows,
                shape,
                lambda row, size: self._panels(
                    columns,
                    shape,
                    lambda column, widths: tile(row, size, column, widths),
                ),
            )

    def _rows(self, span: Span, shape: Shape, body: Callable[[str, int], None]) -> None:
        """Run a body for every tile of rows."""
        text = self.text
        cut = whole_tiles if shape.listed else _tiles
        for start, size, count in runs(cut(span.size, shape.rows)):

            def tile(row: str, _: list[str], size: int = size) -> list[str]:
                body(text.add(span.start, row), size)
                return []

            text.loop(str(start), str(start + size * count), size, tile)

    def _panels(
        self, span: Span, shape: Shape, body: Callable[[str, list[int]], None]
    ) -> None:
        """Run a body for every panel of columns."""
        text = self.text
        wide = shape.vectors * WIDTH
        whole = span.size // wide * wide

        def panel(column: str, _: list[str]) -> list[str]:
            body(text.add(span.start, column), [WIDTH] * shape.vectors)
            return []

        text.loop("0", str(whole), wide, panel)
        rest = span.size - whole
        if rest:
            body(text.add(span.start, str(whole)), _widths(rest))

    # ---- a tile --------------------------------------------------------------------

    def _tile(
        self,
        piece: Piece,
        listed: bool,
        row: str,
        size: int,
        column: str,
        widths: list[int],
    ) -> None:
        text, kernel = self.text, self.kernel
        a = text.add(piece.left, text.times(row, self.tiled.left))
        b = text.add(piece.right, text.times(column, self.columns.right))
        a = text.address(self.emitter.base(kernel.left.buffer), self.element, a)
        b = text.address(self.emitter.base(kernel.right.buffer), self.element, b)
        zeros = [self.maths.constant(0, self.dtype, w) for w in widths] * size
        if listed and kernel.places:
            stop, places = list_of(self.emitter, kernel.places, piece.number, row)
            totals = self._listed(stop, places, a, b, zeros, size, widths)
        else:
            totals = self._inner(0, a, b, zeros, size, widths)
        self._store(piece, row, size, column, widths, totals)

    def _store(
        self,
        piece: Piece,
        row: str,
        size: int,
        column: str,
        widths: list[int],
        totals: list[Val],
    ) -> None:
        text, kernel = self.text, self.kernel
        c = text.add(piece.out, text.times(row, self.tiled.out))
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
            inner = named(carried, totals)
            made = self._inner(depth + 1, here, there, inner, size, widths)
            return [one.name for one in made]

        kinds = [(t.type, t.name) for t in totals]
        return named(text.loop("0", str(axis.size), 1, step, kinds), totals)

    def _listed(
        self,
        stop: str,
        places: str,
        a: str,
        b: str,
        totals: list[Val],
        size: int,
        widths: list[int],
    ) -> list[Val]:
        """Add up over the places of a list."""
        text, (axis,) = self.text, self.kernel.inner

        def step(index: str, carried: list[str]) -> list[str]:
            at = text.address(places, "i32", index)
            short = text.let(f"load i32, ptr {at}, align 4")
            place = text.let(f"zext i32 {short} to i64")
            here = text.address(a, self.element, text.times(place, axis.left))
            there = text.address(b, self.element, text.times(place, axis.right))
            made = self._step(here, there, named(carried, totals), size, widths)
            return [one.name for one in made]

        kinds = [(t.type, t.name) for t in totals]
        return named(text.loop("0", stop, 1, step, kinds), totals)

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


def named(names: list[str], like: list[Val]) -> list[Val]:
    """Return values of other names, but the same types."""
    return [Val(n, t.dtype, t.width) for n, t in zip(names, like, strict=True)]


def _widths(columns: int) -> list[int]:
    """Cut columns into vectors, the last one narrower."""
    rest = columns % WIDTH
    return [WIDTH] * (columns // WIDTH) + ([rest] if rest else [])


def runs(blocks: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Group tiles of one size: (start, size, how many)."""
    found: list[tuple[int, int, int]] = []
    for start, size in blocks:
        if found and found[-1][1] == size:
            first, _, count = found[-1]
            found[-1] = (first, size, count + 1)
        else:
            found.append((start, size, 1))
    return found
