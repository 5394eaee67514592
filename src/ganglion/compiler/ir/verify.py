"""The verifier: what must hold of every graph, before and after every pass."""

from __future__ import annotations

from ganglion.compiler.ir.graph import Constant, Graph, Input, Node, ShapeError, Value


class GraphError(Exception):
    """A graph that breaks its own rules: a bug in Ganglion, not in the model."""


def verify(graph: Graph) -> Graph:
    """Return the graph if it is well formed, else raise `GraphError`."""
    names = [value.name for value in graph.inputs]
    if len(set(names)) != len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise GraphError(f"{graph.name}: inputs named twice: {', '.join(twice)}")
    known: set[Value] = set(graph.inputs)
    for number, node in enumerate(graph.nodes):
        _verify_node(graph, number, node, known)
        known.add(node)
    for name, value in graph.outputs.items():
        if value not in known and not isinstance(value, Constant):
            raise GraphError(f"{graph.name}: output {name} is not computed")
    return graph


def _verify_node(graph: Graph, number: int, node: Node, known: set[Value]) -> None:
    where = f"{graph.name} %{number} {node.op.name}"
    for value in node.inputs:
        if isinstance(value, Input) and value not in known:
            raise GraphError(f"{where}: uses the undeclared input {value.name}")
        if value not in known and not isinstance(value, Constant):
            raise GraphError(f"{where}: uses a value before it is computed")
    try:
        inferred = node.op.infer(*node.inputs, **node.attrs)
    except ShapeError as error:
        raise GraphError(f"{where}: {error}") from error
    if inferred != (node.shape, node.dtype):
        raise GraphError(f"{where}: is {node.type_text}, inferred {inferred}")
