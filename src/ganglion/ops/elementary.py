"""Elementary functions put together from the primitive ones, without overflow."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ganglion.compiler.ir import pointwise as p
from ganglion.compiler.ir import shaping as s
from ganglion.ops.dispatch import floating, floating_with_room, op, promoted
from ganglion.ops.numpy import (
    absolute,
    clip,
    divide,
    equal,
    isfinite,
    isinf,
    isnan,
    less_equal,
    logical_and,
    logical_or,
    multiply,
    power,
    where,
)
from ganglion.variables import read

__all__ = [
    "arccosh", "arcsinh", "arctanh", "cosh", "deg2rad", "divide_no_nan", "exp2", "fabs",
    "heaviside", "hypot", "isclose", "isneginf", "isposinf", "logaddexp", "nan_to_num",
    "rad2deg", "rsqrt", "select", "sinh", "tan", "trunc",
]  # fmt: skip

_LARGE = 1e8  # beyond this sqrt(x² + 1) is x in both float types


@op
def tan(x: Any) -> Any:
    """Return the tangent of each element."""
    value = floating(x)
    return p.divide(p.sin(value), p.cos(value))


@op
def sinh(x: Any) -> Any:
    """Return the hyperbolic sine of each element."""
    value = floating(x)
    # exp(|x| / 2) twice, so that nothing overflows before the result does.
    half = p.exp(multiply(p.absolute(value), 0.5))
    large = p.multiply(multiply(half, 0.5), half)
    grown = p.expm1(clip(value, -1.0, 1.0))
    small = multiply(grown + grown / (grown + 1.0), 0.5)
    far = p.multiply(p.sign(value), large - 0.25 / large)
    return p.where(p.absolute(value) < 1.0, small, far)


@op
def cosh(x: Any) -> Any:
    """Return the hyperbolic cosine of each element."""
    half = p.exp(multiply(p.absolute(floating(x)), 0.5))
    large = p.multiply(multiply(half, 0.5), half)
    return large + 0.25 / large


@op
def arcsinh(x: Any) -> Any:
    """Return the inverse of the hyperbolic sine."""
    value = floating(x)
    # |x|, but with slope 1 at 0, where this function has slope 1 as well.
    size = p.where(value < 0.0, p.negative(value), value)
    near = p.minimum(size, s.fill(_LARGE, size))
    square = p.multiply(near, near)
    small = p.log1p(near + square / (p.sqrt(square + 1.0) + 1.0))
    large = p.log(p.maximum(size, s.fill(1, size))) + math.log(2)
    made = p.where(size < _LARGE, small, large)
    return p.where(value < 0.0, p.negative(made), made)


@op
def arccosh(x: Any) -> Any:
    """Return the inverse of the hyperbolic cosine, NaN below 1."""
    value = floating(x)
    above = p.minimum(value, s.fill(_LARGE, value)) - 1.0
    near = p.log1p(above + p.sqrt(above) * p.sqrt(above + 2.0))
    return p.where(value < _LARGE, near, p.log(value) + math.log(2))


@op
def arctanh(x: Any) -> Any:
    """Return the inverse of the hyperbolic tangent."""
    value = floating(x)
    return multiply(p.log1p(value) - p.log1p(p.negative(value)), 0.5)


@op
def exp2(x: Any) -> Any:
    """Return two to the power of each element."""
    return power(2.0, floating(x))


@op
def logaddexp(x1: Any, x2: Any) -> Any:
    """Return log(exp(x1) + exp(x2)) without overflow."""
    a, b = (floating(one) for one in promoted(x1, x2))
    # The difference of equal infinities is no number.
    apart = p.where(isnan(a - b), s.fill(0, a), a - b)
    # At a tie the larger is b, with slope 1, and the rest has slopes 1/2 and -1/2.
    below = p.where(apart <= 0.0, apart, p.negative(apart))
    return p.add(p.maximum(a, b), p.log1p(p.exp(below)))


@op
def hypot(x1: Any, x2: Any) -> Any:
    """Return sqrt(x1² + x2²) without overflow."""
    a, b = (floating_with_room(one) for one in promoted(x1, x2))
    # The scale takes no part in the slope: whatever it is, the result is the same.
    top = p.stop_gradient(p.maximum(p.absolute(a), p.absolute(b)))
    usable = p.logical_and(top > 0.0, top < math.inf)
    scale = p.where(usable, top, s.fill(1, top))
    # Where it cannot be used, ones, so that no 0 meets an infinity on the way back.
    a, b = (p.where(usable, p.divide(one, scale), s.fill(1, one)) for one in (a, b))
    return p.where(usable, p.multiply(scale, p.sqrt(a * a + b * b)), top)


@op
def trunc(x: Any) -> Any:
    """Round towards zero; whole numbers stay."""
    value = read(x)
    if value.dtype.kind != "f":
        return value
    up = p.negative(p.floor(p.negative(value)))
    return p.where(value < 0.0, up, p.floor(value))


@op
def fabs(x: Any) -> Any:
    """Take away the sign, as floats."""
    return absolute(floating(x))


@op
def deg2rad(x: Any) -> Any:
    """Turn degrees into radians."""
    return multiply(floating_with_room(x), math.pi / 180)


@op
def rad2deg(x: Any) -> Any:
    """Turn radians into degrees."""
    return multiply(floating_with_room(x), 180 / math.pi)


@op
def heaviside(x1: Any, x2: Any) -> Any:
    """Return 0 below zero, 1 above, and x2 at zero."""
    a, b = (floating_with_room(one) for one in promoted(x1, x2))
    step = p.where(a > 0.0, s.fill(1, a), p.where(a < 0.0, s.fill(0, a), b))
    return p.where(isnan(a), a, step)


@op
def divide_no_nan(x1: Any, x2: Any) -> Any:
    """Divide, with 0 where the divisor is 0."""
    a, b = (floating(one) for one in promoted(x1, x2))
    zero = p.equal(b, s.fill(0, b))
    quotient = p.divide(a, p.where(zero, s.fill(1, b), b))
    return p.where(zero, s.fill(0, b), quotient)


@op
def nan_to_num(x: Any, nan: float = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    """Replace NaN and infinities by numbers."""
    value = read(x)
    if value.dtype.kind != "f":
        return value  # whole numbers are neither NaN nor infinite
    bounds = np.finfo(value.dtype)
    top = float(bounds.max) if posinf is None else posinf
    low = float(bounds.min) if neginf is None else neginf
    value = where(isnan(value), nan, value)
    return where(isposinf(value), top, where(isneginf(value), low, value))


@op
def isposinf(x: Any) -> Any:
    """Return which elements are positive and infinite."""
    return equal(floating(x), math.inf)


@op
def isneginf(x: Any) -> Any:
    """Return which elements are negative and infinite."""
    return equal(floating(x), -math.inf)


@op
def isclose(
    x1: Any, x2: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    """Return which elements differ by at most atol + rtol |x2|."""
    a, b = (floating(one) for one in promoted(x1, x2))
    near = less_equal(absolute(a - b), absolute(b) * rtol + atol)
    near = logical_and(near, logical_and(isfinite(a), isfinite(b)))
    near = logical_or(near, logical_and(isinf(a), equal(a, b)))
    return logical_or(near, logical_and(isnan(a), isnan(b))) if equal_nan else near


@op
def select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    """Choose by the first condition that holds, element by element."""
    made = default
    for condition, choice in reversed(list(zip(condlist, choicelist, strict=True))):
        made = where(condition, choice, made)
    return made


@op
def rsqrt(x: Any) -> Any:
    """Return 1 / sqrt(x)."""
    return divide(1.0, p.sqrt(floating(x)))
