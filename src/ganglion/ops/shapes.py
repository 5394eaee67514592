"""Shapes and places: reshape, join, cut, index, and arrays made from nothing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ganglion import config
from ganglion.ir import arrays, structured
from ganglion.ir import pointwise as p
from ganglion.ir import shaping as s
from ganglion.ir.graph import Constant, ShapeError, Value
from ganglion.ops.dispatch import (
    astype,
    axes_of,
    is_weak,
    one_axis,
    op,
    promoted,
    stretch,
)
from ganglion.variables import read


def _is_one(x: Any) -> bool:
    return isinstance(x, (int, np.integer))


@op
def reshape(x: Any, newshape: Any) -> Any:
    """Give the same elements a new shape; one size may be -1."""
    value = read(x)
    sizes = [newshape] if _is_one(newshape) else list(newshape)
    sizes = [-1 if n is None else int(n) for n in sizes]
    if sizes.count(-1) > 1:
        raise ShapeError(f"reshape: more than one unknown size in {tuple(sizes)}")
    if -1 in sizes:
        known = math.prod(n for n in sizes if n != -1)
        if known == 0 or value.size % known:
            raise ShapeError(f"cannot reshape {value.shape} into {tuple(sizes)}")
        sizes[sizes.index(-1)] = value.size // known
    return s.reshape(value, shape=tuple(sizes))


@op
def ravel(x: Any) -> Any:
    """Put all elements into one row."""
    return reshape(x, (-1,))


@op
def transpose(x: Any, axes: Any = None) -> Any:
    """Reorder the axes; without an order, reverse them."""
    value = read(x)
    order = range(value.ndim)[::-1] if axes is None else axes_of(axes, value.ndim)
    return arrays.transpose(value, axes=tuple(order))


@op
def moveaxis(x: Any, source: Any, destination: Any) -> Any:
    """Move axes to other places, the rest keeping their order."""
    value = read(x)
    come = axes_of(source, value.ndim)
    order = [axis for axis in range(value.ndim) if axis not in come]
    for go, axis in sorted(zip(axes_of(destination, value.ndim), come, strict=True)):
        order.insert(go, axis)
    return arrays.transpose(value, axes=tuple(order))


@op
def swapaxes(x: Any, axis1: int, axis2: int) -> Any:
    """Exchange two axes."""
    value = read(x)
    order = list(range(value.ndim))
    a, b = one_axis(axis1, value.ndim), one_axis(axis2, value.ndim)
    order[a], order[b] = order[b], order[a]
    return arrays.transpose(value, axes=tuple(order))


@op
def expand_dims(x: Any, axis: Any) -> Any:
    """Add axes of size one."""
    value = read(x)
    count = 1 if _is_one(axis) else len(axis)
    axes = axes_of(axis, value.ndim + count)
    rest = iter(value.shape)
    sizes = tuple(1 if i in axes else next(rest) for i in range(value.ndim + count))
    return s.reshape(value, shape=sizes)


@op
def squeeze(x: Any, axis: Any = None) -> Any:
    """Remove axes of size one."""
    value = read(x)
    ones = [i for i, n in enumerate(value.shape) if n == 1]
    axes = ones if axis is None else axes_of(axis, value.ndim)
    if any(axis not in ones for axis in axes):
        raise ShapeError(f"cannot squeeze {value.shape} on axis {axis}: size is not 1")
    sizes = tuple(n for i, n in enumerate(value.shape) if i not in axes)
    return s.reshape(value, shape=sizes)


@op
def broadcast_to(x: Any, shape: Any) -> Any:
    """Repeat along axes of size one, and new ones in front, to reach a shape."""
    return stretch(read(x), tuple(int(n) for n in shape))


@op
def concatenate(xs: Any, axis: int = -1) -> Any:
    """Join arrays along an axis."""
    values = _one_type(xs)
    if len(values) == 1:
        return values[0]
    return arrays.concat(*values, axis=one_axis(axis, values[0].ndim))


@op
def stack(x: Any, axis: int = 0) -> Any:
    """Join arrays along a new axis."""
    return concatenate([expand_dims(one, axis) for one in x], axis=axis)


@op
def unstack(x: Any, num: int | None = None, axis: int = 0) -> Any:
    """Cut an array into its rows along an axis."""
    value = read(x)
    parts = split(value, value.shape[one_axis(axis, value.ndim)], axis=axis)
    return [squeeze(part, axis=axis) for part in parts]


@op
def split(x: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    """Cut an array into equal parts, or at given places, along an axis."""
    value = read(x)
    axis = one_axis(axis, value.ndim)
    size = value.shape[axis]
    if _is_one(indices_or_sections):
        if size % indices_or_sections:
            raise ShapeError(f"{size} rows do not split into {indices_or_sections}")
        step = size // indices_or_sections
        ends = list(range(step, size, step)) if step else []
    else:
        ends = [int(end) for end in indices_or_sections]
    starts = [0, *ends]
    return [_cut(value, axis, a, b) for a, b in zip(starts, [*ends, size], strict=True)]


def _cut(value: Value, axis: int, start: int, stop: int, step: int = 1) -> Value:
    starts, stops = [0] * value.ndim, list(value.shape)
    starts[axis], stops[axis] = start, stop
    steps = [1] * value.ndim
    steps[axis] = step
    return arrays.slice_(
        value, starts=tuple(starts), stops=tuple(stops), steps=tuple(steps)
    )


@op
def tile(x: Any, repeats: Any) -> Any:
    """Repeat the whole array along its axes."""
    value = read(x)
    counts = [int(n) for n in ([repeats] if _is_one(repeats) else repeats)]
    rank = max(value.ndim, len(counts))
    counts = [1] * (rank - len(counts)) + counts
    shape = (1,) * (rank - value.ndim) + value.shape
    paired = s.reshape(value, shape=tuple(n for size in shape for n in (1, size)))
    sizes = zip(counts, shape, strict=True)
    wide = stretch(paired, tuple(n for pair in sizes for n in pair))
    total = tuple(n * size for n, size in zip(counts, shape, strict=True))
    return s.reshape(wide, shape=total)


@op
def repeat(x: Any, repeats: int, axis: int | None = None) -> Any:
    """Repeat each element along an axis."""
    value = read(x)
    if axis is None:
        value, axis = s.reshape(value, shape=(value.size,)), 0
    axis = one_axis(axis, value.ndim)
    head, size, rest = value.shape[:axis], value.shape[axis], value.shape[axis + 1 :]
    paired = s.reshape(value, shape=(*head, size, 1, *rest))
    wide = stretch(paired, (*head, size, int(repeats), *rest))
    return s.reshape(wide, shape=(*head, size * int(repeats), *rest))


@op
def flip(x: Any, axis: Any = None) -> Any:
    """Reverse the order along axes."""
    value = read(x)
    return arrays.reverse(value, axes=axes_of(axis, value.ndim))


@op
def pad(x: Any, pad_width: Any, mode: str = "constant", constant_values: Any = None):  # type: ignore[no-untyped-def]
    """Add elements before and after along each axis."""
    if mode != "constant":
        raise ValueError(f"ops.pad: mode {mode!r} is not supported; use 'constant'.")
    value = read(x)
    pairs = np.broadcast_to(np.asarray(pad_width, int), (value.ndim, 2))
    return arrays.pad(
        value,
        pairs=tuple((int(lo), int(hi)) for lo, hi in pairs),
        interior=(0,) * value.ndim,
        value=float(constant_values or 0.0),
    )


@op
def getitem(x: Any, key: Any) -> Any:
    """Index with numbers, slices, `...`, None, or one array of rows."""
    value = read(x)
    keys = list(key) if isinstance(key, tuple) else [key]
    if len(keys) == 1 and not isinstance(keys[0], (int, slice, type(...), type(None))):
        if not _is_one(keys[0]):
            return take(value, keys[0], axis=0)
    return _basic_index(value, keys)


def _basic_index(value: Value, keys: list[Any]) -> Value:
    used = sum(one is not None and one is not Ellipsis for one in keys)
    if used > value.ndim:
        raise ShapeError(f"{used} indices for an array of {value.ndim} axes")
    fill = [slice(None)] * (value.ndim - used)
    at = next((i for i, one in enumerate(keys) if one is Ellipsis), len(keys))
    keys = [*keys[:at], *fill, *keys[at + 1 :]]
    shape: list[int] = []
    axis = 0
    for one in keys:
        if one is None:
            shape.append(1)
            continue
        if _is_one(one):
            index = _row(int(one), value.shape[axis])
            value = _cut(value, axis, index, index + 1)
        elif isinstance(one, slice):
            value = _slice(value, axis, one)
            shape.append(value.shape[axis])
        else:
            raise TypeError(f"Cannot index a traced value with {one!r}: use ops.take.")
        axis += 1
    return s.reshape(value, shape=tuple(shape))


def _row(index: int, size: int) -> int:
    if not -size <= index < size:
        raise IndexError(f"index {index} is out of range for an axis of {size}")
    return index % size


def _slice(value: Value, axis: int, one: slice) -> Value:
    start, stop, step = one.indices(value.shape[axis])
    if step > 0:
        return _cut(value, axis, start, max(start, stop), step)
    count = len(range(start, stop, step))
    first = start + (count - 1) * step
    forward = _cut(value, axis, max(first, 0), max(start + 1, 0) if count else 0, -step)
    return arrays.reverse(forward, axes=(axis,))


@op
def take(x: Any, indices: Any, axis: int | None = None) -> Any:
    """Pick rows along an axis; negative indices count from the end."""
    value = read(x)
    if axis is None:
        value, axis = s.reshape(value, shape=(value.size,)), 0
    axis = one_axis(axis, value.ndim)
    index = read(indices)
    if isinstance(index, Constant):
        index = Constant(
            np.where(index.array < 0, index.array + value.shape[axis], index.array),
            "int32",
        )
    index = index if np.issubdtype(index.dtype, np.integer) else astype(index, "int32")
    if axis == 0:
        return structured.gather(value, index)
    picked = structured.gather(moveaxis(value, axis, 0), index)
    places = tuple(range(index.ndim))
    return moveaxis(picked, places, tuple(axis + i for i in places))


@op
def take_along_axis(x: Any, indices: Any, axis: int | None = None) -> Any:
    """Pick one element per index along an axis."""
    value, index = read(x), astype(indices, "int32")
    if axis is None:
        value, axis = s.reshape(value, shape=(value.size,)), 0
    axis = one_axis(axis, value.ndim)
    value, index = moveaxis(value, axis, -1), moveaxis(index, axis, -1)
    rows = math.prod(value.shape[:-1])
    index = stretch(index, (*value.shape[:-1], index.shape[-1]))
    offsets = np.arange(rows, dtype="int32")[:, None] * value.shape[-1]
    flat = s.reshape(index, shape=(rows, index.shape[-1]))
    places = flat + offsets
    picked = structured.gather(s.reshape(value, shape=(value.size,)), places)
    return moveaxis(s.reshape(picked, shape=index.shape), -1, axis)


@op
def one_hot(
    x: Any, num_classes: int, axis: int = -1, dtype: Any = None, sparse: bool = False
) -> Any:
    """Turn class numbers into rows with a single one; out of range gives zeros."""
    index = read(x)
    if index.dtype.itemsize < 4:  # uint8 labels may not be able to count the classes
        index = astype(index, "int32")
    classes = arrays.iota(size=int(num_classes), dtype=index.dtype.name)
    hit = p.equal(*promoted(expand_dims(index, -1), classes))
    return moveaxis(astype(hit, dtype or config.floatx()), -1, axis)


def _one_type(xs: Any) -> list[Value]:
    values = [read(x) for x in xs]
    common = promoted(*(Constant(np.zeros((), one.dtype)) for one in values))[0]
    return [astype(one, common.dtype) for one in values]


@op
def full(shape: Any, fill_value: Any, dtype: Any = None) -> Any:
    """Make an array filled with one number."""
    if dtype is None:
        dtype = config.floatx() if is_weak(fill_value) else read(fill_value).dtype
    sizes = (int(shape),) if _is_one(shape) else tuple(int(n) for n in shape)
    return stretch(astype(fill_value, dtype), sizes)


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
def arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> Any:
    """Make evenly spaced numbers."""
    if stop is None:
        start, stop = 0, start
    array = np.arange(start, stop, step)
    kind = "int32" if array.dtype.kind == "i" else config.floatx()
    return Constant(array, dtype or kind)


@op
def linspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True) -> Any:
    """Make a number of evenly spaced floats between two ends."""
    return Constant(np.linspace(start, stop, num, endpoint), config.floatx())


@op
def eye(N: int, M: int | None = None, k: int = 0, dtype: Any = None) -> Any:  # noqa: N803
    """Make a matrix with ones on a diagonal."""
    return Constant(np.eye(N, M, k), dtype or config.floatx())


@op
def tril(x: Any, k: int = 0) -> Any:
    """Keep the lower triangle of matrices."""
    value = read(x)
    return _masked(value, np.tri(*value.shape[-2:], k=k, dtype=bool))


@op
def triu(x: Any, k: int = 0) -> Any:
    """Keep the upper triangle of matrices."""
    value = read(x)
    return _masked(value, ~np.tri(*value.shape[-2:], k=k - 1, dtype=bool))


def _masked(value: Value, mask: np.ndarray) -> Value:
    from ganglion.ir.pointwise import where

    kept = stretch(Constant(mask), value.shape)
    return where(kept, value, s.fill(0, value))
