"""Keras 2's functions on one image: with given parameters, or drawn at random.

They keep Keras 2's habit of channels first unless the axes say otherwise.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ganglion.compat.image_generator import changes
from ganglion.ops.sampling import Filling
from ganglion.variables import draw_seed


def apply_affine_transform(
    x: Any,
    theta: float = 0,
    tx: float = 0,
    ty: float = 0,
    shear: float = 0,
    zx: float = 1,
    zy: float = 1,
    row_axis: int = 1,
    col_axis: int = 2,
    channel_axis: int = 0,
    fill_mode: str = "nearest",
    cval: float = 0.0,
    order: int = 1,
) -> np.ndarray:
    """Turn (degrees), shift (pixels), shear (degrees) and zoom one image.

    >>> image = np.arange(4.0).reshape(1, 2, 2)
    >>> apply_affine_transform(image, ty=1).tolist()
    [[[2.0, 3.0], [2.0, 3.0]]]
    """
    x = np.asarray(x)
    if sorted((row_axis, col_axis, channel_axis)) != [0, 1, 2] or x.ndim != 3:
        raise ValueError(
            "One image has three axes, 0, 1 and 2, for rows, columns and channels; got "
            f"{row_axis}, {col_axis}, {channel_axis} for an image of shape {x.shape}."
        )
    if col_axis < row_axis:
        raise ValueError("`row_axis` must come before `col_axis`.")
    drawn = {"theta": theta, "tx": tx, "ty": ty, "shear": shear}
    changed = {k: v for k, v in drawn.items() if v != 0}
    if zx != 1 or zy != 1:
        changed |= {"zx": zx, "zy": zy}
    if not changed:
        return x
    parameters = {k: np.array([v], "float32") for k, v in changed.items()}
    order_of_axes = (row_axis, col_axis, channel_axis)
    image = np.transpose(x, order_of_axes)[None].astype("float32")
    filling = Filling(fill_mode, cval, like_scipy=True)
    moved = np.asarray(changes.moved(image, parameters, filling, order))[0]
    return np.transpose(moved, np.argsort(order_of_axes)).astype(x.dtype)


def apply_channel_shift(x: Any, intensity: float, channel_axis: int = 0) -> np.ndarray:
    """Add to all channels of one image, between its smallest and its largest value."""
    x = np.asarray(x)
    return np.clip(x + intensity, x.min(), x.max())


def apply_brightness_shift(x: Any, brightness: float, scale: bool = True) -> np.ndarray:
    """Brighten one image; with `scale`, it is stretched to 0 to 255 first."""
    x = np.asarray(x, "float32")
    if scale:
        spread = x.max() - x.min()
        x = (x - x.min()) / (spread if spread > 0 else 1) * 255
    factor = np.array([brightness], "float32")
    return np.asarray(changes.brightened(x[None], factor))[0]


def _uniform(low: float, high: float, count: int = 1) -> Any:
    drawn = np.random.RandomState(draw_seed()).uniform(low, high, count)
    return drawn if count > 1 else drawn[0]


def random_rotation(
    x: Any,
    rg: float,
    row_axis: int = 1,
    col_axis: int = 2,
    channel_axis: int = 0,
    fill_mode: str = "nearest",
    cval: float = 0.0,
    interpolation_order: int = 1,
) -> np.ndarray:
    """Turn one image by up to `rg` degrees."""
    theta = _uniform(-rg, rg)
    rest = (row_axis, col_axis, channel_axis, fill_mode, cval, interpolation_order)
    return apply_affine_transform(x, theta, 0, 0, 0, 1, 1, *rest)


def random_shift(
    x: Any,
    wrg: float,
    hrg: float,
    row_axis: int = 1,
    col_axis: int = 2,
    channel_axis: int = 0,
    fill_mode: str = "nearest",
    cval: float = 0.0,
    interpolation_order: int = 1,
) -> np.ndarray:
    """Shift one image by parts of its width and height."""
    tx = _uniform(-hrg, hrg) * x.shape[row_axis]
    ty = _uniform(-wrg, wrg) * x.shape[col_axis]
    rest = (row_axis, col_axis, channel_axis, fill_mode, cval, interpolation_order)
    return apply_affine_transform(x, 0, tx, ty, 0, 1, 1, *rest)


def random_shear(
    x: Any,
    intensity: float,
    row_axis: int = 1,
    col_axis: int = 2,
    channel_axis: int = 0,
    fill_mode: str = "nearest",
    cval: float = 0.0,
    interpolation_order: int = 1,
) -> np.ndarray:
    """Shear one image by up to `intensity` degrees."""
    shear = _uniform(-intensity, intensity)
    rest = (row_axis, col_axis, channel_axis, fill_mode, cval, interpolation_order)
    return apply_affine_transform(x, 0, 0, 0, shear, 1, 1, *rest)


def random_zoom(
    x: Any,
    zoom_range: Any,
    row_axis: int = 1,
    col_axis: int = 2,
    channel_axis: int = 0,
    fill_mode: str = "nearest",
    cval: float = 0.0,
    interpolation_order: int = 1,
) -> np.ndarray:
    """Zoom an image, each axis by a separate number from a range."""
    if len(zoom_range) != 2:
        raise ValueError(f"`zoom_range` must be two numbers, got {zoom_range!r}.")
    low, high = zoom_range
    zx, zy = _uniform(low, high, 2)
    rest = (row_axis, col_axis, channel_axis, fill_mode, cval, interpolation_order)
    return apply_affine_transform(x, 0, 0, 0, 0, zx, zy, *rest)


def random_channel_shift(
    x: Any, intensity_range: float, channel_axis: int = 0
) -> np.ndarray:
    """Add up to `intensity_range` to all channels of one image."""
    drawn = _uniform(-intensity_range, intensity_range)
    return apply_channel_shift(x, drawn, channel_axis)


def random_brightness(x: Any, brightness_range: Any, scale: bool = True) -> np.ndarray:
    """Brighten one image by a factor from a range."""
    if len(brightness_range) != 2:
        raise ValueError(
            f"`brightness_range` must be two numbers, got {brightness_range!r}."
        )
    return apply_brightness_shift(x, _uniform(*brightness_range), scale)
