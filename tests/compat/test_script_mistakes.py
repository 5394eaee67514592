"""What a first-time user does wrong: each message names the cause and the way out."""

import numpy as np
import pytest

import ganglion as keras
from ganglion import layers, ops


def rows(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def model(loss="mse", units=1, **kwargs):
    model = keras.Sequential([keras.Input((4,)), layers.Dense(units)])
    model.compile("sgd", loss, **kwargs)
    return model


def refused(match, act, error=ValueError):
    with pytest.raises(error, match=match):
        act()


def test_rows_in_place_of_inputs():
    x = rows(8, 4)
    refused(
        r"list of 8 arrays.*1 input.*np\.array",
        lambda: model().fit(list(x), np.zeros(8), verbose=0),
    )
    refused("labels apart", lambda: model().fit((x, np.zeros(8)), verbose=0))


def test_one_row_in_place_of_a_batch():
    refused(r"single row.*\(None, 4\).*x\[None\]", lambda: model().predict(rows(4)))
    cnn = keras.Sequential([keras.Input((8, 8, 1)), layers.Conv2D(1, 3)])
    refused("single row", lambda: cnn.predict(rows(8, 8, 1)))
    assert cnn.predict(rows(3, 8, 8), verbose=0).shape == (3, 6, 6, 1)
    # A sequence of one number a step is read as rows without their last axis.
    column = keras.Sequential([keras.Input((1,)), layers.Dense(1)])
    assert column.predict(rows(1), verbose=0).shape == (1, 1)


@pytest.mark.parametrize("kind", ["float32", "int64", "bool"])
def test_labels_beyond_the_classes_whatever_their_type(kind):
    y = np.array([0, 1, 1, 0]).astype(kind)
    loss = "sparse_categorical_crossentropy"
    refused(
        "Label 1.*row 1.*binary_crossentropy",
        lambda: model(loss).fit(rows(4, 4), y, verbose=0),
    )
    model(loss, units=2).fit(rows(4, 4), y, verbose=0)


@pytest.mark.parametrize("weights", [[1.0, 2.0], "balanced"])
def test_class_weight_that_is_no_dictionary(weights):
    refused(
        r"dictionary.*\{0: 1.0, 1: 5.0\}",
        lambda: model().fit(rows(4, 4), np.zeros(4), class_weight=weights, verbose=0),
    )


def test_names_used_twice():
    x = keras.Input((4,))
    y = layers.Dense(2, name="a")(layers.Dense(2, name="a")(x))
    refused('"a" is used twice', lambda: keras.Model(x, y))


def test_layers_where_something_else_belongs():
    x = keras.Input((4,))
    refused("not on data", lambda: layers.Dense(2)(layers.Dense(3)), TypeError)
    refused(r"Sequential\(\[", lambda: keras.Sequential(layers.Dense(2)), TypeError)
    refused(r"Dense\(\.\.\.\)", lambda: keras.Sequential([layers.Dense]), ValueError)
    refused("ops.where", lambda: 1 if x > 0 else 0, TypeError)


def test_whole_numbers_of_epochs():
    refused(
        "`epochs` must be an integer, got 2.0",
        lambda: model().fit(rows(4, 4), np.zeros(4), epochs=2.0),
        TypeError,
    )
    refused("speed", lambda: model().fit(rows(4, 4), np.zeros(4), speed=1), TypeError)


def test_names_of_classes_as_labels():
    y = np.array(["cat", "dog", "cat", "dog"])
    refused("np.unique", lambda: model().fit(rows(4, 4), y, verbose=0), TypeError)


def test_compute_loss_with_and_without_the_argument_training():
    class Own(keras.Model):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(1, kernel_initializer="ones")

        def call(self, x):
            return self.dense(x)

        def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None):
            return ops.mean(ops.abs(y - y_pred))

    class Newer(Own):
        def compute_loss(self, x, y, y_pred, sample_weight, training):
            return super().compute_loss(x, y, y_pred, sample_weight) + 1.0 * training

    x = np.ones((4, 3))
    for kind, wanted in ((Own, (3.0, 3.0)), (Newer, (4.0, 3.0))):
        network = kind()
        network.compile(keras.optimizers.SGD(0.0))
        trained = network.fit(x, np.zeros((4, 1)), verbose=0).history["loss"][0]
        assert (trained, network.evaluate(x, np.zeros((4, 1)), verbose=0)) == wanted


def test_training_is_passed_to_layers_that_do_not_ask_for_it():
    class Inside(layers.Layer):
        def __init__(self):
            super().__init__()
            self.norm = layers.LayerNormalization()
            self.drop = layers.Dropout(0.5)

        def call(self, x):
            return self.drop(self.norm(x, training=True))

    x = rows(4, 8)
    layer = Inside()
    assert (layer(x, training=True) == 0).any()  # the layer below is told
    assert not (layer(x) == 0).any()


def test_metrics_with_one_number_per_class():
    model = keras.Sequential([keras.Input((4,)), layers.Dense(3, "softmax")])
    model.compile("sgd", "categorical_crossentropy", metrics=[keras.metrics.F1Score()])
    y = np.eye(3)[np.arange(8) % 3]
    history = model.fit(rows(8, 4), y, epochs=2, verbose=1)
    assert history.history["f1_score"][-1].shape == (3,)
    assert model.evaluate(rows(8, 4), y, verbose=0)[1].shape == (3,)


def test_an_input_that_is_not_given():
    attention = layers.MultiHeadAttention(2, 4)
    refused("without the input `value`", lambda: attention(rows(1, 3, 4)), TypeError)


def test_a_number_in_place_of_an_array():
    refused(r"got 5: a model takes arrays.*np\.array", lambda: model()(5))


def test_a_loss_without_return():
    silent = model(loss=lambda y_true, y_pred: None)
    refused(
        "returned None.*without `return`",
        lambda: silent.fit(rows(4, 4), np.zeros(4), verbose=0),
        TypeError,
    )


def test_predictions_of_no_rows():
    refused("`x` is empty: there are no rows", lambda: model().predict(rows(0, 4)))
