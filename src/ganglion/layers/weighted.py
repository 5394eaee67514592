"""An op of an input and a weight as a layer, for files of other formats."""

from __future__ import annotations

from typing import Any

from ganglion import ops
from ganglion.layers.base import Layer
from ganglion.serialization import register_keras_serializable

WEIGHTED_OPS = ("add", "subtract", "multiply", "divide", "power", "maximum",
                "minimum", "matmul")  # fmt: skip


@register_keras_serializable(package="ganglion")
class WeightedOp(Layer):
    """``op(inputs, weight)``, or ``op(weight, inputs)``.

    Args:
        op: The name of an op of two arguments, such as "add" or "matmul".
        shape: The shape of the weight.
        weight_first: Whether the weight is the first argument.
        kwargs: Arguments of every layer.

    >>> import numpy as np
    >>> shift = WeightedOp("add", (2,))
    >>> shift(np.ones((1, 2), "float32"))
    array([[1., 1.]], dtype=float32)
    """

    def __init__(
        self, op: str, shape: Any, weight_first: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        if op not in WEIGHTED_OPS:
            known = ", ".join(WEIGHTED_OPS)
            raise ValueError(f"`op` must be one of {known}, got {op!r}.")
        self.op, self.shape = op, tuple(int(size) for size in shape)
        self.weight_first = bool(weight_first)

    def build(self, input_shape: Any) -> None:
        """Make the weight."""
        self.weight = self.add_weight(self.shape, "zeros", name="weight")
        self.built = True

    def call(self, inputs: Any) -> Any:
        function = getattr(ops, self.op)
        if self.weight_first:
            return function(self.weight, inputs)
        return function(inputs, self.weight)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments."""
        more = {"op": self.op, "shape": self.shape, "weight_first": self.weight_first}
        return {**super().get_config(), **more}
