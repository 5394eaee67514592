"""Forward passes of mixed precision, in float32 throughout.

C has no type for floats of 16 bits, and a processor gains nothing from them: values
that were rounded to 16 bits in training are computed, and stored, in float32.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ganglion.compiler.ir.graph import (
    Constant,
    Graph,
    Input,
    Node,
    Value,
    is_short,
    rebuild,
)
from ganglion.compiler.ir.simplify import simplify
from ganglion.export.inference import Inference
from ganglion.export.ports import Port

_WIDE = np.dtype("float32")
_SHORT_NAMES = ("float16", "bfloat16")


def in_float32(inference: Inference) -> Inference:
    """Return a forward pass without floats of 16 bits, also at its ends."""
    program = inference.program
    if not _has_short(program.graph):
        return inference
    graph = widened(program.graph)
    simple = replace(simplify(graph), inputs=graph.inputs)
    inputs, front = tuple(map(_wide_port, inference.inputs)), inference.front
    return replace(
        inference,
        program=replace(program, graph=simple),
        inputs=inputs,
        outputs=tuple(map(_wide_port, inference.outputs)),
        front=None if front is None else replace(front, inputs=inputs),
    )


def _has_short(graph: Graph) -> bool:
    values = [*graph.inputs, *graph.outputs.values()]
    values += [value for node in graph.nodes for value in (node, *node.inputs)]
    return any(is_short(value.dtype) for value in values) or any(
        _has_short(attribute)
        for node in graph.nodes
        for attribute in node.attrs.values()
        if isinstance(attribute, Graph)
    )


def widened(graph: Graph) -> Graph:
    """Return a graph with float32 in the place of floats of 16 bits."""
    new: dict[Value, Value] = {}

    def wide(value: Value) -> Value:
        if value not in new:
            new[value] = _wide_end(value)
        return new[value]

    inputs = [wide(value) for value in graph.inputs]
    for node in graph.nodes:
        operands = tuple(map(wide, node.inputs))
        attributes = {name: _wide_attribute(a) for name, a in node.attrs.items()}
        is_same = all(attributes[name] is a for name, a in node.attrs.items())
        is_same = is_same and not is_short(node.dtype)
        if is_same and all(map(_same_type, operands, node.inputs)):
            new[node] = rebuild(node, operands)
        else:
            new[node] = _remade(node, node.op(*operands, **attributes))
    outputs = {name: wide(value) for name, value in graph.outputs.items()}
    return Graph.of(graph.name, [v for v in inputs if isinstance(v, Input)], outputs)


def _same_type(value: Value, other: Value) -> bool:
    return value.dtype == other.dtype


def _remade(node: Node, new: Node) -> Node:
    """Return a new node with the origin of the node that it replaces."""
    return Node(new.op, new.inputs, new.attrs, new.shape, new.dtype, node.origin)


def _wide_end(value: Value) -> Value:
    """Return an input or a constant as float32, if it is shorter."""
    if not is_short(value.dtype):
        return value
    if isinstance(value, Constant):
        return Constant(value.array.astype(_WIDE))
    assert isinstance(value, Input)
    return Input(value.name, value.shape, _WIDE)


def _wide_attribute(attribute: Any) -> Any:
    if isinstance(attribute, Graph):
        return widened(attribute) if _has_short(attribute) else attribute
    name = attribute.name if isinstance(attribute, np.dtype) else attribute
    return _WIDE.name if isinstance(name, str) and name in _SHORT_NAMES else attribute


def _wide_port(port: Port) -> Port:
    return replace(port, dtype=_WIDE) if is_short(port.dtype) else port
