"""Constraints: what a weight must fulfil after each update."""

from __future__ import annotations

from typing import Any

from ganglion import config, ops
from ganglion.serialization import (
    Configured,
    custom_object_scope,
    export,
    resolve,
    serialize_keras_object,
)


class Constraint(Configured):
    """Base class: called on a weight, returns the nearest allowed one.

    Without a `__call__` of its own, as in Keras, every weight is allowed.

    >>> class AtMostOne(Constraint):
    ...     def __call__(self, w):
    ...         return ops.minimum(w, 1.0)
    >>> AtMostOne()([0.5, 3.0]).numpy()
    array([0.5, 1. ], dtype=float32)
    """

    def __call__(self, w: Any) -> Any:
        """Return the allowed weight."""
        return w


def _length(w: Any, axis: Any) -> Any:
    return ops.sqrt(ops.sum(ops.square(w), axis=axis, keepdims=True))


@export("keras.constraints", "max_norm", "maxnorm")
class MaxNorm(Constraint):
    """Each unit's weights have at most this length.

    >>> MaxNorm(1.0)([[3.0], [4.0]]).numpy().ravel().round(2)
    array([0.6, 0.8])
    """

    def __init__(self, max_value: float = 2, axis: Any = 0) -> None:
        self.max_value, self.axis = max_value, axis

    def __call__(self, w: Any) -> Any:
        length = _length(w, self.axis)
        allowed = ops.clip(length, 0.0, float(self.max_value))
        return w * (allowed / (config.epsilon() + length))


@export("keras.constraints", "non_neg", "nonneg")
class NonNeg(Constraint):
    """No weight is negative.

    >>> NonNeg()([-1.0, 2.0]).numpy()
    array([0., 2.], dtype=float32)
    """

    def __init__(self) -> None:
        pass

    def __call__(self, w: Any) -> Any:
        return ops.maximum(w, 0.0)


@export("keras.constraints", "unit_norm", "unitnorm")
class UnitNorm(Constraint):
    """Each unit's weights have length one.

    >>> UnitNorm()([[3.0], [4.0]]).numpy().ravel().round(2)
    array([0.6, 0.8])
    """

    def __init__(self, axis: Any = 0) -> None:
        self.axis = axis

    def __call__(self, w: Any) -> Any:
        return w / (config.epsilon() + _length(w, self.axis))


@export("keras.constraints", "min_max_norm")
class MinMaxNorm(Constraint):
    """Each unit's weights have a length between two bounds.

    >>> MinMaxNorm(0.0, 2.0)([[3.0], [4.0]]).numpy().ravel().round(2)
    array([1.2, 1.6])
    """

    def __init__(
        self,
        min_value: float = 0.0,
        max_value: float = 1.0,
        rate: float = 1.0,
        axis: Any = 0,
    ) -> None:
        self.min_value, self.max_value = min_value, max_value
        self.rate, self.axis = rate, axis

    def __call__(self, w: Any) -> Any:
        length = _length(w, self.axis)
        allowed = ops.clip(length, float(self.min_value), float(self.max_value))
        wanted = self.rate * allowed + (1.0 - self.rate) * length
        return w * (wanted / (config.epsilon() + length))


max_norm, non_neg, unit_norm, min_max_norm = MaxNorm, NonNeg, UnitNorm, MinMaxNorm


def get(identifier: Any) -> Any:
    """Return the constraint that a name, configuration or object means."""
    return resolve("keras.constraints", identifier, "constraint")


def serialize(constraint: Any) -> Any:
    """Return plain data that rebuilds a constraint."""
    return serialize_keras_object(constraint)


def deserialize(config: Any, custom_objects: dict[str, Any] | None = None) -> Any:
    """Return the constraint that plain data describes."""
    with custom_object_scope(custom_objects or {}):
        return get(config)
