"""Function: the computation between Keras tensors, as something to call."""

from __future__ import annotations

from typing import Any

import numpy as np

from ganglion import tree
from ganglion.models.functional import Network
from ganglion.operation import Operation
from ganglion.ops.dispatch import concrete
from ganglion.symbolic import KerasTensor
from ganglion.variables import Scope, current_scope


class Function(Operation):
    """The calls between some Keras tensors, replayed on other values.

    >>> import ganglion as keras
    >>> x = keras.Input((2,))
    >>> double = keras.Function(x, x * 2)
    >>> double(keras.ops.ones((1, 2))).tolist()
    [[2.0, 2.0]]
    """

    def __init__(self, inputs: Any, outputs: Any, name: str | None = None) -> None:
        super().__init__(name=name)
        for title, ends in (("inputs", inputs), ("outputs", outputs)):
            if not tree.flatten(ends):
                raise ValueError(f"`{title}` argument cannot be empty.")
        self._inputs_struct, self._outputs_struct = inputs, outputs
        self._network = Network(inputs, outputs)

    @property
    def inputs(self) -> list[KerasTensor]:
        """The Keras tensors it starts from, as a list."""
        return self._network.flat_inputs

    @property
    def outputs(self) -> list[KerasTensor]:
        """The Keras tensors it ends in, as a list."""
        return self._network.flat_outputs

    @property
    def operations(self) -> list[Any]:
        """The layers and ops between them, in order."""
        return list(self._network.operations)

    def call(self, inputs: Any) -> Any:
        if len(tree.flatten(inputs)) != len(self.inputs):
            raise ValueError(
                f"The function {self.name!r} was called with an invalid input "
                f"structure: it has {len(self.inputs)} input(s), got "
                f"{len(tree.flatten(inputs))}."
            )
        self._check_shapes(inputs)
        if current_scope() is not None:
            return self._network.run(inputs, [], None)[0]
        with Scope(concrete=True) as scope:
            outputs = concrete(self._network.run(inputs, [], None)[0])
            scope.commit()
        return outputs

    def _check_shapes(self, inputs: Any) -> None:
        """Refuse arrays whose sizes differ from those of the Keras tensors."""
        for value, tensor in zip(tree.flatten(inputs), self.inputs, strict=True):
            shape = tuple(getattr(value, "shape", np.shape(value)))
            fits = len(shape) == len(tensor.shape) and all(
                None in pair or len({*pair}) == 1
                for pair in zip(shape, tensor.shape, strict=True)
            )
            if not fits:
                raise ValueError(
                    f"{self.name!r} was passed incompatible inputs: for the input "
                    f"{tensor.name!r}, expected shape {tensor.shape}, got {shape}."
                )

    def compute_output_spec(self, inputs: Any) -> Any:
        known = self._network.infer(inputs)
        return super().compute_output_spec(inputs) if known is None else known

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Return the output shape(s) for input shape(s)."""
        tensors = tree.map_shape_structure(
            lambda shape: KerasTensor(tuple(shape)), input_shape
        )
        outputs = self.compute_output_spec(tensors)
        return tree.map_leaves(lambda tensor: tuple(tensor.shape), outputs)
