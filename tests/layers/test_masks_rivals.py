"""Masks against Keras: where they are, what they change, and how they train."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import ganglion
from ganglion import layers
from ganglion.tensors import get_keras_mask

pytestmark = pytest.mark.rivals

IDS = np.array([[1, 2, 0, 4], [3, 0, 0, 0], [0, 0, 0, 5], [4, 3, 2, 1]], "int32")
RANDOM = np.random.default_rng(1)
STEPS = RANDOM.normal(size=(4, 4, 3)).astype("float32") * (IDS != 0)[..., None]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*masking.*")
        yield


# ---- which layers support masks ------------------------------------------------------

ARGUMENTS: dict[str, Any] = {
    "Activation": ("relu",), "ActivityRegularization": (), "Add": (),
    "AlphaDropout": (0.1,), "Average": (), "AveragePooling1D": (2,),
    "BatchNormalization": (), "Concatenate": (), "Conv1D": (2, 2),
    "Conv1DTranspose": (2, 2), "Cropping1D": (1,), "Dense": (2,),
    "DepthwiseConv1D": (2,), "Dot": (1,), "Dropout": (0.1,), "ELU": (),
    "Embedding": (5, 2), "Flatten": (), "GaussianDropout": (0.1,),
    "GaussianNoise": (0.1,), "GlobalAveragePooling1D": (),
    "GlobalAveragePooling2D": (), "GlobalMaxPooling1D": (), "GroupNormalization": (1,),
    "Identity": (), "Lambda": (abs,), "LayerNormalization": (), "LeakyReLU": (),
    "Masking": (), "MaxPooling1D": (2,), "Maximum": (), "Minimum": (), "Multiply": (),
    "Normalization": (), "PReLU": (), "Permute": ((2, 1),), "RMSNormalization": (),
    "ReLU": (), "RepeatVector": (2,), "Rescaling": (2.0,), "Reshape": ((4, 3),),
    "SeparableConv1D": (2, 2), "Softmax": (), "SpatialDropout1D": (0.1,),
    "Subtract": (), "UnitNormalization": (), "UpSampling1D": (2,),
    "ZeroPadding1D": (1,), "Layer": (), "RandomFlip": (), "Resizing": (2, 2),
}  # fmt: skip


@pytest.mark.parametrize("name", ARGUMENTS)
def test_supports_masking(keras: Any, name: str) -> None:
    ours = getattr(layers, name)(*ARGUMENTS[name])
    theirs = getattr(keras.layers, name)(*ARGUMENTS[name])
    assert ours.supports_masking == theirs.supports_masking


# ---- the values and masks of models, and how they train ------------------------------

Build = Callable[[Any], Any]


def layer(name: str, *args: Any, **kwargs: Any) -> Build:
    """Return what makes a layer of either library."""
    return lambda layers: getattr(layers, name)(*args, **kwargs)


def sequence(*tail: Build) -> Build:
    def build(k: Any) -> Any:
        x = k.Input((None,), dtype="int32")
        hidden = k.layers.Embedding(6, 4, mask_zero=True)(x)
        for make in tail:
            hidden = make(k.layers)(hidden)
        return k.Model(x, hidden)

    return build


def floats(*tail: Build) -> Build:
    def build(k: Any) -> Any:
        x = k.Input((4, 3))
        hidden = k.layers.Masking()(x)
        for make in tail:
            hidden = make(k.layers)(hidden)
        return k.Model(x, hidden)

    return build


def merged(merge: Build, both: bool = True) -> Build:
    """Merge two embeddings, whose masks differ."""

    def build(k: Any) -> Any:
        x = k.Input((4,), dtype="int32")
        first = k.layers.Embedding(6, 4, mask_zero=True)(x)
        other = k.layers.Embedding(6, 4, mask_zero=both)(x[:, ::-1])
        return k.Model(x, k.layers.Dense(2)(merge(k.layers)([first, other])))

    return build


def nested(k: Any) -> Any:
    inner_input = k.Input((None, 4))
    inner = k.Model(inner_input, k.layers.Dense(3, "tanh")(inner_input))
    stack = k.Sequential([k.layers.Dense(4), k.layers.LayerNormalization()])
    x = k.Input((None,), dtype="int32")
    hidden = k.layers.Embedding(6, 4, mask_zero=True)(x)
    return k.Model(x, k.layers.Dense(2)(inner(stack(hidden))))


def explicit(k: Any) -> Any:
    """Use the symbolic mask itself as a tensor of the graph."""
    x = k.Input((4,), dtype="int32")
    hidden = k.layers.Embedding(6, 4, mask_zero=True)(x)
    mask = hidden._keras_mask
    plain = k.ops.multiply(hidden, 1.0)
    return k.Model(x, k.layers.GlobalAveragePooling1D()(plain, mask=mask))


MODELS: dict[str, Build] = {
    "dense": sequence(layer("Dense", 3), layer("Activation", "relu")),
    "average": sequence(layer("GlobalAveragePooling1D"), layer("Dense", 2)),
    "keepdims": sequence(layer("GlobalAveragePooling1D", keepdims=True)),
    "batch norm": sequence(layer("BatchNormalization"), layer("Dense", 3)),
    "layer norm": sequence(layer("LayerNormalization"), layer("Dense", 3)),
    "softmax over classes": sequence(
        layer("Dense", 4), layer("Lambda", lambda x: x * 1.0),
        layer("Dense", 3), layer("Softmax"),
    ),
    "lambda": sequence(
        layer("Lambda", lambda x, mask: x * 2.0, mask=lambda x, mask: mask),
        layer("Dense", 2),
    ),
    "flatten": floats(layer("Flatten"), layer("Dense", 2)),
    "reshape": floats(layer("Reshape", (4, 3)), layer("Dense", 2)),
    "permute": floats(layer("Permute", (1, 2)), layer("Dense", 2)),
    "conv": floats(layer("Conv1D", 3, 2, padding="same"), layer("Dense", 2)),
    "masking": floats(layer("Dense", 3), layer("Dropout", 0.0)),
    "masking twice": floats(layer("Dense", 3), layer("Masking")),
    "add": merged(layer("Add")),
    "add, one mask": merged(layer("Add"), both=False),
    "subtract": merged(layer("Subtract")),
    "multiply": merged(layer("Multiply")),
    "multiply, one mask": merged(layer("Multiply"), both=False),
    "maximum": merged(layer("Maximum")),
    "maximum, one mask": merged(layer("Maximum"), both=False),
    "minimum": merged(layer("Minimum")),
    "concatenate": merged(layer("Concatenate")),
    "concatenate, one mask": merged(layer("Concatenate"), both=False),
    "concatenate steps": merged(layer("Concatenate", axis=1)),
    "concatenate steps, one mask": merged(layer("Concatenate", axis=1), both=False),
    "dot": merged(layer("Dot", axes=2)),
    "nested": nested,
    "explicit": explicit,
}  # fmt: skip
each_model = pytest.mark.parametrize("name", MODELS)


def pair(keras: Any, name: str) -> tuple[Any, Any, np.ndarray]:
    """Return the same model in both, with equal weights, and its data."""
    ours, theirs = MODELS[name](ganglion), MODELS[name](keras)
    random = np.random.default_rng(2)
    weights = [
        random.uniform(0.1, 0.9, weight.shape).astype("float32")
        for weight in theirs.get_weights()
    ]
    ours.set_weights(weights)
    theirs.set_weights(weights)
    return ours, theirs, IDS if theirs.input.dtype == "int32" else STEPS


@each_model
def test_values_and_masks(keras: Any, name: str) -> None:
    ours, theirs, x = pair(keras, name)
    mine, other = ours(x), theirs(x)
    np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)
    mask, expected = get_keras_mask(mine), getattr(other, "_keras_mask", None)
    assert (mask is None) == (expected is None)
    if mask is not None:
        np.testing.assert_array_equal(mask, expected)
    symbolic = [get_keras_mask(model.output) for model in (ours, theirs)]
    assert (symbolic[0] is None) == (symbolic[1] is None)
    if symbolic[0] is not None:
        assert symbolic[0].shape == symbolic[1].shape


@each_model
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.sampled(3)
def test_training(keras: Any, name: str, weighted: bool) -> None:
    ours, theirs, x = pair(keras, name)
    y = np.random.default_rng(3).normal(size=theirs(x).shape).astype("float32")
    weight = np.array([1.0, 0.5, 2.0, 0.0], "float32") if weighted else None
    if weighted and y.ndim == 3:
        weight = np.repeat(weight[:, None], y.shape[1], axis=1)
    for model, k in ((ours, ganglion), (theirs, keras)):
        model.compile(
            k.optimizers.SGD(2.0**-6), "mse", metrics=["mae"], weighted_metrics=["mse"]
        )
    for _ in range(3):
        mine = ours.train_on_batch(x, y, weight, return_dict=True)
        other = theirs.train_on_batch(x, y, weight, return_dict=True)
        assert mine.keys() == other.keys()
        for key, value in other.items():
            assert mine[key] == pytest.approx(float(value), rel=2e-5, abs=1e-6), key
    for mine, other in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(mine, other, rtol=2e-5, atol=2e-6)
    mine = ours.evaluate(x, y, sample_weight=weight, verbose=0, return_dict=True)
    other = theirs.evaluate(x, y, sample_weight=weight, verbose=0, return_dict=True)
    for key, value in other.items():
        assert mine[key] == pytest.approx(float(value), rel=2e-5, abs=1e-6), key


@pytest.mark.parametrize("name", ["nested", "masking", "explicit", "concatenate"])
def test_files_go_both_ways(keras: Any, name: str, tmp_path: Any) -> None:
    ours, theirs, x = pair(keras, name)
    expected = np.asarray(theirs(x))
    ours.save(tmp_path / "ours.keras")
    theirs.save(tmp_path / "theirs.keras")
    for k, file in ((keras, "ours.keras"), (ganglion, "theirs.keras")):
        loaded = k.models.load_model(tmp_path / file)
        np.testing.assert_allclose(loaded(x), expected, rtol=1e-5, atol=1e-6)


def test_batches_of_many_lengths_train_as_in_keras(keras: Any) -> None:
    """Ours are padded to buckets, which losses, metrics and weights must not show."""
    ours, theirs, _ = pair(keras, "dense")
    random = np.random.default_rng(4)
    batches = [
        (random.integers(0, 6, (3, length)), random.normal(size=(3, length, 3)))
        for length in (5, 3, 7, 9, 2)
    ]
    for model, k in ((ours, ganglion), (theirs, keras)):
        model.compile(k.optimizers.SGD(2.0**-6), "mse", metrics=["mae"])

    def logs(model: Any) -> dict[str, float]:
        endless = (batches[i % len(batches)] for i in range(100))
        steps = {"steps_per_epoch": len(batches), "verbose": 0}
        return model.fit(endless, **steps).history

    mine, other = logs(ours), logs(theirs)
    for key, value in other.items():
        assert mine[key] == pytest.approx(value, rel=2e-5), key
    assert len(ours._step_cache._steps) == 3
    for mine, other in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(mine, other, rtol=2e-5, atol=2e-6)


REDUCTIONS = ["sum_over_batch_size", "mean", "sum", "mean_with_sample_weight", "none"]


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("ignore", [None, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_losses(keras: Any, reduction: str, ignore: int | None, weighted: bool) -> None:
    embedding = keras.layers.Embedding(6, 5, mask_zero=True)
    theirs = keras.ops.softmax(embedding(IDS))
    theirs._keras_mask = embedding(IDS)._keras_mask
    mine = ganglion.tensors.with_mask(
        np.asarray(theirs), np.asarray(theirs._keras_mask)
    )
    labels = np.array([[1, 2, 0, 4], [3, 0, 2, 0], [0, 1, 0, 0], [4, 3, 2, 1]])
    weight = RANDOM.uniform(size=labels.shape).astype("float32") if weighted else None
    arguments = {"ignore_class": ignore, "reduction": reduction}
    got = ganglion.losses.SparseCategoricalCrossentropy(**arguments)(
        labels, mine, weight
    )
    expected = keras.losses.SparseCategoricalCrossentropy(**arguments)(
        labels, theirs, weight
    )
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    metrics = [
        k.metrics.SparseCategoricalCrossentropy(ignore_class=ignore)
        if hasattr(k.metrics.SparseCategoricalCrossentropy(), "ignore_class")
        else k.metrics.SparseCategoricalCrossentropy()
        for k in (ganglion, keras)
    ]
    metrics[0].update_state(labels, mine, weight)
    metrics[1].update_state(labels, theirs, weight)
    assert float(metrics[0].result()) == pytest.approx(float(metrics[1].result()))
