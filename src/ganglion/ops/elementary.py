"""Further functions of single elements: inverse trigonometry, special functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ganglion.compiler.ir import pointwise as p
from ganglion.compiler.ir import shaping as s
from ganglion.compiler.ir.graph import Constant, Op, Value
from ganglion.compiler.ir.host import host_op
from ganglion.compiler.ir.shaping import is_float
from ganglion.dtypes import finfo, is_float_dtype, standardize_dtype
from ganglion.ops.dispatch import (
    astype,
    floating,
    floating_with_room,
    numeric,
    op,
    promoted,
    promoted_floats,
    stretch,
)
from ganglion.ops.numpy import clip, equal, isnan, logaddexp, mod, multiply, power
from ganglion.variables import read

__all__ = [
    "arccos", "arcsin", "arctan", "arctan2", "cbrt", "erfc", "erfinv", "fmax", "fmin",
    "fmod", "gcd", "i0", "isreal", "lcm", "ldexp", "logaddexp2", "nextafter",
    "saturate_cast", "signbit", "sinc",
]  # fmt: skip


def _unary(
    name: str, primitive: Op, doc: str, to_float: Callable[[Any], Value] = floating
) -> Any:
    def function(x: Any) -> Any:
        return primitive(to_float(x))

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return op(function)


arcsin = _unary("arcsin", p.arcsin, "The angle in [-π/2, π/2] of this sine.")
arccos = _unary("arccos", p.arccos, "The angle in [0, π] of this cosine.")
arctan = _unary("arctan", p.arctan, "The angle in (-π/2, π/2) of this tangent.")
cbrt = _unary("cbrt", p.cbrt, "The cube root of each element.", floating_with_room)
erfc = _unary("erfc", p.erfc, "1 - erf(x), exact where erf is near 1.")


@op
def arctan2(x1: Any, x2: Any) -> Any:
    """Return the angle of the point (x2, x1), from -π to π."""
    a, b = promoted_floats(x1, x2)
    return p.arctan2(a, b)


# Giles, "Approximating the erfinv function": polynomials in w = -log(1 - x²), the
# highest power first, around w = 2.5 below 5 and around sqrt(w) = 3 beyond.
_ERFINV_NEAR = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
    -0.00125372503, -0.00417768164, 0.246640727, 1.50140941,
)  # fmt: skip
_ERFINV_FAR = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
    -0.0076224613, 0.00943887047, 1.00167406, 2.83297682,
)  # fmt: skip


def _polynomial(x: Value, coefficients: tuple[float, ...]) -> Value:
    total = s.fill(coefficients[0], x)
    for coefficient in coefficients[1:]:
        total = p.add(p.multiply(total, x), s.fill(coefficient, x))
    return total


@op
def erfinv(x: Any) -> Any:
    """Return the inverse of the error function, for x between -1 and 1."""
    value = floating(x)
    ones, size = s.fill(1, value), p.absolute(value)
    inside = p.less(size, ones)
    near = p.where(inside, value, s.fill(0, value))
    w = p.negative(p.add(p.log1p(p.negative(near)), p.log1p(near)))
    root = p.sqrt(p.maximum(w, s.fill(5, w)))  # of no 0, which has no slope
    near_w = p.minimum(w, s.fill(5, w))
    small = _polynomial(p.subtract(near_w, s.fill(2.5, w)), _ERFINV_NEAR)
    large = _polynomial(p.subtract(root, s.fill(3, w)), _ERFINV_FAR)
    inverse: Value = p.multiply(p.where(w < 5.0, small, large), near)
    if value.dtype.itemsize == 8:
        for _ in range(2):
            inverse = _newton(inverse, near)
    ends = p.where(
        p.equal(size, ones), s.fill(math.inf, value), s.fill(math.nan, value)
    )
    # 1 where they are not chosen, so that gradients have no 0 times infinity.
    ends = p.where(inside, ones, ends)
    return p.where(inside, inverse, p.multiply(ends, value))


def _newton(y: Value, x: Value) -> Value:
    """Improve the inverse of the error function, seen from the side that is exact."""
    size, target = p.absolute(y), p.absolute(x)
    beyond = p.subtract(p.subtract(s.fill(1, x), target), p.erfc(size))
    inside = p.subtract(p.erf(size), target)
    off = p.where(p.less(target, s.fill(0.5, x)), inside, beyond)
    slope = multiply(p.exp(p.negative(p.multiply(y, y))), 2 / math.sqrt(math.pi))
    return p.subtract(y, p.multiply(p.sign(x), p.divide(off, slope)))


_ANGLES = 64


@op
def i0(x: Any) -> Any:
    """Return the modified Bessel function of the first kind, of order 0.

    It is the mean of exp(x cos θ) over a circle, and equal steps of θ give a mean of
    something periodic exactly, but for rounding.
    """
    value = floating_with_room(x)
    cosines = np.cos((np.arange(_ANGLES) + 0.5) * (math.pi / _ANGLES))
    wide = (*value.shape, _ANGLES)
    column = s.reshape(value, shape=(*value.shape, 1))
    angles = s.broadcast(Constant(cosines, value.dtype), shape=wide)
    waves = p.exp(p.multiply(s.broadcast(column, shape=wide), angles))
    return multiply(s.sum_(waves, axes=(value.ndim,)), 1 / _ANGLES)


@op
def sinc(x: Any) -> Any:
    """Return sin(πx) / (πx), 1 at 0."""
    value = multiply(floating(x), math.pi)
    is_zero = p.equal(value, s.fill(0, value))
    # Near 0 the slope of the quotient would be 0 / 0: there it is a parabola's.
    safe = p.where(is_zero, s.fill(1, value), value)
    near = p.subtract(s.fill(1, value), multiply(p.multiply(value, value), 1 / 6))
    return p.where(is_zero, near, p.divide(p.sin(safe), safe))


@op
def logaddexp2(x1: Any, x2: Any) -> Any:
    """Return log2(2**x1 + 2**x2) without overflow."""
    a, b = promoted_floats(x1, x2)
    total = logaddexp(multiply(a, math.log(2)), multiply(b, math.log(2)))
    return multiply(total, 1 / math.log(2))


@op
def ldexp(x1: Any, x2: Any) -> Any:
    """Return x1 * 2**x2, for an integer x2."""
    exponent = read(x2)
    if exponent.dtype.kind not in "iu":
        raise TypeError(
            f"ops.ldexp: the exponent x2 must be an integer, not {exponent.dtype.name}."
        )
    a, b = promoted_floats(x1, exponent)
    # In two steps, neither of which overflows before the result does.
    half = p.floor(multiply(b, 0.5))
    first = p.multiply(a, power(2.0, half))
    return p.multiply(first, power(2.0, p.subtract(b, half)))


@op
def signbit(x: Any) -> Any:
    """Return which elements have a minus sign, -0.0 among them."""
    value = numeric(x)
    below = p.less(value, s.fill(0, value))
    if not is_float(value.dtype):
        return below
    inverse = p.divide(s.fill(1, value), value)
    is_zero = p.equal(value, s.fill(0, value))
    is_below = p.less(inverse, s.fill(0, value))
    return p.logical_or(below, p.logical_and(is_zero, is_below))


def _nan_last(primitive: Op, x1: Any, x2: Any) -> Value:
    a, b = promoted(x1, x2)
    if a.dtype.kind == "b":
        return astype(primitive(numeric(b), numeric(a)), bool)
    if not is_float(a.dtype):
        return primitive(b, a)
    return p.where(isnan(a), b, p.where(isnan(b), a, primitive(b, a)))


@op
def fmax(x1: Any, x2: Any) -> Any:
    """Return the larger of each two elements; NaN only where both are."""
    return _nan_last(p.maximum, x1, x2)


@op
def fmin(x1: Any, x2: Any) -> Any:
    """Return the smaller of each two elements; NaN only where both are."""
    return _nan_last(p.minimum, x1, x2)


@op
def fmod(x1: Any, x2: Any) -> Any:
    """Return the remainder with the sign of the dividend."""
    a, b = map(numeric, promoted(x1, x2))
    if a.dtype.kind == "u":
        return mod(a, b)
    rest = mod(p.absolute(a), p.absolute(b))
    return p.where(p.less(a, s.fill(0, a)), p.negative(rest), rest)


@op
def nextafter(x1: Any, x2: Any) -> Any:
    """Return the next float after x1 in the direction of x2."""
    a, b = promoted_floats(x1, x2)
    # Backends compute half precision in float32, where the next number is another.
    return p.nextafter(a, b) if a.dtype.itemsize > 2 else _NEXT_HALF(a, b)


def _on_host(name: str, function: Any, gradient: Any = None) -> Op:
    return host_op(name, lambda a, b: (a.shape, a.dtype), function, gradient)


_GCD, _LCM = _on_host("gcd", np.gcd), _on_host("lcm", np.lcm)
_NEXT_HALF = _on_host("nextafter_half", np.nextafter, lambda node, g: [g, None])


def _divisors(name: str, primitive: Op, x1: Any, x2: Any) -> Value:
    a, b = promoted(x1, x2)
    if a.dtype.kind not in "iu":
        raise TypeError(f"ops.{name} takes integers, not {a.dtype.name}.")
    return primitive(a, b)


@op
def gcd(x1: Any, x2: Any) -> Any:
    """Return the greatest common divisor of integers."""
    return _divisors("gcd", _GCD, x1, x2)


@op
def lcm(x1: Any, x2: Any) -> Any:
    """Return the least common multiple of integers."""
    return _divisors("lcm", _LCM, x1, x2)


@op
def isreal(x: Any) -> Any:
    """Return which elements have no imaginary part: of real numbers, all."""
    value = read(x)
    if value.dtype.kind == "c":
        from ganglion.ops.complex_numbers import imag  # which imports this module

        return equal(imag(value), 0.0)
    return stretch(Constant(True), value.shape)


@op
def saturate_cast(x: Any, dtype: Any) -> Any:
    """Change the type; what is out of its range becomes the nearest number in it."""
    value, kind = read(x), np.dtype(standardize_dtype(dtype))
    if value.dtype.kind == "b" or kind.kind == "b":
        return astype(value, kind)
    low, high = _range(value.dtype, kind)
    return astype(clip(value, low, high), kind)


def _range(old: np.dtype, new: np.dtype) -> tuple[Any, Any]:
    """Return the smallest and largest number that both types have."""

    def bounds(dtype: np.dtype) -> tuple[Any, Any]:
        info: Any = finfo(dtype) if is_float_dtype(dtype) else np.iinfo(dtype)
        return info.min, info.max

    (old_low, old_high), (low, high) = bounds(old), bounds(new)
    low, high = max(low, old_low), min(high, old_high)
    if not is_float_dtype(old):
        return int(low), int(high)
    # The largest integer of a type may round up to a float beyond it.
    low, high = old.type(low), old.type(high)
    if not is_float_dtype(new) and float(high) > np.iinfo(new).max:
        high = np.nextafter(high, old.type(0))
    return float(low), float(high)
