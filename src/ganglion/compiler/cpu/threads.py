"""The thread pool that runs compiled programs: started once, asleep between runs.

Each thread runs `step_loop.ll`, the native loop over steps, on a tape of its own. A
waiting thread spins for a moment, then sleeps, so that it does not take a core from
other work for long.

Threads may be pinned to cores, each of which a single process claims by binding an
abstract Unix socket: the kernel grants a name to one process on the machine, regardless
of its user, and releases it when the process ends. Without such sockets, every claim is
granted.
"""

from __future__ import annotations

import atexit
import errno
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from ganglion import config
from ganglion.compiler.cpu import jit, tuning
from ganglion.compiler.cpu.plan import aligned

CORE_NAME = "\0ganglion-core-{}"  # the leading zero makes it an abstract name
# Cache lines of a pool: of the barrier, its root, round, sleepers, and a counter for
# each group of threads (see `step_loop.ll`); then the mailbox of each helper.
_LINE, BARRIER_LINES, GROUP = 64, 3, 4


def usable_cores() -> list[int]:
    """Return the numbers of the cores that this thread may run on, [] if unknown.

    The first hardware thread of each physical core comes before the second ones.
    """
    if not hasattr(os, "sched_getaffinity"):
        return []
    return in_order(sorted(os.sched_getaffinity(0)), _siblings)


def in_order(cores: Sequence[int], siblings: Callable[[int], str]) -> list[int]:
    """Return cores in an order that keeps siblings of a physical core far apart.

    >>> in_order(range(8), lambda core: f"{core // 2}")  # 0 and 1 are one core
    [0, 2, 4, 6, 1, 3, 5, 7]
    """
    seen: Counter[str] = Counter()
    rank = {}
    for core in cores:
        shared_with = siblings(core)
        rank[core] = seen[shared_with]
        seen[shared_with] += 1
    return sorted(cores, key=lambda core: (rank[core], core))


@cache
def _siblings(core: int) -> str:
    """Return a name of the physical core that a hardware thread belongs to."""
    path = f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:  # no Linux, or a container that hides it
        return str(core)


class Claim:
    """Cores that no other process of Ganglion has claimed; all or none.

    Args:
        count: The number of cores to claim.
        among: The cores to choose from.
    """

    def __init__(self, count: int, among: Sequence[int]) -> None:
        self.cores: list[int] = []
        self._sockets: list[Any] = []
        for core in among:
            if len(self.cores) < count and self._take(core):
                self.cores.append(core)
        if len(self.cores) < count:
            self.release()

    def _take(self, core: int) -> bool:
        """Claim a core; return False if another process has claimed it."""
        if sys.platform != "linux":
            return True
        import socket  # 5 ms, which a run on one thread need not wait for

        try:
            name = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        except OSError:  # a sandbox, or too many files
            return True
        try:
            name.bind(CORE_NAME.format(core))
        except OSError as error:
            name.close()
            return error.errno != errno.EADDRINUSE
        self._sockets.append(name)
        return True

    def release(self) -> None:
        """Release the cores."""
        for name in self._sockets:
            name.close()
        self.cores, self._sockets = [], []


def crowded(threads: int) -> bool:
    """Return whether threads would wait for cores, because of their number or load."""
    cores = config.usable_cores()
    load = config.load_average() or 0.0
    return threads > cores or load >= tuning.CPU.crowded_load * cores


def pins(threads: int) -> bool:
    """Return whether to pin threads to cores.

    Not on a crowded machine, where a pinned thread would wait for its core while
    another core is idle.
    """
    can_pin = hasattr(os, "sched_setaffinity")
    return can_pin and config.pin_threads() and not crowded(threads)


def _spins(threads: int) -> int:
    return tuning.CPU.spins_crowded if crowded(threads) else tuning.CPU.spins


class Pool:
    """Helper threads, which run jobs together with the calling thread."""

    def __init__(self, threads: int) -> None:
        self.threads, self.spins = threads, _spins(threads)
        self.wants_cores = pins(threads)
        # Processes pinned to the same cores would wait for each other while others are
        # idle: the second one claims others, or leaves placement to the system.
        self.claim = Claim(threads if self.wants_cores else 0, usable_cores())
        self.cores = self.claim.cores
        self.claimed_at = self.used_at = time.monotonic()
        groups = -(-threads // GROUP)
        self._memory = aligned(_LINE * (BARRIER_LINES + groups + threads))
        self.barrier = int(self._memory.ctypes.data)
        self._mailboxes = self.barrier + _LINE * (BARRIER_LINES + groups)
        self._helpers = [
            threading.Thread(
                target=self._help, args=(n,), daemon=True, name=f"ganglion-{n}"
            )
            for n in range(1, threads)
        ]
        self._closed = threading.Event()
        self._idler = threading.Thread(target=self._close_when_idle, daemon=True)
        for helper in (*self._helpers, self._idler):
            helper.start()

    def _help(self, number: int) -> None:
        if self.cores:
            os.sched_setaffinity(0, {self.cores[number]})
        # Stays in native code, without the GIL, until the pool is closed.
        mailbox = self._mailboxes + _LINE * (number - 1)
        jit.native().serve(mailbox, number, self.spins)

    def run(self, job: int, threads: int) -> None:
        """Run a job on some of the threads, of which the calling one is the first."""
        with self._pinned():
            jit.native().lead(self._mailboxes, job, threads - 1)

    @contextmanager
    def _pinned(self) -> Iterator[None]:
        """Pin the calling thread to its core for the duration of a job."""
        if not self.cores:
            yield
            return
        before = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {self.cores[0]})
        try:
            yield
        finally:
            os.sched_setaffinity(0, before)

    def fits(self, threads: int) -> bool:
        """Return whether the pool is as good as a new one for so many threads."""
        size = _pool_size(threads)
        if (self.threads, self.spins) != (size, _spins(size)):
            return False
        if self.wants_cores != pins(size):
            return False
        waited = time.monotonic() - self.claimed_at
        may_claim = self.wants_cores and waited > tuning.CPU.claim_cores_again
        return bool(self.cores) or not may_claim

    def close(self) -> None:
        """End the helpers, and release the cores."""
        jit.native().lead(self._mailboxes, None, len(self._helpers))
        self._closed.set()
        for helper in (*self._helpers, self._idler):
            if helper is not threading.current_thread():
                helper.join()
        self.claim.release()

    def _close_when_idle(self) -> None:
        """Close the pool when it has not been used for a while."""
        while not self._closed.wait(tuning.CPU.idle_pool):
            if time.monotonic() - self.used_at >= tuning.CPU.idle_pool:
                close_pool(self)


def _pool_size(threads: int) -> int:
    """Return the size of a pool, which serves programs with fewer threads, too."""
    return max(threads, config.threads())


_lock = threading.Lock()
_pool: Pool | None = None


@contextmanager
def shared(threads: int) -> Iterator[Pool | None]:
    """Acquire the pool of the process; None if another Python thread is using it."""
    global _pool
    if not _lock.acquire(blocking=False):
        yield None
        return
    try:
        if _pool is None or not _pool.fits(threads):
            old, _pool = _pool, None  # an interrupt must not leave a closed pool
            if old is not None:
                old.close()
            _pool = Pool(_pool_size(threads))
        yield _pool
    finally:
        if _pool is not None:
            _pool.used_at = time.monotonic()
        _lock.release()


@atexit.register  # the helpers must end before their code is freed
def close_pool(only: Pool | None = None) -> None:
    """Close the pool, or only a certain pool, unless it is in use."""
    global _pool
    if not _lock.acquire(blocking=False):
        return
    try:
        if _pool is not None and only in (None, _pool):
            _pool.close()
            _pool = None
    finally:
        _lock.release()


def _forget_pool() -> None:
    """Forget the pool in a forked process, which has no threads of its parent."""
    global _pool, _lock
    if _pool is not None:
        _pool.claim.release()  # the parent still holds them
    _pool, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)
