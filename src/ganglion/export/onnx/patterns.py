"""Several ops of ours that are a single ONNX operator, recognised by the last of them.

Operators written for the earlier ops have no reader, and are left out of the file.
"""

from __future__ import annotations

from ganglion.compiler.ir.graph import Node, Value
from ganglion.compiler.ir.shaping import splat

_REPEATING = ("broadcast", "reshape")


def softmax_of(node: Node) -> tuple[Value, int] | None:
    """Return x and the axis of exp(x - max) / sum(exp(x - max)), None for others."""
    if node.op.name != "divide":
        return None
    powers = _node(node.inputs[0], "exp")
    total = _node(_behind(node.inputs[1]), "sum")
    shifted = _node(powers.inputs[0], "subtract") if powers is not None else None
    if shifted is None or total is None or total.inputs[0] is not powers:
        return None
    x, largest = shifted.inputs[0], _node(_behind(shifted.inputs[1]), "max")
    if largest is None or largest.inputs[0] is not x:
        return None
    axes = largest.attrs["axes"]
    is_one = len(axes) == 1 and total.attrs["axes"] == axes
    # The sum must be repeated along the axis that it was taken over.
    kept = tuple(1 if axis in axes else n for axis, n in enumerate(node.shape))
    return (x, axes[0]) if is_one and _repeats(node.inputs[1], kept) else None


def clip_of(node: Node) -> tuple[Value, float, float] | None:
    """Return x and the bounds of min(max(x, low), high), None for others."""
    if node.op.name != "minimum":
        return None
    inner, high = _node(node.inputs[0], "maximum"), splat(node.inputs[1])
    if high is None or inner is None:
        return None
    low = splat(inner.inputs[1])
    return None if low is None else (inner.inputs[0], float(low), float(high))


def _node(value: Value, name: str) -> Node | None:
    """Return a value if it is a node of this op, otherwise None."""
    return value if isinstance(value, Node) and value.op.name == name else None


def _behind(value: Value) -> Value:
    while isinstance(value, Node) and value.op.name in _REPEATING:
        value = value.inputs[0]
    return value


def _repeats(value: Value, kept: tuple[int, ...]) -> bool:
    """Return whether a value has another repeated along axes that were kept."""
    while isinstance(value, Node) and value.op.name == "broadcast":
        value = value.inputs[0]
    return value.shape == kept
