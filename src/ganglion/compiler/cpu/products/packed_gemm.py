"""Large products: blocks of both matrices are packed, then multiplied tile by tile.

`packing` decides which products are, and into which blocks they are divided.

Between blocks of the inner axis, sums are kept where they are stored. Their order does
not change, and so neither do their bits. All sizes and strides are parameters of the
kernel: its text depends on the type, and on which matrices are transposed.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import replace
from functools import partial
from typing import NamedTuple, Protocol

from ganglion.compiler.cpu.emitter import Emitted, Emitter
from ganglion.compiler.cpu.epilogue import Epilogue
from ganglion.compiler.cpu.functions import apply
from ganglion.compiler.cpu.products.gemm import Contraction, leaves_out
from ganglion.compiler.cpu.products.packed_tile import ALIGNMENT, Lanes, TileText
from ganglion.compiler.cpu.products.packing import (
    PADDING,
    Grid,
    Rounding,
    RowPanel,
    packed_buffers,
    tile_vectors,
    with_all_rows,
)
from ganglion.compiler.cpu.text import (
    BOOL,
    I32,
    WIDTH,
    Position,
    Text,
    Val,
    lanes,
    llvm_type,
)
from ganglion.compiler.cpu.tiles import Extent, Piece, piece_of
from ganglion.compiler.cpu.tuning import CPU
from ganglion.compiler.ir.graph import BFLOAT16
from ganglion.compiler.plan.kernels import Contract

ROUND = "@llvm.x86.avx512bf16.cvtneps2bf16.512"  # a vector of float32
ROUND_BOTH = "@llvm.x86.avx512bf16.cvtne2ps2bf16.512"  # of two: the second comes first
MOST_COLUMNS = CPU.packed_columns  # that an epilogue takes at once


class Run(NamedTuple):
    """Some rows times some columns of a piece of the batch."""

    piece: Piece
    row: str
    rows: str
    column: str
    columns: str


class Ahead(NamedTuple):
    """The next block of the right matrix, of which each tile prefetches some lines.

    It lies in rows of `run` lines, `apart` bytes from each other.
    """

    address: str
    run: str
    apart: str
    each: str  # lines, for a tile
    across: str  # tiles


class Block(NamedTuple):
    """Some rows and columns, at some inner indices: addresses and sizes."""

    left: str
    right: str
    out: str
    rows: str
    columns: str
    inner: str
    is_first: str
    is_last: str
    ahead: Ahead
    at: list[str]  # of the batch, and of the first row and column
    row: str
    column: str


class Panels(NamedTuple):
    """Where packed rows and columns are, and how long the panels of columns are."""

    rows: str
    columns: str
    length: str


class TileFunction(Protocol):
    """A function that multiplies a packed panel of rows by one of columns."""

    name: str
    text: Text

    def emit(self) -> str:
        """Return the function's text."""


class PackedContraction:
    """One large product under construction."""

    def __init__(
        self,
        kernel: Contract,
        grid: Grid,
        is_long: bool,
        parameters: int = 0,
        rounding: Rounding = Rounding.NONE,
    ) -> None:
        self.kernel, self.grid, self.is_long = kernel, grid, is_long
        self.rounding = rounding
        self.pairs = rounding in (Rounding.PAIRS, Rounding.AMX)
        self.emitter = Emitter(parameters)
        self.text, self.maths = self.emitter.text, self.emitter.maths
        self.dtype = kernel.out.buffer.dtype
        self.element = llvm_type(self.dtype)
        (self.rows,), (self.columns,) = self.kernel.rows, self.kernel.columns
        (self.inner,) = self.kernel.inner
        self.wide = tile_vectors(self.dtype) * WIDTH
        self.left = RowPanel.of(self.rows.left == 1, rounding)
        self.tiles: dict[str, TileFunction] = {}
        self.epilogue: Epilogue | None = None
        if kernel.epilogue:
            for buffer in packed_buffers(kernel):
                if buffer.kind != "register":
                    self.emitter.base(buffer)
            most, out = self.left.high * MOST_COLUMNS, kernel.out.buffer
            wide = grid.columns
            self.epilogue = Epilogue(kernel.epilogue, out, self.emitter, most, wide)

    @classmethod
    def of(cls, kernel: Contract) -> PackedContraction:
        """Return a product that has its sizes in its text."""
        is_long = kernel.inner[0].size >= CPU.blocked_inner
        return cls(*with_all_rows(kernel), is_long)

    def emit(self) -> Emitted:
        """Emit a loop over runs of pieces that lie side by side."""
        self.emit_runs()
        return self.emitted()

    def emitted(self, helpers: Set[str] = frozenset()) -> Emitted:
        """End the function, which needs those of its tiles, and perhaps others."""
        emitted = self.emitter.emitted(self.grid.pieces, self.grid.grain)
        tiles = [(tile.emit(), tile.text.declared) for tile in self.tiles.values()]
        declared = emitted.declared.union(*(names for _, names in tiles))
        helpers = emitted.helpers | helpers | {text for text, _ in tiles}
        return replace(emitted, declared=declared, helpers=helpers)

    def emit_runs(self) -> None:
        """Emit the loop over runs.

        Pieces are numbered through blocks of rows that run together, in groups of
        strips that are packed at once: so adjacent pieces share both matrices, however
        many of them a thread takes.
        """
        text, grid = self.text, self.grid
        together, _ = text.divided(str(grid.columns), self.wide)

        def run(first: str) -> str:
            pieces = text.product(str(grid.down), str(grid.strips))
            batch, number = text.divided(first, pieces)
            every = text.product(str(grid.merged), str(grid.strips))
            part, number = text.divided(number, every)
            top = text.times(part, grid.merged)
            down = text.smaller(str(grid.merged), text.minus(str(grid.down), top))
            group, number = text.divided(number, text.product(down, together))
            begin = text.product(group, together)
            across = text.smaller(together, text.minus(str(grid.strips), begin))
            below, beside = text.divided(number, across)
            return self._part(first, batch, (top, below, down), (begin, beside, across))

        text.until("%lo", "%hi", run)

    def _part(
        self,
        first: str,
        batch: str,
        blocks: tuple[str, str, str],
        strips: tuple[str, str, str],
    ) -> str:
        """Multiply a run from a piece on; return the piece behind it.

        Given are blocks of rows, and strips of columns: where those begin that run
        together, the piece's number among them, and how many there are.
        """
        text, grid = self.text, self.grid
        (top, below, down), (begin, beside, across) = blocks, strips
        left = text.minus("%hi", first)
        # Blocks of rows with all strips, or strips of one block.
        full, _ = text.divided(left, across)
        several = text.smaller(full, text.minus(down, below))
        starts = text.let(f"icmp eq i64 {beside}, 0")
        some = text.let(f"icmp sgt i64 {several}, 0")
        both = text.let(f"and i1 {starts}, {some}")
        several = text.let(f"select i1 {both}, i64 {several}, i64 1")
        wide = text.smaller(text.minus(across, beside), left)
        row = text.times(text.add(top, below), grid.rows)
        column = text.times(text.add(begin, beside), self.wide)
        rest = text.minus(str(self.rows.size), row)
        rows = text.smaller(rest, text.times(several, grid.rows))
        rest = text.minus(str(self.columns.size), column)
        columns = text.smaller(rest, text.times(wide, self.wide))
        self._run(Run(self._piece(batch), row, rows, column, columns))
        return text.add(first, text.product(several, wide))

    def _piece(self, number: str) -> Piece:
        return piece_of(self.text, self.kernel, self.kernel.batch, number)

    # ---- runs ----------------------------------------------------------------------

    def _run(self, run: Run) -> None:
        """Multiply some rows by some columns, through lists where those are short."""
        lists = self.kernel.nonzeros
        if lists is None:
            self._blocks(run, self._multiply)
            return
        rows = Extent(run.row, run.rows)
        few = leaves_out(self.emitter, lists, run.piece.number, rows)
        self.text.when(
            few, lambda: self._listed(run), lambda: self._blocks(run, self._multiply)
        )

    def _listed(self, run: Run) -> None:
        """Leave out zeros of the left matrix; the right one is read in place."""
        plain = replace(self.kernel, packed=None)
        product = Contraction(plain, self.emitter, self.epilogue)
        rows, columns = Extent(run.row, run.rows), Extent(run.column, run.columns)
        product.listed_region(run.piece, rows, columns, self.wide)
        if self.kernel.sums:

            def add_up(block: Block, column: str, is_top: str) -> None:
                add = partial(
                    self._add_up, block, column, block.right, self.inner.right, None
                )
                self.text.when(is_top, add)

            self._blocks(run, add_up)

    def _blocks(self, run: Run, body: Callable[[Block, str, str], None]) -> None:
        """Run a body for blocks of columns, and of the inner axis.

        Its other arguments: the first column, and whether these are the first rows.
        """
        text, kernel, (piece, row, rows, *_) = self.text, self.kernel, run
        left_base, right_base, out_base = (
            "" if view.buffer.kind == "register" else self.emitter.base(view.buffer)
            for view in (kernel.left, kernel.right, kernel.out)
        )
        left = text.add(piece.left, text.times(row, self.rows.left))
        out = text.add(piece.out, text.times(row, self.rows.out))
        is_top = text.let(f"icmp eq i64 {row}, 0")

        def column_block(start: str) -> None:
            column = text.add(run.column, start)
            rest = text.minus(run.columns, start)
            columns = text.smaller(rest, str(self.grid.columns))
            right = text.add(piece.right, text.times(column, self.columns.right))
            target = ""
            if out_base:
                target = text.address(out_base, self.element, text.add(out, column))

            def inner_block(inner: str) -> None:
                rest = text.minus(str(self.inner.size), inner)
                a = text.add(left, text.times(inner, self.inner.left))
                b = text.add(right, text.times(inner, self.inner.right))
                length = text.smaller(rest, str(self.grid.inner))
                is_last = text.let(f"icmp eq i64 {length}, {rest}")
                following = self._following(column, is_last, b, right)
                following = text.address(right_base, self.element, following)
                block = Block(
                    text.address(left_base, self.element, a),
                    text.address(right_base, self.element, b),
                    target,
                    rows,
                    columns,
                    length,
                    text.let(f"icmp eq i64 {inner}, 0"),
                    is_last,
                    self._ahead(following, rows, columns, length),
                    *(piece.at, row, column),
                )
                body(block, column, is_top)

            text.each(0, self.inner.size, self.grid.inner, inner_block)

        text.each(0, run.columns, self.grid.columns, column_block)

    def _following(self, column: str, is_last: str, here: str, top: str) -> str:
        """Return the index at which the next block of the right matrix begins.

        It has the next inner indices of the same columns; behind the last, the next
        columns. Behind those it is the same block again, which costs nothing.
        """
        text, grid = self.text, self.grid
        below = text.add(here, text.times(str(grid.inner), self.inner.right))
        beside = text.add(top, text.times(str(grid.columns), self.columns.right))
        end = text.add(column, str(grid.columns))
        more = text.let(f"icmp slt i64 {end}, {self.columns.size}")
        beside = text.let(f"select i1 {more}, i64 {beside}, i64 {here}")
        return text.let(f"select i1 {is_last}, i64 {beside}, i64 {below}")

    def _ahead(self, following: str, rows: str, columns: str, inner: str) -> Ahead:
        """Return the lines of a following block, shared out among a block's tiles."""
        text, size = self.text, self.dtype.itemsize
        lines, run, apart = inner, columns, self.inner.right
        if self.columns.right != 1:
            lines, run, apart = columns, inner, self.columns.right
        nbytes = text.add(text.times(run, size), CPU.line_bytes - 1)
        run, _ = text.divided(nbytes, CPU.line_bytes)
        down, _ = text.divided(text.add(rows, self.left.high - 1), self.left.high)
        across, _ = text.divided(text.add(columns, self.wide - 1), self.wide)
        tiles, every = text.product(down, across), text.product(lines, run)
        each, _ = text.divided(text.add(every, tiles), tiles)
        return Ahead(following, run, text.times(str(size), apart), each, across)

    def _multiply(self, block: Block, column: str, is_top: str) -> None:
        """Pack some columns; then of each few tiles pack the rows and multiply."""
        text, panels = self.text, self._panels(block)
        together = self.left.together * self.left.high
        self.pack_columns(block, panels)
        if self.kernel.sums:
            add = partial(
                self._add_up, block, column, panels.columns, self.wide, panels.length
            )
            text.when(is_top, add)

        def some_rows(first: str) -> None:
            count = text.smaller(text.minus(block.rows, first), str(together))
            at = text.times(first, self.rows.left)
            source = text.address(block.left, self.element, at)
            self._pack_rows(block, source, count, panels.rows)
            self._by_panels(block, panels, first, count)

        text.each(0, block.rows, together, some_rows)

    def _by_panels(self, block: Block, panels: Panels, first: str, count: str) -> None:
        """Multiply packed rows by all columns of a block, panel by panel."""
        text, high = self.text, self.left.high

        def tiles(row: str) -> None:
            panel, _ = text.divided(row, high)
            start = text.times(panel, self.left.size)
            rows = text.address(panels.rows, self.element, start)
            own = panels._replace(rows=rows)
            self.multiply_panel(
                block, own, text.add(first, row), text.minus(count, row)
            )

        text.each(0, count, high, tiles)

    def multiply_panel(
        self, block: Block, panels: Panels, row: str, count: str
    ) -> None:
        """Multiply a packed panel, which may be the last of so many rows."""
        text, high = self.text, self.left.high
        text.when(
            text.let(f"icmp sge i64 {count}, {high}"),
            lambda: self.across(block, panels, row, high),
            lambda: self._rest(block, panels, row, count),
        )

    def _panels(self, block: Block) -> Panels:
        assert self.kernel.packed is not None
        rows = self.emitter.base(self.kernel.packed)
        columns = self.text.address(rows, self.element, self.left.room)
        length = self.text.add(self.room(block.inner), PADDING)
        return Panels(rows, columns, length)

    def room(self, inner: str) -> str:
        """Return how many steps a panel of columns has room for."""
        beyond = self.text.add(inner, WIDTH - 1)
        return str(self.text.rounded_down(beyond, WIDTH))

    def _add_up(
        self, block: Block, column: str, source: str, stride: int, length: str | None
    ) -> None:
        """Add up columns of the right matrix, packed in panels or in place.

        The sums of a long inner axis restart with each block, for precision.
        """
        text, sums = self.text, self.kernel.sums
        assert sums is not None

        def add(which: Lanes, start: str) -> None:
            if length is None:
                first = text.address(source, self.element, start)
            else:
                first = self.in_panel(source, start, length)
            target = self.emitter.address(sums, text.add(column, start))
            zero = self.maths.constant(0, self.dtype, WIDTH)
            begun = Val(block.is_first, BOOL, 1)
            stored = which.load(target)
            stored = self.maths.select(begun, zero, stored)

            def step(inner: str, carried: list[Val]) -> list[Val]:
                at = text.address(first, self.element, text.times(inner, stride))
                return [self.maths.add(carried[0], which.load(at))]

            start_with = zero if self.is_long else stored
            (total,) = text.carry(0, block.inner, 1, [start_with], step)
            if self.is_long:
                both = self.maths.add(stored, total)
                total = self.maths.select(begun, total, both)
            which.store(total, target)

        self.each_vector(block.columns, add)

    def _rest(self, block: Block, panels: Panels, row: str, count: str) -> None:
        """Multiply the last rows: tiles of 8, 4, 2 and 1."""
        text, size = self.text, 1
        while 2 * size < CPU.packed_rows:
            size *= 2
        while size:
            bit = text.let(f"and i64 {count}, {size}")
            some = text.let(f"icmp ne i64 {bit}, 0")
            first = text.let(f"and i64 {count}, {-2 * size}")

            def tiles(size: int = size, first: str = first) -> None:
                start = text.times(first, self.left.apart)
                rows = text.address(panels.rows, self.element, start)
                below = text.add(row, first)
                self.across(block, panels._replace(rows=rows), below, size)

            text.when(some, tiles)
            size //= 2

    def across(self, block: Block, panels: Panels, row: str, rows: Position) -> None:
        """Multiply some rows, from one of a block on, by all its columns."""
        text, steps = self.text, self.depth(block.inner)
        held = self.epilogue.tile if self.epilogue else ""
        below, out = self.rows.out, held
        if self.epilogue and held:
            below = self.epilogue.wide
        else:
            out = text.address(block.out, self.element, text.times(row, below))

        def tile(column: str) -> None:
            start = text.product(column, panels.length)
            panel = text.address(panels.columns, self.element, start)
            target = text.address(out, self.element, column)
            count = text.minus(block.columns, column)
            arguments = (
                f"ptr {panels.rows}, ptr {panel}, ptr {target}, i64 {steps}, "
                f"i64 {below}, i64 {count}, i1 {block.is_first}"
            )
            self.call_tile(rows, count, arguments, self.prefetched(block, row, column))

        text.each(0, block.columns, self.wide, tile)
        if self.epilogue:
            first = text.add(block.row, row)
            numbers = (*block.at, first, str(rows), block.column, block.columns)
            text.when(block.is_last, partial(self.epilogue.call, *numbers))

    def prefetched(self, block: Block, row: str, column: str) -> str:
        """Return what a tile prefetches, as arguments."""
        text, ahead = self.text, block.ahead
        down, _ = text.divided(row, self.left.high)
        right, _ = text.divided(column, self.wide)
        number = text.add(text.product(down, ahead.across), right)
        line = text.product(number, ahead.each)
        return (
            f"ptr {ahead.address}, i64 {line}, i64 {ahead.each}, i64 {ahead.run}, "
            f"i64 {ahead.apart}"
        )

    def call_tile(
        self, rows: Position, columns: str, arguments: str, prefetched: str
    ) -> None:
        """Multiply some rows by some columns, of which one vector may be all."""
        arguments = f"{arguments}, {prefetched}"
        vectors, high = tile_vectors(self.dtype), int(rows)

        def call(vectors: int) -> None:
            left, dtype = self.left, self.dtype
            tile = TileText(high, vectors, self.wide, left, dtype, self.pairs)
            self.tiles.setdefault(tile.name, tile)
            self.text.do(f"call void @{tile.name}({arguments})")

        if vectors == 1 or high < CPU.packed_rows:
            call(vectors)
            return
        wide = self.text.let(f"icmp sgt i64 {columns}, {WIDTH}")
        self.text.when(wide, partial(call, vectors), partial(call, 1))

    def depth(self, inner: str) -> str:
        """Return how many steps a tile takes for some inner indices."""
        return self.steps(inner)

    # ---- packing ------------------------------------------------------------------

    def steps(self, inner: str) -> str:
        """Return how many steps some inner indices take: pairs take one."""
        if not self.pairs:
            return inner
        return self.text.let(f"lshr i64 {self.text.add(inner, 1)}, 1")

    def _each_step(
        self, block: Block, body: Callable[[str, str, list[int]], None]
    ) -> None:
        """Run a body for inner indices: the first of a step, its number, which it has.

        The last one may have no second to be paired with: a zero takes its place.
        """
        text, inner = self.text, block.inner
        if not self.pairs:
            text.each(0, inner, 1, lambda index: body(index, index, [0]))
            return
        end = str(text.rounded_down(inner, 2))
        text.each(0, end, 2, lambda index: body(index, self.steps(index), [0, 1]))
        odd = text.let(f"icmp slt i64 {end}, {inner}")
        text.when(odd, lambda: body(end, self.steps(end), [0]))

    def store(self, values: list[Val], address: str) -> None:
        """Store a vector of each inner index of a step in a panel."""
        value = values[0]
        if self.rounding is Rounding.WIDENED:
            value = apply(self.maths, "cast", [self._rounded(value)], self.dtype)
        elif self.pairs:
            zero = self.maths.constant(0, self.dtype, WIDTH)
            value = self.paired(value, values[1] if len(values) > 1 else zero)
        self.keep(value, address)

    def keep(self, value: Val, address: str) -> None:
        """Store a vector in a panel, as it is."""
        stored = f"{value.type} {value.name}, ptr {address}"
        self.text.do(f"store {stored}, align {ALIGNMENT}")

    def _rounded(self, value: Val) -> Val:
        return apply(self.maths, "cast", [value], BFLOAT16)

    def paired(self, low: Val, high: Val) -> Val:
        """Return two vectors rounded, as words: each is an element of both."""
        text, kind = self.text, f"<{2 * WIDTH} x bfloat>"
        halves = self._both_rounded(low, high)
        order = ", ".join(f"i32 {n}, i32 {n + WIDTH}" for n in range(WIDTH))
        mask = f"<{2 * WIDTH} x i32> <{order}>"
        return self._words(
            text.let(f"shufflevector {kind} {halves}, {kind} poison, {mask}")
        )

    def neighbours(self, low: Val, high: Val) -> Val:
        """Return two vectors rounded, as words: each is two elements side by side."""
        return self._words(self._both_rounded(low, high))

    def _both_rounded(self, low: Val, high: Val) -> str:
        text, kind = self.text, f"<{2 * WIDTH} x bfloat>"
        text.declare(f"declare {kind} {ROUND_BOTH}({low.type}, {low.type})")
        passed = f"{high.type} {high.name}, {low.type} {low.name}"
        return text.let(f"call {kind} {ROUND_BOTH}({passed})")

    def _words(self, pairs: str) -> Val:
        kind = f"<{2 * WIDTH} x bfloat>"
        name = self.text.let(f"bitcast {kind} {pairs} to {lanes('i32', WIDTH)}")
        return Val(name, I32, WIDTH)

    def store_row(self, value: Val, place: str, inner: str) -> None:
        """Store elements of a row, which are neighbours in its panel, too."""
        text = self.text
        if not self.pairs:
            self.store([value], text.address(place, self.element, inner))
            return
        kind, at = f"<{WIDTH} x bfloat>", text.address(place, "bfloat", inner)
        text.declare(f"declare {kind} {ROUND}({value.type})")
        name = text.let(f"call {kind} {ROUND}({value.type} {value.name})")
        text.do(f"store {kind} {name}, ptr {at}, align {ALIGNMENT // 2}")

    def _pack_rows(self, block: Block, source: str, count: str, target: str) -> None:
        """Pack rows in the order in which they lie; prefetch those of the next tile."""
        text, apart = self.text, self.rows.left
        below = text.times(str(apart), self.left.high)

        def copy_row(row: str) -> None:
            line = text.address(source, self.element, text.times(row, apart))
            start = text.times(row, self.left.apart)
            place = text.address(target, self.element, start)

            def copy(which: Lanes, at: str) -> None:
                address = text.address(line, self.element, at)
                self.emitter.prefetch(text.address(address, self.element, below))
                self.store_row(which.load(address), place, at)

            self.each_vector(block.inner, copy)
            self.end_row(place, block.inner)

        if apart == 1:
            self.pack_transposed_rows(block, source, count, target)
        else:
            text.each(0, count, 1, copy_row)

    def end_row(self, place: str, inner: str) -> None:
        """Fill what tiles read behind a packed row: nothing."""

    def pack_transposed_rows(
        self, block: Block, source: str, count: str, target: str
    ) -> None:
        """Pack rows that lie side by side: for each inner index one of each panel."""
        text, high, apart = self.text, CPU.packed_rows, self.inner.left
        number, _ = text.divided(text.add(count, -1), high)
        # A vector is longer than a panel has rows: only the last one ends the matrix.
        last, every = text.times(number, high), Lanes(self.maths, self.dtype)
        some = Lanes.before(self.maths, self.dtype, text.minus(count, last))

        def copy_line(inner: str, step: str, has: list[int]) -> None:
            line = text.address(source, self.element, text.times(inner, apart))
            start = text.times(step, self.left.step)
            place = text.address(target, self.element, start)

            def copy(which: Lanes, panel: str) -> None:
                at = text.address(line, self.element, text.times(panel, high))
                start = text.times(panel, self.left.size)
                to = text.address(place, self.element, start)
                self._copy(which, at, to, apart, has)

            text.each(0, number, 1, partial(copy, every))
            copy(some, number)

        self._each_step(block, copy_line)

    def _copy(
        self, which: Lanes, source: str, target: str, apart: int, has: list[int]
    ) -> None:
        """Copy the vectors of a step, and prefetch those some steps below.

        From one to the next is too far for processors to do it themselves.
        """
        text, values = self.text, []
        below = text.times(str(apart), CPU.packed_ahead)
        for line in has:
            at = text.address(source, self.element, text.times(str(line), apart))
            self.emitter.prefetch(text.address(at, self.element, below))
            values.append(which.load(at))
        self.store(values, target)

    def in_panel(self, panels: str, column: str, length: str) -> str:
        """Return where the first element of a packed column is."""
        panel, lane = self.text.divided(column, self.wide)
        start = self.text.product(self.text.times(panel, self.wide), length)
        return self.text.address(panels, self.element, self.text.add(start, lane))

    def each_vector(self, count: str, body: Callable[[Lanes, str], None]) -> None:
        """Run a body for vectors side by side, the last one perhaps a part of one."""
        text, full_end = self.text, str(self.text.rounded_down(count, WIDTH))
        text.each(0, full_end, WIDTH, partial(body, Lanes(self.maths, self.dtype)))
        left = text.minus(count, full_end)
        some = text.let(f"icmp sgt i64 {left}, 0")
        rest = Lanes.before(self.maths, self.dtype, left)
        text.when(some, lambda: body(rest, full_end))

    def pack_columns(self, block: Block, panels: Panels) -> None:
        """Pack some columns, panel by panel."""
        text, stride = self.text, self.columns.right

        def transpose(column: str) -> None:
            at = text.address(block.right, self.element, text.times(column, stride))
            count = text.minus(block.columns, column)
            target = self.in_panel(panels.columns, column, panels.length)
            self._transpose(block, at, stride, count, target, self.wide)

        def copy_row(inner: str, step: str, has: list[int]) -> None:
            at = text.times(inner, self.inner.right)
            row = text.address(block.right, self.element, at)
            apart = text.times(step, self.wide)

            def copy(which: Lanes, column: str) -> None:
                source = text.address(row, self.element, column)
                start = self.in_panel(panels.columns, column, panels.length)
                target = text.address(start, self.element, apart)
                self._copy(which, source, target, self.inner.right, has)

            self.each_vector(block.columns, copy)

        if stride != 1:
            text.each(0, block.columns, WIDTH, transpose)
        elif self.pairs:
            self._each_step(block, copy_row)
        else:
            self._copy_lines(block, panels)

    def _copy_lines(self, block: Block, panels: Panels) -> None:
        """Copy lines of the right matrix into panels, several of them side by side.

        Hardware prefetchers follow that many streams at once; prefetches by software
        for a single line are too few under way to use the memory's bandwidth.
        """
        text, most = self.text, CPU.packed_lines

        def copy_lines(inner: str, count: int) -> None:
            at = text.times(inner, self.inner.right)
            lines = [text.address(block.right, self.element, at)]
            for _ in range(count - 1):
                lines.append(text.address(lines[-1], self.element, self.inner.right))

            def copy(which: Lanes, column: str) -> None:
                start = self.in_panel(panels.columns, column, panels.length)
                at = text.times(inner, self.wide)
                target = text.address(start, self.element, at)
                ats = [text.address(line, self.element, column) for line in lines]
                values = [which.load(at) for at in ats]
                for number, value in enumerate(values):
                    to = text.address(target, self.element, number * self.wide)
                    self.store([value], to)

            self.each_vector(block.columns, copy)

        end = text.rounded_down(block.inner, most)
        text.each(0, end, most, lambda inner: copy_lines(inner, most))
        text.each(end, block.inner, 1, lambda inner: copy_lines(inner, 1))

    def _transpose(
        self, block: Block, source: str, stride: int, count: str, to: str, apart: int
    ) -> None:
        """Copy vectors along the inner axis, as many at a time as they are long.

        Pairs, which are words, are as many at a time: two vectors along the axis.
        """
        text, each = self.text, 1 + self.pairs
        # Lines beyond the last are copies of it: what is made of them is not stored.
        last = text.add(count, -1)
        lines = []
        for lane in range(WIDTH):
            index = text.smaller(str(lane), last) if lane else "0"
            lines.append(text.address(source, self.element, text.times(index, stride)))

        def square(which: list[Lanes], inner: str) -> None:
            ats = [text.address(line, self.element, inner) for line in lines]
            vectors, first = [self._along(which, at) for at in ats], self.steps(inner)
            for step, column in enumerate(self.maths.transposed(vectors)):
                index = text.times(text.add(first, step), apart)
                address = text.address(to, self.element, index)
                if self.pairs:
                    self.keep(column, address)
                else:
                    self.store([column], address)

        every = [Lanes(self.maths, self.dtype)] * each
        end = str(text.rounded_down(block.inner, each * WIDTH))
        text.each(0, end, each * WIDTH, partial(square, every))
        left = text.minus(block.inner, end)
        some = text.let(f"icmp sgt i64 {left}, 0")
        counts = [text.add(left, -n * WIDTH) for n in range(each)]
        rest = [Lanes.before(self.maths, self.dtype, count) for count in counts]
        text.when(some, lambda: square(rest, end))

    def _along(self, which: list[Lanes], address: str) -> Val:
        """Load a vector; or two neighbours, as one of pairs."""
        vectors = [
            some.load(self.text.address(address, self.element, number * WIDTH))
            for number, some in enumerate(which)
        ]
        return self.neighbours(*vectors) if self.pairs else vectors[0]
