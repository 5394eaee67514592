"""TensorFlow's classes, and what stands for its contexts and decorators."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ganglion import tensors, variables
from ganglion.compiler.ir.graph import Sizes, Value
from ganglion.symbolic import KerasTensor
from ganglion.variables import current_scope

newaxis = None


class OutOfRangeError(IndexError):
    """Data has ended."""


class InvalidArgumentError(ValueError):
    """A check failed, or an argument has the wrong value."""


class _AnyTensor(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, (Value, KerasTensor, tensors.Tensor))


class Tensor(metaclass=_AnyTensor):
    """What ops return; for `isinstance` and annotations."""


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
        if dtype is None and isinstance(value, (np.ndarray, np.generic)):
            dtype = value.dtype.name
        if shape is not None and not validate_shape:
            raise NotImplementedError("tf.Variable: its shape cannot change here.")
        super().__init__(
            np.asarray(value),
            dtype=None if dtype is None else str(dtype),
            trainable=trainable is not False,
            name=None if name is None else name.replace("/", "_"),
        )
        self.constraint = constraint


class TensorShape(Sizes):
    """The sizes of axes, None where they are open."""

    def __new__(cls, dims: Any) -> TensorShape:
        """Make it of a shape, a list or a tuple."""
        return super().__new__(cls, dims)


class UnconnectedGradients:
    """What a gradient is where nothing connects."""

    NONE = "none"
    ZERO = "zero"


class AggregationMethod:
    """How gradients are added: there is one way."""

    DEFAULT = ADD_N = 0


class VariableAggregation:
    """How copies of a variable are joined; there is one of each."""

    NONE, SUM, MEAN, ONLY_FIRST_REPLICA = "none", "sum", "mean", "only_first_replica"


class Module:
    """An object whose variables are found among its attributes."""

    def __init__(self, name: str | None = None) -> None:
        self.name = name or type(self).__name__.lower()

    @property
    def variables(self) -> tuple[Any, ...]:
        """All variables of the module and of those within it."""
        return tuple(_variables_in(list(vars(self).values())))

    @property
    def trainable_variables(self) -> tuple[Any, ...]:
        """Those that learn."""
        return tuple(variable for variable in self.variables if variable.trainable)


def _variables_in(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, variables.Variable):
            yield value
        elif isinstance(value, Module) or hasattr(value, "trainable_variables"):
            yield from value.variables
        elif isinstance(value, (list, tuple)):
            yield from _variables_in(value)
        elif isinstance(value, dict):
            yield from _variables_in(list(value.values()))


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

    It is traced once for each signature of shapes and types; a signature that is given,
    or hints for TensorFlow's compiler, change nothing of what it computes.
    """
    if kwargs:
        raise TypeError(f"tf.function: {next(iter(kwargs))!r} is not supported.")
    import ganglion

    def compiled(inner: Any) -> Any:
        return ganglion.function(inner)

    return compiled if func is None else compiled(func)
