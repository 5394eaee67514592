"""Lowering of convolutions to Winograd's kernels, where those are worth it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ganglion.compiler.ir.graph import Node, Value
from ganglion.compiler.plan.kernels import Buffer, Load, Loop, Shape, View
from ganglion.compiler.plan.lowering import Lowering, thread_split
from ganglion.compiler.plan.winograd import (
    FLOAT,
    LANES,
    SPANS,
    Tiling,
    WinogradConv,
    WinogradGrads,
    WinogradKernel,
    WinogradSpread,
    WinogradWeights,
    padded,
    panels,
)

CACHE = 96 * 1024  # elements of scratch a thread may keep in its second-level cache
FEWEST_TILES = 14  # of a block: as many as a tile of registers has rows
SUMS = 1_500_000  # elements that all slices of a weight gradient may have
FEW_SUMS = 600_000  # elements of so many slices that threads share them evenly
MOST_SUMS = 16  # slices of a weight gradient: each has sums of its own to add up
TRANSFORMS = 1.6  # what a tile costs, in products of its points
FEWEST_OF_ALL = 48  # tiles: fewer keep few threads busy
FEWEST = 8  # pieces that a kernel should have, for threads to share

Pairs = tuple[tuple[int, int], ...]


def possible(node: Node, taps: Shape) -> bool:
    """Return whether an op is a convolution that Winograd's method is for."""
    attrs = node.attrs
    return (
        node.dtype == FLOAT
        and taps in ((3, 3), (5, 5))
        and attrs["strides"] == attrs["dilation"] == (1, 1)
        and attrs["groups"] == 1
        and node.size > 0
        and all(value.size > 0 for value in node.inputs)
    )


def chosen(
    low: Lowering, node: Node, taps: Shape, inputs: Shape, outputs: Shape
) -> bool:
    """Whether to lower an op of these images and outputs by Winograd's method."""
    if not low.target.winograd or not possible(node, taps):
        return False
    return worth(node.op.name, taps[0], inputs, outputs)


def worth(op: str, taps: int, inputs: Shape, outputs: Shape) -> bool:
    """Return whether Winograd's method is clearly faster than adding up all taps.

    With eight channels or more it took 0.2 to 0.8 of the time in all sizes tried,
    unless most of a tile lay outside of the image. Few tiles keep few threads busy.
    """
    tiling = _best(inputs, outputs, taps, (0, 0))
    tiles = tiling.tiles
    if op == "conv_transpose":
        tiles = min(tiles, _best(outputs, inputs, taps, (0, 0)).tiles)
    channels = inputs[3], outputs[3]
    plain = math.prod(outputs[:3]) * taps**2
    return (
        min(channels) >= 8
        and tiles >= FEWEST_OF_ALL
        and plain * math.prod(channels) >= 500_000
        and plain >= TRANSFORMS * tiling.points * tiling.tiles
    )


def _best(inputs: Shape, outputs: Shape, taps: int, before: tuple[int, int]) -> Tiling:
    """Return the tiling with the size of tile that costs least."""
    every = [Tiling(inputs, outputs, taps, before, span) for span in SPANS]
    enough = [launch for launch in every if launch.tiles >= FEWEST_OF_ALL]
    return min(enough or every[:1], key=lambda tiling: tiling.cost)


def _view(low: Lowering, value: Value) -> View:
    view = low.view(value)
    return view if view.strides[-1] == 1 else View.of(low.store(value))


def _zeros(channels: int) -> Buffer:
    array = np.zeros(channels, FLOAT)
    return Buffer(f"zeros{channels}", array.shape, FLOAT, "constant", array)


def _cut(tiling: Tiling, most: int, at_once: int) -> Tiling:
    """Cut tiles into at most `at_once` pieces, of blocks of about `most` tiles."""
    images, tiles = tiling.outputs[0], tiling.tiles
    pieces = min(at_once, -(-tiles // FEWEST_TILES))
    equal_pieces = thread_split(images, pieces)
    piece = tiles // equal_pieces
    if 2 * equal_pieces < pieces:  # too few: whole images, and the last has less
        each = tiles // images if images >= pieces else 1
        piece = -(-tiles // (each * pieces)) * each
    blocks = -(-piece // max(FEWEST_TILES, most))
    return replace(tiling, piece=piece, block=-(-piece // blocks))


def lower_conv(
    low: Lowering, node: Node, x: Value, kernel: View, shape: Shape, pairs: Pairs
) -> None:
    """Emit a convolution of x with a kernel of this shape."""
    before = (pairs[0][0], pairs[1][0])
    uncut = _best(x.shape, node.shape, shape[0], before)
    most = CACHE // (uncut.points * (shape[2] + _widest(shape[3])))
    tiling = _cut(uncut, most, low.target.thread_splits)
    _emit_conv(low, node, x, kernel, shape, tiling, WinogradConv)


def lower_conv_transpose(low: Lowering, node: Node, pairs: Pairs) -> None:
    """Emit the gradient of a convolution to its images; `pairs` pads the gradients.

    It is the convolution with the flipped kernel, or, where that costs much
    more, the adjoint.
    """
    dy, w = node.inputs
    taps, own = w.shape[0], node.attrs["pairs"]
    before = (own[0][0], own[1][0])
    adjoint = _best(node.shape, dy.shape, taps, before)
    other = _best(dy.shape, node.shape, taps, before)
    spreads = adjoint.cost * 5 <= other.cost * 4
    kernel, shape = _exchanged(low, w, flipped=not spreads)
    if not spreads:
        lower_conv(low, node, dy, kernel, shape, pairs)
        return
    each = math.prod(adjoint.across)
    most = CACHE // (adjoint.points * each * (shape[2] + _widest(shape[3])))
    images = -(-dy.shape[0] // low.target.thread_splits)
    block = max(1, min(most, images))
    tiling = replace(adjoint, piece=images * each, block=block * each)
    _emit_conv(low, node, dy, kernel, shape, tiling, WinogradSpread)


def _widest(channels: int) -> int:
    return max(sum(widths) for _, widths in panels(channels))


def _exchanged(low: Lowering, w: Value, flipped: bool) -> tuple[View, Shape]:
    """Copy a kernel with its channels exchanged, its taps also flipped."""
    view = View.of(low.store(w))
    shape = (w.shape[0], w.shape[1], w.shape[3], w.shape[2])
    rows, columns, inside, _ = view.strides
    load = View(view.buffer, (rows, columns, 1, inside))
    if flipped:
        last = (w.shape[0] - 1) * rows + (w.shape[1] - 1) * columns
        load = View(view.buffer, (-rows, -columns, 1, inside), last)
    target = View.of(low.new(shape, w.dtype))
    low.emit(Loop.of("pack", shape, Load(w.dtype, load), target))
    return target, shape


def _emit_conv(
    low: Lowering,
    node: Node,
    x: Value,
    kernel: View,
    shape: Shape,
    tiling: Tiling,
    kind: type[WinogradConv],
) -> None:
    images = _view(low, x)
    points, span = tiling.points, tiling.span
    weights = low.new((points * shape[2] * padded(shape[3]),), FLOAT, "u")
    low.emit(WinogradWeights("winograd_weights", shape, span, kernel, weights))
    wide = _widest(shape[3])
    # Behind the block: room for outputs that are not there.
    region = points * (tiling.stride(shape[2]) + tiling.stride(wide)) + 4 * LANES
    scratch = low.new((tiling.pieces, region), FLOAT, "scratch")
    target = low.allocate(node)
    name, zeros = f"winograd_{node.op.name}", _zeros(shape[2])
    low.emit(kind(name, tiling, images, scratch, weights, zeros, target))


def lower_conv_kernel(low: Lowering, node: Node) -> None:
    """Emit the gradient of a convolution to its weights."""
    x, dy = node.inputs
    images, grads = _view(low, x), _view(low, dy)
    pairs, channels, wide = node.attrs["pairs"], x.shape[3], padded(dy.shape[3])
    before = (pairs[0][0], pairs[1][0])
    uncut = _best(x.shape, dy.shape, node.shape[0], before)
    points = uncut.points
    each = points * channels * wide
    most = MOST_SUMS if MOST_SUMS * each <= FEW_SUMS else FEWEST
    fit = max(1, min(most, SUMS // each))
    slices = 1 << (fit.bit_length() - 1)
    # Few slices are cut by their points, which costs nothing, then by output channels:
    # each piece transforms all images.
    by_rows, groups = slices < FEWEST, 1
    pairs = uncut.span // 2 if by_rows else 1
    while pairs * groups * slices < FEWEST and dy.shape[3] % (4 * LANES * groups) == 0:
        groups *= 2
    own, each = padded(dy.shape[3] // groups), points // pairs
    # Each block adds to the sums in memory: it should not be small.
    most = max(CACHE // (each * (channels + own)), 2 * LANES)
    tiling = _cut(uncut, most, slices)
    pieces = tiling.pieces
    sums = low.new((pieces, points, channels, wide), FLOAT, "sums")
    region = each * (tiling.stride(channels) + tiling.stride(own))
    scratch = low.new((pieces * groups * pairs, region), FLOAT, "scratch")
    zeros, name = _zeros(max(channels, dy.shape[3])), "winograd_grads"
    views = (images, scratch, grads, zeros, sums)
    low.emit(WinogradGrads(name, tiling, *views, groups, by_rows))
    target = low.allocate(node)
    name, span = "winograd_kernel", tiling.span
    low.emit(WinogradKernel(name, node.shape, span, pieces, sums, target))
