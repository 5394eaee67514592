"""Scores of a whole run: R² and the F scores."""

from __future__ import annotations

import warnings
from typing import Any

from ganglion import config, ops
from ganglion.losses.base import fitted_weights, paired, to_array
from ganglion.metrics.base import Configured, registered
from ganglion.ops import op
from ganglion.ops.dispatch import astype
from ganglion.variables import read

__all__ = [
    "F1Score", "FBetaScore", "R2Score",
]  # fmt: skip

_SUMS = ("squared_sum", "sum", "total_mse", "count")
_COUNTS = (
    "true_positives",
    "false_positives",
    "false_negatives",
    "intermediate_weights",
)


@registered()
class FBetaScore(Configured):
    """The weighted harmonic mean of precision and recall, over classes.

    >>> metric = FBetaScore(beta=2.0, threshold=0.5)
    >>> metric.update_state([[1, 1, 1], [1, 0, 0], [1, 1, 0]],
    ...                     [[0.2, 0.6, 0.7], [0.2, 0.6, 0.6], [0.6, 0.8, 0.0]])
    >>> [round(float(score), 4) for score in metric.result()]
    [0.3846, 0.9091, 0.8333]
    """

    def __init__(
        self,
        average: str | None = None,
        beta: float = 1.0,
        threshold: float | None = None,
        name: str | None = "fbeta_score",
        dtype: Any = None,
    ) -> None:
        super().__init__(name=name, dtype=dtype)
        if average not in (None, "micro", "macro", "weighted"):
            raise ValueError(
                "Invalid `average` argument value. Expected one of: {None, 'micro', "
                f"'macro', 'weighted'}}. Received: average={average}"
            )
        _check_float("beta", beta)
        if beta <= 0.0:
            raise ValueError(
                "Invalid `beta` argument value. It should be > 0. Received: "
                f"beta={beta}"
            )
        if threshold is not None:
            _check_float("threshold", threshold)
            if not 0.0 < threshold <= 1.0:
                raise ValueError(
                    "Invalid `threshold` argument value. It should verify "
                    f"0 < threshold <= 1. Received: threshold={threshold}"
                )
        self.average, self.beta, self.threshold = average, beta, threshold

    def _build(self, classes: int) -> None:
        shape = () if self.average == "micro" else (classes,)
        for name in _COUNTS:
            setattr(
                self, name, self.add_variable(shape, "zeros", self.dtype, name=name)
            )

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        y_true, y_pred = to_array(y_true), to_array(y_pred)
        if len(y_pred.shape) != 2 or len(y_true.shape) != 2:
            raise ValueError(
                f"{type(self).__name__} expects 2D inputs with shape (batch_size, "
                f"output_dim). Received input shapes: y_pred.shape="
                f"{tuple(y_pred.shape)} and y_true.shape={tuple(y_true.shape)}. Turn "
                "class numbers into one-hot rows with keras.utils.to_categorical."
            )
        if not self._variables:
            self._build(int(y_pred.shape[-1]))
        axis = None if self.average == "micro" else 0
        counts = _counts(
            y_true, y_pred, sample_weight, self.threshold, axis, dtype=self.dtype
        )
        for name, count in zip(_COUNTS, counts, strict=True):
            getattr(self, name).assign_add(count)

    def result(self) -> Any:
        if not self._variables:
            return ops.zeros((), self.dtype)
        tp, fp, fn, weights = (getattr(self, name) for name in _COUNTS)
        return _f_score(tp, fp, fn, weights, self.beta, self.average)


def _check_float(name: str, value: Any) -> None:
    if not isinstance(value, float):
        raise ValueError(
            f"Invalid `{name}` argument value. It should be a Python float. Received: "
            f"{name}={value} of type '{type(value)}'"
        )


@op
def _counts(
    y_true: Any,
    y_pred: Any,
    sample_weight: Any,
    threshold: float | None,
    axis: int | None,
    dtype: Any,
) -> tuple[Any, ...]:
    label, prediction = paired(
        "fbeta_score", astype(y_true, dtype), astype(y_pred, dtype)
    )
    if threshold is None:
        is_best = prediction >= ops.max(prediction, axis=-1, keepdims=True)
        said_yes = ops.logical_and(is_best, ops.absolute(prediction) > 1e-9)
    else:
        said_yes = prediction > threshold
    yes = ops.cast(said_yes, dtype)
    counts = (yes * label, yes * (1.0 - label), (1.0 - yes) * label, label)
    if sample_weight is not None:
        weight = ops.expand_dims(astype(sample_weight, dtype), 1)
        counts = tuple(count * weight for count in counts)
    return tuple(ops.sum(count, axis=axis) for count in counts)


@op
def _f_score(tp: Any, fp: Any, fn: Any, weights: Any, beta: float, average: Any) -> Any:
    tp, fp, fn, weights = map(read, (tp, fp, fn, weights))
    fuzz = config.epsilon()
    precision, recall = tp / (tp + fp + fuzz), tp / (tp + fn + fuzz)
    score = precision * recall / (beta**2 * precision + recall + fuzz)
    score = score * (1.0 + beta**2)
    if average == "weighted":
        return ops.sum(score * (weights / (ops.sum(weights) + fuzz)))
    return score if average is None else ops.mean(score)


@registered()
class F1Score(FBetaScore):
    """The harmonic mean of precision and recall, over classes.

    >>> metric = F1Score(average="macro", threshold=0.5)
    >>> metric.update_state([[1, 0], [0, 1]], [[0.9, 0.6], [0.2, 0.8]])
    >>> round(float(metric.result()), 3)
    0.833
    """

    def __init__(
        self,
        average: str | None = None,
        threshold: float | None = None,
        name: str | None = "f1_score",
        dtype: Any = None,
    ) -> None:
        super().__init__(average, 1.0, threshold, name, dtype)


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
                "Invalid value for argument `class_aggregation`: "
                f"{class_aggregation!r}. Use one of {known}."
            )
        if num_regressors < 0:
            raise ValueError(
                "Invalid value for argument `num_regressors`: it must not be negative, "
                f"got {num_regressors}."
            )
        self.class_aggregation = class_aggregation
        self.num_regressors = num_regressors
        self.num_samples = self.add_variable((), "zeros", name="num_samples")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        counts = _sums(to_array(y_true), to_array(y_pred), sample_weight, self.dtype)
        if len(self._variables) == 1:
            for name, value in zip(_SUMS, counts, strict=True):
                setattr(self, name, self.add_variable(value.shape, "zeros", name=name))
        for name, value in zip(_SUMS, counts, strict=True):
            getattr(self, name).assign_add(value)
        shape = to_array(y_pred).shape
        self.num_samples.assign_add(float(shape[0] * counts[0].shape[0]))

    def result(self) -> Any:
        """Return the score; adjusted for the number of regressors, if it is given."""
        if len(self._variables) == 1:
            return ops.zeros((), self.dtype)
        squares, total, errors, count = (getattr(self, name) for name in _SUMS)
        score = _r2_score(squares, total, errors, count, self.class_aggregation)
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
            "R2Score expects 2D inputs with shape (batch_size, output_dim). Received "
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
    return tuple(ops.sum(part, axis=0) for part in parts)


@op
def _r2_score(squares: Any, total: Any, errors: Any, count: Any, average: Any) -> Any:
    squares, total, errors, count = map(read, (squares, total, errors, count))
    variance = squares - total * (total / count)
    scores = 1.0 - errors / variance
    scores = ops.where(ops.isinf(scores), 0.0, scores)
    if average == "uniform_average":
        return ops.mean(scores)
    if average == "variance_weighted_average":
        return ops.sum(variance * scores) / ops.sum(variance)
    return scores
