"""Cache blocking: segments of kernels that walk through a batch slice by slice.

Where a kernel reads of another's results only those of the same slice, a thread can run
both on one slice before it takes the next: what passes between them stays in its cache,
and no thread waits for another.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from ganglion.compiler.cpu.plan import CpuPlan, Segment
from ganglion.compiler.cpu.tuning import CPU
from ganglion.compiler.plan.kernels import Buffer, Footprint, Kernel
from ganglion.compiler.plan.lowering import thread_split
from ganglion.compiler.plan.plan import Plan


@dataclass(frozen=True)
class _Member:
    """A kernel with what it touches, for comparing."""

    kernel: Kernel
    footprint: Footprint | None
    reads: frozenset[Buffer]
    writes: frozenset[Buffer]

    @cached_property
    def is_tiny(self) -> bool:
        return self.kernel.cost < CPU.worth_sharing

    @property
    def own(self) -> frozenset[Buffer]:
        """The buffers of which each unit has a part of its own."""
        return self.footprint.own if self.footprint else frozenset()

    @cached_property
    def touched(self) -> frozenset[Buffer]:
        return self.reads | self.writes

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
    reads = frozenset(buffer.root for buffer in kernel.reads())
    writes = frozenset(buffer.root for buffer in kernel.writes())
    return _Member(kernel, kernel.footprint(), reads, writes)


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
        taken = {*first, *members}
        candidates = enumerate(left[: CPU.block_lookahead])  # no farther is ever looked
        left[: CPU.block_lookahead] = [
            member for i, member in candidates if i not in taken
        ]
    return ordered, tuple(segments)


def block(plan: Plan) -> CpuPlan:
    """Return the plan in an order that has long segments, with those."""
    if all(kernel.cost < CPU.worth_sharing for kernel in plan.kernels):
        return CpuPlan(**vars(plan))  # one thread runs them all
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
    units = head.footprint.units if head.footprint else 0
    if not units or not _suits(units, units, [], [head]) or head.is_tiny:
        return [], members, 1
    for number in range(1, min(len(left), CPU.block_lookahead)):
        skipped.append(number)
        if left[number].is_tiny:
            continue  # comes along only where a later one needs it
        needed = _needed(left, skipped)
        joined = [left[i] for i in members]
        if not _gains(left[number], joined):
            continue
        for eager in (True, False):
            inside = _inside(left, members, needed, eager)
            shared = math.gcd(units, *(_units(left[i]) for i in inside))
            fits = _suits(shared, units, joined, [left[i] for i in inside])
            if fits and _all_go(left, members, inside):
                units = shared
                members += inside
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
        makes = eager and _gains(left[i], [left[needed[-1]]])
        if i == needed[-1] or makes or group.keeps_order(left[i]):
            inside.append(i)
            group.add(left[i])
    return inside


def _gains(member: _Member, members: Sequence[_Member]) -> bool:
    """Return whether a kernel shares slices with a member of a segment."""
    own = member.touched & member.own
    return any(own & other.touched & other.own for other in members)


def _suits(
    units: int, before: int, members: Sequence[_Member], joining: Sequence[_Member]
) -> bool:
    """Return whether a segment may have as many slices as some units allow.

    A few slices do where a slice of everything is small; large ones are cut finely.
    """
    slices = -(-units // _step(units, (*members, *joining)))
    if slices >= CPU.enough_slices:
        return True
    coarser = slices < -(-before // _step(before, members))  # then all slices grow
    grown = (*members, *joining) if coarser else joining
    own = {buffer for member in grown for buffer in member.own}
    return slices >= CPU.fewest_slices and all(
        buffer.nbytes <= CPU.slice_bytes * slices for buffer in own
    )


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
