"""Layers that disturb their inputs in training: dropout and noise."""

from __future__ import annotations

from typing import Any

from ganglion import config, ops, random, regularizers
from ganglion.hyperparameters import Hyperparameter
from ganglion.layers.arguments import share, spatial_axes
from ganglion.layers.base import InputSpec, Layer

__all__ = [
    "ActivityRegularization", "AlphaDropout", "Dropout", "GaussianDropout",
    "GaussianNoise", "SpatialDropout1D", "SpatialDropout2D", "SpatialDropout3D",
]  # fmt: skip
from ganglion.serialization import export


class _Noise(Layer):
    """A layer with a random generator, used in training if there is any noise."""

    built_at_once = True
    keeps_shape = True

    seed: Any

    def _set_noise(self, amount: float, seed: Any) -> None:
        self.seed = seed
        self._is_noisy = amount > 0
        if self._is_noisy:
            self.seed_generator = random.SeedGenerator(seed)
        self.supports_masking = True

    def _follows_shape_rule(self) -> bool:
        return True

    def call(self, inputs: Any, training: Any = False) -> Any:
        return self._disturb(inputs) if training and self._is_noisy else inputs

    def _disturb(self, inputs: Any) -> Any:
        raise NotImplementedError


@export("keras.layers")
class Dropout(_Noise):
    """Sets a random share of its inputs to zero and scales up the others.

    >>> import numpy as np
    >>> x = np.ones(4, "float32")
    >>> Dropout(0.5)(x)
    array([1., 1., 1., 1.], dtype=float32)
    >>> set(Dropout(0.5)(x, training=True).tolist()) <= {0.0, 2.0}
    True
    """

    rate = Hyperparameter()

    def __init__(
        self, rate: float, noise_shape: Any = None, seed: Any = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.rate = share(rate, "rate")
        self.noise_shape = _noise_shape(noise_shape)
        self._set_noise(rate, seed)

    def _get_noise_shape(self, inputs: Any) -> Any:
        """Return the shape of the noise, for layers derived as in Keras 2."""
        if self.noise_shape is None:
            return None
        sizes = zip(self.noise_shape, ops.shape(inputs), strict=True)
        return tuple(own or size for own, size in sizes)

    def _disturb(self, inputs: Any) -> Any:
        return _dropped(self, inputs, self.noise_shape)


def _dropped(layer: Any, inputs: Any, noise_shape: Any) -> Any:
    if layer.rate == 1:
        return ops.zeros_like(inputs)
    return random.dropout(
        inputs, layer.rate, noise_shape=noise_shape, seed=layer.seed_generator
    )


def _noise_shape(value: Any) -> tuple[int | None, ...] | None:
    if value is None:
        return None
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        expected = "a tuple or list of integers"
    elif any(n is not None and not isinstance(n, int) for n in value):
        expected = "all elements to be integers or None"
    elif any(n is not None and n < 1 for n in value):
        expected = "all dimensions to be positive integers or None"
    else:
        return tuple(value)
    raise ValueError(
        f"Invalid value received for argument `noise_shape`. Expected {expected}. "
        f"Received: noise_shape={value!r}"
    )


class _SpatialDropout(Dropout):
    """Dropout of entire channels, at all positions at once."""

    rank = 0

    def __init__(
        self,
        rate: float,
        data_format: str | None = None,
        seed: Any = None,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(rate, seed=seed, name=name, dtype=dtype)
        self.data_format = config.data_format_of(data_format)
        self.input_spec = InputSpec(ndim=self.rank + 2)

    def _disturb(self, inputs: Any) -> Any:
        axes = spatial_axes(self.data_format, self.rank)
        noise_shape = [1 if axis in axes else None for axis in range(inputs.ndim)]
        return _dropped(self, inputs, noise_shape)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments; in Keras they include no `trainable` and no policy."""
        config = super().get_config() | {"dtype": self.dtype}
        return {k: v for k, v in config.items() if k != "trainable"}


@export("keras.layers")
class SpatialDropout1D(_SpatialDropout):
    """Dropout of entire channels over steps.

    >>> import numpy as np
    >>> x = SpatialDropout1D(0.5, seed=1)(np.ones((1, 3, 4)), training=True)
    >>> x.numpy()[0].std(axis=0)
    array([0., 0., 0., 0.], dtype=float32)
    """

    rank = 1

    def __init__(
        self, rate: float, seed: Any = None, name: str | None = None, dtype: Any = None
    ) -> None:
        super().__init__(rate, "channels_last", seed, name, dtype)


@export("keras.layers")
class SpatialDropout2D(_SpatialDropout):
    """Dropout of entire channels of images.

    >>> import numpy as np
    >>> x = SpatialDropout2D(0.5, seed=1)(np.ones((1, 2, 2, 4)), training=True)
    >>> x.numpy()[0].std(axis=(0, 1))
    array([0., 0., 0., 0.], dtype=float32)
    """

    rank = 2


@export("keras.layers")
class SpatialDropout3D(_SpatialDropout):
    """Dropout of entire channels of volumes.

    >>> import numpy as np
    >>> x = SpatialDropout3D(0.5, seed=1)(np.ones((1, 2, 2, 2, 4)), training=True)
    >>> x.numpy()[0].std(axis=(0, 1, 2))
    array([0., 0., 0., 0.], dtype=float32)
    """

    rank = 3


@export("keras.layers")
class GaussianNoise(_Noise):
    """Adds normal noise.

    >>> import numpy as np
    >>> layer, x = GaussianNoise(0.1, seed=1), np.ones((1, 4))
    >>> layer(x).numpy(), bool((layer(x, training=True) == x).numpy().all())
    (array([[1., 1., 1., 1.]], dtype=float32), False)
    """

    stddev = Hyperparameter()

    def __init__(self, stddev: float, seed: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.stddev = share(stddev, "stddev")
        self._set_noise(stddev, seed)

    def _disturb(self, inputs: Any) -> Any:
        noise = random.normal(
            inputs.shape,
            0.0,
            self.stddev,
            self.compute_dtype,
            self.seed_generator,
        )
        return inputs + noise


@export("keras.layers")
class GaussianDropout(_Noise):
    """Multiplies with normal noise around 1, of the variance dropout would have.

    >>> import numpy as np
    >>> layer, x = GaussianDropout(0.5, seed=1), np.ones((1, 4))
    >>> layer(x).numpy(), bool((layer(x, training=True) == x).numpy().all())
    (array([[1., 1., 1., 1.]], dtype=float32), False)
    """

    rate = Hyperparameter()

    def __init__(self, rate: float, seed: Any = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.rate = share(rate, "rate")
        if rate == 1:
            raise ValueError("`rate` of GaussianDropout must be below 1.")
        self._set_noise(rate, seed)

    def _disturb(self, inputs: Any) -> Any:
        spread = (self.rate / (1.0 - self.rate)) ** 0.5
        noise = random.normal(
            inputs.shape, 1.0, spread, self.compute_dtype, self.seed_generator
        )
        return inputs * noise


# Where SELU goes for very negative inputs: -scale alpha.
_SELU_FLOOR = -1.6732632423543772 * 1.0507009873554805


@export("keras.layers")
class AlphaDropout(_Noise):
    """Dropout that keeps mean and variance, for networks of SELU.

    >>> import numpy as np
    >>> layer, x = AlphaDropout(0.5, seed=1), np.ones((1, 4))
    >>> layer(x).numpy(), bool((layer(x, training=True) == x).numpy().all())
    (array([[1., 1., 1., 1.]], dtype=float32), False)
    """

    rate = Hyperparameter()

    def __init__(
        self, rate: float, noise_shape: Any = None, seed: Any = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.rate = share(rate, "rate")
        if rate == 1:
            raise ValueError("`rate` of AlphaDropout must be below 1.")
        self.noise_shape = _noise_shape(noise_shape)
        self._set_noise(rate, seed)

    def _disturb(self, inputs: Any) -> Any:
        rate = self.rate
        noise_shape = self.noise_shape or (None,) * inputs.ndim
        shape = [
            n if m is None else m
            for n, m in zip(inputs.shape, noise_shape, strict=True)
        ]
        drawn = random.uniform(shape, dtype=inputs.dtype, seed=self.seed_generator)
        mixed = ops.where(drawn >= rate, inputs, _SELU_FLOOR)
        scale = ((1 - rate) * (1 + rate * _SELU_FLOOR**2)) ** -0.5
        return mixed * scale - scale * _SELU_FLOOR * rate


@export("keras.layers")
class ActivityRegularization(Layer):
    """Returns its inputs and adds a loss that keeps them small.

    >>> import numpy as np
    >>> layer = ActivityRegularization(l1=0.1)
    >>> x = layer(np.array([[1.0, -2.0]]))
    >>> [round(float(loss), 2) for loss in layer.losses]
    [0.3]
    """

    built_at_once = True
    keeps_shape = True

    def __init__(self, l1: float = 0.0, l2: float = 0.0, **kwargs: Any) -> None:
        super().__init__(activity_regularizer=regularizers.L1L2(l1=l1, l2=l2), **kwargs)
        self.l1, self.l2 = l1, l2
        self.supports_masking = True

    def call(self, inputs: Any) -> Any:
        return inputs
