"""What callbacks that watch a metric have in common."""

from __future__ import annotations

import math
import warnings
from typing import Any

from ganglion import keras2
from ganglion.callbacks.base import Callback, Logs

# Words in the names of metrics, for those that do not say their direction themselves.
_UP = ("acc", "auc", "precision", "recall", "sensitivity", "specificity", "f1", "iou")
_UP_TOO = ("fbeta", "r2", "pearson", "concordance", "cosine_similarity")
_DOWN = ("loss", "error", "mse", "mae", "mape", "msle", "crossentropy", "hinge")
_DOWN_TOO = ("divergence", "poisson", "logcosh", "perplexity")

_KERAS_2_NAMES = {"acc": "accuracy", "val_acc": "val_accuracy"}


class MonitorCallback(Callback):
    """Watches one metric and tells whether it improved.

    Args:
        monitor: Name of the metric; ``val_`` before it means that of validation.
        mode: "min", "max", or "auto" to go by the metric.
        baseline: The best value so far.
        min_delta: Least change that counts as an improvement.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        mode: str = "auto",
        baseline: float | None = None,
        min_delta: float = 0,
    ) -> None:
        super().__init__()
        if mode not in ("auto", "min", "max"):
            warnings.warn(
                f"{type(self).__name__} mode {mode!r} is unknown (known: auto, min, "
                "max); falling back to auto.",
                stacklevel=3,
            )
            mode = "auto"
        self.monitor = monitor
        self.mode = mode
        self.best = baseline
        self.min_delta = abs(min_delta)

    def monitored(self, logs: Logs | None) -> float | None:
        """Return the metric's value; warn with the names there are if it has none."""
        logs = logs or {}
        name = self._name_in(logs)
        if name is not None:
            return float(logs[name])
        known = ", ".join(repr(one) for one in logs) or "none"
        warnings.warn(
            f"{type(self).__name__} watches the metric {self.monitor!r}, which is not "
            f"available. Available metrics are: {known}.",
            stacklevel=3,
        )
        return None

    def _name_in(self, logs: Logs) -> str | None:
        if self.monitor in logs:
            return self.monitor
        today = _KERAS_2_NAMES.get(self.monitor)
        if today not in logs:
            return None
        keras2.note(
            f"monitor={self.monitor!r}", f"monitor={today!r}", changes_defaults=False
        )
        return today

    def is_improvement(self, value: float, reference: float | None) -> bool:
        """Return whether a value is better than another by more than `min_delta`."""
        if reference is None or math.isnan(reference):
            return True
        if self._larger_is_better():
            return value - self.min_delta > reference
        return value + self.min_delta < reference

    def _larger_is_better(self) -> bool:
        if self.mode != "auto":
            return self.mode == "max"
        direction = self._metric_direction() or self._named_direction()
        if direction is None:
            raise ValueError(
                f"{type(self).__name__} cannot tell whether {self.monitor!r} should "
                "grow or shrink: pass mode='max' or mode='min'."
            )
        return direction == "up"

    def _metric_direction(self) -> str | None:
        wanted = self.monitor.removeprefix("val_")
        for metric in _flat_metrics(getattr(self.model, "metrics", None)):
            if getattr(metric, "name", None) == wanted:
                return getattr(metric, "_direction", None)
        return None

    def _named_direction(self) -> str | None:
        name = self.monitor.lower().replace("-", "_")
        if any(word in name for word in (*_DOWN, *_DOWN_TOO)):
            return "down"
        return "up" if any(word in name for word in (*_UP, *_UP_TOO)) else None


def _flat_metrics(metrics: Any) -> list[Any]:
    """Return the metrics, with those inside of containers such as compiled ones."""
    flat = []
    for metric in metrics or ():
        flat.append(metric)
        inner = getattr(metric, "metrics", None)
        if isinstance(inner, (list, tuple)):
            flat.extend(_flat_metrics(inner))
    return flat
