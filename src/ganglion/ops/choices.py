"""Choices between functions: a traced one computes all of them and takes one result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ganglion import tree
from ganglion.compiler.ir.graph import Value
from ganglion.ops.numpy import greater_equal, where
from ganglion.symbolic import is_symbolic
from ganglion.variables import current_scope, read

__all__ = [
    "cond", "switch",
]  # fmt: skip


def cond(pred: Any, true_fn: Callable[[], Any], false_fn: Callable[[], Any]) -> Any:
    """Return the result of one of two functions.

    For a traced condition both are computed and the result is chosen by `where`; so are
    the values of variables that they assign.

    >>> cond(True, lambda: 1, lambda: 2)
    1
    """
    if not _is_traced(pred):
        return true_fn() if bool(np.asarray(pred)) else false_fn()
    return _chosen([false_fn, true_fn], [pred])


def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """Return the result of the function at an index, the first or last beyond the ends.

    >>> switch(1, [lambda x: x + 1, lambda x: x * 10], 5)
    50
    """
    if not branches:
        raise ValueError("ops.switch needs at least one function to choose from.")
    if not _is_traced(index):
        number = min(max(int(np.asarray(index)), 0), len(branches) - 1)
        return branches[number](*operands)
    functions = [lambda branch=branch: branch(*operands) for branch in branches]
    tests = [greater_equal(index, number) for number in range(1, len(branches))]
    return _chosen(functions, tests)


def _is_traced(x: Any) -> bool:
    return isinstance(x, Value) or is_symbolic(x)


class _Outcome(NamedTuple):
    """The result of a function, with the variables and losses that it wrote."""

    result: Any
    writes: dict[Any, Any]
    losses: list[tuple[Any, Any]]


def _outcome(function: Callable[[], Any]) -> _Outcome:
    scope = current_scope()
    if scope is None:
        return _Outcome(function(), {}, [])
    before, count = dict(scope.writes), len(scope.losses)
    result = function()
    writes = {v: new for v, new in scope.writes.items() if before.get(v) is not new}
    losses = zip(scope.loss_owners[count:], scope.losses[count:], strict=True)
    outcome = _Outcome(result, writes, list(losses))
    scope.writes = before
    del scope.losses[count:], scope.loss_owners[count:]
    return outcome


def _chosen(functions: Sequence[Callable[[], Any]], tests: Sequence[Any]) -> Any:
    """Return the result of the last function whose test holds, else of the first."""
    outcomes = [_outcome(function) for function in functions]
    scope = current_scope()
    if scope is not None:
        for variable in dict.fromkeys(v for o in outcomes for v in o.writes):
            old = scope.read(variable)
            values = [outcome.writes.get(variable, old) for outcome in outcomes]
            scope.write(variable, _pick(tests, values))
        for number, outcome in enumerate(outcomes):
            for owner, loss in outcome.losses:
                terms = [loss if i == number else 0.0 for i in range(len(outcomes))]
                scope.add_loss(owner, read(_pick(tests, terms)))
    return _picked_results(tests, [outcome.result for outcome in outcomes])


def _picked_results(tests: Sequence[Any], results: list[Any]) -> Any:
    leaves = [tree.flatten(result) for result in results]
    kinds = [[_kind(leaf) for leaf in each] for each in leaves]
    if any(kind != kinds[0] for kind in kinds):
        described = " and ".join(str(tree.map_leaves(_kind, r)) for r in results)
        raise ValueError(
            "All functions to choose from must return values of the same structure and "
            f"shapes, got {described}."
        )
    picked = [
        None if values[0] is None else _pick(tests, values)
        for values in zip(*leaves, strict=True)
    ]
    return tree.pack(results[0], picked)


def _kind(leaf: Any) -> Any:
    return None if leaf is None else tuple(getattr(leaf, "shape", ()))


def _pick(tests: Sequence[Any], values: Sequence[Any]) -> Any:
    value = values[0]
    for test, other in zip(tests, values[1:], strict=True):
        value = where(test, other, value)
    return value
