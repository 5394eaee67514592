"""Layers in functions that TensorFlow traces, as those of `tf.data.Dataset.map`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ganglion import layers, tensors, tree
from ganglion.utils import FeatureSpace

pytestmark = pytest.mark.rivals
IMAGES = np.random.default_rng(3).random((4, 6, 5, 3)).astype("float32")
BOXES = {
    "images": IMAGES,
    "bounding_boxes": {
        "boxes": np.tile(np.float32([[1, 1, 4, 4]]), (4, 1, 1)),
        "labels": np.ones((4, 1), "int64"),
    },
}
WORDS = np.array(["a", "b", "c", "a"])
SIZES = {"bounding_box_format": "xyxy"}
CASES: list[tuple[layers.Layer, Any]] = [
    (layers.Resizing(4, 4), IMAGES),
    (layers.CenterCrop(4, 4, **SIZES), BOXES),
    (layers.CategoryEncoding(4), np.array([[0, 1], [2, 2], [3, 0], [1, 1]])),
    (layers.StringLookup(vocabulary=["a", "b"]), WORDS),
    (layers.StringLookup(vocabulary=["a"], output_mode="one_hot"), WORDS),
    (layers.TextVectorization(vocabulary=["a"], output_sequence_length=2), WORDS),
    (layers.HashedCrossing(5), (WORDS, np.arange(4))),
    (layers.Dense(2), IMAGES),
]


@pytest.fixture(scope="module")
def tf() -> Any:
    return pytest.importorskip("tensorflow")


@pytest.mark.parametrize(("layer", "data"), CASES)
def test_mapped_over_a_data_set(tf: Any, layer: Any, data: Any) -> None:
    batches = tf.data.Dataset.from_tensor_slices(data).batch(3, drop_remainder=True)
    mapped = batches.map(lambda *parts: layer(parts if len(parts) > 1 else parts[0]))
    output = next(iter(mapped))
    expected = layer(tree.map_leaves(lambda array: array[:3], data))
    for ours, theirs in zip(tree.flatten(expected), tree.flatten(output), strict=True):
        assert isinstance(ours, tensors.Tensor)
        np.testing.assert_array_equal(ours, theirs.numpy())
    for spec, part in zip(
        tree.flatten(mapped.element_spec), tree.flatten(output), strict=True
    ):
        assert (spec.shape, spec.dtype) == (part.shape, part.dtype)


def test_random_layers_draw_anew(tf: Any) -> None:
    images = tf.data.Dataset.from_tensors(IMAGES).repeat(3)
    first, second, third = images.map(layers.RandomTranslation(0.4, 0.4, seed=1))
    assert not np.allclose(first, second)
    assert not np.allclose(second, third)


def test_methods_that_transform(tf: Any) -> None:
    layer = layers.RandomFlip("horizontal", **SIZES)
    drawn = {"flips": np.array([[True]]), "input_shape": (6, 5, 3)}
    boxes = {"boxes": np.float32([[0, 1, 2, 3]]), "labels": np.array([7])}
    data = tf.data.Dataset.from_tensors(boxes)
    (moved,) = data.map(lambda each: layer.transform_bounding_boxes(each, drawn))
    for result in (moved, layer.transform_bounding_boxes(boxes, drawn)):
        np.testing.assert_allclose(result["boxes"], [[3, 1, 5, 3]])
        np.testing.assert_array_equal(result["labels"], [7])


def test_feature_space(tf: Any) -> None:
    space = FeatureSpace({"word": "string_categorical", "size": "float"})
    columns = {"word": WORDS, "size": np.arange(4, dtype="float32")}
    space.adapt(columns)
    rows = tf.data.Dataset.from_tensor_slices(columns)
    for data in (rows.map(space).batch(4), rows.batch(4).map(space)):
        np.testing.assert_array_equal(next(iter(data)), space(columns))


def test_unknown_ranks_are_refused(tf: Any) -> None:
    data = tf.data.Dataset.from_generator(lambda: [IMAGES], output_types="float32")
    with pytest.raises(ValueError, match="unknown rank"):
        data.map(layers.Rescaling(2.0))
