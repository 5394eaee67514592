"""Bounding boxes: their formats, and what moves and compares them.

Boxes are arrays (..., 4), alone or as `boxes` in a dictionary with `labels`, which is
passed on with the rest of what it holds.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ganglion import config
from ganglion.compiler.ir.graph import Value
from ganglion.ops.dispatch import astype, floating, op
from ganglion.ops.elementary import arctan
from ganglion.ops.joining import concatenate, stack
from ganglion.ops.numpy import (
    clip,
    cos,
    exp,
    less,
    log,
    logical_or,
    maximum,
    minimum,
    sin,
    tan,
    where,
)
from ganglion.ops.products import matmul
from ganglion.ops.reduction import max as largest
from ganglion.ops.reduction import min as smallest
from ganglion.ops.shapes import expand_dims, reshape, swapaxes
from ganglion.variables import read

__all__ = [
    "affine_transform", "clip_to_image_size", "compute_ciou", "compute_iou",
    "convert_format", "crop", "decode_deltas_to_boxes", "encode_box_to_deltas", "pad",
]  # fmt: skip

FORMATS = (
    "xyxy", "yxyx", "xywh", "center_xywh", "center_yxhw", "rel_xyxy", "rel_yxyx",
    "rel_xywh", "rel_center_xywh",
)  # fmt: skip


def split_up(boxes: Any) -> list[Value]:
    """Return the four numbers of boxes, each an array without the last axis."""
    return [boxes[..., number] for number in range(4)]


def joined(*numbers: Any) -> Any:
    """Put four numbers of boxes together again."""
    return stack(list(numbers), axis=-1)


@op
def convert_format(
    boxes: Any,
    source: str,
    target: str,
    height: Any = None,
    width: Any = None,
    dtype: Any = "float32",
) -> Any:
    """Write boxes in another format.

    The formats are xyxy (left, top, right, bottom), yxyx, xywh, center_xywh and
    center_yxhw, and with `rel_` in front all but the last as parts of the image.

    >>> convert_format(np.array([[1, 2, 4, 6]]), "xyxy", "xywh")
    array([[1., 2., 3., 4.]], dtype=float32)
    """
    if isinstance(boxes, dict):
        changed = convert_format(boxes["boxes"], source, target, height, width, dtype)
        return {**boxes, "boxes": changed}
    x = read(boxes)
    if x.shape[-1] != 4:
        raise ValueError(
            "`boxes` must be a tensor with the last dimension of 4. Received: "
            f"boxes.shape={x.shape}"
        )
    source, target = source.lower(), target.lower()
    if source not in FORMATS or target not in FORMATS:
        raise ValueError(
            f"Invalid source or target format, {source!r} to {target!r}. Supported "
            f"formats: {FORMATS}"
        )
    is_relative = source.startswith("rel_"), target.startswith("rel_")
    if any(is_relative) and (height is None or width is None):
        raise ValueError(
            "convert_format() must receive `height` and `width` to convert between "
            f"relative and absolute formats, here from {source!r} to {target!r}; got "
            f"height={height} and width={width}."
        )
    x = astype(x, dtype)
    if source == target:
        return x
    corners = _corners(split_up(x), source.removeprefix("rel_"))
    if is_relative[0] != is_relative[1]:
        across, down = (_sizes(n, dtype) for n in (width, height))
        scales = (across, down, across, down)
        pairs = zip(corners, scales, strict=True)
        corners = [n * scale if is_relative[0] else n / scale for n, scale in pairs]
    return joined(*_from_corners(corners, target.removeprefix("rel_")))


def _sizes(size: Any, dtype: Any) -> Any:
    """Return the size of an image; one for each image has an axis for its boxes."""
    if isinstance(size, (int, float)):
        return np.dtype(dtype).type(size)
    value = astype(size, dtype)
    return value[..., 0] if value.ndim else value


def _corners(numbers: list[Value], kind: str) -> list[Value]:
    if kind.endswith(("yxyx", "yxhw")):
        numbers = [numbers[1], numbers[0], numbers[3], numbers[2]]
    x, y, x2, y2 = numbers
    if kind.startswith("center"):
        return [x - x2 / 2.0, y - y2 / 2.0, x + x2 / 2.0, y + y2 / 2.0]
    return [x, y, x + x2, y + y2] if kind == "xywh" else numbers


def _from_corners(corners: list[Value], kind: str) -> list[Value]:
    x, y, x2, y2 = corners
    if kind in ("xyxy", "yxyx"):
        numbers = corners
    else:
        width, height = x2 - x, y2 - y
        numbers = [x, y, width, height]
        if kind.startswith("center"):
            numbers = [x + width / 2.0, y + height / 2.0, width, height]
    if kind.endswith(("yxyx", "yxhw")):
        numbers = [numbers[1], numbers[0], numbers[3], numbers[2]]
    return numbers


def _refuse_other(bounding_box_format: str, *known: str) -> None:
    if bounding_box_format not in known:
        raise NotImplementedError(
            f"This works on boxes in {' or '.join(known)} only, got "
            f"{bounding_box_format!r}: use `convert_format` before and after."
        )


@op
def clip_to_image_size(
    bounding_boxes: Any,
    height: Any = None,
    width: Any = None,
    bounding_box_format: str = "xyxy",
) -> Any:
    """Clip boxes at the border of the image; empty ones get the label -1."""
    _refuse_other(bounding_box_format, "xyxy", "rel_xyxy")
    if bounding_box_format == "rel_xyxy":
        height = width = 1.0
    elif height is None or width is None:
        raise ValueError("`height` and `width` must be set if `format='xyxy'`.")
    boxes = read(bounding_boxes["boxes"])
    dtype = boxes.dtype
    # Integers stay integers, however the size is given.
    across, down = (_sizes(n, dtype) for n in (width, height))
    x1, y1, x2, y2 = split_up(boxes)
    x1, x2 = clip(x1, 0, across), clip(x2, 0, across)
    y1, y2 = clip(y1, 0, down), clip(y2, 0, down)
    result = {**bounding_boxes, "boxes": joined(x1, y1, x2, y2)}
    if bounding_boxes.get("labels") is not None:
        is_left = (x2 - x1) * (y2 - y1) > 0
        result["labels"] = where(is_left, read(bounding_boxes["labels"]), -1)
    return result


@op
def affine_transform(
    boxes: Any,
    angle: Any,
    translate_x: Any,
    translate_y: Any,
    scale: Any,
    shear_x: Any,
    shear_y: Any,
    height: Any,
    width: Any,
    center_x: Any = None,
    center_y: Any = None,
    bounding_box_format: str = "xyxy",
) -> Any:
    """Turn, scale, slant and shift boxes (images, boxes, 4), each image by its numbers.

    Angles are degrees, translations and centres parts of the image. The result is the
    smallest upright box around each.
    """
    _refuse_other(bounding_box_format, "xyxy")
    across, down = width - 1, height - 1
    matrix = _inverse_affine(
        [floating(n) for n in (angle, shear_x, shear_y, scale)],
        (floating(translate_x) * across, floating(translate_y) * down),
        (
            (0.5 if center_x is None else center_x) * across,
            (0.5 if center_y is None else center_y) * down,
        ),
    )
    x1, y1, x2, y2 = split_up(astype(boxes, matrix.dtype))
    ones = x1 * 0.0 + 1.0
    points = ((x1, y1), (x2, y1), (x2, y2), (x1, y2))
    corners = stack([stack([x, y, ones], axis=-1) for x, y in points], axis=2)
    count, each = corners.shape[:2]
    flat = reshape(corners, (count, each * 4, 3))
    moved = reshape(matmul(flat, swapaxes(matrix, 1, 2)), (count, each, 4, 2))
    return concatenate([smallest(moved, axis=2), largest(moved, axis=2)], axis=-1)


def _inverse_affine(
    numbers: list[Value], translation: tuple[Any, Any], center: tuple[Any, Any]
) -> Value:
    """Return the (images, 2, 3) matrices of the inverse transformations."""
    *angles, scale = numbers
    turn, slant_x, slant_y = (-angle * (math.pi / 180) for angle in angles)
    start_x, start_y = center[0] - translation[0], center[1] - translation[1]
    a = cos(turn - slant_y) / cos(slant_y)
    c = -sin(turn - slant_y) / cos(slant_y)
    b = a * tan(slant_x) + sin(turn)
    d = cos(turn) - c * tan(slant_x)
    rows = []
    for first, second, middle in ((d, -b, center[0]), (-c, a, center[1])):
        first, second = first * scale, second * scale
        offset = middle - first * start_x - second * start_y
        rows.append(stack([first, second, offset], axis=-1))
    return stack(rows, axis=1)


@op
def crop(
    boxes: Any,
    top: Any,
    left: Any,
    height: Any,
    width: Any,
    bounding_box_format: str = "xyxy",
) -> Any:
    """Return boxes within a window of the image, relative to that.

    >>> crop(np.array([[10.0, 20.0, 50.0, 60.0]]), 10, 20, 40, 30)
    array([[ 0., 10., 30., 40.]])
    """
    _refuse_other(bounding_box_format, "xyxy")
    x1, y1, x2, y2 = split_up(read(boxes))
    across = [clip(x - left, 0, width) for x in (x1, x2)]
    down = [clip(y - top, 0, height) for y in (y1, y2)]
    return joined(across[0], down[0], across[1], down[1])


@op
def pad(
    boxes: Any,
    top: Any,
    left: Any,
    height: Any = None,
    width: Any = None,
    bounding_box_format: str = "xyxy",
) -> Any:
    """Return boxes of an image that gets borders above and at the left.

    The size of the image changes nothing, as in Keras.
    """
    _refuse_other(bounding_box_format, "xyxy")
    x1, y1, x2, y2 = split_up(read(boxes))
    return joined(x1 + left, y1 + top, x2 + left, y2 + top)


# ---- boxes relative to anchors -------------------------------------------------------


def _centered(encoding: str, name: str) -> None:
    if encoding not in ("center_xywh", "center_yxhw"):
        raise ValueError(
            f"`{name}` should be one of 'center_xywh' or 'center_yxhw', got "
            f"{encoding!r}"
        )


def _variance(variance: Any) -> Any:
    if variance is None:
        return 1.0
    numbers = astype(read(variance), "float32")
    if numbers.shape[-1] != 4:
        raise ValueError(f"`variance` must be length 4, got {variance}")
    return numbers


def _image_size(image_shape: Any) -> tuple[Any, Any]:
    return (None, None) if image_shape is None else tuple(image_shape[:2])


@op
def encode_box_to_deltas(
    anchors: Any,
    boxes: Any,
    anchor_format: str,
    box_format: str,
    encoding_format: str = "center_yxhw",
    variance: Any = None,
    image_shape: Any = None,
) -> Any:
    """Return how boxes differ from anchors: shifts by their size, logarithms of sizes.

    `decode_deltas_to_boxes` takes it back.
    """
    _centered(encoding_format, "encoding_format")
    factor, size = _variance(variance), _image_size(image_shape)
    anchor = convert_format(anchors, anchor_format, encoding_format, *size)
    box = convert_format(boxes, box_format, encoding_format, *size)
    anchor_size = maximum(anchor[..., 2:], config.epsilon())
    box_size = maximum(box[..., 2:], config.epsilon())
    shifts = (box[..., :2] - anchor[..., :2]) / anchor_size
    return concatenate([shifts, log(box_size / anchor_size)], axis=-1) / factor


@op
def decode_deltas_to_boxes(
    anchors: Any,
    boxes_delta: Any,
    anchor_format: str,
    box_format: str,
    encoded_format: str = "center_yxhw",
    variance: Any = None,
    image_shape: Any = None,
) -> Any:
    """Return the boxes that differ from anchors by deltas; both may be dictionaries."""
    _centered(encoded_format, "encoded_format")
    factor, size = _variance(variance), _image_size(image_shape)

    def decoded(anchors: Any, deltas: Any) -> Any:
        anchor = convert_format(anchors, anchor_format, encoded_format, *size)
        delta = read(deltas) * factor
        centers = delta[..., :2] * anchor[..., 2:] + anchor[..., :2]
        sizes = exp(delta[..., 2:]) * anchor[..., 2:]
        boxes = concatenate([centers, sizes], axis=-1)
        return convert_format(boxes, encoded_format, box_format, *size)

    if isinstance(anchors, dict) and isinstance(boxes_delta, dict):
        return {key: decoded(anchors[key], boxes_delta[key]) for key in anchors}
    return decoded(anchors, boxes_delta)


# ---- how much boxes overlap ----------------------------------------------------------


@op
def compute_iou(
    boxes1: Any,
    boxes2: Any,
    bounding_box_format: str,
    use_masking: bool = False,
    mask_val: float = -1,
    image_shape: Any = None,
) -> Any:
    """Return the overlap of every box with every other, as a part of their union.

    >>> box = np.array([[0.0, 0.0, 2.0, 2.0]])
    >>> compute_iou(box, box / 2, "xyxy").round(3)
    array([[0.25]], dtype=float32)
    """
    first, second = read(boxes1), read(boxes2)
    for name, boxes in (("boxes1", first), ("boxes2", second)):
        if boxes.ndim not in (2, 3):
            raise ValueError(
                f"compute_iou() expects {name} to be batched (rank 3) or unbatched "
                f"(rank 2). Received {name}.shape={boxes.shape}"
            )
    if "rel" in bounding_box_format and image_shape is None:
        raise ValueError(
            "When using relative bounding box formats (e.g. `rel_yxyx`) the "
            f"`image_shape` argument must be provided. Received `image_shape`: "
            f"{image_shape}"
        )
    size = _image_size(image_shape)
    first = convert_format(first, bounding_box_format, "xyxy", *size)
    second = convert_format(second, bounding_box_format, "xyxy", *size)
    rows, columns = expand_dims(first, -2), expand_dims(second, -3)
    shared = _area(_intersection(split_up(rows), split_up(columns)))
    union = _area(split_up(rows)) + _area(split_up(columns)) - shared
    overlap = shared / (union + config.epsilon())
    if not use_masking:
        return overlap
    is_empty = [less(largest(boxes, axis=-1), 0.0) for boxes in (rows, columns)]
    return where(logical_or(*is_empty), float(mask_val), overlap)


def _intersection(first: list[Value], second: list[Value]) -> list[Value]:
    low = [maximum(first[i], second[i]) for i in (0, 1)]
    high = [maximum(minimum(first[i], second[i]), low[i - 2]) for i in (2, 3)]
    return [*low, *high]


def _area(corners: list[Value]) -> Value:
    x1, y1, x2, y2 = corners
    return (x2 - x1) * (y2 - y1)


@op
def compute_ciou(
    boxes1: Any, boxes2: Any, bounding_box_format: str, image_shape: Any = None
) -> Any:
    """Return the complete overlap of boxes, pair by pair.

    From the overlap as a part of the union it takes off how far the centres are apart
    and how the sides differ in proportion, so that its gradient is never zero.
    """
    if "rel" in bounding_box_format and image_shape is None:
        raise ValueError(
            "When using relative bounding box formats (e.g. `rel_yxyx`) the "
            f"`image_shape` argument must be provided. Received `image_shape`: "
            f"{image_shape}"
        )
    size, tiny = _image_size(image_shape), config.epsilon()
    first, second = (
        split_up(convert_format(boxes, bounding_box_format, "xyxy", *size))
        for boxes in (boxes1, boxes2)
    )
    widths = [box[2] - box[0] for box in (first, second)]
    heights = [box[3] - box[1] + tiny for box in (first, second)]
    shared = _area(_intersection(first, second))
    union = widths[0] * heights[0] + widths[1] * heights[1] - shared + tiny
    overlap = shared / (union + tiny)
    hull = [maximum(first[i], second[i]) - minimum(first[i - 2], second[i - 2])
            for i in (2, 3)]  # fmt: skip
    diagonal = hull[0] ** 2 + hull[1] ** 2 + tiny
    centers = [
        (first[i] + first[i + 2]) / 2.0 - (second[i] + second[i + 2]) / 2.0
        for i in (0, 1)
    ]
    distance = centers[0] ** 2 + centers[1] ** 2
    angles = [arctan(w / h) for w, h in zip(widths, heights, strict=True)]
    shape = (4 / math.pi**2) * (angles[1] - angles[0]) ** 2
    weight = shape / (shape - overlap + (1 + tiny))
    return overlap - (distance / diagonal + shape * weight)
