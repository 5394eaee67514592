"""The resources the system grants this process: cores, processor time, memory.

They are read from files of Linux; elsewhere they are not known, and None is returned.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

PROC, SYS = Path("/proc"), Path("/sys")


def usable_cores() -> list[int]:
    """Return the numbers of the logical cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def physical_cores(cores: Iterable[int], system: Path = SYS) -> int | None:
    """Return the number of physical cores of some logical ones; None if not known."""
    siblings = set()
    for core in cores:
        folder = system / "devices/system/cpu" / f"cpu{core}" / "topology"
        try:
            siblings.add((folder / "thread_siblings_list").read_text().strip())
        except OSError:
            return None
    return len(siblings) or None


def cpu_quota(proc: Path = PROC, system: Path = SYS) -> float | None:
    """Return the processor time that a container may use, in cores; None if all."""
    quotas = []
    for folder in _groups("cpu", proc, system):
        with suppress(OSError, ValueError, ZeroDivisionError):
            if (both := folder / "cpu.max").exists():
                most, period = both.read_text().split()
            else:
                most = (folder / "cpu.cfs_quota_us").read_text()
                period = (folder / "cpu.cfs_period_us").read_text()
            if int(most) > 0:
                quotas.append(int(most) / int(period))
    return min(quotas, default=None)


def memory_limit(proc: Path = PROC, system: Path = SYS) -> int | None:
    """Return the bytes that this process may use, None without a limit."""
    limits = [limit] if (limit := _address_space()) else []
    for folder in _groups("memory", proc, system):
        for name in ("memory.max", "memory.limit_in_bytes"):
            with suppress(OSError, ValueError):
                limits.append(int((folder / name).read_text()))
    return min((limit for limit in limits if limit < 1 << 60), default=None)


def free_memory(proc: Path = PROC) -> int | None:
    """Return the bytes that are free, or can be freed at once."""
    with suppress(OSError, ValueError):
        for line in (proc / "meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return None


def _address_space() -> int | None:
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft


def _groups(controller: str, proc: Path, system: Path) -> Iterator[Path]:
    """Yield the folders of this process's control groups, from its own up to the root.

    Version 2 has one tree; version 1 has one for each controller.
    """
    try:
        lines = (proc / "self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = system / "fs/cgroup" / (controller if controllers else "")
        inner = Path(path.lstrip("/"))
        for folder in (inner, *inner.parents):
            yield root / folder
