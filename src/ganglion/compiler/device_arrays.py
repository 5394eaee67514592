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

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np


class _Loan(NamedTuple):
    fetch: Callable[[np.ndarray], None]
    lock: AbstractContextManager  # of the device that has the values


_away: dict[int, _Loan] = {}


def lend(
    array: np.ndarray,
    fetch: Callable[[np.ndarray], None],
    lock: AbstractContextManager | None = None,
) -> None:
    """Note that an array's newest values are elsewhere, and how to fetch them.

    They are fetched while the device's `lock` is held, so that threads which want them
    at once do it once. Whoever lends must `forget` the array when it is gone: another
    may get its address.
    """
    _away[id(array)] = _Loan(fetch, lock or threading.RLock())


def is_lent(array: np.ndarray) -> bool:
    """Return whether the newest values are elsewhere."""
    return id(array) in _away


def home(array: np.ndarray) -> np.ndarray:
    """Return an array with its newest values."""
    if _away and (loan := _away.get(id(array))):
        with loan.lock:
            # Another thread may have been faster, or have lent the array anew.
            if (latest := _away.get(id(array))) is not None:
                latest.fetch(array)
                forget(id(array))
    return array


def forget(key: int) -> None:
    """Let go of an array, by its id: its own values count, or it is gone."""
    _away.pop(key, None)
