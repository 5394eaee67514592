"""Small functions of Keras 2's `generic_utils`, `conv_utils` and `layer_utils`.

Layers that scripts derive from Keras' own are written with them.

>>> normalize_tuple(3, 2, "kernel_size"), conv_output_length(7, 3, "same", 2)
((3, 3), 4)
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ganglion.config import data_format_of as normalize_data_format

__all__ = [
    "conv_output_length",
    "count_params",
    "has_arg",
    "normalize_data_format",
    "normalize_padding",
    "normalize_tuple",
    "print_summary",
    "slice_arrays",
    "to_list",
    "unpack_singleton",
]

conv_utils = sys.modules[__name__]


def has_arg(fn: Callable[..., Any], name: str, accept_all: bool = False) -> bool:
    """Return whether a function takes an argument by this name."""
    parameters = inspect.signature(fn).parameters
    kinds = [parameter.kind for parameter in parameters.values()]
    if name in parameters:
        return parameters[name].kind is not inspect.Parameter.POSITIONAL_ONLY
    return accept_all and inspect.Parameter.VAR_KEYWORD in kinds


def to_list(x: Any) -> list[Any]:
    """Return a list as it is, anything else as a list of one."""
    return x if isinstance(x, list) else [x]


def unpack_singleton(x: Any) -> Any:
    """Return the only item of a list, anything else as it is."""
    return x[0] if isinstance(x, (list, tuple)) and len(x) == 1 else x


def slice_arrays(arrays: Any, start: Any = None, stop: int | None = None) -> Any:
    """Return rows of each array: a range, or those of the given numbers."""
    rows = start if hasattr(start, "__len__") else slice(start, stop)
    if isinstance(arrays, list):
        return [None if array is None else array[rows] for array in arrays]
    return None if arrays is None else arrays[rows]


def count_params(weights: Sequence[Any]) -> int:
    """Return how many numbers some weights are."""
    return sum(int(np.prod(weight.shape)) for weight in weights)


def print_summary(model: Any, *args: Any, **kwargs: Any) -> None:
    """Print the table of a model's layers."""
    model.summary(*args, **kwargs)


def normalize_tuple(value: Any, n: int, name: str) -> tuple[int, ...]:
    """Return a number for each axis, all the same if there is one."""
    numbers = (value,) * n if isinstance(value, int) else tuple(value)
    if len(numbers) != n:
        raise ValueError(f"`{name}` must be one or {n} whole numbers, got {value!r}.")
    return tuple(map(int, numbers))


def normalize_padding(value: str) -> str:
    """Return the name of a padding in small letters."""
    if value.lower() not in ("valid", "same", "causal"):
        raise ValueError(f"`padding` is 'valid', 'same' or 'causal', not {value!r}.")
    return value.lower()


def conv_output_length(
    input_length: int | None,
    filter_size: int,
    padding: str,
    stride: int,
    dilation: int = 1,
) -> int | None:
    """Return the size of an axis after a convolution, None for an unknown one."""
    if input_length is None:
        return None
    width = (filter_size - 1) * dilation + 1
    shrinks = {"same": 0, "causal": 0, "valid": width - 1, "full": 1 - width}
    return (input_length - shrinks[padding] + stride - 1) // stride
