"""Pooling: the largest or the average of windows, or of entire images."""

from __future__ import annotations

from typing import Any

from ganglion import ops
from ganglion.layers.arguments import SpatialLayer, keep, padding_of
from ganglion.serialization import export
from ganglion.tensors import check_mask

__all__ = [
    "AdaptiveAveragePooling1D", "AdaptiveAveragePooling2D", "AdaptiveAveragePooling3D",
    "AdaptiveMaxPooling1D", "AdaptiveMaxPooling2D", "AdaptiveMaxPooling3D",
    "AveragePooling1D", "AveragePooling2D", "AveragePooling3D", "AvgPool1D",
    "AvgPool2D", "AvgPool3D", "GlobalAveragePooling1D", "GlobalAveragePooling2D",
    "GlobalAveragePooling3D", "GlobalAvgPool1D", "GlobalAvgPool2D", "GlobalAvgPool3D",
    "GlobalMaxPool1D", "GlobalMaxPool2D", "GlobalMaxPool3D", "GlobalMaxPooling1D",
    "GlobalMaxPooling2D", "GlobalMaxPooling3D", "MaxPool1D", "MaxPool2D", "MaxPool3D",
    "MaxPooling1D", "MaxPooling2D", "MaxPooling3D",
]  # fmt: skip


class _Pooling(SpatialLayer):
    built_at_once = True
    pool_size: tuple[int, ...]
    strides: tuple[int, ...]

    def __init__(
        self,
        pool_size: Any = 2,
        strides: Any = None,
        padding: str = "valid",
        data_format: str | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        strides = pool_size if strides is None else strides
        keep(self, locals())
        self.padding = padding_of(padding)

    def _window(self) -> dict[str, Any]:
        return {
            "pool_size": self.pool_size,
            "strides": self.strides,
            "padding": self.padding,
            "data_format": self.data_format,
        }


class _MaxPooling(_Pooling):
    def call(self, inputs: Any) -> Any:
        return ops.max_pool(inputs, **self._window())


class _AveragePooling(_Pooling):
    def call(self, inputs: Any) -> Any:
        return ops.average_pool(inputs, **self._window())


@export("keras.layers", "MaxPool1D")
class MaxPooling1D(_MaxPooling, rank=1):
    """The largest element of windows over steps.

    >>> import numpy as np
    >>> MaxPooling1D(2)(np.arange(6, dtype="float32").reshape(1, 6, 1)).numpy().ravel()
    array([1., 3., 5.], dtype=float32)
    """


@export("keras.layers", "MaxPool2D")
class MaxPooling2D(_MaxPooling, rank=2, pool_size=(2, 2)):
    """The largest element of windows over images.

    >>> import numpy as np
    >>> MaxPooling2D()(np.arange(4, dtype="float32").reshape(1, 2, 2, 1)).ravel()
    array([3.], dtype=float32)
    """


@export("keras.layers", "MaxPool3D")
class MaxPooling3D(_MaxPooling, rank=3, pool_size=(2, 2, 2)):
    """The largest element of windows over volumes.

    >>> import numpy as np
    >>> x = np.arange(8, dtype="float32").reshape(1, 2, 2, 2, 1)
    >>> MaxPooling3D()(x).numpy().ravel()
    array([7.], dtype=float32)
    """


@export("keras.layers", "AvgPool1D")
class AveragePooling1D(_AveragePooling, rank=1):
    """The average of windows over steps.

    >>> import numpy as np
    >>> x = np.arange(6, dtype="float32").reshape(1, 6, 1)
    >>> AveragePooling1D(2)(x).numpy().ravel()
    array([0.5, 2.5, 4.5], dtype=float32)
    """


@export("keras.layers", "AvgPool2D")
class AveragePooling2D(_AveragePooling, rank=2, pool_size=(2, 2)):
    """The average of windows over images.

    >>> import numpy as np
    >>> x = np.arange(16, dtype="float32").reshape(1, 4, 4, 1)
    >>> AveragePooling2D()(x).numpy().ravel()
    array([ 2.5,  4.5, 10.5, 12.5], dtype=float32)
    """


@export("keras.layers", "AvgPool3D")
class AveragePooling3D(_AveragePooling, rank=3, pool_size=(2, 2, 2)):
    """The average of windows over volumes.

    >>> import numpy as np
    >>> x = np.arange(8, dtype="float32").reshape(1, 2, 2, 2, 1)
    >>> AveragePooling3D()(x).numpy().ravel()
    array([3.5], dtype=float32)
    """


class _GlobalPooling(SpatialLayer):
    built_at_once = True
    keepdims: bool

    def __init__(
        self, data_format: str | None = None, keepdims: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        keep(self, locals())


class _GlobalAverage(_GlobalPooling):
    def call(self, inputs: Any) -> Any:
        return ops.mean(inputs, axis=self._spatial_axes, keepdims=self.keepdims)


class _GlobalMax(_GlobalPooling):
    def call(self, inputs: Any) -> Any:
        return ops.max(inputs, axis=self._spatial_axes, keepdims=self.keepdims)


@export("keras.layers", "GlobalAvgPool1D")
class GlobalAveragePooling1D(_GlobalAverage, rank=1):
    """The average over all steps.

    >>> import numpy as np
    >>> GlobalAveragePooling1D()(np.arange(6, dtype="float32").reshape(1, 6, 1)).numpy()
    array([[2.5]], dtype=float32)
    """

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        return None

    def call(self, inputs: Any, mask: Any = None) -> Any:
        if mask is None:
            return super().call(inputs)
        (steps,) = self._spatial_axes
        by_steps = ops.moveaxis(inputs, steps, 1)
        check_mask(f'Layer "{self.name}"', mask, by_steps, ndim=2)
        shares = ops.cast(ops.expand_dims(mask, 3 - steps), inputs.dtype)
        total = ops.sum(inputs * shares, axis=steps, keepdims=self.keepdims)
        return total / ops.sum(shares, axis=steps, keepdims=self.keepdims)


@export("keras.layers", "GlobalAvgPool2D")
class GlobalAveragePooling2D(_GlobalAverage, rank=2):
    """The average of each channel over the entire image.

    >>> import numpy as np
    >>> x = np.arange(16, dtype="float32").reshape(1, 4, 4, 1)
    >>> GlobalAveragePooling2D()(x).numpy()
    array([[7.5]], dtype=float32)
    """


@export("keras.layers", "GlobalAvgPool3D")
class GlobalAveragePooling3D(_GlobalAverage, rank=3):
    """The average of each channel over the entire volume.

    >>> import numpy as np
    >>> x = np.arange(8, dtype="float32").reshape(1, 2, 2, 2, 1)
    >>> GlobalAveragePooling3D()(x).numpy()
    array([[3.5]], dtype=float32)
    """


@export("keras.layers", "GlobalMaxPool1D")
class GlobalMaxPooling1D(_GlobalMax, rank=1):
    """The largest element over all steps.

    >>> import numpy as np
    >>> GlobalMaxPooling1D()(np.arange(6, dtype="float32").reshape(1, 6, 1)).numpy()
    array([[5.]], dtype=float32)
    """


@export("keras.layers", "GlobalMaxPool2D")
class GlobalMaxPooling2D(_GlobalMax, rank=2):
    """The largest element of each channel over the entire image.

    >>> import numpy as np
    >>> GlobalMaxPooling2D()(np.arange(16, dtype="float32").reshape(1, 4, 4, 1)).numpy()
    array([[15.]], dtype=float32)
    """


@export("keras.layers", "GlobalMaxPool3D")
class GlobalMaxPooling3D(_GlobalMax, rank=3):
    """The largest element of each channel over the entire volume.

    >>> import numpy as np
    >>> x = np.arange(8, dtype="float32").reshape(1, 2, 2, 2, 1)
    >>> GlobalMaxPooling3D()(x).numpy()
    array([[7.]], dtype=float32)
    """


class _AdaptivePooling(SpatialLayer):
    output_size: tuple[int, ...]

    def __init__(
        self, output_size: Any, data_format: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        keep(self, locals())


class _AdaptiveAverage(_AdaptivePooling):
    def call(self, inputs: Any) -> Any:
        return ops.adaptive_average_pool(inputs, self.output_size, self.data_format)


class _AdaptiveMax(_AdaptivePooling):
    def call(self, inputs: Any) -> Any:
        return ops.adaptive_max_pool(inputs, self.output_size, self.data_format)


@export("keras.layers")
class AdaptiveAveragePooling1D(_AdaptiveAverage, rank=1):
    """The average of each of a fixed number of windows over steps.

    >>> import numpy as np
    >>> x = np.arange(6, dtype="float32").reshape(1, 6, 1)
    >>> AdaptiveAveragePooling1D(2)(x).numpy().ravel()
    array([1., 4.], dtype=float32)
    """


@export("keras.layers")
class AdaptiveAveragePooling2D(_AdaptiveAverage, rank=2):
    """The average of windows over images of any size, with outputs of a fixed size.

    >>> import numpy as np
    >>> AdaptiveAveragePooling2D(3)(np.ones((1, 8, 5, 2), "float32")).shape
    (1, 3, 3, 2)
    """


@export("keras.layers")
class AdaptiveAveragePooling3D(_AdaptiveAverage, rank=3):
    """The average of each of a fixed number of windows over volumes.

    >>> import numpy as np
    >>> x = np.arange(8, dtype="float32").reshape(1, 2, 2, 2, 1)
    >>> AdaptiveAveragePooling3D(1)(x).numpy().ravel()
    array([3.5], dtype=float32)
    """


@export("keras.layers")
class AdaptiveMaxPooling1D(_AdaptiveMax, rank=1):
    """The largest element of each of a fixed number of windows over steps.

    >>> import numpy as np
    >>> x = np.arange(6, dtype="float32").reshape(1, 6, 1)
    >>> AdaptiveMaxPooling1D(2)(x).numpy().ravel()
    array([2., 5.], dtype=float32)
    """


@export("keras.layers")
class AdaptiveMaxPooling2D(_AdaptiveMax, rank=2):
    """The largest element of windows over images of any size.

    >>> import numpy as np
    >>> x = np.arange(16, dtype="float32").reshape(1, 4, 4, 1)
    >>> AdaptiveMaxPooling2D(2)(x).numpy().ravel()
    array([ 5.,  7., 13., 15.], dtype=float32)
    """


@export("keras.layers")
class AdaptiveMaxPooling3D(_AdaptiveMax, rank=3):
    """The largest element of each of a fixed number of windows over volumes.

    >>> import numpy as np
    >>> x = np.arange(8, dtype="float32").reshape(1, 2, 2, 2, 1)
    >>> AdaptiveMaxPooling3D(1)(x).numpy().ravel()
    array([7.], dtype=float32)
    """


AvgPool1D, AvgPool2D, AvgPool3D = AveragePooling1D, AveragePooling2D, AveragePooling3D
MaxPool1D, MaxPool2D, MaxPool3D = MaxPooling1D, MaxPooling2D, MaxPooling3D
GlobalAvgPool1D, GlobalMaxPool1D = GlobalAveragePooling1D, GlobalMaxPooling1D
GlobalAvgPool2D, GlobalMaxPool2D = GlobalAveragePooling2D, GlobalMaxPooling2D
GlobalAvgPool3D, GlobalMaxPool3D = GlobalAveragePooling3D, GlobalMaxPooling3D
