"""How many threads pay on this machine.

What waiting for each other costs them is measured once, by the first program that may
be worth several threads, and kept: estimates are made of that. Programs that run for a
while try the numbers next to the estimated one on their own first steps. No bit of a
result depends on any of this.
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
# Beyond, threads had to wait for cores that others used: such a figure is not kept.
MOST = 20_000.0


def counts(most: int) -> list[int]:
    """Return the numbers of threads that a program may run on, at most so many.

    >>> counts(1), counts(2), counts(16), counts(12)
    ([1], [1, 2], [1, 2, 4, 8, 16], [1, 2, 4, 8, 12])
    """
    powers = [1 << n for n in range(most.bit_length())]
    return powers if powers[-1] == most else [*powers, most]


def barrier(count: int) -> float:
    """Return the nanoseconds that a barrier of some threads takes, two at least.

    On a crowded machine who waits must sleep, and be woken.
    """
    if threads.crowded(count):
        return tuning.CPU.crowded_barrier
    guess = tuning.CPU.barrier * math.log2(count)
    return max(tuning.CPU.barrier, barriers(config.threads()).get(count, guess))


class Trials:
    """Finds the number of threads that steps take least time on, by running them.

    The number that is fastest by estimate comes first, then its neighbours, as long as
    one of them is faster and not hopeless by estimate.

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
        """The number to use, by what is known; more threads must be worth it."""
        if self._best is None:
            self._best = self._fastest()
        return self._best

    def _fastest(self) -> int:
        known = {n: float(np.median(times)) for n, times in self.times.items()}
        pays = tuning.CPU.more_threads if known else tuning.CPU.shared_time
        known = known or dict(self.estimates)
        best, least = 0, math.inf
        for count, nanoseconds in sorted(known.items()):
            if nanoseconds < least * pays:
                pays = tuning.CPU.more_threads if best else pays
                best, least = count, nanoseconds
        return best

    def next(self) -> int | None:
        """Return a number to try, None if there is no more.

        One thread is always worth a try for a step that takes it no longer than
        fetching what others have computed may take them.
        """
        counts, best = sorted(self.estimates), self.best
        at = counts.index(best)
        beside = (*counts[max(at - 1, 0) : at], *counts[at + 1 : at + 2])
        limit = tuning.CPU.hopeless * self.estimates[best]
        alone = [1] if self.estimates[1] <= tuning.CPU.doubtful else []
        hopeful = [count for count in beside if self.estimates[count] <= limit]
        for count in (best, *hopeful, *alone):
            if len(self.times.get(count, ())) < tuning.CPU.trials:
                return count
        return None

    def add(self, count: int, nanoseconds: float) -> None:
        """Note what a step took on a number of threads."""
        self.times.setdefault(count, []).append(nanoseconds)
        self._best = None
        if self.next() is None:
            self.decided_at = time.monotonic()

    @property
    def is_decided(self) -> bool:
        """Whether nothing is to be tried, since not long ago everything was."""
        if not self.decided_at:
            return False
        if time.monotonic() - self.decided_at < tuning.CPU.try_again:
            return True
        # Other work may have come, or gone.
        self.times, self.decided_at, self._best = {}, 0.0, None
        return False


@cache
def barriers(most: int) -> dict[int, float]:
    """Return the nanoseconds of a barrier by the number of threads.

    Empty where that cannot be measured now: on a crowded machine, or while another
    thread of Python uses the pool.
    """
    wanted = counts(most)[1:]
    kept = _kept()
    if all(count in kept for count in wanted):
        return kept
    if threads.crowded(most):
        return {}
    with threads.shared(most) as pool:
        if pool is None:
            return {}
        figures = {count: _measured(pool, count) for count in wanted}
    figures = {count: time for count, time in figures.items() if time < MOST}
    _keep(kept | figures)
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


# ---- kept on disk --------------------------------------------------------------------


def _path() -> Path:
    return config.home() / "machine.json"


def _identity() -> str:
    """Return what the figures belong to: a home may be shared by many machines."""
    return f"{jit.host().cpu}, {len(threads.usable_cores()) or os.cpu_count()} cores"


def _kept() -> dict[int, float]:
    try:
        known = json.loads(files.read_file(_path()))[_identity()]
        return {int(count): float(time) for count, time in known.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}  # not measured yet, or a damaged file: it is measured again


def _keep(figures: dict[int, float]) -> None:
    try:
        everything = json.loads(files.read_file(_path()))
    except (OSError, ValueError):
        everything = {}
    if not isinstance(everything, dict):
        everything = {}
    everything[_identity()] = {str(n): round(time) for n, time in figures.items()}
    try:
        config.home().mkdir(parents=True, exist_ok=True)
        files.write_file(_path(), json.dumps(everything).encode(), durable=False)
    except (OSError, files.NotAFileError):
        pass  # a home that cannot be written is no error
