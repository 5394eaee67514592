"""Products with few columns are turned around where their rows lie side by side.

Lanes of a vector are columns of a product. The gradient of the weights of a layer with
few outputs, xᵀ·g, would leave most lanes empty; (gᵀ·x)ᵀ fills them.
"""

from __future__ import annotations

from ganglion.compiler.ir.arrays import transpose
from ganglion.compiler.ir.contraction import matmul
from ganglion.compiler.ir.graph import Graph, Node, Value, rewritten

FEW, MANY = 16, 32  # columns and rows of a product that is turned around


def turn_narrow(graph: Graph) -> Graph:
    """Return a graph with its narrow products turned around."""

    def rule(old: Node, new: Node) -> Value:
        if not _is_narrow(old):
            return new
        left, right = new.inputs
        return _turned(matmul(_turned(right), _turned(left)))

    return rewritten(graph, rule)


def _is_narrow(node: Node) -> bool:
    if node.op is not matmul or node.shape[-1] >= FEW or node.shape[-2] < MANY:
        return False
    left = node.inputs[0]
    return isinstance(left, Node) and left.op is transpose and _turns(left)


def _turns(node: Node) -> bool:
    """Return whether a node exchanges the last two axes and no others."""
    axes = tuple(node.attrs["axes"])
    return axes == (*range(node.ndim - 2), node.ndim - 1, node.ndim - 2)


def _turned(value: Value) -> Value:
    if isinstance(value, Node) and value.op is transpose and _turns(value):
        return value.inputs[0]
    rank = value.ndim
    return transpose(value, axes=(*range(rank - 2), rank - 1, rank - 2))
