"""Simplification: constant folding, algebraic identities, common subexpressions.

A single pass in topological order rebuilds the graph, without dead nodes; each rule
sees a node whose inputs are already simplified. Rules preserve all bits of a result,
except for the sign of zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ganglion import config
from ganglion.compiler.ir import arrays, pointwise, shaping
from ganglion.compiler.ir.graph import (
    RECORD,
    Constant,
    Graph,
    Node,
    Op,
    Sizes,
    Value,
    evaluate,
    rebuild,
    verify,
)
from ganglion.compiler.ir.scan import merge_scans, with_bodies
from ganglion.compiler.ir.shaping import splat

FOLD_LIMIT = 4096  # elements; larger constants cost more than computing them


def simplify(graph: Graph) -> Graph:
    """Return an equivalent graph with fewer nodes."""
    verifies = config.verifies_passes()
    if verifies:
        verify(graph)
    simple = _simplified(merge_scans(graph) if graph.has_loops else graph)
    return verify(simple) if verifies else simple


def _simplified(graph: Graph) -> Graph:
    if graph.has_loops:
        graph = merge_scans(with_bodies(graph, _simplified))
    new: dict[Value, Value] = {}
    shared: dict[Any, Value] = {}

    def simple(value: Value) -> Value:
        """Return the replacement of a value; nodes come before their readers."""
        if value not in new:
            new[value] = _share(value, shared)
        return new[value]

    for node in graph.nodes:
        inputs = tuple([new[x] if x in new else simple(x) for x in node.inputs])
        key = _key(node, inputs)
        replacement = shared.get(key)
        if replacement is None:
            replacement = _simple(rebuild(node, inputs), key, shared)
        new[node] = replacement
    outputs = {name: simple(value) for name, value in graph.outputs.items()}
    return Graph.of(graph.name, graph.inputs, outputs)


def _simple(node: Node, key: Any, shared: dict[Any, Value]) -> Value:
    """Return the replacement of a node with this key, and store it in `shared`."""
    # The first input of most nodes is not constant, which is quick to check.
    may_fold = node.inputs and _may_be_constant(node.inputs[0])
    folded = _fold(node) if may_fold else None
    rule = _RULES.get(node.op.name)
    reduced = rule(node) if rule and folded is None else None
    result: Value = node
    if folded is not None:
        result = _share(folded, shared)
    elif isinstance(reduced, Node):
        other = _key(reduced, reduced.inputs)
        equal = shared.get(other)
        result = _simple(reduced, other, shared) if equal is None else equal
    elif reduced is not None:
        result = reduced
    shared[key] = result
    return result


def _share(value: Value, shared: dict[Any, Value]) -> Value:
    """Return the first equal value."""
    key: Any = value
    if isinstance(value, Node):
        key = _key(value, value.inputs)
    elif isinstance(value, Constant):
        key = (value.dtype, value.shape, value.array.tobytes())
    return shared.setdefault(key, value)


def _key(node: Node, inputs: tuple[Value, ...]) -> Any:
    """Return a key that equal nodes, and only those, share."""
    return (node.op.name, inputs, _frozen(node.attrs) if node.attrs else ())


def _frozen(attrs: Mapping[str, Any]) -> tuple[Any, ...]:
    if len(attrs) == 1:
        ((key, value),) = attrs.items()
        return key, _word(value)
    return tuple([(key, _word(attrs[key])) for key in sorted(attrs)])


def _word(value: Any) -> Any:
    """Return a key of an attribute, which distinguishes 1 from 1.0."""
    if type(value) is Sizes:
        return value
    if isinstance(value, Graph):
        return id(value)
    is_shape = isinstance(value, tuple) and {*map(type, value)} <= {int}
    return value if is_shape else repr(value)


def _fold(node: Node) -> Value | None:
    kind = node.op.kind
    if kind in ("random", "loop", "item") or node.dtype == RECORD:
        return None
    if _all_constant(node.inputs):
        grows = node.op.name in ("broadcast", "pad")
        if node.size <= FOLD_LIMIT and not (grows and node.size > 1):
            return Constant(evaluate([node])[0])
    if kind != "pointwise" or node.size <= 1:
        return None
    scalars = _scalars(node.inputs)
    if not scalars:
        return None
    small = Node(node.op, scalars, node.attrs, (), node.dtype, node.origin)
    number = Constant(evaluate([small])[0])
    return _like(node, shaping.broadcast, number, shape=node.shape)


def _may_be_constant(value: Value) -> bool:
    """Return whether a value is a constant, or may be a broadcast constant."""
    if isinstance(value, Node):
        return value.op is shaping.broadcast
    return isinstance(value, Constant)


def _all_constant(values: Iterable[Value]) -> bool:
    return all(isinstance(value, Constant) for value in values)


def _scalars(values: Iterable[Value]) -> list[Constant]:
    """Return the numbers that values are filled with; [] if any is not constant."""
    scalars = []
    for value in values:
        number = splat(value)
        if number is None:
            return []
        scalars.append(Constant(number))
    return scalars


def _is(value: Value, number: float) -> bool:
    scalar = splat(value)
    return scalar is not None and bool(scalar == number)


def _add(node: Node) -> Value | None:
    a, b = node.inputs
    return a if _is(b, 0) else b if _is(a, 0) else _joined(node)


_PADDED = (pointwise.add, arrays.pad)


def _joined(node: Node) -> Value | None:
    """Return a sum of disjoint padded parts, such as gates, as a concatenation."""
    if not all(isinstance(x, Node) and x.op in _PADDED for x in node.inputs):
        return None  # as most, which need no walk
    parts = _padded_parts(node)
    if len(parts) < 2:
        return None
    axis = parts[0][0]
    if any(other != axis for other, _, _ in parts):
        return None
    parts.sort(key=lambda part: part[1])
    runs: list[list[tuple[int, int, Value]]] = []
    for part in parts:
        start, end = (
            part[1],
            runs[-1][-1][1] + runs[-1][-1][2].shape[axis] if runs else 0,
        )
        if runs and start < end:
            return None  # they overlap
        if runs and start == end:
            runs[-1].append(part)
        else:
            runs.append([part])
    if len(runs) == len(parts):
        return None
    total: Value | None = None
    for run in runs:
        values = [value for _, _, value in run]
        joined = arrays.concat(*values, axis=axis) if len(values) > 1 else values[0]
        before = run[0][1]
        after = node.shape[axis] - before - joined.shape[axis]
        pairs = [(0, 0)] * node.ndim
        pairs[axis] = (before, after)
        if before or after:
            zeros = (0,) * node.ndim
            joined = arrays.pad(joined, pairs=tuple(pairs), interior=zeros, value=0.0)
        total = joined if total is None else pointwise.add(total, joined)
    return total


def _padded_parts(value: Value) -> list[tuple[int, int, Value]]:
    """Return (axis, start, value) of each summand; [] if any is not padded."""
    parts: list[tuple[int, int, Value]] = []
    pending = [value]
    while pending:
        value = pending.pop()
        if isinstance(value, Node) and value.op is pointwise.add:
            pending.extend(value.inputs)
            continue
        if not isinstance(value, Node) or value.op is not arrays.pad:
            return []
        pairs = value.attrs["pairs"]
        axes = [axis for axis, pair in enumerate(pairs) if any(pair)]
        if len(axes) != 1 or any(value.attrs["interior"]) or value.attrs["value"]:
            return []
        parts.append((axes[0], pairs[axes[0]][0], value.inputs[0]))
    return parts


def _subtract(node: Node) -> Value | None:
    a, b = node.inputs
    if _is(b, 0):
        return a
    return _like(node, pointwise.negative, b) if _is(a, 0) else None


def _multiply(node: Node) -> Value | None:
    a, b = node.inputs
    return a if _is(b, 1) else b if _is(a, 1) else None


def _divide(node: Node) -> Value | None:
    return node.inputs[0] if _is(node.inputs[1], 1) else None


def _extreme(node: Node) -> Value | None:
    """Move a constant to the right, where lowering expects it.

    This happens after differentiation, which treats the operands of a tie differently.
    """
    a, b = node.inputs
    return rebuild(node, (b, a)) if splat(a) is not None and splat(b) is None else None


def _where(node: Node) -> Value | None:
    condition, a, b = node.inputs
    if a is b or _is(condition, True):
        return a
    return b if _is(condition, False) else None


def _negative(node: Node) -> Value | None:
    return _undo(node, pointwise.negative)


def _undo(node: Node, op: Op) -> Value | None:
    (x,) = node.inputs
    return x.inputs[0] if isinstance(x, Node) and x.op is op else None


def _reverse(node: Node) -> Value | None:
    (x,) = node.inputs
    if isinstance(x, Node) and x.op is node.op and x.attrs == node.attrs:
        return x.inputs[0]
    return None


def _keeps_shape(node: Node) -> Value | None:
    return node.inputs[0] if node.shape == node.inputs[0].shape else None


def _reshape(node: Node) -> Value | None:
    inner = _undo(node, shaping.reshape)
    if inner is not None:
        return _like(node, shaping.reshape, inner, shape=node.shape)
    return _keeps_shape(node)


def _broadcast(node: Node) -> Value | None:
    inner = _undo(node, shaping.broadcast)
    if inner is not None:
        return _like(node, shaping.broadcast, inner, shape=node.shape)
    return _keeps_shape(node)


def _transpose(node: Node) -> Value | None:
    axes = node.attrs["axes"]
    if axes == tuple(range(node.ndim)):
        return node.inputs[0]
    inner = _undo(node, shaping.transpose)
    if inner is None:
        return None
    first = node.inputs[0].attrs["axes"]  # type: ignore[attr-defined]
    return _like(node, shaping.transpose, inner, axes=tuple(first[a] for a in axes))


def _concat(node: Node) -> Value | None:
    """Flatten nested concatenations along the same axis."""
    axis = node.attrs["axis"]
    parts: list[Value] = []
    for x in node.inputs:
        is_inner = isinstance(x, Node) and x.op is arrays.concat
        if is_inner and x.attrs["axis"] == axis:  # type: ignore[attr-defined]
            parts.extend(x.inputs)  # type: ignore[attr-defined]
        else:
            parts.append(x)
    if len(parts) == len(node.inputs):
        return None
    return rebuild(node, tuple(parts))


def _like(node: Node, op: Op, x: Value, **attrs: Any) -> Node:
    """Return a node of another op, with the type and origin of a node."""
    return Node(op, (x,), attrs, node.shape, node.dtype, node.origin)


def _cast(node: Node) -> Value | None:
    return node.inputs[0] if node.dtype == node.inputs[0].dtype else None


def _sum(node: Node) -> Value | None:
    return node.inputs[0] if not node.attrs["axes"] else None


_RULES: dict[str, Callable[[Node], Value | None]] = {
    "add": _add,
    "subtract": _subtract,
    "multiply": _multiply,
    "divide": _divide,
    "maximum": _extreme,
    "minimum": _extreme,
    "where": _where,
    "negative": _negative,
    "reverse": _reverse,
    "stop_gradient": lambda node: node.inputs[0],
    "custom_gradient": lambda node: node.inputs[0],
    "reshape": _reshape,
    "broadcast": _broadcast,
    "transpose": _transpose,
    "concat": _concat,
    "cast": _cast,
    "sum": _sum,
    "pad": _keeps_shape,
    "slice": _keeps_shape,
}
