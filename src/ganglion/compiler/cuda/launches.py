"""What a step launches: lanes of work, side by side.

In a lane, kernels run one after the other. A lane of one kernel may have many blocks;
one of several small kernels has one block, which only has to wait for itself between
them, or some blocks with rows of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from ganglion.compiler.cuda.epilogue import Root, Work
from ganglion.compiler.plan.kernels import Kernel


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
    private: dict[Root, int] = field(default_factory=dict)  # see `cuda_keep.keep_rows`
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
        """Return whether another piece of work reads what one of them makes."""
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


def works_of(launches: Iterable[Launch]) -> Iterable[tuple[int, Work]]:
    """Yield every piece of work with the number of its launch."""
    for number, launch in enumerate(launches):
        for lane in launch.lanes:
            for work in lane.works:
                yield number, work


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
