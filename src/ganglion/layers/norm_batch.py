"""BatchNormalization: mean 0 and variance 1 over the batch, averages for later."""

from __future__ import annotations

from typing import Any

from ganglion import config, ops
from ganglion.layers.arguments import keep, known_size, refuse, weight
from ganglion.layers.base import Layer
from ganglion.layers.inputspec import InputSpec
from ganglion.serialization import export
from ganglion.variables import current_scope


@export("keras.layers")
class BatchNormalization(Layer):
    """Normalises each channel by the batch; in inference by moving averages.

    A frozen layer (``trainable = False``) always works as in inference.

    >>> import numpy as np
    >>> layer = BatchNormalization()
    >>> layer(np.array([[0.0], [2.0]], "float32"), training=True).round(3).ravel()
    array([-1.,  1.], dtype=float32)
    >>> layer.moving_mean.numpy().round(3)
    array([0.01], dtype=float32)
    """

    def __init__(
        self,
        axis: int = -1,
        momentum: float = 0.99,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        moving_mean_initializer: Any = "zeros",
        moving_variance_initializer: Any = "ones",
        beta_regularizer: Any = None,
        gamma_regularizer: Any = None,
        beta_constraint: Any = None,
        gamma_constraint: Any = None,
        renorm: bool = False,
        renorm_clipping: Any = None,
        renorm_momentum: float = 0.99,
        synchronized: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if isinstance(axis, (list, tuple)) and len(axis) == 1:
            axis = axis[0]  # Keras 2 wrote its files so
        self.axis = int(axis)
        self.momentum, self.epsilon = float(momentum), float(epsilon)
        self.center, self.scale = center, scale
        self.moving_mean_initializer: Any
        self.moving_variance_initializer: Any
        keep(
            self,
            beta_initializer=beta_initializer,
            gamma_initializer=gamma_initializer,
            moving_mean_initializer=moving_mean_initializer,
            moving_variance_initializer=moving_variance_initializer,
            beta_regularizer=beta_regularizer,
            gamma_regularizer=gamma_regularizer,
            beta_constraint=beta_constraint,
            gamma_constraint=gamma_constraint,
        )
        refuse(
            self,
            "use plain batch statistics.",
            renorm=renorm,
            synchronized=synchronized,
        )
        refuse(self, "it belongs to `renorm`.", renorm_clipping=renorm_clipping)
        self.renorm_momentum = renorm_momentum
        self.supports_masking = True

    def build(self, input_shape: Any) -> None:
        size = known_size(self, input_shape, self.axis)
        self.gamma = weight(self, "gamma", (size,)) if self.scale else None
        self.beta = weight(self, "beta", (size,)) if self.center else None
        self.moving_mean = self.add_weight(
            (size,), self.moving_mean_initializer, trainable=False, name="moving_mean"
        )
        self.moving_variance = self.add_weight(
            (size,),
            self.moving_variance_initializer,
            trainable=False,
            name="moving_variance",
        )
        self.input_spec = InputSpec(ndim=len(input_shape), axes={self.axis: size})

    def call(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        """Normalise; in training by this batch, which also moves the averages."""
        x = ops.cast(inputs, self.dtype)
        along = [1] * x.ndim
        along[self.axis] = x.shape[self.axis]
        if training and self._is_trained():
            mean, variance = self._statistics(x, mask)
            self._move(self.moving_mean, mean)
            self._move(self.moving_variance, variance)
        else:
            mean = ops.reshape(self.moving_mean, along)
            variance = ops.reshape(self.moving_variance, along)
        gamma = 1.0 if self.gamma is None else ops.reshape(self.gamma, along)
        outputs = (x - mean) * (gamma / ops.sqrt(variance + self.epsilon))
        if self.beta is not None:
            outputs = outputs + ops.reshape(self.beta, along)
        return outputs

    def _statistics(self, x: Any, mask: Any) -> tuple[Any, Any]:
        """Return mean and biased variance over all axes but ours, with ones there."""
        axes = [i for i in range(x.ndim) if i != self.axis % x.ndim]
        if mask is None:
            mean, variance = ops.moments(x, axes, keepdims=True)
            return mean, variance
        kept = ops.broadcast_to(ops.expand_dims(ops.cast(mask, bool), -1), x.shape)
        count = ops.sum(ops.cast(kept, x.dtype), axes, keepdims=True) + config.epsilon()
        mean = ops.sum(ops.where(kept, x, 0.0), axes, keepdims=True) / count
        squares = ops.where(kept, ops.square(x - mean), 0.0)
        return mean, ops.sum(squares, axes, keepdims=True) / count

    def _move(self, average: Any, new: Any) -> None:
        flat = ops.reshape(new, average.shape)
        average.assign(average * self.momentum + flat * (1.0 - self.momentum))

    def _is_trained(self) -> bool:
        """Return whether the model in training trains this layer.

        What counts is what was trainable when that model was compiled: a
        discriminator frozen afterwards, for the model around it, still trains.
        """
        scope = current_scope()
        if scope is None or scope.trainable is None:
            return self.trainable
        own = [one for one in (self.gamma, self.beta) if one is not None]
        if not own:
            return self.trainable
        return any(one in scope.trainable for one in own)
