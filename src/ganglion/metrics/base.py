"""The Metric: variables that `update_state` adds to and `result` reads; sums and means.

`update_state` is written as plain assignments: on arrays it computes at once, inside of
a trace it becomes part of the step.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ganglion import initializers, ops
from ganglion.compiler.ir import origin
from ganglion.losses.base import (
    check_mask_of_predictions,
    float_type,
    ignored_mask,
    masked_weights,
    per_sample,
    to_array,
)
from ganglion.ops import op
from ganglion.serialization import (
    deserialize_keras_object,
    export,
    look_up,
    passed,
    serialize_keras_object,
    with_defaults,
)
from ganglion.tensors import as_tensor, get_keras_mask
from ganglion.variables import (
    StatelessScope,
    Variable,
    current_scope,
    snake_case,
    unique_name,
    zip_values,
)


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

    # ---- for subclasses --------------------------------------------------------

    def update_state(self, *args: Any, **kwargs: Any) -> Any:
        """Take one batch into account."""
        raise NotImplementedError(f"{type(self).__name__} does not define it.")

    def result(self) -> Any:
        """Return the metric over all batches since the last reset."""
        raise NotImplementedError(f"{type(self).__name__} does not define `result`.")

    def reset_state(self) -> None:
        """Set every variable to zero."""
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
        values = [value for value in vars(self).values() if isinstance(value, _HOLDERS)]
        parts = [part for value in values for part in _parts(value)]
        variables = dict.fromkeys(self._variables)
        variables.update((part, None) for part in parts if isinstance(part, Variable))
        for part in parts:
            if isinstance(part, Metric):
                variables.update(dict.fromkeys(part.variables))
        return list(variables)

    def stateless_update_state(
        self, metric_variables: Sequence[Any], *args: Any, **kwargs: Any
    ) -> list[Any]:
        """Return the values of the variables after a batch, and change none."""
        with self._with_values(metric_variables) as scope:
            self.update_state(*args, **kwargs)
        return scope.current_values(self.variables)

    def stateless_result(self, metric_variables: Sequence[Any]) -> Any:
        """Return the result that the variables would give with these values."""
        with self._with_values(metric_variables):
            return self.result()

    def stateless_reset_state(self) -> list[Any]:
        """Return the values of the variables at the start, and change none."""
        with StatelessScope() as scope:
            self.reset_state()
        return scope.current_values(self.variables)

    def _with_values(self, values: Sequence[Any]) -> StatelessScope:
        return StatelessScope(
            zip_values("metric_variables", self.variables, values, self.name)
        )

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


_HOLDERS = (Variable, Metric, dict, list, tuple)  # what may hold variables


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, (Variable, Metric)):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _parts(item)


class Configured(Metric):
    """A metric whose other `__init__` arguments are attributes of the same name."""

    def get_config(self) -> dict[str, Any]:
        names = list(inspect.signature(type(self).__init__).parameters)[1:]
        own = [name for name in names if name not in ("name", "dtype")]
        return {**super().get_config(), **{name: getattr(self, name) for name in own}}


@registered()
class Sum(Metric):
    """The weighted sum of all values.

    >>> total = Sum()
    >>> total.update_state([1, 3, 5, 7])
    >>> float(total.result())
    16.0
    """

    def __init__(self, name: str | None = "sum", dtype: Any = None) -> None:
        super().__init__(name=name, dtype=dtype)
        self.total = self.add_variable((), "zeros", self.dtype, name="total")

    def update_state(self, values: Any, sample_weight: Any = None) -> None:
        values, _ = per_sample(values, sample_weight, ops.sum, self.dtype)
        self.total.assign_add(ops.sum(values))

    def result(self) -> Any:
        return ops.convert_to_tensor(self.total)


@registered()
class Mean(Metric):
    """The weighted mean of all values.

    >>> mean = Mean()
    >>> mean.update_state([1, 3, 5, 7])
    >>> float(mean.result())
    4.0
    """

    def __init__(self, name: str | None = "mean", dtype: Any = None) -> None:
        super().__init__(name=name, dtype=dtype)
        self.total = self.add_variable((), "zeros", self.dtype, name="total")
        self.count = self.add_variable((), "zeros", self.dtype, name="count")

    def update_state(self, values: Any, sample_weight: Any = None) -> None:
        values, weights = per_sample(values, sample_weight, ops.mean, self.dtype)
        self.total.assign_add(ops.sum(values))
        if weights is not None:
            self.count.assign_add(ops.sum(weights))
        else:
            self.count.assign_add(float(values.shape[0]) if values.shape else 1.0)

    def result(self) -> Any:
        if current_scope() is None:  # called at every chunk of steps: no graph
            total, count = self.total.array, self.count.array
            mean = total / count if count else 0.0
            return as_tensor(np.asarray(mean, self.dtype))
        return ops.divide_no_nan(self.total, self.count)


@registered()
class MeanMetricWrapper(Mean):
    """The mean of a function of labels and predictions.

    >>> import numpy as np
    >>> metric = MeanMetricWrapper(lambda y_true, y_pred: abs(y_true - y_pred))
    >>> metric.update_state(np.array([[0.0], [1.0]]), np.array([[1.0], [3.0]]))
    >>> float(metric.result())
    1.5
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        name: str | None = None,
        dtype: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        self._fn = fn
        self._fn_kwargs = kwargs
        vars(self).update(kwargs)  # `metric.threshold` and the like can be read

    def update_state(  # type: ignore[override]
        self, y_true: Any, y_pred: Any, sample_weight: Any = None
    ) -> None:
        mask = get_keras_mask(y_pred)
        y_true, y_pred = to_array(y_true), to_array(y_pred)
        values = self._fn(y_true, y_pred, **self._fn_kwargs)
        check_mask_of_predictions(mask, values)
        sample_weight = masked_weights(sample_weight, mask, self.dtype, "sum")
        ignored = self._fn_kwargs.get("ignore_class")
        if ignored is not None and sample_weight is not None:
            # As in Keras: without weights, ignored samples count as a loss of zero.
            axis = self._fn_kwargs.get("axis", -1)
            labels = ops.convert_to_tensor(y_true)
            mask = ignored_mask(labels, ops.convert_to_tensor(y_pred), ignored, axis)
            sample_weight = masked_weights(sample_weight, mask, self.dtype, "sum")
        super().update_state(values, sample_weight=sample_weight)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        if "fn" in inspect.signature(type(self).__init__).parameters:
            config["fn"] = serialize_keras_object(self._fn)
        return {**config, **serialize_keras_object(self._fn_kwargs)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        if isinstance(config.get("fn"), str):
            config = {**config, "fn": _function(config["fn"])}
        return cls(**deserialize_keras_object(config))


class FunctionMetric(MeanMetricWrapper):
    """A metric class of Keras that wraps a function, and is registered under its name.

    Its options are the arguments of its `__init__`.
    """

    _function: Callable[..., Any]

    def __init_subclass__(cls, fn: Any = None, name: str = "", **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if fn is None:
            return
        cls._function = staticmethod(fn)
        if "__init__" not in vars(cls):
            init, qualname = FunctionMetric.__init__, f"{cls.__qualname__}.__init__"
            cls.__init__ = with_defaults(  # type: ignore[method-assign]
                init, qualname, cls.__module__, name=name or fn.__name__
            )
        registered(fn.__name__, *getattr(fn, "aliases", ()))(cls)

    def __init__(self, name: str | None = None, dtype: Any = None) -> None:
        self._set(locals())

    def _set(self, scope: dict[str, Any]) -> None:
        MeanMetricWrapper.__init__(self, self._function, **passed(scope))


def _function(name: str) -> Any:
    for module in ("keras.metrics.functions", "keras.losses"):
        try:
            return look_up(module, name, "metric")
        except ValueError:
            continue
    return look_up("keras.metrics", name, "metric")


def metric_function(function: Callable[..., Any]) -> Any:
    """Register a metric as a function; names given to `get` mean the class."""
    return export("keras.metrics.functions")(op(function))
