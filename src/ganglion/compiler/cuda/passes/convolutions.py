"""Convolutions that need other kernels: padded gradients, and depthwise ones."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ganglion.compiler.cuda.epilogue import Root, is_copy, is_flat, loop_of, sizes
from ganglion.compiler.cuda.passes.rewrite import Uses
from ganglion.compiler.cuda.target import TUNING
from ganglion.compiler.cuda.text import root
from ganglion.compiler.plan.kernels import (
    Axis,
    Contract,
    Expr,
    Kernel,
    Load,
    Loop,
    View,
    chained,
    fixed,
    row_major,
    walk,
)
from ganglion.compiler.plan.passes.collapse import collapse


@dataclass(frozen=True)
class _Copy:
    """Where an array lies in another one: a loop that copied it, and when."""

    number: int
    loop: Loop

    def strides(self, axes: Sequence[tuple[int, int]]) -> list[int] | None:
        """Return the strides in the copy of axes (size, stride) of the array.

        An axis must stay inside of one of the loop's.
        """
        shape, far = self.loop.shape, self.loop.target.strides
        near = row_major(shape)
        left = [(size - 1) * step for size, step in zip(shape, near, strict=True)]
        result = []
        for size, stride in axes:
            if size == 1 or stride == 0:
                result.append(0)
                continue
            along = next((a for a, step in enumerate(near) if not stride % step), -1)
            left[along] -= (size - 1) * stride
            if stride < 0 or left[along] < 0:
                return None
            result.append(stride // near[along] * far[along])
        return result


def read_inside_padding(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Let products read an array inside of its padded copy, where there is one.

    A gradient is needed twice: with zeros around it, for the gradient of the images,
    and as it is, for the gradient of the weights. The first holds the second.
    """
    uses = Uses(kernels)
    copies: dict[Root, _Copy] = {}
    for number, kernel in enumerate(kernels):
        if isinstance(kernel, Loop) and is_copy(kernel):
            assert isinstance(kernel.expr, Load)
            source, target = kernel.expr.view, kernel.target.buffer
            larger = source.buffer.size < target.size
            lasts = uses.writers[root(target)][-1] == number
            ours = source.buffer.kind == target.kind == "arena"
            if larger and lasts and ours and is_flat(source, kernel.shape):
                copies.setdefault(root(source.buffer), _Copy(number, kernel))
    result: list[Kernel] = []
    for number, kernel in enumerate(kernels):
        if isinstance(kernel, Contract):
            for side in ("left", "right"):
                kernel = _read_from_copy(kernel, side, copies, uses, number)
        result.append(kernel)
    return result


def _read_from_copy(
    kernel: Contract, side: str, copies: dict[Root, _Copy], uses: Uses, number: int
) -> Contract:
    """Let one side of a product be read from a copy, where that can be."""
    view: View = getattr(kernel, side)
    copy = copies.get(root(view.buffer))
    written = uses.writers[root(view.buffer)]
    if copy is None or view.offset or not written[-1] < copy.number < number:
        return kernel
    groups = ("batch", "rows", "columns", "inner")
    axes: list[Axis] = [axis for name in groups for axis in getattr(kernel, name)]
    strides = copy.strides([(axis.size, getattr(axis, side)) for axis in axes])
    if strides is None:
        return kernel
    target = copy.loop.target
    there = View(target.buffer, row_major(target.buffer.shape), target.offset)
    changes: dict[str, Any] = {side: there}
    remaining = iter(strides)
    for name in groups:
        changes[name] = tuple(
            replace(axis, **{side: next(remaining)}) for axis in getattr(kernel, name)
        )
    return replace(kernel, **changes)


def depthwise_as_loops(kernels: Iterable[Kernel]) -> Iterator[Kernel]:
    """Yield kernels, those that never mix channels as loops over channels.

    Channels that never mix would fill one column of a tile, or one row. They lie side
    by side in memory: a sum over a small window is written out, and a thread has the
    sums of many taps of a window, for its gradient, in one run through the images.
    """
    for kernel in kernels:
        if isinstance(kernel, Loop):
            yield _unrolled(kernel)
        elif type(kernel) is not Contract or not _is_depthwise(kernel):
            yield kernel
        elif (
            math.prod(sizes(kernel.rows))
            <= TUNING.unrolled_window
            < math.prod(sizes(kernel.inner))
        ):
            yield from _sums_of_taps(kernel)
        else:
            *batch, channels = kernel.batch
            outer = (*batch, *kernel.rows, channels, *kernel.columns)
            yield _unrolled(loop_of(kernel, [a for a in outer if a.size > 1]))


def _unrolled(kernel: Loop) -> Loop:
    """Return a sum over a small window as a map, if neighbours lie side by side."""
    outer = len(kernel.outer)
    window = kernel.shape[outer:]
    fits = (
        kernel.how == "sum"
        and not (kernel.adds or len(kernel.outputs) > 1)
        and 1 < math.prod(window) <= TUNING.unrolled_window
        and math.prod(kernel.outer) >= TUNING.fewest_depthwise_elements
        and kernel.expr.dtype == kernel.target.buffer.dtype
        and kernel.expr.dtype.kind == "f"
        and _side_by_side(kernel.expr, outer)
    )
    if not fits:
        return kernel
    indices = itertools.product(*map(range, window))
    total = chained("add", [fixed(kernel.expr, index) for index in indices])
    return Loop.of(kernel.name, kernel.outer, total, kernel.target)


def _side_by_side(expr: Expr, outer: int) -> bool:
    """Whether an expression loads neighbours, of the last axis that is stored."""
    steps = [one.view.strides[outer - 1] for one in walk(expr) if isinstance(one, Load)]
    return 1 in steps and all(
        0 <= step <= TUNING.most_depthwise_columns for step in steps
    )


def _is_depthwise(kernel: Contract) -> bool:
    """Return whether a product has but a column or few for each of many neighbours."""
    columns = math.prod(sizes(kernel.columns))
    return (
        columns <= TUNING.most_depthwise_columns
        and bool(kernel.batch)
        and kernel.batch[-1].size >= TUNING.fewest_depthwise_channels
        and kernel.batch[-1].left <= TUNING.most_depthwise_columns
        and kernel.batch[-1].out == columns
        and kernel.out.buffer.dtype.kind == "f"
        and not (kernel.bits or kernel.places or kernel.packed)
    )


def _sums_of_taps(kernel: Contract) -> Iterator[Kernel]:
    """Yield loops over channels that add up what is for each place of a window."""
    outer = [axis for axis in (*kernel.batch, *kernel.columns) if axis.size > 1]
    taps = list(itertools.product(*map(range, sizes(kernel.rows))))
    loops = -(-len(taps) // TUNING.window_sums_per_thread)
    for part in range(loops):
        loops_of_taps = [
            loop_of(_at_tap(kernel, tap), outer) for tap in taps[part::loops]
        ]
        outputs = tuple(output for one in loops_of_taps for output in one.outputs)
        yield collapse(replace(loops_of_taps[0], outputs=outputs))


def _at_tap(kernel: Contract, tap: Sequence[int]) -> Contract:
    """Return the contraction for one tap."""
    moved = {}
    for side in ("left", "right", "out"):
        view = getattr(kernel, side)
        steps = [
            getattr(one, side) * i for one, i in zip(kernel.rows, tap, strict=True)
        ]
        moved[side] = replace(view, offset=view.offset + sum(steps))
    return replace(kernel, rows=(), **moved)
