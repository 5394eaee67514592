"""A plan: kernels in order, their buffers, what must hold of both, shared memory."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from ganglion.compiler.plan.kernels import Buffer, Kernel, Load, Loop, View, walk


@dataclass(frozen=True)
class Plan:
    """Kernels in order, and the buffers they work on; targets add what they need."""

    name: str
    kernels: tuple[Kernel, ...]
    data: dict[str, Buffer]
    state: dict[str, Buffer]
    results: dict[str, Buffer]

    def temporary_arrays(self) -> dict[Buffer, np.ndarray]:
        """Return memory for what is computed within a step: flat arrays."""
        touched = {b.root for kernel in self.kernels for b in kernel.writes()}
        return {b: np.zeros(b.size, b.dtype) for b in touched if b.kind == "arena"}

    def __str__(self) -> str:
        from ganglion.compiler.plan.printer import show

        return show(self)


# ---- what must hold of every plan ----------------------------------------------------


class PlanError(Exception):
    """A plan that breaks its own rules: a bug in Ganglion, not in the model."""


def verify(plan: Plan) -> Plan:
    """Return the plan if it is well formed, else raise `PlanError`."""
    written: set[Buffer] = set()
    for number, kernel in enumerate(plan.kernels):
        for buffer in kernel.reads():
            root = buffer.root
            if root.kind == "arena" and root not in written:
                text = f"kernel {number} reads {buffer!r} too early"
                raise PlanError(f"{plan.name}: {text}")
        for buffer in kernel.writes():
            if buffer.kind in ("data", "constant"):
                raise PlanError(f"{plan.name}: kernel {number} writes {buffer!r}")
            written.add(buffer.root)
        if isinstance(kernel, Loop):
            _verify_loop(plan, number, kernel)
    return plan


def _verify_loop(plan: Plan, number: int, kernel: Loop) -> None:
    for expr in walk(*kernel.exprs):
        if isinstance(expr, Load):
            _inside(plan, number, expr.view, kernel.shape)
    for _, view in kernel.outputs:
        _inside(plan, number, view, kernel.outer)


def _inside(plan: Plan, number: int, view: View, shape: tuple[int, ...]) -> None:
    if len(view.strides) != len(shape):
        raise PlanError(f"{plan.name}: kernel {number} has other axes than {view}")
    low = high = view.offset
    for size, stride in zip(shape, view.strides, strict=True):
        if size == 0:
            return
        low += min(stride * (size - 1), 0)
        high += max(stride * (size - 1), 0)
    if low < 0 or high >= max(view.buffer.size, 1):
        raise PlanError(
            f"{plan.name}: kernel {number} leaves {view.buffer!r}: [{low}, {high}]"
        )


# ---- memory that is shared by what does not live together ----------------------------
T = TypeVar("T", bound=Hashable)
Span = tuple[Hashable, int, int]  # what memory, from where, to where


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
    for key in sorted(lives, key=lambda key: (-sizes[key], lives[key])):
        offsets[key] = taken.add(lives[key], sizes[key])
    return offsets, taken.end


class _Taken:
    """Stretches that are taken, each for a time, in the order of their offsets.

    A deep network keeps thousands of arrays at once: they are looked through by NumPy.
    """

    def __init__(self, most: int) -> None:
        # Rows: offset, end, first and last time.
        self._taken = np.empty((4, most), np.int64)
        self._count = 0
        self.end = 0

    def add(self, life: tuple[int, int], size: int) -> int:
        """Take the lowest stretch that is free all the time; return its offset."""
        starts, ends, first, last = self._taken[:, : self._count]
        beside = (first <= life[1]) & (life[0] <= last)
        at = _first_gap(starts[beside], ends[beside], size)
        where = int(np.searchsorted(starts, at))
        self._taken[:, where + 1 : self._count + 1] = self._taken[
            :, where : self._count
        ]
        self._taken[:, where] = at, at + size, *life
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


class Spans:
    """The memory that some spans cover together.

    >>> covered = Spans()
    >>> covered.add([("arena", 0, 8), ("arena", 16, 24), ("arena", 8, 12)])
    >>> covered.meets([("arena", 12, 16)]), covered.meets([("arena", 23, 40)])
    (False, True)
    """

    def __init__(self) -> None:
        # Of each memory, where its covered stretches start and stop: apart, in order.
        self._stretches: dict[Hashable, tuple[list[int], list[int]]] = {}

    def add(self, spans: Iterable[Span]) -> None:
        """Cover more."""
        for memory, start, stop in spans:
            starts, stops = self._stretches.setdefault(memory, ([], []))
            first, last = bisect_left(stops, start), bisect_right(starts, stop)
            if first < last:  # those that it touches become one with it
                start = min(start, starts[first])
                stop = max(stop, stops[last - 1])
            starts[first:last], stops[first:last] = [start], [stop]

    def meets(self, spans: Iterable[Span]) -> bool:
        """Return whether any of some spans is covered, were it in part."""
        for memory, start, stop in spans:
            starts, stops = self._stretches.get(memory, ((), ()))
            at = bisect_right(stops, start)
            if at < len(starts) and starts[at] < stop:
                return True
        return False
