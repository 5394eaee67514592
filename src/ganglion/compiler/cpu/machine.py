"""What waiting for each other costs the threads of this machine.

Measured once, by the first program that may be worth several threads, and kept. The
figures decide on how many threads a program runs; no bit of a result depends on them.
"""

from __future__ import annotations

import json
import math
import os
import time
from functools import cache
from pathlib import Path

import numpy as np

from ganglion import config, files
from ganglion.compiler.cpu import jit, threads, tuning

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
    words = [BARRIERS, count, pool.barrier, pool.spins]
    words += [int(tape.ctypes.data), 1, 0, 0] * count
    job = np.array(words, np.int64)
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
