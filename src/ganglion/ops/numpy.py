"""Arithmetic, comparison and reduction, named as in NumPy and `keras.ops`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ganglion.ir import arrays
from ganglion.ir import pointwise as p
from ganglion.ir.graph import Op, Value
from ganglion.ir.shaping import keep_axes, reshape, sum_
from ganglion.ops.dispatch import (
    astype,
    axes_of,
    broadcast_all,
    floating,
    one_axis,
    op,
    promoted,
)
from ganglion.variables import read


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
maximum = _arithmetic("maximum", p.maximum, "The larger of each two elements.")
minimum = _arithmetic("minimum", p.minimum, "The smaller of each two elements.")
mod = _arithmetic("mod", p.remainder, "Remainder with the sign of the divisor.")
equal = _arithmetic("equal", p.equal, "Compare element by element.")
less = _arithmetic("less", p.less, "Compare element by element.")
less_equal = _arithmetic("less_equal", p.less_equal, "Compare element by element.")

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
def divide(x1: Any, x2: Any) -> Any:
    """Divide element by element; whole numbers give floats."""
    a, b = promoted(x1, x2)
    return p.divide(floating(a), floating(b))


true_divide = divide


@op
def floor_divide(x1: Any, x2: Any) -> Any:
    """Divide and round down, keeping the type."""
    a, b = promoted(x1, x2)
    return astype(p.floor(p.divide(floating(a), floating(b))), a.dtype)


@op
def power(x1: Any, x2: Any) -> Any:
    """Raise to a power; small whole powers become products."""
    if isinstance(x2, (int, float)) and x2 in (1, 2, 3):
        (x,) = promoted(x1)
        square_ = p.multiply(x, x) if x2 > 1 else x
        return p.multiply(square_, x) if x2 == 3 else square_
    a, b = promoted(x1, x2)
    return p.power(floating(a), floating(b))


@op
def negative(x: Any) -> Any:
    """Change the sign."""
    return p.negative(read(x))


@op
def absolute(x: Any) -> Any:
    """Take away the sign."""
    return p.absolute(read(x))


@op
def sign(x: Any) -> Any:
    """Return -1, 0 or 1 for each element."""
    return p.sign(read(x))


@op
def square(x: Any) -> Any:
    """Multiply each element by itself."""
    value = read(x)
    return p.multiply(value, value)


@op
def reciprocal(x: Any) -> Any:
    """Return 1 / x."""
    return divide(1.0, x)


@op
def rsqrt(x: Any) -> Any:
    """Return 1 / sqrt(x)."""
    return divide(1.0, sqrt(x))


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
    """Round to a number of decimals, halves to even."""
    scale = 10.0**decimals
    return divide(p.round(floating(multiply(x, scale))), scale)


@op
def clip(x: Any, x_min: Any, x_max: Any) -> Any:
    """Limit each element to a range."""
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
    """Tell which elements are not a number."""
    return not_equal(x, x)


@op
def isinf(x: Any) -> Any:
    """Tell which elements are infinite."""
    return equal(absolute(floating(x)), math.inf)


@op
def where(condition: Any, x1: Any = None, x2: Any = None) -> Any:
    """Choose from x1 where the condition holds, else from x2."""
    if x1 is None or x2 is None:
        raise ValueError("ops.where needs both choices: where(condition, x1, x2).")
    a, b = promoted(x1, x2)
    return p.where(*broadcast_all([astype(condition, bool), a, b]))


def _reduce(primitive: Op, x: Value, axis: Any, keepdims: bool) -> Value:
    axes = axes_of(axis, x.ndim)
    made = primitive(x, axes=axes) if axes else x
    if not keepdims:
        return made
    ones = tuple(1 if i in axes else n for i, n in enumerate(x.shape))
    return reshape(made, shape=ones)


@op
def sum(x: Any, axis: Any = None, keepdims: bool = False) -> Any:  # noqa: A001
    """Add up over axes."""
    value = read(x)
    value = astype(value, "int32") if value.dtype == bool else value
    return _reduce(sum_, value, axis, keepdims)


@op
def mean(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Average over axes."""
    value = floating(x)
    axes = axes_of(axis, value.ndim)
    count = math.prod(value.shape[i] for i in axes)
    return divide(_reduce(sum_, value, axis, keepdims), float(count))


@op
def max(  # noqa: A001
    x: Any, axis: Any = None, keepdims: bool = False, initial: Any = None
) -> Any:
    """Find the largest element over axes."""
    found = _reduce(arrays.max_, read(x), axis, keepdims)
    return found if initial is None else maximum(found, initial)


@op
def min(  # noqa: A001
    x: Any, axis: Any = None, keepdims: bool = False, initial: Any = None
) -> Any:
    """Find the smallest element over axes."""
    found = negative(max(negative(x), axis=axis, keepdims=keepdims))
    return found if initial is None else minimum(found, initial)


amax, amin = max, min


@op
def var(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the variance over axes (divided by n)."""
    value = floating(x)
    centred = subtract(value, mean(value, axis=axis, keepdims=True))
    return mean(square(centred), axis=axis, keepdims=keepdims)


@op
def std(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the standard deviation over axes (divided by n)."""
    return sqrt(var(x, axis=axis, keepdims=keepdims))


@op
def any(x: Any, axis: Any = None, keepdims: bool = False) -> Any:  # noqa: A001
    """Tell whether any element over axes is true."""
    counted = astype(astype(x, bool), "int32")
    return astype(max(counted, axis=axis, keepdims=keepdims), bool)


@op
def all(x: Any, axis: Any = None, keepdims: bool = False) -> Any:  # noqa: A001
    """Tell whether all elements over axes are true."""
    counted = astype(astype(x, bool), "int32")
    return astype(min(counted, axis=axis, keepdims=keepdims), bool)


@op
def argmax(x: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    """Return where the largest element lies along an axis (the first of equals)."""
    value = read(x)
    value = astype(value, "int32") if value.dtype == bool else value
    if axis is None:
        value, axis = reshape(value, shape=(value.size,)), 0
    axis = one_axis(axis, value.ndim)
    found = arrays.argmax(value, axis=axis)
    if not keepdims:
        return found
    return reshape(found, shape=(*value.shape[:axis], 1, *value.shape[axis + 1 :]))


@op
def argmin(x: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    """Return where the smallest element lies along an axis."""
    return argmax(negative(x), axis=axis, keepdims=keepdims)


@op
def cumsum(x: Any, axis: int | None = None, dtype: Any = None) -> Any:
    """Add up step by step along an axis."""
    value = read(x) if dtype is None else astype(x, dtype)
    if axis is None:
        value, axis = reshape(value, shape=(value.size,)), 0
    return arrays.cumsum(value, axis=one_axis(axis, value.ndim))


@op
def logsumexp(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Return log(sum(exp(x))) without overflow."""
    value = floating(x)
    axes = axes_of(axis, value.ndim)
    top = p.stop_gradient(_reduce(arrays.max_, value, axis, False))
    shifted = p.subtract(value, keep_axes(top, axes, value.shape))
    total = p.add(p.log(sum_(p.exp(shifted), axes=axes)), top)
    if not keepdims:
        return total
    ones = tuple(1 if i in axes else n for i, n in enumerate(value.shape))
    return reshape(total, shape=ones)


@op
def cast(x: Any, dtype: Any) -> Any:
    """Change the type."""
    return astype(x, dtype)


@op
def convert_to_tensor(x: Any, dtype: Any = None, sparse: Any = None) -> Any:
    """Return an array-like as an array, or a traced value inside of a trace."""
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
    """Tell whether this is an array or a traced value."""
    return isinstance(x, (np.ndarray, Value))
