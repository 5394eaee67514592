"""How an op detects what its operands are: traced, Keras tensors, or plain arrays."""

from __future__ import annotations

import functools
import operator
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from ganglion import config, symbolic, tree
from ganglion.compiler.ir import pointwise as p
from ganglion.compiler.ir import shaping
from ganglion.compiler.ir.graph import Input, Node, ShapeError, Value, dtype_name
from ganglion.compiler.ir.shaping import is_float
from ganglion.dtypes import FLOAT8_TYPES, standardize_dtype
from ganglion.hyperparameters import Number, Settable
from ganglion.system import uncompiled
from ganglion.tensors import evaluated, get_keras_mask, with_mask, without_mask
from ganglion.variables import (
    Variable,
    current_scope,
    defer,
    is_deferred,
    read,
)

F = TypeVar("F", bound=Callable[..., Any])

# Ops that only move elements: texts, which no graph computes with, are moved as well.
_MOVES = {
    "concatenate", "expand_dims", "flip", "getitem", "moveaxis", "ravel", "repeat",
    "reshape", "squeeze", "stack", "swapaxes", "take", "tile", "transpose",
}  # fmt: skip
# Ops that may return their very argument: their result has its mask, if any.
_RETURN_THE_SAME = ("cast", "convert_to_tensor")


# The usual operands of ops, which have no parts.
_PLAIN = frozenset({Node, Input, Number, Variable, float, int, str})


class _Calls(threading.local):
    """How many ops are being called: those inside of another return values."""

    depth = 0


_calls = _Calls()


def op(function: F) -> F:
    """Make a function over values accept anything that a user may pass.

    On Keras tensors it records a step of the functional graph, inside of a trace it
    makes nodes, and on arrays it computes at once and returns tensors.
    """
    moves_text = function.__name__ in _MOVES
    returns_the_same = function.__name__ in _RETURN_THE_SAME

    @functools.wraps(function)
    def dispatched(*args: Any, **kwargs: Any) -> Any:
        leaves: Any = args
        if kwargs or not _PLAIN.issuperset(map(type, args)):
            leaves = tree.flatten((args, kwargs) if kwargs else args)
        has_values = False
        for leaf in leaves:
            if isinstance(leaf, Value):
                has_values = True
            elif isinstance(leaf, symbolic.KerasTensor):
                return symbolic.record(dispatched, args, kwargs)
        if moves_text and any(map(_is_text, leaves)):
            return _moved_text(dispatched, args, kwargs)
        if not has_values and is_deferred(leaves):
            return defer(dispatched, args, kwargs)
        outermost = _calls.depth == 0
        _calls.depth += 1
        try:
            result = function(*args, **kwargs)
        finally:
            _calls.depth -= 1
        if not outermost:
            return result
        if has_values or current_scope() is not None:
            # Values that an op has created have no mask: only its arguments may.
            is_made = isinstance(result, Node) and not hasattr(result, "_keras_mask")
            is_left = is_made or returns_the_same
            return result if is_left else tree.map_leaves(without_mask, result)
        if function.__name__ != "convert_to_tensor":  # which computes nothing
            uncompiled.note("ops one by one", function.__name__)
        return concrete(result)

    dispatched.moves_text = moves_text  # type: ignore[attr-defined]
    return dispatched  # type: ignore[return-value]


def _is_text(leaf: Any) -> bool:
    return isinstance(leaf, np.ndarray) and leaf.dtype.kind in "OSU"


def _moved_text(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Move texts as an op moves their numbers."""
    texts: list[Any] = []

    def numbers(leaf: Any) -> Any:
        if not _is_text(leaf):
            return leaf
        first = len(texts)
        texts.extend(leaf.ravel().tolist())
        return np.arange(first, len(texts)).reshape(leaf.shape)

    args, kwargs = tree.map_leaves(numbers, (args, kwargs))
    places = function(*args, **kwargs)
    every = np.array(texts, object)
    return tree.map_leaves(lambda index: every[np.asarray(index)], places)


def concrete(result: Any) -> Any:
    """Turn the values of a result into tensors, which keep their masks.

    All are computed at once, as they share much.
    """
    leaves = tree.flatten(result)
    both = [x for leaf in leaves for x in (leaf, get_keras_mask(leaf))]
    values = [x for x in both if isinstance(x, Value)]
    arrays = dict(zip(values, evaluated(values), strict=True))

    # No function that calls itself: as a cycle, it would keep the arrays for long.
    def tensor(leaf: Any) -> Any:
        return arrays[leaf] if isinstance(leaf, Value) else leaf

    def masked(leaf: Any) -> Any:
        mask = get_keras_mask(leaf)
        if mask is None or not isinstance(leaf, Value):
            return tensor(leaf)
        return with_mask(arrays[leaf], tensor(mask))

    return tree.map_leaves(masked, result)


def is_weak(x: Any) -> bool:
    """Return whether this is a Python number, which takes the other operand's type."""
    return isinstance(x, (bool, int, float)) and not isinstance(x, np.generic)


def promoted(*operands: Any) -> list[Value]:
    """Return the operands as values of one common type and shape.

    A Python number takes the type of the arrays beside it; see `result_type`.
    """
    return _promoted(operands, lambda dtype: dtype)


def promoted_floats(*operands: Any) -> list[Value]:
    """Return the operands as floats of one common type and shape.

    A Python number becomes a float at once: a -1 beside unsigned integers stays -1.
    """
    return _promoted(operands, _float_type)


def promoted_with_room(*operands: Any) -> list[Value]:
    """Return the operands as `promoted_floats` does; 64-bit integers become float64."""
    return _promoted(operands, _float_type_with_room)


def _promoted(
    operands: Sequence[Any], type_from: Callable[[np.dtype], np.dtype]
) -> list[Value]:
    if _are_plain(operands):
        return broadcast_all([_as_value(x, _FLOAT32) for x in operands])
    known = [x if is_weak(x) else read(x) for x in operands]
    types = tuple([x.dtype if isinstance(x, Value) else _kind(x) for x in known])
    dtype = type_from(_common_type(types, config.floatx()))
    return broadcast_all([_as_value(x, dtype) for x in known])


def _float_type(dtype: np.dtype) -> np.dtype:
    keeps = is_float(dtype) or dtype.kind == "c"
    return dtype if keeps else np.dtype(config.floatx())


def _float_type_with_room(dtype: np.dtype) -> np.dtype:
    is_wide = dtype.kind in "iu" and dtype.itemsize == 8
    return np.dtype("float64") if is_wide else _float_type(dtype)


_FLOAT32 = np.dtype("float32")


def _are_plain(operands: Sequence[Any]) -> bool:
    """Return whether these are floats and Python numbers, as most are: float32."""
    has_values = False
    for x in operands:
        if isinstance(x, Value):
            if x.dtype is not _FLOAT32:
                return False
            has_values = True
        elif type(x) is not float and type(x) is not int:
            return False
    return has_values


def _as_value(x: Any, dtype: np.dtype) -> Value:
    """Return an operand as a value of this type."""
    if isinstance(x, Value) and x.dtype == dtype:
        return x
    if type(x) is float or type(x) is int:
        return _constant(x, repr(x), dtype)
    return astype(x, dtype)


@functools.lru_cache(maxsize=256)
def _constant(x: float, text: str, dtype: np.dtype) -> Value:
    """Return a Python number: by its text, as 0 and -0 are equal, but not the same."""
    return astype(x, dtype)


def _kind(x: Any) -> type:
    return float if isinstance(x, (Number, Settable)) else type(x)


def common_type(arrays: Sequence[Value], scalars: Sequence[Any] = ()) -> np.dtype:
    """Return the type that arrays and Python numbers are brought to."""
    types = (*(array.dtype for array in arrays), *map(_kind, scalars))
    return _common_type(types, config.floatx())


def of_common_type(*operands: Any) -> list[Value]:
    """Return array-likes as values of their common type, each in its own shape."""
    values = [read(x) for x in operands]
    dtype = common_type(values)
    return [astype(x, dtype) for x in values]


@functools.cache
def _common_type(types: tuple[Any, ...], floatx: str) -> np.dtype:
    if texts := [x for x in types if isinstance(x, np.dtype) and x.kind in "SUT"]:
        raise TypeError(f"Cannot use {texts[0]} as numbers.")
    return np.dtype(_promoted_type(types, floatx))


# The type promotion of JAX, which is Keras': each type, and those right above it.
# "int" and "float" are Python's numbers, which take the type of arrays beside them.
_ABOVE = {
    "bool": ("int",),
    "int": ("uint8", "int8", "complex64"),
    "uint8": ("int16", "uint16"),
    "uint16": ("int32", "uint32"),
    "uint32": ("int64", "uint64"),
    "uint64": ("float",),
    "int8": ("int16",),
    "int16": ("int32",),
    "int32": ("int64",),
    "int64": ("float",),
    "float": ("bfloat16", "float16"),
    "bfloat16": ("float32",),
    "float16": ("float32",),
    "float32": ("float64", "complex64"),
    "float64": ("complex128",),
    "complex64": ("complex128",),
    "complex128": (),
    "string": (),
}
# The results of `result_type` for these; ops keep them.
_NARROWED = {"uint64": "uint32", "complex128": "complex64"}


def result_type(*dtypes: Any) -> str:
    """Return the type that operands of some types are brought to, by Keras' rules.

    >>> result_type("int32", "float16"), result_type("int8", int)
    ('float16', 'int8')
    """
    if not dtypes:
        return config.floatx()
    name = _promoted_type(dtypes, config.floatx())
    return _NARROWED.get(name, name)


def _promoted_type(dtypes: Sequence[Any], floatx: str) -> str:
    names = []
    for dtype in dtypes:
        is_weak = dtype is int or dtype is float
        names.append(dtype.__name__ if is_weak else standardize_dtype(dtype))
    return _least_above(frozenset(names), floatx)


@functools.cache
def _least_above(names: frozenset[str], floatx: str) -> str:
    if float8 := names & {*FLOAT8_TYPES}:
        raise ValueError(
            f"There is no implicit conversions from float8 dtypes to others: cast "
            f"{min(float8)} first. Got {', '.join(sorted(names))}."
        )
    common = frozenset.intersection(*map(_supertypes, names))
    if not common:
        raise ValueError(f"No type holds all of {', '.join(sorted(names))}.")
    least = next(name for name in common if common <= _supertypes(name))
    if least in ("int", "float"):  # of Python's numbers alone, or of 64 bits and floats
        least = f"{least}{floatx[-2:]}"
    return least


@functools.cache
def _supertypes(name: str) -> frozenset[str]:
    """Return a type and every type that it can become."""
    return frozenset([name]).union(*map(_supertypes, _ABOVE[name]))


def astype(x: Any, dtype: Any) -> Value:
    """Return any array-like as a value of this type."""
    value = x if isinstance(x, Value) else read(x, dtype if is_weak(x) else None)
    dtype = np.dtype(dtype)
    return value if value.dtype == dtype else p.cast(value, dtype=dtype_name(dtype))


def floating(x: Any) -> Value:
    """Return any array-like as floats; integers become the default float type.

    Complex numbers stay what they are.
    """
    value = read(x)
    return astype(value, _float_type(value.dtype))


def floating_unless_whole(x: Any) -> Value:
    """Return integers as they are, anything else as floats."""
    value = read(x)
    return value if value.dtype.kind in "iu" else floating(value)


def floating_with_room(x: Any) -> Value:
    """Return any array-like as floats; 64-bit integers become float64."""
    value = read(x)
    return astype(value, _float_type_with_room(value.dtype))


def numeric(x: Any) -> Value:
    """Return any array-like as numbers; bool becomes 0 and 1."""
    value = read(x)
    return astype(value, "int32") if value.dtype.kind == "b" else value


def broadcast_all(values: list[Value]) -> list[Value]:
    """Stretch values to their common shape, as NumPy does."""
    if (unknown := symbolic.fitting_size()) is not None:
        values = _fitted(values, unknown)
    shapes = [value.shape for value in values]
    if shapes and shapes.count(shapes[0]) == len(shapes):
        return values
    shape = _common_shape(tuple(shapes))
    return [stretch(value, shape) for value in values]


@functools.lru_cache(maxsize=1024)
def _common_shape(shapes: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        text = " and ".join(map(str, shapes))
        raise ShapeError(f"shapes {text} do not fit together") from None


def _fitted(values: list[Value], unknown: int) -> list[Value]:
    """Give unknown axes the known sizes that they meet: only shapes matter here."""
    rank = max((value.ndim for value in values), default=0)
    aligned = [(1,) * (rank - value.ndim) + value.shape for value in values]
    known = [
        next((n for n in sizes if n not in (1, unknown)), unknown)
        for sizes in zip(*aligned, strict=True)
    ]
    fitted = []
    for value in values:
        pairs = zip(value.shape, known[rank - value.ndim :], strict=True)
        shape = tuple(size if n == unknown else n for n, size in pairs)
        fitted.append(value if shape == value.shape else unknown_like(value, shape))
    return fitted


def known(name: str, x: Any, way_out: str) -> np.ndarray:
    """Return the numbers of an argument that a shape depends on, or refuse."""
    try:
        return np.asarray(evaluated([read(x)])[0])
    except ValueError:
        raise NotImplementedError(
            f"ops.{name}: the shape of its result depends on data, but shapes must be "
            f"known when a model is compiled. {way_out}"
        ) from None


def unknown_like(value: Value, shape: Sequence[int]) -> Value:
    """Return a value of that type and this shape, where only shapes matter."""
    return Input("unknown", shape, value.dtype)


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
    try:
        number = operator.index(axis)
    except TypeError:
        raise TypeError(f"`axis` must be one integer, got {axis!r}.") from None
    if not -ndim <= number < ndim:
        raise ShapeError(f"axis {number} is out of bounds for an array of {ndim} axes")
    return number % ndim
