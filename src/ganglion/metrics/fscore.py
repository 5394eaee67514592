"""The F scores: precision and recall in one number."""

from __future__ import annotations

from typing import Any

from ganglion import config, ops
from ganglion.losses.base import whole
from ganglion.losses.functions import paired
from ganglion.metrics.base import Configured, registered
from ganglion.ops import op
from ganglion.ops.dispatch import astype
from ganglion.variables import read

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
    >>> [round(float(one), 4) for one in metric.result()]
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
                f"Unknown average {average!r}: use None, 'micro', 'macro' or "
                "'weighted'."
            )
        if not isinstance(beta, float) or beta <= 0.0:
            raise ValueError(f"`beta` must be a positive float, not {beta!r}.")
        if threshold is not None and (
            not isinstance(threshold, float) or not 0.0 < threshold <= 1.0
        ):
            raise ValueError(
                f"`threshold` must be a float above 0, at most 1, not {threshold!r}."
            )
        self.average, self.beta, self.threshold = average, beta, threshold

    def _build(self, classes: int) -> None:
        shape = () if self.average == "micro" else (classes,)
        for name in _COUNTS:
            setattr(
                self, name, self.add_variable(shape, "zeros", self.dtype, name=name)
            )

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        y_true, y_pred = whole(y_true), whole(y_pred)
        if len(y_pred.shape) != 2 or len(y_true.shape) != 2:
            raise ValueError(
                f"{type(self).__name__} needs labels and predictions with two axes "
                f"(batch, classes), not shapes {tuple(y_true.shape)} and "
                f"{tuple(y_pred.shape)}: turn class numbers into one-hot rows with "
                "keras.utils.to_categorical."
            )
        if not self._variables:
            self._build(int(y_pred.shape[-1]))
        axis = None if self.average == "micro" else 0
        made = _counts(
            y_true, y_pred, sample_weight, self.threshold, axis, dtype=self.dtype
        )
        for name, count in zip(_COUNTS, made, strict=True):
            getattr(self, name).assign_add(count)

    def result(self) -> Any:
        if not self._variables:
            return ops.zeros((), self.dtype)
        tp, fp, fn, weights = (getattr(self, name) for name in _COUNTS)
        return _score(tp, fp, fn, weights, self.beta, self.average)


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
    made = (yes * label, yes * (1.0 - label), (1.0 - yes) * label, label)
    if sample_weight is not None:
        weight = ops.expand_dims(astype(sample_weight, dtype), 1)
        made = tuple(one * weight for one in made)
    return tuple(ops.sum(one, axis=axis) for one in made)


@op
def _score(tp: Any, fp: Any, fn: Any, weights: Any, beta: float, average: Any) -> Any:
    tp, fp, fn, weights = (read(one) for one in (tp, fp, fn, weights))
    fuzz = config.epsilon()
    precision, recall = tp / (tp + fp + fuzz), tp / (tp + fn + fuzz)
    score = precision * recall / (beta**2 * precision + recall + fuzz)
    score = score * (1.0 + beta**2)
    if average == "weighted":
        return ops.sum(score * (weights / (ops.sum(weights) + fuzz)))
    return score if average is None else ops.mean(score)


@registered()
class F1Score(FBetaScore):
    """The harmonic mean of precision and recall, over classes."""

    def __init__(
        self,
        average: str | None = None,
        threshold: float | None = None,
        name: str | None = "f1_score",
        dtype: Any = None,
    ) -> None:
        super().__init__(average, 1.0, threshold, name, dtype)
