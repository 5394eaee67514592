"""Barriers: where threads wait for each other.

A barrier precedes a kernel only if it conflicts with a kernel that ran since the last
barrier, and not in the same segment.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace

from ganglion.compiler.cpu.plan import CpuPlan, Execution, is_tiny
from ganglion.compiler.plan.kernels import Buffer

Span = tuple[Hashable, int, int]  # memory, start, stop
Touched = tuple[Sequence[Span], Sequence[Span]]  # read, written


def place_barriers(plan: CpuPlan) -> CpuPlan:
    """Return the plan with the execution of each kernel: threads and barriers."""
    pairs = zip(plan.kernels, plan.segment_of(), strict=True)
    alone = [segment is None and is_tiny(kernel) for kernel, segment in pairs]
    barriers = [False] * len(plan.kernels)
    since = _SinceBarrier()
    spans = _spans(plan)
    for run in plan.runs():
        if any(since.conflicts(spans[number], alone[number]) for number in run):
            barriers[run.start - 1] = True
            since = _SinceBarrier()
        for number in run:
            since.add(spans[number], alone[number])
    if barriers:
        barriers[-1] = True  # before the next step
    execution = map(Execution, alone, barriers)
    return replace(plan, execution=tuple(execution))


def unguarded(plan: CpuPlan) -> tuple[int, int] | None:
    """Return two conflicting kernels without a barrier between them, None if none."""
    spans = _spans(plan)
    first, since = 0, _SinceBarrier()
    for run in plan.runs():
        for number in run:
            if since.conflicts(spans[number], plan.execution[number].one_thread):
                before = range(run.start - 1, first - 1, -1)
                return _opponent(plan, spans, number, before), number
            if plan.execution[number].barrier:
                first, since = number + 1, _SinceBarrier()
        for number in range(max(run.start, first), run.stop):  # members do not conflict
            since.add(spans[number], plan.execution[number].one_thread)
    if plan.kernels and not plan.execution[-1].barrier:
        return len(plan.kernels) - 1, 0
    return None


def _opponent(
    plan: CpuPlan, spans: Sequence[Touched], number: int, others: Iterable[int]
) -> int:
    """Return the first of some kernels that conflicts with another kernel."""
    for other in others:
        since = _SinceBarrier()
        since.add(spans[other], plan.execution[other].one_thread)
        if since.conflicts(spans[number], plan.execution[number].one_thread):
            return other
    raise AssertionError(f"kernel {number} is in conflict with none by itself")


class Spans:
    """A union of spans.

    >>> covered = Spans()
    >>> covered.add([("arena", 0, 8), ("arena", 16, 24), ("arena", 8, 12)])
    >>> covered.overlaps([("arena", 12, 16)]), covered.overlaps([("arena", 23, 40)])
    (False, True)
    """

    def __init__(self) -> None:
        # Of each memory, the starts and stops of disjoint stretches, sorted.
        self._stretches: dict[Hashable, tuple[list[int], list[int]]] = {}

    def add(self, spans: Iterable[Span]) -> None:
        """Add spans to the union."""
        for memory, start, stop in spans:
            starts, stops = self._stretches.setdefault(memory, ([], []))
            first, last = bisect_left(stops, start), bisect_right(starts, stop)
            if first < last:  # merge with the stretches that it touches
                start = min(start, starts[first])
                stop = max(stop, stops[last - 1])
            starts[first:last], stops[first:last] = [start], [stop]

    def overlaps(self, spans: Iterable[Span]) -> bool:
        """Return whether any of some spans overlaps with the union."""
        for memory, start, stop in spans:
            starts, stops = self._stretches.get(memory, ((), ()))
            at = bisect_right(stops, start)
            if at < len(starts) and starts[at] < stop:
                return True
        return False


class _SinceBarrier:
    """The memory that kernels have touched since the last barrier.

    Kernels on the same single thread run in order, and need no barrier.
    """

    def __init__(self) -> None:
        self._reads, self._writes = Spans(), Spans()
        self._shared_reads, self._shared_writes = Spans(), Spans()

    def add(self, touched: Touched, alone: bool) -> None:
        """Add the memory that a kernel touches."""
        reads, writes = touched
        self._reads.add(reads)
        self._writes.add(writes)
        if not alone:
            self._shared_reads.add(reads)
            self._shared_writes.add(writes)

    def conflicts(self, touched: Touched, alone: bool) -> bool:
        """Return whether a kernel needs a barrier before it."""
        reads, writes = touched
        read = self._shared_reads if alone else self._reads
        written = self._shared_writes if alone else self._writes
        return written.overlaps((*reads, *writes)) or read.overlaps(writes)


def _spans(plan: CpuPlan) -> list[Touched]:
    """Return the spans that each kernel reads and writes.

    Memory that no kernel writes is left out: it cannot cause a conflict.
    """

    def span(root: Buffer) -> Span:
        if root.kind != "arena":
            return id(root), 0, 1
        start = plan.offsets[root]
        return "arena", start, start + max(root.nbytes, 1)

    written = frozenset[Buffer]().union(*(k.memory_written for k in plan.kernels))
    spans = {root: span(root) for root in written}
    return [
        (
            [spans[root] for root in kernel.memory_read & written],
            [spans[root] for root in kernel.memory_written],
        )
        for kernel in plan.kernels
    ]
