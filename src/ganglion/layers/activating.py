"""Activations that have their own arguments or weights."""

from __future__ import annotations

from typing import Any

from ganglion import activations, keras2, ops
from ganglion.layers.arguments import keep, known_size, weight
from ganglion.layers.base import InputSpec, Layer

__all__ = [
    "ELU", "LeakyReLU", "PReLU", "ReLU", "Softmax", "ThresholdedReLU",
]  # fmt: skip
from ganglion.serialization import export


def _not_negative(value: Any, name: str, of: str = "of a ReLU layer") -> float:
    if not isinstance(value, (int, float)) or value < 0:
        raise ValueError(
            f"The {name} {of} cannot be None or a negative value. Received: "
            f"{name}={value!r}"
        )
    return value


@export("keras.layers")
class ReLU(Layer):
    """max(x, 0), with an optional slope, limit and threshold.

    >>> import numpy as np
    >>> ReLU(max_value=6.0)(np.array([-1.0, 2.0, 9.0])).numpy()
    array([0., 2., 6.], dtype=float32)
    """

    built_at_once = True
    keeps_shape = True

    def __init__(
        self,
        max_value: float | None = None,
        negative_slope: float = 0.0,
        threshold: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if max_value is not None and max_value < 0:
            raise ValueError(
                "The max_value of a ReLU layer cannot be a negative value. Received: "
                f"max_value={max_value!r}"
            )
        self.max_value = max_value
        self.negative_slope = _not_negative(negative_slope, "negative_slope")
        self.threshold = _not_negative(threshold, "threshold")
        self.supports_masking = True

    def _follows_shape_rule(self) -> bool:
        return True

    def call(self, inputs: Any) -> Any:
        return activations.relu(
            inputs, self.negative_slope, self.max_value, self.threshold
        )


@export("keras.layers")
class LeakyReLU(Layer):
    """x where it is positive, else a fraction of it.

    >>> import numpy as np
    >>> LeakyReLU(0.5)(np.array([-2.0, 2.0], "float32"))
    array([-1.,  2.], dtype=float32)
    """

    built_at_once = True
    keeps_shape = True

    def __init__(self, negative_slope: float = 0.3, **kwargs: Any) -> None:
        if "alpha" in kwargs:
            # Keras 3 accepts it too, so it does not make this a Keras 2 script.
            keras2.note(
                "`LeakyReLU(alpha=)`",
                "`LeakyReLU(negative_slope=)`",
                changes_defaults=False,
            )
            negative_slope = kwargs.pop("alpha")
            self._init_values.pop("alpha", None)
        super().__init__(**kwargs)
        self.negative_slope = _not_negative(
            negative_slope, "negative_slope", "value of a Leaky ReLU layer"
        )
        self.supports_masking = True

    def _follows_shape_rule(self) -> bool:
        return True

    def call(self, inputs: Any) -> Any:
        return activations.leaky_relu(inputs, float(self.negative_slope))


@export("keras.layers")
class PReLU(Layer):
    """x where it is positive, else a learned fraction of it.

    >>> import numpy as np
    >>> PReLU(alpha_initializer="ones")(np.array([[-1.0, 2.0]])).numpy()
    array([[-1.,  2.]], dtype=float32)
    """

    keeps_shape = True

    def __init__(
        self,
        alpha_initializer: Any = "Zeros",
        alpha_regularizer: Any = None,
        alpha_constraint: Any = None,
        shared_axes: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        keep(self, locals())
        is_number = isinstance(shared_axes, int)
        self.shared_axes = [shared_axes] if is_number else shared_axes
        self.supports_masking = True

    def build(self, input_shape: Any) -> None:
        ndim = len(input_shape)
        for axis in self.shared_axes or ():
            if not -ndim < axis < ndim or axis == 0:
                raise ValueError(
                    f'Layer "{self.name}": `shared_axes` names axis {axis}, but the '
                    f"input has shape {tuple(input_shape)}; use 1 to {ndim - 1}."
                )
        shared = {axis % ndim for axis in self.shared_axes or ()}
        own = [axis for axis in range(1, ndim) if axis not in shared]
        sizes = {axis: known_size(self, input_shape, axis) for axis in own}
        self.alpha = weight(self, "alpha", [sizes.get(i, 1) for i in range(1, ndim)])
        self.input_spec = InputSpec(ndim=ndim, axes=sizes)

    def call(self, inputs: Any) -> Any:
        return ops.relu(inputs) - self.alpha * ops.relu(-inputs)


@export("keras.layers")
class ELU(Layer):
    """x where it is positive, else alpha (exp(x) - 1).

    >>> import numpy as np
    >>> ELU()(np.array([-1.0, 2.0])).numpy().round(2)
    array([-0.63,  2.  ], dtype=float32)
    """

    built_at_once = True
    keeps_shape = True

    def __init__(self, alpha: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.alpha = alpha
        self.supports_masking = True

    def call(self, inputs: Any) -> Any:
        return activations.elu(inputs, alpha=self.alpha)


@export("keras.layers")
class Softmax(Layer):
    """exp(x) over its sum along an axis.

    >>> import numpy as np
    >>> Softmax()(np.array([1.0, 2.0, 1.0])).numpy().round(2)
    array([0.21, 0.58, 0.21], dtype=float32)
    """

    built_at_once = True
    keeps_shape = True

    def __init__(self, axis: Any = -1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.axis = axis
        self.supports_masking = True

    def call(self, inputs: Any, mask: Any = None) -> Any:
        """Activate; where a mask is false, the result is zero."""
        if mask is None:
            return ops.softmax(inputs, axis=self.axis)
        _check_mask(ops.shape(mask), ops.shape(inputs))
        is_bool = ops.dtype(mask) == "bool"
        is_valid = mask if is_bool else ops.greater(mask, 0.5)  # as in Keras
        outputs = ops.softmax(ops.where(is_valid, inputs, -1e9), axis=self.axis)
        return ops.where(is_valid, outputs, 0.0)


def _check_mask(mask: tuple[Any, ...], inputs: tuple[Any, ...]) -> None:
    """Refuse a mask that would stretch the inputs."""
    pairs = zip(mask[::-1], inputs[::-1], strict=False)
    if len(mask) > len(inputs):
        reason = "it must not have more dimensions than the inputs"
    elif any(n not in (1, size) for n, size in pairs):
        reason = "it must be broadcastable to them, each size equal or 1"
    else:
        return
    raise ValueError(
        f"Softmax: a mask of shape {mask} does not fit inputs of shape {inputs}: "
        f"{reason}."
    )


@export("keras.layers")
class ThresholdedReLU(Layer):
    """x where it is above theta, else 0 (Keras 2; today `ReLU(threshold=theta)`).

    >>> import numpy as np
    >>> ThresholdedReLU(theta=1.0)(np.array([0.5, 2.0])).numpy()
    array([0., 2.], dtype=float32)
    """

    built_at_once = True
    keeps_shape = True

    def __init__(self, theta: float = 1.0, **kwargs: Any) -> None:
        keras2.note("`ThresholdedReLU`", "`ReLU(threshold=)`")
        super().__init__(**kwargs)
        self.theta = _not_negative(theta, "theta")
        self.supports_masking = True

    def call(self, inputs: Any) -> Any:
        return activations.relu(inputs, threshold=float(self.theta))
