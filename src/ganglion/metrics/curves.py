"""Curves over thresholds: the area under one, and points on one."""

from __future__ import annotations

from typing import Any

import numpy as np

from ganglion import config, ops
from ganglion.config import closest
from ganglion.losses.base import to_array
from ganglion.metrics.base import registered
from ganglion.metrics.confusion import ConfusionMetric
from ganglion.ops import op
from ganglion.serialization import deserialize_keras_object
from ganglion.system import budget
from ganglion.variables import read

__all__ = [
    "AUC", "PrecisionAtRecall", "RecallAtPrecision", "SensitivityAtSpecificity",
    "SpecificityAtSensitivity",
]  # fmt: skip

_CURVES = ("ROC", "PR", "PRGAIN")
BYTES_A_THRESHOLD = 80  # a Python number in two lists, and four counts
_SUMMATIONS = ("interpolation", "majoring", "minoring")


def _known(value: Any, known: tuple[str, ...], kind: str) -> str:
    text = str(getattr(value, "value", value))
    name = {name.lower(): name for name in known}.get(text.lower())
    if name is None:
        raise ValueError(f'Invalid AUC {kind} value: "{value}". {closest(text, known)}')
    return name


@registered()
class AUC(ConfusionMetric):
    """The area under the ROC or the precision-recall curve.

    >>> metric = AUC(num_thresholds=3)
    >>> metric.update_state([0, 0, 1, 1], [0, 0.5, 0.3, 0.9])
    >>> float(metric.result())
    0.75
    """

    def __init__(
        self,
        num_thresholds: int = 200,
        curve: Any = "ROC",
        summation_method: Any = "interpolation",
        name: str | None = None,
        dtype: Any = None,
        thresholds: Any = None,
        multi_label: bool = False,
        num_labels: int | None = None,
        label_weights: Any = None,
        from_logits: bool = False,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        self.curve = _known(curve, _CURVES, "curve")
        self.summation_method = _known(
            summation_method, _SUMMATIONS, "summation method"
        )
        self._given_thresholds = thresholds is not None
        self.init_thresholds = inner = _inner_thresholds(num_thresholds, thresholds)
        self.num_thresholds = len(inner) + 2
        edge = config.epsilon()
        self.thresholds = [0.0 - edge, *inner, 1.0 + edge]
        self.multi_label, self.num_labels = multi_label, num_labels
        has_weights = label_weights is not None
        self.label_weights = [*map(float, label_weights)] if has_weights else None
        self.from_logits = from_logits
        if num_labels and not multi_label:
            raise ValueError("`num_labels` belongs to `multi_label=True`.")
        if num_labels or not multi_label:
            self._build(num_labels)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Make a metric from its configuration; Keras writes weights as a tensor."""
        return cls(**deserialize_keras_object(config))

    def _build(self, labels: int | None) -> None:
        self._add_counts((self.num_thresholds, *([labels] if labels else [])))

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        if not self._variables:
            shape = tuple(to_array(y_pred).shape)
            if len(shape) != 2:
                raise ValueError(
                    "AUC with multi_label=True needs predictions with two axes (batch, "
                    f"labels), not shape {shape}."
                )
            self._build(int(shape[1]))
        if self.from_logits:
            y_pred = ops.sigmoid(y_pred)
        weights = None if self.multi_label else self.label_weights
        self._count(
            y_true,
            y_pred,
            sample_weight,
            label_weights=None if weights is None else np.array(weights, "float32"),
            multi_label=self.multi_label,
        )

    def result(self) -> Any:
        if not self._variables:
            return ops.zeros((), self.dtype)
        tp, fp, tn, fn = (getattr(self, name) for name in self.counted)
        weights = self.label_weights if self.multi_label else None
        return _area(tp, fp, tn, fn, self.curve, self.summation_method, weights)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        if not self._given_thresholds:
            del config["thresholds"]
        return config


def _inner_thresholds(count: int, thresholds: Any) -> list[float]:
    if thresholds is not None:
        return sorted(float(threshold) for threshold in thresholds)
    budget.take(BYTES_A_THRESHOLD * count, f"{count:,} thresholds")
    if count <= 1:
        raise ValueError(
            f"Argument `num_thresholds` must be an integer > 1, not {count}."
        )
    return [(i + 1) * 1.0 / (count - 1) for i in range(count - 2)]


@op
def _area(
    tp: Any, fp: Any, tn: Any, fn: Any, curve: str, summation: str, weights: Any
) -> Any:
    tp, fp, tn, fn = map(read, (tp, fp, tn, fn))
    if curve == "PR" and summation == "interpolation":
        terms = _interpolated_pr(tp, fp, fn)
    else:
        x, y = _points(tp, fp, tn, fn, curve)
        low, high = y[1:], y[:-1]
        heights = {
            "interpolation": (low + high) / 2.0,
            "minoring": ops.minimum(low, high),
            "majoring": ops.maximum(low, high),
        }[summation]
        terms = (x[:-1] - x[1:]) * heights
    areas = ops.sum(terms, axis=0)
    if weights is None:
        return ops.mean(areas)
    parts = np.array(weights, "float32")
    return ops.divide_no_nan(ops.sum(areas * parts), float(parts.sum()))


def _points(tp: Any, fp: Any, tn: Any, fn: Any, curve: str) -> tuple[Any, Any]:
    recall = ops.divide_no_nan(tp, tp + fn)
    if curve == "ROC":
        return ops.divide_no_nan(fp, fp + tn), recall
    if curve == "PR":
        return recall, ops.divide_no_nan(tp, tp + fp)
    odds = ops.divide_no_nan(tp + fn, tn + fp)
    none = ops.equal(tp, 0.0)
    recall_gain = ops.where(none, 0.0, 1.0 - odds * ops.divide_no_nan(fn, tp))
    precision_gain = ops.where(none, 1.0, 1.0 - odds * ops.divide_no_nan(fp, tp))
    return ops.maximum(recall_gain, 0.0), precision_gain


def _interpolated_pr(tp: Any, fp: Any, fn: Any) -> Any:
    """Interpolate true positives, not precision, between thresholds (Davis, 2006)."""
    said_yes = tp + fp
    gained = tp[:-1] - tp[1:]
    slope = ops.divide_no_nan(gained, ops.maximum(said_yes[:-1] - said_yes[1:], 0.0))
    intercept = tp[1:] - slope * said_yes[1:]
    both = ops.logical_and(said_yes[:-1] > 0.0, said_yes[1:] > 0.0)
    ratio = ops.where(both, ops.divide_no_nan(said_yes[:-1], said_yes[1:]), 1.0)
    area = slope * (gained + intercept * ops.log(ratio))
    return ops.divide_no_nan(area, ops.maximum(tp[1:] + fn[1:], 0.0))


@op
def _best(limited: Any, wanted: Any, bound: float) -> Any:
    """Return the largest wanted share where the limited one reaches its bound."""
    feasible = ops.greater_equal(limited, float(bound))
    return ops.max(ops.where(feasible, wanted, 0.0), initial=0.0)


class _Point(ConfusionMetric):
    """The best share of one kind where another share reaches a bound."""

    limited: str
    wanted: str

    def __init__(
        self,
        bound: float,
        num_thresholds: int,
        class_id: int | None,
        name: str | None,
        dtype: Any,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        if not 0 <= bound <= 1:
            raise ValueError(
                f"Argument `{self.limited}` must be in the range [0, 1]. Received: "
                f"{self.limited}={bound}"
            )
        if num_thresholds <= 0:
            raise ValueError(
                "Argument `num_thresholds` must be an integer > 0, not "
                f"{num_thresholds}."
            )
        budget.take(
            BYTES_A_THRESHOLD * num_thresholds, f"{num_thresholds:,} thresholds"
        )
        self.value = bound
        setattr(self, self.limited, bound)  # as in Keras
        self.num_thresholds, self.class_id = num_thresholds, class_id
        last = num_thresholds - 1
        self.thresholds = [0.5] if not last else [i / last for i in range(last + 1)]
        self._add_counts((num_thresholds,))

    def result(self) -> Any:
        tp, fp, tn, fn = (getattr(self, name) for name in self.counted)
        recall = ops.divide_no_nan(tp, tp + fn)
        shares = {
            "recall": recall,
            "sensitivity": recall,
            "precision": ops.divide_no_nan(tp, tp + fp),
            "specificity": ops.divide_no_nan(tn, tn + fp),
        }
        return _best(shares[self.limited], shares[self.wanted], self.value)


@registered()
class SensitivityAtSpecificity(_Point):
    """The best sensitivity where the specificity is at least the one given.

    >>> metric = SensitivityAtSpecificity(0.5)
    >>> metric.update_state([0, 0, 1, 1], [0.1, 0.6, 0.4, 0.9])
    >>> round(float(metric.result()), 3)
    1.0
    """

    limited, wanted = "specificity", "sensitivity"

    def __init__(
        self,
        specificity: float,
        num_thresholds: int = 200,
        class_id: int | None = None,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(specificity, num_thresholds, class_id, name, dtype)


@registered()
class SpecificityAtSensitivity(_Point):
    """The best specificity where the sensitivity is at least the one given.

    >>> metric = SpecificityAtSensitivity(0.5)
    >>> metric.update_state([0, 0, 1, 1], [0.1, 0.6, 0.4, 0.9])
    >>> round(float(metric.result()), 3)
    1.0
    """

    limited, wanted = "sensitivity", "specificity"

    def __init__(
        self,
        sensitivity: float,
        num_thresholds: int = 200,
        class_id: int | None = None,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(sensitivity, num_thresholds, class_id, name, dtype)


@registered()
class PrecisionAtRecall(_Point):
    """The best precision where the recall is at least the one given.

    >>> metric = PrecisionAtRecall(0.5)
    >>> metric.update_state([0, 0, 1, 1], [0.1, 0.6, 0.4, 0.9])
    >>> round(float(metric.result()), 3)
    1.0
    """

    limited, wanted = "recall", "precision"

    def __init__(
        self,
        recall: float,
        num_thresholds: int = 200,
        class_id: int | None = None,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(recall, num_thresholds, class_id, name, dtype)


@registered()
class RecallAtPrecision(_Point):
    """The best recall where the precision is at least the one given.

    >>> metric = RecallAtPrecision(0.5)
    >>> metric.update_state([0, 0, 1, 1], [0.1, 0.6, 0.4, 0.9])
    >>> round(float(metric.result()), 3)
    1.0
    """

    limited, wanted = "precision", "recall"

    def __init__(
        self,
        precision: float,
        num_thresholds: int = 200,
        class_id: int | None = None,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(precision, num_thresholds, class_id, name, dtype)
