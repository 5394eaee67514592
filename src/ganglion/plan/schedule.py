"""Who runs which kernel, and where threads wait for each other.

Kernels too small to share are run by one thread, one after the other. A barrier stands
only where a kernel would touch memory that an earlier one still writes or reads: one
that ran since the last barrier.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ganglion.plan.kernel import (
    Apply,
    Buffer,
    Contract,
    Expr,
    Indirect,
    Kernel,
    Loop,
    Mark,
    Plan,
    Shuffled,
    Uniform,
    walk,
)

# Nanoseconds of one core, roughly: what decides is a factor of ten, not of two.
CALL, MAC, ELEMENT, FUNCTION, DRAW, SHUFFLE, BYTE = (
    20.0,
    0.025,
    0.04,
    0.7,
    4.0,
    60.0,
    0.1,
)
BARRIER = 700.0
TINY = 3000.0  # sharing less than this costs more than it saves
_FUNCTIONS = {"exp", "log", "tanh", "sigmoid", "erf", "power", "log1p", "expm1"}
_FUNCTIONS |= {"sin", "cos", "divide", "sqrt"}
_LANES = 16

Span = tuple[object, int, int]  # what memory, from where, to where


def work(kernel: Kernel) -> float:
    """Return about how many nanoseconds a kernel takes on one core."""
    if isinstance(kernel, Loop):
        places = math.prod(kernel.shape)
        each = sum(_cost(one) for one in walk(kernel.expr))
        # A short last axis leaves most lanes of a vector empty.
        narrow = _LANES / min(_LANES, max(kernel.shape[-1:] or (1,)))
        return CALL + places * each * min(narrow, 8.0)
    if isinstance(kernel, Contract):
        groups = (kernel.batch, kernel.rows, kernel.columns, kernel.inner)
        macs = math.prod(axis.size for group in groups for axis in group)
        width = kernel.columns[-1].size if kernel.columns else 1
        return CALL + macs * MAC * _LANES / min(_LANES, max(width, 1))
    every = {*kernel.reads(), *kernel.writes()}
    return CALL + BYTE * sum(one.nbytes for one in every)


def _cost(expr: Expr) -> float:
    if isinstance(expr, Shuffled):
        return SHUFFLE
    if isinstance(expr, Uniform):
        return DRAW
    if isinstance(expr, Apply) and expr.op in _FUNCTIONS:
        return FUNCTION
    return 2 * ELEMENT if isinstance(expr, Indirect) else ELEMENT


def total_work(plan: Plan, threads: int) -> float:
    """Return about how many nanoseconds a step takes on some threads."""
    total = 0.0
    for kernel, mark in zip(plan.kernels, plan.marks, strict=True):
        total += work(kernel) / (1 if mark.alone else threads)
        total += BARRIER if mark.barrier and threads > 1 else 0.0
    return total


def schedule(plan: Plan, aliases: dict[Buffer, Buffer]) -> Plan:
    """Return the plan with a mark for each kernel."""
    alone = [work(one) < TINY for one in plan.kernels]
    barriers = [False] * len(plan.kernels)
    since: list[int] = []
    spans = [_spans(plan, one, aliases) for one in plan.kernels]
    for number in range(len(plan.kernels)):
        for other in since:
            together = alone[number] and alone[other]
            if not together and _conflict(spans[number], spans[other]):
                barriers[number - 1] = True
                since = []
                break
        since.append(number)
    if barriers:
        barriers[-1] = True  # the next step begins where this one ends
    marks = tuple(Mark(a, b) for a, b in zip(alone, barriers, strict=True))
    return replace(plan, marks=marks)


def unguarded(plan: Plan, aliases: dict[Buffer, Buffer]) -> tuple[int, int] | None:
    """Return two kernels that two threads may run at once though they must not."""
    spans = [_spans(plan, one, aliases) for one in plan.kernels]
    for second in range(len(plan.kernels)):
        for first in range(second - 1, -1, -1):
            if plan.marks[first].barrier:
                break
            together = plan.marks[first].alone and plan.marks[second].alone
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
