"""Layers that change images at random: when they do, and with what numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ganglion as keras
from ganglion import config, layers
from ganglion.ops.image.resizing import INTERPOLATIONS, resizing_matrix
from ganglion.ops.sampling import FILL_MODES, Filling, affine
from ganglion.serialization import deserialize_keras_object, serialize_keras_object

IMAGES = np.random.default_rng(2).integers(0, 256, (6, 8, 9, 3)).astype("uint8")

MAKERS: list[Callable[..., Any]] = [
    lambda **k: layers.RandomFlip(**k),
    lambda **k: layers.RandomZoom(0.5, **k),
    lambda **k: layers.RandomZoom((-0.5, 0.2), 0.3, fill_mode="nearest", **k),
    lambda **k: layers.RandomRotation(0.2, fill_mode="constant", fill_value=3.0, **k),
    lambda **k: layers.RandomTranslation(0.3, 0.3, fill_mode="wrap", **k),
    lambda **k: layers.RandomShear(0.3, 0.2, interpolation="nearest", **k),
    lambda **k: layers.RandomCrop(5, 4, **k),
    lambda **k: layers.RandomContrast(0.8, **k),
    lambda **k: layers.RandomBrightness(0.5, **k),
    lambda **k: layers.RandomErasing(**k),
    lambda **k: layers.RandomPerspective(**k),
    lambda **k: layers.RandomElasticTransform(**k),
    lambda **k: layers.RandomGaussianBlur(**k),
    lambda **k: layers.RandomSharpness(0.9, **k),
    lambda **k: layers.RandomHue(0.9, **k),
    lambda **k: layers.RandomSaturation(0.4, **k),
    lambda **k: layers.RandomPosterization(5, **k),
    lambda **k: layers.RandomColorDegeneration(0.9, **k),
    lambda **k: layers.RandomColorJitter((0, 255), 0.3, 0.3, 0.3, 0.3, **k),
    lambda **k: layers.RandomGrayscale(0.5, **k),
    lambda **k: layers.RandomInvert((0.3, 0.7), **k),
    lambda **k: layers.Solarization(0.4, 0.4, **k),
    lambda **k: layers.MixUp(**k),
    lambda **k: layers.CutMix(**k),
]
each_layer = pytest.mark.parametrize("make", MAKERS)


@each_layer
def test_same_seed_same_images_and_the_next_call_draws_anew(make: Any) -> None:
    first, second = make(seed=5), make(seed=5)
    item = first(IMAGES, training=True)
    np.testing.assert_array_equal(item, second(IMAGES, training=True))
    assert not np.array_equal(item, first(IMAGES, training=True))
    assert not np.array_equal(item, make(seed=6)(IMAGES, training=True))


@each_layer
def test_called_alone_it_is_at_work_and_in_inference_it_is_not(make: Any) -> None:
    layer = make(seed=5)
    still = layer(IMAGES, training=False)
    assert still.dtype == np.float32
    if layer.compute_output_shape((None, 8, 9, 3)) == (None, 8, 9, 3):
        np.testing.assert_array_equal(still, IMAGES)
    np.testing.assert_array_equal(layer(IMAGES), make(seed=5)(IMAGES, training=True))
    # Compiled code and NumPy, which computes eager calls, may round differently.
    model = keras.Sequential([keras.Input((8, 9, 3)), make(seed=5)])
    np.testing.assert_allclose(model.predict(IMAGES, verbose=0), still, rtol=1e-6)
    drawn = model(IMAGES.astype("float32"))
    expected = make(seed=5)(IMAGES, training=True)
    np.testing.assert_allclose(drawn, expected, rtol=1e-6)


@each_layer
def test_single_images_and_round_trips(make: Any) -> None:
    layer = make(seed=5)
    alone = layer(IMAGES[0], training=True)
    np.testing.assert_array_equal(alone, make(seed=5)(IMAGES[:1], training=True)[0])
    text = json.dumps(serialize_keras_object(layer))
    loaded = deserialize_keras_object(json.loads(text))
    assert json.dumps(serialize_keras_object(loaded)) == text
    np.testing.assert_array_equal(
        loaded(IMAGES, training=True), make(seed=5)(IMAGES, training=True)
    )
    with pytest.raises(TypeError, match="no_such_argument"):
        type(layer)(**layer.get_config(), no_such_argument=1)


@each_layer
def test_a_compiled_step_draws_what_numpy_draws(make: Any) -> None:
    pytest.importorskip("llvmlite")

    class Watching(layers.Layer):
        def build(self, shape: Any) -> None:
            self.seen = self.add_weight(self.kept, "zeros", trainable=False)

        def call(self, x: Any) -> Any:
            self.seen.assign(x)
            return x

    def trained(backend: str) -> np.ndarray:
        config.set_backend(backend)
        keras.utils.set_random_seed(1)
        watching = Watching()
        moved = make(seed=5)
        watching.kept = (6, *moved.compute_output_shape((6, 8, 9, 3))[1:])
        stack = [moved, watching, layers.Flatten(), layers.Dense(1)]
        model = keras.Sequential([keras.Input((8, 9, 3), batch_size=6), *stack])
        model.compile(keras.optimizers.SGD(1e-6), "mse")
        model.fit(IMAGES, np.zeros(6), batch_size=6, epochs=2, shuffle=False, verbose=0)
        return watching.seen.numpy()

    plain = trained("numpy")
    expected = make(seed=5)
    expected(IMAGES, training=True)  # the first epoch's
    np.testing.assert_array_equal(plain, expected(IMAGES, training=True))
    np.testing.assert_allclose(trained("cpu"), plain, rtol=0, atol=255 * 1e-4)


def test_a_resumed_run_goes_on_with_the_next_numbers(tmp_path: Any) -> None:
    def model() -> Any:
        keras.utils.set_random_seed(3)
        stack = [layers.RandomFlip(), layers.RandomZoom(0.4), layers.Flatten()]
        result = keras.Sequential([keras.Input((8, 9, 3)), *stack, layers.Dense(1)])
        result.compile(keras.optimizers.SGD(1e-6), "mse")
        return result

    y = np.arange(6.0)
    full = model()
    full.fit(IMAGES, y, batch_size=4, epochs=4, verbose=0)
    half = model()
    half.fit(IMAGES, y, batch_size=4, epochs=2, verbose=0)
    half.save(tmp_path / "half.keras")
    resumed = keras.models.load_model(tmp_path / "half.keras")
    resumed.fit(IMAGES, y, batch_size=4, epochs=4, initial_epoch=2, verbose=0)
    for item, two in zip(full.get_weights(), resumed.get_weights(), strict=True):
        np.testing.assert_array_equal(item, two)


@pytest.mark.parametrize("mode", FILL_MODES)
@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
def test_shifts_by_whole_pixels_show_what_lies_outside(
    mode: str, interpolation: str
) -> None:
    row = np.arange(1.0, 5.0, dtype="float32").reshape(1, 1, 4, 1)
    filling = Filling(mode, 9.0)
    moved = [
        affine(row, (1.0, None, float(by)), (None, 1.0, 0.0), filling, interpolation)
        for by in (-3, 6)
    ]
    beyond = {
        "nearest": ([1, 1, 1, 1], [4, 4, 4, 4]),
        "constant": ([9, 9, 9, 1], [9, 9, 9, 9]),
        "reflect": ([3, 2, 1, 1], [2, 1, 1, 2]),
        "wrap": ([2, 3, 4, 1], [3, 4, 1, 2]),
    }
    assert [item.ravel().tolist() for item in moved] == list(beyond[mode])


def test_a_step_stores_the_batch_and_the_result_and_nothing_between() -> None:
    from ganglion import recipes
    from ganglion.cli import dump
    from ganglion.compiler.cpu.pipeline import build

    program = dump.program_of(recipes.get("cifar10-cam"), "train", 16)
    plan = build(program)
    written = [write for kernel in plan.kernels for write in kernel.writes()]
    conv = next(i for i, item in enumerate(written) if item.shape == (16, 32, 32, 32))
    images = {item for item in written[:conv] if item.shape[:1] == (16,)}
    large = {item for item in images if item.size >= 16 * 32 * 32 * 3}
    # The batch, flipped; the result; and the result again, padded for the convolution.
    assert len(large) == 3, [str(item) for item in large]


def test_no_operations_change_nothing() -> None:
    images = np.random.default_rng(1).random((2, 4, 4, 3)).astype("float32")
    np.testing.assert_array_equal(layers.RandAugment(num_ops=0)(images), images)


def test_dictionaries_go_through_and_boxes_need_a_format() -> None:
    layer = layers.RandomFlip("horizontal", seed=5)
    masks = IMAGES[..., :1]
    data = {"images": IMAGES, "labels": np.arange(6), "segmentation_masks": masks}
    result = layer(data, training=True)
    np.testing.assert_array_equal(result["labels"], np.arange(6))
    np.testing.assert_array_equal(
        result["images"][..., :1], result["segmentation_masks"]
    )
    with pytest.raises(ValueError, match="bounding_box_format"):
        layer({"images": IMAGES, "bounding_boxes": np.zeros((6, 1, 4))})


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: layers.RandomFlip("sideways"), "mode"),
        (lambda: layers.RandomZoom(1.5), "height_factor"),
        (lambda: layers.RandomZoom((-1.0, 0.0)), "above -1"),
        (lambda: layers.RandomZoom(0.1, fill_mode="mirror"), "fill_mode"),
        (lambda: layers.RandomRotation(0.1, interpolation="cubic"), "interpolation"),
        (lambda: layers.RandomContrast(-0.1), "factor"),
        (lambda: layers.RandomBrightness(0.1, value_range=3), "value_range"),
        (lambda: layers.RandomErasing(fill_value="red"), "fill_value"),
        (lambda: layers.RandomShear(2.0), "x_factor"),
        (lambda: layers.RandomCrop(0, 3), "height"),
        (lambda: layers.RandomFlip(data_format="channels_second"), "channels_first"),
        (lambda: layers.RandomGaussianBlur(kernel_size=4), "odd"),
        (lambda: layers.RandomPerspective(scale=2), "scale"),
        (lambda: layers.RandomGrayscale(1.5), "factor"),
        (lambda: layers.RandomPosterization(9), "factor"),
        (lambda: layers.Pipeline.from_config({"layers": 3}), "layers"),
        (lambda: layers.Resizing(2, 2, fill_mode="wrap"), "fill_mode"),
        (lambda: layers.RandomFlip()(np.zeros((3, 3))), "rows, columns, channels"),
    ],
)
def test_misuse_is_named(make: Callable[[], Any], told: str) -> None:
    with pytest.raises((ValueError, NotImplementedError), match=told):
        make()


@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_resizing_weights_add_up_to_one(interpolation: str) -> None:
    for size, target in ((5, 9), (9, 4), (3, 3)):
        matrix = resizing_matrix(size, target, interpolation)
        np.testing.assert_allclose(matrix.sum(axis=1), 1)
        np.testing.assert_allclose(matrix, matrix[::-1, ::-1], atol=1e-12)
