"""Wrapper, and TimeDistributed: a layer applied to every step of sequences."""

from __future__ import annotations

from typing import Any

from ganglion import ops, tree
from ganglion.compiler.ir.graph import ShapeError
from ganglion.layers.base import InputSpec, Layer
from ganglion.layers.call_arguments import call_signature
from ganglion.layers.dense import Lambda
from ganglion.layers.norm import BatchNormalization
from ganglion.layers.rnn.loop import swapped
from ganglion.serialization import export
from ganglion.symbolic import Function


@export("keras.layers")
class Wrapper(Layer):
    """The base of layers that hold another layer.

    >>> from ganglion.layers import Dense
    >>> Wrapper(Dense(3)).layer.units
    3
    """

    def __init__(self, layer: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not isinstance(layer, Layer):
            raise ValueError(
                f"Layer {layer!r} supplied to {type(self).__name__} isn't a supported "
                "layer type. Please ensure wrapped layer is a valid Keras layer."
            )
        self.layer = layer

    def build(self, input_shape: Any = None) -> None:
        if not self.layer.built:
            self.layer.build(input_shape)


@export("keras.layers")
class TimeDistributed(Wrapper):
    """Applies a layer to every step of sequences (batch, time, ...).

    >>> import numpy as np
    >>> from ganglion import layers
    >>> x = np.ones((2, 5, 8, 8, 3), "float32")
    >>> TimeDistributed(layers.Conv2D(4, 3))(x).shape
    (2, 5, 6, 6, 4)
    """

    def __init__(self, layer: Any, **kwargs: Any) -> None:
        super().__init__(layer, **kwargs)
        self.supports_masking = True
        self.input_spec = InputSpec(min_ndim=3)

    def build(self, input_shape: Any = None) -> None:
        super().build((input_shape[0], *input_shape[2:]))

    def call(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        if mask is not None and tuple(mask.shape[:2]) != tuple(inputs.shape[:2]):
            raise ShapeError(
                "The `mask` passed to the `TimeDistributed` layer has a shape of "
                f'{tuple(mask.shape)}, but "{self.name}" needs '
                f"{tuple(inputs.shape[:2])}: one value a step of each sequence."
            )
        if inputs.shape[1] == 0:
            raise ShapeError(
                f'Layer "{self.name}" got sequences of length 0 (shape '
                f"{tuple(inputs.shape)}): it needs at least one step."
            )
        takes_mask = "mask" in call_signature(self.layer).parameters
        mask = mask if takes_mask else None
        if _treats_rows_alike(self.layer, training):
            return self._call_on_merged_steps(inputs, training, mask)
        return self._step_by_step(inputs, training, mask)

    def _apply(self, x: Any, training: Any, mask: Any) -> Any:
        options = {} if mask is None else {"mask": mask}
        return self.layer(x, training=training, **options)

    def _call_on_merged_steps(self, inputs: Any, training: Any, mask: Any) -> Any:
        """Call the layer once, on the steps of all sequences as a single batch."""
        leading = inputs.shape[:2]

        def merged(x: Any) -> Any:
            return ops.reshape(x, (leading[0] * leading[1], *x.shape[2:]))

        mask = None if mask is None else merged(mask)
        outputs = self._apply(merged(inputs), training, mask)
        return tree.map_leaves(
            lambda x: ops.reshape(x, (*leading, *x.shape[1:])), outputs
        )

    def _step_by_step(self, inputs: Any, training: Any, mask: Any) -> Any:
        """Call the layer on each step: updates of its state are made at every step."""

        def step(nothing: Any, slices: Any) -> Any:
            x, step_mask = slices if mask is not None else (slices, None)
            return nothing, self._apply(x, training, step_mask)

        stacked = swapped(inputs) if mask is None else (swapped(inputs), swapped(mask))
        return tree.map_leaves(swapped, ops.scan(step, (), stacked)[1])


def _treats_rows_alike(layer: Layer, training: Any) -> bool:
    """Return whether a layer is known to compute each row of a batch by itself."""
    for part in layer._flatten_layers():
        is_ours = type(part).__module__.startswith("ganglion.")
        mixes_rows = isinstance(part, BatchNormalization) and training
        if not is_ours or mixes_rows or isinstance(part, Lambda):
            return False
        network = getattr(part, "_network", None)
        operations = () if network is None else network.operations
        if any(isinstance(operation, Function) for operation in operations):
            return False
        if getattr(part, "stateful", False):
            return False
    return True
