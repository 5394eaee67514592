"""Functions of `jax.numpy` and `jax.lax` whose arguments are not those of `ops`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ganglion import ops

# ruff: noqa: A002 (JAX's names of arguments)


def var(a: Any, axis: Any = None, ddof: int = 0, keepdims: bool = False) -> Any:
    """Return the variance over axes, divided by the count less `ddof`."""
    shape = np.shape(a)
    axes = range(len(shape)) if axis is None else np.atleast_1d(axis)
    count = math.prod(shape[number] for number in axes)
    variance = ops.var(a, axis=axis, keepdims=keepdims)
    return variance * (count / (count - ddof)) if ddof else variance


def std(a: Any, axis: Any = None, ddof: int = 0, keepdims: bool = False) -> Any:
    """Return the standard deviation over axes."""
    return ops.sqrt(var(a, axis, ddof, keepdims))


def sort(a: Any, axis: int | None = -1, descending: bool = False) -> Any:
    """Return the elements along an axis in order."""
    ordered = ops.sort(
        ops.ravel(a) if axis is None else a, axis=-1 if axis is None else axis
    )
    return ops.flip(ordered, -1 if axis is None else axis) if descending else ordered


def argsort(a: Any, axis: int = -1, descending: bool = False) -> Any:
    """Return where the elements along an axis, in order, are; equal ones stay so."""
    if not descending:
        return ops.argsort(a, axis=axis)
    turned = ops.argsort(ops.flip(a, axis), axis=axis)
    return a.shape[axis] - 1 - ops.flip(turned, axis)


def clip(arr: Any, min: Any = None, max: Any = None) -> Any:
    """Return x within limits."""
    low = arr if min is None else ops.maximum(arr, min)
    return low if max is None else ops.minimum(low, max)


def bincount(
    x: Any, weights: Any = None, minlength: int = 0, length: int | None = None
) -> Any:
    """Return how often each number occurs, up to the largest or up to a length."""
    counts = ops.bincount(x, weights=weights, minlength=length or minlength)
    return counts if length is None else counts[:length]


def polyval(p: Any, x: Any) -> Any:
    """Return the value of a polynomial, whose first coefficient is the highest."""
    result = ops.zeros_like(ops.convert_to_tensor(x))
    for coefficient in ops.unstack(ops.convert_to_tensor(p)):
        result = result * x + coefficient
    return result


def interp(x: Any, xp: Any, fp: Any) -> Any:
    """Return a function between its points, straight between two of them."""
    x, xp, fp = (ops.convert_to_tensor(part) for part in (x, xp, fp))
    right = ops.clip(ops.searchsorted(xp, x, side="right"), 1, xp.shape[0] - 1)
    left = right - 1
    width = ops.take(xp, right) - ops.take(xp, left)
    share = ops.clip((x - ops.take(xp, left)) / width, 0.0, 1.0)
    low = ops.take(fp, left)
    return low + share * (ops.take(fp, right) - low)


def atleast_2d(x: Any) -> Any:
    """Return an array of two axes at least."""
    axes = len(np.shape(x))
    return x if axes >= 2 else ops.reshape(x, (1, -1))


def column_stack(tup: Any) -> Any:
    """Return vectors and matrices side by side."""
    parts = (x if len(np.shape(x)) > 1 else ops.expand_dims(x, 1) for x in tup)
    return ops.concatenate(list(parts), axis=1)


def argwhere(a: Any) -> Any:
    """Return the indices of the elements that are not zero."""
    return ops.stack(list(ops.nonzero(a)), axis=-1)


def concatenate(operands: Any, dimension: int) -> Any:
    """Return arrays one after the other."""
    return ops.concatenate(list(operands), axis=dimension)


def cumsum(operand: Any, axis: int = 0, reverse: bool = False) -> Any:
    """Return sums up to each element, or from each on."""
    if reverse:
        return ops.flip(ops.cumsum(ops.flip(operand, axis), axis=axis), axis)
    return ops.cumsum(operand, axis=axis)


def dynamic_slice_in_dim(
    operand: Any, start_index: Any, slice_size: int, axis: int = 0
) -> Any:
    """Return a range along an axis, moved inside if it lies outside."""
    starts: list[Any] = [0] * len(operand.shape)
    sizes = list(operand.shape)
    if isinstance(start_index, int):
        start_index = max(0, min(start_index, sizes[axis] - slice_size))
    starts[axis], sizes[axis] = start_index, slice_size
    return ops.slice(operand, starts, sizes)


def dynamic_index_in_dim(
    operand: Any, index: Any, axis: int = 0, keepdims: bool = True
) -> Any:
    """Return one element along an axis."""
    part = dynamic_slice_in_dim(operand, index, 1, axis)
    return part if keepdims else ops.squeeze(part, axis=axis)


def static_slice(
    operand: Any, start_indices: Any, limit_indices: Any, strides: Any = None
) -> Any:
    """Return a block from these indices on, up to those."""
    steps = strides or [1] * len(start_indices)
    bounds = zip(start_indices, limit_indices, steps, strict=True)
    return operand[tuple(slice(*part) for part in bounds)]


def convert_element_type(operand: Any, new_dtype: Any) -> Any:
    """Return an array in another type."""
    return ops.cast(operand, np.dtype(new_dtype).name)


def standardize(x: Any, axis: Any = -1, epsilon: float = 1e-5) -> Any:
    """Return x less its mean, divided by its standard deviation."""
    centred = x - ops.mean(x, axis=axis, keepdims=True)
    return centred * ops.rsqrt(ops.var(x, axis=axis, keepdims=True) + epsilon)
