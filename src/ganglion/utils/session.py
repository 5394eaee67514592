"""Seeds and names for the whole program."""

from __future__ import annotations

import gc
import random as python_random

import numpy as np

from ganglion import random
from ganglion.compiler import registry as backends
from ganglion.variables import reset_names


def set_random_seed(seed: int) -> None:
    """Seed the generators of random numbers: Ganglion's, Python's and NumPy's.

    >>> import ganglion as keras
    >>> keras.utils.set_random_seed(7)
    >>> first = keras.layers.Dense(1, bias_initializer="normal")(np.zeros((1, 1)))
    >>> keras.utils.set_random_seed(7)
    >>> first == keras.layers.Dense(1, bias_initializer="normal")(np.zeros((1, 1)))
    array([[ True]])
    """
    if not isinstance(seed, (int, np.integer)) or isinstance(seed, bool):
        raise ValueError(f"`seed` must be an integer, not {seed!r}.")
    python_random.seed(int(seed))
    np.random.seed(int(seed))
    random.forget_default_generator()


def clear_session(free_memory: bool = True) -> None:
    """Count layer names from the start again, and free unused memory.

    Args:
        free_memory: Collect models that were dropped, with their programs and arrays
            (a model and its parts refer to each other: Python alone lets go of them
            at some later time), and the memory that programs share for their steps.
            Models that are still held keep their weights and programs.

    >>> from ganglion import layers
    >>> clear_session()
    >>> layers.Dense(1).name
    'dense'
    """
    reset_names()
    random.forget_default_generator()
    if free_memory:
        gc.collect()
        backends.free_memory()
