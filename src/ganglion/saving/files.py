"""Model files: written atomically, read without trust."""

from __future__ import annotations

import gc
import io
import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from ganglion import files
from ganglion.system import budget
from ganglion.system.terminal import lines

_MUCH = 64 << 20  # bytes
_LONGEST = 20_000  # characters of an error: a name in a file may have a million
# Exceptions of code that reads a file of another structure than expected.
_SYMPTOMS = (ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError,
             TypeError)  # fmt: skip


class MissingFileError(FileNotFoundError, ValueError):
    """There is no such file: a ValueError in Keras, a FileNotFoundError elsewhere."""


def local_path(filepath: Any) -> Path:
    """Return a path; refuse what names a place on another machine."""
    text = os.fspath(filepath)
    if isinstance(text, bytes):
        text = os.fsdecode(text)
    if "://" in text:
        raise ValueError(f"{text!r} is not a local path: save and load locally.")
    return Path(text).expanduser()


def write_checked(
    filepath: Any, write: Callable[[BinaryIO], Any], overwrite: bool = True
) -> None:
    """Write a file atomically; errors say what to do, and that nothing was changed."""
    path = Path(os.path.realpath(local_path(filepath)))
    if path.is_dir():
        raise IsADirectoryError(f"Cannot save to {filepath}: it is a folder.")
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"Cannot save to {filepath}: there is no folder {path.parent}. Make it "
            "first."
        )
    if path.exists() and not overwrite:
        raise FileExistsError(
            f"{filepath} exists already, and `overwrite=False` protects it: choose "
            "another name."
        )
    try:
        files.write_file(path, write)
    except OSError as error:
        raise OSError(
            error.errno,
            f"Cannot save to {filepath}: {error.strerror or error}. Nothing was "
            "changed; a file that was there before is intact.",
        ) from error


@contextmanager
def reading(
    filepath: Any, size: int | None = None, floor: int = budget.FLOOR
) -> Iterator[None]:
    """Turn whatever a damaged or hostile file causes into one clear error.

    Everything read from it draws from one budget, which depends on its size.
    """
    is_open = isinstance(filepath, io.IOBase)
    name = getattr(filepath, "name", "The file") if is_open else filepath
    try:
        size = _size(filepath) if size is None else size
        with budget.reading(size, floor) as spent:
            try:
                yield
            except BaseException as error:
                _release(error, spent)
                raise
    except FileNotFoundError as error:
        raise MissingFileError(_missing_file(str(name))) from error
    except IsADirectoryError as error:
        raise ValueError(
            f"{name} is a folder, not a file: give the path of a `.keras` or `.h5` "
            "file."
        ) from error
    except PermissionError:
        raise
    except OSError as error:
        raise ValueError(
            f"{name} cannot be read: {lines(error)}. Is it damaged?"
        ) from error
    except ValueError as error:
        text = lines(error)[:_LONGEST]
        if str(name) in text and text == str(error):
            raise
        raise ValueError(f"{name} cannot be loaded: {text}") from error
    except _SYMPTOMS as error:
        text = lines(error) or "no details"
        raise ValueError(
            f"{name} cannot be loaded: what it describes is not valid "
            f"({type(error).__name__}: {text:.300})."
        ) from error


def _missing_file(name: str) -> str:
    if name.endswith((".keras", ".h5", ".hdf5")):
        return (
            f"File not found: filepath={name}. Please ensure the file is an accessible "
            f"`.keras` or `.h5` file. There is no file {name}."
        )
    if name.endswith((".safetensors", ".pt", ".pth", ".onnx")):
        return f"File not found: filepath={name}. There is no file {name}."
    return (
        f"File format not supported: filepath={name} ends neither in `.keras` nor in "
        f"`.h5`. There is no file {name}."
    )


def _release(error: BaseException, spent: budget.Budget) -> None:
    """Free the objects that were built from a refused file, if they are large.

    A half-built model and its layers refer to each other, and the error's frames to it:
    several refused files would add up, until Python happens to look for garbage.
    """
    if spent.limit - spent.bytes_left > _MUCH:
        traceback.clear_frames(error.__traceback__)
        gc.collect()


def _size(source: Any) -> int:
    """Return the size of a file in bytes, 0 if it is unknown."""
    try:
        if isinstance(source, io.IOBase):
            at = source.tell()
            end = source.seek(0, os.SEEK_END)
            source.seek(at)
            return end
        return os.stat(local_path(source)).st_size
    except (OSError, ValueError, TypeError):
        return 0


def check_exists(path: Path) -> None:
    """Refuse a file that does not exist, and a path that is no file: a pipe, say."""
    if path.is_dir():
        raise IsADirectoryError(str(path))
    if not path.exists():
        raise FileNotFoundError(str(path))
    files.refuse_special(path)
