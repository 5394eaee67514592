"""The file format safetensors: a length, a header in JSON, and the bytes of arrays.

Nothing in such a file is code. Everything in its header is checked before memory is
allocated for it: arrays are in the file one after the other, without overlap or gap.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import ml_dtypes
import numpy as np

from ganglion import files
from ganglion.system import budget
from ganglion.system.terminal import printable

_LENGTH = struct.Struct("<Q")
_MOST_HEADER = 100_000_000  # bytes; the limit of the format's own reader
_MOST_AXES = 32
_METADATA = "__metadata__"
_WRITER = "ganglion"
_DTYPES = {
    "BOOL": np.dtype("?"),
    "U8": np.dtype("u1"),
    "I8": np.dtype("i1"),
    "U16": np.dtype("<u2"),
    "I16": np.dtype("<i2"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "U32": np.dtype("<u4"),
    "I32": np.dtype("<i4"),
    "F32": np.dtype("<f4"),
    "U64": np.dtype("<u8"),
    "I64": np.dtype("<i8"),
    "F64": np.dtype("<f8"),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


class Tensors(NamedTuple):
    """The contents of a file."""

    arrays: dict[str, np.ndarray]
    metadata: dict[str, str]

    @property
    def is_ordered(self) -> bool:
        """Whether the order is that of a model: other writers sort by name."""
        return self.metadata.get("writer") == _WRITER


# ---- writing -------------------------------------------------------------------------


def write(file: BinaryIO, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays by name, in their order."""
    header: dict[str, Any] = {_METADATA: {"format": "pt", "writer": _WRITER}}
    end = 0
    for name, array in arrays.items():
        dtype = array.dtype.newbyteorder("<")
        if dtype not in _NAMES or name == _METADATA:
            reason = f"{name!r} holds {dtype}, which safetensors does not have."
            raise ValueError(reason)
        start, end = end, end + array.nbytes
        header[name] = {
            "dtype": _NAMES[dtype],
            "shape": list(array.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # so that numbers are aligned
    file.write(_LENGTH.pack(len(text)) + text)
    for array in arrays.values():
        little = np.asarray(array, array.dtype.newbyteorder("<"), order="C")
        file.write(little.tobytes())


# ---- reading -------------------------------------------------------------------------


def read(path: Path) -> Tensors:
    """Return all arrays of a file; within `saving.files.reading`, for good errors."""
    with files.open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        header = _header(file, size)
        metadata = header.pop(_METADATA, {})
        if not isinstance(metadata, dict) or not all(
            isinstance(value, str) for value in metadata.values()
        ):
            raise ValueError("its metadata is not a table of texts.")
        size -= file.tell()
        places = {}
        for name, entry in header.items():
            budget.count("arrays")
            places[name] = _entry(name, entry, size)
        spans = [(*span, name) for name, (_, _, span) in places.items()]
        _check_spans(sorted(spans), size)
        budget.take(size, "its content")
        body = memoryview(file.read(size))
    arrays = {
        name: np.frombuffer(body[first:last], dtype).reshape(shape)
        if first < last
        else np.zeros(shape, dtype)
        for name, (dtype, shape, (first, last)) in places.items()
    }
    return Tensors(arrays, metadata)


def _header(file: BinaryIO, size: int) -> dict[str, Any]:
    if size < _LENGTH.size:
        raise ValueError(f"it has {size} bytes: it is not a safetensors file.")
    (length,) = _LENGTH.unpack(file.read(_LENGTH.size))
    if length > _MOST_HEADER or _LENGTH.size + length > size:
        raise ValueError(
            f"its header would have {length:,} bytes, in a file of {size:,}: it "
            "is not a safetensors file, or is cut short."
        )
    text = file.read(length)
    if text[:1] != b"{":
        raise ValueError("its header does not begin as one of safetensors does.")
    try:
        return budget.parsed_json(text.decode(), _unique)
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"its header is damaged ({error}).") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        (twice, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"its header has {printable(twice)!r:.80} twice.")
    return table


def _entry(
    name: str, entry: Any, size: int
) -> tuple[np.dtype, tuple[int, ...], tuple[int, int]]:
    """Return the type, the shape and the place of an array that the header names."""
    shown = f"its array {printable(name)!r:.80}"
    keys = {"dtype", "shape", "data_offsets"}
    if not isinstance(entry, dict) or entry.keys() != keys:
        raise ValueError(f"{shown} has no plain dtype, shape and data_offsets.")
    if not isinstance(entry["dtype"], str) or entry["dtype"] not in _DTYPES:
        raise ValueError(
            f"{shown} is of the unknown type {printable(entry['dtype'])!r:.80}; known "
            f"are {', '.join(_DTYPES)}."
        )
    dtype, shape, offsets = (
        _DTYPES[entry["dtype"]],
        entry["shape"],
        entry["data_offsets"],
    )
    if not _are_sizes(shape) or len(shape) > _MOST_AXES:
        raise ValueError(f"{shown} has an impossible shape: {shape!s:.80}.")
    if not _are_sizes(offsets) or len(offsets) != 2:
        raise ValueError(f"{shown} has an impossible location: {offsets!s:.80}.")
    first, last = offsets
    if not first <= last <= size:
        raise ValueError(
            f"{shown} lies at bytes {first:,} to {last:,}, but the file has {size:,}: "
            "it is cut short, or damaged."
        )
    if last - first != math.prod(shape) * dtype.itemsize:
        raise ValueError(
            f"{shown} of shape {tuple(shape)!s:.80} has {last - first:,} bytes, "
            f"which is not its size."
        )
    return dtype, tuple(shape), (first, last)


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(n) is int and n >= 0 for n in values)


def _check_spans(spans: list[tuple[int, int, str]], size: int) -> None:
    end = 0
    for first, last, name in spans:
        if first != end:
            what = "lies over another" if first < end else "leaves a gap before it"
            raise ValueError(f"its array {printable(name)!r:.80} {what}.")
        end = last
    if end != size:
        raise ValueError(f"{size - end:,} of its bytes belong to no array.")
