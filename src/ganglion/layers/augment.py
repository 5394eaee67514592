"""Layers that change images at random in training: what they share, and colours.

They draw from counters, as dropout does: a run repeats and resumes bit for bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ganglion import ops, random
from ganglion.layers.arguments import channels_last
from ganglion.layers.base import Layer
from ganglion.serialization import export


class ImageLayer(Layer):
    """A layer on one image (rows, columns, channels), or on a batch of them.

    A dictionary with `images`, `labels` and `segmentation_masks` goes through as in
    Keras.
    """

    data_format: str

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
            return self._on_images(data, training)
        if "bounding_boxes" in data:
            raise ValueError(
                f'Layer "{self.name}" moves no bounding boxes: give it images, labels '
                "and segmentation masks only."
            )
        drawn = self.get_random_transformation(data["images"], training=training)
        made = {**data, "images": self._changed("images", data, drawn, training)}
        if "segmentation_masks" in data:
            masks = self._changed("segmentation_masks", data, drawn, training)
            made["segmentation_masks"] = masks
        return made

    def _changed(self, key: str, data: Any, drawn: Any, training: Any) -> Any:
        change = getattr(self, f"transform_{key}")
        images, one = batched(data[key])
        made = change(images, drawn, training=training)
        return ops.squeeze(made, 0) if one else made

    def _on_images(self, data: Any, training: Any) -> Any:
        drawn = self.get_random_transformation(data, training=training)
        images, one = batched(data)
        made = self.transform_images(images, drawn, training=training)
        return ops.squeeze(made, 0) if one else made

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
        """Do the same to masks; a layer that leaves places alone leaves them alone."""
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

    def _set_seed(self, seed: Any) -> None:
        self.seed = seed
        self.seed_generator = random.SeedGenerator(seed)

    @property
    def generator(self) -> random.SeedGenerator:
        """Keras' name for the random generator."""
        return self.seed_generator

    def draw(
        self, data: Any, low: float, high: float, seed: Any = None, per: int = 1
    ) -> Any:
        """Draw numbers evenly from a range, `per` of them for each image."""
        shape = (count_of(data),) if per == 1 else (count_of(data), per)
        source = self.seed_generator if seed is None else seed
        return random.uniform(shape, low, high, self.dtype, source)

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
    batch, one = batched(images)
    return 1 if one else batch.shape[0]


def span(
    value: Any, name: str, least: float, most: float, one_sided: bool = False
) -> tuple[float, float]:
    """Return a lower and an upper bound from a number or from two."""
    both = isinstance(value, (tuple, list)) and len(value) == 2
    numbers = list(value) if both else [value]
    good = all(isinstance(one, (int, float, np.number)) for one in numbers)
    if not good or any(not least <= one <= most for one in numbers):
        raise ValueError(
            f"`{name}` must be a number, or two, in the range [{least}, {most}], got "
            f"{value!r}."
        )
    if both:
        low, high = sorted(numbers)
        return low, high
    size = abs(value)
    return (max(-size, least) if one_sided else -size), size


def value_range_of(given: Any) -> tuple[float, float]:
    """Return the smallest and the largest value that pixels have."""
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise ValueError(f"`value_range` must be two numbers, got {given!r}.")
    low, high = sorted(given)
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
        self.factor = span(factor, "factor", 0, 1, one_sided=True)
        self.value_range = value_range
        self._set_seed(seed)

    def get_random_transformation(
        self, data: Any, training: Any = True, seed: Any = None
    ) -> Any:
        if not training:
            return None
        low, high = self.factor
        return {"contrast_factor": each(self.draw(data, 1 - low, 1 + high, seed))}

    def _transformed(self, x: Any, drawn: Any) -> Any:
        mean = ops.mean(x, axis=(1, 2), keepdims=True)
        made = (x - mean) * drawn["contrast_factor"] + mean
        return ops.clip(made, float(self.value_range[0]), float(self.value_range[1]))


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
        self.factor = span(factor, "factor", -1, 1)
        self.value_range = value_range_of(value_range)
        self._set_seed(seed)

    def get_random_transformation(
        self, data: Any, training: Any = True, seed: Any = None
    ) -> Any:
        if not training:
            return None
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
        self.factor = span(factor, "factor", 0, 1, one_sided=True)
        self.scale = span(scale, "scale", 0, 1, one_sided=True)
        several = isinstance(fill_value, (tuple, list)) and len(fill_value) == 3
        if not (several or fill_value is None or isinstance(fill_value, (int, float))):
            raise ValueError(
                f"`fill_value` must be a number, or three, or None, got {fill_value!r}."
            )
        self.fill_value = fill_value
        self.value_range = value_range
        self._set_seed(seed)

    def get_random_transformation(
        self, data: Any, training: Any = True, seed: Any = None
    ) -> Any:
        if not training:
            return None
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
        places = np.arange(size, dtype=self.dtype)
        return ops.logical_and(places >= start, places < stop)

    def _filling(self, shape: tuple[int, ...], seed: Any) -> Any:
        low, high = (float(one) for one in self.value_range)
        if self.fill_value is None:
            source = self.seed_generator if seed is None else seed
            filling = random.normal(shape, dtype=self.dtype, seed=source) * high
        else:
            given = np.asarray(self.fill_value, self.dtype)
            filling = ops.broadcast_to(given, shape)
        return ops.clip(filling, low, high)

    def _transformed(self, x: Any, drawn: Any) -> Any:
        covered = ops.logical_and(each(drawn["apply_erasing"]), drawn["batch_masks"])
        return ops.where(covered, drawn["fill_value"], x)
