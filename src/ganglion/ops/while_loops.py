"""A loop as long as a condition holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ganglion import symbolic, tree
from ganglion.compiler.ir.graph import (
    Constant,
    Input,
    Node,
    ShapeError,
    Value,
    toposort,
)
from ganglion.ops.control import scan
from ganglion.ops.dispatch import astype
from ganglion.ops.numpy import logical_and, where
from ganglion.tensors import evaluated, has_numbers
from ganglion.variables import current_scope, read

__all__ = ["while_loop"]

MOST_COUNTED = 100_000  # steps of a loop whose length is found out by running it


def while_loop(
    cond: Callable[..., Any],
    body: Callable[..., Any],
    loop_vars: Any,
    maximum_iterations: int | None = None,
) -> Any:
    """Call a function on its own results as long as a condition of them holds.

    In a model, how often that is must not depend on data: it is counted when the model
    is compiled. Otherwise `maximum_iterations` is needed, and as many steps are made;
    those after the end change nothing.

    >>> while_loop(lambda i: i < 10, lambda i: i + 3, 0)
    array(12, dtype=int32)
    """
    arguments = (cond, body, loop_vars, maximum_iterations)
    if symbolic.any_symbolic(loop_vars):
        return symbolic.record(while_loop, arguments, {})
    is_sequence = isinstance(loop_vars, (list, tuple))
    state = tuple(loop_vars) if is_sequence else (loop_vars,)
    steps = None if maximum_iterations is None else int(maximum_iterations)

    def advance(*values: Any) -> tuple[Any, ...]:
        new = body(*values)
        return tuple(new) if is_sequence else (new,)

    is_traced = current_scope() is not None or any(
        isinstance(leaf, Value) for leaf in tree.flatten(state)
    )
    run = _run_traced if is_traced else _run_at_once
    last = run(cond, advance, state, steps)
    return type(loop_vars)(last) if is_sequence else last[0]


_Condition = Callable[..., Any]
_Advance = Callable[..., tuple[Any, ...]]


def _run_at_once(
    cond: _Condition, advance: _Advance, state: tuple[Any, ...], steps: int | None
) -> tuple[Any, ...]:
    """Run a loop over arrays in Python."""
    state = tree.map_leaves(lambda leaf: evaluated([read(leaf)])[0], state)
    count = 0
    while (steps is None or count < steps) and bool(np.asarray(cond(*state))):
        new = tree.flatten(advance(*state))
        state = tree.pack(state, _checked(new, tree.flatten(state)))
        count += 1
    return state


def _checked(new: list[Any], old: list[Any]) -> list[Any]:
    values = [read(leaf) for leaf in new]
    before, after = ([leaf.shape for leaf in leaves] for leaves in (old, values))
    if before != after:
        raise ShapeError(
            f"ops.while_loop: values of shapes {before} became {after} in a step; they "
            "must keep their shapes."
        )
    pairs = zip(values, old, strict=True)
    return list(evaluated([astype(value, x.dtype) for value, x in pairs]))


def _run_traced(
    cond: _Condition, advance: _Advance, state: tuple[Any, ...], steps: int | None
) -> tuple[Any, ...]:
    state = tree.map_leaves(read, state)
    count = _count_steps(cond, advance, state, steps)
    if count == 0:
        return state
    if count is not None:
        return scan(lambda values, _: (advance(*values), None), state, length=count)[0]
    if steps is None and symbolic.unknown_size() is not None:
        advance(*state)  # layers in it may have to be built
        return state
    if steps is None:
        raise NotImplementedError(
            "ops.while_loop: how many steps it takes depends on data, which is not "
            "known when a model is compiled. Give `maximum_iterations`."
        )

    def step(carry: Any, _: Any) -> tuple[Any, None]:
        is_running, values = carry
        is_running = logical_and(is_running, cond(*values))
        pairs = zip(tree.flatten(advance(*values)), tree.flatten(values), strict=True)
        chosen = [where(is_running, astype(a, b.dtype), b) for a, b in pairs]
        return (is_running, tree.pack(values, chosen)), None

    start = (read(np.array(True)), state)
    return scan(step, start, length=steps)[0][1]


# ---- counting ------------------------------------------------------------------------


def _count_steps(
    cond: _Condition, advance: _Advance, state: tuple[Any, ...], steps: int | None
) -> int | None:
    """Return how many steps a loop takes, None if that depends on data."""
    known = _Known()
    most = MOST_COUNTED if steps is None else steps
    with _undone():
        for count in range(most + 1):
            test = known.array(read(cond(*state)))
            if test is None:
                return None
            if not test:
                return count
            if count < most:
                state = tree.map_leaves(known.settled, advance(*state))
    return steps


class _Known:
    """The values that depend on constants alone."""

    def __init__(self) -> None:
        self._constant: dict[Value, bool] = {}

    def array(self, value: Value) -> np.ndarray | None:
        """Return the numbers of a value, None if they depend on data."""
        for node in toposort([value], ends=self._constant):
            if isinstance(node, Node):
                is_known = all(self._constant[x] for x in node.inputs)
            else:
                is_known = isinstance(node, Constant) or has_numbers(node)
            self._constant.setdefault(node, is_known)
        return evaluated([value])[0] if self._constant[value] else None

    def settled(self, leaf: Any) -> Value:
        """Return a value without its history: its numbers, or a stand-in."""
        value = read(leaf)
        array = self.array(value)
        if array is None:
            return Input("stand-in", value.shape, value.dtype)
        return Constant(array)


@contextmanager
def _undone() -> Iterator[None]:
    """Discard what this block assigns, and adds to the loss."""
    scope = current_scope()
    if scope is None:
        yield
        return
    writes, losses = dict(scope.writes), len(scope.losses)
    try:
        yield
    finally:
        scope.writes = writes
        del scope.losses[losses:], scope.loss_owners[losses:]
