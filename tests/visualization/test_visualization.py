"""Boxes and masks on images, galleries of images: what is drawn, where, and written."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import numpy as np
import pytest

import ganglion

PIL = pytest.importorskip("PIL.Image")
drawing = ganglion.visualization
IMAGES = np.zeros((2, 40, 50, 3), "uint8")
BOXES = {"boxes": np.array([[[10, 5, 30, 25]], [[0, 0, 9, 9]]]),
         "labels": np.array([[1], [-1]])}  # fmt: skip
RED = (255, 0, 0)


def test_boxes_are_frames_and_those_of_label_minus_one_are_left_out() -> None:
    drawn = drawing.draw_bounding_boxes(IMAGES, BOXES, "xyxy", color=RED)
    assert (drawn.dtype, drawn.shape) == (np.uint8, IMAGES.shape)
    assert not IMAGES.any()
    assert not drawn[1].any()
    red = drawn[0, :, :, 0] == 255
    rows, columns = np.nonzero(red)
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (5, 25, 10, 30)
    assert red[5].sum() == 21
    assert red[15, 10:14].tolist() == [True, True, False, False]
    wide = drawing.draw_bounding_boxes(
        IMAGES.transpose(0, 3, 1, 2), BOXES, "xyxy", color=RED,
        data_format="channels_first",
    )  # fmt: skip
    np.testing.assert_array_equal(wide, drawn.transpose(0, 3, 1, 2))


def test_names_are_written_and_floats_become_bytes() -> None:
    floats = np.full(IMAGES.shape, 0.5, "float32")
    plain = drawing.draw_bounding_boxes(floats, BOXES, "xyxy", color=RED)
    assert plain[1, 20, 20].tolist() == [127, 127, 127]
    scored = {**BOXES, "confidences": np.array([[0.9], [0.1]])}
    named = drawing.draw_bounding_boxes(
        floats, scored, "xyxy", {1: "cat"}, color=RED, font_scale=0.5
    )
    assert (named != plain).sum() > 20
    grey = drawing.draw_bounding_boxes(IMAGES[..., :1], BOXES, "xyxy", color=RED)
    assert grey[0, 5, 10, 0] == 255


@pytest.mark.rivals
def test_masks_are_those_of_keras(keras: Any) -> None:
    rng = np.random.default_rng(2)
    images = rng.integers(0, 256, (2, 5, 6, 3)).astype("uint8")
    masks = rng.integers(0, 4, (2, 5, 6, 1))
    colors = {0: (1, 2, 3), 1: (255, 0, 9), 2: (0, 80, 0), 3: (9, 9, 9)}
    for arguments in (
        {}, {"num_classes": 4}, {"ignore_index": 2, "alpha": 0.3, "num_classes": 4},
        {"color_mapping": colors, "num_classes": 4}, {"blend": False},
    ):  # fmt: skip
        ours = drawing.draw_segmentation_masks(images, masks, **arguments)
        theirs = keras.visualization.draw_segmentation_masks(images, masks, **arguments)
        theirs = np.asarray(theirs)
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours.astype(float), theirs.astype(float), atol=1)
    first = drawing.draw_segmentation_masks(
        images.transpose(0, 3, 1, 2), masks.transpose(0, 3, 1, 2),
        data_format="channels_first",
    )  # fmt: skip
    np.testing.assert_array_equal(first, drawing.draw_segmentation_masks(images, masks))


def test_galleries_are_written(tmp_path: Any) -> None:
    images = np.random.default_rng(1).random((4, 8, 8, 3))
    path = tmp_path / "gallery.png"
    picture = drawing.plot_image_gallery(
        images, y_true=[0, 1, 0, 1], label_map={0: "cat", 1: "dog"}, value_range=(0, 1),
        path=path,
    )  # fmt: skip
    with PIL.open(path) as image:
        assert image.size == picture.size == (240, 2 * (120 + 15))
    boxes = {"boxes": np.array([[[1, 1, 5, 5]]] * 4), "labels": np.zeros((4, 1))}
    drawing.plot_bounding_box_gallery(
        images * 255, "xyxy", boxes, boxes, legend=True, path=tmp_path / "boxes.jpg"
    )
    with PIL.open(tmp_path / "boxes.jpg") as image:
        assert image.size[1] > 240
    masks = np.ones((4, 8, 8, 1))
    gallery = drawing.plot_segmentation_mask_gallery(
        images * 255, 3, y_true=masks, y_pred=masks, show=False, scale=1
    )
    assert gallery.size == (3 * 60, 4 * 60)


def test_misuse_is_named(monkeypatch: Any) -> None:
    with pytest.raises(ValueError, match="4D"):
        drawing.draw_bounding_boxes(IMAGES[0], BOXES, "xyxy")
    with pytest.raises(TypeError, match="dict"):
        drawing.draw_bounding_boxes(IMAGES, [1], "xyxy")
    with pytest.raises(ValueError, match="labels"):
        drawing.draw_bounding_boxes(IMAGES, {"boxes": 1}, "xyxy")
    with pytest.raises(TypeError, match="integer"):
        drawing.draw_segmentation_masks(IMAGES, np.zeros((2, 40, 50, 1)))
    with pytest.raises(ValueError, match="label_map"):
        drawing.plot_image_gallery(IMAGES, y_true=[1, 2], path="x.png")
    with pytest.raises(ValueError, match="either"):
        drawing.plot_image_gallery(IMAGES, path="x.png", show=True)
    if importlib.util.find_spec("matplotlib") is not None:
        monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match="matplotlib"):
        drawing.plot_image_gallery(IMAGES)
