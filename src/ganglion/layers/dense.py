"""Dense, Embedding and the layers that only apply a function."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from ganglion import activations, keras2, ops
from ganglion.layers.arguments import (
    keep,
    known_size,
    weight,
)
from ganglion.layers.base import InputSpec, Layer, activated
from ganglion.serialization import export, serialize_keras_object

__all__ = [
    "Activation", "Dense", "Embedding", "Identity", "Lambda",
]  # fmt: skip


@export("keras.layers")
class Dense(Layer):
    """Every output is a weighted sum of all inputs: ``activation(x @ kernel + bias)``.

    >>> import numpy as np
    >>> Dense(2, kernel_initializer="ones")(np.ones((1, 3), "float32"))
    array([[3., 3.]], dtype=float32)
    """

    units: int
    activation: Any
    use_bias: bool

    def __init__(
        self,
        units: int,
        activation: Any = None,
        use_bias: bool = True,
        kernel_initializer: Any = "glorot_uniform",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        bias_regularizer: Any = None,
        activity_regularizer: Any = None,
        kernel_constraint: Any = None,
        bias_constraint: Any = None,
        lora_rank: int | None = None,
        lora_alpha: float | None = None,
        quantization_config: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(activity_regularizer=activity_regularizer, **kwargs)
        keep(self, locals())
        self.input_spec = InputSpec(min_ndim=2)
        self.supports_masking = True

    def build(self, input_shape: Any) -> None:
        """Make the kernel (inputs, units) and the bias."""
        inputs = known_size(self, input_shape, -1)
        self.kernel = weight(self, "kernel", (inputs, self.units))
        self.bias = weight(self, "bias", (self.units,)) if self.use_bias else None
        self.input_spec = InputSpec(min_ndim=2, axes={-1: inputs})

    def call(self, inputs: Any) -> Any:
        outputs = ops.matmul(inputs, self.kernel)
        if self.bias is not None:
            outputs = outputs + self.bias
        return activated(self, outputs)


@export("keras.layers")
class Embedding(Layer):
    """A row of numbers for each whole number.

    >>> import numpy as np
    >>> Embedding(10, 4)(np.array([[1, 2, 3]])).shape
    (1, 3, 4)
    """

    input_dim: int
    output_dim: int
    mask_zero: bool

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        embeddings_initializer: Any = "uniform",
        embeddings_regularizer: Any = None,
        embeddings_constraint: Any = None,
        mask_zero: bool = False,
        weights: Any = None,
        lora_rank: int | None = None,
        lora_alpha: float | None = None,
        quantization_config: Any = None,
        **kwargs: Any,
    ) -> None:
        if kwargs.pop("input_length", None) is not None:
            keras2.note(
                "`input_length=` of Embedding",
                "read off the data: leave it out",
                changes_defaults=False,
            )
        self._init_values.pop("input_length", None)
        super().__init__(**kwargs)
        keep(self, locals())
        self.supports_masking = mask_zero
        if weights is not None:
            is_list = isinstance(weights, (list, tuple)) and len(weights) == 1
            self._initial_weights = list(weights) if is_list else [np.asarray(weights)]
            self.build_from_config({"input_shape": (None,)})

    def build(self, input_shape: Any = None) -> None:
        shape = (self.input_dim, self.output_dim)
        self.embeddings = weight(self, "embeddings", shape)

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        return ops.not_equal(inputs, 0) if self.mask_zero else None

    def call(self, inputs: Any) -> Any:
        return ops.take(self.embeddings, ops.cast(inputs, "int32"), axis=0)


@export("keras.layers")
class Activation(Layer):
    """An activation function as a layer.

    >>> import numpy as np
    >>> Activation("relu")(np.array([-1.0, 2.0], "float32"))
    array([0., 2.], dtype=float32)
    """

    built_at_once = True

    def __init__(self, activation: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.activation: Any = activations.get(activation)
        self.supports_masking = True

    def call(self, inputs: Any) -> Any:
        return activated(self, inputs)


@export("keras.layers")
class Identity(Layer):
    """Returns its inputs."""

    built_at_once = True

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, inputs: Any) -> Any:
        return inputs


@export("keras.layers")
class Lambda(Layer):
    """A function, written in `ops`, as a layer.

    >>> import numpy as np
    >>> Lambda(lambda x: x * 2)(np.ones(2, "float32"))
    array([2., 2.], dtype=float32)
    """

    def __init__(
        self,
        function: Any,
        output_shape: Any = None,
        mask: Any = None,
        arguments: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not callable(function):
            raise ValueError(f"Lambda needs a function, got {function!r}.")
        self.function = function
        self._promised_shape = output_shape
        if not (mask is None or callable(mask) or hasattr(mask, "shape")):
            raise ValueError(
                "`mask` of a Lambda must be a function of inputs and mask, or an "
                f"array, got {mask!r}."
            )
        self.mask = mask
        self.supports_masking = mask is not None
        self.arguments = dict(arguments or {})

    def call(self, inputs: Any, mask: Any = None, training: Any = None) -> Any:
        arguments = dict(self.arguments)
        known = _parameters(self.function)
        if "mask" in known:
            arguments["mask"] = mask
        if "training" in known:
            arguments["training"] = training
        return self.function(inputs, **arguments)

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        return self.mask(inputs, mask) if callable(self.mask) else self.mask

    def compute_output_shape(self, *args: Any, **kwargs: Any) -> Any:
        input_shape = args[0] if args else next(iter(kwargs.values()))
        if callable(self._promised_shape):
            return self._promised_shape(input_shape)
        if self._promised_shape is not None:
            return (input_shape[0], *self._promised_shape)
        return super().compute_output_shape(*args, **kwargs)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments; functions by name, as Keras writes them."""
        config = super().get_config()
        config["function"] = _by_name(self.function)
        config["output_shape"] = _by_name(self._promised_shape)
        config["mask"] = _by_name(self.mask)
        return {key: value for key, value in config.items() if value is not None}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Make the layer; a function of yours must be registered under its name."""
        shape = config.get("output_shape")
        if isinstance(shape, list):
            config = config | {"output_shape": tuple(shape)}
        return super().from_config(config)


def _by_name(thing: Any) -> Any:
    """Name a function of Ganglion; one of the user stays itself until it is saved."""
    if not inspect.isfunction(thing) or thing.__name__ == "<lambda>":
        return thing
    name = serialize_keras_object(thing)
    if not isinstance(name, str):
        return thing
    return {
        "module": "builtins",
        "class_name": "function",
        "config": name,
        "registered_name": "function",
    }


def _parameters(function: Any) -> set[str]:
    try:
        return set(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return set()
