"""LLVM IR as text: values, blocks and loops. Imports no driver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ganglion.compiler.cpu.tuning import CPU

WIDTH = CPU.vector_width

_TYPES = {
    "float32": "float",
    "float64": "double",
    "int8": "i8",
    "int32": "i32",
    "int64": "i64",
    "uint8": "i8",
    "uint32": "i32",
    "uint64": "i64",
    "int16": "i16",
    "uint16": "i16",
    "bool": "i1",
}


def llvm_type(dtype: np.dtype) -> str:
    """Return the type of an element in a register."""
    return _TYPES[dtype.name]


def memory_type(dtype: np.dtype) -> str:
    """Return the type of an element in memory: a bool takes a byte there."""
    return "i8" if dtype == np.bool_ else llvm_type(dtype)


@dataclass(frozen=True)
class Val:
    """A named value with its element type and number of lanes (1: a scalar)."""

    name: str
    dtype: np.dtype
    width: int

    @property
    def type(self) -> str:
        """The LLVM type."""
        return lanes(llvm_type(self.dtype), self.width)


def lanes(element: str, width: int) -> str:
    """Return a vector type, or the element's own for one lane."""
    return element if width == 1 else f"<{width} x {element}>"


def number(value: float | int | bool, dtype: np.dtype) -> str:
    """Return a constant as LLVM writes it, exact to the last bit."""
    if dtype.kind != "f":
        return str(int(value))
    exact = np.float64(np.float32(value)) if dtype.itemsize == 4 else np.float64(value)
    return f"0x{int(exact.view(np.uint64)):016X}"


class Text:
    """A function under construction."""

    def __init__(self, name: str, parameters: str) -> None:
        self._head = f"define void @{name}({parameters}) #0 {{\nentry:"
        self.prelude: list[str] = []  # what is done once, before anything else
        self.lines: list[str | list[str]] = []
        self.block = "entry"
        self.declared: set[str] = set()
        self._count = 0

    def fresh(self, stem: str = "v") -> str:
        """Return a new name."""
        self._count += 1
        return f"%{stem}{self._count}"

    def do(self, instruction: str) -> None:
        """Append an instruction without a result."""
        self.lines.append(f"  {instruction}")

    def let(self, instruction: str, stem: str = "v") -> str:
        """Append an instruction and name its result."""
        name = self.fresh(stem)
        self.lines.append(f"  {name} = {instruction}")
        return name

    def label(self, name: str) -> None:
        """Start a block."""
        self.lines.append(f"{name[1:]}:")
        self.block = name[1:]

    def declare(self, declaration: str) -> None:
        """Declare a function of LLVM or of the C library."""
        self.declared.add(declaration)

    # ---- whole numbers of 64 bits -------------------------------------------------

    def add(self, a: str, b: str) -> str:
        """Add two indices."""
        if a == "0":
            return b
        if b == "0":
            return a
        if _is_number(a) and _is_number(b):
            return str(int(a) + int(b))
        return self.let(f"add nsw i64 {a}, {b}")

    def times(self, a: str, factor: int) -> str:
        """Multiply an index by a constant."""
        if factor == 0 or a == "0":
            return "0"
        if factor == 1:
            return a
        if _is_number(a):
            return str(int(a) * factor)
        return self.let(f"mul nsw i64 {a}, {factor}")

    def affine(
        self, indices: Sequence[str], strides: Sequence[int], offset: int
    ) -> str:
        """Return offset + sum(index * stride)."""
        total = "0"
        for index, stride in zip(indices, strides, strict=True):
            total = self.add(total, self.times(index, stride))
        return self.add(total, str(offset))

    def address(self, base: str, element: str, index: str) -> str:
        """Return the address of an element."""
        if index == "0":
            return base
        return self.let(f"getelementptr inbounds {element}, ptr {base}, i64 {index}")

    def put_index(self, index: str, address: str) -> None:
        """Store an index in 32 bits."""
        short = self.let(f"trunc i64 {index} to i32")
        self.do(f"store i32 {short}, ptr {address}, align 4")

    # ---- branches and loops --------------------------------------------------------

    def when(
        self,
        condition: str,
        body: Callable[[], None],
        otherwise: Callable[[], None] | None = None,
    ) -> None:
        """Run a body if a condition holds, else perhaps another."""
        yes, no = self.fresh("yes"), self.fresh("no")
        after = self.fresh("after") if otherwise else no
        self.do(f"br i1 {condition}, label {yes}, label {no}")
        for label, emit in ((yes, body), (no, otherwise)):
            if emit:
                self.label(label)
                emit()
                self.do(f"br label {after}")
        self.label(after)

    def loop(
        self,
        start: str,
        stop: str,
        step: int,
        body: Callable[[str, list[str]], list[str]],
        carried: Sequence[tuple[str, str]] = (),
    ) -> list[str]:
        """Repeat while start + n * step < stop; carried values go round.

        Carried values are (type, first value); the body returns the next ones.
        """
        known = _is_number(start) and _is_number(stop)
        if known and int(start) >= int(stop):
            return [value for _, value in carried]
        if known and int(start) + step >= int(stop):
            return body(start, [value for _, value in carried])
        before, head = self.block, self.fresh("head")
        after = self.fresh("after")
        if known:
            self.do(f"br label {head}")
        else:
            some = self.let(f"icmp slt i64 {start}, {stop}")
            self.do(f"br i1 {some}, label {head}, label {after}")
        self.label(head)
        index, names = self.fresh("i"), [self.fresh("c") for _ in carried]
        phis: list[str] = []  # known only when the body is
        self.lines.append(phis)
        results = body(index, list(names))
        following = self.let(f"add nsw i64 {index}, {step}")
        again = self.let(f"icmp slt i64 {following}, {stop}")
        latch = self.block
        self.do(f"br i1 {again}, label {head}, label {after}")
        phis.append(
            f"  {index} = phi i64 [ {start}, %{before} ], [ {following}, %{latch} ]"
        )
        for name, (kind, first), result in zip(names, carried, results, strict=True):
            phis.append(
                f"  {name} = phi {kind} [ {first}, %{before} ], [ {result}, %{latch} ]"
            )
        self.label(after)
        if known:
            return results
        ends = []
        for (kind, first), result in zip(carried, results, strict=True):
            ends.append(
                self.let(f"phi {kind} [ {first}, %{before} ], [ {result}, %{latch} ]")
            )
        return ends

    def finish(self) -> str:
        """End the function and return its text."""
        lines = [self._head, *self.prelude]
        for one in self.lines:
            lines.extend(one if isinstance(one, list) else [one])
        return "\n".join([*lines, "  ret void", "}"])


def _is_number(text: str) -> bool:
    return text.lstrip("-").isdigit()
