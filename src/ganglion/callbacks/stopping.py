"""Callbacks that end training."""

from __future__ import annotations

import math
from typing import Any

from ganglion.callbacks.base import Callback, Logs, per_chunk
from ganglion.callbacks.monitor import MonitorCallback
from ganglion.callbacks.states import number_or_none, weights_or_none, whole_number
from ganglion.progress import print_message


class EarlyStopping(MonitorCallback):
    """Ends training when a metric no longer improves.

    Args:
        monitor: Name of the metric.
        min_delta: Least change that counts as an improvement.
        patience: Epochs without improvement after which training ends.
        verbose: 1 to say what is done.
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
        self.patience = patience
        self.verbose = verbose
        self.baseline = baseline
        self.restore_best_weights = restore_best_weights
        self.start_from_epoch = start_from_epoch
        self._reset()

    def _reset(self) -> None:
        self.wait = 0
        self.stopped_epoch = 0
        self.best = None
        self.best_weights: list[Any] | None = None
        self.best_epoch = 0

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Start anew, so that one callback serves several calls of `fit`."""
        self._reset()

    def get_state(self) -> dict[str, Any]:
        """Return the best epoch, its weights, and how long ago it was."""
        return {
            "wait": self.wait,
            "stopped_epoch": self.stopped_epoch,
            "best": self.best,
            "best_epoch": self.best_epoch,
            "best_weights": self.best_weights,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on counting."""
        self.wait = whole_number(state, "wait")
        self.stopped_epoch = whole_number(state, "stopped_epoch")
        self.best = number_or_none(state, "best")
        self.best_epoch = whole_number(state, "best_epoch")
        self.best_weights = weights_or_none(state, "best_weights", self.model)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Compare the epoch with the best one."""
        current = self.monitored(logs)
        if current is None or epoch < self.start_from_epoch:
            return
        improved = self.is_improvement(current, self.best)
        if improved or self.best_weights is None:
            self.best_epoch = epoch
            if self.restore_best_weights:
                self.best_weights = self.model.get_weights()
        self.wait += 1
        if improved:
            self.best = current
            if self.is_improvement(current, self.baseline):
                self.wait = 0
        elif self.wait >= self.patience and epoch > 0:
            self.stopped_epoch = epoch
            self.model.stop_training = True

    def on_train_end(self, logs: Logs | None = None) -> None:
        """Go back to the best weights, where asked to."""
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
    """

    def __init__(self, raise_error: bool = False) -> None:
        super().__init__()
        self.raise_error = raise_error

    @per_chunk
    def on_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Look at the loss."""
        loss = (logs or {}).get("loss")
        if loss is None or math.isfinite(loss):
            return
        if self.raise_error:
            raise RuntimeError(
                f"The loss became {loss} at or before batch {batch}. Try a smaller "
                "learning rate, and check the data for NaN."
            )
        print_message(f"Batch {batch}: Invalid loss, terminating training")
        self.model.stop_training = True
