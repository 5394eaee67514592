"""Variables, and the scope that turns reading and writing them into a graph.

Outside of a scope a variable is an array. Inside, reading one gives a graph input and
assigning one records an output: this is how layers, optimizers and metrics written as
plain assignments become one pure step graph.
"""

from __future__ import annotations

import itertools
import math
import random as python_random
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ganglion import config
from ganglion.compiler import device_arrays
from ganglion.compiler.ir.graph import (
    Constant,
    Input,
    Operators,
    ShapeError,
    Value,
    call_function,
    evaluate,
)
from ganglion.compiler.ir.origin import layer_path
from ganglion.compiler.ir.pointwise import cast
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
MOST_CALLS = 100_000  # of layers in one step: compiling more would take hours


class Variable(Operators):
    """A named array that training changes.

    >>> v = Variable(np.zeros(2), name="v")
    >>> v.assign_add([1.0, 2.0]).numpy()
    array([1., 2.], dtype=float32)
    """

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
            raise ValueError(f"`name` must be a string without '/', got {name!r}.")
        self.name = name or unique_name("variable")
        self.path = f"{layer_path()}/{self.name}" if layer_path() else self.name
        self.trainable = trainable
        self.regularizer: Callable[[Any], Any] | None = None
        self.constraint: Callable[[Any], Any] | None = None
        self.overwrite_with_gradient = False
        if isinstance(initializer, str):
            initializer = _initializer_by_name[0](initializer)
        if callable(initializer):
            dtype = np.dtype(dtype or config.floatx())
            if shape is None:
                raise ValueError(f"Variable {self.path!r} needs a shape.")
            shape = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
            if None in shape:
                raise ValueError(
                    f"Variable {self.path!r} needs a size for every axis, got the "
                    f"shape {shape}."
                )
            if budget.current() is not None:
                # Before it is made: a file may name any shape.
                purpose = f"{self.path!r} of the expected shape {shape}"
                nbytes = math.prod(shape) * dtype.itemsize
                # Drawing random numbers takes as much again, twice.
                beside = 0 if _active.blank else 2 * nbytes
                budget.take(nbytes, purpose, beside=beside)
            if _active.blank:  # untouched zeros take no memory, whatever their size
                self._array = np.zeros(shape, dtype)
                return
            with suspended():
                initializer = initializer(shape, dtype=dtype.name)
        array = np.asarray(initializer)
        if dtype is None:
            dtype = config.floatx() if array.dtype.kind == "f" else array.dtype
            is_python = not isinstance(initializer, (np.ndarray, np.generic))
            if is_python and array.dtype == np.int64:
                dtype = "int32"  # whole numbers of Python, as `read` has them
        self._array = np.array(array, dtype=dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape, fixed for the life of the variable."""
        return self._array.shape

    @property
    def dtype(self) -> str:
        """The type's name, as in Keras."""
        return self._array.dtype.name

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
        """The array, or the traced value inside of a scope."""
        scope = current_scope()
        return scope.read(self) if scope else self.array

    def numpy(self) -> np.ndarray:
        """Return a copy of the array."""
        return self.array.copy()

    @property
    def array(self) -> np.ndarray:
        """The array itself, for backends: they read and write it in place."""
        return device_arrays.sync_to_host(self._array)

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
            (value,) = evaluate([value])
        array = np.asarray(value, dtype=self._array.dtype)
        if array.shape != self.shape:
            raise ValueError(
                f"Cannot assign an array of shape {array.shape} to the variable "
                f"{self.path!r} of shape {self.shape}."
            )
        self.array[...] = array
        return self

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
        return bool(self.value)

    def __int__(self) -> int:
        return int(self.array)

    def __float__(self) -> float:
        return float(self.array)

    def __repr__(self) -> str:
        return f"<Variable path={self.path}, shape={self.shape}, dtype={self.dtype}>"


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
        self.told = True  # whether this is training was set explicitly
        self.concrete = concrete
        self.reads: dict[Variable, Value] = {}
        self.writes: dict[Variable, Value] = {}
        self.losses: list[Value] = []
        self.limits: list[Any] = []  # see `ops.bounds`
        self.loss_owners: list[Any] = []  # the layer that added each
        self.trainable: frozenset[Variable] | None = None
        self.shared_calls: dict[Any, Any] = {}  # see `functional.shared`
        self.noise: dict[Any, Any] = {}  # see `layers.rnn.cells.same_dropout`
        self._names: set[str] = set()
        self._calls = self._assignments = 0

    def read(self, variable: Variable) -> Value:
        """Return the variable's value at this point of the step."""
        if variable in self.writes:
            return self.writes[variable]
        if variable not in self.reads:
            self.reads[variable] = self._first_read(variable)
        return self.reads[variable]

    def _first_read(self, variable: Variable) -> Value:
        if self.concrete:
            return Constant(variable.array)
        name, number = variable.path, 1
        while name in self._names:
            number += 1
            name = f"{variable.path}~{number}"
        self._names.add(name)
        return Input(name, variable.shape, variable.dtype)

    def write(self, variable: Variable, value: Any) -> Variable:
        """Record the variable's new value."""
        if not isinstance(value, Value):
            value = read(value)
        if value.dtype != variable.dtype:
            value = cast(value, dtype=variable.dtype)
        if value.shape != variable.shape:
            raise ShapeError(
                f"Cannot assign {value.type_text} to the variable {variable.path!r} "
                f"of shape {variable.shape}."
            )
        self.read(variable)
        self.writes[variable] = value
        self._assignments += 1
        return variable

    def add_loss(self, layer: Any, loss: Value) -> None:
        """Add to the loss that training minimises."""
        self.losses.append(loss)
        self.loss_owners.append(layer)

    def losses_of(self, layer: Any) -> list[Value]:
        """Return what one layer added."""
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
        arrays = evaluate(list(self.writes.values()))
        for variable, array in zip(self.writes, arrays, strict=True):
            variable.array[...] = array

    def __enter__(self) -> Scope:
        _active.scopes.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _active.scopes.pop()


class _Active(threading.local):
    def __init__(self) -> None:
        self.scopes: list[Scope | None] = []
        self.blank = False


_active = _Active()


def current_scope() -> Scope | None:
    """Return the scope being traced, None outside of any."""
    return _active.scopes[-1] if _active.scopes else None


@contextmanager
def suspended() -> Iterator[None]:
    """Compute on plain arrays in this block, even inside of a trace."""
    _active.scopes.append(None)
    try:
        yield
    finally:
        _active.scopes.pop()


@contextmanager
def uninitialized() -> Iterator[None]:
    """Make variables of zeros in this block: their values are about to be read."""
    before, _active.blank = _active.blank, True
    try:
        yield
    finally:
        _active.blank = before


def read(x: Any, dtype: Any = None) -> Value:
    """Return any array-like as a value: traced, or a constant.

    Python floats take the float type of `config`, whole numbers int32, as Keras does.
    Arrays keep their type; inside of a trace float64 ones take the float type too, so
    that a table of NumPy's default type does not make a whole model slow.
    """
    if isinstance(x, Variable):
        scope = current_scope()
        x = scope.read(x) if scope else Constant(x.array)
    if isinstance(x, Value):
        return x
    array = np.asarray(x)
    if array.dtype == object:
        raise TypeError(f"Cannot use {type(x).__name__} as an array: {x!r:.80}")
    if dtype is None:
        dtype = array.dtype
        is_python = not isinstance(x, (np.ndarray, np.generic))
        if array.dtype == np.float64 and (is_python or current_scope()):
            dtype = config.floatx()
        elif is_python and array.dtype == np.int64:
            dtype = "int32"
    return Constant(array, dtype)


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


def draw_seed() -> int:
    """Return a new seed from Python's generator, which `set_random_seed` fixes."""
    return python_random.randint(1, int(1e9))
