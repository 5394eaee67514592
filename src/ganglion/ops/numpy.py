"""Arithmetic, comparison and elementary functions, named as in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from ganglion.compiler.ir import pointwise as p
from ganglion.compiler.ir import shaping as s
from ganglion.compiler.ir.graph import Op, Value
from ganglion.compiler.ir.shaping import is_float, splat
from ganglion.dtypes import finfo, standardize_dtype
from ganglion.ops.dispatch import (
    astype,
    broadcast_all,
    floating,
    floating_with_room,
    is_weak,
    numeric,
    op,
    promoted,
    promoted_floats,
    promoted_with_room,
)
from ganglion.tensors import Tensor
from ganglion.variables import read

__all__ = [
    "abs", "absolute", "add", "arccosh", "arcsinh", "arctanh", "cast", "ceil", "clip",
    "convert_to_numpy", "convert_to_tensor", "cos", "cosh", "deg2rad", "divide",
    "divide_no_nan", "dtype", "equal", "erf", "exp", "exp2", "expm1", "fabs", "floor",
    "floor_divide", "greater", "greater_equal", "heaviside", "hypot", "is_tensor",
    "isclose", "isfinite", "isinf", "isnan", "isneginf", "isposinf", "less",
    "less_equal", "log", "log1p", "log2", "log10", "logaddexp", "logical_and",
    "logical_not", "logical_or", "logical_xor", "maximum", "minimum", "mod", "multiply",
    "nan_to_num", "ndim", "negative", "not_equal", "power", "rad2deg", "reciprocal",
    "round", "rsqrt", "select", "shape", "sign", "sin", "sinh", "size", "sqrt",
    "square", "stop_gradient", "subtract", "tan", "tanh", "true_divide", "trunc",
    "where",
]  # fmt: skip


class Unary(Protocol):
    """A function of one array-like, element by element."""

    def __call__(self, x: Any) -> Any: ...


class Binary(Protocol):
    """A function of two array-likes, element by element."""

    def __call__(self, x1: Any, x2: Any) -> Any: ...


def _unary(name: str, function: Callable[[Any], Any], doc: str) -> Unary:
    def unary(x: Any) -> Any:
        return function(x)

    return _named(unary, name, doc)


def _binary(name: str, function: Callable[[Any, Any], Any], doc: str) -> Binary:
    def binary(x1: Any, x2: Any) -> Any:
        return function(x1, x2)

    return _named(binary, name, doc)


def _named(function: Any, name: str, doc: str) -> Any:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return op(function)


def _promoting(primitive: Op) -> Callable[[Any, Any], Value]:
    return lambda x1, x2: primitive(*promoted(x1, x2))


def _floating(primitive: Op) -> Callable[[Any], Value]:
    return lambda x: primitive(floating(x))


def _bools(*operands: Any) -> list[Value]:
    return promoted(*(astype(x, bool) for x in operands))


_COMPARE = "Compare element by element."

add = _binary("add", _promoting(p.add), "Add element by element.")
subtract = _binary("subtract", _promoting(p.subtract), "Subtract element by element.")
multiply = _binary("multiply", _promoting(p.multiply), "Multiply element by element.")
# A tie of the primitive belongs to its second input.
maximum = _binary(
    "maximum",
    lambda x1, x2: p.maximum(*reversed(promoted(x1, x2))),
    "The larger of each two elements; the slope at a tie is that of the first.",
)
minimum = _binary(
    "minimum",
    lambda x1, x2: p.minimum(*reversed(promoted(x1, x2))),
    "The smaller of each two elements; the slope at a tie is that of the first.",
)
equal = _binary("equal", _promoting(p.equal), _COMPARE)
not_equal = _binary("not_equal", lambda a, b: p.logical_not(equal(a, b)), _COMPARE)
less = _binary("less", _promoting(p.less), _COMPARE)
less_equal = _binary("less_equal", _promoting(p.less_equal), _COMPARE)
greater = _binary("greater", lambda x1, x2: less(x2, x1), _COMPARE)
greater_equal = _binary("greater_equal", lambda a, b: less_equal(b, a), _COMPARE)
logical_and = _binary(
    "logical_and", lambda x1, x2: p.logical_and(*_bools(x1, x2)), "Both are true."
)
logical_or = _binary(
    "logical_or", lambda x1, x2: p.logical_or(*_bools(x1, x2)), "At least one is true."
)
logical_xor = _binary(
    "logical_xor", lambda x1, x2: not_equal(*_bools(x1, x2)), "Exactly one is true."
)
logical_not = _unary(
    "logical_not",
    lambda x: p.logical_not(astype(x, bool)),
    "Turn true into false and false into true.",
)

negative = _unary("negative", lambda x: p.negative(numeric(x)), "Change the sign.")
sign = _unary("sign", lambda x: p.sign(numeric(x)), "Return -1, 0 or 1.")
reciprocal = _unary("reciprocal", lambda x: divide(1.0, x), "Return 1 / x.")
exp = _unary("exp", _floating(p.exp), "The exponential of each element.")
expm1 = _unary("expm1", _floating(p.expm1), "exp(x) - 1, exact near zero.")
exp2 = _unary("exp2", lambda x: power(2.0, floating(x)), "Two to the power of x.")
log = _unary("log", _floating(p.log), "The natural logarithm of each element.")
log1p = _unary("log1p", _floating(p.log1p), "log(1 + x), exact near zero.")
log2 = _unary("log2", lambda x: divide(log(x), math.log(2)), "Logarithm to base 2.")
log10 = _unary("log10", lambda x: divide(log(x), math.log(10)), "Logarithm to base 10.")
sqrt = _unary("sqrt", _floating(p.sqrt), "The square root of each element.")
rsqrt = _unary("rsqrt", lambda x: divide(1.0, sqrt(x)), "Return 1 / sqrt(x).")
sin = _unary("sin", _floating(p.sin), "The sine of each element.")
cos = _unary("cos", _floating(p.cos), "The cosine of each element.")
tan = _unary("tan", lambda x: p.divide(sin(x), cos(x)), "The tangent of each element.")
tanh = _unary("tanh", _floating(p.tanh), "The hyperbolic tangent of each element.")
arctanh = _unary(
    "arctanh",
    lambda x: multiply(log1p(x) - log1p(p.negative(floating(x))), 0.5),
    "Return the inverse of the hyperbolic tangent.",
)
erf = _unary("erf", _floating(p.erf), "The error function of each element.")
floor = _unary("floor", _floating(p.floor), "Round down.")
ceil = _unary("ceil", lambda x: p.negative(floor(p.negative(floating(x)))), "Round up.")
fabs = _unary("fabs", lambda x: absolute(floating(x)), "Remove the sign, as floats.")
deg2rad = _unary(
    "deg2rad",
    lambda x: multiply(floating_with_room(x), math.pi / 180),
    "Turn degrees into radians.",
)
rad2deg = _unary(
    "rad2deg",
    lambda x: multiply(floating_with_room(x), 180 / math.pi),
    "Turn radians into degrees.",
)
isfinite = _unary("isfinite", _floating(p.is_finite), "Neither infinite nor NaN.")
isnan = _unary("isnan", lambda x: not_equal(x, x), "Which elements are not a number.")
isinf = _unary(
    "isinf",
    lambda x: equal(absolute(floating(x)), math.inf),
    "Return which elements are infinite.",
)
isposinf = _unary(
    "isposinf",
    lambda x: equal(floating(x), math.inf),
    "Return which elements are positive and infinite.",
)
isneginf = _unary(
    "isneginf",
    lambda x: equal(floating(x), -math.inf),
    "Return which elements are negative and infinite.",
)


@op
def square(x: Any) -> Any:
    """Multiply each element by itself."""
    value = numeric(x)
    return p.multiply(value, value)


@op
def cosh(x: Any) -> Any:
    """Return the hyperbolic cosine of each element."""
    half = p.exp(multiply(p.absolute(floating(x)), 0.5))
    large = p.multiply(multiply(half, 0.5), half)
    return large + 0.25 / large


@op
def mod(x1: Any, x2: Any) -> Any:
    """Remainder with the sign of the divisor; of an integer by 0 it is 0."""
    a, b = map(numeric, promoted(x1, x2))
    return p.remainder(a, b if is_float(b.dtype) else _safe_divisor(b))


def _safe_divisor(b: Value) -> Value:
    """Put 1 in place of 0 and -1: their remainders are 0, and processors trap."""
    number = splat(b)
    if number is not None and number not in (0, -1):
        return b
    risky = p.equal(b, s.fill(0, b))
    if b.dtype.kind == "i":
        risky = p.logical_or(risky, p.equal(b, s.fill(-1, b)))
    return p.where(risky, s.fill(1, b), b)


@op
def divide(x1: Any, x2: Any) -> Any:
    """Divide element by element; integers give floats."""
    return p.divide(*promoted_floats(x1, x2))


true_divide = divide


@op
def floor_divide(x1: Any, x2: Any) -> Any:
    """Divide and round down, keeping the type; 0 where an integer meets 0."""
    a, b = promoted(x1, x2)
    if is_float(a.dtype):
        return p.floor(p.divide(a, b))
    a, b = numeric(a), numeric(b)
    zero = p.equal(b, s.fill(0, b))
    divisor = p.where(zero, s.fill(1, b), b)
    # Doubles do not hold every 64-bit number: what they miss is a small multiple of b.
    exact = p.subtract(a, mod(a, b))
    about = _quotient(exact, divisor)
    rest = p.subtract(exact, p.multiply(about, divisor))
    quotient = p.add(about, _quotient(rest, divisor))
    return p.where(zero, s.fill(0, quotient), quotient)


def _quotient(a: Value, b: Value) -> Value:
    """Divide integers in doubles and round to the nearest."""
    wide = p.divide(astype(a, "float64"), astype(b, "float64"))
    return astype(p.round(wide), a.dtype)


@op
def power(x1: Any, x2: Any) -> Any:
    """Raise to a power; small whole powers become products."""
    a, b = promoted(x1, x2)
    if is_weak(x2) and x2 in (1, 2, 3):
        square_ = p.multiply(a, a) if x2 > 1 else a
        return p.multiply(square_, a) if x2 == 3 else square_
    if a.dtype.kind == "c":
        from ganglion.ops.complex_numbers import complex_power  # imports this module

        return complex_power(a, b)
    if is_float(a.dtype):
        return p.power(a, b)
    if is_weak(x2) and x2 >= 0:
        return _product_of_powers(a, int(x2))
    wide = p.power(astype(a, "float64"), astype(b, "float64"))
    rounded = astype(p.round(wide), a.dtype)
    # Doubles do not hold every 64-bit number: small exponents are taken bit by bit.
    is_small = p.logical_and(b >= 0, b < 2**_EXPONENT_BITS)
    return p.where(is_small, _product_by_bits(a, b), rounded)


_EXPONENT_BITS = 6  # of what a 64-bit number can be raised to before it is too large


def _product_by_bits(a: Value, b: Value) -> Value:
    power_, rest = s.fill(1, a), b
    for _ in range(_EXPONENT_BITS):
        half = floor_divide(rest, 2)
        is_odd = p.logical_not(p.equal(p.add(half, half), rest))
        power_ = p.where(is_odd, p.multiply(power_, a), power_)
        a, rest = p.multiply(a, a), half
    return power_


def _product_of_powers(a: Value, exponent: int) -> Value:
    """Raise integers to a power by squaring, exactly."""
    power_ = s.fill(1, a)
    while exponent:
        if exponent & 1:
            power_ = p.multiply(power_, a)
        exponent >>= 1
        a = p.multiply(a, a) if exponent else a
    return power_


@op
def absolute(x: Any) -> Any:
    """Take away the sign."""
    value = read(x)
    return value if value.dtype.kind in "bu" else p.absolute(value)


@op
def round(x: Any, decimals: int = 0) -> Any:  # noqa: A001 (Keras' name)
    """Round to a number of decimals, halves to even; integers stay."""
    value = read(x)
    if not is_float(value.dtype) and decimals >= 0:
        return value
    scale = 10.0**decimals
    rounded = divide(p.round(floating(multiply(value, scale))), scale)
    return rounded if is_float(value.dtype) else astype(rounded, value.dtype)


@op
def clip(x: Any, x_min: Any, x_max: Any) -> Any:
    """Limit each element to a range."""
    if is_weak(x_min) and is_weak(x_max) and x_min > x_max:
        return maximum(minimum(x, x_max), x_min)  # as Keras: the lower bound wins
    return minimum(maximum(x, x_min), x_max)


@op
def where(condition: Any, x1: Any = None, x2: Any = None) -> Any:
    """Choose from x1 where the condition holds, else from x2.

    Without either, return the indices of what is not zero, as `nonzero` does.
    """
    if x1 is None and x2 is None:
        from ganglion.ops.order.sorting import nonzero  # which imports this module

        return nonzero(condition)
    if x1 is None or x2 is None:
        raise ValueError(
            "ops.where: `x1` and `x2` either both should be `None` or both be given: "
            "where(condition, x1, x2)."
        )
    a, b = promoted(x1, x2)
    return p.where(*broadcast_all([astype(condition, bool), a, b]))


_LARGE = 1e8  # beyond this sqrt(x² + 1) is x in both float types


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
def arcsinh(x: Any) -> Any:
    """Return the inverse of the hyperbolic sine."""
    value = floating(x)
    # |x|, but with slope 1 at 0, where this function has slope 1 as well.
    size = p.where(value < 0.0, p.negative(value), value)
    near = p.minimum(size, s.fill(_LARGE, size))
    square = p.multiply(near, near)
    small = p.log1p(near + square / (p.sqrt(square + 1.0) + 1.0))
    large = p.log(p.maximum(size, s.fill(1, size))) + math.log(2)
    result = p.where(size < _LARGE, small, large)
    return p.where(value < 0.0, p.negative(result), result)


@op
def arccosh(x: Any) -> Any:
    """Return the inverse of the hyperbolic cosine, NaN below 1."""
    value = floating(x)
    above = p.minimum(value, s.fill(_LARGE, value)) - 1.0
    near = p.log1p(above + p.sqrt(above) * p.sqrt(above + 2.0))
    return p.where(value < _LARGE, near, p.log(value) + math.log(2))


@op
def logaddexp(x1: Any, x2: Any) -> Any:
    """Return log(exp(x1) + exp(x2)) without overflow."""
    a, b = promoted_floats(x1, x2)
    # The difference of equal infinities is no number.
    apart = p.where(isnan(a - b), s.fill(0, a), a - b)
    # At a tie the larger is b, with slope 1, and the rest has slopes 1/2 and -1/2.
    below = p.where(apart <= 0.0, apart, p.negative(apart))
    return p.add(p.maximum(a, b), p.log1p(p.exp(below)))


@op
def hypot(x1: Any, x2: Any) -> Any:
    """Return sqrt(x1² + x2²) without overflow."""
    a, b = promoted_with_room(x1, x2)
    # The scale takes no part in the slope: whatever it is, the result is the same.
    top = p.stop_gradient(p.maximum(p.absolute(a), p.absolute(b)))
    usable = p.logical_and(top > 0.0, top < math.inf)
    scale = p.where(usable, top, s.fill(1, top))
    # Where it is not used, 1, so that gradients have no 0 times infinity.
    a, b = (p.where(usable, p.divide(x, scale), s.fill(1, x)) for x in (a, b))
    return p.where(usable, p.multiply(scale, p.sqrt(a * a + b * b)), top)


@op
def trunc(x: Any) -> Any:
    """Round towards zero; integers stay."""
    value = read(x)
    if value.dtype.kind != "f":
        return value
    up = p.negative(p.floor(p.negative(value)))
    return p.where(value < 0.0, up, p.floor(value))


@op
def heaviside(x1: Any, x2: Any) -> Any:
    """Return 0 below zero, 1 above, and x2 at zero."""
    a, b = promoted_with_room(x1, x2)
    step = p.where(a > 0.0, s.fill(1, a), p.where(a < 0.0, s.fill(0, a), b))
    return p.where(isnan(a), a, step)


@op
def divide_no_nan(x1: Any, x2: Any) -> Any:
    """Divide, with 0 where the divisor is 0."""
    a, b = promoted_floats(x1, x2)
    zero = p.equal(b, s.fill(0, b))
    quotient = p.divide(a, p.where(zero, s.fill(1, b), b))
    return p.where(zero, s.fill(0, b), quotient)


@op
def nan_to_num(x: Any, nan: float = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    """Replace NaN and infinities by numbers."""
    value = read(x)
    if not s.is_float(value.dtype):
        return value  # integers are neither NaN nor infinite
    bounds = finfo(value.dtype)
    top = float(bounds.max) if posinf is None else posinf
    low = float(bounds.min) if neginf is None else neginf
    value = where(isnan(value), nan, value)
    return where(isposinf(value), top, where(isneginf(value), low, value))


@op
def isclose(
    x1: Any, x2: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    """Return which elements differ by at most atol + rtol |x2|."""
    a, b = promoted_floats(x1, x2)
    near = less_equal(absolute(a - b), absolute(b) * rtol + atol)
    near = logical_and(near, logical_and(isfinite(a), isfinite(b)))
    near = logical_or(near, logical_and(isinf(a), equal(a, b)))
    return logical_or(near, logical_and(isnan(a), isnan(b))) if equal_nan else near


@op
def select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    """Choose by the first condition that holds, element by element."""
    chosen = default
    for condition, choice in reversed(list(zip(condlist, choicelist, strict=True))):
        chosen = where(condition, choice, chosen)
    return chosen


@op
def cast(x: Any, dtype: Any) -> Any:
    """Change the type; None means `config.floatx()`."""
    return astype(x, standardize_dtype(dtype))


@op
def convert_to_tensor(
    x: Any, dtype: Any = None, sparse: Any = None, ragged: Any = None
) -> Any:
    """Return an array-like as an array, or a traced value inside of a trace."""
    if sparse or ragged:
        raise ValueError("ops.convert_to_tensor makes dense arrays only.")
    return read(x) if dtype is None else astype(x, dtype)


def convert_to_numpy(x: Any) -> np.ndarray:
    """Return a variable, array or a value whose numbers are known as a NumPy array."""
    return np.array(x)


@op
def stop_gradient(variable: Any) -> Any:
    """Return the value, but pass no gradient."""
    return p.stop_gradient(read(variable))


def shape(x: Any) -> tuple[int | None, ...]:
    """Return the shape; unknown axes of a Keras tensor are None."""
    return tuple(x.shape) if hasattr(x, "shape") else np.shape(x)


def ndim(x: Any) -> int:
    """Return the number of axes."""
    return len(shape(x))


def is_tensor(x: Any) -> bool:
    """Return whether this is a tensor or a traced value; arrays of NumPy are none."""
    return isinstance(x, (Tensor, Value))


def size(x: Any) -> int | None:
    """Return the number of elements, None if it is not known."""
    sizes = shape(x)
    return None if None in sizes else math.prod(n for n in sizes if n is not None)


def dtype(x: Any) -> str:
    """Return the name of the type."""
    return np.dtype(x.dtype if hasattr(x, "dtype") else read(x).dtype).name


abs = absolute  # noqa: A001 (Keras' name)
