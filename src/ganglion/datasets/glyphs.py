"""Digits drawn by a small generator of our own: the data set that needs no download.

Every image is a handful of pen strokes, shaken, bent, slanted and moved by random
amounts, inked with a pen of random width, then soiled with stray marks and noise.
Image ``i`` depends on the seed, the split and ``i`` alone, so a smaller set is always
the beginning of a larger one.

The bits are meant to be the same on every machine: random numbers are raw Philox output
(a stream NumPy guarantees), and the arithmetic is only ``+ - * /``, ``sqrt``, ``min``,
comparison and rounding, element by element in a fixed order, each of which IEEE 754
defines exactly. No sine, no exponential, no matrix product, no sum over an axis.
A machine that still differs loses only the cache: it draws the set each time.
"""

import math
import operator
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import SupportsIndex

import numpy as np
import numpy.typing as npt

from ganglion.datasets.decode import Arrays, Bytes, DamageError, Split
from ganglion.datasets.loading import DataSet, read_cached, write_cached
from ganglion.files import locked

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Point = tuple[float, float]
Stroke = list[Point]

MOST_THREADS = 8
SIDE = 28
BLOCK = 1000  # images that share one random stream: 100 of each digit
TILE = 125  # images inked at a time: 28 * 28 * 125 floats stay in the L2 cache
PIXELS_PER_UNIT = 1.2
SAMPLES, STRAY_SAMPLES = 64, 12
SQRT_3 = math.sqrt(3.0)  # a power could differ in its last bit between machines

DATA_SET = DataSet(
    name="glyphs",
    title="Glyphs",
    train_shape=(60_000, SIDE, SIDE),
    test_shape=(10_000, SIDE, SIDE),
    sha256="d2dccce0da6c7b22ab28cad8508a1d8b149a1ae6ee77afb547ef8ba2d6f2d036",
    sources=list,
    by_hand=str,
)


def load_data(
    train: int = 60_000, test: int = 10_000, seed: int = 0
) -> tuple[Split, Split]:
    """Draw digits in the shapes and types of MNIST: uint8 28x28 images and labels.

    The default set is drawn once, in a few seconds, and kept in the cache when that
    can be written to. Another size or seed is drawn each time.

    >>> (x_train, y_train), (x_test, y_test) = load_data(train=200, test=100)
    >>> x_train.shape, x_train.dtype, y_test.shape
    ((200, 28, 28), dtype('uint8'), (100,))
    """
    train, test = _checked(train, "train"), _checked(test, "test")
    seed = _checked(seed, "seed")
    if seed >= 2**64:
        raise ValueError(f"seed must be below 2**64, not {seed}")
    is_default = (train, test, seed) == (60_000, 10_000, 0)
    return (_default_set() if is_default else _draw(train, test, seed)).splits()


def _checked(value: SupportsIndex, name: str) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {value!r}") from None
    if number < 0:
        raise ValueError(f"{name} must not be negative, got {number}")
    return number


def _default_set() -> Arrays:
    """Return the default set from the cache, else draw it and keep it there.

    Drawing is quick and always possible, so trouble with the cache is not worth a word.
    """
    with suppress(DamageError):
        if (arrays := read_cached(DATA_SET.path, DATA_SET.sha256)) is not None:
            return arrays
    with locked(DATA_SET.path):
        with suppress(DamageError):
            if (arrays := read_cached(DATA_SET.path, DATA_SET.sha256)) is not None:
                return arrays
        arrays = _draw(60_000, 10_000, 0)
        if arrays.sha256() == DATA_SET.sha256:
            with suppress(OSError):
                write_cached(DATA_SET.path, arrays)
        return arrays


def _draw(train: int, test: int, seed: int) -> Arrays:
    return Arrays(*_draw_split(train, seed, 0), *_draw_split(test, seed, 1))


def _draw_split(count: int, seed: int, split: int) -> Split:
    images = np.empty((count, SIDE, SIDE), dtype=np.uint8)
    labels = np.empty(count, dtype=np.uint8)

    def fill(block: int) -> None:
        part = slice(block * BLOCK, min((block + 1) * BLOCK, count))
        size = part.stop - part.start
        drawn, digits = draw_block(seed, split, block)
        images[part], labels[part] = drawn[:size], digits[:size]

    with ThreadPoolExecutor(min(os.cpu_count() or 1, MOST_THREADS)) as pool:
        list(pool.map(fill, range(-(-count // BLOCK))))
    return images, labels


# ---- strokes ---------------------------------------------------------------------

# The pen moves on a sheet 14 units high, x to the right and y down, with (0, 0) in the
# middle. A point written twice in a row is a corner; everywhere else the pen runs
# smoothly. A point that appears again, in the same stroke or another, is one point:
# it moves as one when the generator shakes the drawing, so that joints stay joined.
# For each digit its hands, divided by |, of strokes, divided by /: points "x,y".
HANDS = (
    "0,-7 -3.5,-5 -4.5,0 -3.5,5 0,7 3.5,5 4.5,0 3.5,-5 0,-7 | 1.5,-6.5 -2.2,-5.8 "
    "-3.8,-1 -3,4.5 0,6.8 2.8,4 3.6,-1 2,-5.4 -1.5,-6",
    "0,-7 0,0 0,7 | -2.8,-4.2 0.4,-7 0.4,-7 0.2,0 0,7 | -2.6,-4.4 0,-7 0,-7 0,0 0,7 "
    "/ -3,7 0,7 3,7",
    "-4,-4 -2,-6.6 1.5,-6.8 3.8,-4 2.5,-0.5 -1,3.5 -4,6.8 -4,6.8 0,6.6 4.2,6.8 | "
    "-3.6,-4.6 -1,-6.9 2.6,-6 3,-2.4 0.4,2 -2.6,5.6 -4.2,5.8 -3.2,4.2 -0.6,5.4 2,6.8 "
    "4.4,6",
    "-3.8,-5.2 -1,-7 2.6,-6 3,-3 0,-0.6 0,-0.6 3,1 3.6,4.2 0.5,7 -4,5.2 | -3.8,-6.6 "
    "0,-6.8 3.6,-6.7 3.6,-6.7 -0.4,-1.4 -0.4,-1.4 2.8,0 3.8,3.6 0.8,7 -4,5.6",
    "-3,-7 -3.8,-2 -4,1 -4,1 2,1 4.6,1 / 2.2,-5 2,1 1.8,7 | 2,-7 2,-7 -4.4,2 -4.4,2 "
    "2,2 4.6,2 / 2,-7 2,2 1.8,7",
    "4,-6.8 0,-6.8 -3,-6.8 -3,-6.8 -3.6,-1 -3.6,-1 0,-1.8 3.4,0.4 3.4,4.4 0,7 -4,5.4 "
    "| -2.4,-6.4 -3.2,-0.6 -3.2,-0.6 0.6,-1.6 3.6,1.6 2.2,5.8 -1.4,6.8 -4,5 / "
    "-2.4,-6.4 0.6,-6.6 4.2,-7",
    "3,-6.6 -1.2,-4.8 -3.8,0 -3.6,4.6 -0.4,7 3.2,5.2 3.2,1.8 0,0.2 -3.2,2.4 | 1.2,-7 "
    "-1.6,-3 -3.4,2 -2.4,6 0.8,6.8 2.8,4.4 1.2,2 -1.4,2.6 -3,4.6",
    "-4.2,-6.6 0,-6.6 4,-6.6 4,-6.6 0.8,0 -1,7 | -4.2,-6.4 0,-6.7 3.8,-6.6 3.8,-6.6 "
    "0.6,0 -0.8,7 / -2.8,0.3 0.6,0 3.4,-0.3 | -4,-4 -3.6,-6.6 -3.6,-6.6 0,-6.4 "
    "4,-6.8 4,-6.8 1.6,-1 0.6,7",
    "3,-5 0,-7 -3,-4.8 -1.6,-1.8 1.8,1 3.6,4.2 0,7 -3.6,4.2 -1.8,1 1.8,-1.8 3,-5 | "
    "0,-7 -2.8,-5.6 -2.6,-2 0,-0.6 2.6,-2 2.8,-5.6 0,-7 / 0,-0.6 -3.4,1.4 -3.4,5 0,7 "
    "3.4,5 3.4,1.4 0,-0.6",
    "3.4,-4.6 0.8,-7 -2.8,-5.6 -3.2,-2.2 -0.4,-0.4 2.6,-2 3.4,-4.6 / 3.4,-4.6 3.2,1 "
    "2,7 | 3.2,-4.8 0.6,-7 -2.6,-5.4 -2.8,-2 0,-0.8 2.8,-2.6 3.2,-4.8 / 3.2,-4.8 "
    "3.6,0.6 2.4,5 -0.6,7 -3.4,5.8",
)


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


def compile_drawing(hand: str) -> Drawing:
    """Turn strokes into the weights that place ``SAMPLES`` dots of ink along them.

    >>> drawing = compile_drawing("0,-7 0,0 0,7")
    >>> drawing.points.tolist()
    [[0.0, -7.0], [0.0, 0.0], [0.0, 7.0]]
    >>> drawing.weights.shape, bool(np.allclose(drawing.weights.sum(axis=1), 1.0))
    ((64, 3), True)
    """
    strokes = [_parsed(stroke) for stroke in hand.split("/")]
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


# ---- ink -------------------------------------------------------------------------

# Images are kept in the last axis, so that NumPy's inner loops run over a hundred
# images at once instead of over 28 pixels.


class Dice:
    """Random numbers from the raw Philox stream, which NumPy promises never to change.

    Its own distributions (``normal``, ``integers``) carry no such promise.
    """

    def __init__(self, seed: int, split: int, block: int) -> None:
        key = seed | split << 64
        self._philox = np.random.Philox(key=key, counter=block << 64)

    def uniform(self, low: float, high: float, *shape: int) -> Floats:
        """Numbers spread evenly from ``low`` up to ``high``."""
        raw = self._philox.random_raw(int(np.prod(shape))).reshape(shape)
        fraction = (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53
        return low + fraction * (high - low)

    def bell(self, spread: float, *shape: int) -> Floats:
        """Near-normal numbers of deviation ``spread``: four uniforms, added."""
        edge = spread * SQRT_3 / 2.0
        total = self.uniform(-edge, edge, *shape)
        for _ in range(3):
            total = total + self.uniform(-edge, edge, *shape)
        return total

    def octets(self, *shape: int) -> Bytes:
        """Integers from 0 to 255, at an eighth of the cost of ``uniform``."""
        raw = self._philox.random_raw(-(-int(np.prod(shape)) // 8))
        octets = np.asarray(raw, dtype="<u8").view(np.uint8)
        return octets[: int(np.prod(shape))].reshape(shape)

    def shuffled(self, values: Bytes) -> Bytes:
        """The same values in random order."""
        raw = self._philox.random_raw(len(values))
        return values[np.argsort(raw, kind="stable")]


@cache
def _drawings() -> list[list[Drawing]]:
    return [[compile_drawing(hand) for hand in hands.split("|")] for hands in HANDS]


def _shaken_strokes(dice: Dice, labels: Bytes) -> tuple[Floats, Floats]:
    """Dots of ink along each image's strokes, its points moved at random."""
    n = len(labels)
    most_points = max(len(d.points) for hands in _drawings() for d in hands)
    choice = dice.uniform(0.0, 1.0, n)
    carelessness = dice.uniform(0.15, 0.75, n)
    shake_x = dice.bell(1.0, most_points, n) * carelessness
    shake_y = dice.bell(1.0, most_points, n) * carelessness
    xs, ys = np.zeros((SAMPLES, n)), np.zeros((SAMPLES, n))
    for digit, hands in enumerate(_drawings()):
        hand_of = np.floor(choice * len(hands))
        for hand, drawing in enumerate(hands):
            here = np.flatnonzero((labels == digit) & (hand_of == hand))
            # A matrix product would be shorter, but BLAS may add in any order.
            for k, (x, y) in enumerate(drawing.points):
                weight = drawing.weights[:, k, None]
                xs[:, here] += weight * (x + shake_x[k, here])
                ys[:, here] += weight * (y + shake_y[k, here])
    return xs, ys


def _bent(dice: Dice, xs: Floats, ys: Floats) -> tuple[Floats, Floats]:
    """The elastic change: a random cubic displacement field over the whole sheet."""
    n = xs.shape[1]
    u, v = xs / 7.0, ys / 7.0
    terms = [u * u, u * v, v * v, u * u * v, u * v * v, v * v * v]
    for term in terms:
        xs = xs + dice.bell(0.55, n) * term
        ys = ys + dice.bell(0.55, n) * term
    return xs, ys


def _placed(dice: Dice, xs: Floats, ys: Floats) -> tuple[Floats, Floats]:
    """The affine change, and the step from the sheet's units to pixels."""
    n = xs.shape[1]
    half = dice.bell(0.075, n)  # tan(angle / 2): a rotation without sine or cosine
    cosine = (1.0 - half * half) / (1.0 + half * half)
    sine = 2.0 * half / (1.0 + half * half)
    xs = xs * dice.uniform(0.7, 1.15, n) - ys * dice.bell(0.16, n)
    ys = ys * dice.uniform(0.8, 1.1, n)
    middle = (SIDE - 1) / 2.0
    across = middle + dice.bell(1.1, n)
    down = middle + dice.bell(1.1, n)
    return (
        (xs * cosine - ys * sine) * PIXELS_PER_UNIT + across,
        (xs * sine + ys * cosine) * PIXELS_PER_UNIT + down,
    )


def _pressed(dice: Dice, samples: int, n: int, low: float, high: float) -> Floats:
    """The pen's radius at each dot: one width per image, swelling along the way."""
    along = np.linspace(-0.5, 0.5, samples)[:, None]
    return dice.uniform(low, high, n) * (1.0 + along * dice.uniform(-0.5, 0.5, n))


def _stray_mark(dice: Dice, n: int) -> tuple[Floats, Floats]:
    """A short bent line somewhere on the sheet: what a ruled form or a slip leaves."""
    along = np.linspace(-1.0, 1.0, STRAY_SAMPLES)[:, None]
    bend = along * along
    coordinates = []
    for _ in range(2):
        middle = dice.uniform(0.0, SIDE - 1.0, n)
        reach, curve = dice.uniform(-5.0, 5.0, n), dice.uniform(-2.0, 2.0, n)
        coordinates.append(middle + along * reach + bend * curve)
    return coordinates[0], coordinates[1]


def _coverage(xs: Floats, ys: Floats, radius: Floats, blur: Floats) -> Singles:
    """Return how much of each pixel the ink covers: (SIDE, SIDE, n), from 0 to 1.

    Distances are measured in pen radii, so that a dot inked with a heavier hand
    reaches farther.
    """
    pixel = np.arange(SIDE, dtype=np.float32)[:, None]
    sharpness = (1.0 / radius).astype(np.float32)
    xs, ys = xs.astype(np.float32), ys.astype(np.float32)
    nearest = np.full((SIDE, SIDE, xs.shape[1]), np.float32(np.inf))
    distance = np.empty_like(nearest)
    for x, y, sharp in zip(xs, ys, sharpness, strict=True):
        across, down = (pixel - x) * sharp, (pixel - y) * sharp
        np.add((down * down)[:, None, :], (across * across)[None, :, :], out=distance)
        np.minimum(nearest, distance, out=nearest)
    slope = (radius[len(radius) // 2] / blur).astype(np.float32)
    np.sqrt(nearest, out=nearest)
    covered: Singles = (np.float32(1.0) - nearest) * slope + np.float32(0.5)
    np.clip(covered, np.float32(0.0), np.float32(1.0), out=covered)
    return covered


def draw_block(seed: int, split: int, block: int) -> tuple[Bytes, Bytes]:
    """Draw images ``block * BLOCK`` onward of a split: (BLOCK, 28, 28) and labels."""
    dice = Dice(seed, split, block)
    labels = dice.shuffled(np.repeat(np.arange(10, dtype=np.uint8), BLOCK // 10))
    xs, ys = _placed(dice, *_bent(dice, *_shaken_strokes(dice, labels)))
    radius = _pressed(dice, SAMPLES, BLOCK, 0.75, 1.9)
    blur = dice.uniform(0.9, 2.0, BLOCK)
    stray_xs, stray_ys = _stray_mark(dice, BLOCK)
    stray_radius = _pressed(dice, STRAY_SAMPLES, BLOCK, 0.5, 1.1)
    ink = dice.uniform(0.6, 1.0, BLOCK).astype(np.float32)
    # Four sheets in ten carry a stray mark; the others get one without ink.
    stray_ink = np.maximum(dice.uniform(-0.75, 0.5, BLOCK), 0.0).astype(np.float32)
    grain = dice.uniform(0.0, 0.35, BLOCK).astype(np.float32)
    speckle = dice.octets(SIDE, SIDE, BLOCK)
    images = np.empty((BLOCK, SIDE, SIDE), dtype=np.uint8)
    for start in range(0, BLOCK, TILE):
        tile = np.s_[:, start : start + TILE]
        part = slice(start, start + TILE)
        stray = _coverage(
            stray_xs[tile], stray_ys[tile], stray_radius[tile], blur[part]
        )
        sheet = _coverage(xs[tile], ys[tile], radius[tile], blur[part]) * ink[part]
        sheet = np.maximum(sheet, stray * stray_ink[part])
        noise = speckle[..., part] * np.float32(2.0**-8) - np.float32(0.5)
        sheet = (sheet + noise * grain[part]) * np.float32(255.0)
        sheet = np.rint(np.clip(sheet, np.float32(0.0), np.float32(255.0)))
        images[part] = sheet.astype(np.uint8).transpose(2, 0, 1)
    return images, labels
