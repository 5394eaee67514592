"""Decoded images on disk: found again by the names, sizes and times of their files.

An entry is a folder, written beside and renamed as a whole: `pixels.npy` (whole
numbers), `index.json` (which files could be read, and why others could not), and parts
of large ones. The oldest entries make room when there are too many.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ganglion import config
from ganglion.images.decoding import Form

VERSION = 1
LARGE = 256 << 20  # bytes; from here on pixels stay on disk, mapped into memory
MOST = 16 << 30  # bytes of all entries
_PIXELS, _INDEX = "pixels.npy", "index.json"
_CHUNK = 1024  # rows copied at a time


@dataclass(frozen=True)
class Decoded:
    """The pixels of those files that could be read; why the others could not."""

    pixels: np.ndarray
    kept: np.ndarray  # which of the files, in order
    problems: dict[int, str]  # by the number of the file
    place: Path | None = None  # the entry


def folder() -> Path:
    """Return the folder of entries: in GANGLION_HOME, else the user's cache."""
    return config.home() / "images"


def key_of(files: Sequence[Path], form: Form) -> str:
    """Return the name of an entry: another file, size, time or form is another one."""
    total = hashlib.sha256(json.dumps([VERSION, form.as_data()]).encode())
    for one in files:
        try:
            found = one.stat()
            what = [str(one.absolute()), found.st_size, found.st_mtime_ns]
        except OSError:
            what = [str(one.absolute())]
        total.update(json.dumps(what).encode())
    return total.hexdigest()[:32]


def read(key: str, files: int, form: Form) -> Decoded | None:
    """Return an entry, None where there is none or it is damaged."""
    place = folder() / key
    try:
        index = json.loads((place / _INDEX).read_text(encoding="utf-8"))
        kept = np.array(index["kept"], dtype="int64")
        problems = {int(number): str(why) for number, why in index["problems"].items()}
        large = len(kept) * int(np.prod(form.shape)) > LARGE
        path = place / _PIXELS
        pixels = np.load(path, mmap_mode="r" if large else None, allow_pickle=False)
        fits = pixels.shape == (len(kept), *form.shape) and pixels.dtype == np.uint8
        if not fits or len(kept) + len(problems) != files:
            raise ValueError("another shape")
        # A large one is not read through: its length has been checked by mapping it.
        if not large and zlib.crc32(pixels.data) != index["crc32"]:
            raise ValueError("another checksum")
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    with suppress(OSError):
        os.utime(place)
    return Decoded(pixels, kept, problems, place)


def write(
    key: str, shape: tuple[int, ...], fill: Callable[[np.ndarray], dict[int, str]]
) -> Decoded:
    """Make an entry: ``fill`` writes rows into an array and returns what was no image.

    Rows of files that could not be read are taken out again. Nothing is kept if
    anything fails, or on Ctrl-C.
    """
    home = folder()
    home.mkdir(parents=True, exist_ok=True)
    _make_room(home, key, int(np.prod(shape)))
    beside = Path(tempfile.mkdtemp(dir=home, prefix=f".{key}."))
    try:
        large = int(np.prod(shape)) > LARGE
        pixels = _room(beside / _PIXELS, shape) if large else np.empty(shape, "uint8")
        problems = fill(pixels)
        kept = np.array([i for i in range(shape[0]) if i not in problems], "int64")
        if problems:
            pixels = _take(pixels, kept, beside / _PIXELS if large else None)
        crc = 0 if large else zlib.crc32(pixels.data)
        if not large:
            np.save(beside / _PIXELS, pixels)
        del pixels
        index = {"kept": kept.tolist(), "problems": problems, "crc32": crc}
        (beside / _INDEX).write_text(json.dumps(index), encoding="utf-8")
        with suppress(OSError):  # damaged, or made by somebody else in the meantime
            shutil.rmtree(home / key)
        os.rename(beside, home / key)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise
    path = home / key / _PIXELS
    pixels = np.load(path, mmap_mode="r" if large else None, allow_pickle=False)
    return Decoded(pixels, kept, problems, home / key)


def rows(decoded: Decoded, wanted: np.ndarray) -> np.ndarray:
    """Return some rows; many of a mapped array are kept beside it, mapped as well."""
    pixels = decoded.pixels
    if len(wanted) == len(pixels) and bool((np.diff(wanted) == 1).all()):
        return pixels
    size = len(wanted) * int(np.prod(pixels.shape[1:]))
    if decoded.place is None or size <= LARGE:
        return np.asarray(pixels[wanted])
    name = hashlib.sha256(np.asarray(wanted, "<i8").tobytes()).hexdigest()[:24]
    path = decoded.place / f"rows-{name}.npy"
    if not path.exists():
        _take(pixels, wanted, path)
    return np.load(path, mmap_mode="r", allow_pickle=False)


def _room(path: Path, shape: tuple[int, ...]) -> np.ndarray:
    return np.lib.format.open_memmap(path, "w+", dtype=np.uint8, shape=shape)


def _take(pixels: np.ndarray, wanted: np.ndarray, path: Path | None) -> np.ndarray:
    """Return some rows as a new array, in a file if there is a path for it."""
    if path is None:
        return pixels[wanted]
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".rows.", suffix=".npy")
    os.close(handle)
    try:
        made: Any = _room(Path(name), (len(wanted), *pixels.shape[1:]))
        for at in range(0, len(wanted), _CHUNK):
            made[at : at + _CHUNK] = pixels[wanted[at : at + _CHUNK]]
        made.flush()
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return made


def _make_room(home: Path, key: str, size: int) -> None:
    """Remove the entries that were used longest ago, when there are too many bytes."""
    entries = []
    for one in home.iterdir():
        with suppress(OSError):
            total = sum(part.stat().st_size for part in one.iterdir())
            entries.append((one.stat().st_mtime, total, one))
    held = sum(total for _, total, _ in entries) + size
    for _, total, one in sorted(entries):
        if held <= MOST:
            return
        if one.name != key and not one.name.startswith("."):
            shutil.rmtree(one, ignore_errors=True)
            held -= total
