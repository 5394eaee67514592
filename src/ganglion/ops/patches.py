"""Blocks of pixels as channels, and sliding windows of images as columns."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ganglion.compiler.ir import arrays, contraction
from ganglion.compiler.ir import shaping as s
from ganglion.compiler.ir.graph import Constant, ShapeError, Value
from ganglion.ops.dispatch import op
from ganglion.ops.shapes import gathered, is_one, slice_axis
from ganglion.variables import read

__all__ = [
    "depth_to_space", "fold", "space_to_depth", "unfold",
]  # fmt: skip


def _images(name: str, x: Any, block_size: int, data_format: str) -> Value:
    value = read(x)
    if value.ndim != 4:
        raise ShapeError(f"{name}: images have 4 axes, not {value.shape}")
    if block_size < 2:
        raise ValueError(f"ops.{name}: `block_size` must be at least 2.")
    if data_format not in ("channels_last", "channels_first"):
        raise ValueError(
            f"ops.{name}: data_format is channels_last or channels_first, not "
            f"{data_format!r}."
        )
    return value


@op
def depth_to_space(x: Any, block_size: int, data_format: str = "channels_last") -> Any:
    """Lay out channels as square blocks of pixels."""
    value, size = _images("depth_to_space", x, block_size, data_format), block_size
    if data_format == "channels_last":
        count, height, width, depth = value.shape
    else:
        count, depth, height, width = value.shape
    if depth % size**2:
        raise ShapeError(f"depth_to_space: {depth} channels are no blocks of {size}²")
    channels = depth // size**2
    pixels = (height * size, width * size)
    if data_format == "channels_last":
        value = s.reshape(value, shape=(count, height, width, size, size, channels))
        value = s.transpose(value, axes=(0, 1, 3, 2, 4, 5))
        return s.reshape(value, shape=(count, *pixels, channels))
    value = s.reshape(value, shape=(count, channels, size, size, height, width))
    value = s.transpose(value, axes=(0, 1, 4, 2, 5, 3))
    return s.reshape(value, shape=(count, channels, *pixels))


@op
def space_to_depth(x: Any, block_size: int, data_format: str = "channels_last") -> Any:
    """Lay out square blocks of pixels as channels."""
    value, size = _images("space_to_depth", x, block_size, data_format), block_size
    if data_format == "channels_last":
        count, height, width, depth = value.shape
    else:
        count, depth, height, width = value.shape
    if height % size or width % size:
        raise ShapeError(f"space_to_depth: {height}×{width} are no blocks of {size}²")
    rows, columns = height // size, width // size
    if data_format == "channels_last":
        value = s.reshape(value, shape=(count, rows, size, columns, size, depth))
        value = s.transpose(value, axes=(0, 1, 3, 2, 4, 5))
        return s.reshape(value, shape=(count, rows, columns, depth * size**2))
    value = s.reshape(value, shape=(count, depth, rows, size, columns, size))
    value = s.transpose(value, axes=(0, 1, 3, 5, 2, 4))
    return s.reshape(value, shape=(count, depth * size**2, rows, columns))


def _pair(number: Any) -> tuple[int, int]:
    first, second = (number, number) if is_one(number) else number
    return int(first), int(second)


def _taps(size: int, kernel: int, dilation: int, stride: int) -> np.ndarray:
    """Return the positions of each window's taps along an axis: (kernel, windows)."""
    count = (size - dilation * (kernel - 1) - 1) // stride + 1
    if count < 1:
        raise ShapeError(f"a window of {kernel} does not fit into {size}")
    taps = np.arange(kernel)[:, None] * dilation
    return (taps + np.arange(count) * stride).astype("int32")


@op
def unfold(
    x: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Any:
    """Take images (N, C, H, W) apart into windows: (N, C × elements, windows)."""
    value = read(x)
    if value.ndim != 4:
        raise ShapeError(f"unfold: images are (N, C, H, W), not {value.shape}")
    kernel, steps = _pair(kernel_size), zip(_pair(dilation), _pair(stride), strict=True)
    margins = tuple((n, n) for n in _pair(padding))
    value = arrays.pad(
        value, pairs=((0, 0), (0, 0), *margins), interior=(0,) * 4, value=0.0
    )
    spans = zip(value.shape[2:], kernel, steps, strict=True)
    rows, columns = (_taps(size, taps, *step) for size, taps, step in spans)
    windows = gathered(gathered(value, Constant(columns), 3), Constant(rows), 2)
    windows = s.transpose(windows, axes=(0, 1, 2, 4, 3, 5))
    count, channels = value.shape[:2]
    elements = channels * math.prod(kernel)
    return s.reshape(windows, shape=(count, elements, rows.shape[1] * columns.shape[1]))


@op
def fold(
    x: Any,
    output_size: Any,
    kernel_size: Any,
    dilation: Any = 1,
    padding: Any = 0,
    stride: Any = 1,
) -> Any:
    """Add windows (N, C × elements, windows) up to images (N, C, H, W)."""
    value, kernel = read(x), _pair(kernel_size)
    sizes, margins = _pair(output_size), _pair(padding)
    steps = zip(_pair(dilation), _pair(stride), strict=True)
    padded = [n + 2 * margin for n, margin in zip(sizes, margins, strict=True)]
    spans = zip(padded, kernel, steps, strict=True)
    rows, columns = (_taps(size, taps, *step) for size, taps, step in spans)
    if value.ndim != 3:
        raise ShapeError(f"fold: expected a 3D input, got shape {value.shape}")
    channels, rest = divmod(value.shape[1], math.prod(kernel))
    windows = rows.shape[1] * columns.shape[1]
    if rest or value.shape[2] != windows:
        raise ShapeError(f"fold: {value.shape} are not {windows} windows of {kernel}")
    # Where each element of each window goes: (kernel, kernel, windows, windows).
    places = rows[:, None, :, None] * padded[1] + columns[None, :, None, :]
    parts = s.reshape(value, shape=(value.shape[0] * channels, places.size))
    flat = s.transpose(parts, axes=(1, 0))
    index = Constant(places.reshape(-1).astype("int32"))
    sums = contraction.scatter_add(flat, index, rows=math.prod(padded))
    image: Value = s.transpose(sums, axes=(1, 0))
    image = s.reshape(image, shape=(value.shape[0], channels, *padded))
    for axis, (size, margin) in enumerate(zip(sizes, margins, strict=True), 2):
        image = slice_axis(image, axis, margin, margin + size)
    return image
