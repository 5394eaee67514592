"""Resizing: a matrix for each axis, rows of weights over the pixels that are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ganglion.compiler.ir.graph import Value
from ganglion.ops.dispatch import astype, common_type, floating, one_axis, op
from ganglion.ops.image.layout import as_before, as_floats, check_rank, opened
from ganglion.ops.joining import pad
from ganglion.ops.numpy import (
    absolute,
    clip,
    greater,
    logical_and,
    maximum,
    round,  # noqa: A004
    sin,
    where,
)
from ganglion.ops.products import matmul
from ganglion.ops.reduction import max as largest
from ganglion.ops.reduction import min as smallest
from ganglion.ops.reduction import sum as total
from ganglion.ops.shapes import moveaxis, reshape
from ganglion.system import budget
from ganglion.variables import read

__all__ = ["resize", "scale_and_translate"]

Kernel = Callable[[np.ndarray], np.ndarray]


def _cubic(x: np.ndarray) -> np.ndarray:
    """Return Keys' piecewise cubic, with the slope -1/2 at one."""
    near = ((1.5 * x - 2.5) * x) * x + 1.0
    far = ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))


def _lanczos(radius: float) -> Kernel:
    return lambda x: np.where(x < radius, np.sinc(x) * np.sinc(x / radius), 0.0)


_KERNELS: dict[str, Kernel] = {
    "bilinear": lambda x: np.maximum(1.0 - x, 0.0),
    "bicubic": _cubic,
    "lanczos3": _lanczos(3.0),
    "lanczos5": _lanczos(5.0),
}
INTERPOLATIONS = ("bilinear", "nearest", *list(_KERNELS)[1:], "area")


def resizing_matrix(
    size: int, target: int, interpolation: str = "bilinear", antialias: bool = False
) -> np.ndarray:
    """Return the (target, size) matrix that resizes an axis, centres on centres.

    >>> resizing_matrix(4, 2)
    array([[0.5, 0.5, 0. , 0. ],
           [0. , 0. , 0.5, 0.5]])
    """
    budget.take(32 * size * target, f"images of {target:,} pixels")
    step = size / target
    pixels = np.arange(size)[None, :]
    if interpolation == "area":
        start = np.arange(target)[:, None] * step
        overlap = np.minimum(pixels + 1, start + step) - np.maximum(pixels, start)
        return np.maximum(overlap, 0.0) / step
    centres = (np.arange(target) + 0.5) * step - 0.5
    if interpolation == "nearest":
        picked = np.clip(np.floor(centres + 0.5), 0, size - 1).astype(int)
        return np.eye(size)[picked]
    wider = max(step, 1.0) if antialias else 1.0
    weights = _KERNELS[interpolation](np.abs(centres[:, None] - pixels) / wider)
    return weights / weights.sum(axis=1, keepdims=True)


def resized(
    x: Any, height: int, width: int, interpolation: str, antialias: bool = False
) -> Any:
    """Resize a batch of images of floats by two matrix products."""
    count, rows, columns, channels = x.shape
    if rows != height:
        down = resizing_matrix(rows, height, interpolation, antialias).astype(x.dtype)
        x = matmul(down, reshape(x, (count, rows, columns * channels)))
    if columns != width:
        across = resizing_matrix(columns, width, interpolation, antialias)
        x = reshape(x, (count * height, columns, channels))
        x = matmul(across.astype(x.dtype), x)
    return reshape(x, (count, height, width, channels))


def window(rows: int, columns: int, height: int, width: int) -> tuple[int, ...]:
    """Return the largest window of the shape of a target: where, and how large.

    >>> window(340, 500, 200, 200)
    (0, 80, 340, 340)
    """
    tall = max(min(rows, int(float(columns * height) / width)), 1)
    wide = max(min(columns, int(float(rows * width) / height)), 1)
    return int((rows - tall) / 2), int((columns - wide) / 2), tall, wide


def cropped(x: Any, height: int, width: int) -> Any:
    """Crop to the largest window of the target's shape."""
    top, left, tall, wide = window(x.shape[1], x.shape[2], height, width)
    return x[:, top : top + tall, left : left + wide, :]


def borders(rows: int, columns: int, height: int, width: int) -> tuple[int, int]:
    """Return how many rows and columns to add on each side for a target's shape."""
    tall = max(rows, int(float(columns * height) / width))
    wide = max(columns, int(float(rows * width) / height))
    return int((tall - rows) / 2), int((wide - columns) / 2)


def padded(x: Any, height: int, width: int, value: float) -> Any:
    """Add equal borders, so that the shape is about that of the target."""
    down, across = borders(x.shape[1], x.shape[2], height, width)
    sides = ((0, 0), (down, down), (across, across), (0, 0))
    return pad(x, sides, constant_values=value)


@op
def resize(
    images: Any,
    size: Any,
    interpolation: str = "bilinear",
    antialias: bool = False,
    crop_to_aspect_ratio: bool = False,
    pad_to_aspect_ratio: bool = False,
    fill_mode: str = "constant",
    fill_value: float = 0.0,
    data_format: str | None = None,
) -> Any:
    """Resize images to (height, width); integers are rounded.

    >>> resize(np.array([0, 2, 4, 6], "uint8").reshape(1, 4, 1), (1, 2)).ravel()
    array([1, 5], dtype=uint8)
    """
    height, width = _checked_size(size)
    check_rank(read(images).shape)
    if crop_to_aspect_ratio and pad_to_aspect_ratio:
        raise ValueError(
            "Only one of `pad_to_aspect_ratio` & `crop_to_aspect_ratio` can be `True`."
        )
    if interpolation not in INTERPOLATIONS:
        raise ValueError(
            f"Invalid value for argument `interpolation`. Expected of one "
            f"{INTERPOLATIONS}. Received: interpolation={interpolation}"
        )
    if fill_mode != "constant":
        raise ValueError(
            "Invalid value for argument `fill_mode`. Only `'constant'` is supported. "
            f"Received: fill_mode={fill_mode}"
        )
    x, layout = opened(images, data_format)
    dtype, x = x.dtype, as_floats(x)
    if crop_to_aspect_ratio:
        x = cropped(x, height, width)
    elif pad_to_aspect_ratio:
        x = padded(x, height, width, float(fill_value))
    outputs = resized(x, height, width, interpolation, antialias)
    return layout.restored(as_before(outputs, dtype))


def _checked_size(size: Any) -> tuple[int, int]:
    if not isinstance(size, Sequence | np.ndarray) or len(size) != 2:
        raise ValueError(
            f"Expected `size` to be a tuple of 2 integers. Received: size={size}"
        )
    height, width = size
    if height <= 0 or width <= 0:
        raise ValueError(
            f"`size` must have positive height and width. Received: size={size}"
        )
    return int(height), int(width)


# ---- scales and translations that may be computed ------------------------------------


def _value_cubic(x: Value) -> Value:
    near = ((1.5 * x - 2.5) * x) * x + 1.0
    far = ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0
    return where(x < 1.0, near, where(x < 2.0, far, 0.0))


def _value_lanczos(radius: float) -> Callable[[Value], Value]:
    def kernel(x: Value) -> Value:
        waves = radius * sin(np.pi * x) * sin(np.pi / radius * x)
        is_apart = greater(x, 1e-3)
        around = waves / where(is_apart, np.pi**2 * x * x, 1.0)
        return where(greater(x, radius), 0.0, where(is_apart, around, 1.0))

    return kernel


_VALUE_KERNELS: dict[str, Callable[[Value], Value]] = {
    **dict.fromkeys(("linear", "bilinear", "trilinear"), lambda x: maximum(1 - x, 0.0)),
    **dict.fromkeys(("cubic", "bicubic", "tricubic"), _value_cubic),
    "lanczos3": _value_lanczos(3.0),
    "lanczos5": _value_lanczos(5.0),
}
_NO_WEIGHT = 1000.0 * float(np.finfo("float32").eps)


@op
def scale_and_translate(
    images: Any,
    output_shape: Any,
    scale: Any,
    translation: Any,
    spatial_dims: Any,
    method: str,
    antialias: bool = True,
) -> Any:
    """Scale some axes of images and shift them, by numbers that may be computed.

    >>> image = np.arange(4, dtype="float32").reshape(4, 1)
    >>> one, shift = np.ones(1, "float32"), np.ones(1, "float32")
    >>> scale_and_translate(image, (4, 1), one, shift, (0,), "linear").ravel()
    array([0., 0., 1., 2.], dtype=float32)
    """
    if method not in _VALUE_KERNELS:
        raise ValueError(
            "Invalid value for argument `method`. Expected of one "
            f"{set(_VALUE_KERNELS)}. Received: method={method}"
        )
    x = read(images)
    scales, shifts = floating(scale), floating(translation)
    dtype = common_type([scales, shifts])
    outputs = as_floats(x)
    for number, dim in enumerate(spatial_dims):
        axis = one_axis(dim, x.ndim)
        factor, shift = astype(scales[number], dtype), astype(shifts[number], dtype)
        sizes = x.shape[axis], int(output_shape[axis])
        weights = _scaling_matrix(*sizes, factor, shift, method, antialias)
        along = matmul(moveaxis(outputs, axis, -1), astype(weights, outputs.dtype))
        outputs = moveaxis(along, -1, axis)
    if x.dtype.kind not in "iu" or not len(spatial_dims):
        return astype(outputs, x.dtype) if len(spatial_dims) else x
    low, high = (astype(bound(x), outputs.dtype) for bound in (smallest, largest))
    return astype(clip(round(outputs), low, high), x.dtype)


def _scaling_matrix(
    size: int, target: int, scale: Value, shift: Value, method: str, antialias: bool
) -> Value:
    """Return the (size, target) weights of the pixels that each new pixel reads."""
    inverse = 1.0 / scale
    numbers = np.arange(target, dtype=scale.dtype) + scale.dtype.type(0.5)
    centres = numbers * inverse - shift * inverse - 0.5
    pixels = np.arange(size, dtype=scale.dtype)[:, None]
    distance = absolute(reshape(centres, (1, target)) - pixels)
    wider = maximum(inverse, 1.0) if antialias else 1.0
    weights = _VALUE_KERNELS[method](distance / wider)
    sums = total(weights, axis=0, keepdims=True)
    has_weight = greater(absolute(sums), _NO_WEIGHT)
    shares = where(has_weight, weights / where(has_weight, sums, 1.0), 0.0)
    is_inside = logical_and(centres >= -0.5, centres <= size - 0.5)
    return where(is_inside, shares, 0.0)
