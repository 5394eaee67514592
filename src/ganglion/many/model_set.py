"""A set of trained models: their histories as a table, the best of them, ensembles."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np

from ganglion import ops
from ganglion.callbacks import History
from ganglion.callbacks.monitor import MonitorCallback
from ganglion.config import closest


def is_shown(name: str, value: Any) -> bool:
    """Return whether tables show a value of a setting: no arrays, no numbers of rows.

    >>> is_shown("units", (64, 64)), is_shown("rows", [1, 2])
    (True, False)
    """
    if isinstance(value, (tuple, list)):
        return name not in ("rows", "validation_rows") and len(value) <= MOST_SHOWN
    return not isinstance(value, range) and np.ndim(value) == 0


MOST_SHOWN = 8  # values of a list in a setting


@dataclass(frozen=True)
class Member:
    """A model of a set: its setting, and how its training went.

    >>> from ganglion.callbacks import History
    >>> member = Member(0, "first", {"rate": 0.1}, 7, None, History())
    >>> member.setting, member.seed
    ({'rate': 0.1}, 7)
    """

    index: int
    name: str
    setting: dict[str, Any]
    seed: int | None
    model: Any
    history: History
    seconds: float = 0.0

    @property
    def message(self) -> str | None:
        """Why training ended early, such as a loss that was not finite; else None."""
        return self.history.message

    @property
    def logs(self) -> dict[str, Any]:
        """The metrics of the last epoch."""
        return {
            name: values[-1] for name, values in self.history.history.items() if values
        }

    def row(self) -> dict[str, Any]:
        """Return the setting, the seed and the results of a model, for a table."""
        setting = {k: v for k, v in self.setting.items() if is_shown(k, v)}
        row: dict[str, Any] = {"index": self.index, "name": self.name} | setting
        if self.seed is not None:
            row["seed"] = self.seed
        row |= {"epochs": len(self.history.epoch), "seconds": round(self.seconds, 3)}
        return row | self.logs | {"message": self.message}


def larger_is_better(monitor: str, mode: str, model: Any = None) -> bool:
    """Return whether a larger value of a metric is better: by its model, or its name.

    >>> larger_is_better("val_accuracy", "auto"), larger_is_better("loss", "auto")
    (True, False)
    """
    if mode not in ("auto", "min", "max"):
        raise ValueError(f"`mode` must be 'auto', 'min' or 'max', not {mode!r}.")
    watch = MonitorCallback(monitor, mode)
    if model is not None:
        watch.set_model(model)
    compare = watch.monitor_op
    if compare is None:
        raise ValueError(
            f"It is not known whether a larger {monitor!r} is better: pass mode='max' "
            "or mode='min'."
        )
    return bool(compare is ops.greater)


class ModelSet(Sequence[Member]):
    """What `fit_many` returns: the models in the order of their settings.

    >>> import numpy as np, ganglion as keras
    >>> from ganglion import many
    >>> def build(rate):
    ...     model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    ...     model.compile(keras.optimizers.SGD(rate), "mse")
    ...     return model
    >>> trained = many.fit_many(
    ...     build, many.grid(rate=[0.1, 0.01], seed=[0, 1]), np.eye(2), np.ones((2, 1)),
    ...     epochs=3, verbose=0)
    >>> len(trained), trained.best().setting
    (4, {'rate': 0.1, 'seed': 0})
    """

    def __init__(self, members: Sequence[Member]) -> None:
        self.members = list(members)

    @overload
    def __getitem__(self, index: int) -> Member: ...
    @overload
    def __getitem__(self, index: slice) -> ModelSet: ...
    def __getitem__(self, index: int | slice) -> Member | ModelSet:
        if isinstance(index, slice):
            return ModelSet(self.members[index])
        return self.members[index]

    def __len__(self) -> int:
        return len(self.members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self.members)

    def __repr__(self) -> str:
        return f"<ModelSet of {len(self)} models>"

    @property
    def models(self) -> list[Any]:
        """The models."""
        return [member.model for member in self]

    @property
    def histories(self) -> list[History]:
        """What `fit` would have returned for each model."""
        return [member.history for member in self]

    # ---- results -----------------------------------------------------------------

    def table(self) -> list[dict[str, Any]]:
        """Return a dictionary for each model: its setting, its last metrics."""
        return [member.row() for member in self]

    def frame(self) -> Any:
        """Return the table as a DataFrame of pandas."""
        try:
            import pandas  # type: ignore[import-untyped, unused-ignore]
        except ImportError:
            raise ImportError(
                "`frame` needs pandas (pip install pandas); `table` returns the same "
                "rows as dictionaries."
            ) from None
        return pandas.DataFrame(self.table())

    def values(self, monitor: str | None = None) -> np.ndarray:
        """Return a metric of every model's last epoch; NaN where there is none.

        Args:
            monitor: Its name; the loss of validation by default, if there is one.
        """
        name = self.monitor(monitor)
        return np.array([member.logs.get(name, math.nan) for member in self], float)

    def best(self, monitor: str | None = None, mode: str = "auto") -> Member:
        """Return the model whose last epoch was best.

        Args:
            monitor: The name of a metric; the loss of validation by default.
            mode: "min", "max", or "auto" to go by the metric.
        """
        values = self.values(monitor)
        if np.isnan(values).all():
            raise ValueError(
                f"No model has a number for {self.monitor(monitor)!r}: there is no "
                "best one. Their `message` says what happened."
            )
        if self.larger_is_better(monitor, mode):
            return self[int(np.nanargmax(values))]
        return self[int(np.nanargmin(values))]

    def monitor(self, name: str | None = None) -> str:
        """Return the name of a metric that the models have; raise if it is unknown."""
        known = list(dict.fromkeys(key for m in self for key in m.history.history))
        if name is None:
            return "val_loss" if "val_loss" in known or not known else "loss"
        if name not in known:
            raise ValueError(f"There is no metric {name!r}. {closest(name, known)}")
        return name

    def larger_is_better(self, monitor: str | None = None, mode: str = "auto") -> bool:
        """Return whether a larger value of a metric is better."""
        return larger_is_better(self.monitor(monitor), mode, self[0].model)

    # ---- models ------------------------------------------------------------------

    def predict(self, x: Any, **arguments: Any) -> Any:
        """Return the predictions of all models, see `predict_many`."""
        from ganglion.many.using import predict_many

        return predict_many(self, x, **arguments)

    def evaluate(self, x: Any, y: Any = None, **arguments: Any) -> list[dict[str, Any]]:
        """Return the loss and metrics of all models, see `evaluate_many`."""
        from ganglion.many.using import evaluate_many

        return evaluate_many(self, x, y, **arguments)

    def ensemble(self, spread: bool = False) -> Any:
        """Return a model whose output is the mean of all, see `ensemble`."""
        from ganglion.many.using import ensemble

        return ensemble(self, spread=spread)

    def save(self, path: Any, overwrite: bool = True) -> None:
        """Save all models in a single file, see `load`."""
        from ganglion.many.set_file import save

        save(self, path, overwrite)
