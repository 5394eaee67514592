"""JAX's `x.at[index].set(values)`: a new array that differs in some elements."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ganglion import ops
from ganglion.compiler.ir.graph import register_operators

_REDUCTIONS = {
    "set": None,
    "add": "add",
    "multiply": "mul",
    "mul": "mul",
    "min": "min",
    "max": "max",
}


class At:
    """The elements of an array that an index in brackets chooses.

    >>> At(ops.arange(4))[1:3].set(7)
    array([0, 7, 7, 3], dtype=int32)
    """

    def __init__(self, array: Any) -> None:
        self._array = array

    def __getitem__(self, index: Any) -> Chosen:
        return Chosen(self._array, index)


class Chosen:
    """Some elements of an array, and what can be done with them."""

    def __init__(self, array: Any, index: Any) -> None:
        self._array, self._index = array, index

    def get(self) -> Any:
        """Return the elements."""
        return self._array[self._index]

    def _changed(self, values: Any, reduction: str | None) -> Any:
        array = self._array
        shape = tuple(array.shape)
        numbers = np.arange(math.prod(shape), dtype="int32").reshape(shape)
        chosen = ops.convert_to_tensor(numbers)[self._index]
        values = ops.cast(ops.convert_to_tensor(values), array.dtype)
        flat = ops.scatter_update(
            ops.reshape(array, (-1,)),
            ops.reshape(chosen, (-1, 1)),
            ops.reshape(ops.broadcast_to(values, chosen.shape), (-1,)),
            reduction=reduction,
        )
        return ops.reshape(flat, shape)

    def divide(self, values: Any) -> Any:
        """Return the array with these elements divided."""
        return self._changed(1 / ops.convert_to_tensor(values), "mul")


def _change(name: str) -> Callable[..., Any]:
    def change(self: Chosen, values: Any) -> Any:
        return self._changed(values, _REDUCTIONS[name])

    change.__name__ = name
    change.__doc__ = f"Return the array after `{name}` of these elements."
    return change


for _name in _REDUCTIONS:
    setattr(Chosen, _name, _change(_name))

register_operators({"at": At})
