"""Callbacks made of functions, and those for averaged weights and CSV files."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ganglion.callbacks.base import Callback, Logs
from ganglion.callbacks.states import whole_number
from ganglion.config import closest

_HOOKS = [name for name in vars(Callback) if name.startswith("on_")]


class LambdaCallback(Callback):
    """A callback made of functions.

    Args:
        on_epoch_begin: Function of the epoch and the logs.
        on_epoch_end: Function of the epoch and the logs.
        on_train_begin: Function of the logs.
        on_train_end: Function of the logs.
        on_train_batch_begin: Function of the step and the logs.
        on_train_batch_end: Function of the step and the logs.
        **kwargs: Functions for the other hooks of `Callback`, by name.

    >>> show = LambdaCallback(on_epoch_end=lambda epoch, logs: print(epoch, logs))
    >>> show.on_epoch_end(0, {"loss": 0.5})
    0 {'loss': 0.5}
    """

    def __init__(
        self,
        on_epoch_begin: Callable[..., Any] | None = None,
        on_epoch_end: Callable[..., Any] | None = None,
        on_train_begin: Callable[..., Any] | None = None,
        on_train_end: Callable[..., Any] | None = None,
        on_train_batch_begin: Callable[..., Any] | None = None,
        on_train_batch_end: Callable[..., Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        given = {
            "on_epoch_begin": on_epoch_begin,
            "on_epoch_end": on_epoch_end,
            "on_train_begin": on_train_begin,
            "on_train_end": on_train_end,
            "on_train_batch_begin": on_train_batch_begin,
            "on_train_batch_end": on_train_batch_end,
            **kwargs,
        }
        for name, function in given.items():
            # Other names are attributes, as in Keras; but a hook that is misspelled
            # would never be called.
            if name not in _HOOKS and name.startswith("on_"):
                raise TypeError(
                    f"LambdaCallback knows no hook {name!r}. {closest(name, _HOOKS)}"
                )
            if function is not None:
                setattr(self, name, function)


class CSVLogger(Callback):
    """Writes a row of metrics to a file after every epoch.

    Args:
        filename: The file.
        separator: What stands between two values.
        append: Whether to go on in a file that is there.
    """

    def __init__(
        self,
        filename: str | os.PathLike[str],
        separator: str = ",",
        append: bool = False,
    ) -> None:
        super().__init__()
        self.sep = separator
        self.filename = os.fspath(filename)
        self.append = append
        self.keys: list[str] | None = None
        self.append_header = True
        self._last_epoch: int | None = None
        self._is_new = False

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Look whether the file has a header, and whether it can be written."""
        self.keys, self._last_epoch = None, None
        if self.append and os.path.exists(self.filename):
            self.append_header = os.path.getsize(self.filename) == 0
        elif not self.append:
            # A path that cannot be written fails before training. It is emptied later:
            # a run that goes on keeps its rows.
            self._is_new = True
            with open(self.filename, "a", encoding="utf-8"):
                pass

    def get_state(self) -> dict[str, Any]:
        """Return the columns and the last epoch."""
        return {"keys": self.keys, "last_epoch": self._last_epoch}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on in the file that is there, without the epochs that are run again."""
        if state["keys"] is None or not os.path.exists(self.filename):
            return
        last = whole_number(state, "last_epoch")
        with open(self.filename, newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file, delimiter=self.sep))
        after = [at for at, row in enumerate(rows) if row and row[0] == str(last)]
        if not after:  # another file, in which nothing of this run stands
            return
        self.keys = [str(name) for name in state["keys"]]
        self._last_epoch, self._is_new = last, False
        _keep_rows(self.filename, after[-1] + 1)

    def on_train_end(self, logs: Logs | None = None) -> None:
        """Empty a file to which no epoch was written."""
        self._start_file()

    def _start_file(self) -> None:
        if self._is_new:
            with open(self.filename, "w", encoding="utf-8"):
                pass
        self._is_new = False

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Add a row; the file is closed again, so that it is on the disk."""
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


def _keep_rows(filename: str, count: int) -> None:
    """Cut a file of rows off after some of them."""
    with open(filename, "r+", newline="", encoding="utf-8") as file:
        for _ in range(count):
            file.readline()
        file.truncate(file.tell())


def _cell(value: Any) -> Any:
    is_list = isinstance(value, Iterable) and not isinstance(value, str)
    if is_list and np.ndim(value):
        return f'"[{", ".join(map(str, value))}]"'
    return value


class SwapEMAWeights(Callback):
    """Uses the averaged weights of the optimizer while evaluating.

    The optimizer must be made with ``use_ema=True``.

    Args:
        swap_on_epoch: Whether to swap at the end of an epoch, too, and back at the
            beginning of the next, so that later callbacks save the averaged weights.
    """

    def __init__(self, swap_on_epoch: bool = False) -> None:
        super().__init__()
        self.swap_on_epoch = swap_on_epoch
        self._averaged = False

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Make sure that there are averages."""
        self._check()

    def get_state(self) -> dict[str, Any]:
        """Return whether the model has the averages, and they the weights."""
        return {"averaged": self._averaged}

    def set_state(self, state: dict[str, Any]) -> None:
        """Remember which is which."""
        self._averaged = bool(state["averaged"])

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        """Go back to the weights in training."""
        if self.swap_on_epoch:
            self._use_averages(False)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        """Use the averages until the next epoch."""
        if not self.swap_on_epoch:
            return
        self._use_averages(True)
        if epoch == (self.params or {}).get("epochs", 0) - 1:
            # At the end `fit` copies the averages into the weights: they must be equal.
            for weight, average in self._pairs():
                average.assign(weight.numpy())

    def on_test_begin(self, logs: Logs | None = None) -> None:
        """Use the averages."""
        self._use_averages(True)

    def on_test_end(self, logs: Logs | None = None) -> None:
        """Go back to the weights in training."""
        self._use_averages(False)

    def on_predict_begin(self, logs: Logs | None = None) -> None:
        """Use the averages."""
        self._use_averages(True)

    def on_predict_end(self, logs: Logs | None = None) -> None:
        """Go back to the weights in training."""
        self._use_averages(False)

    def _use_averages(self, wanted: bool) -> None:
        if self._averaged == wanted:
            return
        for weight, average in self._pairs():
            before = weight.numpy()
            weight.assign(average.numpy())
            average.assign(before)
        self._averaged = wanted

    def _check(self) -> None:
        optimizer = getattr(self.model, "optimizer", None)
        if not getattr(optimizer, "use_ema", False):
            raise ValueError(
                "SwapEMAWeights needs an optimizer that averages the weights: make it "
                "with `use_ema=True`."
            )

    def _pairs(self) -> list[tuple[Any, Any]]:
        self._check()
        return list(self.model.optimizer.averages())
