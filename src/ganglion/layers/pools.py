"""Pooling: the largest or the average of windows, or of whole images."""

from __future__ import annotations

from typing import Any

from ganglion import ops
from ganglion.layers.arguments import channels_last, padding_of, passed, sizes
from ganglion.layers.base import Layer
from ganglion.layers.inputspec import InputSpec
from ganglion.serialization import export


class _Pooling(Layer):
    built_at_once = True
    rank = 0

    def __init__(
        self,
        pool_size: Any,
        strides: Any,
        padding: str,
        data_format: Any,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.pool_size = sizes(pool_size, self.rank, "pool_size")
        steps = self.pool_size if strides is None else strides
        self.strides = sizes(steps, self.rank, "strides")
        self.padding = padding_of(padding)
        self.data_format = channels_last(data_format)
        self.input_spec = InputSpec(ndim=self.rank + 2)


class _MaxPooling(_Pooling):
    def call(self, inputs: Any) -> Any:
        return ops.max_pool(inputs, self.pool_size, self.strides, self.padding)


class _AveragePooling(_Pooling):
    def call(self, inputs: Any) -> Any:
        return ops.average_pool(inputs, self.pool_size, self.strides, self.padding)


@export("keras.layers", "MaxPool1D")
class MaxPooling1D(_MaxPooling):
    """The largest element of windows over steps."""

    rank = 1

    def __init__(
        self,
        pool_size: Any = 2,
        strides: Any = None,
        padding: str = "valid",
        data_format: str | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**passed(locals()))


@export("keras.layers", "MaxPool2D")
class MaxPooling2D(_MaxPooling):
    """The largest element of windows over images.

    >>> import numpy as np
    >>> MaxPooling2D()(np.arange(4, dtype="float32").reshape(1, 2, 2, 1)).ravel()
    array([3.], dtype=float32)
    """

    rank = 2

    def __init__(
        self,
        pool_size: Any = (2, 2),
        strides: Any = None,
        padding: str = "valid",
        data_format: str | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**passed(locals()))


@export("keras.layers", "MaxPool3D")
class MaxPooling3D(_MaxPooling):
    """The largest element of windows over volumes."""

    rank = 3

    def __init__(
        self,
        pool_size: Any = (2, 2, 2),
        strides: Any = None,
        padding: str = "valid",
        data_format: str | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**passed(locals()))


@export("keras.layers", "AvgPool1D")
class AveragePooling1D(_AveragePooling):
    """The average of windows over steps."""

    rank = 1

    def __init__(
        self,
        pool_size: Any = 2,
        strides: Any = None,
        padding: str = "valid",
        data_format: str | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**passed(locals()))


@export("keras.layers", "AvgPool2D")
class AveragePooling2D(_AveragePooling):
    """The average of windows over images."""

    rank = 2

    def __init__(
        self,
        pool_size: Any = (2, 2),
        strides: Any = None,
        padding: str = "valid",
        data_format: str | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**passed(locals()))


@export("keras.layers", "AvgPool3D")
class AveragePooling3D(_AveragePooling):
    """The average of windows over volumes."""

    rank = 3

    def __init__(
        self,
        pool_size: Any = (2, 2, 2),
        strides: Any = None,
        padding: str = "valid",
        data_format: str | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**passed(locals()))


class _GlobalPooling(Layer):
    built_at_once = True
    rank = 0

    def __init__(
        self, data_format: str | None = None, keepdims: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.data_format = channels_last(data_format)
        self.keepdims = keepdims
        self.input_spec = InputSpec(ndim=self.rank + 2)

    @property
    def _spatial_axes(self) -> tuple[int, ...]:
        return tuple(range(1, self.rank + 1))


class _GlobalAverage(_GlobalPooling):
    def call(self, inputs: Any) -> Any:
        return ops.mean(inputs, axis=self._spatial_axes, keepdims=self.keepdims)


class _GlobalMax(_GlobalPooling):
    def call(self, inputs: Any) -> Any:
        return ops.max(inputs, axis=self._spatial_axes, keepdims=self.keepdims)


@export("keras.layers", "GlobalAvgPool1D")
class GlobalAveragePooling1D(_GlobalAverage):
    """The average over all steps."""

    rank = 1

    def call(self, inputs: Any, mask: Any = None) -> Any:
        if mask is None:
            return super().call(inputs)
        shares = ops.cast(ops.expand_dims(mask, 2), inputs.dtype)
        total = ops.sum(inputs * shares, axis=1, keepdims=self.keepdims)
        return total / ops.sum(shares, axis=1, keepdims=self.keepdims)


@export("keras.layers", "GlobalAvgPool2D")
class GlobalAveragePooling2D(_GlobalAverage):
    """The average of each channel over the whole image."""

    rank = 2


@export("keras.layers", "GlobalAvgPool3D")
class GlobalAveragePooling3D(_GlobalAverage):
    """The average of each channel over the whole volume."""

    rank = 3


@export("keras.layers", "GlobalMaxPool1D")
class GlobalMaxPooling1D(_GlobalMax):
    """The largest element over all steps."""

    rank = 1


@export("keras.layers", "GlobalMaxPool2D")
class GlobalMaxPooling2D(_GlobalMax):
    """The largest element of each channel over the whole image."""

    rank = 2


@export("keras.layers", "GlobalMaxPool3D")
class GlobalMaxPooling3D(_GlobalMax):
    """The largest element of each channel over the whole volume."""

    rank = 3
