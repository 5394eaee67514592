"""Models, histories and their parts through pickle, copy and other processes."""

from __future__ import annotations

import concurrent.futures
import copy
import multiprocessing
import pickle
import pickletools

import numpy as np
import pytest

import ganglion as keras
from ganglion import layers

RNG = np.random.default_rng(0)
X = RNG.random((48, 4)).astype("float32")
Y = X.sum(1, keepdims=True)


def by_pickle(thing):
    return pickle.loads(pickle.dumps(thing))


WAYS = pytest.mark.parametrize(
    "copied", [by_pickle, copy.deepcopy, copy.copy], ids=["pickle", "deepcopy", "copy"]
)


class Scale(layers.Layer):
    """A layer that nobody has registered."""

    def __init__(self, factor=2.0, **kwargs):
        super().__init__(**kwargs)
        self.factor = factor

    def call(self, x):
        return x * self.factor


class Subclass(keras.Model):
    def __init__(self, units=3, **kwargs):
        super().__init__(**kwargs)
        self.first = layers.Dense(units, activation="tanh")
        self.noise = layers.Dropout(0.3)
        self.last = layers.Dense(1)

    def call(self, x, training=None):
        return self.last(self.noise(self.first(x), training=training))


class Stubborn(keras.Model):
    """No configuration tells how it was made."""

    def __init__(self, layer, **kwargs):
        super().__init__(**kwargs)
        self.layer = layer

    def get_config(self):
        raise NotImplementedError

    def call(self, x):
        return self.layer(x)


class Inside(keras.Model):
    """A graph that is made by the class itself."""

    def __init__(self, units):
        x = keras.Input((4,))
        super().__init__(inputs=x, outputs=layers.Dense(1)(layers.Dense(units)(x)))


def half_off(y, y_pred):
    return keras.ops.mean(keras.ops.abs(y - y_pred)) / 2


def sequential():
    return keras.Sequential(
        [
            keras.Input((4,)),
            layers.Dense(5, activation="relu"),
            layers.BatchNormalization(),
            layers.Dropout(0.2),
            layers.Dense(1),
        ]
    )


def unbuilt():
    return keras.Sequential([layers.Dense(3), layers.Dropout(0.5), layers.Dense(1)])


def functional():
    x = keras.Input((4,))
    shared = layers.Dense(4)
    side = Scale(3.0)(shared(shared(x)))
    return keras.Model(x, layers.Dense(1)(layers.Concatenate()([side, x])))


def nested():
    x = keras.Input((4,))
    return keras.Model(x, layers.Dense(1)(sequential()(functional()(x) * X[:1])))


MODELS = pytest.mark.parametrize(
    "make",
    [
        sequential,
        unbuilt,
        functional,
        nested,
        Subclass,
        lambda: Stubborn(layers.Dense(1)),
        lambda: Inside(2),
    ],
    ids=[
        "sequential",
        "unbuilt",
        "functional",
        "nested",
        "subclass",
        "stubborn",
        "inside",
    ],
)


def predicted(model):
    return model.predict(X, verbose=0)


def trained_on(model, epochs=2):
    losses = model.fit(X, Y, batch_size=8, epochs=epochs, verbose=0).history
    return losses, model.get_weights()


def assert_same(ours, theirs):
    np.testing.assert_equal(ours[0], theirs[0])
    for first, other in zip(ours[1], theirs[1], strict=True):
        np.testing.assert_array_equal(first, other)


@WAYS
@MODELS
def test_a_model_that_was_not_trained(make, copied):
    model = make()
    copy_of_model = copied(model)
    assert type(copy_of_model) is type(model)
    assert copy_of_model.name == model.name
    assert copy_of_model.built == model.built
    if model.built:
        np.testing.assert_array_equal(predicted(copy_of_model), predicted(model))
    model.compile("adam", "mse", metrics=["mae"])
    copy_of_model = copied(model)
    assert copy_of_model.compiled
    if model.built:
        assert_same(trained_on(copy_of_model), trained_on(model))


@WAYS
@MODELS
def test_a_trained_model_goes_on_with_the_same_bits(make, copied):
    model = make()
    model.compile(keras.optimizers.Adam(0.01), half_off, metrics=["mae"])
    trained_on(model)
    before = predicted(model)
    copy_of_model = copied(model)
    np.testing.assert_array_equal(predicted(copy_of_model), before)
    assert copy_of_model.history.history == model.history.history
    assert copy_of_model.history.model is copy_of_model
    rest = trained_on(copy_of_model)
    np.testing.assert_array_equal(predicted(model), before)  # it is another model
    assert_same(rest, trained_on(model))


def test_within_training():
    """In the middle of `fit`, of an epoch even, the copy is of that moment."""
    copies = []

    class Copies(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            copies.append((self.model.get_weights(), pickle.dumps(self.model)))

        def on_train_batch_end(self, batch, logs=None):
            if batch == 3:
                copies.append((self.model.get_weights(), pickle.dumps(self.model)))

    model = sequential()
    model.compile("sgd", "mse")
    model.fit(X, Y, batch_size=8, epochs=2, verbose=0, callbacks=[Copies()])
    assert len(copies) == 4
    for weights, data in copies:
        for first, other in zip(pickle.loads(data).get_weights(), weights, strict=True):
            np.testing.assert_array_equal(first, other)


@WAYS
def test_a_history(copied):
    model = sequential()
    model.compile("sgd", "mse", metrics=["mae"])
    history = model.fit(X, Y, epochs=2, verbose=0)
    copy_of_history = copied(history)
    assert copy_of_history.history == history.history
    assert copy_of_history.epoch == history.epoch
    assert copy_of_history.params == history.params
    np.testing.assert_array_equal(predicted(copy_of_history.model), predicted(model))


def test_attributes_of_the_user_s_come_along():
    model = sequential()
    model.classes_, model.scale = ["cat", "dog"], np.float32(3)
    copy_of_model = by_pickle(model)
    assert copy_of_model.classes_ == ["cat", "dog"]
    assert copy_of_model.scale == 3


@WAYS
@pytest.mark.parametrize(
    "make",
    [
        lambda: layers.Dense(3),
        lambda: layers.BatchNormalization(momentum=0.5),
        lambda: Scale(4.0),
        lambda: keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(0.1, 9)),
        lambda: keras.metrics.AUC(),
        lambda: keras.metrics.MeanMetricWrapper(half_off),
        lambda: keras.losses.Huber(2.0),
        lambda: keras.initializers.HeNormal(seed=3),
        lambda: keras.regularizers.L1L2(0.1, 0.2),
        lambda: keras.constraints.MaxNorm(2.0),
        lambda: keras.random.SeedGenerator(4),
        lambda: keras.callbacks.EarlyStopping(patience=3),
        lambda: keras.Variable(np.arange(3.0), name="v"),
    ],
)
def test_parts_of_models(make, copied):
    thing = make()
    copy_of_thing = copied(thing)
    assert type(copy_of_thing) is type(thing)
    if hasattr(thing, "get_config"):
        plain = keras.saving.serialize_keras_object
        assert plain(copy_of_thing.get_config()) == plain(thing.get_config())
    if isinstance(thing, keras.Variable):
        np.testing.assert_array_equal(copy_of_thing.numpy(), thing.numpy())
        copy_of_thing = copy.deepcopy(thing)
        copy_of_thing.assign([7, 8, 9])
        np.testing.assert_array_equal(thing.numpy(), [0, 1, 2])


@WAYS
def test_a_layer_of_a_model_does_not_drag_the_model_along(copied):
    x = last = keras.Input((4,))
    for _ in range(150):
        last = layers.Dense(4)(last)
    model = keras.Model(x, last)
    layer = model.layers[-1]
    copy_of_layer = copied(layer)
    assert len(copy_of_layer.weights) == 2
    np.testing.assert_array_equal(copy_of_layer(X), layer(X))
    assert len(pickle.dumps(layer)) < 5000
    assert len(layer._calls) == 1


def test_lambdas_can_be_copied():
    model = keras.Sequential([keras.Input((4,)), layers.Lambda(lambda x: 2 * x)])
    model.compile("sgd", lambda y, y_pred: keras.ops.mean((y - y_pred) ** 2))
    copied = copy.deepcopy(model)
    np.testing.assert_array_equal(predicted(copied), 2 * X)
    assert copied.evaluate(X, X, verbose=0) == model.evaluate(X, X, verbose=0)
    with pytest.raises((AttributeError, pickle.PicklingError), match="lambda"):
        pickle.dumps(model)  # Python cannot name it; cloudpickle takes it as it is


def test_a_pickle_names_only_the_reader_and_the_user_s_classes():
    model = functional()
    model.compile("adam", half_off)
    trained_on(model)
    model.history = None
    codes = list(pickletools.genops(pickle.dumps(model, protocol=2)))
    named = {argument for code, argument, _ in codes if code.name == "GLOBAL"}
    assert named == {
        "ganglion.saving.pickling restored",
        "_codecs encode",
        "test_pickling Scale",
        "test_pickling half_off",
    }


def test_equal_models_are_equal_bytes():
    model = functional()
    model.compile("adam", "mse")
    assert pickle.dumps(model) == pickle.dumps(model)


def test_other_processes():
    """As joblib's workers do it: out, trained there, and back."""
    model = functional()
    model.compile("adam", half_off)
    trained_on(model)
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, context) as pool:
        theirs = pool.submit(trained_on, model).result(timeout=120)
        copy_of_model = pool.submit(by_pickle, model).result(timeout=120)
    np.testing.assert_array_equal(predicted(copy_of_model), predicted(model))
    assert_same(theirs, trained_on(model))


@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_joblib(backend):
    joblib = pytest.importorskip("joblib")
    model = functional()
    model.compile("adam", half_off)
    trained_on(model)
    with joblib.parallel_backend(backend, n_jobs=2):
        several = joblib.Parallel()(
            joblib.delayed(trained_on)(copy.deepcopy(model)) for _ in range(2)
        )
    for thread in several:
        assert_same(thread, several[0])


def test_damaged_pickles_say_so():
    reader, arguments = sequential().__reduce_ex__(4)
    with pytest.raises(ValueError, match=r"The pickled model cannot be loaded"):
        reader(arguments[0][:-40], *arguments[1:])
