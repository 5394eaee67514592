"""Sums, means, extremes and their indices over axes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ganglion.compiler.ir import arrays
from ganglion.compiler.ir import pointwise as p
from ganglion.compiler.ir.graph import Constant, Op, Value
from ganglion.compiler.ir.shaping import (
    fill,
    is_float,
    keep_axes,
    reshape,
    sum_,
    transpose,
)
from ganglion.ops.dispatch import (
    astype,
    axes_of,
    common_type,
    floating,
    numeric,
    one_axis,
    op,
    stretch,
)
from ganglion.ops.numpy import (
    divide,
    isclose,
    isnan,
    maximum,
    minimum,
    multiply,
    negative,
    not_equal,
    sqrt,
    square,
    subtract,
    where,
)
from ganglion.ops.shapes import slice_axis
from ganglion.variables import read

__all__ = [
    "all", "allclose", "amax", "amin", "any", "argmax", "argmin", "average",
    "count_nonzero", "cumprod", "cumsum", "logsumexp", "max", "mean", "min", "nanmax",
    "nanmean", "nanmin", "nansum", "prod", "ptp", "std", "sum", "var",
]  # fmt: skip


def _reduce(primitive: Op, x: Value, axis: Any, keepdims: bool) -> Value:
    axes = axes_of(axis, x.ndim)
    reduced = primitive(x, axes=axes) if axes else x
    if not keepdims:
        return reduced
    ones = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    return reshape(reduced, shape=ones)


def _roomy(value: Value) -> Value:
    """Give small integers room for their sum, as Keras does."""
    if value.dtype.kind == "b" or value.dtype.name in ("int8", "int16"):
        return astype(value, "int32")
    return astype(value, "uint32") if value.dtype.name in _SMALL else value


_SMALL = ("uint8", "uint16")


@op
def sum(x: Any, axis: Any = None, keepdims: bool = False) -> Any:  # noqa: A001
    """Add up over axes."""
    return _reduce(sum_, _roomy(read(x)), axis, keepdims)


@op
def mean(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Average over axes."""
    value = floating(x)
    axes = axes_of(axis, value.ndim)
    count = math.prod(value.shape[i] for i in axes)
    # A sum leaves the range of 16-bit floats long before the mean does.
    wide = astype(value, "float32") if value.dtype.itemsize == 2 else value
    average_ = divide(_reduce(sum_, wide, axis, keepdims), float(count))
    return astype(average_, value.dtype)


@op
def max(  # noqa: A001
    x: Any, axis: Any = None, keepdims: bool = False, initial: Any = None
) -> Any:
    """Find the largest element over axes."""
    value = read(x)
    if initial is not None and _has_no_elements(value, axis):
        return _filled(value, axis, keepdims, initial)
    largest = _reduce(arrays.max_, numeric(value), axis, keepdims)
    largest = largest if initial is None else maximum(largest, initial)
    return astype(largest, bool) if value.dtype.kind == "b" else largest


def _has_no_elements(value: Value, axis: Any) -> bool:
    """Return whether there is nothing to reduce over these axes."""
    return 0 in (value.shape[i] for i in axes_of(axis, value.ndim))


def _filled(value: Value, axis: Any, keepdims: bool, number: Any) -> Value:
    """Return the shape that a reduction leaves, filled with one number."""
    axes = axes_of(axis, value.ndim)
    sizes = [1 if i in axes else n for i, n in enumerate(value.shape)]
    if not keepdims:
        sizes = [n for i, n in enumerate(sizes) if i not in axes]
    return stretch(astype(number, value.dtype), tuple(sizes))


def _mirrored(value: Value) -> Value:
    """Turn the order of elements round: floats by sign, integers by -1 - x."""
    if is_float(value.dtype):
        return p.negative(value)
    ones = Constant(np.array(-1).astype(value.dtype))  # all bits set, also unsigned
    return p.subtract(stretch(ones, value.shape), value)


@op
def min(  # noqa: A001
    x: Any, axis: Any = None, keepdims: bool = False, initial: Any = None
) -> Any:
    """Find the smallest element over axes."""
    value = read(x)
    if initial is not None and _has_no_elements(value, axis):
        return _filled(value, axis, keepdims, initial)
    smallest = _reduce(arrays.max_, _mirrored(numeric(value)), axis, keepdims)
    smallest = _mirrored(smallest)
    smallest = smallest if initial is None else minimum(smallest, initial)
    return astype(smallest, bool) if value.dtype.kind == "b" else smallest


@op
def amax(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Find the largest element over axes."""
    return max(x, axis=axis, keepdims=keepdims)


@op
def amin(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Find the smallest element over axes."""
    return min(x, axis=axis, keepdims=keepdims)


@op
def var(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the variance over axes (divided by n)."""
    value = floating(x)
    centred = subtract(value, mean(value, axis=axis, keepdims=True))
    return mean(square(centred), axis=axis, keepdims=keepdims)


@op
def std(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the standard deviation over axes (divided by n)."""
    return sqrt(var(x, axis=axis, keepdims=keepdims))


@op
def any(x: Any, axis: Any = None, keepdims: bool = False) -> Any:  # noqa: A001
    """Return whether any element over axes is true."""
    value = astype(x, bool)
    initial = False if _has_no_elements(value, axis) else None
    return max(value, axis=axis, keepdims=keepdims, initial=initial)


@op
def all(x: Any, axis: Any = None, keepdims: bool = False) -> Any:  # noqa: A001
    """Return whether all elements over axes are true."""
    value = astype(x, bool)
    initial = True if _has_no_elements(value, axis) else None
    return min(value, axis=axis, keepdims=keepdims, initial=initial)


@op
def argmax(x: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    """Return the index of the largest element along an axis (the first of equals)."""
    value = numeric(x)
    if axis is None:
        index = arrays.argmax(reshape(value, shape=(value.size,)), axis=0)
        return reshape(index, shape=(1,) * value.ndim) if keepdims else index
    axis = one_axis(axis, value.ndim)
    index = arrays.argmax(value, axis=axis)
    if not keepdims:
        return index
    return reshape(index, shape=(*value.shape[:axis], 1, *value.shape[axis + 1 :]))


@op
def argmin(x: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    """Return the index of the smallest element along an axis."""
    return argmax(_mirrored(numeric(x)), axis=axis, keepdims=keepdims)


@op
def cumsum(x: Any, axis: int | None = None, dtype: Any = None) -> Any:
    """Add up step by step along an axis."""
    value = numeric(x) if dtype is None else astype(x, dtype)
    if axis is None:
        value, axis = reshape(value, shape=(value.size,)), 0
    return arrays.cumsum(value, axis=one_axis(axis, value.ndim))


@op
def prod(x: Any, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> Any:
    """Multiply over axes."""
    value = _roomy(read(x)) if dtype is None else numeric(astype(x, dtype))
    if _has_no_elements(value, axis):
        return _filled(value, axis, keepdims, 1)
    axes = axes_of(axis, value.ndim)
    kept = tuple(i for i in range(value.ndim) if i not in axes)
    rows = tuple(value.shape[i] for i in kept)
    count = math.prod(value.shape[i] for i in axes)
    value = reshape(transpose(value, axes=(*kept, *axes)), shape=(*rows, count))
    product: Value = reshape(_product(value, len(rows)), shape=rows)
    product = product if dtype is None else astype(product, dtype)
    if not keepdims:
        return product
    return reshape(product, shape=_kept_sizes(read(x).shape, axes))


def _kept_sizes(shape: tuple[int, ...], axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(1 if i in axes else n for i, n in enumerate(shape))


def _product(value: Value, axis: int) -> Value:
    """Multiply halves until one row is left: slopes are right where there are zeros."""
    while (count := value.shape[axis]) > 1:
        half = count // 2
        first = slice_axis(value, axis, 0, half)
        pairs = p.multiply(first, slice_axis(value, axis, half, 2 * half))
        if count % 2:
            last = slice_axis(value, axis, count - 1, count)
            pairs = arrays.concat(pairs, last, axis=axis)
        value = pairs
    return value


@op
def cumprod(x: Any, axis: int | None = None, dtype: Any = None) -> Any:
    """Multiply step by step along an axis."""
    value = numeric(x if dtype is None else astype(x, dtype))
    if axis is None:
        value, axis = reshape(value, shape=(value.size,)), 0
    axis, step = one_axis(axis, value.ndim), 1
    while step < (count := value.shape[axis]):
        before = slice_axis(value, axis, 0, count - step)
        behind = p.multiply(slice_axis(value, axis, step, count), before)
        value = arrays.concat(slice_axis(value, axis, 0, step), behind, axis=axis)
        step *= 2
    return value if dtype is None else astype(value, dtype)


@op
def logsumexp(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Return log(sum(exp(x))) without overflow."""
    value = floating(x)
    axes = axes_of(axis, value.ndim)
    if _has_no_elements(value, axis):
        return _filled(value, axis, keepdims, -math.inf)
    top = p.stop_gradient(_reduce(arrays.max_, value, axis, False))
    # The difference of equal infinities is no number.
    top = p.where(p.is_finite(top), top, fill(0, top))
    shifted = p.subtract(value, keep_axes(top, axes, value.shape))
    total = p.add(p.log(sum_(p.exp(shifted), axes=axes)), top)
    if not keepdims:
        return total
    ones = tuple(1 if i in axes else n for i, n in enumerate(value.shape))
    return reshape(total, shape=ones)


@op
def count_nonzero(x: Any, axis: Any = None) -> Any:
    """Count the elements that are not zero."""
    return sum(not_equal(x, 0), axis=axis)


@op
def average(x: Any, axis: Any = None, weights: Any = None) -> Any:
    """Average over axes, each element counting by its weight."""
    if weights is None:
        return mean(x, axis=axis)
    dtype = common_type([read(x), read(weights)])
    value = floating(astype(x, dtype))
    share = astype(weights, value.dtype)
    if share.ndim == 1 and isinstance(axis, int) and value.ndim > 1:
        sizes = [1] * value.ndim
        sizes[one_axis(axis, value.ndim)] = share.size
        share = reshape(share, shape=tuple(sizes))
    share = stretch(share, value.shape)
    total = sum(multiply(value, share), axis=axis)
    return divide(total, sum(share, axis=axis))


@op
def nansum(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Add up over axes, leaving NaN out."""
    value = read(x)
    if is_float(value.dtype):
        value = where(isnan(value), 0.0, value)
    return sum(value, axis=axis, keepdims=keepdims)


@op
def nanmean(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Average over axes, leaving NaN out."""
    value = floating(x)
    is_number = astype(p.equal(value, value), value.dtype)
    count = sum(is_number, axis=axis, keepdims=keepdims)
    return divide(nansum(value, axis=axis, keepdims=keepdims), count)


@op
def nanmax(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Find the largest element over axes, leaving NaN out; NaN if nothing is left."""
    value = read(x)
    if value.dtype.kind != "f":
        return max(value, axis=axis, keepdims=keepdims)
    missing = isnan(value)
    largest = max(where(missing, -math.inf, value), axis=axis, keepdims=keepdims)
    return where(all(missing, axis=axis, keepdims=keepdims), math.nan, largest)


@op
def nanmin(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Find the smallest element over axes, leaving NaN out; NaN if nothing is left."""
    value = read(x)
    if value.dtype.kind != "f":
        return min(value, axis=axis, keepdims=keepdims)
    return negative(nanmax(negative(value), axis=axis, keepdims=keepdims))


@op
def ptp(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the largest less the smallest element over axes."""
    largest = max(x, axis=axis, keepdims=keepdims)
    return subtract(largest, min(x, axis=axis, keepdims=keepdims))


@op
def allclose(
    x1: Any, x2: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    """Return whether no element differs by more than atol + rtol |x2|."""
    return all(isclose(x1, x2, rtol, atol, equal_nan))
