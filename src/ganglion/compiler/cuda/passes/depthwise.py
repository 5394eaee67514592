"""Windows of single channels: convolutions by depth, and averages.

Channels that never mix would fill one column of a tile, or one row. So they are loops
over channels, which lie side by side in memory: a sum over a small window is written
out, and a thread has the sums of many places of a window, for its gradient, in one run
through the images.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ganglion.compiler.cuda.epilogue import loop_of, sizes
from ganglion.compiler.plan.kernels import (
    Contract,
    Expr,
    Kernel,
    Load,
    Loop,
    chained,
    fixed,
    walk,
)
from ganglion.compiler.plan.passes.collapse import collapse

MOST_WRITTEN = 49  # places of a window
MOST_SUMS = 9  # that a thread holds
FEWEST_PLACES = 1 << 14
FEWEST_CHANNELS, MOST_COLUMNS = 8, 4


def depthwise_as_loops(kernels: Iterable[Kernel]) -> Iterator[Kernel]:
    """Yield kernels, those that never mix channels as loops over channels."""
    for one in kernels:
        if isinstance(one, Loop):
            yield _written_out(one)
        elif type(one) is not Contract or not _is_by_depth(one):
            yield one
        elif math.prod(sizes(one.rows)) <= MOST_WRITTEN < math.prod(sizes(one.inner)):
            yield from _sums_of_places(one)
        else:
            *batch, channels = one.batch
            kept = (*batch, *one.rows, channels, *one.columns)
            yield _written_out(loop_of(one, [a for a in kept if a.size > 1]))


def _written_out(kernel: Loop) -> Loop:
    """Return a sum over a small window as a map, if neighbours lie side by side."""
    outer = len(kernel.outer)
    window = kernel.shape[outer:]
    suits = (
        kernel.how == "sum"
        and not (kernel.adds or len(kernel.outputs) > 1)
        and 1 < math.prod(window) <= MOST_WRITTEN
        and math.prod(kernel.outer) >= FEWEST_PLACES
        and kernel.expr.dtype == kernel.target.buffer.dtype
        and kernel.expr.dtype.kind == "f"
        and _side_by_side(kernel.expr, outer)
    )
    if not suits:
        return kernel
    places = itertools.product(*map(range, window))
    total = chained("add", [fixed(kernel.expr, place) for place in places])
    return Loop.of(kernel.name, kernel.outer, total, kernel.target)


def _side_by_side(expr: Expr, outer: int) -> bool:
    """Whether an expression loads neighbours, of the last axis that is stored."""
    steps = [one.view.strides[outer - 1] for one in walk(expr) if isinstance(one, Load)]
    return 1 in steps and all(0 <= step <= MOST_COLUMNS for step in steps)


def _is_by_depth(kernel: Contract) -> bool:
    """Return whether a product has but a column or few for each of many neighbours."""
    columns = math.prod(sizes(kernel.columns))
    return (
        columns <= MOST_COLUMNS
        and bool(kernel.batch)
        and kernel.batch[-1].size >= FEWEST_CHANNELS
        and kernel.batch[-1].left <= MOST_COLUMNS
        and kernel.batch[-1].out == columns
        and kernel.out.buffer.dtype.kind == "f"
        and not (kernel.bits or kernel.places or kernel.packed)
    )


def _sums_of_places(kernel: Contract) -> Iterator[Kernel]:
    """Yield loops over channels that add up what is for each place of a window."""
    kept = [one for one in (*kernel.batch, *kernel.columns) if one.size > 1]
    places = list(itertools.product(*map(range, sizes(kernel.rows))))
    loops = -(-len(places) // MOST_SUMS)
    for part in range(loops):
        every = [loop_of(_at_place(kernel, one), kept) for one in places[part::loops]]
        outputs = tuple(output for one in every for output in one.outputs)
        yield collapse(replace(every[0], outputs=outputs))


def _at_place(kernel: Contract, place: Sequence[int]) -> Contract:
    """Return the contraction for one place of its rows."""
    moved = {}
    for side in ("left", "right", "out"):
        view = getattr(kernel, side)
        steps = [
            getattr(one, side) * i for one, i in zip(kernel.rows, place, strict=True)
        ]
        moved[side] = replace(view, offset=view.offset + sum(steps))
    return replace(kernel, rows=(), **moved)
