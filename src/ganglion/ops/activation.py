"""Activation functions."""

from __future__ import annotations

import math
import warnings
from typing import Any

from ganglion import symbolic
from ganglion.compiler.ir import arrays
from ganglion.compiler.ir import pointwise as p
from ganglion.compiler.ir import shaping as s
from ganglion.compiler.ir.graph import Value
from ganglion.ops.dispatch import axes_of, floating, floating_unless_whole, op
from ganglion.ops.joining import split
from ganglion.ops.numpy import clip, divide, multiply
from ganglion.ops.shapes import moveaxis

__all__ = [
    "celu", "elu", "gelu", "glu", "hard_shrink", "hard_sigmoid", "hard_silu",
    "hard_swish", "hard_tanh", "leaky_relu", "log_sigmoid", "log_softmax", "mish",
    "relu", "relu6", "selu", "sigmoid", "silu", "soft_shrink", "softmax", "softplus",
    "softsign", "sparse_plus", "sparse_sigmoid", "sparsemax", "squareplus", "swish",
    "tanh_shrink", "threshold",
]  # fmt: skip


@op
def relu(x: Any) -> Any:
    """Return x where it is positive, else 0; integers stay."""
    value = floating_unless_whole(x)
    return p.maximum(value, s.fill(0, value))


def _flat_outside(value: Value, low: float, high: float) -> Value:
    """Limit a value to a range, with slope 0 already at the limits (unlike `clip`)."""
    return p.minimum(p.maximum(value, s.fill(low, value)), s.fill(high, value))


@op
def relu6(x: Any) -> Any:
    """Return x limited to 0 ... 6; integers stay."""
    return _flat_outside(floating_unless_whole(x), 0, 6)


@op
def leaky_relu(x: Any, negative_slope: float = 0.2) -> Any:
    """Return x where it is positive, else a fraction of it."""
    value = floating(x)
    return p.where(value > 0.0, value, multiply(value, float(negative_slope)))


@op
def elu(x: Any, alpha: float = 1.0) -> Any:
    """Return x where it is positive, else alpha (exp(x) - 1)."""
    value = floating(x)
    below = p.expm1(_not_above_zero(value))
    return p.where(value > 0.0, value, multiply(below, float(alpha)))


def _not_above_zero(value: Value) -> Value:
    # A tie belongs to the second input: at 0 the slope is that of the value.
    return p.minimum(s.fill(0, value), value)


@op
def selu(x: Any) -> Any:
    """Scaled ELU, whose outputs keep mean 0 and variance 1."""
    value = floating(x)
    below = multiply(p.expm1(_not_above_zero(value)), 1.6732632423543772)
    # At 0 the slope is that of the upper half, as in TensorFlow.
    return multiply(p.where(value < 0.0, below, value), 1.0507009873554805)


@op
def gelu(x: Any, approximate: bool = True) -> Any:
    """Return x Φ(x), by tanh when approximate, else by the error function."""
    value = floating(x)
    if approximate:
        inner = value + multiply(0.044715, value * value * value)
        return 0.5 * value * (1.0 + p.tanh(multiply(math.sqrt(2 / math.pi), inner)))
    return 0.5 * value * (1.0 + p.erf(multiply(value, math.sqrt(0.5))))


@op
def sigmoid(x: Any) -> Any:
    """Return 1 / (1 + exp(-x))."""
    return p.sigmoid(floating(x))


@op
def log_sigmoid(x: Any) -> Any:
    """Return log(sigmoid(x)) without overflow."""
    return p.negative(softplus(p.negative(floating(x))))


@op
def hard_sigmoid(x: Any) -> Any:
    """Return relu6(x + 3) / 6."""
    return divide(relu6(floating(x) + 3.0), 6.0)


@op
def silu(x: Any) -> Any:
    """Return x sigmoid(x), also called swish."""
    value = floating(x)
    return p.multiply(value, p.sigmoid(value))


swish = silu


@op
def hard_silu(x: Any) -> Any:
    """Return x hard_sigmoid(x)."""
    return multiply(x, hard_sigmoid(x))


hard_swish = hard_silu


@op
def softplus(x: Any) -> Any:
    """Return log(1 + exp(x)) without overflow."""
    return p.add(*softplus_parts(floating(x)))


def softplus_parts(value: Value) -> tuple[Value, Value]:
    """Return the asymptote of softplus, max(x, 0), and its distance from it.

    At 0 both have the slope from above, 1 and -1/2: together 1/2, which is right. With
    an absolute value, whose slope there is 0, they would not add up.
    """
    below = p.where(value < 0.0, value, p.negative(value))
    return p.maximum(s.fill(0, value), value), p.log1p(p.exp(below))


@op
def softsign(x: Any) -> Any:
    """Return x / (1 + |x|)."""
    value = floating(x)
    return divide(value, p.absolute(value) + 1.0)


@op
def mish(x: Any) -> Any:
    """Return x tanh(softplus(x))."""
    return multiply(x, p.tanh(softplus(x)))


def _shifted(value: Value, axes: tuple[int, ...]) -> Value:
    if 0 in (value.shape[axis] for axis in axes):
        return value  # nothing has no largest element
    top = p.stop_gradient(arrays.max_(value, axes=axes))
    return p.subtract(value, s.keep_axes(top, axes, value.shape))


@op
def softmax(x: Any, axis: Any = -1) -> Any:
    """Return exp(x) over its sum along an axis."""
    value = floating(x)
    axes = axes_of(axis, value.ndim)
    is_real = symbolic.unknown_size() is None  # no size that represents another
    if is_real and isinstance(axis, int) and value.shape[axis] == 1:
        warnings.warn(
            f"You are using a softmax over axis {axis} of a tensor of shape "
            f"{value.shape}. This axis has size 1. The softmax operation will always "
            "return the value 1, which is likely not what you intended. Did you mean "
            "to use a sigmoid instead?",
            stacklevel=3,
        )
    powers = p.exp(_shifted(value, axes))
    total = s.sum_(powers, axes=axes)
    return p.divide(powers, s.keep_axes(total, axes, value.shape))


@op
def log_softmax(x: Any, axis: Any = -1) -> Any:
    """Return log(softmax(x)) without overflow."""
    value = floating(x)
    axes = axes_of(axis, value.ndim)
    shifted = _shifted(value, axes)
    total = p.log(s.sum_(p.exp(shifted), axes=axes))
    return p.subtract(shifted, s.keep_axes(total, axes, value.shape))


@op
def celu(x: Any, alpha: float = 1.0) -> Any:
    """Return x where it is positive, else alpha (exp(x / alpha) - 1)."""
    value = floating(x)
    below = p.expm1(divide(_not_above_zero(value), float(alpha)))
    return p.add(p.maximum(value, s.fill(0, value)), multiply(below, float(alpha)))


@op
def glu(x: Any, axis: int = -1) -> Any:
    """Return one half of an axis times the sigmoid of the other half."""
    value = floating(x)
    left, right = split(value, 2, axis=axis)
    return p.multiply(left, p.sigmoid(right))


@op
def hard_tanh(x: Any) -> Any:
    """Return x limited to -1 ... 1."""
    return clip(floating(x), -1.0, 1.0)


@op
def hard_shrink(x: Any, threshold: float = 0.5) -> Any:
    """Return x where it is further from zero than a threshold, else 0."""
    value = floating(x)
    return p.where(p.absolute(value) > float(threshold), value, s.fill(0, value))


@op
def soft_shrink(x: Any, threshold: float = 0.5) -> Any:
    """Move x towards zero by a threshold, and not across it."""
    value, by = floating(x), float(threshold)
    return p.where(
        value > by,
        value - by,
        p.where(value < -by, value + by, s.fill(0, value)),
    )


@op
def tanh_shrink(x: Any) -> Any:
    """Return x - tanh(x)."""
    value = floating(x)
    return p.subtract(value, p.tanh(value))


@op
def threshold(x: Any, threshold: float, default_value: float) -> Any:
    """Return x where it is above a threshold, else another number."""
    value = floating_unless_whole(x)
    return p.where(value > threshold, value, s.fill(default_value, value))


@op
def squareplus(x: Any, b: float = 4) -> Any:
    """Return (x + sqrt(x² + b)) / 2, smooth as softplus but without exp."""
    value = floating(x)
    return multiply(value + p.sqrt(value * value + float(b)), 0.5)


@op
def sparse_plus(x: Any) -> Any:
    """Return 0 below -1, x above 1, and (x + 1)² / 4 between."""
    value = floating(x)
    middle = multiply((value + 1.0) * (value + 1.0), 0.25)
    above = p.where(value < 1.0, middle, value)
    return p.where(value <= -1.0, s.fill(0, value), above)


@op
def sparse_sigmoid(x: Any) -> Any:
    """Return 0 below -1, 1 above 1, and (x + 1) / 2 between."""
    return _flat_outside(multiply(floating(x) + 1.0, 0.5), 0.0, 1.0)


@op
def sparsemax(x: Any, axis: int = -1) -> Any:
    """Project rows onto the simplex: like softmax, but with exact zeros.

    It compares every two elements of a row, so it is meant for short rows.
    """
    value = moveaxis(floating(x), axis, -1)
    # A shift of a whole row makes no difference, but large numbers would absorb the 1.
    value = _shifted(value, (value.ndim - 1,))
    rows, size = value.shape[:-1], value.shape[-1]
    last = (len(rows) + 1,)
    pairs = (*rows, size, size)
    mine = s.broadcast(s.reshape(value, shape=(*rows, size, 1)), shape=pairs)
    other = s.broadcast(s.reshape(value, shape=(*rows, 1, size)), shape=pairs)
    above = p.cast(mine <= other, dtype=value.dtype.name)
    count, total = s.sum_(above, axes=last), s.sum_(above * other, axes=last)
    chosen = p.cast(value * count + 1.0 > total, dtype=value.dtype.name)
    axes = (len(rows),)
    excess = s.sum_(chosen * value, axes=axes) - 1.0
    level = s.keep_axes(p.divide(excess, s.sum_(chosen, axes=axes)), axes, value.shape)
    return moveaxis(p.maximum(value - level, s.fill(0, value)), -1, axis)
