"""Layers that cover parts of images, and that mix images with one another."""

from __future__ import annotations

from typing import Any

import numpy as np

from ganglion import ops, random
from ganglion.layers.augmentation.base import RandomImageLayer, count_of, each, span
from ganglion.ops.image.layout import opened
from ganglion.serialization import export

__all__ = ["CutMix", "MixUp", "RandomErasing"]


class _Rectangles(RandomImageLayer):
    """A layer that draws rectangles within images."""

    def rectangles(self, data: Any, wide: Any, tall: Any, seed: Any) -> tuple[Any, Any]:
        """Return which pixels are in rectangles, and what part of an image that is.

        `wide` and `tall` are parts of the width and the height, one for each image.
        """
        height, width = self.size_of(data.shape)
        across = self._inside(data, wide, width, seed)
        down = self._inside(data, tall, height, seed)
        is_first = self.data_format == "channels_first"
        shapes = ((-1, 1, 1, width), (-1, 1, height, 1))
        if not is_first:
            shapes = ((-1, 1, width, 1), (-1, height, 1, 1))
        masks = ops.logical_and(
            ops.reshape(across, shapes[0]), ops.reshape(down, shapes[1])
        )
        return masks, wide * tall

    def _inside(self, data: Any, share: Any, size: int, seed: Any) -> Any:
        """Return which of the pixels along an axis are between drawn bounds."""
        length = share * float(size)
        start = self.draw(data, 0.0, 1.0, seed) * (float(size) - length)
        start, stop = ops.expand_dims(start, 1), ops.expand_dims(start + length, 1)
        pixels = np.arange(size, dtype=self.compute_dtype)
        return ops.logical_and(pixels >= start, pixels < stop)


@export("keras.layers")
class RandomErasing(_Rectangles):
    """Covers a random rectangle of an image (cutout) with a value or with noise.

    >>> import numpy as np
    >>> x = np.full((1, 8, 8, 3), 100.0, "float32")
    >>> RandomErasing(seed=1)(x, training=True).shape
    (1, 8, 8, 3)
    """

    def __init__(
        self,
        factor: Any = 1.0,
        scale: Any = (0.02, 0.33),
        fill_value: Any = None,
        value_range: Any = (0, 255),
        seed: Any = None,
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        self._keep(locals())
        self.factor = span(factor, "factor", 0, 1, one_sided=True)
        self.scale = span(scale, "scale", 0, 1, one_sided=True)
        several = isinstance(fill_value, (tuple, list)) and len(fill_value) == 3
        if not (several or fill_value is None or isinstance(fill_value, (int, float))):
            raise ValueError(
                f"`fill_value` must be a number, or three, or None, got {fill_value!r}."
            )

    def _draw(self, data: Any, seed: Any) -> dict[str, Any]:
        sides = ops.sqrt(self.draw(data, *self.scale, seed, per=2))
        masks, _ = self.rectangles(data, sides[:, 0], sides[:, 1], seed)
        chosen = self.chosen(data, self.factor, seed)
        shape = (count_of(data), *data.shape[-3:])
        return {
            "apply_erasing": chosen,
            "batch_masks": ops.broadcast_to(masks, shape),
            "fill_value": self._filling(shape, seed),
        }

    def _filling(self, shape: tuple[int, ...], seed: Any) -> Any:
        low, high = (float(bound) for bound in self.value_range)
        if self.fill_value is None:
            filling = random.normal(shape, dtype=self.compute_dtype, seed=seed) * high
        else:
            color = np.asarray(self.fill_value, self.compute_dtype)
            if color.ndim and self.data_format == "channels_first":
                color = color.reshape(-1, 1, 1)
            filling = ops.broadcast_to(color, shape)
        return ops.clip(filling, low, high)

    def _transformed(self, x: Any, drawn: Any) -> Any:
        masks, filling = (
            opened(drawn[key], self.data_format)[0]
            for key in ("batch_masks", "fill_value")
        )
        covered = ops.logical_and(each(drawn["apply_erasing"]), masks)
        return ops.where(covered, filling, x)


@export("keras.layers")
class CutMix(_Rectangles):
    """Puts a rectangle of another image of the batch into each, and mixes the labels.

    The larger `factor`, the more the sizes of the rectangles vary.

    >>> import numpy as np
    >>> x, y = np.ones((4, 8, 8, 3)), np.eye(4)
    >>> mixed = CutMix(seed=1)({"images": x, "labels": y}, training=True)
    >>> mixed["images"].shape, mixed["labels"].shape
    ((4, 8, 8, 3), (4, 4))
    """

    def __init__(
        self,
        factor: Any = 1.0,
        seed: Any = None,
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        self._keep(locals())
        self.factor = span(factor, "factor", 0, 1, one_sided=True)

    def _draw(self, data: Any, seed: Any) -> Any:
        if len(data.shape) == 3:
            return None  # a single image has no other to mix with
        count = count_of(data)
        alpha = random.uniform((), *self.factor, self.compute_dtype, seed) + 1e-6
        weight = random.beta((count,), alpha, alpha, self.compute_dtype, seed)
        side = ops.sqrt(1.0 - weight)
        masks, covered = self.rectangles(data, side, side, seed)
        return {
            "permutation_order": _shuffled(count, seed),
            "batch_masks": ops.broadcast_to(masks, data.shape),
            "mix_weight": each(1.0 - covered),
        }

    def _transformed(self, x: Any, drawn: Any) -> Any:
        masks, _ = opened(drawn["batch_masks"], self.data_format)
        others = ops.take(x, drawn["permutation_order"], axis=0)
        return ops.where(masks, others, x)

    def transform_segmentation_masks(
        self, segmentation_masks: Any, transformation: Any, training: Any = True
    ) -> Any:
        """Mix the masks as the images; they may have another number of channels."""
        if not training or transformation is None:
            return ops.cast(segmentation_masks, self.compute_dtype)
        channels = 1 if self.data_format == "channels_first" else 3
        place = transformation["batch_masks"]
        place = ops.take(place, np.zeros(1, "int32"), axis=channels)
        masks = ops.cast(segmentation_masks, self.compute_dtype)
        others = ops.take(masks, transformation["permutation_order"], axis=0)
        return ops.where(place, others, masks)

    def transform_labels(
        self, labels: Any, transformation: Any, training: Any = True
    ) -> Any:
        if not training or transformation is None:
            return labels
        return mixed_labels(labels, transformation)

    def transform_bounding_boxes(
        self, bounding_boxes: Any, transformation: Any, training: Any = True
    ) -> Any:
        raise NotImplementedError(
            "CutMix does not mix bounding boxes: take them out of the dictionary, or "
            "use MixUp."
        )


def _shuffled(count: int, seed: Any) -> Any:
    return random.shuffle(np.arange(count, dtype="int32"), 0, seed)


def mixed_labels(labels: Any, drawn: Any) -> Any:
    """Return labels mixed with those of other images of the batch."""
    weight = ops.reshape(drawn["mix_weight"], (-1, 1))
    others = ops.take(labels, drawn["permutation_order"], axis=0)
    return weight * labels + (1.0 - weight) * others


@export("keras.layers")
class MixUp(RandomImageLayer):
    """Mixes each image and its label with another of the batch.

    >>> import numpy as np
    >>> x = np.ones((2, 4, 4, 3), "float32")
    >>> mixed = MixUp()({"images": x, "labels": np.eye(2, dtype="float32")})
    >>> float(mixed["labels"].sum())
    2.0
    """

    alpha: float

    def __init__(
        self,
        alpha: float = 0.2,
        data_format: str | None = None,
        seed: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        self._keep(locals())

    def _draw(self, data: Any, seed: Any) -> dict[str, Any]:
        count = count_of(data)
        order = _shuffled(count, seed)
        weight = random.beta((count,), self.alpha, self.alpha, self.compute_dtype, seed)
        return {"mix_weight": weight, "permutation_order": order}

    def _transformed(self, x: Any, drawn: Any) -> Any:
        weight = ops.cast(each(drawn["mix_weight"]), x.dtype)
        others = ops.take(x, drawn["permutation_order"], axis=0)
        return weight * x + (1.0 - weight) * others

    def transform_segmentation_masks(
        self, segmentation_masks: Any, transformation: Any, training: Any = True
    ) -> Any:
        return self.transform_images(segmentation_masks, transformation, training)

    def transform_labels(
        self, labels: Any, transformation: Any, training: Any = True
    ) -> Any:
        return mixed_labels(labels, transformation) if training else labels

    def transform_bounding_boxes(
        self, bounding_boxes: Any, transformation: Any, training: Any = True
    ) -> Any:
        """Give each image the boxes of both."""
        if not training:
            return bounding_boxes
        order = transformation["permutation_order"]

        def both(value: Any) -> Any:
            return ops.concatenate([value, ops.take(value, order, axis=0)], axis=1)

        changed = {key: both(bounding_boxes[key]) for key in ("boxes", "labels")}
        return {**bounding_boxes, **changed}
