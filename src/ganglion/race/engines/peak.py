"""The operations a second that this machine reaches in a large matrix product."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache

import numpy as np

SIZE = 1536


def measure(threads: int, tries: int = 3) -> dict[str, float]:
    """Return GFLOP/s in float32 of NumPy's product and of our own, best of a few.

    NumPy's number of threads is set by OPENBLAS_NUM_THREADS and its like before it is
    imported; `worker` does that.
    """
    return {
        name: 2 * SIZE**3 / min(_seconds(product) for _ in range(tries)) / 1e9
        for name, product in _products(threads).items()
    }


@cache
def _products(threads: int) -> dict[str, Callable[[], object]]:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((SIZE, SIZE), dtype="float32") for _ in range(2))
    ours = _ours(b, threads)
    forms: dict[str, Callable[[], object]] = {"NumPy": lambda: a @ b}
    forms["Ganglion"] = lambda: ours(a)
    for product in forms.values():
        product()
    return forms


def _seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def _ours(kernel: np.ndarray, threads: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return our own matrix product: a dense layer that predicts."""
    from ganglion import config, layers
    from ganglion.models import Sequential

    config.set_backend("cpu")
    config.set_threads(threads)
    dense = layers.Dense(SIZE, use_bias=False)
    model = Sequential([layers.Input((SIZE,)), dense])
    model.set_weights([kernel])
    return lambda rows: model.predict(rows, batch_size=SIZE, verbose=0)
