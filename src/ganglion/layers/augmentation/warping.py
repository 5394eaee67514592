"""Layers that bend images at random: perspective and elastic distortion."""

from __future__ import annotations

from typing import Any

import numpy as np

from ganglion import ops, random
from ganglion.layers.augmentation.base import Boxes, clipped, count_of, each, span
from ganglion.layers.augmentation.moving import MovingLayer
from ganglion.ops.boxes import joined, split_up
from ganglion.ops.image.warping import (
    ALL_FILL_MODES,
    compute_homography_matrix,
    distorted,
)
from ganglion.ops.sampling import Filling
from ganglion.serialization import export

__all__ = ["RandomElasticTransform", "RandomPerspective"]


@export("keras.layers")
class RandomPerspective(MovingLayer):
    """Shows some images in perspective; `scale` is how far corners move.

    >>> import numpy as np
    >>> x = np.full((1, 8, 8, 3), 100.0, "float32")
    >>> RandomPerspective(seed=1)(x, training=True).shape
    (1, 8, 8, 3)
    """

    scale: float

    def __init__(
        self,
        factor: Any = 1.0,
        scale: float = 1.0,
        interpolation: str = "bilinear",
        fill_value: float = 0.0,
        seed: Any = None,
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        self._keep(locals())
        self.factor = span(factor, "factor", 0, 1, one_sided=True)
        if not 0 <= scale <= 1:
            raise ValueError(
                "The `scale` argument should be a number in the range [0,1]. Received: "
                f"scale={scale}"
            )

    def _draw(self, data: Any, seed: Any) -> dict[str, Any]:
        height, width = self.size_of(data.shape)
        right, low = width - 1.0, height - 1.0
        corners = np.array(
            [[0, 0], [right, 0], [0, low], [right, low]], self.compute_dtype
        )
        chosen = self.chosen(data, self.factor, seed)
        shape, half = (count_of(data), 4, 2), 0.5 * self.scale
        moves = random.uniform(shape, -half, half, self.compute_dtype, seed)
        start = ops.broadcast_to(corners, shape)
        return {
            "apply_perspective": chosen,
            "start_points": start,
            "end_points": start + start * moves,
            "input_shape": tuple(data.shape),
        }

    def _sampled(self, x: Any, drawn: Any, interpolation: str) -> Any:
        moved = ops.image.perspective_transform(
            x, drawn["start_points"], drawn["end_points"], interpolation,
            self.fill_value, "channels_last",
        )  # fmt: skip
        return ops.where(each(drawn["apply_perspective"]), moved, x)

    def _moved_boxes(self, boxes: Boxes, drawn: Any) -> Boxes:
        size = self.size_of(drawn["input_shape"])
        boxes = self.boxes_to(boxes, "xyxy", size)
        x1, y1, x2, y2 = before = split_up(boxes["boxes"])
        forth = compute_homography_matrix(drawn["end_points"], drawn["start_points"])
        a0, a1, a2, b0, b1, b2, c0, c1 = (forth[:, i : i + 1] for i in range(8))
        corners = ((x1, y1), (x2, y2), (x1, y2), (x2, y1))
        depths = [c0 * x + c1 * y + 1.0 for x, y in corners]
        pairs = list(zip(corners, depths, strict=True))
        xs = ops.stack([(a0 * x + a1 * y + a2) / depth for (x, y), depth in pairs])
        ys = ops.stack([(b0 * x + b1 * y + b2) / depth for (x, y), depth in pairs])
        around = [ops.min(xs, 0), ops.min(ys, 0), ops.max(xs, 0), ops.max(ys, 0)]
        is_moved = ops.reshape(drawn["apply_perspective"], (-1, 1))
        numbers = [
            ops.where(is_moved, new, old)
            for new, old in zip(around, before, strict=True)
        ]
        moved = {**boxes, "boxes": joined(*numbers)}
        return self.boxes_from(moved, "xyxy", size)


@export("keras.layers")
class RandomElasticTransform(MovingLayer):
    """Distorts some images by smooth random shifts; boxes stay where they are.

    >>> import numpy as np
    >>> x = np.full((1, 8, 8, 3), 100.0, "float32")
    >>> RandomElasticTransform(seed=1)(x, training=True).shape
    (1, 8, 8, 3)
    """

    known_fill_modes = ALL_FILL_MODES

    def __init__(
        self,
        factor: Any = 1.0,
        scale: Any = 1.0,
        interpolation: str = "bilinear",
        fill_mode: str = "reflect",
        fill_value: float = 0.0,
        value_range: Any = (0, 255),
        seed: Any = None,
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        self._keep(locals())
        self.factor = span(factor, "factor", 0, 1, one_sided=True)
        self.scale = span(scale, "scale", 0, 1, one_sided=True)

    def _draw(self, data: Any, seed: Any) -> Any:
        if self.scale[1] == 0 or self.factor[1] == 0:
            return None
        chosen = self.chosen(data, self.factor, seed)
        return {
            "apply_transform": chosen,
            "distortion_factor": random.uniform(
                (), *self.scale, self.compute_dtype, seed
            ),
            # A state and no generator: images and masks must be bent in the same way.
            "seed": random.state_of(seed),
        }

    def _sampled(self, x: Any, drawn: Any, interpolation: str) -> Any:
        _, height, width, _ = x.shape
        amount = drawn["distortion_factor"]
        least = min(height, width) * 0.05
        filling = Filling(self.fill_mode, float(self.fill_value))
        # A compiled filter has a fixed size: that of the widest that may be drawn.
        size = (6 * int(least * self.scale[1])) | 1
        alpha = 0.1 * max(height, width) * amount
        sigma = ops.maximum(least * amount, 1e-3)
        moved = distorted(x, alpha, sigma, size, drawn["seed"], filling, interpolation)
        x = ops.where(each(drawn["apply_transform"]), moved, x)
        return clipped(x, self.value_range)

    def _moved_boxes(self, boxes: Boxes, drawn: Any) -> Boxes:
        return boxes
