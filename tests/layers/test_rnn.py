"""Recurrent layers: what they refuse, how they keep states, cells of one's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from layer_contract import check_layer

import ganglion
from ganglion import keras2, layers, ops
from ganglion.serialization import deserialize_keras_object, serialize_keras_object

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 5, 3)).astype("float32")
NAMES = ("SimpleRNN", "LSTM", "GRU")


class Minimal(layers.Layer):
    """The cell of Keras' documentation."""

    def __init__(self, units: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units = self.state_size = units

    def build(self, input_shape: Any) -> None:
        self.kernel = self.add_weight((input_shape[-1], self.units), name="kernel")
        self.recurrent = self.add_weight((self.units, self.units), name="recurrent")

    def call(self, inputs: Any, states: Any) -> Any:
        output = ops.matmul(inputs, self.kernel) + ops.matmul(states[0], self.recurrent)
        return output, [output]


class Counter:
    """No layer: counts steps and adds them to the sum of its inputs."""

    state_size = (1, 1)
    output_size = 1

    def call(self, inputs: Any, states: Any) -> Any:
        total = states[0] + ops.sum(inputs, axis=-1, keepdims=True)
        count = states[1] + 1.0
        return total * 10 + count, [total, count]


@pytest.mark.parametrize(
    "make",
    [
        lambda: layers.SimpleRNN(4),
        lambda: layers.LSTM(4, return_sequences=True, go_backwards=True),
        lambda: layers.GRU(4, reset_after=False, recurrent_activation="hard_sigmoid"),
        lambda: layers.RNN([layers.GRUCell(4), layers.LSTMCell(2)]),
    ],
)
def test_contract(make: Any) -> None:
    check_layer(make, (2, 5, 3))


# ---- bad input ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: layers.LSTM(4)(X[0]), "expected 3 axes"),
        (lambda: layers.RNN(layers.LSTMCell(4))(X[0]), "at least 3 axes"),
        (lambda: layers.GRU(4)(X[:, :0]), "sequences of length 0"),
        (lambda: layers.GRU(4)(X, mask=np.ones((2, 4))), r"mask of shape \(2, 5\)"),
        (lambda: layers.GRU(4)(X, mask=np.ones(2)), r"mask of shape \(2, 5\)"),
        (lambda: layers.LSTM(4)(X, initial_state=[X[:, 0]]), r"2 state\(s\)"),
        (
            lambda: layers.LSTM(4)(X, initial_state=[X[:, 0], X[:, 0]]),
            r"\(2, 4\), \(2, 4\), but `initial_state` has \(2, 3\), \(2, 3\)",
        ),
        (lambda: layers.GRU(4)(X, initial_state=np.ones((3, 4))), r"\(2, 4\), but"),
        (lambda: layers.LSTM(0), "`units` must be a positive"),
        (lambda: layers.LSTM(4, dropout=1.5), "`dropout` must be a number between"),
        (lambda: layers.LSTM(4, use_cudnn="yes"), "`use_cudnn` must be"),
        (lambda: layers.LSTM(4, no_such=1), "no_such"),
        (lambda: layers.RNN(object()), "a method `call"),
        (lambda: layers.RNN([]), "a list of cells"),
        (
            lambda: layers.LSTM(4, stateful=True)(ganglion.Input((5, 3))),
            r"stateful.*batch_shape",
        ),
    ],
)
def test_refusals(call: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_stateful_refuses_another_batch() -> None:
    layer = layers.GRU(4, stateful=True)
    layer(X)
    with pytest.raises(ValueError, match="the states of 2 sequences, but got a batch"):
        layer(X[:1])
    model = ganglion.Sequential(
        [ganglion.Input(batch_shape=(2, 5, 3)), layers.GRU(4, stateful=True)]
    )
    with pytest.raises(ValueError, match="batch"):
        model.predict(np.concatenate([X, X[:1]]), batch_size=2, verbose=0)


# ---- states ------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_stateful_continues_where_it_stopped(name: str) -> None:
    entry = ganglion.Input(batch_shape=(2, None, 3))
    layer = getattr(layers, name)(4, stateful=True, return_sequences=True)
    model = ganglion.Model(entry, layer(entry))
    predictions = model.predict(X, batch_size=2, verbose=0)
    layer.reset_states()
    halves = [model.predict(x, batch_size=2, verbose=0) for x in (X[:, :2], X[:, 2:])]
    np.testing.assert_allclose(np.concatenate(halves, axis=1), predictions, atol=1e-6)
    layer.reset_state()
    np.testing.assert_allclose(layer(X), predictions, atol=1e-6)
    assert not any(state in model.variables for state in layer.states)


def test_states_in_a_list_behind_the_sequences() -> None:
    layer = layers.LSTM(4)
    states = [RNG.normal(size=(2, 4)).astype("float32") for _ in range(2)]
    with pytest.warns(keras2.Keras2Warning, match="initial_state=states"):
        result = layer([X, *states])
    np.testing.assert_array_equal(result, layer(X, initial_state=states))


def test_an_encoder_hands_its_states_to_a_decoder() -> None:
    entry, target = ganglion.Input((None, 3)), ganglion.Input((None, 3))
    _, h, c = layers.LSTM(4, return_state=True)(entry)
    decoded = layers.LSTM(4, return_sequences=True)(target, initial_state=[h, c])
    model = ganglion.Model([entry, target], decoded)
    assert model.output_shape == (None, None, 4)
    first, second = model.layers[2], model.layers[3]
    states = first(X)[1:]
    expected = second(X[:, :3], initial_state=list(states))
    result = model.predict([X, X[:, :3]], verbose=0)
    np.testing.assert_allclose(result, expected, atol=1e-6)


# ---- masks, order, dropout ----------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("backwards", [False, True])
def test_padding_changes_nothing(name: str, backwards: bool) -> None:
    layer = getattr(layers, name)(4, go_backwards=backwards)
    model = ganglion.Sequential([layers.Masking(), layer])
    padded = np.concatenate([X, np.zeros((2, 3, 3), "float32")], axis=1)
    np.testing.assert_allclose(model(padded), layer(X), atol=1e-6)


def test_dropout_is_the_same_at_all_steps() -> None:
    cell = layers.SimpleRNNCell(
        50,
        activation=None,
        kernel_initializer="identity",
        recurrent_initializer="zeros",
        dropout=0.5,
        seed=3,
    )
    layer = layers.RNN(cell, return_sequences=True)
    ones = np.ones((2, 4, 50), "float32")
    np.testing.assert_array_equal(layer(ones), ones)
    first = layer(ones, training=True)
    assert set(np.unique(first)) == {0.0, 2.0}
    np.testing.assert_array_equal(first, first[:, :1] * np.ones((2, 4, 50)))
    assert (first[0] != first[1]).any()
    assert (layer(ones, training=True) != first).any()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("implementation", [1, 2])
def test_dropout_of_inputs_and_state_trains(name: str, implementation: int) -> None:
    options = {"dropout": 0.3, "implementation": implementation}
    if implementation == 1:
        options["recurrent_dropout"] = 0.4
    model = ganglion.Sequential([getattr(layers, name)(4, seed=1, **options)])
    model.compile("sgd", "mse")
    losses = [model.train_on_batch(X, np.ones((2, 4))) for _ in range(3)]
    assert len(set(map(float, losses))) == 3
    assert np.isfinite(losses).all()
    assert "implementation" not in model.layers[0].get_config()


# ---- cells -------------------------------------------------------------------------


def test_a_cell_of_ones_own() -> None:
    model = ganglion.Sequential(
        [layers.RNN([Minimal(4), layers.GRUCell(3), Minimal(2)], return_sequences=True)]
    )
    model.compile("sgd", "mse")
    assert model.predict(X, verbose=0).shape == (2, 5, 2)
    model.fit(X, np.zeros((2, 5, 2)), verbose=0)


def test_a_cell_that_is_no_layer() -> None:
    outputs, total, count = layers.RNN(
        Counter(), return_sequences=True, return_state=True, go_backwards=True
    )(np.ones((1, 3, 2), "float32"), mask=np.array([[True, False, True]]))
    assert outputs[0, :, 0].tolist() == [21, 21, 42]
    assert (total.item(), count.item()) == (4, 2)


def test_a_cell_by_itself() -> None:
    cell = layers.LSTMCell(4)
    states = cell.get_initial_state(2)
    for step in range(5):
        output, states = cell(X[:, step], states)
    layer = layers.RNN(cell)
    np.testing.assert_allclose(layer(X), output, atol=1e-6)
    assert layer.weights[0].path == "lstm_cell/kernel"


def test_configurations_of_cells() -> None:
    layer = layers.RNN(
        layers.StackedRNNCells([layers.LSTMCell(4), layers.GRUCell(3, seed=5)]),
        return_sequences=True,
    )
    expected = layer(X)
    again = deserialize_keras_object(serialize_keras_object(layer))
    again.set_weights(layer.get_weights())
    np.testing.assert_array_equal(again(X), expected)
    assert again.cell.cells[1].seed == 5


# ---- Keras 2 -----------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::ganglion.keras2.Keras2Warning")
def test_old_spellings() -> None:
    from ganglion.layers.recurrent import LSTM

    assert keras2.active()
    layer = LSTM(
        output_dim=4,
        inner_activation="hard_sigmoid",
        inner_init="orthogonal",
        dropout_W=0.1,
        dropout_U=0.2,
        input_length=5,
        input_dim=3,
    )
    assert (layer.units, layer.dropout, layer.recurrent_dropout) == (4, 0.1, 0.2)
    model = ganglion.Sequential([layer])
    assert model.input_shape == (None, 5, 3)
    value = np.array([-3.0, -1.0, 0.5], "float32")
    np.testing.assert_allclose(layer.recurrent_activation(value), [0, 0.3, 0.6])


def test_time_may_come_first() -> None:
    layer = layers.LSTM(4, time_major=True, return_sequences=True)
    result = layer(X.transpose(1, 0, 2))
    usual = layers.LSTM(4, return_sequences=True)
    usual(X)
    usual.set_weights(layer.get_weights())
    np.testing.assert_allclose(result.transpose(1, 0, 2), usual(X), atol=1e-6)
    again = layers.LSTM.from_config(layer.get_config())
    assert again.time_major
