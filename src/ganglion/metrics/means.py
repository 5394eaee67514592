"""Metrics that are the mean of a function: accuracies, losses, correlations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ganglion import config, ops
from ganglion.compiler.ir.graph import ShapeError, Value
from ganglion.losses.base import paired, same_rank, to_array
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
from ganglion.metrics.base import FunctionMetric, Mean, registered
from ganglion.ops import op
from ganglion.ops.dispatch import floating
from ganglion.serialization import export
from ganglion.variables import read

__all__ = [
    "Accuracy", "BinaryAccuracy", "BinaryCrossentropy", "CategoricalAccuracy",
    "CategoricalCrossentropy", "CategoricalHinge", "ConcordanceCorrelation",
    "CosineSimilarity", "Hinge", "KLDivergence", "LogCoshError", "MeanAbsoluteError",
    "MeanAbsolutePercentageError", "MeanSquaredError", "MeanSquaredLogarithmicError",
    "PearsonCorrelation", "Poisson", "RootMeanSquaredError",
    "SparseCategoricalAccuracy", "SparseCategoricalCrossentropy",
    "SparseTopKCategoricalAccuracy", "SquaredHinge", "TopKCategoricalAccuracy",
    "binary_accuracy", "categorical_accuracy", "concordance_correlation",
    "pearson_correlation", "sparse_categorical_accuracy",
    "sparse_top_k_categorical_accuracy", "top_k_categorical_accuracy",
]  # fmt: skip


def metric_function(function: Callable[..., Any]) -> Any:
    """Register a metric as a function; names given to `get` mean the class."""
    return export("keras.metrics.functions")(op(function))


def _matches(a: Any, b: Any) -> Any:
    return ops.cast(ops.equal(a, b), config.floatx())


def _refuse(name: str, label: Value, prediction: Value, way_out: str) -> None:
    raise ShapeError(
        f"{name}: labels of shape {label.shape} do not fit predictions of shape "
        f"{prediction.shape}. {way_out}"
    )


@metric_function
def accuracy(y_true: Any, y_pred: Any) -> Any:
    """Return 1 where label and prediction are equal, else 0."""
    return _matches(*paired("accuracy", y_true, y_pred))


@metric_function
def binary_accuracy(y_true: Any, y_pred: Any, threshold: float = 0.5) -> Any:
    """Return 1 where the prediction is on the label's side of a threshold."""
    label, prediction = same_rank(read(y_true), floating(y_pred))
    if label.shape != prediction.shape:
        paired("binary_accuracy", label, prediction)
    said_yes = ops.greater(prediction, float(threshold))
    return _matches(label, ops.cast(said_yes, label.dtype))


@metric_function
def categorical_accuracy(y_true: Any, y_pred: Any) -> Any:
    """Return 1 where the largest prediction is that of the label, for one-hot rows.

    >>> categorical_accuracy([[0, 0, 1], [0, 1, 0]], [[0.1, 0.2, 0.7], [0.8, 0.1, 0.1]])
    array([1., 0.], dtype=float32)
    """
    label, prediction = read(y_true), read(y_pred)
    if label.shape != prediction.shape:
        hint = "For class numbers use sparse_categorical_accuracy."
        _refuse("categorical_accuracy", label, prediction, hint)
    return _matches(ops.argmax(label, axis=-1), ops.argmax(prediction, axis=-1))


def _class_numbers(name: str, y_true: Any, y_pred: Any) -> tuple[Value, Value]:
    label, prediction = read(y_true), read(y_pred)
    if label.ndim == prediction.ndim and label.shape[-1] == 1:
        label = ops.squeeze(label, -1)
    if label.shape != prediction.shape[:-1]:
        hint = f"For one-hot rows use {name.removeprefix('sparse_')}."
        _refuse(name, label, prediction, hint)
    return label, prediction


@metric_function
def sparse_categorical_accuracy(y_true: Any, y_pred: Any) -> Any:
    """Return 1 where the largest prediction is that of the label, for class numbers."""
    label, prediction = _class_numbers("sparse_categorical_accuracy", y_true, y_pred)
    matches = _matches(label, ops.argmax(prediction, axis=-1))
    if matches.ndim > 1 and matches.shape[-1] == 1:
        return ops.squeeze(matches, -1)
    return matches


@metric_function
def top_k_categorical_accuracy(y_true: Any, y_pred: Any, k: int = 5) -> Any:
    """Return 1 where the label is among the k largest predictions (one-hot rows)."""
    label, prediction = paired("top_k_categorical_accuracy", y_true, y_pred)
    return _in_top_k(ops.argmax(label, axis=-1), prediction, k)


def _in_top_k(label: Value, prediction: Value, k: int) -> Any:
    return ops.cast(
        ops.in_top_k(ops.cast(label, "int32"), prediction, k=k), config.floatx()
    )


@metric_function
def sparse_top_k_categorical_accuracy(
    y_true: Any, y_pred: Any, k: int = 5, from_sorted_ids: bool = False
) -> Any:
    """Return 1 where the label is among the k largest predictions (class numbers).

    Sorted ids: the predictions are class numbers already, the most likely first.
    """
    label, prediction = _class_numbers(
        "sparse_top_k_categorical_accuracy", y_true, y_pred
    )
    if not from_sorted_ids:
        return _in_top_k(label, prediction, k)
    label = ops.expand_dims(ops.cast(label, prediction.dtype), -1)
    hits = ops.equal(label, prediction[..., :k])
    return ops.cast(ops.any(hits, axis=-1), config.floatx())


class Accuracy(FunctionMetric, fn=accuracy):
    """How often predictions equal labels.

    >>> metric = Accuracy()
    >>> metric.update_state([1, 2, 3], [1, 2, 4])
    >>> round(float(metric.result()), 3)
    0.667
    """


class BinaryAccuracy(FunctionMetric, fn=binary_accuracy):
    """How often predictions are on the label's side of a threshold.

    >>> metric = BinaryAccuracy()
    >>> metric.update_state([[1], [1], [0], [0]], [[0.98], [1], [0], [0.6]])
    >>> float(metric.result())
    0.75
    """

    def __init__(
        self,
        name: str | None = "binary_accuracy",
        dtype: Any = None,
        threshold: float = 0.5,
    ) -> None:
        self._set(locals())


class CategoricalAccuracy(FunctionMetric, fn=categorical_accuracy):
    """How often the largest prediction is right, for one-hot labels.

    >>> metric = CategoricalAccuracy()
    >>> metric.update_state([[0, 1], [1, 0]], [[0.2, 0.8], [0.4, 0.6]])
    >>> round(float(metric.result()), 3)
    0.5
    """


class SparseCategoricalAccuracy(FunctionMetric, fn=sparse_categorical_accuracy):
    """How often the largest prediction is right, for class numbers.

    >>> metric = SparseCategoricalAccuracy()
    >>> metric.update_state([1, 0], [[0.2, 0.8], [0.4, 0.6]])
    >>> round(float(metric.result()), 3)
    0.5
    """


class TopKCategoricalAccuracy(FunctionMetric, fn=top_k_categorical_accuracy):
    """How often the label is among the k largest predictions (one-hot labels).

    >>> metric = TopKCategoricalAccuracy(k=2)
    >>> metric.update_state([[0, 0, 1], [1, 0, 0]], [[0.5, 0.2, 0.3], [0.1, 0.6, 0.3]])
    >>> round(float(metric.result()), 3)
    0.5
    """

    def __init__(
        self,
        k: int = 5,
        name: str | None = "top_k_categorical_accuracy",
        dtype: Any = None,
    ) -> None:
        self._set(locals())


class SparseTopKCategoricalAccuracy(
    FunctionMetric, fn=sparse_top_k_categorical_accuracy
):
    """How often the label is among the k largest predictions (class numbers).

    >>> metric = SparseTopKCategoricalAccuracy(k=2)
    >>> metric.update_state([2, 0], [[0.5, 0.2, 0.3], [0.1, 0.6, 0.3]])
    >>> round(float(metric.result()), 3)
    0.5
    """

    def __init__(
        self,
        k: int = 5,
        name: str | None = "sparse_top_k_categorical_accuracy",
        dtype: Any = None,
        from_sorted_ids: bool = False,
    ) -> None:
        self._set(locals())


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
