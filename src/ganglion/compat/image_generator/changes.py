"""The transformations of `ImageDataGenerator` for a batch of images, written in ops.

The same functions run eagerly on arrays and inside a compiled step. A parameter is one
number per image; None means no change.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ganglion import ops
from ganglion.ops.sampling import Filling, affine

Parameters = dict[str, Any]
IMAGE_AXES = (1, 2, 3)  # in a batch


def moved(x: Any, parameters: Parameters, filling: Filling, order: int) -> Any:
    """Turn, shift, shear, zoom and flip a batch of images."""
    rows, columns = x.shape[1:3]
    flips = (parameters.get("flip_horizontal"), parameters.get("flip_vertical"))
    if not any(parameters.get(name) is not None for name in _MATRIX):
        return _flipped(x, *flips)
    to_column, to_row = _matrix(parameters, rows, columns)
    interpolation = "bilinear" if order else "nearest"
    return affine(x, to_column, to_row, filling, interpolation, flips)


_MATRIX = ("theta", "tx", "ty", "shear", "zx", "zy")


def _flipped(x: Any, across: Any, down: Any) -> Any:
    for condition, axis in ((across, 2), (down, 1)):
        if condition is not None:
            x = ops.where(_each(condition), ops.flip(x, axis), x)
    return x


def _matrix(parameters: Parameters, rows: int, columns: int) -> tuple[Any, Any]:
    """Return how a column and a row of the result map to those of the image.

    Keras multiplies rotation, shift, shear and zoom in coordinates (x, y), centres them
    on half of the height for x and half of the width for y, and exchanges x and y in
    the end; for images that are not square this is not a rotation around the centre.
    """
    theta, shear = _radians(parameters.get("theta")), _radians(parameters.get("shear"))
    tx, ty = _or(parameters.get("tx"), 0.0), _or(parameters.get("ty"), 0.0)
    xx, xy, yx, yy = 1.0, None, None, 1.0
    if theta is not None:
        xx, xy, yx, yy = ops.cos(theta), -ops.sin(theta), ops.sin(theta), ops.cos(theta)
    x0 = _sum(_times(xx, tx), _times(xy, ty))
    y0 = _sum(_times(yx, tx), _times(yy, ty))
    if shear is not None:
        sine, cosine = ops.sin(shear), ops.cos(shear)
        xy = _sum(_times(xx, -sine), _times(xy, cosine))
        yy = _sum(_times(yx, -sine), _times(yy, cosine))
    zx, zy = _or(parameters.get("zx"), 1.0), _or(parameters.get("zy"), 1.0)
    xx, xy, yx, yy = _times(xx, zx), _times(xy, zy), _times(yx, zx), _times(yy, zy)
    cx, cy = rows / 2 - 0.5, columns / 2 - 0.5
    x0 = _sum(x0, cx, _times(xx, -cx), _times(xy, -cy))
    y0 = _sum(y0, cy, _times(yx, -cx), _times(yy, -cy))
    return (xx, xy, x0), (yx, yy, y0)


def _radians(degrees: Any) -> Any:
    return None if degrees is None else degrees * (math.pi / 180)


def _or(value: Any, default: float) -> Any:
    return default if value is None else value


def _times(a: Any, b: Any) -> Any:
    if a is None or b is None:
        return None
    return ops.multiply(a, b) if _is_drawn(a) or _is_drawn(b) else a * b


def _sum(*parts: Any) -> Any:
    total: Any = None
    for part in parts:
        if part is not None:
            total = part if total is None else total + part
    return total


def _is_drawn(value: Any) -> bool:
    return not isinstance(value, (int, float))


def _each(numbers: Any) -> Any:
    return ops.reshape(numbers, (-1, 1, 1, 1))


def _extremes(x: Any) -> tuple[Any, Any]:
    return tuple(f(x, axis=IMAGE_AXES, keepdims=True) for f in (ops.min, ops.max))


def channel_shifted(x: Any, intensity: Any) -> Any:
    """Add to all channels; stay between the smallest and the largest of an image."""
    low, high = _extremes(x)
    return ops.clip(x + _each(intensity), low, high)


def brightened(x: Any, factor: Any) -> Any:
    """Multiply by a factor, as Pillow does with pixels of integers from 0 to 255.

    An image beyond that range is brought into it first, and back afterwards.
    """
    low, high = _extremes(x)
    beyond = ops.logical_or(low < 0.0, high > 255.0)
    spread = high - low
    inside = (x - low) / ops.where(spread > 0.0, spread, 1.0) * 255.0
    pixels = ops.floor(ops.where(beyond, inside, x))
    bright = ops.floor(ops.clip(pixels * _each(factor), 0.0, 255.0))
    if x.shape[3] == 4:  # the alpha channel stays as it is
        colour = np.array([True, True, True, False])
        bright = ops.where(colour, bright, pixels)
    return ops.where(beyond, bright / 255.0 * spread + low, bright)


def standardized_alone(
    x: Any, rescale: float | None, center: bool, deviate: bool
) -> Any:
    """Scale and centre each image by its own statistics."""
    if rescale:
        x = x * float(rescale)
    if center:
        x = x - ops.mean(x, axis=IMAGE_AXES, keepdims=True)
    if deviate:
        x = x / (ops.std(x, axis=IMAGE_AXES, keepdims=True) + 1e-6)
    return x


def standardized_by_data(x: Any, mean: Any, deviation: Any, whitening: Any) -> Any:
    """Centre, scale and whiten images by the statistics of the data; None for none."""
    if mean is not None:
        x = x - np.asarray(mean, x.dtype)
    if deviation is not None:
        x = x / np.asarray(np.asarray(deviation) + 1e-6, x.dtype)
    if whitening is not None:
        flat = ops.reshape(x, (x.shape[0], math.prod(x.shape[1:])))
        x = ops.reshape(ops.matmul(flat, np.asarray(whitening, x.dtype)), x.shape)
    return x


def whitening_of(x: np.ndarray, epsilon: float) -> np.ndarray:
    """Return the matrix that makes the pixels of centred images independent (ZCA)."""
    flat = x.reshape(len(x), -1)
    u, s, _ = np.linalg.svd(flat.T, full_matrices=False)
    return (u * (math.sqrt(len(x)) / (s + epsilon))).dot(u.T)
