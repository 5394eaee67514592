"""The folder that keeps data sets: safe writes, checked reads, one fetch at a time."""

import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ganglion import config, files
from ganglion.files import locked
from ganglion.system import budget

from . import decode
from .arrays import Arrays
from .errors import DamageError, one_line

__all__ = ["check", "folder", "locked", "read", "write"]


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
        with files.open_file(path) as file, _budget(file):
            arrays = decode.npz(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except decode.DAMAGE as error:
        raise DamageError(one_line(error)) from error
    check(arrays, sha256)
    return arrays


def _budget(file: BinaryIO) -> AbstractContextManager[budget.Budget]:
    return budget.reading(os.fstat(file.fileno()).st_size)


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
    files.write_file(path, lambda file: np.savez(file, **arrays._asdict()))
