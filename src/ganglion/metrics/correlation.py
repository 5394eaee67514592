"""How well predictions follow labels: R² and correlations."""

from __future__ import annotations

import warnings
from typing import Any

from ganglion import config, ops
from ganglion.compiler.ir.graph import Value
from ganglion.losses.base import whole
from ganglion.losses.functions import paired
from ganglion.losses.reduction import fitted_weights
from ganglion.metrics.accuracy import metric_function
from ganglion.metrics.base import Configured, registered
from ganglion.metrics.reduction import MeanMetricWrapper
from ganglion.ops import op
from ganglion.ops.dispatch import astype
from ganglion.variables import read

_SUMS = ("squared_sum", "sum", "total_mse", "count")


@metric_function
def pearson_correlation(y_true: Any, y_pred: Any, axis: int = -1) -> Any:
    """Return the correlation along an axis: 1 when they rise and fall together."""
    label, prediction = paired("pearson_correlation", y_true, y_pred)
    return ops.mean(_standard(label, axis) * _standard(prediction, axis), axis=axis)


def _standard(x: Value, axis: int) -> Value:
    centred = x - ops.mean(x, axis=axis, keepdims=True)
    return centred / ops.std(centred, axis=axis, keepdims=True)


@metric_function
def concordance_correlation(y_true: Any, y_pred: Any, axis: int = -1) -> Any:
    """Return the correlation along an axis, less for a shift or another scale."""
    label, prediction = paired("concordance_correlation", y_true, y_pred)
    label_mean = ops.mean(label, axis=axis, keepdims=True)
    mean = ops.mean(prediction, axis=axis, keepdims=True)
    shared = (label - mean) * (prediction - mean)
    spread = ops.var(label - label_mean, axis=axis, keepdims=True)
    spread = spread + ops.var(prediction - mean, axis=axis, keepdims=True)
    spread = spread + ops.square(label_mean - mean)
    return ops.mean(2.0 * shared / (spread + config.epsilon()), axis=axis)


@registered()
class PearsonCorrelation(MeanMetricWrapper):
    """The mean correlation of labels and predictions."""

    def __init__(
        self,
        name: str | None = "pearson_correlation",
        dtype: Any = None,
        axis: int = -1,
    ) -> None:
        super().__init__(pearson_correlation, name, dtype, axis=axis)


@registered()
class ConcordanceCorrelation(MeanMetricWrapper):
    """The mean concordance correlation of labels and predictions."""

    def __init__(
        self,
        name: str | None = "concordance_correlation",
        dtype: Any = None,
        axis: int = -1,
    ) -> None:
        super().__init__(concordance_correlation, name, dtype, axis=axis)


@registered()
class R2Score(Configured):
    """The share of the labels' variance that the predictions explain.

    >>> metric = R2Score()
    >>> metric.update_state([[1.0], [4.0], [3.0]], [[2.0], [4.0], [4.0]])
    >>> round(float(metric.result()), 4)
    0.5714
    """

    def __init__(
        self,
        class_aggregation: str | None = "uniform_average",
        num_regressors: int = 0,
        name: str | None = "r2_score",
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        known = (None, "uniform_average", "variance_weighted_average")
        if class_aggregation not in known:
            raise ValueError(
                f"Unknown class_aggregation {class_aggregation!r}: use one of {known}."
            )
        if num_regressors < 0:
            raise ValueError(f"`num_regressors` is negative: {num_regressors}.")
        self.class_aggregation = class_aggregation
        self.num_regressors = num_regressors
        self.num_samples = self.add_variable((), "zeros", name="num_samples")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        made = _sums(whole(y_true), whole(y_pred), sample_weight, self.dtype)
        if len(self._variables) == 1:
            for name, value in zip(_SUMS, made, strict=True):
                setattr(self, name, self.add_variable(value.shape, "zeros", name=name))
        for name, value in zip(_SUMS, made, strict=True):
            getattr(self, name).assign_add(value)
        shape = whole(y_pred).shape
        self.num_samples.assign_add(float(shape[0] * made[0].shape[0]))

    def result(self) -> Any:
        """Return the score; adjusted for the number of regressors, if it is given."""
        if len(self._variables) == 1:
            return ops.zeros((), self.dtype)
        squares, total, errors, count = (getattr(self, name) for name in _SUMS)
        score = _score(squares, total, errors, count, self.class_aggregation)
        if not self.num_regressors:
            return score
        left = float(self.num_samples) - self.num_regressors - 1.0
        if left <= 0:
            warnings.warn(
                "R2Score: too few samples for this many regressors; the score is not "
                "adjusted.",
                stacklevel=2,
            )
            return score
        return 1.0 - (1.0 - score) * (float(self.num_samples) - 1.0) / left


@op
def _sums(y_true: Any, y_pred: Any, sample_weight: Any, dtype: Any) -> tuple[Any, ...]:
    label, prediction = paired("r2_score", astype(y_true, dtype), astype(y_pred, dtype))
    if label.ndim != 2:
        raise ValueError(
            "R2Score needs labels and predictions with two axes (batch, outputs), not "
            f"shape {label.shape}."
        )
    weights = ops.ones((), dtype)
    if sample_weight is not None:
        _, weights = fitted_weights(label, astype(sample_weight, dtype))
    weights = ops.broadcast_to(weights, label.shape)
    parts = (
        label * label * weights,
        label * weights,
        ops.square(label - prediction) * weights,
        weights,
    )
    return tuple(ops.sum(one, axis=0) for one in parts)


@op
def _score(squares: Any, total: Any, errors: Any, count: Any, average: Any) -> Any:
    squares, total, errors, count = map(read, (squares, total, errors, count))
    variance = squares - total * (total / count)
    scores = 1.0 - errors / variance
    scores = ops.where(ops.isinf(scores), 0.0, scores)
    if average == "uniform_average":
        return ops.mean(scores)
    if average == "variance_weighted_average":
        return ops.sum(variance * scores) / ops.sum(variance)
    return scores
