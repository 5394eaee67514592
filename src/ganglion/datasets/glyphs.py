"""Digits drawn by a small generator of our own: the data set that needs no download.

Every image is a handful of pen strokes (``glyph_shapes``), shaken, bent, slanted and
moved by random amounts, inked with a pen of random width, then soiled with stray marks
and noise (``glyph_pen``). Image ``i`` depends on the seed, the split and ``i`` alone,
so a smaller set is always the beginning of a larger one.

The bits are meant to be the same on every machine: random numbers are raw Philox output
(a stream NumPy guarantees), and the arithmetic is only ``+ - * /``, ``sqrt``, ``min``,
comparison and rounding, element by element in a fixed order, each of which IEEE 754
defines exactly. No sine, no exponential, no matrix product, no sum over an axis.
A machine that still differs loses only the cache: it draws the set anew each time.
"""

import operator
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import SupportsIndex

import numpy as np

from ganglion.files import locked

from . import cache
from .arrays import Arrays, Split
from .errors import DamageError
from .glyph_pen import BLOCK, SIDE, draw_block
from .loading import DataSet

MOST_THREADS = 8

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
    train, test = _whole(train, "train"), _whole(test, "test")
    seed = _whole(seed, "seed")
    if seed >= 2**64:
        raise ValueError(f"seed must be below 2**64, not {seed}")
    default = (DATA_SET.train_shape[0], DATA_SET.test_shape[0], 0)
    if (train, test, seed) != default:
        return _draw(train, test, seed).splits()
    return _kept().splits()


def _whole(value: SupportsIndex, name: str) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, not {value!r}") from None
    if number < 0:
        raise ValueError(f"{name} must not be negative, got {number}")
    return number


def _kept() -> Arrays:
    """The default set from the cache, else drawn and kept there.

    Drawing is quick and always possible, so trouble with the cache is not worth a word.
    """
    arrays = _read()
    if arrays is not None:
        return arrays
    with locked(DATA_SET.path):
        arrays = _read()
        if arrays is None:
            arrays = _draw(DATA_SET.train_shape[0], DATA_SET.test_shape[0], 0)
            if arrays.sha256() == DATA_SET.sha256:
                with suppress(OSError):
                    cache.write(DATA_SET.path, arrays)
    return arrays


def _read() -> Arrays | None:
    try:
        return cache.read(DATA_SET.path, DATA_SET.sha256)
    except DamageError:
        return None


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

    workers = min(os.cpu_count() or 1, MOST_THREADS)
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(fill, range(-(-count // BLOCK))))
    return images, labels
