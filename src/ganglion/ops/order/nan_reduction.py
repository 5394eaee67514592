"""Reductions over axes that leave NaN out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ganglion.compiler.ir.graph import Value
from ganglion.ops.dispatch import astype, floating, op
from ganglion.ops.numpy import divide, isnan, sqrt, square, subtract, where
from ganglion.ops.reduction import (
    all,  # noqa: A004 (Keras' name)
    argmax,
    argmin,
    cumprod,
    cumsum,
    nanmean,
    prod,
    sum,  # noqa: A004
)
from ganglion.variables import read

__all__ = [
    "nanargmax", "nanargmin", "nancumprod", "nancumsum", "nanprod", "nanstd", "nanvar",
]  # fmt: skip


def _with(number: float, x: Any) -> Value:
    """Return an array with a number in place of NaN."""
    value = read(x)
    if value.dtype.kind != "f":
        return value
    filled: Value = where(isnan(value), number, value)
    return filled


@op
def nanprod(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Multiply over axes, leaving NaN out."""
    return prod(_with(1.0, x), axis=axis, keepdims=keepdims)


@op
def nancumsum(
    x: Any, axis: int | Sequence[int] | None = None, dtype: Any = None
) -> Any:
    """Add up step by step along an axis, or one after the other, leaving NaN out."""
    return _step_by_step(cumsum, _with(0.0, x), axis, dtype)


@op
def nancumprod(
    x: Any, axis: int | Sequence[int] | None = None, dtype: Any = None
) -> Any:
    """Multiply step by step along an axis, or one after the other, leaving NaN out."""
    return _step_by_step(cumprod, _with(1.0, x), axis, dtype)


def _step_by_step(
    cumulated: Callable[..., Value], value: Value, axis: Any, dtype: Any
) -> Value:
    if axis is None or isinstance(axis, (int, np.integer)):
        return cumulated(value, axis=axis, dtype=dtype)
    for one in axis:
        value = cumulated(value, axis=one, dtype=dtype)
    return value if dtype is None else astype(value, dtype)


@op
def nanvar(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the variance over axes (divided by n), leaving NaN out."""
    value = floating(x)
    missing = isnan(value)
    centred = subtract(value, nanmean(value, axis=axis, keepdims=True))
    squares = square(where(missing, 0.0, centred))
    is_number = where(missing, 0.0, astype(1.0, value.dtype))
    count = sum(is_number, axis=axis, keepdims=keepdims)
    return divide(sum(squares, axis=axis, keepdims=keepdims), count)


@op
def nanstd(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the standard deviation over axes (divided by n), leaving NaN out."""
    return sqrt(nanvar(x, axis=axis, keepdims=keepdims))


def _index(x: Any, axis: int | None, keepdims: bool, largest: bool) -> Value:
    value = read(x)
    filled = _with(-math.inf if largest else math.inf, value)
    index: Value = (argmax if largest else argmin)(filled, axis=axis, keepdims=keepdims)
    if value.dtype.kind != "f":
        return index
    missing = all(isnan(value), axis=axis, keepdims=keepdims)
    result: Value = where(missing, -1, index)
    return result


@op
def nanargmax(x: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    """Return the index of the largest element that is not NaN; -1 if there is none."""
    return _index(x, axis, keepdims, largest=True)


@op
def nanargmin(x: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    """Return the index of the smallest element that is not NaN; -1 if there is none."""
    return _index(x, axis, keepdims, largest=False)
