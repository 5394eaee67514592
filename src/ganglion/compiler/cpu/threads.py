"""The threads that run compiled programs: started once, asleep between runs.

They run `step_loop.ll`, the native loop over steps, each along a tape of its own. A
waiting thread spins for a moment, then sleeps: a busy neighbour, or more threads than
cores, costs no more than it must.

A thread may stay on a core, which belongs to one process at a time, claimed by
binding a Unix socket without a file: the kernel gives its name to one process on the
whole machine, whoever its user is, and takes it back when that process ends, however it
ends. Where there are no such names, every claim is granted.
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

CORE_NAME = "\0ganglion-core-{}"  # a zero at the start: no file
# Cache lines of a pool: of the barrier, its root, round, sleepers, and a counter for
# each group of threads (see `step_loop.ll`); then the mailbox of each helper.
_LINE, BARRIER_LINES, GROUP = 64, 3, 4


def usable_cores() -> list[int]:
    """Return the numbers of the cores this thread may run on, [] where unknown.

    Where several are threads of one physical core, the first of each come first.
    """
    if not hasattr(os, "sched_getaffinity"):
        return []
    return in_order(sorted(os.sched_getaffinity(0)), _siblings)


def in_order(cores: Sequence[int], siblings: Callable[[int], str]) -> list[int]:
    """Return cores so that threads of one physical core are as far apart as can be.

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


@cache  # asked for by every program, and hardware does not change meanwhile
def _siblings(core: int) -> str:
    """Return a name of the physical core that a core is a thread of."""
    path = f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:  # no Linux, or a container that hides it
        return str(core)


class Claim:
    """Cores that no other process of ours runs its threads on; as many as asked, or 0.

    Args:
        count: How many are wanted.
        among: The numbers of those to choose from.
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
        """Claim a core; return whether it is ours, or that cannot be known."""
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
        """Give the cores back."""
        for name in self._sockets:
            name.close()
        self.cores, self._sockets = [], []


def crowded(threads: int) -> bool:
    """Return whether threads will wait for cores: too many of them, or of others."""
    cores = config.usable_cores()
    load = config.load_average() or 0.0
    return threads > cores or load >= tuning.CPU.crowded_load * cores


def pins(threads: int) -> bool:
    """Return whether threads are to stay on a core each.

    Not on a crowded machine, where a thread that may not move would wait for its core
    while another one is free.
    """
    can_pin = hasattr(os, "sched_setaffinity")
    return can_pin and config.pin_threads() and not crowded(threads)


def _spins(threads: int) -> int:
    return tuning.CPU.spins_crowded if crowded(threads) else tuning.CPU.spins


class Pool:
    """Helper threads beside the calling one; a job is shared by all of them."""

    def __init__(self, threads: int) -> None:
        self.threads, self.spins = threads, _spins(threads)
        self.wants_cores = pins(threads)
        # Two processes on the same cores would wait for each other while others are
        # free: who comes second takes other ones, or leaves it to the system.
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
        # Stays in native code, without Python's lock, until the pool is closed.
        mailbox = self._mailboxes + _LINE * (number - 1)
        jit.native().serve(mailbox, number, self.spins)

    def run(self, job: int, threads: int) -> None:
        """Run a job on some of the threads; the calling one is the first."""
        with self._pinned():
            jit.native().lead(self._mailboxes, job, threads - 1)

    @contextmanager
    def _pinned(self) -> Iterator[None]:
        """Hold the calling thread on its core, for the time of a job only."""
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
        """Return whether a new pool for so many threads would be no better."""
        size = _pool_size(threads)
        wanted = (size, _spins(size), pins(size))
        if (self.threads, self.spins, self.wants_cores) != wanted:
            return False
        waited = time.monotonic() - self.claimed_at
        may_claim = self.wants_cores and waited > tuning.CPU.claim_cores_again
        return bool(self.cores) or not may_claim

    def close(self) -> None:
        """Let the helpers end."""
        jit.native().lead(self._mailboxes, None, len(self._helpers))
        self._closed.set()
        for helper in (*self._helpers, self._idler):
            if helper is not threading.current_thread():
                helper.join()
        self.claim.release()

    def _close_when_idle(self) -> None:
        """Let others have the cores of a pool that was not used for a while."""
        while not self._closed.wait(tuning.CPU.idle_pool):
            if time.monotonic() - self.used_at >= tuning.CPU.idle_pool:
                close_pool(self)


def _pool_size(threads: int) -> int:
    """Return how many threads a pool has: programs that want fewer share it."""
    return max(threads, config.threads())


_lock = threading.Lock()
_pool: Pool | None = None


@contextmanager
def shared(threads: int) -> Iterator[Pool | None]:
    """Lend the process' pool; None where another thread of Python is using it."""
    global _pool
    if not _lock.acquire(blocking=False):
        yield None
        return
    try:
        if _pool is None or not _pool.fits(threads):
            old, _pool = _pool, None  # an interrupt here must not leave a closed one
            if old is not None:
                old.close()
            _pool = Pool(_pool_size(threads))
        yield _pool
    finally:
        if _pool is not None:
            _pool.used_at = time.monotonic()
        _lock.release()


@atexit.register  # the helpers end before the code that they run in goes
def close_pool(only: Pool | None = None) -> None:
    """Close the pool, or only a certain one, until the next run; not while it runs."""
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
    """Start anew in a forked process: threads do not come along."""
    global _pool, _lock
    if _pool is not None:
        _pool.claim.release()  # the parent still holds them
    _pool, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)
