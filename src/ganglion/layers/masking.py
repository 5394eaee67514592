"""Masking: steps in which all numbers equal a value are skipped by later layers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ganglion import ops
from ganglion.layers.base import Layer
from ganglion.serialization import export
from ganglion.tensors import set_keras_mask

__all__ = ["Masking"]


@export("keras.layers")
class Masking(Layer):
    """Masks the steps whose features all equal `mask_value`, and sets them to zero.

    >>> x = np.array([[[1.0, 2.0], [0.0, 0.0]]], "float32")
    >>> Masking()(x)._keras_mask
    array([[ True, False]])
    """

    built_at_once = True
    keeps_shape = True

    def __init__(self, mask_value: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        is_number = isinstance(mask_value, (int, float, np.number))
        if not is_number or isinstance(mask_value, bool):
            raise ValueError(f"`mask_value` must be a number, got {mask_value!r}.")
        self.mask_value = mask_value

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        return ops.any(ops.not_equal(inputs, self.mask_value), axis=-1)

    def call(self, inputs: Any) -> Any:
        mask = self.compute_mask(inputs)
        outputs = ops.where(ops.expand_dims(mask, -1), inputs, 0)
        set_keras_mask(outputs, mask)
        return outputs
