"""Weights out of PyTorch's files, old and new, as NumPy arrays; nothing is executed.

Since 1.6 such a file is a zip archive with a pickle and one member a storage; before,
it was a row of pickles with the storages behind them. Sizes are checked against the
file before anything is made of them.
"""

from __future__ import annotations

import io
import os
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from ganglion import files
from ganglion.applications.opcodes import Machine, RefusedError, Storage, Tensor
from ganglion.system import budget
from ganglion.system.terminal import lines

_MAGIC = 0x1950A86A20F9469CFC6C
# What damaged and hostile files cause; `RefusedError` is a ValueError.
_SYMPTOMS = (
    zipfile.BadZipFile,
    ValueError,
    TypeError,
    AttributeError,
    OverflowError,
    MemoryError,
    RuntimeError,
    struct.error,
)
_DTYPES = {
    "Float": "<f4",
    "Double": "<f8",
    "Half": "<f2",
    "Long": "<i8",
    "Int": "<i4",
    "Short": "<i2",
    "Char": "i1",
    "Byte": "u1",
    "Bool": "?",
}


def read_state_dict(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Return the tensors of a file that `torch.save(model.state_dict())` wrote.

    Args:
        path: The file; it needs neither PyTorch nor trust.
    """
    path = Path(path)
    try:
        data = files.read_file(path)
    except FileNotFoundError:
        raise FileNotFoundError(f"There is no file {path}.") from None
    except IsADirectoryError:
        raise ValueError(f"{path} is a folder, not a file of weights.") from None
    try:
        with budget.reading(len(data)):
            if data[:4] == b"PK\x03\x04":
                return _from_zip(data)
            return _from_pickles(data)
    except _SYMPTOMS as error:
        raise ValueError(
            f"{path} cannot be read as PyTorch weights: {lines(error)}. It must be "
            "what `torch.save(model.state_dict(), path)` writes."
        ) from None


def _from_zip(data: bytes) -> dict[str, np.ndarray]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {one.filename: one for one in archive.infolist()}
        pickles = [name for name in members if name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise RefusedError("it is a zip archive without the pickle of a state dict")
        folder = pickles[0].removesuffix("data.pkl")

        def member(name: str) -> bytes:
            if folder + name not in members:
                raise RefusedError(f"its member {name!r:.80} is missing")
            entry = members[folder + name]
            # PyTorch never compresses; a small file that unpacks to a huge one is no
            # mistake.
            if entry.compress_type != zipfile.ZIP_STORED:
                raise RefusedError(f"its member {name!r:.80} is compressed")
            # Members may lie over each other, so that many are of the same bytes.
            budget.take(entry.file_size, f"its member {name!r:.80}")
            try:
                return archive.read(entry)
            except (EOFError, ValueError, NotImplementedError, RuntimeError) as error:
                raise RefusedError(
                    f"its member {name!r:.80} is damaged ({error})"
                ) from None

        if folder + "byteorder" in members and member("byteorder") != b"little":
            raise RefusedError("its numbers are big-endian, which is not supported")
        table = _table(Machine(member("data.pkl")).run())
        held: dict[str, np.ndarray] = {}
        for storage in _storages(table):
            held[storage.key] = _numbers(storage, member(f"data/{storage.key}"))
        return _arrays(table, held)


def _from_pickles(data: bytes) -> dict[str, np.ndarray]:
    """Read the form before 1.6: magic, version, machine, tensors, keys, storages."""
    machine = Machine(data)

    def next_pickle() -> Any:
        nonlocal machine
        machine = Machine(data, machine.at)
        return machine.run()

    if data[:1] != b"\x80" or next_pickle() != _MAGIC:
        raise RefusedError("it does not start as such a file does")
    next_pickle()
    if next_pickle().get("little_endian") is not True:
        raise RefusedError("its numbers are big-endian, which is not supported")
    table = _table(next_pickle())
    wanted = {storage.key: storage for storage in _storages(table)}
    held: dict[str, np.ndarray] = {}
    for key in next_pickle():
        if key not in wanted:
            raise RefusedError(f"it holds a storage {key!r:.80} that no tensor uses")
        storage, at = wanted[key], machine.at
        size = storage.count * np.dtype(_DTYPES[storage.kind]).itemsize
        if len(data) < at + 8 + size:
            raise RefusedError("it ends too early")
        if struct.unpack_from("<q", data, at)[0] != storage.count:
            raise RefusedError(f"its storage {key!r:.80} has another size than is told")
        machine.at = at + 8 + size
        held[key] = _numbers(storage, data[at + 8 : at + 8 + size])
    return _arrays(table, held)


def _table(found: Any) -> dict[str, Tensor]:
    if not isinstance(found, dict):
        raise RefusedError("it does not hold a dictionary of tensors")
    for name, one in found.items():
        if not isinstance(one, Tensor):
            raise RefusedError(f"its entry {name!r:.80} is no tensor")
    return found


def _storages(table: dict[str, Tensor]) -> list[Storage]:
    found: dict[str, Storage] = {}
    for tensor in table.values():
        storage = tensor.storage
        if found.setdefault(storage.key, storage) != storage:
            raise RefusedError(
                f"it describes the storage {storage.key!r:.80} in two ways"
            )
    return list(found.values())


def _numbers(storage: Storage, raw: bytes) -> np.ndarray:
    dtype = np.dtype(_DTYPES[storage.kind])
    if len(raw) != storage.count * dtype.itemsize:
        raise RefusedError(
            f"its storage {storage.key!r:.80} has another size than is told"
        )
    return np.frombuffer(raw, dtype)


def _arrays(
    table: dict[str, Tensor], held: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    made: dict[str, np.ndarray] = {}
    for name, tensor in table.items():
        if tensor.storage.key not in held:
            raise RefusedError(f"the numbers of {name!r:.80} are missing")
        made[name] = _viewed(name, tensor, held[tensor.storage.key])
    return made


def _viewed(name: str, tensor: Tensor, numbers: np.ndarray) -> np.ndarray:
    """Return a copy of the view; it must lie in its storage."""
    size = 1
    for length in tensor.shape:
        size *= length
    last = tensor.offset + sum(
        (length - 1) * stride
        for length, stride in zip(tensor.shape, tensor.strides, strict=True)
    )
    # Strides of zero would let a few numbers pose as any amount.
    if size and (last >= len(numbers) or size > len(numbers)):
        raise RefusedError(f"the tensor {name!r:.80} reaches beyond its numbers")
    # Any number of tensors may be of the same numbers.
    budget.take(size * numbers.itemsize, f"the tensor {name!r:.80}")
    if not size:
        return np.zeros(tensor.shape, numbers.dtype)
    strides = [
        stride * numbers.itemsize if length > 1 else 0
        for length, stride in zip(tensor.shape, tensor.strides, strict=True)
    ]
    view = np.lib.stride_tricks.as_strided(
        numbers[tensor.offset :], tensor.shape, strides, writeable=False
    )
    return np.ascontiguousarray(view).reshape(tensor.shape)
