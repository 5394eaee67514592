"""Choosing the number of threads on this machine.

The cost of a barrier is measured once, by the first program for which several threads
may pay, and cached on disk: estimates are based on it. Programs that run for a while
also try neighbouring numbers of threads on their first steps. Results do not depend on
the number of threads.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np

from ganglion import config, files
from ganglion.compiler.cpu import jit, threads, tuning
from ganglion.compiler.cpu.backend import new_job

ROUNDS, BARRIERS = 5, 200  # some hundred microseconds for each number of threads
# Longer barriers had to wait for cores that others used, and are not recorded.
MAX_BARRIER = 20_000.0


def counts(limit: int) -> list[int]:
    """Return the numbers of threads that a program may run on, up to a limit.

    >>> counts(1), counts(2), counts(16), counts(12)
    ([1], [1, 2], [1, 2, 4, 8, 16], [1, 2, 4, 8, 12])
    """
    powers = [1 << n for n in range(limit.bit_length())]
    return powers if powers[-1] == limit else [*powers, limit]


def barrier(count: int) -> float:
    """Return the nanoseconds that a barrier of two or more threads takes.

    On a crowded machine, waiting threads sleep and must be woken.
    """
    if threads.crowded(count):
        return tuning.CPU.crowded_barrier
    guess = tuning.CPU.barrier * math.log2(count)
    return max(tuning.CPU.barrier, barriers(config.threads()).get(count, guess))


class Trials:
    """Finds the number of threads on which steps are fastest, by running them.

    The number with the best estimate is tried first, then its neighbours, as long as
    one is faster and its estimate is not hopeless.

    >>> trials = Trials({1: 100e3, 2: 55e3, 4: 40e3, 8: 38e3})
    >>> really = {1: 100e3, 2: 52e3, 4: 60e3, 8: 90e3}
    >>> tried = []
    >>> while (count := trials.next()) is not None:
    ...     trials.add(count, really[count])
    ...     tried.append(count)
    >>> tried, trials.best
    ([8, 8, 8, 4, 4, 4, 2, 2, 2], 2)
    """

    def __init__(self, estimates: Mapping[int, float]) -> None:
        self.estimates = estimates
        self.times: dict[int, list[float]] = {}
        self.decided_at = 0.0
        self._best: int | None = None

    @property
    def best(self) -> int:
        """The best number of threads so far; more threads must save enough time."""
        if self._best is None:
            self._best = self._fastest()
        return self._best

    def _fastest(self) -> int:
        measured = {n: float(np.median(times)) for n, times in self.times.items()}
        pays = tuning.CPU.more_threads if measured else tuning.CPU.shared_time
        times = measured or dict(self.estimates)
        best, least = 0, math.inf
        for count, nanoseconds in sorted(times.items()):
            if nanoseconds < least * pays:
                pays = tuning.CPU.more_threads if best else pays
                best, least = count, nanoseconds
        return best

    def next(self) -> int | None:
        """Return a number of threads to try, None if no trial is left.

        A single thread is always tried for a small step, whose estimate for several
        threads may ignore the cost of fetching each other's results.
        """
        counts, best = sorted(self.estimates), self.best
        at = counts.index(best)
        neighbours = (*counts[max(at - 1, 0) : at], *counts[at + 1 : at + 2])
        limit = tuning.CPU.hopeless * self.estimates[best]
        single = [1] if self.estimates[1] <= tuning.CPU.doubtful else []
        hopeful = [count for count in neighbours if self.estimates[count] <= limit]
        for count in (best, *hopeful, *single):
            if len(self.times.get(count, ())) < tuning.CPU.trials:
                return count
        return None

    def add(self, count: int, nanoseconds: float) -> None:
        """Record the time of a step on a number of threads."""
        self.times.setdefault(count, []).append(nanoseconds)
        self._best = None
        if self.next() is None:
            self.decided_at = time.monotonic()

    @property
    def is_decided(self) -> bool:
        """Whether trials are complete and recent."""
        if not self.decided_at:
            return False
        if time.monotonic() - self.decided_at < tuning.CPU.try_again:
            return True
        # The load of the machine may have changed.
        self.times, self.decided_at, self._best = {}, 0.0, None
        return False


@cache
def barriers(limit: int) -> dict[int, float]:
    """Return the nanoseconds of a barrier by number of threads.

    Empty if they cannot be measured now: on a crowded machine, or while another Python
    thread uses the pool.
    """
    multiple = counts(limit)[1:]
    recorded = _recorded()
    if all(count in recorded for count in multiple):
        return recorded
    if threads.crowded(limit):
        return {}
    with threads.shared(limit) as pool:
        if pool is None:
            return {}
        figures = {count: _measured(pool, count) for count in multiple}
    figures = {count: time for count, time in figures.items() if time < MAX_BARRIER}
    _record(recorded | figures)
    return figures


def _measured(pool: threads.Pool, count: int) -> float:
    tape = np.array([(0, 0, 0, 0, 1)], np.int64)  # nothing to call, then a barrier
    job = new_job([(tape.ctypes.data, 1, 0, 0)] * count)
    job[0], job[2], job[3] = BARRIERS, pool.barrier, pool.spins
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter_ns()
        pool.run(int(job.ctypes.data), count)
        times.append(time.perf_counter_ns() - start)
    return min(times) / BARRIERS


# ---- the record on disk --------------------------------------------------------------


def _path() -> Path:
    return config.home() / "machine.json"


def _identity() -> str:
    """Return a name of this machine: several may share a home directory."""
    return f"{jit.host().cpu}, {len(threads.usable_cores()) or os.cpu_count()} cores"


def _recorded() -> dict[int, float]:
    try:
        figures = json.loads(files.read_file(_path()))[_identity()]
        return {int(count): float(time) for count, time in figures.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}  # not measured yet, or a damaged file: measure again


def _record(figures: dict[int, float]) -> None:
    try:
        machines = json.loads(files.read_file(_path()))
    except (OSError, ValueError):
        machines = {}
    if not isinstance(machines, dict):
        machines = {}
    machines[_identity()] = {str(n): round(time) for n, time in figures.items()}
    try:
        config.home().mkdir(parents=True, exist_ok=True)
        files.write_file(_path(), json.dumps(machines).encode(), durable=False)
    except (OSError, files.NotAFileError):
        pass  # a read-only home is no error
