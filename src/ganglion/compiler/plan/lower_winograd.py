"""Winograd's convolution: kernels of 3×3 and 5×5 taps with fewer multiplications.

A tile of 6×6 inputs gives 4×4 outputs of a 3×3 kernel by 36 multiplications a channel
instead of 144, one of 8×8 gives 4×4 of a 5×5 kernel by 64 instead of 400: inputs and
weights are transformed, multiplied place by place (so many small matrix products), and
the products transformed back. Which size of tile suits best depends on the images.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ganglion.compiler.ir.graph import Node, Value
from ganglion.compiler.plan.kernels import Buffer, Kernel, Load, Loop, Shape, View
from ganglion.compiler.plan.lower import SLICES, Lowering
from ganglion.compiler.plan.split import parts_of
from ganglion.compiler.plan.winograd_matrices import SPANS, Matrices, matrices

LANES, NARROW = 16, 8  # channels are padded to the narrow vector, cut into wide ones
FLOAT = np.dtype("float32")
CACHE = 96 * 1024  # elements of scratch a thread may keep in its second-level cache
FEWEST_TILES = 14  # of a block: as many as a tile of registers has rows
SUMS = 1_500_000  # elements that all slices of a weight gradient may have
FEW_SUMS = 600_000  # elements of so many slices that threads share them evenly
MOST_SUMS = 16  # slices of a weight gradient: each has sums of its own to add up
TRANSFORMS = 1.6  # what a tile costs, in products of its places
# Multiplications that the transforms cost, by place and channel; 64 places are more
# than there are registers.
TRANSFORM = {6: 8, 8: 14}
FEWEST_OF_ALL = 48  # tiles: fewer keep few threads busy
FEWEST = 8  # pieces that a kernel should have, for threads to share

Pairs = tuple[tuple[int, int], ...]


def padded(channels: int) -> int:
    """Return the number of channels in transformed arrays."""
    return -(-channels // NARROW) * NARROW


def panels(channels: int) -> list[tuple[int, tuple[int, ...]]]:
    """Cut output channels into panels: the first channel, the widths of its vectors.

    >>> panels(40)
    [(0, (16, 16, 8))]
    >>> panels(64)
    [(0, (16, 16)), (32, (16, 16))]
    """
    wide, rest = divmod(padded(channels), LANES)
    vectors = [LANES] * wide + [rest] * bool(rest)
    each = 3 if len(vectors) % 3 == 0 and len(vectors) % 2 else 2
    cut = [tuple(vectors[i : i + each]) for i in range(0, len(vectors), each)]
    return [(i * each * LANES, widths) for i, widths in enumerate(cut)]


@dataclass(frozen=True)
class Tiling:
    """How a convolution is cut: pieces into blocks, blocks into tiles of outputs.

    A piece is what one thread does at a time, of whole images where that is possible;
    a block is what stays in its cache.
    """

    inputs: Shape  # images, height, width, channels
    outputs: Shape
    taps: int
    before: tuple[int, int]  # zeros above and to the left of an image
    span: int  # inputs of a tile along an axis
    block: int = 1  # tiles
    piece: int = 1  # tiles

    @property
    def step(self) -> int:
        """The outputs of a tile along an axis."""
        return self.span + 1 - self.taps

    @property
    def places(self) -> int:
        """The places of a tile, each of which has products of its own."""
        return self.span**2

    @property
    def matrices(self) -> Matrices:
        """The transforms of a tile."""
        return matrices(self.taps, self.span)

    @property
    def cost(self) -> float:
        """About how many multiplications everything costs."""
        into, out = self.inputs[3], self.outputs[3]
        each = into * out + TRANSFORM[self.span] * (into + out)
        return self.tiles * self.places * each

    @property
    def across(self) -> tuple[int, int]:
        """The number of tiles of an image, down and to the right."""
        return -(-self.outputs[1] // self.step), -(-self.outputs[2] // self.step)

    @property
    def tiles(self) -> int:
        """The number of tiles of all images."""
        return self.outputs[0] * math.prod(self.across)

    @property
    def pieces(self) -> int:
        """The number of pieces."""
        return -(-self.tiles // self.piece)

    @property
    def aligned(self) -> bool:
        """Whether the pieces are equal, and each is some whole images."""
        whole = self.piece % math.prod(self.across) == 0
        return whole and self.tiles % self.piece == 0

    @property
    def images_of_piece(self) -> int:
        """The images of each piece but the last, 0 where it ends within one."""
        images, rest = divmod(self.piece, math.prod(self.across))
        return 0 if rest else images

    def __str__(self) -> str:
        size = f"{self.step}×{self.step}"
        return f"{self.tiles} tiles of {size} in blocks of {self.block}"

    def stride(self, channels: int) -> int:
        """Return the elements between two places of a transformed block."""
        # A line more than needed, so that the places do not fall on one another in the
        # cache.
        return -(-self.block * channels // LANES) * LANES + LANES


# ---- kernels -----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class WinogradWeights(Kernel):
    """Transform weights (taps, taps, in, out) into [panel][place][in][out]."""

    shape: Shape
    span: int
    source: View
    target: Buffer

    @property
    def parallel(self) -> int:
        """How many independent pieces the kernel has."""
        return self.shape[2]

    def reads(self) -> list[Buffer]:
        """Return the buffers that are read."""
        return [self.source.buffer]

    def writes(self) -> list[Buffer]:
        """Return the buffers that are written."""
        return [self.target]


@dataclass(frozen=True, eq=False)
class Tiled(Kernel):
    """A kernel that runs over tiles of images, with some scratch for each thread."""

    tiling: Tiling
    images: View
    scratch: Buffer

    def private(self) -> list[Buffer]:
        """Return the buffers of which a thread uses the part of its first piece."""
        return [self.scratch]


@dataclass(frozen=True, eq=False)
class WinogradConv(Tiled):
    """Convolve images with transformed weights."""

    weights: Buffer
    zeros: Buffer
    target: Buffer

    @property
    def source(self) -> Shape:
        """The shape of the images."""
        return self.tiling.inputs

    @property
    def parallel(self) -> int:
        """How many independent pieces the kernel has."""
        return self.tiling.pieces

    def reads(self) -> list[Buffer]:
        """Return the buffers that are read."""
        return [self.images.buffer, self.weights, self.zeros]

    def writes(self) -> list[Buffer]:
        """Return the buffers that are written."""
        return [self.target, self.scratch]


@dataclass(frozen=True, eq=False)
class WinogradSpread(WinogradConv):
    """The adjoint: add each output's gradient to all inputs it came from.

    The tiling is that of the convolution, so `images` are of its outputs and the target
    is of its inputs. Blocks are whole images: their tiles overlap.
    """

    @property
    def source(self) -> Shape:
        """The shape of the images."""
        return self.tiling.outputs


@dataclass(frozen=True, eq=False)
class WinogradGrads(Tiled):
    """Sum the transformed gradient of the weights: [slice][place][in][out].

    A piece is a slice of the tiles, one of `groups` of output channels and, `by_rows`,
    two rows of places: the first and the last, or neighbours whose transforms share
    what they compute.
    """

    grads: View
    zeros: Buffer
    sums: Buffer
    groups: int
    by_rows: bool = False

    @property
    def pairs(self) -> int:
        """Into how many pieces the places are cut."""
        return self.tiling.span // 2 if self.by_rows else 1

    @property
    def parallel(self) -> int:
        """How many independent pieces the kernel has."""
        return self.tiling.pieces * self.groups * self.pairs

    def reads(self) -> list[Buffer]:
        """Return the buffers that are read."""
        return [self.images.buffer, self.grads.buffer, self.zeros]

    def writes(self) -> list[Buffer]:
        """Return the buffers that are written."""
        return [self.sums, self.scratch]


@dataclass(frozen=True, eq=False)
class WinogradKernel(Kernel):
    """Add up the slices, in order, and transform them into gradients of weights."""

    shape: Shape
    span: int
    slices: int
    sums: Buffer
    target: Buffer

    @property
    def parallel(self) -> int:
        """How many independent pieces the kernel has."""
        return self.shape[2]

    def reads(self) -> list[Buffer]:
        """Return the buffers that are read."""
        return [self.sums]

    def writes(self) -> list[Buffer]:
        """Return the buffers that are written."""
        return [self.target]


# ---- lowering ----------------------------------------------------------------------


def possible(node: Node, taps: Shape) -> bool:
    """Return whether an op is a convolution that Winograd's method is for."""
    attrs = node.attrs
    return (
        node.dtype == FLOAT
        and taps in ((3, 3), (5, 5))
        and attrs["strides"] == attrs["dilation"] == (1, 1)
        and attrs["groups"] == 1
        and node.size > 0
        and all(one.size > 0 for one in node.inputs)
    )


def chosen(
    low: Lowering, node: Node, taps: Shape, inputs: Shape, outputs: Shape
) -> bool:
    """Whether to lower an op of these images and outputs by Winograd's method."""
    if not low.winograd or not possible(node, taps):
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
        and plain >= TRANSFORMS * tiling.places * tiling.tiles
    )


def _best(inputs: Shape, outputs: Shape, taps: int, before: tuple[int, int]) -> Tiling:
    """Return the tiling with the size of tile that costs least."""
    every = [Tiling(inputs, outputs, taps, before, span) for span in SPANS]
    enough = [one for one in every if one.tiles >= FEWEST_OF_ALL]
    return min(enough or every[:1], key=lambda one: one.cost)


def _view(low: Lowering, value: Value) -> View:
    view = low.view(value)
    return view if view.strides[-1] == 1 else View.whole(low.store(value))


def _zeros(channels: int) -> Buffer:
    array = np.zeros(channels, FLOAT)
    return Buffer(f"zeros{channels}", array.shape, FLOAT, "constant", array)


def _cut(tiling: Tiling, most: int, at_once: int) -> Tiling:
    """Cut tiles into at most `at_once` pieces, of blocks of about `most` tiles."""
    images, tiles = tiling.outputs[0], tiling.tiles
    pieces = min(at_once, -(-tiles // FEWEST_TILES))
    whole = parts_of(images, pieces)
    piece = tiles // whole
    if 2 * whole < pieces:  # too few equal ones: whole images, and the last has less
        each = tiles // images if images >= pieces else 1
        piece = -(-tiles // (each * pieces)) * each
    blocks = -(-piece // max(FEWEST_TILES, most))
    return replace(tiling, piece=piece, block=-(-piece // blocks))


def lower_conv(
    low: Lowering, node: Node, x: Value, kernel: View, shape: Shape, pairs: Pairs
) -> None:
    """Emit a convolution of x with a kernel of this shape."""
    before = (pairs[0][0], pairs[1][0])
    whole = _best(x.shape, node.shape, shape[0], before)
    most = CACHE // (whole.places * (shape[2] + _widest(shape[3])))
    tiling = _cut(whole, most, SLICES)
    _emit_conv(low, node, x, kernel, shape, tiling, WinogradConv)


def lower_conv_transpose(low: Lowering, node: Node, pairs: Pairs) -> None:
    """Emit the gradient of a convolution to its images; `pairs` pads the gradients.

    It is the convolution with the kernel turned around, or, where that costs much
    more, the adjoint.
    """
    dy, w = node.inputs
    taps, own = w.shape[0], node.attrs["pairs"]
    before = (own[0][0], own[1][0])
    whole = _best(node.shape, dy.shape, taps, before)
    other = _best(dy.shape, node.shape, taps, before)
    spreads = whole.cost * 5 <= other.cost * 4
    kernel, shape = _exchanged(low, w, turned=not spreads)
    if not spreads:
        lower_conv(low, node, dy, kernel, shape, pairs)
        return
    each = math.prod(whole.across)
    most = CACHE // (whole.places * each * (shape[2] + _widest(shape[3])))
    images = -(-dy.shape[0] // SLICES)
    block = max(1, min(most, images))
    tiling = replace(whole, piece=images * each, block=block * each)
    _emit_conv(low, node, dy, kernel, shape, tiling, WinogradSpread)


def _widest(channels: int) -> int:
    return max(sum(widths) for _, widths in panels(channels))


def _exchanged(low: Lowering, w: Value, turned: bool) -> tuple[View, Shape]:
    """Copy a kernel with its channels exchanged, its taps also turned around."""
    view = View.whole(low.store(w))
    shape = (w.shape[0], w.shape[1], w.shape[3], w.shape[2])
    rows, columns, inside, _ = view.strides
    load = View(view.buffer, (rows, columns, 1, inside))
    if turned:
        last = (w.shape[0] - 1) * rows + (w.shape[1] - 1) * columns
        load = View(view.buffer, (-rows, -columns, 1, inside), last)
    target = View.whole(low.new(shape, w.dtype))
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
    places, span = tiling.places, tiling.span
    weights = low.new((places * shape[2] * padded(shape[3]),), FLOAT, "u")
    low.emit(WinogradWeights("winograd_weights", shape, span, kernel, weights))
    wide = _widest(shape[3])
    # Behind the block: a place for outputs that are not there.
    region = places * (tiling.stride(shape[2]) + tiling.stride(wide)) + 4 * LANES
    scratch = low.new((tiling.pieces, region), FLOAT, "scratch")
    target = low.new(node.shape, node.dtype)
    low.buffers[node] = target
    name, zeros = f"winograd_{node.op.name}", _zeros(shape[2])
    low.emit(kind(name, tiling, images, scratch, weights, zeros, target))


def lower_conv_kernel(low: Lowering, node: Node) -> None:
    """Emit the gradient of a convolution to its weights."""
    x, dy = node.inputs
    images, grads = _view(low, x), _view(low, dy)
    pairs, channels, wide = node.attrs["pairs"], x.shape[3], padded(dy.shape[3])
    before = (pairs[0][0], pairs[1][0])
    whole = _best(x.shape, dy.shape, node.shape[0], before)
    places = whole.places
    each = places * channels * wide
    most = MOST_SUMS if MOST_SUMS * each <= FEW_SUMS else FEWEST
    fit = max(1, min(most, SUMS // each))
    slices = 1 << (fit.bit_length() - 1)
    # Few slices are cut by their places, which costs nothing, then by output channels:
    # each piece transforms all images.
    by_rows, groups = slices < FEWEST, 1
    pairs = whole.span // 2 if by_rows else 1
    while pairs * groups * slices < FEWEST and dy.shape[3] % (4 * LANES * groups) == 0:
        groups *= 2
    own, each = padded(dy.shape[3] // groups), places // pairs
    # Each block adds to the sums in memory: it should not be small.
    most = max(CACHE // (each * (channels + own)), 2 * LANES)
    tiling = _cut(whole, most, slices)
    pieces = tiling.pieces
    sums = low.new((pieces, places, channels, wide), FLOAT, "sums")
    region = each * (tiling.stride(channels) + tiling.stride(own))
    scratch = low.new((pieces * groups * pairs, region), FLOAT, "scratch")
    zeros, name = _zeros(max(channels, dy.shape[3])), "winograd_grads"
    views = (images, scratch, grads, zeros, sums)
    low.emit(WinogradGrads(name, tiling, *views, groups, by_rows))
    target = low.new(node.shape, node.dtype)
    low.buffers[node] = target
    name, span = "winograd_kernel", tiling.span
    low.emit(WinogradKernel(name, node.shape, span, pieces, sums, target))
