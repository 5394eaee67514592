"""The threads that run compiled programs: started once, asleep between runs."""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from ganglion import config
from ganglion.compiler import cache as cpu_cache
from ganglion.compiler.cpu import cores as cpu_cores
from ganglion.compiler.cpu import jit
from ganglion.compiler.cpu.arena import aligned
from ganglion.compiler.cpu.step_loop import BARRIER_AT, POOL_BYTES, executor

SPINS = 40_000  # about a millisecond: waking a core that sleeps may take 100 µs
SPINS_CROWDED = 50  # more threads than cores: who waits keeps others from working
ASK_AGAIN = 10.0  # seconds, for cores that another process holds


class Executor:
    """The native loop over steps, as functions that Python can call."""

    def __init__(self) -> None:
        target, system = jit.host(), sys.platform.replace("win32", "windows")
        text = executor(jit.family(), system)
        path = cpu_cache.path_of(jit.identity(target), text)
        code = cpu_cache.read(path)
        if code is None:
            code = jit.object_code([text], target)
            cpu_cache.keep(path, code)
        self._library = jit.Library(code)
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        self.alone: Any = self._function("alone", pointer)
        self.lead: Any = self._function("lead", pointer, pointer)
        self.serve: Any = self._function("serve", pointer, number, number)

    def _function(self, name: str, *types: Any) -> Any:
        return ctypes.CFUNCTYPE(None, *types)(self._library.address(name))


_loading = threading.Lock()


def native() -> Executor:
    """Return the executor of this process."""
    # Two threads that ask first at once would load two, and one be freed in use.
    with _loading:
        return _native()


@cache
def _native() -> Executor:
    return Executor()


usable_cores = cpu_cores.usable


def crowded(threads: int) -> bool:
    """Return whether threads will wait for cores: too many of them, or of others."""
    cores = len(usable_cores()) or os.cpu_count() or 1
    busy = config.load_average() or 0.0
    # Our own threads count too: alone, they make a load of one a core at most.
    return threads > cores or busy >= 1.5 * cores


def pins(threads: int) -> bool:
    """Return whether threads are to stay on a core each.

    Not on a crowded machine, where a thread that may not move would wait for its core
    while another one is free.
    """
    known = hasattr(os, "sched_setaffinity")
    return known and config.pin_threads() and not crowded(threads)


class Pool:
    """Helper threads beside the calling one; a job is shared by all of them."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.spins = SPINS_CROWDED if crowded(threads) else SPINS
        self.wants_cores = pins(threads)
        wanted = threads if self.wants_cores else 0
        # Two processes on the same cores would wait for each other while others are
        # free: who comes second takes other ones, or is left to the system.
        self.claim = cpu_cores.Claim(wanted, usable_cores())
        self.cores = self.claim.cores
        self.asked = time.monotonic()
        self._memory = aligned(POOL_BYTES)
        self._address = int(self._memory.ctypes.data)
        self.barrier = self._address + BARRIER_AT
        self._helpers = [
            threading.Thread(
                target=self._help,
                args=(number,),
                daemon=True,
                name=f"ganglion-{number}",
            )
            for number in range(1, threads)
        ]
        for one in self._helpers:
            one.start()

    def _help(self, number: int) -> None:
        if self.cores:
            os.sched_setaffinity(0, {self.cores[number]})
        # Stays in native code, without Python's lock, until the pool is closed.
        native().serve(self._address, number, self.spins)

    def run(self, job: int) -> None:
        """Run a job on all threads; the calling one is the first."""
        with self._pinned():
            native().lead(self._address, job)

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

    def close(self) -> None:
        """Let the helpers end."""
        native().lead(self._address, None)
        for one in self._helpers:
            one.join()
        self.claim.release()


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
        if _pool is None or _outdated(_pool, threads):
            if _pool is not None:
                _pool.close()
            _pool = Pool(threads)
        yield _pool
    finally:
        _lock.release()


def _outdated(pool: Pool, threads: int) -> bool:
    spins = SPINS_CROWDED if crowded(threads) else SPINS
    wants_cores = pins(threads)
    if (pool.threads, pool.spins) != (threads, spins):
        return True
    if pool.wants_cores != wants_cores:
        return True
    is_without = wants_cores and not pool.cores
    return is_without and time.monotonic() - pool.asked > ASK_AGAIN


@atexit.register
def _close_pool() -> None:
    """End the helpers before the code they run in goes."""
    global _pool
    if _pool is not None and _lock.acquire(blocking=False):
        _pool.close()
        _pool = None


def _forget_pool() -> None:
    """Start anew in a forked process: threads do not come along."""
    global _pool, _lock
    if _pool is not None:
        _pool.claim.release()  # the parent still holds them
    _pool, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)
