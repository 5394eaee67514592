"""Winograd's points: what a convolution and a gradient of weights transform alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeGuard

from ganglion.compiler.plan.kernels import Contract, Kernel
from ganglion.compiler.plan.plan import Uses, map_buffers
from ganglion.compiler.plan.winograd import (
    Tiled,
    Tiling,
    WinogradConv,
    WinogradPoints,
    WinogradSpread,
    scratch_elements,
)


def share_points(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Return the kernels with equal points of images computed once.

    The gradients of a transposed convolution to its images and to its weights read the
    same images: these are transformed once. Points are shared only where they are about
    to be multiplied: what the forward pass would keep for the backward pass takes more
    memory than the images do.
    """
    order, uses = list(kernels), Uses(kernels)
    for points in kernels:
        if not isinstance(points, WinogradPoints) or points.is_gradient:
            continue
        product = min(uses.readers[points.target.buffer.key])
        since = _other_operand_known(kernels, uses, product, points)
        for other in kernels[since:product]:
            if other is points or other not in order or points not in order:
                continue
            if _convolves(other) and _transforms_alike(other, points):
                order[order.index(other)] = _storing(other, points)
                order.remove(points)
            elif _is_the_same(other, points):
                order.remove(points)
                order = [_reading(other, points, kernel) for kernel in order]
    return order


def _reading(
    stored: WinogradPoints, instead_of: WinogradPoints, kernel: Kernel
) -> Kernel:
    """Return a kernel that reads the points that another one has stored."""
    old, new = instead_of.target.buffer, stored.target.buffer
    if old not in kernel.reads():
        return kernel
    return map_buffers(kernel, lambda buffer: new if buffer is old else buffer)


def _convolves(kernel: Kernel) -> TypeGuard[WinogradConv]:
    """Return whether a convolution transforms images, block by block."""
    return isinstance(kernel, WinogradConv) and not isinstance(kernel, WinogradSpread)


def _is_the_same(kernel: Kernel, points: WinogradPoints) -> TypeGuard[WinogradPoints]:
    """Return whether a kernel transforms the same images for other products."""
    return (
        isinstance(kernel, WinogradPoints)
        and not kernel.is_gradient
        and _transforms_alike(kernel, points)
    )


def _transforms_alike(kernel: Tiled, points: WinogradPoints) -> bool:
    """Return whether a kernel transforms what the points are made of."""

    def tiles(tiling: Tiling) -> tuple[object, ...]:
        return tiling.channels, tiling.outputs[:3], tiling.taps, tiling.span

    return kernel.sources == points.sources and tiles(kernel.tiling) == tiles(
        points.tiling
    )


def _other_operand_known(
    kernels: Sequence[Kernel], uses: Uses, product: int, points: WinogradPoints
) -> int:
    """Return from which kernel on the gradients are known that points multiply."""
    contract = kernels[product]
    assert isinstance(contract, Contract)
    (other,) = {contract.left.buffer, contract.right.buffer} - {points.target.buffer}
    (transform,) = uses.writers[other.key]
    writers = (uses.writers[b.key] for b in kernels[transform].memory_read)
    return 1 + max((number for numbers in writers for number in numbers), default=-1)


def _storing(conv: WinogradConv, points: WinogradPoints) -> WinogradConv:
    """Return a convolution that stores the points, which need no scratch then."""
    region = scratch_elements(conv.tiling, 0, conv.channels[1])
    scratch = replace(conv.scratch, shape=(conv.tiling.pieces, region))
    return replace(conv, scratch=scratch, stored=points.target)
