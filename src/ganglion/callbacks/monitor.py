"""Callbacks that watch a metric, and those that end training by one."""

from __future__ import annotations

import math
import re
import warnings
from typing import Any

from ganglion import ops
from ganglion.callbacks.base import Callback, Logs, per_chunk
from ganglion.callbacks.results import Results
from ganglion.callbacks.states import best_of, weights_or_none, whole_number
from ganglion.progress import print_message

# Words in the names of metrics, for those that do not specify their direction.
_UP = re.compile(
    "acc|auc|precision|recall|sensitivity|specificity|f1|iou|fbeta|r2|pearson|"
    "concordance|cosine_similarity"
)
_DOWN = re.compile(
    "loss|error|mse|mae|mape|msle|crossentropy|hinge|divergence|poisson|logcosh|"
    "perplexity"
)


class MonitorCallback(Callback):
    """Watches one metric and decides whether it improved.

    Args:
        monitor: Name of the metric; ``val_`` before it means that of validation.
        mode: "min", "max", or "auto" to go by the metric.
        baseline: The best value so far.
        min_delta: Least change that counts as an improvement.

    >>> MonitorCallback("val_accuracy", mode="max").monitor
    'val_accuracy'
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
        self.monitor, self.mode = monitor, mode
        self.best, self.min_delta = baseline, abs(min_delta)

    def monitored(self, logs: Logs | None) -> float | None:
        """Return the metric's value; warn with the names there are if it has none."""
        self._set_monitor_op()
        logs = Results(logs or {})
        if self.monitor in logs:
            return float(logs[self.monitor])
        known = ", ".join(map(repr, logs)) or "none"
        warnings.warn(
            f"{type(self).__name__} watches the metric {self.monitor!r}, which is not "
            f"available. Available metrics are: {known}.",
            stacklevel=3,
        )
        return None

    def _is_improvement(self, value: float, reference: float | None) -> bool:
        """Return whether a value is better than another by more than `min_delta`."""
        if reference is None or math.isnan(reference):
            return True
        if self._larger_is_better():
            return value - self.min_delta > reference
        return value + self.min_delta < reference

    @property
    def monitor_op(self) -> Any:
        """The comparison of values, whether one is better; None if not known yet."""
        try:
            return ops.greater if self._larger_is_better() else ops.less
        except ValueError:
            return None

    def _set_monitor_op(self) -> None:
        """Refuse a metric of which it is not known whether it should grow."""
        self._larger_is_better()

    def _larger_is_better(self) -> bool:
        if self.mode != "auto":
            return self.mode == "max"
        direction = self._metric_direction() or self._named_direction()
        if direction is None:
            raise ValueError(
                f"{type(self).__name__} callback received monitor={self.monitor}, "
                "but isn't able to automatically determine whether that metric should "
                "be maximized or minimized: pass mode='max' or mode='min'."
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
        if _DOWN.search(name):
            return "down"
        return "up" if _UP.search(name) else None


def _flat_metrics(metrics: Any) -> list[Any]:
    """Return the metrics, with those inside of containers such as compiled ones."""
    flat = []
    for metric in metrics if isinstance(metrics, (list, tuple)) else ():
        flat += [metric, *_flat_metrics(getattr(metric, "metrics", None))]
    return flat


class EarlyStopping(MonitorCallback):
    """Ends training when a metric no longer improves.

    Args:
        monitor: Name of the metric.
        min_delta: Least change that counts as an improvement.
        patience: Epochs without improvement after which training ends.
        verbose: 1 for messages.
        mode: "min", "max", or "auto" to go by the metric.
        baseline: A value the metric has to beat for an improvement to count.
        restore_best_weights: Whether to go back to the weights of the best epoch.
        start_from_epoch: Epochs to wait before watching.

    >>> EarlyStopping("loss", patience=3).patience
    3
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        min_delta: float = 0,
        patience: int = 0,
        verbose: int = 0,
        mode: str = "auto",
        baseline: float | None = None,
        restore_best_weights: bool = False,
        start_from_epoch: int = 0,
    ) -> None:
        super().__init__(monitor, mode, min_delta=min_delta)
        self.patience, self.verbose, self.baseline = patience, verbose, baseline
        self.restore_best_weights = restore_best_weights
        self.start_from_epoch = start_from_epoch
        self._reset()

    def _reset(self) -> None:
        self.wait = self.stopped_epoch = self.best_epoch = 0
        self.best = None
        self.best_weights: list[Any] | None = None

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self._reset()

    def get_state(self) -> dict[str, Any]:
        names = ("wait", "stopped_epoch", "best", "best_epoch", "best_weights")
        return {name: getattr(self, name) for name in names}

    def set_state(self, state: dict[str, Any]) -> None:
        self.wait = whole_number(state, "wait")
        self.stopped_epoch = whole_number(state, "stopped_epoch")
        self.best = best_of(state)
        self.best_epoch = whole_number(state, "best_epoch")
        self.best_weights = weights_or_none(state, "best_weights", self.model)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        current = self.monitored(logs)
        if current is None or epoch < self.start_from_epoch:
            return
        improved = self._is_improvement(current, self.best)
        if improved or (self.restore_best_weights and self.best_weights is None):
            self.best_epoch = epoch
            if self.restore_best_weights:
                self.best_weights = self.model.get_weights()
        self.wait += 1
        if improved:
            self.best = current
            if self._is_improvement(current, self.baseline):
                self.wait = 0
        elif self.wait >= self.patience and epoch > 0:
            self.stopped_epoch = epoch
            self.model.stop_training = True

    def on_train_end(self, logs: Logs | None = None) -> None:
        if self.stopped_epoch > 0 and self.verbose > 0:
            print_message(f"Epoch {self.stopped_epoch + 1}: early stopping")
        if self.best_weights is None:
            return
        if self.verbose > 0:
            print_message(
                "Restoring model weights from the end of the best epoch: "
                f"{self.best_epoch + 1}."
            )
        self.model.set_weights(self.best_weights)


class TerminateOnNaN(Callback):
    """Ends training when the loss is no longer a finite number.

    The loss of an epoch so far stays NaN or infinite once a step's loss was, so it is
    enough to look after every chunk of steps: the number shown is its last step's.

    Args:
        raise_error: Whether to raise a `RuntimeError` instead of ending quietly.

    >>> import numpy as np
    >>> import ganglion as keras
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> model.compile(keras.optimizers.SGD(1e30), "mse")
    >>> x, y = np.ones((4, 2)), np.ones(4)
    >>> calls = [TerminateOnNaN()]
    >>> len(model.fit(x, y, epochs=50, verbose=0, callbacks=calls).epoch) < 50
    Batch 0: Invalid loss, terminating training
    True
    """

    def __init__(self, raise_error: bool = False) -> None:
        super().__init__()
        self.raise_error = raise_error

    @per_chunk
    def on_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        loss = (logs or {}).get("loss")
        if loss is None or math.isfinite(loss):
            return
        if self.raise_error:
            raise RuntimeError(
                f"NaN or Inf loss encountered: it became {loss} at or before batch "
                f"{batch}. Try a smaller learning rate, and check the data for NaN."
            )
        print_message(f"Batch {batch}: Invalid loss, terminating training")
        self.model.stop_training = True
