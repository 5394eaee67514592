"""What single layers do beyond the contract: noise, averages, old arguments."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from layer_cases import IMAGE
from layer_contract import check_layer

import ganglion
from ganglion import keras2, layers, ops, regularizers, serialization
from ganglion.compiler.ir import graph
from ganglion.compiler.ir.gradient import gradients
from ganglion.compiler.ir.graph import evaluate
from ganglion.initializers import compute_fans
from ganglion.serialization import (
    custom_object_scope,
    deserialize_keras_object,
    register_keras_serializable,
    serialize_keras_object,
)
from ganglion.variables import Scope

# ---- single layers ------------------------------------------------------------------


def test_layers_are_called_by_keyword_too() -> None:
    layer = layers.Dense(3)
    assert layer(inputs=np.ones((2, 4), "float32")).shape == (2, 3)
    assert layer.kernel.shape == (4, 3)


def test_first_weights_follow_keras_fans() -> None:
    x = np.ones((1, 8, 8, 16), "float32")
    layer = layers.DepthwiseConv2D(3, depth_multiplier=4)
    layer(x)
    fan_in, fan_out = 3 * 3 * 16, 3 * 3 * 4
    assert compute_fans(layer.kernel.shape) == (fan_in, fan_out)
    limit = math.sqrt(6 / (fan_in + fan_out))
    kernel = layer.kernel.numpy()
    assert 0.95 * limit < np.abs(kernel).max() <= limit
    assert not layer.bias.numpy().any()
    table = layers.Embedding(50, 40, weights=None)
    table(np.zeros((1, 1), "int32"))
    assert 0.048 < np.abs(table.embeddings.numpy()).max() <= 0.05


def test_embedding_takes_weights_and_old_arguments() -> None:
    rows = np.arange(6, dtype="float32").reshape(3, 2)
    with pytest.warns(keras2.Keras2Warning, match="input_length"):
        layer = layers.Embedding(3, 2, weights=[rows], input_length=4)
    assert not keras2.active()
    assert layer.built
    np.testing.assert_array_equal(layer(np.array([[2, 0]])), rows[None, [2, 0]])
    assert layer.get_config()["input_dim"] == 3
    assert "input_length" not in layer.get_config()


def test_leaky_relu_takes_the_old_argument() -> None:
    with pytest.warns(keras2.Keras2Warning, match="negative_slope"):
        layer = layers.LeakyReLU(alpha=0.5)
    assert layer.negative_slope == 0.5
    assert "alpha" not in layer.get_config()
    assert not keras2.active()


@register_keras_serializable("layers_test")
def shifted(x: Any, by: float = 1.0) -> Any:
    return x + by


def test_lambda_of_a_registered_function_is_remade() -> None:
    check_layer(lambda: layers.Lambda(shifted, arguments={"by": 2.0}), (3, 5))
    check_layer(lambda: layers.Lambda(shifted, output_shape=(5,)), (3, 5))


def test_lambda_of_an_own_function_needs_it_at_loading() -> None:
    def halved(x: Any) -> Any:
        return x / 2

    entry = json.loads(json.dumps(serialize_keras_object(layers.Lambda(halved))))
    with pytest.raises(ValueError, match="custom_objects"):
        deserialize_keras_object(entry)
    with custom_object_scope({"halved": halved}):
        layer = deserialize_keras_object(entry)
    assert layer(np.ones(2, "float32")).tolist() == [0.5, 0.5]


def test_python_lambdas_are_saved_and_never_loaded(
    keras: Any, tmp_path: Any, monkeypatch: Any
) -> None:
    layer = layers.Lambda(lambda x: x * 3)
    assert layer(np.ones(2, "float32")).tolist() == [3, 3]
    again = layers.Lambda.from_config(layer.get_config())
    assert again(np.ones(2, "float32")).tolist() == [3, 3]
    factor = 3.0
    scale = layers.Lambda(lambda x: x * factor, name="scale")
    model = ganglion.Sequential([ganglion.Input((2,)), scale, layers.Dense(1)])
    with pytest.warns(UserWarning, match="saved as byte code"):
        model.save(tmp_path / "scaled.keras")
    monkeypatch.setattr(serialization, "_lambdas_written", {})  # as elsewhere
    with pytest.raises(ValueError, match="never executes code"):
        ganglion.models.load_model(tmp_path / "scaled.keras")
    weights = model.get_weights()
    model.set_weights([weight * 0 for weight in weights])
    model.load_weights(tmp_path / "scaled.keras")
    assert np.array_equal(model.get_weights()[0], weights[0])
    theirs = keras.models.load_model(tmp_path / "scaled.keras", safe_mode=False)
    x = np.ones((1, 2), "float32")
    np.testing.assert_allclose(theirs(x), model(x), rtol=1e-6)


def test_lambda_passes_training_on() -> None:
    def mode(x: Any, training: Any = None) -> Any:
        return x * (2.0 if training else 1.0)

    layer = layers.Lambda(mode)
    assert layer(np.ones(1, "float32"), training=True).tolist() == [2]
    assert layer(np.ones(1, "float32")).tolist() == [1]


def test_merge_functions_are_the_layers() -> None:
    a = np.array([[1.0, 5.0]], "float32")
    b = np.array([[3.0, 2.0]], "float32")
    expected = {
        "add": [[4, 7]],
        "subtract": [[-2, 3]],
        "multiply": [[3, 10]],
        "average": [[2, 3.5]],
        "maximum": [[3, 5]],
        "minimum": [[1, 2]],
        "concatenate": [[1, 5, 3, 2]],
        "dot": [[13]],
    }
    for name, result in expected.items():
        assert getattr(layers, name)([a, b]).tolist() == result
    symbol = layers.concatenate([layers.Input((4, 2)), layers.Input((3, 2))], axis=1)
    assert symbol.shape == (None, 7, 2)
    assert layers.add([layers.Input((4,))] * 2, name="sum").call.operation.name == "sum"


def test_merging_works_on_tuples() -> None:
    a = np.ones((1, 2), "float32")
    assert layers.Add()((a, a)).tolist() == [[2, 2]]


def test_unit_normalization_of_zeros_has_a_gradient() -> None:
    with Scope():
        x = graph.Input("x", (1, 3), "float32")
        loss = ops.sum(layers.UnitNormalization()(x))
        actual = gradients(loss, [x])[x]
    slope = evaluate([actual], {x: np.zeros((1, 3), "float32")})[0]
    assert np.isfinite(slope).all()


# ---- noise --------------------------------------------------------------------------


def _many(value: float = 1.0) -> np.ndarray:
    return np.full((200, 500), value, "float32")


def test_dropout_keeps_the_mean_and_its_rate() -> None:
    out = layers.Dropout(0.3, seed=5)(_many(), training=True)
    assert set(np.unique(out)) == {0.0, np.float32(1 / 0.7)}
    # 100,000 draws: five deviations are 5 sqrt(0.3 0.7 / 1e5) = 0.0073.
    assert abs((out == 0).mean() - 0.3) < 0.0073
    np.testing.assert_array_equal(layers.Dropout(0.3)(_many()), _many())
    assert not layers.Dropout(1.0)(_many(), training=True).any()


def test_noise_moves_its_seed_and_is_repeatable() -> None:
    first, second = layers.Dropout(0.5, seed=9), layers.Dropout(0.5, seed=9)
    a = [first(_many(), training=True) for _ in range(2)]
    b = [second(_many(), training=True) for _ in range(2)]
    np.testing.assert_array_equal(a, b)
    assert (a[0] != a[1]).any()
    assert first.seed_generator.state.numpy()[1] > 0
    assert not hasattr(layers.Dropout(0.0), "seed_generator")
    assert first.weights == []
    assert len(first.variables) == 1


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_spatial_dropout_drops_whole_channels(rank: int) -> None:
    x = np.ones((40, *[3] * rank, 50), "float32")
    layer = getattr(layers, f"SpatialDropout{rank}D")(0.25, seed=1)
    out = layer(x, training=True).reshape(40, -1, 50)
    assert (out == out[:, :1]).all()
    assert abs((out == 0).mean() - 0.25) < 5 * math.sqrt(0.25 * 0.75 / 2000)


def test_noise_shape_is_shared_along_its_ones() -> None:
    layer = layers.Dropout(0.5, noise_shape=(None, 1), seed=2)
    out = layer(_many(), training=True)
    assert (out == out[:, :1]).all()
    assert len(np.unique(out)) == 2


def test_gaussian_noise_has_the_promised_moments() -> None:
    # Five deviations of mean and deviation over 100,000 draws.
    near = 5 / math.sqrt(1e5)
    added = layers.GaussianNoise(0.5, seed=1)(_many(2.0), training=True)
    assert abs(added.mean() - 2) < 0.5 * near
    assert abs(added.std() - 0.5) < 0.5 * near
    scaled = layers.GaussianDropout(0.2, seed=1)(_many(2.0), training=True)
    assert abs(scaled.mean() - 2) < near
    assert abs(scaled.std() - 2 * 0.5) < near
    for layer in (layers.GaussianNoise(0.5), layers.GaussianDropout(0.2)):
        np.testing.assert_array_equal(layer(_many()), _many())


def test_alpha_dropout_keeps_mean_and_variance() -> None:
    x = np.random.default_rng(0).normal(size=(200, 500)).astype("float32")
    out = layers.AlphaDropout(0.2, seed=1)(x, training=True)
    assert abs(out.mean()) < 0.02
    assert abs(out.std() - 1) < 0.02
    assert len(np.unique(out)) < 0.9 * out.size


def test_activity_regularization_adds_its_loss() -> None:
    layer = layers.ActivityRegularization(l1=0.5, l2=0.25)
    dense = layers.Dense(2, activity_regularizer=regularizers.L2(0.1))
    with Scope() as scope:
        layer(np.array([[1.0, -2.0]], "float32"))
        dense(np.ones((1, 2), "float32"))
    assert evaluate(scope.losses[:1])[0] == pytest.approx(0.5 * 3 + 0.25 * 5)
    assert len(scope.losses) == 2


# ---- batch normalisation -------------------------------------------------------------


def _batch() -> np.ndarray:
    return np.random.default_rng(0).normal(3, 2, (8, 4)).astype("float32")


def test_batch_normalization_moves_its_averages() -> None:
    layer, x = layers.BatchNormalization(momentum=0.9), _batch()
    out = layer(x, training=True)
    np.testing.assert_allclose(out.mean(0), 0, atol=1e-6)
    spread = x.var(0) / (x.var(0) + 1e-3)
    np.testing.assert_allclose(out.var(0), spread, rtol=1e-5)
    np.testing.assert_allclose(layer.moving_mean, 0.1 * x.mean(0), rtol=1e-5)
    np.testing.assert_allclose(layer.moving_variance, 0.9 + 0.1 * x.var(0), rtol=1e-5)
    before = layer.get_weights()
    layer(x)
    for item, other in zip(before, layer.get_weights(), strict=True):
        np.testing.assert_array_equal(item, other)


def test_frozen_batch_normalization_infers() -> None:
    layer, x = layers.BatchNormalization(), _batch()
    layer(x)
    layer.trainable = False
    np.testing.assert_array_equal(layer(x, training=True), layer(x))
    assert not layer.moving_mean.numpy().any()


@pytest.mark.parametrize("scale", [True, False])
def test_batch_normalization_trains_as_it_was_compiled(scale: bool) -> None:
    layer = layers.BatchNormalization(scale=scale, center=scale)
    layer(_batch())

    def moves(trainable: frozenset[Any] | None) -> bool:
        with Scope(training=True) as scope:
            scope.trainable = trainable
            layer(graph.Input("x", (8, 4), "float32"))
        return layer.moving_mean in scope.writes

    own = frozenset(layer.trainable_weights)
    assert moves(None)
    assert moves(own) is True
    layer.trainable = False
    assert not moves(None)
    # What was captured at compile wins; a layer without weights has only its flag.
    assert moves(own) is scale
    layer.trainable = True
    assert moves(frozenset()) is (not scale)


def test_batch_normalization_is_exact_far_from_zero() -> None:
    x = (_batch() + 1000).astype("float32")
    out = layers.BatchNormalization()(x, training=True)
    wide = x.astype("float64")
    expected = (wide - wide.mean(0)) / np.sqrt(wide.var(0) + 1e-3)
    # Inputs near 1000 are exact to 6e-5, half a unit of float32; so is their mean.
    np.testing.assert_allclose(out, expected, atol=2e-4)


# ---- scaling ------------------------------------------------------------------------


def test_normalization_adapts_and_undoes() -> None:
    data = np.random.default_rng(0).normal(5, 3, (100, 4)).astype("float32")
    layer = layers.Normalization()
    layer.adapt(data)
    out = layer(data)
    np.testing.assert_allclose(out.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(out.std(0), 1, atol=1e-5)
    inverse = layers.Normalization(invert=True)
    inverse.adapt(data)
    np.testing.assert_allclose(inverse(out), data, rtol=1e-4, atol=1e-5)
    assert layer.trainable_weights == []


def test_normalization_adapts_batch_by_batch() -> None:
    data = np.random.default_rng(0).normal(5, 3, (100, 4, 2)).astype("float32")
    full, parts = (layers.Normalization(axis=(1, 2)) for _ in range(2))
    full.adapt(data)
    parts.adapt((data[i : i + 30], None) for i in range(0, 100, 30))
    for item, other in zip(full.get_weights(), parts.get_weights(), strict=True):
        np.testing.assert_allclose(item, other, rtol=1e-5)


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        ([], ValueError, "no data"),
        ([[1.0, 2.0]], TypeError, "np.array"),
        (3, TypeError, "needs arrays"),
    ],
)
def test_normalization_refuses_other_data(
    data: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        layers.Normalization().adapt(data)


def test_normalization_refuses_other_features() -> None:
    layer = layers.Normalization()
    layer.adapt(np.ones((3, 2)))
    with pytest.raises(ValueError, match="built for"):
        layer.adapt(np.ones((3, 4)))
    with pytest.raises(ValueError, match="nothing is left"):
        layers.Normalization(mean=1.0, variance=1.0).adapt(np.ones((3, 2)))


def test_whole_numbers_become_floats_where_needed() -> None:
    image = np.full(IMAGE, 200, "uint8")
    assert layers.Rescaling(1 / 200)(image).max() == 1.0
    assert layers.Conv2D(2, 3)(image).dtype == np.float32
    assert layers.BatchNormalization()(image).dtype == np.float32
    assert layers.MaxPooling2D()(image).max() == 200
    assert layers.Flatten()(image).dtype == np.uint8


@pytest.mark.parametrize("dtype", ["half", "mixed_float64", "float8"])
def test_types_that_do_not_exist_are_refused(dtype: str) -> None:
    with pytest.raises(ValueError, match="Cannot convert"):
        layers.Dense(1, dtype=dtype)


class Picky(layers.Layer):
    def __init__(self, spec: Any) -> None:
        super().__init__()
        self.input_spec = spec

    def call(self, x: Any) -> Any:
        return x


@pytest.mark.parametrize(
    ("spec", "shapes", "text"),
    [
        ({"shape": (None, 4)}, [(2, 3)], r"expected shape=\(None, 4\), found"),
        ({"axes": {3: 4}}, [(2, 3)], "expected an axis 3"),
        ({"ndim": 2, "dtype": "int32"}, [(2, 3)], "int32 is expected"),
        ({"ndim": 2}, [(2, 3), (2, 3)], r"takes 1 input\(s\), but got 2"),
    ],
)
def test_an_input_spec_is_held_to(spec: Any, shapes: Any, text: str) -> None:
    arrays = [np.ones(shape, "float32") for shape in shapes]
    with pytest.raises(ValueError, match=text):
        Picky(layers.InputSpec(**spec))(arrays if len(arrays) > 1 else arrays[0])


def test_a_last_axis_of_one_may_be_left_to_the_layer() -> None:
    spec = layers.InputSpec(shape=(None, 3), allow_last_axis_squeeze=True)
    assert Picky(spec)(np.ones((2, 3, 1), "float32")).shape == (2, 3, 1)


def test_several_inputs_where_one_is_meant_are_named() -> None:
    both = [np.ones((2, 3), "float32")] * 2
    for layer in (layers.Dense(1), layers.BatchNormalization(), layers.PReLU()):
        with pytest.raises(ValueError, match="by a Concatenate or Add layer"):
            layer(both)


def test_a_misspelt_argument_is_answered_with_the_nearest() -> None:
    with pytest.raises(TypeError, match=r"Dense: activaton\. Did you mean 'act"):
        layers.Dense(1, activaton="relu")
    with pytest.raises(TypeError, match="Did you mean 'pool_size'"):
        layers.MaxPooling2D(poolsize=2)
