"""Files: the only atomic writer, the only lock, and what may be opened at all.

A file is written beside its target, flushed to the disk and renamed, so that a reader
sees the old file or the new one, whatever is killed or unplugged meanwhile.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     path = write_file(Path(folder, "notes.txt"), b"safe")
...     read_file(path), os.listdir(folder)
(b'safe', ['notes.txt'])
"""

from __future__ import annotations

import errno
import io
import os
import re
import secrets
import shutil
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

Content = bytes | memoryview | Callable[[BinaryIO], Any]

LOCK_POLL_SECONDS = 0.1
# The name of a file that is not complete yet; its writer holds a lock on it.
_PART = re.compile(r"\..+\.\d+([.-][0-9a-f]+)?\.part")
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


# ---- writing ---------------------------------------------------------------------


def write_file(
    path: str | os.PathLike[str],
    content: Content,
    *,
    durable: bool = True,
) -> Path:
    """Write a file next to its target and rename it, so that it is never incomplete.

    Args:
        path: Where to write; a link still points to the file that it names.
        content: Bytes, or a function that writes them into an open file.
        durable: Whether it must survive a power failure. What can be computed again at
            any time, and is checked when it is read, need not wait for the disk.

    Returns:
        The path, as it was given.
    """
    path = Path(path)
    write_files({path: content}, durable=durable)
    return path


def write_files(contents: Mapping[Path, Content], *, durable: bool = True) -> None:
    """Write several files as `write_file` does: all of them, or none."""
    targets = [Path(os.path.realpath(path)) for path in contents]
    for target in targets:
        if target.is_dir():
            reason = os.strerror(errno.EISDIR)
            raise IsADirectoryError(errno.EISDIR, reason, os.fspath(target))
        refuse_special(target, "write")
        if durable:
            clear_leftovers(target.parent, target.name)
    with ExitStack() as stack:
        parts = []
        for target, content in zip(targets, contents.values(), strict=True):
            part, file = stack.enter_context(_open_part(target))
            if callable(content):
                content(file)
            else:
                file.write(content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
            with suppress(OSError):
                shutil.copymode(target, part)
            parts.append(part)
        for part, target in zip(parts, targets, strict=True):
            os.replace(part, target)
    if durable:
        for folder in {target.parent for target in targets}:
            _sync_folder(folder)


@contextmanager
def new_folder(path: str | os.PathLike[str], *, durable: bool = True) -> Iterator[Path]:
    """Yield a folder to fill; it is renamed to its path at the end of the block.

    What is there by then is removed. If the block fails, nothing has changed.
    """
    target = Path(os.path.abspath(path))
    clear_leftovers(target.parent, target.name)
    part, lock = _make_part_folder(target)
    try:
        yield part
        if durable:
            _sync_files(part)
        _put_in_place(part, target)
    finally:
        _remove(part)
        if lock is not None:
            os.close(lock)
    if durable:
        _sync_folder(target.parent)


def _put_in_place(part: Path, target: Path) -> None:
    """Rename a folder; another folder that is put there meanwhile is removed, too."""
    for is_last in (False, False, True):
        _remove(target)
        try:
            os.replace(part, target)
            return
        except OSError as error:
            if is_last or error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise


def clear_leftovers(folder: Path, name: str = "") -> None:
    """Remove what killed writers left in a folder; those still at work hold a lock.

    Args:
        folder: The folder.
        name: A file whose leftovers go, however an older version called them.
    """
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            is_own = name and entry.name.startswith(f".{name}.")
            if entry.name.endswith(".part") and (is_own or _PART.fullmatch(entry.name)):
                with suppress(OSError):
                    _remove_if_abandoned(Path(entry.path))


def remove_oldest(paths: Iterable[Path], limit: int) -> None:
    """Remove the files or folders used longest ago until the rest fits into a limit."""
    entries = []
    for path in paths:
        with suppress(OSError):  # another process may be removing it
            files = path.iterdir() if path.is_dir() else [path]
            size = sum(file.stat().st_size for file in files)
            entries.append((path.stat().st_mtime, size, path))
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= limit:
            return
        with suppress(OSError):
            _remove(path)
        total -= size


def _part_name(target: Path) -> Path:
    # A long name leaves room for the rest: file systems allow 255 bytes.
    name = target.name.encode()[:200].decode(errors="ignore")
    return target.with_name(f".{name}.{os.getpid()}.{secrets.token_hex(4)}.part")


@contextmanager
def _open_part(target: Path) -> Iterator[tuple[Path, BinaryIO]]:
    while True:
        part = _part_name(target)
        file = open(part, "xb")  # noqa: SIM115 (closed below)
        is_ours = try_lock(file) is not False
        if is_ours and (sys.platform == "win32" or os.fstat(file.fileno()).st_nlink):
            break
        file.close()  # another writer takes it for abandoned, and removes it
    try:
        with file:
            yield part, file
    finally:
        # After the renaming there is nothing left to remove.
        part.unlink(missing_ok=True)


def _make_part_folder(target: Path) -> tuple[Path, int | None]:
    while True:
        part = _part_name(target)
        part.mkdir()
        if sys.platform == "win32":
            return part, None
        with suppress(FileNotFoundError):  # taken for abandoned before it was locked
            lock = os.open(part, os.O_RDONLY | os.O_DIRECTORY)
            if try_lock(lock) is not False and part.is_dir():
                return part, lock
            os.close(lock)


def _remove_if_abandoned(part: Path) -> None:
    if sys.platform == "win32":  # where open files cannot be removed
        _remove(part)
        return
    handle = os.open(part, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    try:
        if try_lock(handle) is True:
            _remove(part)
    finally:
        os.close(handle)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _sync_files(folder: Path) -> None:
    for where, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError), open(os.path.join(where, name), "rb+") as file:
                os.fsync(file.fileno())
        _sync_folder(Path(where))


def _sync_folder(folder: Path) -> None:
    """Flush a folder, so that renaming a file in it survives a power failure."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


# ---- locks -----------------------------------------------------------------------


@contextmanager
def locked(path: Path, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Let one process at a time work at ``path``; call ``on_wait`` once before waiting.

    The operating system releases the lock when the process ends: no lock goes stale.
    Where no lock can be had (a read-only folder, a file system without locks) the work
    continues without: the renaming of `write_file` keeps files whole even then.
    """
    lock = path.with_name(f".{path.name}.lock")
    has_waited = False
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = open(lock, "ab")  # noqa: SIM115 (closed below)
        except OSError:
            yield
            return
        with file:
            while try_lock(file) is False:
                if not has_waited:
                    on_wait()
                    has_waited = True
                time.sleep(LOCK_POLL_SECONDS)
            if not _is_at(file, lock):
                continue  # its last holder has just removed it
            try:
                yield
            finally:
                with suppress(OSError):
                    lock.unlink()
            return


def _is_at(file: BinaryIO, path: Path) -> bool:
    """Return whether an open file still has its name."""
    if sys.platform == "win32":  # where open files cannot be removed
        return True
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except OSError:
        return False


def try_lock(file: Any) -> bool | None:
    """Take a file's lock if it is free; closing the file gives it back.

    Returns:
        Whether it was free; None where this file cannot be locked.
    """
    number = file if isinstance(file, int) else file.fileno()
    try:
        if sys.platform == "win32":
            import msvcrt

            os.lseek(number, 0, os.SEEK_SET)
            msvcrt.locking(number, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        taken = error.errno in (errno.EAGAIN, errno.EACCES, errno.EDEADLK)
        return False if taken else None
    return True


# ---- reading ---------------------------------------------------------------------


class NotAFileError(ValueError):
    """A path leads to a folder, a pipe, a socket or a device."""


def kind_of(mode: int) -> str | None:
    """Return the kind of file that a mode of `os.stat` means; None for a plain file."""
    if stat.S_ISREG(mode):
        return None
    return next((kind for is_kind, kind in _KINDS if is_kind(mode)), "no file")


def refuse_special(path: str | os.PathLike[str], verb: str = "read") -> None:
    """Refuse a pipe, a socket or a device, which might never end, before opening it.

    Folders and paths that lead nowhere are left to whoever opens them.
    """
    try:
        kind = kind_of(os.stat(path).st_mode)
    except OSError:
        return
    if kind is not None and kind != "a folder":
        raise NotAFileError(f"Cannot {verb} {os.fspath(path)}: it is {kind}, no file.")


def open_file(path: str | os.PathLike[str]) -> io.BufferedReader:
    """Open a file for reading; refuse all else, at once and without waiting for it."""
    refuse_special(path)
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
    handle = os.open(path, flags)
    try:
        # Looked at again: it may have been replaced meanwhile.
        kind = kind_of(os.fstat(handle).st_mode)
        if kind == "a folder":
            raise IsADirectoryError(
                errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path)
            )
        if kind is not None:
            raise NotAFileError(f"Cannot read {os.fspath(path)}: it is {kind}.")
        return io.BufferedReader(io.FileIO(handle, "rb"))
    except BaseException:
        os.close(handle)
        raise


def read_file(path: str | os.PathLike[str]) -> bytes:
    """Return what is in a file."""
    with open_file(path) as file:
        return file.read()


def not_private(folder: Path) -> str | None:
    """Return how others can write to a folder; None if they cannot."""
    if sys.platform == "win32":
        return None  # where a user's folders are private by inheritance
    try:
        facts = os.stat(folder)
    except OSError:
        return None
    if facts.st_uid not in (os.geteuid(), 0):
        return "belongs to somebody else"
    if facts.st_mode & 0o022:
        return "can be written to by others"
    return None
