"""Decoded images on disk: found again by the names, sizes and times of their files.

An entry is a folder, written beside and renamed as a whole: `pixels.npy` (whole
numbers), `index.json` (which files could be read, why others could not, and a checksum
that covers the entry's name), and parts of large ones. The oldest entries make room
when there are too many.
"""

from __future__ import annotations

import hashlib
import json
import os
import tokenize
import zlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ganglion import config, files
from ganglion.images.decoding import Form
from ganglion.system.records import record

VERSION = 2
LARGEST_IN_MEMORY = (
    256 << 20
)  # bytes; from here on pixels stay on disk, mapped into memory
MOST = 16 << 30  # bytes of all entries
_PIXELS, _INDEX = "pixels.npy", "index.json"
_CHUNK = 1024  # rows copied at a time


@record(guarded=True)
class Decoded:
    """The pixels of those files that could be read; why the others could not."""

    pixels: np.ndarray
    readable: np.ndarray  # which of the files, in order
    problems: dict[int, str]  # by the number of the file
    entry: Path | None = None  # its folder in the cache


def folder() -> Path:
    """Return the folder of entries: in GANGLION_HOME, else the user's cache."""
    return config.home() / "images"


def key_of(paths: Sequence[Path], form: Form) -> str:
    """Return the name of an entry: another file, size, time or form is another one."""
    total = hashlib.sha256(json.dumps([VERSION, form.as_data()]).encode())
    for path in paths:
        facts: list[Any] = [str(path.absolute())]
        with suppress(OSError):
            status = path.stat()
            facts += [status.st_size, status.st_mtime_ns]
        total.update(json.dumps(facts).encode())
    return total.hexdigest()[:32]


def read(key: str, count: int, form: Form) -> Decoded | None:
    """Return an entry, None where there is none, or not the one that was made there."""
    entry = folder() / key
    try:
        index = json.loads(files.read_file(entry / _INDEX))
        if index.pop("check") != _check(key, index):
            raise ValueError("another entry")
        readable = np.array(index["kept"], dtype="int64")
        problems = {int(number): str(why) for number, why in index["problems"].items()}
        if len(readable) + len(problems) != count:
            raise ValueError("another number of files")
        pixels = _mapped(entry / _PIXELS, (len(readable), *form.shape))
        if pixels.size <= LARGEST_IN_MEMORY:
            pixels = np.array(pixels)
            # A large one is not read through: its length was checked by mapping it.
            if zlib.crc32(pixels.data) != index["crc32"]:
                raise ValueError("another checksum")
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    with suppress(OSError):
        os.utime(entry)
    return Decoded(pixels, readable, problems, entry)


def _check(key: str, index: dict[str, Any]) -> str:
    """Return the checksum of an index and of the name of its entry."""
    text = json.dumps([key, index], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _mapped(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    """Map an array of this shape into memory; refuse any other."""
    files.refuse_special(path)
    try:
        pixels = np.load(path, mmap_mode="r", allow_pickle=False)
    except (tokenize.TokenError, SyntaxError, EOFError) as error:
        raise ValueError("damaged") from error  # its head is read as Python
    if pixels.shape != shape or pixels.dtype != np.uint8:
        raise ValueError("another shape")
    return pixels


def alone(key: str) -> AbstractContextManager[None]:
    """Let a single process at a time create an entry; others wait, and find it then."""
    return files.locked(folder() / key)


def write(
    key: str, shape: tuple[int, ...], fill: Callable[[np.ndarray], dict[int, str]]
) -> Decoded:
    """Make an entry: ``fill`` writes rows into an array and returns what was no image.

    Rows of files that could not be read are taken out again. Nothing is written if
    anything fails, or on Ctrl-C.
    """
    cache_folder = folder()
    cache_folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    size = int(np.prod(shape))
    others = [p for p in cache_folder.iterdir() if p.name != key and p.name[0] != "."]
    files.remove_oldest(others, MOST - size)
    large = size > LARGEST_IN_MEMORY
    # Decoded again if a power failure destroys it: no need to wait for the disk.
    with files.new_folder(cache_folder / key, durable=False) as part:
        path = part / _PIXELS
        pixels = (
            np.lib.format.open_memmap(path, "w+", dtype=np.uint8, shape=shape)
            if large
            else np.empty(shape, "uint8")
        )
        problems = fill(pixels)
        readable = np.array([i for i in range(shape[0]) if i not in problems], "int64")
        if problems:
            pixels = _take(pixels, readable, path if large else None)
        if large:
            # Mapped before it is in its place, where another process may clear it.
            pixels = np.load(path, mmap_mode="r", allow_pickle=False)
        else:
            np.save(path, pixels)
        index = {
            "kept": readable.tolist(),
            "problems": {str(number): why for number, why in problems.items()},
            "crc32": 0 if large else zlib.crc32(np.ascontiguousarray(pixels).data),
        }
        index["check"] = _check(key, index)
        (part / _INDEX).write_text(json.dumps(index), encoding="utf-8")
    return Decoded(pixels, readable, problems, cache_folder / key)


def rows(decoded: Decoded, wanted: np.ndarray) -> np.ndarray:
    """Return some rows; many rows of a mapped array get a separate mapped file."""
    pixels = decoded.pixels
    if len(wanted) == len(pixels) and bool((np.diff(wanted) == 1).all()):
        return pixels
    size = len(wanted) * int(np.prod(pixels.shape[1:]))
    if decoded.entry is None or size <= LARGEST_IN_MEMORY:
        return np.asarray(pixels[wanted])
    name = hashlib.sha256(np.asarray(wanted, "<i8").tobytes()).hexdigest()[:24]
    path = decoded.entry / f"rows-{name}.npy"
    try:
        if not path.exists():
            _take(pixels, wanted, path)
        return _mapped(path, (len(wanted), *pixels.shape[1:]))
    except (OSError, ValueError):  # another process made room; the disk is full
        return np.asarray(pixels[wanted])


def _take(pixels: np.ndarray, wanted: np.ndarray, path: Path | None) -> np.ndarray:
    """Return some rows as a new array, in a file if there is a path for it."""
    if path is None:
        return pixels[wanted]

    def write(file: BinaryIO) -> None:
        shape = (len(wanted), *pixels.shape[1:])
        head = {"descr": "|u1", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, head)
        for at in range(0, len(wanted), _CHUNK):
            file.write(np.ascontiguousarray(pixels[wanted[at : at + _CHUNK]]).data)

    files.write_file(path, write, durable=False)
    return np.load(path, mmap_mode="r", allow_pickle=False)
