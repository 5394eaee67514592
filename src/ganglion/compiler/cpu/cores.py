"""Which cores this process may hold its threads on: each belongs to one process.

A core is claimed by a name that the kernel gives to one process at a time, and takes
back when that process ends, however it ends. It is a Unix socket without a file, known
on the whole machine, so that processes of other users, or with caches elsewhere, are
seen, too. Where there are no such names, nobody is asked.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from typing import Any

NAME = "\0ganglion-core-{}"  # a zero at the start: no file


def usable() -> list[int]:
    """Return the numbers of the cores this thread may run on, [] where unknown."""
    if not hasattr(os, "sched_getaffinity"):
        return []
    return sorted(os.sched_getaffinity(0))


class Claim:
    """Some cores that no other process of ours holds its threads on.

    Args:
        count: How many are wanted.
        among: The numbers of those to choose from.
    """

    def __init__(self, count: int, among: Sequence[int]) -> None:
        self.cores: list[int] = []
        self._held: list[Any] = []
        for core in among:
            if len(self.cores) < count and self._take(core):
                self.cores.append(core)
        if len(self.cores) < count:
            self.release()

    def _take(self, core: int) -> bool:
        """Claim a core; return whether it is ours, or nobody can tell."""
        if sys.platform != "linux":
            return True
        import socket  # 5 ms, which a run on one thread need not wait for

        try:
            held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        except OSError:  # a sandbox, or too many files
            return True
        try:
            held.bind(NAME.format(core))
        except OSError as error:
            held.close()
            return error.errno != errno.EADDRINUSE
        self._held.append(held)
        return True

    def release(self) -> None:
        """Give the cores back."""
        for held in self._held:
            held.close()
        self.cores, self._held = [], []
