"""Which loops may be epilogues: the conditions that all targets share.

An epilogue is a loop over the elements that its producer stores, in memory order. It is
computed while the producer has the value in a register, and may make the producer's
store unnecessary. A target decides whether that pays.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from ganglion.compiler.plan.kernels import (
    Buffer,
    BufferKey,
    Contract,
    Expr,
    Indirect,
    Kernel,
    Load,
    Loop,
    Shape,
    Shuffled,
    Uniform,
    View,
    row_major,
)


def is_flat(view: View, shape: Shape) -> bool:
    """Return whether a loop visits all elements of a view's buffer in memory order.

    >>> import numpy as np
    >>> buffer = Buffer("b", (6, 4), np.dtype("float32"), "arena")
    >>> is_flat(View(buffer, (8, 4, 1)), (3, 2, 4)), is_flat(View(buffer, (1,)), (6,))
    (True, False)
    """
    if view.offset or math.prod(shape) != view.buffer.size:
        return False
    return all(
        size == 1 or stride == expected
        for size, stride, expected in zip(
            shape, view.strides, row_major(shape), strict=True
        )
    )


def is_map(kernel: Kernel) -> bool:
    """Return whether a kernel is a loop that stores a value at each of its points."""
    return isinstance(kernel, Loop) and not kernel.reduced and not kernel.adds


def is_copy(kernel: Loop) -> bool:
    """Return whether a loop only copies, possibly in another order."""
    return is_map(kernel) and len(kernel.outputs) == 1 and isinstance(kernel.expr, Load)


def is_producer(kernel: Kernel) -> bool:
    """Return whether a kernel computes every element of an array exactly once."""
    if isinstance(kernel, Loop):
        fills = all(is_flat(view, kernel.outer) for _, view in kernel.outputs)
        return fills and not kernel.adds and math.prod(kernel.outer) > 0
    return isinstance(kernel, Contract) and _fills_output(kernel)


def _fills_output(kernel: Contract) -> bool:
    strides = sorted((axis.out, axis.size) for axis in kernel.kept if axis.size > 1)
    expected = 1
    for stride, size in strides:
        if stride != expected:
            return False
        expected *= size
    return expected == kernel.out.buffer.size and not kernel.out.offset


def can_follow(
    fused: Sequence[Kernel], epilogue: Loop, others: Sequence[Kernel] = ()
) -> bool:
    """Return whether a loop can be an epilogue of a producer that it reads from.

    `fused` are the producer and its epilogues so far. `others` are fused with them as
    well, but their results are not available element by element: column sums.
    """
    every = (*fused, *others)
    return (
        is_map(epilogue)
        and reads_in_order(epilogue, fused, others)
        and _may_overwrite(every, epilogue)
    )


def reads_in_order(
    loop: Loop,
    fused: Sequence[Kernel],
    others: Sequence[Kernel] = (),
    last: int | None = None,
) -> bool:
    """Return whether a loop reads the results of fused kernels in memory order only.

    With `last`, that axis of the loop counts as its last one.
    """

    def moved(axes: Shape) -> Shape:
        if last is None:
            return axes
        return (*axes[:last], *axes[last + 1 :], axes[last])

    results = {b.key for kernel in (*fused, *others) for b in kernel.writes()}
    in_order = _written_in_order(*fused)
    for expr in loop.leaves:
        if isinstance(expr, Load) and expr.view.buffer.key in results:
            view = expr.view
            strides = moved(view.strides)
            flat = is_flat(View(view.buffer, strides, view.offset), moved(loop.shape))
            if not flat or view.buffer.key not in in_order:
                return False
        elif any(b.key in results for b in tables_of(expr)):
            return False
    return True


def _written_in_order(producer: Kernel, *epilogues: Kernel) -> set[BufferKey]:
    in_order = {buffer.key for buffer in producer.writes()}
    for kernel in epilogues:
        assert isinstance(kernel, Loop)
        views = (view for _, view in kernel.outputs)
        in_order |= {v.buffer.key for v in views if is_flat(v, kernel.shape)}
    return in_order


def tables_of(expr: Expr) -> list[Buffer]:
    """Return the buffers that an expression reads at computed indices."""
    if isinstance(expr, Indirect):
        return [expr.table]
    if isinstance(expr, (Uniform, Shuffled)):
        return [expr.state]
    return []


def _may_overwrite(fused: Sequence[Kernel], epilogue: Loop) -> bool:
    """Return whether elements that an epilogue overwrites are read in place only."""
    results = {buffer.key for kernel in fused for buffer in kernel.writes()}
    for _, view in epilogue.outputs:
        target = view.buffer.key
        if target in results:
            return False
        read = [
            kernel
            for kernel in (*fused, epilogue)
            if target in (buffer.key for buffer in kernel.reads())
        ]
        if read and not is_flat(view, epilogue.shape):
            return False
        if not all(_reads_in_place(kernel, target) for kernel in read):
            return False
    return True


def _reads_in_place(kernel: Kernel, target: BufferKey) -> bool:
    if not isinstance(kernel, Loop) or not is_map(kernel):
        return False
    for expr in kernel.leaves:
        if isinstance(expr, Load) and expr.view.buffer.key == target:
            if not is_flat(expr.view, kernel.shape):
                return False
        elif any(b.key == target for b in tables_of(expr)):
            return False
    return True


# ---- an epilogue over the axes of its product ----------------------------------------


def along(epilogue: Loop, product: Contract) -> Loop | None:
    """Return an epilogue as a loop over the axes of a product, None if impossible.

    Its own axes visit the same elements in memory order; they are split, or merged
    where they are contiguous.
    """
    kept = product.kept
    order = sorted(range(len(kept)), key=lambda axis: -kept[axis].out)
    sizes = tuple(kept[axis].size for axis in order)
    where = sorted(range(len(kept)), key=order.__getitem__)
    shape = tuple(axis.size for axis in kept)

    def move(strides: Shape, offset: int) -> tuple[Shape, int]:
        recut = _recut(strides, epilogue.shape, sizes)
        return tuple([recut[place] for place in where]), offset

    try:
        targets = [
            View(view.buffer, *move(view.strides, view.offset))
            for _, view in epilogue.outputs
        ]
        return epilogue.with_axes(shape, 0, targets, move, {})
    except _OtherAxesError:
        return None


class _OtherAxesError(Exception):
    """An array that is affine in some axes is not affine in others."""


@lru_cache(maxsize=4096)
def _recut(strides: Shape, shape: Shape, sizes: Shape) -> Shape:
    """Return strides along axes of other sizes, with the same number of points.

    >>> _recut((1,), (12,), (3, 4)), _recut((0, 0, 1), (2, 3, 4), (6, 4))
    ((4, 1), (0, 1))
    """
    axes = [(n, step) for n, step in zip(shape, strides, strict=True) if n > 1]
    result = []
    for size in reversed(sizes):
        if size == 1:
            result.append(0)
            continue
        count, step = axes.pop()
        result.append(step)
        while count < size:  # merge with the next outer axis
            outer, outer_step = axes.pop()
            if outer_step != step * count:
                raise _OtherAxesError
            count *= outer
        if count % size:
            raise _OtherAxesError
        if count > size:
            axes.append((count // size, step * size))
    return tuple(reversed(result))
