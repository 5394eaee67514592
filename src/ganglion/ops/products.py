"""Products of matrices, of anything that can be seen as matrices, and `einsum`."""

from __future__ import annotations

import math
import re
import string
from collections.abc import Sequence
from typing import Any

import numpy as np

from ganglion import symbolic
from ganglion.compiler.ir import contraction, shaping
from ganglion.compiler.ir import shaping as s
from ganglion.compiler.ir.graph import ShapeError, Value
from ganglion.ops.dispatch import (
    astype,
    axes_of,
    broadcast_all,
    common_type,
    op,
    stretch,
    unknown_like,
)
from ganglion.ops.indexing import diagonal
from ganglion.ops.numpy import multiply
from ganglion.variables import read

__all__ = [
    "broadcast_arrays", "dot", "einsum", "inner", "matmul", "outer",
    "tensordot", "vdot",
]  # fmt: skip


def factors(*operands: Any) -> tuple[list[Value], np.dtype]:
    """Return factors as numbers of one type, and the type of their product.

    Integers stay integers, as in Keras; of bool, a product is whether any pair is
    true.
    """
    values = [read(x) for x in operands]
    dtype = common_type(values)
    number = np.dtype("int32") if dtype.kind == "b" else dtype
    return [astype(value, number) for value in values], dtype


@op
def matmul(x1: Any, x2: Any) -> Any:
    """Multiply matrices; leading axes are stacks of matrices, as in NumPy."""
    a, b = read(x1), read(x2)
    if a.dtype == b.dtype == np.int8 and a.ndim == 2:  # as Keras does, for room
        a, b = astype(a, "int32"), astype(b, "int32")
    (a, b), dtype = factors(a, b)
    if a.ndim == 0 or b.ndim == 0:
        raise ShapeError("matmul: a scalar is not a matrix; use multiply")
    row, column = a.ndim == 1, b.ndim == 1
    a = s.reshape(a, shape=(1, a.size)) if row else a
    b = s.reshape(b, shape=(b.size, 1)) if column else b
    out = _stacked_product(a, b)
    shape = out.shape[:-2] + (() if row else out.shape[-2:-1])
    shape += () if column else out.shape[-1:]
    return astype(s.reshape(out, shape=shape), dtype)


def _stacked_product(a: Value, b: Value) -> Value:
    if b.ndim == 2 and a.ndim > 2:
        # A matrix for the entire stack: a single tall product is faster.
        rows = math.prod(a.shape[:-1])
        flat = contraction.matmul(s.reshape(a, shape=(rows, a.shape[-1])), b)
        return s.reshape(flat, shape=(*a.shape[:-1], b.shape[-1]))
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return contraction.matmul(
        stretch(a, (*lead, *a.shape[-2:])), stretch(b, (*lead, *b.shape[-2:]))
    )


@op
def dot(x1: Any, x2: Any) -> Any:
    """Sum products over the last axis of x1 and the second to last of x2."""
    a, b = read(x1), read(x2)
    if a.ndim == 0 or b.ndim == 0:
        return _scaled(a, b)
    return tensordot(a, b, axes=([a.ndim - 1], [max(b.ndim - 2, 0)]))


def _scaled(a: Value, b: Value) -> Value:
    """Multiply element by element; of bool, whether both are true."""
    both, dtype = factors(a, b)
    return astype(multiply(*both), dtype)


@op
def tensordot(x1: Any, x2: Any, axes: Any = 2) -> Any:
    """Sum products over pairs of axes."""
    (a, b), dtype = factors(x1, x2)
    if isinstance(axes, int):
        axes = (range(a.ndim - axes, a.ndim), range(axes))
    over_a, over_b = axes_of(axes[0], a.ndim), axes_of(axes[1], b.ndim)
    of_b = {j: i for i, j in zip(over_a, over_b, strict=True)}
    names = [range(a.ndim), [of_b.get(j, -1 - j) for j in range(b.ndim)]]
    a, b = _with_known_sizes(names, [a, b])
    keep_a = tuple(i for i in range(a.ndim) if i not in over_a)
    keep_b = tuple(i for i in range(b.ndim) if i not in over_b)
    inner = math.prod(a.shape[i] for i in over_a)
    shape_a = tuple(a.shape[i] for i in keep_a)
    shape_b = tuple(b.shape[i] for i in keep_b)
    left = shaping.transpose(a, axes=keep_a + over_a)
    right = shaping.transpose(b, axes=over_b + keep_b)
    left = s.reshape(left, shape=(math.prod(shape_a), inner))
    right = s.reshape(right, shape=(inner, math.prod(shape_b)))
    product = s.reshape(contraction.matmul(left, right), shape=shape_a + shape_b)
    return astype(product, dtype)


@op
def outer(x1: Any, x2: Any) -> Any:
    """Multiply each element of x1 with each of x2."""
    a, b = promoted_flat(x1), promoted_flat(x2)
    return _scaled(s.reshape(a, shape=(a.size, 1)), s.reshape(b, shape=(1, b.size)))


def promoted_flat(x: Any) -> Value:
    """Return any array-like as one row."""
    value = read(x)
    return s.reshape(value, shape=(value.size,))


@op
def broadcast_arrays(*arrays_: Any) -> Any:
    """Stretch arrays to their common shape."""
    return broadcast_all([read(x) for x in arrays_])


@op
def inner(x1: Any, x2: Any) -> Any:
    """Sum products over the last axes of both."""
    a, b = read(x1), read(x2)
    if a.ndim == 0 or b.ndim == 0:
        return _scaled(a, b)
    unknown = symbolic.fitting_size()
    if a.shape[-1] != b.shape[-1] and unknown not in (a.shape[-1], b.shape[-1]):
        raise ShapeError(
            f"inner: the last dimension of {a.shape} and that of {b.shape} must match"
        )
    return tensordot(a, b, axes=([a.ndim - 1], [b.ndim - 1]))


@op
def vdot(x1: Any, x2: Any) -> Any:
    """Sum the products of all elements."""
    return dot(promoted_flat(x1), promoted_flat(x2))


@op
def einsum(subscripts: Any, *operands: Any, **kwargs: Any) -> Any:
    """Sum products as Einstein wrote them, for example ``"bij,jk->bik"``.

    The axes may be numbered instead, as in NumPy: ``einsum(a, [0, 1], b, [1, 2])``.
    `optimize=` and `precision=`, which backends of Keras take, change no result.

    >>> import numpy as np
    >>> einsum("...ij->...ji", np.ones((5, 2, 3), "float32")).shape
    (5, 3, 2)
    """
    if unknown := set(kwargs) - {"optimize", "precision"}:
        raise TypeError(f"ops.einsum takes no {', '.join(sorted(unknown))}.")
    if not isinstance(subscripts, str):
        subscripts, operands = _in_letters(subscripts, *operands)
    values, dtype = factors(*operands)
    if all(read(x).dtype == np.int8 for x in operands):  # as Keras does, for room
        values, dtype = factors(*(astype(value, "int32") for value in values))
    terms, result, others = _parse(subscripts, values)
    values = _with_known_sizes(terms, values)
    named = [_one_axis_each(*pair) for pair in zip(terms, values, strict=True)]
    named = _without_stretched(named, others)
    _check_sizes(named, result, subscripts)
    (term, value), *rest = named
    for number, (other, right) in enumerate(rest, 1):
        later = set(result).union(*(letters for letters, _ in rest[number:]))
        term, value = _contract(term, value, other, right, later)
    return astype(_arrange(term, value, result), dtype)


def _in_letters(*values: Any) -> tuple[str, tuple[Any, ...]]:
    """Spell operands with numbered axes, and at the end perhaps those of the result."""

    def spelled(axes: Any) -> str:
        letters = string.ascii_letters
        return "".join("..." if axis is ... else letters[axis] for axis in axes)

    operands, terms = values[: len(values) // 2 * 2 : 2], values[1::2]
    subscripts = ",".join(map(spelled, terms))
    if len(values) % 2:
        subscripts += "->" + spelled(values[-1])
    return subscripts, operands


def _with_known_sizes(
    terms: Sequence[Sequence[Any]], values: list[Value]
) -> list[Value]:
    """Give unknown axes the known size of another axis that has the same name."""
    unknown = symbolic.fitting_size()
    if unknown is None:
        return values
    sizes: dict[Any, int] = {}
    for term, value in zip(terms, values, strict=True):
        for name, size in zip(term, value.shape, strict=True):
            if size not in (1, unknown):
                sizes.setdefault(name, size)
    fitted = []
    for term, value in zip(terms, values, strict=True):
        pairs = zip(term, value.shape, strict=True)
        shape = [sizes.get(name, n) if n == unknown else n for name, n in pairs]
        is_same = tuple(shape) == value.shape
        fitted.append(value if is_same else unknown_like(value, shape))
    return fitted


def _parse(subscripts: str, values: list[Value]) -> tuple[list[str], str, str]:
    """Return a letter for every axis of each array and of the result, and for `...`."""
    text = subscripts.replace(" ", "")
    left, arrow, result = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(values):
        raise ValueError(
            f"einsum: {subscripts!r} names {len(terms)} of {len(values)} arrays"
        )
    pattern = r"[A-Za-z]*(\.\.\.)?[A-Za-z]*"
    if not all(re.fullmatch(pattern, term) for term in (*terms, result)):
        raise ValueError(
            f"einsum: {subscripts!r} is not made of letters and one '...' an array."
        )
    if not arrow:
        letters = left.replace(",", "").replace(".", "")
        single = "".join(sorted(x for x in set(letters) if letters.count(x) == 1))
        result = ("..." if "." in left else "") + single
    return _spelled_out(subscripts, terms, result, values)


def _spelled_out(
    subscripts: str, terms: list[str], result: str, values: list[Value]
) -> tuple[list[str], str, str]:
    """Put letters, counted from the last axis, in the place of every `...`."""
    counts = []
    for term, value in zip(terms, values, strict=True):
        named = len(term.replace("...", ""))
        counts.append(value.ndim - named)
        if counts[-1] < 0 or (counts[-1] and "..." not in term):
            raise ShapeError(
                f"einsum: {term!r} does not name the axes of {value.shape}"
            )
    longest = max(counts)
    free = [x for x in string.ascii_letters if x not in subscripts][:longest]
    if longest and "..." not in result:
        raise ValueError(f"einsum: {subscripts!r} has no '...' in its result.")
    letters = "".join(free)
    spelled = [
        term.replace("...", letters[longest - count :])
        for term, count in zip(terms, counts, strict=True)
    ]
    return spelled, result.replace("...", letters), letters


def _one_axis_each(term: str, value: Value) -> tuple[str, Value]:
    """Read the diagonal of axes that carry one letter."""
    for letter in term:
        while term.count(letter) > 1:
            first, second = [i for i, x in enumerate(term) if x == letter][:2]
            if value.shape[first] != value.shape[second]:
                raise ShapeError(
                    f"einsum: {letter!r} is both {value.shape[first]} and "
                    f"{value.shape[second]}"
                )
            value = diagonal(value, axis1=first, axis2=second)
            rest = [x for i, x in enumerate(term) if i not in (first, second)]
            term = "".join(rest) + letter
    return term, value


def _without_stretched(
    named: list[tuple[str, Value]], others: str
) -> list[tuple[str, Value]]:
    """Drop axes of size one of a `...` that another array broadcasts."""
    wide = {
        letter
        for term, value in named
        for letter, size in zip(term, value.shape, strict=True)
        if letter in others and size != 1
    }
    remaining = []
    for term, value in named:
        sizes = dict(zip(term, value.shape, strict=True))
        letters = [x for x in term if x not in wide or sizes[x] != 1]
        if len(letters) < len(term):
            value = s.reshape(value, shape=tuple(sizes[x] for x in letters))
        remaining.append(("".join(letters), value))
    return remaining


def _check_sizes(named: list[tuple[str, Value]], result: str, subscripts: str) -> None:
    sizes: dict[str, int] = {}
    for term, value in named:
        for letter, size in zip(term, value.shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                raise ShapeError(
                    f"einsum: {letter!r} is both {sizes[letter]} and {size}"
                )
    if set(result) - set(sizes) or len(set(result)) != len(result):
        raise ValueError(
            f"einsum: the result of {subscripts!r} must name axes of the arrays, each "
            "once."
        )


def _contract(
    term: str, a: Value, other: str, b: Value, later: set[str]
) -> tuple[str, Value]:
    """Multiply two factors, summing the letters that are not needed later."""
    term, a = _drop(term, a, later | set(other))
    other, b = _drop(other, b, later | set(term))
    shared = [x for x in term if x in other]
    stack = "".join(x for x in shared if x in later)
    inner = "".join(x for x in shared if x not in later)
    left = "".join(x for x in term if x not in shared)
    right = "".join(x for x in other if x not in shared)
    sizes = dict(zip(term + other, a.shape + b.shape, strict=True))

    def matrix(letters: str, value: Value, *groups: str) -> Value:
        moved = _arrange(letters, value, "".join(groups))
        lead = [sizes[x] for x in groups[0]]
        tail = [math.prod(sizes[x] for x in group) for group in groups[1:]]
        return s.reshape(moved, shape=(*lead, *tail))

    product = contraction.matmul(
        matrix(term, a, stack, left, inner), matrix(other, b, stack, inner, right)
    )
    letters = stack + left + right
    return letters, s.reshape(product, shape=tuple(sizes[x] for x in letters))


def _drop(term: str, value: Value, needed: set[str]) -> tuple[str, Value]:
    axes = tuple(i for i, letter in enumerate(term) if letter not in needed)
    letters = "".join(letter for letter in term if letter in needed)
    return letters, s.sum_(value, axes=axes) if axes else value


def _arrange(term: str, value: Value, result: str) -> Value:
    term, value = _drop(term, value, set(result))
    return shaping.transpose(value, axes=tuple(term.index(x) for x in result))
