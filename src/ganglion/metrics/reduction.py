"""Sums and means over batches, and the metric that a function makes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from ganglion import ops
from ganglion.compiler.ir.graph import ShapeError
from ganglion.losses.base import ignored_mask, whole
from ganglion.losses.reduction import divide_no_nan, masked_weights, same_rank
from ganglion.metrics.base import Metric, registered
from ganglion.serialization import (
    deserialize_keras_object,
    look_up,
    serialize_keras_object,
)
from ganglion.variables import current_scope


def per_sample(
    values: Any, sample_weight: Any, reduce: Callable[..., Any], dtype: Any
) -> tuple[Any, Any]:
    """Return weighted values and their weights, both with at most one axis."""
    values = ops.cast(whole(values), dtype)
    if sample_weight is None:
        return _to_one_axis(values, reduce), None
    weights = ops.convert_to_tensor(sample_weight, dtype)
    values, weights = same_rank(values, weights)
    rank = len(weights.shape)
    if len(values.shape) > rank:
        values = reduce(values, axis=list(range(rank, len(values.shape))))
    values, weights = values * _stretched(weights, values), _stretched(weights, values)
    return _to_one_axis(values, reduce), _to_one_axis(weights, reduce)


def _to_one_axis(values: Any, reduce: Callable[..., Any]) -> Any:
    rank = len(values.shape)
    return reduce(values, axis=list(range(1, rank))) if rank > 1 else values


def _stretched(weights: Any, values: Any) -> Any:
    shape, given = tuple(values.shape), tuple(weights.shape)
    try:
        fits = np.broadcast_shapes(shape, given) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(
            f"Sample weights of shape {given} do not fit values of shape {shape}: give "
            "one weight per sample."
        )
    return weights if shape == given else ops.broadcast_to(weights, shape)


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
        if current_scope() is None:  # asked for at every chunk of steps: no graph
            total, count = self.total.array, self.count.array
            return np.asarray(total / count if count else 0.0, self.dtype)
        return divide_no_nan(self.total, self.count)


@registered()
class MeanMetricWrapper(Mean):
    """The mean of a function of labels and predictions."""

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
        y_true, y_pred = whole(y_true), whole(y_pred)
        values = self._fn(y_true, y_pred, **self._fn_kwargs)
        ignored = self._fn_kwargs.get("ignore_class")
        if ignored is not None and sample_weight is not None:
            # As in Keras: without weights, ignored samples count as a loss of zero.
            axis = self._fn_kwargs.get("axis", -1)
            labels = ops.convert_to_tensor(y_true)
            mask = ignored_mask(labels, ops.convert_to_tensor(y_pred), ignored, axis)
            sample_weight = masked_weights(sample_weight, mask, self.dtype, "sum")
        super().update_state(values, sample_weight=sample_weight)

    def get_config(self) -> dict[str, Any]:
        made = super().get_config()
        if "fn" in inspect.signature(type(self).__init__).parameters:
            made["fn"] = serialize_keras_object(self._fn)
        return {**made, **serialize_keras_object(self._fn_kwargs)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        if isinstance(config.get("fn"), str):
            config = {**config, "fn": _function(config["fn"])}
        return cls(**deserialize_keras_object(config))


def _function(name: str) -> Any:
    for module in ("keras.metrics.functions", "keras.losses"):
        try:
            return look_up(module, name, "metric")
        except ValueError:
            continue
    return look_up("keras.metrics", name, "metric")
