"""A layer as plain data, and back."""

from __future__ import annotations

from typing import Any

from ganglion.layers.base import Layer
from ganglion.serialization import (
    custom_object_scope,
    deserialize_keras_object,
    serialize_keras_object,
)

__all__ = ["deserialize", "serialize"]


def serialize(layer: Any) -> Any:
    """Return a layer as plain data, as files have it.

    >>> from ganglion import layers
    >>> serialize(layers.Flatten())["class_name"]
    'Flatten'
    """
    return serialize_keras_object(layer)


def deserialize(config: Any, custom_objects: dict[str, Any] | None = None) -> Any:
    """Return the layer that plain data describes."""
    with custom_object_scope(custom_objects or {}):
        layer = deserialize_keras_object(config)
    if not isinstance(layer, Layer):
        raise ValueError(
            f"`layers.deserialize` makes layers, but this describes a "
            f"{type(layer).__name__}: {config!r:.200}"
        )
    return layer
