"""The matrices of Winograd's transforms, for any number of taps and any size of tile.

Outputs of a tile are the coefficients of a product of polynomials, found by evaluating
both factors at some points, multiplying there, and interpolating (Toom and Cook).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

# The point at infinity comes last. Small numbers and their inverses keep digits best.
POINTS = (0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5)
SPANS = (6, 8)  # inputs of a tile along an axis: one more than points, infinity too


@dataclass(frozen=True, eq=False)
class Matrices:
    """What takes inputs and weights to the places of a tile, and products back."""

    inputs: np.ndarray  # (span, span)
    weights: np.ndarray  # (span, taps)
    outputs: np.ndarray  # (step, span)


@cache
def matrices(taps: int, span: int) -> Matrices:
    """Return the matrices of a kernel of some taps for tiles of some span.

    >>> made = matrices(3, 6)
    >>> made.inputs[1]
    array([ 0., -4., -4.,  1.,  1.,  0.])
    >>> made.weights[3] * 24
    array([1., 2., 4.])
    >>> made.outputs[:, 3]
    array([1., 2., 4., 8.])
    """
    points, step = POINTS[: span - 1], span + 1 - taps
    inputs, weights = np.zeros((span, span)), np.zeros((span, taps))
    for row, point in enumerate(points):
        others = [other for other in points if other != point]
        inputs[row, : span - 1] = np.poly(others)[::-1]
        scale = np.prod([point - other for other in others])
        weights[row] = [point**power / scale for power in range(taps)]
    inputs[-1] = np.poly(points)[::-1]
    weights[-1, -1] = 1.0
    outputs = np.zeros((step, span))
    outputs[:, :-1] = [[point**power for point in points] for power in range(step)]
    outputs[-1, -1] = 1.0
    return Matrices(inputs, weights, outputs)
