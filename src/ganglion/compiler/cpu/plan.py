"""A plan for threads: offsets of buffers, the split of the work, and the barriers."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from ganglion.compiler.plan.kernels import Buffer
from ganglion.compiler.plan.plan import Plan, PlanError, packed, rounded
from ganglion.compiler.plan.printer import show

ALIGNMENT = 64  # bytes: a cache line, and the widest vector


@dataclass(frozen=True)
class Execution:
    """How a kernel is run: by one thread or shared, and whether all wait after it."""

    one_thread: bool
    barrier: bool


@dataclass(frozen=True)
class Segment:
    """Kernels from `first` to before `last` that each thread runs slice by slice."""

    first: int
    last: int
    slices: int
    # Where slices are not equal: the units of all, and those of each slice but the
    # last, which has the rest.
    units: int = 0
    step: int = 0

    def each(self, extent: int) -> int:
        """Return how much of a kernel, or of a buffer, is in a slice but the last.

        >>> Segment(0, 2, 32).each(256), Segment(0, 2, 26, units=127, step=5).each(254)
        (8, 10)
        """
        if not self.units:
            return extent // self.slices
        # Rounded: a kernel of whole grains may have a smaller last one, too.
        return (extent * self.step + self.units // 2) // self.units


@dataclass(frozen=True)
class CpuPlan(Plan):
    """A plan, and how threads run it."""

    segments: tuple[Segment, ...] = ()  # in order
    # Buffers that only members of a segment touch, each slice a part of its own.
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
        """Yield the numbers of kernels that run together: a segment, or one kernel."""
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


# ---- the arena ---------------------------------------------------------------------


def lifetimes(plan: CpuPlan) -> dict[Buffer, tuple[int, int]]:
    """Return the first and the last run that touches each temporary buffer."""
    lives: dict[Buffer, tuple[int, int]] = {}
    for number, run in enumerate(plan.runs()):
        for kernel in plan.kernels[run.start : run.stop]:
            for buffer in (*kernel.reads(), *kernel.writes()):
                root = buffer.root
                if root.kind == "arena":
                    first, _ = lives.get(root, (number, number))
                    lives[root] = (first, number)
    return lives


def place_in_arena(plan: CpuPlan) -> CpuPlan:
    """Give each buffer the lowest offset that is free while it lives, largest first."""
    lives = lifetimes(plan)
    sizes = {buffer: rounded(buffer.nbytes, ALIGNMENT) for buffer in lives}
    offsets, end = packed(lives, sizes)
    return replace(plan, offsets=offsets, arena=end)


def verify_memory(plan: CpuPlan) -> None:
    """Walk through the runs: what lives in one stands apart from its neighbours."""
    begins: dict[int, list[Buffer]] = {}
    ends: dict[int, list[Buffer]] = {}
    for buffer, (first, last) in lifetimes(plan).items():
        begins.setdefault(first, []).append(buffer)
        ends.setdefault(last, []).append(buffer)
    alive: dict[int, Buffer] = {}
    starts: list[int] = []  # of those alive, in order
    for run in sorted({*begins, *ends}):
        for buffer in begins.get(run, []):
            at = bisect_left(starts, plan.offsets[buffer])
            for start in starts[max(at - 1, 0) : at + 1]:
                if not _apart(plan, buffer, alive[start]):
                    pair = f"{buffer!r} and {alive[start]!r}"
                    raise PlanError(f"{plan.name}: {pair} share memory")
            starts.insert(at, plan.offsets[buffer])
            alive[plan.offsets[buffer]] = buffer
        for buffer in ends.get(run, []):
            del starts[bisect_left(starts, plan.offsets[buffer])]


def _apart(plan: CpuPlan, a: Buffer, b: Buffer) -> bool:
    low, high = sorted((a, b), key=lambda buffer: plan.offsets[buffer])
    # Empty ones have an offset as well: no two have the same.
    return plan.offsets[low] + max(low.nbytes, 1) <= plan.offsets[high]
