"""C99 under construction: types, numbers, and the expressions of loops."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from ganglion.compiler.cuda.text import C_OPS, CText, affine
from ganglion.compiler.plan.kernels import (
    Apply,
    Buffer,
    BufferKey,
    Expr,
    Index,
    Indirect,
    Literal,
    Load,
    View,
    walk,
)

_C_TYPES = {
    "float32": "float",
    "float64": "double",
    "int8": "int8_t",
    "int16": "int16_t",
    "int32": "int32_t",
    "int64": "int64_t",
    "uint8": "uint8_t",
    "uint16": "uint16_t",
    "uint32": "uint32_t",
    "uint64": "uint64_t",
    "bool": "uint8_t",
}
_OPS = C_OPS | {
    "tanh": "tanh{f}({0})",
    "negative": "-({0})",
    # NaN if either is NaN.
    "maximum": "({0} > {1} || {0} != {0}) ? {0} : {1}",
    "minimum": "({0} < {1} || {0} != {0}) ? {0} : {1}",
    "sigmoid": "1 / (1 + exp{f}(-({0})))",
    "is_finite": "isfinite({0}) != 0",
}
_INTEGER_OPS = {
    "absolute": "{0} < 0 ? -({0}) : {0}",
    "sign": "({0} > 0) - ({0} < 0)",
    # The remainder has the sign of the divisor.
    "remainder": "{1} == 0 ? 0 : ({0} % {1} + {1}) % {1}",
    "maximum": "{0} > {1} ? {0} : {1}",
    "minimum": "{0} < {1} ? {0} : {1}",
}
_UNSIGNED_OPS = {
    "absolute": "{0}",
    "sign": "{0} > 0",
    "remainder": "{1} == 0 ? 0 : {0} % {1}",
}
_FLOAT_OPS = {
    "absolute": "fabs{f}({0})",
    "sign": "({0} > 0) - ({0} < 0)",
    "remainder": "{0} - {1} * floor{f}({0} / {1})",
}


class UnsupportedError(ValueError):
    """A file of this format cannot hold something of a model."""


def c_type(dtype: np.dtype) -> str:
    """Return the name of a type in C.

    >>> c_type(np.dtype("uint8"))
    'uint8_t'
    """
    if dtype.name not in _C_TYPES:
        raise UnsupportedError(
            f"C99 has no type for {dtype.name}: export a model of float32 "
            "(`dtype_policy='float32'`), or another format."
        )
    return _C_TYPES[dtype.name]


def number(value: float, dtype: np.dtype) -> str:
    """Return a number as C writes it, exactly.

    >>> number(0.1, np.dtype("float32")), number(-3, np.dtype("int64"))
    ('0x1.99999ap-4f', '-3LL')
    """
    if dtype.kind in "biu":
        integer = int(value)
        if integer == -(2**63):
            return "(-9223372036854775807LL - 1)"
        return f"{integer}{'U' * (dtype.kind == 'u')}{'LL' * (dtype.itemsize == 8)}"
    real = float(dtype.type(value))
    if math.isnan(real):
        return "NAN"
    if math.isinf(real):
        return "-INFINITY" if real < 0 else "INFINITY"
    mantissa, _, exponent = real.hex().partition("p")
    head, point, digits = mantissa.partition(".")
    digits = digits.rstrip("0")
    mantissa = f"{head}{point}{digits}" if digits else head
    return f"{mantissa}p{exponent}" + "f" * (dtype.itemsize == 4)


class CFunction(CText):
    """A function under construction: its lines, and the buffers it is called with."""

    def __init__(self, restrict: bool = True) -> None:
        super().__init__()
        self.buffers: list[Buffer] = []  # roots: other shapes have their memory
        self._names: dict[BufferKey, str] = {}
        self._written: set[BufferKey] = set()
        self._restrict = "restrict " if restrict else ""

    @contextmanager
    def nest(self, sizes: Sequence[int]) -> Iterator[list[str]]:
        """Append loops over axes; yield their indices."""
        indices, depth = [], 0
        for size in sizes:
            if size == 1:
                indices.append("0")
                continue
            index = self.fresh("i")
            self.do(f"for (int {index} = 0; {index} < {size}; {index}++) {{")
            self._depth, depth = self._depth + 1, depth + 1
            indices.append(index)
        yield indices
        for _ in range(depth):
            self._depth -= 1
            self.do("}")

    def pointer(self, buffer: Buffer, is_written: bool = False) -> str:
        """Return the name of a buffer's address."""
        root = buffer.root
        if root.key not in self._names:
            self._names[root.key] = f"p{len(self.buffers)}"
            self.buffers.append(root)
        if is_written:
            self._written.add(root.key)
        return self._names[root.key]

    def writes(self, buffer: Buffer) -> bool:
        """Return whether a buffer is written."""
        return buffer.root.key in self._written

    def element(
        self, view: View, indices: Sequence[str], is_written: bool = False
    ) -> str:
        """Return an element of a view."""
        offset = affine(indices, view.strides, view.offset)
        return f"{self.pointer(view.buffer, is_written)}[{offset}]"

    def text(self, name: str) -> str:
        """Return the complete function."""
        parameters = ", ".join(
            f"{'' if self.writes(b) else 'const '}{c_type(b.dtype)} "
            f"*{self._restrict}p{number}"
            for number, b in enumerate(self.buffers)
        )
        head = f"static void {name}({parameters or 'void'}) {{"
        return "\n".join([head, *self.lines, "}", ""])

    # ---- expressions -------------------------------------------------------------

    def evaluate(self, exprs: Sequence[Expr], indices: Sequence[str]) -> list[str]:
        """Append the computation of expressions; return the names of their values."""
        names: dict[int, str] = {}
        loaded: dict[View, str] = {}
        for expr in walk(*exprs):
            if isinstance(expr, Load):
                if expr.view not in loaded:
                    element = self.element(expr.view, indices)
                    loaded[expr.view] = self.let(c_type(expr.dtype), element)
                names[id(expr)] = loaded[expr.view]
            elif isinstance(expr, Literal):
                names[id(expr)] = number(expr.value, expr.dtype)
            else:
                value = self._text(expr, indices, names)
                names[id(expr)] = self.let(c_type(expr.dtype), value)
        return [names[id(expr)] for expr in exprs]

    def _text(self, expr: Expr, indices: Sequence[str], names: dict[int, str]) -> str:
        if isinstance(expr, Index):
            value = affine(indices, expr.strides, expr.offset)
            return f"({c_type(expr.dtype)})({value})"
        if isinstance(expr, Apply):
            return _applied(expr, [names[id(arg)] for arg in expr.args])
        if isinstance(expr, Indirect):
            return self._indirect(expr, indices, names[id(expr.row)])
        raise UnsupportedError(f"C99 cannot hold {type(expr).__name__}.")

    def _indirect(self, expr: Indirect, indices: Sequence[str], row: str) -> str:
        """Load from the row that an index selects; NaN outside of the table."""
        within = affine(indices, expr.within, expr.offset)
        inside = self.let("int", f"{row} >= 0 && {row} < {expr.rows}", "inside")
        start = f"({inside} ? (int){row} : 0) * {expr.row_size}"
        element = f"{self.pointer(expr.table)}[{start} + {within}]"
        return f"{inside} ? {element} : NAN" if expr.dtype.kind == "f" else element


def _applied(expr: Apply, args: list[str]) -> str:
    dtype, source = expr.dtype, expr.args[0].dtype
    kind = c_type(dtype)
    if expr.op == "cast":
        return _cast(args[0], source, dtype)
    table = {"f": _FLOAT_OPS, "i": _INTEGER_OPS}.get(source.kind, _UNSIGNED_OPS)
    if source.kind != "f":
        table = _INTEGER_OPS | table
    template = table.get(expr.op) or _OPS.get(expr.op)
    if template is None:
        raise UnsupportedError(f"C99 has no {expr.op} of {dtype.name}.")
    text = template.format(*args, f="f" * (dtype.itemsize == 4))
    # Small integers are computed as int, and end where their type ends.
    narrow = dtype.kind in "iu" and dtype.itemsize < 4
    return f"({kind})({text})" if narrow else text


def _cast(value: str, old: np.dtype, new: np.dtype) -> str:
    """Convert as NumPy does."""
    if old == new:
        return value
    if new.kind == "b":
        return f"{value} != 0"
    if old.kind == "f" and new.kind == "u" and new.itemsize < 8:
        value = f"(int64_t){value}"  # negative numbers wrap around
    return f"({c_type(new)}){value}"
