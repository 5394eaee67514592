"""Metrics that are the mean of a function: losses and correlations."""

from __future__ import annotations

from typing import Any

from ganglion import config, ops
from ganglion.compiler.ir.graph import Value
from ganglion.losses.base import paired, to_array
from ganglion.losses.classification import (
    binary_crossentropy,
    categorical_crossentropy,
    categorical_hinge,
    hinge,
    kl_divergence,
    poisson,
    sparse_categorical_crossentropy,
    squared_hinge,
)
from ganglion.losses.regression import (
    cosine,
    log_cosh,
    mean_absolute_error,
    mean_absolute_percentage_error,
    mean_squared_error,
    mean_squared_logarithmic_error,
)
from ganglion.metrics.base import FunctionMetric, Mean, metric_function, registered

__all__ = [
    "BinaryCrossentropy", "CategoricalCrossentropy", "CategoricalHinge",
    "ConcordanceCorrelation", "CosineSimilarity", "Hinge", "KLDivergence",
    "LogCoshError", "MeanAbsoluteError", "MeanAbsolutePercentageError",
    "MeanSquaredError", "MeanSquaredLogarithmicError", "PearsonCorrelation", "Poisson",
    "RootMeanSquaredError", "SparseCategoricalCrossentropy", "SquaredHinge",
    "concordance_correlation", "pearson_correlation",
]  # fmt: skip


@metric_function
def cosine_similarity(y_true: Any, y_pred: Any, axis: int = -1) -> Any:
    """Return the cosine of the angle: 1 where the directions agree."""
    return cosine(y_true, y_pred, axis=axis)


class MeanSquaredError(FunctionMetric, fn=mean_squared_error):
    """The mean of (y_true - y_pred)².

    >>> metric = MeanSquaredError()
    >>> metric.update_state([[0.0], [0.0]], [[1.0], [3.0]])
    >>> round(float(metric.result()), 3)
    5.0
    """


class MeanAbsoluteError(FunctionMetric, fn=mean_absolute_error):
    """The mean of |y_true - y_pred|.

    >>> metric = MeanAbsoluteError()
    >>> metric.update_state([[0.0], [0.0]], [[1.0], [3.0]])
    >>> round(float(metric.result()), 3)
    2.0
    """


class MeanAbsolutePercentageError(FunctionMetric, fn=mean_absolute_percentage_error):
    """The mean error as a percentage of the label.

    >>> metric = MeanAbsolutePercentageError()
    >>> metric.update_state([[2.0], [4.0]], [[1.0], [3.0]])
    >>> round(float(metric.result()), 3)
    37.5
    """


class MeanSquaredLogarithmicError(FunctionMetric, fn=mean_squared_logarithmic_error):
    """The mean squared error of log(1 + x).

    >>> metric = MeanSquaredLogarithmicError()
    >>> metric.update_state([[0.0], [0.0]], [[1.0], [3.0]])
    >>> round(float(metric.result()), 3)
    1.201
    """


@registered("cosine_proximity")
class CosineSimilarity(FunctionMetric, fn=cosine_similarity):
    """The cosine of the angle between labels and predictions.

    >>> metric = CosineSimilarity()
    >>> metric.update_state([[0.0, 1.0]], [[1.0, 1.0]])
    >>> round(float(metric.result()), 3)
    0.707
    """

    def __init__(
        self,
        name: str | None = "cosine_similarity",
        dtype: Any = None,
        axis: int = -1,
    ) -> None:
        self._set(locals())


class LogCoshError(FunctionMetric, fn=log_cosh, name="logcosh"):
    """The logarithm of the hyperbolic cosine of the error.

    >>> metric = LogCoshError()
    >>> metric.update_state([[0.0], [0.0]], [[0.5], [3.0]])
    >>> round(float(metric.result()), 3)
    1.215
    """


class Hinge(FunctionMetric, fn=hinge):
    """max(1 - y_true y_pred, 0) for labels -1 and 1 (or 0 and 1).

    >>> metric = Hinge()
    >>> metric.update_state([[1.0], [-1.0]], [[0.3], [-2.0]])
    >>> round(float(metric.result()), 3)
    0.35
    """


class SquaredHinge(FunctionMetric, fn=squared_hinge):
    """The square of the hinge loss.

    >>> metric = SquaredHinge()
    >>> metric.update_state([[1.0], [-1.0]], [[0.3], [-2.0]])
    >>> round(float(metric.result()), 3)
    0.245
    """


class CategoricalHinge(FunctionMetric, fn=categorical_hinge):
    """The hinge loss between the right class and the best wrong one.

    >>> metric = CategoricalHinge()
    >>> metric.update_state([[0, 1], [1, 0]], [[0.2, 0.8], [0.4, 0.6]])
    >>> round(float(metric.result()), 3)
    0.8
    """


class KLDivergence(FunctionMetric, fn=kl_divergence):
    """How far the predicted distribution is from the label's.

    >>> metric = KLDivergence()
    >>> metric.update_state([[0.5, 0.5]], [[0.9, 0.1]])
    >>> round(float(metric.result()), 3)
    0.511
    """


class Poisson(FunctionMetric, fn=poisson):
    """y_pred - y_true log(y_pred), for counts.

    >>> metric = Poisson()
    >>> metric.update_state([[1.0], [2.0]], [[1.0], [3.0]])
    >>> round(float(metric.result()), 3)
    0.901
    """


class BinaryCrossentropy(FunctionMetric, fn=binary_crossentropy):
    """The cross-entropy of yes/no predictions.

    >>> metric = BinaryCrossentropy()
    >>> metric.update_state([[1.0], [0.0]], [[0.9], [0.4]])
    >>> round(float(metric.result()), 3)
    0.308
    """

    def __init__(
        self,
        name: str | None = "binary_crossentropy",
        dtype: Any = None,
        from_logits: bool = False,
        label_smoothing: float = 0,
    ) -> None:
        self._set(locals())


class CategoricalCrossentropy(FunctionMetric, fn=categorical_crossentropy):
    """The cross-entropy of one-hot labels.

    >>> metric = CategoricalCrossentropy()
    >>> metric.update_state([[0, 1], [1, 0]], [[0.2, 0.8], [0.4, 0.6]])
    >>> round(float(metric.result()), 3)
    0.57
    """

    def __init__(
        self,
        name: str | None = "categorical_crossentropy",
        dtype: Any = None,
        from_logits: bool = False,
        label_smoothing: float = 0,
        axis: int = -1,
    ) -> None:
        self._set(locals())


class SparseCategoricalCrossentropy(FunctionMetric, fn=sparse_categorical_crossentropy):
    """The cross-entropy of class numbers.

    >>> metric = SparseCategoricalCrossentropy()
    >>> metric.update_state([1, 0], [[0.2, 0.8], [0.4, 0.6]])
    >>> round(float(metric.result()), 3)
    0.57
    """

    def __init__(
        self,
        name: str | None = "sparse_categorical_crossentropy",
        dtype: Any = None,
        from_logits: bool = False,
        ignore_class: int | None = None,
        axis: int = -1,
    ) -> None:
        self._set(locals())


@registered("rmse", "RMSE")
class RootMeanSquaredError(Mean):
    """The root of the mean of (y_true - y_pred)² over all elements.

    >>> metric = RootMeanSquaredError()
    >>> metric.update_state([[0, 1], [0, 0]], [[1, 1], [0, 0]])
    >>> float(metric.result())
    0.5
    """

    def __init__(
        self, name: str | None = "root_mean_squared_error", dtype: Any = None
    ) -> None:
        super().__init__(name, dtype)

    def update_state(  # type: ignore[override]
        self, y_true: Any, y_pred: Any, sample_weight: Any = None
    ) -> None:
        squares = squared_errors(to_array(y_true), to_array(y_pred))
        super().update_state(squares, sample_weight=sample_weight)

    def result(self) -> Any:
        return ops.sqrt(super().result())


@ops.op
def squared_errors(y_true: Any, y_pred: Any) -> Any:
    """Return (y_true - y_pred)², element by element."""
    label, prediction = paired("root_mean_squared_error", y_true, y_pred)
    return ops.square(prediction - label)


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


class PearsonCorrelation(FunctionMetric, fn=pearson_correlation):
    """The mean correlation of labels and predictions.

    >>> metric = PearsonCorrelation()
    >>> metric.update_state([[1.0, 2.0, 3.0]], [[1.0, 2.0, 4.0]])
    >>> round(float(metric.result()), 3)
    0.982
    """

    def __init__(
        self,
        name: str | None = "pearson_correlation",
        dtype: Any = None,
        axis: int = -1,
    ) -> None:
        self._set(locals())


class ConcordanceCorrelation(FunctionMetric, fn=concordance_correlation):
    """The mean concordance correlation of labels and predictions.

    >>> metric = ConcordanceCorrelation()
    >>> metric.update_state([[1.0, 2.0, 3.0]], [[1.0, 2.0, 4.0]])
    >>> round(float(metric.result()), 3)
    0.857
    """

    def __init__(
        self,
        name: str | None = "concordance_correlation",
        dtype: Any = None,
        axis: int = -1,
    ) -> None:
        self._set(locals())
