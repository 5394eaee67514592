"""Activation functions, by name or as functions, with Keras' defaults."""

from __future__ import annotations

from typing import Any

from ganglion import keras2, ops
from ganglion.ops import (
    celu,
    elu,
    glu,
    hard_shrink,
    hard_silu,
    hard_tanh,
    leaky_relu,
    log_sigmoid,
    log_softmax,
    mish,
    relu6,
    selu,
    sigmoid,
    silu,
    soft_shrink,
    softmax,
    softplus,
    softsign,
    sparse_plus,
    sparse_sigmoid,
    sparsemax,
    squareplus,
    tanh,
    tanh_shrink,
    threshold,
)
from ganglion.serialization import (
    custom_object_scope,
    export,
    resolve,
    serialize_keras_object,
)

__all__ = [
    "celu", "deserialize", "elu", "exponential", "gelu", "get", "glu", "hard_shrink",
    "hard_sigmoid", "hard_silu", "hard_swish", "hard_tanh", "leaky_relu", "linear",
    "log_sigmoid", "log_softmax", "mish", "relu", "relu6", "selu", "serialize",
    "sigmoid", "silu", "soft_shrink", "softmax", "softplus", "softsign", "sparse_plus",
    "sparse_sigmoid", "sparsemax", "squareplus", "swish", "tanh", "tanh_shrink",
    "threshold",
]  # fmt: skip

_exported = export("keras.activations")
for _function in (
    *(celu, elu, glu, hard_shrink, hard_tanh, leaky_relu, log_sigmoid, log_softmax),
    *(
        mish,
        relu6,
        selu,
        sigmoid,
        soft_shrink,
        softmax,
        softplus,
        softsign,
        sparse_plus,
    ),
    *(sparse_sigmoid, sparsemax, squareplus, tanh, tanh_shrink, threshold),
):
    _exported(_function)  # the op itself
export("keras.activations", "swish")(silu)
export("keras.activations", "hard_swish")(hard_silu)


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
        positive = ops.relu6(x)
    else:
        positive = ops.where(x > threshold, x, 0.0) if threshold else ops.relu(x)
        if max_value is not None:
            positive = ops.clip(positive, 0.0, float(max_value))
    if not negative_slope:
        return positive
    return positive - negative_slope * ops.relu(threshold - x)


@_exported
def gelu(x: Any, approximate: bool = False) -> Any:
    """Return x Φ(x)."""
    return ops.gelu(x, approximate=approximate)


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


swish, hard_swish = silu, hard_silu


_ELEMENTWISE = (
    None,
    linear,
    relu,
    leaky_relu,
    sigmoid,
    tanh,
    gelu,
    elu,
    selu,
    silu,
    softplus,
)


def is_elementwise(function: Any) -> bool:
    """Return whether this is a built-in activation that keeps shapes and float types.

    >>> is_elementwise(relu), is_elementwise(glu), is_elementwise(lambda x: x)
    (True, False, False)
    """
    return any(function is known for known in _ELEMENTWISE)


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
