"""Products of matrices of whole numbers become sums of products.

The kernels that multiply matrices are made of fused multiply-adds of floats, which
would round; products of whole numbers are rare and small.
"""

from __future__ import annotations

from ganglion.compiler.ir.contraction import matmul
from ganglion.compiler.ir.graph import Graph, Node, Value, rewritten
from ganglion.compiler.ir.pointwise import multiply
from ganglion.compiler.ir.shaping import broadcast, is_float, reshape, sum_


def as_sums(graph: Graph) -> Graph:
    """Return a graph whose products of matrices are all of floats."""

    def rule(old: Node, new: Node) -> Value:
        return _sum_of_products(new) if _is_whole(old) else new

    if not any(_is_whole(node) for node in graph.nodes):
        return graph
    return rewritten(graph, rule)


def _is_whole(node: Node) -> bool:
    return node.op is matmul and not is_float(node.dtype)


def _sum_of_products(node: Node) -> Value:
    left, right = node.inputs
    *stack, rows, inner = left.shape
    columns = right.shape[-1]
    shape = (*stack, rows, inner, columns)
    left = broadcast(reshape(left, shape=(*stack, rows, inner, 1)), shape=shape)
    right = broadcast(reshape(right, shape=(*stack, 1, inner, columns)), shape=shape)
    return sum_(multiply(left, right), axes=(len(stack) + 1,))
