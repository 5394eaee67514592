"""Sequential, functional and subclassed models."""

import numpy as np
import pytest

import ganglion as keras
from ganglion import Input, Model, Sequential, layers, ops


@pytest.fixture(autouse=True)
def _seeded():
    keras.utils.set_random_seed(1)


def rows(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def test_sequential_counts_shapes_and_names():
    model = Sequential([Input((4,)), layers.Dense(3, name="a"), layers.Dense(2)])
    assert model.count_params() == 4 * 3 + 3 + 3 * 2 + 2
    assert model.input_shape == (None, 4)
    assert model.output_shape == (None, 2)
    assert model.get_layer("a") is model.layers[0]
    assert model.get_layer(index=1) is model.layers[1]
    with pytest.raises(ValueError, match="No such layer: b"):
        model.get_layer("b")


def test_sequential_without_input_builds_on_first_data():
    model = Sequential([layers.Dense(3), layers.Dense(2)])
    assert not model.built
    with pytest.raises(ValueError, match="no weights yet"):
        model.count_params()
    model.compile("sgd", "mse")
    model.fit(rows(8, 5), rows(8, 2), verbose=0)
    assert model.count_params() == 5 * 3 + 3 + 3 * 2 + 2
    assert model.output_shape == (None, 2)


def test_sequential_add_and_pop():
    model = Sequential()
    model.add(Input((4,)))
    model.add(layers.Dense(3))
    model.add(layers.Dense(2))
    assert model.output_shape == (None, 2)
    model.pop()
    assert model.output_shape == (None, 3)
    with pytest.raises(ValueError, match="Only instances of"):
        model.add("dense")


def test_layer_names_must_differ():
    with pytest.raises(ValueError, match='"twice" is used twice'):
        Sequential([layers.Dense(1, name="twice"), layers.Dense(1, name="twice")])


def two_in_two_out():
    a, b = Input((3,), name="left"), Input((2,), name="right")
    joined = layers.Concatenate()([layers.Dense(4)(a), b])
    big = layers.Dense(2, name="big")(joined)
    small = layers.Dense(1, name="small")(joined)
    return Model([a, b], [big, small])


def test_several_inputs_and_outputs():
    model = two_in_two_out()
    model.compile(
        "sgd",
        loss={"big": "mse", "small": "mae"},
        loss_weights={"big": 1.0, "small": 0.5},
        metrics={"big": ["mae"]},
    )
    x, y = [rows(8, 3), rows(8, 2)], [rows(8, 2), rows(8, 1)]
    history = model.fit(x, y, epochs=2, verbose=0).history
    assert sorted(history) == ["big_loss", "big_mae", "loss", "small_loss"]
    expected = history["big_loss"][-1] + 0.5 * history["small_loss"][-1]
    assert history["loss"][-1] == pytest.approx(expected, rel=1e-5)
    big, small = model.predict(x, verbose=0)
    assert big.shape == (8, 2)
    assert small.shape == (8, 1)


def test_inputs_and_targets_by_name():
    model = two_in_two_out()
    model.compile("sgd", loss="mse")
    x, y = [rows(8, 3), rows(8, 2)], [rows(8, 2), rows(8, 1)]
    by_order = model.evaluate(x, y, return_dict=True, verbose=0)
    by_name = model.evaluate(
        {"right": x[1], "left": x[0]},
        {"small": y[1], "big": y[0]},
        return_dict=True,
        verbose=0,
    )
    assert by_name == by_order


def test_a_shared_layer_has_one_set_of_weights():
    a, b = Input((3,)), Input((3,))
    shared = layers.Dense(2)
    model = Model([a, b], layers.Subtract()([shared(a), shared(b)]))
    assert len(model.weights) == 2
    x = rows(5, 3)
    np.testing.assert_allclose(model.predict([x, x], verbose=0), 0, atol=1e-6)


def test_nested_models_train_all_the_way_down():
    inner = Sequential([Input((3,)), layers.Dense(4, activation="relu")], name="inner")
    x = Input((3,))
    model = Model(x, layers.Dense(1)(inner(x)))
    assert len(model.trainable_weights) == 4
    before = inner.get_weights()[0]
    model.compile("sgd", "mse")
    model.fit(rows(8, 3), rows(8, 1), verbose=0)
    assert not np.array_equal(before, inner.get_weights()[0])


def test_ops_on_keras_tensors_are_part_of_the_model():
    x = Input((3,))
    y = ops.relu(x * 2.0 - 1.0)
    model = Model(x, ops.concatenate([y, x[:, :1]], axis=-1))
    data = rows(4, 3)
    expected = np.concatenate([np.maximum(data * 2 - 1, 0), data[:, :1]], axis=1)
    np.testing.assert_allclose(model.predict(data, verbose=0), expected, rtol=1e-6)
    assert model.output_shape == (None, 4)


def test_a_model_of_inner_tensors():
    x = Input((3,))
    hidden = layers.Dense(4, name="hidden")(x)
    model = Model(x, layers.Dense(1)(hidden))
    feature = Model(model.input, model.get_layer("hidden").output)
    assert feature.predict(rows(2, 3), verbose=0).shape == (2, 4)


def test_the_output_of_an_inner_sequential_is_that_of_its_call():
    inner = Sequential(
        [Input((4,)), layers.Dense(3, name="a"), layers.Dense(2, name="b")]
    )
    outer = Sequential([Input((4,)), layers.Dense(4), inner, layers.Dense(1)])
    cut = Model(outer.inputs, [inner.output, outer.output])
    x = np.ones((2, 4), "float32")
    hidden = inner(outer.layers[0](x))
    np.testing.assert_allclose(cut(x)[0], hidden, rtol=1e-6)
    alone = Model(inner.inputs, inner.output)  # of itself, as ever
    np.testing.assert_allclose(alone(x), inner(x), rtol=1e-6)
    with pytest.raises(ValueError, match="not connected"):
        Model(outer.inputs, inner.layers[0].output)


def test_disconnected_graphs_are_refused():
    a, b = Input((2,)), Input((2,))
    with pytest.raises(ValueError, match="not connected"):
        Model(a, layers.Dense(1)(b))


def test_model_subclass():
    class Net(Model):
        def __init__(self, units):
            super().__init__()
            self.hidden = [layers.Dense(units, activation="relu") for _ in range(2)]
            self.drop = layers.Dropout(0.5)
            self.out = layers.Dense(1)

        def call(self, x, training=False):
            for layer in self.hidden:
                x = layer(x)
            if training:
                x = self.drop(x, training=training)
            return self.out(x)

    net = Net(4)
    net.compile("adam", "mse")
    x, y = rows(32, 3), rows(32, 1)
    before = net.evaluate(x, y, verbose=0)
    net.fit(x, y, epochs=20, verbose=0)
    assert net.evaluate(x, y, verbose=0) < before
    assert net.count_params() == 3 * 4 + 4 + 4 * 4 + 4 + 4 + 1
    kinds = [type(layer).__name__ for layer in net.layers]
    assert kinds == ["Dense", "Dense", "Dropout", "Dense"]


def test_layer_subclass_with_weights_and_losses():
    class Scale(layers.Layer):
        def build(self, input_shape):
            self.scale = self.add_weight((input_shape[-1],), "ones", name="scale")

        def call(self, x):
            self.add_loss(0.5 * ops.sum(self.scale))
            return x * self.scale

    model = Sequential([Input((3,)), Scale()])
    model.compile("sgd", "mse")
    x = rows(4, 3)
    assert model.evaluate(x, x, verbose=0) == pytest.approx(1.5)


def test_model_add_loss_on_keras_tensors_as_in_a_keras_2_vae():
    x = Input((4,))
    mean = layers.Dense(2, name="mean")(x)
    log_var = layers.Dense(2, name="log_var")(x)

    def sample(args):
        mean, log_var = args
        noise = keras.backend.random_normal(shape=(keras.backend.shape(mean)[0], 2))
        return mean + keras.backend.exp(0.5 * log_var) * noise

    z = layers.Lambda(sample)([mean, log_var])
    out = layers.Dense(4)(z)
    model = Model(x, out)
    kl = -0.5 * ops.sum(1.0 + log_var - ops.square(mean) - ops.exp(log_var), axis=-1)
    model.add_loss(ops.mean(ops.mean(ops.square(x - out), axis=-1) + kl))
    model.compile("adam")
    data = rows(64, 4)
    history = model.fit(data, epochs=15, verbose=0).history["loss"]
    assert history[-1] < history[0]
    assert not np.array_equal(model(data), model(data))  # new noise at every call


def test_trainable_is_what_it_was_at_compile():
    """The GAN of every tutorial: frozen in the combined model, training by itself."""
    critic = Sequential([Input((2,)), layers.Dense(1)], name="critic")
    critic.compile("sgd", "mse")
    critic.trainable = False
    z = Input((2,))
    maker = layers.Dense(2)
    combined = Model(z, critic(maker(z)))
    combined.compile("sgd", "mse")
    before, maker_before = critic.get_weights(), maker.get_weights()
    combined.train_on_batch(rows(8, 2), rows(8, 1))
    for a, b in zip(before, critic.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(maker_before[0], maker.get_weights()[0])
    critic.train_on_batch(rows(8, 2), rows(8, 1))
    assert not np.array_equal(before[0], critic.get_weights()[0])


def test_batch_norm_of_a_model_frozen_after_compile_still_learns_statistics():
    model = Sequential([Input((2,)), layers.BatchNormalization()])
    model.compile("sgd", "mse")
    model.trainable = False
    before = model.layers[0].moving_mean.numpy()
    model.train_on_batch(rows(8, 2) + 5, rows(8, 2))
    assert not np.array_equal(before, model.layers[0].moving_mean.numpy())
    frozen = Sequential([Input((2,)), layers.BatchNormalization(), layers.Dense(1)])
    frozen.layers[0].trainable = False
    frozen.compile("sgd", "mse")
    before = frozen.layers[0].moving_mean.numpy()
    frozen.train_on_batch(rows(8, 2) + 5, rows(8, 1))
    np.testing.assert_array_equal(before, frozen.layers[0].moving_mean.numpy())


def test_clone_has_its_own_weights_and_the_same_shape():
    model = two_in_two_out()
    clone = keras.models.clone_model(model)
    assert clone.output_shape == model.output_shape
    assert clone.weights[0] is not model.weights[0]
    clone.set_weights(model.get_weights())
    x = [rows(4, 3), rows(4, 2)]
    for a, b in zip(
        clone.predict(x, verbose=0), model.predict(x, verbose=0), strict=True
    ):
        np.testing.assert_array_equal(a, b)


def test_unused_weights_are_named_and_left_alone():
    class Net(Model):
        def __init__(self):
            super().__init__()
            self.used = layers.Dense(1)
            self.unused = layers.Dense(1, name="idle")

        def call(self, x):
            self.unused(x)
            return self.used(x)

    net = Net()
    net.compile("sgd", "mse")
    with pytest.warns(UserWarning, match="does not depend on .*/idle/kernel"):
        net.fit(rows(4, 2), rows(4, 1), verbose=0)


def test_a_subclass_may_call_its_attributes_as_it_likes():
    class Mine(keras.Model):
        def __init__(self):
            super().__init__()
            self.epoch, self.order, self.position = 7, [1, 0], "first"
            self.dense = keras.layers.Dense(1)

        def call(self, x):
            return self.dense(x)

    model = Mine()
    model.compile("sgd", "mse")
    model.fit(np.ones((4, 2)), np.ones(4), epochs=2, verbose=0)
    assert (model.epoch, model.order, model.position) == (7, [1, 0], "first")
    assert int(model.training_state.epoch) == 2


def test_a_model_that_starts_inside_of_another_has_an_input_layer():
    x = keras.Input((2,))
    hidden = layers.Dense(3, name="first")(x)
    whole = keras.Model(x, layers.Dense(4, name="last")(hidden))
    part = keras.Model(whole.get_layer("last").input, whole.output)
    assert [type(layer).__name__ for layer in part.layers] == ["InputLayer", "Dense"]
    assert part.operations == part.layers
    back = keras.Model.from_config(part.get_config())
    assert [layer.name for layer in back.layers] == [x.name for x in part.layers]
    lines = []
    part.summary(print_fn=lines.append)
    assert "(InputLayer)" in "".join(lines)


def test_a_layer_may_hold_the_size_of_its_batch():
    inputs = keras.Input((3,))
    noisy = layers.Lambda(lambda x: x + keras.random.normal((16, 3)))(inputs)
    model = keras.Model(inputs, layers.Dense(2)(noisy))
    assert model.predict(np.zeros((32, 3)), batch_size=16, verbose=0).shape == (32, 2)


def test_a_build_of_ones_own_may_call_that_of_the_model():
    class Net(Model):
        def build(self, input_shape):
            self.scale = self.add_weight(shape=(input_shape[-1],), initializer="ones")
            self.dense = layers.Dense(2)
            super().build(input_shape)

        def call(self, x):
            return self.dense(x * self.scale)

    net = Net()
    net.compile("sgd", "mse")
    net.fit(np.ones((4, 3)), np.ones((4, 2)), verbose=0)
    assert [weight.shape for weight in net.weights] == [(3,), (3, 2), (2,)]
