"""Weights as constants: folded into the graph, batch normalisation into products."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from ganglion.compiler.ir import pointwise
from ganglion.compiler.ir.graph import (
    RECORD,
    Constant,
    Graph,
    Input,
    Node,
    Program,
    Value,
    evaluate,
    rebuild,
    rewritten,
)
from ganglion.compiler.ir.shaping import broadcast
from ganglion.compiler.ir.simplify import simplify

_PRODUCTS = ("conv", "matmul")


def with_constant_weights(
    program: Program, weights: Mapping[str, np.ndarray], data: list[Input]
) -> Program:
    """Return a program whose state is constant, with less to compute."""
    graph = program.graph
    constants: dict[Value, Value] = {
        value: Constant(weights[value.name])
        for value in graph.inputs
        if value.name in weights
    }

    def with_weights(node: Node, new: Node) -> Value:
        inputs = tuple(constants.get(value, value) for value in new.inputs)
        return rebuild(new, inputs)

    outputs = {name: constants.get(v, v) for name, v in graph.outputs.items()}
    graph = rewritten(Graph.of(graph.name, data, outputs), with_weights)
    graph = _folded(graph)
    graph = simplify(_folded(_with_scaled_weights(graph)))
    return replace(
        program,
        graph=replace(graph, inputs=tuple(data)),
        data=tuple(value.name for value in data),
        state=(),
    )


def _folded(graph: Graph) -> Graph:
    """Return a graph in which values that depend only on constants are constants."""

    def fold(node: Node, new: Node) -> Value:
        is_known = new.op.kind not in ("loop", "item", "random")
        if not is_known or new.dtype == RECORD or not new.inputs:
            return new
        arrays = [_constant_behind(value) for value in new.inputs]
        known = [array for array in arrays if array is not None]
        # A value that only repeats numbers is left to its readers.
        is_larger = new.size > max((array.size for array in known), default=0)
        if len(known) < len(arrays) or is_larger:
            return new
        return Constant(evaluate([new])[0])

    return rewritten(graph, fold)


def _constant_behind(value: Value) -> Constant | None:
    """Return the constant that a value is, or repeats."""
    if isinstance(value, Node) and value.op is broadcast:
        value = value.inputs[0]
    return value if isinstance(value, Constant) else None


@dataclass(frozen=True)
class _Scaled:
    """A product, scaled and shifted by a factor and a term per channel."""

    product: Node
    factor: np.ndarray
    term: np.ndarray


def _with_scaled_weights(graph: Graph) -> Graph:
    """Multiply the weights of products by the factors that follow them."""
    readers = Counter(value for node in graph.nodes for value in node.inputs)
    readers.update(graph.outputs.values())
    scaled: dict[Value, _Scaled] = {}  # by the rewritten node
    used_once = {node for node in graph.nodes if readers[node] == 1}
    old: dict[Value, Value] = {}

    def scale(node: Node, new: Node) -> Value:
        old[new] = node
        chain = _extended(new, scaled, old, used_once)
        if chain is None:
            if _has_constant_weights(new):
                channels = new.shape[-1]
                scaled[new] = _Scaled(
                    new, np.ones(channels, new.dtype), np.zeros(channels, new.dtype)
                )
            return new
        result = _scaled_product(chain)
        product = result.inputs[0]
        assert isinstance(product, Node)
        ones = np.ones_like(chain.factor)
        scaled[result] = _Scaled(product, ones, chain.term)
        old[result] = node
        return result

    return rewritten(graph, scale)


def _has_constant_weights(node: Node) -> bool:
    if node.op.name not in _PRODUCTS or node.dtype != np.float32:
        return False
    weights = node.inputs[1]
    return isinstance(weights, Constant) and weights.shape[-1] == node.shape[-1]


def _extended(
    node: Node,
    scaled: Mapping[Value, _Scaled],
    old: Mapping[Value, Value],
    used_once: set[Node],
) -> _Scaled | None:
    """Return a scaled product extended by another step of arithmetic, if possible."""
    if node.op.name not in ("add", "subtract", "multiply", "divide"):
        return None
    for position, value in enumerate(node.inputs):
        chain = scaled.get(value)
        if chain is None or old[value] not in used_once:
            continue
        number = _per_channel(node.inputs[1 - position])
        if number is None:
            continue
        factor, term = chain.factor, chain.term
        if node.op.name == "add":
            return replace(chain, term=term + number)
        if node.op.name == "multiply":
            return replace(chain, factor=factor * number, term=term * number)
        if position == 0 and node.op.name == "subtract":
            return replace(chain, term=term - number)
        if position == 0:
            return replace(chain, factor=factor / number, term=term / number)
    return None


def _per_channel(value: Value) -> np.ndarray | None:
    """Return the numbers of a constant that differs only along the last axis."""
    channels = value.shape[-1] if value.shape else 1
    constant = _constant_behind(value)
    if constant is None:
        return None
    if constant.size == 1:
        return np.full(channels, constant.array.reshape(()), constant.dtype)
    is_last = constant.shape[-1] == constant.size == channels
    return constant.array.reshape(-1) if is_last else None


def _scaled_product(chain: _Scaled) -> Node:
    product = chain.product
    x, weights = product.inputs
    assert isinstance(weights, Constant)
    weights = Constant(weights.array * chain.factor)
    product = rebuild(product, (x, weights))
    return pointwise.add(product, broadcast(Constant(chain.term), shape=product.shape))
