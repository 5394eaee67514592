"""`keras.legacy`: objects as plain data in the format of Keras 2."""

from ganglion.legacy import saving

__all__ = ["saving"]
