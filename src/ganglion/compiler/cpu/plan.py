"""A plan for threads: offsets of buffers, the split of the work, and the barriers."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ganglion.compiler.cpu import tuning
from ganglion.compiler.plan.kernels import Buffer, Kernel
from ganglion.compiler.plan.plan import Plan, PlanError, Span, Spans, packed, rounded
from ganglion.compiler.plan.printer import show

ALIGNMENT = 64  # bytes: a cache line, and the widest vector


def aligned(nbytes: int) -> np.ndarray:
    """Return bytes, all zero, that begin at a cache line."""
    raw = np.zeros(nbytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + nbytes]


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


# ---- who runs which kernel, and where threads wait for each other --------------------
# Kernels too small to share are run by one thread, one after the other. A barrier is
# only where a kernel would touch memory that an earlier one still writes or reads: one
# that ran since the last barrier, and not beside it in a segment.

Touched = tuple[Sequence[Span], Sequence[Span]]  # what is read, what is written


def total_work(plan: CpuPlan, threads: int) -> float:
    """Return about how many nanoseconds a step takes on some threads."""
    total = 0.0
    for kernel, how in zip(plan.kernels, plan.execution, strict=True):
        total += kernel.cost / (1 if how.one_thread else threads)
        total += tuning.CPU.barrier if how.barrier and threads > 1 else 0.0
    return total


def place_barriers(plan: CpuPlan) -> CpuPlan:
    """Return the plan with how each kernel is executed."""
    pairs = zip(plan.kernels, plan.segment_of(), strict=True)
    alone = [
        segment is None and kernel.cost < tuning.CPU.worth_sharing
        for kernel, segment in pairs
    ]
    barriers = [False] * len(plan.kernels)
    since = _SinceBarrier()
    spans = [_spans(plan, kernel) for kernel in plan.kernels]
    for run in plan.runs():
        if any(since.conflicts(spans[number], alone[number]) for number in run):
            barriers[run.start - 1] = True
            since = _SinceBarrier()
        for number in run:
            since.add(spans[number], alone[number])
    if barriers:
        barriers[-1] = True  # the next step begins where this one ends
    execution = map(Execution, alone, barriers)
    return replace(plan, execution=tuple(execution))


def unguarded(plan: CpuPlan) -> tuple[int, int] | None:
    """Return two kernels that two threads may run at once though they must not."""
    spans = [_spans(plan, kernel) for kernel in plan.kernels]
    first, since = 0, _SinceBarrier()
    for run in plan.runs():
        for number in run:
            if since.conflicts(spans[number], plan.execution[number].one_thread):
                before = range(run.start - 1, first - 1, -1)
                return _opponent(plan, spans, number, before), number
            if plan.execution[number].barrier:
                first, since = number + 1, _SinceBarrier()
        for number in range(max(run.start, first), run.stop):  # beside, not before
            since.add(spans[number], plan.execution[number].one_thread)
    if plan.kernels and not plan.execution[-1].barrier:
        return len(plan.kernels) - 1, 0
    return None


def _opponent(
    plan: CpuPlan, spans: Sequence[Touched], number: int, others: Iterable[int]
) -> int:
    """Return the first of some kernels that another one is in conflict with."""
    for other in others:
        since = _SinceBarrier()
        since.add(spans[other], plan.execution[other].one_thread)
        if since.conflicts(spans[number], plan.execution[number].one_thread):
            return other
    raise AssertionError(f"kernel {number} is in conflict with none by itself")


class _SinceBarrier:
    """The memory that kernels have touched since the last barrier.

    Those that one thread runs alone, one after the other, do not disturb each other.
    """

    def __init__(self) -> None:
        self._reads, self._writes = Spans(), Spans()
        self._shared_reads, self._shared_writes = Spans(), Spans()

    def add(self, touched: Touched, alone: bool) -> None:
        """Count in what a kernel touches."""
        reads, writes = touched
        self._reads.add(reads)
        self._writes.add(writes)
        if not alone:
            self._shared_reads.add(reads)
            self._shared_writes.add(writes)

    def conflicts(self, touched: Touched, alone: bool) -> bool:
        """Return whether a kernel may not run before all others are done."""
        reads, writes = touched
        read = self._shared_reads if alone else self._reads
        written = self._shared_writes if alone else self._writes
        return written.meets((*reads, *writes)) or read.meets(writes)


def _spans(plan: CpuPlan, kernel: Kernel) -> Touched:
    """Return the memory that a kernel reads, and that it writes."""

    def span(buffer: Buffer) -> Span:
        root = buffer.root
        if root.kind != "arena":
            return id(root), 0, 1
        start = plan.offsets[root]
        return "arena", start, start + max(root.nbytes, 1)

    return [span(buffer) for buffer in kernel.reads()], [
        span(buffer) for buffer in kernel.writes()
    ]
