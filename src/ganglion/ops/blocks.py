"""Other arrangements of the same elements: blocks of images, frames, patterns."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from ganglion.compiler.ir import arrays, contraction
from ganglion.compiler.ir import shaping as s
from ganglion.compiler.ir.graph import Constant, Op, ShapeError, Value
from ganglion.compiler.ir.host import host_op
from ganglion.ops.dispatch import astype, floating, op, promoted
from ganglion.ops.numpy import floor_divide, log10, mod, square
from ganglion.ops.reduction import mean
from ganglion.ops.shapes import (
    concatenate,
    expand_dims,
    gathered,
    is_one,
    slice_axis,
    split,
)
from ganglion.variables import read

__all__ = [
    "depth_to_space", "dsplit", "dstack", "fold", "psnr", "rearrange",
    "space_to_depth", "unfold", "unravel_index", "view",
]  # fmt: skip


# ---- blocks of images ----------------------------------------------------------------


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


@op
def psnr(x1: Any, x2: Any, max_val: Any) -> Any:
    """Return the peak signal-to-noise ratio of two images, in decibels."""
    a, b = map(floating, promoted(x1, x2))
    if read(x1).shape != read(x2).shape:
        raise ShapeError(f"psnr: shapes {a.shape} and {b.shape} differ")
    noise = mean(square(a - b))
    return 20.0 * log10(astype(max_val, a.dtype)) - 10.0 * log10(noise)


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


# ---- other arrangements --------------------------------------------------------------


@op
def rearrange(tensor: Any, pattern: str, **axes_lengths: int) -> Any:
    """Order, split and merge axes by a pattern, `"b (h n) c -> b n (h c)"`."""
    value = read(tensor)
    before, arrow, after = pattern.partition("->")
    if not arrow:
        raise ValueError(f"ops.rearrange: {pattern!r} has no '->'.")
    groups, targets = _groups(before), _groups(after)
    sizes = _sizes(groups, value.shape, pattern, axes_lengths)
    names = [name for group in groups for name in group]
    wanted = [name for group in targets for name in group]
    if sorted(names) != sorted(wanted):
        raise ValueError(f"ops.rearrange: {pattern!r} has other axes behind the arrow.")
    value = s.reshape(value, shape=tuple(sizes[name] for name in names))
    value = s.transpose(value, axes=tuple(names.index(name) for name in wanted))
    merged = (math.prod(sizes[name] for name in group) for group in targets)
    return s.reshape(value, shape=tuple(merged))


def _groups(text: str) -> list[list[str]]:
    """Return the names of each axis; one in brackets has several."""
    return [re.findall(r"\w+", part) for part in re.findall(r"\w+|\(.*?\)", text)]


def _sizes(
    groups: list[list[str]], shape: tuple[int, ...], pattern: str, lengths: Any
) -> dict[str, int]:
    if len(groups) != len(shape):
        raise ValueError(
            f"ops.rearrange: {pattern!r} has {len(groups)} axes, the tensor {shape}."
        )
    sizes = {name: int(length) for name, length in lengths.items()}
    for group, size in zip(groups, shape, strict=True):
        unknown = [name for name in group if name not in sizes]
        product = math.prod(sizes[name] for name in group if name in sizes)
        if len(unknown) > 1 or size % product or (not unknown and size != product):
            raise ValueError(
                f"ops.rearrange: {' × '.join(group)} of {pattern!r} do not make up "
                f"{size}; give all of their sizes but one."
            )
        sizes |= dict.fromkeys(unknown, size // product)
    return sizes


@op
def dstack(xs: Any) -> Any:
    """Join arrays along the third axis."""
    return concatenate([_with_depth(x) for x in xs], axis=2)


def _with_depth(x: Any) -> Value:
    value = read(x)
    if value.ndim < 2:
        value = s.reshape(value, shape=(1, value.size))
    return expand_dims(value, -1) if value.ndim == 2 else value


@op
def dsplit(x: Any, indices_or_sections: Any) -> Any:
    """Cut an array along its third axis."""
    return split(x, indices_or_sections, axis=2)


@op
def unravel_index(indices: Any, shape: Any) -> Any:
    """Return the index along each axis of positions in a flattened array."""
    flat = read(indices)
    rest, places = flat, []
    for size in reversed([int(n) for n in shape]):
        places.append(mod(rest, astype(size, flat.dtype)))
        rest = floor_divide(rest, astype(size, flat.dtype))
    return tuple(reversed(places))


def _view_type(x: Value, old_dtype: str, dtype: str) -> tuple[tuple[int, ...], Any]:
    new, old = np.dtype(dtype), np.dtype(old_dtype)
    if new.itemsize == old.itemsize:
        return x.shape, new
    if not x.shape:
        raise ShapeError("a scalar cannot be seen as a type of another size")
    last, rest = divmod(x.shape[-1] * old.itemsize, new.itemsize)
    if rest:
        raise ShapeError(f"the last axis of {x.type_text} is no row of {dtype}")
    return (*x.shape[:-1], last), new


def _viewed(x: np.ndarray, old_dtype: str, dtype: str) -> np.ndarray:
    # 16-bit floats are computed with as float32: their own bits are needed here.
    return np.ascontiguousarray(x, old_dtype).view(dtype)


_VIEW: Op = host_op("view", _view_type, _viewed)


@op
def view(x: Any, dtype: Any = None) -> Any:
    """Return the same bits as another type."""
    value = read(x)
    if dtype is None:
        return value
    return _VIEW(value, old_dtype=value.dtype.name, dtype=np.dtype(dtype).name)
