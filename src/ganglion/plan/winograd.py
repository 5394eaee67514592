"""Winograd's convolution: kernels of 3×3 and 5×5 taps with fewer multiplications.

A tile of 6×6 inputs gives 4×4 outputs of a 3×3 kernel, or 2×2 of a 5×5 one, by 36
multiplications a channel instead of 144 or 100: inputs and weights are transformed,
multiplied place by place (36 small matrix products), and the products transformed back.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ganglion import config
from ganglion.ir.graph import Node, Value
from ganglion.ir.primitives import OPS
from ganglion.plan.kernel import Buffer, Kernel, Shape, View
from ganglion.plan.lower import SLICES, Lowering

SPAN = 6  # a tile's inputs along an axis
PLACES = SPAN * SPAN
LANES, NARROW = 16, 8  # channels are padded to the narrow vector, cut into wide ones
FLOAT = np.dtype("float32")
CACHE = 160 * 1024  # elements of scratch a thread may keep in its second-level cache
PIECES = 32  # of a convolution, whatever the number of threads
SUMS = 4 * 1024 * 1024  # elements that all slices of a weight gradient may have

Pairs = tuple[tuple[int, int], ...]
See = Callable[[View, Shape], np.ndarray]


def kernel_matrix(taps: int) -> np.ndarray:
    """Return the matrix G that takes `taps` weights along an axis to six places.

    >>> kernel_matrix(3)[3] * 24
    array([1., 2., 4.])
    """
    points = (0.0, 1.0, -1.0, 2.0, -2.0)
    scales = (1 / 4, -1 / 6, -1 / 6, 1 / 24, 1 / 24)
    rows = [
        [s * p**e for e in range(taps)] for p, s in zip(points, scales, strict=True)
    ]
    return np.array([*rows, [0.0] * (taps - 1) + [1.0]])


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
    """How a convolution is cut: tiles of outputs, blocks of tiles, pieces of blocks."""

    inputs: Shape  # images, height, width, channels
    outputs: Shape
    taps: int
    before: tuple[int, int]  # zeros above and to the left of an image
    block: int
    pieces: int

    @property
    def step(self) -> int:
        """The outputs of a tile along an axis."""
        return SPAN + 1 - self.taps

    @property
    def across(self) -> tuple[int, int]:
        """The number of tiles of an image, down and to the right."""
        return -(-self.outputs[1] // self.step), -(-self.outputs[2] // self.step)

    @property
    def tiles(self) -> int:
        """The number of tiles of all images."""
        return self.outputs[0] * math.prod(self.across)

    @property
    def blocks(self) -> int:
        """The number of blocks of tiles."""
        return -(-self.tiles // self.block)

    def stride(self, channels: int) -> int:
        """Return the elements between two places of a transformed block."""
        # A line more than needed, so that the 36 places do not fall on one another
        # in the cache.
        return -(-self.block * channels // LANES) * LANES + LANES


# ---- kernels -----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class WinogradWeights(Kernel):
    """Transform weights (taps, taps, in, out) into [panel][36][in][out of a panel]."""

    shape: Shape
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
class WinogradConv(Kernel):
    """Convolve images with transformed weights.

    Each run of pieces that a thread is given works in the part of `scratch` that
    belongs to its first piece.
    """

    tiling: Tiling
    images: View
    weights: Buffer
    zeros: Buffer
    target: Buffer
    scratch: Buffer

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
class WinogradGrads(Kernel):
    """Sum the transformed gradient of the weights: [slice][36][in][out]."""

    tiling: Tiling
    images: View
    grads: View
    zeros: Buffer
    sums: Buffer
    scratch: Buffer

    @property
    def parallel(self) -> int:
        """How many independent pieces the kernel has."""
        return self.tiling.pieces

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
    """Tell whether an op is a convolution that Winograd's method is for."""
    attrs = node.attrs
    return (
        node.dtype == FLOAT
        and taps in ((3, 3), (5, 5))
        and attrs["strides"] == attrs["dilation"] == (1, 1)
        and attrs["groups"] == 1
        and node.size > 0
        and all(one.size > 0 for one in node.inputs)
    )


def chosen(node: Node, taps: Shape, inputs: Shape, outputs: Shape) -> bool:
    """Tell whether to lower an op of these images and outputs by Winograd's method."""
    if config.precise() or not possible(node, taps):
        return False
    return worth(node.op.name, taps[0], inputs, outputs)


def worth(op: str, taps: int, inputs: Shape, outputs: Shape) -> bool:
    """Tell whether Winograd's method is clearly faster than adding up all taps."""
    tiling = Tiling(inputs, outputs, taps, (0, 0), 1, 1)
    return min(inputs[3], outputs[3]) >= 16 and tiling.tiles >= 64


def _view(low: Lowering, value: Value) -> View:
    view = low.view(value)
    return view if view.strides[-1] == 1 else View.whole(low.store(value))


def _zeros(channels: int) -> Buffer:
    array = np.zeros(channels, FLOAT)
    return Buffer(f"zeros{channels}", array.shape, FLOAT, "constant", array)


def _cut(tiles: int, most: int, at_once: int) -> tuple[int, int]:
    """Cut tiles into blocks; return tiles of a block, and pieces of the kernel."""
    blocks = -(-tiles // max(most, 1))
    if blocks > at_once // 2:
        blocks = -(-blocks // at_once) * at_once
    block = -(-tiles // blocks)
    return block, min(at_once, -(-tiles // block))


def lower_conv(
    low: Lowering, node: Node, x: Value, kernel: View, shape: Shape, pairs: Pairs
) -> None:
    """Emit a convolution of x with a kernel of this shape."""
    images = _view(low, x)
    weights = low.new((PLACES * shape[2] * padded(shape[3]),), FLOAT, "u")
    low.emit(WinogradWeights("winograd_weights", shape, kernel, weights))
    widest = max(sum(widths) for _, widths in panels(shape[3]))
    before = (pairs[0][0], pairs[1][0])
    whole = Tiling(x.shape, node.shape, shape[0], before, 1, 1)
    most = CACHE // (PLACES * (x.shape[3] + widest))
    cut = _cut(whole.tiles, max(most, 14), PIECES)
    tiling = Tiling(x.shape, node.shape, shape[0], before, *cut)
    region = PLACES * (tiling.stride(x.shape[3]) + tiling.stride(widest)) + 4 * LANES
    scratch = low.new((tiling.pieces, region), FLOAT, "scratch")
    target = low.new(node.shape, node.dtype)
    low.buffers[node] = target
    zeros = _zeros(x.shape[3])
    low.emit(
        WinogradConv(
            f"winograd_{node.op.name}", tiling, images, weights, zeros, target, scratch
        )
    )


def lower_conv_kernel(low: Lowering, node: Node) -> None:
    """Emit the gradient of a convolution to its weights."""
    x, dy = node.inputs
    images, grads = _view(low, x), _view(low, dy)
    pairs, channels, wide = node.attrs["pairs"], x.shape[3], padded(dy.shape[3])
    before = (pairs[0][0], pairs[1][0])
    whole = Tiling(x.shape, dy.shape, node.shape[0], before, 1, 1)
    most = max(CACHE // (PLACES * (channels + wide)), 14)
    one = PLACES * channels * wide
    slices = min(SLICES, max(SUMS // one, 1))
    cut = _cut(whole.tiles, most, slices)
    tiling = Tiling(x.shape, dy.shape, node.shape[0], before, *cut)
    sums = low.new((tiling.pieces, PLACES, channels, wide), FLOAT, "sums")
    region = PLACES * (tiling.stride(channels) + tiling.stride(wide))
    scratch = low.new((tiling.pieces, region), FLOAT, "scratch")
    zeros = _zeros(max(channels, dy.shape[3]))
    low.emit(
        WinogradGrads("winograd_grads", tiling, images, grads, zeros, sums, scratch)
    )
    target = low.new(node.shape, node.dtype)
    low.buffers[node] = target
    low.emit(WinogradKernel("winograd_kernel", node.shape, tiling.pieces, sums, target))


# ---- meaning -----------------------------------------------------------------------


def interpret(kernel: Kernel, see: See) -> None:
    """Do what a kernel stands for: only the weights' transform is Winograd's own.

    A convolution takes the transformed weights back and convolves; a gradient to the
    weights is one that the last transform takes to the right one.
    """
    if isinstance(kernel, WinogradWeights):
        weights = see(kernel.source, kernel.shape).astype(np.float64)
        made = _both(kernel_matrix(kernel.shape[0]), weights)
        flat = see(View.whole(kernel.target), kernel.target.shape)
        for piece, panel in _packed(flat, kernel.shape[2], kernel.shape[3]):
            piece[...] = made[..., panel]
    elif isinstance(kernel, WinogradConv):
        tiling = kernel.tiling
        ends = tiling.inputs[3], tiling.outputs[3]
        flat = see(View.whole(kernel.weights), kernel.weights.shape)
        made = np.zeros((SPAN, SPAN, *ends))
        for piece, panel in _packed(flat, *ends):
            made[..., panel] = piece
        weights = _both(np.linalg.pinv(kernel_matrix(tiling.taps)), made)
        images = see(kernel.images, tiling.inputs).astype(np.float64)
        result = OPS["conv"].meaning(images, weights, **_window(tiling))
        see(View.whole(kernel.target), tiling.outputs)[...] = result
    elif isinstance(kernel, WinogradGrads):
        _interpret_grads(kernel, see)
    elif isinstance(kernel, WinogradKernel):
        sums = see(View.whole(kernel.sums), kernel.sums.shape).astype(np.float64)
        whole = sums.sum(0).reshape(SPAN, SPAN, *sums.shape[2:])
        made = _both(kernel_matrix(kernel.shape[0]).T, whole[..., : kernel.shape[3]])
        see(View.whole(kernel.target), kernel.shape)[...] = made


def _interpret_grads(kernel: WinogradGrads, see: See) -> None:
    tiling = kernel.tiling
    images = see(kernel.images, tiling.inputs).astype(np.float64)
    grads = see(kernel.grads, tiling.outputs).astype(np.float64)
    taps = (tiling.taps, tiling.taps)
    exact = OPS["conv_kernel"].meaning(images, grads, kernel=taps, **_window(tiling))
    lifted = _both(np.linalg.pinv(kernel_matrix(tiling.taps)).T, exact)
    sums = see(View.whole(kernel.sums), kernel.sums.shape)
    sums[...] = 0
    sums[0, ..., : tiling.outputs[3]] = lifted.reshape(PLACES, *lifted.shape[2:])


def _both(matrix: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return np.einsum("ia,jb,abcd->ijcd", matrix, matrix, weights)


def _packed(flat: np.ndarray, rows: int, channels: int) -> Any:
    """Yield what each panel holds of transformed weights, and of which channels."""
    for start, widths in panels(channels):
        wide = sum(widths)
        at = PLACES * rows * start
        piece = flat[at : at + PLACES * rows * wide].reshape(SPAN, SPAN, rows, wide)
        yield piece[..., : channels - start], slice(start, min(start + wide, channels))


def _window(tiling: Tiling) -> dict[str, Any]:
    pairs = tuple(
        (lo, n + tiling.taps - 1 - size - lo)
        for lo, n, size in zip(
            tiling.before, tiling.outputs[1:3], tiling.inputs[1:3], strict=True
        )
    )
    return {"strides": (1, 1), "pairs": pairs, "dilation": (1, 1), "groups": 1}
