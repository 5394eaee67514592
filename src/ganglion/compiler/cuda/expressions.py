"""Expressions of a loop as CUDA C, at one index or at several neighbours.

Functions that are called are those of `device/common.cuh`, or the machine's own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ganglion.compiler.cuda.text import Body, affine, c_type, number
from ganglion.compiler.plan.expressions import BufferKey
from ganglion.compiler.plan.kernels import (
    Apply,
    Expr,
    Index,
    Indirect,
    Literal,
    Load,
    Shuffled,
    Uniform,
    View,
    walk,
)

I64 = np.dtype("int64")
_OVERFLOWING = ("add", "subtract", "multiply", "negative")
_MATH = ["floor", "sqrt", "exp", "expm1", "log", "log1p", "sin", "cos", "tanh", "erf"]
# An op on its arguments; {f} stands behind the names of functions of float32.
_OPS = {name: name + "{f}({0})" for name in _MATH} | {
    "round": "rint{f}({0})",
    "power": "pow{f}({0}, {1})",
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
    "maximum": "larger({0}, {1})",
    "minimum": "smaller({0}, {1})",
    "remainder": "remainder_of({0}, {1})",
    "absolute": "size_of({0})",
    "sign": "sign_of({0})",
    "sigmoid": "sigmoid_of({0})",
    "is_finite": "is_finite({0})",
    "stop_gradient": "{0}",
}
# Powers that are cheaper, and as exact, by arithmetic.
_POWERS = {
    1.0: "{0}",
    2.0: "{0} * {0}",
    3.0: "{0} * {0} * {0}",
    -1.0: "{1} / {0}",
    0.5: "root_of({0})",
    -0.5: "{1} / root_of({0})",
}


@dataclass(frozen=True)
class Bindings:
    """The indices at which expressions are evaluated, and what is known there.

    `values` are those of buffers that are being computed, by their memory: a load of
    one is the value itself. `vectors` are elements of views that were loaded at once.
    """

    indices: Sequence[str]
    values: Mapping[BufferKey, str] = field(default_factory=dict)
    vectors: Mapping[View, str] = field(default_factory=dict)


def evaluate(body: Body, exprs: Sequence[Expr], at: Bindings) -> list[str]:
    """Append the computation of expressions; return the names of their values."""
    names: dict[int, str] = {}
    loaded: dict[View, str] = {}
    for expr in walk(*exprs):
        if isinstance(expr, Load):
            if expr.view not in loaded:
                loaded[expr.view] = _load(body, expr, at)
            names[id(expr)] = loaded[expr.view]
        elif isinstance(expr, Literal):
            names[id(expr)] = number(expr.value, expr.dtype)
        else:
            text = _text(body, expr, at, names)
            names[id(expr)] = body.let(c_type(expr.dtype), text)
    return [names[id(expr)] for expr in exprs]


def _load(body: Body, load: Load, at: Bindings) -> str:
    view = load.view
    value = at.values.get(view.buffer.key) or at.vectors.get(view)
    return value or body.let(c_type(load.dtype), body.element(view, at.indices))


def _text(body: Body, expr: Expr, at: Bindings, names: dict[int, str]) -> str:
    if isinstance(expr, Index):
        return cast(
            f"({affine(at.indices, expr.strides, expr.offset)})", I64, expr.dtype
        )
    if isinstance(expr, Apply):
        return _apply(expr, [names[id(arg)] for arg in expr.args])
    if isinstance(expr, Indirect):
        return _indirect(body, expr, at, names[id(expr.row)])
    if isinstance(expr, Uniform):
        state, element = body.pointer(expr.state), names[id(expr.element)]
        return f"uniform_of<{c_type(expr.dtype)}>({state}, {element})"
    assert isinstance(expr, Shuffled)
    state, position = body.pointer(expr.state), names[id(expr.position)]
    return f"shuffled({state}, {position}, {expr.rows}u)"


def _apply(expr: Apply, args: list[str]) -> str:
    dtype, source, last = expr.dtype, expr.args[0].dtype, expr.args[-1]
    if expr.op == "cast":
        return cast(args[0], source, dtype)
    if isinstance(last, Literal) and isinstance(last.value, (int, float)):
        value = float(last.value)
        if expr.op == "divide" and _has_exact_inverse(value):
            return f"{args[0]} * {number(1 / value, source)}"
        if expr.op == "power" and value in _POWERS:
            return _POWERS[value].format(args[0], number(1, source))
    text = _OPS[expr.op].format(*args, f="f" * (dtype.itemsize == 4))
    # Small integers overflow where their type ends.
    if expr.op in _OVERFLOWING and dtype.kind in "iu" and dtype.itemsize < 4:
        return f"({c_type(dtype)})({text})"
    return text


def _has_exact_inverse(value: float) -> bool:
    """Return whether a number is a power of two, and no extreme one."""
    return math.frexp(value)[0] in (0.5, -0.5) and 2**-99 < abs(value) < 2**99


def cast(value: str, old: np.dtype, new: np.dtype) -> str:
    """Convert as NumPy does."""
    if old == new:
        return value
    if new.kind == "b":
        return f"({value} != 0)"
    if old.kind == "f" and new.kind == "u" and new.itemsize < 8:
        value = f"(long long)({value})"  # negative numbers wrap around
    return f"({c_type(new)})({value})"


def _indirect(body: Body, expr: Indirect, at: Bindings, row: str) -> str:
    """Load from the row an index names; what lies outside of the table is NaN."""
    within = affine(at.indices, expr.within, expr.offset)
    inside = body.let("bool", f"(unsigned long long){row} < {expr.rows}ull")
    kind = "long long" if expr.table.size > 2**31 - 1 else "int"
    offset = f"({inside} ? ({kind}){row} : 0) * {expr.row_size} + {within}"
    element = f"{body.pointer(expr.table)}[{offset}]"
    if expr.dtype.kind != "f":
        return element
    return f"{inside} ? {element} : not_a_number<{c_type(expr.dtype)}>()"


# ---- vectors: neighbours along an axis ---------------------------------------------


def evaluate_vectors(
    body: Body,
    exprs: Sequence[Expr],
    indices: Sequence[str],
    width: int,
    values: Mapping[BufferKey, str],
    axis: int = -1,
) -> list[str]:
    """Compute expressions at neighbours along an axis; return arrays of values."""
    vectors: dict[View, str] = {}
    for expr in walk(*exprs):
        if isinstance(expr, Load) and expr.view.buffer.key not in values:
            view = expr.view
            if view not in vectors and is_vector_access(view, width, axis):
                vectors[view] = body.array(c_type(expr.dtype), width, "q")
                offset = affine(indices, view.strides, view.offset)
                source = f"{body.pointer(view.buffer)} + {offset}"
                body.do(f"load_lanes({vectors[view]}, {source});")
    names = [body.array(c_type(expr.dtype), width, "r") for expr in exprs]
    with body.unrolled(f"for (int lane = 0; lane < {width}; lane++)"):
        here = list(indices)
        here[axis] = body.let(body.index, f"{indices[axis]} + lane", "j")
        at = Bindings(
            here,
            {key: f"{name}[lane]" for key, name in values.items()},
            {view: f"{name}[lane]" for view, name in vectors.items()},
        )
        for name, value in zip(names, evaluate(body, exprs, at), strict=True):
            body.do(f"{name}[lane] = {value};")
    return names


def is_vector_access(view: View, width: int, axis: int = -1) -> bool:
    """Return whether neighbours of a view can be loaded and stored at once."""
    others = list(view.strides)
    last = others.pop(axis)
    aligned = not any(s % width for s in (*others, view.offset))
    # Results of several steps lie one after the other.
    return last == 1 and aligned and not view.buffer.size % width


def store_vector(
    body: Body, value: str, view: View, indices: Sequence[str], width: int
) -> None:
    """Store neighbours that are in an array."""
    offset = affine(indices, view.strides, view.offset)
    pointer = body.pointer(view.buffer)
    if is_vector_access(view, width):
        body.do(f"store_lanes({pointer} + {offset}, {value});")
        return
    body.unroll()
    body.do(
        f"for (int lane = 0; lane < {width}; lane++) "
        f"{pointer}[{offset} + lane * {view.strides[-1]}] = {value}[lane];"
    )
