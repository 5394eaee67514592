"""Files exchanged with real Keras 3.15, both ways: equal predictions, equal next steps.

Each model is written once, over a module `k` that is Ganglion or Keras.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ganglion
from ganglion import saving

pytestmark = pytest.mark.rivals

# Both compute in float32 with sums in different orders.
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def mlp(k: Any) -> Any:
    return k.Sequential(
        [
            k.Input((6,)),
            k.layers.Dense(8, activation="relu", kernel_regularizer="l2"),
            k.layers.Dense(5, activation="tanh", kernel_initializer="he_normal"),
            k.layers.Dense(3, activation="softmax"),
        ]
    )


def convolutional(k: Any) -> Any:
    return k.Sequential(
        [
            k.Input((8, 8, 1)),
            k.layers.Conv2D(4, 3, padding="same", activation="relu"),
            k.layers.BatchNormalization(),
            k.layers.MaxPooling2D(2),
            k.layers.Conv2D(3, 3, strides=2, use_bias=False),
            k.layers.Activation("relu"),
            k.layers.Dropout(0.0),
            k.layers.Flatten(),
            k.layers.Dense(3, activation="softmax"),
        ]
    )


def separable(k: Any) -> Any:
    return k.Sequential(
        [
            k.Input((8, 8, 2)),
            k.layers.SeparableConv2D(4, 3, depth_multiplier=2),
            k.layers.DepthwiseConv2D(3, activation="relu"),
            k.layers.Conv2DTranspose(3, 2, strides=2),
            k.layers.LayerNormalization(),
            k.layers.AveragePooling2D(2),
            k.layers.GlobalAveragePooling2D(),
            k.layers.Dense(3, activation="softmax"),
        ]
    )


def embedded(k: Any) -> Any:
    return k.Sequential(
        [
            k.Input((7,), dtype="int32"),
            k.layers.Embedding(84, 6),
            k.layers.Conv1D(5, 3, activation="relu"),
            k.layers.GlobalMaxPooling1D(),
            k.layers.Dense(3, activation="softmax"),
        ]
    )


def residual(k: Any) -> Any:
    """Branches of different depth, so that the order of layers matters."""
    x = k.Input((6,), name="start")
    deep = k.layers.Dense(6, activation="relu")(x)
    deep = k.layers.Dense(6, activation="relu")(deep)
    flat = k.layers.Dense(6)(x)
    joined = k.layers.Add()([flat, deep])
    other = k.layers.Multiply()([joined, k.layers.Dense(6)(x)])
    joined = k.layers.Concatenate()([joined, other])
    return k.Model(x, k.layers.Dense(3, activation="softmax")(joined))


def shared_and_nested(k: Any) -> Any:
    a, b = k.Input((6,), name="a"), k.Input((6,), name="b")
    shared = k.layers.Dense(4, name="shared")
    inner_x = k.Input((4,))
    inner = k.Model(inner_x, k.layers.Dense(4, activation="relu")(inner_x))
    stack = k.Sequential([k.Input((4,)), k.layers.Dense(4)])
    left, right = inner(shared(a)), inner(stack(shared(b)))
    joined = k.layers.Average()([left, right])
    return k.Model([a, b], k.layers.Dense(3, activation="softmax")(joined))


def nested_at_the_end(k: Any) -> Any:
    inner_x = k.Input((4,))
    inner = k.Model(inner_x, k.layers.Dense(3, activation="softmax")(inner_x))
    x = k.Input((6,))
    return k.Model(x, inner(k.layers.Dense(4)(x)))


def with_ops(k: Any) -> Any:
    ops = k.ops
    x = k.Input((6,))
    y = k.layers.Dense(6)(x)
    z = ops.relu(y * 2.0) + 1.0 - x / 2.0
    z = ops.concatenate([z, ops.softmax(y, axis=-1)], axis=-1)
    z = ops.reshape(z, (-1, 3, 4))
    z = ops.sum(z, axis=1) + ops.mean(z, axis=1, keepdims=False)
    z = ops.tanh(z[:, :3]) * ops.sigmoid(-y[:, 3:])
    z = ops.where(z > 0, ops.sqrt(ops.abs(z)), ops.square(z))
    return k.Model(x, k.layers.Dense(3, activation="softmax")(ops.maximum(z, 0.1)))


MODELS = {
    model.__name__: model
    for model in (
        mlp,
        convolutional,
        separable,
        embedded,
        residual,
        shared_and_nested,
        nested_at_the_end,
        with_ops,
    )
}


def data_for(model: Any, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    arrays = []
    for source in model.inputs:
        shape = (12, *source.shape[1:])
        if "int" in str(source.dtype):
            # Each word once: TensorFlow squares gradients of repeated rows one by one.
            arrays.append(rng.permutation(84).reshape(shape).astype("int32"))
        else:
            arrays.append(rng.normal(size=shape).astype("float32"))
    return arrays if len(arrays) > 1 else arrays[0]


def compiled(k: Any, build: Any, optimizer: Any = None) -> Any:
    k.utils.set_random_seed(3)
    model = build(k)
    model.compile(
        optimizer or k.optimizers.Adam(0.01),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return model


LABELS = np.arange(12) % 3


def take_steps(model: Any, x: Any, count: int) -> None:
    if type(model).__module__.startswith("keras"):
        model.run_eagerly = True  # compiling a Keras model costs seconds
    for _ in range(count):
        model.train_on_batch(x, LABELS)


def assert_equal_weights(ours: Any, theirs: Any) -> None:
    mine, yours = ours.get_weights(), theirs.get_weights()
    assert [array.shape for array in mine] == [array.shape for array in yours]
    for first, other in zip(mine, yours, strict=True):
        np.testing.assert_allclose(first, other, **CLOSE)


def assert_equal_predictions(a: Any, b: Any, x: Any) -> None:
    # Keras is called, not asked to `predict`, which would compile it for seconds.
    first, second = np.asarray(a(x, training=False)), np.asarray(b(x, training=False))
    np.testing.assert_allclose(first, second, **CLOSE)
    assert np.std(first) > 0  # a model that forgot everything would be constant


@pytest.mark.parametrize("name", MODELS)
def test_keras_loads_our_model_and_takes_the_same_next_steps(keras, tmp_path, name):
    ours = compiled(ganglion, MODELS[name])
    x = data_for(ours)
    take_steps(ours, x, 3)
    ours.save(tmp_path / "m.keras")
    theirs = keras.models.load_model(tmp_path / "m.keras")
    assert_equal_predictions(ours, theirs, x)
    assert_equal_weights(ours, theirs)
    assert int(theirs.optimizer.iterations) == 3
    take_steps(ours, x, 2)
    take_steps(theirs, x, 2)
    assert_equal_weights(ours, theirs)


@pytest.mark.parametrize("name", MODELS)
def test_we_load_the_model_of_keras_and_take_the_same_next_steps(keras, tmp_path, name):
    theirs = compiled(keras, MODELS[name])
    x = data_for(theirs)
    take_steps(theirs, x, 3)
    theirs.save(tmp_path / "m.keras")
    ours = saving.load_model(tmp_path / "m.keras")
    assert ours.compiled
    assert_equal_predictions(ours, theirs, x)
    assert_equal_weights(ours, theirs)
    assert int(ours.optimizer.iterations.numpy()) == 3
    take_steps(ours, x, 2)
    take_steps(theirs, x, 2)
    assert_equal_weights(ours, theirs)


@pytest.mark.parametrize("name", MODELS)
def test_weights_files_go_both_ways(keras, tmp_path, name):
    path = str(tmp_path / "m.weights.h5")
    ours, theirs = compiled(ganglion, MODELS[name]), compiled(keras, MODELS[name])
    x = data_for(ours)
    ours.save_weights(path)
    theirs.load_weights(path)
    assert_equal_predictions(ours, theirs, x)
    take_steps(theirs, x, 2)
    theirs.save_weights(path)
    ours.load_weights(path)
    assert_equal_predictions(ours, theirs, x)
    take_steps(ours, x, 1)
    take_steps(theirs, x, 1)
    assert_equal_weights(ours, theirs)


@pytest.mark.filterwarnings("ignore::ganglion.keras2.Keras2Warning")
@pytest.mark.parametrize("name", ["mlp", "convolutional", "residual"])
def test_old_h5_files_go_both_ways(keras, tmp_path, name):
    path = str(tmp_path / "m.h5")
    theirs = compiled(keras, MODELS[name])
    x = data_for(theirs)
    take_steps(theirs, x, 2)
    theirs.save(path)
    ours = saving.load_model(path)
    assert_equal_predictions(ours, theirs, x)
    take_steps(ours, x, 1)
    take_steps(theirs, x, 1)
    assert_equal_weights(ours, theirs)
    ours.save(path)
    again = keras.models.load_model(path)
    assert_equal_predictions(ours, again, x)
    fresh = compiled(ganglion, MODELS[name])
    fresh.load_weights(path)
    assert_equal_weights(fresh, theirs)


OPTIMIZERS = {
    "sgd": lambda k: k.optimizers.SGD(0.05, momentum=0.9, nesterov=True),
    "rmsprop": lambda k: k.optimizers.RMSprop(0.01, centered=True),
    "adamw": lambda k: k.optimizers.AdamW(0.01),
    "averaged": lambda k: k.optimizers.Adam(0.01, use_ema=True, amsgrad=True),
    "schedule": lambda k: k.optimizers.Adam(
        k.optimizers.schedules.ExponentialDecay(0.01, 2, 0.5)
    ),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_keep_their_state_both_ways(keras, tmp_path, name):
    ours = compiled(ganglion, mlp, OPTIMIZERS[name](ganglion))
    x = data_for(ours)
    take_steps(ours, x, 3)
    ours.save(tmp_path / "a.keras")
    theirs = keras.models.load_model(tmp_path / "a.keras")
    take_steps(theirs, x, 2)
    theirs.save(tmp_path / "b.keras")
    back = saving.load_model(tmp_path / "b.keras")
    take_steps(ours, x, 3)
    take_steps(back, x, 1)
    assert_equal_weights(ours, back)


def test_losses_and_metrics_of_several_outputs_survive(keras, tmp_path):
    def build(k: Any) -> Any:
        x = k.Input((6,), name="x")
        y = k.layers.Dense(4)(x)
        outputs = {"o": k.layers.Dense(1)(y), "p": k.layers.Dense(2, name="q")(y)}
        model = k.Model({"x": x}, outputs)
        model.compile(
            k.optimizers.Adam(0.01),
            loss={"o": "mse", "p": k.losses.LogCosh()},
            loss_weights={"o": 1.0, "p": 0.3},
            metrics={"o": ["mae"], "p": [k.metrics.RootMeanSquaredError()]},
        )
        return model

    ours = build(ganglion)
    rng = np.random.default_rng(0)
    x = {"x": rng.normal(size=(8, 6)).astype("float32")}
    y = {
        "o": rng.normal(size=(8, 1)).astype("float32"),
        "p": rng.normal(size=(8, 2)).astype("float32"),
    }
    ours.save(tmp_path / "m.keras")
    theirs = keras.models.load_model(tmp_path / "m.keras")
    theirs.save(tmp_path / "n.keras")
    back = saving.load_model(tmp_path / "n.keras")
    expected = theirs.evaluate(x, y, verbose=0, return_dict=True)
    for model in (ours, back):
        metrics = model.evaluate(x, y, verbose=0, return_dict=True)
        assert metrics.keys() == expected.keys()
        for key in metrics:
            np.testing.assert_allclose(metrics[key], expected[key], **CLOSE)


def test_keras_rebuilds_our_json_and_the_reverse(keras):
    ours = compiled(ganglion, residual)
    theirs = keras.models.model_from_json(ours.to_json())
    theirs.set_weights(ours.get_weights())
    x = data_for(ours)
    assert_equal_predictions(ours, theirs, x)
    back = saving.model_from_json(theirs.to_json())
    back.set_weights(ours.get_weights())
    assert_equal_predictions(ours, back, x)


def around_own(k: Any) -> Any:
    """A model whose output is that of one of a subclass, made of Keras tensors."""

    class Own(k.Model):
        pass

    x, inside = k.Input((3,)), k.Input((3,))
    inner = Own(inside, k.layers.Dense(2)(inside), name="inner")
    assert isinstance(inner, type(k.Model(x, x)))  # Functional
    return k.Model(x, inner(x)), {"Own": Own}


def test_a_model_of_a_subclass_inside_of_another_goes_both_ways(keras):
    (ours, own), (theirs, own_of_keras) = around_own(ganglion), around_own(keras)
    config = ours.get_config()
    assert config["output_layers"] == theirs.get_config()["output_layers"]
    back = ganglion.models.model_from_json(theirs.to_json(), own)
    assert back.layers[-1].name == "inner"
    keras.models.model_from_json(ours.to_json(), own_of_keras)
    config["output_layers"][1] = 0  # what was written by Ganglion before
    assert ganglion.Model.from_config(config, own).output_shape == (None, 2)


def test_a_lambda_in_a_file_of_keras_is_refused(keras, tmp_path):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Lambda(lambda x: x + 1)])
    model.save(tmp_path / "m.keras")
    with pytest.raises(ValueError, match=r"m\.keras.*lambda.*never executes"):
        saving.load_model(tmp_path / "m.keras")
