"""Choices, of which both sides are computed, and loops over the first axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ganglion import tree
from ganglion.compiler.ir.graph import ShapeError, Value
from ganglion.compiler.ir.scan import make_scan
from ganglion.ops.dispatch import astype, op
from ganglion.ops.numpy import where
from ganglion.ops.reduction import sum as sum_
from ganglion.symbolic import is_symbolic
from ganglion.variables import Scope, current_scope, read

__all__ = [
    "cond", "fori_loop", "map", "scan", "vectorized_map",
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


@op
def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
) -> tuple[Any, Any]:
    """Call a function for every row of the first axis, handing on what it carries.

    ``f(carry, x)`` returns the next carry, of the same shape and type, and what is
    stacked. The loop is compiled as one, whatever its length, so `unroll` changes
    nothing; variables that the function assigns are carried along.

    >>> last, sums = scan(lambda total, x: (total + x, total + x), 0, np.arange(1, 4))
    >>> sums
    array([1, 3, 6])
    """
    if not callable(f):
        raise TypeError(f"`f` should be a callable. Received: f={f}")
    if not isinstance(unroll, bool) and (not isinstance(unroll, int) or unroll < 1):
        raise ValueError(
            "`unroll` must be an positive integer or boolean. "
            f"Received: unroll={unroll}"
        )
    stacked = [read(x) for x in tree.flatten(xs)] if xs is not None else []
    length = _length(stacked, length)
    carries = [read(value) for value in tree.flatten(init)]
    shape_of: list[Any] = []

    def step(state: Sequence[Value], slices: Sequence[Value]) -> tuple[Any, Any]:
        x = tree.pack(xs, list(slices)) if xs is not None else None
        carry, y = f(tree.pack(init, list(state)), x)
        shape_of[:] = [y]
        new = _like_carries(init, carry, state)
        return new, [read(leaf) for leaf in tree.flatten(y)] if y is not None else []

    last, results = looped(step, carries, stacked, length, reverse)
    (y,) = shape_of
    return tree.pack(init, last), None if y is None else tree.pack(y, results)


def _length(stacked: Sequence[Value], length: int | None) -> int:
    if length is None and not stacked:
        raise ValueError("Got no `xs` to scan over and `length` not provided.")
    sizes = {x.shape[0] if x.shape else None for x in stacked}
    sizes |= set() if length is None else {int(length)}
    if None in sizes:
        raise ValueError("scan: `xs` must have a first axis to go along, got a scalar")
    if len(sizes) > 1:
        shapes = ", ".join(str(x.shape) for x in stacked)
        raise ValueError(
            f"scan: the first axes must agree with each other and with `length`; got "
            f"shapes {shapes} and length={length}"
        )
    (size,) = sizes
    assert size is not None
    return size


def _like_carries(init: Any, carry: Any, state: Sequence[Value]) -> list[Value]:
    """Return new carries of the types that the old ones have, refusing other shapes."""
    leaves = tree.flatten(carry)
    if len(leaves) != len(state):
        raise ValueError(
            f"The loop carries {len(state)} values, its body returned {len(leaves)}: "
            "it must return as many as it is given."
        )
    new = []
    for old, leaf in zip(state, leaves, strict=True):
        value = astype(leaf, old.dtype)
        if value.shape != old.shape:
            raise ShapeError(
                f"The loop carries a value of shape {old.shape}, its body returned "
                f"one of shape {value.shape}: they must be equal."
            )
        new.append(value)
    return new


_Step = Callable[[Sequence[Value], Sequence[Value]], tuple[Any, Any]]


def looped(
    step: _Step,
    carries: Sequence[Value],
    stacked: Sequence[Value],
    length: int,
    reverse: bool = False,
) -> tuple[list[Value], list[Value]]:
    """Make a scan whose body may assign variables, and add to the loss at each step."""
    scope = current_scope()
    if scope is None:
        return make_scan(step, carries, stacked, length, reverse)
    owners: list[Any] = []

    def collecting(state: Sequence[Value], slices: Sequence[Value]) -> tuple[Any, Any]:
        count = len(scope.losses)
        new, results = step(state, slices)
        added, owners[:] = scope.losses[count:], scope.loss_owners[count:]
        del scope.losses[count:], scope.loss_owners[count:]
        return new, [*results, *added]

    last, results = _assigning(collecting, carries, stacked, length, reverse, scope)
    count = len(results) - len(owners)
    for owner, losses in zip(owners, results[count:], strict=True):
        scope.add_loss(owner, sum_(losses))
    return last, results[:count]


def _assigning(
    step: _Step,
    carries: Sequence[Value],
    stacked: Sequence[Value],
    length: int,
    reverse: bool,
    scope: Scope,
) -> tuple[list[Value], list[Value]]:
    """Make a scan; variables that its body assigns become carries of it."""
    before = dict(scope.writes)
    probe = make_scan(step, carries, stacked, length, reverse)
    assigned = [v for v, new in scope.writes.items() if before.get(v) is not new]
    if not assigned:
        return probe
    scope.writes.clear()
    scope.writes.update(before)
    values = [scope.read(variable) for variable in assigned]

    def carrying(state: Sequence[Value], slices: Sequence[Value]) -> tuple[Any, Any]:
        scope.writes.update(zip(assigned, state[len(carries) :], strict=True))
        new, results = step(state[: len(carries)], slices)
        return [*new, *(scope.read(variable) for variable in assigned)], results

    last, results = make_scan(carrying, [*carries, *values], stacked, length, reverse)
    scope.writes.update(zip(assigned, last[len(carries) :], strict=True))
    return last[: len(carries)], results


@op
def fori_loop(
    lower: int, upper: int, body_fun: Callable[[Any, Any], Any], init_val: Any
) -> Any:
    """Call a function for each number of a range, handing on its result."""
    numbers = np.arange(int(lower), max(int(upper), int(lower)), dtype="int32")
    return scan(lambda value, i: (body_fun(i, value), None), init_val, numbers)[0]


@op
def map(f: Callable[[Any], Any], xs: Any) -> Any:  # noqa: A001 (Keras' name)
    """Call a function on every row of the first axis and stack the results."""
    return scan(lambda nothing, x: ((), f(x)), (), xs)[1]


def vectorized_map(function: Callable[[Any], Any], elements: Any) -> Any:
    """Call a function on every row of the first axis and stack the results."""
    return map(function, elements)
