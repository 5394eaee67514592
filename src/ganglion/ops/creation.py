"""New arrays: filled, evenly spaced, diagonal, one-hot."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ganglion import config, symbolic
from ganglion.compiler.ir import arrays
from ganglion.compiler.ir import pointwise as p
from ganglion.compiler.ir import shaping as s
from ganglion.compiler.ir.graph import (
    Constant,
    Input,
    ShapeError,
    Value,
    call_function,
)
from ganglion.ops.dispatch import (
    astype,
    common_type,
    floating,
    is_weak,
    known,
    op,
    promoted,
    promoted_floats,
    stretch,
)
from ganglion.ops.numpy import absolute, log, multiply, power, sign, where
from ganglion.ops.shapes import each_size, exact_sizes, expand_dims, moveaxis
from ganglion.variables import read

__all__ = [
    "arange", "array", "copy", "empty", "empty_like", "eye", "full", "full_like",
    "geomspace", "identity", "linspace", "logspace", "one_hot", "ones", "ones_like",
    "tri", "tril", "triu", "zeros", "zeros_like",
]  # fmt: skip


@op
def one_hot(
    x: Any, num_classes: int, axis: int = -1, dtype: Any = None, sparse: bool = False
) -> Any:
    """Turn class numbers into rows with a single one; out of range gives zeros."""
    if sparse:
        raise ValueError("one_hot: `sparse=True` is not supported: arrays are dense.")
    index = read(x)
    if index.dtype.itemsize < 4:  # uint8 labels may not be able to count the classes
        index = astype(index, "int32")
    classes = arrays.iota(size=int(num_classes), dtype=index.dtype.name)
    hit = p.equal(*promoted(expand_dims(index, -1), classes))
    return moveaxis(astype(hit, dtype or config.floatx()), -1, axis)


@op
def full(shape: Any, fill_value: Any, dtype: Any = None) -> Any:
    """Make an array filled with one number."""
    sizes = exact_sizes(each_size(shape))
    return stretch(astype(fill_value, dtype or config.floatx()), sizes)


@op
def zeros(shape: Any, dtype: Any = None) -> Any:
    """Make an array of zeros."""
    return full(shape, 0.0, dtype or config.floatx())


@op
def ones(shape: Any, dtype: Any = None) -> Any:
    """Make an array of ones."""
    return full(shape, 1.0, dtype or config.floatx())


@op
def full_like(x: Any, fill_value: Any, dtype: Any = None) -> Any:
    """Make an array of another's shape, filled with one number."""
    value = read(x)
    return full(value.shape, fill_value, dtype or value.dtype)


@op
def zeros_like(x: Any, dtype: Any = None) -> Any:
    """Make an array of another's shape, filled with zeros."""
    return full_like(x, 0.0, dtype)


@op
def ones_like(x: Any, dtype: Any = None) -> Any:
    """Make an array of another's shape, filled with ones."""
    return full_like(x, 1.0, dtype)


@op
def arange(start: Any, stop: Any = None, step: Any = None, dtype: Any = None) -> Any:
    """Make evenly spaced numbers."""
    computed = [x for x in (start, stop, step) if isinstance(x, Value)]
    if any(call_function("numbers", bound) is None for bound in computed):
        unknown = symbolic.unknown_size()
        if unknown is not None:  # how many is seen once sizes are known
            return Input("unknown", (unknown,), dtype or computed[0].dtype)
    start, stop, step = (
        known("arange", bound, "Give its bounds as numbers.")
        if isinstance(bound, Value)
        else bound
        for bound in (start, stop, step)
    )
    bounds = [bound for bound in (start, stop, step) if bound is not None]
    if step is not None and not step:
        raise ValueError("ops.arange: `step` must not be 0.")
    if dtype is None:
        dtype = common_type(
            [read(bound) for bound in bounds if not is_weak(bound)],
            [bound for bound in bounds if is_weak(bound)],
        )
    if stop is None:
        start, stop = 0, start
    return Constant(np.arange(start, stop, 1 if step is None else step), dtype)


@op
def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    """Make a number of evenly spaced floats between two ends."""
    if num < 0:
        raise ValueError(f"ops.linspace: `num` must not be negative, got {num}.")
    if isinstance(start, Value) or isinstance(stop, Value):
        line, step = _traced_line(start, stop, num, endpoint, axis)
        line = line if dtype is None else astype(line, dtype)
        return (line, step) if retstep else line
    kind = promoted_floats(start, stop)[0].dtype
    numbers, gap = np.linspace(start, stop, num, endpoint, retstep=True, axis=axis)
    line = Constant(numbers, dtype or kind)
    return (line, Constant(gap, kind)) if retstep else line


def _traced_line(
    start: Any, stop: Any, num: int, endpoint: bool, axis: int
) -> tuple[Value, Value]:
    first, last = promoted(floating(start), floating(stop))
    gaps = num - 1 if endpoint else num
    gap = (last - first) / float(gaps) if gaps > 0 else (last - first) * math.nan
    counts = np.arange(num).reshape(num, *(1,) * first.ndim).astype(first.dtype)
    steps = expand_dims(gap, 0) * counts if gaps > 0 else counts
    line = expand_dims(first, 0) + steps
    if endpoint and num > 1:  # exactly, whatever the rounding on the way
        at_end = stretch(Constant(counts == num - 1), line.shape)
        line = p.where(at_end, stretch(expand_dims(last, 0), line.shape), line)
    return moveaxis(line, 0, axis), gap


@op
def eye(N: int, M: int | None = None, k: int = 0, dtype: Any = None) -> Any:  # noqa: N803
    """Make a matrix with ones on a diagonal."""
    return Constant(np.eye(N, M, k), dtype or config.floatx())


@op
def identity(n: int, dtype: Any = None) -> Any:
    """Make a square matrix with ones on its diagonal."""
    return eye(n, dtype=dtype)


@op
def tri(N: int, M: int | None = None, k: int = 0, dtype: Any = None) -> Any:  # noqa: N803
    """Make a matrix with ones on and below a diagonal."""
    return Constant(np.tri(N, M, k), dtype or config.floatx())


@op
def tril(x: Any, k: int = 0) -> Any:
    """Keep the lower triangle of matrices."""
    return _triangle(read(x), k, lower=True)


@op
def triu(x: Any, k: int = 0) -> Any:
    """Keep the upper triangle of matrices."""
    return _triangle(read(x), k - 1, lower=False)


def _triangle(value: Value, k: int, lower: bool) -> Value:
    if value.ndim < 2:
        raise ShapeError(f"a triangle needs matrices, not {value.shape}")
    rows, columns = value.shape[-2:]
    mask = np.tri(rows, columns, k=k, dtype=bool)
    inside = stretch(Constant(mask if lower else ~mask), value.shape)
    return p.where(inside, value, s.fill(0, value))


@op
def empty(shape: Any, dtype: Any = None) -> Any:
    """Make an array whose elements do not matter (zeros)."""
    return zeros(shape, dtype)


@op
def empty_like(x: Any, dtype: Any = None) -> Any:
    """Make an array of another's shape whose elements do not matter (zeros)."""
    return zeros_like(x, dtype)


@op
def array(x: Any, dtype: Any = None) -> Any:
    """Return an array-like as an array, or a traced value inside of a trace."""
    return read(x) if dtype is None else astype(x, dtype)


@op
def copy(x: Any) -> Any:
    """Return an equal array."""
    return read(x)


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
