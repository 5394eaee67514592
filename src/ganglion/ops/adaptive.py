"""Adaptive pooling: a given number of windows that cover an axis."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ganglion.compiler.ir.graph import Value
from ganglion.ops.dispatch import floating, op
from ganglion.ops.indexing import take
from ganglion.ops.products import matmul
from ganglion.ops.shapes import reshape
from ganglion.ops.windows import average_pool, max_pool, spread, with_channels_last
from ganglion.system import budget

__all__ = ["adaptive_average_pool", "adaptive_max_pool"]

AlongAxis = Callable[[Value, int, int], Value]


def adaptive_windows(size: int, count: int) -> list[tuple[int, int]]:
    """Return where each of `count` windows over an axis starts and ends.

    They cover the axis, overlap where it cannot be divided, and differ by at most one
    element in length.

    >>> adaptive_windows(5, 3)
    [(0, 2), (1, 4), (3, 5)]
    """
    return [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]


@op
def adaptive_average_pool(
    inputs: Any, output_size: Any, data_format: str | None = None
) -> Any:
    """Average over windows, a given number of them along each axis.

    >>> adaptive_average_pool(np.arange(5.0).reshape(1, 5, 1), 3).ravel()
    array([0.5, 2. , 3.5])
    """
    return _pooled(inputs, output_size, data_format, average_pool, _averages)


@op
def adaptive_max_pool(
    inputs: Any, output_size: Any, data_format: str | None = None
) -> Any:
    """Take the largest element of windows, a given number along each axis.

    >>> adaptive_max_pool(np.arange(5.0).reshape(1, 5, 1), 3).ravel()
    array([1., 3., 4.])
    """
    return _pooled(inputs, output_size, data_format, max_pool, _maxima)


def _pooled(
    inputs: Any,
    output_size: Any,
    data_format: str | None,
    pool: Callable[..., Value],
    along_axis: AlongAxis,
) -> Value:
    images, in_place = with_channels_last(inputs, data_format)
    x = floating(images)
    counts = spread(output_size, x.ndim - 2, "output_size")
    sizes = x.shape[1:-1]
    if all(size % count == 0 for size, count in zip(sizes, counts, strict=True)):
        window = tuple(n // m for n, m in zip(sizes, counts, strict=True))
        return in_place(pool(x, window, window, data_format="channels_last"))
    for axis, count in enumerate(counts, 1):
        if count != x.shape[axis]:
            budget.take(64 * count * x.shape[axis], f"{count:,} windows")
            x = along_axis(x, axis, count)
    return in_place(x)


def _averages(x: Value, axis: int, count: int) -> Value:
    """Multiply an axis with a matrix whose rows average a window each."""
    before, size, behind = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
    weights = np.zeros((count, size), x.dtype)
    for row, (start, end) in enumerate(adaptive_windows(size, count)):
        weights[row, start:end] = 1 / (end - start)
    flat = reshape(x, (math.prod(before), size, math.prod(behind)))
    return reshape(matmul(weights, flat), (*before, count, *behind))


def _maxima(x: Value, axis: int, count: int) -> Value:
    """Gather the windows, the last element of a shorter one twice."""
    windows = adaptive_windows(x.shape[axis], count)
    longest = max(end - start for start, end in windows)
    elements = [
        min(start + k, end - 1) for start, end in windows for k in range(longest)
    ]
    gathered = take(x, np.array(elements, "int32"), axis=axis)
    window = [longest if i == axis else 1 for i in range(1, x.ndim - 1)]
    return max_pool(gathered, window, window, data_format="channels_last")
