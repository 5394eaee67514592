"""Formulas over lanes: Python's operators, written as LLVM IR while they are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ganglion.compiler.cpu.text import Val, lanes, llvm_type

if TYPE_CHECKING:
    from ganglion.compiler.cpu.pointwise import Maths

_SAME_SIZE = {"float32": "int32", "float64": "int64", "int32": "float32"}
_SAME_SIZE["int64"] = "float64"


@dataclass(frozen=True, eq=False)
class Term:
    """A value in a formula. Every operation is exact or rounded once, in any lane.

    Numbers of Python become constants of the other operand's type. A comparison with
    NaN is false, so a value that is NaN stays where a choice does not take it away.
    """

    maths: Maths
    val: Val

    def number(self, value: float) -> Term:
        """Return a constant like this term."""
        return self._new(self.maths.constant(value, self.val.dtype, self.val.width))

    def _new(self, val: Val) -> Term:
        return Term(self.maths, val)

    def _lift(self, other: Term | float) -> Term:
        return other if isinstance(other, Term) else self.number(other)

    def _binary(self, real: str, whole: str, other: Term | float) -> Term:
        instruction = real if self.val.dtype.kind == "f" else whole
        return self._new(
            self.maths.binary(instruction, self.val, self._lift(other).val)
        )

    def __add__(self, other: Term | float) -> Term:
        return self._binary("fadd", "add", other)

    def __sub__(self, other: Term | float) -> Term:
        return self._binary("fsub", "sub", other)

    def __rsub__(self, other: float) -> Term:
        return self.number(other) - self

    def __mul__(self, other: Term | float) -> Term:
        return self._binary("fmul", "mul", other)

    def __truediv__(self, other: Term | float) -> Term:
        return self._binary("fdiv", "sdiv", other)

    def __rtruediv__(self, other: float) -> Term:
        return self.number(other) / self

    def __neg__(self) -> Term:
        return self._new(self.maths.negative(self.val))

    def __and__(self, other: Term | float) -> Term:
        return self._binary("and", "and", other)

    def __or__(self, other: Term | float) -> Term:
        return self._binary("or", "or", other)

    def __xor__(self, other: Term | float) -> Term:
        return self._binary("xor", "xor", other)

    def __invert__(self) -> Term:
        return self._new(self.maths.logical_not(self.val))

    def __lshift__(self, other: int) -> Term:
        return self._binary("shl", "shl", other)

    def __rshift__(self, other: int) -> Term:
        return self._binary("ashr", "ashr", other)

    def _compare(self, condition: str, other: Term | float) -> Term:
        kind = "fcmp o" if self.val.dtype.kind == "f" else "icmp s"
        right = self._lift(other).val
        return self._new(self.maths.compare(kind + condition, self.val, right))

    def __lt__(self, other: Term | float) -> Term:
        return self._compare("lt", other)

    def __gt__(self, other: Term | float) -> Term:
        return self._compare("gt", other)

    def equals(self, other: Term | float) -> Term:
        """Return where both are equal."""
        condition = "fcmp oeq" if self.val.dtype.kind == "f" else "icmp eq"
        right = self._lift(other).val
        return self._new(self.maths.compare(condition, self.val, right))

    def choose(self, a: Term | float, b: Term | float) -> Term:
        """Return a where this condition holds, b elsewhere; one of them is a term."""
        like = a if isinstance(a, Term) else b
        assert isinstance(like, Term)
        one, other = like._lift(a), like._lift(b)
        return self._new(self.maths.select(self.val, one.val, other.val))

    def fma(self, factor: Term | float, addend: Term | float) -> Term:
        """Return self * factor + addend, rounded once."""
        factor, addend = self._lift(factor), self._lift(addend)
        return self._new(self.maths.fma(self.val, factor.val, addend.val))

    def polynomial(self, coefficients: Sequence[float]) -> Term:
        """Return the polynomial of these coefficients, the highest power first."""
        total = self.number(coefficients[0])
        for one in coefficients[1:]:
            total = total.fma(self, one)
        return total

    def at_least(self, bound: float) -> Term:
        """Return the larger of this and a number; NaN stays."""
        return self._new(self.maths.extreme(self.val, self.number(bound).val, True))

    def at_most(self, bound: float) -> Term:
        """Return the smaller of this and a number; NaN stays."""
        return self._new(self.maths.extreme(self.val, self.number(bound).val, False))

    def size(self) -> Term:
        """Return the absolute value."""
        return self._new(self.maths.absolute(self.val))

    def signed_as(self, other: Term) -> Term:
        """Return this size with the sign of another term."""
        return self._new(self.maths.intrinsic("copysign", self.val, other.val))

    def floor(self) -> Term:
        """Return the next whole number below."""
        return self._new(self.maths.intrinsic("floor", self.val))

    def root(self) -> Term:
        """Return the square root."""
        return self._new(self.maths.intrinsic("sqrt", self.val))

    def bits(self) -> Term:
        """Return the same bits, as a whole number or as a real one."""
        dtype, width = np.dtype(_SAME_SIZE[self.val.dtype.name]), self.val.width
        kind = lanes(llvm_type(dtype), width)
        name = self.maths.text.let(f"bitcast {self.val.type} {self.val.name} to {kind}")
        return self._new(Val(name, dtype, width))

    def cast(self, dtype: np.dtype) -> Term:
        """Return the same number in another type."""
        return self._new(self.maths.cast(self.val, dtype))
