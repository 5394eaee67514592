"""A cache of machine code on disk: content-addressed, checked and bounded.

Entries are written atomically, so that processes may share the folder. The checksum of
an entry covers its name: an entry that is damaged, or has the name of another, counts
as missing. Code from a folder that other users can write to is never run.
"""

from __future__ import annotations

import atexit
import dataclasses
import hashlib
import os
import warnings
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ganglion import config, files
from ganglion.compiler.plan.kernels import Buffer, Kernel
from ganglion.system.records import record

LIMIT = 500_000_000  # bytes, beyond which the least recently used entries are removed
_DIGEST = 32
_SUFFIX = ".program"
_CHECK_EVERY = LIMIT // 20  # bytes written: listing the folder is slow
_unchecked: int | None = None  # bytes written since the size was last checked


@record(guarded=True)
class Contents:
    """The folder of the cache, and the number and size of its entries."""

    folder: Path
    count: int
    size: int


def folder() -> Path:
    """Return the folder of the cache."""
    return config.home() / "kernels"


@cache
def generator() -> str:
    """Return the version of the compiler: a hash of its source.

    So machine code of an earlier version of an emitter is never used.
    """
    mixed = hashlib.sha256(config.VERSION.encode())
    for path in sources():
        mixed.update(path.read_bytes())
    return mixed.hexdigest()


def sources() -> list[Path]:
    """Return all source files of the compiler, of any name and depth."""
    kinds = (".py", ".ll", ".cuh")
    root = Path(__file__).parent
    return sorted(path for path in root.rglob("*") if path.suffix in kinds)


def path_of(*key: str) -> Path:
    """Return the path of the entry with this key, in this version of the compiler."""
    text = "\n".join((generator(), *key))
    return folder() / f"{hashlib.sha256(text.encode()).hexdigest()}{_SUFFIX}"


def read(path: Path) -> bytes | None:
    """Return an entry, None if it is missing or damaged."""
    if not _is_ours(path.parent):
        return None
    try:
        raw = files.read_file(path)
        os.utime(path)  # the time of last use
    except (OSError, files.NotAFileError):
        return None
    body = raw[_DIGEST:]
    return body if _digest(path, body) == raw[:_DIGEST] else None


def keep(path: Path, body: bytes) -> None:
    """Write an entry; errors are ignored."""
    global _unchecked
    with suppress(OSError, files.NotAFileError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if _is_ours(path.parent):
            # Not durable: a lost entry is compiled again.
            files.write_file(path, _digest(path, body) + body, durable=False)
    if _unchecked is None:
        atexit.register(_tidy)  # for most processes, this is soon enough
    _unchecked = (_unchecked or 0) + len(body)
    if _unchecked > _CHECK_EVERY:
        _unchecked = 0
        _tidy()


def _tidy() -> None:
    """Remove leftovers of killed processes, and entries beyond the limit."""
    files.clear_leftovers(folder())
    shrink(LIMIT)


def _digest(path: Path, body: bytes) -> bytes:
    """Return the checksum of an entry's name and contents."""
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
    """Return the number and size of the entries."""
    sizes = [size for _, size, _ in _entries()]
    return Contents(folder(), len(sizes), sum(sizes))


def clear() -> int:
    """Remove every entry; return how many there were."""
    entries = _entries()
    for _, _, path in entries:
        _remove(path)
    return len(entries)


def shrink(limit: int) -> None:
    """Remove the least recently used entries until the others fit."""
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
                stat = file.stat()
                entries.append((stat.st_mtime, stat.st_size, Path(file.path)))
    return entries


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True)


# ---- the digest of a kernel: equal kernels, and only those, have equal digests -------


def digest_of(kernel: Kernel) -> tuple[str | None, list[Buffer]]:
    """Return the digest of a kernel, and its buffers in order.

    It does not cover names and addresses, on which machine code does not depend. A
    kernel that refers to a Python function, for example, has no digest.
    """
    writer = _KernelWriter()
    writer.write(kernel)
    if writer.has_unknown:
        return None, writer.buffers
    text = " ".join(writer.words)
    return hashlib.sha256(text.encode()).hexdigest(), writer.buffers


_END = object()  # marks the end of a tuple among pending values


class _KernelWriter:
    """Serializes an object to words in preorder; shared objects are written once."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.buffers: list[Buffer] = []
        self.has_unknown = False
        self._seen: dict[int, str] = {}
        self._alive: list[object] = []  # keeps objects alive, so that ids are unique

    def write(self, value: Any) -> None:
        """Write an object and everything within it."""
        pending = [value]
        while pending:
            pending.extend(reversed(self._write(pending.pop())))

    def _write(self, value: Any) -> Sequence[Any]:
        """Write the head of an object; return the values that follow it."""
        if isinstance(value, (int, str, float, type(None))):
            self.words.append(repr(value))
        elif isinstance(value, (tuple, list)):
            if all(type(item) is int for item in value):  # most are sizes and strides
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
            self.has_unknown = True
        return ()

    def _write_record(self, record: Any) -> Sequence[Any]:
        reference = self._seen.get(id(record))
        if reference is not None:
            self.words.append(reference)
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
    """Return the fields of a dataclass that machine code depends on, () for others."""
    if not dataclasses.is_dataclass(kind):
        return ()
    names = tuple(field.name for field in dataclasses.fields(kind))
    return names[1:] if issubclass(kind, Kernel) else names  # without `name`
