"""HDF5 files, read as data only: no links, no other files, no sizes out of proportion.

h5py is imported when the first file is opened.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

_MOST_OBJECTS = 200_000
_MOST_DEPTH = 64
# An array may be declared larger than what is stored, if it is small or compresses.
_FREE_BYTES = 1 << 26
_MOST_EXPANSION = 1000
_SEAL = "ganglion_crc32"


@contextmanager
def opened(source: Any, mode: str = "r") -> Iterator[Any]:
    """Open a file, a path or bytes in memory; check everything in it when reading."""
    import h5py

    try:
        file = h5py.File(source, mode)
    except (OSError, RuntimeError) as error:
        if isinstance(error, (FileNotFoundError, PermissionError)):
            raise
        raise ValueError(
            f"it holds no HDF5 weights, or they are cut short ({error})."
        ) from error
    with file:
        if mode == "r":
            try:
                _check(file)
            except (RuntimeError, KeyError) as error:
                raise ValueError(f"its HDF5 structure is damaged ({error}).") from error
        yield file


def _check(file: Any) -> None:
    """Walk all groups without following links; refuse what is not plain data."""
    import h5py

    seen: set[Any] = set()
    stack: list[tuple[Any, int]] = [(file, 0)]
    count = 0
    while stack:
        group, depth = stack.pop()
        if depth > _MOST_DEPTH:
            raise ValueError("its groups are nested too deeply.")
        for name in group:
            count += 1
            where = f"{group.name.rstrip('/')}/{name}"
            link = group.get(name, getlink=True)
            if not isinstance(link, h5py.HardLink):
                raise ValueError(f"{where!r} is a link to elsewhere, which is refused.")
            if count > _MOST_OBJECTS:
                raise ValueError(f"it holds more than {_MOST_OBJECTS} objects.")
            found = group[name]
            if isinstance(found, h5py.Group):
                address = h5py.h5o.get_info(found.id).addr
                if address in seen:
                    raise ValueError(f"{where!r} contains itself.")
                seen.add(address)
                stack.append((found, depth + 1))
            elif isinstance(found, h5py.Dataset):
                _check_dataset(found, where)
            else:
                raise ValueError(f"{where!r} is neither a group nor an array.")


def _check_dataset(found: Any, where: str) -> None:
    if found.external or found.is_virtual:
        raise ValueError(f"{where!r} keeps its data in another file: refused.")
    if found.shape is None or found.dtype.kind not in "biuf" or found.dtype.hasobject:
        raise ValueError(f"{where!r} holds {found.dtype}, not numbers.")
    declared = math.prod(found.shape) * found.dtype.itemsize
    stored = found.id.get_storage_size()
    if declared > _FREE_BYTES and declared > _MOST_EXPANSION * stored:
        raise ValueError(
            f"{where!r} claims {declared:,} bytes, but only {stored:,} are stored: "
            "refused as a decompression bomb."
        )


def seal(file: Any) -> None:
    """Write a checksum of all arrays: HDF5 itself would not notice a changed bit."""
    file.attrs[_SEAL] = _checksum(file)


def check_seal(file: Any) -> None:
    """Refuse arrays that are not those that were written, if the file can tell."""
    if _SEAL in file.attrs and int(file.attrs[_SEAL]) != _checksum(file):
        raise ValueError("its arrays do not have the checksum they were written with.")


def _checksum(file: Any) -> int:
    found: dict[str, Any] = {}

    def note(name: str, item: Any) -> None:
        if hasattr(item, "shape"):
            found[name] = item

    file.visititems(note)
    total = 0
    for name in sorted(found):
        total = zlib.crc32(name.encode(), total)
        total = zlib.crc32(np.ascontiguousarray(array(found[name])).data, total)
    return total


def array(found: Any) -> np.ndarray:
    """Read an array."""
    try:
        return np.asarray(found[()])
    except (OSError, RuntimeError) as error:
        raise ValueError(f"the array {found.name!r} is damaged ({error}).") from error


def put(group: Any, name: str, value: np.ndarray) -> None:
    """Write an array under a name."""
    group.create_dataset(name, data=np.asarray(value))


def text(attribute: Any) -> str:
    """Return a text that may be stored as bytes."""
    return attribute.decode() if isinstance(attribute, bytes) else str(attribute)


def names(group: Any, name: str) -> list[str]:
    """Return a list of texts that Keras may have split over several attributes."""
    if name in group.attrs:
        return [text(one) for one in group.attrs[name]]
    found: list[str] = []
    chunk = 0
    while f"{name}{chunk}" in group.attrs:
        found.extend(text(one) for one in group.attrs[f"{name}{chunk}"])
        chunk += 1
    return found
