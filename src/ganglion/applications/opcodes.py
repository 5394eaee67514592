"""Reads the pickles in PyTorch's weight files, and can execute nothing.

A pickle is a program for a small stack machine. Python's own machine may call anything;
this one knows the few instructions that a dictionary of tensors is written in, and the
few names that stand in it, each of which is data here. Whatever else it meets, it
refuses by name.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ganglion.system import budget


class RefusedError(ValueError):
    """A pickle holds something else than tensors, or is damaged."""


@dataclass(frozen=True)
class Name:
    """A name that a pickle mentions; only that, never what it stands for."""

    text: str


@dataclass(frozen=True)
class Storage:
    """A run of numbers kept elsewhere in the file."""

    key: str
    kind: str
    count: int


@dataclass(frozen=True)
class Tensor:
    """A view of a storage."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


_MARK = object()
_BYTES_A_STEP = 80  # an instruction of one byte makes a dictionary
_KINDS = ("Float", "Double", "Half", "Long", "Int", "Short", "Char", "Byte", "Bool")
STORAGES = {f"torch.{kind}Storage": kind for kind in _KINDS}


def _rebuild_tensor(*given: Any) -> Tensor:
    storage, offset, shape, strides, *_ = given
    numbers = [offset, *shape, *strides]
    is_sound = (
        isinstance(storage, Storage)
        and len(shape) == len(strides)
        and all(type(one) is int and one >= 0 for one in numbers)
    )
    if not is_sound:
        raise RefusedError("it describes a tensor that cannot be")
    return Tensor(storage, offset, tuple(shape), tuple(strides))


def _rebuild_parameter(*given: Any) -> Tensor:
    if not given or not isinstance(given[0], Tensor):
        raise RefusedError("it describes a parameter that is no tensor")
    return given[0]


def _empty(*given: Any) -> dict[Any, Any]:
    if given:
        raise RefusedError("it fills an OrderedDict in an unusual way")
    return {}


_CALLS: dict[str, Callable[..., Any]] = {
    "collections.OrderedDict": _empty,
    "torch._utils._rebuild_tensor_v2": _rebuild_tensor,
    "torch._utils._rebuild_parameter": _rebuild_parameter,
}
_CONSTANTS = {b"N": None, b"\x88": True, b"\x89": False}
_EMPTIES: dict[bytes, Callable[[], Any]] = {b"}": dict, b"]": list, b")": tuple}
_NUMBERS = {b"K": "<B", b"M": "<H", b"J": "<i", b"G": ">d"}
_MEMO_PLACES = {b"q": "<B", b"r": "<I", b"h": "<B", b"j": "<I"}
_TUPLES = {b"\x85": 1, b"\x86": 2, b"\x87": 3}


class Machine:
    r"""Runs one pickle that starts at a place in some bytes.

    >>> Machine(b"\x80\x02}q\x00X\x01\x00\x00\x00aK\x05s.").run()
    {'a': 5}
    >>> Machine(b"\x80\x02cos\nsystem\n.").run()  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ganglion.applications.opcodes.RefusedError: it names os.system, which is no part...
    """

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def run(self) -> Any:
        """Return what the pickle describes; `at` is then behind it."""
        while True:
            code = self._take(1)
            budget.take(_BYTES_A_STEP, "a pickle")
            if code == b".":
                return self._pop()
            self._step(code)

    def _take(self, count: int) -> bytes:
        found = self.data[self.at : self.at + count]
        if len(found) < count:
            raise RefusedError("it ends too early")
        self.at += count
        return found

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def _pop(self) -> Any:
        if not self._stack or self._stack[-1] is _MARK:
            raise RefusedError("its instructions do not fit together")
        return self._stack.pop()

    def _top(self, kind: type) -> Any:
        if not self._stack or not isinstance(self._stack[-1], kind):
            raise RefusedError("its instructions do not fit together")
        return self._stack[-1]

    def _since_mark(self) -> list[Any]:
        for at in range(len(self._stack) - 1, -1, -1):
            if self._stack[at] is _MARK:
                found = self._stack[at + 1 :]
                del self._stack[at:]
                return found
        raise RefusedError("its instructions do not fit together")

    def _step(self, code: bytes) -> None:
        push = self._stack.append
        if code in _NUMBERS:
            push(self._number(_NUMBERS[code]))
        elif code in _CONSTANTS:
            push(_CONSTANTS[code])
        elif code in _EMPTIES:
            push(_EMPTIES[code]())
        elif code in _MEMO_PLACES:
            self._remember(code)
        elif code in _TUPLES:
            push(tuple(reversed([self._pop() for _ in range(_TUPLES[code])])))
        elif code in _OTHERS:
            _OTHERS[code](self)
        else:
            raise RefusedError(
                f"it uses the pickle instruction {_title(code)}, which is no part of a "
                "file of tensors: nothing was executed"
            )

    def _remember(self, code: bytes) -> None:
        place = self._number(_MEMO_PLACES[code])
        if code in b"qr":
            self._memo[place] = self._top(object)
        elif place in self._memo:
            self._stack.append(self._memo[place])
        else:
            raise RefusedError("its instructions do not fit together")

    def _protocol(self) -> None:
        version = self._number("<B")
        if version > 5:
            raise RefusedError(f"its pickle protocol {version} is not known")

    def _text(self) -> None:
        raw = self._take(self._number("<I"))
        try:
            self._stack.append(raw.decode())
        except UnicodeDecodeError:
            raise RefusedError("a name in it is not text") from None

    def _long(self) -> None:
        raw = self._take(self._number("<B"))
        self._stack.append(int.from_bytes(raw, "little", signed=True))

    def _global(self) -> None:
        end = self.data.find(b"\n", self.data.find(b"\n", self.at) + 1)
        if end < 0 or end - self.at > 200:
            raise RefusedError("it holds a name without an end")
        text = self._take(end + 1 - self.at).decode("ascii", "replace")
        name = text.strip("\n").replace("\n", ".")
        if name not in _CALLS and name not in STORAGES:
            raise RefusedError(
                f"it names {name}, which is no part of a file of tensors: nothing was "
                "executed"
            )
        self._stack.append(Name(name))

    def _reduce(self) -> None:
        given, what = self._pop(), self._pop()
        if not isinstance(what, Name) or what.text not in _CALLS:
            raise RefusedError(
                "it calls something that is no tensor: nothing was executed"
            )
        if not isinstance(given, tuple):
            raise RefusedError("its instructions do not fit together")
        try:
            self._stack.append(_CALLS[what.text](*given))
        except (TypeError, ValueError) as error:
            if isinstance(error, RefusedError):
                raise
            raise RefusedError("it describes a tensor that cannot be") from None

    def _storage(self) -> None:
        """Read the place of a storage: ("storage", kind, key, device, count, view)."""
        given = self._pop()
        if not isinstance(given, tuple) or len(given) not in (5, 6):
            raise RefusedError("it refers to a storage in an unknown way")
        what, kind, key, _, count, *view = given
        is_sound = (
            what == "storage"
            and isinstance(kind, Name)
            and kind.text in STORAGES
            and isinstance(key, str)
            and type(count) is int
            and count >= 0
            and not any(view)
        )
        if not is_sound:
            raise RefusedError("it refers to a storage in an unknown way")
        self._stack.append(Storage(key, STORAGES[kind.text], count))

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


_OTHERS: dict[bytes, Callable[[Machine], None]] = {
    b"\x80": Machine._protocol,
    b"(": lambda one: one._stack.append(_MARK),
    b"t": lambda one: one._stack.append(tuple(one._since_mark())),
    b"X": Machine._text,
    b"\x8a": Machine._long,
    b"c": Machine._global,
    b"R": Machine._reduce,
    b"Q": Machine._storage,
    b"s": Machine._set_item,
    b"u": lambda one: one._set_items(one._since_mark()),
    b"a": lambda one: one._append([one._pop()]),
    b"e": lambda one: one._append(one._since_mark()),
    b"b": Machine._build,
}


def _title(code: bytes) -> str:
    """Return the name of an instruction, as Python documents it."""
    import pickletools  # describes instructions, runs none

    names = {one.code: one.name for one in pickletools.opcodes}
    known = names.get(code.decode("latin-1"))
    return known or f"0x{code.hex()}"
