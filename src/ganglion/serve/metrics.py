"""Counters of the server in the text format of Prometheus."""

from __future__ import annotations

import os
import sys
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Histogram:
    """Counts values up to each of some limits.

    >>> histogram = Histogram("rows", "Rows a batch.", (1, 4))
    >>> for value in (1, 3, 9):
    ...     histogram.add(value)
    >>> print(*list(histogram.lines())[2:], sep=", ")
    rows_bucket{le="1"} 1, rows_bucket{le="4"} 2, rows_bucket{le="+Inf"} 3, ...
    """

    def __init__(self, name: str, about: str, limits: Sequence[float]) -> None:
        self.name, self._about, self._limits = name, about, limits
        self._counts = [0] * (len(limits) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._limits, value)] += 1
        self._sum += value

    def lines(self) -> Iterator[str]:
        """Yield the histogram in the text form."""
        yield from _head(self.name, self._about, "histogram")
        total = 0
        names = [*map(str, self._limits), "+Inf"]
        for name, count in zip(names, self._counts, strict=True):
            total += count
            yield f'{self.name}_bucket{{le="{name}"}} {total}'
        yield f"{self.name}_sum {self._sum:.9g}"
        yield f"{self.name}_count {total}"


class Metrics:
    """Counters of a server."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()  # by path and status
        self.in_progress = 0
        self.latency = Histogram(
            "ganglion_request_seconds", "Time to the answer of /predict.", SECONDS
        )
        self.batches = Histogram(
            "ganglion_batch_rows", "Rows of requests computed together.", ROWS
        )

    def text(self, rows_waiting: int) -> str:
        """Return everything in the text form."""
        return "\n".join([*self._lines(rows_waiting), ""])

    def _lines(self, rows_waiting: int) -> Iterator[str]:
        name = "ganglion_requests_total"
        yield from _head(name, "Answered requests.", "counter")
        for (path, status), count in sorted(self.requests.items()):
            yield f'{name}{{path="{path}",status="{status}"}} {count}'
        gauges = {
            "ganglion_requests_in_progress": ("Requests now.", self.in_progress),
            "ganglion_rows_waiting": ("Rows not computed yet.", rows_waiting),
            "process_resident_memory_bytes": ("Memory in use.", _resident_bytes()),
        }
        for name, (about, value) in gauges.items():
            yield from _head(name, about, "gauge")
            yield f"{name} {value}"
        yield from self.latency.lines()
        yield from self.batches.lines()


def _head(name: str, about: str, kind: str) -> Iterator[str]:
    yield f"# HELP {name} {about}"
    yield f"# TYPE {name} {kind}"


def _resident_bytes() -> int:
    """Return the memory in use; its peak on macOS, 0 where neither is known."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        if sys.platform == "win32":
            return 0
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else 1024 * peak
