"""`ImageDataGenerator` in `fit`: inside of the step, repeated, resumed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ganglion as keras
from ganglion import config, layers
from ganglion.compat.image_generator import ImageDataGenerator
from ganglion.training import data_adapters
from ganglion.training.data_adapters import Table
from ganglion.training.streams import Stream

X = np.random.default_rng(1).integers(0, 256, (22, 6, 6, 3)).astype("uint8")
Y = np.arange(22) % 3


def model() -> Any:
    keras.utils.set_random_seed(2)
    stack = [layers.Conv2D(4, 3), layers.Flatten(), layers.Dense(3, "softmax")]
    model = keras.Sequential([keras.Input((6, 6, 3)), *stack])
    model.compile(keras.optimizers.SGD(0.01), "sparse_categorical_crossentropy")
    return model


def generator(**more: Any) -> ImageDataGenerator:
    arguments = {"zoom_range": 0.5, "horizontal_flip": True, "rescale": 1 / 255}
    return ImageDataGenerator(**arguments | more)


def equal(first: Any, second: Any) -> bool:
    pairs = zip(first.get_weights(), second.get_weights(), strict=True)
    return all(np.array_equal(a, b) for a, b in pairs)


def test_zoom_is_keras_2s() -> None:
    drawn = ImageDataGenerator(zoom_range=0.5).get_random_transform((6, 6, 3), 1)
    assert drawn["zx"] != drawn["zy"]
    batch = ImageDataGenerator(zoom_range=0.5).drawn(1000, (6, 6, 3), 1)
    for name in ("zx", "zy"):
        assert 0.5 <= batch[name].min() < 0.51 < 1.49 < batch[name].max() <= 1.5
    single = ImageDataGenerator(zoom_range=(0.2, 0.4)).drawn(1000, (6, 6, 3), 1)["zx"]
    assert 0.2 <= single.min() < single.max() <= 0.4


def test_fit_takes_rows_and_changes_them_in_the_step() -> None:
    network = model()
    batches = generator().flow(X, Y, batch_size=8)
    source = data_adapters.training_source(network, batches, None, None, None, True, {})
    assert isinstance(source, Table)
    assert np.shares_memory(source.columns[0][1], X)  # no copy, and no floats
    assert (source.batch_size, source.shuffle) == (8, True)
    own = generator(preprocessing_function=lambda x: x)
    source = data_adapters.training_source(
        network, own.flow(X, Y), None, None, None, True, {}
    )
    assert isinstance(source, Stream)


@pytest.mark.parametrize("seed", [None, 5])
def test_a_run_repeats_and_resumes(seed: Any, tmp_path: Any) -> None:
    def run(network: Any, first: int, epochs: int) -> Any:
        batches = generator(rotation_range=20).flow(X, Y, batch_size=8, seed=seed)
        network.fit(batches, epochs=epochs, initial_epoch=first, verbose=0)
        return network

    full_run = run(model(), 0, 4)
    assert equal(full_run, run(model(), 0, 4))
    half = run(model(), 0, 2)
    assert not equal(full_run, half)
    half.save(tmp_path / "half.keras")
    assert equal(full_run, run(keras.models.load_model(tmp_path / "half.keras"), 2, 4))


def test_backends_agree() -> None:
    pytest.importorskip("llvmlite")
    losses = []
    for backend in ("numpy", "cpu"):
        config.set_backend(backend)
        batches = generator(brightness_range=(0.5, 1.5), shear_range=9.0).flow(X, Y, 8)
        losses.append(model().fit(batches, epochs=3, verbose=0).history["loss"])
    np.testing.assert_allclose(*losses, rtol=1e-4)


def test_a_step_is_shared_by_equal_flows_and_forgotten_when_settings_change() -> None:
    network, source = model(), generator()
    for _ in range(2):
        network.fit(source.flow(X[:16], Y[:16], batch_size=8), verbose=0)
    assert len(network._step_cache._steps) == 1
    source.rescale = 1.0
    network.fit(source.flow(X[:16], Y[:16], batch_size=8), verbose=0)
    assert len(network._step_cache._steps) == 2


@pytest.mark.filterwarnings("ignore::ganglion.keras2.Keras2Warning")
def test_old_names_of_fit() -> None:
    network, plain = model(), ImageDataGenerator(rescale=1 / 255)
    history = network.fit_generator(
        generator().flow(X, Y, batch_size=8),
        steps_per_epoch=2,
        epochs=3,
        verbose=0,
        validation_data=plain.flow(X, Y, batch_size=5),
    )
    loss = network.evaluate_generator(plain.flow(X, Y, batch_size=4, shuffle=False))
    predictions = network.predict_generator(plain.flow(X, batch_size=4, shuffle=False))
    assert len(history.history["val_loss"]) == 3
    scaled = X / np.float32(255)
    assert loss == pytest.approx(network.evaluate(scaled, Y, verbose=0), rel=1e-5)
    np.testing.assert_allclose(
        predictions, network.predict(scaled, verbose=0), atol=1e-5
    )
    assert history.history["val_loss"][-1] == pytest.approx(loss, rel=1e-5)


def test_weights_of_rows_and_of_classes() -> None:
    weights = np.linspace(0, 1, 22)
    first, second = model(), model()
    plain = ImageDataGenerator()
    first.fit(plain.flow(X, Y, sample_weight=weights, shuffle=False), verbose=0)
    second.fit(X.astype("float32"), Y, sample_weight=weights, shuffle=False, verbose=0)
    for a, b in zip(first.get_weights(), second.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_batches_by_number_and_one_after_the_other() -> None:
    batches = generator().flow(X, Y, batch_size=8, seed=3)
    assert len(batches) == 3
    first = [next(batches) for _ in range(4)]
    assert [len(y) for _, y in first] == [8, 8, 6, 8]
    seen = np.concatenate([y for _, y in first[:3]])
    assert sorted(seen) == sorted(Y)
    again = generator().flow(X, Y, batch_size=8, seed=3)
    for (x, y), (x2, y2) in zip(first, (next(again) for _ in range(4)), strict=True):
        np.testing.assert_array_equal(x, x2)
        np.testing.assert_array_equal(y, y2)
    assert not np.array_equal(first[0][0], first[3][0])
    with pytest.raises(IndexError, match="no batch 3"):
        batches[3]


def test_misc_inputs_subsets_and_files(tmp_path: Any) -> None:
    pytest.importorskip("PIL")
    split = generator(validation_split=0.5)
    (_, extra), y = split.flow((X, [Y * 2]), Y, batch_size=4, shuffle=False)[0]
    np.testing.assert_array_equal(extra, 2 * y)
    assert split.flow(X, Y, subset="validation").n == 11
    next(split.flow(X, batch_size=4, save_to_dir=tmp_path, save_prefix="a"))
    assert len(list(tmp_path.glob("a_*.png"))) == 4


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: ImageDataGenerator(fill_mode="mirror"), "fill_mode"),
        (lambda: ImageDataGenerator(zoom_range="big"), "zoom_range"),
        (lambda: ImageDataGenerator(zoom_range=(1, 2, 3)), "zoom_range"),
        (lambda: ImageDataGenerator(brightness_range=0.5), "brightness_range"),
        (lambda: ImageDataGenerator(interpolation_order=3), "interpolation_order"),
        (lambda: ImageDataGenerator(validation_split=2), "validation_split"),
        (lambda: ImageDataGenerator(data_format="channels_first"), "channels_last"),
        (lambda: generator().flow(X[0]), "images, rows, columns"),
        (lambda: generator().flow(X, Y[:3]), "has 3 rows"),
        (lambda: generator().flow(X, subset="test"), "subset"),
        (
            lambda: generator(validation_split=0.5).flow(
                X, np.sort(Y), subset="training"
            ),
            "classes",
        ),
        (lambda: generator().fit(X[0]), "images, rows, columns"),
        (lambda: generator().apply_transform(X, {}), "one image"),
        (lambda: generator().flow_from_directory(".", class_mode="odd"), "class_mode"),
    ],
)
def test_misuse_is_named(make: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        make()


def test_a_generator_that_was_not_fitted_says_so() -> None:
    with pytest.warns(UserWarning, match="featurewise_center.*fit"):
        ImageDataGenerator(featurewise_center=True).flow(X, Y)[0]


def test_an_empty_folder_says_so(tmp_path: Any) -> None:
    (tmp_path / "cat").mkdir()
    with pytest.raises(ValueError, match="holds no images"):
        ImageDataGenerator().flow_from_directory(tmp_path)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        ImageDataGenerator().flow_from_directory(tmp_path / "nowhere")
