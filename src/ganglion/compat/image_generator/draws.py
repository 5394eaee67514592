"""Random numbers of a batch of images: counted, so that it can be made again."""

from __future__ import annotations

from typing import Any

import numpy as np

from ganglion import ops, random
from ganglion.variables import read

MOST = 16  # draws for one batch; the next batch's counters begin after them


class Draws(random.SeedGenerator):
    """The draws for one batch: a seed, and the number of the batch.

    >>> one, two = (random.uniform((2,), seed=Draws(7, 3)) for _ in range(2))
    >>> one.tolist() == two.tolist()
    True
    """

    def __init__(self, seed: Any, batch: Any) -> None:
        # No variables, unlike other generators: what is drawn follows from these two.
        self._seed = ops.cast(seed, "uint32")
        self._first = ops.multiply(ops.cast(batch, "uint32"), np.uint32(MOST))
        self._made = 0

    def next(self) -> Any:
        if self._made == MOST:
            raise RuntimeError(f"A batch has {MOST} draws; this would be one more.")
        counter = ops.add(self._first, np.uint32(self._made))
        self._made += 1
        return read(ops.stack([self._seed, counter]))
