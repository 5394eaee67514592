"""Arrays without elements: nothing computes them, and sums over them are zero."""

from __future__ import annotations

import numpy as np

from ganglion.ir.graph import Constant, Graph, Node, Value, rewritten
from ganglion.ir.shaping import broadcast

# Ops that add up: over an empty axis there is nothing to add.
_SUMS = ("sum", "matmul", "conv", "conv_transpose", "conv_kernel", "scatter_add")


def without_empty(graph: Graph) -> Graph:
    """Return a graph none of whose nodes runs over an empty axis.

    What is left after it, kernels may divide by: their loops have places.
    """
    if not any(_touches_empty(node) for node in graph.nodes):
        return graph

    def rule(old: Node, new: Node) -> Value:
        if old.size == 0:
            return Constant(np.zeros(old.shape, old.dtype))
        if old.op.name in _SUMS and _touches_empty(old):
            return broadcast(Constant(np.zeros((), old.dtype)), shape=old.shape)
        return new

    return rewritten(graph, rule)


def _touches_empty(node: Node) -> bool:
    return node.size == 0 or any(value.size == 0 for value in node.inputs)
