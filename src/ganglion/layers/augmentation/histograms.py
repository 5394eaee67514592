"""Layers that spread the values of pixels evenly, by their histograms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ganglion import config, ops
from ganglion.layers.arguments import keep, positive
from ganglion.layers.augmentation.base import ImageLayer, in_range, value_range_of
from ganglion.ops.image.layout import opened
from ganglion.serialization import export

__all__ = ["ContrastLimitedAdaptiveHistogramEqualization", "Equalization"]

_BYTES = (0, 255)
_LEVELS = 256


def _counts(index: Any, groups: int, bins: int) -> Any:
    """Return how many indices fall into each bin of each group (its last axis)."""
    starts = np.arange(groups, dtype="int32") * bins
    flat = ops.reshape(index + starts, (-1,))
    ones = ops.ones((flat.shape[0],), "float32")
    counts = ops.segment_sum(ones, flat, num_segments=groups * bins)
    return ops.reshape(counts, (groups, bins))


@export("keras.layers")
class Equalization(ImageLayer):
    """Spreads the values of each channel evenly, over a batch as in Keras.

    >>> import numpy as np
    >>> x = np.array([10, 10, 20, 30], "float32").reshape(1, 2, 2, 1)
    >>> Equalization()(x).ravel()
    array([  0.,   0., 128., 255.], dtype=float32)
    """

    def __init__(
        self,
        value_range: Any = (0, 255),
        bins: int = 256,
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        keep(self, locals())
        self.bins = positive(bins, "bins")
        self.value_range = value_range_of(value_range)

    def transform_images(
        self, images: Any, transformation: Any = None, training: Any = True
    ) -> Any:
        if not training:
            return images
        x, layout = opened(ops.cast(images, self.compute_dtype), self.data_format)
        pixels = in_range(x, self.value_range, _BYTES)
        even = self._equalized(pixels)
        return layout.restored(in_range(even, _BYTES, self.value_range))

    def _equalized(self, x: Any) -> Any:
        channels, last = x.shape[3], self.bins - 1
        bins = ops.cast(ops.clip(x * float(last) / 255.0, 0.0, last), "int32")
        counts = _counts(bins, channels, self.bins)
        sums = ops.cumsum(counts, axis=1)
        first = ops.min(ops.where(sums > 0.0, sums, math.inf), axis=1, keepdims=True)
        rest = sums[:, -1:] - first
        levels = (sums - first) * 255.0 / ops.where(rest > 0.0, rest, 1.0)
        levels = ops.clip(ops.round(levels), 0.0, 255.0)
        index = ops.cast(ops.clip(x / 255.0 * float(last), 0.0, last), "int32")
        starts = np.arange(channels, dtype="int32") * self.bins
        read = ops.take(ops.reshape(levels, (-1,)), index + starts)
        is_flat = ops.sum(ops.cast(counts > 0.0, "int32"), axis=1) <= 1
        return ops.where(is_flat, x, ops.cast(read, x.dtype))


@export("keras.layers")
class ContrastLimitedAdaptiveHistogramEqualization(ImageLayer):
    """Spreads values evenly within tiles of an image, and mixes those around a pixel.

    `clip_limit` bounds how much a frequent value counts (0: not at all).

    >>> import numpy as np
    >>> layer = ContrastLimitedAdaptiveHistogramEqualization(tile_grid_size=(2, 2))
    >>> layer(np.full((1, 8, 8, 3), 100.0, "float32")).shape
    (1, 8, 8, 3)
    """

    clip_limit: float
    tile_grid_size: tuple[int, int]

    def __init__(
        self,
        value_range: Any = (0, 255),
        clip_limit: float = 4.0,
        tile_grid_size: Any = (8, 8),
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        keep(self, locals())

    def transform_images(
        self, images: Any, transformation: Any = None, training: Any = True
    ) -> Any:
        batch, layout = opened(images, self.data_format)
        x = in_range(ops.cast(batch, config.floatx()), self.value_range, _BYTES)
        x = in_range(self._equalized(x), _BYTES, self.value_range)
        return layout.restored(ops.cast(x, batch.dtype))

    def _equalized(self, x: Any) -> Any:
        count, height, width, channels = x.shape
        rows, columns = self.tile_grid_size
        tall, wide = -(-height // rows), -(-width // columns)
        more = (rows * tall - height, columns * wide - width)
        x = ops.pad(x, ((0, 0), (0, more[0]), (0, more[1]), (0, 0)), "symmetric")
        levels = ops.cast(ops.clip(x, 0.0, 255.0), "int32")
        tiles = ops.reshape(levels, (count, rows, tall, columns, wide, channels))
        tiles = ops.transpose(tiles, (2, 4, 0, 1, 3, 5))
        tiles = ops.reshape(tiles, (tall * wide, -1))
        counts = _counts(tiles, tiles.shape[1], _LEVELS)
        maps = self._levels(counts, tall * wide)
        maps = ops.reshape(maps, (count, rows, columns, channels, _LEVELS))
        mixed = _mixed(maps, levels, (tall, wide))
        return mixed[:, :height, :width, :]

    def _levels(self, counts: Any, pixels: int) -> Any:
        """Return the new level of each old level, for each tile."""
        if self.clip_limit > 0:
            limit = self.clip_limit * pixels / _LEVELS
            bounded = ops.minimum(counts, limit)
            excess = ops.sum(counts - bounded, axis=-1, keepdims=True)
            counts = bounded + excess / _LEVELS
        sums = ops.cumsum(counts, axis=-1)
        first = ops.min(sums, axis=-1, keepdims=True)
        rest = pixels - first
        levels = (sums - first) * 255.0 / ops.where(ops.equal(rest, 0.0), 1.0, rest)
        return ops.clip(levels, 0.0, 255.0)


def _mixed(maps: Any, levels: Any, tile: tuple[int, int]) -> Any:
    """Look pixels up in the maps of the four tiles around them, and mix these."""
    count, rows, columns, channels, _ = maps.shape
    ends = [_nearest(levels.shape[axis + 1], tile[axis], maps.shape[axis + 1])
            for axis in (0, 1)]  # fmt: skip
    flat = ops.reshape(maps, (-1,))
    images = np.arange(count, dtype="int32").reshape(-1, 1, 1, 1) * rows
    colors = np.arange(channels, dtype="int32")
    total = None
    for row, row_share in ends[0]:
        for column, column_share in ends[1]:
            place = (images + row.reshape(1, -1, 1, 1)) * columns
            place = (place + column.reshape(1, 1, -1, 1)) * channels + colors
            values = ops.take(flat, levels + place * _LEVELS)
            share = row_share.reshape(1, -1, 1, 1) * column_share.reshape(1, 1, -1, 1)
            term = values * share
            total = term if total is None else total + term
    return total


def _nearest(size: int, tile: int, tiles: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the two tiles around each pixel of an axis, and how much each counts."""
    position = (np.arange(size) - tile / 2.0) / tile
    before = np.floor(position)
    share = (position - before).astype("float32")
    low, high = (np.clip(n, 0, tiles - 1).astype("int32") for n in (before, before + 1))
    return [(low, 1 - share), (high, share)]
