"""Keras tensors: placeholders that hold the calls which created them.

The functional API builds a graph of layer calls over shapes with unknown axes (None).
It is replayed with exact shapes when a model is traced.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ganglion import tree
from ganglion.compiler.ir.graph import (
    Input,
    Operators,
    ShapeError,
    Sizes,
    Value,
    call_function,
)
from ganglion.system import budget
from ganglion.tensors import get_keras_mask, set_keras_mask
from ganglion.variables import Scope, current_scope, unique_name

# Stand-ins for an unknown axis: what differs between the two depends on it. Both have
# many divisors, so that strides, pools and reshapes fit.
_STAND_INS = (240, 480)
_LONG_STAND_INS = (7680, 15360)  # where a window is longer than those

# Sizes that a bound such as `x[:, :100]` cuts short, tried in turn: a window may need
# more than one row.
_SMALL_STAND_INS = (1, 12, 60)

# Pairs for an axis that a table is cut to, `x + positions[:, :steps]`: any longer one
# would not fit the table, and shorter ones than its rows do.
_SHORT_STAND_INS = ((60, 120), (12, 24), (4, 8), (2, 4))


class _Slices(threading.local):
    """Whether a slice with bounds was taken since this was last set to False."""

    bounded = False


_slices = _Slices()


class _StandIn(threading.local):
    """The placeholder size of an unknown axis while a symbolic call is traced."""

    size: int | None = None
    stretches = False


_stand_in = _StandIn()


def unknown_size() -> int | None:
    """Return the placeholder of a size that depends on data, None in a real trace."""
    return _stand_in.size


def fitting_size() -> int | None:
    """Return the size that fits any other: an unknown size while a call is traced."""
    return _stand_in.size if _stand_in.stretches else None


def note_bounded_slice() -> None:
    """Note that a slice has bounds: its length depends on the size of its axis."""
    _slices.bounded = True


class KerasHistory(NamedTuple):
    """Which output of which call of a layer or an op a Keras tensor is."""

    operation: Any
    node_index: int
    tensor_index: int


class KerasTensor(Operators):
    """A symbolic array: shape (None where unknown), type, and where it comes from.

    One that is said to be sparse or ragged is refused by every op and layer.
    """

    def __init__(
        self,
        shape: Iterable[int | None],
        dtype: Any = "float32",
        sparse: bool = False,
        ragged: bool = False,
        record_history: bool = True,
        name: str | None = None,
    ) -> None:
        if sparse and ragged:
            raise ValueError(
                "A KerasTensor cannot have `sparse=True` and `ragged=True` at the same "
                "time."
            )
        self.shape = _checked_shape(shape)
        self.dtype = tensor_dtype(dtype)
        self.name = name or unique_name("keras_tensor")
        self.sparse, self.ragged = bool(sparse), bool(ragged)
        self.call: Call | None = None
        self.index = 0
        # The Sequential whose output this is, and the number of the output.
        self.end_of: tuple[weakref.ref[Any], int] | None = None

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("shape", "dtype", "sparse", "ragged") and name in vars(self):
            raise AttributeError(
                f"The `{name}` attribute of KerasTensor is immutable. Make a new "
                "instance, or use an op."
            )
        super().__setattr__(name, value)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def _keras_history(self) -> KerasHistory:
        """The call it comes from; older scripts look at it."""
        if self.call is None:
            raise AttributeError(f"{self!r} comes from no call.")
        return KerasHistory(self.call.operation, 0, self.index)

    def reshape(self, newshape: Any) -> Any:
        """Give the same elements a new shape; one size may be -1."""
        return call_function("reshape", self, newshape)

    def squeeze(self, axis: Any = None) -> Any:
        """Remove axes of size one."""
        return call_function("squeeze", self, axis)

    def __iter__(self) -> Any:
        raise NotImplementedError(
            "A symbolic KerasTensor cannot be iterated: how many rows it has may not "
            "be known. Use `ops.unstack(x, axis=...)` for an axis of known size, or "
            "`ops.map(function, x)`."
        )

    def __len__(self) -> int:
        raise TypeError(
            "A symbolic KerasTensor has no len(): the size of its first axis may not "
            "be known. Read `x.shape`."
        )

    def __int__(self) -> int:
        raise _no_number("an int")

    def __float__(self) -> float:
        raise _no_number("a float")

    def __eq__(self, other: object) -> Any:
        try:
            return super().__eq__(other)
        except ShapeError:
            if is_symbolic(other):  # `in` on a list compares tensors of any shapes
                return False
            raise

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        """Return whether the two sides of `a == b` are the same tensor, as in Keras.

        So `in`, `index` and `remove` find a tensor in a list.
        """
        call = self.call
        if call is not None and isinstance(call.operation, Function):
            is_equality = call.operation.function.__name__ == "equal"
            if is_equality and all(map(is_symbolic, call.args)):
                return call.args[0] is call.args[1]
        raise TypeError(
            "A symbolic KerasTensor cannot be used as a boolean. It has no numbers: "
            "choose with `ops.where(...)`, or write the condition into a Layer."
        )

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise ValueError(
            "A KerasTensor is symbolic: it doesn't have any actual numerical value, "
            "and cannot be turned into an array. Use `ganglion.ops` in place of NumPy "
            "functions, or wrap the code in a Layer."
        )

    def __tf_tensor__(self, *_: Any, **__: Any) -> Any:
        raise _not_for("TensorFlow")

    def __jax_array__(self) -> Any:
        raise _not_for("JAX")

    def __repr__(self) -> str:
        return (
            f"<KerasTensor shape={self.shape}, dtype={self.dtype}, "
            f"sparse={self.sparse}, ragged={self.ragged}, name={self.name}>"
        )


TEXT = "string"  # the type of texts, which never enter a compiled graph


def tensor_dtype(dtype: Any) -> str:
    """Return the name of a type; texts are "string", as in Keras.

    >>> tensor_dtype(np.float32), tensor_dtype(str), tensor_dtype("string")
    ('float32', 'string', 'string')
    """
    if isinstance(dtype, str) and dtype == TEXT:
        return TEXT
    kind = np.dtype(dtype)
    return TEXT if kind.kind in "SUT" else kind.name


def _checked_shape(shape: Any) -> tuple[int | None, ...]:
    sizes = tuple(shape) if isinstance(shape, Iterable) else ("no sequence",)
    for size in sizes:
        is_whole = isinstance(size, (int, np.integer)) and size >= 0
        if size is not None and not is_whole:
            raise ValueError(
                f"Cannot convert '{shape}' to a shape. A shape holds integers, or None "
                "for any size."
            )
    return Sizes(None if size is None else int(size) for size in sizes)


def _no_number(kind: str) -> ValueError:
    return ValueError(
        "A KerasTensor is symbolic: it doesn't have any actual numerical value, and "
        f"cannot be turned into {kind}. Write what depends on its numbers into a "
        "Layer, in `ganglion.ops`."
    )


def _not_for(framework: str) -> ValueError:
    return ValueError(
        f"A KerasTensor cannot be used as input to a {framework} function: it is "
        "symbolic, and has no numbers. Use `ganglion.ops`, or a layer of Ganglion."
    )


class Call:
    """One call of a layer or an op on Keras tensors."""

    def __init__(self, operation: Any, args: Any, kwargs: dict[str, Any]) -> None:
        budget.count("calls of layers")
        self.operation = operation
        self.args = args
        self.kwargs = kwargs
        self.inputs = [x for x in tree.flatten((args, kwargs)) if is_symbolic(x)]
        self.outputs: Any = None

    def bind(self, outputs: Any) -> Any:
        """Store the outputs, and store this call in them."""
        self.outputs = outputs
        for index, tensor in enumerate(tree.flatten(outputs)):
            if not is_symbolic(tensor):
                raise ValueError(
                    "All operation outputs must be tensors. The operation "
                    f"{self.operation.name!r} returned a non-tensor: {tensor!r:.80}"
                )
            tensor.call, tensor.index = self, index
        return outputs

    def replay(self, known: dict[KerasTensor, Any]) -> list[Any]:
        """Call again with the values that ``known`` gives for the tensors."""
        if budget.active.budget is not None:
            # Models inside of models repeat calls: a small file may ask for millions.
            budget.count("calls of layers")
        args, kwargs = self.arguments(known)
        return tree.flatten(self.operation(*args, **kwargs))

    def infer(self, known: dict[KerasTensor, KerasTensor]) -> list[KerasTensor]:
        """Return what the call would give for other Keras tensors, unrecorded."""
        args, kwargs = self.arguments(known)
        return tree.flatten(self.operation.compute_output_spec(*args, **kwargs))

    def arguments(self, known: dict[KerasTensor, Any]) -> tuple[Any, Any]:
        """Return what the operation is called on, for known values of the tensors."""

        def value(leaf: Any) -> Any:
            return known[leaf] if is_symbolic(leaf) else leaf

        kwargs = {
            name: tree.map_leaves(value, self.kwargs[name]) for name in self.kwargs
        }
        return tree.map_leaves(value, self.args), kwargs


class Function:
    """An op of `ganglion.ops` as a step of the functional graph."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.name = unique_name(function.__name__)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the op again, when a model replays its calls."""
        return self.function(*args, **kwargs)

    def compute_output_spec(self, *args: Any, **kwargs: Any) -> Any:
        """Return the outputs as Keras tensors without recording a call."""
        return infer(self.function, args, kwargs)


def is_symbolic(x: Any) -> bool:
    """Return whether this is a Keras tensor."""
    return isinstance(x, KerasTensor)


def any_symbolic(*structures: Any) -> bool:
    """Return whether any leaf is a Keras tensor."""
    return any(map(is_symbolic, tree.flatten(structures)))


def record(function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """Record the call of an op on Keras tensors and return its symbolic result."""
    traced = values_in_trace((args, kwargs))
    if traced is not None:
        return function(*traced[0], **traced[1])
    call = Call(Function(function), args, kwargs)
    return call.bind(infer(function, args, kwargs, stretches=True))


def values_in_trace(structure: Any) -> Any:
    """Return a structure with values for the Keras tensors that this trace computes.

    A loss of Keras 2 may use tensors of the model besides its arguments. None where no
    model is traced, or where one of the tensors does not follow from its inputs.
    """
    scope = current_scope()
    if scope is None or not scope.keras_tensors:
        return None
    known = scope.keras_tensors
    if not all(_becomes_known(x, known) for x in tree.flatten(structure)):
        return None
    return tree.map_leaves(lambda x: known[x] if is_symbolic(x) else x, structure)


def _becomes_known(leaf: Any, known: dict[KerasTensor, Any]) -> bool:
    """Replay what leads to a Keras tensor; return whether it could be."""
    if not is_symbolic(leaf) or leaf in known:
        return True
    call = leaf.call
    if call is None or not call.inputs:
        return False
    if not all(_becomes_known(operand, known) for operand in call.inputs):
        return False
    known.update(zip(tree.flatten(call.outputs), call.replay(known), strict=True))
    return True


def entries(tensors: Iterable[KerasTensor]) -> list[KerasTensor]:
    """Return the Keras tensors that some are computed from, and no call makes."""
    inputs: list[KerasTensor] = []
    seen: set[KerasTensor] = set()
    stack = list(tensors)
    while stack:
        tensor = stack.pop()
        if tensor in seen:
            continue
        seen.add(tensor)
        if tensor.call is None or not tensor.call.inputs:
            inputs.append(tensor)
        else:
            stack.extend(tensor.call.inputs)
    return inputs


def _any_text(*structures: Any) -> bool:
    leaves = filter(is_symbolic, tree.flatten(structures))
    return any(leaf.dtype == TEXT for leaf in leaves)


def _without_text(leaf: Any) -> Any:
    """Return a tensor of numbers as large as a tensor of texts."""
    is_text = is_symbolic(leaf) and leaf.dtype == TEXT
    return KerasTensor(leaf.shape, "int32") if is_text else leaf


def infer(
    function: Callable[..., Any],
    args: Any,
    kwargs: dict[str, Any],
    stretches: bool = False,
) -> Any:
    """Return the Keras tensors a call would give, by tracing it on stand-in shapes.

    Of an unknown and a known axis, the result has the known size if the call
    `stretches`, as ops do; of a layer it is unknown, as in Keras.
    """
    if getattr(function, "moves_text", False) and _any_text(args, kwargs):
        args, kwargs = tree.map_leaves(_without_text, (args, kwargs))
        numbers = infer(function, args, kwargs, stretches)
        return tree.map_leaves(lambda x: KerasTensor(x.shape, TEXT), numbers)
    call = (function, args, kwargs)
    try:
        return _infer_with(*call, _STAND_INS, stretches)
    except ShapeError as error:
        mismatch = error
    ways = (
        partial(_infer_short, *call, stretches),
        partial(_infer_fitting, *call, stretches),
        partial(_infer_with, *call, _LONG_STAND_INS, stretches),
        partial(_infer_fitting, *call, stretches, met=mismatch.sizes),
        # A layer may meet a size that only its code has: `random.normal((32, 2))`.
        partial(_infer_with, *call, _STAND_INS, True),
    )
    for way in ways:
        with contextlib.suppress(ShapeError):
            if (inferred := way()) is not None:
                return inferred
    raise mismatch


def _infer_with(
    function: Callable[..., Any],
    args: Any,
    kwargs: dict[str, Any],
    sizes: tuple[int, int],
    stretches: bool,
) -> Any:
    """Infer with unknown axes of two sizes: the result's are those that differ."""
    before, _slices.bounded = _slices.bounded, False
    try:
        structure, first = _trace(function, args, kwargs, sizes[0], stretches)
        _, second = _trace(function, args, kwargs, sizes[1], stretches)
        if len(first) != len(second):
            raise ValueError(
                "Cannot infer argument `num` from shape, since the size of that axis "
                "is not known (None): how many outputs there are depends on it. Give "
                "`num`."
            )
        traces = [first, second]
        if _slices.bounded:
            traces += _trace_small(function, args, kwargs, first)
    finally:
        _slices.bounded = before or _slices.bounded
    outputs = [_in_common(values) for values in zip(*traces, strict=True)]
    return tree.pack(structure, outputs)


def _in_common(values: Sequence[Any]) -> Any:
    """Return the Keras tensor for the results of traces; others unchanged."""
    if not hasattr(values[0], "shape"):
        return values[0]
    return KerasTensor(_common_sizes(values), values[0].dtype)


def _common_sizes(values: Sequence[Value]) -> list[int | None]:
    """Return the sizes that all traces agree on, None for the others."""
    each_axis = zip(*(value.shape for value in values), strict=True)
    return [sizes[0] if len(set(sizes)) == 1 else None for sizes in each_axis]


def _trace_small(
    function: Callable[..., Any], args: Any, kwargs: dict[str, Any], like: list[Value]
) -> list[list[Value]]:
    """Trace on axes that are shorter than the bounds of slices, where that works.

    An axis of size one may be squeezed away: what has other axes says nothing.
    """
    for size in _SMALL_STAND_INS:
        try:
            values = _trace(function, args, kwargs, size)[1]
        except (ValueError, IndexError, ZeroDivisionError):
            continue
        if [value.ndim for value in values] == [value.ndim for value in like]:
            return [values]
    return []


def _infer_short(
    function: Callable[..., Any], args: Any, kwargs: dict[str, Any], stretches: bool
) -> Any:
    """Infer with unknown axes that are shorter than a table which is cut to them.

    Return None if nothing fits. A stand-in is as long as no known axis: of a call that
    stretches, it would be taken for an unknown one, which fits any other.
    """
    known = _known_sizes(args, kwargs)
    if known is None:
        return None
    for sizes in _SHORT_STAND_INS:
        if not known.isdisjoint(sizes):
            continue
        with contextlib.suppress(ShapeError):
            structure, first = _trace(function, args, kwargs, sizes[0], stretches)
            _, second = _trace(function, args, kwargs, sizes[1], stretches)
            if len(first) == len(second):
                pairs = zip(first, second, strict=True)
                return tree.pack(structure, [_in_common(pair) for pair in pairs])
    return None


def _known_sizes(args: Any, kwargs: dict[str, Any]) -> set[int] | None:
    """Return the known sizes of axes, and numbers; None if no axis is unknown."""
    leaves = tree.flatten((args, kwargs))
    if not any(None in x.shape for x in leaves if is_symbolic(x)):
        return None
    shapes = [x.shape if hasattr(x, "shape") else (x,) for x in leaves]
    return {n for shape in shapes for n in shape if isinstance(n, int)}


def _infer_fitting(
    function: Callable[..., Any],
    args: Any,
    kwargs: dict[str, Any],
    stretches: bool,
    met: frozenset[int] = frozenset(),
) -> Any:
    """Infer with unknown axes as long as a known one that they meet.

    That is an axis of an argument, or one that was `met` inside of the function, such
    as that of a matrix of neighbours. Whether they fit is seen when sizes are known.
    Return None if nothing fits.
    """
    known = _known_sizes(args, kwargs)
    if known is None:
        return None
    for size in sorted(n for n in known | (met - set(_STAND_INS)) if n > 1):
        try:
            structure, values = _trace(function, args, kwargs, size)
        except ShapeError:
            continue
        small = _trace_small(function, args, kwargs, values) if stretches else []
        outputs = []
        for number, value in enumerate(values):
            shape = _common_sizes([value, *(values[number] for values in small)])
            if not small:
                shape = [None if n == size else n for n in shape]
            outputs.append(KerasTensor(shape, value.dtype))
        return tree.pack(structure, outputs)
    return None


def _trace(
    function: Callable[..., Any],
    args: Any,
    kwargs: dict[str, Any],
    size: int,
    stretches: bool = False,
) -> tuple[Any, list[Value]]:
    inputs: dict[KerasTensor, Input] = {}

    def stand_in(leaf: Any) -> Any:
        if not is_symbolic(leaf):
            return leaf
        if leaf.sparse or leaf.ragged:
            raise ValueError(
                f'"{leaf.name}" is sparse or ragged, which is not supported: arrays '
                "are dense."
            )
        if leaf.dtype == TEXT:
            raise TypeError(
                f'"{leaf.name}" holds text, which only layers that run on the host '
                "take: put a TextVectorization, StringLookup or Hashing layer behind "
                "it."
            )
        if leaf not in inputs:
            shape = [size if n is None else n for n in leaf.shape]
            inputs[leaf] = Input(leaf.name, shape, leaf.dtype)
            mask = get_keras_mask(leaf)
            if mask is not None:
                set_keras_mask(inputs[leaf], stand_in(mask))
        return inputs[leaf]

    before = _stand_in.size, _stand_in.stretches
    _stand_in.size, _stand_in.stretches = size, stretches
    try:
        with Scope():
            result = function(
                *tree.map_leaves(stand_in, args), **tree.map_leaves(stand_in, kwargs)
            )
    finally:
        _stand_in.size, _stand_in.stretches = before
    return result, tree.flatten(result)
