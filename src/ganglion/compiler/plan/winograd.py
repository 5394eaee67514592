"""Winograd's convolution: kernels of 2×2 to 5×5 taps with fewer multiplications.

A tile of 6×6 inputs gives 4×4 outputs of a 3×3 kernel by 36 multiplications a channel
instead of 144, one of 8×8 gives 4×4 of a 5×5 kernel by 64 instead of 400: inputs and
weights are transformed, multiplied point by point (so many small matrix products), and
the products transformed back. Which size of tile suits best depends on the images.
Kernels of a single row, and those along one axis, have tiles of a single row: 8 inputs
give 6 outputs of 3 taps by 8 multiplications instead of 18.

A convolution with strides is one without over several planes, one for each phase of the
images, with a part of the kernel each: a 4×4 kernel with strides of 2 is 2×2 taps over
four planes. A longer kernel is cut into runs of up to five taps, each with a plane of
its own: the images from another pixel on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from ganglion.compiler.ir.table import OPS
from ganglion.compiler.plan.kernels import (
    CALL,
    MULTIPLY_ADD,
    Buffer,
    Footprint,
    Kernel,
    Memory,
    Shape,
    View,
)
from ganglion.system.records import record

LANES, NARROW = 16, 8  # channels are padded to the narrow vector, cut into wide ones
FLOAT = np.dtype("float32")
# Multiplications of the transforms along an axis, by point and channel; 64 points
# are more than there are registers.
TRANSFORM = {1: 0, 6: 4, 8: 7}
Pair = tuple[int, int]  # along rows and columns


# ---- transforms: products of polynomials by Toom and Cook ---------------------------

# The point at infinity comes last. Small numbers and their inverses keep digits best.
POINTS = (0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5)
SPANS = (6, 8)  # inputs of a tile along an axis: one more than points, infinity too


@record(eq=False, guarded=True)
class Matrices:
    """What takes inputs and weights to the points of a tile, and products back."""

    inputs: np.ndarray  # (span, span)
    weights: np.ndarray  # (span, taps)
    outputs: np.ndarray  # (step, span)


@cache
def matrices(taps: int, span: int) -> Matrices:
    """Return the matrices of a kernel of some taps for tiles of some span.

    >>> made = matrices(3, 6)
    >>> made.inputs[1]
    array([ 0., -4., -4.,  1.,  1.,  0.])
    >>> made.weights[3] * 24
    array([1., 2., 4.])
    >>> made.outputs[:, 3]
    array([1., 2., 4., 8.])
    """
    points, step = POINTS[: span - 1], span + 1 - taps
    inputs, weights = np.zeros((span, span)), np.zeros((span, taps))
    for row, point in enumerate(points):
        others = [other for other in points if other != point]
        inputs[row, : span - 1] = np.poly(others)[::-1]
        scale = np.prod([point - other for other in others])
        weights[row] = [point**power / scale for power in range(taps)]
    inputs[-1] = np.atleast_1d(np.poly(points))[::-1]
    weights[-1, -1] = 1.0
    outputs = np.zeros((step, span))
    outputs[:, :-1] = [[point**power for point in points] for power in range(step)]
    outputs[-1, -1] = 1.0
    return Matrices(inputs, weights, outputs)


class BothMatrices(NamedTuple):
    """The transforms of a tile along its rows and its columns."""

    inputs: tuple[np.ndarray, np.ndarray]
    weights: tuple[np.ndarray, np.ndarray]
    outputs: tuple[np.ndarray, np.ndarray]


@cache
def both_matrices(taps: Pair, span: Pair) -> BothMatrices:
    """Return the matrices of a tile; those of an axis of one input change nothing."""
    rows, columns = map(matrices, taps, span)
    return BothMatrices(
        (rows.inputs, columns.inputs),
        (rows.weights, columns.weights),
        (rows.outputs, columns.outputs),
    )


def transform_cost(span: Pair) -> int:
    """Return the multiplications of both transforms, by point and channel."""
    return sum(TRANSFORM[inputs] for inputs in span)


# ---- tiles -------------------------------------------------------------------------


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
    groups = [tuple(vectors[i : i + each]) for i in range(0, len(vectors), each)]
    return [(i * each * LANES, widths) for i, widths in enumerate(groups)]


def widest_panel(channels: int) -> int:
    """Return the width of the widest panel of output channels."""
    return max(sum(widths) for _, widths in panels(channels))


def weight_rows(channels: int) -> int:
    """Return the rows that transformed weights, or their gradients, have for a point.

    One more than there are input channels. All points of a channel are written, or
    read, side by side: a power of two apart, they would evict each other from a cache.
    """
    return channels + 1


@record(guarded=True)
class Tiling:
    """How a convolution is cut: pieces into blocks, blocks into tiles of outputs.

    A piece is what one thread does at a time, of whole images where that is possible;
    a block is what stays in its cache.
    """

    channels: int  # of the inputs, in all planes
    outputs: Shape  # images, height, width, channels
    taps: Pair
    span: Pair  # inputs of a tile along each axis
    block: int = 1  # tiles
    piece: int = 1  # tiles

    @property
    def step(self) -> Pair:
        """The outputs of a tile along each axis."""
        rows, columns = zip(self.span, self.taps, strict=True)
        return rows[0] + 1 - rows[1], columns[0] + 1 - columns[1]

    @property
    def points(self) -> int:
        """The points of a tile, each of which has products of its own."""
        return math.prod(self.span)

    @property
    def matrices(self) -> BothMatrices:
        """The transforms of a tile."""
        return both_matrices(self.taps, self.span)

    @property
    def cost(self) -> float:
        """About how many multiplications everything costs."""
        into, out = self.channels, self.outputs[3]
        each = into * out + transform_cost(self.span) * (into + out)
        return self.tiles * self.points * each

    @property
    def across(self) -> Pair:
        """The number of tiles of an image, down and to the right."""
        down, right = self.step
        return -(-self.outputs[1] // down), -(-self.outputs[2] // right)

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
        whole_images = self.piece % math.prod(self.across) == 0
        return whole_images and self.tiles % self.piece == 0

    @property
    def images_of_piece(self) -> int:
        """The images of each piece but the last, 0 where it ends within one."""
        images, rest = divmod(self.piece, math.prod(self.across))
        return 0 if rest else images

    def __str__(self) -> str:
        down, right = self.step
        return f"{self.tiles} tiles of {down}×{right} in blocks of {self.block}"

    def stride(self, channels: int) -> int:
        """Return the elements between two points of a transformed block."""
        # A line more than needed, so that the points do not fall on one another in the
        # cache.
        return -(-self.block * channels // LANES) * LANES + LANES


def scratch_elements(tiling: Tiling, channels: int, out: int) -> int:
    """Return the scratch of a convolution: points of its images, and of a panel.

    Behind them is room for the outputs of tiles that reach beyond the images.
    """
    images, panel = tiling.stride(channels), tiling.stride(widest_panel(out))
    return tiling.points * (images + panel) + 4 * LANES


# ---- planes ------------------------------------------------------------------------


@record(guarded=True)
class Plane:
    """Images as tiles see them: those of a phase, with zeros around them."""

    view: View  # images, rows, columns, channels
    shape: Shape
    before: Pair = (0, 0)  # zeros above and to the left

    @property
    def extent(self) -> Pair:
        """Its rows and columns."""
        return self.shape[1], self.shape[2]


def _seen(memory: Memory, planes: Sequence[Plane], tiling: Tiling) -> np.ndarray:
    """Return all that the outputs of a tiling need of planes, channels side by side."""
    images, *extent = tiling.outputs[:3]
    extent = [n + taps - 1 for n, taps in zip(extent, tiling.taps, strict=True)]
    seen = []
    for plane in planes:
        padded_plane = np.zeros((images, *extent, plane.shape[3]))
        pixels = memory.see(plane.view, plane.shape)
        rows, columns = (
            (slice(max(lo, 0), lo + size), slice(max(-lo, 0), max(most - lo, 0)))
            for lo, size, most in zip(plane.before, plane.extent, extent, strict=True)
        )
        padded_plane[:, rows[0], columns[0]] = pixels[:, rows[1], columns[1]]
        seen.append(padded_plane)
    return np.concatenate(seen, -1)


@record
class Points:
    """Where the points of all tiles are stored: [point][tile][channel].

    Points are `stride` elements apart, and tiles `row` elements.
    """

    buffer: Buffer
    stride: int
    row: int


def _store_points(
    memory: Memory,
    sources: Sequence[Plane],
    tiling: Tiling,
    transforms: tuple[np.ndarray, np.ndarray],
    target: Points,
) -> None:
    """Store all tiles of some planes, transformed by a matrix along each axis."""
    sizes = tuple(matrix.shape[1] for matrix in transforms)
    ends = tuple(n * step for n, step in zip(tiling.across, tiling.step, strict=True))
    channels = sum(plane.shape[3] for plane in sources)
    extent = [end + size for end, size in zip(ends, sizes, strict=True)]
    outputs = (tiling.outputs[0], *extent, channels)
    images = _seen(memory, sources, replace(tiling, outputs=outputs, taps=(1, 1)))
    tiles = np.lib.stride_tricks.sliding_window_view(images, sizes, (1, 2))
    tiles = tiles[:, : ends[0] : tiling.step[0], : ends[1] : tiling.step[1]]
    points = np.einsum("pi,qj,nabcij->pqnabc", *transforms, tiles)
    to = View(target.buffer, (target.stride, target.row, 1))
    shape = tiling.points, tiling.tiles, channels
    memory.see(to, shape)[...] = points.reshape(shape)


_PLAIN: dict[str, Any] = {
    "strides": (1, 1),
    "pairs": ((0, 0), (0, 0)),
    "dilation": (1, 1),
    "groups": 1,
}


# ---- kernels -----------------------------------------------------------------------


@record(guarded=True)
class Taps:
    """The part of a kernel that a plane meets: as many taps as Winograd's, or fewer.

    Its channels are those of all planes from `first` on.
    """

    view: View
    shape: Shape  # rows, columns, channels in and out
    first: int = 0


@record(eq=False)
class WinogradWeights(Kernel):
    """Transform the weights of all planes into [panel][point][in][out]."""

    taps: Pair
    span: Pair
    channels: int  # of all planes
    sources: tuple[Taps, ...]  # a part for each plane, of as many channels each
    target: Buffer

    @property
    def parallel(self) -> int:
        return self.channels

    def reads(self) -> list[Buffer]:
        return list(dict.fromkeys(part.view.buffer for part in self.sources))

    def writes(self) -> list[Buffer]:
        return [self.target]

    def run(self, memory: Memory) -> None:
        transforms = both_matrices(self.taps, self.span).weights
        flat = memory.flat(self.target)
        for part in self.sources:
            weights = memory.see(part.view, part.shape).astype(np.float64)
            transformed = _both(transforms, weights)
            rows, out = slice(part.first, part.first + part.shape[2]), part.shape[3]
            for piece, panel in _by_panel(flat, self.span, self.channels, out):
                piece[:, :, rows] = transformed[..., panel]


@record(eq=False)
class Tiled(Kernel):
    """A kernel that runs over tiles of images."""

    tiling: Tiling
    sources: tuple[Plane, ...]

    @property
    def cost(self) -> float:
        return CALL + MULTIPLY_ADD * self.tiling.cost

    def images(self) -> list[Buffer]:
        """Return the buffers of the sources, each once."""
        return list(dict.fromkeys(plane.view.buffer for plane in self.sources))

    def describe(self) -> str:
        return super().describe().replace(":", f" for {self.tiling}:", 1)


@record(eq=False)
class Blocked(Tiled):
    """One that does so block by block, with some scratch for each thread."""

    scratch: Buffer

    def private(self) -> list[Buffer]:
        return [self.scratch]


@record(eq=False)
class WinogradConv(Blocked):
    """Convolve images with transformed weights.

    The transformed images of a block are in `scratch`, or at `stored`: there, products
    for the gradient of the weights find all of them.
    """

    weights: Buffer
    zeros: Buffer
    target: Plane
    stored: Points | None = None

    @property
    def channels(self) -> tuple[int, int]:
        """The channels of all sources, and of the target."""
        return sum(plane.shape[3] for plane in self.sources), self.target.shape[3]

    @property
    def parallel(self) -> int:
        return self.tiling.pieces

    def reads(self) -> list[Buffer]:
        return [*self.images(), self.weights, self.zeros]

    def writes(self) -> list[Buffer]:
        stored = [self.stored.buffer] if self.stored else []
        return [self.target.view.buffer, self.scratch, *stored]

    def footprint(self) -> Footprint | None:
        planes = [(plane.view, plane.shape) for plane in (*self.sources, self.target)]
        plain = Footprint.of(self.tiling.outputs[0], planes)
        own, images = plain.own | {self.scratch}, self.tiling.images_of_piece
        if self.tiling.aligned:
            return Footprint(self.parallel, own)
        return Footprint(plain.units, own, images) if images else None

    def run(self, memory: Memory) -> None:
        """Take the transformed weights back, and convolve."""
        span, flat = self.tiling.span, memory.flat(self.weights)
        transformed = np.zeros((*span, *self.channels))
        for piece, panel in _by_panel(flat, span, *self.channels):
            transformed[..., panel] = piece
        weights = _both(_inverses(self.tiling.matrices.weights), transformed)
        target = memory.see(self.target.view, self.target.shape)
        target[...] = self._convolved(memory, weights)
        if self.stored:
            transforms = self.tiling.matrices.inputs
            _store_points(memory, self.sources, self.tiling, transforms, self.stored)

    def _convolved(self, memory: Memory, weights: np.ndarray) -> np.ndarray:
        images = _seen(memory, self.sources, self.tiling)
        return OPS["conv"].meaning(images, weights, **_PLAIN)


@record(eq=False)
class WinogradSpread(WinogradConv):
    """The adjoint: add each output's gradient to all inputs it came from.

    The tiling is that of the convolution, so the source is of its outputs and the
    target is of its inputs. Blocks are whole images: their tiles overlap.
    """

    def _convolved(self, memory: Memory, weights: np.ndarray) -> np.ndarray:
        (source,), target, taps = self.sources, self.target, self.tiling.taps
        grads = memory.see(source.view, source.shape).astype(np.float64)
        sizes = zip(target.before, source.extent, target.extent, taps, strict=True)
        pairs = tuple((lo, n + k - 1 - size - lo) for lo, n, size, k in sizes)
        attrs = _PLAIN | {"pairs": pairs, "spatial": target.extent}
        return OPS["conv_transpose"].meaning(
            grads, weights.transpose(0, 1, 3, 2), **attrs
        )


@record(eq=False)
class WinogradPoints(Tiled):
    """Transform images, or gradients, for products by point.

    Gradients go the way that the transform of outputs comes.
    """

    zeros: Buffer
    target: Points
    is_gradient: bool

    @property
    def channels(self) -> int:
        """The channels of all sources."""
        return sum(plane.shape[3] for plane in self.sources)

    @property
    def parallel(self) -> int:
        return self.tiling.pieces

    @property
    def cost(self) -> float:
        return _cost_of_transform(self.tiling, self.channels)

    def reads(self) -> list[Buffer]:
        return [*self.images(), self.zeros]

    def writes(self) -> list[Buffer]:
        return [self.target.buffer]

    def footprint(self) -> Footprint | None:
        if not self.tiling.aligned:
            return None
        planes = [(plane.view, plane.shape) for plane in self.sources]
        plain = Footprint.of(self.tiling.outputs[0], planes)
        return Footprint(self.parallel, plain.own)

    def run(self, memory: Memory) -> None:
        matrices = self.tiling.matrices
        transforms = matrices.inputs
        if self.is_gradient:
            rows, columns = matrices.outputs
            transforms = rows.T, columns.T
        _store_points(memory, self.sources, self.tiling, transforms, self.target)


@record(eq=False)
class WinogradOutputs(Blocked):
    """Transform products by point into the outputs of a convolution.

    The scratch takes outputs of tiles that lie outside of the images.
    """

    points: Points
    target: Plane

    @property
    def parallel(self) -> int:
        return self.tiling.pieces

    @property
    def cost(self) -> float:
        return _cost_of_transform(self.tiling, self.target.shape[3])

    def reads(self) -> list[Buffer]:
        return [self.points.buffer]

    def writes(self) -> list[Buffer]:
        return [self.target.view.buffer, self.scratch]

    def footprint(self) -> Footprint | None:
        if not self.tiling.aligned:
            return None
        images = self.tiling.outputs[0]
        plain = Footprint.of(images, [(self.target.view, self.target.shape)])
        return Footprint(self.parallel, plain.own | {self.scratch})

    def run(self, memory: Memory) -> None:
        tiling, (images, height, width, out) = self.tiling, self.target.shape
        (down, right), (rows, columns) = tiling.across, tiling.step
        source = View(self.points.buffer, (self.points.stride, self.points.row, 1))
        points = memory.see(source, (tiling.points, tiling.tiles, out))
        points = points.reshape(*tiling.span, images, down, right, out)
        tiles = np.einsum("ip,jq,pqnabc->naibjc", *tiling.matrices.outputs, points)
        shape = images, down * rows, right * columns, out
        target = memory.see(self.target.view, self.target.shape)
        target[...] = tiles.reshape(shape)[:, :height, :width]


def _cost_of_transform(tiling: Tiling, channels: int) -> float:
    each = tiling.points * transform_cost(tiling.span) * channels
    return CALL + MULTIPLY_ADD * tiling.tiles * each


@record(eq=False)
class WinogradGrads(Blocked):
    """Sum the transformed gradient of the weights: [slice][point][row][out].

    A piece is a slice of the tiles, one of some groups of planes, one of `groups` of
    output channels, and one of `row_groups` of pairs of rows of points: the first and
    the last, or neighbours whose transforms share what they compute.
    """

    grads: View
    zeros: Buffer
    sums: Buffer
    plane_groups: int
    groups: int
    row_groups: int = 1

    @property
    def parallel(self) -> int:
        return self.tiling.pieces * self.plane_groups * self.groups * self.row_groups

    def reads(self) -> list[Buffer]:
        return [*self.images(), self.grads.buffer, self.zeros]

    def writes(self) -> list[Buffer]:
        return [self.sums, self.scratch]

    def run(self, memory: Memory) -> None:
        """Sum up what the last transform takes to the right gradient."""
        tiling = self.tiling
        images = _seen(memory, self.sources, tiling)
        grads = memory.see(self.grads, tiling.outputs).astype(np.float64)
        attrs = _PLAIN | {"kernel": tiling.taps}
        exact = OPS["conv_kernel"].meaning(images, grads, **attrs)
        rows, columns = _inverses(tiling.matrices.weights)
        lifted = _both((rows.T, columns.T), exact)
        sums = memory.array(self.sums)
        sums[...] = 0
        lifted = lifted.reshape(tiling.points, *lifted.shape[2:])
        sums[0, :, : lifted.shape[1], : lifted.shape[2]] = lifted


@record(eq=False)
class WinogradKernel(Kernel):
    """Add up the slices, in order, and transform them into gradients of all planes."""

    taps: Pair
    span: Pair
    sums: Buffer
    targets: tuple[Taps, ...]  # a part for each plane, of as many channels each

    @property
    def parallel(self) -> int:
        return sum(part.shape[2] for part in self.targets)

    def reads(self) -> list[Buffer]:
        return [self.sums]

    def writes(self) -> list[Buffer]:
        return list(dict.fromkeys(part.view.buffer for part in self.targets))

    def run(self, memory: Memory) -> None:
        every = memory.array(self.sums).astype(np.float64).sum(0)
        down, right = both_matrices(self.taps, self.span).weights
        for part in self.targets:
            rows, columns, channels, out = part.shape
            sums = every[:, part.first : part.first + channels, :out]
            sums = sums.reshape(*self.span, channels, out)
            weights = _both((down.T, right.T), sums)[:rows, :columns]
            memory.see(part.view, part.shape)[...] = weights


def _inverses(
    transforms: tuple[np.ndarray, np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    rows, columns = map(np.linalg.pinv, transforms)
    return rows, columns


def _both(transforms: tuple[np.ndarray, np.ndarray], weights: np.ndarray) -> np.ndarray:
    """Transform along both axes; a matrix has a column for every tap that is there."""
    sizes = zip(transforms, weights.shape[:2], strict=True)
    rows, columns = (matrix[:, :size] for matrix, size in sizes)
    return np.einsum("ia,jb,abcd->ijcd", rows, columns, weights)


def _by_panel(
    flat: np.ndarray, span: Pair, rows: int, channels: int
) -> Iterator[tuple[np.ndarray, slice]]:
    """Yield what each panel holds of transformed weights, and of which channels."""
    for start, widths in panels(channels):
        wide, each = sum(widths), math.prod(span) * weight_rows(rows)
        piece = flat[each * start : each * (start + wide)]
        piece = piece.reshape(*span, weight_rows(rows), wide)[..., :rows, :]
        yield piece[..., : channels - start], slice(start, min(start + wide, channels))
