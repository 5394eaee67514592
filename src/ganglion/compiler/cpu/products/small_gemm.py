"""Small contractions by one text: all of their sizes and strides are parameters.

A tile of 8 rows (then of 4, 2 and 1) times two vectors of columns (then one, then one
of which some lanes are masked out) is held in registers. That is enough to keep a
processor busy with data in its caches; larger contractions have tiles made for
their shape (`gemm`). Every sum is one chain of products in the order of the inner
indices, whatever the tiles are, and so has the same bits. An epilogue continues with
the sums of a tile; its text is a part of the product's, its sizes are parameters, too.

Rows of the right operand may be so far apart that they share few lines of a cache. So
a piece of a larger product copies its columns, some inner indices at a time, and stores
its sums in between: that changes neither their order nor their bits.

Where the plan lists the indices at which a group of rows is not all zero, a tile is
such a group, and visits only the listed indices: if the lists leave out enough, which
is decided at run time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from ganglion.compiler.cpu.emitter import Emitted, Emitter
from ganglion.compiler.cpu.epilogue import Epilogue
from ganglion.compiler.cpu.features import gains_from_copies
from ganglion.compiler.cpu.text import BOOL, WIDTH, Parameter, Val, llvm_type
from ganglion.compiler.cpu.tuning import CPU
from ganglion.compiler.plan.kernels import (
    Axis,
    Buffer,
    Contract,
    Loop,
    NonzeroIndices,
)

FLOAT32 = np.dtype("float32")
TILE_ROWS = (8, 4, 2, 1)
FEWEST_SUMS = 8  # vectors of a tile, so that none waits for the one before it


def may_copy_columns(kernel: Contract) -> bool:
    """Return whether a small contraction falls into pieces that can copy columns."""
    if len(kernel.rows) != 1 or len(kernel.inner) != 1 or len(kernel.columns) != 1:
        return False
    (rows,), (columns,), (inner,) = kernel.rows, kernel.columns, kernel.inner
    is_matrix = columns.right == 1 and inner.right >= columns.size
    if not is_matrix or outer_pieces(kernel) > 1 or _count(kernel) > CPU.plain_product:
        return False
    if stores_lines(kernel):
        return False
    return rows.size >= CPU.copied_rows and columns.size >= CPU.copied_columns


def stores_lines(kernel: Contract) -> bool:
    """Return whether storing the result takes longer than reading the operands.

    Panels would store short runs of lines that may be a page apart, and so share few
    lines of the cache.
    """
    inner = math.prod(axis.size for axis in kernel.inner)
    return inner <= CPU.stored_inner and kernel.nonzeros is None


def goes_by_panels(kernel: Contract) -> bool:
    """Return whether a contraction is split into panels of columns, not into rows."""
    if outer_pieces(kernel) >= CPU.enough_pieces:
        return False
    if may_copy_columns(kernel):
        return True
    if stores_lines(kernel):
        return False
    # The larger operand is the one to go through only once. Groups of rows have more
    # or fewer zeros, panels of columns are all the same work.
    panel, columns = CPU.tile_vectors * WIDTH, kernel.columns[-1].size
    even = kernel.nonzeros is not None and columns >= CPU.enough_pieces * panel
    large = kernel.right.buffer.size > kernel.left.buffer.size
    return even or large


def streams_matrix(kernel: Contract) -> bool:
    """Return whether a contraction is bound by reading its right matrix, line by line.

    It has one row, and enough pieces whose columns are many.
    """
    if len(kernel.rows) != 1 or len(kernel.inner) != 1 or len(kernel.columns) != 1:
        return False
    (rows,), (columns,), (inner,) = kernel.rows, kernel.columns, kernel.inner
    is_matrix = columns.right == 1 and inner.right >= columns.size
    is_plain = kernel.epilogue is None and kernel.sums is None
    is_long = columns.size >= CPU.streamed_columns
    pieces = max(1, columns.size // CPU.streamed_piece[0]) * outer_pieces(kernel)
    return (
        rows.size == 1
        and (is_matrix and is_plain and is_long)
        and pieces >= CPU.enough_pieces
    )


def reads_ahead(kernel: Contract) -> bool:
    """Return whether a contraction prefetches rows of its left matrix.

    A tile reads its rows at the same time. Where each is short, hardware prefetchers
    see no stream, though all rows are one.
    """
    (*_, row), (inner, *more) = kernel.rows, kernel.inner
    is_stream = not more and inner.left == 1 and inner.size == row.left
    return (
        is_stream
        and row.left * kernel.left.buffer.dtype.itemsize <= CPU.page_bytes // 2
        and kernel.columns[0].size <= CPU.ahead_columns
        and kernel.left.buffer.nbytes >= CPU.own_cache
        and not (kernel.nonzeros or may_copy_columns(kernel))
    )


def dotted_columns(kernel: Contract) -> int:
    """Return the columns of a contraction that is summed along rows, 0 for others.

    Its columns are few, and lie side by side in both matrices that have them. How many
    rows there are does not matter: one by itself should have the bits that it has
    among others.
    """
    if len(kernel.inner) != 1 or len(kernel.columns) != 1 or not kernel.rows:
        return 0
    (inner,), (columns,), row = kernel.inner, kernel.columns, kernel.rows[-1]
    is_plain = not (kernel.epilogue or kernel.sums or kernel.nonzeros or kernel.packed)
    side_by_side = columns.size == 1 or columns.right == columns.out == 1
    dotted = (
        (is_plain and side_by_side and kernel.out.buffer.dtype == FLOAT32)
        and columns.size in CPU.dotted_columns
        and columns.size == inner.right == row.out
        and inner.left == 1
        and inner.size >= CPU.dotted_inner
    )
    return columns.size if dotted else 0


def sums_along_rows(kernel: Contract) -> bool:
    """Return whether a contraction has so few columns."""
    return dotted_columns(kernel) > 0


def _count(kernel: Contract) -> int:
    """Return how many multiplications a contraction consists of."""
    return math.prod(axis.size for axis in kernel.axes)


def outer_pieces(kernel: Contract) -> int:
    """Return how many products of matrices a contraction consists of."""
    return math.prod(axis.size for axis in (*kernel.batch, *kernel.rows[:-1]))


class ProductKind(NamedTuple):
    """What the text of a small contraction depends on."""

    dtype: np.dtype
    outer: int  # axes of the batch, and of rows but the last
    inner: int  # axes
    sums: bool  # whether the columns of the right operand are added up, too
    group: int = 0  # rows that share a list of nonzero indices, if there are lists
    stores: bool = True  # its result, which may be for its epilogue alone
    copied: int = 0  # elements of a piece's columns that it copies at a time
    streams: bool = False  # the right matrix, of which each element is read once
    dotted: int = 0  # columns with which rows are multiplied by vectors of lanes
    ahead: bool = False  # rows of the left matrix are prefetched
    epilogue: Any = None  # the key of it

    @property
    def vectors(self) -> int:
        """Vectors of columns in a tile: of doubles, one takes the registers of two."""
        return 2 if self.dtype.itemsize <= 4 else 1

    @property
    def listed_vectors(self) -> int:
        """The same of a tile that goes through a list, whose rows are few."""
        return CPU.tile_vectors // 2 * self.vectors

    @property
    def panel_width(self) -> int:
        """Columns of a piece that copies them, at most."""
        return (self.listed_vectors if self.group else self.vectors) * WIDTH


class Sizes(NamedTuple):
    """The sizes of a small contraction: numbers, or parameters of its text.

    A piece is at most `height` rows times `width` columns at one index of the outer
    axes, which fall into `down` times `across` pieces.
    """

    pieces: int
    down: int
    across: int
    height: int
    width: int
    columns: int
    offsets: tuple[int, ...]  # in left, right and out
    row: tuple[int, ...]  # size, strides in left and out
    outer: tuple[tuple[int, ...], ...]  # of each axis: size, strides in all three
    inner: tuple[tuple[int, ...], ...]  # of each axis: size, strides in left and right
    # Of lists: how many at each index of the outer axes, the numbers that one has room
    # for, and the nonzero indices of one that still leaves out enough.
    lists: tuple[int, ...] = ()
    ahead: tuple[int, ...] = ()  # elements of the left matrix to what is prefetched

    @staticmethod
    def of(kernel: Contract) -> Sizes:
        """Return the sizes of a contraction."""
        rows, (columns,) = kernel.rows[-1], kernel.columns
        height, width = _piece_of(kernel)
        down, across = -(-rows.size // height), -(-columns.size // width)
        return Sizes(
            outer_pieces(kernel) * down * across,
            *(down, across, height, width, columns.size),
            (kernel.left.offset, kernel.right.offset, kernel.out.offset),
            (rows.size, rows.left, rows.out),
            tuple((a.size, a.left, a.right, a.out) for a in outer_axes(kernel)),
            tuple((a.size, a.left, a.right) for a in kernel.inner),
            _lists_of(kernel),
            _ahead_of(kernel),
        )

    @staticmethod
    def told(kind: ProductKind) -> Sizes:
        """Return sizes that are parameters, in the order of `values`."""
        numbers = map(Parameter, count())

        def some(size: int) -> tuple[int, ...]:
            return tuple(next(numbers) for _ in range(size))

        pieces, down, across, height, width, columns = some(6)
        return Sizes(
            *(pieces, down, across, height, width, columns),
            offsets=some(3),
            row=some(3),
            outer=tuple(some(4) for _ in range(kind.outer)),
            inner=tuple(some(3) for _ in range(kind.inner)),
            lists=some(3 if kind.group else 0),
            ahead=some(kind.ahead),
        )

    def values(self) -> tuple[int, ...]:
        """Return all numbers, one after the other."""
        nested = (*self.outer, *self.inner)
        axes = [number for axis in nested for number in axis]
        return (*self[:6], *self.offsets, *self.row, *axes, *self.lists, *self.ahead)


def _lists_of(kernel: Contract) -> tuple[int, ...]:
    if not kernel.nonzeros:
        return ()
    *_, groups, length = kernel.nonzeros.buffer.shape
    return groups, length, int(CPU.worth_skipping * kernel.inner[0].size)


def _ahead_of(kernel: Contract) -> tuple[int, ...]:
    if not reads_ahead(kernel):
        return ()
    ahead = CPU.ahead_bytes // kernel.left.buffer.dtype.itemsize
    return (max(ahead, TILE_ROWS[0] * kernel.rows[-1].left),)


def outer_axes(kernel: Contract) -> tuple[Axis, ...]:
    """Return the axes at each of whose indices there is a product of matrices.

    One without any has an axis of a single index: its text is that of all others.
    """
    return (*kernel.batch, *kernel.rows[:-1]) or (Axis(1),)


def _piece_of(kernel: Contract) -> tuple[int, int]:
    """Return the rows and columns of a piece: all, where pieces are enough."""
    rows, columns = kernel.rows[-1].size, kernel.columns[0].size
    if outer_pieces(kernel) >= CPU.enough_pieces:
        return rows, columns
    if dotted_columns(kernel):
        return CPU.dotted_piece, columns
    if streams_matrix(kernel):
        least, most = CPU.streamed_piece
        even = columns // CPU.many_threads
        return rows, min(max(even - even % least, least), most)
    if not goes_by_panels(kernel):
        return TILE_ROWS[0], columns
    if not (kernel.nonzeros or may_copy_columns(kernel)):
        return rows, 2 * WIDTH
    # Wide panels go through lists less often; those that are too few for many threads
    # have some of the rows each.
    kind, _ = kind_of(kernel)
    width = kind.panel_width
    across = -(-columns // width)
    down = -(-CPU.many_threads // across)
    if not kernel.nonzeros:
        down = min(down, rows // CPU.copied_rows)
    if kind.copied:  # and has room for the sums of so many rows
        down = max(down, -(-rows * width // kind.copied))
    return even_height(rows, across, down), width


def even_height(rows: int, across: int, least: int) -> int:
    """Return the rows of a piece, of which there are so many side by side.

    They fall into as few parts, at least so many, as give many threads equal shares.

    >>> [even_height(*each) for each in ((784, 8, 13), (384, 12, 3), (128, 16, 1))]
    [56, 96, 128]
    """

    def height(down: int) -> int:
        return -(-rows // (down * TILE_ROWS[0])) * TILE_ROWS[0]

    def slowest(down: int) -> float:
        pieces = across * -(-rows // height(down))
        return -(-pieces // CPU.many_threads) * CPU.many_threads / pieces

    possible = range(least, 2 * least + 1)
    even = (down for down in possible if slowest(down) <= CPU.equal_share)
    return height(next(even, min(possible, key=slowest)))


def is_small(kernel: Contract) -> bool:
    """Return whether a contraction needs no tiles made for its shape.

    For plain matrices those are 1% faster, and take 15 to 30 ms to compile.
    """
    if kernel.bits or kernel.packed or kernel.prefetched:
        return False
    if dotted_columns(kernel):
        return True
    if len(kernel.columns) != 1 or not kernel.rows or not kernel.inner:
        return False
    # Sums of columns over a long inner axis restart with each block of it.
    blocks = kernel.sums and kernel.inner[0].size >= CPU.blocked_inner
    is_plain = len(kernel.rows) == len(kernel.inner) == 1
    most = CPU.plain_product if is_plain else CPU.small_product
    has_tiles = not kernel.nonzeros or kernel.nonzeros.group in TILE_ROWS
    return _count(kernel) <= most and has_tiles and not blocks


def repays_epilogue(kernel: Contract) -> bool:
    """Return whether a contraction is worth a text that an epilogue is a part of."""
    return _count(kernel) >= CPU.epilogue_product or not is_small(kernel)


def kind_of(kernel: Contract) -> tuple[ProductKind, tuple[Buffer, ...]]:
    """Return the kind of a small contraction, and its buffers."""
    copies = may_copy_columns(kernel) and gains_from_copies()
    kind = ProductKind(
        kernel.out.buffer.dtype,
        len(outer_axes(kernel)),
        len(kernel.inner),
        kernel.sums is not None,
        kernel.nonzeros.group if kernel.nonzeros else 0,
        kernel.out.buffer.kind != "register",
        CPU.copied_panel if copies else 0,
        streams_matrix(kernel),
        dotted_columns(kernel),
        reads_ahead(kernel),
    )
    operands = (kernel.left.buffer, kernel.right.buffer, kernel.out.buffer)
    sums = (kernel.sums,) if kernel.sums else ()
    lists = kernel.nonzeros
    return kind, (*operands, *sums, *((lists.buffer, lists.every) if lists else ()))


def told_buffers(kind: ProductKind) -> list[Buffer]:
    """Return buffers that stand for those of a small contraction."""
    kinds = {"left": "arena", "right": "arena"}
    kinds["out"] = "arena" if kind.stores else "register"
    if kind.sums:
        kinds["sums"] = "arena"
    numbers = [Buffer(name, (), kind.dtype, where) for name, where in kinds.items()]
    lists = ("lists", "every") if kind.group else ()
    return [*numbers, *(Buffer(name, (), np.dtype("int32"), "arena") for name in lists)]


class Matrices(NamedTuple):
    """The addresses at which the three matrices of a piece begin, and its columns."""

    left: str
    right: str
    out: str  # none where nothing is stored
    at: list[str]  # indices of the outer axes
    first: str
    columns: str
    lists: str  # the number of its first list, none without lists


class Block(NamedTuple):
    """Inner indices at which a piece copies its columns, and adds up at once."""

    row: str  # the first of the piece
    start: str
    size: str
    is_first: str
    is_last: str


class ProductText:
    """The text of a kind of small contractions, whose buffers come before others."""

    def __init__(
        self,
        kind: ProductKind,
        buffers: Sequence[Buffer],
        epilogue: Loop | None = None,
        parameters: int = 0,
    ) -> None:
        self.kind, self.sizes, self.buffers = kind, Sizes.told(kind), buffers
        self.emitter = Emitter(max(len(self.sizes.values()), parameters))
        self.text, self.maths = self.emitter.text, self.emitter.maths
        self.element = llvm_type(kind.dtype)
        if kind.copied:
            self.panel, self.sums = self._held("panel"), self._held("sums")
        self.epilogue: Epilogue | None = None
        if epilogue:
            out, wide = buffers[2], FEWEST_SUMS * WIDTH
            most = TILE_ROWS[0] * wide
            self.epilogue = Epilogue(epilogue, out, self.emitter, most, wide)

    def _held(self, name: str) -> str:
        """Return room for the columns of a piece, or for its sums."""
        place, size = self.text.fresh(name), self.kind.copied
        room = f"  {place} = alloca [{size} x {self.element}], align 64"
        self.text.prelude.append(room)
        return place

    def emit(self) -> Emitted:
        """Emit pieces: some rows times some columns, at an index of the outer axes."""
        for buffer in self.buffers:
            if buffer.kind != "register":
                self.emitter.base(buffer)
        self.text.each("%lo", "%hi", 1, self._piece)
        return self.emitter.emitted(self.sizes.pieces)

    def _piece(self, number: str) -> None:
        text, sizes = self.text, self.sizes
        # Panel by panel: a thread that multiplied by some columns, which stay in its
        # cache, changes the same ones when their gradient's pieces are shared out.
        number, down = text.divided(number, sizes.down)
        number, across = text.divided(number, sizes.across)
        at, (left, right, out) = self._offsets(number)
        first, rows = self._part(down, sizes.height, sizes.row[0])
        column, columns = self._part(across, sizes.width, sizes.columns)
        matrices = Matrices(
            self.emitter.address(self.buffers[0], left),
            self.emitter.address(self.buffers[1], right),
            self.emitter.address(self.buffers[2], out) if self.kind.stores else "",
            *(at, column, columns),
            text.times(number, sizes.lists[0]) if self.kind.group else "",
        )
        self._multiply(matrices, first, rows)
        if self.kind.sums:
            is_first = text.let(f"icmp eq i64 {down}, 0")
            text.when(is_first, lambda: self._column_sums(matrices))

    def _multiply(self, matrices: Matrices, first: str, rows: str) -> None:
        """Multiply some rows by the columns of a piece."""
        if self.kind.group:
            first, rows = self._listed_groups(matrices, first, rows)
        if self.kind.copied:
            self._by_blocks(matrices, first, rows)
        else:
            self._each_tile(first, rows, TILE_ROWS, partial(self._rows, matrices))

    def _offsets(self, number: str) -> tuple[list[str], list[str]]:
        """Return the outer indices of a piece; where it begins in left, right, out."""
        text, offsets = self.text, [str(offset) for offset in self.sizes.offsets]
        at: list[str] = []
        for position, (size, *strides) in enumerate(reversed(self.sizes.outer)):
            index = number
            if position < len(self.sizes.outer) - 1:
                number, index = text.divided(number, size)
            at.insert(0, index)
            offsets = [
                text.add(offset, text.times(index, stride))
                for offset, stride in zip(offsets, strides, strict=True)
            ]
        # Without outer axes there is one index all the same, not the epilogue's.
        inner = len(self.epilogue.at) if self.epilogue else 0
        return at[len(at) - inner :], offsets

    def _part(self, index: str, each: int, size: int) -> tuple[str, str]:
        """Return the first row, or column, of a piece, and how many it has."""
        text = self.text
        first = text.times(index, each)
        left = text.let(f"sub nsw i64 {size}, {first}")
        inside = text.let(f"icmp slt i64 {left}, {each}")
        return first, text.let(f"select i1 {inside}, i64 {left}, i64 {each}")

    def _each_tile(
        self,
        first: str,
        size: str,
        steps: tuple[int, ...],
        body: Callable[[str, int], None],
    ) -> None:
        """Run a body for tiles of the largest size, then once at most for each other.

        Sizes are powers of two, each half of the one before.
        """
        text, most = self.text, steps[0]
        end = text.add(first, text.rounded_down(size, most))
        text.each(first, end, most, lambda index: body(index, most))
        for step in steps[1:]:
            some = text.let(f"and i64 {size}, {step}")
            some = text.let(f"icmp ne i64 {some}, 0")
            start = text.add(first, text.rounded_down(size, 2 * step))
            text.when(some, partial(body, start, step))

    def _vectors(self, height: int) -> int:
        """Return how many vectors of columns a tile of so many rows has at most.

        One of a row or two has more of them: a sum waits for the one before it.
        """
        most = self.kind.vectors * max(1, FEWEST_SUMS // (2 * height))
        return min(most, self.kind.panel_width // WIDTH) if self.kind.copied else most

    def _across(
        self, matrices: Matrices, most: int, body: Callable[[str, int], None]
    ) -> None:
        """Run a body for vectors of columns: several, one, then the lanes left over."""
        text, columns = self.text, matrices.columns
        widths = tuple(WIDTH << n for n in reversed(range(most.bit_length())))

        def vectors(column: str, width: int) -> None:
            body(column, width // WIDTH)

        self._each_tile(matrices.first, columns, widths, vectors)
        rest = text.let(f"and i64 {columns}, {WIDTH - 1}")
        start = text.add(matrices.first, text.rounded_down(columns, WIDTH))
        some = text.let(f"icmp ne i64 {rest}, 0")
        last = partial(body, start, 1)
        text.when(some, lambda: self.emitter.in_tail(rest, last))

    # ---- a tile --------------------------------------------------------------------

    def _rows(
        self,
        matrices: Matrices,
        row: str,
        height: int,
        listed: bool = False,
        block: Block | None = None,
    ) -> None:
        """Multiply some rows by all columns of a piece, perhaps through their list."""
        epilogue, (_, left, out) = self.epilogue, self.sizes.row
        most = self.kind.listed_vectors if listed else self._vectors(height)
        main = (self.kind.group, most) if listed else (TILE_ROWS[0], self.kind.vectors)
        indices = self._list(matrices, row) if listed else None
        lefts = self._lines(matrices.left, row, left, height)
        if epilogue and epilogue.tile:
            outs = self._lines(epilogue.tile, "0", epilogue.wide, height)
        else:
            outs = self._lines(matrices.out, row, out, height)

        def tile(column: str, vectors: int) -> None:
            # Others are few: their text had better be short.
            is_main = (height, vectors) == main
            at = [*matrices.at, row, column]
            if epilogue and is_main:
                self._prefetch(epilogue, at, *main)
            right = self.text.address(matrices.right, self.element, column)
            zeros = self._zeros(height * vectors)
            if block is not None:
                waiting = self._waiting(matrices, block, row, column, height)
                totals = self._in_block(block, waiting, zeros, lefts, vectors)
                stay = partial(self._wait, waiting, totals, vectors)
                go_on = partial(finish, at, totals, vectors, is_main)
                self.text.when(block.is_last, go_on, stay)
                return
            if indices is None:
                totals = self._inner(right, zeros, lefts, vectors)
            else:
                totals = self._listed(indices, right, zeros, lefts, vectors)
            finish(at, totals, vectors, is_main)

        def finish(
            at: list[str], totals: list[Val], vectors: int, is_main: bool
        ) -> None:
            if epilogue and epilogue.tile and epilogue.is_light and is_main:
                self._go_on(epilogue, at, totals, vectors)
                return
            first = "0" if epilogue and epilogue.tile else at[-1]
            for number, total in enumerate(totals):
                line, vector = outs[number // vectors], number % vectors
                self._store(total, line, first, vector)
            if epilogue:
                tail = self.emitter.tail
                columns = tail.size if tail else str(vectors * WIDTH)
                epilogue.call(*matrices.at, row, str(height), at[-1], columns)

        self._across(matrices, most, tile)

    def _prefetch(
        self, epilogue: Epilogue, at: list[str], height: int, vectors: int
    ) -> None:
        """Prefetch the other operands of an epilogue of a tile."""
        *outer, row, column = at
        for below in range(height):
            point = [*outer, self.text.add(row, below), column]
            epilogue.prefetch(self.emitter, point, vectors)

    def _go_on(
        self, epilogue: Epilogue, at: list[str], totals: list[Val], vectors: int
    ) -> None:
        """Run the epilogue on the sums of a tile, in registers."""
        *outer, row, column = at
        for number, total in enumerate(totals):
            below, vector = divmod(number, vectors)
            beside = self.text.add(column, vector * WIDTH)
            epilogue.store([*outer, self.text.add(row, below), beside], total)

    def _column_sums(self, matrices: Matrices) -> None:
        """Add up the columns of the right operand."""
        sums = self.emitter.base(self.buffers[3])

        def tile(column: str, vectors: int) -> None:
            right = self.text.address(matrices.right, self.element, column)
            totals = self._inner(right, self._zeros(vectors), [], vectors)
            for vector, total in enumerate(totals):
                self._store(total, sums, column, vector)

        self._across(matrices, self._vectors(1), tile)

    def _lines(self, base: str, row: str, stride: int, height: int) -> list[str]:
        """Return where some rows of a matrix begin."""
        text = self.text
        lines = [text.address(base, self.element, text.times(row, stride))]
        while len(lines) < height:
            lines.append(text.address(lines[-1], self.element, str(stride)))
        return lines

    def _zeros(self, size: int) -> list[Val]:
        return [self.maths.constant(0, self.kind.dtype, WIDTH)] * size

    def _store(self, total: Val, line: str, column: str, vector: int) -> None:
        at = self.text.address(line, self.element, column)
        at = self.text.address(at, self.element, vector * WIDTH)
        self.emitter.store(total, at)

    def _inner(
        self, right: str, zeros: list[Val], lefts: list[str], vectors: int
    ) -> list[Val]:
        """Add up over the inner axes; without rows, the right operand's columns."""
        text, element = self.text, self.element

        def axis(depth: int, left: str, right: str, totals: list[Val]) -> list[Val]:
            if depth == len(self.sizes.inner):
                lines = [text.address(line, element, left) for line in lefts]
                return self._step(lines, right, totals, vectors)
            size, across, down = self.sizes.inner[depth]

            def step(index: str, carried: list[Val]) -> list[Val]:
                if self.kind.ahead and len(lefts) == TILE_ROWS[0]:
                    self._prefetch_left(lefts[0], index)
                a = text.add(left, text.times(index, across))
                b = text.address(right, element, text.times(index, down))
                return axis(depth + 1, a, b, carried)

            return text.carry(0, size, 1, totals, step)

        return axis(0, "0", right, zeros)

    def _prefetch_left(self, line: str, index: str) -> None:
        """Prefetch a step's share of the rows of a tile that is ahead."""
        (ahead,) = self.sizes.ahead
        share = self.text.times(index, TILE_ROWS[0])
        at = self.text.address(line, self.element, self.text.add(share, str(ahead)))
        self.emitter.prefetch(at, 1)

    def _step(
        self, lines: list[str], right: str, totals: list[Val], vectors: int
    ) -> list[Val]:
        """Add the products of one element a row and the vectors of columns."""
        dtype, load = self.kind.dtype, self.emitter.load
        loaded = [
            load(self.text.address(right, self.element, v * WIDTH), dtype, WIDTH)
            for v in range(vectors)
        ]
        if not lines:
            return list(map(self.maths.add, totals, loaded))
        sums = []
        for row, line in enumerate(lines):
            factor = self.maths.splat(load(line, dtype, 1), WIDTH)
            for v, vector in enumerate(loaded):
                old = totals[row * vectors + v]
                sums.append(self.maths.fma(factor, vector, old))
        return sums

    # ---- columns that are copied -----------------------------------------------------

    def _by_blocks(self, matrices: Matrices, first: str, rows: str) -> None:
        """Multiply rows by the columns of a piece, which are copied block by block."""
        text, (size, _, _) = self.text, self.sizes.inner[0]
        most = self.kind.copied // self.kind.panel_width

        def add_up(start: str) -> None:
            left = text.minus(str(size), start)
            count = text.smaller(left, str(most))
            is_first = text.let(f"icmp eq i64 {start}, 0")
            is_last = text.let(f"icmp eq i64 {left}, {count}")
            block = Block(first, start, count, is_first, is_last)
            copy = partial(self._copy, matrices, block)
            self._across(matrices, self.kind.vectors, copy)
            multiply = partial(self._rows, matrices, block=block)
            self._each_tile(first, rows, TILE_ROWS, multiply)

        some = text.let(f"icmp sgt i64 {rows}, 0")  # that lists did not do
        text.when(some, lambda: text.each(0, size, most, add_up))

    def _copy(
        self, matrices: Matrices, block: Block, column: str, vectors: int
    ) -> None:
        """Copy some columns at the inner indices of a block side by side."""
        text, (_, _, down) = self.text, self.sizes.inner[0]
        start = text.add(column, text.times(block.start, down))
        source = text.address(matrices.right, self.element, start)
        target = text.address(
            self.panel, self.element, text.minus(column, matrices.first)
        )

        def row(index: str) -> None:
            a = text.address(source, self.element, text.times(index, down))
            b = text.address(
                target, self.element, text.times(index, self.kind.panel_width)
            )
            for vector in range(vectors):
                here = text.address(a, self.element, vector * WIDTH)
                value = self.emitter.load(here, self.kind.dtype, WIDTH)
                self._store(value, b, "0", vector)

        text.each(0, block.size, 1, row)

    def _waiting(
        self, matrices: Matrices, block: Block, row: str, column: str, height: int
    ) -> tuple[str, list[str]]:
        """Return where a tile's columns were copied to, and where its sums wait."""
        text, wide = self.text, self.kind.panel_width
        beside = text.minus(column, matrices.first)
        panel = text.address(self.panel, self.element, beside)
        lines = self._lines(self.sums, text.minus(row, block.row), wide, height)
        return panel, [text.address(line, self.element, beside) for line in lines]

    def _in_block(
        self,
        block: Block,
        waiting: tuple[str, list[str]],
        zeros: list[Val],
        lefts: list[str],
        vectors: int,
    ) -> list[Val]:
        """Continue sums over the inner indices of a block."""
        text, element, (panel, lines) = self.text, self.element, waiting
        ((_, across, _),) = self.sizes.inner
        begun = Val(block.is_first, BOOL, 1)
        addresses = [
            text.address(line, element, vector * WIDTH)
            for line in lines
            for vector in range(vectors)
        ]
        load = partial(self.emitter.load, dtype=self.kind.dtype, width=WIDTH)
        totals = [
            self.maths.select(begun, zero, load(address))
            for zero, address in zip(zeros, addresses, strict=True)
        ]

        def step(index: str, carried: list[Val]) -> list[Val]:
            left = text.times(text.add(block.start, index), across)
            heads = [text.address(line, element, left) for line in lefts]
            right = text.address(
                panel, element, text.times(index, self.kind.panel_width)
            )
            return self._step(heads, right, carried, vectors)

        return text.carry(0, block.size, 1, totals, step)

    def _wait(
        self, waiting: tuple[str, list[str]], totals: list[Val], vectors: int
    ) -> None:
        for number, total in enumerate(totals):
            line, vector = waiting[1][number // vectors], number % vectors
            self._store(total, line, "0", vector)

    # ---- lists of nonzero indices ----------------------------------------------------

    def _listed_groups(
        self, matrices: Matrices, first: str, rows: str
    ) -> tuple[str, str]:
        """Multiply whole groups of rows, if lists leave out enough; return the rest."""
        text, group = self.text, self.kind.group
        few = self._leaves_out(matrices, first, rows)
        size = text.let(f"and i64 {rows}, {-group}")
        end = text.add(first, size)

        def listed(row: str) -> None:
            self._rows(matrices, row, group, listed=True)

        text.when(few, lambda: text.each(first, end, group, listed))
        done = text.let(f"select i1 {few}, i64 {size}, i64 0")
        return text.add(first, done), text.minus(rows, done)

    def _listed(
        self,
        indices: tuple[str, str],
        right: str,
        zeros: list[Val],
        lefts: list[str],
        vectors: int,
    ) -> list[Val]:
        """Add up over the inner indices of a list."""
        text, element, (count, first) = self.text, self.element, indices
        ((_, across, down),) = self.sizes.inner

        def step(number: str, carried: list[Val]) -> list[Val]:
            index = self._listed_index(first, number)
            left = text.times(index, across)
            lines = [text.address(line, element, left) for line in lefts]
            below = text.address(right, element, text.times(index, down))
            return self._step(lines, below, carried, vectors)

        return text.carry(0, count, 1, zeros, step)

    def _listed_index(self, first: str, number: str) -> str:
        address = self.text.address(first, "i32", number)
        short = self.text.let(f"load i32, ptr {address}, align 4")
        return self.text.let(f"zext i32 {short} to i64")

    def _list(self, matrices: Matrices, row: str) -> tuple[str, str]:
        """Return how many nonzero indices a row's group has, and where they are."""
        text, (_, length, _) = self.text, self.sizes.lists
        group, _ = text.divided(row, self.kind.group)
        number = text.add(matrices.lists, group)
        lists, every = self.buffers[3 + self.kind.sums :][:2]
        base = self.emitter.base(lists)
        head = text.address(base, "i32", text.times(number, length))
        count = text.let(f"load i32, ptr {head}, align 4")
        count = text.let(f"sext i32 {count} to i64")
        full = text.let(f"icmp slt i64 {count}, 0")
        own = text.address(head, "i32", NonzeroIndices.HEAD)
        first = f"select i1 {full}, ptr {self.emitter.base(every)}, ptr {own}"
        size = self.sizes.inner[0][0]
        some = text.let(f"select i1 {full}, i64 {size}, i64 {count}")
        return some, text.let(first)

    def _leaves_out(self, matrices: Matrices, first: str, rows: str) -> str:
        """Return whether the lists of some rows leave out enough to use them."""
        text, group = self.text, self.kind.group

        def add(row: str, carried: list[str]) -> list[str]:
            count, _ = self._list(matrices, row)
            return [text.add(carried[0], count)]

        end = text.add(first, rows)
        (total,) = text.loop(first, end, group, add, [("i64", "0")])
        groups, _ = text.divided(text.add(rows, group - 1), group)
        most = text.times(groups, self.sizes.lists[2])
        return text.let(f"icmp sle i64 {total}, {most}")
