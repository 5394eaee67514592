"""How an op finds out what it works on: a trace, Keras tensors, or plain arrays."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from ganglion import config, symbolic, tree
from ganglion.compiler.ir import pointwise as p
from ganglion.compiler.ir import shaping
from ganglion.compiler.ir.graph import ShapeError, Value, evaluate
from ganglion.compiler.ir.shaping import is_float
from ganglion.masks import get_keras_mask, with_mask, without_mask
from ganglion.variables import current_scope, read

F = TypeVar("F", bound=Callable[..., Any])

# Ops that may return their very argument: what they return has its mask, if any.
_RETURN_THE_SAME = ("cast", "convert_to_tensor")


class _Calls(threading.local):
    """How many ops are being called: those inside of another hand on values."""

    depth = 0


_calls = _Calls()


def op(function: F) -> F:
    """Let a function over values work on everything a user may hand it.

    On Keras tensors it records a step of the functional graph, inside of a trace it
    makes nodes, and on arrays it computes at once and returns arrays.
    """

    @functools.wraps(function)
    def dispatched(*args: Any, **kwargs: Any) -> Any:
        if symbolic.any_symbolic(args, kwargs):
            return symbolic.record(dispatched, args, kwargs)
        outermost = _calls.depth == 0
        _calls.depth += 1
        try:
            result = function(*args, **kwargs)
        finally:
            _calls.depth -= 1
        leaves = tree.flatten((args, kwargs))
        traced = current_scope() or any(isinstance(leaf, Value) for leaf in leaves)
        if traced and outermost and function.__name__ not in _RETURN_THE_SAME:
            result = tree.map_leaves(without_mask, result)
        return result if traced or not outermost else concrete(result)

    return dispatched  # type: ignore[return-value]


def concrete(result: Any) -> Any:
    """Turn the values of a result into arrays, which keep their masks.

    All are computed at once, as they share much.
    """
    leaves = tree.flatten(result)
    both = [x for leaf in leaves for x in (leaf, get_keras_mask(leaf))]
    values = [x for x in both if isinstance(x, Value)]
    arrays = dict(zip(values, evaluate(values), strict=True))

    def array(leaf: Any) -> Any:
        if not isinstance(leaf, Value):
            return leaf
        mask = get_keras_mask(leaf)
        if mask is None:
            return arrays[leaf]
        return with_mask(arrays[leaf], array(mask))

    return tree.map_leaves(array, result)


def is_weak(x: Any) -> bool:
    """Return whether this is a Python number, which takes the other operand's type."""
    return isinstance(x, (bool, int, float)) and not isinstance(x, np.generic)


def promoted(*operands: Any) -> list[Value]:
    """Return the operands as values of one common type and shape.

    Floats win over whole numbers, whole numbers over bool; a Python number takes the
    type of the arrays it meets.
    """
    arrays = [read(x) for x in operands if not is_weak(x)]
    dtype = common_type(arrays, [x for x in operands if is_weak(x)])
    values = [astype(x, dtype) for x in operands]
    return broadcast_all(values)


def common_type(arrays: list[Value], scalars: Sequence[Any] = ()) -> np.dtype:
    """Return the type that arrays and Python numbers are brought to."""
    floats = [array.dtype for array in arrays if is_float(array.dtype)]
    if floats:
        return max(floats, key=lambda dtype: dtype.itemsize)
    if any(type(x) is float for x in scalars):
        return np.dtype(config.floatx())
    if arrays:
        kinds = [array.dtype for array in arrays]
        has_int = any(type(x) is int for x in scalars)
        if has_int and all(kind.kind == "b" for kind in kinds):
            return np.dtype("int32")
        return functools.reduce(np.promote_types, kinds)
    ints = any(type(x) is int for x in scalars)
    return np.dtype("int32" if ints else "bool")


def astype(x: Any, dtype: Any) -> Value:
    """Return any array-like as a value of this type."""
    value = read(x, dtype if is_weak(x) else None)
    dtype = np.dtype(dtype)
    return value if value.dtype == dtype else p.cast(value, dtype=dtype.name)


def floating(x: Any) -> Value:
    """Return any array-like as floats; whole numbers become the default float type."""
    value = read(x)
    return value if is_float(value.dtype) else astype(value, config.floatx())


def floating_unless_whole(x: Any) -> Value:
    """Return whole numbers as they are, anything else as floats."""
    value = read(x)
    return value if value.dtype.kind in "iu" else floating(value)


def floating_with_room(x: Any) -> Value:
    """Return any array-like as floats; 64-bit whole numbers become float64."""
    value = read(x)
    is_wide = value.dtype.kind in "iu" and value.dtype.itemsize == 8
    return astype(value, "float64") if is_wide else floating(value)


def numeric(x: Any) -> Value:
    """Return any array-like as numbers; bool becomes 0 and 1."""
    value = read(x)
    return astype(value, "int32") if value.dtype.kind == "b" else value


def broadcast_all(values: list[Value]) -> list[Value]:
    """Stretch values to their common shape, as NumPy does."""
    try:
        shape = np.broadcast_shapes(*(value.shape for value in values))
    except ValueError:
        shapes = " and ".join(str(value.shape) for value in values)
        raise ShapeError(f"shapes {shapes} do not fit together") from None
    return [stretch(value, shape) for value in values]


def stretch(value: Value, shape: tuple[int, ...]) -> Value:
    """Broadcast a value to a shape, if it does not have it already."""
    return value if value.shape == shape else shaping.broadcast(value, shape=shape)


def axes_of(axis: Any, ndim: int) -> tuple[int, ...]:
    """Return the axes meant by None, a number or a sequence, all non-negative."""
    if axis is None:
        return tuple(range(ndim))
    axes = [axis] if isinstance(axis, (int, np.integer)) else list(axis)
    return tuple(one_axis(number, ndim) for number in axes)


def one_axis(axis: int | np.integer, ndim: int) -> int:
    """Return an axis as a number from the front."""
    if not -ndim <= axis < ndim:
        raise ShapeError(f"axis {axis} does not exist in an array of {ndim} axes")
    return int(axis) % ndim
