"""A ReLU before a pool: its gradient is stopped at the pool's result.

The graph asks of each element whether it was above zero. The largest of a window is
the only one that gets a gradient, and it is above zero where the pool's result is: one
question a window, and then elements need no ReLU to be told from the largest.
"""

from __future__ import annotations

from typing import TypeGuard

from ganglion.compiler.ir.graph import Graph, Node, Op, Value, rewritten
from ganglion.compiler.ir.pointwise import less, maximum, where
from ganglion.compiler.ir.pooling import max_pool, max_pool_back
from ganglion.compiler.ir.shaping import fill
from ganglion.compiler.ir.simplify import splat


def mask_pooled(graph: Graph) -> Graph:
    """Return a graph in which pools' gradients are masked before they are spread."""
    return rewritten(graph, lambda _, new: _masked(new))


def _masked(node: Node) -> Value:
    """Return where(0 < x, back(relu(x), y, dy), 0) as back(x, y, where(0 < y, dy, 0)).

    Both are the same: where y > 0, x = y tells as much as relu(x) = y, and elsewhere
    nothing is given back.
    """
    if node.op is not where or splat(node.inputs[2]) != 0:
        return node
    above, back, _ = node.inputs
    if not (_is(above, less) and _is(back, max_pool_back)):
        return node
    (zero, x), (relu, y, dy) = above.inputs, back.inputs
    pooled = _is(y, max_pool) and y.inputs[0] is relu and y.attrs == back.attrs
    if not (pooled and splat(zero) == 0 and _is_relu(relu, x)):
        return node
    positive = where(less(fill(0, y), y), dy, fill(0, dy))
    return max_pool_back(x, y, positive, **back.attrs)


def _is_relu(value: Value, x: Value) -> bool:
    if not _is(value, maximum):
        return False
    a, b = value.inputs
    return (a is x and splat(b) == 0) or (b is x and splat(a) == 0)


def _is(value: Value, op: Op) -> TypeGuard[Node]:
    return isinstance(value, Node) and value.op is op
