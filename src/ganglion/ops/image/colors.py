"""Colours: grey, and hue, saturation and value."""

from __future__ import annotations

from typing import Any

from ganglion import config
from ganglion.compiler.ir.graph import Value
from ganglion.compiler.ir.shaping import is_float
from ganglion.dtypes import finfo
from ganglion.ops.dispatch import astype, op
from ganglion.ops.image.layout import as_floats, check_rank
from ganglion.ops.joining import split, stack
from ganglion.ops.numpy import absolute, clip, equal, greater, maximum, minimum, where
from ganglion.ops.shapes import squeeze
from ganglion.variables import read

__all__ = ["hsv_to_rgb", "rgb_to_grayscale", "rgb_to_hsv"]

_WEIGHTS = (0.2989, 0.5870, 0.1140)  # of red, green and blue, as the eye sees them


def _planes(x: Value, axis: int) -> list[Value]:
    return [squeeze(plane, axis) for plane in split(x, 3, axis)]


def _axis_of(images: Any, data_format: str | None) -> int:
    check_rank(images.shape)
    return -1 if config.data_format_of(data_format) == "channels_last" else -3


@op
def rgb_to_grayscale(images: Any, data_format: str | None = None) -> Any:
    """Return how bright the pixels of colour images are, as one channel.

    >>> import numpy as np
    >>> rgb_to_grayscale(np.array([[[10.0, 0.0, 0.0]]], "float32"))
    array([[[2.989]]], dtype=float32)
    """
    x = read(images)
    axis = _axis_of(x, data_format)
    if x.shape[axis] not in (1, 3):
        raise ValueError(
            "Invalid channel size: expected 3 (RGB) or 1 (Grayscale). Received input "
            f"with shape: images.shape={x.shape}"
        )
    if x.shape[axis] == 1:
        return x
    red, green, blue = split(as_floats(x), 3, axis)
    weights = _WEIGHTS
    grey = red * weights[0] + green * weights[1] + blue * weights[2]
    return astype(grey, x.dtype)


def _colors_of(images: Any, data_format: str | None) -> tuple[Value, int]:
    x = read(images)
    axis = _axis_of(x, data_format)
    if not is_float(x.dtype):
        raise ValueError(
            f"Invalid images dtype: expected float dtype. Received: images.dtype="
            f"{x.dtype.name}"
        )
    if x.shape[axis] != 3:
        raise ValueError(
            "Input images must have 3 channels, but received images with "
            f"{x.shape[axis]} channels."
        )
    return x, axis


@op
def rgb_to_hsv(images: Any, data_format: str | None = None) -> Any:
    """Return the hue (0 to 1), saturation and value of colour images of floats.

    >>> import numpy as np
    >>> rgb_to_hsv(np.array([[[0.0, 0.5, 0.0]]], "float32")).round(3)
    array([[[0.333, 1.   , 0.5  ]]], dtype=float32)
    """
    x, axis = _colors_of(images, data_format)
    x = where(absolute(x) < float(finfo(x.dtype).eps), 0.0, x)
    red, green, blue = _planes(x, axis)
    value = maximum(maximum(red, green), blue)
    spread = value - minimum(minimum(red, green), blue)
    is_bright, is_colored = greater(value, 0.0), greater(spread, 0.0)
    # Divisors that are never zero, so that gradients are numbers.
    saturation = where(is_bright, spread / where(is_bright, value, 1.0), 0.0)
    scale = 1.0 / (6.0 * where(is_colored, spread, 1.0))
    by_green = scale * (blue - red) + 2.0 / 6.0
    by_blue = scale * (red - green) + 4.0 / 6.0
    hue = where(equal(value, green), by_green, by_blue)
    hue = where(equal(value, red), scale * (green - blue), hue)
    around = where(hue < 0.0, hue + 1.0, hue)
    return stack([where(is_colored, around, 0.0), saturation, value], axis=axis)


@op
def hsv_to_rgb(images: Any, data_format: str | None = None) -> Any:
    """Return the colours of images of hue, saturation and value.

    >>> import numpy as np
    >>> hsv_to_rgb(np.array([[[0.0, 1.0, 0.5]]], "float32"))
    array([[[0.5, 0. , 0. ]]], dtype=float32)
    """
    x, axis = _colors_of(images, data_format)
    hue, saturation, value = _planes(x, axis)
    sixths = (hue % 1.0) * 6.0
    amounts = (
        clip(absolute(sixths - 3.0) - 1.0, 0.0, 1.0),
        clip(2.0 - absolute(sixths - 2.0), 0.0, 1.0),
        clip(2.0 - absolute(sixths - 4.0), 0.0, 1.0),
    )
    planes = [value * (1.0 - saturation + saturation * amount) for amount in amounts]
    return stack(planes, axis=axis)
