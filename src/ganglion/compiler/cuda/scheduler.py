"""Which kernels are launched together."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Sequence

from ganglion.compiler.cuda.allocation import drop_unread, keep_rows
from ganglion.compiler.cuda.elementwise import SMALL
from ganglion.compiler.cuda.epilogue import (
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
from ganglion.compiler.cuda.launches import Haste, Lane, Launch
from ganglion.compiler.cuda.passes.simplify import in_rows
from ganglion.compiler.cuda.row_fusion import row_by_row, rows_of
from ganglion.compiler.cuda.text import root
from ganglion.compiler.plan.kernels import Contract, Kernel, Loop

LONGEST_LANE = 24
LARGE = 1 << 20  # places of a loop that needs a GPU for itself


def is_small(kernel: Kernel) -> bool:
    """Return whether one block is enough for a kernel."""
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
        """Return whether a guest leaves its lane row by row, if it must stay so."""
        lane = self._lane_of[id(host)]
        if lane.rows and not row_by_row(lane.kernels, guest):
            if lane.by_rows:
                return False
            lane.rows = 0
        return True

    def _has_all_rows(self, host: Work) -> bool:
        """Whether blocks of a piece of work have no rows of their own; keep it so.

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
        """Whether a kernel writes here and there, and has a launch to do it in."""
        last = max(map(self._launch_of, needs), default=-1)
        return (
            isinstance(kernel, Loop)
            and not all(is_flat(view, kernel.outer) for _, view in kernel.outputs)
            and last + 1 < len(self.launches)
        )

    def _goes_on(self, kernel: Kernel, lanes: list[Lane]) -> bool:
        """Return whether a kernel goes on with the only lane it needs, row by row."""
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
        drop_unread(scheduler.launches)
        keep_rows(scheduler.launches, kept)
    return scheduler.launches


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
