"""Callbacks that change the learning rate."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from ganglion import keras2
from ganglion.callbacks.base import Callback, Logs
from ganglion.callbacks.monitor import MonitorCallback
from ganglion.callbacks.states import best_of, whole_number
from ganglion.progress import print_message


def optimizers_of(model: Any) -> list[Any]:
    """Return the optimizers of a model that have their own learning rate."""
    optimizer: Any = getattr(model, "optimizer", None)
    several = getattr(optimizer, "optimizers", None)
    return [optimizer] if several is None else list(several)


def learning_rate_of(optimizer: Any) -> float | None:
    """Return the learning rate as it is now, None without an optimizer."""
    rate = getattr(optimizer, "learning_rate", None)
    if rate is None:
        return None
    if _is_schedule(rate):
        rate = rate(np.asarray(optimizer.iterations))
    return float(np.asarray(rate))


def learning_rates_of(model: Any) -> dict[str, float]:
    """Return the learning rate for the logs; of several optimizers, that of each."""
    several = hasattr(getattr(model, "optimizer", None), "optimizers")
    rates = {
        f"learning_rate_{optimizer.name}" if several else "learning_rate": rate
        for optimizer in optimizers_of(model)
        if (rate := learning_rate_of(optimizer)) is not None
    }
    return rates


def set_learning_rate(optimizer: Any, value: float) -> None:
    """Change the learning rate of an optimizer."""
    rate = optimizer.learning_rate
    if hasattr(rate, "assign"):
        rate.assign(value)
    else:
        optimizer.learning_rate = value


def refuse_schedule(callback: Callback) -> None:
    """Raise if an optimizer follows a schedule, which a callback cannot change."""
    name = type(callback).__name__
    for optimizer in optimizers_of(callback.model):
        if not hasattr(optimizer, "learning_rate"):
            raise ValueError(
                f'{name}: Optimizer must have a "learning_rate" attribute. Compile the '
                "model first."
            )
        schedule = getattr(optimizer, "_learning_rate", optimizer.learning_rate)
        if _is_schedule(schedule) or _is_schedule(optimizer.learning_rate):
            raise TypeError(
                "This optimizer was created with a `LearningRateSchedule` object as "
                f"its `learning_rate` constructor argument, hence {name} cannot set "
                "its learning rate: give the optimizer a number, or leave the "
                "callback out."
            )


def _is_schedule(rate: Any) -> bool:
    return callable(rate) and not hasattr(rate, "assign")


def _log_rate(callback: Callback, logs: Logs | None) -> None:
    if logs is not None:
        logs |= learning_rates_of(callback.model)


def _say(
    epoch: int, deed: str, optimizer: Any, several: list[Any], rate: float
) -> None:
    name = f"{optimizer.name} " if len(several) > 1 else ""
    print_message(f"\nEpoch {epoch + 1}: {deed} {name}learning rate to {rate}.")


class LearningRateScheduler(Callback):
    """Sets the learning rate at the beginning of every epoch.

    Args:
        schedule: A function of the epoch (from 0) and the present learning rate that
            returns the new one; one of the epoch alone is accepted too.
        verbose: 1 for messages.

    >>> callback = LearningRateScheduler(lambda epoch, rate: rate * 0.9)
    >>> round(callback.schedule(0, 0.1), 3)
    0.09
    """

    def __init__(self, schedule: Callable[..., float], verbose: int = 0) -> None:
        super().__init__()
        if not callable(schedule):
            raise TypeError(f"`schedule` must be a function, not {schedule!r}.")
        self.schedule, self.verbose = schedule, verbose
        self._epoch: int | None = None
        self._resumed: int | None = None

    def on_train_begin(self, logs: Logs | None = None) -> None:
        refuse_schedule(self)
        self._epoch = self._resumed = None

    def get_state(self) -> dict[str, Any]:
        return {"epoch": self._epoch}

    def set_state(self, state: dict[str, Any]) -> None:
        epoch = state["epoch"]
        self._epoch = self._resumed = None if epoch is None else int(epoch)

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        resumed, self._resumed, self._epoch = self._resumed, None, epoch
        if resumed == epoch:
            return  # a second call of `rate * 0.9` would lower it twice
        several = optimizers_of(self.model)
        for optimizer in several:
            rate = learning_rate_of(optimizer)
            arguments = (epoch, rate) if _takes_two(self.schedule) else (epoch,)
            new = _as_rate(self.schedule(*arguments))
            set_learning_rate(optimizer, new)
            if self.verbose > 0:
                _say(epoch, f"{type(self).__name__} setting", optimizer, several, new)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        _log_rate(self, logs)


def _takes_two(schedule: Callable[..., Any]) -> bool:
    try:
        inspect.signature(schedule).bind(0, 0.0)
    except TypeError:
        return False
    except ValueError:  # a C function without a signature
        pass
    return True


def _as_rate(value: Any) -> float:
    refused = value is None or isinstance(value, (bool, str, bytes, complex))
    try:
        if not refused and np.ndim(value) == 0:
            return float(value)
    except (TypeError, ValueError):
        pass
    raise ValueError(
        f"The output of the `schedule` function should be a float. Got: {value!r}"
    )


class ReduceLROnPlateau(MonitorCallback):
    """Lowers the learning rate when a metric no longer improves.

    Args:
        monitor: Name of the metric.
        factor: The number that the learning rate is multiplied by.
        patience: Epochs without improvement after which it is lowered.
        verbose: 1 for messages.
        mode: "min", "max", or "auto" to go by the metric.
        min_delta: Least change that counts as an improvement.
        cooldown: Epochs to wait after lowering before counting again.
        min_lr: The lowest learning rate.
        **kwargs: Keras 2's ``epsilon`` for ``min_delta``.

    >>> ReduceLROnPlateau("loss", factor=0.5, patience=3).factor
    0.5
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        factor: float = 0.1,
        patience: int = 10,
        verbose: int = 0,
        mode: str = "auto",
        min_delta: float = 1e-4,
        cooldown: int = 0,
        min_lr: float = 0.0,
        **kwargs: Any,
    ) -> None:
        if "epsilon" in kwargs:
            keras2.note("ReduceLROnPlateau(epsilon=)", "`min_delta=`")
            min_delta = kwargs.pop("epsilon")
        if kwargs:
            raise TypeError(
                "ReduceLROnPlateau does not know the argument(s) "
                f"{', '.join(sorted(kwargs))}."
            )
        if factor >= 1.0:
            raise ValueError(
                "ReduceLROnPlateau does not support a factor >= 1.0. "
                f"Received factor={factor}"
            )
        super().__init__(monitor, mode, min_delta=min_delta)
        self.factor, self.min_lr = factor, min_lr
        self.patience, self.cooldown, self.verbose = patience, cooldown, verbose
        self.cooldown_counter = self.wait = 0

    def on_train_begin(self, logs: Logs | None = None) -> None:
        refuse_schedule(self)
        self.best = None
        self.cooldown_counter = self.wait = 0

    def get_state(self) -> dict[str, Any]:
        names = ("best", "wait", "cooldown_counter")
        return {name: getattr(self, name) for name in names}

    def set_state(self, state: dict[str, Any]) -> None:
        self.best = best_of(state)
        self.wait = whole_number(state, "wait")
        self.cooldown_counter = whole_number(state, "cooldown_counter")

    def in_cooldown(self) -> bool:
        """Return whether the rate was lowered a short while ago."""
        return self.cooldown_counter > 0

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        _log_rate(self, logs)
        current = self.monitored(logs)
        if current is None:
            return
        if self.in_cooldown():
            self.cooldown_counter -= 1
            self.wait = 0
        if self._is_improvement(current, self.best):
            self.best, self.wait = current, 0
        elif not self.in_cooldown():
            self.wait += 1
            if self.wait >= self.patience and self._lower(epoch):
                self.cooldown_counter = self.cooldown
                self.wait = 0

    def _lower(self, epoch: int) -> bool:
        is_lowered = False
        several = optimizers_of(self.model)
        for optimizer in several:
            old = learning_rate_of(optimizer)
            # In the precision of the weights: 1e-5 read back from float32 is larger.
            if old is None or old <= np.float32(self.min_lr):
                continue
            is_lowered = True
            new = max(old * self.factor, self.min_lr)
            set_learning_rate(optimizer, new)
            if self.verbose > 0:
                _say(epoch, f"{type(self).__name__} reducing", optimizer, several, new)
        return is_lowered
