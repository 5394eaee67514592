"""Pointwise ops as CUDA C expressions; the functions themselves are in the prelude."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ganglion.compiler.cuda.text import c_type, number

_INFIX = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "equal": "==",
    "less": "<",
    "less_equal": "<=",
    "logical_and": "&&",
    "logical_or": "||",
}
_MATH = {
    "floor": "floor",
    "round": "rint",
    "sqrt": "sqrt",
    "exp": "exp",
    "expm1": "expm1",
    "log": "log",
    "log1p": "log1p",
    "sin": "sin",
    "cos": "cos",
    "tanh": "tanh",
    "erf": "erf",
}
# Functions of the prelude, for every type.
_OWN = {
    "maximum": "larger",
    "minimum": "smaller",
    "remainder": "remainder_of",
    "absolute": "size_of",
    "sign": "sign_of",
    "sigmoid": "sigmoid_of",
    "is_finite": "is_finite",
}


def apply(
    op: str, args: list[str], dtypes: list[np.dtype], dtype: np.dtype, known: object
) -> str:
    """Return an op on some values; `known` is the last one's number, if it has one."""
    if op == "cast":
        return cast(args[0], dtypes[0], dtype)
    if op in ("divide", "power") and isinstance(known, (int, float)):
        simple = _SIMPLE[op](args[0], float(known), dtypes[0])
        if simple is not None:
            return simple
    if op in _INFIX:
        return _narrowed(f"{args[0]} {_INFIX[op]} {args[1]}", dtype)
    if op in _MATH:
        return f"{_MATH[op]}{'f' * (dtype.itemsize == 4)}({args[0]})"
    if op in _OWN:
        return f"{_OWN[op]}({', '.join(args)})"
    return _OTHERS[op](args, dtype)


def cast(value: str, old: np.dtype, new: np.dtype) -> str:
    """Convert as NumPy does."""
    if old == new:
        return value
    if new.kind == "b":
        return f"({value} != 0)"
    if old.kind == "f" and new.kind == "u" and new.itemsize < 8:
        value = f"(long long)({value})"  # negative numbers wrap around
    return f"({c_type(new)})({value})"


def _narrowed(text: str, dtype: np.dtype) -> str:
    """Let small whole numbers overflow where their type ends."""
    if dtype.kind in "iu" and dtype.itemsize < 4:
        return f"({c_type(dtype)})({text})"
    return text


def _divide(x: str, by: float, dtype: np.dtype) -> str | None:
    """A power of two is multiplied by its exact inverse."""
    if by and math.frexp(by)[0] in (0.5, -0.5) and 2**-99 < abs(by) < 2**99:
        return f"{x} * {number(1 / by, dtype)}"
    return None


def _power(x: str, exponent: float, dtype: np.dtype) -> str | None:
    """Powers that are cheaper, and as exact, by arithmetic."""
    one = number(1, dtype)
    texts = {
        1.0: x,
        2.0: f"{x} * {x}",
        3.0: f"{x} * {x} * {x}",
        -1.0: f"{one} / {x}",
        0.5: f"root_of({x})",
        -0.5: f"{one} / root_of({x})",
    }
    return texts.get(exponent)


_SIMPLE: dict[str, Callable[[str, float, np.dtype], str | None]] = {
    "divide": _divide,
    "power": _power,
}
_OTHERS: dict[str, Callable[[list[str], np.dtype], str]] = {
    "divide": lambda a, dtype: f"{a[0]} / {a[1]}",
    "power": lambda a, dtype: f"pow{'f' * (dtype.itemsize == 4)}({a[0]}, {a[1]})",
    "logical_not": lambda a, dtype: f"!{a[0]}",
    "negative": lambda a, dtype: _narrowed(f"-{a[0]}", dtype),
    "where": lambda a, dtype: f"{a[0]} ? {a[1]} : {a[2]}",
    "stop_gradient": lambda a, dtype: a[0],
}
