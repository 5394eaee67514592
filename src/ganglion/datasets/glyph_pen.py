"""The pen behind ``glyphs``: from random numbers to 28x28 images, block by block.

Everything here keeps the images in the last axis, so that NumPy's inner loops run
over a hundred images at once instead of over 28 pixels.
"""

import math
from functools import cache

import numpy as np
import numpy.typing as npt

from .glyph_shapes import HANDS, SAMPLES, Drawing, compile_drawing

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

SIDE = 28
BLOCK = 1000  # images that share one random stream: 100 of each digit
TILE = 125  # images inked at a time: 28 * 28 * 125 floats stay in the L2 cache
PIXELS_PER_UNIT = 1.2
STRAY_SAMPLES = 12
SQRT_3 = math.sqrt(3.0)  # a power could differ in its last bit between machines


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
        """Whole numbers from 0 to 255, at an eighth of the cost of ``uniform``."""
        raw = self._philox.random_raw(-(-int(np.prod(shape)) // 8))
        octets = np.asarray(raw, dtype="<u8").view(np.uint8)
        return octets[: int(np.prod(shape))].reshape(shape)

    def shuffled(self, values: Bytes) -> Bytes:
        """The same values in random order."""
        raw = self._philox.random_raw(len(values))
        return values[np.argsort(raw, kind="stable")]


@cache
def _drawings() -> list[list[Drawing]]:
    return [[compile_drawing(hand) for hand in HANDS[digit]] for digit in range(10)]


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
    """How much of each pixel the ink covers: (SIDE, SIDE, n), from 0 to 1.

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
