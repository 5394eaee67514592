"""Order: sorting, searching, counting, and unique values.

Which element goes where is found on the host (`argsort`); everything else is gathered
by it, so that slopes flow and a GPU would have little left to do.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import numpy as np

from ganglion import symbolic
from ganglion.compiler.ir import contraction
from ganglion.compiler.ir import pointwise as p
from ganglion.compiler.ir import shaping as s
from ganglion.compiler.ir.graph import (
    Constant,
    Input,
    Op,
    ShapeError,
    Value,
    toposort,
)
from ganglion.compiler.ir.host import host_op, host_record, items
from ganglion.dtypes import is_float_dtype
from ganglion.ops.creation import linspace
from ganglion.ops.dispatch import (
    astype,
    common_type,
    floating,
    known,
    numeric,
    one_axis,
    op,
    stretch,
)
from ganglion.ops.indexing import take_along_axis
from ganglion.ops.numpy import isnan, where
from ganglion.ops.reduction import any as any_
from ganglion.ops.reduction import max as max_
from ganglion.ops.reduction import min as min_
from ganglion.ops.shapes import flip
from ganglion.variables import read

__all__ = [
    "argpartition", "argsort", "bincount", "digitize", "histogram", "isin", "nonzero",
    "searchsorted", "sort", "unique",
]  # fmt: skip


def _stand_ins(x: Value, *typed: tuple[Any, Any]) -> tuple[Value, ...]:
    """On Keras tensors, return values of these shapes and types; elsewhere nothing.

    None in a shape is a size that depends on data.
    """
    size = symbolic.unknown_size()
    if size is None or not any(isinstance(value, Input) for value in toposort([x])):
        return ()
    shapes = [[size if n is None else n for n in shape] for shape, _ in typed]
    kinds = (kind for _, kind in typed)
    return tuple(map(Input, ["unknown"] * len(typed), shapes, kinds))


# ---- sorting -------------------------------------------------------------------------

_ARGSORT: Op = host_op(
    "argsort",
    lambda x, axis: (x.shape, np.dtype("int32")),
    lambda x, axis: np.argsort(x, axis=axis, kind="stable").astype("int32"),
)


def _along(x: Any, axis: int | None) -> tuple[Value, int]:
    """Return an array and the axis to sort along; without one, it is flattened."""
    value = read(x)
    if axis is None or not value.ndim:
        return s.reshape(value, shape=(value.size,)), 0
    return value, one_axis(axis, value.ndim)


@op
def argsort(x: Any, axis: int | None = -1) -> Any:
    """Return the indices that sort along an axis; equal elements keep their order."""
    value, axis = _along(x, axis)
    return _ARGSORT(value, axis=axis)


@op
def sort(x: Any, axis: int | None = -1) -> Any:
    """Sort along an axis, NaN last."""
    value, along = _along(x, axis)
    ordered = take_along_axis(value, _ARGSORT(value, axis=along), axis=along)
    keeps = axis is None or read(x).ndim
    return ordered if keeps else s.reshape(ordered, shape=())


@op
def argpartition(x: Any, kth: int, axis: int | None = -1) -> Any:
    """Return indices that put the kth element in its place, smaller ones before it."""
    value, axis = _along(x, axis)
    size = value.shape[axis]
    if not -size <= kth < size:
        raise ShapeError(f"argpartition: kth={kth} is no element of {size}")
    return _ARGSORT(value, axis=axis)


# ---- searching -----------------------------------------------------------------------


@op
def searchsorted(sorted_sequence: Any, values: Any, side: str = "left") -> Any:
    """Return where values would have to be inserted to keep a sequence in order."""
    sequence = read(sorted_sequence)
    if sequence.ndim != 1:
        raise ValueError(
            f"ops.searchsorted: the sorted sequence must have one axis, not "
            f"{sequence.shape}. Use ops.vectorized_map for several."
        )
    if side not in ("left", "right"):
        raise ValueError(f"ops.searchsorted: side must be left or right, not {side!r}.")
    dtype = common_type([sequence, read(values)])
    return _found(
        numeric(astype(sequence, dtype)), numeric(astype(values, dtype)), side
    )


def _found(sequence: Value, values: Value, side: str) -> Value:
    """Halve the range of each value until it is empty."""
    low = s.broadcast(Constant(0, "int32"), shape=values.shape)
    high = s.broadcast(Constant(sequence.size, "int32"), shape=values.shape)
    for _ in range(sequence.size.bit_length()):
        middle = p.right_shift(p.add(low, high), s.fill(1, low))
        element = contraction.gather(sequence, middle)
        before = p.less if side == "left" else p.less_equal
        behind = before(element, values)
        if is_float_dtype(values.dtype):  # NaN is larger than all numbers
            last = isnan(values) if side == "right" else p.logical_not(isnan(element))
            behind = p.logical_or(behind, p.logical_and(isnan(values), last))
        behind = p.logical_and(behind, p.less(low, high))
        high = p.where(p.logical_or(behind, p.equal(low, high)), high, middle)
        low = p.where(behind, p.add(middle, s.fill(1, low)), low)
    return low


@op
def digitize(x: Any, bins: Any) -> Any:
    """Return the number of the bin of each element; edges may rise or fall."""
    edges = read(bins)
    if edges.ndim != 1:
        raise ValueError(f"ops.digitize: `bins` must have one axis, not {edges.shape}.")
    rising = searchsorted(edges, x, side="right")
    if not edges.size:
        return rising
    falling = edges.size - searchsorted(flip(edges), x, side="right")
    return where(numeric(edges)[0] <= numeric(edges)[-1], rising, falling)


@op
def isin(x1: Any, x2: Any, assume_unique: bool = False, invert: bool = False) -> Any:
    """Return which elements of x1 are in x2."""
    dtype = common_type([read(x1), read(x2)])
    value, among = astype(x1, dtype), astype(x2, dtype)
    wide = (*value.shape, among.size)
    column = s.reshape(value, shape=(*value.shape, 1))
    row = s.reshape(among, shape=(among.size,))
    is_equal = p.equal(stretch(column, wide), stretch(row, wide))
    is_member = any_(is_equal, axis=-1)
    return p.logical_not(is_member) if invert else is_member


# ---- counting ------------------------------------------------------------------------


@op
def bincount(
    x: Any, weights: Any = None, minlength: int = 0, sparse: bool = False
) -> Any:
    """Count how often each integer occurs, or add up weights."""
    if sparse:
        raise ValueError("bincount: `sparse=True` is not supported: arrays are dense.")
    value = astype(x, "int32")
    kind = np.dtype("int32")
    if weights is not None:
        kind = common_type([read(x), read(weights)])
    if parts := _stand_ins(value, ((*value.shape[:-1], None), kind)):
        return parts[0]
    numbers = known("bincount", value, "Use ops.segment_sum(weights, x, num_segments).")
    length = builtins.max(int(numbers.max(initial=-1)) + 1, int(minlength))
    share = stretch(astype(1 if weights is None else weights, kind), value.shape)
    rows = value.shape[0] if value.ndim == 2 else 1
    if value.ndim == 2:
        value = p.add(value, stretch(_starts(rows, length), value.shape))
    flat = s.reshape(value, shape=(value.size,))
    share = s.reshape(share, shape=(value.size,))
    counts = contraction.scatter_add(share, flat, rows=rows * length)
    return s.reshape(counts, shape=(rows, length)) if value.ndim == 2 else counts


def _starts(rows: int, length: int) -> Value:
    return Constant(np.arange(rows, dtype="int32")[:, None] * length)


@op
def histogram(x: Any, bins: int = 10, range: Any = None) -> Any:  # noqa: A002
    """Count the elements in bins of equal width; return the counts and the edges."""
    if not isinstance(bins, int):
        raise TypeError(f"ops.histogram: `bins` must be an int, not {bins!r}.")
    if bins < 0:
        raise ValueError(
            f"Argument `bins` should be a non-negative integer. Received: bins={bins}"
        )
    if range and (not isinstance(range, tuple) or len(range) != 2):
        raise ValueError(
            f"Argument `range` must be a tuple of two elements. Received: {range!r}"
        )
    if range and range[1] < range[0]:
        raise ValueError(
            "The second element of `range` must be greater than the first. Received: "
            f"{range!r}"
        )
    value = read(x)
    if value.ndim != 1:
        raise ValueError(
            f"Input tensor must be 1-dimensional. Received: shape {value.shape}"
        )
    data = floating(value)
    low, high = _bounds(data, range)
    edges = astype(linspace(low, high, bins + 1), data.dtype)
    index = searchsorted(edges, data, side="right") - 1
    # The last bin has both its ends.
    index = where(p.equal(data, stretch(edges[-1], data.shape)), bins - 1, index)
    ones = stretch(Constant(1, "int32"), data.shape)
    counts = contraction.scatter_add(ones, astype(index, "int32"), rows=bins)
    return astype(counts, data.dtype), edges


def _bounds(data: Value, span: Any) -> tuple[Value, Value]:
    if span:
        low, high = (astype(float(bound), data.dtype) for bound in span)
    elif not data.size:
        low, high = astype(0.0, data.dtype), astype(1.0, data.dtype)
    else:
        low, high = min_(data), max_(data)
    # A single number gets a bin around it.
    is_empty = p.equal(low, high)
    half = where(is_empty, 0.5, astype(0.0, data.dtype))
    return p.subtract(low, half), p.add(high, half)


# ---- nonzero and unique elements -----------------------------------------------------


@op
def nonzero(x: Any) -> Any:
    """Return the indices of the elements that are not zero, an array for each axis."""
    value = read(x)
    if parts := _stand_ins(value, *[((None,), "int32")] * value.ndim):
        return parts
    numbers = known("nonzero", value, "Use ops.where(condition, a, b), or a mask.")
    return tuple(Constant(index, "int32") for index in np.nonzero(numbers))


@op
def unique(
    x: Any,
    sorted: bool = True,  # noqa: A002 (Keras' name)
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    size: int | None = None,
    fill_value: Any = None,
) -> Any:
    """Return the distinct elements, or rows along an axis, in order.

    With `size` there are as many, cut off or filled up with `fill_value` (the first of
    them where it is None), so that the shape is known when a model is compiled.
    """
    value = read(x)
    options = {
        "axis": None if axis is None else one_axis(axis, value.ndim),
        "size": size,
        "fill_value": fill_value,
    }
    parts: Sequence[Value]
    if size is not None:
        parts = items(_UNIQUE(value, **options))
    elif not (parts := _stand_ins(value, *_distinct_types(value, **options))):
        way_out = "Give `size`, the number of elements to return."
        numbers = known("unique", value, way_out)
        parts = [Constant(part) for part in _distinct(numbers, **options)]
    wanted = (True, return_index, return_inverse, return_counts)
    chosen = tuple(
        part for part, is_wanted in zip(parts, wanted, strict=True) if is_wanted
    )
    return chosen[0] if len(chosen) == 1 else chosen


def _distinct(
    x: np.ndarray, axis: int | None, size: int | None, fill_value: Any
) -> tuple[np.ndarray, ...]:
    """Return distinct values, first indices, inverse and counts."""
    values, first, inverse, counts = np.unique(
        x, True, True, True, axis=axis, equal_nan=False
    )
    inverse = inverse.reshape(x.shape if axis is None else x.shape[axis])
    others = [part.astype("int32") for part in (first, inverse, counts)]
    if size is None:
        return values, *others
    along = axis or 0
    head = values.take([0], along) if values.shape[along] else np.zeros(1, x.dtype)
    filling = head if fill_value is None else np.full_like(head, fill_value)
    values = _filled_up(values, filling, size, along)
    first = _filled_up(others[0], others[0][:1], size)
    return values, first, others[1], _filled_up(others[2], np.zeros(1, "int32"), size)


def _filled_up(
    values: np.ndarray, filling: np.ndarray, size: int, axis: int = 0
) -> np.ndarray:
    missing = builtins.max(size - values.shape[axis], 0)
    longer = np.concatenate([values, np.repeat(filling, missing, axis)], axis)
    return longer.take(np.arange(size), axis)


def _distinct_types(
    x: Value, axis: int | None, size: int | None, fill_value: Any
) -> Any:
    index = np.dtype("int32")
    shape: tuple[int | None, ...] = (size,)
    places = x.shape
    if axis is not None:
        shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
        places = (x.shape[axis],)
    return [(shape, x.dtype), ((size,), index), (places, index), ((size,), index)]


_UNIQUE = host_record("unique", _distinct_types, _distinct)
