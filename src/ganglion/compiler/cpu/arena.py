"""Memory for what lives within a step: one arena for all programs of a process.

Programs run one after the other, and nothing in an arena outlives a step: so a model's
steps of training, testing and prediction need the memory of the largest, not the sum.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

ALIGNMENT = 64  # bytes: a cache line, and the widest vector


def aligned(nbytes: int) -> np.ndarray:
    """Return bytes, all zero, that begin at a cache line."""
    raw = np.zeros(nbytes + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return raw[start : start + nbytes]


class Arenas:
    """Lends arenas; keeps the largest one while some program may need it again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: np.ndarray | None = None
        self._needed: Counter[int] = Counter()
        self._gone: deque[int] = deque()  # what programs needed that are gone

    def announce(self, owner: object, nbytes: int) -> None:
        """Note that a program will need so much, for as long as it lives."""
        with self._lock:
            self._needed[nbytes] += 1
            self._settle()
        weakref.finalize(owner, self._forget, nbytes).atexit = False

    def _forget(self, nbytes: int) -> None:
        self._gone.append(nbytes)
        # A finalizer may run while this very thread holds the lock: it must not wait.
        if self._lock.acquire(blocking=False):
            try:
                self._settle()
            finally:
                self._lock.release()

    def _settle(self) -> None:
        """Count off what is gone; let go of an arena that nobody needs any more."""
        if not self._gone:
            return
        while self._gone:
            self._needed[self._gone.popleft()] -= 1
        self._needed += Counter()  # drops what is no longer needed at all
        free = self._free
        if free is not None and len(free) > max(self._needed, default=0):
            self._free = None

    @contextmanager
    def lent(self, nbytes: int) -> Iterator[np.ndarray]:
        """Lend memory of this size or more; programs that run at once get their own."""
        with self._lock:
            self._settle()
            arena, self._free = self._free, None
        if arena is None or len(arena) < nbytes:
            arena = None  # let go of the small one before there is a large one
            arena = aligned(nbytes)
        try:
            yield arena
        finally:
            with self._lock:
                if self._free is None or len(self._free) < len(arena):
                    self._free = arena

    def free(self) -> None:
        """Let go of what is not lent now; the next run makes it anew."""
        with self._lock:
            self._free = None


ARENAS = Arenas()
