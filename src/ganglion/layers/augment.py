"""Layers that change images at random in training: colours, flips and affine maps.

They draw from counters, as dropout does: a run repeats and resumes bit for bit.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ganglion import ops, random
from ganglion.layers.arguments import channels_last, choice, keep
from ganglion.layers.base import Layer
from ganglion.ops.sampling import FILL_MODES, INTERPOLATIONS, Filling, affine
from ganglion.serialization import export

__all__ = [
    "RandomBrightness", "RandomContrast", "RandomErasing", "RandomFlip",
    "RandomRotation", "RandomShear", "RandomTranslation", "RandomZoom",
]  # fmt: skip


class ImageLayer(Layer):
    """A layer on one image (rows, columns, channels), or on a batch of them.

    A dictionary with `images`, `labels` and `segmentation_masks` goes through as in
    Keras.
    """

    data_format: str
    height: int
    width: int
    fill_value: Any
    value_range: Any

    def __init__(self, *, data_format: str | None = None, **kwargs: Any) -> None:
        if kwargs.pop("bounding_box_format", None) is not None:
            raise ValueError(
                f"{type(self).__name__} moves no bounding boxes: leave out "
                "`bounding_box_format`."
            )
        super().__init__(**kwargs)
        self.data_format = channels_last(data_format)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "data_format": self.data_format}

    def call(self, data: Any, training: Any = True) -> Any:
        if not isinstance(data, dict):
            drawn = self.get_random_transformation(data, training=training)
            return self._transform("images", data, drawn, training)
        if "bounding_boxes" in data:
            raise ValueError(
                f'Layer "{self.name}" moves no bounding boxes: give it images, labels '
                "and segmentation masks only."
            )
        drawn = self.get_random_transformation(data["images"], training=training)
        changed = {
            key: self._transform(key, data[key], drawn, training)
            for key in ("images", "segmentation_masks")
            if key in data
        }
        return {**data, **changed}

    def _transform(self, key: str, data: Any, drawn: Any, training: Any) -> Any:
        images, is_single = batched(data)
        transform = getattr(self, f"transform_{key}")
        outputs = transform(images, drawn, training=training)
        return ops.squeeze(outputs, 0) if is_single else outputs

    def get_random_transformation(
        self, data: Any, training: Any = True, seed: Any = None
    ) -> Any:
        """Draw what is to be done to each image; None if that is nothing."""
        return None

    def transform_images(
        self, images: Any, transformation: Any, training: Any = True
    ) -> Any:
        """Do to a batch of images what was drawn for them."""
        raise NotImplementedError(
            f"{type(self).__name__} does not define "
            "`transform_images(images, transformation, training=True)`."
        )

    def transform_segmentation_masks(
        self, segmentation_masks: Any, transformation: Any, training: Any = True
    ) -> Any:
        """Do the same to masks; a layer that moves no pixels leaves them alone."""
        return segmentation_masks

    def transform_labels(
        self, labels: Any, transformation: Any, training: Any = True
    ) -> Any:
        """Return the labels, which do not change."""
        return labels


class RandomImageLayer(ImageLayer):
    """An image layer with a generator of its own, at work in training only."""

    active_unless_told = True  # as in Keras: called by itself, it is at work
    seed: Any

    def _keep(self, scope: dict[str, Any]) -> None:
        keep(self, scope)
        self.seed_generator = random.SeedGenerator(self.seed)

    @property
    def generator(self) -> random.SeedGenerator:
        """Keras' name for the random generator."""
        return self.seed_generator

    def get_random_transformation(
        self, data: Any, training: Any = True, seed: Any = None
    ) -> Any:
        source = self.seed_generator if seed is None else seed
        return self._draw(data, source) if training else None

    def _draw(self, data: Any, seed: Any) -> dict[str, Any]:
        raise NotImplementedError

    def draw(self, data: Any, low: float, high: float, seed: Any, per: int = 1) -> Any:
        """Draw numbers evenly from a range, `per` of them for each image."""
        shape = (count_of(data),) if per == 1 else (count_of(data), per)
        return random.uniform(shape, low, high, self.dtype, seed)

    def transform_images(
        self, images: Any, transformation: Any, training: Any = True
    ) -> Any:
        x = ops.cast(images, self.dtype)
        return self._transformed(x, transformation) if training else x

    def _transformed(self, x: Any, drawn: Any) -> Any:
        raise NotImplementedError


def batched(images: Any) -> tuple[Any, bool]:
    """Return a batch of images, and whether it is made of a single one."""
    rank = len(images.shape)
    if rank not in (3, 4):
        raise ValueError(
            "An image has the shape (rows, columns, channels), a batch of images one "
            f"axis more in front; got {tuple(images.shape)}."
        )
    return (ops.expand_dims(images, 0), True) if rank == 3 else (images, False)


def count_of(images: Any) -> int:
    """Return how many images these are."""
    batch, is_single = batched(images)
    return 1 if is_single else batch.shape[0]


def span(
    value: Any, name: str, least: float, most: float, one_sided: bool = False
) -> tuple[float, float]:
    """Return a lower and an upper bound from a number or from two."""
    both = isinstance(value, (tuple, list)) and len(value) == 2
    numbers = list(value) if both else [value]
    good = all(isinstance(n, (int, float, np.number)) for n in numbers)
    if not good or any(not least <= n <= most for n in numbers):
        raise ValueError(
            f"`{name}` must be a number, or two, in the range [{least}, {most}], got "
            f"{value!r}."
        )
    if both:
        low, high = sorted(numbers)
        return low, high
    size = abs(value)
    return (max(-size, least) if one_sided else -size), size


def value_range_of(value: Any) -> tuple[float, float]:
    """Return the smallest and the largest value that pixels have."""
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise ValueError(f"`value_range` must be two numbers, got {value!r}.")
    low, high = sorted(value)
    return low, high


def each(numbers: Any) -> Any:
    """Give one number for each image the axes of a batch of images."""
    return ops.reshape(numbers, (-1, 1, 1, 1))


@export("keras.layers")
class RandomContrast(RandomImageLayer):
    """Moves pixels away from the mean of their channel, or towards it.

    >>> import numpy as np
    >>> x = np.array([1.0, 3.0], "float32").reshape(1, 1, 2, 1)
    >>> RandomContrast(0.5)(x, training=False).ravel()
    array([1., 3.], dtype=float32)
    """

    def __init__(
        self,
        factor: Any,
        value_range: Any = (0, 255),
        seed: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._keep(locals())
        self.factor = span(factor, "factor", 0, 1, one_sided=True)

    def _draw(self, data: Any, seed: Any) -> dict[str, Any]:
        low, high = self.factor
        return {"contrast_factor": each(self.draw(data, 1 - low, 1 + high, seed))}

    def _transformed(self, x: Any, drawn: Any) -> Any:
        mean = ops.mean(x, axis=(1, 2), keepdims=True)
        changed = (x - mean) * drawn["contrast_factor"] + mean
        return ops.clip(changed, float(self.value_range[0]), float(self.value_range[1]))


@export("keras.layers")
class RandomBrightness(RandomImageLayer):
    """Adds the same number to all pixels of an image."""

    def __init__(
        self,
        factor: Any,
        value_range: Any = (0, 255),
        seed: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._keep(locals())
        self.factor = span(factor, "factor", -1, 1)
        self.value_range = value_range_of(value_range)

    def _draw(self, data: Any, seed: Any) -> dict[str, Any]:
        low, high = self.value_range
        drawn = self.draw(data, *self.factor, seed)
        return {"rgb_delta": each(drawn * (high - low))}

    def _transformed(self, x: Any, drawn: Any) -> Any:
        low, high = self.value_range
        return ops.clip(x + drawn["rgb_delta"], float(low), float(high))


@export("keras.layers")
class RandomErasing(RandomImageLayer):
    """Covers a random rectangle of an image (cutout) with a value or with noise."""

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
        *_, height, width, channels = data.shape
        sides = ops.sqrt(self.draw(data, *self.scale, seed, per=2))
        across = self._inside(data, sides[:, 0], width, seed)
        down = self._inside(data, sides[:, 1], height, seed)
        likely = self.draw(data, *self.factor, seed)
        covered = self.draw(data, 0.0, 1.0, seed) < likely
        masks = ops.logical_and(
            ops.reshape(across, (-1, 1, width, 1)),
            ops.reshape(down, (-1, height, 1, 1)),
        )
        shape = (count_of(data), height, width, channels)
        return {
            "apply_erasing": covered,
            "batch_masks": ops.broadcast_to(masks, shape),
            "fill_value": self._filling(shape, seed),
        }

    def _inside(self, data: Any, share: Any, size: int, seed: Any) -> Any:
        """Return which of the pixels along an axis lie between drawn bounds."""
        length = share * float(size)
        start = self.draw(data, 0.0, 1.0, seed) * (float(size) - length)
        start, stop = ops.expand_dims(start, 1), ops.expand_dims(start + length, 1)
        pixels = np.arange(size, dtype=self.dtype)
        return ops.logical_and(pixels >= start, pixels < stop)

    def _filling(self, shape: tuple[int, ...], seed: Any) -> Any:
        low, high = (float(bound) for bound in self.value_range)
        if self.fill_value is None:
            filling = random.normal(shape, dtype=self.dtype, seed=seed) * high
        else:
            color = np.asarray(self.fill_value, self.dtype)
            filling = ops.broadcast_to(color, shape)
        return ops.clip(filling, low, high)

    def _transformed(self, x: Any, drawn: Any) -> Any:
        covered = ops.logical_and(each(drawn["apply_erasing"]), drawn["batch_masks"])
        return ops.where(covered, drawn["fill_value"], x)


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
    """A layer that reads each image at an affine map of its pixels."""

    fill_mode: str
    interpolation: str

    def _keep(self, scope: dict[str, Any]) -> None:
        super()._keep(scope)
        self.fill_mode = choice(self.fill_mode, "fill_mode", FILL_MODES)
        self.interpolation = choice(self.interpolation, "interpolation", INTERPOLATIONS)

    def _maps(self, x: Any, drawn: Any) -> tuple[Any, Any]:
        """Return how columns and rows of the result map to those of the image."""
        raise NotImplementedError

    def _transformed(self, x: Any, drawn: Any) -> Any:
        return self._sampled(x, drawn, self.interpolation)

    def _sampled(self, x: Any, drawn: Any, interpolation: str) -> Any:
        to_column, to_row = self._maps(x, drawn)
        filling = Filling(self.fill_mode, float(self.fill_value))
        outputs = affine(x, to_column, to_row, filling, interpolation)
        return ops.cast(outputs, x.dtype)

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
        self._keep(locals())
        self._height = _zoom(height_factor, "height_factor")
        has_width = width_factor is not None
        self._width = _zoom(width_factor, "width_factor") if has_width else None

    def _draw(self, data: Any, seed: Any) -> dict[str, Any]:
        height = self._zooms(data, self._height, seed)
        width = height
        if self._width is not None:
            width = self._zooms(data, self._width, seed)
        shape = tuple(data.shape)
        return {"height_zoom": height, "width_zoom": width, "input_shape": shape}

    def _zooms(self, data: Any, bounds: tuple[float, float], seed: Any) -> Any:
        low, high = bounds
        return ops.reshape(self.draw(data, 1 + low, 1 + high, seed), (-1, 1))

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
        self._keep(locals())
        self._height = span(height_factor, "height_factor", -1, 1)
        self._width = span(width_factor, "width_factor", -1, 1)

    def _draw(self, data: Any, seed: Any) -> dict[str, Any]:
        *_, rows, columns, _ = data.shape
        down = self.draw(data, *self._height, seed) * float(rows)
        across = self.draw(data, *self._width, seed) * float(columns)
        translations = ops.stack([across, down], axis=1)
        return {"translations": translations, "input_shape": tuple(data.shape)}

    def _maps(self, x: Any, drawn: Any) -> tuple[Any, Any]:
        translations = drawn["translations"]
        return (1.0, None, -translations[:, 0]), (None, 1.0, -translations[:, 1])


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
        self._keep(locals())
        self.factor = span(factor, "factor", -1, 1)

    def _draw(self, data: Any, seed: Any) -> dict[str, Any]:
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
        rotation = _rotation(drawn["angle"], x.shape[1], x.shape[2])
        return tuple(rotation[:3]), tuple(rotation[3:6])


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


def _shear(factor: Any, name: str) -> tuple[float, float]:
    """Return the bounds; Keras writes -f and f into files, but takes no -f itself."""
    if isinstance(factor, (tuple, list)) and len(factor) == 2:
        low, high = factor
        if low == -high:
            factor = high
    return span(factor, name, 0, 1)
