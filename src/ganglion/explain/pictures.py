"""Heat maps as pictures: colours, overlays and contact sheets."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ganglion.datasets import png
from ganglion.explain.maps import resized
from ganglion.saving.files import write_checked

# Inferno, which grows evenly brighter to the eye: a polynomial in the heat for red,
# green and blue, lowest power first (fitted by Matt Zucker, public domain).
_INFERNO = np.array(
    [
        [0.00021894, 0.00165100, -0.01948090],
        [0.10651342, 0.56395644, 3.93271239],
        [11.60249308, -3.97285397, -15.94239411],
        [-41.70399613, 17.43639888, 44.35414520],
        [77.16293570, -33.40235894, -81.80730926],
        [-71.31942824, 32.62606426, 73.20951986],
        [25.13112622, -12.24266895, -23.07032500],
    ]
)
_TABLE_SIZE = 256
WRONG = (230, 60, 60)  # the frame of a picture that was taken for something else
_GAP = 4
_PAPER = 255


def heat_colors(maps: Any) -> np.ndarray:
    """Return heat from 0 to 1 as colours, uint8 with a last axis of three.

    >>> heat_colors([0.0, 1.0]).tolist()
    [[0, 0, 0], [250, 255, 168]]
    """
    heat = np.nan_to_num(np.asarray(maps, "float64")).clip(0, 1)
    rows = np.rint(heat * (_TABLE_SIZE - 1)).astype(int)
    powers = np.linspace(0, 1, _TABLE_SIZE)[:, None] ** np.arange(len(_INFERNO))
    table = (powers @ _INFERNO).clip(0, 1)
    return (table * 255).round().astype("uint8")[rows]


def overlay(
    images: Any, maps: Any, scale: int = 1, strength: float = 0.6
) -> np.ndarray:
    """Lay heat over images: cold areas are unchanged, hot ones glow.

    Args:
        images: Pixels (images, height, width, 1 or 3): integers, or floats whose
            range is found by their extremes.
        maps: Heat from 0 to 1, (images, any height, any width).
        scale: How many times to enlarge; the images stay in squares, the heat smooth.
        strength: How much of the picture the hottest areas hide.
    """
    pixels = as_pixels(images)
    pixels = pixels.repeat(scale, axis=1).repeat(scale, axis=2)
    heat = resized(np.asarray(maps, "float32"), pixels.shape[1:3])
    cover = (strength * heat.clip(0, 1))[..., np.newaxis]
    mixed = pixels * (1 - cover) + heat_colors(heat) * cover
    return mixed.round().astype("uint8")


def as_pixels(images: Any) -> np.ndarray:
    """Return images of any kind as colours from 0 to 255.

    >>> as_pixels(np.array([[[[-1.0], [1.0]]]]))[0, 0].tolist()
    [[0, 0, 0], [255, 255, 255]]
    """
    array = np.asarray(images)
    if array.ndim == 3:
        array = array[..., np.newaxis]
    if array.ndim != 4 or array.shape[3] not in (1, 3, 4):
        raise ValueError(
            f"Images have the shape (images, height, width, 1 or 3), not {array.shape}."
        )
    if array.dtype != np.uint8:
        array = _spread_out(array.astype("float32"))
    array = array[..., :3]
    return array.repeat(3, axis=3) if array.shape[3] == 1 else array


def _spread_out(array: np.ndarray) -> np.ndarray:
    low, high = float(array.min()), float(array.max())
    if low >= 0 and 1 < high <= 255:
        return array.round().astype("uint8")
    if low >= 0 and high <= 1:
        return (array * 255).round().astype("uint8")
    return ((array - low) / ((high - low) or 1) * 255).round().astype("uint8")


def contact_sheet(
    images: Any,
    overlays: Any,
    *,
    columns: int = 6,
    is_wrong: Sequence[bool] | np.ndarray | None = None,
) -> np.ndarray:
    """Return one picture of many pairs: an image, and the same with its heat.

    Args:
        images: Pixels of any size, (images, height, width, 1 or 3).
        overlays: What `overlay` made of them.
        columns: How many pairs are side by side.
        is_wrong: Which images were taken for another class than theirs: these get a
            red frame.
    """
    warm = np.asarray(overlays)
    count, height, width = warm.shape[:3]
    plain = as_pixels(images)
    plain = plain.repeat(height // plain.shape[1], axis=1)
    plain = plain.repeat(width // plain.shape[2], axis=2)
    columns = max(1, min(columns, count))
    rows = -(-count // columns)
    pair = 2 * width + _GAP // 2
    step_down, step_right = height + 2 * _GAP, pair + 3 * _GAP
    shape = (rows * step_down + _GAP, columns * step_right + _GAP, 3)
    sheet = np.full(shape, _PAPER, "uint8")
    for number in range(count):
        top = number // columns * step_down + _GAP + _GAP // 2
        left = number % columns * step_right + 2 * _GAP
        if is_wrong is not None and is_wrong[number]:
            frame = _GAP - 1
            across = slice(left - frame, left + pair + frame)
            sheet[top - frame : top + height + frame, across] = WRONG
        sheet[top : top + height, left : left + width] = plain[number]
        right = left + pair - width
        sheet[top : top + height, right : right + width] = warm[number]
    return sheet


def write_png(path: str | os.PathLike[str], image: np.ndarray) -> None:
    """Write an image to a PNG file, atomically."""
    data = png.encode(image)
    write_checked(path, lambda file: file.write(data))
