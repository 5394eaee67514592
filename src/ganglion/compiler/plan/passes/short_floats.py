"""Compute with 16-bit floats in float32.

After this pass, 16-bit arrays are only loaded and stored. Values are computed in
float32, and rounded to 16 bits wherever the graph rounds them. Products of rounded
operands are exact on tensor cores as well: TF32 keeps all bits of a float16.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from ganglion.compiler.ir.contraction import gather
from ganglion.compiler.ir.graph import (
    FLOAT32,
    MOVING,
    Constant,
    Graph,
    Input,
    Node,
    Value,
    is_short,
    rebuild,
    toposort,
)
from ganglion.compiler.ir.pointwise import cast
from ganglion.compiler.ir.scan import field, scan

# Ops whose results are exact in the type of their inputs.
_EXACT = {*MOVING, "negative", "absolute", "sign", "maximum", "minimum", "max"}
_EXACT |= {"max_pool", "floor", "round"}


def compute_in_float32(graph: Graph) -> Graph:
    """Return a graph with 16-bit floats only as its inputs and outputs."""
    new = _widened(graph.outputs.values(), {})
    outputs = {
        name: _cast(new[value], value.dtype, value)
        for name, value in graph.outputs.items()
    }
    return Graph.of(graph.name, graph.inputs, outputs)


def _widened(
    roots: Iterable[Value], replaced: Mapping[Value, Value]
) -> dict[Value, Value]:
    """Return the float32 counterpart of every value; those in `replaced` are given."""
    new: dict[Value, Value] = dict(replaced)
    for value in toposort(roots, ends=replaced):
        if value in new:
            continue
        if isinstance(value, Node):
            new[value] = _node(value, new)
        elif not is_short(value.dtype):
            new[value] = value
        elif isinstance(value, Constant):
            new[value] = Constant(value.array, FLOAT32)
        else:
            new[value] = _cast(value, FLOAT32, value)
    return new


def _node(node: Node, new: Mapping[Value, Value]) -> Value:
    inputs = tuple(new[value] for value in node.inputs)
    if node.op is scan:
        attrs = {**node.attrs, "body": _body(node.attrs["body"])}
        return Node(scan, inputs, attrs, node.shape, node.dtype, node.origin)
    if node.op is field:
        return field(inputs[0], **node.attrs)
    if not is_short(node.dtype):
        return rebuild(node, inputs)
    if node.op is cast:
        return _rounded(_cast(inputs[0], FLOAT32, node), node)
    if node.op is gather:
        return _gathered(node, inputs)
    attrs = dict(node.attrs)
    if "dtype" in attrs:  # of iota and of random numbers
        attrs["dtype"] = FLOAT32.name
    if "value" in attrs:  # of padding
        attrs["value"] = float(node.dtype.type(attrs["value"]))
    wide = Node(node.op, inputs, attrs, node.shape, FLOAT32, node.origin)
    is_exact = node.op.kind == "movement" and "dtype" not in attrs
    return wide if is_exact or node.op.name in _EXACT else _rounded(wide, node)


def _body(body: Graph) -> Graph:
    """Return the body of a loop, with carries in float32."""
    inputs: dict[Value, Input] = {
        value: Input(value.name, value.shape, FLOAT32)
        for value in body.inputs
        if is_short(value.dtype)
    }
    new = _widened(body.outputs.values(), dict(inputs))
    ends = {name: new[value] for name, value in body.outputs.items()}
    begins = [inputs.get(value, value) for value in body.inputs]
    return Graph.of(body.name, begins, ends)


def _gathered(node: Node, inputs: tuple[Value, ...]) -> Value:
    """Return a gather that converts the rows it reads, and not the entire table."""
    table, index = inputs
    conversions: list[Value] = []
    while isinstance(table, Node) and table.op is cast:
        conversions.append(table)
        (table,) = table.inputs
    rows: Value = Node(gather, (table, index), {}, node.shape, table.dtype, node.origin)
    for conversion in reversed(conversions):
        rows = _cast(rows, conversion.dtype, node)
    return rows


def _rounded(value: Value, node: Node) -> Value:
    """Return a value in float32, rounded to the type of a node."""
    return _cast(_cast(value, node.dtype, node), FLOAT32, node)


def _cast(value: Value, dtype: np.dtype, like: Value) -> Value:
    if value.dtype == dtype:
        return value
    source = value.inputs[0] if isinstance(value, Node) and value.op is cast else value
    if is_short(dtype) and source.dtype == dtype:  # a round trip
        return source
    origin = like.origin if isinstance(like, Node) else None
    return Node(cast, (value,), {"dtype": dtype.name}, value.shape, dtype, origin)
