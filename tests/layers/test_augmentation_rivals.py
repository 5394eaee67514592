"""Image layers against Keras: both do what Keras draws, to all of a dictionary."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ganglion
from ganglion import layers, tree

pytestmark = [pytest.mark.rivals]

RNG = np.random.default_rng(7)
IMAGES = RNG.integers(0, 256, (5, 9, 12, 3)).astype("float32")
MASKS = RNG.integers(0, 4, (5, 9, 12, 1)).astype("float32")
LABELS = np.eye(5, dtype="float32")
CORNERS = RNG.random((5, 3, 2), "float32") * np.array([7, 5], "float32")
BOXES = np.concatenate([CORNERS, CORNERS + 1 + RNG.random((5, 3, 2)) * 3], -1)
BOXES = BOXES.astype("float32")
NAMES = np.arange(15).reshape(5, 3)

CASES: list[tuple[str, dict[str, Any]]] = [
    ("RandomFlip", {}),
    ("RandomFlip", {"mode": "vertical"}),
    ("RandomZoom", {"height_factor": 0.4, "width_factor": (-0.3, 0.2)}),
    ("RandomTranslation", {"height_factor": 0.4, "width_factor": 0.3}),
    ("RandomRotation", {"factor": 0.3, "fill_mode": "constant"}),
    ("RandomShear", {"x_factor": 0.4, "y_factor": 0.2}),
    ("RandomPerspective", {"scale": 0.4, "factor": (0.4, 0.9)}),
    ("RandomCrop", {"height": 6, "width": 6}),
    ("CenterCrop", {"height": 5, "width": 6}),
    ("CenterCrop", {"height": 14, "width": 6}),
    ("Resizing", {"height": 6, "width": 20}),
    ("Resizing", {"height": 6, "width": 20, "crop_to_aspect_ratio": True}),
    ("Resizing", {"height": 10, "width": 20, "pad_to_aspect_ratio": True}),
    ("RandomBrightness", {"factor": 0.4}),
    ("RandomContrast", {"factor": 0.7}),
    ("RandomColorDegeneration", {"factor": 0.7}),
    ("RandomHue", {"factor": 0.7}),
    ("RandomHue", {"factor": (0.2, 0.7), "value_range": (0, 300)}),
    ("RandomSaturation", {"factor": (0.2, 0.9)}),
    ("RandomSharpness", {"factor": 0.9}),
    ("RandomGaussianBlur", {"kernel_size": 5, "factor": (0.4, 0.9)}),
    ("RandomInvert", {"factor": (0.4, 0.9)}),
    ("RandomPosterization", {"factor": 5}),
    ("RandomPosterization", {"factor": (3, 3), "value_range": (0, 260)}),
    ("Solarization", {"addition_factor": 0.3, "threshold_factor": (0.2, 0.7)}),
    ("AutoContrast", {"value_range": (0, 300)}),
    ("Equalization", {}),
    ("Equalization", {"bins": 16, "value_range": (0, 300)}),
    ("ContrastLimitedAdaptiveHistogramEqualization", {"tile_grid_size": (2, 3)}),
    (
        "ContrastLimitedAdaptiveHistogramEqualization",
        {"tile_grid_size": (4, 4), "clip_limit": 0},
    ),
    ("MixUp", {}),
    ("CutMix", {}),
    ("RandomErasing", {"fill_value": 9.0}),
    ("MaxNumBoundingBoxes", {"max_number": 2}),
    ("MaxNumBoundingBoxes", {"max_number": 5, "fill_value": -3}),
    ("RandAugment", {"num_ops": 3}),
    ("AugMix", {}),
    ("AugMix", {"all_ops": False, "num_chains": 2}),
]
# Where Keras leaves its own definition, and what is not compared for it.
ODD = {
    "RandomCrop": {"boxes"},  # shifts columns by the row of the window, and reverse
    "MixUp": {"boxes", "masks"},  # joins labels along the batch, flattens masks
    "CutMix": {"boxes", "masks"},  # takes no boxes, masks with as many channels only
    "ContrastLimitedAdaptiveHistogramEqualization": {"boxes", "masks", "labels"},
    "RandAugment": {"boxes"},  # moves boxes by each layer of the kind, once
}
# Layers that take no layout, or do not keep to it.
LAST_ONLY = ("AutoContrast", "AugMix", "RandAugment")


def first(images: np.ndarray) -> np.ndarray:
    return np.moveaxis(images, -1, 1).copy()


def both(keras: Any, name: str, arguments: dict[str, Any], **more: Any) -> list[Any]:
    more = {"bounding_box_format": "xyxy", **arguments, **more}
    return [getattr(room, name)(**more) for room in (layers, keras.layers)]


def plain(keras: Any, drawn: Any) -> Any:
    """Return what Keras drew as arrays, which both take."""

    def array(leaf: Any) -> Any:
        return np.asarray(leaf) if hasattr(leaf, "numpy") else leaf

    return keras.tree.map_structure(array, drawn)


def close(keras: Any, ours: Any, theirs: Any, told: Any) -> None:
    pairs = zip(tree.flatten(ours), keras.tree.flatten(theirs), strict=True)
    for mine, other in pairs:
        mine, other = np.asarray(mine), np.asarray(keras.ops.convert_to_numpy(other))
        assert mine.shape == other.shape, told
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=0.02, err_msg=str(told))


@pytest.mark.parametrize("layout", ["channels_last", "channels_first"])
def test_what_keras_draws_is_done_alike(keras: Any, layout: str) -> None:
    keras.utils.set_random_seed(4)
    is_first = layout == "channels_first"
    images, masks = (first(x) if is_first else x for x in (IMAGES, MASKS))
    for name, arguments in CASES:
        if is_first and name in LAST_ONLY:
            continue
        ours, theirs = both(keras, name, arguments, data_format=layout)
        drawn = plain(keras, theirs.get_random_transformation(images, training=True))
        told, odd = (name, arguments, layout), ODD.get(name, set())
        for kind, x in (("images", images), ("labels", LABELS)):
            if kind in odd:  # Keras refuses them
                continue
            transform = f"transform_{kind}"
            mine = getattr(ours, transform)(x, drawn, training=True)
            other = getattr(theirs, transform)(x, drawn, training=True)
            close(keras, mine, other, (*told, kind))
        if "masks" not in odd:
            mine = ours.transform_segmentation_masks(masks, drawn)
            other = theirs.transform_segmentation_masks(masks, drawn)
            close(keras, mine, other, (*told, "masks"))
        if "boxes" not in odd:
            boxes = {"boxes": BOXES, "labels": NAMES}
            mine = ours.transform_bounding_boxes(dict(boxes), drawn)
            as_tensors = {k: keras.ops.convert_to_tensor(v) for k, v in boxes.items()}
            other = theirs.transform_bounding_boxes(as_tensors, drawn)
            close(keras, mine, other, (*told, "boxes"))


def test_grey_images_are_keras_grey(keras: Any) -> None:
    ours, theirs = both(keras, "RandomGrayscale", {"factor": 0.5, "seed": 1})
    drawn = np.asarray(theirs.get_random_transformation(IMAGES))
    close(
        keras,
        ours.transform_images(IMAGES, drawn),
        theirs.transform_images(IMAGES, drawn),
        "RandomGrayscale",
    )


def test_a_dictionary_goes_through_every_layer() -> None:
    data = {
        "images": IMAGES,
        "labels": LABELS,
        "segmentation_masks": MASKS,
        "bounding_boxes": {"boxes": BOXES, "labels": NAMES},
        "more": np.arange(5),
    }
    cases = [*CASES, ("RandomElasticTransform", {}), ("RandomGrayscale", {}),
             ("RandomColorJitter", {"hue_factor": 0.3})]  # fmt: skip
    for name, arguments in cases:
        layer = getattr(layers, name)(bounding_box_format="xywh", **arguments)
        given = dict(data)
        if name == "CutMix":
            del given["bounding_boxes"]
        outputs = layer(given)
        assert list(outputs) == list(given), name
        size = outputs["images"].shape[1:3]
        assert outputs["segmentation_masks"].shape == (5, *size, 1), name
        assert data["images"] is IMAGES
        single = layer(tree.map_leaves(lambda x: x[0], given))
        assert single["images"].shape == outputs["images"].shape[1:], name
        if name != "CutMix":
            assert single["bounding_boxes"]["boxes"].ndim == 2
        shapes = [tuple(x.shape) for x in tree.flatten(outputs)]
        symbols = tree.map_leaves(
            lambda x: ganglion.KerasTensor((None, *x.shape[1:]), x.dtype), given
        )
        drawn = [tuple(x.shape) for x in tree.flatten(layer(symbols))]
        if name != "MixUp":  # gives each image twice the boxes, in training only
            assert [s[1:] for s in drawn] == [s[1:] for s in shapes], name


def test_rescaling_by_channel_keeps_to_the_layout(keras: Any) -> None:
    rooms = (ganglion, keras)
    try:
        for room in rooms:
            room.config.set_image_data_format("channels_first")
        made = [room.layers.Rescaling([1.0, 2.0, 3.0], 1.0) for room in rooms]
        close(keras, made[0](first(IMAGES)), made[1](first(IMAGES)), "Rescaling")
    finally:
        for room in rooms:
            room.config.set_image_data_format("channels_last")


def test_boxes_as_lists_of_many_lengths() -> None:
    layer = layers.MaxNumBoundingBoxes(2, bounding_box_format="xyxy")
    boxes = {
        "boxes": [[[1, 2, 3, 4]], [], [[1, 1, 2, 2]] * 3],
        "labels": [[4], [], [5] * 3],
    }
    result = layer({"images": IMAGES[:3], "bounding_boxes": boxes})["bounding_boxes"]
    assert result["labels"].tolist() == [[4, -1], [-1, -1], [5, 5]]
    assert result["boxes"].shape == (3, 2, 4)


def test_a_pipeline_is_saved_and_passes_training_on() -> None:
    steps = layers.Pipeline([layers.Rescaling(1 / 255), layers.RandomFlip(seed=3)])
    again = layers.Pipeline.from_config(steps.get_config())
    assert [type(layer) for layer in again.layers] == [type(x) for x in steps.layers]
    np.testing.assert_allclose(steps(IMAGES, training=False), IMAGES / 255, rtol=1e-6)
    np.testing.assert_array_equal(
        layers.Pipeline.from_config(steps.get_config())(IMAGES), again(IMAGES)
    )


def test_mixes_are_fair() -> None:
    ones = np.arange(200, dtype="float32").reshape(-1, 1, 1, 1) * np.ones((1, 6, 6, 1))
    labels = np.eye(200, dtype="float32")
    for layer in (layers.MixUp(0.5, seed=2), layers.CutMix(seed=2)):
        mixed = layer({"images": ones.astype("float32"), "labels": labels})
        np.testing.assert_allclose(mixed["labels"].sum(1), 1, rtol=1e-5)
        own = np.diag(np.asarray(mixed["labels"]))
        assert 0.35 < own.mean() < 0.65
    # MixUp: what is left of an image is what is left of its label.
    blend = layers.MixUp(0.5, seed=2)({"images": ones, "labels": labels})
    expected = np.asarray(blend["labels"]) @ np.arange(200)
    np.testing.assert_allclose(blend["images"][:, 0, 0, 0], expected, rtol=1e-3)


def test_elastic_distortion_bends_images_and_masks_alike() -> None:
    layer = layers.RandomElasticTransform((1, 1), (1, 1), "nearest", seed=2)
    large = RNG.integers(0, 4, (2, 64, 64, 1)).astype("float32")
    outputs = layer({"images": large, "segmentation_masks": large})
    np.testing.assert_array_equal(outputs["images"], outputs["segmentation_masks"])
    assert not np.array_equal(outputs["images"], large)
