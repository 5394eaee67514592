"""The base of image layers: layouts, dictionaries, boxes, and random numbers.

A layer defines what it draws (`_draw`) and what that does to a batch of images with the
channels last (`_transformed`); the rest is here. They draw from counters, as dropout
does: a run repeats and resumes bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ganglion import config, ops, random
from ganglion.hyperparameters import as_input
from ganglion.layers.arguments import keep
from ganglion.layers.base import Layer
from ganglion.layers.tensorflow_graph import also_in_graphs
from ganglion.ops.boxes import clip_to_image_size, convert_format
from ganglion.ops.image.layout import opened

Boxes = dict[str, Any]


class ImageLayer(Layer):
    """A layer on an image, or on a batch of images.

    It takes images, or a dictionary of `images` and what belongs to them: `labels`,
    `bounding_boxes` (a dictionary of `boxes` and `labels`) and `segmentation_masks`.
    """

    takes_python_numbers = True
    data_format: str
    bounding_box_format: Any
    height: int
    width: int
    fill_value: Any
    value_range: Any

    def __init__(
        self,
        *,
        data_format: str | None = None,
        bounding_box_format: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.data_format = config.data_format_of(data_format)
        self.bounding_box_format = bounding_box_format

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, method in list(vars(cls).items()):
            if name.startswith("transform_"):
                setattr(cls, name, also_in_graphs(method))

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "data_format": self.data_format}

    # ---- a call ------------------------------------------------------------------

    def call(self, data: Any, training: Any = True) -> Any:
        images = images_of(data)
        is_single = len(checked(images).shape) == 3
        drawn = self.get_random_transformation(data, training=training)

        def changed(kind: str, value: Any) -> Any:
            transform = getattr(self, f"transform_{kind}")
            if not is_single:
                return transform(value, drawn, training=training)
            return _first(transform(_alone(value), drawn, training=training))

        if not isinstance(data, dict):
            return changed("images", images)
        outputs = {**data, "images": changed("images", images)}
        if "bounding_boxes" in data:
            boxes = self._checked_boxes(data["bounding_boxes"])
            outputs["bounding_boxes"] = changed("bounding_boxes", boxes)
        for kind in ("labels", "segmentation_masks"):
            if kind in data:
                outputs[kind] = changed(kind, ops.convert_to_tensor(data[kind]))
        return outputs

    def _checked_boxes(self, boxes: Any) -> Boxes:
        if not self.bounding_box_format:
            raise ValueError(
                "You passed an input with a 'bounding_boxes' key, but you didn't "
                "specify a bounding box format. Pass a `bounding_box_format` argument "
                f"to your {type(self).__name__} layer, e.g. "
                "`bounding_box_format='xyxy'`."
            )
        return densified(boxes)

    # ---- for subclasses ----------------------------------------------------------

    def get_random_transformation(
        self, data: Any, training: Any = True, seed: Any = None
    ) -> Any:
        """Draw the changes of each image; None if there are none."""
        return None

    def transform_images(
        self, images: Any, transformation: Any, training: Any = True
    ) -> Any:
        """Apply the drawn changes to a batch of images."""
        raise NotImplementedError(
            f"{type(self).__name__} does not define "
            "`transform_images(images, transformation, training=True)`."
        )

    def transform_segmentation_masks(
        self, segmentation_masks: Any, transformation: Any, training: Any = True
    ) -> Any:
        """Do the same to masks; a layer that moves no pixels leaves them alone."""
        return segmentation_masks

    def transform_bounding_boxes(
        self, bounding_boxes: Any, transformation: Any, training: Any = True
    ) -> Any:
        """Do the same to boxes; a layer that moves no pixels leaves them alone."""
        return bounding_boxes

    def transform_labels(
        self, labels: Any, transformation: Any, training: Any = True
    ) -> Any:
        """Return the labels, which most layers do not change."""
        return labels

    def transform_single_image(
        self, image: Any, transformation: Any, training: Any = True
    ) -> Any:
        """Apply the drawn change to an image."""
        return _first(self.transform_images(_alone(image), transformation, training))

    def transform_single_label(
        self, label: Any, transformation: Any, training: Any = True
    ) -> Any:
        """Apply the drawn change to a label."""
        return _first(self.transform_labels(_alone(label), transformation, training))

    def transform_single_bounding_box(
        self, bounding_box: Any, transformation: Any, training: Any = True
    ) -> Any:
        """Apply the drawn change to the boxes of an image."""
        boxes = _alone(densified(bounding_box))
        return _first(self.transform_bounding_boxes(boxes, transformation, training))

    def transform_single_segmentation_mask(
        self, segmentation_mask: Any, transformation: Any, training: Any = True
    ) -> Any:
        """Apply the drawn change to a mask."""
        masks = _alone(segmentation_mask)
        return _first(
            self.transform_segmentation_masks(masks, transformation, training)
        )

    # ---- helpers of subclasses ---------------------------------------------------

    def size_of(self, shape: Any) -> tuple[int, int]:
        """Return height and width from the shape of images in this layer's layout."""
        is_first = self.data_format == "channels_first"
        height, width = shape[-2:] if is_first else shape[-3:-1]
        return height, width

    def boxes_to(self, boxes: Any, target: str, size: tuple[Any, Any]) -> Any:
        """Return boxes of this layer's format in another."""
        return convert_format(boxes, self.bounding_box_format, target, *size)

    def boxes_from(
        self, boxes: Any, source: str, size: tuple[Any, Any], clips: str | None = "xyxy"
    ) -> Any:
        """Return boxes in this layer's format, within the image."""
        if clips is not None:
            boxes = clip_to_image_size(boxes, *size, bounding_box_format=clips)
        return convert_format(boxes, source, self.bounding_box_format, *size)


def _alone(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _alone(item) for key, item in value.items()}
    return ops.expand_dims(value, 0)


def _first(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _first(item) for key, item in value.items()}
    return ops.squeeze(value, 0)


def in_batches(
    moved: Callable[[Boxes, Any], Boxes], boxes: Boxes, transformation: Any
) -> Boxes:
    """Move the boxes of a batch of images, or of a single image."""
    ranks = {"boxes": 2, "labels": 1}  # of an image
    single = {
        key: value
        for key, value in boxes.items()
        if key in ranks and len(ops.shape(value)) == ranks[key]
    }
    if "boxes" not in single:
        return moved(boxes, transformation)
    batch = moved({**boxes, **_alone(single)}, transformation)
    return {**batch, **_first({key: batch[key] for key in single})}


def densified(boxes: Any) -> Boxes:
    """Return boxes and their labels as arrays; lists of many lengths are filled up."""
    if not isinstance(boxes, dict) or not {"boxes", "labels"} <= set(boxes):
        raise ValueError(
            "Expected `bounding_boxes` to be a dict with keys 'boxes' and 'labels'. "
            f"Received: bounding_boxes={boxes}"
        )
    corners, labels = boxes["boxes"], boxes["labels"]
    if isinstance(corners, (list, tuple)):
        if not isinstance(labels, (list, tuple)) or len(corners) != len(labels):
            raise ValueError(
                "If `bounding_boxes['boxes']` is a list, `bounding_boxes['labels']` "
                f"must be one of the same length. Received: {labels}"
            )
        corners, labels = _filled_up(corners, 0.0), _filled_up(labels, -1)
    corners = ops.cast(corners, "float32")
    ranks = len(corners.shape), len(ops.shape(labels))
    if ranks[0] not in (2, 3) or ranks[1] not in (ranks[0] - 1, ranks[0]):
        raise ValueError(
            "`bounding_boxes['boxes']` must have the shape (boxes, 4) or (images, "
            "boxes, 4), and the labels one axis less. Received shapes "
            f"{tuple(corners.shape)} and {tuple(ops.shape(labels))}."
        )
    return {**boxes, "boxes": corners, "labels": ops.convert_to_tensor(labels)}


def _filled_up(rows: Any, value: float) -> np.ndarray:
    arrays = [np.asarray(row) for row in rows]
    if len({array.shape for array in arrays}) == 1:
        return np.stack(arrays)
    longest = max(len(array) for array in arrays)
    shape = next(array.shape[1:] for array in arrays if len(array))
    kind = np.int32 if value == -1 else np.float32
    result = np.full((len(arrays), longest, *shape), value, kind)
    for row, array in zip(result, arrays, strict=True):
        row[: len(array)] = array.reshape(-1, *shape)
    return result


class RandomImageLayer(ImageLayer):
    """An image layer with its own generator, active in training only."""

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
        return self._draw(checked(images_of(data)), source) if training else None

    def _draw(self, data: Any, seed: Any) -> Any:
        raise NotImplementedError

    def draw(self, data: Any, low: float, high: float, seed: Any, per: int = 1) -> Any:
        """Draw numbers evenly from a range, `per` of them for each image."""
        shape = (count_of(data),) if per == 1 else (count_of(data), per)
        low, high = as_input(self, "low", low), as_input(self, "high", high)
        return random.uniform(shape, low, high, self.compute_dtype, seed)

    def chosen(self, data: Any, factor: tuple[float, float], seed: Any) -> Any:
        """Draw which images to change: a probability for each, then whether."""
        likely = self.draw(data, *factor, seed)
        return self.draw(data, 0.0, 1.0, seed) < likely

    def transform_images(
        self, images: Any, transformation: Any, training: Any = True
    ) -> Any:
        x = ops.cast(images, self.compute_dtype)
        if not training or transformation is None:
            return x
        batch, layout = opened(x, self.data_format)
        return layout.restored(self._transformed(batch, transformation))

    def _transformed(self, x: Any, drawn: Any) -> Any:
        raise NotImplementedError


def images_of(data: Any) -> Any:
    """Return the images in the data that a layer is called on."""
    return data["images"] if isinstance(data, dict) else data


def checked(images: Any) -> Any:
    """Return images; refuse arrays of another number of axes."""
    if len(images.shape) not in (3, 4):
        raise ValueError(
            "Expected the input image to be rank 3 or 4. An image has the shape (rows, "
            "columns, channels), a batch of images one axis more in front. Received: "
            f"inputs.shape={tuple(images.shape)}"
        )
    return images


def count_of(images: Any) -> int:
    """Return how many images these are."""
    return 1 if len(images.shape) == 3 else images.shape[0]


def span(
    value: Any, name: str, least: float, most: float, one_sided: bool = False
) -> tuple[float, float]:
    """Return a lower and an upper bound from a number or from two."""
    both = isinstance(value, (tuple, list)) and len(value) == 2
    numbers = list(value) if both else [value]
    good = all(isinstance(n, (int, float, np.number)) for n in numbers)
    if not good or any(not least <= n <= most for n in numbers):
        raise ValueError(
            f"The `{name}` argument should be a number, or a list of two, in the range "
            f"[{least}, {most}]. Received: {name}={value!r}"
        )
    if both:
        low, high = sorted(numbers)
        return low, high
    size = abs(value)
    return (max(-size, least) if one_sided else -size), size


def value_range_of(value: Any) -> tuple[float, float]:
    """Return the smallest and the largest value that pixels have."""
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        raise ValueError(
            "The `value_range` argument should be a list of two numbers. Received: "
            f"value_range={value!r}"
        )
    low, high = sorted(value)
    return low, high


def in_range(x: Any, source: Any, target: Any) -> Any:
    """Map pixels linearly from a range of values to another."""
    (low, high), (start, stop) = source, target
    if (low, high) == (start, stop):
        return x
    return (x - float(low)) / float(high - low) * float(stop - start) + float(start)


def clipped(x: Any, value_range: Any) -> Any:
    """Clip pixels to their range."""
    return ops.clip(x, float(value_range[0]), float(value_range[1]))


def each(numbers: Any) -> Any:
    """Reshape a number per image to broadcast over a batch of images."""
    return ops.reshape(numbers, (-1, 1, 1, 1))
