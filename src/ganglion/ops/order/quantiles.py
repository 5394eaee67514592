"""Medians, quantiles and percentiles over axes."""

from __future__ import annotations

import math
from typing import Any

from ganglion.compiler.ir import pointwise as p
from ganglion.compiler.ir import shaping as s
from ganglion.compiler.ir.graph import ShapeError, Value
from ganglion.ops.dispatch import astype, axes_of, floating, op, stretch
from ganglion.ops.indexing import take_along_axis
from ganglion.ops.numpy import isnan, where
from ganglion.ops.order.sorting import sort
from ganglion.ops.reduction import any as any_
from ganglion.ops.reduction import sum as sum_
from ganglion.ops.shapes import moveaxis

__all__ = [
    "median", "nanmedian", "nanpercentile", "nanquantile", "percentile", "quantile",
]  # fmt: skip

METHODS = ("linear", "lower", "higher", "midpoint", "nearest")


@op
def median(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the median over axes; NaN where there is any."""
    return quantile(x, 0.5, axis=axis, keepdims=keepdims)


@op
def nanmedian(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the median over axes, leaving NaN out."""
    return nanquantile(x, 0.5, axis=axis, keepdims=keepdims)


@op
def percentile(
    x: Any, q: Any, axis: Any = None, method: str = "linear", keepdims: bool = False
) -> Any:
    """Return percentiles over axes: quantiles of q / 100."""
    return quantile(x, _hundredths(q), axis=axis, method=method, keepdims=keepdims)


@op
def nanpercentile(
    x: Any, q: Any, axis: Any = None, method: str = "linear", keepdims: bool = False
) -> Any:
    """Return percentiles over axes, leaving NaN out."""
    return nanquantile(x, _hundredths(q), axis=axis, method=method, keepdims=keepdims)


def _hundredths(q: Any) -> Value:
    share: Value = astype(q, "float64") / 100.0
    return share


@op
def quantile(
    x: Any, q: Any, axis: Any = None, method: str = "linear", keepdims: bool = False
) -> Any:
    """Return the quantiles q of the elements over axes; NaN propagates."""
    return _quantile("quantile", x, q, axis, method, keepdims, leaves_nan=False)


@op
def nanquantile(
    x: Any, q: Any, axis: Any = None, method: str = "linear", keepdims: bool = False
) -> Any:
    """Return the quantiles q of the elements over axes, ignoring NaN."""
    return _quantile("nanquantile", x, q, axis, method, keepdims, leaves_nan=True)


def _quantile(
    name: str,
    x: Any,
    q: Any,
    axis: Any,
    method: str,
    keepdims: bool,
    leaves_nan: bool,
) -> Value:
    if method not in METHODS:
        raise ValueError(
            f"ops.{name}: method {method!r} is not one of {', '.join(METHODS)}."
        )
    value, share = floating(x), astype(q, "float64")
    if share.ndim > 1:
        raise ShapeError(f"{name}: q has one axis at most, not {share.shape}")
    axes = axes_of(axis, value.ndim)
    rows = _rows(value, axes)
    missing = isnan(rows)
    ordered = sort(rows)
    count = stretch(astype(float(rows.shape[-1]), "float64"), (*rows.shape[:-1], 1))
    if leaves_nan:
        count = count - sum_(astype(missing, "float64"), axis=-1, keepdims=True)
    picked = _picked(ordered, _positions(share, count), method)
    nothing = count < 1.0 if leaves_nan else any_(missing, axis=-1, keepdims=True)
    picked = where(nothing, math.nan, picked)
    sizes = tuple(1 if i in axes else n for i, n in enumerate(value.shape))
    if not keepdims:
        sizes = tuple(n for i, n in enumerate(value.shape) if i not in axes)
    picked = moveaxis(picked, -1, 0)
    return s.reshape(picked, shape=(*share.shape, *sizes))


def _rows(value: Value, axes: tuple[int, ...]) -> Value:
    """Return an array with the axes to reduce as one, the last."""
    kept = tuple(i for i in range(value.ndim) if i not in axes)
    sizes = tuple(value.shape[i] for i in kept)
    order = s.transpose(value, axes=(*kept, *axes))
    return s.reshape(order, shape=(*sizes, math.prod(value.shape[i] for i in axes)))


def _positions(share: Value, count: Value) -> Value:
    """Return the position of each share among the elements, in doubles."""
    wide = (*count.shape[:-1], share.size)
    row = s.reshape(share, shape=(share.size,))
    last = p.maximum(count - 1.0, s.fill(0, count))
    return p.multiply(stretch(row, wide), stretch(last, wide))


def _picked(ordered: Value, positions: Value, method: str) -> Value:
    """Return the elements at positions between them."""
    below = p.floor(positions)
    above = p.negative(p.floor(p.negative(positions)))
    if method in ("lower", "higher", "nearest"):
        nearest = p.round(positions)
        place = {"lower": below, "higher": above, "nearest": nearest}[method]
        return _at(ordered, place)
    first, second = _at(ordered, below), _at(ordered, above)
    if method == "midpoint":
        return (first + second) * 0.5
    share = astype(positions - below, ordered.dtype)
    # Of equal infinities the difference is no number.
    apart = p.where(p.equal(first, second), s.fill(0, first), second - first)
    return p.add(first, p.multiply(apart, share))


def _at(ordered: Value, place: Value) -> Value:
    picked: Value = take_along_axis(ordered, astype(place, "int32"), axis=-1)
    return picked
