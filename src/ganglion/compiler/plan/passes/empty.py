"""Values of no elements are taken out of a graph before kernels are made of it.

A sum over nothing is 0, what is joined with nothing stays as it is: behind this pass
every kernel has something to do, and none asks how often it runs per element.
"""

from __future__ import annotations

import math

import numpy as np

from ganglion.compiler.ir.arrays import concat
from ganglion.compiler.ir.graph import Constant, Graph, Node, Value, rewritten
from ganglion.compiler.ir.shaping import broadcast


def without_empty(graph: Graph) -> Graph:
    """Return a graph in which no node computes from, or computes, nothing."""

    def rule(old: Node, new: Node) -> Value:
        if not new.size:
            return Constant(np.zeros(new.shape, new.dtype))
        if all(one.size for one in new.inputs):
            return new
        return _from_nothing(new)

    if all(_has_elements(node) for node in graph.nodes):
        return graph
    return rewritten(graph, rule)


def _has_elements(node: Node) -> bool:
    return bool(node.size) and all(one.size for one in node.inputs)


def _from_nothing(node: Node) -> Value:
    """Return what a node with elements makes of inputs that have none."""
    if node.op is concat:
        parts = [one for one in node.inputs if one.size]
        return parts[0] if len(parts) == 1 else concat(*parts, **node.attrs)
    if node.op.name == "pad":
        return _filled(node, node.attrs["value"])
    if node.op.name == "gather":  # rows of a table that has none
        return _filled(node, math.nan if node.dtype.kind == "f" else 0)
    return _filled(node, 0)  # a sum over nothing


def _filled(node: Node, number: float) -> Value:
    scalar = Constant(number, node.dtype)
    return broadcast(scalar, shape=node.shape) if node.shape else scalar
