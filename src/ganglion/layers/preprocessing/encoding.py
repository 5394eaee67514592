"""Integers as they are, as ones in a row, or as counts: the `output_mode`s."""

from __future__ import annotations

from typing import Any

import numpy as np

from ganglion import config
from ganglion.layers.arguments import choice

Shape = tuple[int | None, ...]

_OLD_MODES = {"binary": "multi_hot", "tf-idf": "tf_idf"}  # Keras 2's names


def output_mode_of(value: Any, modes: tuple[str, ...]) -> str:
    """Return a known output mode, also by its old name."""
    return choice(_OLD_MODES.get(value, value), "`output_mode`", modes)


def encoded(indices: np.ndarray, mode: str, depth: int, dtype: str) -> np.ndarray:
    """Encode numbers; those out of range leave no trace, except as "int".

    Like Keras, "multi_hot" and "count" join the second axis (the only one of a row).

    >>> encoded(np.array([[0, 2, 2]]), "count", 3, "float32")
    array([[1., 0., 2.]], dtype=float32)
    """
    if mode == "int":
        return indices.astype(dtype)
    if indices.ndim == 0:
        indices = indices[None]
    if mode == "one_hot":
        if indices.ndim > 1 and indices.shape[-1] == 1:
            indices = indices[..., 0]
        return (indices[..., None] == np.arange(depth)).astype(dtype)
    axis = 1 if indices.ndim > 1 else 0
    moved = np.moveaxis(indices, axis, -1)
    rows = int(np.prod(moved.shape[:-1]))
    numbers = np.repeat(np.arange(rows), moved.shape[-1])
    counts = counted(moved.reshape(-1), numbers, rows, depth, mode == "multi_hot")
    return counts.reshape(*moved.shape[:-1], depth).astype(dtype)


def counted(
    indices: np.ndarray, rows: np.ndarray, count: int, depth: int, binary: bool
) -> np.ndarray:
    """Return how often each number below `depth` occurs in each row."""
    fits = (indices >= 0) & (indices < depth)
    flat = rows[fits] * depth + indices[fits]
    counts = np.bincount(flat, minlength=count * depth).reshape(count, depth)
    return np.minimum(counts, 1) if binary else counts


def encoded_shape(shape: Shape, mode: str, depth: int | None) -> Shape:
    """Return the shape of encoded numbers."""
    if mode == "int":
        return tuple(shape)
    if mode == "one_hot":
        is_column = len(shape) > 1 and shape[-1] == 1
        return (*(shape[:-1] if is_column else shape), depth)
    return (*shape[:1], *shape[2:], depth) if len(shape) > 1 else (depth,)


def encoded_dtype(mode: str, integer_dtype: str = "int64") -> str:
    """Return the type of encoded numbers: floats, except as "int"."""
    return integer_dtype if mode == "int" else config.floatx()
