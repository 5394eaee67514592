"""Steps that models share: only equal models do, and nobody sees a difference."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import ganglion as keras
from ganglion import layers, recipes
from ganglion.training import data_adapters, sharing, step
from ganglion.training.sharing import SharedSteps, program_key
from ganglion.training.step import StepCache

RNG = np.random.default_rng(0)
FLAT = RNG.normal(size=(20, 6)).astype("float32")
IMAGES = RNG.normal(size=(20, 8, 8, 3)).astype("float32")
TOKENS = RNG.integers(0, 9, (20, 5))
Y = RNG.normal(size=(20, 2)).astype("float32")


def compiled(model, optimizer=None, loss="mse", **arguments):
    model.compile(optimizer or keras.optimizers.Adam(0.01), loss, **arguments)
    return model


def dense(**arguments):
    hidden = layers.Dense(4, activation="relu", name=arguments.pop("name", None))
    model = keras.Sequential(
        [keras.Input((6,)), hidden, layers.Dropout(0.3), layers.Dense(2)]
    )
    return compiled(model, **arguments)


def convolutional():
    stack = [
        layers.RandomFlip("horizontal"),
        layers.Conv2D(4, 3, activation="relu"),
        layers.BatchNormalization(),
        layers.MaxPooling2D(),
        layers.Flatten(),
        layers.Dense(2, kernel_constraint="max_norm"),
    ]
    return compiled(keras.Sequential([keras.Input((8, 8, 3)), *stack]))


def recurrent():
    stack = [
        layers.Embedding(9, 4, mask_zero=True),
        layers.Bidirectional(layers.LSTM(3, dropout=0.2)),
        layers.Dense(2),
    ]
    model = keras.Sequential([keras.Input((5,), dtype="int32"), *stack])
    return compiled(model, keras.optimizers.RMSprop(0.01, clipnorm=1.0))


def residual():
    x = keras.Input((6,))
    hidden = layers.Dense(6, activation="gelu")(x)
    hidden = layers.LayerNormalization()(x + hidden)
    outputs = [layers.Dense(2, name="a")(hidden), layers.Dense(1, name="b")(hidden)]
    model = keras.Model(x, outputs)
    return compiled(model, loss=["mse", "mae"], loss_weights=[1.0, 0.5])


def attention():
    x = keras.Input((6,))
    hidden = layers.Reshape((3, 2))(x)
    hidden = layers.MultiHeadAttention(2, 2, dropout=0.1)(hidden, hidden)
    return compiled(keras.Model(x, layers.Dense(2)(layers.Flatten()(hidden))))


CASES = {
    "dense": (dense, FLAT, Y),
    "convolutional": (convolutional, IMAGES, Y),
    "recurrent": (recurrent, TOKENS, Y),
    "residual": (residual, FLAT, [Y, Y[:, :1]]),
    "attention": (attention, FLAT, Y),
}


def train(model, x, y):
    history = model.fit(x, y, batch_size=8, epochs=2, validation_data=(x, y), verbose=0)
    return history.history


@pytest.mark.parametrize("name", CASES)
def test_a_model_with_shared_steps_is_what_it_would_be_alone(name):
    build, x, y = CASES[name]
    keras.utils.set_random_seed(1)
    own = [build(), build()]
    keras.utils.set_random_seed(1)
    alike = [build(), build()]
    steps = SharedSteps()
    for model in alike:
        model._step_cache.share(steps)
    histories = [train(model, x, y) for model in own]
    assert [train(model, x, y) for model in alike] == histories
    assert steps.compilations == 4  # of training and of tests, with 8 rows and with 4
    for ours, theirs in zip(own, alike, strict=True):
        for a, b in zip(ours.variables, theirs.variables, strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy())


def traces(*models, x=FLAT, y=Y):
    """Return how often steps of these models are traced, for one step each."""
    return shared_by(*models, x=x, y=y).traces


def shared_by(*models, x=FLAT, y=Y):
    steps = SharedSteps()
    for model in models:
        model._step_cache.share(steps)
        model.fit(x, y, batch_size=20, verbose=0)
    return steps


def of_the_user(y_true, y_pred):
    return keras.ops.mean(keras.ops.square(y_true - y_pred))


def changed(change):
    model = dense()
    change(model)
    return model


def test_rates_names_and_seeds_do_not_tell_models_apart():
    seeded = keras.Sequential(
        [
            keras.Input((6,)),
            layers.Dense(4, activation="relu", kernel_initializer="he_normal"),
            layers.Dropout(0.3, seed=7),
            layers.Dense(2),
        ]
    )
    other_rate = dense(optimizer=keras.optimizers.Adam(0.5))
    assert traces(dense(), other_rate, dense(name="x"), compiled(seeded)) == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: changed(lambda model: setattr(model.layers[1], "rate", 0.4)),
        lambda: dense(optimizer=keras.optimizers.Adam(0.01, beta_1=0.8)),
        lambda: dense(optimizer=keras.optimizers.AdamW(0.01)),
        lambda: dense(loss="mae"),
        lambda: dense(metrics=["mae"]),
        lambda: dense(
            optimizer=keras.optimizers.Adam(
                keras.optimizers.schedules.CosineDecay(0.01, 10)
            )
        ),
        lambda: changed(
            lambda model: setattr(
                model.layers[0].kernel, "regularizer", keras.regularizers.L1(0.1)
            )
        ),
        lambda: changed(
            lambda model: setattr(model.layers[0], "activation", keras.activations.tanh)
        ),
    ],
)
def test_what_changes_a_step_tells_models_apart(make):
    assert traces(dense(), make()) == 2
    assert traces(make(), make()) == 1


# What is made of a number that models may differ in, and still share their program.
optimizers, regularizers = keras.optimizers, keras.regularizers
schedules = optimizers.schedules


def with_rate(schedule):
    return dense(optimizer=optimizers.SGD(schedule))


def with_layer(layer, shape=(6,)):
    stack = [layers.Reshape(shape), layer, layers.Flatten(), layers.Dense(2)]
    return compiled(keras.Sequential([keras.Input((6,)), *stack]), "sgd")


NUMBERS = {
    "beta_1": lambda v: dense(optimizer=optimizers.Adam(0.01, beta_1=v)),
    "beta_2": lambda v: dense(optimizer=optimizers.Nadam(0.01, beta_2=v)),
    "epsilon": lambda v: dense(optimizer=optimizers.Adam(0.01, epsilon=v)),
    "weight_decay": lambda v: dense(optimizer=optimizers.AdamW(weight_decay=v)),
    "momentum": lambda v: dense(optimizer=optimizers.SGD(momentum=v, nesterov=True)),
    "rho": lambda v: dense(optimizer=optimizers.RMSprop(rho=v, centered=True)),
    "clipnorm": lambda v: dense(optimizer=optimizers.SGD(clipnorm=v)),
    "global_clipnorm": lambda v: dense(optimizer=optimizers.SGD(global_clipnorm=v)),
    "clipvalue": lambda v: dense(optimizer=optimizers.SGD(clipvalue=v)),
    "ema": lambda v: dense(optimizer=optimizers.SGD(use_ema=True, ema_momentum=v)),
    "lion": lambda v: dense(optimizer=optimizers.Lion(beta_1=v)),
    "ftrl": lambda v: dense(optimizer=optimizers.Ftrl(l1_regularization_strength=v)),
    "muon": lambda v: dense(optimizer=optimizers.Muon(momentum=v)),
    "dropout": lambda v: with_layer(layers.Dropout(v)),
    "noise": lambda v: with_layer(layers.GaussianNoise(v)),
    "gaussian": lambda v: with_layer(layers.GaussianDropout(v)),
    "alpha": lambda v: with_layer(layers.AlphaDropout(v)),
    "recurrent": lambda v: with_layer(layers.LSTM(2, dropout=v), (3, 2)),
    "rotation": lambda v: with_layer(layers.RandomRotation(v), (3, 2, 1)),
    "contrast": lambda v: with_layer(layers.RandomContrast(v), (3, 2, 1)),
    "activity": lambda v: with_layer(layers.ActivityRegularization(l1=v)),
    "l2": lambda v: with_layer(layers.Dense(2, kernel_regularizer=regularizers.L2(v))),
    "smoothing": lambda v: dense(
        loss=keras.losses.CategoricalCrossentropy(label_smoothing=v)
    ),
    "delta": lambda v: dense(loss=keras.losses.Huber(v)),
    "loss_weights": lambda v: dense(loss_weights=v),
    "exponential": lambda v: with_rate(schedules.ExponentialDecay(v, int(9 * v), v)),
    "polynomial": lambda v: with_rate(schedules.PolynomialDecay(v, int(9 * v), v / 9)),
    "cosine": lambda v: with_rate(
        schedules.CosineDecay(v, int(9 * v), v, warmup_target=v / 2, warmup_steps=3)
    ),
    "restarts": lambda v: with_rate(
        schedules.CosineDecayRestarts(v, int(9 * v), 1 + v, v, v / 2)
    ),
    "piecewise": lambda v: with_rate(
        schedules.PiecewiseConstantDecay([int(9 * v), 20], [v, v / 2, v / 4])
    ),
}


def traced(model, y=Y):
    table = data_adapters.table(model, FLAT, y)
    return model._step_cache.traced("train", table, table.signature(20, 20, True))


@pytest.mark.parametrize("name", NUMBERS)
def test_models_that_differ_in_a_number_have_one_program(name):
    first, second = (traced(NUMBERS[name](value)) for value in (0.3, 0.7))
    assert program_key(first.program) == program_key(second.program)
    assert told(first) != told(second)


def told(step):
    names = [name for name in step.program.state if name in step.numbers]
    return [float(step.variables[name].array) for name in names]


def test_a_number_of_the_step_is_computed_as_python_computes_it():
    step = traced(NUMBERS["beta_1"](0.9))
    numbers = {n.rpartition("/")[2]: step.variables[n].array for n in step.numbers}
    assert numbers["(1 - beta_1)"] == np.float32(1 - 0.9)
    assert numbers["beta_1"] == np.float32(0.9)


def test_numbers_that_make_a_simpler_step_stay_in_it():
    plain, heavy = (traced(NUMBERS["momentum"](value)) for value in (0.0, 0.9))
    assert len(plain.program.graph.nodes) < len(heavy.program.graph.nodes)
    assert not any(name.endswith("momentum") for name in plain.numbers)


def test_weights_that_are_not_trained_tell_models_apart():
    def frozen():
        model = dense()
        model.layers[0].trainable = False
        return compiled(model)

    assert traces(dense(), frozen()) == 2


def test_code_of_the_user_is_traced_for_each_model_and_compiled_once():
    steps = shared_by(dense(loss=of_the_user), dense(loss=of_the_user))
    assert (steps.traces, steps.compilations) == (2, 1)

    factor = 2.0

    class Own(layers.Layer):
        def call(self, inputs):
            return inputs * factor

    def own():
        model = keras.Sequential([keras.Input((6,)), Own(), layers.Dense(2)])
        return compiled(model)

    steps = SharedSteps()
    keras.utils.set_random_seed(0)
    models, histories = [own(), own(), own()], []
    for model in models:
        model._step_cache.share(steps)
        factor = 3.0 if model is models[2] else 2.0  # which no structure could show
        histories.append(train(model, FLAT, Y))
    assert steps.traces == 3 * 4
    assert steps.compilations == 2 * 4
    keras.utils.set_random_seed(0)
    for expected in histories:
        model = own()
        factor = 3.0 if expected is histories[2] else 2.0
        assert train(model, FLAT, Y) == expected


def test_data_by_name_goes_to_the_outputs_of_that_name():
    def build(first, second):
        x = keras.Input((6,))
        outputs = [layers.Dense(2, name=first)(x), layers.Dense(2, name=second)(x)]
        return compiled(keras.Model(x, outputs))

    y = {"a": Y, "b": 10 * Y}
    keras.utils.set_random_seed(0)
    expected = train(build("b", "a"), FLAT, y)
    steps = SharedSteps()
    first = build("a", "b")
    keras.utils.set_random_seed(0)
    second = build("b", "a")
    for model in (first, second):
        model._step_cache.share(steps)
    train(first, FLAT, y)
    assert train(second, FLAT, y) == expected


@pytest.mark.parametrize(
    "name",
    [
        "mnist-perceptron",
        "mnist-cnn",
        "mnist-vae",
        pytest.param("mnist-mlp", marks=pytest.mark.more),
        pytest.param("mini-gpt", marks=pytest.mark.more),
        pytest.param("cifar10-cam", marks=pytest.mark.more),
    ],
)
def test_models_of_a_recipe_share_their_steps(name):
    recipe = recipes.get(name)
    x, y = recipes.noise(recipe, 4)
    models = [recipes.build(recipe) for _ in range(2)]
    steps = SharedSteps()
    for model in models:
        model._step_cache.share(steps)
        model.fit(x, y, batch_size=4, verbose=0)
    assert steps.compilations == 1


def traced_steps(monkeypatch):
    """Return the kinds of steps that are traced from now on."""
    kinds, traced = [], StepCache.traced

    def noted(self, kind, table, signature):
        kinds.append(kind)
        return traced(self, kind, table, signature)

    monkeypatch.setattr(StepCache, "traced", noted)
    sharing.RECENT.clear()
    step._seen_shapes.clear()
    return kinds


@pytest.mark.parametrize("name", ["dense", "recurrent", "residual"])
def test_a_model_that_comes_again_and_again_needs_no_trace(name, monkeypatch):
    build, x, y = CASES[name]
    kinds = traced_steps(monkeypatch)
    keras.utils.set_random_seed(1)
    histories = [train(build(), x, y) for _ in range(2)]
    assert len(kinds) == 2 * 4  # of training and of tests, with 8 rows and with 4
    histories += [train(build(), x, y) for _ in range(2)]
    assert len(kinds) == 2 * 4
    keras.utils.set_random_seed(1)
    monkeypatch.setattr(step, "MOST_SEEN", 0)
    step._seen_shapes.clear()
    assert [train(build(), x, y) for _ in histories] == histories
    assert len(kinds) == 6 * 4


def test_what_changed_since_is_traced_again(monkeypatch):
    kinds = traced_steps(monkeypatch)
    first, second = dense(), dense()
    for model in (first, dense(), dense()):
        model.fit(FLAT, Y, batch_size=20, verbose=0)
    assert kinds == ["train"] * 2
    second.layers[0].activation = keras.activations.tanh
    second.fit(FLAT, Y, batch_size=20, verbose=0)
    second.layers[0].activation = keras.activations.sigmoid
    second.fit(FLAT, Y, batch_size=10, verbose=0)
    assert kinds == ["train"] * 4
    prediction = second.predict(FLAT, verbose=0)
    np.testing.assert_allclose(prediction, second(FLAT), rtol=1e-4, atol=1e-6)


def test_shared_steps_keep_no_model_alive():
    steps = SharedSteps()
    first, second = dense(), dense()
    for model in (first, second):
        model._step_cache.share(steps)
        model.fit(FLAT, Y, verbose=0)
    weight = weakref.ref(first.layers[0].kernel)
    del first, model
    gc.collect()
    assert weight() is None
