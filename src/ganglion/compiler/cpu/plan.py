"""A plan for threads: offsets of buffers, the split of the work, and the barriers."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from ganglion.compiler.cpu import tuning
from ganglion.compiler.cpu.tuning import CPU
from ganglion.compiler.ir.graph import kept
from ganglion.compiler.plan.kernels import Buffer, Footprint, Kernel, Loop, record
from ganglion.compiler.plan.lowering import thread_split
from ganglion.compiler.plan.plan import Plan, packed, rounded
from ganglion.compiler.plan.printer import show

ALIGNMENT = 64  # bytes: a cache line, and the widest vector


def aligned(nbytes: int) -> np.ndarray:
    """Return bytes, all zero, that begin at a cache line."""
    raw = np.zeros(nbytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + nbytes]


def is_tiny(kernel: Kernel) -> bool:
    """Return whether a kernel is too small for threads to share.

    What others have written comes from their caches, line by line: a thread that reads
    much of that would take longer for it than its work says.
    """
    if kernel.cost >= tuning.CPU.worth_sharing:
        return False
    return not isinstance(kernel, Loop) or (
        kernel.temporary_bytes <= tuning.CPU.bytes_alone
    )


@record
class Execution:
    """How a kernel is run: by one thread or shared, and whether all wait after it."""

    one_thread: bool
    barrier: bool


@record
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


# ---- cache blocking: segments that walk through a batch slice by slice ---------------
# Where a kernel reads of another's results only those of the same slice, a thread can
# run both on one slice before it takes the next: what passes between them stays in its
# cache, and no thread waits for another.


@record
class _Member:
    """A kernel with what it touches, for comparing."""

    kernel: Kernel
    reads: frozenset[Buffer]
    writes: frozenset[Buffer]

    @kept
    def footprint(self) -> Footprint | None:
        return self.kernel.known_footprint  # of tiny ones, few are asked for it

    @kept
    def is_tiny(self) -> bool:
        return is_tiny(self.kernel)

    @kept
    def own(self) -> frozenset[Buffer]:
        """The buffers of which each unit has a part of its own."""
        return self.footprint.own if self.footprint else frozenset()

    @kept
    def slices(self) -> int:
        """How many slices it would have alone."""
        return _slices(_units(self), (self,))

    @kept
    def touched(self) -> frozenset[Buffer]:
        return self.reads | self.writes

    @kept
    def sliced(self) -> frozenset[Buffer]:
        """What it touches unit by unit."""
        return self.touched & self.own

    def disputed(self, other: _Member) -> frozenset[Buffer]:
        """Return the buffers that make the order of two kernels matter."""
        return (self.writes & other.touched) | (self.reads & other.writes)


class _Group:
    """What some kernels touch together: asked often, so it is added up as they come."""

    def __init__(self, members: Iterable[_Member]) -> None:
        self._touched: set[Buffer] = set()
        self._writes: set[Buffer] = set()
        for member in members:
            self.add(member)

    def add(self, member: _Member) -> None:
        """Count a kernel in."""
        self._touched |= member.touched
        self._writes |= member.writes

    def keeps_order(self, member: _Member) -> bool:
        """Return whether a kernel must stay before, or behind, one of the group."""
        apart = self._touched.isdisjoint(member.writes)
        return not (apart and self._writes.isdisjoint(member.reads))


def _member(kernel: Kernel) -> _Member:
    return _Member(kernel, kernel.memory_read, kernel.memory_written)


def goes_with(member: _Member, other: _Member) -> bool:
    """Return whether two kernels may run side by side."""
    if member.footprint is None or other.footprint is None:
        return False
    return member.disputed(other) <= member.own & other.own


def arrange(kernels: Sequence[Kernel]) -> tuple[list[Kernel], tuple[Segment, ...]]:
    """Return the kernels in an order that has long segments, and the segments."""
    left = [_member(kernel) for kernel in kernels]
    ordered: list[Kernel] = []
    segments: list[Segment] = []
    while left:
        first, members, units = _longest(left)
        ordered += [left[i].kernel for i in first]
        if len(members) > 1:
            step = _step(units, [left[i] for i in members])
            segments.append(_segment(len(ordered), len(members), units, step))
        ordered += [left[i].kernel for i in members]
        for number in sorted((*first, *members), reverse=True):
            del left[number]
    return ordered, tuple(segments)


def for_one_thread(plan: Plan) -> CpuPlan:
    """Return a plan that one thread runs, which waits for nobody."""
    last = len(plan.kernels) - 1
    execution = (Execution(True, number == last) for number in range(last + 1))
    return CpuPlan(**vars(plan), execution=tuple(execution))


def block(plan: Plan) -> CpuPlan:
    """Return the plan in an order that has long segments, with those."""
    if all(kernel.cost < CPU.worth_sharing for kernel in plan.kernels):
        return for_one_thread(plan)
    kernels, segments = arrange(plan.kernels)
    between = tile_local(kernels, segments)
    fields = vars(plan) | {"kernels": tuple(kernels)}
    return CpuPlan(**fields, segments=segments, tile_local=between)


def _longest(left: Sequence[_Member]) -> tuple[list[int], list[int], int]:
    """Return what must run before a segment, its members, and its units."""
    head = left[0]
    members = [0]
    before: list[int] = []
    skipped: list[int] = []
    units = head.footprint.units if not head.is_tiny and head.footprint else 0
    if not units or not _suits(units, units, [], [head]):
        return [], members, 1
    joined, sliced = [head], set(head.sliced)
    for number in range(1, min(len(left), CPU.block_lookahead)):
        skipped.append(number)
        if left[number].is_tiny:
            continue  # comes along only where a later one needs it
        if left[number].sliced.isdisjoint(sliced):
            continue  # there is nothing to gain
        needed = _needed(left, skipped)
        for eager in (True, False):
            inside = _inside(left, members, needed, eager)
            shared = math.gcd(units, *(_units(left[i]) for i in inside))
            fits = _suits(shared, units, joined, [left[i] for i in inside])
            if fits and _all_go(left, members, inside):
                units = shared
                members += inside
                joined += [left[i] for i in inside]
                sliced.update(*(left[i].sliced for i in inside))
                before += [i for i in needed if i not in inside]
                skipped = [i for i in skipped if i not in needed]
                break
    return sorted(before), members, units


def _segment(first: int, count: int, units: int, step: int) -> Segment:
    slices = -(-units // step)
    if units == slices * step:
        return Segment(first, first + count, slices)
    return Segment(first, first + count, slices, units, step)


def _step(units: int, members: Iterable[_Member]) -> int:
    """Return how many units a slice has: equally many in each, if those are many."""
    grains = [
        footprint.grain // math.gcd(footprint.grain, footprint.units // units)
        for footprint in (member.footprint for member in members)
        if footprint is not None
    ]
    grain, equal = math.lcm(*grains), thread_split(units, CPU.thread_splits)
    if grain == 1 and (equal >= CPU.enough_slices or units <= CPU.thread_splits):
        return units // equal
    wanted = -(-units // CPU.thread_splits)
    return -(-wanted // grain) * grain


def _units(member: _Member) -> int:
    return member.footprint.units if member.footprint else 1


def _needed(left: Sequence[_Member], skipped: Sequence[int]) -> list[int]:
    """Return the last of some kernels and those that must run before it, in order."""
    needed = [skipped[-1]]
    group = _Group([left[skipped[-1]]])
    for i in reversed(skipped[:-1]):
        if group.keeps_order(left[i]):
            needed.append(i)
            group.add(left[i])
    return needed[::-1]


def _inside(
    left: Sequence[_Member],
    members: Sequence[int],
    needed: Sequence[int],
    eager: bool,
) -> list[int]:
    """Return those of some kernels that cannot run before the members of a segment.

    If eager, also those that make slices for the last one.
    """
    inside: list[int] = []
    group = _Group(left[i] for i in members)
    for i in needed:
        makes = eager and not left[i].sliced.isdisjoint(left[needed[-1]].sliced)
        if i == needed[-1] or makes or group.keeps_order(left[i]):
            inside.append(i)
            group.add(left[i])
    return inside


def _suits(
    units: int, before: int, members: Sequence[_Member], joining: Sequence[_Member]
) -> bool:
    """Return whether a segment may have as many slices as some units allow.

    A few slices do where a slice of everything is small; large ones are cut as finely
    as each kernel can be.
    """
    slices = _slices(units, (*members, *joining))
    coarser = [m for m in joining if slices < m.slices]
    if slices < _slices(before, members):
        coarser += members
    grown = coarser if slices >= CPU.enough_slices else (*coarser, *joining)
    own = {buffer for member in grown for buffer in member.own}
    return slices >= CPU.fewest_slices and all(
        buffer.nbytes <= CPU.slice_bytes * slices for buffer in own
    )


def _slices(units: int, members: Sequence[_Member]) -> int:
    return -(-units // _step(units, members))


def _all_go(
    left: Sequence[_Member], members: Sequence[int], inside: Sequence[int]
) -> bool:
    """Return whether some kernels may join a segment."""
    return all(
        goes_with(left[i], left[j])
        for number, i in enumerate(inside)
        for j in (*members, *inside[:number])
    )


def tile_local(
    kernels: Sequence[Kernel], segments: Sequence[Segment]
) -> frozenset[Buffer]:
    """Return the buffers that only the members of one segment touch.

    Each slice of the segment has a part of its own: a thread needs no more than one.
    """
    users: dict[Buffer, set[int]] = {}
    members = [_member(kernel) for kernel in kernels]
    for number, member in enumerate(members):
        for buffer in member.touched:
            users.setdefault(buffer, set()).add(number)
    local = set()
    for segment in segments:
        inside = range(segment.first, segment.last)
        for buffer in {b for n in inside for b in members[n].touched}:
            own = all(n in inside and buffer in members[n].own for n in users[buffer])
            if buffer.kind == "arena" and own:
                local.add(buffer)
    scratch = {buffer for kernel in kernels for buffer in kernel.private()}
    return frozenset(local - scratch)


def _fits(footprint: Footprint, segment: Segment) -> bool:
    """Return whether a segment's slices consist of whole pieces of a kernel."""
    units, grain = footprint.units, footprint.grain
    if not segment.units:
        return units % segment.slices == 0 and grain == 1
    return units % segment.units == 0 and segment.each(units) % grain == 0


def conflict(
    kernels: Sequence[Kernel], segments: Sequence[Segment]
) -> tuple[int, int] | None:
    """Return two kernels of a segment that may not run side by side, if any."""
    for segment in segments:
        members = [_member(kernel) for kernel in kernels[segment.first : segment.last]]
        for i, member in enumerate(members):
            if member.footprint is None or not _fits(member.footprint, segment):
                return segment.first + i, segment.first + i
            for j in range(i):
                if not goes_with(member, members[j]):
                    return segment.first + j, segment.first + i
    return None


# ---- intervals: what threads run from one barrier to the next ------------------------
# Kernels too small to share are run by one thread, one after the other. Where another
# kernel would touch memory that one of an interval still writes or reads, all wait.


class _Run(NamedTuple):
    """A segment, or a single kernel, and what it touches."""

    kernels: tuple[Kernel, ...]
    segment: Segment | None
    alone: bool  # on one thread
    reads: frozenset[Buffer]
    writes: frozenset[Buffer]


def _runs(plan: CpuPlan) -> list[_Run]:
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
        runs.append(_Run(kernels, segment, alone, reads, writes))
    return runs


def _followed(runs: Sequence[_Run]) -> list[set[int]]:
    """Return which runs before it each one must stay behind.

    Of several that do the same to some memory the last is enough: it stays behind them.
    """
    followed: list[set[int]] = []
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
        followed.append(others)
    return followed


def _intervals(runs: Sequence[_Run]) -> Iterator[range]:
    """Yield the numbers of the runs of each interval, in order."""
    first = 0
    for number, others in enumerate(_followed(runs)):
        alone = runs[number].alone
        if any(n >= first and not (alone and runs[n].alone) for n in others):
            yield range(first, number)
            first = number
    if runs:
        yield range(first, len(runs))


def fill_intervals(plan: CpuPlan) -> CpuPlan:
    """Return the plan with runs moved up to where threads work anyway.

    Each interval takes what follows and waits for nothing in it: so threads wait less
    often, and have more to do between.
    """
    runs = _runs(plan)
    waits_for, ordered = _followed(runs), list[_Run]()
    awaited_by: list[list[int]] = [[] for _ in runs]
    for number, others in enumerate(waits_for):
        for other in others:
            awaited_by[other].append(number)
    left = list(range(len(runs)))
    while left:
        # What one thread runs need not wait for what the same one has run before it.
        taken, taken_alone, rest = list[int](), set[int](), []
        for number in left[: CPU.block_lookahead]:
            alone, waits = runs[number].alone, waits_for[number]
            if waits <= taken_alone if alone else not waits:
                taken.append(number)
                if alone:
                    taken_alone.add(number)
            else:
                rest.append(number)
        left[: CPU.block_lookahead] = rest
        for number in taken:
            ordered.append(runs[number])
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


# ---- the arena ---------------------------------------------------------------------


def lifetimes(plan: CpuPlan) -> dict[Buffer, tuple[int, int]]:
    """Return the first and the last run during which each temporary buffer lives."""
    lives: dict[Buffer, tuple[int, int]] = {}
    for touched, (begin, end) in _uses(plan):
        for root in touched:
            if root.kind == "arena":
                first, last = lives.get(root, (begin, end))
                lives[root] = min(first, begin), max(last, end)
    return lives


def _uses(plan: CpuPlan) -> Iterator[tuple[frozenset[Buffer], tuple[int, int]]]:
    """Yield what each run touches, and between which runs that must live."""
    if plan.execution and all(how.one_thread for how in plan.execution):
        for number, kernel in enumerate(plan.kernels):
            yield kernel.memory_read | kernel.memory_written, (number, number)
    else:
        yield from _shared_uses(plan)


def _shared_uses(plan: CpuPlan) -> Iterator[tuple[frozenset[Buffer], tuple[int, int]]]:
    """Yield the same where threads share the work.

    What they share lives as long as the interval: memory that was used again within it
    would have to be waited for.
    """
    runs = _runs(plan)
    for interval in _intervals(runs):
        for number in interval:
            own = number, number
            span = own if runs[number].alone else (interval[0], interval[-1])
            yield runs[number].reads | runs[number].writes, span


def place_in_arena(plan: CpuPlan) -> CpuPlan:
    """Give each buffer the lowest offset that is free while it lives, largest first."""
    lives = lifetimes(plan)
    sizes = {buffer: rounded(buffer.nbytes, ALIGNMENT) for buffer in lives}
    offsets, end = packed(lives, sizes)
    return replace(plan, offsets=offsets, arena=end)


# ---- who runs which kernel, and where threads wait for each other --------------------
# A barrier is only where a kernel would touch memory that an earlier one still writes
# or reads: one that ran since the last barrier, and not beside it in a segment.

Span = tuple[Hashable, int, int]  # what memory, from where, to where
Touched = tuple[Sequence[Span], Sequence[Span]]  # what is read, what is written


def place_barriers(plan: CpuPlan) -> CpuPlan:
    """Return the plan with how each kernel is executed."""
    pairs = zip(plan.kernels, plan.segment_of(), strict=True)
    alone = [segment is None and is_tiny(kernel) for kernel, segment in pairs]
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


class Spans:
    """The memory that some spans cover together.

    >>> covered = Spans()
    >>> covered.add([("arena", 0, 8), ("arena", 16, 24), ("arena", 8, 12)])
    >>> covered.meets([("arena", 12, 16)]), covered.meets([("arena", 23, 40)])
    (False, True)
    """

    def __init__(self) -> None:
        # Of each memory, where its covered stretches start and stop: apart, in order.
        self._stretches: dict[Hashable, tuple[list[int], list[int]]] = {}

    def add(self, spans: Iterable[Span]) -> None:
        """Cover more."""
        for memory, start, stop in spans:
            starts, stops = self._stretches.setdefault(memory, ([], []))
            first, last = bisect_left(stops, start), bisect_right(starts, stop)
            if first < last:  # those that it touches become one with it
                start = min(start, starts[first])
                stop = max(stop, stops[last - 1])
            starts[first:last], stops[first:last] = [start], [stop]

    def meets(self, spans: Iterable[Span]) -> bool:
        """Return whether any of some spans is covered, were it in part."""
        for memory, start, stop in spans:
            starts, stops = self._stretches.get(memory, ((), ()))
            at = bisect_right(stops, start)
            if at < len(starts) and starts[at] < stop:
                return True
        return False


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

    def span(root: Buffer) -> Span:
        if root.kind != "arena":
            return id(root), 0, 1
        start = plan.offsets[root]
        return "arena", start, start + max(root.nbytes, 1)

    return [*map(span, kernel.memory_read)], [*map(span, kernel.memory_written)]
