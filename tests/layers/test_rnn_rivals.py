"""Recurrent layers against Keras 3.15 and PyTorch: values, states, training, files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ganglion
from ganglion import layers, ops
from ganglion.compiler.ir.gradient import gradients
from ganglion.compiler.ir.graph import Input, evaluate
from ganglion.serialization import deserialize_keras_object, serialize_keras_object
from ganglion.variables import Scope

pytestmark = pytest.mark.rivals

RNG = np.random.default_rng(0)
BATCH, LENGTH, FEATURES, UNITS = 3, 5, 4, 6
X = RNG.normal(size=(BATCH, LENGTH, FEATURES)).astype("float32")
# Valid at the end, at the start, never.
MASK = np.array([[0, 1, 1, 0, 1], [1, 1, 0, 0, 0], [0, 0, 0, 0, 0]], bool)
STATES = {"SimpleRNN": 1, "LSTM": 2, "GRU": 1}

OPTIONS: list[dict[str, Any]] = [
    {},
    {"return_sequences": True},
    {"return_sequences": True, "return_state": True, "go_backwards": True},
    {"return_state": True, "zero_output_for_mask": True},
    {"return_sequences": True, "zero_output_for_mask": True, "go_backwards": True},
    {"use_bias": False, "activation": "relu", "unroll": True},
]
GATED = {"recurrent_activation": "hard_sigmoid", "return_sequences": True}
CASES = [
    *((name, options) for name in STATES for options in OPTIONS),
    ("LSTM", GATED | {"unit_forget_bias": False}),
    ("GRU", GATED),
    *(("GRU", options | {"reset_after": False}) for options in OPTIONS[:3]),
]


def name_of(case: Any) -> str:
    layer, options = case
    return f"{layer}({', '.join(f'{k}={v}' for k, v in options.items())})"


each_case = pytest.mark.parametrize("case", CASES, ids=name_of)


def pair(case: Any, keras: Any) -> tuple[Any, Any]:
    """Return our layer and Keras', built and with equal weights."""
    name, options = case
    ours = getattr(layers, name)(UNITS, name="layer", **options)
    theirs = getattr(keras.layers, name)(UNITS, name="layer", **options)
    return equal(ours, theirs, X)


def equal(ours: Any, theirs: Any, x: Any) -> tuple[Any, Any]:
    ours(x)
    theirs(x)
    paths = [weight.path for weight in ours.weights]
    assert paths == [weight.path for weight in theirs.weights]
    rng = np.random.default_rng(1)
    weights = [
        rng.normal(size=weight.shape).astype("float32") * 0.5 for weight in ours.weights
    ]
    ours.set_weights(weights)
    theirs.set_weights(weights)
    return ours, theirs


def assert_equal(ours: Any, theirs: Any) -> None:
    ours = ours if isinstance(ours, tuple) else (ours,)
    theirs = theirs if isinstance(theirs, (tuple, list)) else (theirs,)
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, np.asarray(other), rtol=0, atol=3e-6)


@each_case
def test_values_masks_and_states(case: Any, keras: Any) -> None:
    ours, theirs = pair(case, keras)
    states = [
        RNG.normal(size=(BATCH, UNITS)).astype("float32")
        for _ in range(STATES[case[0]])
    ]
    for arguments in (
        {},
        {"mask": MASK},
        {"initial_state": states},
        {"initial_state": states, "mask": MASK},
    ):
        assert_equal(ours(X, **arguments), theirs(X, **arguments))


@each_case
def test_configurations(case: Any, keras: Any) -> None:
    ours, theirs = pair(case, keras)
    config = ours.get_config()
    expected = theirs.get_config()
    assert config.keys() | {"activity_regularizer"} >= expected.keys() - {"seed"}
    assert config.keys() <= expected.keys() | {"seed"}
    differing = {k for k in config if k in expected and config[k] != expected[k]}
    assert differing <= {"dtype"}
    entry = json.loads(json.dumps(serialize_keras_object(ours)))
    again = keras.saving.deserialize_keras_object(entry)
    again.set_weights(ours.get_weights())
    assert_equal(ours(X), again(X))
    entry = json.loads(json.dumps(keras.saving.serialize_keras_object(theirs)))
    mine = deserialize_keras_object(entry)
    mine.set_weights(theirs.get_weights())
    assert_equal(mine(X), theirs(X))
    shapes = theirs.compute_output_shape((None, LENGTH, FEATURES))
    assert ours.compute_output_shape((None, LENGTH, FEATURES)) == shapes


@pytest.mark.parametrize("name", STATES)
def test_stateful_over_batches(name: str, keras: Any) -> None:
    case = (name, {"stateful": True, "return_sequences": True})
    ours, theirs = pair(case, keras)
    for layer in (ours, theirs):
        layer.reset_states()
    for x in (X, X[::-1], X[:, :2]):
        assert_equal(ours(x), theirs(x))
    for mine, other in zip(ours.states, theirs.states, strict=True):
        assert_equal(mine.array, other)
    for layer in (ours, theirs):
        layer.reset_state()
    assert_equal(ours(X), theirs(X))


def stacked(k: Any) -> Any:
    cells = [k.layers.LSTMCell(4), k.layers.GRUCell(3), k.layers.SimpleRNNCell(2)]
    return k.layers.RNN(cells, return_sequences=True, return_state=True, name="layer")


def test_stacked_cells(keras: Any) -> None:
    ours, theirs = equal(stacked(ganglion), stacked(keras), X)
    for arguments in ({}, {"mask": MASK}):
        mine, other = ours(X, **arguments), theirs(X, **arguments)
        flat = [mine[0], *mine[1], *mine[2], *mine[3]]
        assert_equal(tuple(flat), keras.tree.flatten(other))
    entry = json.loads(json.dumps(keras.saving.serialize_keras_object(theirs)))
    again = deserialize_keras_object(entry)
    again.set_weights(theirs.get_weights())
    assert_equal(again(X)[0], theirs(X)[0])


# ---- wrappers and convolutions -------------------------------------------------------


def check_as_keras(
    make: Any, keras: Any, x: np.ndarray, mask: Any = None, states: Any = None
) -> None:
    """Compare values, masks, states, shapes and configurations of a layer."""
    for module in (ganglion, keras):
        module.utils.clear_session(free_memory=False)
    ours, theirs = equal(make(ganglion), make(keras), x)
    calls: list[dict[str, Any]] = [{}]
    calls += [{"mask": mask}] if mask is not None else []
    calls += [{"initial_state": states}] if states is not None else []
    for given in calls:
        assert_equal(ours(x, **given), theirs(x, **given))
    any_batch = (None, *x.shape[1:])
    shapes = theirs.compute_output_shape(any_batch)
    assert ours.compute_output_shape(any_batch) == shapes
    assert theirs.get_config().keys() - ours.get_config() <= {"activity_regularizer"}
    entry = json.loads(json.dumps(serialize_keras_object(ours)))
    again = keras.saving.deserialize_keras_object(entry)
    entry = json.loads(json.dumps(keras.saving.serialize_keras_object(theirs)))
    mine = deserialize_keras_object(entry)
    for layer in (again, mine):
        layer(x)
        layer.set_weights(ours.get_weights())
    assert_equal(mine(x), again(x))
    assert_equal(mine(x), theirs(x))


@pytest.mark.parametrize("merge_mode", ["sum", "mul", "ave", "concat", None])
@pytest.mark.parametrize("sequences", [False, True])
def test_bidirectional(merge_mode: Any, sequences: bool, keras: Any) -> None:
    options = {"return_sequences": sequences, "return_state": merge_mode != "sum"}
    states = [RNG.normal(size=(BATCH, 3)).astype("float32") for _ in range(4)]

    def make(k: Any) -> Any:
        return k.layers.Bidirectional(k.layers.LSTM(3, **options), merge_mode)

    check_as_keras(make, keras, X, MASK, states)


def test_bidirectional_with_two_layers(keras: Any) -> None:
    def make(k: Any) -> Any:
        forward = k.layers.GRU(3, return_sequences=True)
        backward = k.layers.SimpleRNN(3, return_sequences=True, go_backwards=True)
        return k.layers.Bidirectional(forward, backward_layer=backward)

    check_as_keras(make, keras, X, MASK)


def test_time_distributed(keras: Any) -> None:
    def dense(k: Any) -> Any:
        return k.layers.TimeDistributed(k.layers.Dense(3, activation="relu"))

    def convolution(k: Any) -> Any:
        return k.layers.TimeDistributed(k.layers.Conv1D(3, 2))

    def recurrent(k: Any) -> Any:
        return k.layers.TimeDistributed(k.layers.GRU(3))

    check_as_keras(dense, keras, X, MASK)
    x = RNG.normal(size=(BATCH, LENGTH, 4, 2)).astype("float32")
    check_as_keras(convolution, keras, x)
    inner = RNG.random((BATCH, LENGTH, 4)) < 0.5
    check_as_keras(recurrent, keras, x, inner)


SAME = {
    "padding": "same", "strides": 2, "return_sequences": True, "return_state": True,
    "go_backwards": True,
}  # fmt: skip
DILATED = {"dilation_rate": 2, "padding": "same", "use_bias": False}


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("options", [{}, SAME, DILATED], ids=["", "same", "dilated"])
def test_convolutional_lstm(rank: int, options: Any, keras: Any) -> None:
    x = RNG.normal(size=(2, 3, *(5, 4, 3)[:rank], 2)).astype("float32")
    mask = np.array([[1, 1, 0], [0, 1, 1]], bool)

    def make(k: Any) -> Any:
        return getattr(k.layers, f"ConvLSTM{rank}D")(3, 2, **options)

    check_as_keras(make, keras, x, mask)


# ---- gradients -----------------------------------------------------------------------

LEARNING = {
    "SimpleRNN": lambda k: k.layers.SimpleRNN(3, return_sequences=True),
    "GRU": lambda k: k.layers.GRU(3, reset_after=False, go_backwards=True),
    "Bidirectional": lambda k: k.layers.Bidirectional(k.layers.LSTM(3), "mul"),
    "TimeDistributed": lambda k: k.layers.TimeDistributed(k.layers.Dense(2, "tanh")),
    "ConvLSTM1D": lambda k: k.layers.ConvLSTM1D(2, 2, padding="same"),
}


@pytest.mark.parametrize("name", LEARNING)
def test_gradients(name: str, keras: Any) -> None:
    import tensorflow as tf

    x = X[..., None] if name == "ConvLSTM1D" else X
    ours, theirs = equal(LEARNING[name](ganglion), LEARNING[name](keras), x)
    with Scope() as scope:
        sequences = Input("x", x.shape, "float32")
        outputs = ours(sequences, mask=MASK)
        wrt = [*(scope.read(weight) for weight in ours.weights), sequences]
        slopes = gradients(ops.sum(outputs * outputs), wrt)
    known = {value: variable.array for variable, value in scope.reads.items()}
    mine = evaluate([slopes[value] for value in wrt], known | {sequences: x})
    with tf.GradientTape() as tape:
        tensor = tf.constant(x)
        tape.watch(tensor)
        loss = tf.reduce_sum(theirs(tensor, mask=MASK) ** 2)
    others = tape.gradient(loss, [*(w.value for w in theirs.weights), tensor])
    for slope, other in zip(mine, others, strict=True):
        np.testing.assert_allclose(slope, other, rtol=1e-4, atol=1e-5)


# ---- training and files --------------------------------------------------------------


def network(k: Any) -> Any:
    """Return a model with masks, states that are handed on, and penalties."""
    words = k.Input((7,), dtype="int32")
    x = k.layers.Embedding(9, 5, mask_zero=True)(words)
    cell = k.layers.SimpleRNN(4, activation="relu", return_sequences=True)
    x = k.layers.Bidirectional(cell, "ave")(x)
    x = k.layers.TimeDistributed(k.layers.BatchNormalization())(x)
    x = k.layers.GRU(4, reset_after=False, return_sequences=True, go_backwards=True)(x)
    x, state = k.layers.GRU(
        5, return_sequences=True, return_state=True, kernel_regularizer="l2"
    )(x)
    cells = [
        k.layers.SimpleRNNCell(4),
        k.layers.LSTMCell(5, recurrent_constraint="max_norm"),
    ]
    y = k.layers.RNN(cells)(x)
    z = k.layers.LSTM(5, bias_regularizer="l1")(x, initial_state=[state, state])
    outputs = k.layers.Dense(3, activation="softmax")(k.layers.Concatenate()([y, z]))
    model = k.Model(words, outputs)
    optimizer = k.optimizers.SGD(0.2, momentum=0.9)
    # Not by XLA: it takes longer to compile than all the rest.
    model.compile(optimizer, "sparse_categorical_crossentropy", jit_compile=False)
    return model


WORDS = np.random.default_rng(2).integers(1, 9, (6, 7)).astype("int32")
WORDS[np.arange(7) >= np.arange(1, 7)[:, None]] = 0
LABELS = np.arange(6) % 3


def train(model: Any) -> list[float]:
    return [float(np.ravel(model.train_on_batch(WORDS, LABELS))[0]) for _ in range(6)]


def test_steps_and_files_both_ways(keras: Any, tmp_path: Path) -> None:
    theirs = network(keras)
    theirs.save(tmp_path / "theirs.keras")
    ours = ganglion.models.load_model(tmp_path / "theirs.keras")
    expected = theirs.predict(WORDS, verbose=0)
    np.testing.assert_allclose(ours.predict(WORDS, verbose=0), expected, atol=1e-6)
    np.testing.assert_allclose(train(ours), train(theirs), rtol=2e-5)
    for mine, other in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(mine, other, atol=2e-5)
    ours.save(tmp_path / "ours.keras")
    again = keras.models.load_model(tmp_path / "ours.keras")
    expected = ours.predict(WORDS, verbose=0)
    np.testing.assert_allclose(again.predict(WORDS, verbose=0), expected, atol=1e-6)


def sequence(k: Any) -> Any:
    return k.Sequential(
        [
            k.Input((7,), dtype="int32"),
            k.layers.Embedding(9, 5, mask_zero=True),
            k.layers.Bidirectional(k.layers.LSTM(4, return_sequences=True)),
            k.layers.TimeDistributed(k.layers.Reshape((4, 2))),
            k.layers.ConvLSTM1D(3, 2, return_sequences=True),
            k.layers.TimeDistributed(k.layers.Flatten()),
            k.layers.RNN([k.layers.SimpleRNNCell(4), k.layers.GRUCell(3)]),
            k.layers.Dense(2),
        ]
    )


@pytest.mark.parametrize("ending", ["h5", "weights.h5"])
def test_old_files_both_ways(keras: Any, tmp_path: Path, ending: str) -> None:
    # Keras does not load functional models with masks from its own `.h5` files.
    for writer, reader in ((keras, ganglion), (ganglion, keras)):
        saved = sequence(writer)
        path = str(tmp_path / f"{writer.__name__}.{ending}")
        if ending == "h5":
            saved.save(path)
            loaded = reader.models.load_model(path)
        else:
            saved.save_weights(path)
            loaded = sequence(reader)
            loaded.load_weights(path)
        expected = saved.predict(WORDS, verbose=0)
        result = loaded.predict(WORDS, verbose=0)
        np.testing.assert_allclose(result, expected, atol=1e-6)


# ---- PyTorch -----------------------------------------------------------------------

# The order of the gates in PyTorch's weights: of ours, which comes first, and so on.
TORCH_GATES = {"LSTM": (0, 1, 2, 3), "GRU": (1, 0, 2)}


@pytest.mark.parametrize("name", TORCH_GATES)
def test_values_and_gradients_equal_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    layer = getattr(layers, name)(UNITS, return_sequences=True)
    model = ganglion.Sequential([ganglion.Input((LENGTH, FEATURES)), layer])
    rng = np.random.default_rng(3)
    start = [rng.normal(size=w.shape).astype("float32") * 0.5 for w in layer.weights]
    layer.set_weights(start)
    rival = getattr(torch.nn, name)(FEATURES, UNITS, batch_first=True)
    parameters = as_torch(name, start)
    with torch.no_grad():
        for parameter, array in zip(rival.parameters(), parameters, strict=True):
            parameter.copy_(torch.from_numpy(array))
    target = rng.normal(size=(BATCH, LENGTH, UNITS)).astype("float32")
    outputs = rival(torch.from_numpy(X))[0]
    np.testing.assert_allclose(
        model.predict(X, verbose=0), outputs.detach().numpy(), atol=2e-6
    )
    if name == "LSTM":  # there are two biases where one does it
        rival.bias_hh_l0.requires_grad_(False)
    optimizer = torch.optim.SGD(rival.parameters(), 0.1)
    model.compile(ganglion.optimizers.SGD(0.1), "mse")
    for _ in range(20):
        optimizer.zero_grad()
        loss = torch.mean((rival(torch.from_numpy(X))[0] - torch.tensor(target)) ** 2)
        loss.backward()
        optimizer.step()
        assert float(model.train_on_batch(X, target)) == pytest.approx(
            loss.item(), 1e-5
        )
    ours = as_torch(name, layer.get_weights())
    for mine, parameter in zip(ours, rival.parameters(), strict=True):
        np.testing.assert_allclose(mine, parameter.detach().numpy(), atol=1e-5)


def as_torch(name: str, weights: list[np.ndarray]) -> list[np.ndarray]:
    """Return our kernel, recurrent kernel and bias as PyTorch has them."""
    kernel, recurrent, bias = weights
    biases = bias if bias.ndim == 2 else np.stack([bias, np.zeros_like(bias)])

    def reordered(array: np.ndarray) -> np.ndarray:
        gates = np.split(array, len(TORCH_GATES[name]), axis=-1)
        ordered = np.concatenate([gates[i] for i in TORCH_GATES[name]], axis=-1)
        return np.ascontiguousarray(ordered.T)

    return [reordered(array) for array in (kernel, recurrent, *biases)]
