"""`tf.image` around boxes, which are (top, left, bottom, right) from 0 to 1; edges."""

from __future__ import annotations

import io
from typing import Any, NamedTuple

import numpy as np

from ganglion import ops, random
from ganglion.compat.tensorflow.arrays import known
from ganglion.compat.tensorflow.pictures import convert_image_dtype
from ganglion.tensors import as_tensor


class ResizeMethod:
    """Names of the ways to resize."""

    AREA, BICUBIC, BILINEAR, GAUSSIAN = "area", "bicubic", "bilinear", "gaussian"
    LANCZOS3, LANCZOS5 = "lanczos3", "lanczos5"
    MITCHELLCUBIC, NEAREST_NEIGHBOR = "mitchellcubic", "nearest"


# ---- boxes ---------------------------------------------------------------------------


def crop_and_resize(
    image: Any,
    boxes: Any,
    box_indices: Any,
    crop_size: Any,
    method: str = "bilinear",
    extrapolation_value: float = 0.0,
) -> Any:
    """Return parts of images, each resized to one size."""
    pictures = ops.cast(image, "float32")
    edges = ops.cast(boxes, "float32")
    height, width = (int(size) for size in crop_size)
    rows = _samples(edges[:, 0], edges[:, 2], height, int(pictures.shape[1]))
    columns = _samples(edges[:, 1], edges[:, 3], width, int(pictures.shape[2]))
    chosen = ops.take(pictures, ops.cast(box_indices, "int32"), axis=0)
    sampled = _along(_along(chosen, rows, 1, method), columns, 2, method)
    is_inside = ops.logical_and(
        ops.expand_dims(_lies_inside(rows, int(pictures.shape[1])), 2),
        ops.expand_dims(_lies_inside(columns, int(pictures.shape[2])), 1),
    )
    return ops.where(ops.expand_dims(is_inside, -1), sampled, extrapolation_value)


def _samples(first: Any, last: Any, count: int, size: int) -> Any:
    """Return where a box is sampled along an axis, in pixels, for every box."""
    low, high = ops.expand_dims(first, 1), ops.expand_dims(last, 1)
    share = np.linspace(0, 1, count, dtype=np.float32) if count > 1 else np.float32(0.5)
    return ops.multiply(ops.add(low, ops.multiply(high - low, share)), size - 1.0)


def _lies_inside(positions: Any, size: int) -> Any:
    return ops.logical_and(positions >= 0, positions <= size - 1)


def _along(images: Any, positions: Any, axis: int, method: str) -> Any:
    """Interpolate images at positions along an axis, other ones for each image."""
    last = images.shape[axis] - 1
    extra = [1] * (3 - axis)
    shape = (-1, *([1] * (axis - 1)), positions.shape[1], *extra)

    def at(places: Any) -> Any:
        index = ops.cast(ops.clip(places, 0, last), "int32")
        wide = list(images.shape)
        wide[axis] = positions.shape[1]
        spread = ops.broadcast_to(ops.reshape(index, shape), tuple(wide))
        return ops.take_along_axis(images, spread, axis=axis)

    if method == "nearest":
        return at(ops.floor(positions + 0.5))
    below = ops.floor(positions)
    share = ops.reshape(positions - below, shape)
    return at(below) * (1 - share) + at(below + 1) * share


def non_max_suppression(
    boxes: Any,
    scores: Any,
    max_output_size: Any,
    iou_threshold: float = 0.5,
    score_threshold: float = float("-inf"),
) -> Any:
    """Return the indices of the best boxes that do not overlap much."""
    name = "image.non_max_suppression"
    edges, marks = known(boxes, name).astype(np.float32), known(scores, name)
    order = np.argsort(-marks, kind="stable")
    chosen: list[int] = []
    for index in order.tolist():
        if len(chosen) >= int(max_output_size) or marks[index] <= score_threshold:
            break
        if all(_overlap(edges[index], edges[k]) <= iou_threshold for k in chosen):
            chosen.append(index)
    return as_tensor(np.array(chosen, np.int32))


class CombinedNonMaxSuppression(NamedTuple):
    """The boxes that are left of each image, filled up with zeros, and their number."""

    nmsed_boxes: Any
    nmsed_scores: Any
    nmsed_classes: Any
    valid_detections: Any


def combined_non_max_suppression(
    boxes: Any,
    scores: Any,
    max_output_size_per_class: Any,
    max_total_size: Any,
    iou_threshold: float = 0.5,
    score_threshold: float = float("-inf"),
    pad_per_class: bool = False,
    clip_boxes: bool = True,
) -> CombinedNonMaxSuppression:
    """Return the best boxes of each image, suppressed within each class alone."""
    name = "image.combined_non_max_suppression"
    edges, marks = known(boxes, name).astype(np.float32), known(scores, name)
    rows, _, classes = marks.shape
    count, most = int(max_total_size), int(max_output_size_per_class)
    if pad_per_class:
        count = min(count, most * classes)
    detections = np.zeros((rows, count, 6), np.float32)
    valid = np.zeros(rows, np.int32)
    for row in range(rows):
        kept: list[tuple[float, int, int]] = []
        for number in range(classes):
            own = edges[row, :, min(number, edges.shape[2] - 1)]
            own_marks = marks[row, :, number]
            chosen = non_max_suppression(
                own, own_marks, most, iou_threshold, score_threshold
            )
            kept += [(-own_marks[k], number, k) for k in np.asarray(chosen).tolist()]
        best = sorted(kept)[:count]
        valid[row] = len(best)
        for place, (mark, number, k) in enumerate(best):
            box = edges[row, k, min(number, edges.shape[2] - 1)]
            detections[row, place] = [*box, -mark, number]
    if clip_boxes:
        detections[..., :4] = detections[..., :4].clip(0, 1)
    parts = detections[..., :4], detections[..., 4], detections[..., 5], valid
    return CombinedNonMaxSuppression(*map(as_tensor, parts))


def _overlap(a: np.ndarray, b: np.ndarray) -> float:
    """Return the share of two boxes that both cover; corners come in any order."""
    (low_a, high_a), (low_b, high_b) = (
        (np.minimum(box[:2], box[2:]), np.maximum(box[:2], box[2:])) for box in (a, b)
    )
    common = np.prod(
        np.clip(np.minimum(high_a, high_b) - np.maximum(low_a, low_b), 0, None)
    )
    union = np.prod(high_a - low_a) + np.prod(high_b - low_b) - common
    return float(common / union) if union > 0 else 0.0


def draw_bounding_boxes(images: Any, boxes: Any, colors: Any = None) -> Any:
    """Return images with the edges of boxes drawn into them."""
    name = "image.draw_bounding_boxes"
    pictures = known(images, name).copy()
    palette = _COLORS if colors is None else known(colors, name).tolist()
    for picture, own in zip(pictures, known(boxes, name), strict=True):
        height, width, channels = picture.shape
        for number, box in enumerate(own.tolist()):
            color = np.resize(palette[number % len(palette)], channels)
            top, bottom = (int(edge * (height - 1)) for edge in box[::2])
            left, right = (int(edge * (width - 1)) for edge in box[1::2])
            rows, columns = (
                slice(max(top, 0), bottom + 1),
                slice(max(left, 0), right + 1),
            )
            for row in (row for row in (top, bottom) if 0 <= row < height):
                picture[row, columns] = color
            for column in (column for column in (left, right) if 0 <= column < width):
                picture[rows, column] = color
    return as_tensor(pictures)


_COLORS = [[1.0, 1.0, 0.0, 1.0], [0.0, 0.0, 1.0, 1.0], [1.0, 0.0, 0.0, 1.0]]


# ---- edges and compression -----------------------------------------------------------


def image_gradients(image: Any) -> tuple[Any, Any]:
    """Return the differences to the pixel below, and to the one on the right."""
    down = ops.subtract(image[:, 1:], image[:, :-1])
    right = ops.subtract(image[:, :, 1:], image[:, :, :-1])
    return (
        ops.pad(down, [(0, 0), (0, 1), (0, 0), (0, 0)]),
        ops.pad(right, [(0, 0), (0, 0), (0, 1), (0, 0)]),
    )


def sobel_edges(image: Any) -> Any:
    """Return Sobel's differences down and to the right, on a last axis."""
    down = np.array([[-1, -2, -1], [0, 0, 0], [1, 2, 1]], np.float32)
    around = ops.pad(image, [(0, 0), (1, 1), (1, 1), (0, 0)], "reflect")
    channels = int(image.shape[-1])
    kernels = np.stack([down, down.T], -1)[:, :, None, :]
    kernels = np.repeat(kernels, channels, 2)
    edges = ops.depthwise_conv(around, kernels, padding="valid")
    return ops.reshape(edges, (*edges.shape[:3], channels, 2))


def adjust_gamma(image: Any, gamma: Any = 1.0, gain: Any = 1.0) -> Any:
    """Return an image with its numbers raised to a power."""
    name = str(np.dtype(str(image.dtype)))
    floats = convert_image_dtype(image, "float32")
    return convert_image_dtype(gain * ops.power(floats, gamma), name)


def transpose(image: Any) -> Any:
    """Return images with rows and columns exchanged."""
    return ops.swapaxes(image, -3, -2)


def adjust_jpeg_quality(image: Any, jpeg_quality: Any) -> Any:
    """Return an image as it looks after it was a JPEG file of some quality."""
    from PIL import Image

    pixels = known(convert_image_dtype(image, "uint8"), "image.adjust_jpeg_quality")
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=int(jpeg_quality))
    with Image.open(buffer) as decoded:
        result = np.asarray(decoded)
    return convert_image_dtype(as_tensor(result), str(np.dtype(str(image.dtype))))


def random_jpeg_quality(
    image: Any, min_jpeg_quality: int, max_jpeg_quality: int, seed: Any = None
) -> Any:
    """Return an image as it looks after it was a JPEG file of a random quality."""
    quality = random.randint((), min_jpeg_quality, max_jpeg_quality, seed=seed)
    return adjust_jpeg_quality(image, known(quality, "image.random_jpeg_quality"))
