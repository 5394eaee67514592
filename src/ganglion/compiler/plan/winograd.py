"""Winograd's convolution: kernels of 3×3 and 5×5 taps with fewer multiplications.

A tile of 6×6 inputs gives 4×4 outputs of a 3×3 kernel by 36 multiplications a channel
instead of 144, one of 8×8 gives 4×4 of a 5×5 kernel by 64 instead of 400: inputs and
weights are transformed, multiplied point by point (so many small matrix products), and
the products transformed back. Which size of tile suits best depends on the images.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ganglion.compiler.ir.table import OPS
from ganglion.compiler.plan.kernels import (
    Buffer,
    Footprint,
    Kernel,
    Memory,
    Shape,
    View,
)

LANES, NARROW = 16, 8  # channels are padded to the narrow vector, cut into wide ones
FLOAT = np.dtype("float32")
# Multiplications that the transforms cost, by point and channel; 64 points are more
# than there are registers.
TRANSFORM = {6: 8, 8: 14}


# ---- transforms: products of polynomials by Toom and Cook ---------------------------

# The point at infinity comes last. Small numbers and their inverses keep digits best.
POINTS = (0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5)
SPANS = (6, 8)  # inputs of a tile along an axis: one more than points, infinity too


@dataclass(frozen=True, eq=False)
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
    inputs[-1] = np.poly(points)[::-1]
    weights[-1, -1] = 1.0
    outputs = np.zeros((step, span))
    outputs[:, :-1] = [[point**power for point in points] for power in range(step)]
    outputs[-1, -1] = 1.0
    return Matrices(inputs, weights, outputs)


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
    def points(self) -> int:
        """The points of a tile, each of which has products of its own."""
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
        return self.tiles * self.points * each

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
        whole_images = self.piece % math.prod(self.across) == 0
        return whole_images and self.tiles % self.piece == 0

    @property
    def images_of_piece(self) -> int:
        """The images of each piece but the last, 0 where it ends within one."""
        images, rest = divmod(self.piece, math.prod(self.across))
        return 0 if rest else images

    def __str__(self) -> str:
        size = f"{self.step}×{self.step}"
        return f"{self.tiles} tiles of {size} in blocks of {self.block}"

    def stride(self, channels: int) -> int:
        """Return the elements between two points of a transformed block."""
        # A line more than needed, so that the points do not fall on one another in the
        # cache.
        return -(-self.block * channels // LANES) * LANES + LANES


# ---- kernels -----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class WinogradWeights(Kernel):
    """Transform weights (taps, taps, in, out) into [panel][point][in][out]."""

    shape: Shape
    span: int
    source: View
    target: Buffer

    @property
    def parallel(self) -> int:
        return self.shape[2]

    def reads(self) -> list[Buffer]:
        return [self.source.buffer]

    def writes(self) -> list[Buffer]:
        return [self.target]

    def run(self, memory: Memory) -> None:
        weights = memory.see(self.source, self.shape).astype(np.float64)
        transformed = _both(matrices(self.shape[0], self.span).weights, weights)
        flat = memory.flat(self.target)
        for piece, panel in _by_panel(flat, self.span, *self.shape[2:]):
            piece[...] = transformed[..., panel]


@dataclass(frozen=True, eq=False)
class Tiled(Kernel):
    """A kernel that runs over tiles of images, with some scratch for each thread."""

    tiling: Tiling
    images: View
    scratch: Buffer

    def private(self) -> list[Buffer]:
        return [self.scratch]

    def describe(self) -> str:
        return super().describe().replace(":", f" for {self.tiling}:", 1)


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
        return self.tiling.pieces

    def reads(self) -> list[Buffer]:
        return [self.images.buffer, self.weights, self.zeros]

    def writes(self) -> list[Buffer]:
        return [self.target, self.scratch]

    def footprint(self) -> Footprint | None:
        target = View.of(self.target), self.target.shape
        plain = Footprint.of(self.source[0], [(self.images, self.source), target])
        own, images = plain.own | {self.scratch}, self.tiling.images_of_piece
        if self.tiling.aligned:
            return Footprint(self.parallel, own)
        return Footprint(plain.units, own, images) if images else None

    def run(self, memory: Memory) -> None:
        """Take the transformed weights back, and convolve."""
        span, source, target = self.tiling.span, self.source, self.target.shape
        flat = memory.flat(self.weights)
        transformed = np.zeros((span, span, source[3], target[3]))
        for piece, panel in _by_panel(flat, span, source[3], target[3]):
            transformed[..., panel] = piece
        weights = _both(np.linalg.pinv(self.tiling.matrices.weights), transformed)
        images = memory.see(self.images, source).astype(np.float64)
        memory.array(self.target)[...] = self._convolved(images, weights)

    def _convolved(self, images: np.ndarray, weights: np.ndarray) -> np.ndarray:
        return OPS["conv"].meaning(images, weights, **_window(self.tiling))


@dataclass(frozen=True, eq=False)
class WinogradSpread(WinogradConv):
    """The adjoint: add each output's gradient to all inputs it came from.

    The tiling is that of the convolution, so `images` are of its outputs and the target
    is of its inputs. Blocks are whole images: their tiles overlap.
    """

    @property
    def source(self) -> Shape:
        return self.tiling.outputs

    def _convolved(self, images: np.ndarray, weights: np.ndarray) -> np.ndarray:
        attrs = _window(self.tiling) | {"spatial": self.tiling.inputs[1:3]}
        weights = weights.transpose(0, 1, 3, 2)
        return OPS["conv_transpose"].meaning(images, weights, **attrs)


@dataclass(frozen=True, eq=False)
class WinogradGrads(Tiled):
    """Sum the transformed gradient of the weights: [slice][point][in][out].

    A piece is a slice of the tiles, one of `groups` of output channels and, `by_rows`,
    two rows of points: the first and the last, or neighbours whose transforms share
    what they compute.
    """

    grads: View
    zeros: Buffer
    sums: Buffer
    groups: int
    by_rows: bool = False

    @property
    def pairs(self) -> int:
        """Into how many pieces the points are cut."""
        return self.tiling.span // 2 if self.by_rows else 1

    @property
    def parallel(self) -> int:
        return self.tiling.pieces * self.groups * self.pairs

    def reads(self) -> list[Buffer]:
        return [self.images.buffer, self.grads.buffer, self.zeros]

    def writes(self) -> list[Buffer]:
        return [self.sums, self.scratch]

    def run(self, memory: Memory) -> None:
        """Sum up what the last transform takes to the right gradient."""
        tiling = self.tiling
        images = memory.see(self.images, tiling.inputs).astype(np.float64)
        grads = memory.see(self.grads, tiling.outputs).astype(np.float64)
        attrs = _window(tiling) | {"kernel": (tiling.taps, tiling.taps)}
        exact = OPS["conv_kernel"].meaning(images, grads, **attrs)
        lifted = _both(np.linalg.pinv(tiling.matrices.weights).T, exact)
        sums = memory.array(self.sums)
        sums[...] = 0
        lifted = lifted.reshape(tiling.points, *lifted.shape[2:])
        sums[0, ..., : tiling.outputs[3]] = lifted


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
        return self.shape[2]

    def reads(self) -> list[Buffer]:
        return [self.sums]

    def writes(self) -> list[Buffer]:
        return [self.target]

    def run(self, memory: Memory) -> None:
        sums = memory.array(self.sums).astype(np.float64).sum(0)
        sums = sums.reshape(self.span, self.span, *sums.shape[1:])[..., : self.shape[3]]
        back = matrices(self.shape[0], self.span).weights.T
        memory.see(View.of(self.target), self.shape)[...] = _both(back, sums)


def _both(matrix: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return np.einsum("ia,jb,abcd->ijcd", matrix, matrix, weights)


def _by_panel(
    flat: np.ndarray, span: int, rows: int, channels: int
) -> Iterator[tuple[np.ndarray, slice]]:
    """Yield what each panel holds of transformed weights, and of which channels."""
    for start, widths in panels(channels):
        wide = sum(widths)
        at = span * span * rows * start
        piece = flat[at : at + span * span * rows * wide]
        piece = piece.reshape(span, span, rows, wide)
        yield piece[..., : channels - start], slice(start, min(start + wide, channels))


def _window(tiling: Tiling) -> dict[str, Any]:
    pairs = tuple(
        (lo, n + tiling.taps - 1 - size - lo)
        for lo, n, size in zip(
            tiling.before, tiling.outputs[1:3], tiling.inputs[1:3], strict=True
        )
    )
    return {"strides": (1, 1), "pairs": pairs, "dilation": (1, 1), "groups": 1}
