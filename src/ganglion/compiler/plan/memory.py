"""Memory: every temporary buffer gets a place in one arena for as long as it lives."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

import numpy as np

from ganglion.compiler.plan.kernels import Buffer
from ganglion.compiler.plan.plan import Plan

T = TypeVar("T", bound=Hashable)
ALIGNMENT = 64  # bytes: a cache line, and the widest vector
Lives = dict[Buffer, tuple[int, int]]


def lifetimes(plan: Plan) -> Lives:
    """Return the first and the last run that touches each temporary buffer."""
    lives: Lives = {}
    for number, run in enumerate(plan.runs()):
        for kernel in plan.kernels[run.start : run.stop]:
            for one in (*kernel.reads(), *kernel.writes()):
                root = one.root
                if root.kind == "arena":
                    first, _ = lives.get(root, (number, number))
                    lives[root] = (first, number)
    return lives


def place(plan: Plan) -> Plan:
    """Give each buffer the lowest place that is free while it lives, largest first."""
    lives = lifetimes(plan)
    sizes = {one: rounded(one.nbytes, ALIGNMENT) for one in lives}
    offsets, end = packed(lives, sizes)
    return plan.with_memory(offsets, end)


def packed(
    lives: Mapping[T, tuple[int, int]], sizes: Mapping[T, int]
) -> tuple[dict[T, int], int]:
    """Return where things go that share memory when they do not live together.

    The largest come first; the second result is how much memory that takes.

    >>> packed({"a": (0, 1), "b": (1, 2), "c": (2, 3)}, {"a": 8, "b": 4, "c": 8})
    ({'a': 0, 'c': 0, 'b': 8}, 12)
    """
    offsets: dict[T, int] = {}
    taken = _Taken(len(lives))
    for one in sorted(lives, key=lambda one: (-sizes[one], lives[one])):
        offsets[one] = taken.add(lives[one], sizes[one])
    return offsets, taken.end


class _Taken:
    """Places that are taken, each for a time, in the order of their offsets.

    A deep network keeps thousands of arrays at once: they are looked through by NumPy.
    """

    def __init__(self, most: int) -> None:
        # Rows: offset, end, first and last time.
        self._places = np.empty((4, most), np.int64)
        self._count = 0
        self.end = 0

    def add(self, life: tuple[int, int], size: int) -> int:
        """Take the lowest place that is free all the time; return its offset."""
        starts, ends, first, last = self._places[:, : self._count]
        beside = (first <= life[1]) & (life[0] <= last)
        at = _first_gap(starts[beside], ends[beside], size)
        where = int(np.searchsorted(starts, at))
        self._places[:, where + 1 : self._count + 1] = self._places[
            :, where : self._count
        ]
        self._places[:, where] = at, at + size, *life
        self._count += 1
        self.end = max(self.end, at + size)
        return at


def _first_gap(starts: np.ndarray, ends: np.ndarray, size: int) -> int:
    """Return the lowest offset from which on so much is free; starts are in order."""
    free = np.maximum.accumulate(np.concatenate(([0], ends)))
    fits = np.flatnonzero(starts - free[:-1] >= size)
    return int(free[fits[0]] if len(fits) else free[-1])


def rounded(size: int, unit: int) -> int:
    """Return a size in whole units, at least one."""
    return -(-max(size, 1) // unit) * unit
