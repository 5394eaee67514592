"""Who runs which kernel, and where threads wait for each other.

Kernels too small to share are run by one thread, one after the other. A barrier stands
only where a kernel would touch memory that an earlier one still writes or reads: one
that ran since the last barrier, and not beside it in a segment.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ganglion.compiler.cpu import tuning
from ganglion.compiler.cpu.plan import CpuPlan, Execution
from ganglion.compiler.plan.kernels import Buffer, Kernel
from ganglion.compiler.plan.plan import Span, Spans

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
