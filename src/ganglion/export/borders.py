"""Padding: only the borders are filled, not the elements that are overwritten."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ganglion.compiler.plan.epilogues import is_map
from ganglion.compiler.plan.kernels import Kernel, Literal, Loop, View


def fill_borders(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Return the kernels; a fill skips the elements that the next kernel writes."""
    result: list[Kernel] = []
    for number, kernel in enumerate(kernels):
        follower = kernels[number + 1] if number + 1 < len(kernels) else None
        gaps = _gaps(kernel, follower)
        result += [kernel] if gaps is None else gaps
    return result


def _gaps(fill: Kernel, follower: Kernel | None) -> list[Kernel] | None:
    """Return fills of the elements that the next kernel does not write.

    None if they are not known. The kernel writes nested boxes: along every axis, some
    elements lie between the end of one box and the start of the next.
    """
    if not (_is_fill(fill) and isinstance(follower, Loop) and is_map(follower)):
        return None
    assert isinstance(fill, Loop)
    if len(follower.outputs) != 1:
        return None
    buffer, target = fill.target.buffer, follower.target
    if target.buffer.key != buffer.key or buffer.root in follower.memory_read:
        return None
    pairs = zip(target.strides, follower.shape, strict=True)
    axes = sorted((stride, size) for stride, size in pairs if size > 1)
    left, span = [], 1
    for number, (stride, size) in enumerate(axes):
        if stride < span:
            return None  # boxes overlap
        if stride > span:
            outer = axes[number + 1 :]
            left.append((span, (*outer, (stride, size - 1), (1, stride - span))))
        span += stride * (size - 1)
    starts = [(target.offset + start, box) for start, box in left]
    end = target.offset + span
    starts += [(0, ((1, target.offset),)), (end, ((1, buffer.size - end),))]
    return list(_fills(fill, starts))


def _fills(
    fill: Loop, starts: Sequence[tuple[int, Sequence[tuple[int, int]]]]
) -> Iterator[Kernel]:
    for start, axes in starts:
        shape = tuple(size for _, size in axes)
        if all(shape):
            strides = tuple(stride for stride, _ in axes)
            view = View(fill.target.buffer, strides, start)
            yield Loop.of(fill.name, shape, fill.expr, view)


def _is_fill(kernel: Kernel) -> bool:
    """Return whether a kernel fills a buffer with a single number."""
    return (
        isinstance(kernel, Loop)
        and is_map(kernel)
        and len(kernel.outputs) == 1
        and isinstance(kernel.expr, Literal)
        and kernel.target.strides == (1,)
        and kernel.target.offset == 0
        and kernel.shape == (kernel.target.buffer.size,)
    )
