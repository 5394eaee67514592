"""Layers that move pixels at random: flips and affine maps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ganglion import ops
from ganglion.layers.arguments import choice
from ganglion.layers.augmentation.base import (
    Boxes,
    RandomImageLayer,
    each,
    in_batches,
    span,
)
from ganglion.ops.boxes import affine_transform, joined, split_up
from ganglion.ops.image.layout import opened
from ganglion.ops.sampling import FILL_MODES, INTERPOLATIONS, Filling, affine
from ganglion.serialization import export

__all__ = [
    "RandomFlip", "RandomRotation", "RandomShear", "RandomTranslation", "RandomZoom",
]  # fmt: skip

_FLIPS = ("horizontal", "vertical", "horizontal_and_vertical")


@export("keras.layers")
class RandomFlip(RandomImageLayer):
    """Mirrors half of the images, from left to right, from top to bottom, or both.

    >>> import numpy as np
    >>> x = np.array([1.0, 2.0], "float32").reshape(1, 1, 2, 1)
    >>> sorted(RandomFlip("horizontal", seed=1)(x).ravel().tolist())
    [1.0, 2.0]
    """

    def __init__(
        self,
        mode: str = "horizontal_and_vertical",
        seed: Any = None,
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        self._keep(locals())
        self.mode = choice(mode, "mode", _FLIPS)

    def _draw(self, data: Any, seed: Any) -> dict[str, Any]:
        flips = each(self.draw(data, 0.0, 1.0, seed)) <= 0.5
        return {"flips": flips, "input_shape": tuple(data.shape)}

    def _transformed(self, x: Any, drawn: Any) -> Any:
        flips = each(drawn["flips"])
        if "horizontal" in self.mode:
            x = ops.where(flips, ops.flip(x, 2), x)
        if "vertical" in self.mode:
            x = ops.where(flips, ops.flip(x, 1), x)
        return x

    def transform_segmentation_masks(
        self, segmentation_masks: Any, transformation: Any, training: Any = True
    ) -> Any:
        return self.transform_images(segmentation_masks, transformation, training)

    def transform_bounding_boxes(
        self, bounding_boxes: Any, transformation: Any, training: Any = True
    ) -> Any:
        if not training or transformation is None:
            return bounding_boxes
        return in_batches(self._flipped_boxes, bounding_boxes, transformation)

    def _flipped_boxes(self, boxes: Boxes, drawn: Any) -> Boxes:
        size = self.size_of(drawn["input_shape"])
        flips = ops.reshape(drawn["flips"], (-1, 1))
        boxes = self.boxes_to(boxes, "rel_xyxy", size)
        x1, y1, x2, y2 = split_up(boxes["boxes"])
        if "horizontal" in self.mode:
            x1, x2 = ops.where(flips, 1.0 - x2, x1), ops.where(flips, 1.0 - x1, x2)
        if "vertical" in self.mode:
            y1, y2 = ops.where(flips, 1.0 - y2, y1), ops.where(flips, 1.0 - y1, y2)
        moved = {**boxes, "boxes": joined(x1, y1, x2, y2)}
        return self.boxes_from(moved, "rel_xyxy", size)


class MovingLayer(RandomImageLayer):
    """A layer that reads each image at other positions than its pixels."""

    fill_mode: str = "constant"
    interpolation: str
    known_fill_modes: tuple[str, ...] = FILL_MODES

    def _keep(self, scope: dict[str, Any]) -> None:
        super()._keep(scope)
        self.fill_mode = _known(self.fill_mode, "fill_mode", self.known_fill_modes)
        self.interpolation = _known(self.interpolation, "interpolation", INTERPOLATIONS)

    def _transformed(self, x: Any, drawn: Any) -> Any:
        return self._sampled(x, drawn, self.interpolation)

    def _sampled(self, x: Any, drawn: Any, interpolation: str) -> Any:
        raise NotImplementedError

    def transform_segmentation_masks(
        self, segmentation_masks: Any, transformation: Any, training: Any = True
    ) -> Any:
        """Move the masks as the images; they are read at the nearest pixel."""
        if not training or transformation is None:
            return segmentation_masks
        masks, layout = opened(segmentation_masks, self.data_format)
        return layout.restored(self._sampled(masks, transformation, "nearest"))

    def transform_bounding_boxes(
        self, bounding_boxes: Any, transformation: Any, training: Any = True
    ) -> Any:
        """Move the boxes as the images; they are clipped at the border."""
        if not training or transformation is None:
            return bounding_boxes
        return self._moved_boxes(bounding_boxes, transformation)

    def _moved_boxes(self, boxes: Boxes, drawn: Any) -> Boxes:
        raise NotImplementedError


def _known(value: Any, name: str, known: tuple[str, ...]) -> str:
    try:
        return choice(value, name, known)
    except ValueError as error:
        raise NotImplementedError(str(error)) from None  # as Keras


class _Affine(MovingLayer):
    """A layer that reads each image at an affine map of its pixels."""

    def _maps(self, x: Any, drawn: Any) -> tuple[Any, Any]:
        """Return how columns and rows of the result map to those of the image."""
        raise NotImplementedError

    def _sampled(self, x: Any, drawn: Any, interpolation: str) -> Any:
        to_column, to_row = self._maps(x, drawn)
        filling = Filling(self.fill_mode, float(self.fill_value))
        outputs = affine(x, to_column, to_row, filling, interpolation)
        return ops.cast(outputs, x.dtype)


@export("keras.layers")
class RandomZoom(_Affine):
    """Zooms in or out, by the same or by separate factors for rows and columns.

    >>> import numpy as np
    >>> layer = RandomZoom(0.2, seed=1)
    >>> layer(np.full((1, 8, 8, 3), 100.0, "float32"), training=True).shape
    (1, 8, 8, 3)
    """

    width_factor: Any

    def __init__(
        self,
        height_factor: Any,
        width_factor: Any = None,
        fill_mode: str = "reflect",
        interpolation: str = "bilinear",
        seed: Any = None,
        fill_value: float = 0.0,
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        self._keep(locals())
        self.height_lower, self.height_upper = _zoom(height_factor, "height_factor")
        if width_factor is not None:
            self.width_lower, self.width_upper = _zoom(width_factor, "width_factor")

    def _draw(self, data: Any, seed: Any) -> dict[str, Any]:
        height = self._zooms(data, self.height_lower, self.height_upper, seed)
        width = height
        if self.width_factor is not None:
            width = self._zooms(data, self.width_lower, self.width_upper, seed)
        shape = tuple(data.shape)
        return {"height_zoom": height, "width_zoom": width, "input_shape": shape}

    def _zooms(self, data: Any, low: float, high: float, seed: Any) -> Any:
        return ops.reshape(self.draw(data, 1 + low, 1 + high, seed), (-1, 1))

    def _maps(self, x: Any, drawn: Any) -> tuple[Any, Any]:
        across, down = _flat(drawn["width_zoom"]), _flat(drawn["height_zoom"])
        to_column = (across, None, (x.shape[2] - 1.0) / 2.0 * (1.0 - across))
        to_row = (None, down, (x.shape[1] - 1.0) / 2.0 * (1.0 - down))
        return to_column, to_row

    def _moved_boxes(self, boxes: Boxes, drawn: Any) -> Boxes:
        height, width = size = self.size_of(drawn["input_shape"])
        boxes = self.boxes_to(boxes, "xyxy", size)
        x1, y1, x2, y2 = split_up(boxes["boxes"])
        xs = _zoomed((x1, x2), width, drawn["width_zoom"])
        ys = _zoomed((y1, y2), height, drawn["height_zoom"])
        moved = {**boxes, "boxes": joined(xs[0], ys[0], xs[1], ys[1])}
        return self.boxes_from(moved, "rel_xyxy", size, clips="rel_xyxy")


def _zoomed(ends: Any, size: int, zoom: Any) -> list[Any]:
    """Return coordinates as parts of the window that a zoom shows of an axis."""
    zoom = ops.cast(ops.reshape(zoom, (-1, 1)), "float32")
    start = (size - 1.0) / 2.0 * (1.0 - zoom)
    stop = zoom * float(size) + start
    return [(ops.clip(end, start, stop) - start) / (stop - start) for end in ends]


def _zoom(factor: Any, name: str) -> tuple[float, float]:
    low, high = span(factor, name, -1, 1)
    if low == -1 and not isinstance(factor, (int, float)):
        raise ValueError(f"`{name}` must lie above -1, got {factor!r}.")
    return low, high


def _flat(numbers: Any) -> Any:
    return ops.reshape(numbers, (-1,))


@export("keras.layers")
class RandomTranslation(_Affine):
    """Shifts images by a part of their height and width.

    >>> import numpy as np
    >>> layer = RandomTranslation(0.1, 0.1, seed=1)
    >>> layer(np.full((1, 8, 8, 3), 100.0, "float32"), training=True).shape
    (1, 8, 8, 3)
    """

    def __init__(
        self,
        height_factor: Any,
        width_factor: Any,
        fill_mode: str = "reflect",
        interpolation: str = "bilinear",
        seed: Any = None,
        fill_value: float = 0.0,
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        self._keep(locals())
        height = span(height_factor, "height_factor", -1, 1)
        width = span(width_factor, "width_factor", -1, 1)
        self.height_lower, self.height_upper = height
        self.width_lower, self.width_upper = width

    def _draw(self, data: Any, seed: Any) -> dict[str, Any]:
        rows, columns = self.size_of(data.shape)
        height = self.height_lower, self.height_upper
        down = self.draw(data, *height, seed) * float(rows)
        width = self.width_lower, self.width_upper
        across = self.draw(data, *width, seed) * float(columns)
        translations = ops.stack([across, down], axis=1)
        return {"translations": translations, "input_shape": tuple(data.shape)}

    def _maps(self, x: Any, drawn: Any) -> tuple[Any, Any]:
        translations = drawn["translations"]
        return (1.0, None, -translations[:, 0]), (None, 1.0, -translations[:, 1])

    def _moved_boxes(self, boxes: Boxes, drawn: Any) -> Boxes:
        return in_batches(self._shifted_boxes, boxes, drawn)

    def _shifted_boxes(self, boxes: Boxes, drawn: Any) -> Boxes:
        size = self.size_of(drawn["input_shape"])
        boxes = self.boxes_to(boxes, "xyxy", size)
        across, down = (drawn["translations"][:, i : i + 1] for i in (0, 1))
        x1, y1, x2, y2 = split_up(boxes["boxes"])
        corners = joined(x1 + across, y1 + down, x2 + across, y2 + down)
        return self.boxes_from({**boxes, "boxes": corners}, "xyxy", size)


@export("keras.layers")
class RandomRotation(_Affine):
    """Turns images around their centre; the factor is a part of a full turn.

    >>> import numpy as np
    >>> layer = RandomRotation(0.1, seed=1)
    >>> layer(np.full((1, 8, 8, 3), 100.0, "float32"), training=True).shape
    (1, 8, 8, 3)
    """

    def __init__(
        self,
        factor: Any,
        fill_mode: str = "reflect",
        interpolation: str = "bilinear",
        seed: Any = None,
        fill_value: float = 0.0,
        data_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        self._keep(locals())
        self.factor = span(factor, "factor", -1, 1)

    def _draw(self, data: Any, seed: Any) -> dict[str, Any]:
        low, high = self.factor
        angle = self.draw(data, low * 360.0, high * 360.0, seed)
        rows, columns = self.size_of(data.shape)
        matrix = ops.stack(_rotation(angle, rows, columns), axis=1)
        return {
            "angle": angle,
            "rotation_matrix": matrix if len(data.shape) == 4 else matrix[0],
            "image_height": rows,
            "image_width": columns,
            "batch_size": angle.shape[0],
        }

    def _maps(self, x: Any, drawn: Any) -> tuple[Any, Any]:
        if "angle" in drawn:
            rotation = _rotation(drawn["angle"], x.shape[1], x.shape[2])
        else:  # a matrix of the user's own
            matrix = ops.reshape(drawn["rotation_matrix"], (-1, 8))
            rotation = [matrix[:, number] for number in range(8)]
        return tuple(rotation[:3]), tuple(rotation[3:6])

    def _moved_boxes(self, boxes: Boxes, drawn: Any) -> Boxes:
        size = drawn["image_height"], drawn["image_width"]
        boxes = self.boxes_to(boxes, "xyxy", size)
        none = np.zeros(1, "float32")
        numbers = (drawn["angle"], none, none, none + 1.0, none, none)
        corners = affine_transform(boxes["boxes"], *numbers, *size)
        return self.boxes_from({**boxes, "boxes": corners}, "xyxy", size)


def _rotation(angle: Any, rows: int, columns: int) -> list[Any]:
    """Return Keras' eight numbers of a turn around the centre."""
    angle = ops.cast(angle, "float32") * np.float32(math.pi / 180)
    cosine, sine = ops.cos(angle), ops.sin(angle)
    x, y = 0.5 * (columns - 1), 0.5 * (rows - 1)
    zero = ops.zeros_like(angle)
    return [
        *(cosine, -sine, x - x * cosine + y * sine),
        *(sine, cosine, y - x * sine - y * cosine),
        *(zero, zero),
    ]


@export("keras.layers")
class RandomShear(_Affine):
    """Slants images: each row is shifted, each column is, or both.

    >>> import numpy as np
    >>> layer = RandomShear(0.2, 0.2, seed=1)
    >>> layer(np.full((1, 8, 8, 3), 100.0, "float32"), training=True).shape
    (1, 8, 8, 3)
    """

    def __init__(
        self,
        x_factor: Any = 0.0,
        y_factor: Any = 0.0,
        interpolation: str = "bilinear",
        fill_mode: str = "reflect",
        fill_value: float = 0.0,
        data_format: str | None = None,
        seed: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(data_format=data_format, **kwargs)
        self._keep(locals())
        self._across = _shear(x_factor, "x_factor")
        self._down = _shear(y_factor, "y_factor")

    def _draw(self, data: Any, seed: Any) -> dict[str, Any]:
        side = ops.where(self.draw(data, 0.0, 1.0, seed) > 0.5, -1.0, 1.0)
        down = self.draw(data, *self._down, seed) * side
        across = self.draw(data, *self._across, seed) * side
        factors = ops.stack([across, down], axis=1)
        return {"shear_factor": factors, "input_shape": tuple(data.shape)}

    def _maps(self, x: Any, drawn: Any) -> tuple[Any, Any]:
        factors = drawn["shear_factor"]
        return (1.0, factors[:, 0], 0.0), (factors[:, 1], 1.0, 0.0)

    def _moved_boxes(self, boxes: Boxes, drawn: Any) -> Boxes:
        size = self.size_of(drawn["input_shape"])
        boxes = self.boxes_to(boxes, "rel_xyxy", size)
        across, down = (drawn["shear_factor"][:, i : i + 1] for i in (0, 1))
        x1, y1, x2, y2 = split_up(boxes["boxes"])
        # The corners that a slant moves furthest out; columns first, as Keras does.
        x1 = x1 - across * ops.where(across < 0, y1, y2)
        x2 = x2 - across * ops.where(across < 0, y2, y1)
        top = y1 - down * ops.where(down > 0, x2, x1)
        bottom = y2 - down * ops.where(down > 0, x1, x2)
        moved = {**boxes, "boxes": joined(x1, top, x2, bottom)}
        return self.boxes_from(moved, "rel_xyxy", size, clips="rel_xyxy")


def _shear(factor: Any, name: str) -> tuple[float, float]:
    """Return the bounds; Keras writes -f and f into files, but takes no -f itself."""
    if isinstance(factor, (tuple, list)) and len(factor) == 2:
        low, high = factor
        if low == -high:
            factor = high
    return span(factor, name, 0, 1)
