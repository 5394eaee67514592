"""Weights out of PyTorch's files, old and new, as NumPy arrays; nothing is executed.

Since 1.6 such a file is a zip archive with a pickle and one member a storage; before,
it was a row of pickles with the storages behind them. Sizes are checked against the
file before memory is taken for them.

A pickle is a program for a small stack machine. Python's own machine may call anything;
`Machine` knows the few instructions that a dictionary of tensors is written in, and the
few names that stand in it, each of which is data here. It refuses all else by name.
"""

from __future__ import annotations

import io
import math
import os
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ganglion import files
from ganglion.system import budget
from ganglion.system.terminal import lines

_MAGIC = 0x1950A86A20F9469CFC6C
# What damaged and hostile files cause; `RefusedError` is a ValueError.
_SYMPTOMS = (zipfile.BadZipFile, ValueError, TypeError, AttributeError, OverflowError,
             MemoryError, RuntimeError, struct.error)  # fmt: skip
_DTYPES = {
    f"torch.{name}Storage": np.dtype(code)
    for name, code in [
        ("Float", "<f4"),
        ("Double", "<f8"),
        ("Half", "<f2"),
        ("Long", "<i8"),
        ("Int", "<i4"),
        ("Short", "<i2"),
        ("Char", "i1"),
        ("Byte", "u1"),
        ("Bool", "?"),
    ]
}


class RefusedError(ValueError):
    """A file holds something else than tensors, or is damaged."""


@dataclass(frozen=True)
class Name:
    """A name that a pickle mentions; only that, never what it stands for."""

    text: str


@dataclass(frozen=True)
class Storage:
    """A run of numbers that lies elsewhere in the file."""

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
            # Members may lie over each other, so that many are of the same bytes.
            budget.take(info.file_size, f"its member {name!r:.80}")
            try:
                return archive.read(info)
            except (EOFError, ValueError, NotImplementedError, RuntimeError) as error:
                raise RefusedError(
                    f"its member {name!r:.80} is damaged ({error})"
                ) from None

        if folder + "byteorder" in members and member("byteorder") != b"little":
            raise RefusedError("its numbers are big-endian, which is not supported")
        tensors = _tensors(Machine(member("data.pkl")).run())
        numbers = {
            key: _numbers(storage, member(f"data/{key}"))
            for key, storage in _storages(tensors).items()
        }
        return _arrays(tensors, numbers)


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
            raise RefusedError(f"its entry {name!r:.80} is no tensor")
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
    """Return a copy of the view; it must lie in its storage."""
    size = math.prod(tensor.shape)
    axes = list(zip(tensor.shape, tensor.strides, strict=True))
    last = tensor.offset + sum((length - 1) * stride for length, stride in axes)
    # Strides of zero would let a few numbers pose as any amount.
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


# ---- pickles ---------------------------------------------------------------------


_MARK = object()
# An instruction of one byte makes a dictionary; it is charged for some at a time.
_BYTES_A_STEP, _STEPS_AT_ONCE = 80, 256
_ODD = "its instructions do not fit together"


def _rebuild_tensor(*arguments: Any) -> Tensor:
    storage, offset, shape, strides, *_ = arguments
    is_sound = (
        isinstance(storage, Storage)
        and len(shape) == len(strides)
        and all(type(n) is int and n >= 0 for n in [offset, *shape, *strides])
    )
    if not is_sound:
        raise RefusedError("it describes a tensor that cannot be")
    return Tensor(storage, offset, tuple(shape), tuple(strides))


def _rebuild_parameter(*arguments: Any) -> Tensor:
    if not arguments or not isinstance(arguments[0], Tensor):
        raise RefusedError("it describes a parameter that is no tensor")
    return arguments[0]


def _ordered_dict(*arguments: Any) -> dict[Any, Any]:
    if arguments:
        raise RefusedError("it fills an OrderedDict in an unusual way")
    return {}


_CALLS: dict[str, Callable[..., Any]] = {
    "collections.OrderedDict": _ordered_dict,
    "torch._utils._rebuild_tensor_v2": _rebuild_tensor,
    "torch._utils._rebuild_parameter": _rebuild_parameter,
}


class Machine:
    r"""Runs one pickle that starts somewhere in some bytes.

    >>> Machine(b"\x80\x02}q\x00X\x01\x00\x00\x00aK\x05s.").run()
    {'a': 5}
    >>> Machine(b"\x80\x02cos\nsystem\n.").run()  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ganglion.applications.torch_file.RefusedError: it names os.system, which is no...
    """

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def run(self) -> Any:
        """Return what the pickle describes; `at` is then behind it."""
        steps = 0
        while (code := self._take(1)) != b".":
            if not steps % _STEPS_AT_ONCE:
                budget.take(_STEPS_AT_ONCE * _BYTES_A_STEP, "a pickle")
            steps += 1
            instruction = _INSTRUCTIONS.get(code)
            if instruction is None:
                raise _unknown_instruction(code)
            instruction(self)
        return self._pop()

    def _take(self, count: int) -> bytes:
        raw = self.data[self.at : self.at + count]
        if len(raw) < count:
            raise RefusedError("it ends too early")
        self.at += count
        return raw

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def _pop(self) -> Any:
        if not self._stack or self._stack[-1] is _MARK:
            raise RefusedError(_ODD)
        return self._stack.pop()

    def _top(self, kind: type) -> Any:
        if not self._stack or not isinstance(self._stack[-1], kind):
            raise RefusedError(_ODD)
        return self._stack[-1]

    def _since_mark(self) -> list[Any]:
        for at in range(len(self._stack) - 1, -1, -1):
            if self._stack[at] is _MARK:
                items = self._stack[at + 1 :]
                del self._stack[at:]
                return items
        raise RefusedError(_ODD)

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _push_tuple(self, count: int) -> None:
        self._push(tuple([self._pop() for _ in range(count)][::-1]))

    def _put_memo(self, form: str) -> None:
        self._memo[self._number(form)] = self._top(object)

    def _get_memo(self, form: str) -> None:
        key = self._number(form)
        if key not in self._memo:
            raise RefusedError(_ODD)
        self._push(self._memo[key])

    def _protocol(self) -> None:
        version = self._number("<B")
        if version > 5:
            raise RefusedError(f"its pickle protocol {version} is not known")

    def _text(self) -> None:
        raw = self._take(self._number("<I"))
        try:
            self._push(raw.decode())
        except UnicodeDecodeError:
            raise RefusedError("a name in it is not text") from None

    def _long(self) -> None:
        raw = self._take(self._number("<B"))
        self._push(int.from_bytes(raw, "little", signed=True))

    def _global(self) -> None:
        end = self.data.find(b"\n", self.data.find(b"\n", self.at) + 1)
        if end < 0 or end - self.at > 200:
            raise RefusedError("it holds a name without an end")
        text = self._take(end + 1 - self.at).decode("ascii", "replace")
        name = text.strip("\n").replace("\n", ".")
        if name not in _CALLS and name not in _DTYPES:
            raise RefusedError(
                f"it names {name}, which is no part of a file of tensors: nothing was "
                "executed"
            )
        self._push(Name(name))

    def _reduce(self) -> None:
        arguments, function = self._pop(), self._pop()
        if not isinstance(function, Name) or function.text not in _CALLS:
            raise RefusedError(
                "it calls something that is no tensor: nothing was executed"
            )
        if not isinstance(arguments, tuple):
            raise RefusedError(_ODD)
        try:
            self._push(_CALLS[function.text](*arguments))
        except RefusedError:
            raise
        except (TypeError, ValueError):
            raise RefusedError("it describes a tensor that cannot be") from None

    def _storage(self) -> None:
        """Read a reference: ("storage", kind, key, device, count[, view])."""
        reference = self._pop()
        match reference:
            case ("storage", Name(text=kind), str(key), _, count, *view) if (
                isinstance(reference, tuple)
                and kind in _DTYPES
                and type(count) is int
                and count >= 0
                and len(view) < 2
                and not any(view)
            ):
                self._push(Storage(key, _DTYPES[kind], count))
            case _:
                raise RefusedError("it refers to a storage in an unknown way")

    def _set_items(self, items: list[Any]) -> None:
        table = self._top(dict)
        if len(items) % 2 or not all(isinstance(key, str) for key in items[::2]):
            raise RefusedError("it holds a dictionary whose keys are not names")
        table.update(zip(items[::2], items[1::2], strict=True))

    def _set_item(self) -> None:
        value, key = self._pop(), self._pop()
        self._set_items([key, value])

    def _append(self, items: list[Any]) -> None:
        self._top(list).extend(items)

    def _build(self) -> None:
        """Leave out what PyTorch notes beside a dictionary (`_metadata`)."""
        self._pop()
        self._top(dict)


_INSTRUCTIONS: dict[bytes, Callable[[Machine], None]] = {
    b"\x80": Machine._protocol,
    b"N": lambda machine: machine._push(None),
    b"\x88": lambda machine: machine._push(True),
    b"\x89": lambda machine: machine._push(False),
    b"}": lambda machine: machine._push({}),
    b"]": lambda machine: machine._push([]),
    b")": lambda machine: machine._push(()),
    b"K": lambda machine: machine._push(machine._number("<B")),
    b"M": lambda machine: machine._push(machine._number("<H")),
    b"J": lambda machine: machine._push(machine._number("<i")),
    b"G": lambda machine: machine._push(machine._number(">d")),
    b"q": lambda machine: machine._put_memo("<B"),
    b"r": lambda machine: machine._put_memo("<I"),
    b"h": lambda machine: machine._get_memo("<B"),
    b"j": lambda machine: machine._get_memo("<I"),
    b"\x85": lambda machine: machine._push_tuple(1),
    b"\x86": lambda machine: machine._push_tuple(2),
    b"\x87": lambda machine: machine._push_tuple(3),
    b"(": lambda machine: machine._push(_MARK),
    b"t": lambda machine: machine._push(tuple(machine._since_mark())),
    b"X": Machine._text,
    b"\x8a": Machine._long,
    b"c": Machine._global,
    b"R": Machine._reduce,
    b"Q": Machine._storage,
    b"s": Machine._set_item,
    b"u": lambda machine: machine._set_items(machine._since_mark()),
    b"a": lambda machine: machine._append([machine._pop()]),
    b"e": lambda machine: machine._append(machine._since_mark()),
    b"b": Machine._build,
}


def _unknown_instruction(code: bytes) -> RefusedError:
    import pickletools  # describes instructions, runs none

    names = {known.code: known.name for known in pickletools.opcodes}
    name = names.get(code.decode("latin-1")) or f"0x{code.hex()}"
    return RefusedError(
        f"it uses the pickle instruction {name}, which is no part of a file of "
        "tensors: nothing was executed"
    )
