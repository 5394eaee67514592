"""Picking elements out: slices, rows by number, elements along an axis."""

from __future__ import annotations

import builtins
import math
from typing import Any

import numpy as np

from ganglion import symbolic
from ganglion.compiler.ir import arrays, contraction
from ganglion.compiler.ir import pointwise as p
from ganglion.compiler.ir import shaping as s
from ganglion.compiler.ir.graph import Constant, ShapeError, Value, call_function
from ganglion.ops.dispatch import astype, numeric, one_axis, op, stretch, unknown_like
from ganglion.ops.index_limits import require_range
from ganglion.ops.joining import stack
from ganglion.ops.numpy import clip, floor_divide, mod
from ganglion.ops.reduction import sum as sums
from ganglion.ops.shapes import expand_dims, gathered, is_one, moveaxis, slice_axis
from ganglion.tensors import has_numbers
from ganglion.variables import read

__all__ = [
    "diag", "diagonal", "get_item", "getitem", "scatter", "scatter_update", "slice",
    "slice_update", "take", "take_along_axis", "top_k", "trace", "unravel_index",
]  # fmt: skip


class OutOfRangeError(ShapeError, IndexError):
    """An index that an axis does not have: Keras has a ValueError, NumPy the other."""


@op
def getitem(x: Any, key: Any) -> Any:
    """Index with numbers, slices, `...`, None, and at most one array of numbers.

    A boolean array means the indices of its true elements, where they are known.
    """
    value, keys = read(x), list(key) if isinstance(key, tuple) else [key]
    if len(keys) == 1 and _is_mask(keys[0]) and len(keys[0].shape) > 1:
        mask = read(keys[0])
        value = s.reshape(value, shape=(mask.size, *value.shape[mask.ndim :]))
        keys = [s.reshape(mask, shape=(mask.size,))]
    return _index(value, keys)


def _is_mask(key: Any) -> bool:
    return hasattr(key, "shape") and str(key.dtype) == "bool"


get_item = getitem


def _index(value: Value, keys: list[Any]) -> Value:
    rows: tuple[int, Any] | None = None  # where the only array of numbers goes
    shape: list[int] = []
    axis = 0
    for key in _spelled_out(value, keys):
        if key is None:
            shape.append(1)
            continue
        if is_one(key):
            index = _row(int(key), value.shape[axis])
            value = slice_axis(value, axis, index, index + 1)
        else:
            if isinstance(key, builtins.slice):
                value = _slice(value, axis, key)
            else:
                rows = _only_rows(rows, len(shape), _places(key, value.shape[axis]))
            shape.append(value.shape[axis])
        axis += 1
    value = s.reshape(value, shape=tuple(shape))
    return value if rows is None else take(value, rows[1], axis=rows[0])


def _spelled_out(value: Value, keys: list[Any]) -> list[Any]:
    """Insert a full slice for every axis that `...` or nothing represents."""
    used = sum(key is not None and key is not Ellipsis for key in keys)
    if used > value.ndim:
        raise ShapeError(f"{used} indices for an array of {value.ndim} axes")
    if sum(key is Ellipsis for key in keys) > 1:
        raise ShapeError("an index can have only one `...`")
    fill = [builtins.slice(None)] * (value.ndim - used)
    at = next((i for i, key in enumerate(keys) if key is Ellipsis), len(keys))
    return [*keys[:at], *fill, *keys[at + 1 :]]


def _places(key: Any, size: int) -> Any:
    """Return the indices of a boolean array's true elements, other keys as they are."""
    mask = call_function("numbers", read(key)) if _is_mask(key) else None
    if mask is None:
        return key
    if mask.shape != (size,):
        raise ShapeError(
            f"an index of truths has the shape {mask.shape} for an axis of {size}"
        )
    return np.flatnonzero(np.asarray(mask))


def _only_rows(known: Any, axis: int, key: Any) -> tuple[int, Any]:
    index = read(key)
    if not np.issubdtype(index.dtype, np.integer):
        raise TypeError(
            f"Cannot index with {index.type_text}: the result would have no fixed "
            "shape. Use ops.where, or multiply by a mask."
        )
    if known is not None:
        raise TypeError("Cannot index with two arrays at once: use ops.take twice.")
    return axis, index


def _row(index: int, size: int) -> int:
    if not -size <= index < size:
        raise OutOfRangeError(f"index {index} is out of range for an axis of {size}")
    return index % size


def _slice(value: Value, axis: int, key: builtins.slice) -> Value:
    if key.start is not None or key.stop is not None:
        symbolic.note_bounded_slice()
    start, stop, step = key.indices(value.shape[axis])
    if step > 0:
        return slice_axis(value, axis, start, max(start, stop), step)
    count = len(range(start, stop, step))
    first = start + (count - 1) * step
    forward = slice_axis(
        value, axis, max(first, 0), max(start + 1, 0) if count else 0, -step
    )
    return arrays.reverse(forward, axes=(axis,))


def _from_front(indices: Any, size: int) -> Value:
    """Return integers that count rows from the front."""
    index = astype(indices, "int32")
    require_range(index, -size, size)
    if isinstance(index, Constant):
        return Constant(np.where(index.array < 0, index.array + size, index.array))
    below = index < 0
    return p.where(below, index + size, index)


@op
def take(x: Any, indices: Any, axis: int | None = None) -> Any:
    """Pick rows along an axis; negative indices count from the end."""
    value = read(x)
    if axis is None:
        value, axis = s.reshape(value, shape=(value.size,)), 0
    axis = one_axis(axis, value.ndim)
    return gathered(value, _from_front(indices, value.shape[axis]), axis)


def _within(index: Any, size: Any) -> Value:
    return p.logical_and(index >= 0, index < size)


@op
def take_along_axis(x: Any, indices: Any, axis: int | None = None) -> Any:
    """Pick one element per index along an axis."""
    value = read(x)
    if axis is None:
        value, axis = s.reshape(value, shape=(value.size,)), 0
    axis = one_axis(axis, value.ndim)
    index = _from_front(indices, value.shape[axis])
    if index.ndim != value.ndim:
        raise ShapeError(
            f"take_along_axis: indices {index.shape} need as many axes as {value.shape}"
        )
    index, value = moveaxis(index, axis, -1), moveaxis(value, axis, -1)
    # Along the other axes both are stretched, as NumPy does.
    lead = _common_shape(index.shape[:-1], value.shape[:-1])
    index = stretch(index, (*lead, index.shape[-1]))
    value = stretch(value, (*lead, value.shape[-1]))
    rows = math.prod(lead)
    offsets = np.arange(rows, dtype="int32")[:, None] * value.shape[-1]
    flat = s.reshape(index, shape=(rows, index.shape[-1]))
    # One that is out of range must not lead into the next row.
    flat = p.where(_within(flat, value.shape[-1]), flat + offsets, s.fill(-1, flat))
    picked = contraction.gather(s.reshape(value, shape=(value.size,)), flat)
    return moveaxis(s.reshape(picked, shape=index.shape), -1, axis)


def _common_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        text = " and ".join(map(str, shapes))
        raise ShapeError(f"shapes {text} do not fit together") from None


def _check_counts(inputs: Value, start_indices: Any, shape: Any, name: str) -> None:
    """Require a start and a size for each axis."""
    if inputs.ndim != len(shape):
        raise ShapeError(
            f"The number of dimensions in `inputs` must match the number of dimensions "
            f"in `{name}`, got {inputs.shape} and {tuple(shape)}."
        )
    if len(start_indices) != inputs.ndim:
        raise ShapeError(
            f"The number of dimensions in `start_indices` must match the number of "
            f"dimensions in `inputs`, got {len(start_indices)} for {inputs.shape}."
        )


def _known_starts(start_indices: Any) -> tuple[int, ...] | None:
    """Return where a block starts, None if that is computed in the trace."""
    is_sequence = isinstance(start_indices, (list, tuple))
    parts = start_indices if is_sequence else [start_indices]
    if any(_is_traced(read(part)) for part in parts):
        return None
    return tuple(int(n) for n in start_indices)


def _is_traced(value: Value) -> bool:
    return not isinstance(value, Constant) and not has_numbers(value)


def _clamped_starts(start_indices: Any, rooms: list[int]) -> list[Value]:
    """Return the start of each axis, moved so that the block is inside."""
    starts = [astype(start_indices[axis], "int32") for axis in range(len(rooms))]
    return [clip(start, 0, room) for start, room in zip(starts, rooms, strict=True)]


@op
def slice(inputs: Any, start_indices: Any, shape: Any) -> Any:  # noqa: A001
    """Return a slice of a shape, from start indices; a size of -1: all that is left.

    Starts that are computed are moved so that the block lies inside.
    """
    value = read(inputs)
    _check_counts(value, start_indices, shape, "shape")
    starts = _known_starts(start_indices)
    if starts is None:
        return _dynamic_slice(value, start_indices, shape)
    sizes = zip(starts, shape, value.shape, strict=True)
    stops = tuple(full if n == -1 else start + int(n) for start, n, full in sizes)
    return arrays.slice_(value, starts=starts, stops=stops, steps=(1,) * value.ndim)


def _dynamic_slice(value: Value, start_indices: Any, shape: Any) -> Value:
    sizes = [int(n) for n in shape]
    if -1 in sizes:
        unknown = symbolic.unknown_size()
        if unknown is None:
            raise ShapeError(
                f"slice: {tuple(shape)} leaves sizes open while the starts are "
                "computed, so that the shape depends on data: give all sizes."
            )
        sizes = [unknown if n == -1 else n for n in sizes]
        return unknown_like(value, sizes)
    rooms = [max(full - n, 0) for full, n in zip(value.shape, sizes, strict=True)]
    for axis, start in enumerate(_clamped_starts(start_indices, rooms)):
        rows = start + np.arange(sizes[axis], dtype="int32")
        value = gathered(value, rows, axis)
    return value


@op
def slice_update(inputs: Any, start_indices: Any, updates: Any) -> Any:
    """Replace a block, starting at given indices.

    Starts that are computed are moved so that the block lies inside.
    """
    value = read(inputs)
    block = astype(updates, value.dtype)
    _check_counts(value, start_indices, block.shape, "updates")
    starts = _known_starts(start_indices)
    if starts is None:
        return _dynamic_update(value, start_indices, block)
    sizes = zip(starts, block.shape, value.shape, strict=True)
    pairs = tuple((start, n - start - m) for start, m, n in sizes)
    if any(n < 0 for pair in pairs for n in pair):
        raise ShapeError(
            f"slice_update: a block of {block.shape} at {starts} leaves an array of "
            f"{value.shape}"
        )
    mask = np.pad(np.ones(block.shape, bool), pairs)
    wide = arrays.pad(block, pairs=pairs, interior=(0,) * value.ndim, value=0.0)
    return p.where(Constant(mask), wide, value)


def _dynamic_update(value: Value, start_indices: Any, block: Value) -> Value:
    """Look up every element in the block, if it is in that."""
    rooms = [max(n - m, 0) for n, m in zip(value.shape, block.shape, strict=True)]
    inside = stretch(Constant(True), value.shape)
    wide = block
    for axis, start in enumerate(_clamped_starts(start_indices, rooms)):
        index = np.arange(value.shape[axis], dtype="int32") - start
        last = block.shape[axis] - 1
        wide = gathered(wide, clip(index, 0, last), axis)
        column = (value.shape[axis], *(1,) * (value.ndim - axis - 1))
        is_inside = s.reshape(_within(index, last + 1), shape=column)
        inside = p.logical_and(inside, stretch(is_inside, value.shape))
    return p.where(inside, wide, value)


def _flat_indices(indices: Any, shape: tuple[int, ...]) -> Value:
    """Turn rows of coordinates into indices in the array laid out flat, -1 outside."""
    index = astype(indices, "int32")
    sizes = np.array(shape[: index.shape[-1]], "int32")
    for axis, size in enumerate(sizes):
        require_range(slice_axis(index, index.ndim - 1, axis, axis + 1), 0, int(size))
    steps = np.cumprod((1, *sizes[:0:-1]))[::-1]
    flat = sums(index * steps.astype("int32"), axis=-1)
    outside = sums(astype(p.logical_not(_within(index, sizes)), "int32"), axis=-1) > 0
    return p.where(outside, s.fill(-1, flat), flat)


@op
def scatter(indices: Any, values: Any, shape: Any) -> Any:
    """Add values into zeros at rows of coordinates."""
    sizes = tuple(int(n) for n in shape)
    updates, depth = read(values), read(indices).shape[-1]
    rows = math.prod(sizes[:depth])
    flat = contraction.scatter_add(updates, _flat_indices(indices, sizes), rows=rows)
    return s.reshape(flat, shape=sizes)


@op
def scatter_update(
    inputs: Any, indices: Any, updates: Any, reduction: str | None = None
) -> Any:
    """Replace elements at rows of coordinates, or combine them with the old ones.

    `reduction` is None, "add", "max", "min" or "mul".
    """
    value = read(inputs)
    if reduction in ("max", "min", "mul"):
        return _combined(value, indices, updates, reduction)
    new = scatter(indices, astype(updates, value.dtype), value.shape)
    if reduction == "add":
        return value + new
    if reduction is not None:
        raise ValueError(
            f"Unsupported reduction: {reduction!r}. Use None, 'add', 'max', 'min' or "
            "'mul'."
        )
    ones = np.ones(read(updates).shape, "int32")
    return p.where(scatter(indices, ones, value.shape) > 0, new, value)


def _combined(value: Value, indices: Any, updates: Any, reduction: str) -> Value:
    from ganglion.ops.order import segments  # which imports this module

    depth = read(indices).shape[-1]
    rows = math.prod(value.shape[:depth])
    flat = _flat_indices(indices, value.shape)
    flat = s.reshape(flat, shape=(flat.size,))
    rest = value.shape[depth:]
    each = s.reshape(astype(updates, value.dtype), shape=(flat.size, *rest))
    reduced, combine = {
        "max": (segments.segment_max, p.maximum),
        "min": (segments.segment_min, p.minimum),
        "mul": (segments.segment_prod, p.multiply),
    }[reduction]
    new = s.reshape(reduced(each, flat, rows), shape=value.shape)
    return combine(value, new)


@op
def top_k(x: Any, k: int, sorted: bool = True) -> Any:  # noqa: A002
    """Return the k largest elements of each row and their indices, largest first."""
    rest = value = numeric(x)
    last = rest.ndim - 1
    if last < 0 or not 0 < k <= rest.shape[last]:
        count = rest.shape[last] if last >= 0 else 0
        raise ShapeError(f"top_k: k is {k}, but rows have {count} elements")
    lowest = -math.inf if s.is_float(rest.dtype) else int(np.iinfo(rest.dtype).min)
    values, indices = [], []
    numbers = arrays.iota(size=rest.shape[last], dtype="int32")
    free = s.fill(1, p.cast(rest, dtype="int32"))
    for _ in range(int(k)):
        largest = arrays.max_(rest, axes=(last,))
        # Where only the lowest number is left, the first that is not taken yet.
        only_lowest = p.equal(largest, s.fill(lowest, largest))
        index = p.where(
            only_lowest, arrays.argmax(free, axis=last), arrays.argmax(rest, axis=last)
        )
        indices.append(index)
        taken = expand_dims(index, -1) == numbers
        # Read at its index, so that only one of equal elements gets the gradient.
        values.append(s.sum_(p.where(taken, value, s.fill(0, value)), axes=(last,)))
        rest = p.where(taken, s.fill(lowest, rest), rest)
        free = p.where(taken, s.fill(0, free), free)
    return stack(values, axis=-1), stack(indices, axis=-1)


@op
def diagonal(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """Return a diagonal of the matrices in two axes, as the last axis."""
    value = moveaxis(x, (axis1, axis2), (-2, -1))
    rows, columns = value.shape[-2:]
    if rows != columns:
        symbolic.note_bounded_slice()  # the shorter side decides
    first = max(-offset, 0) * columns + max(offset, 0)
    count = max(min(rows + min(offset, 0), columns - max(offset, 0)), 0)
    flat = s.reshape(value, shape=(*value.shape[:-2], rows * columns))
    picked = np.arange(count, dtype="int32") * (columns + 1) + first
    return take(flat, picked, axis=-1)


@op
def diag(x: Any, k: int = 0) -> Any:
    """Put a row on a diagonal, or read the diagonal of a matrix."""
    value = read(x)
    if value.ndim == 2:
        return diagonal(value, offset=k)
    if value.ndim != 1:
        raise ShapeError(f"diag needs a row or a matrix, not {value.shape}")
    size = value.size + abs(k)
    first = max(-k, 0) * size + max(k, 0)
    indices = np.arange(value.size, dtype="int32") * (size + 1) + first
    flat = contraction.scatter_add(value, Constant(indices), rows=size * size)
    return s.reshape(flat, shape=(size, size))


@op
def trace(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """Add up a diagonal."""
    return sums(diagonal(x, offset=offset, axis1=axis1, axis2=axis2), axis=-1)


@op
def unravel_index(indices: Any, shape: Any) -> Any:
    """Return the index along each axis of positions in a flattened array."""
    flat = read(indices)
    rest, places = flat, []
    for size in reversed([int(n) for n in shape]):
        places.append(mod(rest, astype(size, flat.dtype)))
        rest = floor_divide(rest, astype(size, flat.dtype))
    return tuple(reversed(places))
