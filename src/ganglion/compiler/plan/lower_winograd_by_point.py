"""Winograd's convolutions as products by point, whose operands are stored.

Images, or gradients, are transformed to points, all tiles of them; each point then has
a matrix product of its own, which is cut and shared by threads as any other.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ganglion.compiler.plan.kernels import Axis, Buffer, Contract, View
from ganglion.compiler.plan.lowering import Lowering, thread_split
from ganglion.compiler.plan.winograd import (
    FLOAT,
    LANES,
    Plane,
    Points,
    Taps,
    Tiling,
    WinogradKernel,
    WinogradOutputs,
    WinogradPoints,
    padded,
    panels,
    weight_rows,
)

MIN_PIECES = 8  # of a kernel, for threads to share


def zeros_of(channels: int) -> Buffer:
    """Return the pixel that stands for those outside of images."""
    array = np.zeros(channels, FLOAT)
    return Buffer(f"zeros{channels}", array.shape, FLOAT, "constant", array)


def in_pieces(low: Lowering, tiling: Tiling) -> Tiling:
    """Cut tiles into a piece for each thread, without blocks."""
    pieces = thread_split(tiling.outputs[0], low.target.thread_splits)
    if pieces < MIN_PIECES:
        pieces = low.target.thread_splits
    piece = -(-tiling.tiles // pieces)
    return replace(tiling, piece=piece, block=piece)


def conv_by_point(
    low: Lowering,
    planes: tuple[Plane, ...],
    weights: Buffer,
    target: Plane,
    tiling: Tiling,
) -> None:
    """Emit a convolution as a product for each point, whose operands are stored.

    `weights` are transformed: [panel][point][in][out].
    """
    tiling = in_pieces(low, tiling)
    points, channels, out = tiling.points, tiling.channels, target.shape[3]
    left = _transformed(low, tiling, planes, is_gradient=False)
    products = _stored_points(low, tiling, out)
    each = weight_rows(channels)
    for wide, firsts in _panels_by_width(out).items():
        panel, point = points * each * wide, each * wide
        start = firsts[0]
        low.emit(
            Contract(
                "winograd_products",
                (
                    Axis(points, left.strides[0], point, products.stride),
                    Axis(len(firsts), 0, panel, wide),
                ),
                (Axis(tiling.tiles, left.strides[1], 0, products.row),),
                (Axis(wide, 0, 1, 1),),
                (Axis(channels, 1, wide),),
                left,
                View(weights, (point, wide, 1), start * points * each),
                View(products.buffer, (products.stride, products.row, 1), start),
            )
        )
    scratch = low.new((tiling.pieces, padded(out)), FLOAT, "scratch")
    form = (tiling, (), scratch, products, target)
    low.emit(WinogradOutputs("winograd_outputs", *form))


def _panels_by_width(channels: int) -> dict[int, list[int]]:
    """Return the first output channels of adjacent panels of a width.

    >>> _panels_by_width(80)
    {32: [0, 32], 16: [64]}
    """
    firsts: dict[int, list[int]] = {}
    for start, widths in panels(channels):
        firsts.setdefault(sum(widths), []).append(start)
    return firsts


def _stored_points(low: Lowering, tiling: Tiling, channels: int) -> Points:
    """Return memory for the points of all tiles."""
    # A line more than needed: neither tiles nor points must fall on one another in
    # a cache.
    row = -(-channels // LANES) * LANES + LANES
    stride = tiling.tiles * row + LANES
    return Points(low.new((tiling.points, stride), FLOAT, "points"), stride, row)


def _transformed(
    low: Lowering, tiling: Tiling, sources: tuple[Plane, ...], is_gradient: bool
) -> View:
    """Return the points of all tiles: [point][tile][channel]."""
    target = _stored_points(low, tiling, sum(plane.shape[3] for plane in sources))
    zeros = zeros_of(max(plane.shape[3] for plane in sources))
    form = (tiling, sources, zeros, target, is_gradient)
    low.emit(WinogradPoints("winograd_points", *form))
    return View(target.buffer, (target.stride, target.row, 1))


def grads_by_point(
    low: Lowering,
    tiling: Tiling,
    planes: tuple[Plane, ...],
    parts: tuple[Taps, ...],
    grads: Plane,
) -> None:
    """Emit a gradient of weights as a product for each point.

    Its operands are stored, so that large sums need neither be loaded block by block
    nor be cut into groups that transform the same images and gradients again.
    """
    left = _transformed(low, tiling, planes, is_gradient=False)
    right = _transformed(low, tiling, (grads,), is_gradient=True)
    channels, out = tiling.channels, tiling.outputs[3]
    rows, wide = weight_rows(channels), padded(out)
    sums = low.new((1, tiling.points, rows, wide), FLOAT, "sums")
    low.emit(
        Contract(
            "winograd_sums",
            (Axis(tiling.points, left.strides[0], right.strides[0], rows * wide),),
            (Axis(channels, 1, 0, wide),),
            (Axis(out, 0, 1, 1),),
            (Axis(tiling.tiles, left.strides[1], right.strides[1]),),
            left,
            right,
            View.of(sums),
        )
    )
    low.emit(WinogradKernel("winograd_kernel", tiling.taps, tiling.span, sums, parts))
