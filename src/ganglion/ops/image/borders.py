"""Borders: cutting them off images, and adding them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ganglion.compiler.ir.graph import ShapeError
from ganglion.ops.dispatch import op
from ganglion.ops.image.layout import opened
from ganglion.ops.joining import pad

__all__ = ["crop_images", "pad_images"]


def _sides(
    word: str, ends: tuple[str, str, str], values: tuple[Any, Any, Any], size: int
) -> tuple[int, int]:
    """Return the sizes to crop or pad before and after, from two of three numbers."""
    before, after, target = ends[0] + word, ends[1] + word, ends[2]
    names = (before, after, target)
    if values.count(None) != 1:
        received = ", ".join(
            f"{name}={value}" for name, value in zip(names, values, strict=True)
        )
        raise ValueError(
            f"Must specify exactly two of {', '.join(names)}. Received: {received}"
        )
    first, last, total = values
    _refuse_negative(names, values)
    spare = 0
    if total is not None:
        spare = size - total if word == "_cropping" else total - size
    first = spare - last if first is None else first
    last = spare - first if last is None else last
    if word == "_cropping":
        total = size - first - last
    _refuse_negative(names, (first, last, total))
    return int(first), int(last)


def _refuse_negative(names: Sequence[str], values: Sequence[int | None]) -> None:
    for name, value in zip(names, values, strict=True):
        if value is not None and value < 0:
            raise ShapeError(f"{name} must be >= 0. Received: {name}={value}")


_HEIGHT = ("top", "bottom", "target_height")
_WIDTH = ("left", "right", "target_width")


@op
def crop_images(
    images: Any,
    top_cropping: int | None = None,
    left_cropping: int | None = None,
    bottom_cropping: int | None = None,
    right_cropping: int | None = None,
    target_height: int | None = None,
    target_width: int | None = None,
    data_format: str | None = None,
) -> Any:
    """Crop images: by two of top, bottom and height; of left, right and width.

    >>> import numpy as np
    >>> image = np.ones((5, 5, 1))
    >>> crop_images(image, 1, 1, target_height=3, target_width=2).shape
    (3, 2, 1)
    """
    x, layout = opened(images, data_format)
    rows, columns = x.shape[1:3]
    down = (top_cropping, bottom_cropping, target_height)
    across = (left_cropping, right_cropping, target_width)
    top, bottom = _sides("_cropping", _HEIGHT, down, rows)
    left, right = _sides("_cropping", _WIDTH, across, columns)
    return layout.restored(x[:, top : rows - bottom, left : columns - right, :])


@op
def pad_images(
    images: Any,
    top_padding: int | None = None,
    left_padding: int | None = None,
    bottom_padding: int | None = None,
    right_padding: int | None = None,
    target_height: int | None = None,
    target_width: int | None = None,
    data_format: str | None = None,
) -> Any:
    """Add borders of zeros: two of top, bottom and height; of left, right and width.

    >>> import numpy as np
    >>> image = np.ones((2, 2, 1))
    >>> pad_images(image, 1, 1, target_height=4, target_width=3).shape
    (4, 3, 1)
    """
    x, layout = opened(images, data_format)
    rows, columns = x.shape[1:3]
    down = (top_padding, bottom_padding, target_height)
    across = (left_padding, right_padding, target_width)
    sides = (
        (0, 0),
        _sides("_padding", _HEIGHT, down, rows),
        _sides("_padding", _WIDTH, across, columns),
        (0, 0),
    )
    return layout.restored(pad(x, sides))
