"""Memory: every temporary buffer gets a place in one arena for as long as it lives."""

from __future__ import annotations

from ganglion.plan.kernel import Buffer, Plan

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
    offsets: dict[Buffer, int] = {}
    end = 0
    for buffer in sorted(lives, key=lambda one: -one.nbytes):
        taken = sorted(
            (offsets[other], offsets[other] + _rounded(other.nbytes))
            for other in offsets
            if _overlap(lives[buffer], lives[other])
        )
        offsets[buffer] = _first_gap(taken, _rounded(buffer.nbytes))
        end = max(end, offsets[buffer] + _rounded(buffer.nbytes))
    every = dict(offsets)
    every.update({a: offsets[r] for a, r in aliases.items() if r in offsets})
    return plan.with_memory(every, end)


def _rounded(size: int) -> int:
    return -(-max(size, 1) // ALIGNMENT) * ALIGNMENT


def _overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] <= b[1] and b[0] <= a[1]


def _first_gap(taken: list[tuple[int, int]], size: int) -> int:
    at = 0
    for start, stop in taken:
        if start - at >= size:
            break
        at = max(at, stop)
    return at
