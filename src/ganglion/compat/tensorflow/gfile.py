"""`tf.io.gfile`, and reading and writing of files."""

from __future__ import annotations

import glob
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from ganglion import files
from ganglion.compat.tensorflow.data.elements import as_array
from ganglion.tensors import as_tensor


def _path(filename: Any) -> str:
    is_path = isinstance(filename, (str, os.PathLike))
    name = filename if is_path else np.asarray(filename).item()
    return name.decode() if isinstance(name, bytes) else os.fspath(name)


def read_file(filename: Any) -> Any:
    """Return what a file holds."""
    return as_tensor(np.array(Path(_path(filename)).read_bytes(), dtype=object))


def write_file(filename: Any, contents: Any) -> None:
    """Write a text or bytes into a file."""
    path = Path(_path(filename))
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_file(path, as_array(contents).item())


GFile = open


def remove(path: Any) -> None:
    """Remove a file."""
    os.remove(_path(path))


def rmtree(path: Any) -> None:
    """Remove a folder and everything in it."""
    shutil.rmtree(_path(path))


def copy(src: Any, dst: Any, overwrite: bool = False) -> None:
    """Copy a file."""
    if os.path.exists(_path(dst)) and not overwrite:
        raise FileExistsError(f"There is a file {_path(dst)} already.")
    with files.open_file(_path(src)) as source:
        files.write_file(_path(dst), lambda file: shutil.copyfileobj(source, file))


def rename(src: Any, dst: Any, overwrite: bool = False) -> None:
    """Rename a file."""
    if os.path.exists(_path(dst)) and not overwrite:
        raise FileExistsError(f"There is a file {_path(dst)} already.")
    os.replace(_path(src), _path(dst))


def mkdir(path: Any) -> None:
    """Make a folder."""
    os.mkdir(_path(path))


def join_paths(path: Any, *paths: Any) -> str:
    """Return the parts of a path as one."""
    return os.path.join(_path(path), *map(_path, paths))


def walk(top: Any, topdown: bool = True) -> Any:
    """Return the folders below a folder, with the contents of each."""
    return os.walk(_path(top), topdown)


def matching_files(pattern: Any) -> Any:
    """Return the names of files that fit a pattern, in order."""
    return as_tensor(as_array(sorted(glob_files(pattern))))


def exists(path: Any) -> bool:
    """Return whether there is such a file or folder."""
    return os.path.exists(_path(path))


def isdir(path: Any) -> bool:
    """Return whether there is such a folder."""
    return os.path.isdir(_path(path))


def listdir(path: Any) -> list[str]:
    """Return the names in a folder."""
    return os.listdir(_path(path))


def makedirs(path: Any) -> None:
    """Make a folder and those above it."""
    os.makedirs(_path(path), exist_ok=True)


def glob_files(pattern: Any) -> list[str]:
    """Return the files that fit a pattern."""
    patterns = [pattern] if isinstance(pattern, str) else pattern
    return [name for part in patterns for name in glob.glob(part)]
