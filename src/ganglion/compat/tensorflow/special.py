"""`tf.math`: special functions, written in ops so that they have gradients."""

from __future__ import annotations

import math
from typing import Any

from ganglion import ops

# Lanczos' approximation for g = 7: good to the last bits of a double.
_LANCZOS = (
    0.99999999999980993,
    676.5203681218851,
    -1259.1392167224028,
    771.32342877765313,
    -176.61502916214059,
    12.507343278686905,
    -0.13857109526572012,
    9.9843695780195716e-6,
    1.5056327351493116e-7,
)
_SHIFT = 6  # from where on the series for large numbers is exact enough
_SERIES = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132)


def lgamma(x: Any) -> Any:
    """Return the logarithm of the absolute value of the gamma function."""
    x = ops.convert_to_tensor(x)
    is_left = ops.less(x, 0.5)
    z = ops.where(is_left, 1 - x, x) - 1
    base = z + 7.5
    terms = [c / (z + n) for n, c in enumerate(_LANCZOS) if n]
    total = sum(terms, ops.full_like(z, _LANCZOS[0]))
    right = (
        0.5 * math.log(2 * math.pi) + (z + 0.5) * ops.log(base) - base + ops.log(total)
    )
    # The other half is a reflection; its sine is not used elsewhere.
    sine = ops.sin(math.pi * ops.where(is_left, x, ops.full_like(x, 0.25)))
    left = math.log(math.pi) - ops.log(ops.abs(sine)) - right
    return ops.where(is_left, left, right)


def digamma(x: Any) -> Any:
    """Return the slope of `lgamma`."""
    x = ops.convert_to_tensor(x)
    is_left = ops.less(x, 0.5)
    z = ops.where(is_left, 1 - x, x)
    below = sum((1 / (z + n) for n in range(_SHIFT)), ops.zeros_like(z))
    far = z + _SHIFT
    square = 1 / ops.square(far)
    tail = ops.zeros_like(z)
    for coefficient in reversed(_SERIES):
        tail = (tail + coefficient) * square
    right = ops.log(far) - 0.5 / far - tail - below
    angle = math.pi * ops.where(is_left, x, ops.full_like(x, 0.25))
    return ops.where(is_left, right - math.pi / ops.tan(angle), right)


def cumulative_logsumexp(
    x: Any, axis: int = 0, exclusive: bool = False, reverse: bool = False
) -> Any:
    """Return the logarithm of the running sum of exponentials along an axis."""
    if exclusive:
        raise NotImplementedError(
            "tf.math.cumulative_logsumexp: exclusive=True is not supported."
        )
    return ops.associative_scan(ops.logaddexp, x, reverse=reverse, axis=axis)


def xdivy(x: Any, y: Any) -> Any:
    """Return x / y, and 0 where x is 0, whatever y is."""
    is_zero = ops.equal(x, 0)
    safe = ops.where(is_zero, ops.ones_like(y), y)
    return ops.where(is_zero, ops.zeros_like(y), ops.divide(x, safe))


def xlog1py(x: Any, y: Any) -> Any:
    """Return x log(1 + y), and 0 where x is 0, whatever y is."""
    is_zero = ops.equal(x, 0)
    safe = ops.where(is_zero, ops.zeros_like(y), y)
    return ops.where(is_zero, ops.zeros_like(y), ops.multiply(x, ops.log1p(safe)))


def reciprocal_no_nan(x: Any) -> Any:
    """Return 1 / x, and 0 where x is 0."""
    return ops.divide_no_nan(ops.ones_like(x), x)


def is_non_decreasing(x: Any) -> Any:
    """Return whether no number is less than the one before."""
    flat = ops.reshape(x, (-1,))
    return ops.all(ops.less_equal(flat[:-1], flat[1:]))


def is_strictly_increasing(x: Any) -> Any:
    """Return whether every number is greater than the one before."""
    flat = ops.reshape(x, (-1,))
    return ops.all(ops.less(flat[:-1], flat[1:]))


def squared_difference(x: Any, y: Any) -> Any:
    """Return (x - y)²."""
    return ops.square(ops.subtract(x, y))


def multiply_no_nan(x: Any, y: Any) -> Any:
    """Return x y, and 0 where y is 0, whatever x is."""
    return ops.where(ops.equal(y, 0), ops.zeros_like(x), ops.multiply(x, y))


def erfc(x: Any) -> Any:
    """Return 1 - erf(x)."""
    return ops.subtract(1.0, ops.erf(x))


def xlogy(x: Any, y: Any) -> Any:
    """Return x log(y), and 0 where x is 0, whatever y is."""
    is_zero = ops.equal(x, 0)
    safe = ops.where(is_zero, ops.ones_like(y), y)
    return ops.where(is_zero, ops.zeros_like(y), ops.multiply(x, ops.log(safe)))


def polyval(coeffs: Any, x: Any) -> Any:
    """Return a polynomial, the highest power first, at x."""
    total = ops.zeros_like(x)
    for factor in coeffs:
        total = total * x + factor
    return total
