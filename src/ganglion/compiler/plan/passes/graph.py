"""Passes over a graph, before kernels are made of it."""

from __future__ import annotations

import math

import numpy as np

from ganglion.compiler.ir.arrays import concat
from ganglion.compiler.ir.contraction import matmul
from ganglion.compiler.ir.graph import Constant, Graph, Node, Value, rewritten
from ganglion.compiler.ir.pointwise import multiply
from ganglion.compiler.ir.shaping import broadcast, is_float, reshape, sum_, transpose

NARROW, MANY_ROWS = 16, 32  # columns and rows of a product that is transposed

# ---- integer products ----------------------------------------------------------------
# Products of matrices of whole numbers become sums of products.
#
# The kernels that multiply matrices are made of fused multiply-adds of floats, which
# would round; products of whole numbers are rare and small.


def integer_products_as_sums(graph: Graph) -> Graph:
    """Return a graph whose products of matrices are all of floats."""

    def rule(old: Node, new: Node) -> Value:
        return _sum_of_products(new) if _is_integer_product(old) else new

    if not any(_is_integer_product(node) for node in graph.nodes):
        return graph
    return rewritten(graph, rule)


def _is_integer_product(node: Node) -> bool:
    return node.op is matmul and not is_float(node.dtype)


def _sum_of_products(node: Node) -> Value:
    left, right = node.inputs
    *stack, rows, inner = left.shape
    columns = right.shape[-1]
    shape = (*stack, rows, inner, columns)
    left = broadcast(reshape(left, shape=(*stack, rows, inner, 1)), shape=shape)
    right = broadcast(reshape(right, shape=(*stack, 1, inner, columns)), shape=shape)
    return sum_(multiply(left, right), axes=(len(stack) + 1,))


# ---- empty arrays ------------------------------------------------------------------
# Values of no elements are taken out of a graph before kernels are made of it.
#
# A sum over nothing is 0, what is joined with nothing stays as it is: behind this pass
# every kernel has something to do, and none asks how often it runs per element.


def without_empty(graph: Graph) -> Graph:
    """Return a graph in which no node computes from, or computes, nothing."""

    def rule(old: Node, new: Node) -> Value:
        if not new.size:
            return Constant(np.zeros(new.shape, new.dtype))
        if new.op.kind == "loop" or all(value.size for value in new.inputs):
            return new
        return _from_nothing(new)

    if all(_has_elements(node) for node in graph.nodes):
        return graph
    return rewritten(graph, rule)


def _has_elements(node: Node) -> bool:
    return bool(node.size) and all(value.size for value in node.inputs)


def _from_nothing(node: Node) -> Value:
    """Return what a node with elements makes of inputs that have none."""
    if node.op is concat:
        parts = [value for value in node.inputs if value.size]
        return parts[0] if len(parts) == 1 else concat(*parts, **node.attrs)
    if node.op.name == "pad":
        return _filled(node, node.attrs["value"])
    if node.op.name == "gather":  # rows of a table that has none
        return _filled(node, math.nan if node.dtype.kind == "f" else 0)
    return _filled(node, 0)  # a sum over nothing


def _filled(node: Node, number: float) -> Value:
    scalar = Constant(number, node.dtype)
    return broadcast(scalar, shape=node.shape) if node.shape else scalar


# ---- narrow products ---------------------------------------------------------------
# Products with few columns are transposed where their rows lie side by side.
#
# Lanes of a vector are columns of a product. The gradient of the weights of a layer
# with few outputs, xᵀ·g, would leave most lanes empty; (gᵀ·x)ᵀ fills them.


def transpose_narrow(graph: Graph) -> Graph:
    """Return a graph with its narrow products transposed."""

    def rule(old: Node, new: Node) -> Value:
        if not _is_narrow(old):
            return new
        left, right = new.inputs
        return _transposed(matmul(_transposed(right), _transposed(left)))

    return rewritten(graph, rule)


def _is_narrow(node: Node) -> bool:
    if node.op is not matmul or node.shape[-1] >= NARROW or node.shape[-2] < MANY_ROWS:
        return False
    left = node.inputs[0]
    return isinstance(left, Node) and left.op is transpose and _swaps_last_axes(left)


def _swaps_last_axes(node: Node) -> bool:
    """Return whether a node exchanges the last two axes and no others."""
    axes = tuple(node.attrs["axes"])
    return axes == (*range(node.ndim - 2), node.ndim - 1, node.ndim - 2)


def _transposed(value: Value) -> Value:
    if isinstance(value, Node) and value.op is transpose and _swaps_last_axes(value):
        return value.inputs[0]
    rank = value.ndim
    return transpose(value, axes=(*range(rank - 2), rank - 1, rank - 2))
