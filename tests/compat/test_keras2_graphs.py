"""What scripts for Keras 2 build as a graph: updates, phases, computed weights."""

import numpy as np
import pytest

import ganglion as keras
from ganglion import keras2
from ganglion.backend import (
    batch_dot,
    function,
    in_train_phase,
    learning_phase,
    placeholder,
    set_learning_phase,
    switch,
    update,
)
from ganglion.compat import star_imports
from ganglion.layers import BatchNormalization, Dense, Dropout, Input, Lambda, Wrapper

K = keras.backend

pytestmark = pytest.mark.filterwarnings("ignore::ganglion.keras2.Keras2Warning")


@pytest.fixture(autouse=True)
def keras_2():
    keras2.set_active(True)


def rows(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def small_network():
    x = Input((3,))
    model = keras.Model(x, Dense(2)(Dense(4, activation="tanh")(x)))
    model.set_weights([rows(*w.shape) for w in model.get_weights()])
    return model


# ---- updates -------------------------------------------------------------------------


@pytest.mark.parametrize("spelling", ["keras 1", "keras 2", "by name"])
def test_a_function_takes_a_step_of_an_optimizer(spelling):
    model, wanted = small_network(), small_network()
    factors = placeholder(shape=(None,))
    loss = K.mean(K.square(K.sum(model.output, axis=1) - factors))
    optimizer, weights = keras.optimizers.Adam(0.1), model.trainable_weights
    updates = {
        "keras 1": lambda: optimizer.get_updates(weights, [], loss),
        "keras 2": lambda: optimizer.get_updates(loss, weights),
        "by name": lambda: optimizer.get_updates(params=weights, loss=loss),
    }[spelling]()
    train = function([model.input, factors], [loss], updates=updates)
    x, y = rows(5, 3), rows(5)
    losses = [train([list(x), y])[0] for _ in range(3)]

    def sums(y_true, y_pred):
        return K.square(K.sum(y_pred, axis=1) - y_true)

    wanted.compile(keras.optimizers.Adam(0.1), sums)
    steps = [wanted.train_on_batch(x, y) for _ in range(3)]
    np.testing.assert_allclose(losses, steps, rtol=1e-5)
    for ours, theirs in zip(model.get_weights(), wanted.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


def test_a_function_may_only_train():
    model = small_network()
    updates = keras.optimizers.SGD(1.0).get_updates(
        K.sum(model.output), model.trainable_weights
    )
    before = model.get_weights()
    assert function([model.input], [], updates=updates)([rows(2, 3)]) == []
    np.testing.assert_allclose(model.get_weights()[-1], before[-1] - 2.0, rtol=1e-6)


def test_a_function_assigns_to_variables():
    x, total = Input((2,)), K.variable(1.0)
    pairs = [(total, K.sum(x))]
    run = function([x], [K.max(x)], updates=pairs)
    assert run([np.array([[1.0, 4.0]])])[0] == 4.0
    assert K.get_value(total) == 5.0
    run = function([x], [], updates=[update(total, K.min(x))])
    run([np.array([[1.0, 4.0]])])
    assert K.get_value(total) == 1.0


def test_other_updates_are_refused():
    x = Input((2,))
    with pytest.raises(ValueError, match="get_updates"):
        function([x], [x], updates=[K.variable(1.0)])


class Momentum(keras.optimizers.Optimizer):
    """A descent with momentum that a script for Keras 2 writes."""

    def __init__(self, lr=0.1, momentum=0.9, factors=None, **kwargs):
        super().__init__(**kwargs)
        with K.name_scope(type(self).__name__):
            self.iterations = K.variable(0, dtype="int64", name="iterations")
            self.lr = K.variable(lr, name="lr")
            self.momentum = K.variable(momentum, name="momentum")
        self.factors = factors or {}

    def get_updates(self, loss, params):
        slopes = self.get_gradients(loss, params)
        self.updates = [K.update_add(self.iterations, 1)]
        moments = [K.zeros(K.int_shape(param)) for param in params]
        self.weights = [self.iterations, *moments]
        for param, slope, moment in zip(params, slopes, moments, strict=True):
            # Read behind `update_add`, and yet the number of steps before this one.
            rate = self.lr / (1.0 + 0.5 * K.cast(self.iterations, K.floatx()))
            velocity = self.momentum * moment - rate * slope
            self.updates.append(K.update(moment, velocity))
            self.updates.append((param, param + velocity))
        return self.updates


class Accumulated(keras.optimizers.Optimizer):
    """Another optimizer, which takes a step only at every second call."""

    def __init__(self, optimizer, **kwargs):
        super().__init__(**kwargs)
        self.optimizer = optimizer
        self.iterations = K.variable(0, dtype="int64")
        self.acts = K.equal(self.iterations % 2, 1)
        self.lr = optimizer.lr
        optimizer.lr = K.switch(self.acts, optimizer.lr, 0.0)
        optimizer.get_gradients = lambda loss, params: self.sums

    def get_updates(self, loss, params):
        slots = [K.zeros(K.int_shape(param)) for param in params]
        slopes = self.get_gradients(loss, params)
        self.sums = [slot + slope for slot, slope in zip(slots, slopes, strict=True)]
        kept = [K.switch(self.acts, total * 0, total) for total in self.sums]
        updates = [K.update_add(self.iterations, 1)]
        updates += [K.update(*pair) for pair in zip(slots, kept, strict=True)]
        return updates + self.optimizer.get_updates(loss, params)[1:]


def trained(optimizer, x, y, batch_size):
    model = small_network()
    model.compile(optimizer, "mse")
    model.fit(x, y, batch_size=batch_size, epochs=2, shuffle=False, verbose=0)
    return model


def assert_equal_weights(one, other):
    for a, b in zip(one.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_an_optimizer_that_a_script_writes_as_updates():
    x, y = rows(12, 3), rows(12, 2)
    optimizer = Momentum(0.1)
    model = trained(optimizer, x, y, 4)
    theirs = keras.optimizers.SGD(lr=0.1, momentum=0.9, decay=0.5)
    assert_equal_weights(model, trained(theirs, x, y, 4))
    assert K.get_value(optimizer.iterations) == 6
    assert len(optimizer.weights) == 5
    model.train_on_batch(x[:3], y[:3])  # another trace, the same slots
    assert len(optimizer._own_slots) == 4


def test_an_optimizer_around_another():
    x, y = rows(8, 3), rows(8, 2)
    model = trained(Accumulated(keras.optimizers.SGD(lr=0.05)), x, y, 4)
    # Two halves, whose mean losses count once each, are one batch at twice the rate.
    assert_equal_weights(model, trained(keras.optimizers.SGD(lr=0.1), x, y, 8))


class Multiplied(keras.optimizers.Optimizer):
    """Another optimizer, with other rates for the layers whose names are given."""

    def __init__(self, optimizer, factors, **kwargs):
        super().__init__(**kwargs)
        self.optimizer, self.factors = keras.optimizers.get(optimizer), factors
        self.updates = []

    def get_updates(self, loss, params):
        if self.updates:
            return self.updates
        rate = self.optimizer.learning_rate
        for name in ("", *self.factors):
            wanted = [p for p in params if p.name.partition("/")[0] == name or not name]
            named = [
                p for p in wanted if name or p.name.split("/")[0] not in self.factors
            ]
            self.optimizer.learning_rate = rate * self.factors.get(name, 1.0)
            self.updates += self.optimizer.get_updates(loss, named)
        self.optimizer.learning_rate = rate
        return self.updates


def test_rates_by_the_names_of_layers():
    def network():
        x = Input((3,))
        hidden = Dense(4, activation="tanh", name="low")(x)
        model = keras.Model(x, Dense(2, name="high")(hidden))
        model.set_weights([rows(*w.shape) for w in model.get_weights()])
        return model

    x, y = rows(12, 3), rows(12, 2)
    model, plain = network(), network()
    optimizer = Multiplied(keras.optimizers.SGD(lr=0.1), {"high": 3.0})
    for each, with_optimizer in ((model, optimizer), (plain, "sgd")):
        each.compile(with_optimizer, "mse")
    before = plain.get_weights()
    K.set_value(plain.optimizer.lr, 0.1)
    plain.train_on_batch(x, y)
    model.train_on_batch(x, y)
    model.train_on_batch(x[:4], y[:4])  # another trace begins with a list of its own
    model.set_weights(before)
    model.train_on_batch(x, y)
    factors = (1, 1, 3, 3)
    for start, ours, theirs, factor in zip(
        before, model.get_weights(), plain.get_weights(), factors, strict=True
    ):
        moved = (theirs - start) * factor
        np.testing.assert_allclose(ours - start, moved, rtol=1e-3, atol=1e-5)
    assert float(optimizer.optimizer.learning_rate) == pytest.approx(0.1)
    assert len(optimizer.variables) == len(set(optimizer.variables))


class Decayed(keras.optimizers.SGD):
    """Shrinks weights with their updates: `K.update` does it while they are made."""

    def get_updates(self, loss, params):
        update = K.update

        def shrunk(x, new_x):
            known = any(x is param for param in params)
            return update(x, new_x - 0.1 * x if known else new_x)

        K.update = shrunk
        try:
            return super().get_updates(loss, params)
        finally:
            K.update = update


def test_updates_go_through_the_function_of_the_backend():
    x, y = rows(4, 3), rows(4, 2)
    model, plain = small_network(), small_network()
    before = plain.get_weights()
    for each, cls in ((model, Decayed), (plain, keras.optimizers.SGD)):
        each.compile(cls(lr=0.1), "mse")
        each.train_on_batch(x, y)
    for start, ours, theirs in zip(
        before, model.get_weights(), plain.get_weights(), strict=True
    ):
        np.testing.assert_allclose(ours, theirs - 0.1 * start, rtol=1e-4, atol=1e-6)
    assert K.get_value(model.optimizer.iterations) == 1


def test_names_of_weights_begin_with_their_layer():
    layer = Dense(2, name="out")
    model = keras.Sequential([Input((3, 4)), keras.layers.LSTM(5, name="rnn"), layer])
    names = [weight.name for weight in model.weights]
    assert names[-2:] == ["out/kernel:0", "out/bias:0"]
    assert names[0] == "rnn/kernel:0"
    keras2.set_active(True, in_tensorflow=True)
    assert layer.kernel.name == "out/kernel:0"
    keras2.set_active(False)
    assert (layer.kernel.name, layer.kernel.path[-10:]) == ("kernel", "out/kernel")


def test_updates_that_are_none_are_refused():
    class Broken(keras.optimizers.SGD):
        def get_updates(self, loss, params):
            return [1]

    model = small_network()
    model.compile(Broken(), "mse")
    with pytest.raises(ValueError, match=r"Broken\.get_updates"):
        model.train_on_batch(rows(2, 3), rows(2, 2))
    with pytest.raises(TypeError, match="learning_rate"):
        keras.optimizers.Optimizer()


def test_steps_in_operations_of_tensorflow_are_refused():
    class Own(keras.optimizers.SGD):
        def _resource_apply_dense(self, grad, var, apply_state=None):
            return var.assign_sub(grad)

    with pytest.raises(NotImplementedError, match=r"Own has .*update_step"):
        Own(0.1)


def test_numbers_of_an_optimizer_are_set_by_the_backend():
    model = small_network()
    model.compile(keras.optimizers.SGD(lr=1.0, momentum=0.5), "mse")
    assert K.get_value(model.optimizer.momentum) == 0.5
    K.set_value(model.optimizer.momentum, 0.0)
    x, y = rows(4, 3), rows(4, 2)
    plain = small_network()
    plain.compile(keras.optimizers.SGD(lr=1.0), "mse")
    for _ in range(2):
        model.train_on_batch(x, y)
        plain.train_on_batch(x, y)
    assert_equal_weights(model, plain)


def test_what_is_computed_from_a_variable_follows_it():
    strength = K.variable(2.0)
    doubled = strength * 2
    K.set_value(strength, 5.0)
    assert float(K.eval(doubled)) == float(doubled) == 10.0
    x = Input((1,))
    model = keras.Model(x, Lambda(lambda x: x * 1.0)(x))
    model.compile("sgd", lambda y_true, y_pred: y_pred * doubled)
    assert model.test_on_batch(np.ones((2, 1)), np.ones((2, 1))) == 10.0
    K.set_value(strength, 1.0)
    assert model.test_on_batch(np.ones((2, 1)), np.ones((2, 1))) == 2.0


def test_callbacks_are_told_what_keras_2_told_them():
    seen = []
    told = keras.callbacks.LambdaCallback(on_train_begin=lambda logs: None)
    told.set_params = seen.append
    model = small_network()
    model.compile("sgd", "mse")
    model.fit(rows(6, 3), rows(6, 2), batch_size=4, verbose=0, callbacks=[told])
    assert seen[-1]["samples"] == 6
    assert seen[-1]["batch_size"] == 4
    assert seen[-1]["metrics"] == ["loss"]
    assert not seen[-1]["do_validation"]


def test_no_mask_is_none():
    x = Input((2,))
    assert (x == None) is False  # noqa: E711
    assert x != None  # noqa: E711
    assert ((rows(2) * K.variable(1.0)) == None) is False  # noqa: E711


# ---- the learning phase --------------------------------------------------------------


def test_layers_keep_the_phase_they_were_called_in():
    set_learning_phase(0)
    assert learning_phase() == 0
    model = keras.Sequential(
        [Input((4,)), BatchNormalization(), Dropout(0.9), Dense(1)]
    )
    set_learning_phase(1)
    always = keras.Sequential([Input((400,)), Dropout(0.5)])
    inner = Lambda(lambda x: in_train_phase(x * 2, x))(Input((3,)))
    K.clear_session()
    model.compile("sgd", "mse")
    model.fit(rows(8, 4) + 3, rows(8, 1), verbose=0)
    assert not model.layers[0].get_weights()[2].any()  # the moving mean stays
    assert (always.predict(np.ones((1, 400)), verbose=0) == 0).mean() > 0.3
    twice = function([inner._keras_history.operation.input], [inner])
    np.testing.assert_array_equal(twice([np.ones((1, 3))])[0], 2)
    free = keras.Sequential([Input((400,)), Dropout(0.5)])
    assert (free.predict(np.ones((1, 400)), verbose=0) == 1).all()


def test_the_phase_of_tf_keras_is_that_of_fit():
    keras2.set_active(True, in_tensorflow=True)
    set_learning_phase(0)
    model = keras.Sequential([Input((4,)), BatchNormalization(), Dense(1)])
    model.compile("sgd", "mse")
    model.fit(rows(8, 4) + 3, rows(8, 1), verbose=0)
    assert model.layers[0].get_weights()[2].any()
    with pytest.raises(ValueError, match="training=True"):
        set_learning_phase(1)
    with pytest.raises(ValueError, match="0 or 1"):
        set_learning_phase(2)


def test_a_phase_outside_of_a_step_is_refused():
    with pytest.raises(ValueError, match="only known inside"):
        in_train_phase(np.float32(1), np.float32(2))
    x = Input((2,))
    chosen = in_train_phase(x * 10, x)
    run = function([x, learning_phase()], [chosen])
    assert [run([np.ones((1, 2)), phase])[0].max() for phase in (0, 1)] == [1, 10]


# ---- weights computed from weights in `build` ----------------------------------------


class Tied(Dense):
    """A Dense layer with the transposed kernel of another, as its `build` says."""

    def __init__(self, other, **kwargs):
        self.other = other
        super().__init__(other.input_shape[-1], **kwargs)

    def build(self, input_shape):
        self.kernel = K.transpose(self.other.kernel)
        self.bias = self.add_weight((self.units,), initializer="zeros", name="bias")
        self.built = True


def test_a_kernel_that_is_tied_in_build_follows_the_other():
    encoder = Dense(2, input_dim=5)
    model = keras.Sequential([encoder])
    model.add(Tied(encoder))
    model.compile(keras.optimizers.SGD(0.1), "mse")
    x = rows(32, 5)
    model.fit(x, x, epochs=3, verbose=0)
    kernel, bias, last = model.get_weights()
    wanted = (x @ kernel + bias) @ kernel.T + last
    np.testing.assert_allclose(
        model.predict(x, verbose=0), wanted, rtol=1e-4, atol=1e-5
    )
    np.testing.assert_array_equal(K.eval(model.layers[1].kernel), kernel.T)


class Scaled(Wrapper):
    """Scales the kernel of a layer to norm one, and adds a loss, both in `build`."""

    def build(self, input_shape):
        super().build(input_shape)
        self.norm = K.sqrt(K.sum(self.layer.kernel**2))
        self.layer.kernel = self.layer.kernel / self.norm
        self.layer.add_loss(0.5 * self.norm)

    def call(self, inputs):
        return self.layer(inputs)


def test_a_kernel_that_is_scaled_in_build_is_trained():
    x = Input((3,))
    model = keras.Model(x, Scaled(Dense(1, use_bias=False))(x))
    (kernel,) = model.get_weights()
    inputs, targets = rows(8, 3), rows(8, 1)
    model.compile("sgd", "mse")
    unit = kernel / np.linalg.norm(kernel)
    loss = np.mean((inputs @ unit - targets) ** 2) + np.linalg.norm(kernel) / 2
    assert model.train_on_batch(inputs, targets) == pytest.approx(loss, rel=1e-5)
    assert np.abs(model.get_weights()[0] - kernel).max() > 1e-4
    assert len(model.losses) == 1


def test_in_keras_3_build_computes_at_once():
    keras2.set_active(False)
    encoder = Dense(2)
    encoder.build((None, 5))
    encoder.input_shape = (None, 5)
    tied = Tied(encoder)
    tied.build((None, 2))
    before = np.array(tied.kernel)
    encoder.kernel.assign(encoder.kernel + 1)
    np.testing.assert_array_equal(tied.kernel, before)


# ---- functions of the backend --------------------------------------------------------


def test_batch_dot_of_many_axes_multiplies_the_last():
    c, h = rows(2, 5, 7), rows(2, 5, 7, 3)
    wanted = np.einsum("bjn,bjnd->bjd", c, h)
    np.testing.assert_allclose(batch_dot(c, h, [2, 2]), wanted, rtol=1e-4, atol=1e-5)
    q, k = rows(2, 4, 6, 8), rows(2, 4, 9, 8)
    wanted = np.einsum("bhqd,bhkd->bhqk", q, k)
    np.testing.assert_allclose(batch_dot(q, k, 3), wanted, rtol=1e-4, atol=1e-5)
    o = rows(2, 5, 3)
    wanted = np.einsum("bjd,bjnd->bjn", o, h)
    np.testing.assert_allclose(batch_dot(o, h, [2, 3]), wanted, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="permute_dimensions"):
        batch_dot(q, k, [1, 1])
    keras2.set_active(True, in_tensorflow=True)  # as Keras since 2.3
    assert batch_dot(q, k, 3).shape == (2, 4, 6, 4, 9)


def test_switch_chooses_by_the_first_axes():
    x = np.arange(9.0).reshape(3, 3)
    for condition in (np.array([1, 0, 1]), np.array([[1], [0], [1]])):
        chosen = switch(condition > 0, x, -x)
        np.testing.assert_array_equal(chosen, x * [[1], [-1], [1]])
    assert switch(np.float32(1), lambda: 2.0, lambda: 3.0) == 2.0


def test_sizes_are_computed_with_as_a_vector():
    x = np.ones((2, 3, 4), "float32")
    assert K.shape(x)[1:] * 2 == (6, 8)
    assert 2 * K.shape(x)[:0:-1] // 3 == (2, 2)
    assert (K.shape(x)[1:] - 1, K.shape(x)[1:] / 2) == ((2, 3), (1.5, 2))
    assert K.shape(x)[1] * 2 == 6
    given = Input((None, 4))
    doubled = K.cast(K.shape(given)[1:][::-1] * 2 - 1, "float32")
    known = K.cast(K.shape(given)[2:] * 2, "float32")
    sizes = function([given], [doubled + 0 * K.sum(given)])([x])[0]
    assert sizes.tolist() == [7, 5]
    assert np.array(known).tolist() == [8]


def test_whole_numbers_drawn_evenly():
    drawn = np.array(K.random_uniform((200,), 2, 5, dtype="int32"))
    assert drawn.dtype == np.int32
    assert set(drawn) == {2, 3, 4}


def test_a_star_of_keras_2_brings_what_its_module_had_imported():
    brought = star_imports.names_of(
        "from keras.layers import *\nfrom keras.callbacks import *"
    )
    assert brought["np"] is np
    assert brought["K"] is K
    assert brought["initializers"] is keras.initializers
    assert brought["Progbar"] is keras.utils.Progbar
    for name in star_imports._PLACES:
        star_imports._found(name)
    assert star_imports.names_of("from tensorflow.keras.layers import *") == {}
    assert star_imports.names_of("no python (") == {}


def test_decorators_of_keras_2_change_nothing():
    from ganglion.legacy import interfaces

    @interfaces.legacy_get_updates_support
    @interfaces.legacy_conv2d_support
    def number():
        return 3

    assert number() == 3
