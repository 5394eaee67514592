"""Accuracies: how often predictions are the labels, or labels among the best k."""

from __future__ import annotations

from typing import Any

from ganglion import config, ops
from ganglion.compiler.ir.graph import ShapeError, Value
from ganglion.losses.base import paired, same_rank
from ganglion.metrics.base import FunctionMetric, metric_function
from ganglion.ops.dispatch import floating
from ganglion.variables import read

__all__ = [
    "Accuracy", "BinaryAccuracy", "CategoricalAccuracy", "SparseCategoricalAccuracy",
    "SparseTopKCategoricalAccuracy", "TopKCategoricalAccuracy", "binary_accuracy",
    "categorical_accuracy", "sparse_categorical_accuracy",
    "sparse_top_k_categorical_accuracy", "top_k_categorical_accuracy",
]  # fmt: skip


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
