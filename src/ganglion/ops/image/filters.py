"""Filters that slide over images: blur, edges, likeness, and cutting out patches."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ganglion import config
from ganglion.compiler.ir.graph import Value
from ganglion.ops.dispatch import astype, floating, op
from ganglion.ops.image.layout import (
    as_before,
    as_floats,
    opened,
)
from ganglion.ops.indexing import take
from ganglion.ops.joining import pad, stack
from ganglion.ops.numpy import exp, square
from ganglion.ops.reduction import mean
from ganglion.ops.reduction import sum as total
from ganglion.ops.shapes import broadcast_to, expand_dims, moveaxis, reshape, squeeze
from ganglion.ops.windows import depthwise_conv, same_pairs, spread
from ganglion.variables import read

__all__ = [
    "extract_patches", "extract_patches_3d", "gaussian_blur", "sobel_edges", "ssim",
]  # fmt: skip


def _slid(x: Value, weights: Any, axis: int, padding: str) -> Value:
    """Slide a row of weights over one spatial axis (1 or 2) of every channel."""
    row = read(weights)
    shape = (row.size, 1) if axis == 1 else (1, row.size)
    channels = x.shape[3]
    kernel = broadcast_to(reshape(row, (*shape, 1, 1)), (*shape, channels, 1))
    weights = astype(kernel, x.dtype)
    return depthwise_conv(x, weights, 1, padding, "channels_last")


def _bell(size: int, sigma: Any) -> Any:
    """Return a row of weights that sum to one, shaped as a normal distribution."""
    positions = np.arange(size) - (size - 1) / 2
    if isinstance(sigma, (int, float)):
        weights = np.exp(-0.5 * (positions / sigma) ** 2)
        return weights / weights.sum()
    spread_out = floating(sigma)
    heights = exp(-0.5 * square(positions.astype(spread_out.dtype) / spread_out))
    return heights / total(heights)


@op
def gaussian_blur(
    images: Any,
    kernel_size: Any = (3, 3),
    sigma: Any = (1.0, 1.0),
    data_format: str | None = None,
) -> Any:
    """Blur images; pixels around them are zero.

    Both arguments name the columns first: how far and how much to blur from left to
    right, then from top to bottom.

    >>> gaussian_blur(np.ones((1, 3, 1), "float32"), (3, 1)).round(3).ravel()
    array([0.726, 1.   , 0.726], dtype=float32)
    """
    x, layout = opened(images, data_format)
    dtype, x = x.dtype, as_floats(x)
    across, down = (int(n) for n in kernel_size)
    x = _slid(x, _bell(across, sigma[0]), 2, "same")
    x = _slid(x, _bell(down, sigma[1]), 1, "same")
    return layout.restored(as_before(x, dtype))


@op
def sobel_edges(images: Any, data_format: str | None = None) -> Any:
    """Return how fast batches of images change downwards and to the right.

    The last axis has the two; beyond its border an image is mirrored.

    >>> edge = np.array([0, 0, 1, 1], "float32").reshape(1, 1, 4, 1).repeat(3, 1)
    >>> sobel_edges(edge)[0, 1, :, 0, 1]
    array([0., 4., 4., 0.], dtype=float32)
    """
    if len(read(images).shape) != 4:
        raise ValueError(
            "Invalid images rank: expected rank 4 (batch of images). Received: "
            f"images.shape={tuple(read(images).shape)}"
        )
    x, layout = opened(images, data_format)
    dtype, x = x.dtype, as_floats(x)
    x = pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), mode="reflect")
    slope, smooth = np.array([-1.0, 0.0, 1.0]), np.array([1.0, 2.0, 1.0])
    down = _slid(_slid(x, slope, 1, "valid"), smooth, 2, "valid")
    across = _slid(_slid(x, smooth, 1, "valid"), slope, 2, "valid")
    both = [layout.restored(as_before(edges, dtype)) for edges in (down, across)]
    return stack(both, axis=-1)


@op
def ssim(
    image1: Any,
    image2: Any,
    max_val: float = 1.0,
    filter_size: int = 11,
    filter_sigma: float = 1.5,
    k1: float = 0.01,
    k2: float = 0.03,
    data_format: str | None = None,
) -> Any:
    """Return the structural similarity of images: 1 if they are equal.

    >>> image = np.random.default_rng(1).random((16, 16, 1), "float32")
    >>> float(ssim(image, image))
    1.0
    """
    dtype = read(image1).dtype
    first, layout = opened(as_floats(read(image1)), data_format, "image1")
    second, _ = opened(astype(read(image2), first.dtype), data_format, "image2")
    bell = _bell(filter_size, float(filter_sigma))

    def blurred(x: Value) -> Value:
        return _slid(_slid(x, bell, 2, "valid"), bell, 1, "valid")

    c1, c2 = (k1 * max_val) ** 2, (k2 * max_val) ** 2
    mean1, mean2 = blurred(first), blurred(second)
    product = mean1 * mean2
    variances = blurred(first * first + second * second)
    variances = variances - mean1 * mean1 - mean2 * mean2
    covariance = blurred(first * second) - product
    alike = (2.0 * product + c1) * (2.0 * covariance + c2)
    apart = (mean1 * mean1 + mean2 * mean2 + c1) * (variances + c2)
    scores = mean(alike / apart, axis=(1, 2, 3))
    return astype(squeeze(scores, 0) if layout.is_single else scores, dtype)


# ---- patches -------------------------------------------------------------------------


@op
def extract_patches(
    images: Any,
    size: Any,
    strides: Any = None,
    dilation_rate: Any = 1,
    padding: str = "valid",
    data_format: str | None = None,
) -> Any:
    """Split images into patches, whose pixels become the channels of the result.

    >>> extract_patches(np.ones((1, 4, 4, 3)), (2, 2)).shape
    (1, 2, 2, 12)
    """
    if not isinstance(size, (int, tuple, list)):
        raise TypeError(
            "Invalid `size` argument. Expected an int or a tuple. Received: "
            f"size={size} of type {type(size).__name__}"
        )
    if not isinstance(size, int) and len(size) not in (2, 3):
        raise ValueError(
            "Invalid `size` argument. Expected a tuple of length 2 or 3. Received: "
            f"size={size} with length {len(size)}"
        )
    rank = 2 if isinstance(size, int) else len(size)
    return _patches(
        images, size, strides, dilation_rate, padding, data_format, rank, "images"
    )


@op
def extract_patches_3d(
    volumes: Any,
    size: Any,
    strides: Any = None,
    dilation_rate: Any = 1,
    padding: str = "valid",
    data_format: str | None = None,
) -> Any:
    """Split volumes into patches, whose points become the channels of the result."""
    if not isinstance(size, int) and (
        not isinstance(size, (tuple, list)) or len(size) != 3
    ):
        raise TypeError(
            "Invalid `size` argument. Expected an int or a tuple of length 3. "
            f"Received: size={size}"
        )
    return _patches(
        volumes, size, strides, dilation_rate, padding, data_format, 3, "volumes"
    )


def _patches(
    images: Any,
    size: Any,
    strides: Any,
    dilation_rate: Any,
    padding: str,
    data_format: str | None,
    rank: int,
    name: str,
) -> Any:
    x = read(images)
    if x.ndim not in (rank + 1, rank + 2):
        raise ValueError(
            f"Invalid {name} rank: expected rank {rank + 1} (single) or {rank + 2} "
            f"(batch), got {name}.shape={x.shape}"
        )
    kernel = spread(size, rank, "size")
    steps = spread(strides or size, rank, "strides")
    dilation = spread(dilation_rate, rank, "dilation_rate")
    if padding not in ("valid", "same"):
        raise ValueError(f"`padding` must be 'valid' or 'same', got {padding!r}.")
    is_single = x.ndim == rank + 1
    is_first = config.data_format_of(data_format) == "channels_first"
    x = expand_dims(x, 0) if is_single else x
    x = moveaxis(x, 1, -1) if is_first else x
    if padding == "same":
        pairs = same_pairs(x.shape[1:-1], kernel, steps, dilation)
        x = pad(x, ((0, 0), *pairs, (0, 0)))
    x = _cut(x, kernel, steps, dilation)
    x = moveaxis(x, -1, 1) if is_first else x
    return squeeze(x, 0) if is_single else x


def _cut(
    x: Value,
    kernel: tuple[int, ...],
    steps: tuple[int, ...],
    dilation: tuple[int, ...],
) -> Value:
    """Pick the pixels of every patch by number, all in one gather."""
    count, *sizes, channels = x.shape
    index = np.zeros((1,) * (2 * len(sizes)), "int32")
    places = []
    for axis, n in enumerate(sizes):
        reach = (kernel[axis] - 1) * dilation[axis] + 1
        places.append(max((n - reach) // steps[axis] + 1, 0))
        starts = np.arange(places[-1]) * steps[axis]
        numbers = starts[:, None] + np.arange(kernel[axis]) * dilation[axis]
        shape = [1] * index.ndim
        shape[axis], shape[axis + len(sizes)] = numbers.shape
        stride = math.prod(sizes[axis + 1 :])
        index = index + (numbers * stride).reshape(shape).astype("int32")
    rows = reshape(x, (count, math.prod(sizes), channels))
    picked = take(rows, index.reshape(-1), axis=1)
    return reshape(picked, (count, *places, math.prod(kernel) * channels))
