"""Which kernels are fused: a producer with its epilogues, and rows of several kernels.

Which loops may be epilogues at all says `plan.epilogues`; here is what suits a GPU. An
epilogue is computed where its producer has the value in a register.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

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
    record,
    row_major,
    walk,
)
from ganglion.compiler.plan.scan_scatter import PoolBack

Stored = tuple[tuple[Expr, View], ...]


@record(eq=False)
class SplitContract(Contract):
    """A split-K contraction: parts of its sums, stored one after the other."""

    parts: int = 1


@dataclass(frozen=True)
class InBlock:
    """How the only block of a step runs a fused kernel, see `resident.py`."""

    swizzled: Mapping[BufferKey, int]  # matrices, and the length of their rows
    first_warp: int = 0  # that has its first threads


@dataclass(eq=False)
class FusedKernel:
    """A kernel and its epilogues; `unstored` are results that only epilogues read.

    Its `column_sums` are sums of what it computes, each with epilogues of its own.
    """

    kernel: Kernel
    epilogues: list[Loop] = field(default_factory=list)
    column_sums: list[FusedKernel] = field(default_factory=list)
    unstored: set[BufferKey] = field(default_factory=set)
    rounded: frozenset[BufferKey] = frozenset()  # what is kept as tensor cores take it
    ready: frozenset[BufferKey] = frozenset()  # what the launch before does not write
    in_block: InBlock | None = None  # where one block takes a whole step

    @property
    def kernels(self) -> list[Kernel]:
        """The producer, its epilogues and its column sums."""
        return [*self.in_order, *self.beside]

    @property
    def in_order(self) -> list[Kernel]:
        """Those that store element by element, in the order of memory."""
        return [self.kernel, *self.epilogues]

    @property
    def beside(self) -> list[Kernel]:
        """The column sums, and their epilogues."""
        return [kernel for sums in self.column_sums for kernel in sums.kernels]

    def add_column_sum(self, kernel: Loop) -> None:
        """Let its blocks add up what they compute."""
        self.column_sums.append(FusedKernel(kernel, unstored=self.unstored))

    def reads(self) -> set[BufferKey]:
        """Return the memory that is read, except what is passed on in registers."""
        return {b.key for kernel in self.kernels for b in kernel.reads()}

    def writes(self) -> set[BufferKey]:
        """Return the memory that is written."""
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
    """Return whether an expression asks if another one is larger than zero."""
    return isinstance(expr, Apply) and expr.op == "less" and is_zero(expr.args[0])


def is_producer(kernel: Kernel) -> bool:
    """Return whether a kernel computes each element of a whole array once."""
    return not isinstance(kernel, SplitContract) and epilogues.is_producer(kernel)


def can_fuse_epilogue(
    fused: FusedKernel, epilogue: Loop, most: int | None = None
) -> bool:
    """Return whether a loop can be computed along with a producer that it reads from.

    They may have so many values at `most`, else as many as suit the producer.
    """
    if not is_map(epilogue) or len(fused.epilogues) >= TUNING.most_epilogues:
        return False
    stored = sum(len(k.outputs) if isinstance(k, Loop) else 1 for k in fused.kernels)
    if stored + len(epilogue.outputs) > (most or _most_stored(fused.kernel)):
        return False
    return can_follow(fused.in_order, epilogue, fused.beside)


def can_fuse_column_sum(fused: FusedKernel, kernel: Kernel) -> bool:
    """Return whether a loop adds up, by columns, something of all rows of a result.

    The blocks that compute it, of a product or of pooling, can do that along with it.
    """
    columns = _columns(fused.kernel)
    if columns is None or not isinstance(kernel, Loop) or kernel.how != "sum":
        return False
    if kernel.outer != (columns,) or math.prod(kernel.shape) < TUNING.fewest_summed:
        return False
    return _adds_columns(fused, kernel)


def can_fuse_partial_column_sum(fused: FusedKernel, kernel: Kernel) -> bool:
    """Return whether a loop adds up, by columns, parts of the rows of a map's result.

    A block of the map stores the sums of its own rows.
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
    """Return whether a loop adds up a fused kernel's results, and no more."""
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
    """Return how many columns a result has that its blocks can add up."""
    if isinstance(kernel, PoolBack):
        columns, beside = kernel.shape[-1], kernel.dx.strides[-1] == 1
        return columns if beside and columns <= TUNING.most_sum_columns else None
    if not isinstance(kernel, Contract) or not is_producer(kernel):
        return None
    if any(axis.right for axis in kernel.batch if axis.size > 1):
        return None
    axes = joined(kernel.columns, "out")
    return axes[0].size if len(axes) == 1 and axes[0].out == 1 else None


def _most_stored(kernel: Kernel) -> int:
    """Return how many values a producer and its epilogues may have.

    A long reduction has several results a thread: its epilogues' values would take the
    registers of all the threads that add.
    """
    long = isinstance(kernel, Loop) and kernel.reduced
    large = (
        isinstance(kernel, Loop) and math.prod(kernel.shape) >= TUNING.long_reduction
    )
    return TUNING.most_stored_of_long if long and large else TUNING.most_stored


def joined(axes: Iterable[Axis], *sides: str) -> list[Axis]:
    """Join neighbouring axes that are one long axis on some sides; drop those of one.

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
# A block has some rows of several kernels, and waits for no other. Where every kernel
# of a partition runs over the same rows and needs only its own row of what the others
# compute, a few blocks do all of them, one after the other: a classifier's last
# product, its softmax, its loss.


Access = tuple[BufferKey, View, tuple[int, ...]]


@dataclass(frozen=True)
class BlockRows:
    """The rows of a loop that a block has; the rows are those of the leading axes.

    Of one model alone, it has so many: that says in which order it adds up.
    """

    count: int
    axes: Shape
    alone: int = 0

    def of(self, shape: Shape, count: int = 0) -> Shape:
        """Return the shape of a block's rows; of several row axes, the last counts.

        >>> BlockRows(4, (128,)).of((128, 10)), BlockRows(4, (8, 16)).of((8, 16, 10))
        ((4, 10), (1, 4, 10))
        """
        before = len(self.axes) - 1
        rows = count or self.count
        return (*(1 for _ in range(before)), rows, *shape[before + 1 :])


def row_axes(shape: Shape, rows: int) -> Shape | None:
    """Return the leading axes that are so many rows together, None if none are.

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
    """Return the rows of a loop's blocks, which have so many of all rows each."""
    assert isinstance(fused.kernel, Loop)
    axes = row_axes(fused.kernel.outer, rows)
    assert axes is not None
    return BlockRows(count, axes, alone or count)


def row_counts(kernel: Kernel) -> frozenset[int]:
    """Return over how many rows a kernel may be fused row-wise: all that suit it."""
    if not isinstance(kernel, Loop) or kernel.adds:
        return frozenset()
    counts = itertools.accumulate(kernel.outer, operator.mul)
    return frozenset(rows for rows in counts if _suits_rows(kernel, rows))


def first_row_counts(kernel: Kernel) -> frozenset[int]:
    """Return over how many rows others may be fused with a kernel before them.

    Many rows of very few elements are not worth it: they run better side by side.
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
        few = (
            TUNING.most_row_wise_products
            if _is_product(kernel)
            else TUNING.most_row_wise_elements
        )
        return elements <= few
    # Many short rows fill a GPU: all that counts is that they are read once.
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
    """Return how many rows a block has: fewer where there is more to do."""
    most = max(
        math.prod(kernel.shape) for kernel in kernels if isinstance(kernel, Loop)
    )
    wanted = min(
        max(TUNING.fewest_row_wise_blocks, most // TUNING.row_wise_elements_per_block),
        rows,
    )
    return largest_part(rows, wanted)


def largest_part(rows: int, parts: int) -> int:
    """Return how many rows equal parts have, if there are so many parts at least.

    >>> largest_part(128, 5), largest_part(6, 4)
    (16, 1)
    """
    wanted = min(max(parts, 1), rows)
    return max(n for n in range(1, rows + 1) if rows % n == 0 and rows // n >= wanted)


def can_fuse_rows(kernels: Sequence[Kernel], rows: int) -> bool:
    """Return whether kernels need only their own of so many rows of each other."""
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
    """Return the arrays that kernels compute row-wise, with the elements of a row."""
    sizes: dict[BufferKey, int] = {}
    for kernel in kernels:
        assert isinstance(kernel, Loop)
        for _, view in kernel.outputs:
            size = view.buffer.size // rows
            if _row_stride(view, kernel.outer, rows) == size:
                sizes[view.buffer.key] = size
    return sizes


def whole_rows(kernels: Sequence[Kernel]) -> set[BufferKey]:
    """Return the arrays of which kernels make every element, each of them once."""
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
    """Return the small arrays that a partition's blocks copy as a whole.

    All rows need all of them, or they are very small.
    """
    others = list(_loads_of_others(fused_kernels))
    row_wise = {
        key
        for key, view, shape in others
        if any(view.strides[: len(row_axes(shape, rows) or ())])
    }
    loads = [view for _, view, _ in others]
    staged: dict[BufferKey, Buffer] = {}
    room = TUNING.most_staged_bytes
    for buffer in (view.buffer for view in loads):
        key = buffer.key
        alike = key not in row_wise or buffer.nbytes <= TUNING.staged_whole_bytes
        if key not in staged and alike and buffer.nbytes <= room:
            staged[key] = buffer
            room -= buffer.nbytes
    return list(staged.values())


def staged_rows(
    fused_kernels: Sequence[FusedKernel], rows: int
) -> dict[BufferKey, int]:
    """Return arrays of which blocks only read their own rows, and a row's elements."""
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
        steps[table].add(None)  # any row of it may be asked for
    for key, view, shape in _loads_of_others(fused_kernels):
        sizes[key] = view.buffer.size // rows
        own = view.buffer.size % rows == 0
        steps[key].add(_row_stride(view, shape, rows) if own else None)
    return {
        key: size
        for key, size in sizes.items()
        if steps[key] == {size} and size <= TUNING.most_staged_row
    }


def _loads_of_others(fused_kernels: Sequence[FusedKernel]) -> Iterator[Access]:
    """Yield what a partition's loops load of other partitions' results."""
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
    """Return how far rows of a view lie apart, None if they overlap."""
    axes = row_axes(shape, rows)
    if axes is None:
        return None
    last = len(axes) - 1
    stride, others = view.strides[last], view.strides[last + 1 :]
    if min(others, default=0) < 0 or view.offset < 0 or stride <= 0:
        return None
    below = [stride * step for step in row_major(axes)]
    if any(
        n > 1 and s != b for n, s, b in zip(axes, view.strides, below, strict=False)
    ):
        return None  # rows that are not one behind the other
    span = sum((n - 1) * s for n, s in zip(shape[last + 1 :], others, strict=True))
    return stride if view.offset + span < stride else None
