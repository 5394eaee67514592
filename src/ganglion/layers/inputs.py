"""The inputs of a model: `Input` and its layer."""

from __future__ import annotations

from typing import Any

import numpy as np

from ganglion import config, keras2
from ganglion.layers.base import Layer
from ganglion.serialization import export
from ganglion.symbolic import Call, KerasTensor, tensor_dtype

__all__ = [
    "Input", "InputLayer",
]  # fmt: skip

Shape = tuple[int | None, ...]


@export("keras.layers")
class InputLayer(Layer):
    """The entry of a model: a shape, a type and a name.

    >>> InputLayer((28, 28)).output.shape
    (None, 28, 28)
    """

    def __init__(
        self,
        shape: Any = None,
        batch_size: int | None = None,
        dtype: Any = None,
        sparse: bool | None = None,
        ragged: bool | None = None,
        batch_shape: Any = None,
        input_tensor: Any = None,
        optional: bool = False,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        for old in ("input_shape", "batch_input_shape"):
            if old in kwargs:
                new = old.replace("input_", "")
                keras2.note(
                    f"Argument `{old}` is deprecated. Use `{new}` instead. `{old}=`",
                    f"`{new}=`",
                    changes_defaults=False,
                )
        shape = kwargs.pop("input_shape", shape)
        batch_shape = kwargs.pop("batch_input_shape", batch_shape)
        if input_tensor is not None:
            _check_tensor(input_tensor, shape, batch_size, batch_shape, dtype, sparse)
            shape, batch_size, batch_shape = None, None, input_tensor.shape
            dtype, name = input_tensor.dtype, name or input_tensor.name
        kind = _kind(dtype)
        super().__init__(name=name, dtype=kind, **kwargs)
        for option, value in (("sparse", sparse), ("ragged", ragged)):
            if value:
                raise ValueError(
                    f"`{option}=True` is not supported with Ganglion: arrays are dense."
                )
        self.batch_shape = _whole_shape(shape, batch_size, batch_shape)
        self.sparse = self.ragged = False
        self.optional = bool(optional)
        self.built = True
        call = Call(self, (), {})
        if input_tensor is None:
            input_tensor = KerasTensor(self.batch_shape, kind, name=self.name)
        call.bind(input_tensor)
        self._calls.append(call)

    def call(self) -> None:
        """Return no outputs: they are the arguments of the model's call."""

    @property
    def input(self) -> Any:
        return self.output

    def get_config(self) -> dict[str, Any]:
        return {
            "batch_shape": self.batch_shape,
            "dtype": self.dtype,
            "sparse": False,
            "ragged": False,
            "name": self.name,
            "optional": self.optional,
        }


def _kind(dtype: Any) -> str:
    try:
        return tensor_dtype(dtype or config.floatx())
    except TypeError:
        raise ValueError(
            f"Inputs of type {dtype!r} are not supported: use numbers, or 'string' "
            "for texts."
        ) from None


def _whole_shape(shape: Any, batch_size: int | None, batch_shape: Any) -> Shape:
    if batch_shape is not None:
        for name, value in (("shape", shape), ("batch_size", batch_size)):
            if value is not None:
                raise ValueError(
                    f"You cannot pass both `{name}` and `batch_shape` at the same "
                    "time: `batch_shape` already holds it."
                )
        return _checked(batch_shape, "batch_shape")
    if shape is None:
        raise ValueError(
            "You must pass a `shape` argument. For example: Input(shape=(28, 28))"
        )
    shape = (shape,) if isinstance(shape, (int, np.integer)) else shape
    return _checked((batch_size, *shape), "shape")


def _check_tensor(
    tensor: Any, shape: Any, batch_size: Any, batch_shape: Any, dtype: Any, sparse: Any
) -> None:
    """Refuse what contradicts the Keras tensor that a layer is to begin with."""
    if not isinstance(tensor, KerasTensor):
        raise ValueError(
            f"Argument `input_tensor` must be a KerasTensor, got {type(tensor)}."
        )
    wanted = {
        "shape": (shape, tensor.shape[1:]),
        "batch_size": (batch_size, tensor.shape[0] if tensor.shape else None),
        "batch_shape": (batch_shape, tensor.shape),
        "dtype": (dtype, tensor.dtype),
        "sparse": (sparse, False),
    }
    for name, (value, own) in wanted.items():
        value = tuple(value) if isinstance(value, list) else value
        if value is not None and value != own:
            raise ValueError(
                "When providing the `input_tensor` argument, you cannot provide an "
                f"incompatible `{name}` argument: {value} is not {own}."
            )


def _checked(shape: Any, name: str) -> Shape:
    sizes = tuple(shape)
    for size in sizes:
        if size is not None and (not isinstance(size, (int, np.integer)) or size < 0):
            raise ValueError(
                f"`{name}` must hold integers (None: any size), got {shape!r}."
            )
    return tuple(None if size is None else int(size) for size in sizes)


def Input(  # noqa: N802 (Keras' name)
    shape: Any = None,
    batch_size: int | None = None,
    dtype: Any = None,
    sparse: bool | None = None,
    ragged: bool | None = None,
    batch_shape: Any = None,
    name: str | None = None,
    tensor: Any = None,
    optional: bool = False,
) -> KerasTensor:
    """Return the Keras tensor that a model starts from.

    >>> Input(shape=(28, 28, 1)).shape
    (None, 28, 28, 1)
    """
    arguments = dict(locals())
    arguments["input_tensor"] = arguments.pop("tensor")
    output: KerasTensor = InputLayer(**arguments).output
    return output
