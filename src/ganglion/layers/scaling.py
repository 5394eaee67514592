"""Layers that scale data: Rescaling and Normalization."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ganglion import config, ops
from ganglion.layers.base import Layer

__all__ = [
    "Normalization", "Rescaling",
]  # fmt: skip
from ganglion.serialization import export


@export("keras.layers")
class Rescaling(Layer):
    """``x * scale + offset``.

    >>> import numpy as np
    >>> Rescaling(1 / 255)(np.array([0, 255], "uint8"))
    array([0., 1.], dtype=float32)
    """

    takes_python_numbers = True
    keeps_shape = True

    def __init__(self, scale: Any, offset: Any = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.scale, self.offset = scale, offset
        self.supports_masking = True

    def call(self, inputs: Any) -> Any:
        scale, offset = self._per_channel(self.scale), self._per_channel(self.offset)
        return ops.cast(inputs, self.compute_dtype) * scale + offset

    def _per_channel(self, numbers: Any) -> np.ndarray:
        """Return numbers in the shape that meets images of the chosen layout."""
        array = np.asarray(numbers, self.compute_dtype)
        is_first = config.image_data_format() == "channels_first"
        return array.reshape(-1, 1, 1) if is_first and array.ndim == 1 else array


@export("keras.layers")
class Normalization(Layer):
    """``(x - mean) / sqrt(variance)``, both given or learned from data by `adapt`.

    >>> import numpy as np
    >>> layer = Normalization()
    >>> layer.adapt(np.array([[1.0], [3.0]]))
    >>> layer(np.array([[1.0], [3.0]])).ravel()
    array([-1.,  1.], dtype=float32)
    """

    takes_python_numbers = True
    keeps_shape = True

    def __init__(
        self,
        axis: Any = -1,
        mean: Any = None,
        variance: Any = None,
        invert: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        single = isinstance(axis, (int, np.integer))
        self.axis: tuple[int, ...] = (axis,) if single else tuple(axis or ())
        self.invert = invert
        self.supports_masking = True
        if (mean is None) != (variance is None):
            raise ValueError(
                "When setting values directly, both `mean` and `variance` must be set. "
                f"Received: mean={mean} and variance={variance}"
            )
        self.input_mean = None if mean is None else np.asarray(mean, float)
        self.input_variance = None if variance is None else np.asarray(variance, float)
        if np.shape(mean) != np.shape(variance) or np.ndim(mean) > len(self.axis):
            raise ValueError(
                "`mean` and `variance` must have equal shapes with at most "
                f"{len(self.axis)} axes, as `axis={axis}` says; got {np.shape(mean)} "
                f"and {np.shape(variance)}."
            )

    def build(self, input_shape: Any) -> None:
        ndim = len(input_shape)
        for axis in self.axis:
            if not -ndim <= axis < ndim:
                raise ValueError(
                    f"All `axis` values must be in the range [-{ndim}, {ndim}), as the "
                    f"input has shape {input_shape}. Received: axis={self.axis}"
                )
            if input_shape[axis] is None:
                raise ValueError(
                    "All `axis` values to be kept must have a known size: give it in "
                    f"`Input(shape)`. Received: axis={self.axis}, with an input of "
                    f"shape {input_shape}"
                )
        if self.input_mean is not None:
            return
        shape = tuple(input_shape[axis] for axis in self._kept_axes(len(input_shape)))
        self.adapt_mean = self.add_weight(shape, "zeros", trainable=False, name="mean")
        self.adapt_variance = self.add_weight(
            shape, "ones", trainable=False, name="variance"
        )
        self.count = self.add_weight(
            (), "zeros", dtype="int32", trainable=False, name="count"
        )

    def _kept_axes(self, ndim: int) -> list[int]:
        return sorted(axis % ndim for axis in self.axis)

    @property
    def mean(self) -> Any:
        """The mean that is subtracted; once built, with the axes of the inputs."""
        return self._spread(self._statistics()[0])

    @property
    def variance(self) -> Any:
        """The variance that is divided by the root of."""
        return self._spread(self._statistics()[1])

    def _statistics(self) -> tuple[Any, Any]:
        if self.input_mean is not None:
            return self.input_mean, self.input_variance
        return self.adapt_mean.value, self.adapt_variance.value

    def _spread(self, statistic: Any) -> Any:
        """Stretch a statistic over the axes that it is kept for."""
        shape = self._build_shape
        if shape is None:
            return statistic
        axes = self._kept_axes(len(shape))
        sizes = [n if axis in axes else 1 for axis, n in enumerate(shape)]
        return ops.broadcast_to(self._aligned(statistic, len(shape)), sizes)

    def adapt(self, data: Any) -> None:
        """Find mean and variance of an array, or of arrays from an iterable."""
        if self.input_mean is not None:
            raise ValueError(
                f'Layer "{self.name}" was given its mean and variance: nothing is left '
                "to adapt."
            )
        total, mean, variance = 0, np.zeros(()), np.zeros(())
        for batch in _batches(data):
            self.build_from_config({"input_shape": (None, *batch.shape[1:])})
            count, here, spread = self._moments(batch)
            total += count
            shift = here - mean
            mean = mean + shift * (count / total)
            weight = (total - count) / total
            variance = variance * weight + spread * (count / total)
            variance = variance + shift**2 * weight * (count / total)
        if not total:
            raise ValueError("`adapt` got no data: an empty iterable.")
        self.adapt_mean.assign(mean)
        self.adapt_variance.assign(variance)

    def _moments(self, batch: np.ndarray) -> tuple[int, np.ndarray, np.ndarray]:
        axes = self._kept_axes(batch.ndim)
        shape = tuple(batch.shape[axis] for axis in axes)
        if shape != self.adapt_mean.shape:
            raise ValueError(
                f"`adapt` got data with an incompatible shape, {batch.shape}: layer "
                f'"{self.name}" was built for {self.adapt_mean.shape} features.'
            )
        over = tuple(i for i in range(batch.ndim) if i not in axes)
        wide = np.asarray(batch, np.float64)
        count = math.prod(batch.shape[i] for i in over)
        return count, wide.mean(axis=over), wide.var(axis=over)

    def call(self, inputs: Any) -> Any:
        x = ops.cast(inputs, self.compute_dtype)
        mean, variance = (
            self._aligned(statistic, x.ndim) for statistic in self._statistics()
        )
        deviation = ops.maximum(ops.sqrt(variance), config.epsilon())
        return x * deviation + mean if self.invert else (x - mean) / deviation

    def _aligned(self, statistic: Any, ndim: int) -> Any:
        """Return a statistic with as many axes as the inputs."""
        axes = self._kept_axes(ndim)
        shape = [1] * ndim
        sizes = reversed(statistic.shape)
        for axis, size in zip(reversed(axes), sizes, strict=False):
            shape[axis] = size
        return ops.reshape(ops.cast(statistic, self.compute_dtype), shape)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments; adapted statistics are weights."""
        config = super().get_config()
        has_statistics = self.input_mean is not None
        config["mean"] = self.input_mean.tolist() if has_statistics else None  # type: ignore[union-attr]
        config["variance"] = self.input_variance.tolist() if has_statistics else None  # type: ignore[union-attr]
        return config


def _batches(data: Any) -> Iterator[np.ndarray]:
    if hasattr(data, "__array__"):
        yield np.asarray(data)
        return
    if not isinstance(data, Iterable):
        raise TypeError(f"`adapt` needs arrays, got {type(data).__name__}.")
    for batch in data:
        array = batch[0] if isinstance(batch, tuple) else batch
        if not hasattr(array, "shape"):
            raise TypeError(
                f"`adapt` needs an array or an iterable of arrays, not of "
                f"{type(array).__name__}, which has no `.shape`: wrap the data in "
                "np.array."
            )
        yield np.asarray(array)
