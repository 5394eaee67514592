"""Loops over the first axis of arrays, and over numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ganglion import tree
from ganglion.compiler.ir.graph import ShapeError, Value
from ganglion.compiler.ir.scan import make_scan
from ganglion.ops.dispatch import astype, one_axis, op, stretch
from ganglion.ops.joining import concatenate, stack
from ganglion.ops.reduction import sum as sum_
from ganglion.ops.shapes import flip, moveaxis, reshape
from ganglion.tensors import evaluated
from ganglion.variables import Scope, current_scope, read

__all__ = [
    "associative_scan", "fori_loop", "map", "scan", "vectorize", "vectorized_map",
]  # fmt: skip


@op
def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
) -> tuple[Any, Any]:
    """Call a function for every row of the first axis, passing its carry on.

    ``f(carry, x)`` returns the next carry, of the same shape and type, and what is
    stacked. The loop is compiled as a loop, whatever its length, so `unroll` changes
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
    first, end = _known_bound(lower, "lower"), _known_bound(upper, "upper")
    numbers = np.arange(first, max(end, first), dtype="int32")
    return scan(lambda value, i: (body_fun(i, value), None), init_val, numbers)[0]


def _known_bound(bound: Any, name: str) -> int:
    try:
        return int(evaluated([read(bound)])[0])
    except ValueError:
        raise NotImplementedError(
            f"ops.fori_loop: `{name}` depends on data, but the number of steps must be "
            "known when a model is compiled. Use `ops.while_loop` with "
            "`maximum_iterations`."
        ) from None


@op
def map(f: Callable[[Any], Any], xs: Any) -> Any:  # noqa: A001 (Keras' name)
    """Call a function on every row of the first axis and stack the results."""
    return scan(lambda nothing, x: ((), f(x)), (), xs)[1]


def vectorized_map(function: Callable[[Any], Any], elements: Any) -> Any:
    """Call a function on every row of the first axis and stack the results."""
    return map(function, elements)


def vectorize(
    pyfunc: Callable[..., Any], *, excluded: Any = None, signature: str | None = None
) -> Callable[..., Any]:
    """Return a function of arrays that calls another on every element.

    With a `signature`, such as ``"(n),(n)->()"``, it is called on rows or matrices:
    the axes in brackets are passed entirely, those before them are broadcast.
    Arguments that are `excluded`, by number or name, are passed as they are.

    >>> vectorize(lambda a, b: a if b is None else a + b)(np.arange(3), 10)
    array([10, 11, 12])
    """
    if not callable(pyfunc):
        raise ValueError(f"`pyfunc` should be a callable. Received: pyfunc={pyfunc}")
    left_out = set(excluded or ())

    @op
    def vectorized(*args: Any, **kwargs: Any) -> Any:
        named = {key: value for key, value in kwargs.items() if key not in left_out}
        numbers = [number for number in range(len(args)) if number not in left_out]
        values = [read(args[number]) for number in numbers]
        values += [read(value) for value in named.values()]
        cores = _core_axes(signature, len(values))
        rows, outer = _flat_rows(values, cores)

        def one_row(parts: Any) -> Any:
            full, keywords = list(args), dict(kwargs)
            for number, part in zip(numbers, parts, strict=False):
                full[number] = part
            keywords |= zip(named, parts[len(numbers) :], strict=True)
            return pyfunc(*full, **keywords)

        def shaped(result: Any) -> Any:
            return reshape(result, (*outer, *result.shape[1:]))

        return tree.map_leaves(shaped, map(one_row, rows))

    return vectorized


def _core_axes(signature: str | None, count: int) -> list[int]:
    """Return how many axes of each argument are passed entirely."""
    if signature is None:
        return [0] * count
    inputs = re.findall(r"\(([^)]*)\)", signature.partition("->")[0])
    if len(inputs) != count:
        raise ValueError(
            f"ops.vectorize: {signature!r} is of {len(inputs)} arguments, got {count}."
        )
    return [len([name for name in axes.split(",") if name.strip()]) for axes in inputs]


def _flat_rows(values: list[Value], cores: list[int]) -> tuple[list[Any], Any]:
    """Broadcast the axes before the cores, and merge them into one."""
    pairs = list(zip(values, cores, strict=True))
    heads = [value.shape[: value.ndim - core] for value, core in pairs]
    outer = np.broadcast_shapes(*heads)
    rows = []
    for (value, core), head in zip(pairs, heads, strict=True):
        inner = value.shape[value.ndim - core :]
        lifted = reshape(value, (*(1,) * (len(outer) - len(head)), *head, *inner))
        wide = stretch(lifted, (*outer, *inner))
        rows.append(reshape(wide, (math.prod(outer), *inner)))
    return rows, outer


@op
def associative_scan(
    f: Callable[[Any, Any], Any], elems: Any, reverse: bool = False, axis: int = 0
) -> Any:
    """Combine all elements up to each one by an associative function.

    Neighbours are combined, then pairs of them, and so on: about twice the logarithm of
    the length as many calls, each on many elements at once.

    >>> associative_scan(lambda a, b: a + b, np.arange(1, 5))
    array([ 1,  3,  6, 10])
    """
    if not callable(f):
        raise TypeError(f"`f` should be a callable. Received: f={f}")
    arrays = [read(x) for x in tree.flatten(elems)]
    axes = [one_axis(axis, x.ndim) for x in arrays]
    if len({x.shape[at] for x, at in zip(arrays, axes, strict=True)}) > 1:
        raise ValueError(
            "associative_scan: all arrays must have the same first dimension, that of "
            f"`axis`, got shapes {', '.join(str(x.shape) for x in arrays)}."
        )
    rows = [moveaxis(x, at, 0) for x, at in zip(arrays, axes, strict=True)]
    rows = [flip(x, axis=0) for x in rows] if reverse else rows

    def combine(first: list[Any], second: list[Any]) -> list[Any]:
        both = (
            tree.pack(
                elems, [moveaxis(x, 0, at) for x, at in zip(side, axes, strict=True)]
            )
            for side in (first, second)
        )
        results = zip(tree.flatten(f(*both)), axes, strict=True)
        return [moveaxis(x, at, 0) for x, at in results]

    rows = _prefixes(combine, rows)
    rows = [flip(x, axis=0) for x in rows] if reverse else rows
    return tree.pack(
        elems, [moveaxis(x, 0, at) for x, at in zip(rows, axes, strict=True)]
    )


def _prefixes(combine: Callable[[Any, Any], list[Any]], rows: list[Any]) -> list[Any]:
    """Return the combination of all rows up to each one."""
    size = rows[0].shape[0]
    if size < 2:
        return rows
    pairs = combine([x[: size - 1 : 2] for x in rows], [x[1::2] for x in rows])
    odd = _prefixes(combine, pairs)
    before = [x[: (size - 1) // 2] for x in odd]
    even = combine(before, [x[2::2] for x in rows]) if size > 2 else before
    firsts = [concatenate([x[:1], y]) for x, y in zip(rows, even, strict=True)]
    return [_interleaved(*pair) for pair in zip(firsts, odd, strict=True)]


def _interleaved(even: Any, odd: Any) -> Any:
    """Return rows of two arrays alternately; the first may have a further row."""
    size, shape = odd.shape[0], odd.shape[1:]
    pairs = reshape(stack([even[:size], odd], axis=1), (2 * size, *shape))
    return concatenate([pairs, even[size:]]) if even.shape[0] > size else pairs
