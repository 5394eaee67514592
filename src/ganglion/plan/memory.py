"""Memory: every temporary buffer gets a place in one arena for as long as it lives."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

from ganglion.plan.kernel import Buffer
from ganglion.plan.plan import Plan

T = TypeVar("T", bound=Hashable)
ALIGNMENT = 64  # bytes: a cache line, and the widest vector
Lives = dict[Buffer, tuple[int, int]]


def lifetimes(plan: Plan, aliases: dict[Buffer, Buffer]) -> Lives:
    """Return the first and the last run that touches each temporary buffer."""
    lives: Lives = {}
    for number, run in enumerate(plan.runs()):
        for kernel in plan.kernels[run.start : run.stop]:
            for one in (*kernel.reads(), *kernel.writes()):
                root = aliases.get(one, one)
                if root.kind == "arena":
                    first, _ = lives.get(root, (number, number))
                    lives[root] = (first, number)
    return lives


def place(plan: Plan, aliases: dict[Buffer, Buffer]) -> Plan:
    """Give each buffer the lowest place that is free while it lives, largest first."""
    lives = lifetimes(plan, aliases)
    sizes = {one: rounded(one.nbytes, ALIGNMENT) for one in lives}
    offsets, end = packed(lives, sizes)
    every = dict(offsets)
    every.update({a: offsets[r] for a, r in aliases.items() if r in offsets})
    return plan.with_memory(every, end)


def packed(
    lives: Mapping[T, tuple[int, int]], sizes: Mapping[T, int]
) -> tuple[dict[T, int], int]:
    """Return where things go that share memory when they do not live together.

    The largest come first; the second result is how much memory that takes.

    >>> packed({"a": (0, 1), "b": (1, 2), "c": (2, 3)}, {"a": 8, "b": 4, "c": 8})
    ({'a': 0, 'c': 0, 'b': 8}, 12)
    """
    offsets: dict[T, int] = {}
    end = 0
    for one in sorted(lives, key=lambda one: (-sizes[one], lives[one])):
        taken = sorted(
            (offsets[other], offsets[other] + sizes[other])
            for other in offsets
            if _overlap(lives[one], lives[other])
        )
        offsets[one] = _first_gap(taken, sizes[one])
        end = max(end, offsets[one] + sizes[one])
    return offsets, end


def rounded(size: int, unit: int) -> int:
    """Return a size in whole units, at least one."""
    return -(-max(size, 1) // unit) * unit


def _overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] <= b[1] and b[0] <= a[1]


def _first_gap(taken: list[tuple[int, int]], size: int) -> int:
    at = 0
    for start, stop in taken:
        if start - at >= size:
            break
        at = max(at, stop)
    return at
