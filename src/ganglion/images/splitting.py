"""Which images are held out: from every class its share."""

from __future__ import annotations

import numpy as np

from ganglion.images.errors import ImagesError
from ganglion.random import shuffled


def stratified(
    labels: np.ndarray, count: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows to keep and ``count`` rows to hold out, each class its share.

    >>> kept, held = stratified(np.array([0, 0, 0, 0, 1, 1]), 3)
    >>> sorted(np.array([0, 0, 0, 0, 1, 1])[held].tolist())
    [0, 0, 1]
    >>> sorted([*kept.tolist(), *held.tolist()])
    [0, 1, 2, 3, 4, 5]
    """
    labels = np.asarray(labels)
    classes, sizes = np.unique(labels, return_counts=True)
    most = int((sizes - 1).sum())  # of every class one stays to learn from
    if not 0 <= count <= most:
        raise ImagesError(
            f"{count} of {len(labels)} images cannot be held out: of each of the "
            f"{len(classes)} classes one must stay to learn from, so at most {most}."
        )
    held: list[int] = []
    for place, share in enumerate(_shares(sizes, count)):
        rows = np.flatnonzero(labels == classes[place])
        order = shuffled(seed, int(classes[place]), len(rows))
        held += rows[order[:share]].tolist()
    chosen = np.array(sorted(held), dtype="int64")
    return np.setdiff1d(np.arange(len(labels)), chosen), chosen


def _shares(sizes: np.ndarray, count: int) -> list[int]:
    """Return how many of each class: in proportion, at least one where there is room.

    >>> _shares(np.array([90, 9, 9]), 12), _shares(np.array([2, 1, 1]), 1)
    ([10, 1, 1], [1, 0, 0])
    """
    room = sizes - 1
    exact = sizes * (count / sizes.sum())
    shares = np.minimum(np.floor(exact).astype(int), room)
    if count >= len(sizes):
        shares = np.maximum(shares, np.minimum(1, room))
    while shares.sum() != count:  # the largest remainders first
        step = 1 if shares.sum() < count else -1
        gap = step * (exact - shares)
        bound = shares >= room if step > 0 else shares <= 1
        shares[int(np.argmax(np.where(bound, -np.inf, gap)))] += step
    return [int(one) for one in shares]
