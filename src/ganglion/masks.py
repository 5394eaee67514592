"""The mask of a tensor: which steps of a padded sequence are real.

As in Keras, a mask travels as the attribute `_keras_mask` of a Keras tensor, of a
traced value, or of an array that a layer returned. What has no mask has no such
attribute.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ganglion import tree
from ganglion.compiler.ir.graph import ShapeError, Value
from ganglion.compiler.ir.shaping import reshape
from ganglion.tensors import Tensor, as_tensor


def with_mask(array: np.ndarray, mask: np.ndarray) -> Tensor:
    """Return a view of an array that carries a mask; what is made of it has none.

    >>> x = with_mask(np.ones((1, 2)), np.array([[True, False]]))
    >>> x._keras_mask
    array([[ True, False]])
    >>> get_keras_mask(x + 1) is None
    True
    """
    masked = as_tensor(array)
    masked._value = getattr(array, "_value", None)
    masked._keras_mask = mask
    return masked


def get_keras_mask(x: Any) -> Any:
    """Return the mask of a tensor, None if it has none."""
    return getattr(x, "_keras_mask", None)


def set_keras_mask(x: Any, mask: Any) -> None:
    """Give a tensor a mask, or take it away by None."""
    if isinstance(x, np.ndarray) and not isinstance(x, Tensor):
        raise TypeError(
            "A plain array cannot carry a mask: give it to the layer that needs it, "
            "as in layer(x, mask=mask)."
        )
    x._keras_mask = mask


def masks_of(structure: Any) -> Any:
    """Return the mask of each tensor, in the same structure."""
    return tree.map_leaves(get_keras_mask, structure)


def without_mask(x: Any) -> Any:
    """Return the same numbers without a mask; the value that has one keeps it."""
    is_masked = isinstance(x, Value) and get_keras_mask(x) is not None
    return reshape(x, shape=x.shape) if is_masked else x


def check_mask(
    owner: str, mask: Any, x: Any, ndim: int, stretches: bool = False
) -> None:
    """Refuse a mask that does not have the first `ndim` axes of what it masks.

    One that ``stretches`` may have the size one where its input has another.
    """
    got, shape = tuple(mask.shape), tuple(x.shape)
    fits = got == shape[:ndim]
    if stretches and len(got) == ndim:
        fits = all(n in (1, size) for n, size in zip(got, shape, strict=False))
    if not fits:
        raise ShapeError(
            f"{owner}: a mask of shape {got} does not fit inputs of shape {shape}: it "
            f"must have the shape {shape[:ndim]}, a truth value for each step."
        )
