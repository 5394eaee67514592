"""The numbers that `fit`, `evaluate` and `predict` are given, refused where senseless.

>>> count(0, "steps_per_epoch")
Traceback (most recent call last):
ValueError: `steps_per_epoch` must be a whole number >= 1, got 0.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np


def count(value: Any, name: str, least: int = 1) -> int | None:
    """Return a whole number of at least ``least``; None stands for no choice."""
    if value is None:
        return None
    is_whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not is_whole or value < least:
        raise ValueError(f"`{name}` must be a whole number >= {least}, got {value!r}.")
    return int(value)


def check_epochs(epochs: Any, initial_epoch: Any) -> None:
    """Refuse epochs that cannot be counted, and a start beyond the end."""
    if not isinstance(epochs, (int, np.integer)):
        raise TypeError(f"`epochs` must be a whole number, got {epochs!r}.")
    count(epochs, "epochs", least=0)
    if initial_epoch is None:
        raise ValueError("`initial_epoch` must be a whole number, got None.")
    count(initial_epoch, "initial_epoch", least=0)
    if initial_epoch > epochs:
        raise ValueError(
            f"`initial_epoch` {initial_epoch} lies beyond the last one: `epochs` is "
            f"{epochs}, the number of the last epoch, not how many more to train."
        )


def check_split(share: Any) -> None:
    """Refuse a share of the rows that is none."""
    is_number = isinstance(share, (int, float, np.number))
    if share is not None and not (is_number and 0 <= share < 1):
        raise ValueError(f"`validation_split` must lie in [0, 1), got {share!r}.")


def frequency(value: Any) -> Any:
    """Return after how many epochs to validate, or the epochs after which to do so."""
    if isinstance(value, Collection) and not isinstance(value, str):
        return value
    if value is None:
        raise ValueError("`validation_freq` must be a number or a list of epochs.")
    return count(value, "validation_freq")
