"""The callbacks of each model of a set: copies, with separate files."""

from __future__ import annotations

import copy
import inspect
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ganglion.callbacks import Callback, CallbackList

_ENDING = re.compile(r"(\.weights)?\.[A-Za-z]\w*$")  # not the digits of a format


def callbacks_for(callbacks: Any, index: int, is_one_of_many: bool = True) -> list[Any]:
    """Return the callbacks of a model, which know its index.

    Args:
        callbacks: Callbacks to copy, or a function of the index.
        index: The number of the model.
        is_one_of_many: Whether copies write to separate files, named by the index.
    """
    if isinstance(callbacks, OfTrials):
        return callbacks.made(index)
    is_class = inspect.isclass(callbacks)
    if callable(callbacks) and not is_class and not hasattr(callbacks, "set_model"):
        chosen = callbacks(index)
    else:
        chosen = _copied(callbacks)
        if is_one_of_many:
            for callback in _listed(chosen):
                _separate(callback, index)
    chosen = _listed(chosen)
    for callback in chosen:
        if not inspect.isclass(callback):  # `fit` refuses a class
            callback.model_index = index
    return chosen


@dataclass(frozen=True)
class OfTrials:
    """The callbacks of the trials of a search, which know the trial's number.

    Each trial has one of ours beside those of the user.
    """

    callbacks: Any
    trials: Sequence[Any]
    ours: Sequence[Callback]

    def made(self, index: int) -> list[Any]:
        """Return the callbacks of a trial."""
        number = self.trials[index].number
        return [*callbacks_for(self.callbacks, number), self.ours[index]]


def _listed(callbacks: Any) -> list[Any]:
    if callbacks is None:
        return []
    if isinstance(callbacks, CallbackList):
        callbacks = callbacks.callbacks
    return list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks]


def _copied(callbacks: Any) -> Any:
    try:
        return copy.deepcopy(callbacks)
    except TypeError as error:
        raise TypeError(
            f"The callbacks cannot be copied for each model ({error}). Pass a function "
            "of the model's index that makes them: callbacks=lambda index: [...]"
        ) from error


def _separate(callback: Any, index: int) -> None:
    """Make a copy write to other files than those of other models.

    >>> from ganglion.callbacks import CSVLogger
    >>> log = CSVLogger("runs/log.csv")
    >>> _separate(log, 3)
    >>> Path(log.filename).as_posix()
    'runs/log-3.csv'
    """
    name = getattr(callback, "writes_file", None)
    if name is not None:
        path = os.fspath(getattr(callback, name))
        ending = _ENDING.search(path)
        end = len(path) if ending is None else ending.start()
        setattr(callback, name, f"{path[:end]}-{index}{path[end:]}")
    name = getattr(callback, "writes_folder", None)
    if name is not None:
        folder = getattr(callback, name)
        own = Path(folder, str(index))
        setattr(callback, name, str(own) if isinstance(folder, str) else own)
