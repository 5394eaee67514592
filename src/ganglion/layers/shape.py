"""Layers that only move elements: reshape, permute, repeat, pad, crop, up-sample."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ganglion import config, ops
from ganglion.compiler.ir.graph import ShapeError
from ganglion.layers.arguments import (
    SpatialLayer,
    choice,
    keep,
    pair,
    pairs,
    positive,
    sizes,
)
from ganglion.layers.base import InputSpec, Layer
from ganglion.ops.image.resizing import resized
from ganglion.serialization import export
from ganglion.symbolic import KerasTensor
from ganglion.system import budget

__all__ = [
    "Cropping1D", "Cropping2D", "Cropping3D", "Flatten", "Permute", "RepeatVector",
    "Reshape", "UpSampling1D", "UpSampling2D", "UpSampling3D", "ZeroPadding1D",
    "ZeroPadding2D", "ZeroPadding3D",
]  # fmt: skip


_INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "lanczos3", "lanczos5")


@export("keras.layers")
class Flatten(Layer):
    """Flattens each sample into a row.

    >>> import numpy as np
    >>> Flatten()(np.ones((2, 3, 4), "float32")).shape
    (2, 12)
    """

    def __init__(self, data_format: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.data_format = config.data_format_of(data_format)
        self.input_spec = InputSpec(min_ndim=1)

    def call(self, inputs: Any) -> Any:
        if self.data_format == "channels_first" and inputs.ndim > 2:
            inputs = ops.transpose(inputs, (0, *range(2, inputs.ndim), 1))
        rows, *rest = inputs.shape
        return ops.reshape(inputs, (rows, math.prod(rest)))


@export("keras.layers")
class Reshape(Layer):
    """Reshapes each sample; a size may be -1 (or None).

    >>> import numpy as np
    >>> Reshape((2, -1))(np.ones((5, 6), "float32")).shape
    (5, 2, 3)
    """

    built_at_once = True

    def __init__(self, target_shape: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        is_number = isinstance(target_shape, (int, np.integer))
        shape = (target_shape,) if is_number else tuple(target_shape)
        unknown = [n for n in shape if n is None or n == -1]
        if len(unknown) > 1:
            raise ValueError(
                "There must be at most one unknown dimension (-1 or None) in "
                f"`target_shape`. Received: target_shape={target_shape!r}"
            )
        if any(n is not None and n < -1 for n in shape):
            raise ValueError(
                "Each size must be a non-negative integer, or -1 for what is left. "
                f"Received: target_shape={target_shape!r}"
            )
        self.target_shape = tuple(-1 if n is None else int(n) for n in shape)

    def _outputs_for(self, args: Any, kwargs: dict[str, Any]) -> Any:
        inputs = args[0]
        if None not in inputs.shape[1:]:
            return super()._outputs_for(args, kwargs)
        return KerasTensor(self._shape_rule(inputs.shape), dtype=self.compute_dtype)

    def _shape_rule(self, input_shape: Any) -> Any:
        is_known = None not in input_shape[1:]
        if is_known:
            return None  # tracing also says whether it fits
        return (input_shape[0], *(None if n == -1 else n for n in self.target_shape))

    def call(self, inputs: Any) -> Any:
        rows, *rest = inputs.shape
        size = math.prod(rest)
        known = math.prod(n for n in self.target_shape if n != -1)
        fits = size % known == 0 if -1 in self.target_shape and known else size == known
        if not fits:
            raise ShapeError(
                f'Layer "{self.name}" cannot reshape samples of shape {tuple(rest)} '
                f"({size} elements) into {self.target_shape}."
            )
        sizes = [size // known if n == -1 else n for n in self.target_shape]
        return ops.reshape(inputs, (rows, *sizes))


@export("keras.layers")
class Permute(Layer):
    """Reorders the axes of each sample, which count from 1.

    >>> import numpy as np
    >>> Permute((2, 1))(np.ones((1, 2, 3))).shape
    (1, 3, 2)
    """

    def __init__(self, dims: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dims = tuple(dims)
        if sorted(self.dims) != list(range(1, len(self.dims) + 1)):
            raise ValueError(
                f"Invalid permutation argument `dims`: it must hold each of 1 ... "
                f"{len(self.dims)} once. Received: dims={dims!r}"
            )
        self.input_spec = InputSpec(ndim=len(self.dims) + 1)

    def call(self, inputs: Any) -> Any:
        return ops.transpose(inputs, (0, *self.dims))


@export("keras.layers")
class RepeatVector(Layer):
    """Repeats each row n times: (batch, size) becomes (batch, n, size).

    >>> import numpy as np
    >>> RepeatVector(3)(np.array([[1.0, 2.0]])).shape
    (1, 3, 2)
    """

    def __init__(self, n: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.n = positive(n, "n")
        self.input_spec = InputSpec(ndim=2)

    def call(self, inputs: Any) -> Any:
        rows, size = inputs.shape
        return ops.broadcast_to(ops.expand_dims(inputs, 1), (rows, self.n, size))


class _ZeroPadding(SpatialLayer):
    padding: Any

    def __init__(
        self, padding: Any = 1, data_format: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        keep(self, locals())
        self.padding = _borders(self.rank, padding, "padding")

    def call(self, inputs: Any) -> Any:
        added = [self.padding] if self.rank == 1 else self.padding
        borders = dict(zip(self._spatial_axes, added, strict=True))
        return ops.pad(
            inputs, [borders.get(axis, (0, 0)) for axis in range(inputs.ndim)]
        )


def _borders(rank: int, value: Any, name: str) -> Any:
    return pair(value, name) if rank == 1 else pairs(value, rank, name)


@export("keras.layers")
class ZeroPadding1D(_ZeroPadding, rank=1):
    """Adds zeros before and after the steps.

    >>> import numpy as np
    >>> ZeroPadding1D(1)(np.array([[[1.0], [2.0]]])).numpy().ravel()
    array([0., 1., 2., 0.], dtype=float32)
    """


@export("keras.layers")
class ZeroPadding2D(_ZeroPadding, rank=2, padding=(1, 1)):
    """Adds zeros around images.

    >>> import numpy as np
    >>> ZeroPadding2D(((1, 0), (2, 2)))(np.ones((1, 4, 4, 3), "float32")).shape
    (1, 5, 8, 3)
    """


@export("keras.layers")
class ZeroPadding3D(_ZeroPadding, rank=3, padding=((1, 1), (1, 1), (1, 1))):
    """Adds zeros around volumes.

    >>> import numpy as np
    >>> ZeroPadding3D(1)(np.arange(8, dtype="float32").reshape(1, 2, 2, 2, 1)).shape
    (1, 4, 4, 4, 1)
    """


class _Cropping(SpatialLayer):
    cropping: Any

    def __init__(
        self, cropping: Any = (1, 1), data_format: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        keep(self, locals())
        self.cropping = _borders(self.rank, cropping, "cropping")

    def call(self, inputs: Any) -> Any:
        cropping = [self.cropping] if self.rank == 1 else self.cropping
        spans = [slice(None)] * inputs.ndim
        for axis, (low, high) in zip(self._spatial_axes, cropping, strict=True):
            size = inputs.shape[axis]
            if low + high >= size:
                raise ShapeError(
                    f'Layer "{self.name}": `cropping` parameter of '
                    f"`{type(self).__name__}` layer must be smaller than the input. "
                    "Values in `cropping` argument should be smaller than the "
                    "corresponding spatial dimension of the input. Received: "
                    f"input_shape={inputs.shape}, cropping={self.cropping}"
                )
            spans[axis] = slice(low, size - high)
        return inputs[tuple(spans)]


@export("keras.layers")
class Cropping1D(_Cropping, rank=1):
    """Takes away steps at the start and the end.

    >>> import numpy as np
    >>> Cropping1D(1)(np.arange(6, dtype="float32").reshape(1, 6, 1)).numpy().ravel()
    array([1., 2., 3., 4.], dtype=float32)
    """

    def __init__(self, cropping: Any = (1, 1), **kwargs: Any) -> None:
        super().__init__(cropping, "channels_last", **kwargs)


@export("keras.layers")
class Cropping2D(_Cropping, rank=2, cropping=((0, 0), (0, 0))):
    """Takes away the borders of images.

    >>> import numpy as np
    >>> x = np.arange(16, dtype="float32").reshape(1, 4, 4, 1)
    >>> Cropping2D(1)(x).numpy().ravel()
    array([ 5.,  6.,  9., 10.], dtype=float32)
    """


@export("keras.layers")
class Cropping3D(_Cropping, rank=3, cropping=((1, 1), (1, 1), (1, 1))):
    """Takes away the borders of volumes.

    >>> import numpy as np
    >>> Cropping3D(1)(np.ones((1, 4, 4, 4, 2), "float32")).shape
    (1, 2, 2, 2, 2)
    """


class _UpSampling(SpatialLayer):
    size: Any

    def call(self, inputs: Any) -> Any:
        outputs = inputs
        factors = [self.size] if self.rank == 1 else self.size
        for axis, times in zip(self._spatial_axes, factors, strict=True):
            outputs = ops.repeat(outputs, times, axis=axis)
        return outputs


@export("keras.layers")
class UpSampling1D(_UpSampling, rank=1):
    """Repeats each step.

    >>> import numpy as np
    >>> UpSampling1D(2)(np.array([[[1.0], [2.0]]])).numpy().ravel()
    array([1., 1., 2., 2.], dtype=float32)
    """

    data_format = "channels_last"

    def __init__(self, size: int = 2, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.size = positive(size, "size")


@export("keras.layers")
class UpSampling2D(_UpSampling, rank=2):
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
        keep(self, locals())
        self.size = sizes(size, 2, "size")
        self.interpolation = choice(interpolation, "interpolation", _INTERPOLATIONS)

    def call(self, inputs: Any) -> Any:
        if self.interpolation == "nearest":
            return super().call(inputs)
        x = ops.cast(inputs, self.compute_dtype)
        if self.data_format == "channels_last":
            return self._interpolated(x)
        outputs = self._interpolated(ops.transpose(x, (0, 2, 3, 1)))
        return ops.transpose(outputs, (0, 3, 1, 2))

    def _interpolated(self, x: Any) -> Any:
        if self.interpolation == "bilinear":
            return _bilinear(x, *self.size)
        height, width = (
            n * times for n, times in zip(x.shape[1:3], self.size, strict=True)
        )
        return resized(x, height, width, self.interpolation)


@export("keras.layers")
class UpSampling3D(_UpSampling, rank=3):
    """Repeats the elements of volumes along all three axes.

    >>> import numpy as np
    >>> UpSampling3D(2)(np.arange(8, dtype="float32").reshape(1, 2, 2, 2, 1)).shape
    (1, 4, 4, 4, 1)
    """

    def __init__(
        self, size: Any = (2, 2, 2), data_format: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        keep(self, locals())
        self.size = sizes(size, 3, "size")


def interpolation_matrix(size: int, times: int) -> np.ndarray:
    """Return the (size * times, size) matrix that interpolates between centres.

    >>> interpolation_matrix(2, 2)
    array([[1.  , 0.  ],
           [0.75, 0.25],
           [0.25, 0.75],
           [0.  , 1.  ]])
    """
    budget.take(32 * size * times * size, f"{times:,} times as many pixels")
    position = np.clip((np.arange(size * times) + 0.5) / times - 0.5, 0, size - 1)
    distance = np.abs(position[:, None] - np.arange(size)[None, :])
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
