"""The folder that keeps data sets: safe writes, checked reads, one fetch at a time."""

import errno
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import numpy as np

from ganglion import config

from . import decode
from .arrays import Arrays
from .errors import DamageError, one_line

LOCK_POLL_SECONDS = 0.1


def folder() -> Path:
    """The folder of data sets: in ``GANGLION_HOME``, else the user's cache.

    >>> folder().name
    'datasets'
    """
    return config.home() / "datasets"


def read(path: Path, sha256: str) -> Arrays | None:
    """Read a kept data set and check it; None where there is no such file."""
    try:
        # Opened here because np.load leaves the file open when it is damaged.
        with open(path, "rb") as file:
            arrays = decode.npz(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except decode.DAMAGE as error:
        raise DamageError(one_line(error)) from error
    check(arrays, sha256)
    return arrays


def check(arrays: Arrays, sha256: str) -> None:
    """Raise ``DamageError`` unless the arrays are exactly the ones expected."""
    found = arrays.sha256()
    if found != sha256:
        raise DamageError(
            f"the arrays have SHA-256 {found[:12]}..., expected {sha256[:12]}..."
        )


def write(path: Path, arrays: Arrays) -> None:
    """Keep a data set: written beside, forced to the disk, then renamed.

    A reader sees the old file or the new one, never a part; a full disk or a killed
    process leaves the old one as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(path)
    unique = f"{os.getpid()}-{threading.get_ident()}"
    beside = path.with_name(f".{path.name}.{unique}.part")
    try:
        with open(beside, "wb") as file:
            np.savez(file, **arrays._asdict())
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise


def _remove_leftovers(path: Path) -> None:
    """Clear what a killed process left half written; the caller holds the lock."""
    for leftover in path.parent.glob(f".{path.name}.*.part"):
        with suppress(OSError):
            leftover.unlink()


@contextmanager
def locked(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Let one process at a time fetch ``path``; call ``on_wait`` once if we must wait.

    The operating system drops the lock when its holder dies, so nothing goes stale.
    Where no lock can be had (a read-only folder, a file system without locks) the work
    goes on without: the rename in ``write`` keeps the file whole even then.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open(path.with_name(f".{path.name}.lock"), "ab")  # noqa: SIM115
    except OSError:
        yield
        return
    with file:
        _wait_for_lock(file, on_wait)
        yield


def _wait_for_lock(file: IO[bytes], on_wait: Callable[[], None]) -> None:
    told = False
    while not _try_lock(file):
        if not told:
            on_wait()
            told = True
        time.sleep(LOCK_POLL_SECONDS)


def _try_lock(file: IO[bytes]) -> bool:
    """Take the lock if it is free; closing the file gives it back."""
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in (errno.EAGAIN, errno.EACCES, errno.EDEADLK)
    return True
