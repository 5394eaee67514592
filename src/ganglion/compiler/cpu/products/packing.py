"""Packing: which products of large matrices, in which blocks, by which parameters.

Rows of a large matrix lie pages apart: tiles that read it in place wait for memory, and
evict their own data from the cache. So some columns of the right matrix, over a block
of the inner axis, are copied into panels as wide as a tile, which stay in the L2 cache;
of the left one as many rows as a tile has, which stay in the L1 cache. A tile reads
both from front to back. `packed_gemm` has the text of such products.
"""

from __future__ import annotations

import math
from dataclasses import replace
from enum import Enum
from itertools import count, islice
from typing import Any, NamedTuple

import numpy as np

from ganglion.compiler.cpu.features import (
    gains_from_copies,
    multiplies_bf16,
    multiplies_tiles,
)
from ganglion.compiler.cpu.text import WIDTH, Parameter
from ganglion.compiler.cpu.tuning import CPU
from ganglion.compiler.plan.epilogues import along
from ganglion.compiler.plan.kernels import Axis, Buffer, Contract, Loop, View

# Elements from one packed row to the next, and rows of vectors behind a panel of
# columns: at multiples of a page, all would share few lines of the cache.
ROW_LENGTH, PADDING = 384 + WIDTH, 1
# Panels of rows that are packed together, where those lie side by side: lines of memory
# are longer than a tile is high.
PANELS = 8
AMX_DEPTH = 32  # elements of bfloat16 in a row of one of AMX' tiles


class Grid(NamedTuple):
    """How a product is divided among threads.

    A piece is one strip of columns, as wide as a tile, of some rows. A thread runs
    adjacent pieces together: the more columns, the less often rows are packed, and the
    reverse. So it takes at least `grain` of them.
    """

    pieces: int  # in all
    grain: int
    down: int  # blocks of rows
    rows: int  # of a block
    merged: int  # blocks that run together at most
    strips: int
    columns: int  # of a block, at most
    inner: int  # indices of a block, at most


def tile_vectors(dtype: np.dtype) -> int:
    """Return how many vectors of columns a tile has."""
    return max(1, CPU.packed_vectors * 4 // dtype.itemsize)


def grid_of(kernel: Contract) -> Grid:
    """Return how a product is divided among threads."""
    (rows,), (columns,), rounding = kernel.rows, kernel.columns, Rounding.of(kernel)
    high = CPU.amx_rows if rounding is Rounding.AMX else 2 * CPU.packed_rows
    strips = -(-columns.size // (tile_vectors(kernel.out.buffer.dtype) * WIDTH))
    each = rows.size
    if not _rows_of_batch(kernel):
        tiles = -(-rows.size // high)
        each = -(-tiles // -(-tiles * high // CPU.packed_block_rows)) * high
    down, merged = -(-rows.size // each), max(1, CPU.merged_rows // each)
    pieces = kernel.parallel * down * strips
    grain = even_grain(pieces, min(strips, CPU.packed_grain))
    blocks = (CPU.packed_columns, CPU.inner_block)
    if rounding is Rounding.AMX:
        wide = CPU.packed_columns if kernel.epilogue else CPU.amx_columns
        blocks = (wide, CPU.amx_inner)
    return Grid(pieces, grain, down, each, merged, strips, *blocks)


def even_grain(pieces: int, most: int) -> int:
    """Return how many pieces a thread takes at once: the most that leave equal shares.

    >>> [even_grain(pieces, 8) for pieces in (16, 96, 160, 256, 576)]
    [1, 2, 3, 4, 3]
    """

    def largest_share(grain: int) -> int:
        return -(-pieces // (grain * CPU.many_shares)) * grain

    grains = range(most, 0, -1)
    least = min(map(largest_share, grains))
    return next(g for g in grains if largest_share(g) <= CPU.equal_share * least)


def _rows_of_batch(kernel: Contract) -> Axis | None:
    """Return the rows of a product whose batch is nothing but more rows."""
    (row,), batch = kernel.rows, kernel.batch
    if len(batch) != 1 or batch[0].right:
        return None
    (part,), count = batch, row.size
    if (part.left, part.out) != (row.left * count, row.out * count):
        return None
    return replace(row, size=part.size * count)


def with_all_rows(kernel: Contract) -> tuple[Contract, Grid]:
    """Return a product with the rows of its batch, where lists of nonzeros permit."""
    grid, rows, lists = grid_of(kernel), _rows_of_batch(kernel), kernel.nonzeros
    if rows is None or (lists and grid.rows % lists.group):
        return kernel, grid
    merged, parts = replace(kernel, batch=(), rows=(rows,)), kernel.parallel
    if kernel.epilogue:
        epilogue = along(kernel.epilogue, merged)
        if epilogue is None:
            return kernel, grid
        merged = replace(merged, epilogue=epilogue)
    return merged, grid._replace(down=parts)


def scratch_for(kernel: Contract) -> tuple[int, ...] | None:
    """Return the shape of a buffer for packed blocks, None where they do not pay."""
    if not _is_worth_packing(kernel):
        return None
    (inner,), grid, rounding = kernel.inner, grid_of(kernel), Rounding.of(kernel)
    if rounding is Rounding.AMX:
        depth = min(-(-inner.size // AMX_DEPTH) * AMX_DEPTH, CPU.amx_inner) // 2
    else:
        depth = min(-(-inner.size // WIDTH) * WIDTH, CPU.inner_block)
    wide = tile_vectors(kernel.out.buffer.dtype) * WIDTH
    across = min(grid.strips * wide, grid.columns)
    rows = RowPanel.of(kernel.rows[0].left == 1, rounding)
    return (-(-grid.pieces // grid.grain), rows.room + across * (depth + PADDING))


def _is_worth_packing(kernel: Contract) -> bool:
    """Return whether a matrix is too large to be read in place.

    That is the right one; or the left one if it is transposed, so that its lines lie
    pages apart. Packing does not pay for a few rows, which read the panels too seldom,
    except that a transposed right matrix would be copied entirely otherwise. Along a
    long inner axis both matrices are prefetched block by block, which takes less time
    than copying them, if the block of the left one stays in the cache until all columns
    are done.
    """
    (row,), (column,), (inner,) = kernel.rows, kernel.columns, kernel.inner
    if 1 not in (row.left, inner.left) or 1 not in (column.right, inner.right):
        return False
    itemsize = kernel.out.buffer.dtype.itemsize
    nbytes = column.size * inner.size * itemsize
    every = nbytes * math.prod(axis.size for axis in kernel.batch if axis.right)
    rows = _rows_of_batch(kernel) or row
    if kernel.rounded:  # while they are packed: otherwise they are copied, too
        return rows.size >= CPU.fewest_packed_rows and column.size >= 2 * WIDTH
    if column.right != 1:
        least = CPU.packed_transposed if gains_from_copies() else CPU.packed_bytes
        return every >= least and column.size >= WIDTH
    is_long = inner.size >= CPU.blocked_inner and not kernel.batch
    if is_long and row.left == 1 and row.size <= CPU.prefetched_left:
        return False
    apart = row.left == 1 and inner.left * itemsize >= CPU.page_bytes
    left = rows.size * inner.size * itemsize if apart else 0
    is_large = max(every, left) >= CPU.packed_bytes and nbytes >= CPU.packed_in_batch
    return rows.size >= CPU.fewest_packed_rows and is_large


def in_blocks(kernel: Contract) -> bool:
    """Return whether a packed product has several blocks of the inner axis."""
    return kernel.inner[0].size > grid_of(kernel).inner


# ---- one text for all sizes ----------------------------------------------------------


class Rounding(Enum):
    """Whether packed operands are rounded to bfloat16, and how those are multiplied."""

    NONE = "none"
    WIDENED = "widened"  # stored as float32 again, and multiplied as such
    PAIRS = "pairs"  # stored side by side: an instruction multiplies and adds both
    AMX = "amx"  # likewise, in whole matrices of them

    @classmethod
    def of(cls, kernel: Contract) -> Rounding:
        """Return how the operands of a product are rounded on this machine."""
        if not kernel.rounded:
            return cls.NONE
        if multiplies_tiles():
            return cls.AMX
        return cls.PAIRS if multiplies_bf16() else cls.WIDENED


class RowPanel(NamedTuple):
    """How the packed rows of a tile lie: how far apart, and from one index to the next.

    Those whose elements lie side by side in memory are copied as they are.
    """

    apart: int
    step: int
    high: int  # rows of a panel
    size: int  # elements of one
    together: int  # panels that are packed at once

    @property
    def room(self) -> int:
        """Elements of those, in whole lines of a cache."""
        return self.together * self.size

    @classmethod
    def of(cls, transposed: bool, rounding: Rounding) -> RowPanel:
        """Return the panel of a matrix, whose rows may be side by side."""
        high = CPU.packed_rows
        if rounding is Rounding.AMX:  # whose tiles have rows, however those lay
            high = CPU.amx_rows
            together = CPU.amx_panels if transposed else 1
            return cls(ROW_LENGTH, 1, high, high * ROW_LENGTH, together)
        if transposed:
            return cls(1, WIDTH, high, WIDTH * ROW_LENGTH, PANELS)
        return cls(ROW_LENGTH, 1, high, high * ROW_LENGTH, 1)


class PackedKind(NamedTuple):
    """Everything that the text of a product without lists of zeros depends on."""

    dtype: np.dtype
    batch: int  # axes
    left_transposed: bool
    right_transposed: bool
    sums: bool  # whether the columns of the right operand are added up, too
    is_long: bool  # whether those sums restart with each block
    rounding: Rounding = Rounding.NONE
    stores: bool = True  # its result, which may be for its epilogue alone
    epilogue: Any = None  # the key of it


def packed_kind(kernel: Contract) -> PackedKind:
    """Return the kind of a packed product."""
    (inner,), (columns,) = kernel.inner, kernel.columns
    kernel, _ = with_all_rows(kernel)
    sums, is_long = kernel.sums is not None, inner.size >= CPU.blocked_inner
    return PackedKind(
        kernel.out.buffer.dtype,
        len(kernel.batch),
        inner.left != 1,
        columns.right != 1,
        sums,
        sums and is_long,
        Rounding.of(kernel),
        kernel.out.buffer.kind != "register",
    )


def packed_epilogue(kernel: Contract) -> Loop | None:
    """Return the epilogue of a packed product, along the axes of its parameters."""
    return with_all_rows(kernel)[0].epilogue


def packed_values(kernel: Contract) -> tuple[int, ...]:
    """Return the parameters of a packed product, in the order of `parametrized`."""
    kernel, grid = with_all_rows(kernel)
    (rows,), (columns,), (inner,) = kernel.rows, kernel.columns, kernel.inner
    left = rows.left if inner.left == 1 else inner.left
    right = inner.right if columns.right == 1 else columns.right
    offsets = (kernel.left.offset, kernel.right.offset, kernel.out.offset)
    sizes = (rows.size, columns.size, inner.size, left, right, rows.out)
    batch = [n for a in kernel.batch for n in (a.size, a.left, a.right, a.out)]
    return (*grid, *offsets, *sizes, *batch)


def packed_buffers(kernel: Contract) -> list[Buffer]:
    """Return the buffers of a packed product."""
    assert kernel.packed is not None
    sums = [kernel.sums] if kernel.sums else []
    views = (kernel.left, kernel.right, kernel.out)
    return [*(view.buffer for view in views), kernel.packed, *sums]


def parametrized(kind: PackedKind) -> tuple[Contract, Grid, int]:
    """Return a product whose sizes are parameters, and how many parameters it has."""
    numbers = map(Parameter, count())
    grid = Grid(*islice(numbers, len(Grid._fields)))
    offsets = tuple(islice(numbers, 3))
    rows, columns, inner, left, right, out = islice(numbers, 6)
    batch = tuple(Axis(*islice(numbers, 4)) for _ in range(kind.batch))
    packed = Buffer("packed", (), kind.dtype, "arena")
    sums = Buffer("sums", (), kind.dtype, "arena") if kind.sums else None
    places = {"left": "arena", "right": "arena"}
    places["out"] = "arena" if kind.stores else "register"
    a, b, c = (
        View(Buffer(name, (), kind.dtype, place), (), offset)
        for (name, place), offset in zip(places.items(), offsets, strict=True)
    )
    down, across = (1, left) if kind.left_transposed else (left, 1)
    below, beside = (1, right) if kind.right_transposed else (right, 1)
    row, column = Axis(rows, down, 0, out), Axis(columns, 0, beside, 1)
    step = (Axis(inner, across, below, 0),)
    product = Contract("matmul", batch, (row,), (column,), step, a, b, c)
    product = replace(product, packed=packed, sums=sums)
    return product, grid, next(numbers).number
