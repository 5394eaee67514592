"""`keras.utils.legacy`: the same as `keras.legacy.saving`."""

from ganglion.legacy.saving import deserialize_keras_object, serialize_keras_object

__all__ = ["deserialize_keras_object", "serialize_keras_object"]
