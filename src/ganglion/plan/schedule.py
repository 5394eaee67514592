"""Who runs which kernel, and where threads wait for each other.

Kernels too small to share are run by one thread, one after the other. A barrier stands
only where a kernel would touch memory that an earlier one still writes or reads: one
that ran since the last barrier, and not beside it in a band.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ganglion.plan.cost import TINY, work
from ganglion.plan.kernel import Buffer, Kernel
from ganglion.plan.plan import Mark, Plan

BARRIER = 700.0  # nanoseconds

Span = tuple[object, int, int]  # what memory, from where, to where


def total_work(plan: Plan, threads: int) -> float:
    """Return about how many nanoseconds a step takes on some threads."""
    total = 0.0
    for kernel, mark in zip(plan.kernels, plan.marks, strict=True):
        total += work(kernel) / (1 if mark.alone else threads)
        total += BARRIER if mark.barrier and threads > 1 else 0.0
    return total


def schedule(plan: Plan, aliases: dict[Buffer, Buffer]) -> Plan:
    """Return the plan with a mark for each kernel."""
    bands = plan.band_of()
    small = [work(one) < TINY for one in plan.kernels]
    alone = [s and band is None for s, band in zip(small, bands, strict=True)]
    barriers = [False] * len(plan.kernels)
    since: list[int] = []
    spans = [_spans(plan, one, aliases) for one in plan.kernels]
    for run in plan.runs():
        if any(
            not (alone[number] and alone[other])
            and _conflict(spans[number], spans[other])
            for number in run
            for other in since
        ):
            barriers[run.start - 1] = True
            since = []
        since += run
    if barriers:
        barriers[-1] = True  # the next step begins where this one ends
    marks = tuple(Mark(a, b) for a, b in zip(alone, barriers, strict=True))
    return replace(plan, marks=marks)


def unguarded(plan: Plan, aliases: dict[Buffer, Buffer]) -> tuple[int, int] | None:
    """Return two kernels that two threads may run at once though they must not."""
    spans = [_spans(plan, one, aliases) for one in plan.kernels]
    bands = plan.band_of()
    for second in range(len(plan.kernels)):
        for first in range(second - 1, -1, -1):
            if plan.marks[first].barrier:
                break
            together = plan.marks[first].alone and plan.marks[second].alone
            together |= bands[first] is not None and bands[first] is bands[second]
            if not together and _conflict(spans[first], spans[second]):
                return first, second
    if plan.kernels and not plan.marks[-1].barrier:
        return len(plan.kernels) - 1, 0
    return None


def _spans(
    plan: Plan, kernel: Kernel, aliases: dict[Buffer, Buffer]
) -> tuple[list[Span], list[Span]]:
    """Return the memory that a kernel reads, and that it writes."""

    def span(buffer: Buffer) -> Span:
        root = aliases.get(buffer, buffer)
        if root.kind != "arena":
            return id(root), 0, 1
        start = plan.offsets[root]
        return "arena", start, start + max(root.nbytes, 1)

    return [span(one) for one in kernel.reads()], [span(one) for one in kernel.writes()]


def _conflict(
    a: tuple[Sequence[Span], Sequence[Span]], b: tuple[Sequence[Span], Sequence[Span]]
) -> bool:
    (a_reads, a_writes), (b_reads, b_writes) = a, b
    return _meet(a_writes, (*b_reads, *b_writes)) or _meet(b_writes, a_reads)


def _meet(some: Sequence[Span], others: Sequence[Span]) -> bool:
    return any(
        a == b and start < end and begin < stop
        for a, start, stop in some
        for b, begin, end in others
    )
