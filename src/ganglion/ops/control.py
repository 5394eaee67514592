"""Choices and loops: both sides are computed, and loops are written out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ganglion import tree
from ganglion.compiler.ir.graph import Value
from ganglion.ops.numpy import where
from ganglion.ops.shapes import stack, unstack
from ganglion.symbolic import any_symbolic, is_symbolic, record

__all__ = [
    "cond", "fori_loop", "map", "vectorized_map",
]  # fmt: skip


def cond(pred: Any, true_fn: Callable[[], Any], false_fn: Callable[[], Any]) -> Any:
    """Return the result of one of two functions.

    For a traced condition both are computed and the result is chosen by `where`.
    """
    if not isinstance(pred, Value) and not is_symbolic(pred):
        return true_fn() if bool(np.asarray(pred)) else false_fn()
    first, second = true_fn(), false_fn()
    pairs = zip(tree.flatten(first), tree.flatten(second), strict=True)
    return tree.pack(first, [where(pred, a, b) for a, b in pairs])


def fori_loop(
    lower: int, upper: int, body_fun: Callable[[int, Any], Any], init_val: Any
) -> Any:
    """Call a function for each number of a range, handing on its result."""
    value = init_val
    for number in range(int(lower), int(upper)):
        value = body_fun(number, value)
    return value


def map(f: Callable[[Any], Any], xs: Any) -> Any:  # noqa: A001 (Keras' name)
    """Call a function on every row of the first axis and stack the results."""
    if any_symbolic(xs):
        return record(map, (f, xs), {})
    rows = [unstack(x) for x in tree.flatten(xs)]
    results = [f(tree.pack(xs, list(parts))) for parts in zip(*rows, strict=True)]
    columns = zip(*(tree.flatten(result) for result in results), strict=True)
    return tree.pack(results[0], [stack(list(column)) for column in columns])


def vectorized_map(function: Callable[[Any], Any], elements: Any) -> Any:
    """Call a function on every row of the first axis and stack the results."""
    return map(function, elements)
