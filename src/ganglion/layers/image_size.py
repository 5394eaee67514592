"""Layers that change the size of images: Resizing, CenterCrop and RandomCrop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ganglion import ops, random
from ganglion.layers.arguments import choice, keep
from ganglion.layers.augment import ImageLayer, RandomImageLayer
from ganglion.serialization import export
from ganglion.system import budget
from ganglion.variables import draw_seed

__all__ = [
    "CenterCrop", "RandomCrop", "Resizing",
]  # fmt: skip

Kernel = tuple[float, Callable[[np.ndarray], np.ndarray]]


def _cubic(x: np.ndarray) -> np.ndarray:
    """Return Keys' piecewise cubic, with the slope -1/2 at one."""
    near = ((1.5 * x - 2.5) * x) * x + 1.0
    far = ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))


def _lanczos(radius: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: np.where(x < radius, np.sinc(x) * np.sinc(x / radius), 0.0)


_KERNELS: dict[str, Kernel] = {
    "bilinear": (1.0, lambda x: np.maximum(1.0 - x, 0.0)),
    "bicubic": (2.0, _cubic),
    "lanczos3": (3.0, _lanczos(3.0)),
    "lanczos5": (5.0, _lanczos(5.0)),
}
INTERPOLATIONS = ("bilinear", "nearest", *list(_KERNELS)[1:])


def resizing_matrix(
    size: int, target: int, interpolation: str = "bilinear", antialias: bool = False
) -> np.ndarray:
    """Return the (target, size) matrix that resizes an axis, centres on centres.

    >>> resizing_matrix(4, 2)
    array([[0.5, 0.5, 0. , 0. ],
           [0. , 0. , 0.5, 0.5]])
    """
    budget.take(32 * size * target, f"images of {target:,} pixels")
    step = size / target
    centres = (np.arange(target) + 0.5) * step - 0.5
    if interpolation == "nearest":
        picked = np.clip(np.floor(centres + 0.5), 0, size - 1).astype(int)
        return np.eye(size)[picked]
    _, kernel = _KERNELS[interpolation]
    wider = max(step, 1.0) if antialias else 1.0
    distance = np.abs(centres[:, None] - np.arange(size)[None, :])
    weights = kernel(distance / wider)
    return weights / weights.sum(axis=1, keepdims=True)


def resized(
    x: Any, height: int, width: int, interpolation: str, antialias: bool = False
) -> Any:
    """Resize a batch of images of floats by two matrix products."""
    count, rows, columns, channels = x.shape
    if rows != height:
        down = resizing_matrix(rows, height, interpolation, antialias).astype(x.dtype)
        x = ops.matmul(down, ops.reshape(x, (count, rows, columns * channels)))
    if columns != width:
        across = resizing_matrix(columns, width, interpolation, antialias)
        x = ops.reshape(x, (count * height, columns, channels))
        x = ops.matmul(across.astype(x.dtype), x)
    return ops.reshape(x, (count, height, width, channels))


def window(rows: int, columns: int, height: int, width: int) -> tuple[int, ...]:
    """Return the largest window of the shape of a target: where, and how large.

    >>> window(340, 500, 200, 200)
    (0, 80, 340, 340)
    """
    tall = max(min(rows, int(float(columns * height) / width)), 1)
    wide = max(min(columns, int(float(rows * width) / height)), 1)
    return int((rows - tall) / 2), int((columns - wide) / 2), tall, wide


def cropped(x: Any, height: int, width: int) -> Any:
    """Cut out the largest window of the target's shape."""
    top, left, tall, wide = window(x.shape[1], x.shape[2], height, width)
    return x[:, top : top + tall, left : left + wide, :]


def _padded(x: Any, height: int, width: int, value: float) -> Any:
    """Add equal borders, so that the shape is about that of the target."""
    rows, columns = x.shape[1:3]
    tall = max(rows, int(float(columns * height) / width))
    wide = max(columns, int(float(rows * width) / height))
    down, across = int((tall - rows) / 2), int((wide - columns) / 2)
    borders = ((0, 0), (down, down), (across, across), (0, 0))
    return ops.pad(x, borders, constant_values=value)


@export("keras.layers")
class Resizing(ImageLayer):
    """Resizes images, in training and after.

    >>> import numpy as np
    >>> Resizing(1, 2)(np.array([0, 2, 4, 6], "uint8").reshape(1, 1, 4, 1)).ravel()
    array([1, 5], dtype=uint8)
    """

    crop_to_aspect_ratio: bool
    pad_to_aspect_ratio: bool

    def __init__(
        self,
        height: int,
        width: int,
        interpolation: str = "bilinear",
        crop_to_aspect_ratio: bool = False,
        pad_to_aspect_ratio: bool = False,
        fill_mode: str = "constant",
        fill_value: float = 0.0,
        antialias: bool = False,
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        keep(self, locals())
        self.interpolation = choice(interpolation, "interpolation", INTERPOLATIONS)
        if crop_to_aspect_ratio and pad_to_aspect_ratio:
            raise ValueError("Resizing can crop to the aspect ratio or pad, not both.")
        self.fill_mode = choice(fill_mode, "fill_mode", ("constant",))
        self.antialias = bool(antialias)

    def transform_images(
        self, images: Any, transformation: Any = None, training: Any = True
    ) -> Any:
        """Resize; whole numbers are rounded and stay what they are."""
        return self._resized(images, self.interpolation)

    def transform_segmentation_masks(
        self, segmentation_masks: Any, transformation: Any = None, training: Any = True
    ) -> Any:
        return self._resized(segmentation_masks, "nearest")

    def _resized(self, images: Any, interpolation: str) -> Any:
        kind = np.dtype(images.dtype)
        x = ops.cast(images, self.dtype)
        if self.crop_to_aspect_ratio:
            x = cropped(x, self.height, self.width)
        elif self.pad_to_aspect_ratio:
            x = _padded(x, self.height, self.width, float(self.fill_value))
        x = resized(x, self.height, self.width, interpolation, self.antialias)
        if kind.kind not in "iu":
            return x
        limits = np.iinfo(kind)
        bounded = ops.clip(ops.round(x), float(limits.min), float(limits.max))
        return ops.cast(bounded, kind.name)


@export("keras.layers")
class CenterCrop(ImageLayer):
    """Cuts out the middle of images; smaller ones are enlarged first."""

    def __init__(
        self, height: int, width: int, data_format: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        keep(self, locals())

    def transform_images(
        self, images: Any, transformation: Any = None, training: Any = True
    ) -> Any:
        x = ops.cast(images, self.dtype)
        down, across = x.shape[1] - self.height, x.shape[2] - self.width
        if down >= 0 and across >= 0:
            top, left = down // 2, across // 2
            return x[:, top : top + self.height, left : left + self.width, :]
        window = cropped(x, self.height, self.width)
        return resized(window, self.height, self.width, "bilinear")

    def transform_segmentation_masks(
        self, segmentation_masks: Any, transformation: Any = None, training: Any = True
    ) -> Any:
        return self.transform_images(segmentation_masks)


@export("keras.layers")
class RandomCrop(RandomImageLayer):
    """Cuts a window out of a batch of images at a random position, the same for all.

    Outside of training it is the largest window in the middle that has the target's
    shape, resized.
    """

    def __init__(
        self,
        height: int,
        width: int,
        seed: Any = None,
        data_format: str | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(data_format=data_format, name=name, **kwargs)
        seed = draw_seed() if seed is None else seed
        self._keep(locals())

    def get_random_transformation(
        self, data: Any, training: Any = True, seed: Any = None
    ) -> Any:
        *_, rows, columns, _ = data.shape
        if not training or rows <= self.height or columns <= self.width:
            top, left, *_ = window(rows, columns, self.height, self.width)
            return top, left
        source = self.seed_generator if seed is None else seed
        top = _start(rows - self.height + 1, source)
        left = _start(columns - self.width + 1, source)
        return top, left

    def transform_images(
        self, images: Any, transformation: Any, training: Any = True
    ) -> Any:
        x = ops.cast(images, self.dtype)
        rows, columns = x.shape[1:3]
        if not training:
            middle = cropped(x, self.height, self.width)
            return resized(middle, self.height, self.width, "bilinear")
        top, left = transformation
        if rows <= self.height or columns <= self.width:
            part = x[:, top : top + self.height, left : left + self.width, :]
            return resized(part, self.height, self.width, "bilinear")
        budget.take(16 * (self.height + self.width), "the pixels of a crop")
        down = ops.add(top, np.arange(self.height, dtype="int32"))
        across = ops.add(left, np.arange(self.width, dtype="int32"))
        return ops.take(ops.take(x, down, axis=1), across, axis=2)

    def transform_segmentation_masks(
        self, segmentation_masks: Any, transformation: Any, training: Any = True
    ) -> Any:
        return self.transform_images(segmentation_masks, transformation)


def _start(choices: int, seed: Any) -> Any:
    return ops.cast(random.uniform((), 0.0, float(choices), seed=seed), "int32")
