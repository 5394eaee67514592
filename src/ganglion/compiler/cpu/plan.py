"""The CPU's plan: segments, the arena, and how threads run each kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from typing import NamedTuple

import numpy as np

from ganglion.compiler.cpu import tuning
from ganglion.compiler.plan.kernels import Buffer, Kernel, Loop
from ganglion.compiler.plan.plan import Plan, packed, rounded
from ganglion.compiler.plan.printer import show
from ganglion.system.records import record

ALIGNMENT = 64  # bytes: a cache line, and the widest vector
# Bytes. NumPy requests such pages for large arrays: memory before their first boundary
# is in small pages, of which a step that reads much memory needs many.
HUGE_PAGE = 1 << 21


def aligned(nbytes: int) -> np.ndarray:
    """Return zeroed bytes, aligned to a cache line or, if many, to a huge page."""
    alignment = HUGE_PAGE if nbytes >= 2 * HUGE_PAGE else ALIGNMENT
    raw = np.zeros(nbytes + alignment, np.uint8)
    start = -raw.ctypes.data % alignment
    return raw[start : start + nbytes]


def is_tiny(kernel: Kernel) -> bool:
    """Return whether a kernel is too small for threads to share.

    A kernel that reads much memory is shared in any case: lines that other threads have
    written come from their caches, which takes longer than its cost says.
    """
    if kernel.cost >= tuning.CPU.worth_sharing:
        return False
    return not isinstance(kernel, Loop) or (
        kernel.temporary_bytes <= tuning.CPU.bytes_alone
    )


@record
class Execution:
    """How a kernel is run: by one thread or by all, and whether a barrier follows."""

    one_thread: bool
    barrier: bool


@record
class Segment:
    """Kernels from `first` up to `last` that each thread runs slice by slice."""

    first: int
    last: int
    slices: int
    # If slices are not equal: all units, and those of each slice but the last.
    units: int = 0
    step: int = 0

    def each(self, extent: int) -> int:
        """Return the part of a kernel's or buffer's extent in each slice but the last.

        >>> Segment(0, 2, 32).each(256), Segment(0, 2, 26, units=127, step=5).each(254)
        (8, 10)
        """
        if not self.units:
            return extent // self.slices
        # Rounded to the nearest: the last grain of a kernel may be smaller.
        return (extent * self.step + self.units // 2) // self.units


@record(guarded=True)
class CpuPlan(Plan):
    """A plan, with how threads run it."""

    segments: tuple[Segment, ...] = ()  # in order
    # Buffers that only members of a segment touch, each slice its own part.
    tile_local: frozenset[Buffer] = frozenset()
    offsets: dict[Buffer, int] = field(default_factory=dict)  # in the arena, of roots
    arena: int = 0  # bytes
    execution: tuple[Execution, ...] = ()  # of each kernel

    def segment_of(self) -> list[Segment | None]:
        """Return the segment of each kernel."""
        segments: list[Segment | None] = [None] * len(self.kernels)
        for segment in self.segments:
            segments[segment.first : segment.last] = [segment] * (
                segment.last - segment.first
            )
        return segments

    def runs(self) -> Iterator[range]:
        """Yield the numbers of kernels that run together: a segment, or a kernel."""
        at, end = 0, len(self.kernels)
        for segment in (*self.segments, Segment(end, end, 1)):
            for number in range(at, segment.first):
                yield range(number, number + 1)
            if segment.first < segment.last:
                yield range(segment.first, segment.last)
            at = segment.last

    def temporary_arrays(self) -> dict[Buffer, np.ndarray]:
        arena = np.zeros(self.arena, np.uint8)
        return {
            buffer: arena[start : start + buffer.nbytes].view(buffer.dtype)
            for buffer, start in self.offsets.items()
        } or super().temporary_arrays()

    def __str__(self) -> str:
        before, after = [""] * len(self.kernels), [""] * len(self.kernels)
        for segment in self.segments:
            count = segment.last - segment.first
            lines = ["┌ ", *["│ "] * (count - 2), "└ "]
            before[segment.first : segment.last] = lines
        for number, how in enumerate(self.execution):
            after[number] = "  [one thread]" * how.one_thread
            after[number] += "  | all wait" * how.barrier
        return show(self, f", arena {self.arena:,} bytes", before, after)


def for_one_thread(plan: Plan) -> CpuPlan:
    """Return a plan for a single thread, without barriers between kernels."""
    last = len(plan.kernels) - 1
    execution = (Execution(True, number == last) for number in range(last + 1))
    return CpuPlan(**vars(plan), execution=tuple(execution))


# ---- intervals: runs between two barriers --------------------------------------------
# Kernels too small to share are run by one thread, one after the other. A barrier is
# needed before a kernel that conflicts with another kernel of the same interval.


class Run(NamedTuple):
    """A segment or a single kernel, with the memory that it touches."""

    kernels: tuple[Kernel, ...]
    segment: Segment | None
    alone: bool  # on one thread
    reads: frozenset[Buffer]
    writes: frozenset[Buffer]


def runs_of(plan: CpuPlan) -> list[Run]:
    """Return the runs of a plan, in order."""
    segments = {segment.first: segment for segment in plan.segments}
    runs = []
    for run in plan.runs():
        kernels, segment = plan.kernels[run.start : run.stop], segments.get(run.start)
        if segment is None:
            (kernel,) = kernels
            reads, writes = kernel.memory_read, kernel.memory_written
        else:
            reads = frozenset[Buffer]().union(*(k.memory_read for k in kernels))
            writes = frozenset[Buffer]().union(*(k.memory_written for k in kernels))
        alone = segment is None and is_tiny(kernels[0])
        runs.append(Run(kernels, segment, alone, reads, writes))
    return runs


def dependencies(runs: Sequence[Run]) -> list[set[int]]:
    """Return the earlier runs that each run directly depends on, by number."""
    dependencies: list[set[int]] = []
    writer: dict[Buffer, int] = {}
    readers: dict[Buffer, list[int]] = {}  # since it was written
    for number, run in enumerate(runs):
        others = {writer[buffer] for buffer in run.reads if buffer in writer}
        for buffer in run.writes:
            if buffer in writer:
                others.add(writer[buffer])
            others.update(readers.pop(buffer, ()))
            writer[buffer] = number
        for buffer in run.reads - run.writes:
            readers.setdefault(buffer, []).append(number)
        dependencies.append(others)
    return dependencies


def _intervals(runs: Sequence[Run]) -> Iterator[range]:
    """Yield the numbers of the runs of each interval, in order."""
    first = 0
    for number, others in enumerate(dependencies(runs)):
        alone = runs[number].alone
        if any(n >= first and not (alone and runs[n].alone) for n in others):
            yield range(first, number)
            first = number
    if runs:
        yield range(first, len(runs))


# ---- the arena ---------------------------------------------------------------------


def lifetimes(plan: CpuPlan) -> dict[Buffer, tuple[int, int]]:
    """Return the first and the last run in which each temporary buffer is live."""
    lives: dict[Buffer, tuple[int, int]] = {}
    for touched, (begin, end) in _uses(plan):
        for root in touched:
            if root.kind == "arena":
                first, last = lives.get(root, (begin, end))
                lives[root] = min(first, begin), max(last, end)
    return lives


def _uses(plan: CpuPlan) -> Iterator[tuple[frozenset[Buffer], tuple[int, int]]]:
    """Yield the memory that each run touches, and the runs in which that is live."""
    if plan.execution and all(how.one_thread for how in plan.execution):
        for number, kernel in enumerate(plan.kernels):
            yield kernel.memory_touched, (number, number)
    else:
        yield from _shared_uses(plan)


def _shared_uses(plan: CpuPlan) -> Iterator[tuple[frozenset[Buffer], tuple[int, int]]]:
    """Yield the same for a plan that threads share.

    Memory of shared runs is live throughout their interval: reusing it there would
    require a barrier.
    """
    runs = runs_of(plan)
    for interval in _intervals(runs):
        for number in interval:
            is_shared = not runs[number].alone
            span = (interval[0], interval[-1]) if is_shared else (number, number)
            yield runs[number].reads | runs[number].writes, span


def place_in_arena(plan: CpuPlan) -> CpuPlan:
    """Allocate temporary buffers in the arena by their lifetimes."""
    lives = lifetimes(plan)
    sizes = {buffer: rounded(buffer.nbytes, ALIGNMENT) for buffer in lives}
    offsets, end = packed(lives, sizes)
    return replace(plan, offsets=offsets, arena=end)
