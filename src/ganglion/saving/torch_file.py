"""Weights out of PyTorch's files, old and new, as NumPy arrays; nothing is executed.

Since 1.6 such a file is a zip archive with a pickle and one member a storage; before,
it was a row of pickles with the storages behind them. Sizes are checked against the
file before memory is taken for them.

The pickles are read by `system.pickles`, which calls nothing; the few names that stand
in a dictionary of tensors are data here. What is written is what `torch.load` reads
with `weights_only=True`.
"""

from __future__ import annotations

import math
import os
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np

from ganglion import files
from ganglion.system import budget
from ganglion.system.pickles import Dialect, Machine, Name, RefusedError
from ganglion.system.terminal import lines

_MAGIC = 0x1950A86A20F9469CFC6C
# Exceptions that damaged and hostile files cause; `RefusedError` is a ValueError.
_SYMPTOMS = (zipfile.BadZipFile, ValueError, TypeError, AttributeError, OverflowError,
             OSError, MemoryError, RuntimeError, struct.error)  # fmt: skip
_DTYPES = {
    f"torch.{name}Storage": np.dtype(code)
    for name, code in [
        ("Float", "<f4"),
        ("Double", "<f8"),
        ("Half", "<f2"),
        ("BFloat16", ml_dtypes.bfloat16),
        ("Long", "<i8"),
        ("Int", "<i4"),
        ("Short", "<i2"),
        ("Char", "i1"),
        ("Byte", "u1"),
        ("Bool", "?"),
    ]
}


@dataclass(frozen=True)
class Storage:
    """A run of numbers that is elsewhere in the file."""

    key: str
    dtype: np.dtype
    count: int


@dataclass(frozen=True)
class Tensor:
    """A view of a storage."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


# ---- files -----------------------------------------------------------------------


def read_state_dict(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """Return the tensors of a file that `torch.save(model.state_dict())` wrote.

    Args:
        path: The file; it needs neither PyTorch nor trust.
    """
    path = Path(path)
    try:
        file = files.open_file(path)
    except FileNotFoundError:
        raise FileNotFoundError(f"There is no file {path}.") from None
    except IsADirectoryError:
        raise ValueError(f"{path} is a folder, not a file of weights.") from None
    try:
        with file, budget.reading(os.fstat(file.fileno()).st_size):
            if file.peek(4)[:4] == b"PK\x03\x04":
                return _from_zip(file)
            if file.peek(1)[:1] != b"\x80":
                raise RefusedError("it does not start as such a file does")
            return _from_pickles(file.read())
    except _SYMPTOMS as error:
        raise ValueError(
            f"{path} cannot be read as PyTorch weights: {lines(error)}. It must be "
            "what `torch.save(model.state_dict(), path)` writes."
        ) from None


def _from_zip(file: BinaryIO) -> dict[str, np.ndarray]:
    with zipfile.ZipFile(file) as archive:
        members = {info.filename: info for info in archive.infolist()}
        pickles = [name for name in members if name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise RefusedError("it is a zip archive without the pickle of a state dict")
        folder = pickles[0].removesuffix("data.pkl")

        def member(name: str) -> bytes:
            if folder + name not in members:
                raise RefusedError(f"its member {name!r:.80} is missing")
            info = members[folder + name]
            # PyTorch never compresses: a small file that unpacks to a huge one is an
            # attack.
            if info.compress_type != zipfile.ZIP_STORED:
                raise RefusedError(f"its member {name!r:.80} is compressed")
            # Members may overlap, so that many have the same bytes.
            budget.take(info.file_size, f"its member {name!r:.80}")
            try:
                return archive.read(info)
            except (EOFError, ValueError, NotImplementedError, RuntimeError) as error:
                raise RefusedError(
                    f"its member {name!r:.80} is damaged ({error})"
                ) from None

        if folder + "byteorder" in members and member("byteorder") != b"little":
            raise RefusedError("its numbers are big-endian, which is not supported")
        tensors = _tensors(Machine(member("data.pkl"), TENSORS).run())
        numbers = {
            key: _numbers(storage, member(f"data/{key}"))
            for key, storage in _storages(tensors).items()
        }
        return _arrays(tensors, numbers)


def _from_pickles(data: bytes) -> dict[str, np.ndarray]:
    """Read the form before 1.6: magic, version, machine, tensors, keys, storages."""
    machine = Machine(data, TENSORS)

    def next_pickle() -> Any:
        nonlocal machine
        machine = Machine(data, TENSORS, machine.at)
        return machine.run()

    if next_pickle() != _MAGIC:
        raise RefusedError("it does not start as such a file does")
    next_pickle()
    if next_pickle().get("little_endian") is not True:
        raise RefusedError("its numbers are big-endian, which is not supported")
    tensors = _tensors(next_pickle())
    storages = _storages(tensors)
    numbers: dict[str, np.ndarray] = {}
    for key in next_pickle():
        if key not in storages:
            raise RefusedError(f"it holds a storage {key!r:.80} that no tensor uses")
        storage, start = storages[key], machine.at + 8
        machine.at = start + storage.count * storage.dtype.itemsize
        if len(data) < machine.at:
            raise RefusedError("it ends too early")
        if struct.unpack_from("<q", data, start - 8)[0] != storage.count:
            raise RefusedError(
                f"its storage {key!r:.80} differs in size from what the file says"
            )
        numbers[key] = _numbers(storage, data[start : machine.at])
    return _arrays(tensors, numbers)


def _tensors(table: Any) -> dict[str, Tensor]:
    if not isinstance(table, dict):
        raise RefusedError("it does not hold a dictionary of tensors")
    for name, value in table.items():
        if not isinstance(value, Tensor):
            raise RefusedError(f"its entry {name!r:.80} is not a tensor")
    return table


def _storages(tensors: dict[str, Tensor]) -> dict[str, Storage]:
    storages: dict[str, Storage] = {}
    for tensor in tensors.values():
        key = tensor.storage.key
        if storages.setdefault(key, tensor.storage) != tensor.storage:
            raise RefusedError(f"it describes the storage {key!r:.80} in two ways")
    return storages


def _numbers(storage: Storage, raw: bytes) -> np.ndarray:
    if len(raw) != storage.count * storage.dtype.itemsize:
        raise RefusedError(
            f"its storage {storage.key!r:.80} differs in size from what the file says"
        )
    return np.frombuffer(raw, storage.dtype)


def _arrays(
    tensors: dict[str, Tensor], numbers: dict[str, np.ndarray]
) -> dict[str, np.ndarray]:
    for name, tensor in tensors.items():
        if tensor.storage.key not in numbers:
            raise RefusedError(f"the numbers of {name!r:.80} are missing")
    return {
        name: _viewed(name, tensor, numbers[tensor.storage.key])
        for name, tensor in tensors.items()
    }


def _viewed(name: str, tensor: Tensor, numbers: np.ndarray) -> np.ndarray:
    """Return a copy of the view; it must be within its storage."""
    size = math.prod(tensor.shape)
    axes = list(zip(tensor.shape, tensor.strides, strict=True))
    last = tensor.offset + sum((length - 1) * stride for length, stride in axes)
    # With strides of zero, a few numbers could pose as any amount.
    if size and (last >= len(numbers) or size > len(numbers)):
        raise RefusedError(f"the tensor {name!r:.80} reaches beyond its numbers")
    # Any number of tensors may be of the same numbers.
    budget.take(size * numbers.itemsize, f"the tensor {name!r:.80}")
    if not size:
        return np.zeros(tensor.shape, numbers.dtype)
    strides = [
        numbers.itemsize * stride if length > 1 else 0 for length, stride in axes
    ]
    view = np.lib.stride_tricks.as_strided(
        numbers[tensor.offset :], tensor.shape, strides, writeable=False
    )
    return np.ascontiguousarray(view).reshape(tensor.shape)


# ---- writing ---------------------------------------------------------------------


def write_state_dict(file: BinaryIO, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays as `torch.save(model.state_dict(), path)` would."""
    kinds = {dtype: name for name, dtype in _DTYPES.items()}
    storages = [np.asarray(array, order="C") for array in arrays.values()]
    for name, array in zip(arrays, storages, strict=True):
        if array.dtype.newbyteorder("<") not in kinds:
            reason = f"{name!r} holds {array.dtype}, which PyTorch does not have."
            raise ValueError(reason)
    entries = [
        _text(name) + _tensor_code(str(key), array, kinds[array.dtype])
        for key, (name, array) in enumerate(zip(arrays, storages, strict=True))
    ]
    pickled = b"\x80\x02" + _ORDERED + b"(" + b"".join(entries) + b"u."
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/byteorder", b"little")
        for key, array in enumerate(storages):
            little = array.astype(array.dtype.newbyteorder("<"), copy=False)
            archive.writestr(f"archive/data/{key}", little.tobytes())
        archive.writestr("archive/version", b"3\n")


_ORDERED = b"ccollections\nOrderedDict\n)R"


def _text(word: str) -> bytes:
    raw = word.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(raw)) + raw


def _number(value: int) -> bytes:
    if value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    return b"\x8a\x08" + struct.pack("<q", value)


def _tensor_code(key: str, array: np.ndarray, kind: str) -> bytes:
    """Return the part of a pickle that represents a tensor."""
    module, _, name = kind.rpartition(".")
    storage = _text("storage") + f"c{module}\n{name}\n".encode() + _text(key)
    storage = b"(" + storage + _text("cpu") + _number(array.size) + b"tQ"
    strides = [stride // array.itemsize for stride in array.strides]
    shape, steps = (
        b"(" + b"".join(map(_number, numbers)) + b"t"
        for numbers in (array.shape, strides)
    )
    arguments = storage + _number(0) + shape + steps + b"\x89" + _ORDERED
    return b"ctorch._utils\n_rebuild_tensor_v2\n(" + arguments + b"tR"


# ---- pickles ---------------------------------------------------------------------


def _rebuild_tensor(*arguments: Any) -> Tensor:
    storage, offset, shape, strides, *_ = arguments
    is_sound = (
        isinstance(storage, Storage)
        and len(shape) == len(strides)
        and all(type(n) is int and n >= 0 for n in [offset, *shape, *strides])
    )
    if not is_sound:
        raise RefusedError("it describes an impossible tensor")
    return Tensor(storage, offset, tuple(shape), tuple(strides))


def _rebuild_parameter(*arguments: Any) -> Tensor:
    if not arguments or not isinstance(arguments[0], Tensor):
        raise RefusedError("it describes a parameter that is not a tensor")
    return arguments[0]


def _ordered_dict(*arguments: Any) -> dict[Any, Any]:
    if arguments:
        raise RefusedError("it fills an OrderedDict in an unusual way")
    return {}


def _storage(reference: Any) -> Storage:
    """Read a reference: ("storage", kind, key, device, count[, view])."""
    match reference:
        case ("storage", Name(text=kind), str(key), _, count, *view) if (
            isinstance(reference, tuple)
            and kind in _DTYPES
            and type(count) is int
            and count >= 0
            and len(view) < 2
            and not any(view)
        ):
            return Storage(key, _DTYPES[kind], count)
    raise RefusedError("it refers to a storage in an unknown way")


def _leave_out(value: Any, state: Any) -> None:
    """Drop the attributes that PyTorch adds to a dictionary (`_metadata`)."""
    if not isinstance(value, dict):
        raise RefusedError("it annotates something that is not a dictionary")


TENSORS = Dialect(
    subject="a file of tensors",
    item="tensor",
    calls={
        "collections.OrderedDict": _ordered_dict,
        "torch._utils._rebuild_tensor_v2": _rebuild_tensor,
        "torch._utils._rebuild_parameter": _rebuild_parameter,
    },
    names=_DTYPES,
    reference=_storage,
    set_state=_leave_out,
)
