"""Which kernels are fused: epilogues into producers, and several kernels row-wise.

`plan.epilogues` says which loops may be epilogues at all; this adds what suits a GPU.
An epilogue is computed while its producer has the value in a register.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

from ganglion.compiler.cuda.target import TUNING
from ganglion.compiler.plan import epilogues
from ganglion.compiler.plan.epilogues import (
    can_follow,
    is_flat,
    is_map,
    reads_in_order,
    tables_of,
)
from ganglion.compiler.plan.kernels import (
    Apply,
    Axis,
    Buffer,
    BufferKey,
    Contract,
    Expr,
    Kernel,
    Literal,
    Load,
    Loop,
    Shape,
    View,
    row_major,
    walk,
)
from ganglion.compiler.plan.scan_scatter import PoolBack
from ganglion.system.records import record

Stored = tuple[tuple[Expr, View], ...]


@record(eq=False)
class SplitContract(Contract):
    """A split-K contraction: it stores partial sums, one part after the other."""

    parts: int = 1


@record(eq=False)
class GatheredContract(Contract):
    """A contraction whose left operand is gathered: rows of a table, by an index.

    A single model reads them from a copy.
    """

    index: Buffer | None = None
    copied: View | None = None

    @property
    def alone(self) -> Contract:
        """The contraction of a single model."""
        assert self.copied is not None
        values = {f.name: getattr(self, f.name) for f in fields(Contract)}
        return Contract(**(values | {"left": self.copied}))

    @property
    def row_size(self) -> int:
        """The elements of a row."""
        return self.left.buffer.shape[-1]

    def reads(self) -> list[Buffer]:
        """Return the operands, and the index."""
        assert self.index is not None
        return [*super().reads(), self.index]


@dataclass(frozen=True)
class InBlock:
    """How a resident block runs a fused kernel: see `one_block.py`."""

    swizzled: Mapping[BufferKey, int]  # matrices, and the length of their rows
    first_warp: int = 0  # the warp of the kernel's first threads


@dataclass(eq=False)
class FusedKernel:
    """A kernel with its epilogues and column sums.

    Each column sum may have epilogues of its own. `unstored` are results that only
    epilogues read: they stay in registers.
    """

    kernel: Kernel
    epilogues: list[Loop] = field(default_factory=list)
    column_sums: list[FusedKernel] = field(default_factory=list)
    unstored: set[BufferKey] = field(default_factory=set)
    rounded: frozenset[BufferKey] = frozenset()  # results stored rounded to TF32
    ready: frozenset[BufferKey] = frozenset()  # not written by the previous launch
    in_block: InBlock | None = None  # in a resident step

    @property
    def kernels(self) -> list[Kernel]:
        """The producer, its epilogues and its column sums."""
        return [*self.in_order, *self.beside]

    @property
    def in_order(self) -> list[Kernel]:
        """The producer and its epilogues, which compute the same elements."""
        return [self.kernel, *self.epilogues]

    @property
    def beside(self) -> list[Kernel]:
        """The column sums and their epilogues."""
        return [kernel for sums in self.column_sums for kernel in sums.kernels]

    def add_column_sum(self, kernel: Loop) -> None:
        """Let the kernel's blocks compute a column sum of its results."""
        self.column_sums.append(FusedKernel(kernel, unstored=self.unstored))

    def reads(self) -> set[BufferKey]:
        """Return all memory that is read."""
        return {b.key for kernel in self.kernels for b in kernel.reads()}

    def writes(self) -> set[BufferKey]:
        """Return the memory that is written, without results that stay in registers."""
        written = {b.key for kernel in self.kernels for b in kernel.writes()}
        return written - self.unstored

    def buffers(self) -> Iterable[Buffer]:
        """Return every buffer that is touched."""
        for kernel in self.kernels:
            yield from kernel.reads()
            yield from kernel.writes()


def is_zero(expr: Expr) -> bool:
    """Return whether an expression is the number zero."""
    return isinstance(expr, Literal) and expr.value == 0


def is_sign_test(expr: Expr) -> bool:
    """Return whether an expression compares another with zero: `0 < x`."""
    return isinstance(expr, Apply) and expr.op == "less" and is_zero(expr.args[0])


def is_producer(kernel: Kernel) -> bool:
    """Return whether a kernel computes every element of an array exactly once."""
    return not isinstance(kernel, SplitContract) and epilogues.is_producer(kernel)


def can_fuse_epilogue(
    fused: FusedKernel, epilogue: Loop, most: int | None = None
) -> bool:
    """Return whether a loop can be an epilogue of a producer that it reads from.

    `most` limits the values in registers; by default, the kind of producer does.
    """
    if not is_map(epilogue) or len(fused.epilogues) >= TUNING.most_epilogues:
        return False
    stored = sum(len(k.outputs) if isinstance(k, Loop) else 1 for k in fused.kernels)
    if stored + len(epilogue.outputs) > (most or _most_stored(fused.kernel)):
        return False
    return can_follow(fused.in_order, epilogue, fused.beside)


def can_fuse_column_sum(fused: FusedKernel, kernel: Kernel) -> bool:
    """Return whether a loop is a column sum over all rows of a producer's result.

    The producer is a product or the gradient of pooling.
    """
    columns = _columns(fused.kernel)
    if columns is None or not isinstance(kernel, Loop) or kernel.how != "sum":
        return False
    if kernel.outer != (columns,) or math.prod(kernel.shape) < TUNING.fewest_summed:
        return False
    return _adds_columns(fused, kernel)


def can_fuse_partial_column_sum(fused: FusedKernel, kernel: Kernel) -> bool:
    """Return whether a loop is a column sum over parts of the rows of a map's result.

    Each block of the map stores the sums of its own rows.
    """
    if not is_map(fused.kernel) or not is_producer(fused.kernel):
        return False
    if not isinstance(kernel, Loop) or kernel.how != "sum" or len(kernel.outputs) > 1:
        return False
    if len(kernel.outer) != 2:
        return False
    others = {
        column_sum.kernel.outer
        for column_sum in fused.column_sums
        if isinstance(column_sum.kernel, Loop)
    }
    if others - {kernel.outer} or kernel.outer[1] > TUNING.most_sum_columns:
        return False
    if math.prod(kernel.shape[1:]) < TUNING.fewest_summed_per_block:
        return False
    return _adds_columns(fused, kernel)


def _adds_columns(fused: FusedKernel, kernel: Loop) -> bool:
    """Return whether a loop sums results of a fused kernel, in order, into floats."""
    targets = {view.buffer.key for _, view in kernel.outputs}
    return (
        len(kernel.outputs) <= TUNING.most_column_sums
        and all(kind == "arena" for kind, _ in targets)
        and not targets & (fused.reads() | fused.writes())
        and all(expr.dtype.kind == "f" for expr, _ in kernel.outputs)
        and all(is_flat(view, kernel.outer) for _, view in kernel.outputs)
        and reads_in_order(kernel, fused.in_order, fused.beside, len(kernel.outer) - 1)
    )


def _columns(kernel: Kernel) -> int | None:
    """Return the number of columns of a result, if blocks can sum over its rows."""
    if isinstance(kernel, PoolBack):
        columns, is_dense = kernel.shape[-1], kernel.dx.strides[-1] == 1
        return columns if is_dense and columns <= TUNING.most_sum_columns else None
    if not isinstance(kernel, Contract) or not is_producer(kernel):
        return None
    if any(axis.right for axis in kernel.batch if axis.size > 1):
        return None
    axes = joined(kernel.columns, "out")
    return axes[0].size if len(axes) == 1 and axes[0].out == 1 else None


def _most_stored(kernel: Kernel) -> int:
    """Return how many values a producer and its epilogues may have in registers.

    In a long reduction, the epilogues' values would take registers from all threads,
    most of which only add.
    """
    long = isinstance(kernel, Loop) and kernel.reduced
    large = (
        isinstance(kernel, Loop) and math.prod(kernel.shape) >= TUNING.long_reduction
    )
    return TUNING.most_stored_of_long if long and large else TUNING.most_stored


def joined(axes: Iterable[Axis], *sides: str) -> list[Axis]:
    """Merge adjacent axes that are contiguous on the given sides; drop unit axes.

    >>> [axis.size for axis in joined([Axis(2, 12), Axis(3, 4), Axis(4, 1)], "left")]
    [24]
    >>> [axis.size for axis in joined([Axis(2, 20), Axis(3, 4), Axis(4, 1)], "left")]
    [2, 12]
    """
    result: list[Axis] = []
    for axis in axes:
        if axis.size == 1:
            continue
        steps = [getattr(axis, side) * axis.size for side in sides]
        if result and steps == [getattr(result[-1], side) for side in sides]:
            result[-1] = replace(axis, size=axis.size * result[-1].size)
        else:
            result.append(axis)
    return result


def loop_of(kernel: Contract, outer: Sequence[Axis]) -> Loop:
    """Return a contraction as a loop over the axes of its result, in this order."""
    axes = (*outer, *kernel.inner)
    dtype = kernel.out.buffer.dtype
    left = View(kernel.left.buffer, tuple(a.left for a in axes), kernel.left.offset)
    right = View(kernel.right.buffer, tuple(a.right for a in axes), kernel.right.offset)
    expr = Apply(dtype, "multiply", (Load(dtype, left), Load(dtype, right)))
    out = View(kernel.out.buffer, tuple(a.out for a in outer), kernel.out.offset)
    return Loop.of(kernel.name, sizes(axes), expr, out, len(kernel.inner), "sum")


def sizes(axes: Sequence[Axis]) -> tuple[int, ...]:
    """Return the extents of some axes."""
    return tuple(axis.size for axis in axes)


# ---- row-wise fusion -----------------------------------------------------------------
# If every kernel of a partition runs over the same rows, and reads only the same row of
# the others' results, each block runs all kernels for some rows, and waits for no other
# block: a classifier's last product, its softmax and its loss.


Access = tuple[BufferKey, View, tuple[int, ...]]


@dataclass(frozen=True)
class BlockRows:
    """The rows of a loop that a block computes."""

    count: int
    axes: Shape  # the leading axes of the loop, which are its rows
    alone: int = 0  # `count` when one model is trained, which fixes the order of sums

    def of(self, shape: Shape, count: int = 0) -> Shape:
        """Return a loop's shape for a block's rows, along the last of the row axes.

        >>> BlockRows(4, (128,)).of((128, 10)), BlockRows(4, (8, 16)).of((8, 16, 10))
        ((4, 10), (1, 4, 10))
        """
        before = len(self.axes) - 1
        rows = count or self.count
        return (*(1 for _ in range(before)), rows, *shape[before + 1 :])


def row_axes(shape: Shape, rows: int) -> Shape | None:
    """Return the leading axes with this many rows in all, None if there are none.

    >>> row_axes((128, 10), 128), row_axes((8, 16, 10), 128), row_axes((8, 16), 64)
    ((128,), (8, 16), None)
    """
    for last in range(len(shape)):
        if math.prod(shape[: last + 1]) == rows:
            return shape[: last + 1]
    return None


def rows_of_block(
    fused: FusedKernel, rows: int, count: int, alone: int = 0
) -> BlockRows:
    """Return the rows of a loop for blocks that compute `count` rows each."""
    assert isinstance(fused.kernel, Loop)
    axes = row_axes(fused.kernel.outer, rows)
    assert axes is not None
    return BlockRows(count, axes, alone or count)


def row_counts(kernel: Kernel) -> frozenset[int]:
    """Return all numbers of rows over which a kernel may be fused row-wise."""
    if not isinstance(kernel, Loop) or kernel.adds:
        return frozenset()
    counts = itertools.accumulate(kernel.outer, operator.mul)
    return frozenset(rows for rows in counts if _suits_rows(kernel, rows))


def first_row_counts(kernel: Kernel) -> frozenset[int]:
    """Return the numbers of rows over which a kernel may start a row-wise fusion.

    Many rows of very few elements are better computed as a plain loop.
    """
    counts = row_counts(kernel)
    if not isinstance(kernel, Loop):
        return counts
    elements = math.prod(kernel.shape)
    return frozenset(
        rows
        for rows in counts
        if rows <= TUNING.most_rows or elements // rows >= TUNING.shortest_row
    )


def _suits_rows(kernel: Loop, rows: int) -> bool:
    elements = math.prod(kernel.shape)
    if TUNING.fewest_rows <= rows <= TUNING.most_rows:
        limit = (
            TUNING.most_row_wise_products
            if _is_product(kernel)
            else TUNING.most_row_wise_elements
        )
        return elements <= limit
    # Many short rows fill a GPU; fusion saves reading them more than once.
    return (
        TUNING.most_rows < rows <= TUNING.most_short_rows
        and elements // rows <= TUNING.short_row
        and not _is_product(kernel)
    )


def _is_product(kernel: Loop) -> bool:
    expr = kernel.expr
    if kernel.how != "sum" or len(kernel.outputs) > 1 or not isinstance(expr, Apply):
        return False
    return expr.op == "multiply" and all(
        isinstance(argument, Load) for argument in expr.args
    )


def rows_per_block(rows: int, kernels: Sequence[Kernel]) -> int:
    """Return how many rows a block has: fewer where the largest loop is longer."""
    elements = max(
        math.prod(kernel.shape) for kernel in kernels if isinstance(kernel, Loop)
    )
    blocks = max(
        TUNING.fewest_row_wise_blocks, elements // TUNING.row_wise_elements_per_block
    )
    return largest_part(rows, min(blocks, rows))


def largest_part(rows: int, parts: int) -> int:
    """Return the size of equal parts of some rows, if there are at least `parts`.

    >>> largest_part(128, 5), largest_part(6, 4)
    (16, 1)
    """
    fewest = min(max(parts, 1), rows)
    return max(n for n in range(1, rows + 1) if rows % n == 0 and rows // n >= fewest)


def can_fuse_rows(kernels: Sequence[Kernel], rows: int) -> bool:
    """Return whether kernels read only the same row of each other's results."""
    if not rows or any(rows not in row_counts(kernel) for kernel in kernels):
        return False
    written: set[BufferKey] = {b.key for kernel in kernels for b in kernel.writes()}
    steps: dict[BufferKey, set[int]] = defaultdict(set)
    for kernel in kernels:
        assert isinstance(kernel, Loop)
        for expr in walk(*kernel.exprs):
            if any(b.key in written for b in tables_of(expr)):
                return False
        for key, view, shape in _accesses(kernel):
            if key in written:
                step = _row_stride(view, shape, rows)
                if step is None:
                    return False
                steps[key].add(step)
    return all(len(strides) == 1 for strides in steps.values())


def row_sizes(kernels: Sequence[Kernel], rows: int) -> dict[BufferKey, int]:
    """Return the arrays that kernels compute row-wise, and the length of a row."""
    sizes: dict[BufferKey, int] = {}
    for kernel in kernels:
        assert isinstance(kernel, Loop)
        for _, view in kernel.outputs:
            size = view.buffer.size // rows
            if _row_stride(view, kernel.outer, rows) == size:
                sizes[view.buffer.key] = size
    return sizes


def whole_rows(kernels: Sequence[Kernel]) -> set[BufferKey]:
    """Return the arrays of which kernels compute every element exactly once."""
    views = [
        (view, kernel.outer)
        for kernel in kernels
        if isinstance(kernel, Loop)
        for _, view in kernel.outputs
    ]
    writes = Counter(view.buffer.key for view, _ in views)
    flat = {view.buffer.key for view, outer in views if is_flat(view, outer)}
    return {key for key in flat if writes[key] == 1}


def staged_whole(fused_kernels: Sequence[FusedKernel], rows: int) -> list[Buffer]:
    """Return the small arrays that a partition's blocks stage entirely.

    Every row reads all of their elements, or they are very small.
    """
    loads = list(_loads_of_others(fused_kernels))
    row_wise = {
        key
        for key, view, shape in loads
        if any(view.strides[: len(row_axes(shape, rows) or ())])
    }
    staged: dict[BufferKey, Buffer] = {}
    available = TUNING.most_staged_bytes
    for key, view, _ in loads:
        buffer = view.buffer
        suits = key not in row_wise or buffer.nbytes <= TUNING.staged_whole_bytes
        if key not in staged and suits and buffer.nbytes <= available:
            staged[key] = buffer
            available -= buffer.nbytes
    return list(staged.values())


def staged_rows(
    fused_kernels: Sequence[FusedKernel], rows: int
) -> dict[BufferKey, int]:
    """Return arrays of which blocks read only their own rows, and the rows' length."""
    steps: dict[BufferKey, set[int | None]] = defaultdict(set)
    sizes = {}
    kernels = [
        kernel
        for fused in fused_kernels
        for kernel in fused.kernels
        if isinstance(kernel, Loop)
    ]
    exprs = [expr for kernel in kernels for expr, _ in kernel.outputs]
    for table in (b.key for node in walk(*exprs) for b in tables_of(node)):
        steps[table].add(None)  # an index may select any row
    for key, view, shape in _loads_of_others(fused_kernels):
        sizes[key] = view.buffer.size // rows
        has_rows = view.buffer.size % rows == 0
        steps[key].add(_row_stride(view, shape, rows) if has_rows else None)
    return {
        key: size
        for key, size in sizes.items()
        if steps[key] == {size} and size <= TUNING.most_staged_row
    }


def _loads_of_others(fused_kernels: Sequence[FusedKernel]) -> Iterator[Access]:
    """Yield the loads of a partition's loops from arrays that it does not write."""
    written = {
        buffer for fused in fused_kernels for buffer in fused.writes() | fused.unstored
    }
    for kernel in (kernel for fused in fused_kernels for kernel in fused.kernels):
        if isinstance(kernel, Loop):
            for node in walk(*kernel.exprs):
                if isinstance(node, Load) and node.view.buffer.key not in written:
                    yield node.view.buffer.key, node.view, kernel.shape


def _accesses(kernel: Loop) -> Iterator[Access]:
    for expr in walk(*kernel.exprs):
        if isinstance(expr, Load):
            yield expr.view.buffer.key, expr.view, kernel.shape
    for _, view in kernel.outputs:
        yield view.buffer.key, view, kernel.outer


def _row_stride(view: View, shape: Shape, rows: int) -> int | None:
    """Return the distance between rows of a view, None if they overlap."""
    axes = row_axes(shape, rows)
    if axes is None:
        return None
    last = len(axes) - 1
    stride, others = view.strides[last], view.strides[last + 1 :]
    if min(others, default=0) < 0 or view.offset < 0 or stride <= 0:
        return None
    expected = [stride * step for step in row_major(axes)]
    if any(
        n > 1 and s != e for n, s, e in zip(axes, view.strides, expected, strict=False)
    ):
        return None  # rows at varying distances
    span = sum((n - 1) * s for n, s in zip(shape[last + 1 :], others, strict=True))
    return stride if view.offset + span < stride else None
