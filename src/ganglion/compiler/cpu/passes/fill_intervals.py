"""Kernels move up into earlier intervals, so that fewer barriers remain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ganglion.compiler.cpu.plan import CpuPlan, Run, dependencies, runs_of
from ganglion.compiler.cpu.tuning import CPU
from ganglion.compiler.plan.kernels import Buffer


def fill_intervals(plan: CpuPlan) -> CpuPlan:
    """Return the plan with runs moved up into earlier intervals.

    Each interval takes all later runs that do not depend on it, so that fewer barriers
    remain, with more work between them. A run is postponed if it stores much, and
    no run that reads it can follow soon: its result would evict others from the caches,
    and be evicted before it is used.
    """
    runs = runs_of(plan)
    waits_for, ordered = dependencies(runs), list[Run]()
    awaited_by: list[list[int]] = [[] for _ in runs]
    for number, others in enumerate(waits_for):
        for other in others:
            awaited_by[other].append(number)
    left, live = list(range(len(runs))), _LiveBuffers(runs)
    while left:
        # Runs on one thread need no barrier between them.
        taken, taken_alone, postponed = list[int](), set[int](), list[int]()

        def is_premature(number: int, taken: Sequence[int] = taken) -> bool:
            readers = awaited_by[number]
            ready = any(waits_for[reader] <= {number, *taken} for reader in readers)
            return not ready and live.growth(runs[number]) > CPU.own_cache

        for number in left[: CPU.block_lookahead]:
            alone, waits = runs[number].alone, waits_for[number]
            may_run = waits <= taken_alone if alone else not waits
            if may_run and not (postponed and is_premature(number)):
                taken.append(number)
                if alone:
                    taken_alone.add(number)
            else:
                postponed.append(number)
        left[: CPU.block_lookahead] = postponed
        for number in taken:
            ordered.append(runs[number])
            live.add(runs[number])
            for other in awaited_by[number]:
                waits_for[other].remove(number)
    segments, at = [], 0
    for run in ordered:
        if run.segment is not None:
            last = at + len(run.kernels)
            segments.append(replace(run.segment, first=at, last=last))
        at += len(run.kernels)
    kernels = tuple(kernel for run in ordered for kernel in run.kernels)
    return replace(plan, kernels=kernels, segments=tuple(segments))


class _LiveBuffers:
    """The temporary buffers that are live at a point of an order of runs."""

    def __init__(self, runs: Iterable[Run]) -> None:
        self._uses = Counter(buffer for run in runs for buffer in self._touched(run))
        self._live = set[Buffer]()

    @staticmethod
    def _touched(run: Run) -> list[Buffer]:
        return [b for b in run.reads | run.writes if b.kind == "arena"]

    def growth(self, run: Run) -> int:
        """Return by how many bytes the live buffers grow if a run comes next."""
        touched = self._touched(run)
        born = sum(b.nbytes for b in touched if b not in self._live)
        return born - sum(b.nbytes for b in touched if self._uses[b] == 1)

    def add(self, run: Run) -> None:
        """Append a run to the order."""
        touched = self._touched(run)
        self._uses.subtract(touched)
        self._live.update(touched)
