"""Where a model begins: `Input` and the layer behind it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ganglion import config, keras2
from ganglion.layers.arguments import refuse
from ganglion.layers.base import Layer
from ganglion.serialization import export
from ganglion.symbolic import TEXT, Call, KerasTensor, tensor_dtype

__all__ = [
    "Input", "InputLayer",
]  # fmt: skip

Shape = tuple[int | None, ...]


@export("keras.layers")
class InputLayer(Layer):
    """The entry of a model: a shape, a type and a name."""

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
                keras2.note(f"`{old}=` of InputLayer", new, changes_defaults=False)
        shape = kwargs.pop("input_shape", shape)
        batch_shape = kwargs.pop("batch_input_shape", batch_shape)
        kind = _kind(dtype)
        super().__init__(name=name, dtype=None if kind == TEXT else kind, **kwargs)
        self.dtype = kind
        refuse(self, "sparse", sparse)
        refuse(self, "ragged", ragged)
        refuse(self, "input_tensor", input_tensor)
        refuse(self, "optional", optional)
        self.batch_shape = _whole_shape(shape, batch_size, batch_shape)
        self.sparse = self.ragged = self.optional = False
        self.built = True
        call = Call(self, (), {})
        call.bind(KerasTensor(self.batch_shape, self.dtype, name=self.name))
        self._calls.append(call)

    def call(self) -> Any:
        raise RuntimeError("An InputLayer is not called; call the model.")

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
            "optional": False,
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
        if shape is not None or batch_size is not None:
            raise ValueError(
                "`batch_shape` already holds the shape and the batch size: give it "
                "alone, or `shape` with or without `batch_size`."
            )
        return _checked(batch_shape, "batch_shape")
    if shape is None:
        raise ValueError("An input needs a `shape`, for example Input(shape=(28, 28)).")
    shape = (shape,) if isinstance(shape, (int, np.integer)) else shape
    return _checked((batch_size, *shape), "shape")


def _checked(shape: Any, name: str) -> Shape:
    sizes = tuple(shape)
    for size in sizes:
        if size is not None and (not isinstance(size, (int, np.integer)) or size < 0):
            raise ValueError(
                f"`{name}` must hold whole numbers (None: any size), got {shape!r}."
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
