"""Data of which most, some or none is zero."""

import numpy as np


def pixels(kind, rows, inner, seed=0):
    """Return made-up images: full, empty, with holes, or some of each."""
    rng = np.random.default_rng(seed)
    x = rng.integers(1, 256, (rows, inner)).astype("uint8")
    if kind == "empty":
        return np.zeros_like(x)
    holes = {"full": 0.0, "few zeros": 0.05, "holes": 0.8}.get(kind, 0.0)
    x[rng.random(x.shape) < holes] = 0
    if kind == "blocks":  # zero in all rows, and all along some rows
        x[:, inner // 4 : 3 * inner // 4] = 0
        x[rows // 3 : 2 * rows // 3] = 0
    return x


KINDS = ("full", "few zeros", "holes", "blocks", "empty")
