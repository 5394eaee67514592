"""HDF5 files, read as data only: no links, no other files, no sizes out of proportion.

h5py is imported when the first file is opened.
"""

from __future__ import annotations

import io
import math
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ganglion.compiler.ir.graph import BFLOAT16
from ganglion.saving.files import write_checked
from ganglion.system import budget

# An array may be declared larger than what is stored, if it is small or compresses.
_FREE_BYTES = 1 << 26
_MOST_EXPANSION = 1000
_DEFLATE = 1
_FILTERS = {_DEFLATE: "gzip", 2: "shuffle", 3: "fletcher32"}
_CHECKSUM = 4  # bytes that fletcher32 adds
_SEAL = "ganglion_crc32"
NUMBERS = "biuf"  # NumPy's kinds of arrays that are written and read


@contextmanager
def open_h5(source: Any, mode: str = "r") -> Iterator[Any]:
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
    """Walk all groups without following links; refuse anything but plain data."""
    import h5py

    seen: set[Any] = set()
    stack: list[tuple[Any, int]] = [(file, 0)]
    while stack:
        group, depth = stack.pop()
        if depth > budget.DEPTH:
            raise ValueError("its groups are nested too deeply.")
        for name in group:
            budget.count("groups and arrays")
            where = f"{group.name.rstrip('/')}/{name}"
            link = group.get(name, getlink=True)
            if not isinstance(link, h5py.HardLink):
                kind = type(link).__name__
                raise ValueError(
                    f"{where!r} is a link to elsewhere ({kind}), which is refused."
                )
            item = group[name]
            if isinstance(item, h5py.Group):
                address = h5py.h5o.get_info(item.id).addr
                if address in seen:
                    raise ValueError(f"{where!r} contains itself.")
                seen.add(address)
                stack.append((item, depth + 1))
            elif isinstance(item, h5py.Dataset):
                _check_dataset(item, where)
            else:
                raise ValueError(f"{where!r} is neither a group nor an array.")


def _check_dataset(dataset: Any, where: str) -> None:
    if dataset.external or dataset.is_virtual:
        raise ValueError(f"{where!r} keeps its data in another file: refused.")
    shape, dtype = dataset.shape, dataset.dtype
    is_number = dtype.kind in NUMBERS or _is_bfloat16(dataset)
    if shape is None or not is_number or dtype.hasobject:
        raise ValueError(f"{where!r} holds {dtype}, not numbers.")
    declared, stored = math.prod(shape) * dtype.itemsize, dataset.id.get_storage_size()
    if declared > _FREE_BYTES and declared > _MOST_EXPANSION * stored:
        raise ValueError(
            f"{where!r} claims {declared:,} bytes, but only {stored:,} are stored: "
            "refused as a decompression bomb."
        )
    budget.take(declared, f"the array {where!r}")
    if dataset.chunks is not None:
        _check_chunks(dataset, where)


def _check_chunks(dataset: Any, where: str) -> None:
    """Refuse chunks that unpack to more than they are: HDF5 itself would not notice."""
    size = math.prod(dataset.chunks) * dataset.dtype.itemsize
    budget.take(size, f"a part of the array {where!r}")
    settings = dataset.id.get_create_plist()
    filters = [settings.get_filter(i)[0] for i in range(settings.get_nfilters())]
    unknown = set(filters) - _FILTERS.keys()
    if unknown or filters.count(_DEFLATE) > 1:
        raise ValueError(
            f"{where!r} is compressed in a way that is not supported: only "
            f"{', '.join(_FILTERS.values())}, each once."
        )
    if _DEFLATE not in filters:
        return
    size += _CHECKSUM  # there may be one inside
    for number in range(dataset.id.get_num_chunks()):
        budget.count("parts of arrays")
        info = dataset.id.get_chunk_info(number)
        budget.take(info.size, f"a part of the array {where!r}")
        if not info.filter_mask >> filters.index(_DEFLATE) & 1:  # it was left out
            _, raw = dataset.id.read_direct_chunk(info.chunk_offset)
            _check_deflated(raw, size, where)


def _check_deflated(raw: bytes, size: int, where: str) -> None:
    try:
        # One byte more than fits, so that data that unpacks to gigabytes is noticed.
        unpacked = zlib.decompressobj().decompress(raw, size + 1)
    except zlib.error as error:
        raise ValueError(f"the array {where!r} is damaged ({error}).") from error
    if len(unpacked) > size:
        raise ValueError(
            f"a part of {where!r} unpacks to more than its {size:,} bytes: refused as "
            "a decompression bomb."
        )


def write_h5(path: Path, write: Any, overwrite: bool = True) -> None:
    """Write an HDF5 file atomically; a function fills it."""

    def write_file(file: Any) -> None:
        # In memory first: HDF5 reports a full disk too late, and only in part.
        buffer = io.BytesIO()
        with open_h5(buffer, "w") as store:
            write(store)
            seal(store)
        file.write(buffer.getbuffer())

    write_checked(path, write_file, overwrite)


def seal(file: Any) -> None:
    """Write a checksum of all arrays: HDF5 itself would not notice a changed bit."""
    file.attrs[_SEAL] = _checksum(file)


def check_seal(file: Any) -> None:
    """Refuse arrays that differ from those written, if the file has checksums."""
    if _SEAL in file.attrs and int(attribute(file, _SEAL)) != _checksum(file):
        raise ValueError("its arrays do not have the checksum they were written with.")


def _checksum(file: Any) -> int:
    items: dict[str, Any] = {}
    file.visititems(items.__setitem__)
    total = 0
    for name, item in sorted(items.items()):
        if hasattr(item, "shape"):
            total = zlib.crc32(name.encode(), total)
            total = zlib.crc32(np.ascontiguousarray(_stored(item)).data, total)
    return total


def array(dataset: Any) -> np.ndarray:
    """Read an array."""
    stored = _stored(dataset)
    return stored.view(BFLOAT16) if _is_bfloat16(dataset) else stored


def _is_bfloat16(dataset: Any) -> bool:
    """Return whether pairs of bytes are numbers, by an attribute of Keras."""
    if dataset.dtype != np.dtype("V2"):
        return False
    return bool(attribute(dataset, "dtype", "") == BFLOAT16.name)


def _stored(dataset: Any) -> np.ndarray:
    try:
        return np.asarray(dataset[()])
    except (OSError, RuntimeError) as error:
        raise ValueError(f"the array {dataset.name!r} is damaged ({error}).") from error


def put(group: Any, name: str, value: np.ndarray) -> None:
    """Write an array under a name."""
    array = np.asarray(value)
    is_bfloat16 = array.dtype == BFLOAT16  # which HDF5 does not know
    dataset = group.create_dataset(
        name, data=array.view("V2") if is_bfloat16 else array
    )
    if is_bfloat16:
        dataset.attrs["dtype"] = BFLOAT16.name


_REQUIRED = object()


def attribute(owner: Any, name: str, default: Any = _REQUIRED) -> Any:
    """Return an attribute: a number, a text, or a list of texts."""
    if name not in owner.attrs:
        if default is _REQUIRED:
            raise ValueError(f"{owner.name!r} has no attribute {name!r}.")
        return default
    _check_attribute(owner, name)
    value = owner.attrs[name]
    if isinstance(value, np.ndarray) and value.ndim:
        return [text(item) for item in value.reshape(-1)]
    return text(value) if isinstance(value, (bytes, str)) else value


def _check_attribute(owner: Any, name: str) -> None:
    """Refuse an attribute that is larger than it may be, before it is read."""
    from h5py import h5t

    stored = owner.attrs.get_id(name)
    kind, count = stored.get_type(), math.prod(stored.shape or ())
    is_text = isinstance(kind, h5t.TypeStringID)
    if not is_text and not isinstance(kind, (h5t.TypeIntegerID, h5t.TypeFloatID)):
        raise ValueError(f"its attribute {name!r} is neither text nor a number.")
    size = kind.get_size()
    if is_text and kind.is_variable_str():
        # Each may refer to the same long text, and is read as its own.
        size = owner.file.id.get_filesize() if count > 1 else size
    budget.take(count * size, f"its attribute {name!r}")


def text(value: Any) -> str:
    """Return a text that may be stored as bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)


def names(group: Any, name: str) -> list[str]:
    """Return a list of texts that Keras may have split over several attributes."""
    if name in group.attrs:
        return list(attribute(group, name))
    texts: list[str] = []
    chunk = 0
    while f"{name}{chunk}" in group.attrs:
        texts.extend(attribute(group, f"{name}{chunk}"))
        chunk += 1
    return texts
