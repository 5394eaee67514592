"""Who runs which kernel, and where threads wait for each other.

Kernels too small to share are run by one thread, one after the other. A barrier stands
only where a kernel would touch memory that an earlier one still writes or reads: one
that ran since the last barrier, and not beside it in a band.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ganglion.compiler.plan.cost import TINY, work
from ganglion.compiler.plan.kernels import Buffer, Kernel
from ganglion.compiler.plan.plan import Mark, Plan
from ganglion.compiler.plan.spans import Span, Spans

BARRIER = 700.0  # nanoseconds

Touched = tuple[Sequence[Span], Sequence[Span]]  # what is read, what is written


def total_work(plan: Plan, threads: int) -> float:
    """Return about how many nanoseconds a step takes on some threads."""
    total = 0.0
    for kernel, mark in zip(plan.kernels, plan.marks, strict=True):
        total += work(kernel) / (1 if mark.alone else threads)
        total += BARRIER if mark.barrier and threads > 1 else 0.0
    return total


def schedule(plan: Plan) -> Plan:
    """Return the plan with a mark for each kernel."""
    bands = plan.band_of()
    small = [work(one) < TINY for one in plan.kernels]
    alone = [s and band is None for s, band in zip(small, bands, strict=True)]
    barriers = [False] * len(plan.kernels)
    since = _Unsettled()
    spans = [_spans(plan, one) for one in plan.kernels]
    for run in plan.runs():
        if any(since.conflicts(spans[number], alone[number]) for number in run):
            barriers[run.start - 1] = True
            since = _Unsettled()
        for number in run:
            since.add(spans[number], alone[number])
    if barriers:
        barriers[-1] = True  # the next step begins where this one ends
    marks = tuple(Mark(a, b) for a, b in zip(alone, barriers, strict=True))
    return replace(plan, marks=marks)


def unguarded(plan: Plan) -> tuple[int, int] | None:
    """Return two kernels that two threads may run at once though they must not."""
    spans = [_spans(plan, one) for one in plan.kernels]
    first, since = 0, _Unsettled()
    for run in plan.runs():
        for number in run:
            if since.conflicts(spans[number], plan.marks[number].alone):
                before = range(run.start - 1, first - 1, -1)
                return _opponent(plan, spans, number, before), number
            if plan.marks[number].barrier:
                first, since = number + 1, _Unsettled()
        for number in range(max(run.start, first), run.stop):  # beside, not before
            since.add(spans[number], plan.marks[number].alone)
    if plan.kernels and not plan.marks[-1].barrier:
        return len(plan.kernels) - 1, 0
    return None


def _opponent(
    plan: Plan, spans: Sequence[Touched], number: int, others: Iterable[int]
) -> int:
    """Return the first of some kernels that another one is in conflict with."""
    for other in others:
        since = _Unsettled()
        since.add(spans[other], plan.marks[other].alone)
        if since.conflicts(spans[number], plan.marks[number].alone):
            return other
    raise AssertionError(f"kernel {number} is in conflict with none by itself")


class _Unsettled:
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


def _spans(plan: Plan, kernel: Kernel) -> Touched:
    """Return the memory that a kernel reads, and that it writes."""

    def span(buffer: Buffer) -> Span:
        root = buffer.root
        if root.kind != "arena":
            return id(root), 0, 1
        start = plan.offsets[root]
        return "arena", start, start + max(root.nbytes, 1)

    return [span(one) for one in kernel.reads()], [span(one) for one in kernel.writes()]
