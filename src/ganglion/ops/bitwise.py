"""The bits of numbers: logic and shifts of integers, named as in NumPy; views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from ganglion.compiler.ir import pointwise as p
from ganglion.compiler.ir.graph import Constant, Op, ShapeError, Value
from ganglion.compiler.ir.host import host_op
from ganglion.compiler.ir.shaping import fill
from ganglion.ops.dispatch import astype, op, promoted, stretch
from ganglion.variables import read

__all__ = [
    "bitwise_and", "bitwise_invert", "bitwise_left_shift", "bitwise_not", "bitwise_or",
    "bitwise_right_shift", "bitwise_xor", "left_shift", "right_shift", "view",
]  # fmt: skip


class Bits(Protocol):
    """A function of the bits of two array-likes, element by element."""

    def __call__(self, x: Any, y: Any) -> Any: ...


def _whole(name: str, value: Value) -> Value:
    if value.dtype.kind not in "iub":
        raise TypeError(
            f"ops.{name} works on the bits of integers or bool, not on "
            f"{value.dtype.name}: cast first."
        )
    return value


def _logic(name: str, primitive: Op, of_bools: Callable[..., Value], doc: str) -> Bits:
    def function(x: Any, y: Any) -> Any:
        a, b = (_whole(name, value) for value in promoted(x, y))
        return of_bools(a, b) if a.dtype.kind == "b" else primitive(a, b)

    return _named(function, name, doc)


def _named(function: Any, name: str, doc: str) -> Any:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return op(function)


bitwise_and = _logic(
    "bitwise_and", p.bitwise_and, p.logical_and, "Bits that both have."
)
bitwise_or = _logic(
    "bitwise_or", p.bitwise_or, p.logical_or, "Bits that one of the two has."
)
bitwise_xor = _logic(
    "bitwise_xor",
    p.bitwise_xor,
    lambda a, b: p.logical_not(p.equal(a, b)),
    "Bits that exactly one of the two has.",
)


@op
def bitwise_not(x: Any) -> Any:
    """Turn every bit around."""
    value = _whole("bitwise_not", read(x))
    if value.dtype.kind == "b":
        return p.logical_not(value)
    every_bit = Constant(np.array(-1).astype(value.dtype))
    return p.bitwise_xor(value, stretch(every_bit, value.shape))


@op
def bitwise_invert(x: Any) -> Any:
    """Turn every bit around."""
    return bitwise_not(x)


def _shift(name: str, x: Any, y: Any) -> tuple[Value, Value, Value, Value]:
    """Return both numbers, the last bit to shift by, and where y is no more."""
    a, b = (_whole(name, value) for value in promoted(x, y))
    if a.dtype.kind == "b":
        a, b = astype(a, "int32"), astype(b, "int32")
    last = fill(8 * a.dtype.itemsize - 1, a)
    inside = p.less_equal(b, last)
    if b.dtype.kind == "i":
        inside = p.logical_and(inside, p.less_equal(fill(0, b), b))
    return a, b, last, inside


@op
def left_shift(x: Any, y: Any) -> Any:
    """Multiply by 2**y; what is shifted out is lost."""
    a, b, last, inside = _shift("left_shift", x, y)
    shifted = p.left_shift(a, p.where(inside, b, last))
    return p.where(inside, shifted, fill(0, a))


@op
def right_shift(x: Any, y: Any) -> Any:
    """Divide by 2**y and round down."""
    a, b, last, inside = _shift("right_shift", x, y)
    shifted = p.right_shift(a, p.where(inside, b, last))
    # Beyond the width, a signed number has nothing but its sign.
    return p.where(inside, shifted, fill(0, a)) if a.dtype.kind == "u" else shifted


@op
def bitwise_left_shift(x: Any, y: Any) -> Any:
    """Multiply by 2**y; what is shifted out is lost."""
    return left_shift(x, y)


@op
def bitwise_right_shift(x: Any, y: Any) -> Any:
    """Divide by 2**y and round down."""
    return right_shift(x, y)


# A compiled step computes with 16-bit floats as float32, and says so in `dtype`. Their
# own bits are meant here, those of `old_dtype` before and of `new_dtype` behind.
def _view_type(
    x: Value, old_dtype: str, new_dtype: str, dtype: str
) -> tuple[tuple[int, ...], Any]:
    new, old = np.dtype(new_dtype), np.dtype(old_dtype)
    if new.itemsize == old.itemsize:
        return x.shape, np.dtype(dtype)
    if not x.shape:
        raise ShapeError("a scalar cannot be seen as a type of another size")
    last, rest = divmod(x.shape[-1] * old.itemsize, new.itemsize)
    if rest:
        raise ShapeError(f"the last axis of {x.type_text} is no row of {new_dtype}")
    return (*x.shape[:-1], last), np.dtype(dtype)


def _viewed(x: np.ndarray, old_dtype: str, new_dtype: str, dtype: str) -> np.ndarray:
    return np.ascontiguousarray(x, old_dtype).view(new_dtype).astype(dtype, copy=False)


_VIEW: Op = host_op("view", _view_type, _viewed)


@op
def view(x: Any, dtype: Any = None) -> Any:
    """Return the same bits as another type."""
    value = read(x)
    if dtype is None:
        return value
    new = np.dtype(dtype).name
    return _VIEW(value, old_dtype=value.dtype.name, new_dtype=new, dtype=new)
