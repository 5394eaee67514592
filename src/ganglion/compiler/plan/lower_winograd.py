"""Lowering of convolutions to Winograd's kernels, where those are worth it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ganglion.compiler.ir.graph import Node, Value
from ganglion.compiler.plan.kernels import (
    Buffer,
    Load,
    Loop,
    Shape,
    View,
)
from ganglion.compiler.plan.lower_winograd_by_point import (
    MIN_PIECES,
    conv_by_point,
    grads_by_point,
    in_pieces,
    zeros_of,
)
from ganglion.compiler.plan.lowering import Lowering, thread_split
from ganglion.compiler.plan.phases import Phase, phases
from ganglion.compiler.plan.winograd import (
    FLOAT,
    LANES,
    SPANS,
    Pair,
    Plane,
    Taps,
    Tiling,
    WinogradConv,
    WinogradGrads,
    WinogradKernel,
    WinogradSpread,
    WinogradWeights,
    padded,
    scratch_elements,
    weight_rows,
    widest_panel,
)

CACHE = 96 * 1024  # elements of scratch that stay in a thread's second-level cache
MIN_BLOCK = 14  # tiles: as many as a tile of registers has rows
MAX_SUMS = 1_500_000  # elements of a weight gradient's sums, all slices together
EVENLY_SLICED_SUMS = 600_000  # elements: with fewer, MAX_SLICES are affordable
MAX_SLICES = 16  # of a weight gradient: each has sums of its own, added up at the end
MAX_SLICES_OF_LARGE = 8  # where those sums are large
TILE_COST = 1.6  # of a tile with its transforms, in units of its products alone
MIN_TILES = 48  # of all images: fewer keep few threads busy
MOST_TAPS = 5  # along an axis: more are cut into runs of as many, or fewer
TAPS = ((2, 2), (3, 3), (4, 4), (5, 5), (1, 2), (1, 3), (1, 4), (1, 5))  # of a phase
MAX_STORED = 3  # elements of points that are stored, in units of those of the sums
MOST_CACHED_WEIGHTS = 256 * 1024  # elements that stay in a second-level cache
STORED_POINT_COST = 2  # of an element, in units of reading one of the weights
MIN_PIECES_OF_ROWS = 16  # where cutting rows of points costs little

Pairs = tuple[Pair, ...]


def possible(node: Node) -> bool:
    """Return whether Winograd's method can compute a convolution."""
    attrs = node.attrs
    return (
        node.dtype == FLOAT
        and len(attrs["strides"]) == 2
        and attrs["dilation"] == (1, 1)
        and attrs["groups"] == 1
        and node.size > 0
        and all(value.size > 0 for value in node.inputs)
    )


def chosen(
    low: Lowering, node: Node, kernel: Shape, inputs: Shape, outputs: Shape
) -> bool:
    """Return whether to lower an op with these shapes by Winograd's method."""
    return low.target.winograd and suits(node, kernel, inputs, outputs)


def suits(node: Node, kernel: Shape, inputs: Shape, outputs: Shape) -> bool:
    """Return whether Winograd's method suits an op with these shapes."""
    if not possible(node):
        return False
    strides = node.attrs["strides"]
    # Taps of a phase without pixels would be left without a gradient.
    axes = zip(inputs[1:3], kernel, strides, strict=True)
    if any(size < (k if k > MOST_TAPS * s else s) for size, k, s in axes):
        return False
    if _taps_of_phases(kernel, strides) not in TAPS:
        return False
    return worth(node.op.name, kernel, strides, inputs, outputs)


def _taps_of_phases(kernel: Shape, strides: Shape) -> Pair:
    """Return the largest number of taps that a plane meets, by axis."""
    longest = (-(-k // s) for k, s in zip(kernel, strides, strict=True))
    rows, columns = (-(-taps // -(-taps // MOST_TAPS)) for taps in longest)
    return rows, columns


def _count_planes(kernel: Shape, strides: Shape) -> int:
    """Return how many planes there are: the phases of the images, by runs of taps.

    >>> _count_planes((4, 4), (2, 2)), _count_planes((7, 7), (1, 1))
    (4, 4)
    """
    axes = zip(kernel, strides, _taps_of_phases(kernel, strides), strict=True)
    return math.prod(
        sum(-(-(k - first) // (s * taps)) for first in range(min(k, s)))
        for k, s, taps in axes
    )


def worth(
    op: str, kernel: Shape, strides: Shape, inputs: Shape, outputs: Shape
) -> bool:
    """Return whether Winograd's method is clearly faster than direct convolution."""
    taps = _taps_of_phases(kernel, strides)
    tiling = _best(inputs[3] * _count_planes(kernel, strides), outputs, taps)
    fewest = tiling.tiles
    if op == "conv_transpose":
        fewest = min(fewest, _best(outputs[3], inputs, taps).tiles)
    plain = math.prod(outputs[:3]) * math.prod(kernel) * inputs[3]
    return fewest >= MIN_TILES and _saves(tiling, plain, inputs[3])


def _saves(tiling: Tiling, plain: int, channels: int) -> bool:
    """Return whether a tiling clearly beats `plain` multiplications per channel.

    With eight channels or more it took 0.2 to 0.8 of the time in all sizes tried,
    unless most of a tile lay outside of the image. Few tiles keep few threads busy.
    """
    out = tiling.outputs[3]
    return (
        min(channels, out) >= 8
        and tiling.tiles >= MIN_TILES
        and plain * out >= 500_000
        and plain >= TILE_COST * tiling.points * tiling.tiles * tiling.channels
    )


def _best(channels: int, outputs: Shape, taps: Pair) -> Tiling:
    """Return the tiling with the cheapest size of tile."""
    every = [
        Tiling(channels, outputs, taps, (1 if taps[0] == 1 else span, span))
        for span in SPANS
    ]
    enough = [launch for launch in every if launch.tiles >= MIN_TILES]
    return min(enough or every[:1], key=lambda tiling: tiling.cost)


def _view(low: Lowering, value: Value) -> View:
    view = low.view(value)
    return view if view.strides[-1] == 1 else View.of(low.store(value))


def _cut(tiling: Tiling, most: int, at_once: int) -> Tiling:
    """Cut tiles into at most `at_once` pieces, in blocks of about `most` tiles."""
    images, tiles = tiling.outputs[0], tiling.tiles
    pieces = min(at_once, -(-tiles // MIN_BLOCK))
    equal_pieces = thread_split(images, pieces)
    piece = tiles // equal_pieces
    if 2 * equal_pieces < pieces:  # too few: whole images, and the last has less
        each = tiles // images if images >= pieces else 1
        piece = -(-tiles // (each * pieces)) * each
    blocks = -(-piece // max(MIN_BLOCK, most))
    if equal_pieces * blocks <= at_once and piece % (blocks * (tiles // images)) == 0:
        piece, blocks = piece // blocks, 1  # of whole images: they cost no more
    return replace(tiling, piece=piece, block=-(-piece // blocks))


def _parts(
    low: Lowering,
    x: Value,
    kernel: View,
    shape: Shape,
    window: tuple[Pair, Pair, Pair],
) -> tuple[tuple[Plane, ...], tuple[Taps, ...]]:
    """Split images and a kernel into planes, and the taps that each meets.

    Those are the phases of a kernel with strides, and runs of the taps of a long one.
    The window is: strides, zeros before the images, and taps of a plane, at most.
    """
    images, (count, *extent, channels) = _view(low, x), x.shape
    strides, edges, most = window
    axes = zip(strides, edges, shape[:2], extent, most, strict=True)
    planes: list[Plane] = []
    parts: list[Taps] = []
    for own in itertools.product(*(phases(*axis) for axis in axes)):
        if not all(phase.taps for phase in own):
            continue
        offsets = [phase.offset for phase in own]
        steps = [phase.stride for phase in own]
        view = _every(images, 1, offsets, steps)
        size = (count, *(phase.count for phase in own), channels)
        planes.append(Plane(view, size, (own[0].begin, own[1].begin)))
        taps = _every(kernel, 0, [phase.first for phase in own], steps)
        own_shape = (*(phase.taps for phase in own), *shape[2:])
        parts.append(Taps(taps, own_shape, len(parts) * channels))
    return tuple(planes), tuple(parts)


def _every(view: View, axis: int, offsets: Sequence[int], steps: Sequence[int]) -> View:
    """Return a view with other steps along two axes, beginning at some offsets."""
    strides, offset = list(view.strides), view.offset
    for n, (start, step) in enumerate(zip(offsets, steps, strict=True), axis):
        offset += start * strides[n]
        strides[n] *= step
    return View(view.buffer, tuple(strides), offset)


def lower_conv(low: Lowering, node: Node, kernel: View) -> None:
    """Emit a convolution."""
    x, w = node.inputs
    window = _window(node.attrs, w.shape)
    planes, parts = _parts(low, x, kernel, w.shape, window)
    target = Plane(View.of(low.allocate(node)), node.shape)
    _convolve(low, node, planes, parts, window[2], target)


def _window(attrs: Mapping[str, Any], kernel: Shape) -> tuple[Pair, Pair, Pair]:
    """Return strides, zeros before the images, and taps of a plane."""
    strides, (top, left) = attrs["strides"], (edge for edge, _ in attrs["pairs"])
    return strides, (top, left), _taps_of_phases(kernel[:2], strides)


def _convolve(
    low: Lowering,
    node: Node,
    planes: tuple[Plane, ...],
    parts: tuple[Taps, ...],
    taps: Pair,
    target: Plane,
) -> None:
    channels = sum(plane.shape[3] for plane in planes)
    uncut = _best(channels, target.shape, taps)
    most = CACHE // (uncut.points * (channels + widest_panel(target.shape[3])))
    tiling = _cut(uncut, most, low.target.thread_splits)
    if low.target.winograd_by_point and _repays_storing(tiling):
        weights = _transformed_weights(low, tiling, channels, parts)
        conv_by_point(low, planes, weights, target, uncut)
    else:
        _emit_conv(low, node, planes, parts, target, tiling, WinogradConv)


def _repays_storing(tiling: Tiling) -> bool:
    """Return whether to store all points, for a single product by point.

    Otherwise each block reads all weights, which come from the third-level cache if
    there are too many of them. Stored points are written to it and read again.
    """
    into, out = tiling.channels, tiling.outputs[3]
    weights, points = into * out, into + out
    return (
        tiling.points * weights > MOST_CACHED_WEIGHTS
        and weights > STORED_POINT_COST * tiling.block * points
    )


def lower_conv_transpose(low: Lowering, node: Node, pairs: Pairs) -> None:
    """Emit the gradient of a convolution to its images; `pairs` pads the gradients.

    It is the convolution with the flipped kernel, or, where that costs much
    more, the adjoint.
    """
    dy, w = node.inputs
    once, own = (1, 1), node.attrs["pairs"]
    taps, count = _taps_of_phases(w.shape[:2], once), _count_planes(w.shape[:2], once)
    adjoint = _best(node.shape[3], dy.shape, taps)
    other = _best(dy.shape[3] * count, node.shape, taps)
    spreads = count == 1 and adjoint.cost * 5 <= other.cost * 4
    kernel, shape = _exchanged(low, w, flipped=not spreads)
    if not spreads:
        window = once, (pairs[0][0], pairs[1][0]), taps
        planes, parts = _parts(low, dy, kernel, shape, window)
        to = Plane(View.of(low.allocate(node)), node.shape)
        _convolve(low, node, planes, parts, taps, to)
        return
    each = math.prod(adjoint.across)
    most = CACHE // (adjoint.points * each * (shape[2] + widest_panel(shape[3])))
    count = -(-dy.shape[0] // low.target.thread_splits)
    block = max(1, min(most, count))
    tiling = replace(adjoint, piece=count * each, block=block * each)
    source, parts = Plane(_view(low, dy), dy.shape), (Taps(kernel, shape),)
    target = View.of(low.allocate(node))
    to = Plane(target, node.shape, (own[0][0], own[1][0]))
    _emit_conv(low, node, (source,), parts, to, tiling, WinogradSpread)


def chosen_for_phase(low: Lowering, node: Node, own: Sequence[Phase]) -> bool:
    """Return whether to lower a phase by Winograd's method."""
    return low.target.winograd and suits_phase(node, own)


def suits_phase(node: Node, own: Sequence[Phase]) -> bool:
    """Return whether Winograd's method suits a phase of a transposed convolution."""
    if not possible(node):
        return False
    taps = _taps_of_phase(node, own)
    if taps not in TAPS:
        return False
    outputs = (node.shape[0], *(phase.count for phase in own), node.shape[3])
    channels = node.inputs[0].shape[3]
    planes = math.prod(-(-p.taps // n) for p, n in zip(own, taps, strict=True))
    plain = math.prod(outputs[:3]) * math.prod(phase.taps for phase in own) * channels
    return _saves(_best(channels * planes, outputs, taps), plain, channels)


def _taps_of_phase(node: Node, own: Sequence[Phase]) -> Pair:
    """Return the most taps of a plane; along both axes, if it is not of one row."""
    most = max(phase.taps for phase in own)
    kernel = (1 if node.inputs[1].shape[0] == 1 else most), most
    return _taps_of_phases(kernel, (1, 1))


def lower_phase(
    low: Lowering,
    node: Node,
    own: Sequence[Phase],
    kernel: View,
    shape: Shape,
    out: View,
) -> None:
    """Emit a phase of a transposed convolution, whose kernel is flipped by now."""
    dy, steps = node.inputs[0], [phase.stride for phase in own]
    before, taps = (-own[0].before, -own[1].before), _taps_of_phase(node, own)
    starts = [size - 1 - p.last for size, p in zip(shape, own, strict=False)]
    own_shape = (*(phase.taps for phase in own), *shape[2:])
    own_kernel = _every(kernel, 0, starts, steps)
    window = (1, 1), before, taps
    planes, parts = _parts(low, dy, own_kernel, own_shape, window)
    size = (node.shape[0], *(phase.count for phase in own), node.shape[3])
    target = Plane(_every(out, 1, [phase.offset for phase in own], steps), size)
    _convolve(low, node, planes, parts, taps, target)


def _exchanged(low: Lowering, w: Value, flipped: bool) -> tuple[View, Shape]:
    """Copy a kernel with its channels exchanged, its taps also flipped."""
    view = View.of(low.store(w))
    shape = (w.shape[0], w.shape[1], w.shape[3], w.shape[2])
    rows, columns, inside, _ = view.strides
    load = View(view.buffer, (rows, columns, 1, inside))
    if flipped:
        last = (w.shape[0] - 1) * rows + (w.shape[1] - 1) * columns
        load = View(view.buffer, (-rows, -columns, 1, inside), last)

    def packed() -> Buffer:
        target = low.new(shape, w.dtype)
        low.emit(Loop.of("pack", shape, Load(w.dtype, load), View.of(target)))
        return target

    return View.of(low.once(("exchanged kernel", load), packed)), shape


def _emit_conv(
    low: Lowering,
    node: Node,
    planes: tuple[Plane, ...],
    parts: tuple[Taps, ...],
    target: Plane,
    tiling: Tiling,
    kind: type[WinogradConv],
) -> None:
    channels, out = sum(plane.shape[3] for plane in planes), target.shape[3]
    weights = _transformed_weights(low, tiling, channels, parts)
    region = scratch_elements(tiling, channels, out)
    scratch = low.new((tiling.pieces, region), FLOAT, "scratch")
    name, zeros = f"winograd_{node.op.name}", zeros_of(planes[0].shape[3])
    low.emit(kind(name, tiling, planes, scratch, weights, zeros, target))


def _transformed_weights(
    low: Lowering, tiling: Tiling, channels: int, parts: tuple[Taps, ...]
) -> Buffer:
    """Return the transformed weights of a convolution, which others may share."""
    taps, span, out = tiling.taps, tiling.span, parts[0].shape[3]

    def transformed() -> Buffer:
        size = tiling.points * weight_rows(channels) * padded(out)
        weights = low.new((size,), FLOAT, "u")
        name = "winograd_weights"
        low.emit(WinogradWeights(name, taps, span, channels, parts, weights))
        return weights

    return low.once(("winograd weights", parts, taps, span), transformed)


def lower_conv_kernel(low: Lowering, node: Node) -> None:
    """Emit the gradient of a convolution to its weights."""
    x, dy = node.inputs
    target = View.of(low.allocate(node))
    window = _window(node.attrs, node.shape)
    planes, parts = _parts(low, x, target, node.shape, window)
    grads = _view(low, dy)
    channels, wide = len(planes) * x.shape[3], padded(dy.shape[3])
    taps = window[2]
    uncut = _best(channels, dy.shape, taps)
    points = uncut.points
    each = points * channels * wide
    most = (
        MAX_SLICES if MAX_SLICES * each <= EVENLY_SLICED_SUMS else MAX_SLICES_OF_LARGE
    )
    fit = max(1, min(most, MAX_SUMS // each))
    slices = 1 << (fit.bit_length() - 1)
    # Few slices are cut by their points, which costs little, then by planes, which
    # transforms all gradients again, or by output channels, which does so with images.
    row_groups, plane_groups, groups = _row_groups(uncut.span[0], slices), 1, 1
    while row_groups * plane_groups * groups * slices < MIN_PIECES:
        if len(planes) % (2 * plane_groups) == 0:
            plane_groups *= 2
        elif dy.shape[3] % (4 * LANES * groups) == 0:
            groups *= 2
        else:
            break
    stored = _stored(low, uncut) if slices == 1 else None
    if stored is not None:
        grads_by_point(low, stored, planes, parts, Plane(grads, dy.shape))
        return
    own = channels // plane_groups, padded(dy.shape[3] // groups)
    each = points // row_groups
    # Each block loads and stores all sums: with so many tiles, it moves as much again.
    even = math.prod(own) // sum(own)
    most = max(CACHE // (each * sum(own)), 2 * LANES, even)
    tiling = _cut(uncut, most, slices)
    pieces = tiling.pieces
    sums = low.new((pieces, points, weight_rows(channels), wide), FLOAT, "sums")
    region = each * sum(map(tiling.stride, own))
    parallel = pieces * plane_groups * groups * row_groups
    scratch = low.new((parallel, region), FLOAT, "scratch")
    zeros, name = zeros_of(max(x.shape[3], dy.shape[3])), "winograd_grads"
    views = (planes, scratch, grads, zeros, sums)
    low.emit(WinogradGrads(name, tiling, *views, plane_groups, groups, row_groups))
    low.emit(WinogradKernel("winograd_kernel", taps, tiling.span, sums, parts))


def _stored(low: Lowering, tiling: Tiling) -> Tiling | None:
    """Cut tiles whose points are stored for products, or return None: fuse them."""
    into, tiles, out = tiling.channels, tiling.tiles, tiling.outputs[3]
    if tiles * (into + out) > MAX_STORED * into * out:
        return None
    return in_pieces(low, tiling)


def _row_groups(span: int, slices: int) -> int:
    """Return into how many groups rows of points are cut, for threads to share.

    >>> _row_groups(8, 16), _row_groups(8, 8), _row_groups(6, 8), _row_groups(8, 1)
    (1, 2, 3, 4)
    >>> _row_groups(1, 1)
    1
    """
    pairs = max(1, span // 2)
    groups = (
        n
        for n in range(1, pairs)
        if pairs % n == 0 and n * slices >= MIN_PIECES_OF_ROWS
    )
    return next(groups, pairs)
