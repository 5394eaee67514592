"""How a thread block runs many steps: kernel order, barriers, shared memory.

All arrays of a step are in the block's shared memory. Steps are software-pipelined:
the order of rows is drawn for several steps at a time, and a step's data is fetched
from global memory during the step before.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ganglion.compiler.cuda.fusion import FusedKernel, InBlock
from ganglion.compiler.cuda.launches import (
    SHARED_ALIGNMENT,
    Launch,
    Schedule,
    fused_kernels_of,
)
from ganglion.compiler.cuda.text import THREADS, Emitted
from ganglion.compiler.plan.epilogues import is_flat, is_map
from ganglion.compiler.plan.kernels import (
    Apply,
    Buffer,
    BufferKey,
    Expr,
    Index,
    Kernel,
    Literal,
    Load,
    Loop,
    Shuffled,
    View,
)
from ganglion.compiler.plan.plan import rounded

BANKS = 32  # of shared memory, each of 4 bytes
_WARPS = THREADS // 32
_SCRATCH = ("scratch", "")  # shared memory for reductions over a kernel's threads


def place_in_block(schedule: Schedule) -> Schedule:
    """Choose which arrays are swizzled, and the warp that each kernel starts with.

    Where the length of rows is a multiple of the number of banks, a column lies in a
    single bank, and reads of it are serialized unless rows are swizzled. Small loops of
    a launch run at the same time: each starts with other warps, taken from the last one
    down, since most of the other kernels' work is done by the first ones.
    """
    swizzled = {
        buffer.key: buffer.shape[-1]
        for _, fused in fused_kernels_of(schedule.every)
        for buffer in fused.buffers()
        if buffer.kind in ("arena", "state") and _has_aligned_rows(buffer)
    }
    for key in schedule.step.persistent:  # these are in global memory
        swizzled.pop(key, None)
    for launch in schedule.every:
        warps_taken = 0
        for fused in launch.fused_kernels:
            first_warp = 0
            if (warps := _warps_needed(fused.kernel)) < _WARPS:
                warps_taken += warps
                first_warp = -warps_taken % _WARPS
            fused.in_block = InBlock(swizzled, first_warp)
    return replace(schedule)


def _warps_needed(kernel: Kernel) -> int:
    """Return how many warps of the block have work in a kernel."""
    if not isinstance(kernel, Loop):
        return _WARPS
    return min(-(-math.prod(kernel.shape) // 32), _WARPS)


def _has_aligned_rows(buffer: Buffer) -> bool:
    """Return whether all rows of an array would start in the same bank."""
    is_matrix = len(buffer.shape) > 1 and buffer.size > buffer.shape[-1]
    return is_matrix and buffer.dtype == np.float32 and buffer.shape[-1] % BANKS == 0


@dataclass(frozen=True)
class RowPrefetch:
    """A loop over the rows of a batch, widened to compute several steps at a time.

    It draws the order of rows, a long chain of dependent instructions for each of few
    threads, and gathers one element of each row: more rows take no longer.
    """

    fused: FusedKernel  # over the rows of all these steps
    keys: frozenset[BufferKey]  # of the arrays that it writes
    steps: int
    size: int  # elements of a step


@dataclass(frozen=True)
class PipelinedKernel:
    """A kernel in the block's loop over steps, and the step that it computes for."""

    fused: FusedKernel
    row_prefetch: RowPrefetch | None = None
    is_prologue: bool = False  # before the loop, for the first step
    for_next: bool = False  # in each step, for the one after it

    @property
    def emitted(self) -> FusedKernel:
        """The kernel whose text is emitted."""
        return self.row_prefetch.fused if self.row_prefetch else self.fused


@dataclass(frozen=True)
class ResidentMemory:
    """The layout of a block's shared memory, and which kernels need no barrier."""

    kernels: Sequence[PipelinedKernel]
    offsets: Mapping[BufferKey, int]
    end: int  # bytes in all
    needs_no_barrier: Collection[int]  # numbers of kernels
    swizzled: Mapping[BufferKey, int]  # see `place_in_block`

    @cached_property
    def row_prefetches(self) -> dict[BufferKey, RowPrefetch]:
        """The widened loops, by the arrays that they write."""
        prefetches = [k.row_prefetch for k in self.kernels if k.row_prefetch]
        return {key: prefetch for prefetch in prefetches for key in prefetch.keys}

    @classmethod
    def of(
        cls,
        schedule: Schedule,
        kernels: Sequence[PipelinedKernel],
        bodies: Sequence[Emitted],
    ) -> ResidentMemory:
        """Lay out the block's memory: scratch, the arena, variables, row prefetches."""
        end = rounded(max(body.shared for body in bodies), SHARED_ALIGNMENT)
        offsets = {key: end + start for key, start in schedule.offsets.items()}
        end += rounded(schedule.arena, SHARED_ALIGNMENT)
        sizes: dict[BufferKey, int] = defaultdict(int)
        for buffer in (buffer for body in bodies for buffer in body.buffers):
            # Readers of a row prefetch know the array of a single step.
            sizes[buffer.key] = max(sizes[buffer.key], buffer.nbytes)
        variables = [key for key in sizes if key[0] == "state"]
        prefetches = [k.row_prefetch for k in kernels if k.row_prefetch]
        prefetched = {key for prefetch in prefetches for key in prefetch.keys}
        for key in (*variables, *sorted(prefetched)):
            offsets[key] = end
            end += rounded(sizes[key], SHARED_ALIGNMENT)
        ranges = {
            key: (start, start + sizes[key])
            for key, start in offsets.items()
            if key in sizes
        }
        in_block = kernels[0].fused.in_block
        assert in_block is not None
        independent = _independent_kernels(kernels, bodies, ranges)
        return cls(kernels, offsets, end, independent, in_block.swizzled)


def _independent_kernels(
    kernels: Sequence[PipelinedKernel],
    bodies: Sequence[Emitted],
    ranges: Mapping[BufferKey, tuple[int, int]],
) -> set[int]:
    """Return the numbers of kernels that need no barrier before them.

    These have no conflict with any kernel since the last barrier, where arrays that
    share memory, and the scratch memory of reductions, count as the same array.
    """

    def conflict(keys: Iterable[BufferKey], others: Collection[BufferKey]) -> bool:
        for key in keys:
            start, end = ranges.get(key, (0, 0))
            for other in others:
                other_start, other_end = ranges.get(other, (0, 0))
                if key == other or (start < other_end and other_start < end):
                    return True
        return False

    independent: set[int] = set()
    read: set[BufferKey] = set()  # since the last barrier
    written: set[BufferKey] = set()
    for number, (kernel, body) in enumerate(zip(kernels, bodies, strict=True)):
        if kernel.is_prologue:  # each has a barrier behind it
            continue
        reads, writes = kernel.fused.reads(), set(kernel.fused.writes())
        if body.shared:
            writes.add(_SCRATCH)
        if not conflict(reads, written) and not conflict(writes, read | written):
            independent.add(number)
        else:
            read, written = set(), set()
        read, written = read | reads, written | writes
    return independent


# ---- software pipelining of steps ----------------------------------------------------


def pipelined_kernels(schedule: Schedule, max_steps: int) -> list[PipelinedKernel]:
    """Return the kernels of the loop over steps in order, behind its prologue.

    A row prefetch computes at most `max_steps` steps at a time.
    """
    fused_kernels = [fused for _, fused in fused_kernels_of(schedule.every)]
    prefetches = _row_prefetches(fused_kernels, max_steps)
    kernels = [PipelinedKernel(f, prefetches.get(id(f))) for f in fused_kernels]
    if not _can_prefetch_batch(schedule) or kernels[0].row_prefetch is None:
        return kernels
    order, gather, *others = kernels
    last = len(others) - sum(1 for _ in schedule.every[-1].fused_kernels)
    next_order = _from_next_step(kernels[0].row_prefetch)
    return [
        replace(order, is_prologue=True),
        replace(gather, is_prologue=True),
        *others[:last],
        replace(order, row_prefetch=next_order, for_next=True),
        *others[last:],
        replace(gather, for_next=True),
    ]


def prefetched_batch(schedule: Schedule) -> set[BufferKey]:
    """Return the arrays of a batch that the step before has prefetched."""
    if not _can_prefetch_batch(schedule):
        return set()
    return {key for launch in schedule.every[:2] for key in launch.writes()}


def _can_prefetch_batch(schedule: Schedule) -> bool:
    """Return whether the first two launches can run for the next step, within this.

    They must draw the order of rows and gather their data, from nothing that a step
    computes before its last launch. The last launches must not touch the results:
    those of the next step are computed beside them.
    """
    first = [list(launch.fused_kernels) for launch in schedule.every[:2]]
    if len(schedule.every) < 5 or list(map(len, first)) != [1, 1]:
        return False
    (order,), (gather,) = first
    fused_kernels = [fused for _, fused in fused_kernels_of(schedule.every)]
    if not is_map(gather.kernel) or id(order) not in _row_prefetches(fused_kernels, 2):
        return False
    *_, second_last, last = (set(_touched(launch)) for launch in schedule.every)
    written = {key for launch in schedule.every[:-1] for key in launch.writes()}
    return (
        {key for key in gather.reads() if key[0] != "data"} <= order.writes()
        and all(key[0] == "arena" for key in gather.writes())
        and (order.reads() - order.writes()).isdisjoint(written)
        and order.writes().isdisjoint(second_last | last)
        and gather.writes().isdisjoint(last)
    )


def _touched(launch: Launch) -> Iterator[BufferKey]:
    """Yield everything that a launch reads or writes."""
    for fused in launch.fused_kernels:
        yield from fused.reads() | fused.writes()


def _from_next_step(prefetch: RowPrefetch) -> RowPrefetch:
    """Return a row prefetch that starts with the next step."""
    kernel = prefetch.fused.kernel
    assert isinstance(kernel, Loop)
    assert isinstance(kernel.expr, Shuffled)
    position = kernel.expr.position
    load, index = position.children
    assert isinstance(index, Index)
    position = position.with_children(load, replace(index, offset=prefetch.size))
    outputs = ((replace(kernel.expr, position=position), kernel.target),)
    shifted = replace(kernel, outputs=outputs)
    return replace(prefetch, fused=replace(prefetch.fused, kernel=shifted))


def _row_prefetches(
    fused_kernels: Sequence[FusedKernel], max_steps: int
) -> dict[int, RowPrefetch]:
    """Return the loops that draw the order of rows, widened to several steps, by id."""
    advances = {
        key: step
        for fused in fused_kernels
        for kernel in fused.kernels
        if isinstance(kernel, Loop)
        for expr, view in kernel.outputs
        for key, step in [_advance(expr, view.buffer)]
        if step
    }
    prefetches: dict[int, RowPrefetch] = {}
    for fused in fused_kernels:
        kernel, *epilogues = fused.kernels
        if not isinstance(kernel, Loop) or len(kernel.outputs) > 1:
            continue
        counter = _shuffle_counter(kernel)
        (rows,) = kernel.shape if len(kernel.shape) == 1 else (0,)
        if counter is None or not rows or advances.get(counter) != rows:
            continue
        if not all(_reads_data(epilogue, kernel) for epilogue in epilogues):
            continue
        if (steps := min(THREADS // rows, max_steps)) > 1:
            loops = [_widened(loop, steps) for loop in (kernel, *fused.epilogues)]
            keys = frozenset(b.key for loop in loops for b in loop.writes())
            widened = replace(fused, kernel=loops[0], epilogues=loops[1:])
            prefetches[id(fused)] = RowPrefetch(widened, keys, steps, rows)
    return prefetches


def _reads_data(epilogue: Kernel, producer: Loop) -> bool:
    """Return whether an epilogue of a single axis reads only its producer and data."""
    return (
        isinstance(epilogue, Loop)
        and epilogue.shape == producer.shape
        and all(is_flat(view, epilogue.shape) for _, view in epilogue.outputs)
        and all(
            buffer.kind == "data" or buffer.key == producer.target.buffer.key
            for buffer in epilogue.reads()
        )
    )


def _widened(loop: Loop, steps: int) -> Loop:
    """Return a loop over the rows of a step, over those of several steps."""
    shape = (steps * loop.shape[0],)
    outputs = [
        (expr, View.of(replace(view.buffer, shape=shape)))
        for expr, view in loop.outputs
    ]
    return replace(loop, shape=shape, outputs=tuple(outputs))


def _advance(expr: Expr, buffer: Buffer) -> tuple[BufferKey, int]:
    """Return a buffer, and by how much a step advances it: 0 if it is no counter."""
    if isinstance(expr, Apply) and expr.op == "add":
        load, step = expr.args
        reads_itself = isinstance(load, Load) and load.view.buffer.key == buffer.key
        if reads_itself and isinstance(step, Literal):
            return buffer.key, int(step.value)
    return buffer.key, 0


def _shuffle_counter(kernel: Loop) -> BufferKey | None:
    """Return the counter of the first row, if a loop only draws the order of rows."""
    expr = kernel.expr
    if not isinstance(expr, Shuffled) or not isinstance(expr.position, Apply):
        return None
    if expr.position.op != "add" or len(expr.position.args) != 2:
        return None
    load, index = expr.position.args
    if not isinstance(load, Load) or not isinstance(index, Index):
        return None
    from_start = index.offset == 0 and kernel.target.offset == 0
    return load.view.buffer.key if from_start and index.strides == (1,) else None
