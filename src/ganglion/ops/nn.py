"""Neural network functions: normalisation, attention, hits among the best."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from ganglion import config
from ganglion.compiler.ir import pointwise as p
from ganglion.compiler.ir import shaping as s
from ganglion.compiler.ir.custom import custom_gradient
from ganglion.compiler.ir.gradient import backpropagate
from ganglion.compiler.ir.graph import Constant, ShapeError, Value
from ganglion.dtypes import finfo
from ganglion.ops.activation import softmax
from ganglion.ops.creation import one_hot
from ganglion.ops.dispatch import (
    astype,
    axes_of,
    floating,
    one_axis,
    op,
    promoted_floats,
)
from ganglion.ops.linalg import norm
from ganglion.ops.numpy import (
    clip,
    divide,
    log10,
    logical_and,
    maximum,
    multiply,
    square,
    subtract,
    where,
)
from ganglion.ops.products import einsum
from ganglion.ops.reduction import mean
from ganglion.ops.reduction import sum as sum_over
from ganglion.ops.shapes import expand_dims, squeeze
from ganglion.variables import read

__all__ = [
    "batch_normalization", "dot_product_attention", "in_top_k", "layer_normalization",
    "moments", "multi_hot", "normalize", "psnr", "rms_normalization",
]  # fmt: skip


@op
def moments(
    x: Any, axes: Any, keepdims: bool = False, synchronized: bool = False
) -> Any:
    """Return mean and variance (divided by n) over axes.

    One device trains: `synchronized` moments are those of the batch there.
    """
    value = floating(x)
    if value.dtype.itemsize == 2:
        return _narrow_moments(value, axes, keepdims)
    centre = mean(value, axis=axes, keepdims=True)
    away = subtract(value, centre)
    squares = mean(square(away), axis=axes, keepdims=keepdims)

    def slope(upstream: Value) -> list[Value | None]:
        # The variance is smallest at the mean: its slope with respect to it is zero,
        # but not the slope of that slope.
        return [backpropagate({squares: upstream}, [away])[away]]

    spread_ = custom_gradient(squares, value, rule=slope)
    return (centre if keepdims else squeeze(centre, axis=axes)), spread_


def _narrow_moments(value: Value, axes: Any, keepdims: bool) -> tuple[Value, Value]:
    """Compute moments of 16-bit floats in float32: squares soon leave their range."""
    centre, spread_ = moments(astype(value, "float32"), axes, keepdims)
    bounds = finfo(value.dtype)
    spread_ = clip(spread_, float(bounds.min), float(bounds.max))
    return astype(centre, value.dtype), astype(spread_, value.dtype)


@op
def batch_normalization(
    x: Any,
    mean: Any,
    variance: Any,
    axis: int,
    offset: Any = None,
    scale: Any = None,
    epsilon: float = 1e-3,
) -> Any:
    """Normalise with given mean and variance along an axis."""
    value = floating(x)
    shape = [1] * value.ndim
    shape[one_axis(axis, value.ndim)] = -1
    size = value.shape[one_axis(axis, value.ndim)]
    for name, vector in (("offset", offset), ("scale", scale)):
        if vector is not None and read(vector).shape != (size,):
            raise ShapeError(
                f"`{name}` must be a vector of length {size}, that of axis {axis}. "
                f"Received: {name} of shape {read(vector).shape}"
            )
    gain = divide(1.0, p.sqrt(floating(variance) + float(epsilon)))
    if scale is not None:
        gain = multiply(gain, scale)
    shift = -multiply(mean, gain)
    if offset is not None:
        shift = shift + offset
    sizes = tuple(value.shape[i] if n == -1 else 1 for i, n in enumerate(shape))
    return value * s.reshape(gain, shape=sizes) + s.reshape(shift, shape=sizes)


@op
def normalize(x: Any, axis: Any = -1, order: int = 2, epsilon: Any = None) -> Any:
    """Scale to length one along an axis."""
    if not isinstance(order, int) or order < 1:
        raise ValueError(
            f"Argument `order` must be an int >= 1. Received: order={order!r}"
        )
    shortest = config.epsilon() if epsilon is None else float(epsilon)
    if order == 2:
        # The limit is under the root, so that zeros have a slope and not NaN.
        squares = sum_over(square(floating(x)), axis=axis, keepdims=True)
        return divide(x, p.sqrt(maximum(squares, shortest * shortest)))
    length = norm(x, ord=order, axis=axis, keepdims=True)
    return divide(x, maximum(length, shortest))


@op
def multi_hot(
    inputs: Any,
    num_classes: int | None = None,
    axis: int = -1,
    dtype: Any = None,
    sparse: bool = False,
    **kwargs: Any,
) -> Any:
    """Mark with a one every class that appears in a row."""
    num_classes = kwargs.pop("num_tokens", num_classes)
    if num_classes is None or kwargs or sparse:
        raise ValueError("ops.multi_hot needs `num_classes`, and makes dense arrays.")
    index = read(inputs)
    hot = one_hot(index, num_classes, axis=axis, dtype="int32")
    times = s.sum_(hot, axes=(1 if index.ndim > 1 else 0,))  # none of no labels
    return astype(p.minimum(times, s.fill(1, times)), dtype or config.floatx())


@op
def in_top_k(targets: Any, predictions: Any, k: int) -> Any:
    """Return whether the target is among the k largest predictions of its row.

    False for a row with NaN or infinity, and for a class that is not there, as in
    Keras.
    """
    scores = floating(predictions)
    last = (scores.ndim - 1,)
    chosen = one_hot(targets, scores.shape[-1], dtype="bool")
    finite = p.is_finite(scores)
    own = s.sum_(p.where(chosen, scores, s.fill(0, scores)), axes=last)
    above = astype(expand_dims(own, -1) < scores, "int32")
    known = logical_and(
        s.sum_(astype(chosen, "int32"), axes=last) > 0,
        s.sum_(astype(finite, "int32"), axes=last) == scores.shape[-1],
    )
    return logical_and(s.sum_(above, axes=last) < k, known)


@op
def layer_normalization(
    x: Any,
    gamma: Any = None,
    beta: Any = None,
    axis: Any = -1,
    epsilon: float | None = None,
    **kwargs: Any,
) -> Any:
    """Normalise over axes to mean 0 and variance 1, then scale and shift."""
    rms_scaling = kwargs.pop("rms_scaling", False)
    if rms_scaling:
        warnings.warn(
            "You passed `rms_scaling=True`, which is deprecated: it divides by the "
            "standard deviation without centring. Use `ops.rms_normalization`.",
            stacklevel=3,
        )
    if kwargs:
        raise TypeError(f"ops.layer_normalization: unknown {', '.join(kwargs)}.")
    value = floating(x)
    centre, spread_ = moments(value, axis, keepdims=True)
    fuzz = config.epsilon() if epsilon is None else float(epsilon)
    gain = divide(1.0, p.sqrt(spread_ + fuzz))
    if gamma is not None:
        gain = multiply(gain, _along(gamma, axis, value))
    if rms_scaling:
        return multiply(value, gain)
    outputs = multiply(subtract(value, centre), gain)
    return outputs if beta is None else outputs + _along(beta, axis, value)


@op
def rms_normalization(
    x: Any, scale: Any = None, axis: Any = -1, epsilon: float | None = None
) -> Any:
    """Divide by the root of the mean square over axes, then scale."""
    value = floating(x)
    fuzz = config.epsilon() if epsilon is None else float(epsilon)
    power = mean(square(value), axis=axis, keepdims=True)
    outputs = multiply(value, divide(1.0, p.sqrt(power + fuzz)))
    return outputs if scale is None else multiply(outputs, _along(scale, axis, value))


def _along(weight: Any, axis: Any, value: Value) -> Value:
    """Reshape a weight to broadcast along the given axes of a value."""
    shaped = astype(weight, value.dtype)
    if shaped.ndim == value.ndim:
        return shaped
    axes = axes_of(axis, value.ndim)
    sizes = tuple(n if i in axes else 1 for i, n in enumerate(value.shape))
    return s.reshape(shaped, shape=sizes)


@op
def dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    mask: Any = None,
    scale: float | None = None,
    is_causal: bool = False,
    flash_attention: bool | None = None,
    attn_logits_soft_cap: float | None = None,
) -> Any:
    """Average values by how well their keys fit a query: (batch, time, heads, size).

    Keys and values may have fewer heads, each for a group of heads of the query. `bias`
    is added to the scores and a `mask` chooses those that count, both stretched to
    (batch, heads, queries, keys); `is_causal` leaves out keys later than the query.
    `flash_attention` changes no result: the compiler chooses how it is computed.

    >>> import numpy as np
    >>> query, keys = np.ones((1, 5, 4, 8), "float32"), np.ones((1, 6, 2, 8), "float32")
    >>> dot_product_attention(query, keys, keys).shape
    (1, 5, 4, 8)
    """
    q, k, v = floating(query), floating(key), floating(value)
    groups = _groups(q.shape, k.shape, v.shape)
    fit = _scores(q, k, groups)
    fit = multiply(fit, q.shape[-1] ** -0.5 if scale is None else float(scale))
    if bias is not None:
        fit = fit + floating(bias)
    if attn_logits_soft_cap is not None:
        cap = float(attn_logits_soft_cap)
        fit = multiply(p.tanh(divide(fit, cap)), cap)
    allowed = None if mask is None else astype(mask, bool)
    if is_causal:
        below = Constant(np.tri(q.shape[1], k.shape[1], dtype=bool))
        allowed = below if allowed is None else logical_and(allowed, below)
    if allowed is not None:
        lowest = 0.7 * float(finfo(fit.dtype).min)
        fit = where(allowed, fit, lowest)
    return _read_values(softmax(fit), v, groups)


def _groups(query: Any, key: Any, value: Any) -> int:
    """Return how many heads of the query share one of the keys; refuse other shapes."""
    sizes = len(query) == len(key) == len(value) == 4
    fits = sizes and (
        query[0] == key[0]
        and query[3] == key[3]
        and key[:3] == value[:3]
        and key[2] > 0
        and query[2] % key[2] == 0
    )
    if not fits:
        raise ShapeError(
            f"dot_product_attention: query {query}, key {key} and value {value} must "
            "be (batch, time, heads, size), the keys and values with as many heads as "
            "the query, or a divisor of them."
        )
    return int(query[2] // key[2])


def _scores(query: Value, key: Value, groups: int) -> Value:
    """Return the products of queries and keys: (batch, heads, queries, keys)."""
    if groups == 1:
        return einsum("bthd,bshd->bhts", query, key)
    batch, times, heads, size = query.shape
    split = s.reshape(query, shape=(batch, times, heads // groups, groups, size))
    scores = einsum("btkgd,bskd->bkgts", split, key)
    return s.reshape(scores, shape=(batch, heads, times, key.shape[1]))


def _read_values(weights: Value, value: Value, groups: int) -> Value:
    """Return the sums of values by their weights: (batch, queries, heads, size)."""
    if groups == 1:
        return einsum("bhts,bshd->bthd", weights, value)
    batch, heads, times, keys = weights.shape
    split = s.reshape(weights, shape=(batch, heads // groups, groups, times, keys))
    outputs = einsum("bkgts,bskd->btkgd", split, value)
    return s.reshape(outputs, shape=(batch, times, heads, value.shape[3]))


@op
def psnr(x1: Any, x2: Any, max_val: Any) -> Any:
    """Return the peak signal-to-noise ratio of two images, in decibels."""
    a, b = promoted_floats(x1, x2)
    if read(x1).shape != read(x2).shape:
        raise ShapeError(f"psnr: shapes {a.shape} and {b.shape} differ")
    noise = mean(square(a - b))
    return 20.0 * log10(astype(max_val, a.dtype)) - 10.0 * log10(noise)
