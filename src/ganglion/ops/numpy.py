"""Arithmetic, comparison and reduction, named as in NumPy and `keras.ops`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ganglion.compiler.ir import pointwise as p
from ganglion.compiler.ir import shaping as s
from ganglion.compiler.ir.graph import Op, Value
from ganglion.compiler.ir.shaping import is_float
from ganglion.compiler.ir.simplify import splat
from ganglion.ops.dispatch import (
    astype,
    broadcast_all,
    floating,
    is_weak,
    numeric,
    op,
    promoted,
)
from ganglion.variables import read

__all__ = [
    "abs",
    "absolute",
    "add",
    "cast",
    "ceil",
    "clip",
    "convert_to_numpy",
    "convert_to_tensor",
    "cos",
    "divide",
    "dtype",
    "equal",
    "erf",
    "exp",
    "expm1",
    "floor",
    "floor_divide",
    "greater",
    "greater_equal",
    "is_tensor",
    "isfinite",
    "isinf",
    "isnan",
    "less",
    "less_equal",
    "log",
    "log1p",
    "log2",
    "log10",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "mod",
    "multiply",
    "ndim",
    "negative",
    "not_equal",
    "power",
    "reciprocal",
    "round",
    "shape",
    "sign",
    "sin",
    "size",
    "sqrt",
    "square",
    "stop_gradient",
    "subtract",
    "tanh",
    "true_divide",
    "where",
]  # fmt: skip


def _named(function: Callable[..., Any], name: str, doc: str) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return op(function)


def _arithmetic(name: str, primitive: Op, doc: str) -> Callable[..., Any]:
    def function(x1: Any, x2: Any) -> Any:
        return primitive(*promoted(x1, x2))

    return _named(function, name, doc)


def _float_function(name: str, primitive: Op, doc: str) -> Callable[..., Any]:
    def function(x: Any) -> Any:
        return primitive(floating(x))

    return _named(function, name, doc)


add = _arithmetic("add", p.add, "Add element by element.")
subtract = _arithmetic("subtract", p.subtract, "Subtract element by element.")
multiply = _arithmetic("multiply", p.multiply, "Multiply element by element.")
equal = _arithmetic("equal", p.equal, "Compare element by element.")
less = _arithmetic("less", p.less, "Compare element by element.")
less_equal = _arithmetic("less_equal", p.less_equal, "Compare element by element.")


@op
def maximum(x1: Any, x2: Any) -> Any:
    """The larger of each two elements; the slope at a tie is that of the first."""
    # The primitive's ties belong to its second input.
    return p.maximum(*reversed(promoted(x1, x2)))


@op
def minimum(x1: Any, x2: Any) -> Any:
    """The smaller of each two elements; the slope at a tie is that of the first."""
    return p.minimum(*reversed(promoted(x1, x2)))


exp = _float_function("exp", p.exp, "The exponential of each element.")
expm1 = _float_function("expm1", p.expm1, "exp(x) - 1, exact near zero.")
log = _float_function("log", p.log, "The natural logarithm of each element.")
log1p = _float_function("log1p", p.log1p, "log(1 + x), exact near zero.")
sqrt = _float_function("sqrt", p.sqrt, "The square root of each element.")
sin = _float_function("sin", p.sin, "The sine of each element.")
cos = _float_function("cos", p.cos, "The cosine of each element.")
tanh = _float_function("tanh", p.tanh, "The hyperbolic tangent of each element.")
floor = _float_function("floor", p.floor, "Round down.")
erf = _float_function("erf", p.erf, "The error function of each element.")
isfinite = _float_function("isfinite", p.is_finite, "Neither infinite nor NaN.")


@op
def mod(x1: Any, x2: Any) -> Any:
    """Remainder with the sign of the divisor; of a whole number by 0 it is 0."""
    a, b = (numeric(one) for one in promoted(x1, x2))
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
    """Divide element by element; whole numbers give floats."""
    a, b = promoted(x1, x2)
    return p.divide(floating(a), floating(b))


true_divide = divide


@op
def floor_divide(x1: Any, x2: Any) -> Any:
    """Divide and round down, keeping the type; 0 where a whole number meets 0."""
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
    whole = p.add(about, _quotient(rest, divisor))
    return p.where(zero, s.fill(0, whole), whole)


def _quotient(a: Value, b: Value) -> Value:
    """Divide whole numbers in doubles and round to the nearest."""
    wide = p.divide(astype(a, "float64"), astype(b, "float64"))
    return astype(p.round(wide), a.dtype)


@op
def power(x1: Any, x2: Any) -> Any:
    """Raise to a power; small whole powers become products."""
    a, b = promoted(x1, x2)
    if is_weak(x2) and x2 in (1, 2, 3):
        square_ = p.multiply(a, a) if x2 > 1 else a
        return p.multiply(square_, a) if x2 == 3 else square_
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
    """Raise whole numbers to a power by squaring, exactly."""
    power_ = s.fill(1, a)
    while exponent:
        if exponent & 1:
            power_ = p.multiply(power_, a)
        exponent >>= 1
        a = p.multiply(a, a) if exponent else a
    return power_


@op
def negative(x: Any) -> Any:
    """Change the sign."""
    return p.negative(numeric(x))


@op
def absolute(x: Any) -> Any:
    """Take away the sign."""
    value = read(x)
    return value if value.dtype.kind in "bu" else p.absolute(value)


@op
def sign(x: Any) -> Any:
    """Return -1, 0 or 1 for each element."""
    return p.sign(numeric(x))


@op
def square(x: Any) -> Any:
    """Multiply each element by itself."""
    value = numeric(x)
    return p.multiply(value, value)


@op
def reciprocal(x: Any) -> Any:
    """Return 1 / x."""
    return divide(1.0, x)


@op
def log2(x: Any) -> Any:
    """Return the logarithm to base 2."""
    return divide(log(x), math.log(2))


@op
def log10(x: Any) -> Any:
    """Return the logarithm to base 10."""
    return divide(log(x), math.log(10))


@op
def ceil(x: Any) -> Any:
    """Round up."""
    return p.negative(p.floor(p.negative(floating(x))))


@op
def round(x: Any, decimals: int = 0) -> Any:  # noqa: A001 (Keras' name)
    """Round to a number of decimals, halves to even; whole numbers stay."""
    value = read(x)
    if not is_float(value.dtype) and decimals >= 0:
        return value
    scale = 10.0**decimals
    made = divide(p.round(floating(multiply(value, scale))), scale)
    return made if is_float(value.dtype) else astype(made, value.dtype)


@op
def clip(x: Any, x_min: Any, x_max: Any) -> Any:
    """Limit each element to a range."""
    if is_weak(x_min) and is_weak(x_max) and x_min > x_max:
        return maximum(minimum(x, x_max), x_min)  # as Keras: the lower bound wins
    return minimum(maximum(x, x_min), x_max)


@op
def not_equal(x1: Any, x2: Any) -> Any:
    """Compare element by element."""
    return p.logical_not(p.equal(*promoted(x1, x2)))


@op
def greater(x1: Any, x2: Any) -> Any:
    """Compare element by element."""
    return less(x2, x1)


@op
def greater_equal(x1: Any, x2: Any) -> Any:
    """Compare element by element."""
    return less_equal(x2, x1)


@op
def logical_and(x1: Any, x2: Any) -> Any:
    """Both are true."""
    return p.logical_and(*promoted(astype(x1, bool), astype(x2, bool)))


@op
def logical_or(x1: Any, x2: Any) -> Any:
    """At least one is true."""
    return p.logical_or(*promoted(astype(x1, bool), astype(x2, bool)))


@op
def logical_xor(x1: Any, x2: Any) -> Any:
    """Exactly one is true."""
    return not_equal(astype(x1, bool), astype(x2, bool))


@op
def logical_not(x: Any) -> Any:
    """Turn true into false and false into true."""
    return p.logical_not(astype(x, bool))


@op
def isnan(x: Any) -> Any:
    """Return which elements are not a number."""
    return not_equal(x, x)


@op
def isinf(x: Any) -> Any:
    """Return which elements are infinite."""
    return equal(absolute(floating(x)), math.inf)


@op
def where(condition: Any, x1: Any = None, x2: Any = None) -> Any:
    """Choose from x1 where the condition holds, else from x2."""
    if x1 is None or x2 is None:
        raise ValueError("ops.where needs both choices: where(condition, x1, x2).")
    a, b = promoted(x1, x2)
    return p.where(*broadcast_all([astype(condition, bool), a, b]))


@op
def cast(x: Any, dtype: Any) -> Any:
    """Change the type."""
    return astype(x, dtype)


@op
def convert_to_tensor(
    x: Any, dtype: Any = None, sparse: Any = None, ragged: Any = None
) -> Any:
    """Return an array-like as an array, or a traced value inside of a trace."""
    if sparse or ragged:
        raise ValueError("ops.convert_to_tensor makes dense arrays only.")
    return read(x) if dtype is None else astype(x, dtype)


def convert_to_numpy(x: Any) -> np.ndarray:
    """Return a variable or array as a NumPy array."""
    if isinstance(x, Value):
        raise TypeError("A traced value has no numbers while the model is compiled.")
    return np.array(x)


@op
def stop_gradient(variable: Any) -> Any:
    """Return the value, but let no gradient through."""
    return p.stop_gradient(read(variable))


def shape(x: Any) -> tuple[int | None, ...]:
    """Return the shape; unknown axes of a Keras tensor are None."""
    return tuple(x.shape) if hasattr(x, "shape") else np.shape(x)


def ndim(x: Any) -> int:
    """Return the number of axes."""
    return len(shape(x))


def is_tensor(x: Any) -> bool:
    """Return whether this is an array or a traced value."""
    return isinstance(x, (np.ndarray, Value))


def size(x: Any) -> int | None:
    """Return the number of elements, None if it is not known."""
    sizes = shape(x)
    return None if None in sizes else math.prod(n for n in sizes if n is not None)


def dtype(x: Any) -> str:
    """Return the name of the type."""
    return np.dtype(x.dtype if hasattr(x, "dtype") else read(x).dtype).name


abs = absolute  # noqa: A001 (Keras' name)
