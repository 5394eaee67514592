"""How many images to look at, at a time."""

from __future__ import annotations

from collections.abc import Sequence

MOST = 250
MOST_PIXELS = 400_000  # a large network holds a few kB of each


def batch_for(size: Sequence[int], images: int) -> int:
    """Return how many of some images of so many rows and columns to take at a time.

    More would take memory, not less time.

    >>> batch_for((32, 32), 10_000), batch_for((224, 224), 10_000), batch_for((8, 8), 3)
    (250, 7, 3)
    """
    return max(1, min(MOST, MOST_PIXELS // (size[0] * size[1]), images))
