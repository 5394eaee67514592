"""Stretches of memory, kept such that a question about one asks few of the others."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable

Span = tuple[Hashable, int, int]  # what memory, from where, to where


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
