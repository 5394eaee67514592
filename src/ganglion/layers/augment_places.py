"""Layers that move the pixels of images in training: flip, zoom, turn, shift, shear."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ganglion import ops
from ganglion.layers.arguments import choice
from ganglion.layers.augment import RandomImageLayer, each, span
from ganglion.ops.sampling import FILL_MODES, INTERPOLATIONS, Filling, affine
from ganglion.serialization import export

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
        self.mode = choice(mode, "mode", _FLIPS)
        self._set_seed(seed)

    def get_random_transformation(
        self, data: Any, training: Any = True, seed: Any = None
    ) -> Any:
        if not training:
            return None
        return {"flips": each(self.draw(data, 0.0, 1.0, seed)) <= 0.5}

    def _transformed(self, x: Any, drawn: Any) -> Any:
        if "horizontal" in self.mode:
            x = ops.where(drawn["flips"], ops.flip(x, 2), x)
        if "vertical" in self.mode:
            x = ops.where(drawn["flips"], ops.flip(x, 1), x)
        return x

    def transform_segmentation_masks(
        self, segmentation_masks: Any, transformation: Any, training: Any = True
    ) -> Any:
        return self.transform_images(segmentation_masks, transformation, training)


class _Moving(RandomImageLayer):
    """A layer that reads each image at an affine map of its places."""

    fill_mode: str
    fill_value: float
    interpolation: str

    def _set_sampling(
        self, fill_mode: str, interpolation: str, fill_value: float
    ) -> None:
        self.fill_mode = choice(fill_mode, "fill_mode", FILL_MODES)
        self.interpolation = choice(interpolation, "interpolation", INTERPOLATIONS)
        self.fill_value = fill_value

    def _maps(self, x: Any, drawn: Any) -> tuple[Any, Any]:
        """Return how columns and rows of the result map to those of the image."""
        raise NotImplementedError

    def _transformed(self, x: Any, drawn: Any) -> Any:
        return self._sampled(x, drawn, self.interpolation)

    def _sampled(self, x: Any, drawn: Any, interpolation: str) -> Any:
        to_column, to_row = self._maps(x, drawn)
        filling = Filling(self.fill_mode, float(self.fill_value))
        made = affine(x, to_column, to_row, filling, interpolation)
        return ops.cast(made, x.dtype)

    def transform_segmentation_masks(
        self, segmentation_masks: Any, transformation: Any, training: Any = True
    ) -> Any:
        """Move the masks as the images; they are read at the nearest pixel."""
        if not training:
            return segmentation_masks
        return self._sampled(segmentation_masks, transformation, "nearest")


@export("keras.layers")
class RandomZoom(_Moving):
    """Zooms in or out, rows and columns alike or each for itself."""

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
        self.height_factor, self.width_factor = height_factor, width_factor
        self._height = _zoom(height_factor, "height_factor")
        self._width = None
        if width_factor is not None:
            self._width = _zoom(width_factor, "width_factor")
        self._set_sampling(fill_mode, interpolation, fill_value)
        self._set_seed(seed)

    def get_random_transformation(
        self, data: Any, training: Any = True, seed: Any = None
    ) -> Any:
        if not training:
            return None
        low, high = self._height
        height = ops.reshape(self.draw(data, 1 + low, 1 + high, seed), (-1, 1))
        width = height
        if self._width is not None:
            low, high = self._width
            width = ops.reshape(self.draw(data, 1 + low, 1 + high, seed), (-1, 1))
        shape = tuple(data.shape)
        return {"height_zoom": height, "width_zoom": width, "input_shape": shape}

    def _maps(self, x: Any, drawn: Any) -> tuple[Any, Any]:
        across, down = _flat(drawn["width_zoom"]), _flat(drawn["height_zoom"])
        to_column = (across, None, (x.shape[2] - 1.0) / 2.0 * (1.0 - across))
        to_row = (None, down, (x.shape[1] - 1.0) / 2.0 * (1.0 - down))
        return to_column, to_row


def _zoom(factor: Any, name: str) -> tuple[float, float]:
    low, high = span(factor, name, -1, 1)
    if low == -1 and not isinstance(factor, (int, float)):
        raise ValueError(f"`{name}` must lie above -1, got {factor!r}.")
    return low, high


def _flat(numbers: Any) -> Any:
    return ops.reshape(numbers, (-1,))


@export("keras.layers")
class RandomTranslation(_Moving):
    """Shifts images by a part of their height and width."""

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
        self.height_factor, self.width_factor = height_factor, width_factor
        self._height = span(height_factor, "height_factor", -1, 1)
        self._width = span(width_factor, "width_factor", -1, 1)
        self._set_sampling(fill_mode, interpolation, fill_value)
        self._set_seed(seed)

    def get_random_transformation(
        self, data: Any, training: Any = True, seed: Any = None
    ) -> Any:
        if not training:
            return None
        *_, rows, columns, _ = data.shape
        down = self.draw(data, *self._height, seed) * float(rows)
        across = self.draw(data, *self._width, seed) * float(columns)
        moves = ops.stack([across, down], axis=1)
        return {"translations": moves, "input_shape": tuple(data.shape)}

    def _maps(self, x: Any, drawn: Any) -> tuple[Any, Any]:
        moves = drawn["translations"]
        return (1.0, None, -moves[:, 0]), (None, 1.0, -moves[:, 1])


@export("keras.layers")
class RandomRotation(_Moving):
    """Turns images around their centre; the factor is a part of a full turn."""

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
        self.factor = span(factor, "factor", -1, 1)
        self._set_sampling(fill_mode, interpolation, fill_value)
        self._set_seed(seed)

    def get_random_transformation(
        self, data: Any, training: Any = True, seed: Any = None
    ) -> Any:
        if not training:
            return None
        low, high = self.factor
        angle = self.draw(data, low * 360.0, high * 360.0, seed)
        *_, rows, columns, _ = data.shape
        matrix = ops.stack(_rotation(angle, rows, columns), axis=1)
        return {
            "angle": angle,
            "rotation_matrix": matrix if len(data.shape) == 4 else matrix[0],
            "image_height": rows,
            "image_width": columns,
            "batch_size": angle.shape[0],
        }

    def _maps(self, x: Any, drawn: Any) -> tuple[Any, Any]:
        turned = _rotation(drawn["angle"], x.shape[1], x.shape[2])
        return tuple(turned[:3]), tuple(turned[3:6])


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
class RandomShear(_Moving):
    """Slants images: each row is shifted, each column is, or both."""

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
        self.x_factor, self.y_factor = x_factor, y_factor
        self._across = _shear(x_factor, "x_factor")
        self._down = _shear(y_factor, "y_factor")
        self._set_sampling(fill_mode, interpolation, fill_value)
        self._set_seed(seed)

    def get_random_transformation(
        self, data: Any, training: Any = True, seed: Any = None
    ) -> Any:
        if not training:
            return None
        side = ops.where(self.draw(data, 0.0, 1.0, seed) > 0.5, -1.0, 1.0)
        down = self.draw(data, *self._down, seed) * side
        across = self.draw(data, *self._across, seed) * side
        factors = ops.stack([across, down], axis=1)
        return {"shear_factor": factors, "input_shape": tuple(data.shape)}

    def _maps(self, x: Any, drawn: Any) -> tuple[Any, Any]:
        factors = drawn["shear_factor"]
        return (1.0, factors[:, 0], 0.0), (factors[:, 1], 1.0, 0.0)


def _shear(factor: Any, name: str) -> tuple[float, float]:
    """Return the bounds; Keras writes -f and f into files, but takes no -f itself."""
    if isinstance(factor, (tuple, list)) and len(factor) == 2:
        low, high = factor
        if low == -high:
            factor = high
    return span(factor, name, 0, 1)
