"""True and false positives and negatives at thresholds, and what follows from them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ganglion import config, ops
from ganglion.compiler.ir.graph import ShapeError, Value
from ganglion.losses.base import fitted_weights, same_rank, to_array
from ganglion.metrics.base import Configured, registered
from ganglion.ops import op
from ganglion.ops.dispatch import astype
from ganglion.variables import Variable

__all__ = [
    "FalseNegatives", "FalsePositives", "Precision", "Recall", "TrueNegatives",
    "TruePositives",
]  # fmt: skip

# Keras' value of predictions outside of the top k: below every threshold.
NEVER = -1e10
COUNTS = ("true_positives", "false_positives", "true_negatives", "false_negatives")


def checked_thresholds(thresholds: Any, default: float) -> list[float]:
    """Return thresholds as a list; refuse those outside of 0 ... 1."""
    if thresholds is None:
        return [default]
    listed = list(thresholds) if np.ndim(thresholds) else [thresholds]
    if not listed:
        raise TypeError("There must be at least one threshold, got none.")
    wrong = [n for n in listed if n is None or not 0 <= n <= 1]
    if wrong:
        raise ValueError(f"Threshold values must be in [0, 1]. Received: {wrong}")
    return [float(n) for n in listed]


def is_even(thresholds: Any) -> bool:
    """Return whether thresholds are spaced evenly over 0 ... 1."""
    n = len(thresholds)
    if n < 3:
        return False
    even = np.arange(n, dtype=np.float32) / (n - 1)
    return bool(np.allclose(thresholds, even, atol=config.epsilon()))


@op
def confusion_counts(
    y_true: Any,
    y_pred: Any,
    thresholds: list[float],
    sample_weight: Any = None,
    top_k: int | None = None,
    class_id: int | None = None,
    label_weights: Any = None,
    multi_label: bool = False,
) -> tuple[Any, Any, Any, Any]:
    """Return the weights of true and false positives, true and false negatives.

    Each has one entry per threshold (and per label, if these are kept apart).
    """
    label, prediction, weights = _prepared(y_true, y_pred, sample_weight)
    if top_k is not None:
        prediction = ops.where(top_k_mask(prediction, top_k), prediction, NEVER)
    if class_id is not None:
        label, prediction = _one_class(label, prediction, class_id)
    yes = ops.cast(ops.not_equal(label, 0.0), prediction.dtype)
    no = 1.0 - yes
    for weight in (weights, label_weights):
        if weight is not None:
            yes, no = yes * weight, no * weight
    rest = prediction.shape if multi_label else (prediction.size,)
    above = _above(ops.reshape(prediction, (1, *rest)), thresholds)
    yes, no = ops.reshape(yes, (1, *rest)), ops.reshape(no, (1, *rest))
    true_positives = ops.sum(ops.where(above, yes, 0.0), axis=1)
    false_positives = ops.sum(ops.where(above, no, 0.0), axis=1)
    true_negatives = ops.sum(no, axis=1) - false_positives
    false_negatives = ops.sum(yes, axis=1) - true_positives
    return true_positives, false_positives, true_negatives, false_negatives


def _prepared(
    y_true: Any, y_pred: Any, sample_weight: Any
) -> tuple[Value, Value, Value | None]:
    dtype = config.floatx()
    prediction, label = same_rank(astype(y_pred, dtype), astype(y_true, dtype))
    if label.shape != prediction.shape:
        raise ShapeError(
            f"Labels of shape {label.shape} do not fit predictions of shape "
            f"{prediction.shape}. This metric compares them element by element: turn "
            "class numbers into one-hot rows with keras.utils.to_categorical."
        )
    if sample_weight is None:
        return label, prediction, None
    weights = astype(sample_weight, dtype)
    _, weights = same_rank(label, weights, expand_rank_1=False)
    return label, prediction, fitted_weights(label, weights)[1]


def _one_class(label: Value, prediction: Value, number: int) -> tuple[Value, Value]:
    if prediction.ndim < 2:
        raise ShapeError(
            "When class_id is provided, y_pred must be a 2D array with shape "
            f"(num_samples, num_classes), found shape: {prediction.shape}"
        )
    if not -1 < number < prediction.shape[-1]:
        raise ShapeError(
            f"class_id={number} needs predictions with a column for that class, not "
            f"shape {prediction.shape}."
        )
    return label[..., number : number + 1], prediction[..., number : number + 1]


def _above(prediction: Value, thresholds: list[float]) -> Value:
    """Compare (1, ...) predictions with T thresholds; the result has T rows.

    Even thresholds are integers after scaling: Keras counts that way, and the
    rounding of `i / (T - 1)` would decide differently for predictions on a threshold.
    """
    limits = np.asarray(thresholds, prediction.dtype)
    inner = np.clip(limits, 0.0, 1.0)
    if is_even(inner):
        last = len(limits) - 1
        prediction = ops.clip(prediction, 0.0, 1.0) * float(last)
        steps = np.arange(last + 1, dtype=prediction.dtype)
        limits = np.where(limits < 0.0, -1.0, steps).astype(prediction.dtype)
    return ops.greater(prediction, limits.reshape((-1,) + (1,) * (prediction.ndim - 1)))


def top_k_mask(x: Value, k: int) -> Value:
    """Mark the k largest elements of each row, the first ones among equals."""
    classes = x.shape[-1]
    chosen = ops.zeros(x.shape, "bool")
    for _ in range(min(k, classes)):
        best = ops.argmax(ops.where(chosen, -np.inf, x), axis=-1)
        chosen = ops.logical_or(chosen, ops.one_hot(best, classes, dtype="bool"))
    return chosen


class ConfusionMetric(Configured):
    """A metric over some of the four counts, each with its own variable."""

    counted: tuple[str, ...] = COUNTS
    init_thresholds: Any
    thresholds: Any
    top_k: int | None = None
    class_id: int | None = None

    def _add_counts(self, shape: tuple[int, ...]) -> None:
        for name in self.counted:
            setattr(self, name, self.add_variable(shape, "zeros", name=name))

    def _set_thresholds(self, thresholds: Any, default: float = 0.5) -> None:
        self.init_thresholds = thresholds
        self.thresholds = checked_thresholds(thresholds, default)
        self._add_counts((len(self.thresholds),))

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        if "thresholds" in config:
            config["thresholds"] = self.init_thresholds
        return config

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        self._count(y_true, y_pred, sample_weight)

    def _count(
        self, y_true: Any, y_pred: Any, sample_weight: Any, **options: Any
    ) -> None:
        counts = confusion_counts(
            to_array(y_true),
            to_array(y_pred),
            list(self.thresholds),
            sample_weight=sample_weight,
            top_k=self.top_k,
            class_id=self.class_id,
            **options,
        )
        for name, count in zip(COUNTS, counts, strict=True):
            if name in self.counted:
                variable: Variable = getattr(self, name)
                variable.assign_add(count)


class _OneCount(ConfusionMetric):
    def __init__(
        self, thresholds: Any = None, name: str | None = None, dtype: Any = None
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        self._set_thresholds(thresholds)

    def result(self) -> Any:
        count = getattr(self, self.counted[0])
        return count[0] if len(self.thresholds) == 1 else ops.convert_to_tensor(count)


@registered()
class TruePositives(_OneCount):
    """How many predictions of yes are right.

    >>> metric = TruePositives()
    >>> metric.update_state([1, 1, 0, 0], [0.9, 0.2, 0.7, 0.1])
    >>> round(float(metric.result()), 1)
    1.0
    """

    counted = ("true_positives",)


@registered()
class TrueNegatives(_OneCount):
    """How many predictions of no are right.

    >>> metric = TrueNegatives()
    >>> metric.update_state([1, 1, 0, 0], [0.9, 0.2, 0.7, 0.1])
    >>> round(float(metric.result()), 1)
    1.0
    """

    counted = ("true_negatives",)


@registered()
class FalsePositives(_OneCount):
    """How many predictions of yes are wrong.

    >>> metric = FalsePositives()
    >>> metric.update_state([1, 1, 0, 0], [0.9, 0.2, 0.7, 0.1])
    >>> round(float(metric.result()), 1)
    1.0
    """

    counted = ("false_positives",)


@registered()
class FalseNegatives(_OneCount):
    """How many predictions of no are wrong.

    >>> metric = FalseNegatives()
    >>> metric.update_state([1, 1, 0, 0], [0.9, 0.2, 0.7, 0.1])
    >>> round(float(metric.result()), 1)
    1.0
    """

    counted = ("false_negatives",)


class _Share(ConfusionMetric):
    """True positives as a share of themselves and another count."""

    def __init__(
        self,
        thresholds: Any = None,
        top_k: int | None = None,
        class_id: int | None = None,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        self.top_k, self.class_id = top_k, class_id
        self._set_thresholds(thresholds, 0.5 if top_k is None else NEVER)

    def result(self) -> Any:
        right, other = (getattr(self, name) for name in self.counted)
        share = ops.divide_no_nan(right, right + other)
        return share[0] if len(self.thresholds) == 1 else share


@registered()
class Precision(_Share):
    """The share of right ones among the predictions of yes.

    >>> metric = Precision()
    >>> metric.update_state([0, 1, 1, 1], [1, 0, 1, 1])
    >>> round(float(metric.result()), 4)
    0.6667
    """

    counted = ("true_positives", "false_positives")


@registered()
class Recall(_Share):
    """The share of labels of yes that are predicted.

    >>> metric = Recall()
    >>> metric.update_state([0, 1, 1, 1], [1, 0, 1, 1])
    >>> round(float(metric.result()), 4)
    0.6667
    """

    counted = ("true_positives", "false_negatives")
