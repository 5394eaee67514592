"""Callbacks that show or write down the metrics."""

from __future__ import annotations

import csv
import os
import time
from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np

from ganglion.callbacks.base import Callback, Logs, per_chunk
from ganglion.callbacks.states import whole_number
from ganglion.progress import Progbar, print_message


class ProgbarLogger(Callback):
    """The progress bar of `fit`, `evaluate` and `predict`.

    >>> ProgbarLogger().model is None
    True
    """

    shows_progress = True

    def __init__(self) -> None:
        super().__init__()
        self.progbar: Progbar | None = None
        self.target: int | None = None
        self.seen, self.verbose, self.epochs = 0, 1, 1
        self._called_in_fit = False

    def set_params(self, params: dict[str, Any] | None) -> None:
        super().set_params(params)
        params = params or {}
        verbose = params.get("verbose", 1)
        self.verbose = 1 if verbose == "auto" else int(verbose)
        self.epochs = params.get("epochs") or 1
        self.target = params.get("steps")

    # Inside of `fit`, validation is silent: its results come with the epoch's.

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self._called_in_fit = True

    def on_train_end(self, logs: Logs | None = None) -> None:
        self._called_in_fit = False

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        self._start_bar()
        if self.verbose and self.epochs > 1:
            print_message(f"Epoch {epoch + 1}/{self.epochs}")

    def on_test_begin(self, logs: Logs | None = None) -> None:
        if not self._called_in_fit:
            self._start_bar()

    def on_predict_begin(self, logs: Logs | None = None) -> None:
        self._start_bar()

    @per_chunk
    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        self._move(batch, logs)

    @per_chunk
    def on_test_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        if not self._called_in_fit:
            self._move(batch, logs)

    @per_chunk
    def on_predict_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        self._move(batch, None)  # the logs hold the predictions

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        self._finish(logs)

    def on_test_end(self, logs: Logs | None = None) -> None:
        if not self._called_in_fit:
            self._finish(logs)

    def on_predict_end(self, logs: Logs | None = None) -> None:
        self._finish(None)

    def _start_bar(self) -> Progbar:
        self.seen = 0
        # No metric is averaged here: the logs are running averages already.
        self.progbar = Progbar(
            self.target, verbose=self.verbose, stateless_metrics=(), unit_name="step"
        )
        return self.progbar

    def _move(self, batch: int, logs: Logs | None) -> None:
        bar = self.progbar or self._start_bar()
        self.seen = batch + 1
        if self.verbose == 1:
            bar.update(self.seen, (logs or {}).items(), finalize=False)

    def _finish(self, logs: Logs | None) -> None:
        bar = self.progbar or self._start_bar()
        if self.target is None:
            self.target = bar.target = self.seen
        bar.update(self.target, (logs or {}).items(), finalize=True)


class EpochLog(Protocol):
    """The log that `EpochLogger` writes: `progress.StepLog`, `progress.JsonLog`."""

    def epoch(self, epoch: int, logs: dict[str, Any], seconds: float) -> None: ...


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
        self._start = time.monotonic()

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        self.log.epoch(epoch + 1, dict(logs or {}), time.monotonic() - self._start)


class CSVLogger(Callback):
    """Writes a row of metrics to a file after every epoch.

    Args:
        filename: The file.
        separator: The text between two values.
        append: Whether to append to an existing file.

    >>> CSVLogger("losses.csv", append=True).append
    True
    """

    writes_file = "filename"

    def __init__(
        self,
        filename: str | os.PathLike[str],
        separator: str = ",",
        append: bool = False,
    ) -> None:
        super().__init__()
        self.filename, self.sep = os.fspath(filename), separator
        self.append, self.append_header = append, True
        self.keys: list[str] | None = None
        self._last_epoch: int | None = None
        self._is_new = False

    def on_train_begin(self, logs: Logs | None = None) -> None:
        self.keys, self._last_epoch = None, None
        if self.append and os.path.exists(self.filename):
            self.append_header = os.path.getsize(self.filename) == 0
        elif not self.append:
            # A path that cannot be written fails before training. It is emptied later:
            # a resumed run keeps its rows.
            self._is_new = True
            open(self.filename, "a", encoding="utf-8").close()

    def get_state(self) -> dict[str, Any]:
        return {"keys": self.keys, "last_epoch": self._last_epoch}

    def set_state(self, state: dict[str, Any]) -> None:
        if state["keys"] is None or not os.path.exists(self.filename):
            return
        last = whole_number(state, "last_epoch")
        with open(self.filename, newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file, delimiter=self.sep))
        after = [at for at, row in enumerate(rows) if row and row[0] == str(last)]
        if not after:  # another file, with nothing of this run
            return
        self.keys = [str(name) for name in state["keys"]]
        self._last_epoch, self._is_new = last, False
        # The epochs after the last one are run again: their rows go.
        with open(self.filename, "r+", newline="", encoding="utf-8") as file:
            for _ in range(after[-1] + 1):
                file.readline()
            file.truncate(file.tell())

    def on_train_end(self, logs: Logs | None = None) -> None:
        self._start_file()

    def _start_file(self) -> None:
        if self._is_new:
            open(self.filename, "w", encoding="utf-8").close()
        self._is_new = False

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        logs = logs or {}
        self._start_file()
        self._last_epoch = epoch
        is_first = self.keys is None
        if self.keys is None:
            self.keys = sorted(logs)
            if not any(name.startswith("val_") for name in self.keys):
                # Validation may begin later; the columns stand from the first row.
                self.keys += [f"val_{name}" for name in self.keys]
        row = [epoch, *(_cell(logs.get(name, "NA")) for name in self.keys)]
        with open(self.filename, "a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, delimiter=self.sep)
            if is_first and self.append_header:
                writer.writerow(["epoch", *self.keys])
            writer.writerow(row)


def _cell(value: Any) -> Any:
    is_list = isinstance(value, Iterable) and not isinstance(value, str)
    if is_list and np.ndim(value):
        return f'"[{", ".join(map(str, value))}]"'
    return value
