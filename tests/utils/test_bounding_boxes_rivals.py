"""`keras.utils.bounding_boxes` against Keras: the same boxes, the same overlaps."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import ganglion
from ganglion import tree
from ganglion.ops.boxes import FORMATS

pytestmark = pytest.mark.rivals

RNG = np.random.default_rng(3)
OURS = ganglion.utils.bounding_boxes
CORNERS = RNG.random((2, 3, 2), "float32") * 60
BOXES = np.concatenate([CORNERS, CORNERS + RNG.random((2, 3, 2), "float32") * 40], -1)
LABELS = np.arange(6).reshape(2, 3)
SIZE = {"height": 80, "width": 70}
NUMBERS = np.array([0.2, -0.4], "float32")


def same(keras: Any, name: str, *args: Any, **kwargs: Any) -> None:
    def copied(value: Any) -> Any:
        return tree.map_leaves(lambda leaf: leaf, value)

    ours = tree.flatten(getattr(OURS, name)(*copied(args), **copied(kwargs)))
    theirs = getattr(keras.utils.bounding_boxes, name)(*copied(args), **copied(kwargs))
    theirs = [keras.ops.convert_to_numpy(leaf) for leaf in keras.tree.flatten(theirs)]
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        assert (mine.dtype, mine.shape) == (other.dtype, other.shape), (name, kwargs)
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-4)


def test_every_format_from_every_other(keras: Any) -> None:
    for source, target in itertools.product(FORMATS, FORMATS):
        same(keras, "convert_format", BOXES, source, target, **SIZE)
    same(keras, "convert_format", BOXES[0].astype("int64"), "XYXY", "center_XYWH")
    both = {"boxes": BOXES, "labels": LABELS}
    same(keras, "convert_format", both, "xyxy", "rel_yxyx", **SIZE)


def test_what_moves_boxes(keras: Any) -> None:
    both = {"boxes": BOXES * 1.5 - 20, "labels": LABELS}
    same(keras, "clip_to_image_size", both, **SIZE)
    parts = {"boxes": BOXES / 60 - 0.2, "labels": LABELS}
    same(keras, "clip_to_image_size", parts, bounding_box_format="rel_xyxy")
    same(keras, "crop", BOXES, 10, 20, 40, 30)
    same(keras, "pad", BOXES[0], 3, 5)
    arguments = (
        NUMBERS * 100, NUMBERS, NUMBERS[::-1].copy(), 1 + NUMBERS, NUMBERS * 30,
        NUMBERS * -20, 80, 70,
    )  # fmt: skip
    same(keras, "affine_transform", BOXES, *arguments)
    same(keras, "affine_transform", BOXES, *arguments, center_x=0.3, center_y=0.8)


def test_anchors_and_deltas(keras: Any) -> None:
    anchors, shape = BOXES[1][:, ::-1].copy() * 0 + BOXES[1] + 1, (80, 70, 3)
    for encoding in ("center_xywh", "center_yxhw"):
        arguments = (anchors, BOXES, "xyxy", "xyxy", encoding)
        same(keras, "encode_box_to_deltas", *arguments)
        same(keras, "encode_box_to_deltas", *arguments, variance=[0.1, 0.1, 0.2, 0.2])
    deltas = OURS.encode_box_to_deltas(anchors, BOXES, "xyxy", "xyxy")
    back = OURS.decode_deltas_to_boxes(anchors, deltas, "xyxy", "xyxy")
    np.testing.assert_allclose(back, BOXES, rtol=1e-4)
    arguments = (anchors, deltas, "xywh", "rel_xyxy", "center_xywh")
    same(keras, "decode_deltas_to_boxes", *arguments, None, shape)
    levels = ({"P3": anchors}, {"P3": deltas}, "xyxy", "xyxy")
    same(keras, "decode_deltas_to_boxes", *levels, variance=[0.1, 0.1, 0.2, 0.2])


def test_overlaps(keras: Any) -> None:
    other = BOXES[:, ::-1].copy() + 3
    masked = np.concatenate([other, np.full((2, 1, 4), -1, "float32")], axis=1)
    for first, second in ((BOXES, other), (BOXES[0], other[0]), (BOXES, other[0])):
        same(keras, "compute_iou", first, second, "xyxy")
    same(keras, "compute_iou", BOXES, masked, "yxyx", use_masking=True, mask_val=-2)
    same(
        keras, "compute_iou", BOXES / 80, other / 80, "rel_xyxy", image_shape=(9, 8, 3)
    )
    same(keras, "compute_ciou", BOXES, other, "xyxy")
    same(keras, "compute_ciou", BOXES[0], other[0], "center_xywh")


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("convert_format", (BOXES[..., :3], "xyxy", "xywh"), "last dimension of 4"),
        ("convert_format", (BOXES, "xyxy", "abcd"), "Supported formats"),
        ("convert_format", (BOXES, "xyxy", "rel_xyxy"), "`height` and `width`"),
        ("clip_to_image_size", ({"boxes": BOXES},), "must be set"),
        ("compute_iou", (BOXES[None], BOXES, "xyxy"), "boxes1"),
        ("compute_iou", (BOXES, BOXES, "rel_xyxy"), "image_shape"),
        ("encode_box_to_deltas", (BOXES, BOXES, "xyxy", "xyxy", "xyxy"), "encoding"),
    ],
)
def test_refusals(name: str, arguments: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        getattr(OURS, name)(*arguments)


def test_keras_tensors_go_through() -> None:
    boxes = ganglion.KerasTensor((None, 5, 4))
    assert OURS.convert_format(boxes, "xyxy", "xywh").shape == (None, 5, 4)
    assert OURS.compute_iou(boxes, boxes, "xyxy").shape == (None, 5, 5)
    with pytest.raises(NotImplementedError, match="convert_format"):
        OURS.crop(BOXES, 1, 2, 3, 4, bounding_box_format="xywh")
