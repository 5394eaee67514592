"""FeatureSpace: columns of a table as features, beside Keras and in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ganglion
from ganglion import layers
from ganglion.utils import FeatureSpace

RNG = np.random.default_rng(0)
TABLE: dict[str, Any] = {
    "plain": RNG.normal(size=50).astype("float32"),
    "normal": RNG.normal(3, 2, 50).astype("float32"),
    "scaled": np.linspace(0, 255, 50).astype("float32"),
    "binned": RNG.normal(size=50).astype("float32"),
    "number": RNG.integers(0, 5, 50),
    "word": RNG.choice(["cat", "dog", "Émile"], 50),
    "hashed": RNG.choice(["a", "b", "c"], 50),
    "code": RNG.integers(0, 1000, 50),
}
NEW = {**TABLE, "word": np.array(["cat", "cow"] * 25), "number": np.arange(50)}


def row(number: int) -> dict[str, Any]:
    return {name: column[number] for name, column in TABLE.items()}


def space(kind: Any, **arguments: Any) -> Any:
    return kind(
        features={
            "plain": "float",
            "normal": "float_normalized",
            "scaled": kind.float_rescaled(scale=1 / 255),
            "binned": kind.float_discretized(num_bins=4),
            "number": "integer_categorical",
            "word": kind.string_categorical(num_oov_indices=2),
            "hashed": "string_hashed",
            "code": kind.integer_hashed(num_bins=6),
        },
        crosses=[("word", "number"), kind.cross(("hashed", "word"), 5)],
        crossing_dim=8,
        hashing_dim=7,
        **arguments,
    )


def of_numbers(kind: Any) -> Any:
    return kind(
        features={
            "word": kind.string_categorical(output_mode="int"),
            "number": kind.integer_categorical(output_mode="int", max_tokens=4),
        },
        crosses=[kind.cross(("word", "number"), 9, output_mode="int")],
        output_mode="dict",
    )


# ---- beside Keras --------------------------------------------------------------------


@pytest.mark.rivals
def test_features_are_keras_own(keras: Any, tmp_path: Path) -> None:
    ours, theirs = space(FeatureSpace), space(keras.utils.FeatureSpace)
    ours.adapt(TABLE)
    theirs.adapt(TABLE)
    expected = np.asarray(theirs(NEW))
    np.testing.assert_allclose(ours(NEW), expected, rtol=1e-5, atol=1e-6)
    single = {name: column[3] for name, column in TABLE.items()}
    np.testing.assert_allclose(ours(single), theirs(single), rtol=1e-5, atol=1e-6)
    ours.save(tmp_path / "ours.keras")
    loaded = keras.models.load_model(tmp_path / "ours.keras")
    np.testing.assert_allclose(loaded(NEW), expected, rtol=1e-5, atol=1e-6)
    theirs.save(tmp_path / "theirs.keras")
    loaded = ganglion.models.load_model(tmp_path / "theirs.keras")
    np.testing.assert_allclose(loaded(NEW), expected, rtol=1e-5, atol=1e-6)
    assert ours.get_config().keys() == theirs.get_config().keys()


@pytest.mark.rivals
def test_dictionaries_of_whole_numbers_are_keras_own(keras: Any) -> None:
    ours, theirs = of_numbers(FeatureSpace), of_numbers(keras.utils.FeatureSpace)
    ours.adapt(TABLE)
    theirs.adapt(TABLE)
    table = {name: NEW[name] for name in ("word", "number")}
    outputs, expected = ours(table), theirs(table)
    assert outputs.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(outputs[name], values)


@pytest.mark.rivals
def test_models_of_features_go_both_ways(keras: Any, tmp_path: Path) -> None:
    def model_of(module: Any, features: Any) -> Any:
        encoded = features.get_encoded_features()
        return module.Model(features.get_inputs(), module.layers.Dense(2)(encoded))

    ours, theirs = space(FeatureSpace), space(keras.utils.FeatureSpace)
    ours.adapt(TABLE)
    theirs.adapt(TABLE)
    import tensorflow as tf

    tensors = {name: tf.constant(column[:, None]) for name, column in NEW.items()}
    arrays = {name: column[:, None] for name, column in NEW.items()}
    model = model_of(ganglion, ours)
    model.save(tmp_path / "ours.keras")
    loaded = keras.models.load_model(tmp_path / "ours.keras")
    np.testing.assert_allclose(loaded(tensors), model(arrays), rtol=1e-4, atol=1e-5)
    model = model_of(keras, theirs)
    model.save(tmp_path / "theirs.keras")
    loaded = ganglion.models.load_model(tmp_path / "theirs.keras")
    np.testing.assert_allclose(loaded(arrays), model(tensors), rtol=1e-4, atol=1e-5)


# ---- alone ---------------------------------------------------------------------------


def test_models_of_features_train_on_tables_and_on_vectors() -> None:
    features = space(FeatureSpace)
    features.adapt(TABLE)
    encoded = features.get_encoded_features()
    outputs = layers.Dense(1)(encoded)
    of_vectors = ganglion.Model(encoded, outputs)
    of_tables = ganglion.Model(features.get_inputs(), outputs)
    target = (TABLE["word"] == "cat") + TABLE["plain"]
    of_vectors.compile(ganglion.optimizers.Adam(0.05), "mse")
    losses = of_vectors.fit(features(TABLE), target, epochs=20, verbose=0)
    assert losses.history["loss"][-1] < 0.2 * losses.history["loss"][0]
    np.testing.assert_allclose(
        of_tables.predict(TABLE, verbose=0),
        of_vectors.predict(features(TABLE), verbose=0),
        rtol=1e-4,
        atol=1e-5,
    )
    of_tables.compile("sgd", "mse")
    of_tables.fit(TABLE, target, verbose=0)


@pytest.mark.parametrize("size", [None, 7])
def test_rows_and_batches_are_adapted_to(size: int | None) -> None:
    expected = space(FeatureSpace)
    expected.adapt(TABLE)
    features = space(FeatureSpace)
    if size is None:
        features.adapt(row(number) for number in range(50))
    else:
        features.adapt(
            {name: column[start : start + size] for name, column in TABLE.items()}
            for start in range(0, 50, size)
        )
    np.testing.assert_allclose(features(NEW), expected(NEW), rtol=1e-6)


def test_a_layer_of_ones_own_prepares_a_feature(tmp_path: Path) -> None:
    words = layers.TextVectorization(output_mode="count")
    feature = FeatureSpace.feature("string", words, "float")
    features = FeatureSpace({"text": feature, "size": "float"})
    features.adapt({"text": ["a b", "b"], "size": [1.0, 2.0]})
    data = {"text": ["b b c"], "size": [3.0]}
    assert features(data).tolist() == [[3.0, 1.0, 2.0, 0.0]]
    features.save(tmp_path / "features.keras")
    again = ganglion.models.load_model(tmp_path / "features.keras")
    assert again(data).tolist() == [[3.0, 1.0, 2.0, 0.0]]


REFUSED = {
    "cannot be None or empty": lambda: FeatureSpace({}),
    "Feature 'a' is 'flaot'": lambda: FeatureSpace({"a": "flaot"}),
    "argument `output_mode`.*list": lambda: FeatureSpace({"a": "float"}, "list"),
    "should be present in `features`.*'b'": lambda: FeatureSpace(
        {"a": "float"}, crosses=[("a", "b")]
    ),
    "need a `crossing_dim`": lambda: FeatureSpace(
        {"a": "float"}, crosses=[("a", "a")], crossing_dim=0
    ),
    "You need to call `.adapt": lambda: FeatureSpace({"a": "float_normalized"})({}),
    "got no data for the feature 'a'": lambda: FeatureSpace(
        {"a": "float_normalized"}
    ).adapt({"b": [1.0]}),
    "`adapt` got no data": lambda: FeatureSpace({"a": "float_normalized"}).adapt([]),
    "takes a dictionary of columns": lambda: FeatureSpace({"a": "float"}).adapt(3),
    "goes over dictionaries": lambda: FeatureSpace({"a": "float_normalized"}).adapt(
        [[1.0]]
    ),
    "data and labels": lambda: FeatureSpace({"a": "float_normalized"}).adapt(
        iter([({"a": [1.0]}, 1)])
    ),
    "is called on a dictionary": lambda: FeatureSpace({"a": "float"})([1.0]),
    "No data for the feature.s. a": lambda: FeatureSpace({"a": "float"})({"b": [1.0]}),
    "`get_inputs..` and": lambda: FeatureSpace({"a": "float"})(
        {"a": ganglion.Input((1,))}
    ),
    "cannot be joined with the others": lambda: FeatureSpace(
        {"a": FeatureSpace.integer_hashed(3, output_mode="int")}
    ).get_inputs(),
    "gives float32, no integers": lambda: FeatureSpace(
        {"a": FeatureSpace.feature("float32", layers.Rescaling(2.0), "one_hot")}
    ).get_inputs(),
    "argument `output_mode`.*count": lambda: FeatureSpace.string_hashed(3, "count"),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_is_refused(message: str) -> None:
    with pytest.raises(ValueError, match=message):
        REFUSED[message]()


def test_a_space_is_no_old_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Invalid filepath extension"):
        FeatureSpace({"a": "float"}).save(tmp_path / "space.h5")
