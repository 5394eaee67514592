"""Sums of products as Einstein wrote them: letters for axes, `...` for the others."""

from __future__ import annotations

import math
import re
import string
from typing import Any

import numpy as np

from ganglion.compiler.ir import arrays, contraction
from ganglion.compiler.ir import shaping as s
from ganglion.compiler.ir.graph import ShapeError, Value
from ganglion.ops.dispatch import astype, op
from ganglion.ops.indexing import diagonal
from ganglion.ops.linalg import factors

__all__ = ["einsum"]


@op
def einsum(subscripts: str, *operands: Any) -> Any:
    """Sum products as Einstein wrote them, for example ``"bij,jk->bik"``.

    >>> import numpy as np
    >>> einsum("...ij->...ji", np.ones((5, 2, 3), "float32")).shape
    (5, 3, 2)
    """
    values, dtype = factors(*operands)
    if dtype == np.int8:  # as Keras does, for room
        values, dtype = factors(*(astype(value, "int32") for value in values))
    terms, result, others = _parse(subscripts, values)
    named = [_one_axis_each(*pair) for pair in zip(terms, values, strict=True)]
    named = _without_stretched(named, others)
    _check_sizes(named, result, subscripts)
    (term, value), *rest = named
    for number, (other, right) in enumerate(rest, 1):
        later = set(result).union(*(letters for letters, _ in rest[number:]))
        term, value = _contract(term, value, other, right, later)
    return astype(_arrange(term, value, result), dtype)


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
    """Leave out axes of size one behind a `...` that another array stretches."""
    wide = {
        letter
        for term, value in named
        for letter, size in zip(term, value.shape, strict=True)
        if letter in others and size != 1
    }
    kept = []
    for term, value in named:
        sizes = dict(zip(term, value.shape, strict=True))
        letters = [x for x in term if x not in wide or sizes[x] != 1]
        if len(letters) < len(term):
            value = s.reshape(value, shape=tuple(sizes[x] for x in letters))
        kept.append(("".join(letters), value))
    return kept


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
    """Multiply two factors, summing the letters that nobody needs later."""
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
    kept = "".join(letter for letter in term if letter in needed)
    return kept, s.sum_(value, axes=axes) if axes else value


def _arrange(term: str, value: Value, result: str) -> Value:
    term, value = _drop(term, value, set(result))
    return arrays.transpose(value, axes=tuple(term.index(x) for x in result))
