"""Emit contractions as LLVM IR: a single register-tiled micro-kernel for all of them.

A tile holds some rows times some vectors of columns in registers; every step of the
inner loops loads the vectors once and multiplies them by a broadcast element per row.

If the plan lists the indices at which a group of rows has nonzeros, a tile may be such
a group, and its inner loop visits the listed indices only: if the lists are short
enough, which is decided at run time. Such tiles have few rows; dense data takes larger
tiles.

A long inner axis is blocked, so that operands that tiles share stay in the cache; the
partial sums are stored between blocks. They are added in the same order, with the same
bits. Products of large matrices are in `packed_gemm`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial

from ganglion.compiler.cpu.emitter import Emitted, Emitter
from ganglion.compiler.cpu.epilogue import Epilogue
from ganglion.compiler.cpu.products.small_gemm import (
    FEWEST_SUMS,
    goes_by_panels,
    outer_pieces,
)
from ganglion.compiler.cpu.text import (
    BOOL,
    WIDTH,
    Text,
    Val,
    llvm_type,
    memory_type,
    vector_widths,
)
from ganglion.compiler.cpu.tiles import (
    Block,
    Extent,
    Piece,
    Span,
    Tile,
    TileShape,
    blocked_grain,
    blocks_of,
    each_tile,
    even_tiles,
    full_tiles,
    grouped,
    piece_of,
)
from ganglion.compiler.cpu.tuning import CPU, accumulators
from ganglion.compiler.plan.kernels import Axis, Contract, NonzeroIndices


def in_blocks(kernel: Contract) -> bool:
    """Return whether the inner axis of a product is blocked."""
    size, *more = (axis.size for axis in kernel.inner)
    return not more and size >= CPU.blocked_inner


def _divisor(size: int, most: int) -> int:
    return max(n for n in range(1, most + 1) if size % n == 0)


class Contraction:
    """A contraction under construction."""

    def __init__(
        self,
        kernel: Contract,
        emitter: Emitter | None = None,
        epilogue: Epilogue | None = None,
    ) -> None:
        self.kernel, self.emitter = kernel, emitter or Emitter()
        self.text, self.maths = self.emitter.text, self.emitter.maths
        self.dtype = kernel.out.buffer.dtype
        self.element = llvm_type(self.dtype)
        # Exported weights may be bytes, which are converted when they are loaded.
        self.right_dtype = kernel.right.buffer.dtype
        self.right_element = memory_type(self.right_dtype)
        (self.columns,) = self.kernel.columns
        self.rows, self.tiled = kernel.rows[:-1], kernel.rows[-1]
        vectors = -(-self.columns.size // WIDTH)
        registers = accumulators()
        fit = max(1, registers // min(self.tiled.size, CPU.tile_rows))
        wide = min(vectors, fit, max(CPU.tile_vectors, FEWEST_SUMS // self.tiled.size))
        most = WIDTH if vectors == 1 else CPU.tile_rows
        self.dense = TileShape(max(1, min(registers // wide, most)), wide)
        if kernel.nonzeros:
            wide = min(vectors, CPU.tile_vectors)
            self.skipping = TileShape(kernel.nonzeros.group, wide, skips=True)
        self.block: Block | None = None
        self.epilogue = epilogue
        if kernel.epilogue and epilogue is None:
            out, wide = kernel.out.buffer, CPU.tile_vectors * WIDTH
            most = WIDTH * wide
            self.epilogue = Epilogue(kernel.epilogue, out, self.emitter, most, wide)

    def emit(self) -> Emitted:
        """Emit the product by pieces: batch indices, or parts of few batch indices."""
        outer = (*self.kernel.batch, *self.rows)
        pieces = outer_pieces(self.kernel)
        if pieces >= CPU.enough_pieces:
            rows, columns = Span("0", self.tiled.size), Span("0", self.columns.size)
            return self.emitter.pieces(
                pieces,
                lambda number: self._region(self._piece(outer, number), rows, columns),
            )
        split = self._by_panels if goes_by_panels(self.kernel) else self._by_tiles
        return split(outer, pieces)

    def _by_tiles(self, outer: tuple[Axis, ...], pieces: int) -> Emitted:
        """Split into tiles of rows, over all columns or over blocks of them.

        Blocks balance the load of more threads.
        """
        text, most = self.text, self.dense.rows
        tiles = even_tiles(self.tiled.size, most)
        if self.kernel.nonzeros:
            group = self.kernel.nonzeros.group
            tiles = full_tiles(self.tiled.size, max(most // group, 1) * group)
        wide = self.dense.vectors * WIDTH
        blocks = blocks_of(self.columns.size, pieces * len(tiles), wide, 2 * wide)
        each = self.columns.size // blocks

        def tile(number: str) -> None:
            number, part = text.divided(number, blocks) if blocks > 1 else (number, "0")
            batch, tile = text.divided(number, len(tiles), "s")
            piece = self._piece(outer, batch)
            columns = Span(text.times(part, each), each)
            first = 0
            for start, size, count in grouped(tiles):

                def region(
                    start: int = start, size: int = size, first: int = first
                ) -> None:
                    local = text.let(f"sub i64 {tile}, {first}")
                    row = text.add(text.times(local, size), start)
                    self._region(piece, Span(row, size), columns)

                self._when(tile, first, first + count, region)
                first += count

        return self._pieces(pieces * len(tiles) * blocks, tile)

    def _by_panels(self, outer: tuple[Axis, ...], pieces: int) -> Emitted:
        """Split into panels of columns, over all rows or over blocks of them.

        Blocks balance the load of more threads.
        """
        text, kernel = self.text, self.kernel
        wide = (self.skipping if kernel.nonzeros else self.dense).vectors * WIDTH
        full, rest = divmod(self.columns.size, wide)
        count = full + bool(rest)
        group = kernel.nonzeros.group if kernel.nonzeros else 1
        least = 2 * self.dense.rows
        # The last tile of a panel computes its column sums.
        blocks = blocks_of(self.tiled.size, pieces * count, group, least)
        blocks = 1 if kernel.sums else blocks
        rows = self.tiled.size // blocks

        def panel(number: str) -> None:
            number, row = text.divided(number, blocks) if blocks > 1 else (number, "0")
            batch, panel = text.divided(number, count, "s")
            piece = self._piece(outer, batch)
            column = text.times(panel, wide)
            block = Span(text.times(row, rows), rows)
            for first, last, size in ((0, full, wide), (full, count, rest)):
                region = partial(
                    self._region, piece, block, Span(column, size), by_panels=True
                )
                if first < last:
                    self._when(panel, first, last, region)

        return self._pieces(pieces * count * blocks, panel)

    def _pieces(self, count: int, body: Callable[[str], None]) -> Emitted:
        """Emit a body for each piece, within a loop over blocks of the inner axis."""
        text, most, size = self.text, CPU.inner_block, self.kernel.inner[0].size
        if not in_blocks(self.kernel):
            return self.emitter.pieces(count, body)

        def block(start: str) -> None:
            end = text.add(start, most)
            inside = text.let(f"icmp slt i64 {end}, {size}")
            stop = text.let(f"select i1 {inside}, i64 {end}, i64 {size}")
            is_first = text.let(f"icmp eq i64 {start}, 0")
            self.block = Block(start, stop, is_first)
            text.each("%lo", "%hi", 1, body)

        text.each(0, size, most, block)
        return self.emitter.emitted(count, blocked_grain(count))

    def _when(
        self, value: str, first: int, last: int, body: Callable[[], None]
    ) -> None:
        """Emit a body under the condition first <= value < last."""
        text = self.text
        above = text.let(f"icmp sge i64 {value}, {first}")
        below = text.let(f"icmp slt i64 {value}, {last}")
        text.when(text.let(f"and i1 {above}, {below}"), body)

    def _piece(self, axes: tuple[Axis, ...], number: str) -> Piece:
        return piece_of(self.text, self.kernel, axes, number)

    # ---- a region: some rows times some columns ------------------------------------

    def _region(
        self, piece: Piece, rows: Span, columns: Span, by_panels: bool = False
    ) -> None:
        """Emit a region, with nonzero lists of its rows if they are short enough."""
        emit = partial(self._tiles_of, piece, rows, columns, by_panels)
        if self.kernel.nonzeros:
            lists = self.kernel.nonzeros
            few = leaves_out(self.emitter, lists, piece.number, rows)
            skip = partial(emit, self.skipping)
            if self.block:  # lists are not blocked: the first block does it all
                skip = partial(self.text.when, self.block.is_first, skip)
            self.text.when(few, skip, partial(emit, self.dense))
        else:
            emit(self.dense)
        if self.kernel.sums and self.kernel.nonzeros:  # lists would skip summands
            bare = partial(Tile, piece, "0", 0, sums=True)

            def add_up(column: str, widths: list[int]) -> None:
                self._tile(bare(column=column, widths=widths), skips=False)

            self._panels(columns, self.dense, add_up)

    def _tiles_of(
        self, piece: Piece, rows: Span, columns: Span, by_panels: bool, shape: TileShape
    ) -> None:
        """Emit the tiles of a region, panel by panel or row by row."""

        def tile(
            row: str, size: int, column: str, widths: list[int], sums: bool = False
        ) -> None:
            self._tile(Tile(piece, row, size, column, widths, sums), shape.skips)

        each_row = partial(self._rows, rows, shape)
        each_panel = partial(self._panels, columns, shape)
        if self.kernel.sums and not self.kernel.nonzeros:
            *tiles, (last, height) = even_tiles(rows.size + 1, shape.rows)

            def panel(column: str, widths: list[int]) -> None:
                each_tile(self.text, tiles, lambda r, n: tile(r, n, column, widths))
                tile(str(last), height - 1, column, widths, sums=True)

            each_panel(panel)
        elif by_panels:
            each_panel(lambda c, widths: each_row(lambda r, n: tile(r, n, c, widths)))
        else:
            each_row(lambda r, n: each_panel(lambda c, widths: tile(r, n, c, widths)))

    def listed_region(
        self, piece: Piece, rows: Extent, columns: Extent, step: int
    ) -> None:
        """Emit a region of dynamic size, by nonzero lists of its rows.

        It starts at a group of rows, and at a multiple of `step` columns.
        """
        text, (height, vectors, _) = self.text, self.skipping

        def each(
            span: Extent, axis: Axis, size: int, body: Callable[[int, str], None]
        ) -> None:
            end, remainder = text.add(span.start, span.size), axis.size % size
            full_end = text.smaller(end, str(axis.size - remainder))
            text.each(span.start, full_end, size, partial(body, size))
            if remainder:
                text.each(full_end, end, remainder, partial(body, remainder))

        def across(height: int, row: str) -> None:
            def tile(size: int, column: str) -> None:
                widths = vector_widths(size)
                self._tile(Tile(piece, row, height, column, widths), skips=True)

            wide = vectors * WIDTH
            count, rest = text.divided(columns.size, wide)
            middle = text.add(columns.start, text.times(count, wide))
            text.each(columns.start, middle, wide, partial(tile, wide))
            each(Extent(middle, rest), self.columns, step, tile)

        each(rows, self.tiled, height, across)

    def _rows(
        self, span: Span, shape: TileShape, body: Callable[[str, int], None]
    ) -> None:
        """Emit a body for every tile of rows."""
        text, split = self.text, full_tiles if shape.skips else even_tiles
        tiles = split(span.size, shape.rows)
        each_tile(text, tiles, lambda row, n: body(text.add(span.start, row), n))

    def _panels(
        self, span: Span, shape: TileShape, body: Callable[[str, list[int]], None]
    ) -> None:
        """Emit a body for every panel of columns."""
        text, tiles = self.text, full_tiles(span.size, shape.vectors * WIDTH)
        each_tile(
            text,
            tiles,
            lambda column, n: body(text.add(span.start, column), vector_widths(n)),
        )

    # ---- a tile --------------------------------------------------------------------

    def _tile(self, tile: Tile, skips: bool) -> None:
        text, kernel = self.text, self.kernel
        a = text.add(tile.piece.left, text.times(tile.row, self.tiled.left))
        b = text.add(tile.piece.right, text.times(tile.column, self.columns.right))
        a = text.address(self.emitter.base(kernel.left.buffer), self.element, a)
        b = text.address(self.emitter.base(kernel.right.buffer), self.right_element, b)
        if skips:
            totals = self._listed(tile, a, b)
        else:
            totals = self._inner(tile, 0, a, b, self._initial_sums(tile))
        self._store(tile, totals)

    def _zeros(self, tile: Tile) -> list[Val]:
        zeros = [self.maths.constant(0, self.dtype, width) for width in tile.widths]
        return zeros * tile.height

    def _initial_sums(self, tile: Tile) -> list[Val]:
        """Return the initial sums of a tile: those that the last block has stored.

        Column sums start from zero in each block, which is more accurate.
        """
        zeros = self._zeros(tile)
        if self.block is None:
            return zeros
        is_first = Val(self.block.is_first, BOOL, 1)
        sums: list[Val] = []
        for zero, address in zip(zeros, self._addresses(tile), strict=True):
            if len(sums) < tile.size * len(tile.widths):
                stored = self.emitter.load(address, self.dtype, zero.width)
                zero = self.maths.select(is_first, zero, stored)
            sums.append(zero)
        return sums

    def _store(self, tile: Tile, totals: list[Val]) -> None:
        is_local = self.epilogue is not None and self.epilogue.tile
        if self.epilogue and is_local and self.epilogue.is_light:
            count = tile.size * len(tile.widths)
            self._store_epilogue(self.epilogue, tile, totals[:count])
            tile, totals = tile._replace(size=0), totals[count:]
        pairs = zip(totals, self._addresses(tile), strict=True)
        for number, (total, address) in enumerate(pairs):
            if self.block and number >= tile.size * len(tile.widths):
                stored = self.emitter.load(address, self.dtype, total.width)
                is_first = Val(self.block.is_first, BOOL, 1)
                both = self.maths.add(stored, total)
                total = self.maths.select(is_first, total, both)
            self.emitter.store(total, address)
        if self.epilogue and tile.size:
            self.epilogue.call(*self._covered(tile))

    def _store_epilogue(
        self, epilogue: Epilogue, tile: Tile, totals: list[Val]
    ) -> None:
        """Emit the epilogue of a tile's sums, which are in registers."""
        for number, total in enumerate(totals):
            row, vector = divmod(number, len(tile.widths))
            row_index = self.text.add(tile.row, row)
            column = self.text.add(tile.column, vector * WIDTH)
            epilogue.store([*tile.piece.at, row_index, column], total)

    def _covered(self, tile: Tile) -> list[str]:
        """Return the indices of a tile in the result, and its size."""
        size, width = str(tile.size), str(sum(tile.widths))
        return [*tile.piece.at, tile.row, size, tile.column, width]

    def _addresses(self, tile: Tile) -> Iterator[str]:
        """Yield the addresses of a tile's vectors."""
        text = self.text
        if self.epilogue and self.epilogue.tile:
            c, base, below = "0", self.epilogue.tile, self.epilogue.wide
        else:
            c = text.add(tile.piece.out, text.times(tile.row, self.tiled.out))
            c = text.add(c, text.times(tile.column, self.columns.out))
            base, below = self.emitter.base(self.kernel.out.buffer), self.tiled.out
        for row in range(tile.size):
            for vector in range(len(tile.widths)):
                index = text.add(c, row * below + vector * WIDTH)
                yield text.address(base, self.element, index)
        if tile.sums:
            assert self.kernel.sums
            for vector in range(len(tile.widths)):
                index = text.add(tile.column, vector * WIDTH)
                yield self.emitter.address(self.kernel.sums, index)

    def _inner(
        self, tile: Tile, depth: int, a: str, b: str, totals: list[Val]
    ) -> list[Val]:
        """Emit the sum over the inner axes."""
        if depth == len(self.kernel.inner):
            return self._step(tile, a, b, totals)
        axis, carry = self.kernel.inner[depth], self.text.carry

        def step(index: str, carried: list[Val]) -> list[Val]:
            left, right = self._operands_at(a, b, axis, index)
            if self.block:
                self._prefetch(tile, left, right, axis)
            elif self._is_far_apart(axis):
                below = 2 * tile.size - 1  # the last row of the next tile
                self.emitter.prefetch(self.text.address(left, self.element, below), 1)
            elif self._is_long_stream(axis):
                # A line per step, through the rows of the next tile.
                line = self.text.times(index, CPU.line_bytes // self.dtype.itemsize)
                distance = self.text.add(line, tile.size * axis.size)
                self.emitter.prefetch(self.text.address(a, self.element, distance), 1)
            return self._inner(tile, depth + 1, left, right, carried)

        def run(start: str, carried: list[Val]) -> list[Val]:
            self._prefetch_for_later(tile, start, each)
            return carry(start, self.text.add(start, each), 1, carried, step)

        if self.kernel.prefetched and depth == 0:
            each = _divisor(axis.size, CPU.prefetching_run)
            return carry(0, axis.size, each, totals, run)
        start, stop = self.block[:2] if self.block else ("0", str(axis.size))
        if self.epilogue and tile.size and depth == 0:
            prefetch = partial(self._prefetch_row, tile)
            return in_runs(self.text, tile.size, stop, totals, step, prefetch)
        return carry(start, stop, 1, totals, step)

    def _is_far_apart(self, axis: Axis) -> bool:
        """Return whether inner indices are too far apart for hardware prefetchers.

        That is so in a transposed matrix, whose rows are contiguous.
        """
        is_far = axis.left * self.dtype.itemsize >= CPU.prefetched_stride
        return self.tiled.left == 1 and len(self.kernel.inner) == 1 and is_far

    def _is_long_stream(self, axis: Axis) -> bool:
        """Return whether many short rows are read in order.

        A tile reads its rows at the same time: each is too short for a hardware
        prefetcher to detect a stream.
        """
        outer = math.prod(a.size for a in (*self.kernel.batch, *self.kernel.rows))
        short = axis.left == 1 and axis.size == self.tiled.left
        size = outer * axis.size * self.dtype.itemsize
        return short and len(self.kernel.inner) == 1 and size >= CPU.own_cache

    def _prefetch_row(self, tile: Tile, row: str) -> None:
        """Prefetch the operands of the epilogue for a row of a tile."""
        assert self.epilogue
        at = [*tile.piece.at, self.text.add(tile.row, row), tile.column]
        self.epilogue.prefetch(self.emitter, at, len(tile.widths))

    def _prefetch_for_later(self, tile: Tile, start: str, each: int) -> None:
        """Prefetch part of the buffers that later kernels read.

        A piece's part is divided equally among tiles and runs along the inner axis:
        a processor has a limited number of outstanding loads.
        """
        text, kernel = self.text, self.kernel
        runs, wide = kernel.inner[0].size // each, self.dense.vectors * WIDTH
        column = text.let(f"sdiv i64 {tile.column}, {wide}")
        run, _ = text.divided(start, each)
        number = text.add(text.times(column, runs), run)
        count = -(-self.columns.size // wide) * runs
        for buffer in kernel.prefetched:
            part = buffer.nbytes // kernel.batch[0].size
            share = -(-part // count)
            offset = text.times(number, share)
            offset = text.add(text.times(tile.piece.number, part), offset)
            for line in range(0, share, CPU.line_bytes):
                at = text.add(offset, line)
                base = self.emitter.base(buffer)
                self.emitter.prefetch(text.address(base, "i8", at))

    def _prefetch(self, tile: Tile, a: str, b: str, axis: Axis) -> None:
        """Prefetch both operands a block ahead, and the right one again before use.

        Inner indices are too far apart for hardware prefetchers.
        """
        text, prefetch = self.text, self.emitter.prefetch
        below = CPU.inner_block
        prefetch(text.address(a, self.element, below * axis.left))
        for vector in range(len(tile.widths)):
            for rows, level in ((below, 2), (CPU.prefetched_rows, 1)):
                index = rows * axis.right + vector * WIDTH
                prefetch(text.address(b, self.right_element, index), level)

    def _operands_at(self, a: str, b: str, axis: Axis, index: str) -> tuple[str, str]:
        """Return the addresses in both operands at an index of an axis."""
        text = self.text
        left = text.address(a, self.element, text.times(index, axis.left))
        return left, text.address(b, self.right_element, text.times(index, axis.right))

    def _listed(self, tile: Tile, a: str, b: str) -> list[Val]:
        """Emit the sum over the nonzero indices of a list."""
        text, (axis,), lists = self.text, self.kernel.inner, self.kernel.nonzeros
        assert lists
        stop, indices = list_of(self.emitter, lists, tile.piece.number, tile.row)

        def step(number: str, carried: list[Val]) -> list[Val]:
            address = text.address(indices, "i32", number)
            short = text.let(f"load i32, ptr {address}, align 4")
            index = text.let(f"zext i32 {short} to i64")
            return self._step(tile, *self._operands_at(a, b, axis, index), carried)

        return text.carry(0, stop, 1, self._zeros(tile), step)

    def _step(self, tile: Tile, a: str, b: str, totals: list[Val]) -> list[Val]:
        """Add the products of an element per row and the vectors of columns."""
        text = self.text
        right = []
        for v, width in enumerate(tile.widths):
            address = text.address(b, self.right_element, v * WIDTH)
            stored = self.emitter.load(address, self.right_dtype, width)
            right.append(self.maths.cast(stored, self.dtype))
        sums = []
        for r in range(tile.size):
            address = text.address(a, self.element, r * self.tiled.left)
            scalar = self.emitter.load(address, self.dtype, 1)
            copies: dict[int, Val] = {}
            for v, width in enumerate(tile.widths):
                if width not in copies:
                    copies[width] = self.maths.splat(scalar, width)
                old = totals[r * len(tile.widths) + v]
                sums.append(self.maths.fma(copies[width], right[v], old))
        columns = totals[len(sums) :] if tile.sums else []
        return sums + list(map(self.maths.add, columns, right))


def in_runs(
    text: Text,
    rows: int,
    stop: str,
    totals: list[Val],
    step: Callable[[str, list[Val]], list[Val]],
    before: Callable[[str], None],
) -> list[Val]:
    """Carry totals through a loop in as many runs as a tile has rows.

    `before` emits what precedes the run of a row.
    """
    each, _ = text.divided(stop, rows)

    def run(row: str, carried: list[Val]) -> list[Val]:
        before(row)
        start = text.product(row, each)
        last = text.let(f"icmp eq i64 {row}, {rows - 1}")
        end = text.add(start, each)
        end = text.let(f"select i1 {last}, i64 {stop}, i64 {end}")
        return text.carry(start, end, 1, carried, step)

    return text.carry(0, rows, 1, totals, run)


# ---- lists of nonzero indices --------------------------------------------------------


def list_of(
    emitter: Emitter, lists: NonzeroIndices, piece: str, row: str
) -> tuple[str, str]:
    """Return the number of nonzero indices of a group of rows, and their address."""
    text, (*_, groups, length) = emitter.text, lists.buffer.shape
    group = text.let(f"sdiv i64 {row}, {lists.group}")
    group = text.add(text.times(piece, groups), group)
    base = emitter.base(lists.buffer)
    head = text.address(base, "i32", text.times(group, length))
    count = text.let(f"load i32, ptr {head}, align 4")
    full = text.let(f"icmp slt i32 {count}, 0")
    listed = text.address(head, "i32", NonzeroIndices.HEAD)
    every = emitter.base(lists.every)
    first = text.let(f"select i1 {full}, ptr {every}, ptr {listed}")
    short = text.let(f"select i1 {full}, i32 {lists.every.size}, i32 {count}")
    return text.let(f"zext i32 {short} to i64"), first


def leaves_out(
    emitter: Emitter, lists: NonzeroIndices, piece: str, rows: Span | Extent
) -> str:
    """Return whether the lists of some rows are short enough to be used."""
    text = emitter.text

    def add(row: str, carried: list[str]) -> list[str]:
        count, _ = list_of(emitter, lists, piece, text.add(rows.start, row))
        return [text.add(carried[0], count)]

    (total,) = text.loop(0, rows.size, lists.group, add, [("i64", "0")])
    if isinstance(rows.size, int):
        groups = -(-rows.size // lists.group)
        limit = str(int(CPU.worth_skipping * groups * lists.every.size))
    else:
        count, _ = text.divided(text.add(rows.size, lists.group - 1), lists.group)
        limit = text.times(count, int(CPU.worth_skipping * lists.every.size))
    return text.let(f"icmp sle i64 {total}, {limit}")
