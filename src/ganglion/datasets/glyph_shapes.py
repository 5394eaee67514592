"""How each digit is drawn: strokes through a few points, in two or three hands.

The pen moves on a sheet 14 units high, x to the right and y down, with (0, 0) in the
middle. A point written twice in a row is a corner; everywhere else the pen runs
smoothly. A point that appears again, in the same stroke or another, is one point:
it moves as one when the generator shakes the drawing, so that joints stay joined.
"""

import math
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

Point = tuple[float, float]
Stroke = list[Point]

SAMPLES = 64

# For each digit, each hand's strokes, written "x,y x,y ...".
HANDS: dict[int, list[list[str]]] = {
    0: [
        ["0,-7 -3.5,-5 -4.5,0 -3.5,5 0,7 3.5,5 4.5,0 3.5,-5 0,-7"],
        ["1.5,-6.5 -2.2,-5.8 -3.8,-1 -3,4.5 0,6.8 2.8,4 3.6,-1 2,-5.4 -1.5,-6"],
    ],
    1: [
        ["0,-7 0,0 0,7"],
        ["-2.8,-4.2 0.4,-7 0.4,-7 0.2,0 0,7"],
        ["-2.6,-4.4 0,-7 0,-7 0,0 0,7", "-3,7 0,7 3,7"],
    ],
    2: [
        ["-4,-4 -2,-6.6 1.5,-6.8 3.8,-4 2.5,-0.5 -1,3.5 -4,6.8 -4,6.8 0,6.6 4.2,6.8"],
        [
            "-3.6,-4.6 -1,-6.9 2.6,-6 3,-2.4 0.4,2 -2.6,5.6 -4.2,5.8 -3.2,4.2 "
            "-0.6,5.4 2,6.8 4.4,6"
        ],
    ],
    3: [
        ["-3.8,-5.2 -1,-7 2.6,-6 3,-3 0,-0.6 0,-0.6 3,1 3.6,4.2 0.5,7 -4,5.2"],
        [
            "-3.8,-6.6 0,-6.8 3.6,-6.7 3.6,-6.7 -0.4,-1.4 -0.4,-1.4 2.8,0 "
            "3.8,3.6 0.8,7 -4,5.6"
        ],
    ],
    4: [
        ["-3,-7 -3.8,-2 -4,1 -4,1 2,1 4.6,1", "2.2,-5 2,1 1.8,7"],
        ["2,-7 2,-7 -4.4,2 -4.4,2 2,2 4.6,2", "2,-7 2,2 1.8,7"],
    ],
    5: [
        [
            "4,-6.8 0,-6.8 -3,-6.8 -3,-6.8 -3.6,-1 -3.6,-1 0,-1.8 3.4,0.4 "
            "3.4,4.4 0,7 -4,5.4"
        ],
        [
            "-2.4,-6.4 -3.2,-0.6 -3.2,-0.6 0.6,-1.6 3.6,1.6 2.2,5.8 -1.4,6.8 -4,5",
            "-2.4,-6.4 0.6,-6.6 4.2,-7",
        ],
    ],
    6: [
        ["3,-6.6 -1.2,-4.8 -3.8,0 -3.6,4.6 -0.4,7 3.2,5.2 3.2,1.8 0,0.2 -3.2,2.4"],
        ["1.2,-7 -1.6,-3 -3.4,2 -2.4,6 0.8,6.8 2.8,4.4 1.2,2 -1.4,2.6 -3,4.6"],
    ],
    7: [
        ["-4.2,-6.6 0,-6.6 4,-6.6 4,-6.6 0.8,0 -1,7"],
        ["-4.2,-6.4 0,-6.7 3.8,-6.6 3.8,-6.6 0.6,0 -0.8,7", "-2.8,0.3 0.6,0 3.4,-0.3"],
        ["-4,-4 -3.6,-6.6 -3.6,-6.6 0,-6.4 4,-6.8 4,-6.8 1.6,-1 0.6,7"],
    ],
    8: [
        ["3,-5 0,-7 -3,-4.8 -1.6,-1.8 1.8,1 3.6,4.2 0,7 -3.6,4.2 -1.8,1 1.8,-1.8 3,-5"],
        [
            "0,-7 -2.8,-5.6 -2.6,-2 0,-0.6 2.6,-2 2.8,-5.6 0,-7",
            "0,-0.6 -3.4,1.4 -3.4,5 0,7 3.4,5 3.4,1.4 0,-0.6",
        ],
    ],
    9: [
        [
            "3.4,-4.6 0.8,-7 -2.8,-5.6 -3.2,-2.2 -0.4,-0.4 2.6,-2 3.4,-4.6",
            "3.4,-4.6 3.2,1 2,7",
        ],
        [
            "3.2,-4.8 0.6,-7 -2.6,-5.4 -2.8,-2 0,-0.8 2.8,-2.6 3.2,-4.8",
            "3.2,-4.8 3.6,0.6 2.4,5 -0.6,7 -3.4,5.8",
        ],
    ],
}


@dataclass(frozen=True)
class Drawing:
    """One hand's way to draw one digit, as a linear map from its points to the ink."""

    points: npt.NDArray[np.float64]  # (k, 2)
    weights: npt.NDArray[np.float64]  # (SAMPLES, k): ink position = weights @ points


def _segment_weights(t: float) -> tuple[float, float, float, float]:
    """The Catmull-Rom weights of four neighbouring points, between the middle two."""
    return (
        0.5 * t * (t * (2.0 - t) - 1.0),
        0.5 * (t * t * (3.0 * t - 5.0) + 2.0),
        0.5 * t * (t * (4.0 - 3.0 * t) + 1.0),
        0.5 * t * t * (t - 1.0),
    )


def _shares(lengths: list[float], total: int) -> list[int]:
    """Split ``total`` samples over segments by length, the rounding carried along."""
    scale, done, upto, counts = total / sum(lengths), 0, 0.0, []
    for length in lengths:
        upto += length * scale
        counts.append(int(upto + 0.5) - done)
        done += counts[-1]
    return counts


def _neighbours(stroke: Stroke, at: int) -> list[Point]:
    """The four points that shape the segment from ``at`` to ``at + 1``."""
    last, closed = len(stroke) - 1, stroke[0] == stroke[-1]
    before = stroke[at - 1] if at else stroke[-2 if closed else 0]
    after = stroke[at + 2] if at + 2 <= last else stroke[1 if closed else last]
    return [before, stroke[at], stroke[at + 1], after]


def _length(start: Point, end: Point) -> float:
    across, down = end[0] - start[0], end[1] - start[1]
    return math.sqrt(across * across + down * down)


def _parsed(stroke: str) -> Stroke:
    pairs = (point.split(",") for point in stroke.split())
    return [(float(x), float(y)) for x, y in pairs]


def compile_drawing(hand: list[str]) -> Drawing:
    """Turn strokes into the weights that place ``SAMPLES`` dots of ink along them.

    >>> drawing = compile_drawing(["0,-7 0,0 0,7"])
    >>> drawing.points.tolist()
    [[0.0, -7.0], [0.0, 0.0], [0.0, 7.0]]
    >>> drawing.weights.shape, bool(np.allclose(drawing.weights.sum(axis=1), 1.0))
    ((64, 3), True)
    """
    strokes = [_parsed(stroke) for stroke in hand]
    index: dict[Point, int] = {}
    for point in chain.from_iterable(strokes):
        index.setdefault(point, len(index))
    segments = [
        _neighbours(stroke, at) for stroke in strokes for at in range(len(stroke) - 1)
    ]
    weights = np.zeros((SAMPLES, len(index)))
    counts = _shares([_length(four[1], four[2]) for four in segments], SAMPLES)
    row = 0
    for four, count in zip(segments, counts, strict=True):
        for step in range(count):
            t = (step + 0.5) / count
            for point, weight in zip(four, _segment_weights(t), strict=True):
                weights[row, index[point]] += weight
            row += 1
    return Drawing(np.array(list(index), dtype=np.float64), weights)
