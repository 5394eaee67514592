"""The CPU's plan: segments, the arena, how threads share kernels, and barriers."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import field, replace
from typing import NamedTuple

import numpy as np

from ganglion.compiler.cpu import tuning
from ganglion.compiler.cpu.tuning import CPU
from ganglion.compiler.ir.graph import kept
from ganglion.compiler.plan.kernels import Buffer, Footprint, Kernel, Loop
from ganglion.compiler.plan.lowering import thread_split
from ganglion.compiler.plan.plan import Plan, packed, rounded
from ganglion.compiler.plan.printer import show
from ganglion.system.records import record

ALIGNMENT = 64  # bytes: a cache line, and the widest vector
# Bytes. NumPy asks for such pages where arrays are large: what lies before their first
# boundary is in small pages, of which a step that walks through much memory needs many.
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


# ---- cache blocking: segments that run slice by slice through a batch ----------------
# If a kernel reads only the same slice of another's results, a thread can run both on a
# slice before it takes the next one: intermediate values stay in its cache, and no
# thread waits for another.


@record
class _Member:
    """A kernel, with cached properties for comparing it with others."""

    kernel: Kernel
    reads: frozenset[Buffer]
    writes: frozenset[Buffer]

    @kept
    def footprint(self) -> Footprint | None:
        return self.kernel.known_footprint

    @kept
    def is_tiny(self) -> bool:
        return is_tiny(self.kernel)

    @kept
    def own(self) -> frozenset[Buffer]:
        """The buffers of which each unit touches only its own part."""
        return self.footprint.own if self.footprint else frozenset()

    @kept
    def slices(self) -> int:
        """How many slices the kernel would have alone."""
        return _slices(_units(self), (self,))

    @property
    def touched(self) -> frozenset[Buffer]:
        return self.kernel.memory_touched

    @kept
    def sliced(self) -> frozenset[Buffer]:
        """The buffers that the kernel touches unit by unit."""
        return self.touched & self.own

    def conflicts(self, other: _Member) -> frozenset[Buffer]:
        """Return the buffers through which two kernels depend on each other."""
        return (self.writes & other.touched) | (self.reads & other.writes)


class _Group:
    """The memory that a group of kernels touches."""

    def __init__(self, members: Iterable[_Member]) -> None:
        self._touched: set[Buffer] = set()
        self._writes: set[Buffer] = set()
        for member in members:
            self.add(member)

    def add(self, member: _Member) -> None:
        """Add a kernel to the group."""
        self._touched |= member.touched
        self._writes |= member.writes

    def copy(self) -> _Group:
        """Return a group of the same kernels, to which others can be added."""
        group = _Group(())
        group._touched, group._writes = self._touched.copy(), self._writes.copy()
        return group

    def conflicts(self, member: _Member) -> bool:
        """Return whether a kernel depends on one of the group, or the reverse."""
        return not (
            self._touched.isdisjoint(member.writes)
            and self._writes.isdisjoint(member.reads)
        )


def _member(kernel: Kernel) -> _Member:
    return _Member(kernel, kernel.memory_read, kernel.memory_written)


def can_share_segment(member: _Member, other: _Member) -> bool:
    """Return whether two kernels may be in the same segment."""
    if member.footprint is None or other.footprint is None:
        return False
    return member.conflicts(other) <= member.own & other.own


def arrange(kernels: Sequence[Kernel]) -> tuple[list[Kernel], tuple[Segment, ...]]:
    """Return the kernels in an order with long segments, and the segments."""
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
    """Return a plan for a single thread, without barriers between kernels."""
    last = len(plan.kernels) - 1
    execution = (Execution(True, number == last) for number in range(last + 1))
    return CpuPlan(**vars(plan), execution=tuple(execution))


def block(plan: Plan) -> CpuPlan:
    """Return the plan with kernels in an order with long segments."""
    if all(kernel.cost < CPU.worth_sharing for kernel in plan.kernels):
        return for_one_thread(plan)
    kernels, segments = arrange(plan.kernels)
    between = tile_local(kernels, segments)
    fields = vars(plan) | {"kernels": tuple(kernels)}
    return CpuPlan(**fields, segments=segments, tile_local=between)


def _longest(left: Sequence[_Member]) -> tuple[list[int], list[int], int]:
    """Return the kernels that must run before a segment, its members, and its units."""
    head = left[0]
    members = [0]
    before: list[int] = []
    skipped: list[int] = []
    units = head.footprint.units if not head.is_tiny and head.footprint else 0
    if not units or not _suits(units, units, [], [head]):
        return [], members, 1
    joined, group, sliced = [head], _Group([head]), set(head.sliced)
    for number in range(1, min(len(left), CPU.block_lookahead)):
        skipped.append(number)
        if left[number].is_tiny:
            continue  # joins only if a later member needs it
        if left[number].sliced.isdisjoint(sliced):
            continue  # would not gain by it
        needed = _needed(left, skipped)
        for eager in (True, False):
            inside = _inside(left, group, needed, eager)
            shared = math.gcd(units, *(_units(left[i]) for i in inside))
            fits = _suits(shared, units, joined, [left[i] for i in inside])
            if fits and _all_can_join(left, members, inside):
                units = shared
                members += inside
                for member in [left[i] for i in inside]:
                    joined.append(member)
                    group.add(member)
                    sliced |= member.sliced
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
    """Return how many units a slice has: equal slices, if there are enough of them."""
    grains = [
        footprint.grain // math.gcd(footprint.grain, footprint.units // units)
        for footprint in [member.footprint for member in members]
        if footprint is not None and footprint.grain > 1
    ]
    grain, equal = math.lcm(*grains), thread_split(units, CPU.thread_splits)
    if grain == 1 and (equal >= CPU.enough_slices or units <= CPU.thread_splits):
        return units // equal
    step = -(-units // CPU.thread_splits)
    return -(-step // grain) * grain


def _units(member: _Member) -> int:
    return member.footprint.units if member.footprint else 1


def _needed(left: Sequence[_Member], skipped: Sequence[int]) -> list[int]:
    """Return the last skipped kernel and those it depends on, in order."""
    needed = [skipped[-1]]
    group = _Group([left[skipped[-1]]])
    for i in reversed(skipped[:-1]):
        if group.conflicts(left[i]):
            needed.append(i)
            group.add(left[i])
    return needed[::-1]


def _inside(
    left: Sequence[_Member], members: _Group, needed: Sequence[int], eager: bool
) -> list[int]:
    """Return the needed kernels that cannot run before the members of a segment.

    If eager, also those that share sliced buffers with the last one.
    """
    inside: list[int] = []
    group = members.copy()
    for i in needed:
        shares = eager and not left[i].sliced.isdisjoint(left[needed[-1]].sliced)
        if i == needed[-1] or shares or group.conflicts(left[i]):
            inside.append(i)
            group.add(left[i])
    return inside


def _suits(
    units: int, before: int, members: Sequence[_Member], joining: Sequence[_Member]
) -> bool:
    """Return whether a segment has enough slices with this number of units.

    Few slices suffice if all buffers' slices are small; large buffers are divided as
    finely as their kernels alone would be.
    """
    slices = _slices(units, (*members, *joining))
    coarser = [m for m in joining if slices < m.slices]
    if slices < _slices(before, members):
        coarser += members
    checked = coarser if slices >= CPU.enough_slices else (*coarser, *joining)
    divided = {buffer for member in checked for buffer in member.own}
    return slices >= CPU.fewest_slices and all(
        buffer.nbytes <= CPU.slice_bytes * slices for buffer in divided
    )


def _slices(units: int, members: Sequence[_Member]) -> int:
    return -(-units // _step(units, members))


def _all_can_join(
    left: Sequence[_Member], members: Sequence[int], inside: Sequence[int]
) -> bool:
    """Return whether all of some kernels may join a segment."""
    return all(
        can_share_segment(left[i], left[j])
        for number, i in enumerate(inside)
        for j in (*members, *inside[:number])
    )


def tile_local(
    kernels: Sequence[Kernel], segments: Sequence[Segment]
) -> frozenset[Buffer]:
    """Return the buffers that only members of a single segment touch, slice by slice.

    A thread needs memory for a single slice of them.
    """
    if not segments:
        return frozenset()
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
    """Return whether a segment's slices consist of complete grains of a kernel."""
    units, grain = footprint.units, footprint.grain
    if not segment.units:
        return units % segment.slices == 0 and grain == 1
    return units % segment.units == 0 and segment.each(units) % grain == 0


def conflict(
    kernels: Sequence[Kernel], segments: Sequence[Segment]
) -> tuple[int, int] | None:
    """Return two kernels that must not share a segment but do, None if none do."""
    for segment in segments:
        members = [_member(kernel) for kernel in kernels[segment.first : segment.last]]
        for i, member in enumerate(members):
            if member.footprint is None or not _fits(member.footprint, segment):
                return segment.first + i, segment.first + i
            for j in range(i):
                if not can_share_segment(member, members[j]):
                    return segment.first + j, segment.first + i
    return None


# ---- intervals: runs between two barriers --------------------------------------------
# Kernels too small to share are run by one thread, one after the other. A barrier is
# needed before a kernel that conflicts with another kernel of the same interval.


class _Run(NamedTuple):
    """A segment or a single kernel, with the memory that it touches."""

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


def _dependencies(runs: Sequence[_Run]) -> list[set[int]]:
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


def _intervals(runs: Sequence[_Run]) -> Iterator[range]:
    """Yield the numbers of the runs of each interval, in order."""
    first = 0
    for number, others in enumerate(_dependencies(runs)):
        alone = runs[number].alone
        if any(n >= first and not (alone and runs[n].alone) for n in others):
            yield range(first, number)
            first = number
    if runs:
        yield range(first, len(runs))


def fill_intervals(plan: CpuPlan) -> CpuPlan:
    """Return the plan with runs moved up into earlier intervals.

    Each interval takes all later runs that do not depend on it, so that fewer barriers
    remain, with more work between them. A run is postponed if it stores much that
    nobody could read soon: its result would evict others from the caches, and be
    evicted before it is used.
    """
    runs = _runs(plan)
    waits_for, ordered = _dependencies(runs), list[_Run]()
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

    def __init__(self, runs: Iterable[_Run]) -> None:
        self._uses = Counter(buffer for run in runs for buffer in self._touched(run))
        self._live = set[Buffer]()

    @staticmethod
    def _touched(run: _Run) -> list[Buffer]:
        return [b for b in run.reads | run.writes if b.kind == "arena"]

    def growth(self, run: _Run) -> int:
        """Return by how many bytes the live buffers grow if a run comes next."""
        touched = self._touched(run)
        born = sum(b.nbytes for b in touched if b not in self._live)
        return born - sum(b.nbytes for b in touched if self._uses[b] == 1)

    def add(self, run: _Run) -> None:
        """Append a run to the order."""
        touched = self._touched(run)
        self._uses.subtract(touched)
        self._live.update(touched)


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
    runs = _runs(plan)
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


# ---- barriers ------------------------------------------------------------------------
# A barrier precedes a kernel only if it conflicts with a kernel that ran since the last
# barrier, and not in the same segment.

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
