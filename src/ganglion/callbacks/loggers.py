"""Callbacks that show or write down the metrics."""

from __future__ import annotations

import time
from typing import Any, Protocol

from ganglion.callbacks.base import Callback, Logs, per_chunk
from ganglion.progress import Progbar, print_message


class ProgbarLogger(Callback):
    """The progress bar of `fit`, `evaluate` and `predict`."""

    shows_progress = True

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0
        self.progbar: Progbar | None = None
        self.target: int | None = None
        self.verbose = 1
        self.epochs = 1
        self._called_in_fit = False

    def set_params(self, params: dict[str, Any] | None) -> None:
        """Take the parameters of `fit`: verbose, epochs and steps."""
        super().set_params(params)
        params = params or {}
        verbose = params.get("verbose", 1)
        self.verbose = 1 if verbose == "auto" else int(verbose)
        self.epochs = params.get("epochs") or 1
        self.target = params.get("steps")

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Keep validation silent: its results come with the epoch's."""
        self._called_in_fit = True

    def on_train_end(self, logs: Logs | None = None) -> None:
        """Let a later `evaluate` be shown again."""
        self._called_in_fit = False

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Start a new bar."""
        self._start_bar()
        if self.verbose and self.epochs > 1:
            print_message(f"Epoch {epoch + 1}/{self.epochs}")

    def on_test_begin(self, logs: Logs | None = None) -> None:
        """Start a new bar, unless this is the validation of `fit`."""
        if not self._called_in_fit:
            self._start_bar()

    def on_predict_begin(self, logs: Logs | None = None) -> None:
        """Start a new bar."""
        self._start_bar()

    @per_chunk
    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Move the bar."""
        self._move(batch, logs)

    @per_chunk
    def on_test_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Move the bar, unless this is the validation of `fit`."""
        if not self._called_in_fit:
            self._move(batch, logs)

    @per_chunk
    def on_predict_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        """Move the bar; the logs hold the predictions, which are not shown."""
        self._move(batch, None)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Finish the line with the epoch's metrics."""
        self._finish(logs)

    def on_test_end(self, logs: Logs | None = None) -> None:
        """Finish the line, unless this is the validation of `fit`."""
        if not self._called_in_fit:
            self._finish(logs)

    def on_predict_end(self, logs: Logs | None = None) -> None:
        """Finish the line."""
        self._finish(None)

    def _start_bar(self) -> None:
        self.seen = 0
        # No metric is averaged here: the logs are running averages already.
        self.progbar = Progbar(
            self.target, verbose=self.verbose, stateless_metrics=(), unit_name="step"
        )

    def _move(self, batch: int, logs: Logs | None) -> None:
        if self.progbar is None:
            self._start_bar()
        assert self.progbar is not None
        self.seen = batch + 1
        if self.verbose == 1:
            self.progbar.update(self.seen, _shown(logs), finalize=False)

    def _finish(self, logs: Logs | None) -> None:
        if self.progbar is None:
            self._start_bar()
        assert self.progbar is not None
        if self.target is None:
            self.target = self.progbar.target = self.seen
        self.progbar.update(self.target, _shown(logs), finalize=True)


def _shown(logs: Logs | None) -> list[tuple[str, Any]]:
    return list((logs or {}).items())


class EpochLog(Protocol):
    """What `EpochLogger` writes to: `progress.StepLog`, `progress.JsonLog`."""

    def epoch(self, epoch: int, logs: dict[str, Any], seconds: float) -> None:
        """Take the end of an epoch; epochs count from 1."""


class EpochLogger(Callback):
    """Times every epoch and gives its metrics to a log; takes the bar's place.

    >>> from ganglion.progress import StepLog
    >>> logger = EpochLogger(StepLog())
    >>> logger.on_epoch_begin(0)
    >>> logger.on_epoch_end(0, {"loss": 0.5})  # doctest: +ELLIPSIS
    loss: 0.5000    step 1  0... sec
    """

    shows_progress = True

    def __init__(self, log: EpochLog) -> None:
        super().__init__()
        self.log = log
        self._start = time.monotonic()

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Start the clock."""
        self._start = time.monotonic()

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Write the line."""
        self.log.epoch(epoch + 1, dict(logs or {}), time.monotonic() - self._start)
