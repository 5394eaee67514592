"""Numbers of a small range, and the scales that lead back to the weights."""

from __future__ import annotations

import math
from typing import Any

from ganglion import ops
from ganglion.dtypes import standardize_dtype
from ganglion.serialization import export

EPSILON = 1e-7


@export("keras.quantizers")
class Quantizer:
    """Base class: turns an array into numbers of `output_dtype`."""

    def __init__(self, output_dtype: str = "int8") -> None:
        self.output_dtype = output_dtype

    def __call__(self, x: Any) -> Any:
        """Return the array as it is; subclasses quantize it."""
        return x

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Make a quantizer from its configuration."""
        return cls(**config)

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make an equal quantizer."""
        raise NotImplementedError(f"{self} does not implement get_config()")


def abs_max_quantize(
    inputs: Any,
    axis: Any,
    value_range: tuple[int, int] = (-127, 127),
    dtype: str = "int8",
    epsilon: float = EPSILON,
    to_numpy: bool = False,
) -> tuple[Any, Any]:
    """Return integers and the scale: ``inputs * scale``, rounded.

    The largest absolute value along the axes becomes the end of the range.

    >>> import numpy as np
    >>> numbers, scale = abs_max_quantize(np.array([[0.25, -1.0]], "float32"), axis=-1)
    >>> np.asarray(numbers)
    array([[  32, -127]], dtype=int8)
    """
    if to_numpy:  # every backend computes on the host here
        inputs = ops.convert_to_numpy(inputs)
    kind = standardize_dtype(ops.convert_to_tensor(inputs).dtype)
    axis = tuple(axis) if isinstance(axis, list) else axis
    largest = ops.max(ops.abs(inputs), axis=axis, keepdims=True)
    scale = ops.cast(ops.divide(value_range[1], ops.add(largest, epsilon)), kind)
    numbers = ops.clip(ops.round(ops.multiply(inputs, scale)), *value_range)
    return ops.cast(numbers, dtype), scale


def abs_max_quantize_grouped_with_zero_point(
    inputs: Any,
    block_size: int,
    value_range: tuple[int, int] = (-8, 7),
    dtype: str = "int8",
    epsilon: float = EPSILON,
    to_numpy: bool = False,
) -> tuple[Any, Any, Any]:
    """Return integers, scales and zero points of blocks of rows of a matrix.

    Each block and column has a scale and a zero point of its own:
    ``inputs = (numbers - zero) * scale``.
    """
    if to_numpy:
        inputs = ops.convert_to_numpy(inputs)
    rows, columns = (int(n) for n in inputs.shape)
    low, high = value_range
    groups = math.ceil(rows / block_size)
    missing = groups * block_size - rows
    padded = ops.pad(inputs, ((0, missing), (0, 0))) if missing else inputs
    blocks = ops.reshape(padded, (groups, block_size, columns))
    smallest = ops.min(blocks, axis=1)
    scale = (ops.max(blocks, axis=1) - smallest + epsilon) / (high - low)
    zero = ops.clip(ops.round(-smallest / scale) + low, low, high)
    numbers = ops.round(blocks / ops.expand_dims(scale, 1)) + ops.expand_dims(zero, 1)
    numbers = ops.reshape(ops.clip(numbers, low, high), (groups * block_size, columns))
    kind = standardize_dtype(ops.convert_to_tensor(inputs).dtype)
    return (
        ops.cast(numbers[:rows], dtype),
        ops.cast(scale, kind),
        ops.cast(zero, "int8"),
    )


def dequantize_by_groups(
    numbers: Any, scale: Any, zero: Any, group: Any, axis: int = 0
) -> Any:
    """Return ``(numbers - zero) * scale``, by the group of each index along an axis."""
    rows = ops.cast(group, "int32")
    scale, zero = (ops.take(each, rows, axis=axis) for each in (scale, zero))
    return (ops.cast(numbers, scale.dtype) - ops.cast(zero, scale.dtype)) * scale


@export("keras.quantizers")
class AbsMaxQuantizer(Quantizer):
    """Quantizes by the largest absolute value along axes; see `abs_max_quantize`."""

    def __init__(
        self,
        axis: Any = None,
        value_range: tuple[int, int] = (-127, 127),
        epsilon: float = EPSILON,
        output_dtype: str = "int8",
    ) -> None:
        super().__init__(output_dtype)
        self.axis = (axis,) if isinstance(axis, int) else axis
        self.axis = None if axis is None else tuple(self.axis)
        self.value_range, self.epsilon = value_range, epsilon
        if output_dtype == "int8" and (value_range[0] < -128 or value_range[1] > 127):
            raise ValueError(
                "Quantizer with output_dtype='int8' requires value_range to be within "
                f"the interval [-128, 127]. Received: value_range={value_range}"
            )

    def __call__(self, x: Any, axis: Any = None, to_numpy: bool = False) -> Any:
        """Return the integers and the scale, by these axes or its own."""
        chosen = self.axis if axis is None else axis
        return abs_max_quantize(
            x,
            -1 if chosen is None else chosen,
            self.value_range,
            self.output_dtype,
            self.epsilon,
            to_numpy,
        )

    def get_config(self) -> dict[str, Any]:
        config: dict[str, Any] = {
            "value_range": self.value_range,
            "epsilon": self.epsilon,
            "output_dtype": self.output_dtype,
        }
        return config | ({} if self.axis is None else {"axis": self.axis})
