"""The Metric: variables that `update_state` adds to and `result` reads.

`update_state` is written as plain assignments: on arrays it computes at once, inside of
a trace it becomes part of the step.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np

from ganglion import initializers
from ganglion.compiler.ir import origin
from ganglion.losses.base import float_type
from ganglion.serialization import export
from ganglion.variables import Variable, snake_case, unique_name


def registered(*aliases: str) -> Any:
    """Register a metric class under its name, its snake case and other spellings."""

    def register(cls: Any) -> Any:
        return export("keras.metrics", snake_case(cls.__name__), *aliases)(cls)

    return register


@registered()
class Metric:
    """Base class of metrics: make variables in `__init__`, then write three methods.

    >>> from ganglion import ops
    >>> class Largest(Metric):
    ...     def __init__(self, name="largest", **kwargs):
    ...         super().__init__(name=name, **kwargs)
    ...         self.largest = self.add_weight(shape=(), initializer="zeros")
    ...     def update_state(self, y_true, y_pred, sample_weight=None):
    ...         self.largest.assign(ops.maximum(self.largest, ops.max(y_pred)))
    ...     def result(self):
    ...         return self.largest
    >>> metric = Largest()
    >>> metric.update_state(None, np.array([1.0, 3.0], "float32"))
    >>> float(metric.result())
    3.0
    """

    def __init__(self, dtype: Any = None, name: str | None = None) -> None:
        self.name = name or unique_name(snake_case(type(self).__name__))
        self._dtype = float_type(dtype)
        self._variables: list[Variable] = []

    # ---- what subclasses write -------------------------------------------------

    def update_state(self, *args: Any, **kwargs: Any) -> Any:
        """Take one batch into account."""
        raise NotImplementedError(f"{type(self).__name__} does not define it.")

    def result(self) -> Any:
        """Return the metric over all batches since the last reset."""
        raise NotImplementedError(f"{type(self).__name__} does not define `result`.")

    def reset_state(self) -> None:
        """Forget all batches: every variable becomes zero."""
        for variable in self.variables:
            variable.assign(np.zeros(variable.shape, variable.dtype))

    # ---- state -----------------------------------------------------------------

    def add_variable(
        self,
        shape: Any,
        initializer: Any,
        dtype: Any = None,
        aggregation: str = "sum",
        name: str | None = None,
    ) -> Variable:
        """Make a variable that belongs to this metric."""
        self._check_init()
        with origin.inside(self.name):
            variable = Variable(
                initializers.get("zeros" if initializer is None else initializer),
                shape=(shape,) if isinstance(shape, int) else tuple(shape or ()),
                dtype=dtype,
                trainable=False,
                aggregation=aggregation,
                synchronization="on_read",
                name=name,
            )
        self._variables.append(variable)
        return variable

    def add_weight(
        self,
        shape: Any = (),
        initializer: Any = None,
        dtype: Any = None,
        name: str | None = None,
    ) -> Variable:
        """Make a variable that belongs to this metric."""
        return self.add_variable(
            shape=shape, initializer=initializer, dtype=dtype, name=name
        )

    @property
    def variables(self) -> list[Variable]:
        """The variables of this metric and of the metrics in its attributes."""
        self._check_init()
        found = dict.fromkeys(self._variables)
        parts = [part for value in vars(self).values() for part in _parts(value)]
        found.update((one, None) for one in parts if isinstance(one, Variable))
        for one in parts:
            if isinstance(one, Metric):
                found.update(dict.fromkeys(one.variables))
        return list(found)

    def _check_init(self) -> None:
        if not hasattr(self, "_variables"):
            raise RuntimeError(
                f"{type(self).__name__}.__init__ must call `super().__init__()` before "
                "it makes variables."
            )

    @property
    def dtype(self) -> str:
        """The type the metric is computed in."""
        return self._dtype

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Take one batch into account and return the result so far."""
        self.update_state(*args, **kwargs)
        return self.result()

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make an equal metric."""
        return {"name": self.name, "dtype": self.dtype}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Make a metric from its configuration."""
        return cls(**config)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} name={self.name}>"


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, (Variable, Metric)):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _parts(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _parts(one)


class Configured(Metric):
    """A metric whose other `__init__` arguments are attributes of the same name."""

    def get_config(self) -> dict[str, Any]:
        names = list(inspect.signature(type(self).__init__).parameters)[1:]
        rest = [one for one in names if one not in ("name", "dtype")]
        return {**super().get_config(), **{one: getattr(self, one) for one in rest}}
