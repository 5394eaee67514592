"""Sequential: layers one after the other."""

from __future__ import annotations

import inspect
import weakref
from typing import Any

import numpy as np

from ganglion import keras2, tree
from ganglion.compiler.ir import origin
from ganglion.layers import Input, InputLayer, Layer
from ganglion.layers.construction import by_calling
from ganglion.models.functional import Network
from ganglion.models.model import LayerList, Model
from ganglion.serialization import export
from ganglion.symbolic import TEXT, KerasTensor
from ganglion.tensors import set_keras_mask


@export("keras", "Sequential")
class Sequential(Model):
    """Layers one after the other.

    >>> import ganglion as keras
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    >>> model.output_shape
    (None, 2)
    """

    _untracked = Model._untracked | {"_stack", "_input_layer"}
    _is_list_of_layers = True

    def __init__(
        self, layers: Any = None, trainable: bool = True, name: str | None = None
    ) -> None:
        if isinstance(layers, Layer):
            raise TypeError(
                f"Sequential takes a list of layers, not {type(layers).__name__}: "
                "write Sequential([...])."
            )
        super().__init__(trainable=trainable, name=name)
        self._stack: list[Layer] = []
        self._input_layer: InputLayer | None = None
        for layer in layers or []:
            self.add(layer, rebuild=False)
        self._rebuild()

    @property
    def layers(self) -> list[Layer]:
        return LayerList(self._stack, self._stack)

    @layers.setter
    def layers(self, layers: Any) -> None:
        raise AttributeError(
            "`Sequential.layers` attribute is reserved and should not be used. Use "
            "`add()` and `pop()` to change the layers of this model."
        )

    def add(self, layer: Any, rebuild: bool = True) -> None:
        """Append a layer, or specify the input."""
        if isinstance(layer, KerasTensor) and layer.call is not None:
            layer = layer.call.operation
        if not isinstance(layer, Layer):
            hint = f" Write {layer.__name__}(...)." if isinstance(layer, type) else ""
            raise ValueError(
                "Only instances of `keras.Layer` can be added to a Sequential model, "
                f"not {layer!r}.{hint}"
            )
        if isinstance(layer, InputLayer):
            self._set_input(layer)
        else:
            if any(other.name == layer.name for other in self._stack):
                raise ValueError(
                    "All layers added to a Sequential model should have unique names, "
                    f'but "{layer.name}" is used twice.'
                )
            if not self._stack and self._input_layer is None:
                hint = _input_hint(layer)
                if hint is not None:
                    self._set_input(InputLayer(batch_shape=hint))
            self._stack.append(layer)
        if rebuild:
            self._rebuild(added=layer)

    def pop(self, rebuild: bool = True) -> Layer:
        """Remove the last layer and return it."""
        if not self._stack:
            raise ValueError("There is no layer to remove.")
        removed = self._stack.pop()
        if rebuild:
            self._rebuild()
        return removed

    def _set_input(self, layer: InputLayer) -> None:
        if self._stack or self._input_layer is not None:
            raise ValueError(
                f'Sequential model "{self.name}" has already been configured to use '
                "another input, or has layers: an Input must be the first thing in it."
            )
        self._input_layer = layer

    def _rebuild(self, added: Layer | None = None) -> None:
        before, self._network = self._network, None
        self.built = False
        self._step_cache.clear()
        start = self._start()
        if start is None or not self._stack:
            return
        calls = [] if before is None else [call.operation for call in before.calls]
        if before is not None and [*calls, added] == self._stack:
            # Existing connections stay: of many layers, each is called once.
            self._connect(before.inputs, before.outputs, self._stack[-1:])
        else:
            self._connect(start, start, self._stack)

    def _start(self) -> Any:
        """Return the Keras tensors that the layers begin with, None if unknown."""
        if self._input_layer is not None:
            return self._input_layer.output
        inner = _network_of(self._stack[0]) if self._stack else None
        if inner is None:
            return None
        return [Input(batch_shape=x.shape, dtype=x.dtype) for x in inner.flat_inputs]

    def _connect(
        self,
        start: Any,
        tensor: Any,
        layers: list[Layer],
        any_size: bool = False,
    ) -> None:
        with origin.inside(self.name, self.created):
            for layer in layers:
                try:
                    tensor = layer(tensor)
                except NotImplementedError:
                    return  # its shapes are not known before it is called on data
                except TypeError:
                    _refuse_several_arguments(layer)
                    raise
        self._network = Network(start, tensor, any_size)
        for number, output in enumerate(self._network.flat_outputs):
            output.end_of = weakref.ref(self), number
        self.built = True

    @by_calling
    def build(self, input_shape: Any = None) -> None:
        if self._network is not None and input_shape is not None:
            self._refuse_other_shape(input_shape)
        if self._network is not None or not self._stack:
            return
        if input_shape is None:
            raise ValueError("A Sequential without an Input needs an `input_shape`.")
        if not tree.is_shape(input_shape):
            self.built = True  # several inputs: layers are built while they are called
            return
        shape = tuple(input_shape)
        takes_text = self._stack[0].compute_dtype == TEXT
        dtype = TEXT if takes_text else None
        self._input_layer = InputLayer(batch_shape=shape, dtype=dtype)
        start = self._input_layer.output
        self._connect(start, start, self._stack, any_size=self._building)

    def _refuse_other_shape(self, shape: Any) -> None:
        assert self._network is not None
        known = self._network.flat_inputs[0].shape
        is_other = tree.is_shape(shape) and (
            len(shape) != len(known)
            or any(
                None not in pair and len({*pair}) > 1
                for pair in zip(shape, known, strict=True)
            )
        )
        if is_other and not self._network.any_size:
            raise ValueError(
                f'Sequential model "{self.name}" has already been configured to use '
                f"input shape {known}. You cannot build it with input_shape {shape}."
            )

    def _build_once(self, shapes: Any) -> None:
        # From data: other data may have other sizes, if the layers take them.
        self._building = True
        try:
            if self._stack:
                self.build(shapes)
        finally:
            self._building = False

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        if self._network is None:
            if not self._stack and self._input_layer is None:
                raise ValueError(
                    f'Sequential model "{self.name}" cannot be called because it has '
                    "no layers: `add` some first."
                )
            if mask is not None:
                for tensor, its in zip(
                    tree.flatten(inputs), tree.flatten(mask), strict=False
                ):
                    if its is not None:
                        set_keras_mask(tensor, its)
            for layer in self._stack:
                inputs = layer(inputs)
            return inputs
        return super().call(inputs, training=training, mask=mask)

    def _replays(self) -> bool:
        return self._network is not None and type(self).call is Sequential.call

    def predict_proba(
        self, x: Any, batch_size: int | None = None, verbose: Any = 0
    ) -> Any:
        """Keras 2's name for `predict`."""
        keras2.note("`predict_proba`", "`predict`", changes_defaults=False)
        return self.predict(x, batch_size=batch_size, verbose=verbose)

    def predict_classes(
        self, x: Any, batch_size: int | None = None, verbose: Any = 0
    ) -> np.ndarray:
        """Keras 2's way to the most probable class of each row."""
        new = "`predict(x).argmax(axis=-1)`"
        keras2.note("`predict_classes`", new, changes_defaults=False)
        scores = self.predict(x, batch_size=batch_size, verbose=verbose)
        if scores.shape[-1] > 1:
            return np.argmax(scores, axis=-1)
        return (scores > 0.5).astype("int32")

    def get_config(self) -> dict[str, Any]:
        from ganglion.models import config

        return config.sequential_config(self)


def _refuse_several_arguments(layer: Layer) -> None:
    parameters = inspect.signature(layer.call).parameters.values()
    needed = [p.name for p in parameters if p.default is p.empty and p.kind < 2]
    if len(needed) != 1:
        raise ValueError(
            "Layers added to a Sequential model can only have a single positional "
            f'argument, the input tensor. Layer "{layer.name}" has {needed}: give the '
            "others defaults, or use the functional API."
        )


def _input_hint(layer: Layer) -> Any:
    """Return the batch shape of the input, from the arguments of a first layer."""
    if layer.input_hint is not None:
        return layer.input_hint
    inner = _network_of(layer)
    if inner is None or len(inner.flat_inputs) > 1:
        return None
    return inner.flat_inputs[0].shape


def _network_of(layer: Layer) -> Network | None:
    return getattr(layer, "_network", None)
