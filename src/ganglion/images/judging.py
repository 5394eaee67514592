"""Which epoch of a training on images is the best, and when no better one will come.

With few images an epoch is a few steps and validation a few images: what happens in it
is mostly chance. So patience is counted in steps, the first ones never end it, and
epochs are judged by an average of some of them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ganglion import callbacks
from ganglion.callbacks.rates import learning_rate_of, set_learning_rate
from ganglion.callbacks.states import number, weights_or_none, whole_number

SAVE_SECONDS = 5.0  # how much of a training a power cut may cost
SLOWER = 0.3  # what the learning rate falls to
# In a score that is otherwise the error: where all are told apart, the loss decides.
LOSS_SHARE = 0.1
LEAST_CHANGE = 3e-3  # of the score
# Steps of training, however many epochs they are.
WARM_UP_STEPS, SLOWER_STEPS, STOP_STEPS, AVERAGED_STEPS = 200, 100, 250, 50


class BestKeeper(callbacks.Callback):
    """Keeps the weights of the best epoch, in memory and in a file.

    The file is a model with the weights of the best epoch, and holds all that the run
    needs to go on from where it is.

    Args:
        monitor: What is to become small.
        save: The file; None for none.
        best: What has to be beaten.
    """

    def __init__(self, monitor: str, save: Path | None, best: float = np.inf) -> None:
        super().__init__()
        self.monitor, self.save, self.best = monitor, save, best
        self.epoch: int | None = None  # from 1
        self.weights: list[np.ndarray] | None = None
        self._latest: list[np.ndarray] | None = None  # while the model has the best
        self._saved = time.monotonic()

    def value_of(self, logs: dict[str, Any]) -> float | None:
        """Return what an epoch is judged by."""
        return logs.get(self.monitor)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Keep what is better than all before."""
        value = self.value_of(logs or {})
        is_better = value is not None and value < self.best
        if value is not None and is_better:
            self.best, self.epoch = value, epoch + 1
            self.weights = self.model.get_weights()
        self.after(epoch)
        last = epoch + 1 == (self.params or {}).get("epochs")
        is_over = last or getattr(self.model, "stop_training", False)
        if is_better or is_over or time.monotonic() - self._saved > SAVE_SECONDS:
            self.write()

    def after(self, epoch: int) -> None:
        """Do what follows from the epoch, before it is written."""

    def write(self) -> None:
        """Write the file, if there is to be one."""
        if self.save is None:
            return
        with self._best_weights():
            self.model.save(self.save)
        self._saved = time.monotonic()

    @contextmanager
    def _best_weights(self) -> Iterator[None]:
        """Lend the model the weights of the best epoch."""
        if self.weights is None:
            yield
            return
        self._latest = self.model.get_weights()
        self.model.set_weights(self.weights)
        try:
            yield
        finally:
            self.model.set_weights(self._latest)
            self._latest = None

    def get_state(self) -> dict[str, Any]:
        """Return the best epoch, and those weights that are not the model's."""
        lent = self._latest is not None
        return {
            "best": self.best,
            "epoch": self.epoch,
            "best_is_in_the_model": lent,
            "weights": self._latest if lent else self.weights,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Give the model the weights to go on with."""
        self.best = number(state, "best")
        epoch = state["epoch"]
        self.epoch = None if epoch is None else whole_number(state, "epoch")
        self.weights = weights_or_none(state, "weights", self.model)
        if state["best_is_in_the_model"] and self.weights is not None:
            latest, self.weights = self.weights, self.model.get_weights()
            self.model.set_weights(latest)


@dataclass(frozen=True)
class Patience:
    """How many epochs to wait for what, by how many steps an epoch has."""

    warm_up: int  # before any counting
    slower_after: int
    stop_after: int
    averaged: int

    @classmethod
    def of(cls, steps: int) -> Patience:
        """Return the patience for epochs of so many steps.

        >>> Patience.of(5).stop_after > Patience.of(20).stop_after
        True
        >>> Patience.of(1000)
        Patience(warm_up=1, slower_after=6, stop_after=15, averaged=1)
        """

        def epochs(count: int, least: int) -> int:
            return max(least, math.ceil(count / steps))

        return cls(
            warm_up=epochs(WARM_UP_STEPS, 1),
            slower_after=epochs(SLOWER_STEPS, 6),
            stop_after=epochs(STOP_STEPS, 15),
            averaged=epochs(AVERAGED_STEPS, 1),
        )


class Judge(BestKeeper):
    """Keeps the best epoch, lowers the learning rate, and ends training.

    An epoch's score is the share of validation images that it gets wrong, and a little
    of the loss. The loss alone would often find the first epoch best: with few images
    a network is sure of itself long before it is right. What is compared is the average
    of the last epochs' scores; an epoch that is worse than it does not count as best.

    Args:
        patience: How many epochs to wait for what.
        classes: How many there are.
        save: The file; None for none.
    """

    def __init__(self, patience: Patience, classes: int, save: Path | None) -> None:
        super().__init__("val_loss", save)
        self.patience = patience
        classes = max(classes, 2)
        self._guessing = math.log(classes)  # the loss of knowing nothing
        # Before the first epoch all is guessing: a lucky first one is not the best.
        self.average = 1 - 1 / classes + LOSS_SHARE
        self.lowest = math.inf  # of the averages
        self.waited = self.waited_to_slow = 0

    def begin(self, logs: dict[str, float], model: Any) -> None:
        """Take a model as it is for the best so far, by what validation says of it."""
        logs = {f"val_{name}": value for name, value in logs.items()}
        value = self.value_of(logs)
        if value is not None:
            self.best, self.weights = value, model.get_weights()

    def value_of(self, logs: dict[str, Any]) -> float | None:
        """Return the score of an epoch, or the average if that is worse."""
        if "val_accuracy" not in logs:
            return None
        loss = LOSS_SHARE * logs["val_loss"] / self._guessing
        score = 1 - logs["val_accuracy"] + loss
        if not math.isfinite(score):
            return None
        self.average += (score - self.average) / self.patience.averaged
        return max(score, self.average)

    def after(self, epoch: int) -> None:
        """Lower the learning rate or end training, where it is time to."""
        if epoch + 1 < self.patience.warm_up:
            return
        if epoch + 1 == self.patience.warm_up:
            self.best = math.inf  # what came before was luck, good or bad
        if self.average < self.lowest - LEAST_CHANGE:
            self.lowest, self.waited, self.waited_to_slow = self.average, 0, 0
            return
        self.waited += 1
        self.waited_to_slow += 1
        if self.waited >= self.patience.stop_after:
            self.model.stop_training = True
        elif self.waited_to_slow >= self.patience.slower_after:
            self.waited_to_slow = 0
            rate = learning_rate_of(self.model)
            if rate is not None:
                set_learning_rate(self.model, SLOWER * rate)

    def get_state(self) -> dict[str, Any]:
        """Return the averages and counters, too."""
        return super().get_state() | {
            "average": self.average,
            "lowest": self.lowest,
            "waited": self.waited,
            "waited_to_slow": self.waited_to_slow,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on counting."""
        super().set_state(state)
        self.average = number(state, "average")
        self.lowest = number(state, "lowest")
        self.waited = whole_number(state, "waited")
        self.waited_to_slow = whole_number(state, "waited_to_slow")
