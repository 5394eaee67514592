"""Regularizers: a loss that keeps weights small."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

from ganglion import keras2, ops
from ganglion.hyperparameters import Hyperparameter
from ganglion.serialization import (
    Configured,
    custom_object_scope,
    export,
    resolve,
    serialize_keras_object,
)


class Regularizer(Configured):
    """Base class: called on a weight, returns a scalar loss.

    >>> class Largest(Regularizer):
    ...     def __call__(self, x):
    ...         return ops.max(ops.abs(x))
    >>> float(Largest()([1.0, -3.0]))
    3.0
    """

    def __call__(self, x: Any) -> Any:
        """Return the loss of a weight."""
        raise NotImplementedError


def _strength(name: str, value: Any) -> float:
    if not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
        raise ValueError(
            f"Invalid value for argument {name}: expected a non-negative float. "
            f"Received: {name}={value!r}"
        )
    return float(value)


def _or_called_l(init: Callable[..., None]) -> Callable[..., None]:
    """Let the `__init__` of `L1` or `L2` take Keras 2's name of its argument, too."""
    name = next(name for name in inspect.signature(init).parameters if name != "self")

    @functools.wraps(init)
    def initialize(self: Any, *args: Any, **kwargs: Any) -> None:
        if "l" in kwargs:
            keras2.note(f"`regularizers.{name}(l=)`", f"`{name}=`")
            kwargs[name] = kwargs.pop("l")
        init(self, *args, **kwargs)

    return initialize


@export("keras.regularizers", "l1_l2", "l1l2")
class L1L2(Regularizer):
    """l1 sum(|x|) + l2 sum(x²).

    >>> round(float(L1L2(0.1, 0.1)([1.0, -2.0])), 3)
    0.8
    """

    l1 = Hyperparameter()
    l2 = Hyperparameter()

    def __init__(self, l1: float = 0.0, l2: float = 0.0) -> None:
        self.l1 = _strength("l1", 0.0 if l1 is None else l1)
        self.l2 = _strength("l2", 0.0 if l2 is None else l2)

    def __call__(self, x: Any) -> Any:
        total = 0.0
        if self.l1:
            total = total + self.l1 * ops.sum(ops.absolute(x))
        if self.l2:
            total = total + self.l2 * ops.sum(ops.square(x))
        return total


@export("keras.regularizers", "l1")
class L1(Regularizer):
    """l1 sum(|x|).

    >>> round(float(L1(0.1)([1.0, -2.0])), 3)
    0.3
    """

    l1 = Hyperparameter()

    @_or_called_l
    def __init__(self, l1: float = 0.01) -> None:
        self.l1 = _strength("l1", 0.01 if l1 is None else l1)

    def __call__(self, x: Any) -> Any:
        return self.l1 * ops.sum(ops.absolute(x))


@export("keras.regularizers", "l2")
class L2(Regularizer):
    """l2 sum(x²).

    >>> round(float(L2(0.1)([1.0, -2.0])), 3)
    0.5
    """

    l2 = Hyperparameter()

    @_or_called_l
    def __init__(self, l2: float = 0.01) -> None:
        self.l2 = _strength("l2", 0.01 if l2 is None else l2)

    def __call__(self, x: Any) -> Any:
        return self.l2 * ops.sum(ops.square(x))


@export("keras.regularizers", "orthogonal_regularizer")
class OrthogonalRegularizer(Regularizer):
    """Keeps the rows (or columns) of a matrix at right angles to each other.

    >>> import numpy as np
    >>> x = np.array([[1.0, 0.0], [1.0, 1.0]])
    >>> round(float(OrthogonalRegularizer(0.1)(x)), 3)
    0.071
    """

    factor = Hyperparameter()

    def __init__(self, factor: float = 0.01, mode: str = "rows") -> None:
        if mode not in ("rows", "columns"):
            raise ValueError(
                "Invalid value for argument `mode`. Expected one of "
                f'{{"rows", "columns"}}. Received: mode={mode}'
            )
        self.factor, self.mode = _strength("factor", factor), mode

    def __call__(self, inputs: Any) -> Any:
        if len(inputs.shape) != 2:
            raise ValueError(
                "Inputs to OrthogonalRegularizer must have rank 2. Received: "
                f"inputs.shape={tuple(inputs.shape)}"
            )
        rows = inputs if self.mode == "rows" else ops.transpose(inputs)
        unit = ops.normalize(rows, axis=1)
        cosines = ops.matmul(unit, ops.transpose(unit))
        size = rows.shape[0]
        between = ops.absolute(cosines * (1.0 - ops.eye(size)))
        return self.factor * 0.5 * ops.sum(between) / (size * (size - 1) / 2)


_STRENGTH = keras2.Changed(0.0, keras2=0.01, changed_with_tensorflow=False)


def l1_l2(l1: float = _STRENGTH, l2: float = _STRENGTH) -> L1L2:
    """Return an `L1L2`; what is not given was 0.01 in Keras 2."""
    return L1L2(keras2.chosen(l1), keras2.chosen(l2))


l1, l2, orthogonal_regularizer = L1, L2, OrthogonalRegularizer


def _of_keras1(name: str, today: Any) -> Any:
    def regularizer(*args: Any, **kwargs: Any) -> Any:
        keras2.note(f"`regularizers.{name}`", f"`regularizers.{today.__name__}`")
        return today(*args, **kwargs)

    regularizer.__name__, regularizer.__doc__ = name, f"Return Keras 1's `{name}`."
    return regularizer


activity_l1, activity_l2 = _of_keras1("activity_l1", L1), _of_keras1("activity_l2", L2)
l1l2, activity_l1l2 = _of_keras1("l1l2", l1_l2), _of_keras1("activity_l1l2", l1_l2)


def get(identifier: Any) -> Any:
    """Return the regularizer that a name, configuration or object means."""
    return resolve("keras.regularizers", identifier, "regularizer")


def serialize(regularizer: Any) -> Any:
    """Return plain data that rebuilds a regularizer."""
    return serialize_keras_object(regularizer)


def deserialize(config: Any, custom_objects: dict[str, Any] | None = None) -> Any:
    """Return the regularizer that plain data describes."""
    with custom_object_scope(custom_objects or {}):
        return get(config)
