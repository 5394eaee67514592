"""Layers that change the size of images: Resizing, CenterCrop and RandomCrop."""

from __future__ import annotations

from typing import Any

import numpy as np

from ganglion import ops, random
from ganglion.layers.arguments import choice, keep
from ganglion.layers.augmentation.base import (
    ImageLayer,
    RandomImageLayer,
    checked,
    images_of,
)
from ganglion.ops.boxes import clip_to_image_size, crop, joined, split_up
from ganglion.ops.image.layout import as_before, opened
from ganglion.ops.image.resizing import (
    INTERPOLATIONS,
    cropped,
    padded,
    resized,
    window,
)
from ganglion.serialization import export
from ganglion.system import budget
from ganglion.variables import draw_seed

__all__ = [
    "CenterCrop", "RandomCrop", "Resizing",
]  # fmt: skip


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

    def get_random_transformation(
        self, data: Any, training: Any = True, seed: Any = None
    ) -> Any:
        """Return height and width of the images; nothing is drawn."""
        return self.size_of(checked(images_of(data)).shape)

    def transform_images(
        self, images: Any, transformation: Any = None, training: Any = True
    ) -> Any:
        """Resize; integers are rounded and stay what they are."""
        return self._resized(images, self.interpolation)

    def transform_segmentation_masks(
        self, segmentation_masks: Any, transformation: Any = None, training: Any = True
    ) -> Any:
        return self._resized(segmentation_masks, "nearest")

    def _resized(self, images: Any, interpolation: str) -> Any:
        batch, layout = opened(images, self.data_format)
        x = ops.cast(batch, self.compute_dtype)
        if self.crop_to_aspect_ratio:
            x = cropped(x, self.height, self.width)
        elif self.pad_to_aspect_ratio:
            x = padded(x, self.height, self.width, float(self.fill_value))
        x = resized(x, self.height, self.width, interpolation, self.antialias)
        if batch.dtype.kind in "iu":
            x = as_before(x, batch.dtype)
        return layout.restored(x)

    def transform_bounding_boxes(
        self, bounding_boxes: Any, transformation: Any, training: Any = True
    ) -> Any:
        """Resize the boxes along; what only fills up, all -1 or 0, becomes zero."""
        size = (self.height, self.width)
        before = bounding_boxes["boxes"]
        is_none = ops.logical_or(
            ops.all(ops.equal(before, -1.0), axis=-1, keepdims=True),
            ops.all(ops.equal(before, 0.0), axis=-1, keepdims=True),
        )
        boxes = self.boxes_to(bounding_boxes, "xyxy", transformation)
        moved = self._moved(boxes["boxes"], *transformation)
        boxes = clip_to_image_size({**boxes, "boxes": moved}, *size)
        boxes["boxes"] = ops.where(is_none, 0.0, boxes["boxes"])
        return self.boxes_from(boxes, "xyxy", size, clips=None)

    def _moved(self, corners: Any, rows: int, columns: int) -> Any:
        """Return how corners move, by a scale and a shift for each axis."""
        down, across = self.height / rows, self.width / columns
        top = left = 0.0
        if self.pad_to_aspect_ratio:
            down = across = min(down, across)
            top = (self.height - rows * down) // 2
            left = (self.width - columns * across) // 2
        elif self.crop_to_aspect_ratio:
            down = across = max(down, across)
            top = -((rows * down - self.height) // 2)
            left = -((columns * across - self.width) // 2)
        x1, y1, x2, y2 = split_up(corners)
        return joined(
            *(x1 * across + left, y1 * down + top),
            *(x2 * across + left, y2 * down + top),
        )


@export("keras.layers")
class CenterCrop(ImageLayer):
    """Crops images to their centre; smaller ones are enlarged first.

    >>> import numpy as np
    >>> x = np.arange(16, dtype="float32").reshape(1, 4, 4, 1)
    >>> CenterCrop(2, 2)(x).numpy().ravel()
    array([ 5.,  6.,  9., 10.], dtype=float32)
    """

    def __init__(
        self, height: int, width: int, data_format: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        keep(self, locals())

    def get_random_transformation(
        self, data: Any, training: Any = True, seed: Any = None
    ) -> Any:
        """Return the shape of the images; nothing is drawn."""
        return {"input_shape": tuple(checked(images_of(data)).shape)}

    def transform_images(
        self, images: Any, transformation: Any = None, training: Any = True
    ) -> Any:
        x, layout = opened(ops.cast(images, self.compute_dtype), self.data_format)
        top, left, tall, wide = self._window(*x.shape[1:3])
        part = x[:, top : top + tall, left : left + wide, :]
        return layout.restored(resized(part, self.height, self.width, "bilinear"))

    def _window(self, rows: int, columns: int) -> tuple[int, ...]:
        """Return the rectangle to crop to: top, left, height and width."""
        down, across = rows - self.height, columns - self.width
        if down >= 0 and across >= 0:
            return down // 2, across // 2, self.height, self.width
        return window(rows, columns, self.height, self.width)

    def transform_segmentation_masks(
        self, segmentation_masks: Any, transformation: Any = None, training: Any = True
    ) -> Any:
        return self.transform_images(segmentation_masks)

    def transform_bounding_boxes(
        self, bounding_boxes: Any, transformation: Any, training: Any = True
    ) -> Any:
        before = self.size_of(transformation["input_shape"])
        boxes = self.boxes_to(bounding_boxes, "xyxy", before)
        top, left, tall, wide = self._window(*before)
        corners = crop(boxes["boxes"], top, left, tall, wide)
        scale = np.array([self.width / wide, self.height / tall] * 2, "float32")
        moved = {**boxes, "boxes": corners * scale}
        return self.boxes_from(moved, "xyxy", (self.height, self.width))


@export("keras.layers")
class RandomCrop(RandomImageLayer):
    """Crops the images of a batch at a random position, the same for all.

    Outside of training it is the largest window in the middle that has the target's
    shape, resized.

    >>> import numpy as np
    >>> x = np.arange(16, dtype="float32").reshape(1, 4, 4, 1)
    >>> RandomCrop(2, 3, seed=1)(x, training=True).shape
    (1, 2, 3, 1)
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
        rows, columns = self.size_of(checked(images_of(data)).shape)
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
        x, layout = opened(ops.cast(images, self.compute_dtype), self.data_format)
        return layout.restored(self._cut(x, transformation, training))

    def _cut(self, x: Any, transformation: Any, training: Any) -> Any:
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

    def transform_bounding_boxes(
        self, bounding_boxes: Any, transformation: Any, training: Any = True
    ) -> Any:
        """Shift the boxes with the window, clipped at its upper left."""
        if not training:
            return bounding_boxes
        if str(self.bounding_box_format).startswith("rel_"):
            raise ValueError(
                "RandomCrop takes boxes in pixels: use a `bounding_box_format` "
                f"without 'rel_', not {self.bounding_box_format!r}, and `keras.utils."
                "bounding_boxes.convert_format` before."
            )
        top, left = (ops.cast(number, "float32") for number in transformation)
        size = (self.height, self.width)
        boxes = self.boxes_to(bounding_boxes, "xyxy", size)
        x1, y1, x2, y2 = split_up(boxes["boxes"])
        xs = [ops.maximum(x - left, 0.0) for x in (x1, x2)]
        ys = [ops.maximum(y - top, 0.0) for y in (y1, y2)]
        moved = {**boxes, "boxes": joined(xs[0], ys[0], xs[1], ys[1])}
        return self.boxes_from(moved, "xyxy", size, clips=None)


def _start(choices: int, seed: Any) -> Any:
    return ops.cast(random.uniform((), 0.0, float(choices), seed=seed), "int32")
