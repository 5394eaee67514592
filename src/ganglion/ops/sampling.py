"""Reading images at positions between their pixels: affine maps and padding.

Rows of pixels are read as a long axis of width times channels, so that a loop over
them fills its vectors, and everything up to the four pixels of a position is arithmetic
on its coordinates: a single loop computes the result and nothing in between is stored.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ganglion.compiler.ir import contraction
from ganglion.compiler.ir.graph import Value
from ganglion.ops.dispatch import astype, op
from ganglion.ops.numpy import add, clip, floor, less_equal, logical_and, mod, where
from ganglion.ops.shapes import reshape
from ganglion.system.records import record
from ganglion.variables import read

__all__: list[str] = []

FILL_MODES = ("reflect", "wrap", "constant", "nearest")
INTERPOLATIONS = ("nearest", "bilinear")


@record(guarded=True)
class Filling:
    """The pixels outside of an image.

    `like_scipy` is the meaning of `constant` and `wrap` in `scipy.ndimage`: beyond the
    centre of the last pixel all is constant, and the first pixel lies on the last one.
    """

    mode: str = "nearest"
    value: float = 0.0
    like_scipy: bool = False


@op
def affine(
    images: Any,
    to_column: tuple[Any, Any, Any],
    to_row: tuple[Any, Any, Any],
    filling: Filling,
    interpolation: str = "bilinear",
    flips: tuple[Any, Any] = (None, None),
) -> Any:
    """Return images whose pixel (row, column) is read at an affine map of its position.

    With ``to_column = (a, b, c)`` and ``to_row = (d, e, f)``, one number for each image
    or one for all, it is read at column ``a column + b row + c`` and row
    ``d column + e row + f``. None for `b` or `d` means that nothing is rotated, and
    spares most of the arithmetic. `flips` are conditions for each image: whether the
    result is mirrored from left to right and from top to bottom.
    """
    x = read(images)
    _, height, width, channels = x.shape
    columns = _pixel_numbers(np.repeat(np.arange(width), channels), width, flips[0])
    rows = _pixel_numbers(np.arange(height)[:, None], height, flips[1])
    return sampled(
        x,
        _mapped(to_row, rows, columns),
        _mapped(to_column, rows, columns),
        filling,
        interpolation,
    )


def _pixel_numbers(numbers: np.ndarray, size: int, flips: Any) -> Any:
    """Return the numbers of pixels, counted from the other end where flipped."""
    forward = numbers.astype("float32")[None]
    forward = forward[None] if forward.ndim == 2 else forward
    if flips is None:
        return forward
    return where(each_image(flips), np.float32(size - 1) - forward, forward)


def each_image(value: Any) -> Any:
    """Give one number for each image the axes of rows and columns."""
    value = read(value)
    return reshape(value, (value.size, 1, 1)) if value.size > 1 else value


def _mapped(factors: tuple[Any, Any, Any], rows: Any, columns: Any) -> Any:
    by_column, by_row, total = factors
    if by_row is not None:
        total = each_image(by_row) * rows + each_image(total)
    else:
        total = each_image(total)
    return total if by_column is None else each_image(by_column) * columns + total


@op
def sampled(
    images: Any, rows: Any, columns: Any, filling: Filling, interpolation: str
) -> Any:
    """Return images read at coordinates.

    `rows` has the shape (images or 1, rows or 1, 1 or width times channels), `columns`
    (images or 1, 1 or rows, width times channels): every channel has its positions.
    """
    x = read(images)
    rows, columns = read(rows), read(columns)
    reader = _Reader(x, rows.dtype, filling, columns.shape[-1])
    inside = None
    if filling.mode == "constant" and filling.like_scipy:
        inside = logical_and(within(rows, x.shape[1]), within(columns, x.shape[2]))
    if filling.like_scipy and filling.mode == "wrap":
        rows, columns = _wound(rows, x.shape[1]), _wound(columns, x.shape[2])
    if interpolation == "nearest":
        outputs = reader.pixel(
            reader.row(floor(rows + 0.5)), reader.column(floor(columns + 0.5))
        )
    else:
        outputs = _between(reader, rows, columns)
    if inside is not None:
        outputs = where(inside, outputs, float(filling.value))
    return reshape(outputs, (*outputs.shape[:2], -1, x.shape[3]))


def _between(reader: _Reader, rows: Any, columns: Any) -> Value:
    """Mix the four pixels around a position, each read once."""
    up, left = floor(rows), floor(columns)
    low, right = rows - up, columns - left
    high, near = 1.0 - low, 1.0 - right
    above, below = reader.row(up), reader.row(up + 1.0)
    column, next_column = reader.column(left), reader.column(left + 1.0)
    upper = (
        reader.pixel(above, column) * near + reader.pixel(above, next_column) * right
    )
    lower = (
        reader.pixel(below, column) * near + reader.pixel(below, next_column) * right
    )
    return upper * high + lower * low


class _Reader:
    """Pixels by integers of rows and columns, which may be outside."""

    def __init__(self, x: Value, dtype: Any, filling: Filling, width: int) -> None:
        count, self._height, self._width, self._channels = x.shape
        self._flat, self._dtype, self._filling = reshape(x, (x.size,)), dtype, filling
        pixels = x.size // count
        self._starts = np.arange(count, dtype="int32").reshape(-1, 1, 1) * pixels
        numbers = np.arange(self._channels, dtype="int32")
        self._channel = np.tile(numbers, width // self._channels)

    def row(self, position: Any) -> tuple[Any, Any]:
        """Return where a row of each image begins, and whether it is inside."""
        number = folded(position, self._height, self._filling)
        start = add(number * (self._width * self._channels), self._starts)
        return start, self._visible(position, self._height)

    def column(self, position: Any) -> tuple[Any, Any]:
        """Return where a column is within its row, and whether it is inside."""
        number = folded(position, self._width, self._filling)
        return add(number * self._channels, self._channel), self._visible(
            position, self._width
        )

    def _visible(self, position: Any, size: int) -> Any:
        filling = self._filling
        known = filling.mode == "constant" and not filling.like_scipy
        return within(position, size) if known else None

    def pixel(self, row: tuple[Any, Any], column: tuple[Any, Any]) -> Value:
        """Return the pixels at rows and columns."""
        read_there = contraction.gather(self._flat, add(row[0], column[0]))
        pixels = astype(read_there, self._dtype)
        if row[1] is None:
            return pixels
        seen = logical_and(row[1], column[1])
        return where(seen, pixels, float(self._filling.value))


def within(position: Any, size: int) -> Any:
    """Return whether positions are between the first pixel and the last."""
    return logical_and(less_equal(0.0, position), less_equal(position, float(size - 1)))


def _wound(position: Any, size: int) -> Any:
    """Wrap coordinates around an image whose first pixel is on its last."""
    around = mod(position, float(max(size - 1, 1)))
    return where(within(position, size), position, around)


def folded(position: Any, size: int, filling: Filling) -> Any:
    """Return the pixel of an integer position, which may be outside."""
    if filling.mode == "reflect":
        around = mod(position, float(2 * size))
        position = where(around < float(size), around, float(2 * size - 1) - around)
    elif filling.mode == "mirror":
        around = mod(position, float(max(2 * size - 2, 1)))
        position = where(around < float(size), around, float(2 * size - 2) - around)
    elif filling.mode == "wrap" and not filling.like_scipy:
        position = mod(position, float(size))
    # Rounding must not lead out of the image either.
    return astype(clip(position, 0.0, float(size - 1)), "int32")
