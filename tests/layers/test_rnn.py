"""Recurrent layers: what they refuse, how they keep states, cells of one's own."""

from __future__ import annotations

import pickle
from pathlib import Path
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
        (lambda: layers.LSTM(4)(X[0]), "expected ndim=3"),
        (lambda: layers.RNN(layers.LSTMCell(4))(X[0]), "expected min_ndim=3"),
        (lambda: layers.GRU(4)(X[:, :0]), "sequences of length 0"),
        (lambda: layers.GRU(4)(X, mask=np.ones((2, 4))), r"mask of shape \(2, 5\)"),
        (lambda: layers.GRU(4)(X, mask=np.ones(2)), r"mask of shape \(2, 5\)"),
        (lambda: layers.LSTM(4)(X, initial_state=[X[:, 0]]), r"2 state\(s\)"),
        (
            lambda: layers.LSTM(4)(X, initial_state=[X[:, 0], X[:, 0]]),
            r"\(2, 4\), \(2, 4\), but `initial_state` has \(2, 3\), \(2, 3\)",
        ),
        (lambda: layers.GRU(4)(X, initial_state=np.ones((3, 4))), r"\(2, 4\), but"),
        (lambda: layers.LSTM(0), "argument `units`"),
        (lambda: layers.LSTM(4, dropout=1.5), "argument `dropout`"),
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
    match = "the states of 2 sequences, but got 1: the batch size"
    with pytest.raises(ValueError, match=match):
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


# ---- wrappers ------------------------------------------------------------------------

VIDEO = RNG.normal(size=(2, 3, 6, 5, 2)).astype("float32")
WRAPPED = {
    "Bidirectional": lambda: layers.Bidirectional(layers.LSTM(4)),
    "TimeDistributed": lambda: layers.TimeDistributed(layers.Dense(4)),
    "ConvLSTM1D": lambda: layers.ConvLSTM1D(4, 2),
    "ConvLSTM2D": lambda: layers.ConvLSTM2D(4, 2, return_sequences=True),
    "ConvLSTM3D": lambda: layers.ConvLSTM3D(2, 2, padding="same"),
}
SHAPES = {"ConvLSTM1D": (2, 3, 6, 2), "ConvLSTM3D": (2, 2, 3, 3, 3, 2)}


@pytest.mark.parametrize("name", WRAPPED)
def test_contract_of_wrappers(name: str) -> None:
    shape = VIDEO.shape if name == "ConvLSTM2D" else SHAPES.get(name, X.shape)
    check_layer(WRAPPED[name], shape)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: layers.Bidirectional(layers.Dense(1)), "must be a recurrent layer"),
        (lambda: layers.Bidirectional("LSTM"), "must be a Layer"),
        (lambda: layers.Bidirectional(layers.GRU(2), "add"), "Unknown `merge_mode`"),
        (
            lambda: layers.Bidirectional(layers.GRU(2), backward_layer=layers.GRU(2)),
            "different directions",
        ),
        (
            lambda: layers.Bidirectional(
                layers.GRU(2),
                backward_layer=layers.GRU(2, go_backwards=True, return_state=True),
            ),
            "same `return_state`",
        ),
        (
            lambda: layers.Bidirectional(layers.GRU(4))(X, initial_state=[X[:, 0]]),
            "those of the forward layer",
        ),
        (
            lambda: layers.Bidirectional(layers.GRU(4, stateful=True))(
                ganglion.Input((5, 3))
            ),
            "stateful.*batch_shape",
        ),
        (lambda: layers.TimeDistributed(layers.Dense(1))(X[0]), "expected min_ndim=3"),
        (lambda: layers.TimeDistributed(3), "supplied to TimeDistributed"),
        (lambda: layers.TimeDistributed(layers.Dense(1))(X[:, :0]), "length 0"),
        (
            lambda: layers.TimeDistributed(layers.GRU(1))(
                VIDEO[..., 0], mask=X[..., 0]
            ),
            r"needs \(2, 3\)",
        ),
        (lambda: layers.ConvLSTM2D(2, 3)(X), "expected ndim=5"),
        (lambda: layers.ConvLSTM2D(2, 3, strides=2, dilation_rate=2), "not compatible"),
        (
            lambda: layers.ConvLSTM1D(2, 3)(ganglion.Input((5, None, 3))),
            "axis 1 of the input",
        ),
    ],
)
def test_refusals_of_wrappers(call: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_a_bidirectional_layer_is_made_of_ones_own_cell() -> None:
    layer = layers.Bidirectional(layers.RNN(Minimal(4), return_sequences=True), "sum")
    forward, backward = layer.forward_layer, layer.backward_layer
    expected = forward(X) + backward(X)[:, ::-1]
    np.testing.assert_allclose(layer(X), expected, atol=1e-6)
    assert isinstance(backward.cell, Minimal)
    assert backward.cell is not forward.cell


def test_a_stateful_bidirectional_layer() -> None:
    layer = layers.Bidirectional(layers.LSTM(4, stateful=True))
    first = layer(X)
    assert (layer(X) != first).any()
    assert len(layer.states) == 4
    layer.reset_states()
    np.testing.assert_array_equal(layer(X), first)
    with pytest.raises(AttributeError, match="not stateful"):
        layers.Bidirectional(layers.LSTM(4)).reset_state()


class Centered(layers.Layer):
    """Mixes the rows of a batch, and counts how often it is called."""

    def build(self, input_shape: Any) -> None:
        self.calls = self.add_weight((), "zeros", trainable=False)

    def call(self, x: Any) -> Any:
        self.calls.assign_add(1.0)
        self.add_loss(ops.sum(x))
        return x - ops.mean(x, axis=0)


def test_a_layer_that_mixes_rows_is_called_at_each_step() -> None:
    layer = layers.TimeDistributed(Centered())
    np.testing.assert_allclose(layer(X), X - X.mean(axis=0), atol=1e-6)
    assert float(layer.layer.calls) == 5
    np.testing.assert_allclose(layer.losses, [X.sum()], rtol=1e-5)
    entry = ganglion.Input((3,))
    inner = ganglion.Model(entry, entry - ops.mean(entry, axis=0))
    layer = layers.TimeDistributed(inner)
    np.testing.assert_allclose(layer(X), X - X.mean(axis=0), atol=1e-6)


def test_a_network_over_the_steps_of_a_video() -> None:
    image = ganglion.Sequential(
        [
            layers.Conv2D(3, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Dropout(0.2),
            layers.Flatten(),
        ]
    )
    model = ganglion.Sequential(
        [
            ganglion.Input((None, 6, 5, 2)),
            layers.TimeDistributed(image),
            layers.Bidirectional(layers.GRU(3)),
            layers.Dense(1),
        ]
    )
    assert model.layers[0].output.shape == (None, None, 6)
    model.compile("sgd", "mse")
    model.fit(VIDEO, np.ones(2), epochs=2, verbose=0)
    steps = [image(VIDEO[:, t]) for t in range(3)]
    expected = np.stack(steps, axis=1)
    np.testing.assert_allclose(model.layers[0](VIDEO), expected, atol=1e-6)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_convolutional_lstm_trains(dropout: float) -> None:
    layer = layers.ConvLSTM2D(
        2, 2, padding="same", dropout=dropout, recurrent_dropout=dropout, seed=1
    )
    model = ganglion.Sequential([layer, layers.Flatten(), layers.Dense(1)])
    model.compile("sgd", "mse")
    before = model.evaluate(VIDEO, np.ones(2), verbose=0)
    for _ in range(10):
        model.train_on_batch(VIDEO, np.ones(2))
    assert model.evaluate(VIDEO, np.ones(2), verbose=0) < before


def test_a_model_forgets_the_states_of_all_layers() -> None:
    model = ganglion.Sequential(
        [
            ganglion.Input(batch_shape=(2, 5, 3)),
            layers.LSTM(4, stateful=True, return_sequences=True),
            layers.Bidirectional(layers.GRU(2, stateful=True)),
        ]
    )
    first = model.predict(X, batch_size=2, verbose=0)
    assert (model.predict(X, batch_size=2, verbose=0) != first).any()
    with pytest.warns(keras2.Keras2Warning, match="reset_state"):
        model.reset_states()
    np.testing.assert_array_equal(model.predict(X, batch_size=2, verbose=0), first)


@pytest.mark.filterwarnings("ignore::ganglion.keras2.Keras2Warning")
@pytest.mark.parametrize("version", ["2.15.0", "3.15.0"])
def test_a_file_of_keras_2_has_its_hard_sigmoid(version: str, tmp_path: Path) -> None:
    import h5py

    model = ganglion.Sequential(
        [
            ganglion.Input((5, 3)),
            layers.LSTM(4, recurrent_activation="hard_sigmoid"),
        ]
    )
    today = model(X)
    model.save(tmp_path / "model.h5")
    with h5py.File(tmp_path / "model.h5", "a") as file:
        file.attrs["keras_version"] = version
    loaded = ganglion.models.load_model(tmp_path / "model.h5")
    is_old = version.startswith("2")
    assert keras2.active() == is_old
    assert (np.abs(loaded(X) - today).max() > 1e-4) == is_old


def test_copies_and_summaries() -> None:
    model = ganglion.Sequential(
        [
            ganglion.Input((None, 3)),
            layers.Bidirectional(layers.LSTM(4, return_sequences=True)),
            layers.TimeDistributed(layers.Dense(2)),
            layers.RNN([layers.SimpleRNNCell(3), layers.GRUCell(2)]),
        ]
    )
    expected = model(X)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again(X), expected)
    clone = ganglion.models.clone_model(model)
    clone.set_weights(model.get_weights())
    np.testing.assert_array_equal(clone(X), expected)
    lines: list[str] = []
    model.summary(print_fn=lines.append)
    assert "(None, None, 8)" in "\n".join(lines)


def test_the_loop_of_the_backend() -> None:
    def step(x: Any, states: Any) -> Any:
        total = states[0] + x * states[1]
        return total, [total]

    last, outputs, states = ganglion.backend.rnn(
        step, X, [np.zeros((2, 3), "float32")], constants=[np.float32(2)]
    )
    np.testing.assert_allclose(outputs, 2 * X.cumsum(axis=1), rtol=1e-5)
    np.testing.assert_array_equal(last, outputs[:, -1])
    np.testing.assert_array_equal(states[0], last)
    last, outputs, _ = ganglion.backend.rnn(
        lambda x, states: (x, states),
        X,
        [np.zeros((2, 3), "float32")],
        go_backwards=True,
        input_length=np.array([2, 5]),
        zero_output_for_mask=True,
        return_all_outputs=False,
    )
    np.testing.assert_array_equal(last, X[:, 0])
    np.testing.assert_array_equal(outputs, last[:, None])


def attended(x: Any) -> Any:
    scores = layers.Dense(1)(layers.Dense(4, activation="tanh")(x))
    scores = ops.exp(ops.squeeze(scores, -1))
    scores = scores / ops.sum(scores, 1, keepdims=True)
    return ops.sum(x * ops.expand_dims(scores, -1), 1)


def losses_of_sentences() -> list[float]:
    ganglion.utils.set_random_seed(0)
    words = ganglion.Input((5,), dtype="int32")
    table = layers.Embedding(30, 6, mask_zero=True)
    inner = layers.GRU(4, return_sequences=True)(table(words))
    sentence = ganglion.Model(words, attended(inner))
    texts = ganglion.Input((3, 5), dtype="int32")
    outer = layers.GRU(4)(layers.TimeDistributed(sentence)(texts))
    model = ganglion.Model(texts, layers.Dense(2)(outer))
    model.compile("rmsprop", "mse")
    draws = np.random.default_rng(0)
    x, y = draws.integers(1, 30, (16, 3, 5)), draws.normal(size=(16, 2))
    history = model.fit(x, y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    return history.history["loss"]


def test_a_recurrent_network_within_a_loop_over_sentences() -> None:
    before = ganglion.config.backend_choice()
    results = []
    try:
        for backend in ("numpy", "cpu"):
            ganglion.config.set_backend(backend)
            results.append(losses_of_sentences())
    finally:
        ganglion.config.set_backend(before)
    np.testing.assert_allclose(results[0], results[1], rtol=1e-4)
