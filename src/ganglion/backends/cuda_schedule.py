"""Which kernels are launched together, and where their results are kept.

A launch is a number of lanes side by side; in each, kernels run one after the other. A
lane of one kernel may have many blocks; one of several small kernels has one block,
which only has to wait for itself between them, or some blocks with rows of their own.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from ganglion.backends.cuda_loop import SMALL
from ganglion.backends.cuda_rows import row_by_row, row_sizes, rows_of, whole_rows
from ganglion.backends.cuda_simplify import in_rows
from ganglion.backends.cuda_text import root
from ganglion.backends.cuda_work import (
    MOST_STORED,
    Root,
    Work,
    is_flat,
    is_host,
    is_map,
    takes,
    tallies,
    tallies_rows,
)
from ganglion.plan.kernel import Buffer, Contract, Kernel, Loop
from ganglion.plan.memory import packed, rounded

ALIGNMENT = 256  # bytes
LONGEST_LANE = 24
LARGE = 1 << 20  # places of a loop that needs a GPU for itself


class Haste(Enum):
    """Who waits for a kernel."""

    NOW = 0  # a product of the same step
    LATER = 1  # nobody in this step: metrics, updates
    ASIDE = 2  # the next step: it may not disturb the products of this one


@dataclass(eq=False)
class Lane:
    """Work that is done in order."""

    works: list[Work]
    small: bool
    launch: int
    rows: int = 0  # over which its kernels may go on row by row
    haste: Haste = Haste.NOW
    private: dict[Root, int] = field(default_factory=dict)  # see `_keep_rows`
    shown: dict[Root, int] = field(default_factory=dict)  # likewise
    like: Lane | None = None  # which it is a part of, see `without`

    @property
    def kernels(self) -> list[Kernel]:
        """All kernels of the lane."""
        return [kernel for work in self.works for kernel in work.kernels]

    @property
    def by_rows(self) -> bool:
        """Whether several blocks run through it, each with its own rows."""
        if self.like is not None:
            return self.like.by_rows
        return self.rows > 0 and len(self.works) > 1

    def goes_on(self, made: Root) -> bool:
        """Tell whether another piece of work reads what one of them makes."""
        maker = next(i for i, one in enumerate(self.works) if made in one.writes())
        return any(made in one.reads() for one in self.works[maker + 1 :])

    def shown_by(self, work: Work) -> dict[Root, int]:
        """Return what a piece of work makes for others, too."""
        made = work.writes()
        return {one: size for one, size in self.shown.items() if one in made}

    def place(self, work: Work) -> int:
        """Return where in the lane a piece of work is."""
        return next(i for i, one in enumerate(self.works) if one is work)


@dataclass(eq=False)
class Launch:
    """Lanes that run side by side."""

    lanes: list[Lane] = field(default_factory=list)


def is_small(kernel: Kernel) -> bool:
    """Tell whether one block is enough for a kernel."""
    if not isinstance(kernel, Loop) or kernel.adds:
        return False
    return _places(kernel) <= SMALL


def _places(kernel: Loop) -> int:
    return math.prod(kernel.shape)


class _Memory:
    """Who touched what last."""

    def __init__(self) -> None:
        self._writers: dict[Root, list[Work]] = defaultdict(list)
        self._readers: dict[Root, list[Work]] = defaultdict(list)

    def needs(self, kernel: Kernel) -> list[Work]:
        """Return the work that must be done before a kernel."""
        found: dict[int, Work] = {}  # in an order that is the same in every process
        reads = dict.fromkeys(root(b) for b in kernel.reads())
        writes = dict.fromkeys(root(b) for b in kernel.writes())
        for one in reads | writes:
            found |= {id(w): w for w in self._writers[one]}
        for one in writes:
            found |= {id(w): w for w in self._readers[one]}
        return list(found.values())

    def note(self, kernel: Kernel, work: Work) -> None:
        """Remember what a kernel touches; those before it are waited for through it."""
        for one in {root(b) for b in kernel.writes()}:
            self._writers[one] = [work]
            self._readers[one] = []
        for one in {root(b) for b in kernel.reads()}:
            self._readers[one].append(work)


class Scheduler:
    """Puts kernels into launches, each as early as what it needs allows."""

    def __init__(self) -> None:
        self.launches: list[Launch] = []
        self._memory = _Memory()
        self._lane_of: dict[int, Lane] = {}

    def add(self, kernel: Kernel, haste: Haste) -> None:
        """Put a kernel into a launch."""
        needs = self._memory.needs(kernel)
        scatters = haste is Haste.ASIDE and self._scatters(kernel, needs)
        work = None if scatters else self._guest(kernel, needs, haste)
        if work is None:
            work = Work(kernel)
            self._put(work, needs, haste)
        self._memory.note(kernel, work)

    def _guest(self, kernel: Kernel, needs: list[Work], haste: Haste) -> Work | None:
        """Let a loop be computed along with what it reads, if nothing else holds it."""
        if not isinstance(kernel, Loop):
            return None
        for host in sorted(needs, key=self._launch_of, reverse=True):
            others = [one for one in needs if one is not host]
            if not _reads_from(kernel, host):
                continue
            if not all(self._before(one, host) for one in others):
                continue
            taken = is_host(host.kernel) and takes(host, kernel)
            if taken and self._fits_rows(kernel, host):
                host.guests.append(kernel)
                return host
            # The last block to come ends a tally: only what is urgent may be there.
            if haste is Haste.NOW and _tallied(kernel, host):
                return host
            if tallies_rows(host, kernel) and self._has_all_rows(host):
                host.tallies.append(Work(kernel, dropped=host.dropped))
                return host
        return None

    def _fits_rows(self, guest: Kernel, host: Work) -> bool:
        """Tell whether a guest leaves its lane row by row, if it must stay so."""
        lane = self._lane_of[id(host)]
        if lane.rows and not row_by_row(lane.kernels, guest):
            if lane.by_rows:
                return False
            lane.rows = 0
        return True

    def _has_all_rows(self, host: Work) -> bool:
        """Tell whether blocks of a piece of work have no rows of their own; keep it so.

        Parts that are added up need not be those rows.
        """
        lane = self._lane_of[id(host)]
        if lane.by_rows:
            return False
        lane.rows = 0
        return True

    def _launch_of(self, work: Work) -> int:
        return self._lane_of[id(work)].launch

    def _before(self, one: Work, other: Work) -> bool:
        mine, theirs = self._lane_of[id(one)], self._lane_of[id(other)]
        if mine is theirs:
            return mine.place(one) < mine.place(other)
        return mine.launch < theirs.launch

    def _put(self, work: Work, needs: list[Work], haste: Haste) -> None:
        last = max((self._launch_of(one) for one in needs), default=-1)
        small = is_small(work.kernel)
        # Sums for a next step are taken as those for the first, in other company.
        by_rows = haste is not Haste.ASIDE or is_map(work.kernel)
        latest = [self._lane_of[id(w)] for w in needs if self._launch_of(w) == last]
        lanes = list({id(one): one for one in latest}.values())
        length = sum(len(one.works) for one in lanes)
        follows = small and lanes and all(one.small for one in lanes)
        follows = follows and not any(one.by_rows for one in lanes)
        # Without hurry, one after the other would only make a launch longer.
        may = haste is Haste.NOW or last + 1 >= len(self.launches)
        may = may and length < LONGEST_LANE
        if may and by_rows and self._goes_on(work.kernel, lanes):
            lane = lanes[0]
            lane.works.append(work)
        elif may and follows:
            lane = self._merged(lanes)
            lane.works.append(work)
            lane.rows = 0
        else:
            large = isinstance(work.kernel, Loop) and _places(work.kernel) >= LARGE
            waits = large or (haste is not Haste.NOW and not small)
            launch = self._quiet(last + 1) if waits else last + 1
            if launch == len(self.launches) and haste is not Haste.NOW:
                launch = last + 1  # rather in bad company than last and alone
            lane = self._new_lane(work, small, launch)
            lane.haste = haste
            lane.rows = rows_of(work.kernel) if by_rows else 0
        self._lane_of[id(work)] = lane

    def _scatters(self, kernel: Kernel, needs: list[Work]) -> bool:
        """Tell whether a kernel writes here and there, and has a launch to do it in."""
        last = max(map(self._launch_of, needs), default=-1)
        return (
            isinstance(kernel, Loop)
            and not all(is_flat(view, kernel.outer) for _, view in kernel.stored)
            and last + 1 < len(self.launches)
        )

    def _goes_on(self, kernel: Kernel, lanes: list[Lane]) -> bool:
        """Tell whether a kernel goes on with the only lane it needs, row by row."""
        if len(lanes) != 1 or not lanes[0].rows or lanes[0].rows != rows_of(kernel):
            return False
        return row_by_row(lanes[0].kernels, kernel)

    def _quiet(self, launch: int) -> int:
        """Return the next launch without products.

        Their shared memory would leave others few blocks at a time.
        """
        while launch < len(self.launches) and self._multiplies(launch):
            launch += 1
        return launch

    def _multiplies(self, launch: int) -> bool:
        lanes = self.launches[launch].lanes
        return any(isinstance(one.works[0].kernel, Contract) for one in lanes)

    def _merged(self, lanes: list[Lane]) -> Lane:
        first, *others = lanes
        launch = self.launches[first.launch]
        for one in others:
            first.works += one.works
            launch.lanes.remove(one)
            for work in one.works:
                self._lane_of[id(work)] = first
        return first

    def _new_lane(self, work: Work, small: bool, launch: int) -> Lane:
        while len(self.launches) <= launch:
            self.launches.append(Launch())
        lane = Lane([work], small, launch)
        self.launches[launch].lanes.append(lane)
        return lane


def _reads_from(kernel: Kernel, work: Work) -> bool:
    made = {root(b) for one in work.kernels for b in one.writes()}
    return any(root(b) in made for b in kernel.reads())


def _tallied(kernel: Loop, host: Work) -> bool:
    """Let a host add up what it computes, or go on with what it added up."""
    if tallies(host, kernel):
        host.tallies.append(Work(kernel, dropped=host.dropped))
        return True
    if is_map(host.kernel):
        return False  # its sums are of some rows each, and only stored
    reads, writes = (
        {root(b) for b in side} for side in (kernel.reads(), kernel.writes())
    )
    for tally in host.tallies:
        # Blocks of other columns may still be at work.
        still = host.writes() - tally.writes()
        apart = not (reads & still or writes & host.reads())
        goes_on = apart and _reads_from(kernel, tally)
        if goes_on and takes(tally, kernel, MOST_STORED):
            tally.guests.append(kernel)
            return True
    return False


def schedule(
    kernels: Sequence[Kernel],
    aside: Sequence[Kernel] = (),
    drops: bool = True,
    kept: Collection[Root] = (),
) -> list[Launch]:
    """Return the launches of a step, in order; what nobody reads may be dropped.

    Kernels `aside` find their places where they do not disturb. Arrays that are `kept`
    have elements from before the step: zeros around images, for one.
    """
    scheduler = Scheduler()
    now, later = _by_haste(kernels)
    later = in_rows(later, kernels)
    for kernel in now:
        scheduler.add(kernel, Haste.NOW)
    for kernel in later:
        scheduler.add(kernel, Haste.LATER)
    for kernel in aside:
        scheduler.add(kernel, Haste.ASIDE)
    if drops:
        _drop_unread(scheduler.launches)
        _keep_rows(scheduler.launches, kept)
    return scheduler.launches


def without(launches: Sequence[Launch], kernels: Iterable[Kernel]) -> list[Launch]:
    """Return launches without some kernels; others are as they were, to the bit.

    How work is cut depends on what runs beside it, and so would the order of sums; but
    where a run ends must not matter for what its last step computes.
    """
    gone = {id(one) for one in kernels}
    made = []
    for launch in launches:
        if any(id(one) in gone for lane in launch.lanes for one in lane.kernels):
            lanes = [_lane_without(one, gone) for one in launch.lanes]
            made.append(Launch([one for one in lanes if one.works]))
        else:
            made.append(launch)
    return [one for one in made if one.lanes]


def _lane_without(lane: Lane, gone: set[int]) -> Lane:
    left = [one for one in lane.works if id(one.kernel) not in gone]
    return replace(lane, works=[_work_without(one, gone) for one in left], like=lane)


def _work_without(work: Work, gone: set[int]) -> Work:
    guests = [one for one in work.guests if id(one) not in gone]
    tallied = [one for one in work.tallies if id(one.kernel) not in gone]
    tallied = [_work_without(one, gone) for one in tallied]
    return replace(work, guests=guests, tallies=tallied)


def _by_haste(kernels: Sequence[Kernel]) -> tuple[list[Kernel], list[Kernel]]:
    """Tell kernels that products wait for from those that can come after all of them.

    The latter do not touch what the former touch after them.
    """
    now: list[Kernel] = []
    later: list[Kernel] = []
    read: set[Root] = set()  # by those that come after
    written: set[Root] = set()
    for kernel in reversed(kernels):
        reads = {root(b) for b in kernel.reads()}
        writes = {root(b) for b in kernel.writes()}
        if not isinstance(kernel, Contract) and not (
            writes & read or (reads | writes) & written
        ):
            later.append(kernel)
            continue
        now.append(kernel)
        read |= reads
        written |= writes
    return now[::-1], later[::-1]


def works_of(launches: Iterable[Launch]) -> Iterable[tuple[int, Work]]:
    """Yield every piece of work with the number of its launch."""
    for number, launch in enumerate(launches):
        for lane in launch.lanes:
            for work in lane.works:
                yield number, work


def _drop_unread(launches: list[Launch]) -> None:
    """Do not store what only guests of the same work read."""
    readers: dict[Root, set[int]] = defaultdict(set)
    for _, work in works_of(launches):
        for one in {root(b) for k in work.kernels for b in k.reads()}:
            readers[one].add(id(work))
    for _, work in works_of(launches):
        for kernel in work.kernels:
            for one in {root(b) for b in kernel.writes() if b.kind == "arena"}:
                if not readers[one] - {id(work)} and is_host(work.kernel):
                    work.dropped.add(one)


def _keep_rows(launches: list[Launch], kept: Collection[Root]) -> None:
    """Find the arrays that a lane makes and goes on with, row by row: few bytes each.

    Those that nobody else knows are private, and need no place in memory; others are
    shown to all. Of each, the elements of a row are known.
    """
    users: dict[Root, set[int]] = defaultdict(set)
    writers: dict[Root, set[int]] = defaultdict(set)
    lanes = [lane for launch in launches for lane in launch.lanes]
    for lane in lanes:
        for work in lane.works:
            for one in (work.reads() | work.writes()) - work.dropped:
                users[one].add(id(lane))
            for one in work.writes():
                writers[one].add(id(lane))
    for lane in (one for one in lanes if one.by_rows):
        sizes = row_sizes(lane.kernels)
        arena = {one: sizes[one] for one in sizes if one[0] == "arena"}
        whole = whole_rows(lane.kernels)
        for one, size in arena.items():
            if users[one] == {id(lane)} and one not in kept:
                lane.private[one] = size
            elif one in whole and writers[one] == {id(lane)} and lane.goes_on(one):
                lane.shown[one] = size


# ---- memory ------------------------------------------------------------------------


def place(launches: Sequence[Launch], kept: set[Root]) -> tuple[dict[Root, int], int]:
    """Give each temporary buffer a place for as long as it lives; return the size."""
    lives: dict[Root, tuple[int, int]] = {}
    sizes: dict[Root, int] = {}
    lanes = [lane for launch in launches for lane in launch.lanes]
    private = {one for lane in lanes for one in lane.private}
    for number, work in works_of(launches):
        for one in _temporary(work.buffers()):
            if root(one) in kept | private | work.dropped:
                continue
            first, _ = lives.get(root(one), (number, number))
            lives[root(one)] = (first, number)
            sizes[root(one)] = rounded(one.nbytes, ALIGNMENT)
    return packed(lives, sizes)


def _temporary(buffers: Iterable[Buffer]) -> Iterable[Buffer]:
    return (one for one in buffers if one.kind == "arena")
