"""Reverse-mode differentiation of graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ganglion.compiler.ir import origin
from ganglion.compiler.ir.graph import (
    RECORD,
    Deep,
    Node,
    ShapeError,
    Value,
    finished,
    toposort,
)
from ganglion.compiler.ir.host import RecordOp, item, result_types
from ganglion.compiler.ir.pointwise import add, multiply, negative
from ganglion.compiler.ir.scan import field, scan
from ganglion.compiler.ir.scan_gradient import scan_gradients
from ganglion.compiler.ir.shaping import broadcast, fill, is_float, reshape, sum_


def gradients(loss: Value, wrt: Iterable[Value]) -> dict[Value, Value]:
    """Return d loss / d value for each value of ``wrt`` that the loss depends on.

    >>> from ganglion.compiler.ir.graph import Graph, Input
    >>> from ganglion.compiler.ir.pointwise import multiply
    >>> x = Input("x", (), "float32")
    >>> print(Graph.of("slope", [x], {"dx": gradients(multiply(x, x), [x])[x]}))
    graph slope
      x  input float32[]
      %0 float32[] = multiply(1, x)
      %1 float32[] = multiply(1, x)
      %2 float32[] = add(%0, %1)
      return dx=%2
    """
    if loss.shape != () or not is_float(loss.dtype):
        raise ShapeError(f"a gradient needs a scalar float loss, not {loss.type_text}")
    return backpropagate({loss: fill(1, loss)}, wrt)


def backpropagate(
    seeds: Mapping[Value, Value],
    wrt: Iterable[Value],
    is_recorded: Callable[[Node], bool] | None = None,
) -> dict[Value, Value]:
    """Return the gradient of each value of ``wrt``, given those of some results.

    Values on which no seeded value depends are left out. No gradient flows through
    nodes that are not recorded.
    """
    targets = set(wrt)
    # No gradient flows to a single target from what it depends on. Gradient rules ask
    # for one: in a deep network, each would visit all layers before its own.
    order = toposort(seeds, ends=targets if len(targets) == 1 else ())
    is_recorded = is_recorded or (lambda node: True)
    active = _reaching(order, targets, is_recorded)
    flowing = _Flowing(active)
    for value, seed in seeds.items():
        if value in active:
            flowing.add(value, seed)
    for value in reversed(order):
        if isinstance(value, Node) and value in flowing and is_recorded(value):
            with origin.like(value.origin):
                flowing.push_back(value)
    return {value: flowing.of[value] for value in targets if value in flowing.of}


class _Flowing:
    """The gradients accumulated so far; of a record, those of its parts."""

    def __init__(self, active: set[Value]) -> None:
        self.of: dict[Value, Value] = {}
        self._records: dict[Node, dict[Any, Value]] = {}  # by name or number
        self._active = active
        self._sums = _Sums()

    def __contains__(self, value: Node) -> bool:
        return value in self.of or value in self._records

    def add(self, value: Value, gradient: Value) -> None:
        """Add to the gradient of a value."""
        total = self.of.get(value)
        self.of[value] = gradient if total is None else add(total, gradient)

    def _add_part(self, node: Node) -> None:
        """Add to the gradient of the part of a record that a node extracts."""
        (record,), (part,) = node.inputs, node.attrs.values()
        assert isinstance(record, Node)
        parts, slope = self._records.setdefault(record, {}), self.of[node]
        parts[part] = add(parts[part], slope) if part in parts else slope

    def push_back(self, node: Node) -> None:
        """Add a node's contributions to the gradients of its inputs."""
        parts: Sequence[Value | None]
        if node.op in (field, item):
            self._add_part(node)
            return
        if isinstance(node.op, RecordOp):
            if node.op.pull_back is None:
                return
            slopes = self._records[node]
            numbers = range(len(result_types(node)))
            parts = node.op.pull_back(node, [slopes.get(n) for n in numbers])
        elif node.op is scan:
            parts = scan_gradients(node, self._records[node], backpropagate)
        elif node.op.gradient is None:
            return
        else:
            parts = node.op.gradient(node, self.of[node])
        for value, part in zip(node.inputs, parts, strict=True):
            if part is not None and value in self._active:
                self.add(value, self._sums.moved_inside(part))


class _Sums:
    """Moves common factors out of sums: sum(factor * x) becomes factor * sum(x).

    The gradient of batch norm's mean is such a sum: it becomes the one that the offset
    needs as well. Results are cached, since layers share the sums of all later layers.
    """

    def __init__(self) -> None:
        self._moved: dict[tuple[Value, tuple[int, ...]], Value] = {}

    def moved_inside(self, total: Value) -> Value:
        """Return an equal value whose sums are simpler."""
        if isinstance(total, Node) and total.op in (reshape, sum_):
            return finished(self._moving(total))
        return total

    def _moving(self, total: Value) -> Deep[Value]:
        if not isinstance(total, Node):
            return total
        if total.op is reshape:
            inner = yield self._moving(total.inputs[0])
            return reshape(inner, shape=total.shape)
        if total.op is not sum_:
            return total
        key = (total.inputs[0], total.attrs["axes"])
        if key not in self._moved:
            self._moved[key] = yield self._moving_sum(total)
        return self._moved[key]

    def _moving_sum(self, total: Node) -> Deep[Value]:
        x, axes = total.inputs[0], total.attrs["axes"]
        if isinstance(x, Node) and x.op is negative:
            return negative((yield self._moving(sum_(x.inputs[0], axes=axes))))
        if isinstance(x, Node) and x.op is multiply:
            for factor, other in (x.inputs, reversed(x.inputs)):
                small = _constant_along(factor, axes)
                if small is not None:
                    inner = yield self._moving(sum_(other, axes=axes))
                    return multiply(inner, small)
        return total


def _constant_along(value: Value, axes: tuple[int, ...]) -> Value | None:
    """Return a value without some axes, if it is constant along them; else None."""
    if not isinstance(value, Node) or value.op is not broadcast:
        return None
    (x,) = value.inputs
    new = value.ndim - x.ndim
    if any(axis >= new and x.shape[axis - new] != 1 for axis in axes):
        return None
    kept = [axis for axis in range(value.ndim) if axis not in axes]
    shape = tuple(value.shape[axis] for axis in kept)
    own = tuple(x.shape[axis - new] for axis in kept if axis >= new)
    small = reshape(x, shape=own) if own != x.shape else x
    return broadcast(small, shape=shape) if small.shape != shape else small


def _reaching(
    order: list[Value], targets: set[Value], is_recorded: Callable[[Node], bool]
) -> set[Value]:
    """Return the floats on a path from a target to the seeded values."""
    active: set[Value] = set()
    for value in order:
        flows = (
            isinstance(value, Node)
            and not active.isdisjoint(value.inputs)
            and is_recorded(value)
        )
        if (value in targets or flows) and (
            is_float(value.dtype) or value.dtype == RECORD
        ):
            active.add(value)
    return active
