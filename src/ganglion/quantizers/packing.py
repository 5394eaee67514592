"""Two numbers of 4 bits in a byte."""

from __future__ import annotations

from typing import Any

import numpy as np

from ganglion import ops
from ganglion.dtypes import standardize_dtype

_BYTES = ("int8", "uint8")


def pack_int4(arr: Any, axis: int = 0, dtype: str = "int8") -> tuple[Any, Any, int]:
    """Return bytes of two neighbours along an axis each, their shape, and the length.

    The first of two is in the low half; an odd length is filled with a zero.

    >>> packed, shape, length = pack_int4(np.array([[-3, 7], [2, -8], [1, 0]], "int8"))
    >>> np.asarray(packed)
    array([[  45, -121],
           [   1,    0]], dtype=int8)
    """
    array = _checked(arr, dtype)
    rows = np.moveaxis(array, axis, 0)
    length = rows.shape[0]
    if length % 2:
        rows = np.concatenate([rows, np.zeros_like(rows[:1])])
    halves = rows.view(np.uint8) & 0x0F
    packed = (halves[::2] | halves[1::2] << 4).astype(np.uint8).view(dtype)
    packed = np.ascontiguousarray(np.moveaxis(packed, 0, axis))
    return ops.convert_to_tensor(packed), packed.shape, length


def _checked(arr: Any, dtype: str) -> np.ndarray:
    _check_type(dtype)
    if standardize_dtype(arr.dtype) != dtype:
        raise TypeError(
            f"Expected {dtype} tensor for packing, got {standardize_dtype(arr.dtype)}."
        )
    return np.ascontiguousarray(ops.convert_to_numpy(arr))


def _check_type(dtype: str) -> None:
    if dtype not in _BYTES:
        raise ValueError(f"Expected dtype to be 'int8' or 'uint8', but got '{dtype}'.")


def unpack_int4(packed: Any, orig_len: int, axis: int = 0, dtype: str = "int8") -> Any:
    """Return the numbers that bytes of `pack_int4` hold.

    >>> np.asarray(unpack_int4(np.array([45, 1], "int8"), 3))
    array([-3,  2,  1], dtype=int8)
    """
    _check_type(dtype)
    if standardize_dtype(packed.dtype) not in _BYTES:
        raise TypeError(
            f"Expected int8 or uint8 tensor for unpacking, got "
            f"{standardize_dtype(packed.dtype)}."
        )
    rows = ops.moveaxis(packed, axis, 0)
    halves = [ops.bitwise_and(rows, 15), ops.bitwise_and(ops.right_shift(rows, 4), 15)]
    if dtype == "int8":  # the highest of 4 bits is the sign
        halves = [ops.subtract(ops.bitwise_xor(half, 8), 8) for half in halves]
    pairs = ops.stack([ops.cast(half, dtype) for half in halves], axis=1)
    joined = ops.reshape(pairs, (-1, *ops.shape(rows)[1:]))
    return ops.moveaxis(joined[:orig_len], 0, axis)
