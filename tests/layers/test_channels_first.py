"""`data_format="channels_first"`: what channels last gives, transposed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from layer_cases import CASES, Case, is_channels_first, random_weights

import ganglion
from ganglion import layers, ops

FIRST = [case for case in CASES if is_channels_first(case)]
VIDEO = np.random.default_rng(0).normal(size=(2, 3, 6, 5, 2)).astype("float32")


@pytest.fixture
def channels_first() -> Iterator[None]:
    ganglion.config.set_image_data_format("channels_first")
    yield
    ganglion.config.set_image_data_format("channels_last")


def last(x: Any) -> np.ndarray:
    return np.moveaxis(np.asarray(x), 1, -1)


@pytest.mark.parametrize("case", FIRST, ids=lambda case: case.id)
def test_equals_channels_last(case: Case) -> None:
    layer = case.make(layers)
    as_last = type(layer)(**case.arguments | {"data_format": "channels_last"})
    x = case.inputs()
    layer(x)
    as_last(last(x))
    weights = random_weights([weight.shape for weight in layer.get_weights()])
    layer.set_weights(weights)
    as_last.set_weights(weights)
    actual, expected = layer(x), as_last(last(x))
    is_flat = actual.ndim < x.ndim
    np.testing.assert_allclose(
        actual if is_flat else last(actual), expected, rtol=1e-5, atol=1e-6
    )
    unknown = (None, *x.shape[1:])
    assert layer.compute_output_shape(unknown) == (None, *actual.shape[1:])


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_conv_lstm_equals_channels_last(rank: int, dropout: float) -> None:
    rng = np.random.default_rng(rank)
    x = rng.normal(size=(2, 3, 2, *(4, 5, 3)[:rank])).astype("float32")
    options: dict[str, Any] = {
        "filters": 3, "kernel_size": 2, "strides": 2, "return_state": True,
        "return_sequences": True, "dropout": dropout, "recurrent_dropout": dropout,
    }  # fmt: skip
    cls = getattr(layers, f"ConvLSTM{rank}D")
    layer = cls(data_format="channels_first", **options)
    as_last = cls(**options)
    results = layer(x)
    expected = as_last(np.moveaxis(x, 2, -1))
    as_last.set_weights(layer.get_weights())
    expected = as_last(np.moveaxis(x, 2, -1))
    for index, (mine, other) in enumerate(zip(results, expected, strict=True)):
        axis = 1 if index else 2
        np.testing.assert_allclose(np.moveaxis(mine, axis, -1), other, atol=1e-6)
    assert layer(x, training=True)[0].shape == results[0].shape


def test_the_choice_of_the_process_reaches_layers_and_ops(channels_first: None) -> None:
    assert ganglion.config.image_data_format() == "channels_first"
    x = VIDEO[0]
    assert layers.Conv2D(4, (3, 2))(x).shape == (3, 4, 3, 1)
    assert ops.max_pool(x, 2).shape == (3, 6, 2, 1)
    assert layers.GlobalAveragePooling2D()(x).shape == (3, 6)
    assert layers.Conv2D(1, 3).get_config()["data_format"] == "channels_first"
    assert layers.UpSampling1D()(x[0]).shape == (6, 10, 2)
    assert layers.Cropping1D()(x[0]).shape == (6, 3, 2)
    assert layers.SpatialDropout1D(0.5)(x[0], training=True).shape == (6, 5, 2)


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(ValueError, match="channels_last"):
        ganglion.config.set_image_data_format("rows_first")


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_a_model_trains_as_with_channels_last(backend: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(32, 3, 8, 8)).astype("float32")
    y = rng.integers(0, 3, 32)

    def network(data_format: str, shape: tuple[int, ...]) -> Any:
        axis = 1 if data_format == "channels_first" else -1
        form: dict[str, Any] = {"data_format": data_format}
        model = ganglion.Sequential(
            [
                ganglion.Input(shape),
                layers.Conv2D(4, 3, padding="same", **form),
                layers.BatchNormalization(axis=axis),
                layers.ReLU(),
                layers.MaxPooling2D(**form),
                layers.SeparableConv2D(5, 3, activation="relu", **form),
                layers.Flatten(**form),
                layers.Dense(3, activation="softmax"),
            ]
        )
        model.compile("adam", "sparse_categorical_crossentropy")
        return model

    before = ganglion.config.backend_choice()
    ganglion.config.set_backend(backend)
    try:
        first = network("channels_first", (3, 8, 8))
        as_last = network("channels_last", (8, 8, 3))
        as_last.set_weights(first.get_weights())
        histories = [
            model.fit(data, y, 8, epochs=2, shuffle=False, verbose=0).history["loss"]
            for model, data in ((first, x), (as_last, last(x)))
        ]
    finally:
        ganglion.config.set_backend(before)
    np.testing.assert_allclose(*histories, rtol=1e-4)
