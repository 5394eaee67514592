"""PyTorch's functions that change shapes or choose elements, on Ganglion's ops."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ganglion import ops

# ruff: noqa: A002 (PyTorch's names of arguments)


def _split(tensor: Any, split_size_or_sections: Any, dim: int = 0) -> Any:
    size, length = split_size_or_sections, tensor.shape[dim]
    if isinstance(size, int):
        cuts = list(range(size, length, size))
    else:
        cuts = [int(cut) for cut in np.cumsum(size)[:-1]]
    return tuple(ops.split(tensor, cuts, axis=dim)) if cuts else (tensor,)


def _chunk(input: Any, chunks: int, dim: int = 0) -> Any:
    return _split(input, -(-input.shape[dim] // chunks), dim)


def sizes_of(sizes: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the sizes of `view(2, 3)` and of `view((2, 3))`."""
    is_one = len(sizes) == 1 and isinstance(sizes[0], (tuple, list))
    return tuple(sizes[0]) if is_one else sizes


def _reshape(input: Any, *shape: Any) -> Any:
    return ops.reshape(input, sizes_of(shape))


def _flatten(input: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    shape = tuple(input.shape)
    if not shape:
        return ops.reshape(input, (1,))
    first, last = start_dim % len(shape), end_dim % len(shape)
    size = math.prod(shape[first : last + 1])
    return ops.reshape(input, (*shape[:first], size, *shape[last + 1 :]))


def _permute(input: Any, *dims: Any) -> Any:
    return ops.transpose(input, sizes_of(dims))


def _expand(input: Any, *sizes: Any) -> Any:
    wanted = sizes_of(sizes)
    known = (1,) * (len(wanted) - len(input.shape)) + tuple(input.shape)
    shape = tuple(
        old if new == -1 else new for new, old in zip(wanted, known, strict=True)
    )
    return ops.broadcast_to(input, shape)


def _repeat(input: Any, *sizes: Any) -> Any:
    return ops.tile(input, sizes_of(sizes))


def _transpose(input: Any, dim0: int, dim1: int) -> Any:
    return ops.swapaxes(input, dim0, dim1)


def _t(input: Any) -> Any:
    if len(input.shape) > 2:
        raise TypeError("a matrix is expected")
    return ops.transpose(input)


def _squeeze(input: Any, dim: Any = None) -> Any:
    if dim is None:
        return ops.squeeze(input)
    axes = [int(axis) for axis in np.atleast_1d(dim) if input.shape[axis] == 1]
    return ops.squeeze(input, axis=axes) if axes else input


def _unsqueeze(input: Any, dim: int) -> Any:
    return ops.expand_dims(input, dim)


def _unbind(input: Any, dim: int = 0) -> Any:
    return tuple(ops.unstack(input, axis=dim))


def _roll(input: Any, shifts: Any, dims: Any = None) -> Any:
    return ops.roll(input, shifts, axis=dims)


def _flip(input: Any, *dims: Any) -> Any:
    return ops.flip(input, axis=sizes_of(dims))


def _repeat_interleave(input: Any, repeats: Any, dim: int | None = None) -> Any:
    return ops.repeat(input, repeats, axis=dim)


def _masked_fill(input: Any, mask: Any, value: Any) -> Any:
    return ops.where(mask, ops.cast(value, input.dtype), input)


def _triangle(op: Callable[..., Any]) -> Callable[..., Any]:
    def part(input: Any, diagonal: int = 0) -> Any:
        return op(input, k=diagonal)

    return part


def _nonzero(input: Any, as_tuple: bool = False) -> Any:
    found = ops.nonzero(input)
    return tuple(found) if as_tuple else ops.stack(list(found), axis=-1)


def _index_select(input: Any, dim: int, index: Any) -> Any:
    return ops.take(input, index, axis=dim)


def _take_along_dim(input: Any, indices: Any, dim: int | None = None) -> Any:
    return ops.take_along_axis(input, indices, axis=dim)


def _masked_select(input: Any, mask: Any) -> Any:
    return ops.convert_to_tensor(np.asarray(input)[np.asarray(mask)])


def _bincount(input: Any, weights: Any = None, minlength: int = 0) -> Any:
    return ops.bincount(input, weights=weights, minlength=minlength)


def _unique(
    input: Any,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    return ops.unique(
        input, return_inverse=return_inverse, return_counts=return_counts, axis=dim
    )


def _pad(input: Any, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    # The last axis comes first.
    pairs = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)][::-1]
    widths = [(0, 0)] * (len(input.shape) - len(pairs)) + pairs
    if mode == "constant":
        return ops.pad(input, widths, constant_values=0 if value is None else value)
    if mode != "reflect":
        raise TypeError(f"`mode={mode!r}` is not supported")
    return ops.pad(input, widths, mode="reflect")


def _embedding(input: Any, weight: Any) -> Any:
    return ops.take(weight, input, axis=0)


SHAPES: dict[str, Callable[..., Any]] = {
    "split": _split,
    "chunk": _chunk,
    "reshape": _reshape,
    "flatten": _flatten,
    "permute": _permute,
    "expand": _expand,
    "repeat": _repeat,
    "transpose": _transpose,
    "t": _t,
    "squeeze": _squeeze,
    "unsqueeze": _unsqueeze,
    "unbind": _unbind,
    "roll": _roll,
    "flip": _flip,
    "repeat_interleave": _repeat_interleave,
    "masked_fill": _masked_fill,
    "swapdims": _transpose,
    "tril": _triangle(ops.tril),
    "triu": _triangle(ops.triu),
    "nonzero": _nonzero,
    "index_select": _index_select,
    "take_along_dim": _take_along_dim,
    "masked_select": _masked_select,
    "bincount": _bincount,
    "unique": _unique,
    "pad": _pad,
    "embedding": _embedding,
}
