"""Numbers in a row: logarithmic spaces, and windows to taper signals with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ganglion import config
from ganglion.compiler.ir import pointwise as p
from ganglion.compiler.ir.graph import Constant, Value
from ganglion.ops.creation import linspace
from ganglion.ops.dispatch import astype, common_type, floating, is_weak, known, op
from ganglion.ops.numpy import absolute, log, multiply, power, sign, where
from ganglion.ops.shapes import expand_dims

__all__ = [
    "bartlett", "blackman", "geomspace", "hamming", "hanning", "kaiser", "logspace",
]  # fmt: skip


def _float_type(*bounds: Any, dtype: Any) -> Any:
    """Return the requested type, or the float type of the bounds."""
    if dtype is not None:
        return dtype
    strong = [floating(x) for x in bounds if not is_weak(x)]
    return common_type(strong) if strong else config.floatx()


@op
def logspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    base: Any = 10,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    """Make numbers with evenly spaced logarithms, from base**start to base**stop."""
    kind = _float_type(start, stop, dtype=dtype)
    exponents = linspace(start, stop, num, endpoint, axis=axis)
    bases = astype(base, exponents.dtype)
    return astype(power(bases, exponents), kind)


@op
def geomspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    """Make numbers that grow by one factor, from start to stop."""
    kind = _float_type(start, stop, dtype=dtype)
    first, last = floating(start), floating(stop)
    ends = (log(absolute(first)), log(absolute(last)))
    sizes = p.exp(linspace(*ends, num, endpoint, axis=axis))
    signs = linspace(sign(first), sign(first), num, axis=axis)
    return astype(_with_ends(multiply(sizes, signs), start, stop, endpoint, axis), kind)


def _with_ends(line: Value, start: Any, stop: Any, endpoint: bool, axis: int) -> Value:
    """Put in both ends exactly, whatever the rounding on the way."""
    axis %= line.ndim
    count = line.shape[axis]
    numbers = np.arange(count).reshape(
        *(n if i == axis else 1 for i, n in enumerate(line.shape))
    )
    line = where(Constant(numbers == 0), _column(start, line, axis), line)
    if endpoint and count > 1:
        line = where(Constant(numbers == count - 1), _column(stop, line, axis), line)
    return line


def _column(end: Any, line: Value, axis: int) -> Value:
    value = astype(end, line.dtype)
    column: Value = expand_dims(value, axis) if value.ndim else value
    return column


# ---- windows -------------------------------------------------------------------------


def _window(name: str, make: Callable[..., np.ndarray], *args: Any) -> Value:
    way_out = "Give its length as a number."
    numbers = [known(name, argument, way_out) for argument in args]
    length = int(numbers[0])
    return Constant(make(length, *map(float, numbers[1:])), config.floatx())


@op
def bartlett(x: Any) -> Any:
    """Return a window of x numbers that rises and falls in straight lines."""
    return _window("bartlett", np.bartlett, x)


@op
def blackman(x: Any) -> Any:
    """Return Blackman's window of x numbers."""
    return _window("blackman", np.blackman, x)


@op
def hamming(x: Any) -> Any:
    """Return Hamming's window of x numbers."""
    return _window("hamming", np.hamming, x)


@op
def hanning(x: Any) -> Any:
    """Return Hann's window of x numbers, one wave of a cosine."""
    return _window("hanning", np.hanning, x)


@op
def kaiser(x: Any, beta: Any) -> Any:
    """Return Kaiser's window of x numbers; a larger beta makes it narrower."""
    return _window("kaiser", np.kaiser, x, beta)
