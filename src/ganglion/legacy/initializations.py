"""`keras.initializations`: Keras 1's functions from a shape to a variable.

>>> get("zero")((2,), name="b").numpy()
array([0., 0.], dtype=float32)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ganglion import initializers
from ganglion.variables import Variable

Initialization = Callable[..., Variable]


def get(identifier: Any) -> Initialization:
    """Return the function of a name; a function is returned unchanged."""
    if callable(identifier) and not isinstance(identifier, initializers.Initializer):
        return identifier
    initializer = initializers.get(identifier)

    def initialize(
        shape: Any, name: str | None = None, dim_ordering: str | None = None
    ) -> Variable:
        return Variable(initializer, shape=tuple(shape), name=name)

    initialize.__name__ = str(identifier)
    return initialize


__all__ = ["get"]

_NAMES = """uniform normal lecun_uniform glorot_normal glorot_uniform he_normal
he_uniform orthogonal identity zero one"""


def __getattr__(name: str) -> Initialization:
    if name not in _NAMES.split():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return get(name)
