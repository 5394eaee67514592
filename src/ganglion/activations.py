"""Activation functions, by name or as functions, with Keras' defaults."""

from __future__ import annotations

from typing import Any

from ganglion import keras2, ops
from ganglion.serialization import (
    custom_object_scope,
    export,
    resolve,
    serialize_keras_object,
)

_exported = export("keras.activations")


@_exported
def linear(x: Any) -> Any:
    """Return x."""
    return x


@_exported
def relu(
    x: Any,
    negative_slope: float = 0.0,
    max_value: float | None = None,
    threshold: float = 0.0,
) -> Any:
    """Return x where it is positive, else 0 (or a slope, a limit, a threshold).

    >>> import numpy as np
    >>> relu(np.array([-1.0, 2.0], "float32"))
    array([0., 2.], dtype=float32)
    """
    if negative_slope and max_value is None and not threshold:
        return ops.leaky_relu(x, negative_slope=negative_slope)
    if max_value == 6 and not threshold:
        kept = ops.relu6(x)
    else:
        kept = ops.where(x > threshold, x, 0.0) if threshold else ops.relu(x)
        if max_value is not None:
            kept = ops.clip(kept, 0.0, float(max_value))
    if not negative_slope:
        return kept
    return kept - negative_slope * ops.relu(threshold - x)


@_exported
def leaky_relu(x: Any, negative_slope: float = 0.2) -> Any:
    """Return x where it is positive, else a fraction of it."""
    return ops.leaky_relu(x, negative_slope=negative_slope)


@_exported
def relu6(x: Any) -> Any:
    """Return x limited to 0 ... 6."""
    return ops.relu6(x)


@_exported
def softmax(x: Any, axis: int = -1) -> Any:
    """Return exp(x) over its sum along an axis."""
    return ops.softmax(x, axis=axis)


@_exported
def log_softmax(x: Any, axis: int = -1) -> Any:
    """Return log(softmax(x))."""
    return ops.log_softmax(x, axis=axis)


@_exported
def elu(x: Any, alpha: float = 1.0) -> Any:
    """Return x where it is positive, else alpha (exp(x) - 1)."""
    return ops.elu(x, alpha=alpha)


@_exported
def selu(x: Any) -> Any:
    """Scaled ELU."""
    return ops.selu(x)


@_exported
def softplus(x: Any) -> Any:
    """Return log(1 + exp(x))."""
    return ops.softplus(x)


@_exported
def softsign(x: Any) -> Any:
    """Return x / (1 + |x|)."""
    return ops.softsign(x)


@export("keras.activations", "swish")
def silu(x: Any) -> Any:
    """Return x sigmoid(x)."""
    return ops.silu(x)


@_exported
def gelu(x: Any, approximate: bool = False) -> Any:
    """Return x Φ(x)."""
    return ops.gelu(x, approximate=approximate)


@_exported
def tanh(x: Any) -> Any:
    """Return the hyperbolic tangent."""
    return ops.tanh(x)


@_exported
def sigmoid(x: Any) -> Any:
    """Return 1 / (1 + exp(-x))."""
    return ops.sigmoid(x)


@_exported
def log_sigmoid(x: Any) -> Any:
    """Return log(sigmoid(x))."""
    return ops.log_sigmoid(x)


@_exported
def exponential(x: Any) -> Any:
    """Return exp(x)."""
    return ops.exp(x)


@_exported
def hard_sigmoid(x: Any) -> Any:
    """Return relu6(x + 3) / 6; in a Keras 2 script clip(0.2 x + 0.5, 0, 1)."""
    if keras2.active():
        return ops.clip(0.2 * x + 0.5, 0.0, 1.0)
    return ops.hard_sigmoid(x)


@export("keras.activations", "hard_swish")
def hard_silu(x: Any) -> Any:
    """Return x hard_sigmoid(x)."""
    return ops.hard_silu(x)


@_exported
def mish(x: Any) -> Any:
    """Return x tanh(softplus(x))."""
    return ops.mish(x)


@_exported
def celu(x: Any, alpha: float = 1.0) -> Any:
    """Return x where it is positive, else alpha (exp(x / alpha) - 1)."""
    return ops.celu(x, alpha=alpha)


@_exported
def glu(x: Any, axis: int = -1) -> Any:
    """Return one half of an axis times the sigmoid of the other half."""
    return ops.glu(x, axis=axis)


@_exported
def hard_tanh(x: Any) -> Any:
    """Return x limited to -1 ... 1."""
    return ops.hard_tanh(x)


@_exported
def hard_shrink(x: Any, threshold: float = 0.5) -> Any:
    """Return x where it is further from zero than a threshold, else 0."""
    return ops.hard_shrink(x, threshold=threshold)


@_exported
def soft_shrink(x: Any, threshold: float = 0.5) -> Any:
    """Move x towards zero by a threshold, and not beyond."""
    return ops.soft_shrink(x, threshold=threshold)


@_exported
def tanh_shrink(x: Any) -> Any:
    """Return x - tanh(x)."""
    return ops.tanh_shrink(x)


@_exported
def threshold(x: Any, threshold: float, default_value: float) -> Any:
    """Return x where it is above a threshold, else another number."""
    return ops.threshold(x, threshold, default_value)


@_exported
def squareplus(x: Any, b: float = 4) -> Any:
    """Return (x + sqrt(x² + b)) / 2."""
    return ops.squareplus(x, b=b)


@_exported
def sparse_plus(x: Any) -> Any:
    """Return 0 below -1, x above 1, and (x + 1)² / 4 between."""
    return ops.sparse_plus(x)


@_exported
def sparse_sigmoid(x: Any) -> Any:
    """Return 0 below -1, 1 above 1, and (x + 1) / 2 between."""
    return ops.sparse_sigmoid(x)


@_exported
def sparsemax(x: Any, axis: int = -1) -> Any:
    """Project rows onto the simplex: like softmax, but with exact zeros."""
    return ops.sparsemax(x, axis=axis)


swish, hard_swish = silu, hard_silu


def get(identifier: Any) -> Any:
    """Return the activation that a name or function means; None is `linear`.

    >>> get("relu") is relu
    True
    """
    if identifier is None:
        return linear
    return resolve("keras.activations", identifier, "activation")


def serialize(activation: Any) -> Any:
    """Return plain data that names an activation."""
    return serialize_keras_object(activation)


def deserialize(config: Any, custom_objects: dict[str, Any] | None = None) -> Any:
    """Return the activation that plain data describes."""
    with custom_object_scope(custom_objects or {}):
        return get(config)
