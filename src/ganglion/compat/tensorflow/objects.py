"""TensorFlow's classes, contexts and decorators."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from ganglion import ops, tensors, tree, variables
from ganglion.compat.tensorflow.data.elements import as_array
from ganglion.compat.tensorflow.dtypes import DType
from ganglion.compiler.ir.graph import Sizes, UnknownNumbersError, Value
from ganglion.symbolic import KerasTensor
from ganglion.variables import current_scope

newaxis = None


class OpError(Exception):
    """The base of TensorFlow's errors."""


class OutOfRangeError(OpError, IndexError):
    """Data has ended."""


class InvalidArgumentError(OpError, ValueError):
    """A check failed, or an argument has the wrong value."""


# What scripts have `except` for beside those. Memory and files are Python's own.
ResourceExhaustedError = MemoryError
NotFoundError = FileNotFoundError
UnimplementedError = NotImplementedError


class AbortedError(OpError):
    """Raised among machines that train together."""


class FailedPreconditionError(OpError):
    """Raised where state was not initialized."""


class UnavailableError(OpError):
    """Raised where another machine does not answer."""


class _AnyTensor(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, (Value, KerasTensor, tensors.Tensor))


class Tensor(metaclass=_AnyTensor):
    """The result of an op; for `isinstance` and annotations."""


class _AnyVariable(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, variables.Variable)


class Variable(variables.Variable, metaclass=_AnyVariable):
    """A variable, with TensorFlow's arguments.

    >>> Variable([1.0, 2.0], trainable=False).numpy()
    array([1., 2.], dtype=float32)
    """

    def __init__(
        self,
        initial_value: Any = None,
        trainable: bool | None = None,
        validate_shape: bool = True,
        caching_device: Any = None,
        name: str | None = None,
        variable_def: Any = None,
        dtype: Any = None,
        import_scope: Any = None,
        constraint: Any = None,
        synchronization: Any = None,
        aggregation: Any = None,
        shape: Any = None,
    ) -> None:
        for argument in ("caching_device", "variable_def", "import_scope"):
            if locals()[argument] is not None:
                raise NotImplementedError(
                    f"tf.Variable: `{argument}` belongs to TensorFlow's graphs; leave "
                    "it out."
                )
        if initial_value is None:
            raise ValueError("tf.Variable needs an `initial_value`.")
        value = initial_value() if callable(initial_value) else initial_value
        if dtype is None:
            dtype = as_array(value).dtype.name
        if shape is not None and not validate_shape:
            raise NotImplementedError("tf.Variable: its shape cannot change here.")
        super().__init__(
            np.asarray(value),
            dtype=None if dtype is None else str(dtype),
            trainable=trainable is not False,
            name=None if name is None else name.replace("/", "_"),
        )
        self.constraint = constraint

    @property
    def dtype(self) -> Any:
        """The type, as one of TensorFlow's."""
        return DType(super().dtype)

    def __getitem__(self, key: Any) -> Any:
        part = super().__getitem__(key)
        if not isinstance(part, tensors.Tensor) or part.is_recorded:
            return part
        own: _Part = part.view(_Part)
        own._owner, own._key = self, key
        return own

    def scatter_nd_update(self, indices: Any, updates: Any, name: Any = None) -> Any:
        """Put numbers at tuples of indices."""
        return self.assign(ops.scatter_update(self, indices, updates))

    def scatter_nd_add(self, indices: Any, updates: Any, name: Any = None) -> Any:
        """Add numbers at tuples of indices."""
        shape = tuple(int(size) for size in self.shape)
        return self.assign_add(ops.scatter(indices, updates, shape))

    def read_value(self) -> Any:
        """Return the numbers as a tensor."""
        return ops.convert_to_tensor(self)

    initialized_value = read_value


class _Part(tensors.Tensor):
    """A part of a variable, which can be assigned: `variable[0].assign(x)`."""

    _owner: Any = None
    _key: Any = None

    def assign(self, value: Any) -> Any:
        """Put other numbers in the place of this part."""
        if self._owner is None:
            raise AttributeError("A tensor cannot be assigned; only variables can.")
        numbers = np.array(self._owner.numpy())
        numbers[self._key] = np.asarray(value)
        return self._owner.assign(numbers)

    def assign_add(self, value: Any) -> Any:
        """Add to this part of the variable."""
        return self.assign(np.asarray(self) + np.asarray(value))

    def assign_sub(self, value: Any) -> Any:
        """Subtract from this part of the variable."""
        return self.assign(np.asarray(self) - np.asarray(value))


class TensorShape(Sizes):
    """The sizes of axes, None where they are open."""

    def __new__(cls, dims: Any) -> TensorShape:
        """Make it of a shape, a list or a tuple."""
        return super().__new__(cls, dims)


class UnconnectedGradients:
    """The gradient of an unconnected variable."""

    NONE = "none"
    ZERO = "zero"


class AggregationMethod:
    """Methods of summing gradients; here there is only one."""

    DEFAULT = ADD_N = 0


class VariableAggregation:
    """Methods of combining copies of a variable; here there is one copy."""

    NONE, SUM, MEAN, ONLY_FIRST_REPLICA = "none", "sum", "mean", "only_first_replica"


class Module:
    """An object whose variables are found among its attributes."""

    def __init__(self, name: str | None = None) -> None:
        self.name = name or type(self).__name__.lower()

    @property
    def variables(self) -> tuple[Any, ...]:
        """All variables of the module and of those within it."""
        return tuple(x for x in _parts_of(self) if isinstance(x, variables.Variable))

    @property
    def trainable_variables(self) -> tuple[Any, ...]:
        """Those that learn."""
        return tuple(variable for variable in self.variables if variable.trainable)

    @property
    def non_trainable_variables(self) -> tuple[Any, ...]:
        """Those that do not."""
        return tuple(variable for variable in self.variables if not variable.trainable)

    @property
    def submodules(self) -> tuple[Any, ...]:
        """The modules and layers within it, at any depth."""
        return tuple(
            x for x in _parts_of(self) if not isinstance(x, variables.Variable)
        )

    @property
    def name_scope(self) -> Any:
        """A context that changes no names."""
        return labelled(self.name)

    @classmethod
    def with_name_scope(cls, method: Any) -> Any:
        """Return a method as it is: names of variables have no scopes here."""
        return method


def _parts_of(module: Any) -> Iterator[Any]:
    """Yield the variables and modules within a module, each once.

    In TensorFlow's order: attributes by name, contents of modules after all of them.
    """
    seen = {id(module)}
    waiting = deque([module])
    while waiting:
        owner = waiting.popleft()
        inside = []
        for part in _held_by(owner):
            if id(part) not in seen:
                seen.add(id(part))
                yield part
                if not isinstance(part, variables.Variable):
                    inside.append(part)
        waiting.extendleft(reversed(inside))


def _held_by(owner: Any) -> list[Any]:
    if not isinstance(owner, Module):
        return [*owner.variables]  # a layer
    values = [vars(owner)[name] for name in sorted(vars(owner))]
    return [
        leaf
        for leaf in tree.flatten(values)
        if isinstance(leaf, (variables.Variable, Module))
        or hasattr(leaf, "trainable_variables")
    ]


@contextmanager
def labelled(name: Any = None) -> Iterator[Any]:
    """Run a block: `tf.device` and `tf.name_scope` change no result.

    What runs where is decided by `ganglion.config` for a whole program.
    """
    yield name


def unchanged(func: Any = None) -> Any:
    """Return a function as it is: nothing here rewrites Python."""
    return func if func is not None else unchanged


def executing_eagerly() -> bool:
    """Return whether ops compute at once, not while a step is traced."""
    return current_scope() is None


def cardinality(dataset: Any) -> Any:
    """Return the number of elements of a data set."""
    return dataset.cardinality()


def function(
    func: Any = None,
    input_signature: Any = None,
    autograph: bool = True,
    jit_compile: bool | None = None,
    reduce_retracing: bool = False,
    experimental_relax_shapes: bool | None = None,
    **kwargs: Any,
) -> Any:
    """Compile a function over tensors and variables, as `ganglion.function`.

    It is traced once for each signature of shapes and types; `input_signature` and
    hints for TensorFlow's compiler do not change its results.
    """
    if kwargs:
        raise TypeError(f"tf.function: {next(iter(kwargs))!r} is not supported.")
    import ganglion

    def compiled(inner: Any) -> Any:
        return ganglion.function(inner)

    return compiled if func is None else compiled(func)


class TensorArray:
    """A list of tensors, one for each step of a loop.

    >>> steps = TensorArray("float32", size=2).write(0, 1.0).write(1, 2.0)
    >>> steps.stack().tolist(), int(steps.size())
    ([1.0, 2.0], 2)
    """

    def __init__(
        self,
        dtype: Any,
        size: Any = None,
        dynamic_size: bool = False,
        clear_after_read: bool | None = None,
        *,
        infer_shape: bool = True,
        element_shape: Any = None,
        name: str | None = None,
    ) -> None:
        self.dtype = dtype
        self.dynamic_size = bool(dynamic_size)
        self.element_shape = element_shape
        self._clears = clear_after_read is not False
        self._cleared: set[int] = set()
        count = 0 if size is None else _position(size, "size")
        self._parts: list[Any] = [None] * count

    def write(self, index: Any, value: Any, name: str | None = None) -> TensorArray:
        """Put a tensor at an index; return the array."""
        position = _position(index, "write")
        if position >= len(self._parts):
            if not self.dynamic_size:
                raise InvalidArgumentError(
                    f"tf.TensorArray.write: index {position} is out of range for "
                    f"{len(self._parts)} elements. Make it with `dynamic_size=True`."
                )
            self._parts += [None] * (position + 1 - len(self._parts))
        self._parts[position] = ops.convert_to_tensor(value, str(self.dtype))
        self._cleared.discard(position)
        return self

    def read(self, index: Any, name: str | None = None) -> Any:
        """Return the tensor at an index, which then is cleared, as in TensorFlow."""
        position = _position(index, "read")
        if position in self._cleared:
            raise InvalidArgumentError(
                f"tf.TensorArray.read: index {position} was cleared when it was read "
                "before. Make it with `clear_after_read=False`."
            )
        part = self._part(position)
        if self._clears:
            self._cleared.add(position)
            self._parts[position] = ops.zeros_like(part)
        return part

    def _part(self, position: int) -> Any:
        part = self._parts[position]
        return self._zeros() if part is None else part

    def stack(self, name: str | None = None) -> Any:
        """Return all tensors as one, with an axis in front."""
        if not self._parts:
            shape = tuple(self.element_shape or ())
            return ops.zeros((0, *shape), str(self.dtype))
        return ops.stack([self._part(number) for number in range(len(self._parts))])

    def concat(self, name: str | None = None) -> Any:
        """Return all tensors joined along their first axis."""
        return ops.concatenate([self._part(n) for n in range(len(self._parts))], 0)

    def gather(self, indices: Any, name: str | None = None) -> Any:
        """Return some of the tensors as one."""
        return ops.stack([self._part(index) for index in np.asarray(indices).tolist()])

    def unstack(self, value: Any, name: str | None = None) -> TensorArray:
        """Take the rows of a tensor; return the array."""
        self._parts = [value[number] for number in range(int(value.shape[0]))]
        self._cleared.clear()
        return self

    def size(self, name: str | None = None) -> Any:
        """Return how many tensors there are."""
        return tensors.as_tensor(np.array(len(self._parts), np.int32))

    def identity(self) -> TensorArray:
        """Return the array."""
        return self

    def mark_used(self) -> None:
        """Do nothing: unused arrays are no error here."""

    def _zeros(self) -> Any:
        written = [part.shape for part in self._parts if part is not None]
        shape = written[0] if written else tuple(self.element_shape or ())
        return ops.zeros(tuple(shape), str(self.dtype))


def _position(index: Any, method: str) -> int:
    if isinstance(index, (Value, KerasTensor)):
        raise UnknownNumbersError(
            f"tf.TensorArray.{method}: its index is computed inside of a compiled "
            "loop. Loop in Python (`for t in tf.range(n)`), or use `keras.ops.scan`."
        )
    return int(index)


class IndexedSlices:
    """Rows of a gradient, for `isinstance`: gradients are always dense arrays here."""


class SparseTensor(NamedTuple):
    """Numbers and their places, for `tf.sparse.to_dense`: ops take dense tensors."""

    indices: Any
    values: Any
    dense_shape: Any
