"""Row-wise fusion: a block has some rows of several kernels, and waits for no other.

Where every kernel of a partition runs over the same rows and needs only its own row of
what the others compute, a few blocks do all of them, one after the other: a
classifier's last product, its softmax, its loss.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from ganglion.compiler.cuda.epilogue import (
    FusedKernel,
    is_flat,
    tables_of,
)
from ganglion.compiler.cuda.target import TUNING
from ganglion.compiler.plan.expressions import BufferKey
from ganglion.compiler.plan.kernels import (
    Apply,
    Buffer,
    Kernel,
    Load,
    Loop,
    View,
    walk,
)

Access = tuple[BufferKey, View, tuple[int, ...]]


def fusable_rows(kernel: Kernel) -> int:
    """Return over how many rows a kernel may be fused row-wise, 0 for none."""
    if not isinstance(kernel, Loop) or kernel.adds or not kernel.outer:
        return 0
    rows = kernel.outer[0]
    most = (
        TUNING.most_row_wise_products
        if _is_product(kernel)
        else TUNING.most_row_wise_elements
    )
    fits = (
        TUNING.fewest_rows <= rows <= TUNING.most_rows
        and math.prod(kernel.shape) <= most
    )
    return rows if fits else 0


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
    return max(n for n in range(1, rows + 1) if rows % n == 0 and rows // n >= wanted)


def can_fuse_rows(kernels: Sequence[Kernel], new: Kernel) -> bool:
    """Return whether a kernel and others need only their own rows of each other."""
    rows = fusable_rows(new)
    every = [*kernels, new]
    if not rows or any(fusable_rows(kernel) != rows for kernel in every):
        return False
    written: set[BufferKey] = {b.key for kernel in every for b in kernel.writes()}
    steps: dict[BufferKey, set[int]] = defaultdict(set)
    for kernel in every:
        assert isinstance(kernel, Loop)
        for expr in walk(*kernel.exprs):
            if any(b.key in written for b in tables_of(expr)):
                return False
        for key, view, shape in _accesses(kernel):
            if key in written:
                step = _row_stride(view, shape)
                if step is None:
                    return False
                steps[key].add(step)
    return all(len(strides) == 1 for strides in steps.values())


def row_sizes(kernels: Sequence[Kernel]) -> dict[BufferKey, int]:
    """Return the arrays that kernels compute row-wise, with the elements of a row."""
    sizes: dict[BufferKey, int] = {}
    for kernel in kernels:
        assert isinstance(kernel, Loop)
        for _, view in kernel.outputs:
            size = view.buffer.size // kernel.outer[0]
            if _row_stride(view, kernel.outer) == size:
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


def staged_whole(fused_kernels: Sequence[FusedKernel]) -> list[Buffer]:
    """Return the small arrays that a partition's blocks copy as a whole.

    All rows need all of them, or they are very small.
    """
    loads = [view for _, view, _ in _loads_of_others(fused_kernels)]
    row_wise = {view.buffer.key for view in loads if any(view.strides[:1])}
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
        own = shape[:1] == (rows,) and view.buffer.size % rows == 0
        steps[key].add(_row_stride(view, shape) if own else None)
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


def _row_stride(view: View, shape: tuple[int, ...]) -> int | None:
    """Return how far rows of a view lie apart, None if they overlap."""
    first, *others = view.strides
    if min(others, default=0) < 0 or view.offset < 0 or first <= 0:
        return None
    span = sum((n - 1) * s for n, s in zip(shape[1:], others, strict=True))
    return first if view.offset + span < first else None
