"""Compiled programs on disk: found by what they were made of, checked, bounded.

An entry is written beside and renamed, so that processes may share the folder. Its
checksum covers its name, too: one that is damaged, or lies under the name of another,
counts as missing and is made again. What is in a folder that somebody else could have
written to is never run.
"""

from __future__ import annotations

import atexit
import dataclasses
import hashlib
import os
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ganglion import config, files
from ganglion.compiler.plan.kernels import Buffer, Kernel

LIMIT = 500_000_000  # bytes; beyond, what was not used for longest goes
_DIGEST = 32
_SUFFIX = ".program"
_LOOK_EVERY = LIMIT // 20  # bytes written: to count the files takes longer
_unseen: int | None = None  # bytes that were written since the folder was looked at


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
    mixed = hashlib.sha256(config.VERSION.encode())
    for path in sources():
        mixed.update(path.read_bytes())
    return mixed.hexdigest()


def sources() -> list[Path]:
    """Return every file of the compiler, whatever its name and however deep."""
    kinds = (".py", ".ll", ".cuh")
    here = Path(__file__).parent
    return sorted(path for path in here.rglob("*") if path.suffix in kinds)


def path_of(*ingredients: str) -> Path:
    """Return the place of what is made of some ingredients."""
    key = "\n".join((generator(), *ingredients))
    return folder() / f"{hashlib.sha256(key.encode()).hexdigest()}{_SUFFIX}"


def read(path: Path) -> bytes | None:
    """Return an entry, None where there is none, or not the one that was kept there."""
    if not _is_ours(path.parent):
        return None
    try:
        raw = files.read_file(path)
        os.utime(path)  # it was used now: the oldest are removed first
    except (OSError, files.NotAFileError):
        return None
    body = raw[_DIGEST:]
    return body if _digest(path, body) == raw[:_DIGEST] else None


def keep(path: Path, body: bytes) -> None:
    """Write an entry; a cache that cannot be written is no error."""
    global _unseen
    with suppress(OSError, files.NotAFileError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if _is_ours(path.parent):
            # A lost entry is made again: there is no need to wait for the disk.
            files.write_file(path, _digest(path, body) + body, durable=False)
    if _unseen is None:
        atexit.register(_tidy)  # few keep many: no step waits for it
    _unseen = (_unseen or 0) + len(body)
    if _unseen > _LOOK_EVERY:
        _unseen = 0
        _tidy()


def _tidy() -> None:
    """Remove what killed processes left behind, and what is beyond the limit."""
    files.clear_leftovers(folder())
    shrink(LIMIT)


def _digest(path: Path, body: bytes) -> bytes:
    """Return the checksum of an entry and the name that says what it was made of."""
    mixed = hashlib.sha256(path.name.encode() + b"\n")
    mixed.update(body)
    return mixed.digest()


_told: set[Path] = set()


def _is_ours(folder: Path) -> bool:
    """Return whether no other user can write to a folder; warn once if one can."""
    reason = files.not_private(folder)
    if reason is not None:
        _warn_once(folder, reason)
    return reason is None


def _warn_once(folder: Path, reason: str) -> None:
    if folder not in _told:
        _told.add(folder)
        warnings.warn(
            f"{folder} {reason}, who could put code there: compiled programs are "
            "neither read from it nor kept in it. Remove it, or choose a folder of "
            "your own with GANGLION_HOME.",
            stacklevel=4,
        )


def contents() -> Contents:
    """Count what the cache holds."""
    sizes = [size for _, size, _ in _entries()]
    return Contents(folder(), len(sizes), sum(sizes))


def clear() -> int:
    """Remove every entry; return how many there were."""
    entries = _entries()
    for _, _, path in entries:
        _remove(path)
    return len(entries)


def shrink(limit: int) -> None:
    """Remove what was not used for longest until the rest fits."""
    entries = sorted(_entries())
    total = sum(size for _, size, _ in entries)
    for _, size, path in entries:
        if total <= limit:
            return
        _remove(path)
        total -= size


def _entries() -> list[tuple[float, int, Path]]:
    """Return time of last use, size and path of each file, leftovers included."""
    entries = []
    # There may be no folder yet, and another process may be clearing it.
    with suppress(OSError), os.scandir(folder()) as files:
        for file in files:
            if file.name.endswith((_SUFFIX, ".part", ".o")):
                facts = file.stat()
                entries.append((facts.st_mtime, facts.st_size, Path(file.path)))
    return entries


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True)


# ---- the digest of a kernel: equal kernels, and only those, have equal ones ----------


def digest_of(kernel: Kernel) -> tuple[str | None, list[Buffer]]:
    """Return the digest of a kernel, and its buffers in the order in which it has them.

    Names and offsets in memory are left out: machine code does not depend on them. What
    holds a function of Python, say, has no digest.
    """
    reader = _KernelReader()
    reader.read(kernel)
    if reader.meets_unknown:
        return None, reader.buffers
    text = " ".join(reader.words)
    return hashlib.sha256(text.encode()).hexdigest(), reader.buffers


_END = object()  # of a tuple, between what is still to be read


class _KernelReader:
    """Writes objects down word by word; what is shared is written once."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.buffers: list[Buffer] = []
        self.meets_unknown = False
        self._seen: dict[int, str] = {}
        self._alive: list[object] = []  # so that no two objects get the same id

    def read(self, value: Any) -> None:
        """Write down an object and all within it: first what stands first."""
        unread = [value]
        while unread:
            unread.extend(reversed(self._write(unread.pop())))

    def _write(self, value: Any) -> Sequence[Any]:
        """Write down the head of an object; return what follows it."""
        if isinstance(value, (int, str, float, type(None))):
            self.words.append(repr(value))
        elif isinstance(value, (tuple, list)):
            if all(type(item) is int for item in value):  # sizes and strides: most are
                self.words.append(repr(value))
                return ()
            self.words.append("(")
            return (*value, _END)
        elif value is _END:
            self.words.append(")")
        elif _fields(value.__class__):
            return self._write_record(value)
        elif isinstance(value, np.ndarray):
            content = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
            self.words.append(f"array {value.dtype.str} {value.shape} {content}")
        elif isinstance(value, np.dtype):
            self.words.append(value.str)
        elif isinstance(value, np.generic):
            self.words.append(f"{type(value).__name__} {value!r}")
        elif isinstance(value, dict):
            return (tuple(value.items()),)
        else:
            self.meets_unknown = True
        return ()

    def _write_record(self, record: Any) -> Sequence[Any]:
        known = self._seen.get(id(record))
        if known is not None:
            self.words.append(known)
            return ()
        self._seen[id(record)] = f"#{len(self._seen)}"
        self._alive.append(record)
        if isinstance(record, Buffer):
            self.buffers.append(record)
            self.words.append(f"buffer {record.kind}")
            return ((record.shape, record.dtype, record.array),)
        self.words.append(type(record).__name__)
        return [getattr(record, name) for name in _fields(record.__class__)]


@cache
def _fields(kind: type) -> tuple[str, ...]:
    """Return the fields of a dataclass that machine code depends on; else none."""
    if not dataclasses.is_dataclass(kind):
        return ()
    names = tuple(field.name for field in dataclasses.fields(kind))
    return names[1:] if issubclass(kind, Kernel) else names  # without its name
