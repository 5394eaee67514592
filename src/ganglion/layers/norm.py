"""Normalisation: over the batch, or of each sample by itself."""

from __future__ import annotations

from typing import Any

from ganglion import config, ops
from ganglion.layers.arguments import keep, known_size, positive, weight
from ganglion.layers.base import InputSpec, Layer
from ganglion.layers.renorm import Renormalized, checked_clipping
from ganglion.ops.dispatch import result_type
from ganglion.serialization import export
from ganglion.tensors import check_mask
from ganglion.variables import current_scope

__all__ = [
    "BatchNormalization", "GroupNormalization", "LayerNormalization",
    "RMSNormalization", "UnitNormalization",
]  # fmt: skip


def unit_length(x: Any, axis: Any, epsilon: float) -> Any:
    """Scale to unit length over axes; a zero vector stays zero and has a gradient."""
    squares = ops.sum(ops.square(x), axis=axis, keepdims=True)
    return x / ops.sqrt(ops.maximum(squares, epsilon * epsilon))


def _axis_of(axis: Any) -> int | list[int]:
    if isinstance(axis, int) and not isinstance(axis, bool):
        return axis
    if isinstance(axis, (list, tuple)) and all(isinstance(n, int) for n in axis):
        return list(axis)
    raise TypeError(
        "Invalid value for `axis` argument. Expected an int or a list/tuple of ints "
        f"for the argument 'axis', but received: {axis!r}"
    )


def _axes(axis: int | list[int], ndim: int) -> list[int]:
    axes = [axis] if isinstance(axis, int) else axis
    return sorted(n % ndim for n in axes)


def _sizes(layer: Layer, axis: int | list[int], shape: Any) -> dict[int, int]:
    """Return the axes to normalise over and their sizes, which must be known."""
    for n in [axis] if isinstance(axis, int) else axis:
        known_size(layer, shape, n)
    return {n: shape[n] for n in _axes(axis, len(shape))}


def _spec(axis: int | list[int], shape: Any) -> InputSpec:
    """Return what fits: axes counted from the end are there for any number of axes."""
    axes = [axis] if isinstance(axis, int) else axis
    sizes = {n: shape[n] for n in axes}
    are_mixed = any(n < 0 for n in axes) and any(n >= 0 for n in axes)
    return InputSpec(ndim=len(shape) if are_mixed else None, axes=sizes)


def _along(sizes: list[int], axes: list[int], ndim: int) -> list[int]:
    """Return the shape that lets a weight over some axes meet the inputs."""
    shape = [1] * ndim
    for axis, size in zip(axes, sizes, strict=True):
        shape[axis] = size
    return shape


def _wide(layer: Layer, inputs: Any) -> Any:
    """Return inputs in the type that sums of squares are taken in."""
    return ops.cast(inputs, result_type(layer.compute_dtype, "float32"))


class _Scaled(Layer):
    """A normalisation with the optional weights gamma and beta."""

    keeps_shape = True
    gamma: Any
    beta: Any
    center: bool
    scale: bool
    epsilon: float

    def _keep(self, scope: dict[str, Any]) -> None:
        keep(self, scope)
        self.supports_masking = True

    def _make_weights(self, shape: tuple[int, ...], only_gamma: bool = False) -> None:
        # Read as they are: normalising computes in float32 at least.
        wanted = {"gamma": self.scale or only_gamma, "beta": self.center}
        if only_gamma:
            wanted["beta"] = False
        for name, is_wanted in wanted.items():
            own = weight(self, name, shape, autocast=False) if is_wanted else None
            setattr(self, name, own)

    def _normalise(self, x: Any, over: list[int], along: list[int]) -> Any:
        mean, variance = ops.moments(x, over, keepdims=True)
        # Divided once a sample: gamma has other axes, and goes through all of them.
        outputs = (x - mean) * (1.0 / ops.sqrt(variance + self.epsilon))
        if self.gamma is not None:
            outputs = outputs * ops.reshape(self.gamma, along)
        return self._shifted(outputs, along)

    def _scaled(self, x: Any, mean: Any, variance: Any, along: list[int]) -> Any:
        gamma = 1.0 if self.gamma is None else ops.reshape(self.gamma, along)
        outputs = (x - mean) * (gamma / ops.sqrt(variance + self.epsilon))
        return self._shifted(outputs, along)

    def _shifted(self, outputs: Any, along: list[int]) -> Any:
        if self.beta is None:
            return outputs
        return outputs + ops.reshape(self.beta, along)


@export("keras.layers")
class LayerNormalization(_Scaled):
    """Mean 0 and variance 1 over the last axis of each sample (or other axes).

    >>> import numpy as np
    >>> LayerNormalization()(np.array([[1.0, 3.0]], "float32")).round(3)
    array([[-1.,  1.]], dtype=float32)
    """

    def __init__(
        self,
        axis: Any = -1,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        beta_regularizer: Any = None,
        gamma_regularizer: Any = None,
        beta_constraint: Any = None,
        gamma_constraint: Any = None,
        **kwargs: Any,
    ) -> None:
        self._init_values.pop("rms_scaling", None)
        self.rms_scaling = bool(kwargs.pop("rms_scaling", False))
        super().__init__(**kwargs)
        self._keep(locals())
        self.axis = _axis_of(axis)
        self.autocast = False  # inputs may be beyond what the outputs can be

    def build(self, input_shape: Any) -> None:
        sizes = _sizes(self, self.axis, input_shape)
        # An old option: scaled by the deviation, and neither centred nor shifted.
        self._make_weights(tuple(sizes.values()), only_gamma=self.rms_scaling)
        self.input_spec = _spec(self.axis, input_shape)

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"rms_scaling": self.rms_scaling}

    def call(self, inputs: Any) -> Any:
        x = _wide(self, inputs)
        axes = _axes(self.axis, x.ndim)
        along = _along([x.shape[axis] for axis in axes], axes, x.ndim)
        if self.rms_scaling:
            variance = ops.var(x, axis=axes, keepdims=True)
            outputs = self._scaled(x, 0.0, variance, along)
        else:
            outputs = self._normalise(x, axes, along)
        return ops.cast(outputs, self.compute_dtype)


@export("keras.layers")
class GroupNormalization(_Scaled):
    """Mean 0 and variance 1 over each group of channels of a sample.

    >>> import numpy as np
    >>> GroupNormalization(groups=2)(np.ones((2, 3, 4))).shape
    (2, 3, 4)
    """

    def __init__(
        self,
        groups: int = 32,
        axis: int = -1,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Any = "zeros",
        gamma_initializer: Any = "ones",
        beta_regularizer: Any = None,
        gamma_regularizer: Any = None,
        beta_constraint: Any = None,
        gamma_constraint: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._keep(locals())
        self.groups = -1 if groups == -1 else positive(groups, "groups")
        self.axis = int(axis)
        self.autocast = False  # inputs may be beyond what the outputs can be

    def build(self, input_shape: Any) -> None:
        """Make gamma and beta for each channel; groups=-1 means as many as channels."""
        channels = known_size(self, input_shape, self.axis)
        self.groups = channels if self.groups == -1 else self.groups
        if self.groups > channels:
            raise ValueError(
                f'Layer "{self.name}": the number of groups ({self.groups}) cannot be '
                f"more than the number of channels ({channels})."
            )
        if channels % self.groups:
            raise ValueError(
                f'Layer "{self.name}": {channels} channels cannot be divided into '
                f"{self.groups} groups; choose a divisor of {channels}."
            )
        self._make_weights((channels,))
        self.input_spec = InputSpec(ndim=len(input_shape), axes={self.axis: channels})

    def call(self, inputs: Any) -> Any:
        x = _wide(self, inputs)
        axis = self.axis % x.ndim
        each = x.shape[axis] // self.groups
        split = (*x.shape[:axis], self.groups, each, *x.shape[axis + 1 :])
        over = [i for i in range(1, len(split)) if i != axis]
        along = _along([self.groups, each], [axis, axis + 1], len(split))
        outputs = self._normalise(ops.reshape(x, split), over, along)
        return ops.cast(ops.reshape(outputs, x.shape), self.compute_dtype)


@export("keras.layers")
class UnitNormalization(Layer):
    """Scales each sample to unit length along an axis.

    >>> import numpy as np
    >>> UnitNormalization()(np.array([[3.0, 4.0]])).numpy()
    array([[0.6, 0.8]], dtype=float32)
    """

    built_at_once = True
    keeps_shape = True

    def __init__(self, axis: Any = -1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.axis = _axis_of(axis)
        self.supports_masking = True

    def call(self, inputs: Any) -> Any:
        outputs = unit_length(_wide(self, inputs), self.axis, 1e-12)
        return ops.cast(outputs, self.compute_dtype)


@export("keras.layers")
class RMSNormalization(Layer):
    """Divides by the root of the mean square, then scales by a weight.

    >>> import numpy as np
    >>> RMSNormalization()(np.array([[3.0, 4.0]])).numpy().round(3)
    array([[0.849, 1.131]], dtype=float32)
    """

    keeps_shape = True

    def __init__(self, axis: Any = -1, epsilon: float = 1e-6, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.axis = _axis_of(axis)
        self.epsilon = epsilon

    def build(self, input_shape: Any) -> None:
        sizes = _sizes(self, self.axis, input_shape)
        self.scale = self.add_weight(tuple(sizes.values()), "ones", name="scale")
        self.input_spec = _spec(self.axis, input_shape)

    def call(self, inputs: Any) -> Any:
        x = _wide(self, inputs)
        axes = _axes(self.axis, x.ndim)
        along = _along([x.shape[axis] for axis in axes], axes, x.ndim)
        mean_square = ops.mean(ops.square(x), axis=axes, keepdims=True)
        gain = ops.reshape(self.scale, along) / ops.sqrt(mean_square + self.epsilon)
        return ops.cast(x * gain, self.compute_dtype)


@export("keras.layers")
class BatchNormalization(_Scaled, Renormalized):
    """Normalises each channel by the batch; in inference by moving averages.

    A frozen layer (``trainable = False``) always works as in inference. A model runs on
    one device: `synchronized` statistics are those of the batch there.

    >>> import numpy as np
    >>> layer = BatchNormalization()
    >>> layer(np.array([[0.0], [2.0]], "float32"), training=True).round(3).ravel()
    array([-1.,  1.], dtype=float32)
    >>> layer.moving_mean.numpy().round(3)
    array([0.01], dtype=float32)
    """

    renorm: bool

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
        self._keep(locals())
        if isinstance(axis, (list, tuple)) and len(axis) == 1:
            axis = axis[0]  # Keras 2 wrote its files so
        self.axis = int(axis)
        self.momentum, self.epsilon = float(momentum), float(epsilon)
        if renorm:
            self.renorm_clipping = checked_clipping(renorm_clipping)

    def build(self, input_shape: Any) -> None:
        size = known_size(self, input_shape, self.axis)
        self._make_weights((size,))
        self.moving_mean = self.add_weight(
            (size,),
            self.moving_mean_initializer,
            trainable=False,
            autocast=False,
            name="moving_mean",
        )
        self.moving_variance = self.add_weight(
            (size,),
            self.moving_variance_initializer,
            trainable=False,
            autocast=False,
            name="moving_variance",
        )
        if self.renorm:
            self._make_renorm_weights(size)
        self.input_spec = InputSpec(ndim=len(input_shape), axes={self.axis: size})

    def _follows_shape_rule(self) -> bool:
        return True

    def call(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        """Normalise; in training by this batch, which also moves the averages."""
        x = _wide(self, inputs)
        along = [1] * x.ndim
        along[self.axis] = x.shape[self.axis]
        if training and self._is_trained():
            mean, variance = self._statistics(x, mask)
            if self.renorm:
                outputs = self._renormalised(x, mean, variance, along)
                return ops.cast(outputs, self.compute_dtype)
            self._move(self.moving_mean, mean)
            self._move(self.moving_variance, variance)
        else:
            mean = ops.reshape(self.moving_mean, along)
            variance = ops.reshape(self.moving_variance, along)
        outputs = self._scaled(x, mean, variance, along)
        return ops.cast(outputs, self.compute_dtype)

    def _renormalised(self, x: Any, mean: Any, variance: Any, along: Any) -> Any:
        scale, shift = self._corrections(mean, variance)
        self._move_all(mean, variance)
        outputs = (x - mean) * (scale / ops.sqrt(variance + self.epsilon)) + shift
        if self.gamma is not None:
            outputs = outputs * ops.reshape(self.gamma, along)
        return self._shifted(outputs, along)

    def _statistics(self, x: Any, mask: Any) -> tuple[Any, Any]:
        """Return mean and biased variance over all axes but ours, with ones there."""
        axes = [i for i in range(x.ndim) if i != self.axis % x.ndim]
        if mask is None:
            return ops.moments(x, axes, keepdims=True)
        check_mask(f'Layer "{self.name}"', mask, x, ndim=x.ndim - 1, stretches=True)
        is_valid = ops.broadcast_to(ops.expand_dims(ops.cast(mask, bool), -1), x.shape)
        count = (
            ops.sum(ops.cast(is_valid, x.dtype), axes, keepdims=True) + config.epsilon()
        )
        mean = ops.sum(ops.where(is_valid, x, 0.0), axes, keepdims=True) / count
        squares = ops.where(is_valid, ops.square(x - mean), 0.0)
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
        own = [weight for weight in (self.gamma, self.beta) if weight is not None]
        if scope is None or scope.trainable is None or not own:
            return self.trainable
        return any(weight in scope.trainable for weight in own)
