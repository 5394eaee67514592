"""Bidirectional: a recurrent layer run over sequences in both directions."""

from __future__ import annotations

from typing import Any

from ganglion import ops, tree
from ganglion.layers.base import Layer
from ganglion.layers.call_arguments import call_signature
from ganglion.layers.construction import as_plain_data
from ganglion.layers.rnn.base import refuse_unknown_batch
from ganglion.serialization import (
    by_reference,
    custom_object_scope,
    deserialize_keras_object,
    export,
    serialize_keras_object,
)
from ganglion.symbolic import KerasTensor

_MERGE = {
    "sum": lambda a, b: a + b,
    "mul": lambda a, b: a * b,
    "ave": lambda a, b: (a + b) / 2,
    "concat": lambda a, b: ops.concatenate([a, b], axis=-1),
}
_EQUAL = ("stateful", "return_sequences", "return_state")


@export("keras.layers")
class Bidirectional(Layer):
    """Runs a recurrent layer forward and another backward, and joins their outputs.

    Both are created from the configuration of the layer given, with their own weights.

    >>> import numpy as np
    >>> from ganglion import layers
    >>> x = np.ones((2, 5, 3), "float32")
    >>> Bidirectional(layers.LSTM(4, return_sequences=True))(x).shape
    (2, 5, 8)
    """

    def __init__(
        self,
        layer: Any,
        merge_mode: str | None = "concat",
        weights: Any = None,
        backward_layer: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(weights=weights or None, **kwargs)
        _check_layers(layer, backward_layer)
        if merge_mode is not None and merge_mode not in _MERGE:
            raise ValueError(
                f"Unknown `merge_mode` {merge_mode!r}: use one of "
                f"{', '.join(map(repr, _MERGE))} or None."
            )
        self.merge_mode = merge_mode
        forward = f"forward_{layer.name.removeprefix('forward_')}"
        self.forward_layer = _remade(layer, name=forward)
        if backward_layer is None:
            backward = f"backward_{layer.name.removeprefix('backward_')}"
            backward_layer = _remade(layer, name=backward, go_backwards=True)
        self.backward_layer = backward_layer
        self._check_directions()
        for direction in self._directions():
            if hasattr(layer, "use_cudnn"):
                direction.use_cudnn = layer.use_cudnn
            # The end of one direction is the start of the other: nothing to repeat.
            if getattr(direction, "zero_output_for_mask", None) is not None:
                direction.zero_output_for_mask = layer.return_sequences
        self.stateful = layer.stateful
        self.return_sequences = layer.return_sequences
        self.return_state = layer.return_state
        self.supports_masking = True
        self.input_spec = layer.input_spec

    def _directions(self) -> tuple[Any, Any]:
        return self.forward_layer, self.backward_layer

    def _check_directions(self) -> None:
        forward, backward = self._directions()
        if forward.go_backwards == backward.go_backwards:
            raise ValueError(
                "The layers of a Bidirectional go in different directions, but both "
                f"have go_backwards={forward.go_backwards}."
            )
        for name in _EQUAL:
            values = getattr(forward, name), getattr(backward, name)
            if values[0] != values[1]:
                raise ValueError(
                    f"The layers of a Bidirectional must have the same `{name}`, got "
                    f"{values[0]} and {values[1]}."
                )

    def build(self, sequences_shape: Any, initial_state_shape: Any = None) -> None:
        for layer in self._directions():
            if not layer.built:
                layer.build(sequences_shape)

    def _infer(self, args: Any, kwargs: dict[str, Any]) -> Any:
        refuse_unknown_batch(self, args)
        return super()._infer(args, kwargs)

    def compute_output_shape(self, *args: Any, **kwargs: Any) -> Any:
        """Return the shape of the output, and with `return_state` of all states."""
        sequences_shape = args[0] if args else next(iter(kwargs.values()))
        outputs = self.compute_output_spec(KerasTensor(sequences_shape))
        return tree.map_leaves(lambda tensor: tensor.shape, outputs)

    def call(
        self,
        sequences: Any,
        initial_state: Any = None,
        mask: Any = None,
        training: Any = None,
    ) -> Any:
        results = [
            self._run(layer, sequences, state, mask, training)
            for layer, state in zip(
                self._directions(), self._halves(initial_state), strict=True
            )
        ]
        states: list[Any] = []
        if self.return_state:
            states = [*results[0][1:], *results[1][1:]]
            results = [result[0] for result in results]
        forward, backward = results
        if self.return_sequences:
            backward = ops.flip(backward, axis=1)
        if self.merge_mode is None:
            return (forward, backward, *states)
        output = _MERGE[self.merge_mode](forward, backward)
        return (output, *states) if states else output

    def _run(
        self, layer: Any, sequences: Any, state: Any, mask: Any, training: Any
    ) -> Any:
        options: dict[str, Any] = {} if state is None else {"initial_state": state}
        if "mask" in call_signature(layer).parameters:
            options["mask"] = mask
        return layer(sequences, training=training, **options)

    def _halves(self, initial_state: Any) -> tuple[Any, Any]:
        """Return the states of both directions; the forward ones come first."""
        if initial_state is None:
            return None, None
        if not isinstance(initial_state, (list, tuple)) or len(initial_state) % 2:
            raise ValueError(
                f'Layer "{self.name}" needs a list of initial states, those of the '
                "forward layer and then those of the backward layer."
            )
        half = len(initial_state) // 2
        return list(initial_state[:half]), list(initial_state[half:])

    def compute_mask(self, sequences: Any, mask: Any = None) -> Any:
        """Return the mask of the outputs; states have none."""
        mask = next(iter(tree.flatten(mask)), None)
        output_mask = mask if self.return_sequences else None
        outputs = [output_mask] * (2 if self.merge_mode is None else 1)
        return outputs if len(outputs) > 1 or self.return_state else output_mask

    @property
    def states(self) -> tuple[Any, ...] | None:
        """The states of both layers, where they are stateful."""
        forward, backward = (layer.states for layer in self._directions())
        return (*forward, *backward) if forward and backward else None

    def reset_states(self) -> None:
        """Set the states of both layers to zero: Keras 2's name."""
        self.reset_state()

    def reset_state(self) -> None:
        """Set the states of both layers to zero."""
        if not self.stateful:
            raise AttributeError(f'Layer "{self.name}" is not stateful.')
        for layer in self._directions():
            layer.reset_state()

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make an equal layer."""
        layers = {"layer": self.forward_layer, "backward_layer": self.backward_layer}
        return super().get_config() | as_plain_data(layers)


def _check_layers(layer: Any, backward_layer: Any) -> None:
    for name, value in (("layer", layer), ("backward_layer", backward_layer)):
        if name == "backward_layer" and value is None:
            continue
        if not isinstance(value, Layer):
            raise ValueError(f"`{name}` must be a Layer, got {value!r}.")
        missing = [n for n in ("go_backwards", *_EQUAL) if not hasattr(value, n)]
        if missing:
            raise ValueError(
                f"`{name}` must be a recurrent layer: {type(value).__name__} has no "
                f"`{missing[0]}`."
            )


def _remade(layer: Any, **changes: Any) -> Any:
    """Return a new layer of the same configuration, with some changes."""
    with by_reference() as own:
        entry = serialize_keras_object(layer)
    entry["config"] |= changes
    entry.pop("build_config", None)
    with custom_object_scope(own):
        return deserialize_keras_object(entry)
