"""Reverse-mode gradients: new nodes behind a scalar, returned as a dictionary."""

from __future__ import annotations

from collections.abc import Iterable

from ganglion.compiler.ir import origin
from ganglion.compiler.ir.graph import Deep, Node, ShapeError, Value, finished, toposort
from ganglion.compiler.ir.pointwise import add, multiply, negative
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
    targets = set(wrt)
    order = toposort([loss])
    active = _reaching(order, targets)
    gradient_of: dict[Value, Value] = {loss: fill(1, loss)} if loss in active else {}
    sums = _Sums()
    for value in reversed(order):
        if value not in gradient_of or not isinstance(value, Node):
            continue
        with origin.like(value.origin):
            _push_back(value, gradient_of, active, sums)
    return {value: gradient_of[value] for value in targets if value in gradient_of}


class _Sums:
    """Sums first and multiplies afterwards, where a factor is that of all summands.

    The gradient of a batch norm's mean is such a sum: moved inside, it becomes the one
    that its offset needs anyway. Each is made once: a chain of layers has the sums of
    all those behind it in common.
    """

    def __init__(self) -> None:
        self._moved: dict[tuple[Value, tuple[int, ...]], Value] = {}

    def moved_inside(self, total: Value) -> Value:
        """Return an equal value whose sums have less to add up."""
        return finished(self._moving(total))

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
            for factor, rest in (x.inputs, reversed(x.inputs)):
                small = _constant_along(factor, axes)
                if small is not None:
                    inner = yield self._moving(sum_(rest, axes=axes))
                    return multiply(inner, small)
        return total


def _constant_along(value: Value, axes: tuple[int, ...]) -> Value | None:
    """Return a value without some axes if it is the same all along them."""
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


def _reaching(order: list[Value], targets: set[Value]) -> set[Value]:
    """Return the values on a path of floats from a target to the loss."""
    active: set[Value] = set()
    for value in order:
        flows = isinstance(value, Node) and any(
            source in active for source in value.inputs
        )
        if (value in targets or flows) and is_float(value.dtype):
            active.add(value)
    return active


def _push_back(
    node: Node, gradient_of: dict[Value, Value], active: set[Value], sums: _Sums
) -> None:
    if node.op.gradient is None:
        return
    parts = node.op.gradient(node, gradient_of[node])
    for source, part in zip(node.inputs, parts, strict=True):
        if part is not None and source in active:
            part = sums.moved_inside(part)
            gradient_of[source] = (
                add(gradient_of[source], part) if source in gradient_of else part
            )
