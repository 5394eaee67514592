"""Device-resident arrays: host arrays whose newest values are still on a GPU.

Training changes weights thousands of times before the host reads them: the values stay
on the device until `Variable.array` copies them to the host.

>>> import numpy as np
>>> weights = np.zeros(2)
>>> mark_dirty_on_device(weights, lambda array: array.fill(7))
>>> is_dirty_on_device(weights), sync_to_host(weights), is_dirty_on_device(weights)
(True, array([7., 7.]), False)
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np


class _DeviceCopy(NamedTuple):
    fetch: Callable[[np.ndarray], None]
    lock: AbstractContextManager  # of the device that has the values


dirty: dict[int, _DeviceCopy] = {}  # by the arrays' ids; most programs have none


def mark_dirty_on_device(
    array: np.ndarray,
    fetch: Callable[[np.ndarray], None],
    lock: AbstractContextManager | None = None,
) -> None:
    """Record that an array's newest values are on a device, and how to fetch them.

    They are fetched once, while the device's `lock` is held. The caller must `forget`
    the array when it is freed: another array may get the same id.
    """
    dirty[id(array)] = _DeviceCopy(fetch, lock or threading.RLock())


def is_dirty_on_device(array: np.ndarray) -> bool:
    """Return whether the newest values are on a device."""
    return id(array) in dirty


def sync_to_host(array: np.ndarray) -> np.ndarray:
    """Return an array with its newest values."""
    if copy := dirty.get(id(array)):
        with copy.lock:
            # Another thread may have fetched them, or run another step, meanwhile.
            if (latest := dirty.get(id(array))) is not None:
                latest.fetch(array)
                forget(id(array))
    return array


def forget(key: int) -> None:
    """Forget an array by its id: its values on the host are current, or it is freed."""
    dirty.pop(key, None)
