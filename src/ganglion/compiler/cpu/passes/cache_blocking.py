"""Cache blocking: segments of kernels that run slice by slice through a batch.

If a kernel reads only the same slice of another's results, a thread can run both on a
slice before it takes the next one: intermediate values stay in its cache, and no
thread waits for another.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from ganglion.compiler.cpu.plan import CpuPlan, Segment, is_tiny
from ganglion.compiler.cpu.tuning import CPU
from ganglion.compiler.ir.graph import kept
from ganglion.compiler.plan.kernels import Buffer, Footprint, Kernel
from ganglion.compiler.plan.lowering import thread_split
from ganglion.compiler.plan.plan import Plan
from ganglion.system.records import record


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


def block(plan: Plan) -> CpuPlan:
    """Return the plan with kernels in an order with long segments."""
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
