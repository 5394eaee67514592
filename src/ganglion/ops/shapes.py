"""Shapes: reshape, join, split, repeat, flip and pad."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ganglion import symbolic
from ganglion.compiler.ir import arrays, contraction, shaping
from ganglion.compiler.ir import shaping as s
from ganglion.compiler.ir.graph import Constant, ShapeError, Value, call_function
from ganglion.ops.dispatch import (
    axes_of,
    known,
    of_common_type,
    one_axis,
    op,
    stretch,
    unknown_like,
)
from ganglion.variables import read

__all__ = [
    "append", "array_split", "broadcast_to", "concatenate", "diff", "expand_dims",
    "flip", "fliplr", "flipud", "hsplit", "hstack", "meshgrid", "moveaxis", "pad",
    "ravel", "repeat", "reshape", "roll", "rot90", "split", "squeeze", "stack",
    "swapaxes", "tile", "transpose", "unstack", "vsplit", "vstack",
]  # fmt: skip


def is_one(x: Any) -> bool:
    """Return whether this is one integer, and no sequence of them."""
    return isinstance(x, (int, np.integer))


def each_size(shape: Any) -> list[Any]:
    """Return the sizes of a shape; a size alone, also a tensor, is that of a vector."""
    is_alone = is_one(shape) or getattr(shape, "shape", None) == ()
    return [shape] if is_alone else list(shape)


def _has_no_numbers(size: Any) -> bool:
    """Return whether a size is computed from values that only a step has."""
    return isinstance(size, Value) and call_function("numbers", size) is None


def exact_sizes(shape: Any) -> tuple[int, ...]:
    """Return a shape in numbers; a size that is computed is open while one is tried."""
    unknown = symbolic.unknown_size()

    def exact(size: Any) -> int:
        is_open = unknown is not None and _has_no_numbers(size)
        return unknown if is_open else int(size)  # type: ignore[return-value]

    return tuple(map(exact, shape))


@op
def reshape(x: Any, newshape: Any) -> Any:
    """Give the same elements a new shape; one size may be -1."""
    value = read(x)
    sizes = each_size(newshape)
    unknown = symbolic.unknown_size()
    if unknown is not None and any(map(_has_no_numbers, sizes)):
        tried = [-1 if n is None or _has_no_numbers(n) else int(n) for n in sizes]
        return unknown_like(value, [unknown if n < 0 else n for n in tried])
    sizes = [-1 if n is None else int(n) for n in sizes]
    if min(sizes, default=0) < -1:
        raise ShapeError(
            "reshape: each size must be a non-negative integer, or -1 for the one "
            f"that follows from the others. Received: newshape={newshape}"
        )
    if sizes.count(-1) > 1:
        raise ShapeError(
            "reshape: there must be at most one unknown dimension (-1). Received: "
            f"newshape={newshape}"
        )
    if -1 in sizes:
        known = math.prod(n for n in sizes if n != -1)
        is_open = unknown is not None and unknown in value.shape
        if known and value.size % known and is_open:
            sizes[sizes.index(-1)] = unknown
            return unknown_like(value, sizes)  # it may fit once sizes are known
        if known == 0 or value.size % known:
            raise ShapeError(f"cannot reshape {value.shape} into {tuple(sizes)}")
        sizes[sizes.index(-1)] = value.size // known
    elif value.size != math.prod(sizes) and symbolic.fitting_size() in (
        *value.shape,
        *sizes,
    ):
        return unknown_like(value, sizes)  # whether it fits is seen with real sizes
    return s.reshape(value, shape=tuple(sizes))


@op
def ravel(x: Any) -> Any:
    """Put all elements into one row."""
    return reshape(x, (-1,))


@op
def transpose(x: Any, axes: Any = None) -> Any:
    """Reorder the axes; without an order, reverse them."""
    value = read(x)
    rank = value.ndim
    named = range(rank) if axes is None else [axes] if is_one(axes) else axes
    if len(named) != rank:
        raise ShapeError(
            "transpose: `axes` must be a list of the same length as the input shape, "
            f"{value.shape}. Received: axes={axes}"
        )
    if any(not -rank <= axis < rank for axis in named):
        raise ShapeError(
            f"transpose: Each axis in `axes` must be an integer in [-{rank}, {rank}). "
            f"Received: axes={axes}"
        )
    order = range(rank)[::-1] if axes is None else axes_of(axes, rank)
    if sorted(order) != list(range(value.ndim)):
        raise ShapeError(
            f"transpose: `axes` must be a valid permutation of the axes of "
            f"{value.shape}. Received: axes={axes}"
        )
    return shaping.transpose(value, axes=tuple(order))


@op
def moveaxis(x: Any, source: Any, destination: Any) -> Any:
    """Move axes to other positions, the rest keeping their order."""
    value = read(x)
    come = axes_of(source, value.ndim)
    order = [axis for axis in range(value.ndim) if axis not in come]
    for go, axis in sorted(zip(axes_of(destination, value.ndim), come, strict=True)):
        order.insert(go, axis)
    return shaping.transpose(value, axes=tuple(order))


@op
def swapaxes(x: Any, axis1: int, axis2: int) -> Any:
    """Exchange two axes."""
    value = read(x)
    order = list(range(value.ndim))
    a, b = one_axis(axis1, value.ndim), one_axis(axis2, value.ndim)
    order[a], order[b] = order[b], order[a]
    return shaping.transpose(value, axes=tuple(order))


@op
def expand_dims(x: Any, axis: Any) -> Any:
    """Add axes of size one."""
    value = read(x)
    count = 1 if is_one(axis) else len(axis)
    axes = axes_of(axis, value.ndim + count)
    if len(set(axes)) < count:
        raise ShapeError(f"expand_dims: an axis is named twice in {axis}")
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
    return stretch(read(x), exact_sizes(shape))


@op
def concatenate(xs: Any, axis: int = 0) -> Any:
    """Join arrays along an axis."""
    if not is_one(axis):
        raise ValueError(f"concatenate: `axis` must be an integer, got {axis!r}.")
    values = of_common_type(*xs)
    if len(values) == 1:
        return values[0]
    axis = one_axis(axis, values[0].ndim)
    if symbolic.fitting_size() is not None:
        values = _fitted_beside(values, axis)
    return arrays.concat(*values, axis=axis)


def _fitted_beside(values: list[Value], axis: int) -> list[Value]:
    """Give axes that are unknown, here or there, the sizes of the first array."""
    unknown, first = symbolic.fitting_size(), values[0]
    fitted = []
    for value in values:
        pairs = list(zip(value.shape, first.shape, strict=False))
        shape = [b if unknown in (a, b) else a for a, b in pairs]
        shape[axis:] = [value.shape[axis], *shape[axis + 1 :]]
        is_same = value.ndim != first.ndim or tuple(shape) == value.shape
        fitted.append(value if is_same else unknown_like(value, shape))
    return fitted


@op
def stack(x: Any, axis: int = 0) -> Any:
    """Join arrays along a new axis."""
    return concatenate([expand_dims(part, axis) for part in x], axis=axis)


@op
def unstack(x: Any, num: int | None = None, axis: int = 0) -> Any:
    """Cut an array into its rows along an axis."""
    value = read(x)
    count = value.shape[one_axis(axis, value.ndim)]
    if num is not None and num != count:
        raise ShapeError(f"unstack: num is {num}, but axis {axis} has {count} rows")
    if not count:
        return []
    return [squeeze(part, axis=axis) for part in split(value, count, axis=axis)]


@op
def split(x: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    """Cut an array into equal parts, or at given indices, along an axis."""
    value = read(x)
    axis = one_axis(axis, value.ndim)
    size = value.shape[axis]
    if is_one(indices_or_sections):
        sections = _sections(indices_or_sections)
        if size % sections:
            raise ShapeError(
                f"{size} rows do not split into {sections} equal parts; "
                "ops.array_split makes parts of nearly the same size"
            )
        ends = [number * (size // sections) for number in range(1, sections)]
    else:
        ends = [int(end) for end in indices_or_sections]
    return _cut_at(value, axis, ends)


def _sections(count: Any) -> int:
    if count < 1:
        raise ShapeError(f"cannot split into {count} parts; use at least one")
    return int(count)


def _cut_at(value: Value, axis: int, ends: list[int]) -> list[Value]:
    starts, stops = [0, *ends], [*ends, value.shape[axis]]
    return [slice_axis(value, axis, a, b) for a, b in zip(starts, stops, strict=True)]


@op
def array_split(x: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    """Cut an array into parts of nearly the same size; the first are the larger ones.

    >>> [part.tolist() for part in array_split(np.arange(5), 3)]
    [[0, 1], [2, 3], [4]]
    """
    if not is_one(indices_or_sections):
        raise TypeError(
            "ops.array_split takes a number of parts; use ops.split to cut at places."
        )
    value = read(x)
    axis = one_axis(axis, value.ndim)
    sections = _sections(indices_or_sections)
    small, larger = divmod(value.shape[axis], sections)
    ends = [number * small + min(number, larger) for number in range(1, sections)]
    return _cut_at(value, axis, ends)


def slice_axis(value: Value, axis: int, start: int, stop: int, step: int = 1) -> Value:
    """Slice along one axis; the bounds are checked, never clipped."""
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
    counts = [int(n) for n in ([repeats] if is_one(repeats) else repeats)]
    if min(counts, default=0) < 0:
        raise ShapeError(f"tile: cannot repeat {repeats} times")
    rank = max(value.ndim, len(counts))
    counts = [1] * (rank - len(counts)) + counts
    shape = (1,) * (rank - value.ndim) + value.shape
    paired = s.reshape(value, shape=tuple(n for size in shape for n in (1, size)))
    sizes = zip(counts, shape, strict=True)
    wide = stretch(paired, tuple(n for pair in sizes for n in pair))
    total = tuple(n * size for n, size in zip(counts, shape, strict=True))
    return s.reshape(wide, shape=total)


@op
def repeat(x: Any, repeats: Any, axis: int | None = None) -> Any:
    """Repeat each element along an axis, all as often or each by its own number."""
    value = read(x)
    if axis is None:
        value, axis = s.reshape(value, shape=(value.size,)), 0
    axis = one_axis(axis, value.ndim)
    head, size, rest = value.shape[:axis], value.shape[axis], value.shape[axis + 1 :]
    counts = _repeats(repeats, size)
    if counts.size > 1:
        rows = np.repeat(np.arange(size), counts)
        return gathered(value, Constant(rows, "int32"), axis)
    count = int(counts.reshape(()))
    paired = s.reshape(value, shape=(*head, size, 1, *rest))
    wide = stretch(paired, (*head, size, count, *rest))
    return s.reshape(wide, shape=(*head, size * count, *rest))


def _repeats(repeats: Any, size: int) -> np.ndarray:
    """Return how often rows are repeated: one number for all, or one for each."""
    if isinstance(repeats, Value):
        repeats = known("repeat", repeats, "Give `repeats` as a number or an array.")
    counts = np.asarray(repeats)
    if counts.size != 1 and counts.shape != (size,):
        raise ShapeError(
            f"repeat: {counts.size} numbers for {size} rows; give one, or one a row"
        )
    if counts.dtype.kind not in "iu" or counts.min(initial=0) < 0:
        raise ShapeError(f"repeat: cannot repeat {repeats!r} times")
    return counts


def gathered(value: Value, index: Value, axis: int) -> Value:
    """Pick rows along an axis by numbers that count from the front."""
    if axis == 0:
        return contraction.gather(value, index)
    picked = contraction.gather(moveaxis(value, axis, 0), index)
    axes = tuple(range(index.ndim))
    return moveaxis(picked, axes, tuple(axis + i for i in axes))


@op
def flip(x: Any, axis: Any = None) -> Any:
    """Reverse the order along axes."""
    value = read(x)
    return arrays.reverse(value, axes=axes_of(axis, value.ndim))


@op
def pad(
    x: Any, pad_width: Any, mode: str = "constant", constant_values: Any = None
) -> Any:
    """Add elements around: one number, or a mirror image ("reflect", "symmetric")."""
    value = read(x)
    if mode != "constant" and constant_values is not None:
        raise ValueError(
            "Argument `constant_values` can only be provided when `mode == "
            f"'constant'`. Received: mode={mode!r}. Leave it out."
        )
    widths = np.broadcast_to(np.asarray(pad_width, int), (value.ndim, 2))
    pairs = tuple((int(lo), int(hi)) for lo, hi in widths)
    if mode in ("reflect", "symmetric"):
        for axis, (lo, hi) in enumerate(pairs):
            value = _mirror(value, axis, lo, hi, int(mode == "reflect"))
        return value
    if mode != "constant":
        raise ValueError(
            f"ops.pad: mode {mode!r} is not supported; use 'constant', 'reflect' or "
            "'symmetric'."
        )
    number = float(constant_values or 0.0)
    return arrays.pad(value, pairs=pairs, interior=(0,) * value.ndim, value=number)


def _mirror(value: Value, axis: int, lo: int, hi: int, skip: int) -> Value:
    size = value.shape[axis]
    if max(lo, hi) > size - skip:
        raise ShapeError(f"pad: a mirror of {max(lo, hi)} from an axis of {size}")
    before = slice_axis(value, axis, skip, skip + lo)
    after = slice_axis(value, axis, size - skip - hi, size - skip)
    parts: list[Value] = [arrays.reverse(before, axes=(axis,))] if lo else []
    parts += [value]
    parts += [arrays.reverse(after, axes=(axis,))] if hi else []
    return concatenate(parts, axis=axis)


@op
def append(x1: Any, x2: Any, axis: int | None = None) -> Any:
    """Join two arrays along an axis, or both as rows of elements."""
    if axis is None:
        return concatenate([ravel(x1), ravel(x2)], axis=0)
    return concatenate([x1, x2], axis=axis)


def _with_axes(x: Any, ndim: int) -> Value:
    value = read(x)
    lead = (1,) * (ndim - value.ndim)
    return s.reshape(value, shape=lead + value.shape) if lead else value


@op
def hstack(xs: Any) -> Any:
    """Join along the second axis, or the only one."""
    values = [_with_axes(x, 1) for x in xs]
    return concatenate(values, axis=0 if values[0].ndim == 1 else 1)


@op
def vstack(xs: Any) -> Any:
    """Join along the first axis, rows of elements becoming rows of a matrix."""
    return concatenate([_with_axes(x, 2) for x in xs], axis=0)


@op
def hsplit(x: Any, indices_or_sections: Any) -> Any:
    """Cut along the second axis, or the only one."""
    value = read(x)
    return split(value, indices_or_sections, axis=0 if value.ndim == 1 else 1)


@op
def vsplit(x: Any, indices_or_sections: Any) -> Any:
    """Cut along the first axis."""
    return split(x, indices_or_sections, axis=0)


@op
def roll(x: Any, shift: Any, axis: Any = None) -> Any:
    """Move elements along axes, those that leave coming in at the other end."""
    value = read(x)
    if axis is None:
        flat = s.reshape(value, shape=(value.size,))
        return s.reshape(roll(flat, shift, axis=0), shape=value.shape)
    axes = axes_of(axis, value.ndim)
    steps = [shift] * len(axes) if is_one(shift) else list(shift)
    for step, axis in zip(steps, axes, strict=True):
        size = value.shape[axis]
        offset = int(step) % size if size else 0
        if offset:
            tail, head = split(value, [size - offset], axis=axis)
            value = concatenate([head, tail], axis=axis)
    return value


@op
def fliplr(x: Any) -> Any:
    """Reverse the second axis."""
    return flip(x, axis=1)


@op
def flipud(x: Any) -> Any:
    """Reverse the first axis."""
    return flip(x, axis=0)


@op
def rot90(array: Any, k: int = 1, axes: Any = (0, 1)) -> Any:
    """Turn by quarters in the plane of two axes."""
    value = read(array)
    if value.ndim < 2:
        raise ValueError(f"ops.rot90 needs at least two axes, not {value.shape}.")
    plane = () if is_one(axes) else axes_of(axes, value.ndim)
    if len(plane) != 2 or plane[0] == plane[1]:
        raise ValueError(f"ops.rot90: `axes` must be two different axes, got {axes}.")
    first, second = plane
    for _ in range(k % 4):
        value = swapaxes(flip(value, axis=second), first, second)
    return value


@op
def diff(a: Any, n: int = 1, axis: int = -1) -> Any:
    """Subtract neighbours along an axis, n times."""
    value = read(a)
    axis = one_axis(axis, value.ndim)
    if n < 0:
        raise ShapeError(f"diff: cannot subtract {n} times")
    for _ in range(n):
        size = value.shape[axis]
        after = slice_axis(value, axis, min(1, size), size)
        before = slice_axis(value, axis, 0, max(size - 1, 0))
        differ = value.dtype.kind == "b"  # of bool, whether neighbours differ
        value = after != before if differ else after - before
    return value


@op
def meshgrid(*x: Any, indexing: str = "xy") -> Any:
    """Stretch rows of coordinates over the grid they span."""
    if indexing not in ("xy", "ij"):
        raise ValueError(
            f"ops.meshgrid: indexing must be 'xy' or 'ij', not {indexing!r}."
        )
    rows = [ravel(row) for row in x]
    shape = tuple(row.shape[0] for row in rows)
    grids = []
    for axis, row in enumerate(rows):
        sizes = tuple(n if i == axis else 1 for i, n in enumerate(shape))
        grids.append(stretch(s.reshape(row, shape=sizes), shape))
    if indexing == "xy" and len(rows) > 1:
        grids = [swapaxes(grid, 0, 1) for grid in grids]
    return grids
