"""Reading images at other positions: affine and perspective maps, any coordinates."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np

from ganglion.compiler.ir import contraction
from ganglion.compiler.ir.graph import ShapeError, Value
from ganglion.ops.dispatch import astype, floating, op
from ganglion.ops.image.filters import gaussian_blur
from ganglion.ops.image.layout import as_before, as_floats, opened
from ganglion.ops.joining import stack
from ganglion.ops.numpy import (
    equal,
    floor,
    logical_and,
    multiply,
    round,  # noqa: A004
    where,
)
from ganglion.ops.sampling import (
    FILL_MODES,
    INTERPOLATIONS,
    Filling,
    each_image,
    folded,
    sampled,
    within,
)
from ganglion.ops.shapes import expand_dims, reshape
from ganglion.variables import read

__all__ = [
    "affine_transform", "elastic_transform", "map_coordinates", "perspective_transform",
]  # fmt: skip

ALL_FILL_MODES = (*FILL_MODES, "mirror")
_NOWHERE = -1e6  # a position outside of every image


def _checked(name: str, value: Any, known: tuple[Any, ...]) -> Any:
    if value not in known:
        raise ValueError(
            f"Invalid value for argument `{name}`. Expected of one {known}. Received: "
            f"{name}={value}"
        )
    return value


@op
def affine_transform(
    images: Any,
    transform: Any,
    interpolation: str = "bilinear",
    fill_mode: str = "constant",
    fill_value: float = 0,
    data_format: str | None = None,
) -> Any:
    """Read every pixel (x, y) of the result at a map of its position in the images.

    With the eight numbers a0, a1, a2, b0, b1, b2, c0, c1 of `transform`, for all images
    or for each, that is ((a0 x + a1 y + a2) / k, (b0 x + b1 y + b2) / k), where k is
    c0 x + c1 y + 1.

    >>> image = np.array([1, 2, 3], "float32").reshape(1, 3, 1)
    >>> shift = np.array([1, 0, 1, 0, 1, 0, 0, 0], "float32")
    >>> affine_transform(image, shift).ravel()
    array([2., 3., 0.], dtype=float32)
    """
    _checked("interpolation", interpolation, INTERPOLATIONS)
    _checked("fill_mode", fill_mode, ALL_FILL_MODES)
    x, layout = opened(images, data_format)
    numbers = read(transform)
    if numbers.ndim not in (1, 2):
        raise ValueError(
            "Invalid transform rank: expected rank 1 (single transform) or rank 2 "
            f"(batch of transforms). Received input with shape: transform.shape="
            f"{numbers.shape}"
        )
    if numbers.shape[-1] != 8:
        raise ValueError(
            f"`transform` needs eight numbers, got transform.shape={numbers.shape}"
        )
    is_flat = isinstance(transform, np.ndarray) and not transform[..., 6:].any()
    factors = reshape(numbers, (-1, 8))
    filling = Filling(fill_mode, float(fill_value))
    return layout.restored(_projected(x, factors, filling, interpolation, is_flat))


def _projected(
    x: Value, transform: Value, filling: Filling, interpolation: str, is_flat: bool
) -> Value:
    if transform.shape[0] not in (1, x.shape[0]):
        raise ShapeError(
            f"{transform.shape[0]} transforms do not fit {x.shape[0]} images"
        )
    dtype = as_floats(x).dtype
    factors = astype(transform, dtype)
    a0, a1, a2, b0, b1, b2, c0, c1 = (each_image(factors[:, i]) for i in range(8))
    _, height, width, channels = x.shape
    columns = np.repeat(np.arange(width), channels)[None, None, :].astype(dtype)
    rows = np.arange(height)[None, :, None].astype(dtype)
    column = a0 * columns + a1 * rows + a2
    row = b0 * columns + b1 * rows + b2
    if not is_flat:
        depth = c0 * columns + c1 * rows + 1.0
        is_far = equal(depth, 0.0)
        depth = where(is_far, 1.0, depth)
        column = where(is_far, _NOWHERE, column / depth)
        row = where(is_far, _NOWHERE, row / depth)
    return as_before(sampled(x, row, column, filling, interpolation), x.dtype)


@op
def perspective_transform(
    images: Any,
    start_points: Any,
    end_points: Any,
    interpolation: str = "bilinear",
    fill_value: float = 0,
    data_format: str | None = None,
) -> Any:
    """Move four points (x, y) of images to four others, and all between them along.

    >>> image = np.arange(9, dtype="float32").reshape(3, 3, 1)
    >>> corners = np.array([[0, 0], [2, 0], [0, 2], [2, 2]], "float32")
    >>> np.abs(perspective_transform(image, corners, corners) - image).max() < 1e-5
    np.True_
    """
    _checked("interpolation", interpolation, INTERPOLATIONS)
    x, layout = opened(images, data_format)
    start, end = floating(start_points), floating(end_points)
    for name, points in (("start_points", start), ("end_points", end)):
        if points.ndim not in (2, 3) or points.shape[-2:] != (4, 2):
            raise ValueError(
                f"Invalid {name} shape: expected (4,2) for a single image or (N,4,2) "
                f"for a batch. Received shape: {points.shape}"
            )
    if start.shape != end.shape:
        raise ValueError(
            "start_points and end_points must have the same shape. Received "
            f"start_points.shape={start.shape}, end_points.shape={end.shape}"
        )
    transform = compute_homography_matrix(start, end)
    filling = Filling("constant", float(fill_value))
    return layout.restored(_projected(x, transform, filling, interpolation, False))


Matrix = list[list[Value]]


@op
def compute_homography_matrix(start_points: Any, end_points: Any) -> Any:
    """Return the eight numbers that map each of four end points to its start point.

    The matrix of a quadrilateral takes the three unit vectors to three of its corners
    and their sum to the fourth; one such matrix after the inverse of another maps
    corners to corners. It is arithmetic on coordinates, with gradients, for a batch.
    """
    to_start, to_end = _frame(floating(start_points)), _frame(floating(end_points))
    back = _adjugate(to_end)
    product = [
        [sum(to_start[i][k] * back[k][j] for k in range(3)) for j in range(3)]
        for i in range(3)
    ]
    numbers = [number for row in product for number in row]
    return stack([number / numbers[8] for number in numbers[:8]], axis=-1)


def _frame(points: Value) -> Matrix:
    corners = reshape(points, (-1, 4, 2))
    xs = [corners[:, i, 0] for i in range(4)]
    ys = [corners[:, i, 1] for i in range(4)]
    three: Matrix = [xs[:3], ys[:3], [x * 0.0 + 1.0 for x in xs[:3]]]
    inverse = _adjugate(three)
    determinant = sum(three[0][k] * inverse[k][0] for k in range(3))
    # How much of each corner makes up the fourth one.
    shares = [
        (row[0] * xs[3] + row[1] * ys[3] + row[2]) / determinant for row in inverse
    ]
    return [[row[j] * shares[j] for j in range(3)] for row in three]


def _adjugate(m: Matrix) -> Matrix:
    """Return the inverse of a matrix times its determinant."""

    def cofactor(i: int, j: int) -> Value:
        (a, b), (c, d) = (
            [m[row][column] for column in ((i + 1) % 3, (i + 2) % 3)]
            for row in ((j + 1) % 3, (j + 2) % 3)
        )
        return a * d - b * c

    return [[cofactor(i, j) for j in range(3)] for i in range(3)]


# ---- any coordinates -----------------------------------------------------------------


@op
def map_coordinates(
    inputs: Any,
    coordinates: Any,
    order: int,
    fill_mode: str = "constant",
    fill_value: float = 0,
) -> Any:
    """Read an array at coordinates, one row of them for each of its axes.

    `order` 0 reads the nearest element, 1 mixes those around.

    >>> map_coordinates(np.array([1.0, 2.0], "float32"), np.array([[0.5]]), 1)
    array([1.5], dtype=float32)
    """
    x = read(inputs)
    if isinstance(coordinates, (list, tuple)):
        coordinates = stack([floating(row) for row in coordinates], axis=0)
    positions = floating(coordinates)
    if positions.shape[0] != x.ndim:
        raise ValueError(
            "First dim of `coordinates` must be the same as the rank of `inputs`. "
            f"Received inputs with shape: {x.shape} and coordinate leading dim of "
            f"{positions.shape[0]}"
        )
    if positions.ndim < 2:
        raise ValueError(
            "Invalid coordinates rank: expected at least rank 2. Received input with "
            f"shape: {positions.shape}"
        )
    _checked("fill_mode", fill_mode, ALL_FILL_MODES)
    _checked("order", order, (0, 1))
    filling = Filling(fill_mode, float(fill_value))
    axes = [
        _neighbours(positions[axis], x.shape[axis], order, filling)
        for axis in range(x.ndim)
    ]
    strides = [int(np.prod(x.shape[axis + 1 :])) for axis in range(x.ndim)]
    flat, dtype = reshape(x, (x.size,)), positions.dtype
    terms = [
        _weighted(flat, corner, strides, filling, dtype)
        for corner in itertools.product(*axes)
    ]
    return as_before(functools.reduce(lambda a, b: a + b, terms), x.dtype)


def _neighbours(
    position: Value, size: int, order: int, filling: Filling
) -> list[tuple[Any, Any, Any]]:
    """Return the elements to read along an axis: number, whether it is, weight."""
    if order == 0:
        nearest = round(position)
        places = [(nearest, None)]
    else:
        low = floor(position)
        share = position - low
        places = [(low, 1.0 - share), (low + 1.0, share)]
    is_known = filling.mode == "constant"
    return [
        (folded(place, size, filling), within(place, size) if is_known else None, share)
        for place, share in places
    ]


def _weighted(
    flat: Value, corner: Any, strides: list[int], filling: Filling, dtype: np.dtype
) -> Value:
    numbers, insides, shares = zip(*corner, strict=True)
    index = functools.reduce(
        lambda a, b: a + b,
        [number * stride for number, stride in zip(numbers, strides, strict=True)],
    )
    values = astype(contraction.gather(flat, index), dtype)
    if insides[0] is not None:
        is_inside = functools.reduce(logical_and, insides)
        values = where(is_inside, values, filling.value)
    return functools.reduce(multiply, [s for s in shares if s is not None], values)


@op
def elastic_transform(
    images: Any,
    alpha: float = 20.0,
    sigma: float = 5.0,
    interpolation: str = "bilinear",
    fill_mode: str = "reflect",
    fill_value: float = 0.0,
    seed: Any = None,
    data_format: str | None = None,
) -> Any:
    """Distort images by smooth random shifts: `alpha` is how far, `sigma` how smooth.

    >>> elastic_transform(np.ones((4, 4, 1), "float32"), seed=1).shape
    (4, 4, 1)
    """
    _checked("interpolation", interpolation, INTERPOLATIONS)
    _checked("fill_mode", fill_mode, ALL_FILL_MODES)
    x, layout = opened(images, data_format)
    filling = Filling(fill_mode, float(fill_value))
    size = (6 * int(sigma)) | 1
    moved = distorted(x, alpha, sigma, size, seed, filling, interpolation)
    return layout.restored(moved)


def distorted(
    x: Value,
    alpha: Any,
    sigma: Any,
    size: int,
    seed: Any,
    filling: Filling,
    interpolation: str,
) -> Value:
    """Read a batch of images at smooth random shifts; `alpha`, `sigma` may be traced.

    `size` is that of the filter that smooths them.
    """
    from ganglion import random  # which is written in ops itself

    dtype = as_floats(x).dtype
    count, height, width, channels = x.shape
    noise = random.normal((count, height, width, 2), 0.0, 1.0, dtype.name, seed)
    smooth = gaussian_blur(noise * sigma, (size, size), (sigma, sigma), "channels_last")
    shifts = smooth * alpha
    rows = np.arange(height, dtype=dtype)[:, None] + shifts[..., 0]
    columns = np.arange(width, dtype=dtype) + shifts[..., 1]
    along = (count, height, width * channels)
    row, column = (
        reshape(expand_dims(n, 3) + np.zeros(channels, dtype), along)
        for n in (rows, columns)
    )
    return as_before(sampled(x, row, column, filling, interpolation), x.dtype)
