"""Layers that run models of other frameworks: refused by name, with the way out."""

from __future__ import annotations

from typing import Any

from ganglion.layers.base import Layer

__all__ = ["FlaxLayer", "JaxLayer", "TFSMLayer", "TorchModuleWrapper"]


def _refuse(layer: Layer, framework: str) -> None:
    raise NotImplementedError(
        f"{type(layer).__name__} runs code of {framework} inside of a model, whose "
        "steps are compiled here as a whole. Write the model in layers of Keras and "
        "copy its weights by `set_weights`, or, if it is a model of Keras, save it by "
        '`model.save("model.keras")` and load that file.'
    )


class TFSMLayer(Layer):
    """A TensorFlow SavedModel as a layer: not supported."""

    def __init__(
        self,
        filepath: Any,
        call_endpoint: str = "serve",
        call_training_endpoint: str | None = None,
        trainable: bool = True,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        _refuse(self, "TensorFlow")


class JaxLayer(Layer):
    """A function of JAX as a layer: not supported."""

    def __init__(
        self,
        call_fn: Any,
        init_fn: Any = None,
        params: Any = None,
        state: Any = None,
        seed: Any = None,
        native_serialization_platforms: Any = None,
        **kwargs: Any,
    ) -> None:
        _refuse(self, "JAX")


class FlaxLayer(JaxLayer):
    """A module of Flax as a layer: not supported."""

    def __init__(
        self, module: Any, method: Any = None, variables: Any = None, **kwargs: Any
    ) -> None:
        _refuse(self, "Flax")


class TorchModuleWrapper(Layer):
    """A module of PyTorch as a layer: not supported."""

    def __init__(
        self,
        module: Any,
        name: str | None = None,
        output_shape: Any = None,
        **kwargs: Any,
    ) -> None:
        _refuse(self, "PyTorch")
