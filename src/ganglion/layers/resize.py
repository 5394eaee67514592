"""Layers that repeat or interpolate places: up-sampling."""

from __future__ import annotations

from typing import Any

import numpy as np

from ganglion import ops
from ganglion.layers.arguments import channels_last, choice, positive, sizes
from ganglion.layers.base import Layer
from ganglion.layers.inputspec import InputSpec
from ganglion.serialization import export
from ganglion.system import budget

_INTERPOLATIONS = ("nearest", "bilinear")


@export("keras.layers")
class UpSampling1D(Layer):
    """Repeats each step."""

    def __init__(self, size: int = 2, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.size = positive(size, "size")
        self.input_spec = InputSpec(ndim=3)

    def call(self, inputs: Any) -> Any:
        return ops.repeat(inputs, self.size, axis=1)


@export("keras.layers")
class UpSampling2D(Layer):
    """Repeats rows and columns of images, or interpolates between them.

    >>> import numpy as np
    >>> x = np.array([0.0, 4.0], "float32").reshape(1, 1, 2, 1)
    >>> UpSampling2D((1, 2), interpolation="bilinear")(x).ravel()
    array([0., 1., 3., 4.], dtype=float32)
    """

    def __init__(
        self,
        size: Any = (2, 2),
        data_format: str | None = None,
        interpolation: str = "nearest",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.size = sizes(size, 2, "size")
        self.data_format = channels_last(data_format)
        self.interpolation = choice(interpolation, "interpolation", _INTERPOLATIONS)
        self.input_spec = InputSpec(ndim=4)

    def call(self, inputs: Any) -> Any:
        if self.interpolation == "bilinear":
            return _bilinear(ops.cast(inputs, self.dtype), *self.size)
        outputs = inputs
        for axis, times in enumerate(self.size, 1):
            outputs = ops.repeat(outputs, times, axis=axis)
        return outputs


@export("keras.layers")
class UpSampling3D(Layer):
    """Repeats the places of volumes along all three axes."""

    def __init__(
        self, size: Any = (2, 2, 2), data_format: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.size = sizes(size, 3, "size")
        self.data_format = channels_last(data_format)
        self.input_spec = InputSpec(ndim=5)

    def call(self, inputs: Any) -> Any:
        outputs = inputs
        for axis, times in enumerate(self.size, 1):
            outputs = ops.repeat(outputs, times, axis=axis)
        return outputs


def interpolation_matrix(size: int, times: int) -> np.ndarray:
    """Return the (size * times, size) matrix that interpolates between centres.

    >>> interpolation_matrix(2, 2)
    array([[1.  , 0.  ],
           [0.75, 0.25],
           [0.25, 0.75],
           [0.  , 1.  ]])
    """
    budget.take(32 * size * times * size, f"{times:,} times as many pixels")
    place = np.clip((np.arange(size * times) + 0.5) / times - 0.5, 0, size - 1)
    distance = np.abs(place[:, None] - np.arange(size)[None, :])
    return np.maximum(1.0 - distance, 0.0)


def _bilinear(x: Any, row_times: int, column_times: int) -> Any:
    """Interpolate by two matrix products, so that gradients come for free."""
    batch, rows, columns, channels = x.shape
    down = interpolation_matrix(rows, row_times).astype(x.dtype)
    across = interpolation_matrix(columns, column_times).astype(x.dtype)
    tall = ops.matmul(down, ops.reshape(x, (batch, rows, columns * channels)))
    lines = (batch * rows * row_times, columns, channels)
    wide = ops.matmul(across, ops.reshape(tall, lines))
    shape = (batch, rows * row_times, columns * column_times, channels)
    return ops.reshape(wide, shape)
