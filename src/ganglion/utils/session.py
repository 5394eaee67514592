"""Seeds and names for the whole program."""

from __future__ import annotations

import random as python_random

import numpy as np

from ganglion import random
from ganglion.variables import reset_names


def set_random_seed(seed: int) -> None:
    """Fix all random numbers from here on: ours, Python's and NumPy's.

    >>> import ganglion as keras
    >>> keras.utils.set_random_seed(7)
    >>> first = keras.layers.Dense(1, bias_initializer="normal")(np.zeros((1, 1)))
    >>> keras.utils.set_random_seed(7)
    >>> first == keras.layers.Dense(1, bias_initializer="normal")(np.zeros((1, 1)))
    array([[ True]])
    """
    if not isinstance(seed, (int, np.integer)) or isinstance(seed, bool):
        raise ValueError(f"`seed` must be a whole number, not {seed!r}.")
    python_random.seed(int(seed))
    np.random.seed(int(seed))
    random.forget_default_generator()


def clear_session(free_memory: bool = True) -> None:
    """Count layer names from the start again: ``dense``, ``dense_1``, ...

    Nothing else is global, so there is no memory to free.
    """
    reset_names()
    random.forget_default_generator()
