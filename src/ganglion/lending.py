"""Arrays whose newest values are elsewhere, on a GPU, until somebody wants them here.

Training for seconds changes weights thousands of times, and nobody looks: what is lent
stays where it is. `Variable.array` brings it home.

>>> import numpy as np
>>> weights = np.zeros(2)
>>> lend(weights, lambda array: array.fill(7))
>>> is_lent(weights), home(weights), is_lent(weights)
(True, array([7., 7.]), False)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

_away: dict[int, Callable[[np.ndarray], None]] = {}


def lend(array: np.ndarray, fetch: Callable[[np.ndarray], None]) -> None:
    """Note that an array's newest values are elsewhere, and how to fetch them.

    Whoever lends must `forget` the array when it is gone: another may get its place.
    """
    _away[id(array)] = fetch


def is_lent(array: np.ndarray) -> bool:
    """Tell whether the newest values are elsewhere."""
    return id(array) in _away


def home(array: np.ndarray) -> np.ndarray:
    """Return an array with its newest values."""
    if _away and (fetch := _away.get(id(array))):
        fetch(array)
        del _away[id(array)]
    return array


def forget(key: int) -> None:
    """Let go of an array, by its id: its own values count, or it is gone."""
    _away.pop(key, None)
