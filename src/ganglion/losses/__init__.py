"""`ganglion.losses`: what training minimises, as classes, functions and names.

>>> get("mse") is mean_squared_error
True
"""

from __future__ import annotations

from typing import Any

from ganglion.losses import functions
from ganglion.losses.base import Loss, LossFunctionWrapper
from ganglion.losses.functions import *
from ganglion.serialization import (
    custom_object_scope,
    resolve,
    serialize_keras_object,
)


def get(identifier: Any) -> Any:
    """Return the loss that a name, configuration, class or object means.

    >>> get("MeanSquaredError").name
    'mean_squared_error'
    """
    return resolve("keras.losses", identifier, "loss")


def serialize(loss: Any) -> Any:
    """Return plain data that names or rebuilds a loss."""
    return serialize_keras_object(loss)


def deserialize(name: Any, custom_objects: dict[str, Any] | None = None) -> Any:
    """Return the loss that plain data describes."""
    with custom_object_scope(custom_objects or {}):
        return get(name)


__all__ = ["Loss", "LossFunctionWrapper", "deserialize", "get", "serialize"]
__all__ += functions.__all__
