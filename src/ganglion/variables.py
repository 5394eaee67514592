"""Variables, and the scope that turns reading and writing them into a graph.

Outside of a scope a variable is an array. Inside, reading one gives a graph input and
assigning one records an output: this is how layers, optimizers and metrics written as
plain assignments become a single pure step graph.
"""

from __future__ import annotations

import itertools
import math
import random as python_random
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import Any

import numpy as np

from ganglion import config, keras2, tensors, tree
from ganglion.compiler import device_arrays
from ganglion.compiler.ir.graph import (
    Constant,
    Input,
    Operators,
    ShapeError,
    Sizes,
    Value,
    call_function,
    dtype_name,
    is_constant,
    register_operators,
)
from ganglion.compiler.ir.origin import layer_path
from ganglion.compiler.ir.pointwise import cast, stop_gradient
from ganglion.compiler.ir.shaping import is_float, reshape
from ganglion.hyperparameters import Number
from ganglion.system import budget

# NumPy's name of an operator, which `array + variable` calls, and ours.
_SAME_NAMES = """add subtract multiply divide power floor_divide matmul negative
absolute equal not_equal less less_equal greater greater_equal"""
_OPERATORS = {name: name for name in _SAME_NAMES.split()} | {
    "remainder": "mod",
    "bitwise_and": "logical_and",
    "bitwise_or": "logical_or",
    "invert": "logical_not",
}
MOST_CALLS = 100_000  # of layers in a step: compiling more would take hours


class Variable(Operators):
    """A named array that training changes.

    >>> v = Variable(np.zeros(2), name="v")
    >>> v.assign_add([1.0, 2.0]).numpy()
    array([1., 2.], dtype=float32)
    """

    layer_name = ""  # of the layer that it is a weight of, as Keras 2 put it into names
    in_graph = False  # a weight, or made by `K.variable`, of Keras 2: see `deferring`

    def __init__(
        self,
        initializer: Any,
        shape: Any = None,
        dtype: Any = None,
        trainable: bool = True,
        autocast: bool = True,
        aggregation: str = "none",
        synchronization: str = "auto",
        name: str | None = None,
    ) -> None:
        _check_words(aggregation, synchronization)
        if name is not None and (not isinstance(name, str) or "/" in name):
            raise ValueError(
                "Argument `name` must be a string and cannot contain character `/`. "
                f"Received: name={name!r}"
            )
        self.own_name = name or unique_name("variable")
        self.path = f"{layer_path()}/{self.own_name}" if layer_path() else self.own_name
        self.trainable = trainable
        self._regularizer: Callable[[Any], Any] | None = None
        self._constraint: Callable[[Any], Any] | None = None
        self._overwrite_with_gradient = False
        self._autocast = autocast
        self.grad: Any = None  # what `backward` found, see `gradients`
        if isinstance(initializer, str):
            initializer = _initializer_by_name[0](initializer)
        if callable(initializer):
            dtype = np.dtype(dtype or config.floatx())
            self._array = self._initialized(initializer, shape, dtype)
            return
        array = np.asarray(initializer)
        if dtype is None:
            dtype = config.floatx() if is_float(array.dtype) else array.dtype
            is_python = not isinstance(initializer, (np.ndarray, np.generic))
            if is_python and array.dtype == np.int64:
                dtype = "int32"  # integers of Python, as `read` has them
        # Backends would copy another order, at every run.
        self._array = np.array(array, dtype=dtype, order="C")

    def _initialized(
        self, initializer: Callable[..., Any], shape: Any, dtype: np.dtype
    ) -> np.ndarray:
        """Return the numbers of an initializer; zeros inside of `uninitialized`."""
        if shape is None:
            raise ValueError(
                "When creating a Variable from an initializer, the `shape` "
                f"argument should be specified: {self.path!r} has none."
            )
        shape = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
        if None in shape:
            raise ValueError(
                f"Variable {self.path!r} needs a size for every axis, got the shape "
                f"{shape}."
            )
        if budget.current() is not None:
            # Before memory is allocated: a file may name any shape.
            purpose = f"{self.path!r} of the expected shape {shape}"
            nbytes = math.prod(shape) * dtype.itemsize
            # Drawing random numbers takes as much again, twice.
            beside = 0 if _active.blank else 2 * nbytes
            budget.take(nbytes, purpose, beside=beside)
        if _active.blank:  # untouched zeros take no memory, whatever their size
            return np.zeros(shape, dtype)
        with suspended():
            numbers = initializer(shape, dtype=dtype_name(dtype))
        return np.array(numbers, dtype, order="C")

    @property
    def regularizer(self) -> Callable[[Any], Any] | None:
        """What a model adds to its loss for this variable: a function, or None."""
        return self._regularizer

    @regularizer.setter
    def regularizer(self, value: Callable[[Any], Any] | None) -> None:
        self._regularizer = _function_or_none("regularizer", value)

    @property
    def constraint(self) -> Callable[[Any], Any] | None:
        """A function that optimizers apply to the variable after a step, or None."""
        return self._constraint

    @constraint.setter
    def constraint(self, value: Callable[[Any], Any] | None) -> None:
        self._constraint = _function_or_none("constraint", value)

    @property
    def overwrite_with_gradient(self) -> bool:
        """Whether an optimizer puts the gradient in the place of the value."""
        return self._overwrite_with_gradient

    @overwrite_with_gradient.setter
    def overwrite_with_gradient(self, value: bool) -> None:
        if not isinstance(value, bool):
            raise TypeError(
                f"`overwrite_with_gradient` must be a boolean. Received: {value!r}"
            )
        self._overwrite_with_gradient = value

    @property
    def name(self) -> str:
        """The name; for Keras 2 with the layer's, as in `dense_1/kernel:0`."""
        if not keras2.in_force:
            return self.own_name
        return f"{self.layer_name}/{self.own_name}:0".lstrip("/")

    @name.setter
    def name(self, name: str) -> None:
        self.own_name = name

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape, fixed for the life of the variable."""
        return Sizes(self._array.shape)

    @property
    def dtype(self) -> str:
        """The type's name; that of its value where a layer computes in another."""
        return dtype_name(self._value_dtype)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self._array.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return self._array.size

    @property
    def value(self) -> Any:
        """The numbers as a tensor, or the traced value inside of a scope."""
        scope = current_scope()
        if scope:
            return _as_computed(scope.read(self), self)
        tensor = tensors.evaluated([read(self)])[0]
        tensor._variable = self
        return tensor

    @property
    def _value_dtype(self) -> np.dtype:
        dtype = self._array.dtype
        if self._autocast and _active.autocast is not None and is_float(dtype):
            return _active.autocast
        return dtype

    def numpy(self) -> Any:
        """Return a copy of the array; a scalar is a number of NumPy, as of a tensor."""
        return self.array.copy()[()]

    @property
    def array(self) -> np.ndarray:
        """The array itself, for backends: they read and write it in place."""
        overlay = _active.overlay
        if overlay is not None and self in overlay:
            return np.asarray(overlay[self])
        is_newest = not device_arrays.dirty
        return self._array if is_newest else device_arrays.sync_to_host(self._array)

    @property
    def unsynced_array(self) -> np.ndarray:
        """The array, perhaps older than what a device holds: see `device_arrays`."""
        return self._array

    def __getstate__(self) -> dict[str, Any]:
        device_arrays.sync_to_host(self._array)  # a copy is of the newest values
        return vars(self)

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array(self.array, dtype=dtype)

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any
    ) -> Any:
        """Let NumPy's functions read a variable; operators are those of `ops`."""
        name = _OPERATORS.get(ufunc.__name__)
        if name and method == "__call__" and not kwargs.keys() - {"out"}:
            return call_function(name, *inputs)
        if current_scope():
            raise TypeError(
                f"NumPy's `{ufunc.__name__}` cannot read the variable {self.path!r} "
                "while the model is compiled: use `ganglion.ops`."
            )
        arrays = [x.array if isinstance(x, Variable) else x for x in inputs]
        return getattr(ufunc, method)(*arrays, **kwargs)

    def assign(self, value: Any) -> Any:
        """Replace the value; inside of a scope, at the end of the step."""
        scope = current_scope()
        if scope:
            return scope.write(self, value)
        if isinstance(value, Value):
            (value,) = tensors.evaluated([value])
        is_recorded = isinstance(value, tensors.Tensor) and value.dtype == self.dtype
        array = value if is_recorded else np.asarray(value, dtype=self._array.dtype)
        if array.shape != self.shape:
            raise ValueError(
                f"Cannot assign an array of shape {array.shape} to the variable "
                f"{self.path!r} of shape {self.shape}."
            )
        self.replace_numbers(array)
        return self

    def replace_numbers(self, array: np.ndarray) -> None:
        """Replace the numbers in place; no gradient flows through an assignment."""
        if _active.overlay is not None:
            _active.overlay[self] = array
            return
        self.array[...] = array
        recording = tensors.recording()
        if recording is not None:
            recording.assigned(self)

    def assign_add(self, value: Any) -> Any:
        """Add to the value."""
        return self.assign(self + value)

    def assign_sub(self, value: Any) -> Any:
        """Subtract from the value."""
        return self.assign(self - value)

    def __eq__(self, other: object) -> Any:
        if isinstance(other, Variable):
            return self is other
        return super().__eq__(other)

    def __ne__(self, other: object) -> Any:
        if isinstance(other, Variable):
            return self is not other
        return super().__ne__(other)

    __hash__ = object.__hash__

    def __len__(self) -> int:
        return len(self._array)

    def __bool__(self) -> bool:
        if self.size != 1:
            raise TypeError(
                "A Keras Variable cannot be used as a boolean. Compare its elements, "
                "and use `ops.any` or `ops.all`."
            )
        return bool(self.value)

    def __int__(self) -> int:
        return int(self._scalar())

    def __float__(self) -> float:
        return float(self._scalar())

    def _scalar(self) -> np.ndarray:
        if self.ndim:
            raise TypeError(
                "Only scalar arrays can be converted to Python scalars. Received: "
                f"variable of shape {self.shape}"
            )
        return self.array

    def __repr__(self) -> str:
        # While a step is traced, the numbers are not those of the variable there.
        numbers = "" if current_scope() else f", value={self.array}"
        return (
            f"<Variable path={self.path}, shape={self.shape}, dtype={self.dtype}"
            f"{numbers}>"
        )


def arrays_of(variables: Iterable[Variable]) -> list[np.ndarray]:
    """Return the arrays of many variables: faster than asking each for its `array`.

    >>> arrays_of([Variable(np.zeros(2)), Variable(np.ones(1))])
    [array([0., 0.], dtype=float32), array([1.], dtype=float32)]
    """
    if device_arrays.dirty or _active.overlay is not None:
        return [variable.array for variable in variables]
    return list(map(_own_array, variables))


_own_array = attrgetter("_array")


def values_are_elsewhere() -> bool:
    """Return whether variables may have newer values than those in their arrays.

    These are on a device, or in a `StatelessScope`.
    """
    return bool(device_arrays.dirty) or _active.overlay is not None


def _function_or_none(name: str, value: Any) -> Any:
    if value is not None and not callable(value):
        raise ValueError(
            f"Invalid value for attribute `{name}`. Expected a function or `None`. "
            f"Received: {value!r}"
        )
    return value


def _check_words(aggregation: Any, synchronization: Any) -> None:
    for name, value, known in (
        ("aggregation", aggregation, ("none", "mean", "sum", "only_first_replica")),
        ("synchronization", synchronization, ("none", "on_read", "on_write", "auto")),
    ):
        if value is not None and value not in known:
            raise ValueError(
                f"Unknown `{name}` {value!r}: use one of {', '.join(map(repr, known))}."
            )


def too_many_calls(name: str) -> ValueError:
    """Return the error of a step that would take too long to compile."""
    return ValueError(
        f'A step calls layers more than {MOST_CALLS:,} times, the last of them "{name}"'
        ": models within models are unfolded call by call, so two calls of each double "
        "with every level. Nest less deep, or call a shared model once and use what "
        "it returned twice."
    )


class Scope:
    """What one trace reads and writes; used as ``with Scope(training=True):``.

    A concrete scope reads variables as constants, for calls on plain arrays.
    """

    def __init__(self, training: bool = False, concrete: bool = False) -> None:
        self.training = training
        self.training_is_set = True  # by the caller, not only by default
        self.context: dict[str, Any] = {}  # other arguments that layers below inherit
        self.concrete = concrete
        self.reads: dict[Variable, Value] = {}
        self.writes: dict[Variable, Value] = {}
        self.grads: dict[Variable, Value] = {}  # see `gradients.backward`
        self._versions: dict[Variable, list[Value]] = {}
        self.losses: list[Value] = []
        self.limits: list[Any] = []  # see `ops.index_limits`
        self.loss_owners: list[Any] = []  # the layer that added each
        self.trainable: frozenset[Variable] | None = None
        self.shared_calls: dict[Any, Any] = {}  # see `functional.shared`
        self.keras_tensors: dict[Any, Any] = {}  # see `symbolic.values_in_trace`
        self.noise: dict[Any, Any] = {}  # see `layers.rnn.cells.same_dropout`
        self.shared_values: dict[Any, Any] = {}  # see `Optimizer._for_all`
        self.depth = 0  # of the layers that are being called
        self._names: set[str] = set()
        self._numbers: dict[Any, Variable] = {}
        self._watched: tensors.Watched = {}
        self._calls = self._assignments = 0

    def read(self, variable: Variable) -> Value:
        """Return the variable's value at this point of the step."""
        if variable in self.writes:
            return self.writes[variable]
        if variable not in self.reads:
            self.reads[variable] = self._first_read(variable)
            self._versions[variable] = [self.reads[variable]]
        return self.reads[variable]

    def versions(self, variable: Variable) -> list[Value]:
        """Return all values that a variable had so far."""
        return self._versions.get(variable, [])

    def _first_read(self, variable: Variable) -> Value:
        if self.concrete:
            return _constant(variable)
        name, number = variable.path, 1
        while name in self._names:
            number += 1
            name = f"{variable.path}~{number}"
        self._names.add(name)
        return Input(name, variable.shape, variable.unsynced_array.dtype)

    @property
    def numbers(self) -> frozenset[Variable]:
        """The hyperparameters that were read: nothing else has these variables."""
        return frozenset(self._numbers.values())

    def number(self, number: Number, dtype: Any) -> Value:
        """Return a hyperparameter as an input of the step."""
        key = (number.origin, float(number), dtype)
        if key not in self._numbers:
            name = number.text.replace("/", "by")
            self._numbers[key] = Variable(
                np.asarray(float(number), dtype), trainable=False, name=name
            )
        return self.read(self._numbers[key])

    def watch(self, array: np.ndarray) -> Value:
        """Make an array a value of this trace, for which gradients can be computed."""
        if id(array) not in self._watched:
            # No constant: loops have a copy of those, which no gradient reaches.
            value = reshape(Constant(array), shape=array.shape)
            self._watched[id(array)] = array, value
            tensors.set_watched(self._watched)
        return self._watched[id(array)][1]

    def write(self, variable: Variable, value: Any) -> Variable:
        """Record the variable's new value."""
        if not isinstance(value, Value):
            value = read(value)
        dtype = variable.unsynced_array.dtype
        if value.dtype != dtype:
            value = cast(value, dtype=dtype_name(dtype))
        if value.shape != variable.shape:
            raise ShapeError(
                f"Cannot assign {value.type_text} to the variable {variable.path!r} "
                f"of shape {variable.shape}."
            )
        self.read(variable)
        # No gradient flows through an assignment: later reads start a new graph.
        value = stop_gradient(value)
        self.writes[variable] = value
        self._versions[variable].append(value)
        self._assignments += 1
        return variable

    def add_loss(self, layer: Any, loss: Value) -> None:
        """Add to the loss that training minimises."""
        self.losses.append(loss)
        self.loss_owners.append(layer)

    def drop_losses(self, layers: Iterable[Any]) -> None:
        """Discard the losses that some layers added."""
        dropped = set(map(id, layers))
        pairs = zip(self.loss_owners, self.losses, strict=True)
        kept = [pair for pair in pairs if id(pair[0]) not in dropped]
        self.loss_owners[:] = [owner for owner, _ in kept]
        self.losses[:] = [loss for _, loss in kept]

    def losses_of(self, layer: Any) -> list[Value]:
        """Return what a layer added."""
        pairs = zip(self.loss_owners, self.losses, strict=True)
        return [loss for owner, loss in pairs if owner is layer]

    @property
    def changes(self) -> tuple[int, int]:
        """How often something else was done than to compute: a call without is pure."""
        return self._assignments, len(self.losses)

    def count_call(self, name: str) -> None:
        """Refuse more calls of layers than a step can have."""
        self._calls += 1
        if self._calls > MOST_CALLS:
            raise too_many_calls(name)

    def commit(self) -> None:
        """Compute what was written and store it (concrete scopes)."""
        arrays = tensors.evaluated(list(self.writes.values()))
        for variable, array in zip(self.writes, arrays, strict=True):
            variable.replace_numbers(array)

    def hand_over(self) -> None:
        """Pass what was written to the stateless scope around a loop's body.

        Without one it would be lost: each round has values of its own.
        """
        for variable, value in self.writes.items():
            if _active.overlay is None:
                raise RuntimeError(
                    f"The variable {variable.path!r} is written in the body of a loop, "
                    "which runs many times at once: write it outside, or call the "
                    "layer with `stateless_call`."
                )
            _active.overlay[variable] = value

    def __enter__(self) -> Scope:
        _active.scopes.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _active.scopes.pop()
        if self._watched:
            tensors.set_watched(None)


class _Active(threading.local):
    def __init__(self) -> None:
        self.scopes: list[Scope | None] = []
        self.blank = False
        self.autocast: np.dtype | None = None
        self.overlay: dict[Variable, Any] | None = None  # see `StatelessScope`
        self.deferring = False  # see `deferring`


_active = _Active()


def current_scope() -> Scope | None:
    """Return the scope being traced, None outside of any."""
    return _active.scopes[-1] if _active.scopes else None


def zip_values(
    argument: str, variables: Sequence[Variable], values: Sequence[Any], owner: str
) -> list[tuple[Variable, Any]]:
    """Return variables with the values that an argument has for a `StatelessScope`."""
    if len(values) != len(variables):
        raise ValueError(
            f"`{argument}` must have a value for each of the {len(variables)} "
            f'variables of "{owner}", in their order, got {len(values)}.'
        )
    return list(zip(variables, values, strict=True))


class StatelessScope:
    """A block in which variables have other values, which end with the block.

    >>> v = Variable(1.0)
    >>> with StatelessScope([(v, np.float32(5))]) as scope:
    ...     v.assign(v * 2.0).numpy()
    np.float32(10.0)
    >>> v.numpy(), scope.get_current_value(v)
    (np.float32(1.0), array(10., dtype=float32))
    """

    def __init__(
        self,
        state_mapping: Any = None,
        collect_losses: bool = False,
        initialize_variables: bool = True,
    ) -> None:
        self.state_mapping: dict[Variable, Any] = {}
        self.collect_losses = collect_losses
        self.initialize_variables = initialize_variables
        for variable, value in state_mapping or ():
            if not isinstance(variable, Variable):
                raise ValueError(
                    "In a stateless scope, all keys in argument `mapping` must be "
                    f"Variable instances. Received instead: {variable!r}"
                )
            shape = tuple(getattr(value, "shape", None) or np.shape(value))
            if shape != variable.shape:
                raise ValueError(
                    "In a stateless scope, all values in argument `mapping` must be "
                    "tensors with a shape that matches the corresponding variable. "
                    f"The variable {variable.path!r} has {variable.shape}, its value "
                    f"{shape}."
                )
            self.state_mapping[variable] = value

    def __enter__(self) -> StatelessScope:
        scope = current_scope()
        values = {
            variable: value.value if isinstance(value, Variable) else value
            for variable, value in self.state_mapping.items()
        }
        if scope is None:
            self._before: Any = _active.overlay
            _active.overlay = {**(self._before or {}), **values}
        else:
            self._before = dict(scope.writes)
            for variable, value in values.items():
                scope.read(variable)
                scope.writes[variable] = _cast_to(value, variable.dtype)
        return self

    def __exit__(self, *error: object) -> None:
        scope = current_scope()
        if scope is None:
            self.state_mapping = _active.overlay or {}
            _active.overlay = self._before
        else:
            self.state_mapping = dict(scope.writes)
            scope.writes.clear()
            scope.writes.update(self._before)

    def add_update(self, update: tuple[Variable, Any]) -> None:
        """Give a variable a value in this scope."""
        variable, value = update
        variable.assign(value)

    def get_current_value(self, variable: Variable) -> Any:
        """Return the value of a variable in the scope, None if it has none there."""
        scope = current_scope()
        mapping = self.state_mapping
        if scope is None and _active.overlay is not None:
            mapping = {**mapping, **_active.overlay}
        value = mapping.get(variable)
        return tensors.as_tensor(value) if type(value) is np.ndarray else value

    def current_values(self, variables: Sequence[Variable]) -> list[Any]:
        """Return the value of each variable in the scope, or the one outside of it."""
        values = [self.get_current_value(variable) for variable in variables]
        return [
            variable.value if value is None else value
            for variable, value in zip(variables, values, strict=True)
        ]


def _cast_to(value: Any, dtype: Any) -> Value:
    """Return any array-like as a value of this type."""
    value = read(value)
    return value if value.dtype == dtype else cast(value, dtype=dtype)


@contextmanager
def suspended() -> Iterator[None]:
    """Compute on plain arrays in this block, even inside of a trace."""
    _active.scopes.append(None)
    try:
        yield
    finally:
        _active.scopes.pop()


@contextmanager
def autocast(dtype: str | None) -> Iterator[None]:
    """Read variables of floats as this type in this block, as a layer computes."""
    before = _active.autocast
    _active.autocast = None if dtype is None else np.dtype(dtype)
    try:
        yield
    finally:
        _active.autocast = before


def autocast_dtype() -> str | None:
    """Return the type that variables of floats are read as, None for their own."""
    return None if _active.autocast is None else _active.autocast.name


def _as_computed(value: Value, variable: Variable) -> Value:
    dtype = variable._value_dtype
    return value if value.dtype == dtype else cast(value, dtype=dtype_name(dtype))


@contextmanager
def deferring() -> Iterator[None]:
    """In this block, compute values of variables again wherever they are read.

    That is what a Keras 2 layer means that computes from its weights in `build`. What
    depends on a variable that is `in_graph` is computed so in any place.
    """
    before, _active.deferring = _active.deferring, True
    try:
        yield
    finally:
        _active.deferring = before


def is_deferred(leaves: Iterable[Any]) -> bool:
    """Return whether an op on these computes nothing yet; see `deferring`."""
    if current_scope() is not None:
        return False
    return any(
        isinstance(leaf, Deferred)
        or (isinstance(leaf, Variable) and (_active.deferring or leaf.in_graph))
        for leaf in leaves
    )


def defer(function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """Return what an op gives, each tensor of it to be computed where it is read."""
    with Scope(concrete=True):
        result = function(*args, **kwargs)
    leaves = tree.flatten(result)
    return tree.pack(
        result,
        [
            Deferred(function, args, kwargs, i, leaf)
            if hasattr(leaf, "shape")
            else leaf
            for i, leaf in enumerate(leaves)
        ],
    )


class Deferred(Operators):
    """A tensor that is computed from variables wherever it is read.

    >>> v = Variable([1.0, 2.0])
    >>> with deferring():
    ...     doubled = v * 2
    >>> _ = v.assign([3.0, 4.0])
    >>> np.asarray(doubled)
    array([6., 8.], dtype=float32)
    """

    def __init__(
        self,
        function: Callable[..., Any],
        args: Any,
        kwargs: dict[str, Any],
        index: int,
        like: Any,
    ) -> None:
        self._call = function, args, kwargs
        self._index = index
        self.shape = Sizes(like.shape)
        self.dtype = str(like.dtype)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def value(self, scope: Scope) -> Any:
        """Return the tensor of a step, computed once however often it is read there."""
        if self not in scope.shared_values:
            function, args, kwargs = self._call
            result = tree.flatten(function(*args, **kwargs))[self._index]
            scope.shared_values[self] = result
        return scope.shared_values[self]

    def numpy(self) -> np.ndarray:
        """Return the array that the variables give now."""
        with Scope(concrete=True) as scope:
            value = read(self.value(scope))
        return np.asarray(tensors.evaluated([value])[0])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self.numpy(), dtype)

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any
    ) -> Any:
        """Let NumPy's functions read it; operators are those of `ops`."""
        name = _OPERATORS.get(ufunc.__name__)
        if name and method == "__call__" and not kwargs:
            return call_function(name, *inputs)
        arrays = [np.asarray(x) if isinstance(x, Deferred) else x for x in inputs]
        return getattr(ufunc, method)(*arrays, **kwargs)

    def __len__(self) -> int:
        return len(self.numpy())

    def __bool__(self) -> bool:
        return bool(self.numpy())

    def __int__(self) -> int:
        return int(self.numpy())

    def __float__(self) -> float:
        return float(self.numpy())

    def __repr__(self) -> str:
        return f"<Deferred shape={self.shape}, dtype={self.dtype}>"

    __hash__ = object.__hash__


@contextmanager
def uninitialized() -> Iterator[None]:
    """Make variables of zeros in this block: their values will be read from a file."""
    before, _active.blank = _active.blank, True
    try:
        yield
    finally:
        _active.blank = before


def read(x: Any, dtype: Any = None) -> Value:
    """Return any array-like as a value: traced, or a constant.

    Python floats take the float type of `config`, integers int32, as Keras does.
    Arrays keep their type; inside of a trace float64 ones take the float type too, so
    that a table of NumPy's default type does not make a whole model slow.
    """
    scope = current_scope()
    if isinstance(x, Variable):
        x = _as_computed(scope.read(x) if scope else _constant(x), x)
    if isinstance(x, Deferred) and scope is not None:
        return read(x.value(scope))
    if isinstance(x, Value):
        return x
    value = tensors.watched_value(x)
    if value is None and (scope is None or scope.concrete):
        recording = tensors.recording()
        value = None if recording is None else recording.value_of(x)
    if value is not None:
        return value
    if isinstance(x, (list, tuple)) and _any_followed(x, scope):
        return read(call_function("stack", list(x)))
    if isinstance(x, Number) and scope is not None and not scope.concrete:
        dtype = np.dtype(dtype or config.floatx())
        if is_float(dtype) or (dtype.kind in "iu" and x.is_integer()):
            return scope.number(x, dtype)
    array = np.asarray(x)
    if array.dtype == object:
        raise TypeError(f"Cannot use {type(x).__name__} as an array: {x!r:.80}")
    if dtype is None:
        dtype = array.dtype
        is_python = not isinstance(x, (np.ndarray, np.generic))
        if array.dtype == np.float64 and (is_python or scope):
            dtype = config.floatx()
        elif is_python and array.dtype == np.int64:
            dtype = "int32"
    return Constant(array, dtype)


def _any_followed(parts: Any, scope: Scope | None) -> bool:
    """Return whether parts may need gradients: as arrays they have none."""
    recording = tensors.recording()
    if scope is None and recording is None:
        return False
    return any(
        isinstance(leaf, (Value, Variable))
        or (recording is not None and recording.value_of(leaf) is not None)
        for leaf in tree.flatten(parts)
    )


def _constant(variable: Variable) -> Value:
    """Return a variable's value, as the leaf that tapes record if one is open."""
    if _active.overlay is not None and variable in _active.overlay:
        return read(_active.overlay[variable], variable.dtype)
    recording = tensors.recording()
    if recording is None:
        return Constant(variable.array)
    return recording.leaf(variable, variable.array)


def _numbers(value: Value) -> Any:
    """Return the numbers of a value where they are known, else None.

    Layers that are called on arrays compute with values, too: code inside of them may
    print them and decide by them. In a trace, what is computed from constants alone,
    such as the sizes of a batch, is known.
    """
    scope = current_scope()
    if scope is not None and not scope.concrete and not is_constant(value):
        return None
    try:
        return tensors.evaluated([value])[0]
    except ValueError:  # it comes from a trace that is over
        return None


register_operators({"numbers": _numbers})

_initializer_by_name: list[Callable[[str], Any]] = []


def register_initializers(by_name: Callable[[str], Any]) -> None:
    """Register the function that finds an initializer by name, from a room above."""
    _initializer_by_name[:] = [by_name]


_name_counts: dict[str, itertools.count[int]] = {}


def unique_name(prefix: str) -> str:
    """Return ``dense``, then ``dense_1``, ``dense_2`` ..."""
    # Both are one step for Python: threads that build models at once need no lock,
    # which a fork could leave locked.
    count = next(_name_counts.setdefault(prefix, itertools.count()))
    return f"{prefix}_{count}" if count else prefix


def snake_case(name: str) -> str:
    """Turn a class name into the name of its first instance.

    >>> snake_case("MaxPooling2D"), snake_case("ReLU")
    ('max_pooling2d', 're_lu')
    """
    name = re.sub(r"\W+", "", name)
    name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()


def reset_names() -> None:
    """Count names from the start again (`clear_session`)."""
    _name_counts.clear()


@contextmanager
def counted_anew() -> Iterator[None]:
    """Count names from the start in this block, and as before after it."""
    global _name_counts
    before, _name_counts = _name_counts, {}
    try:
        yield
    finally:
        _name_counts = before


def draw_seed() -> int:
    """Return a new seed from Python's generator, which `set_random_seed` fixes."""
    return python_random.randint(1, int(1e9))
