"""Forks wait until no thread is in the middle of compiling or of running steps.

A forked child has a copy of all memory, but only of the thread that forked. A lock that
another thread held would stay locked there forever, and weights that a step was just
writing would be half old, half new. So work that holds locks or writes weights runs
inside `held_off`, and a fork waits for it to end.

Logging and thread pools of the standard library also take their locks before a fork,
and work that a fork waits for may log, or submit to a pool. Handlers run in the reverse
order of their registration: both are imported here, so that a fork takes their locks
only after it has waited.
"""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401
import logging  # noqa: F401
import os
import threading
from contextlib import AbstractContextManager

_lock = threading.RLock()
_changed = threading.Condition(_lock)
_working: dict[int, int] = {}  # how often each thread is inside of `held_off`
_forking = False


class _HeldOff:
    """A block that no fork interrupts; one object serves all threads.

    A thread that enters first records that it is inside, then checks whether another
    one is forking. A thread that forks first sets a flag, then checks whether any other
    is inside. At least one of them notices the other: unless a thread forks, no lock is
    taken.
    """

    def __enter__(self) -> None:
        thread = threading.get_ident()
        if thread in _working:  # only this thread changes its number
            _working[thread] += 1
            return
        _working[thread] = 1
        while _forking:
            self.__exit__()
            with _lock:
                while _forking:
                    _changed.wait()
            _working[thread] = 1

    def __exit__(self, *error: object) -> None:
        thread = threading.get_ident()
        if _working[thread] > 1:
            _working[thread] -= 1
            return
        del _working[thread]
        if _forking:
            with _lock:
                _changed.notify_all()


_HELD_OFF = _HeldOff()


def held_off() -> AbstractContextManager[None]:
    """Prevent all threads from forking this process inside of this block.

    >>> with held_off():
    ...     "compile, or run a chunk of steps"
    'compile, or run a chunk of steps'
    """
    return _HELD_OFF


def _before() -> None:
    global _forking
    inside = threading.get_ident() in _working
    _changed.acquire()
    while _forking:
        _changed.wait()
    _forking = True  # from here on nothing new begins
    while _working and not inside:  # from the inside, others may be waiting for us
        _changed.wait()


def _after_in_parent() -> None:
    global _forking
    _forking = False
    _changed.notify_all()
    _changed.release()


def _after_in_child() -> None:
    global _lock, _changed, _forking
    _lock = threading.RLock()  # no other thread waits here
    _changed, _forking = threading.Condition(_lock), False
    for thread in _working.keys() - {threading.get_ident()}:  # nor works
        del _working[thread]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )
