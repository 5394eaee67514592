"""Bands: kernels that walk through a batch side by side, a slice at a time.

Where a kernel reads of another's results only those of the same slice, a thread can run
both on one slice before it takes the next: what passes between them stays in its cache,
and no thread waits for another.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from ganglion.compiler.plan.cost import TINY, work
from ganglion.compiler.plan.kernels import (
    Axis,
    Buffer,
    Contract,
    Expr,
    Indirect,
    Kernel,
    Load,
    Loop,
    PoolBack,
    Shape,
    Shuffled,
    Uniform,
    View,
    walk,
)
from ganglion.compiler.plan.lower import SLICES
from ganglion.compiler.plan.lower_winograd import LANES, WinogradConv
from ganglion.compiler.plan.plan import Band, Plan
from ganglion.compiler.plan.sparsity import NonzeroBits, Nonzeros
from ganglion.compiler.plan.split import parts_of

FEWEST, MANY = 8, 16  # slices, for several threads to get about equal shares
ROOM = 256 * 1024  # bytes of a slice, if a band has not many
FARTHEST = 60  # kernels to look ahead over


# ---- how a kernel can be cut -------------------------------------------------------


@dataclass(frozen=True)
class Cut:
    """A kernel as equal units, and the buffers of which each has a part of its own.

    Unit u of n touches nothing of such a buffer but its u-th of n parts. The pieces of
    the kernel itself may be larger: of some units each, the last of the rest.
    """

    units: int
    own: frozenset[Buffer]
    grain: int = 1


def cut(kernel: Kernel) -> Cut | None:
    """Return how a kernel can be cut along its first axis, None if it cannot."""
    if isinstance(kernel, Loop):
        return _cut_loop(kernel)
    if isinstance(kernel, Contract):
        if not kernel.batch:
            return None
        return _cut(kernel.batch[0].size, _contract_views(kernel))
    if isinstance(kernel, PoolBack):
        return _cut(kernel.shape[0], _pool_views(kernel))
    if isinstance(kernel, Nonzeros):
        return _cut_lists(kernel)
    if isinstance(kernel, NonzeroBits):
        return _cut(kernel.parallel, kernel.views())
    if isinstance(kernel, WinogradConv):
        return _cut_tiles(kernel)
    return None


def _cut_tiles(kernel: WinogradConv) -> Cut | None:
    whole = View.whole(kernel.target)
    views = [(kernel.images, kernel.source), (whole, kernel.target.shape)]
    made = _cut(kernel.source[0], views)
    own, images = made.own | {kernel.scratch}, kernel.tiling.images_of_piece
    if kernel.tiling.aligned:
        return Cut(kernel.parallel, own)
    return Cut(made.units, own, images) if images else None


def _cut_lists(kernel: Nonzeros) -> Cut | None:
    views = kernel.views()
    (_, (units, *_)), (_, (lists, *_)) = views
    return _cut(units, views) if units == lists else None


def _cut_loop(kernel: Loop) -> Cut | None:
    if not kernel.outer or (kernel.adds and len(kernel.shape) == 1):
        return None
    made = _cut(kernel.shape[0], _loop_views(kernel))
    if len(kernel.outer) > 1:
        return made
    # The only axis is the one that vectors lie along: units are whole vectors.
    whole = made.units % LANES == 0
    return Cut(made.units // LANES, made.own) if whole else None


def _cut(units: int, views: Iterable[tuple[View, Shape] | Buffer]) -> Cut:
    own, shared = set(), set()
    for one in views:
        buffer = one if isinstance(one, Buffer) else one[0].buffer
        root = buffer.root
        if not isinstance(one, Buffer) and _is_own(*one):
            own.add(root)
        else:
            shared.add(root)
    return Cut(units, frozenset(own - shared))


def _is_own(view: View, shape: Shape) -> bool:
    """Return whether each place of the first axis has an equal part of the buffer."""
    step, *strides = view.strides
    if step * shape[0] != view.buffer.size:
        return False
    spans = [s * (n - 1) for s, n in zip(strides, shape[1:], strict=True)]
    lowest = view.offset + sum(min(span, 0) for span in spans)
    highest = view.offset + sum(max(span, 0) for span in spans)
    return lowest >= 0 and highest < step


def _loop_views(kernel: Loop) -> Iterator[tuple[View, Shape] | Buffer]:
    for _, view in kernel.outputs:
        yield view, kernel.outer
    yield from _views(kernel.exprs, kernel.shape)


def _views(
    exprs: Sequence[Expr], shape: Shape
) -> Iterator[tuple[View, Shape] | Buffer]:
    for one in walk(*exprs):
        if isinstance(one, Load):
            yield one.view, shape
        elif isinstance(one, Indirect):
            yield one.table
        elif isinstance(one, (Uniform, Shuffled)):
            yield one.state


def _contract_views(kernel: Contract) -> list[tuple[View, Shape] | Buffer]:
    outer = (*kernel.batch, *kernel.rows, *kernel.columns)
    every = (*outer, *kernel.inner)

    def seen(view: View, axes: tuple[Axis, ...], name: str) -> tuple[View, Shape]:
        strides = tuple(getattr(axis, name) for axis in axes)
        sizes = tuple(axis.size for axis in axes)
        return View(view.buffer, strides, view.offset), sizes

    lists = [kernel.places.buffer] if kernel.places else []
    bits = [kernel.bits] if kernel.bits else []  # words reach into the next image's
    return [
        seen(kernel.left, every, "left"),
        seen(kernel.right, every, "right"),
        seen(kernel.out, outer, "out"),
        *((View.whole(one), one.shape) for one in lists),
        *bits,
    ]


def _pool_views(kernel: PoolBack) -> Iterator[tuple[View, Shape] | Buffer]:
    yield from _views(kernel.elements, kernel.shape)
    yield kernel.dy, kernel.shape
    if kernel.largest:
        yield kernel.largest, kernel.shape
    for tap in kernel.taps:
        back = kernel.dx
        yield View(back.buffer, back.strides, back.offset + tap), kernel.shape


# ---- which kernels go together -----------------------------------------------------


@dataclass(frozen=True)
class _Member:
    """A kernel with what it touches, for comparing."""

    kernel: Kernel
    cut: Cut | None
    reads: frozenset[Buffer]
    writes: frozenset[Buffer]

    @cached_property
    def is_tiny(self) -> bool:
        return work(self.kernel) < TINY

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
        for one in members:
            self.add(one)

    def add(self, member: _Member) -> None:
        """Count a kernel in."""
        self._touched |= member.touched
        self._writes |= member.writes

    def keeps_order(self, member: _Member) -> bool:
        """Return whether a kernel must stay before, or behind, one of the group."""
        apart = self._touched.isdisjoint(member.writes)
        return not (apart and self._writes.isdisjoint(member.reads))


def _member(kernel: Kernel) -> _Member:
    def roots(buffers: list[Buffer]) -> frozenset[Buffer]:
        return frozenset(one.root for one in buffers)

    made = cut(kernel)
    return _Member(kernel, made, roots(kernel.reads()), roots(kernel.writes()))


def goes_with(one: _Member, other: _Member) -> bool:
    """Return whether two kernels may run side by side."""
    if one.cut is None or other.cut is None:
        return False
    return one.disputed(other) <= one.cut.own & other.cut.own


def arrange(kernels: Sequence[Kernel]) -> tuple[list[Kernel], tuple[Band, ...]]:
    """Return the kernels in an order that has long bands, and the bands."""
    left = [_member(one) for one in kernels]
    made: list[Kernel] = []
    bands: list[Band] = []
    while left:
        first, members, units = _longest(left)
        made += [left[i].kernel for i in first]
        if len(members) > 1:
            step = _step(units, [left[i] for i in members])
            bands.append(_band(len(made), len(members), units, step))
        made += [left[i].kernel for i in members]
        taken = {*first, *members}
        near = enumerate(left[:FARTHEST])  # no farther is ever looked
        left[:FARTHEST] = [one for i, one in near if i not in taken]
    return made, tuple(bands)


def block(plan: Plan) -> Plan:
    """Return the plan in an order that has long bands, with those."""
    kernels, bands = arrange(plan.kernels)
    between = passing(kernels, bands)
    return replace(plan, kernels=tuple(kernels), bands=bands, passing=between)


def _longest(left: Sequence[_Member]) -> tuple[list[int], list[int], int]:
    """Return what must run before a band, the band from the first on, and its units."""
    head = left[0]
    members = [0]
    before: list[int] = []
    skipped: list[int] = []
    units = head.cut.units if head.cut else 0
    if not units or not _suits(units, units, [], [head]) or head.is_tiny:
        return [], members, 1
    for number in range(1, min(len(left), FARTHEST)):
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


def _band(first: int, count: int, units: int, step: int) -> Band:
    slices = -(-units // step)
    if units == slices * step:
        return Band(first, first + count, slices)
    return Band(first, first + count, slices, units, step)


def _step(units: int, members: Iterable[_Member]) -> int:
    """Return how many units a slice has: equally many in each, if those are many."""
    grains = [
        cut.grain // math.gcd(cut.grain, cut.units // units)
        for cut in (one.cut for one in members)
        if cut is not None
    ]
    grain, equal = math.lcm(*grains), parts_of(units)
    if grain == 1 and (equal >= MANY or units <= SLICES):
        return units // equal
    wanted = -(-units // SLICES)
    return -(-wanted // grain) * grain


def _units(one: _Member) -> int:
    return one.cut.units if one.cut else 1


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
    """Return those of some kernels that cannot run before the members of a band.

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


def _gains(one: _Member, members: Sequence[_Member]) -> bool:
    """Return whether a kernel shares slices with a member of a band."""
    own = one.cut.own if one.cut else frozenset()
    return any(o.cut and one.touched & o.touched & own & o.cut.own for o in members)


def _suits(
    units: int, before: int, members: Sequence[_Member], joining: Sequence[_Member]
) -> bool:
    """Return whether a band may have as many slices as some units allow.

    A few slices do where a slice of everything is small; large ones are cut finely.
    """
    slices = -(-units // _step(units, (*members, *joining)))
    if slices >= MANY:
        return True
    coarser = slices < -(-before // _step(before, members))  # then all slices grow
    grown = (*members, *joining) if coarser else joining
    own = {one for member in grown if member.cut for one in member.cut.own}
    return slices >= FEWEST and all(one.nbytes <= ROOM * slices for one in own)


def _all_go(
    left: Sequence[_Member], members: Sequence[int], inside: Sequence[int]
) -> bool:
    """Return whether some kernels may join a band."""
    return all(
        goes_with(left[i], left[j])
        for number, i in enumerate(inside)
        for j in (*members, *inside[:number])
    )


def passing(kernels: Sequence[Kernel], bands: Sequence[Band]) -> frozenset[Buffer]:
    """Return the buffers that nobody touches but the members of one band.

    Each slice of the band has a part of its own: a thread needs no more than one.
    """
    users: dict[Buffer, set[int]] = {}
    members = [_member(one) for one in kernels]
    for number, one in enumerate(members):
        for buffer in one.touched:
            users.setdefault(buffer, set()).add(number)
    found = set()
    for band in bands:
        inside = range(band.first, band.last)
        for buffer in {b for n in inside for b in members[n].touched}:
            cuts = [members[n].cut for n in users[buffer] if n in inside]
            own = all(one is not None and buffer in one.own for one in cuts)
            if buffer.kind == "arena" and own and len(cuts) == len(users[buffer]):
                found.add(buffer)
    scratch = {one for kernel in kernels for one in kernel.private()}
    return frozenset(found - scratch)


def _fits(cut: Cut, band: Band) -> bool:
    """Return whether a band's slices consist of whole pieces of a kernel."""
    if not band.units:
        return cut.units % band.slices == 0 and cut.grain == 1
    return cut.units % band.units == 0 and band.each(cut.units) % cut.grain == 0


def quarrel(kernels: Sequence[Kernel], bands: Sequence[Band]) -> tuple[int, int] | None:
    """Return two kernels of a band that may not run side by side, None if all may."""
    for band in bands:
        members = [_member(one) for one in kernels[band.first : band.last]]
        for i, one in enumerate(members):
            if one.cut is None or not _fits(one.cut, band):
                return band.first + i, band.first + i
            for j in range(i):
                if not goes_with(one, members[j]):
                    return band.first + j, band.first + i
    return None
