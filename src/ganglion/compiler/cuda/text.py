"""Building blocks of CUDA C: types, literals, indices, and the body of a kernel.

Every kernel becomes a device function `$body(block, blocks, pointers...)` that divides
its work among `blocks` blocks of `THREADS` threads. So bodies can be combined freely
into launches, side by side or one after the other.
"""

from __future__ import annotations

import math
import string
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

import numpy as np

from ganglion.compiler.cuda.fusion import InBlock
from ganglion.compiler.ir.graph import is_short
from ganglion.compiler.plan.kernels import Buffer, Shape, View

THREADS = 256  # of every block
INT_MAX = 2**31 - 1  # larger indices need 64 bits

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
    "float16": "float16",
    "bfloat16": "bfloat16",
}
_MATH = ("floor", "sqrt", "exp", "expm1", "log", "log1p", "sin", "cos", "erf", "erfc",
         "cbrt")  # fmt: skip
# Ops in plain C, by their arguments; {f} is the suffix of float32 functions.
C_OPS = {name: name + "{f}({0})" for name in _MATH} | {
    "round": "rint{f}({0})",
    "power": "pow{f}({0}, {1})",
    "arcsin": "asin{f}({0})",
    "arccos": "acos{f}({0})",
    "arctan": "atan{f}({0})",
    "arctan2": "atan2{f}({0}, {1})",
    "nextafter": "nextafter{f}({0}, {1})",
    "bitwise_and": "{0} & {1}",
    "bitwise_or": "{0} | {1}",
    "bitwise_xor": "{0} ^ {1}",
    "left_shift": "{0} << {1}",
    "right_shift": "{0} >> {1}",
    "add": "{0} + {1}",
    "subtract": "{0} - {1}",
    "multiply": "{0} * {1}",
    "divide": "{0} / {1}",
    "negative": "-{0}",
    "equal": "{0} == {1}",
    "less": "{0} < {1}",
    "less_equal": "{0} <= {1}",
    "logical_and": "{0} && {1}",
    "logical_or": "{0} || {1}",
    "logical_not": "!{0}",
    "where": "{0} ? {1} : {2}",
    "stop_gradient": "{0}",
}
# The type of temporary arrays with operands of products, rounded to bfloat16; loops
# compute with them in float32. The bfloat16 of a model's own arrays is another type.
BF16 = np.dtype("V2")
SHAPE = "${body}_shape"  # the struct beside a body
STEP = Buffer("step", (), np.dtype("int32"), "step")  # the number of steps so far


@cache  # NumPy names types slowly
def c_type(dtype: np.dtype) -> str:
    """Return the name of a type in C.

    >>> c_type(np.dtype("uint8"))
    'unsigned char'
    """
    return _C_TYPES[dtype.name]


def fill(text: str, **names: str) -> str:
    """Return a text with `$name` placeholders filled in.

    >>> fill("void $body() {}", body="f")
    'void f() {}'
    """
    template = string.Template(text)
    if unknown := names.keys() - template.get_identifiers():
        raise KeyError(f"the text does not name {sorted(unknown)}")
    return template.substitute(names)


def power_of_two(count: int) -> int:
    """Return the smallest power of two that is not less than a number.

    >>> power_of_two(0), power_of_two(5), power_of_two(8)
    (1, 8, 8)
    """
    return 1 << max(count - 1, 0).bit_length()


def computed(dtype: np.dtype) -> np.dtype:
    """Return the type in which elements of an array are computed.

    >>> computed(BF16), computed(np.dtype("int8"))
    (dtype('float32'), dtype('int8'))
    """
    return np.dtype("float32") if dtype == BF16 else dtype


def number(value: float, dtype: np.dtype) -> str:
    """Return a number as an exact C literal.

    >>> number(0.1, np.dtype("float32"))
    '0x1.99999a0000000p-4f'
    """
    if dtype.kind == "b":
        return "true" if value else "false"
    if dtype.kind in "iu":
        integer = int(value)
        text = f"{integer}{'u' * (dtype.kind == 'u')}{'ll' * (dtype.itemsize == 8)}"
        if integer == -(2**63):
            text = "(-9223372036854775807ll - 1)"
        return f"({c_type(dtype)}){text}" if dtype.itemsize < 4 else text
    if is_short(dtype):
        return f"as_{dtype.name}({number(dtype.type(value), np.dtype('float32'))})"
    real = float(np.dtype(dtype).type(value))
    if math.isnan(real):
        return f"not_a_number<{c_type(dtype)}>()"
    if math.isinf(real):
        return f"{'-' * (real < 0)}infinity<{c_type(dtype)}>()"
    return real.hex() + ("f" if dtype.itemsize == 4 else "")


def affine(indices: Sequence[str], strides: Iterable[int], offset: int = 0) -> str:
    """Return offset + sum(index * stride).

    >>> affine(["i", "j"], (12, 1), 3)
    'i * 12 + j + 3'
    """
    terms = [
        index if stride == 1 else f"{index} * {stride}"
        for index, stride in zip(indices, strides, strict=True)
        if stride and index != "0"
    ]
    if offset or not terms:
        terms.append(str(offset))
    return " + ".join(terms).replace("+ -", "- ")


def split_index(linear: str, sizes: Sequence[int]) -> list[str]:
    """Return the index along each axis that a linear index stands for.

    >>> split_index("i", (2, 3, 4))
    ['(i / 12)', '(i / 4 % 3)', '(i % 4)']
    """
    indices, below = [], 1
    first = next((axis for axis, size in enumerate(sizes) if size != 1), 0)
    for axis, size in reversed(list(enumerate(sizes))):
        text = linear if below == 1 else f"{linear} / {below}"
        if axis > first:
            text += f" % {size}"
        text = text if text == linear else f"({text})"
        indices.append("0" if size == 1 else text)
        below *= size
    return indices[::-1]


@dataclass(frozen=True)
class Emitted:
    """The text of a kernel's body, its arguments, and how many blocks it can use."""

    text: str  # of a function called $body: see `fill`
    buffers: tuple[Buffer, ...]  # its arguments
    blocks: int
    shared: int = 0  # bytes of shared memory
    work: float = 0.0  # estimated nanoseconds of a block: long ones start first
    waits: bool = False  # whether the body itself waits for the previous launch


class CText:
    """The lines of a C function under construction."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._depth, self._count = 1, 0

    def fresh(self, stem: str = "v") -> str:
        """Return an unused name."""
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
        """Append a block in braces behind a loop's or condition's head."""
        self.do(f"{head} {{")
        self._depth += 1
        yield
        self._depth -= 1
        self.do("}")


class Body(CText):
    """A device function under construction."""

    def __init__(
        self, wide: bool = False, row_axes: Shape = (), in_block: InBlock | None = None
    ) -> None:
        super().__init__()
        self.in_block = in_block is not None
        self._swizzled = in_block.swizzled if in_block else {}
        self.thread = "THREAD"
        if in_block and in_block.first_warp:
            self.thread = f"(THREAD ^ {32 * in_block.first_warp})"
        self.row_axes = row_axes  # leading axes, if a block has rows from `row0` on
        self.before: list[str] = []  # declarations in front of the function
        self.buffers: list[Buffer] = []
        self._names: dict[tuple[str, str], str] = {}
        self._prelude: list[str] = []
        self.index = "long long" if wide else "int"

    def array(self, kind: str, width: int, stem: str) -> str:
        """Append a new array and return its name."""
        name = self.fresh(stem)
        self.do(f"{kind} {name}[{width}];")
        return name

    @contextmanager
    def unrolled(self, head: str, times: int = 0) -> Iterator[None]:
        """Append a loop that is unrolled, fully or this many times."""
        self.unroll(times)
        with self.block(head):
            yield

    def unroll(self, times: int = 0) -> None:
        """Append the pragma that unrolls the loop on the next line."""
        self.lines.append(f"#pragma unroll {times}" if times else "#pragma unroll")

    @contextmanager
    def into(self, lines: list[str] | None) -> Iterator[None]:
        """Append to another list of lines within the block, unless it is None."""
        outer = self.lines
        if lines is not None:
            self.lines = lines
        yield
        self.lines = outer

    def indices(self, linear: str, sizes: Sequence[int], stem: str = "i") -> list[str]:
        """Declare the index along each axis that a linear index stands for."""
        return [
            text
            if text.isidentifier() or text == "0"
            else self.let(self.index, text, stem)
            for text in split_index(linear, sizes)
        ]

    def in_rows(self, indices: list[str]) -> list[str]:
        """Return indices within a block's rows as indices of the array."""
        if not self.row_axes:
            return indices
        axes = len(self.row_axes)
        row = self.let(self.index, f"row0 + {indices[axes - 1]}", "row")
        return [*self.indices(row, self.row_axes), *indices[axes:]]

    @property
    def row_wise(self) -> bool:
        """Whether a block computes some rows only."""
        return bool(self.row_axes)

    def pointer(self, buffer: Buffer) -> str:
        """Return the name of a buffer's address."""
        key = buffer.key
        if key not in self._names:
            name = f"p{len(self.buffers)}"
            self.buffers.append(buffer)
            self._names[key] = name
            if buffer.kind == "result":
                offset = f"(long long)*{self.pointer(STEP)} * {max(buffer.size, 1)}"
                self._names[key] = f"{name}_now"
                kind = c_type(buffer.dtype)
                self._prelude.append(f"  {kind}* {name}_now = {name} + {offset};")
        return self._names[key]

    def rows_swizzled(self, buffer: Buffer) -> int:
        """Return the length of a buffer's swizzled rows, 0 if it is not swizzled."""
        return self._swizzled.get(buffer.key, 0)

    def offset(self, buffer: Buffer, offset: str) -> str:
        """Return the offset in memory of an element of a buffer, after swizzling."""
        width = self.rows_swizzled(buffer)
        return f"swizzled<{width}>({offset})" if width else offset

    def scratch(self, count: int, dtype: str) -> str:
        """Return the address of the kernel's own memory, initialized to zero."""
        buffer = Buffer(f"#{len(self.buffers)}", (count,), np.dtype(dtype), "scratch")
        return self.pointer(buffer)

    def element(self, view: View, indices: Sequence[str]) -> str:
        """Return an element of a view."""
        offset = affine(indices, view.strides, view.offset)
        return f"{self.pointer(view.buffer)}[{self.offset(view.buffer, offset)}]"

    def emitted(self, blocks: int, shared: int = 0) -> Emitted:
        """Return the finished function."""
        parameters = ["int row0"] if self.row_wise else ["int block", "int blocks"]
        parameters += [
            f"{c_type(buffer.dtype)}* RESTRICT p{i}"
            for i, buffer in enumerate(self.buffers)
        ]
        lines = [*self.before, f"DEVICE void $body({', '.join(parameters)}) {{"]
        if self.row_wise:
            lines.append("  const int block = 0, blocks = 1;")
        lines += self._prelude
        text = "\n".join([*lines, *self.lines, "}", ""])
        return Emitted(text, tuple(self.buffers), max(blocks, 1), shared)


def is_wide(buffers: Iterable[Buffer], *counts: int) -> bool:
    """Return whether indices do not fit into 32 bits."""
    sizes = (buffer.size for buffer in buffers if buffer.kind != "scratch")
    return max([*sizes, *counts], default=0) > INT_MAX
