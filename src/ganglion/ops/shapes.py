"""Shapes: reshape, transpose, rearrange, slice, repeat and flip."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from ganglion import symbolic
from ganglion.compiler.ir import arrays, contraction, shaping
from ganglion.compiler.ir import shaping as s
from ganglion.compiler.ir.graph import Constant, ShapeError, Value, call_function
from ganglion.ops.dispatch import (
    axes_of,
    known,
    one_axis,
    op,
    stretch,
    unknown_like,
)
from ganglion.variables import read

__all__ = [
    "broadcast_to", "diff", "expand_dims", "flip", "fliplr", "flipud", "meshgrid",
    "moveaxis", "ravel", "rearrange", "repeat", "reshape", "rot90", "squeeze",
    "swapaxes", "tile", "transpose",
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


@op
def rearrange(tensor: Any, pattern: str, **axes_lengths: int) -> Any:
    """Order, split and merge axes by a pattern, `"b (h n) c -> b n (h c)"`."""
    value = read(tensor)
    before, arrow, after = pattern.partition("->")
    if not arrow:
        raise ValueError(f"ops.rearrange: {pattern!r} has no '->'.")
    groups, targets = _groups(before), _groups(after)
    sizes = _sizes(groups, value.shape, pattern, axes_lengths)
    names = [name for group in groups for name in group]
    wanted = [name for group in targets for name in group]
    if sorted(names) != sorted(wanted):
        raise ValueError(f"ops.rearrange: {pattern!r} has other axes behind the arrow.")
    value = s.reshape(value, shape=tuple(sizes[name] for name in names))
    value = s.transpose(value, axes=tuple(names.index(name) for name in wanted))
    merged = (math.prod(sizes[name] for name in group) for group in targets)
    return s.reshape(value, shape=tuple(merged))


def _groups(text: str) -> list[list[str]]:
    """Return the names of each axis; one in brackets has several."""
    return [re.findall(r"\w+", part) for part in re.findall(r"\w+|\(.*?\)", text)]


def _sizes(
    groups: list[list[str]], shape: tuple[int, ...], pattern: str, lengths: Any
) -> dict[str, int]:
    if len(groups) != len(shape):
        raise ValueError(
            f"ops.rearrange: {pattern!r} has {len(groups)} axes, the tensor {shape}."
        )
    sizes = {name: int(length) for name, length in lengths.items()}
    for group, size in zip(groups, shape, strict=True):
        unknown = [name for name in group if name not in sizes]
        product = math.prod(sizes[name] for name in group if name in sizes)
        if len(unknown) > 1 or size % product or (not unknown and size != product):
            raise ValueError(
                f"ops.rearrange: {' × '.join(group)} of {pattern!r} do not make up "
                f"{size}; give all of their sizes but one."
            )
        sizes |= dict.fromkeys(unknown, size // product)
    return sizes
