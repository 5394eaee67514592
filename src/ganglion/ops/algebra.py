"""Products and sums over vectors: cross, Kronecker, correlation, distances."""

from __future__ import annotations

from typing import Any

import numpy as np

from ganglion.compiler.ir import arrays
from ganglion.compiler.ir import pointwise as p
from ganglion.compiler.ir import shaping as s
from ganglion.compiler.ir.graph import Constant, ShapeError, Value
from ganglion.ops.dispatch import (
    astype,
    broadcast_all,
    common_type,
    floating,
    floating_with_room,
    numeric,
    of_common_type,
    one_axis,
    op,
    promoted,
    stretch,
)
from ganglion.ops.indexing import diag
from ganglion.ops.joining import stack
from ganglion.ops.numpy import clip, sqrt
from ganglion.ops.products import matmul
from ganglion.ops.reduction import mean
from ganglion.ops.shapes import flip, moveaxis, slice_axis
from ganglion.ops.windows import conv
from ganglion.variables import read

__all__ = [
    "cdist", "corrcoef", "correlate", "cross", "diagflat", "kron", "trapezoid",
    "vander",
]  # fmt: skip


@op
def cdist(x: Any, y: Any) -> Any:
    """Return the distance of every row of x from every row of y."""
    a, b = (floating(value) for value in of_common_type(x, y))
    if a.ndim < 2 or b.ndim < 2:
        raise ShapeError(f"cdist: needs rows of vectors, got {a.shape} and {b.shape}")
    if a.shape[-1] != b.shape[-1]:
        raise ShapeError(f"cdist: vectors of {a.shape[-1]} and {b.shape[-1]} numbers")
    rows = s.reshape(a, shape=(*a.shape[:-1], 1, a.shape[-1]))
    columns = s.reshape(b, shape=(*b.shape[:-2], 1, *b.shape[-2:]))
    apart = p.subtract(*broadcast_all([rows, columns]))
    return p.sqrt(s.sum_(p.multiply(apart, apart), axes=(apart.ndim - 1,)))


@op
def cross(
    x1: Any,
    x2: Any,
    axisa: int = -1,
    axisb: int = -1,
    axisc: int = -1,
    axis: int | None = None,
) -> Any:
    """Return the vector products along an axis of 2 or 3 numbers."""
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = map(numeric, of_common_type(x1, x2))
    first, second = _components(a, axisa), _components(b, axisb)
    third = [_minus(first, second, 0, 1)]
    if len(first) == len(second) == 2:
        return third[0]
    rest = [_minus(first, second, 1, 2), _minus(first, second, 2, 0)]
    return stack([*rest, *third], axis=axisc)


def _components(value: Value, axis: int) -> list[Value]:
    axis = one_axis(axis, value.ndim)
    count = value.shape[axis]
    if count not in (2, 3):
        raise ShapeError(f"cross: vectors have 2 or 3 numbers, not {count}")
    shape = (*value.shape[:axis], *value.shape[axis + 1 :])
    parts = [slice_axis(value, axis, number, number + 1) for number in range(count)]
    return [s.reshape(part, shape=shape) for part in parts]


def _minus(a: list[Value], b: list[Value], i: int, j: int) -> Value:
    """Return a[i] b[j] - a[j] b[i]; a third component that is missing is 0."""

    def product(left: list[Value], right: list[Value]) -> Value:
        if i == 2 or j == 2:
            zero = s.fill(0, a[0])
            padded = [[*side, zero][:3] for side in (left, right)]
            return p.multiply(*broadcast_all([padded[0][i], padded[1][j]]))
        return p.multiply(*broadcast_all([left[i], right[j]]))

    first = product(a, b)
    second = product(b, a)
    return p.subtract(*broadcast_all([first, second]))


@op
def kron(x1: Any, x2: Any) -> Any:
    """Return the Kronecker product: every element of x1 times all of x2."""
    a, b = map(numeric, of_common_type(x1, x2))
    rank = max(a.ndim, b.ndim)
    outer = (1,) * (rank - a.ndim) + a.shape
    inner = (1,) * (rank - b.ndim) + b.shape
    left = s.reshape(a, shape=tuple(n for size in outer for n in (size, 1)))
    right = s.reshape(b, shape=tuple(n for size in inner for n in (1, size)))
    sizes = tuple(n * m for n, m in zip(outer, inner, strict=True))
    return s.reshape(p.multiply(*broadcast_all([left, right])), shape=sizes)


@op
def corrcoef(x: Any) -> Any:
    """Return the correlations of rows, each a variable, with each other."""
    value = floating_with_room(x)
    if value.ndim > 2:
        raise ShapeError(f"corrcoef: rows of numbers, not {value.shape}")
    rows = s.reshape(value, shape=(1, value.size)) if value.ndim < 2 else value
    centred = rows - mean(rows, axis=1, keepdims=True)
    products = matmul(centred, s.transpose(centred, axes=(1, 0)))
    size = sqrt(_diagonal(products))
    across = s.reshape(size, shape=(1, size.size))
    down = s.reshape(size, shape=(size.size, 1))
    correlations = clip(products / down / across, -1.0, 1.0)
    return correlations if value.ndim == 2 else s.reshape(correlations, shape=())


def _diagonal(matrix: Value) -> Value:
    on_it = Constant(np.eye(matrix.shape[0], dtype=bool))
    return s.sum_(p.where(on_it, matrix, s.fill(0, matrix)), axes=(1,))


@op
def correlate(x1: Any, x2: Any, mode: str = "valid") -> Any:
    """Return the sums of products of one row shifted along another."""
    dtype = common_type([read(x1), read(x2)])
    if not s.is_float(dtype):
        dtype = np.dtype("float64" if dtype.itemsize == 8 else "float32")
    a, b = astype(x1, dtype), astype(x2, dtype)
    if a.ndim != 1 or b.ndim != 1:
        raise ValueError(f"ops.correlate: rows of numbers, not {a.shape}, {b.shape}.")
    if mode not in ("valid", "same", "full"):
        raise ValueError(f"ops.correlate: mode {mode!r} is not valid, same or full.")
    longer, shorter = (a, b) if a.size >= b.size else (b, a)
    reach = {"valid": 0, "same": shorter.size // 2, "full": shorter.size - 1}[mode]
    behind = reach if mode != "same" else (shorter.size - 1) // 2
    row = arrays.pad(longer, pairs=((reach, behind),), interior=(0,), value=0.0)
    row = s.reshape(row, shape=(1, row.size, 1))
    kernel = s.reshape(shorter, shape=(shorter.size, 1, 1))
    sums = conv(row, kernel, padding="valid", data_format="channels_last")
    sums = s.reshape(sums, shape=(sums.size,))
    return sums if longer is a else flip(sums)


@op
def diagflat(x: Any, k: int = 0) -> Any:
    """Return a matrix with all elements of an array on a diagonal."""
    value = read(x)
    return diag(s.reshape(value, shape=(value.size,)), k)


@op
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    """Integrate along an axis by trapezoids of width dx, or between points x."""
    value = floating(y)
    axis = one_axis(axis, value.ndim)
    value = moveaxis(value, axis, -1)
    count = value.shape[-1]
    last = value.ndim - 1
    if x is None:
        widths = astype(dx, value.dtype)
    else:
        points = astype(x, value.dtype)
        if points.ndim > 1:
            points = moveaxis(points, axis, -1)
        at = points.ndim - 1
        widths = slice_axis(points, at, 1, count) - slice_axis(points, at, 0, count - 1)
    ends = slice_axis(value, last, 1, count) + slice_axis(value, last, 0, count - 1)
    areas = p.multiply(*promoted(ends * 0.5, widths))
    return s.sum_(areas, axes=(areas.ndim - 1,))


@op
def vander(x: Any, N: int | None = None, increasing: bool = False) -> Any:  # noqa: N803
    """Return a matrix whose columns are powers of x, the highest first."""
    value = numeric(x)
    if value.ndim != 1:
        raise ValueError(f"ops.vander: x must have one axis, not {value.shape}.")
    count = value.size if N is None else int(N)
    powers: list[Value] = [s.fill(1, value)][:count]
    for _ in range(1, count):
        powers.append(p.multiply(powers[-1], value))
    if not powers:
        return stretch(astype(0, value.dtype), (value.size, 0))
    return stack(powers if increasing else powers[::-1], axis=1)
