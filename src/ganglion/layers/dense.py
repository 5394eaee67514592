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
from ganglion.layers.weight_formats.lora import adapted
from ganglion.layers.weight_formats.quantized import Quantizable, dequantized_matrix
from ganglion.quantizers.packing import unpack_int4
from ganglion.serialization import (
    custom_object_scope,
    export,
    serialize_keras_object,
)

__all__ = [
    "Activation", "Dense", "Embedding", "Identity", "Lambda",
]  # fmt: skip


@export("keras.layers")
class Dense(Quantizable):
    """Every output is a weighted sum of all inputs: ``activation(x @ kernel + bias)``.

    >>> import numpy as np
    >>> Dense(2, kernel_initializer="ones")(np.ones((1, 3), "float32"))
    array([[3., 3.]], dtype=float32)
    """

    units: int
    activation: Any
    use_bias: bool
    _kernel: Any

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

    @property
    def kernel(self) -> Any:
        """The weight, with what low-rank weights or quantization make of it."""
        is_plain = self.built and not (self.lora_enabled or self._is_quantized)
        return self._kernel if is_plain else self._adapted_weight()

    @kernel.setter
    def kernel(self, variable: Any) -> None:
        self._kernel = variable

    def build(self, input_shape: Any) -> None:
        """Make the kernel (inputs, units) and the bias."""
        inputs = known_size(self, input_shape, -1)
        shape = (inputs, self.units)
        if self._build_quantized(shape):
            self.kernel = weight(self, "kernel", shape)
        self.bias = weight(self, "bias", (self.units,)) if self.use_bias else None
        self.input_spec = InputSpec(min_ndim=2, axes={-1: inputs})
        self._enable_chosen_lora()

    def _shape_rule(self, input_shape: Any) -> Any:
        return (*input_shape[:-1], self.units)

    def _follows_shape_rule(self) -> bool:
        is_plain = not self.lora_enabled and self.quantization_mode is None
        return is_plain and activations.is_elementwise(self.activation)

    def call(self, inputs: Any) -> Any:
        if self._is_quantized:
            outputs, bias = self._quantized_product(inputs), self._bias_to_add()
        else:
            outputs, bias = ops.matmul(inputs, self.kernel), self.bias
        return activated(self, outputs if bias is None else outputs + bias)

    def _scaled_axes(self) -> tuple[int, ...]:
        return (0,)

    def _kept_scale(self, scale: Any) -> Any:
        return ops.squeeze(scale, 0)

    def _spread_scale(self, scale: Any) -> Any:
        return scale

    def _product(self, inputs: Any, weight: Any) -> Any:
        return ops.matmul(inputs, weight)

    def _product_back(self, upstream: Any, weight: Any) -> Any:
        return ops.matmul(upstream, ops.transpose(weight))


@export("keras.layers")
class Embedding(Quantizable):
    """A row of numbers for each integer.

    >>> import numpy as np
    >>> Embedding(10, 4)(np.array([[1, 2, 3]])).shape
    (1, 3, 4)
    """

    adapted_name = "embeddings"
    quantization_modes = ("int8", "int4")
    summed_axis = 1
    names_activity_regularizer = True
    embeddings = adapted("embeddings")
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
        length = kwargs.pop("input_length", None)
        if length is not None:
            keras2.note(
                "`input_length=` of Embedding",
                "read off the data: leave it out",
                changes_defaults=False,
            )
        self._init_values.pop("input_length", None)
        super().__init__(**kwargs)
        keep(self, locals())
        if self.input_hint is None and (length is not None or keras2.in_force):
            # As a first layer of Keras 2, it always had the shape of its input.
            lengths = length if isinstance(length, (list, tuple)) else [length]
            self.input_hint = (None, *lengths)
        self.supports_masking = mask_zero
        self.autocast = False  # numbers of rows that come as floats stay exact
        if weights is not None:
            is_list = isinstance(weights, (list, tuple)) and len(weights) == 1
            self._initial_weights = list(weights) if is_list else [np.asarray(weights)]
            self.build_from_config({"input_shape": (None,)})

    def build(self, input_shape: Any = None) -> None:
        shape = (self.input_dim, self.output_dim)
        if self._build_quantized(shape):
            self.embeddings = weight(self, "embeddings", shape)
        self._enable_chosen_lora()

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        return ops.not_equal(inputs, 0) if self.mask_zero else None

    def _shape_rule(self, input_shape: Any) -> Any:
        return (*input_shape, self.output_dim)

    def call(self, inputs: Any) -> Any:
        rows = ops.cast(inputs, "int32")
        if not self._is_quantized:
            return ops.take(self.embeddings, rows, axis=0)
        # Rows are taken before they are numbers again: there may be many.
        *by_row, group = [*self._stored, None][:4]
        taken = [ops.take(each, rows, axis=0) for each in by_row if each is not None]
        outputs = self._rows_of(*taken, *([] if group is None else [group]))
        return self._with_change(ops.cast(outputs, self.compute_dtype), rows)

    def _rows_of(self, numbers: Any, scale: Any, *blocks: Any) -> Any:
        if self.quantization_mode == "int4":
            numbers = unpack_int4(numbers, self.output_dim, axis=-1)
        return dequantized_matrix(numbers, -1, scale, *blocks)

    def _scaled_axes(self) -> tuple[int, ...]:
        return (-1,)

    def _kept_scale(self, scale: Any) -> Any:
        return ops.squeeze(scale, -1)

    def _spread_scale(self, scale: Any) -> Any:
        return ops.expand_dims(scale, -1)

    def _product(self, inputs: Any, weight: Any) -> Any:
        return ops.take(weight, inputs, axis=0)


@export("keras.layers")
class Activation(Layer):
    """An activation function as a layer.

    >>> import numpy as np
    >>> Activation("relu")(np.array([-1.0, 2.0], "float32"))
    array([0., 2.], dtype=float32)
    """

    built_at_once = True
    keeps_shape = True

    def __init__(self, activation: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.activation: Any = activations.get(activation)
        self.supports_masking = True

    def _follows_shape_rule(self) -> bool:
        return activations.is_elementwise(self.activation)

    def call(self, inputs: Any) -> Any:
        return activated(self, inputs)


@export("keras.layers")
class Identity(Layer):
    """Returns its inputs.

    >>> import numpy as np
    >>> Identity()(np.array([1.0, 2.0])).numpy()
    array([1., 2.], dtype=float32)
    """

    built_at_once = True
    keeps_shape = True

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

    saves_lambdas = True  # so that saving a model during training does not fail

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
    def from_config(
        cls, config: dict[str, Any], custom_objects: Any = None, safe_mode: Any = None
    ) -> Any:
        """Make the layer; a function of yours must be registered under its name.

        There is nothing unsafe to allow: byte code of a file is never executed.
        """
        live = {k: v.function for k, v in config.items() if isinstance(v, _Named)}
        shape = config.get("output_shape")
        if isinstance(shape, list):
            live["output_shape"] = tuple(shape)
        with custom_object_scope(custom_objects or {}):
            return super().from_config({**config, **live})


class _Named(dict[str, Any]):
    """The entry of a function: its name for files, and itself for copies."""

    def __init__(self, function: Any, entry: dict[str, Any]) -> None:
        super().__init__(entry)
        self.function = function


def _by_name(obj: Any) -> Any:
    """Return the name of a function; without a name, the function itself."""
    if hasattr(obj, "__array__"):
        return serialize_keras_object(obj)
    if not inspect.isfunction(obj) or obj.__name__ == "<lambda>":
        return obj
    entry = serialize_keras_object(obj)
    if isinstance(entry, str):
        entry = {
            "module": "builtins",
            "class_name": "function",
            "config": entry,
            "registered_name": "function",
        }
    return _Named(obj, entry)


def _parameters(function: Any) -> set[str]:
    try:
        return set(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return set()
