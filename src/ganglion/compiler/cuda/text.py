"""CUDA C under construction: types, numbers, places, and one kernel's body.

Every kernel becomes a device function `$body(block, blocks, pointers...)` that shares
its work over `blocks` blocks of `THREADS` threads; so bodies can be put together into
launches in any way, side by side or one after the other.
"""

from __future__ import annotations

import math
import string
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import numpy as np

from ganglion.compiler.plan.kernels import Buffer, View

THREADS = 256  # of every block
WORD = 2**31 - 1  # places beyond need 64 bits

_C_TYPES = {
    "float32": "float",
    "float64": "double",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "long long",
    "uint8": "unsigned char",
    "uint16": "unsigned short",
    "uint32": "unsigned int",
    "uint64": "unsigned long long",
    "bool": "bool",
    "void16": "bf16",
}
# NumPy has no bfloat16: two plain bytes stand for it. Loops load and store it as
# float32, and compute with that.
BF16 = np.dtype("V2")
SHAPE = "${body}_shape"  # the struct beside a body
STEP = Buffer("step", (), np.dtype("int32"), "step")  # which step of a run this is


@cache  # NumPy takes a while to name a type
def c_type(dtype: np.dtype) -> str:
    """Return how C calls a type.

    >>> c_type(np.dtype("uint8"))
    'unsigned char'
    """
    return _C_TYPES[dtype.name]


def fill(text: str, **names: str) -> str:
    """Return a text with all its names filled in.

    >>> fill("void $body() {}", body="f")
    'void f() {}'
    """
    template = string.Template(text)
    if unknown := names.keys() - template.get_identifiers():
        raise KeyError(f"the text does not name {sorted(unknown)}")
    return template.substitute(names)


def power_of_two(count: int) -> int:
    """Return the smallest one that is not less.

    >>> power_of_two(0), power_of_two(5), power_of_two(8)
    (1, 8, 8)
    """
    return 1 << max(count - 1, 0).bit_length()


def computed(dtype: np.dtype) -> np.dtype:
    """Return the type with which elements of an array are computed.

    >>> computed(BF16), computed(np.dtype("int8"))
    (dtype('float32'), dtype('int8'))
    """
    return np.dtype("float32") if dtype == BF16 else dtype


def number(value: float, dtype: np.dtype) -> str:
    """Return a number as C writes it, exactly.

    >>> number(0.1, np.dtype("float32"))
    '0x1.99999a0000000p-4f'
    """
    if dtype.kind == "b":
        return "true" if value else "false"
    if dtype.kind in "iu":
        whole = int(value)
        text = f"{whole}ll" if dtype.itemsize == 8 else str(whole)
        if dtype.kind == "u":
            text = f"{whole}u" + "ll" * (dtype.itemsize == 8)
        if whole == -(2**63):
            text = "(-9223372036854775807ll - 1)"
        return f"({c_type(dtype)}){text}" if dtype.itemsize < 4 else text
    real = float(np.dtype(dtype).type(value))
    if math.isnan(real):
        return f"not_a_number<{c_type(dtype)}>()"
    if math.isinf(real):
        sign = "-" if real < 0 else ""
        return f"{sign}infinity<{c_type(dtype)}>()"
    return real.hex() + ("f" if dtype.itemsize == 4 else "")


def affine(places: Sequence[str], strides: Iterable[int], offset: int = 0) -> str:
    """Return offset + sum(place * stride).

    >>> affine(["i", "j"], (12, 1), 3)
    'i * 12 + j + 3'
    """
    parts = []
    for place, stride in zip(places, strides, strict=True):
        if stride and place != "0":
            parts.append(place if stride == 1 else f"{place} * {stride}")
    if offset or not parts:
        parts.append(str(offset))
    return " + ".join(parts).replace("+ -", "- ")


def split_places(linear: str, sizes: Sequence[int]) -> list[str]:
    """Return the places along axes of a number that counts through them, last fastest.

    >>> split_places("i", (2, 3, 4))
    ['(i / 12)', '(i / 4 % 3)', '(i % 4)']
    """
    places, below = [], 1
    real = [size for size in sizes if size != 1]
    left = len(real)
    for size in reversed(sizes):
        if size == 1:
            places.append("0")
            continue
        left -= 1
        text = linear if below == 1 else f"{linear} / {below}"
        if left:
            text += f" % {size}"
        places.append(text if text == linear else f"({text})")
        below *= size
    return places[::-1]


def root(buffer: Buffer) -> tuple[str, str]:
    """Return what memory a buffer is: others of the same name are the same memory."""
    return buffer.kind, buffer.name


@dataclass(frozen=True)
class Emitted:
    """A kernel's body, what it is called with, and how many blocks it fills."""

    text: str  # of a function called $body: see `fill`
    buffers: tuple[Buffer, ...]
    blocks: int
    shared: int = 0  # bytes of shared memory
    work: float = 0.0  # nanoseconds of a block, roughly: long ones are started first
    waits: bool = False  # for the launch before by itself


class Body:
    """A device function under construction."""

    def __init__(self, wide: bool = False, row_wise: bool = False) -> None:
        self.row_wise = row_wise  # works on the rows from `row0` on
        self.lines: list[str] = []
        self.before: list[str] = []  # what stands in front of the function
        self.buffers: list[Buffer] = []
        self._names: dict[tuple[str, str], str] = {}
        self._prelude: list[str] = []
        self._depth = 1
        self._count = 0
        self.index = "long long" if wide else "int"

    def fresh(self, stem: str = "v") -> str:
        """Return a name that is not used yet."""
        self._count += 1
        return f"{stem}{self._count}"

    def do(self, line: str) -> None:
        """Append a line."""
        self.lines.append("  " * self._depth + line)

    def let(self, kind: str, value: str, stem: str = "v") -> str:
        """Append a new constant and return its name."""
        name = self.fresh(stem)
        self.do(f"const {kind} {name} = {value};")
        return name

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Append a block: a loop, a condition."""
        self.do(f"{head} {{")
        self._depth += 1
        yield
        self._depth -= 1
        self.do("}")

    @contextmanager
    def into(self, lines: list[str] | None) -> Iterator[None]:
        """Append to other lines for a while, if there are any."""
        before = self.lines
        if lines is not None:
            self.lines = lines
        yield
        self.lines = before

    def places(self, linear: str, sizes: Sequence[int], stem: str = "i") -> list[str]:
        """Name the places along axes of a number that counts through them."""
        made = []
        for text in split_places(linear, sizes):
            plain = text.isidentifier() or text == "0"
            made.append(text if plain else self.let(self.index, text, stem))
        return made

    def in_rows(self, places: list[str]) -> list[str]:
        """Return places in a block's rows as places among all rows."""
        if not self.row_wise:
            return places
        return [self.let(self.index, f"row0 + {places[0]}", "row"), *places[1:]]

    def pointer(self, buffer: Buffer) -> str:
        """Return the name of a buffer's address."""
        key = root(buffer)
        if key not in self._names:
            name = f"p{len(self.buffers)}"
            self.buffers.append(buffer)
            self._names[key] = name
            if buffer.kind == "result":
                kind = c_type(buffer.dtype)
                at = self.pointer(STEP)
                self._names[key] = f"{name}_now"
                self._prelude.append(
                    f"  {kind}* {name}_now = {name} + "
                    f"(long long)*{at} * {max(buffer.size, 1)};"
                )
        return self._names[key]

    def scratch(self, count: int, dtype: str) -> str:
        """Return the address of memory that no other kernel uses; zero at first."""
        buffer = Buffer(f"#{len(self.buffers)}", (count,), np.dtype(dtype), "scratch")
        return self.pointer(buffer)

    def element(self, view: View, places: Sequence[str]) -> str:
        """Return an element of a view."""
        at = affine(places, view.strides, view.offset)
        return f"{self.pointer(view.buffer)}[{at}]"

    def emitted(self, blocks: int, shared: int = 0) -> Emitted:
        """End the function."""
        given = [
            f"{c_type(one.dtype)}* RESTRICT p{i}" for i, one in enumerate(self.buffers)
        ]
        which = ["int row0"] if self.row_wise else ["int block", "int blocks"]
        head = ", ".join([*which, *given])
        lines = [*self.before, f"DEVICE void $body({head}) {{"]
        if self.row_wise:
            lines.append("  const int block = 0, blocks = 1;")
        lines += self._prelude
        text = "\n".join([*lines, *self.lines, "}", ""])
        return Emitted(text, tuple(self.buffers), max(blocks, 1), shared)


def is_wide(buffers: Iterable[Buffer], *counts: int) -> bool:
    """Return whether places do not fit into 32 bits."""
    sizes = [one.size for one in buffers if one.kind != "scratch"]
    return max([*sizes, *counts], default=0) > WORD
