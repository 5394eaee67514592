"""Winograd's points: what a convolution and a gradient of weights transform alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeGuard

from ganglion.compiler.plan.kernels import Contract, Kernel
from ganglion.compiler.plan.plan import Uses
from ganglion.compiler.plan.winograd import (
    Tiling,
    WinogradConv,
    WinogradPoints,
    WinogradSpread,
    scratch_elements,
)


def share_points(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Return the kernels with points of images stored by convolutions of the same.

    The gradients of a transposed convolution to its images and to its weights read the
    same images: these are transformed once. A convolution stores them only where they
    are about to be multiplied: what the forward pass would keep for the backward pass
    takes more memory than the images do.
    """
    order, uses = list(kernels), Uses(kernels)
    for points in kernels:
        if not isinstance(points, WinogradPoints) or points.is_gradient:
            continue
        (product,) = uses.readers[points.target.buffer.key]
        since = _other_operand_known(kernels, uses, product, points)
        for conv in kernels[since:product]:
            if conv in order and _transforms_alike(conv, points):
                order[order.index(conv)] = _storing(conv, points)
                order.remove(points)
                break
    return order


def _transforms_alike(conv: Kernel, points: WinogradPoints) -> TypeGuard[WinogradConv]:
    """Return whether a convolution transforms what the points are made of."""

    def tiles(tiling: Tiling) -> tuple[object, ...]:
        return tiling.channels, tiling.outputs[:3], tiling.taps, tiling.span

    return (
        isinstance(conv, WinogradConv)
        and not isinstance(conv, WinogradSpread)
        and conv.sources == points.sources
        and tiles(conv.tiling) == tiles(points.tiling)
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
