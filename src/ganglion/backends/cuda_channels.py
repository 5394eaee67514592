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
from functools import reduce

from ganglion.plan.collapse import collapse
from ganglion.plan.kernel import (
    Apply,
    Axis,
    Contract,
    Expr,
    Kernel,
    Load,
    Loop,
    View,
    fixed,
    walk,
)

MOST_WRITTEN = 25  # places of a window
MOST_SUMS = 9  # that a thread holds
FEWEST_PLACES = 1 << 14
FEWEST_CHANNELS, MOST_COLUMNS = 8, 4


def channels_apart(kernels: Iterable[Kernel]) -> Iterator[Kernel]:
    """Yield kernels, those that never mix channels as loops over channels."""
    for one in kernels:
        if isinstance(one, Loop):
            yield _written_out(one)
        elif type(one) is Contract and _is_by_depth(one):
            yield from _sums_of_places(one)
        else:
            yield one


def _written_out(kernel: Loop) -> Loop:
    """Return a sum over a small window as a map, if neighbours lie side by side."""
    outer = len(kernel.outer)
    window = kernel.shape[outer:]
    suits = (
        kernel.how == "sum"
        and not (kernel.adds or kernel.more)
        and 1 < math.prod(window) <= MOST_WRITTEN
        and math.prod(kernel.outer) >= FEWEST_PLACES
        and kernel.expr.dtype == kernel.target.buffer.dtype
        and kernel.expr.dtype.kind == "f"
        and _side_by_side(kernel.expr, outer)
    )
    if not suits:
        return kernel
    places = itertools.product(*map(range, window))
    terms = [fixed(kernel.expr, place) for place in places]
    total = reduce(lambda a, b: Apply(a.dtype, "add", (a, b)), terms)
    return Loop(kernel.name, kernel.outer, total, kernel.target)


def _side_by_side(expr: Expr, outer: int) -> bool:
    """Tell whether an expression only loads neighbours, of the last axis stored."""
    loads = [one.view.strides for one in walk(expr) if isinstance(one, Load)]
    beside = any(strides[outer - 1] == 1 for strides in loads)
    return beside and all(
        strides[outer - 1] in (0, 1) and 1 not in strides[outer:] for strides in loads
    )


def _is_by_depth(kernel: Contract) -> bool:
    """Tell whether a product has but a column for each of many neighbours."""
    beside = kernel.batch[-1:] and kernel.batch[-1].left == 1
    return (
        bool(beside)
        and kernel.batch[-1].size >= FEWEST_CHANNELS
        and math.prod(one.size for one in kernel.columns) <= MOST_COLUMNS
        and kernel.out.buffer.dtype.kind == "f"
        and not (kernel.bits or kernel.places or kernel.packed)
    )


def _sums_of_places(kernel: Contract) -> Iterator[Kernel]:
    """Yield loops over channels that add up what is for each place of a window."""
    kept = [one for one in (*kernel.batch, *kernel.columns) if one.size > 1]
    axes = [*kept, *kernel.inner]
    ranges = [range(one.size) for one in kernel.rows]
    places = list(itertools.product(*ranges))
    loops = -(-len(places) // MOST_SUMS)
    for part in range(loops):
        stored = [_sum(kernel, axes, len(kept), one) for one in places[part::loops]]
        (expr, target), *more = stored
        shape = tuple(one.size for one in axes)
        inner = len(kernel.inner)
        yield collapse(
            Loop(kernel.name, shape, expr, target, inner, "sum", more=tuple(more))
        )


def _sum(
    kernel: Contract, axes: Sequence[Axis], kept: int, place: Sequence[int]
) -> tuple[Expr, View]:
    """Return what is added up for a place of the rows, and where the sum goes."""
    dtype = kernel.out.buffer.dtype
    factors = []
    for side, view in (("left", kernel.left), ("right", kernel.right)):
        away = _away(place, [getattr(one, side) for one in kernel.rows])
        strides = tuple(getattr(one, side) for one in axes)
        factors.append(Load(dtype, View(view.buffer, strides, view.offset + away)))
    away = _away(place, [one.out for one in kernel.rows])
    strides = tuple(one.out for one in axes[:kept])
    target = View(kernel.out.buffer, strides, kernel.out.offset + away)
    return Apply(dtype, "multiply", tuple(factors)), target


def _away(place: Sequence[int], strides: Sequence[int]) -> int:
    return sum(i * s for i, s in zip(place, strides, strict=True))
