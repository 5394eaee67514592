"""A layer that gives every image the same number of bounding boxes."""

from __future__ import annotations

from typing import Any

from ganglion import ops
from ganglion.layers.augmentation.base import ImageLayer
from ganglion.serialization import export

__all__ = ["MaxNumBoundingBoxes"]


@export("keras.layers")
class MaxNumBoundingBoxes(ImageLayer):
    """Truncates or pads boxes to a maximum number.

    >>> import numpy as np
    >>> boxes = {"boxes": np.ones((1, 5, 4)), "labels": np.ones((1, 5))}
    >>> layer = MaxNumBoundingBoxes(3, bounding_box_format="xyxy")
    >>> data = layer({"images": np.ones((1, 8, 8, 3)), "bounding_boxes": boxes})
    >>> data["bounding_boxes"]["boxes"].shape
    (1, 3, 4)
    """

    def __init__(self, max_number: int, fill_value: int = -1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.max_number, self.fill_value = int(max_number), int(fill_value)

    def transform_images(
        self, images: Any, transformation: Any = None, training: Any = True
    ) -> Any:
        return images

    def transform_bounding_boxes(
        self, bounding_boxes: Any, transformation: Any = None, training: Any = True
    ) -> Any:
        changed = {key: self._of_length(bounding_boxes[key])
                   for key in ("boxes", "labels")}  # fmt: skip
        return {**bounding_boxes, **changed}

    def _of_length(self, value: Any) -> Any:
        value = value[:, : self.max_number]
        more = self.max_number - value.shape[1]
        borders = ((0, 0), (0, more), *[(0, 0)] * (len(value.shape) - 2))
        return ops.pad(value, borders, constant_values=self.fill_value)
