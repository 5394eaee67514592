"""Compiled programs on disk: found by what they were made of, checked, bounded.

An entry is written beside and renamed, so that processes may share the folder; one that
does not match its checksum counts as missing, and is made again.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import threading
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ganglion import config

LIMIT = 500_000_000  # bytes; beyond, what was not used for longest goes
_DIGEST = 32
_SUFFIX = ".program"
_LOOK_EVERY = 50  # counting the files takes longer than writing one
_kept = itertools.count()


@dataclass(frozen=True)
class Contents:
    """What the cache holds."""

    folder: Path
    count: int
    size: int


def folder() -> Path:
    """Return where compiled programs are kept."""
    return config.home() / "kernels"


@cache
def generator() -> str:
    """Return the version of everything that turns a graph into machine code.

    The source itself is the version: an edited emitter never meets old machine code.
    """
    here = Path(__file__).parent
    files = [*here.glob("cpu_*.py"), *(here.parent / "plan").glob("*.py")]
    mixed = hashlib.sha256(config.VERSION.encode())
    for one in sorted(files):
        mixed.update(one.read_bytes())
    return mixed.hexdigest()


def path_of(*ingredients: str) -> Path:
    """Return the place of what is made of some ingredients."""
    key = "\n".join((generator(), *ingredients))
    return folder() / f"{hashlib.sha256(key.encode()).hexdigest()}{_SUFFIX}"


def read(path: Path) -> bytes | None:
    """Return an entry, None where there is none or it is damaged."""
    try:
        raw = path.read_bytes()
        os.utime(path)  # it was used now: the oldest are removed first
    except OSError:
        return None
    body = raw[_DIGEST:]
    return body if hashlib.sha256(body).digest() == raw[:_DIGEST] else None


def keep(path: Path, body: bytes) -> None:
    """Write an entry; a cache that cannot be written is no error."""
    beside = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(hashlib.sha256(body).digest() + body)
        beside.replace(path)
    except OSError:
        _remove(beside)
    if next(_kept) % _LOOK_EVERY == 0:
        shrink(LIMIT)


def contents() -> Contents:
    """Count what the cache holds."""
    sizes = [size for _, size, _ in _entries()]
    return Contents(folder(), len(sizes), sum(sizes))


def clear() -> int:
    """Remove every entry; return how many there were."""
    found = _entries()
    for _, _, path in found:
        _remove(path)
    return len(found)


def shrink(limit: int) -> None:
    """Remove what was not used for longest until the rest fits."""
    found = sorted(_entries())
    total = sum(size for _, size, _ in found)
    for _, size, path in found:
        if total <= limit:
            return
        _remove(path)
        total -= size


def _entries() -> list[tuple[float, int, Path]]:
    """Return time of last use, size and path of each file, leftovers included."""
    found = []
    # There may be no folder yet, and another process may be clearing it.
    with suppress(OSError), os.scandir(folder()) as files:
        for one in files:
            if one.name.endswith((_SUFFIX, ".part", ".o")):
                facts = one.stat()
                found.append((facts.st_mtime, facts.st_size, Path(one.path)))
    return found


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True)
