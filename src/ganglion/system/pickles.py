"""Pickles read as data: a stack machine that can build a few things and call nothing.

A pickle is a program for a small stack machine. Python's own machine may call anything;
`Machine` has the few instructions that plain data is written in. A `Dialect` defines
the names that may occur in a pickle and their meanings; any other name is refused.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ganglion.system import budget

_MARK = object()
# An instruction of one byte makes a dictionary; it is charged for some at a time.
_BYTES_A_STEP, _STEPS_AT_ONCE = 80, 256
_BYTES_A_NUMBER = 40  # a number and its entry in a list
_ODD = "its instructions do not fit together"
# A row of numbers up to the end of a list: data sets hold millions, too many to run
# one by one.
_NUMBERS = re.compile(rb"(?:K.|M..|J....)++e", re.DOTALL)


class RefusedError(ValueError):
    """A file is damaged, or holds something else than the expected data."""


@dataclass(frozen=True)
class Name:
    """A name that a pickle mentions; it is never resolved."""

    text: str


def _no_reference(reference: Any) -> Any:
    raise RefusedError("it refers to something outside of itself")


def _no_state(value: Any, state: Any) -> None:
    raise RefusedError(_ODD)


@dataclass(frozen=True)
class Dialect:
    """The meaning of the names in a kind of pickle.

    Args:
        subject: The content of such a pickle, for messages.
        item: One part of that content, for messages.
        calls: Stand-ins for the functions of these names; they only build data.
        names: Names that are mentioned, but never called.
        reference: Returns the value of a reference to something outside the pickle.
        set_state: Applies the state that a pickle has for an object.
    """

    subject: str
    item: str
    calls: Mapping[str, Callable[..., Any]]
    names: Collection[str] = ()
    reference: Callable[[Any], Any] = _no_reference
    set_state: Callable[[Any, Any], None] = _no_state


class Machine:
    r"""Runs one pickle that starts somewhere in some bytes.

    >>> plain = Dialect("plain data", "number", calls={})
    >>> Machine(b"\x80\x02}q\x00X\x01\x00\x00\x00aK\x05s.", plain).run()
    {'a': 5}
    >>> Machine(b"\x80\x02cos\nsystem\n.", plain).run()  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ganglion.system.pickles.RefusedError: it names os.system, which is not part of...
    """

    def __init__(self, data: bytes, dialect: Dialect, at: int = 0) -> None:
        self.data, self.dialect, self.at = data, dialect, at
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def run(self) -> Any:
        """Return the object that the pickle describes; `at` is then after it."""
        steps = 0
        while (code := self._take(1)) != b".":
            if not steps % _STEPS_AT_ONCE:
                budget.take(_STEPS_AT_ONCE * _BYTES_A_STEP, "a pickle")
            steps += 1
            instruction = _INSTRUCTIONS.get(code)
            if instruction is None:
                raise _unknown_instruction(code, self.dialect.subject)
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

    def _short_bytes(self) -> None:
        self._push(self._take(self._number("<B")))

    def _long(self) -> None:
        raw = self._take(self._number("<B"))
        self._push(int.from_bytes(raw, "little", signed=True))

    def _global(self) -> None:
        end = self.data.find(b"\n", self.data.find(b"\n", self.at) + 1)
        if end < 0 or end - self.at > 200:
            raise RefusedError("it holds a name without an end")
        text = self._take(end + 1 - self.at).decode("ascii", "replace")
        name = text.strip("\n").replace("\n", ".")
        if name not in self.dialect.calls and name not in self.dialect.names:
            raise RefusedError(
                f"it names {name}, which is not part of {self.dialect.subject}: "
                "nothing was executed"
            )
        self._push(Name(name))

    def _reduce(self) -> None:
        arguments, function = self._pop(), self._pop()
        calls, item = self.dialect.calls, self.dialect.item
        if not isinstance(function, Name) or function.text not in calls:
            raise RefusedError(
                f"it calls something that is no {item}: nothing was executed"
            )
        if not isinstance(arguments, tuple):
            raise RefusedError(_ODD)
        try:
            self._push(calls[function.text](*arguments))
        except RefusedError:
            raise
        except (TypeError, ValueError):
            raise RefusedError(f"it describes a {item} that cannot be") from None

    def _reference(self) -> None:
        self._push(self.dialect.reference(self._pop()))

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
        state = self._pop()
        self.dialect.set_state(self._top(object), state)

    def _mark(self) -> None:
        """Begin a row of things; one of numbers alone is read at once."""
        numbers = _NUMBERS.match(self.data, self.at)
        if numbers is None or not (self._stack and isinstance(self._stack[-1], list)):
            self._push(_MARK)
            return
        self._append(_row(self.data, self.at, numbers.end() - 1))
        self.at = numbers.end()


def _row(data: bytes, at: int, end: int) -> list[int]:
    """Return the numbers between two places: of one byte, two, or four."""
    row: list[int] = []
    while at < end:
        code = data[at]
        if code == 75:
            row.append(data[at + 1])
            at += 2
        elif code == 77:
            row.append(data[at + 1] | data[at + 2] << 8)
            at += 3
        else:
            row.append(int.from_bytes(data[at + 1 : at + 5], "little", signed=True))
            at += 5
    budget.take(_BYTES_A_NUMBER * len(row), "a list of numbers")
    return row


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
    b"(": Machine._mark,
    b"t": lambda machine: machine._push(tuple(machine._since_mark())),
    b"X": Machine._text,
    b"U": Machine._short_bytes,
    b"C": Machine._short_bytes,
    b"\x8a": Machine._long,
    b"c": Machine._global,
    b"R": Machine._reduce,
    b"Q": Machine._reference,
    b"s": Machine._set_item,
    b"u": lambda machine: machine._set_items(machine._since_mark()),
    b"a": lambda machine: machine._append([machine._pop()]),
    b"e": lambda machine: machine._append(machine._since_mark()),
    b"b": Machine._build,
}


def _unknown_instruction(code: bytes, subject: str) -> RefusedError:
    import pickletools  # describes instructions, runs none

    names = {known.code: known.name for known in pickletools.opcodes}
    name = names.get(code.decode("latin-1")) or f"0x{code.hex()}"
    return RefusedError(
        f"it uses the pickle instruction {name}, which is not part of {subject}: "
        "nothing was executed"
    )
