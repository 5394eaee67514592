"""Expressions of a loop as CUDA C, at one place or at several neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ganglion.compiler.cuda import pointwise
from ganglion.compiler.cuda.text import Body, affine, c_type, number, root
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
Root = tuple[str, str]


class Places:
    """Where expressions are evaluated, and what is known there already.

    `held` are values of buffers that are being computed, by their memory: a load of one
    is the value itself. `vectors` are arrays of neighbouring elements that were loaded
    at once, each with its lane.
    """

    def __init__(
        self,
        at: Sequence[str],
        held: Mapping[Root, str] | None = None,
        vectors: Mapping[View, str] | None = None,
    ) -> None:
        self.at = list(at)
        self.held = dict(held or {})
        self.vectors = dict(vectors or {})


def evaluate(body: Body, exprs: Sequence[Expr], places: Places) -> list[str]:
    """Append the computation of expressions; return the names of their values."""
    known: dict[int, str] = {}
    loaded: dict[View, str] = {}
    for one in walk(*exprs):
        if isinstance(one, Load):
            if one.view not in loaded:
                loaded[one.view] = _load(body, one, places)
            known[id(one)] = loaded[one.view]
            continue
        text = _one(body, one, places, known)
        if isinstance(one, Literal):
            known[id(one)] = text
        else:
            known[id(one)] = body.let(c_type(one.dtype), text)
    return [known[id(expr)] for expr in exprs]


def _load(body: Body, load: Load, places: Places) -> str:
    view = load.view
    if root(view.buffer) in places.held:
        return places.held[root(view.buffer)]
    if view in places.vectors:
        return places.vectors[view]
    return body.let(c_type(load.dtype), body.element(view, places.at))


def _one(body: Body, expr: Expr, places: Places, known: dict[int, str]) -> str:
    if isinstance(expr, Literal):
        return number(expr.value, expr.dtype)
    if isinstance(expr, Index):
        at = affine(places.at, expr.strides, expr.offset)
        return pointwise.cast(f"({at})", I64, expr.dtype)
    if isinstance(expr, Apply):
        return _apply(expr, known)
    if isinstance(expr, Indirect):
        return _indirect(body, expr, places, known)
    if isinstance(expr, Uniform):
        state, element = body.pointer(expr.state), known[id(expr.element)]
        return f"uniform_of<{c_type(expr.dtype)}>({state}, {element})"
    assert isinstance(expr, Shuffled)
    state, position = body.pointer(expr.state), known[id(expr.position)]
    return f"shuffled({state}, {position}, {expr.rows}u)"


def _apply(expr: Apply, known: dict[int, str]) -> str:
    last = expr.args[-1]
    return pointwise.apply(
        expr.op,
        [known[id(arg)] for arg in expr.args],
        [arg.dtype for arg in expr.args],
        expr.dtype,
        last.value if isinstance(last, Literal) else None,
    )


def _indirect(body: Body, expr: Indirect, places: Places, known: dict[int, str]) -> str:
    """Load from the row an index names; what lies outside of the table is NaN."""
    row, kind = known[id(expr.row)], c_type(expr.dtype)
    within = affine(places.at, expr.within, expr.offset)
    inside = body.let("bool", f"(unsigned long long){row} < {expr.rows}ull")
    wide = expr.table.size > 2**31 - 1
    place = f"(long long){row}" if wide else f"(int){row}"
    at = f"({inside} ? {place} : 0) * {expr.row_size} + {within}"
    found = f"{body.pointer(expr.table)}[{at}]"
    if expr.dtype.kind != "f":
        return found
    return f"{inside} ? {found} : not_a_number<{kind}>()"
