"""Passes over loops that pay if code is compiled once: windows in registers.

A depthwise convolution, or a pool, is a sum over the elements of a window. Unrolled,
the sum fuses with the ops after it, and neighbouring pixels share loads.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from ganglion.compiler.plan.epilogues import is_map
from ganglion.compiler.plan.kernels import (
    Buffer,
    Expr,
    Kernel,
    Load,
    Loop,
    Shape,
    View,
    chained,
    fixed,
    mapped,
    moved,
)

LARGEST_WINDOW = 49  # elements
FEWEST_CHANNELS = 4  # that lie side by side
FEWEST_LOADS = 8  # of a point, for its neighbours to share some


def write_windows_out(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Return the kernels with sums over small windows as expressions."""
    return [_written_out(k) if _is_window(k) else k for k in kernels]


def _is_window(kernel: Kernel) -> bool:
    if not isinstance(kernel, Loop) or kernel.how != "sum" or kernel.adds:
        return False
    outer, window = kernel.outer, kernel.shape[len(kernel.outer) :]
    along = [load.view.strides[len(outer) - 1] for load in _loads(kernel)]
    return (
        len(kernel.outputs) == 1
        and sum(size > 1 for size in outer) > 1
        and _channels(kernel) >= FEWEST_CHANNELS
        and 1 < math.prod(window) <= LARGEST_WINDOW
        and all(stride in (0, 1) for stride in along)
    )


def _channels(kernel: Loop) -> int:
    return next((size for size in reversed(kernel.outer) if size > 1), 1)


def _loads(kernel: Loop) -> list[Load]:
    return [expr for expr in kernel.leaves if isinstance(expr, Load)]


def _written_out(kernel: Kernel) -> Loop:
    assert isinstance(kernel, Loop)
    window = kernel.shape[len(kernel.outer) :]
    points = itertools.product(*map(range, window))
    total = chained("add", [fixed(kernel.expr, point) for point in points])
    return Loop.of(kernel.name, kernel.outer, total, kernel.target)


# ---- a loop with a single reader -----------------------------------------------------


def inline_loops(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Return the kernels with loops computed within the only loop that reads them."""
    written = Counter(root for k in kernels for root in k.memory_written)
    readers = Counter(root for k in kernels for root in k.memory_read)
    producers: dict[Buffer, Loop] = {}
    kept: dict[int, Kernel] = {}
    for number, kernel in enumerate(kernels):
        if isinstance(kernel, Loop):
            kernel = _squeezed(kernel)
            for root in [r for r in kernel.memory_read if r in producers]:
                if _can_inline(producers[root], kernel):
                    kernel = _inlined(producers[root], kernel)
                    kept = {n: k for n, k in kept.items() if k is not producers[root]}
            root = kernel.target.buffer.root
            alone = written[root] == readers[root] == 1 and root.kind == "arena"
            if alone and _is_map(kernel):
                producers[root] = kernel
        kept[number] = kernel
    return list(kept.values())


def _squeezed(kernel: Loop) -> Loop:
    """Return a map without unit axes, so that equivalent maps are equal."""
    axes = [axis for axis, size in enumerate(kernel.shape) if size > 1]
    if not _is_map(kernel) or len(axes) in (0, len(kernel.shape)):
        return kernel

    def move(strides: Shape, offset: int) -> tuple[Shape, int]:
        return tuple(strides[axis] for axis in axes) if strides else strides, offset

    target = kernel.target
    view = View(target.buffer, move(target.strides, 0)[0], target.offset)
    shape = tuple(kernel.shape[axis] for axis in axes)
    return kernel.with_axes(shape, 0, [view], move, {})


def _is_map(kernel: Loop) -> bool:
    return is_map(kernel) and len(kernel.outputs) == 1


def _can_inline(producer: Loop, reader: Loop) -> bool:
    target = producer.target
    reading = reader.reading(target.buffer.root)
    return (
        _is_map(reader)
        and producer.shape == reader.shape
        and all(
            isinstance(expr, Load)
            and expr.view.strides == target.strides
            and expr.view.offset == target.offset
            for expr in reading
        )
    )


def _inlined(producer: Loop, reader: Loop) -> Loop:
    memory = producer.target.buffer.root

    def change(expr: Expr) -> Expr:
        reads_it = isinstance(expr, Load) and expr.view.buffer.root is memory
        return producer.expr if reads_it else expr

    return Loop.of(
        reader.name, reader.shape, mapped(reader.expr, change), reader.target
    )


# ---- neighbouring pixels -------------------------------------------------------------


def neighbours_together(kernels: Sequence[Kernel], most: int) -> list[Kernel]:
    """Return the kernels; several points of a window loop are computed together.

    Loads that neighbours share, weights and the overlap of their windows, are done
    once.
    """
    return [_together(kernel, most) for kernel in kernels]


def _together(kernel: Kernel, most: int) -> Kernel:
    if not isinstance(kernel, Loop) or not _is_map(kernel) or len(kernel.shape) < 2:
        return kernel
    axis = len(kernel.shape) - 2
    size = kernel.shape[axis]
    count = max(n for n in range(1, most + 1) if size % n == 0)
    if count == 1 or len(_loads(kernel)) < FEWEST_LOADS:
        return kernel

    def at(strides: Shape, offset: int, point: int) -> tuple[Shape, int]:
        step = strides[axis]
        new = (*strides[:axis], step * count, *strides[axis + 1 :])
        return new, offset + step * point

    target = kernel.target
    outputs = [
        (
            moved(kernel.expr, partial(at, point=point)),
            View(target.buffer, *at(target.strides, target.offset, point)),
        )
        for point in range(count)
    ]
    shape = (*kernel.shape[:axis], size // count, *kernel.shape[axis + 1 :])
    return replace(kernel, shape=shape, outputs=tuple(outputs))
