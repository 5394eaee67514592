"""LLVM's WebAssembly objects as modules that engines load, without a linker.

Our objects import only a memory and a stack pointer, and nothing in them has an
address: weights are passed to functions. So imports become definitions, exports and
data are added, and sections for linkers are dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

PAGE = 65536  # bytes
_CUSTOM, _TYPE, _IMPORT, _FUNCTION, _MEMORY, _GLOBAL, _EXPORT, _CODE, _DATA = (
    0, 1, 2, 3, 5, 6, 7, 10, 11,
)  # fmt: skip
_KINDS = {"function": 0, "table": 1, "memory": 2, "global": 3}
_MAGIC = b"\0asm\x01\0\0\0"
_ADDRESSES = frozenset((3, 4, 5, 11, 14, 15, 16))  # relocations against data
_I32, _END, _I32_CONST = 0x7F, 0x0B, 0x41


@dataclass(frozen=True)
class Segment:
    """Bytes that are in memory from the start."""

    address: int
    data: bytes


def unsigned(value: int) -> bytes:
    """Return a number as WebAssembly writes it.

    >>> unsigned(300).hex(), unsigned(5).hex()
    ('ac02', '05')
    """
    parts = []
    while True:
        value, low = value >> 7, value & 0x7F
        parts.append(low | (0x80 if value else 0))
        if not value:
            return bytes(parts)


def _signed(value: int) -> bytes:
    parts = []
    while True:
        low, value = value & 0x7F, value >> 7
        is_last = (value == 0 and not low & 0x40) or (value == -1 and low & 0x40)
        parts.append(low if is_last else low | 0x80)
        if is_last:
            return bytes(parts)


def _vector(items: Sequence[bytes]) -> bytes:
    return unsigned(len(items)) + b"".join(items)


def _named(text: str) -> bytes:
    return unsigned(len(text.encode())) + text.encode()


def _section(number: int, content: bytes) -> bytes:
    return bytes([number]) + unsigned(len(content)) + content


class _Reader:
    """Reads an object from some point on."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def number(self) -> int:
        value, shift = 0, 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value

    def take(self, count: int) -> bytes:
        self.at += count
        return self.data[self.at - count : self.at]

    def name(self) -> str:
        return self.take(self.number()).decode()


def _sections(code: bytes) -> Iterator[tuple[int, bytes]]:
    if not code.startswith(_MAGIC):
        raise ValueError("This is not a WebAssembly object file.")
    reader = _Reader(code, len(_MAGIC))
    while reader.at < len(code):
        number = reader.byte()
        yield number, reader.take(reader.number())


@dataclass(frozen=True)
class _Import:
    field: str
    kind: int
    raw: bytes  # all of it


def _imports(section: bytes) -> list[_Import]:
    reader = _Reader(section)
    imports = []
    for _ in range(reader.number()):
        start = reader.at
        reader.name()
        field, kind = reader.name(), reader.byte()
        if kind == _KINDS["function"]:
            reader.number()
        elif kind == _KINDS["global"]:
            reader.take(2)
        else:
            if kind == _KINDS["table"]:
                reader.byte()
            has_most = reader.number() & 1
            for _ in range(1 + has_most):
                reader.number()
        imports.append(_Import(field, kind, section[start : reader.at]))
    return imports


def _functions_by_name(linking: bytes) -> dict[str, int]:
    """Return the numbers of the functions that an object defines by their names."""
    reader = _Reader(linking)
    reader.number()  # the version
    names: dict[str, int] = {}
    while reader.at < len(linking):
        kind, size = reader.byte(), reader.number()
        part = _Reader(reader.take(size))
        if kind != 8:  # the table of symbols
            continue
        for _ in range(part.number()):
            symbol, flags = part.byte(), part.number()
            is_undefined, is_named = flags & 0x10, flags & 0x40
            if symbol in (0, 2, 4, 5):  # function, global, event, table
                index = part.number()
                name = "" if is_undefined and not is_named else part.name()
                if symbol == 0 and not is_undefined:
                    names[name] = index
            elif symbol == 1:  # data
                part.name()
                if not is_undefined:
                    for _ in range(3):
                        part.number()
            else:  # a section
                part.number()
    return names


def _refuse_addresses(relocations: bytes) -> None:
    reader = _Reader(relocations)
    reader.number()  # the section
    for _ in range(reader.number()):
        kind = reader.byte()
        reader.number(), reader.number()
        if kind in _ADDRESSES:
            raise AssertionError("the code has data of its own, which has no address")


def finished(
    code: bytes,
    exports: Iterable[str],
    segments: Sequence[Segment],
    memory: int,
    stack: int,
    custom: Mapping[str, bytes],
) -> tuple[bytes, list[str]]:
    """Return an object as a module, and the functions that it imports.

    Args:
        code: The object, as LLVM emits it.
        exports: The names of functions that are called from outside.
        segments: The initial content of the memory.
        memory: The size of the memory in bytes.
        stack: The address of the stack, which grows downward.
        custom: Custom sections for the loader of the module.
    """
    sections = dict.fromkeys((_TYPE, _FUNCTION, _CODE), b"")
    imports: list[_Import] = []
    names: dict[str, int] = {}
    for number, content in _sections(code):
        if number in sections:
            sections[number] = content
        elif number == _IMPORT:
            imports = _imports(content)
        elif number == _CUSTOM:
            reader = _Reader(content)
            name = reader.name()
            if name == "linking":
                names = _functions_by_name(content[reader.at :])
            elif name == "reloc.CODE":
                _refuse_addresses(content[reader.at :])
    called = [entry for entry in imports if entry.kind == _KINDS["function"]]
    exported = [_named("memory") + bytes([_KINDS["memory"], 0])]
    for name in exports:
        exported.append(_named(name) + b"\0" + unsigned(names[name]))
    start = bytes([_I32_CONST]) + _signed(stack) + bytes([_END])
    pages = unsigned(-(-memory // PAGE))
    data = [
        b"\0" + bytes([_I32_CONST]) + _signed(segment.address) + bytes([_END])
        + unsigned(len(segment.data)) + segment.data
        for segment in segments
    ]  # fmt: skip
    parts = [
        _MAGIC,
        _section(_TYPE, sections[_TYPE]),
        _section(_IMPORT, _vector([entry.raw for entry in called])),
        _section(_FUNCTION, sections[_FUNCTION]),
        _section(_MEMORY, b"\x01\0" + pages),
        _section(_GLOBAL, _vector([bytes([_I32, 1]) + start])),
        _section(_EXPORT, _vector(exported)),
        _section(_CODE, sections[_CODE]),
        _section(_DATA, _vector(data)),
        *(_section(_CUSTOM, _named(name) + text) for name, text in custom.items()),
    ]
    return b"".join(parts), [entry.field for entry in called]
