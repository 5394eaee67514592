"""A step that is one block's: arrays in its shared memory, and no launches to fill.

The block takes many steps in a single launch. It copies the variables of its model
before the first step, and back after the last one. Products read transposed matrices as
they lie, what an update needs besides its gradient is computed first, so that updates
are epilogues, and the order of rows is drawn for several steps at a time.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ganglion.compiler.cuda.fusion import FusedKernel, loop_of
from ganglion.compiler.cuda.launches import (
    SHARED_ALIGNMENT,
    Schedule,
    StepKernels,
)
from ganglion.compiler.cuda.target import TUNING
from ganglion.compiler.cuda.text import THREADS, Emitted
from ganglion.compiler.plan.epilogues import is_copy
from ganglion.compiler.plan.kernels import (
    Apply,
    Axis,
    Buffer,
    BufferKey,
    Contract,
    Expr,
    Index,
    Kernel,
    Literal,
    Load,
    Loop,
    Shuffled,
    View,
)
from ganglion.compiler.plan.plan import Uses, read_by, rounded

_AXES = ("batch", "rows", "columns", "inner")
_SCRATCH = ("scratch", "")  # what the threads of a kernel tell each other


def make_resident(step: StepKernels) -> StepKernels:
    """Return a step for one block."""
    kernels = [_thin_as_loop(kernel) for kernel in step.every]
    kernels = _read_as_it_lies(_compute_early(kernels))
    return replace(step, every=tuple(kernels), resident=True)


def _thin_as_loop(kernel: Kernel) -> Kernel:
    """Return a product of few rows or columns as a loop: tiles would be empty."""
    if type(kernel) is not Contract or not kernel.inner:
        return kernel
    sizes = [math.prod(a.size for a in axes) for axes in (kernel.rows, kernel.columns)]
    if min(sizes) > TUNING.resident_thin:
        return kernel
    return loop_of(kernel, (*kernel.batch, *kernel.rows, *kernel.columns))


def _compute_early(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Put results first that depend on nothing which the step computes before them."""
    uses = Uses(kernels)
    first: list[Kernel] = []
    others: list[Kernel] = []
    for number, kernel in enumerate(kernels):
        if isinstance(kernel, Loop) and not kernel.reduced and number:
            early = [
                (expr, view)
                for expr, view in kernel.outputs
                if view.buffer.kind == "arena"
                and len(uses.writers[view.buffer.key]) == 1
                and not any(
                    writer < number
                    for buffer in replace(kernel, outputs=((expr, view),)).reads()
                    for writer in uses.writers[buffer.key]
                )
            ]
            if early and len(early) < len(kernel.outputs):
                first.append(replace(kernel, outputs=tuple(early)))
                late = [output for output in kernel.outputs if output not in early]
                kernel = replace(kernel, outputs=tuple(late))
        others.append(kernel)
    return [*first, *others]


def _read_as_it_lies(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Let products read the matrix that a copy would transpose for them."""
    uses = Uses(kernels)
    copies: dict[BufferKey, tuple[int, Loop]] = {}
    changed: list[Kernel] = []
    for number, kernel in enumerate(kernels):
        if isinstance(kernel, Loop) and is_copy(kernel):
            target = kernel.target.buffer
            if target.kind == "arena" and len(uses.writers[target.key]) == 1:
                copies[target.key] = number, kernel
        if isinstance(kernel, Contract):
            for side in ("left", "right"):
                copied, loop = copies.get(
                    getattr(kernel, side).buffer.key, (number, None)
                )
                if loop is not None and not _is_written(uses, loop, copied, number):
                    kernel = _read_source(kernel, side, loop)
        changed.append(kernel)
    unread = copies.keys() - read_by(changed)
    return [
        kernel
        for kernel in changed
        if not (isinstance(kernel, Loop) and kernel.target.buffer.key in unread)
    ]


def _is_written(uses: Uses, loop: Loop, after: int, before: int) -> bool:
    """Return whether what a loop copies is changed between two kernels."""
    assert isinstance(loop.expr, Load)
    writers = uses.writers[loop.expr.view.buffer.key]
    return any(after < writer < before for writer in writers)


def _read_source(kernel: Contract, side: str, loop: Loop) -> Contract:
    """Return a product that reads what was copied, where its axes are the copy's."""
    assert isinstance(loop.expr, Load)
    copy, source = loop.target, loop.expr.view
    if getattr(kernel, side).offset or copy.offset:
        return kernel
    strides = {
        there: (size, here)
        for size, there, here in zip(
            loop.shape, copy.strides, source.strides, strict=True
        )
    }

    def moved(axis: Axis) -> Axis | None:
        stride = getattr(axis, side)
        if axis.size == 1 or not stride:
            return axis
        size, here = strides.get(stride, (0, 0))
        return replace(axis, **{side: here}) if axis.size <= size else None

    changes: dict[str, Any] = {}
    for name in _AXES:
        changes[name] = tuple(map(moved, getattr(kernel, name)))
        if None in changes[name]:
            return kernel
    changes[side] = View(source.buffer, source.strides, source.offset)
    return replace(kernel, **changes)


# ---- memory and barriers -------------------------------------------------------------


@dataclass(frozen=True)
class Ahead:
    """A loop over the rows of a batch that is computed for several steps at a time.

    Few threads would take as long for one step: they draw the order of the rows, which
    is a long chain of numbers for each.
    """

    fused: FusedKernel  # for all those steps
    key: BufferKey
    steps: int
    size: int  # elements of one step


@dataclass(frozen=True)
class ResidentMemory:
    """Where arrays are in a block's shared memory; which kernels need no barrier."""

    offsets: Mapping[BufferKey, int]
    end: int  # bytes in all
    independent: Collection[int]
    ahead: Mapping[int, Ahead]  # by the number of a kernel

    @classmethod
    def of(
        cls,
        schedule: Schedule,
        every: Sequence[FusedKernel],
        bodies: Sequence[Emitted],
        ahead: Mapping[int, Ahead],
    ) -> ResidentMemory:
        """Give each array of a step its place."""
        end = rounded(max(body.shared for body in bodies), SHARED_ALIGNMENT)
        offsets = {key: end + start for key, start in schedule.offsets.items()}
        end += rounded(schedule.arena, SHARED_ALIGNMENT)
        sizes: dict[BufferKey, int] = defaultdict(int)  # at most, of what is made ahead
        for buffer in (buffer for body in bodies for buffer in body.buffers):
            sizes[buffer.key] = max(sizes[buffer.key], buffer.nbytes)
        persistent = [key for key in sizes if key[0] == "state"]
        for key in (*persistent, *(each.key for each in ahead.values())):
            offsets[key] = end
            end += rounded(sizes[key], SHARED_ALIGNMENT)
        ranges = {
            key: (start, start + sizes[key])
            for key, start in offsets.items()
            if key in sizes
        }
        return cls(offsets, end, _independent(every, bodies, ranges), ahead)


def _independent(
    every: Sequence[FusedKernel],
    bodies: Sequence[Emitted],
    ranges: Mapping[BufferKey, tuple[int, int]],
) -> set[int]:
    """Return which kernels need no barrier before them.

    They do not write what others read or write since the last barrier, nor the other
    way round. Arrays share memory, and so do sums over threads.
    """

    def meet(some: Iterable[BufferKey], others: Collection[BufferKey]) -> bool:
        for key in some:
            start, end = ranges.get(key, (0, 0))
            for other in others:
                first, last = ranges.get(other, (0, 0))
                if key == other or (start < last and first < end):
                    return True
        return False

    result: set[int] = set()
    read: set[BufferKey] = set()
    written: set[BufferKey] = set()
    for number, (fused, body) in enumerate(zip(every, bodies, strict=True)):
        reads, writes = fused.reads(), set(fused.writes())
        if body.shared:
            writes.add(_SCRATCH)
        if number and not meet(reads, written) and not meet(writes, read | written):
            result.add(number)
        else:
            read, written = set(), set()
        read, written = read | reads, written | writes
    return result


# ---- several steps at a time ---------------------------------------------------------


def made_ahead(every: Sequence[FusedKernel], most: int) -> dict[int, Ahead]:
    """Return the loops that draw the order of rows, each for so many steps at most."""
    advances = {
        key: step
        for fused in every
        for kernel in fused.kernels
        if isinstance(kernel, Loop)
        for expr, view in kernel.outputs
        for key, step in [_advance(expr, view.buffer)]
        if step
    }
    found: dict[int, Ahead] = {}
    for number, fused in enumerate(every):
        kernel, *others = fused.kernels
        if others or not isinstance(kernel, Loop) or len(kernel.outputs) > 1:
            continue
        position = _shuffled_position(kernel)
        (rows,) = kernel.shape if len(kernel.shape) == 1 else (0,)
        if position is None or not rows or advances.get(position) != rows:
            continue
        if (steps := min(THREADS // rows, most)) > 1:
            target = replace(kernel.target.buffer, shape=(steps * rows,))
            outputs = ((kernel.expr, View.of(target)),)
            longer = replace(kernel, shape=(steps * rows,), outputs=outputs)
            found[number] = Ahead(FusedKernel(longer), target.key, steps, rows)
    return found


def _advance(expr: Expr, buffer: Buffer) -> tuple[BufferKey, int]:
    """Return by how much a step advances a counter, 0 if it is none."""
    if isinstance(expr, Apply) and expr.op == "add":
        load, step = expr.args
        counts = isinstance(load, Load) and load.view.buffer.key == buffer.key
        if counts and isinstance(step, Literal):
            return buffer.key, int(step.value)
    return buffer.key, 0


def _shuffled_position(kernel: Loop) -> BufferKey | None:
    """Return the counter from which on rows are drawn, if that is all a loop does."""
    expr = kernel.expr
    if not isinstance(expr, Shuffled) or not isinstance(expr.position, Apply):
        return None
    if expr.position.op != "add" or len(expr.position.args) != 2:
        return None
    load, index = expr.position.args
    if not isinstance(load, Load) or not isinstance(index, Index):
        return None
    is_plain = index.strides == (1,) and index.offset == 0 and kernel.target.offset == 0
    return load.view.buffer.key if is_plain else None
