"""Joining and splitting arrays; padding and rolling, which join what they split."""

from __future__ import annotations

from typing import Any

import numpy as np

from ganglion import symbolic
from ganglion.compiler.ir import arrays
from ganglion.compiler.ir import shaping as s
from ganglion.compiler.ir.graph import ShapeError, Value
from ganglion.ops.dispatch import axes_of, of_common_type, one_axis, op, unknown_like
from ganglion.ops.shapes import expand_dims, is_one, ravel, slice_axis, squeeze
from ganglion.variables import read

__all__ = [
    "append", "array_split", "concatenate", "dsplit", "dstack", "hsplit", "hstack",
    "pad", "roll", "split", "stack", "unstack", "vsplit", "vstack",
]  # fmt: skip


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
    """Split an array into its rows along an axis."""
    value = read(x)
    count = value.shape[one_axis(axis, value.ndim)]
    if num is not None and num != count:
        raise ShapeError(f"unstack: num is {num}, but axis {axis} has {count} rows")
    if not count:
        return []
    return [squeeze(part, axis=axis) for part in split(value, count, axis=axis)]


@op
def split(x: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    """Split an array into equal parts, or at given indices, along an axis."""
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
    """Split an array into parts of nearly equal size; the first are the larger ones.

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
    """Split along the second axis, or the only one."""
    value = read(x)
    return split(value, indices_or_sections, axis=0 if value.ndim == 1 else 1)


@op
def vsplit(x: Any, indices_or_sections: Any) -> Any:
    """Split along the first axis."""
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
def dstack(xs: Any) -> Any:
    """Join arrays along the third axis."""
    return concatenate([_with_depth(x) for x in xs], axis=2)


def _with_depth(x: Any) -> Value:
    value = read(x)
    if value.ndim < 2:
        value = s.reshape(value, shape=(1, value.size))
    return expand_dims(value, -1) if value.ndim == 2 else value


@op
def dsplit(x: Any, indices_or_sections: Any) -> Any:
    """Split an array along its third axis."""
    return split(x, indices_or_sections, axis=2)
