"""Length buckets: few compilations for many lengths, and the same results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import ganglion
from ganglion import layers
from ganglion.system import terminal
from ganglion.training import buckets
from ganglion.training.padding_proof import padding_rule

LENGTHS = [5, 3, 7, 8, 9, 11, 5]


@pytest.fixture(autouse=True)
def _interpreted() -> None:
    """Trace without compiling: what is padded does not depend on the backend."""
    ganglion.config.set_backend("numpy")


def ids(length: int, rows: int = 4, seed: int = 0) -> np.ndarray:
    drawn = np.random.default_rng(seed + length).integers(0, 6, (rows, length))
    drawn[:, 0] = 1  # a row without a step has no mean
    return drawn.astype("int32")


def classifier() -> Any:
    return ganglion.Sequential(
        [
            ganglion.Input((None,), dtype="int32"),
            layers.Embedding(6, 4, mask_zero=True),
            layers.Dense(5, activation="tanh"),
            layers.BatchNormalization(),
            layers.GlobalAveragePooling1D(),
            layers.Dense(3, activation="softmax"),
        ]
    )


def tagger() -> Any:
    x = ganglion.Input((None,), dtype="int32")
    hidden = layers.Embedding(6, 4, mask_zero=True)(x)
    inner = ganglion.Sequential([layers.Dense(4), layers.LayerNormalization()])
    hidden = layers.Concatenate()([inner(hidden), layers.Activation("relu")(hidden)])
    return ganglion.Model(x, layers.Dense(3, activation="softmax")(hidden))


def tagger_of_floats() -> Any:
    x = ganglion.Input((None, 2))
    hidden = layers.Dense(4)(layers.Masking(-1.0)(x))
    return ganglion.Model(x, layers.Dense(3, activation="softmax")(hidden))


def recurrent() -> Any:
    x = ganglion.Input((None,), dtype="int32")
    hidden = layers.Embedding(6, 4, mask_zero=True)(x)
    hidden = layers.GRU(3, return_sequences=True)(hidden)
    output, *states = layers.LSTM(4, return_state=True, go_backwards=True)(hidden)
    both = layers.Bidirectional(layers.SimpleRNN(2), merge_mode="sum")(hidden)
    outputs = layers.Concatenate()([output, *states, both])
    return ganglion.Model(x, layers.Dense(3, activation="softmax")(outputs))


def recurrent_tagger() -> Any:
    x = ganglion.Input((None,), dtype="int32")
    hidden = layers.Embedding(6, 4, mask_zero=True)(x)
    hidden = layers.LSTM(4, return_sequences=True)(hidden)
    hidden = layers.RNN(layers.SimpleRNNCell(3), return_sequences=True)(hidden)
    hidden = layers.Bidirectional(layers.GRU(2, return_sequences=True))(hidden)
    outputs = layers.TimeDistributed(layers.Dense(3, activation="softmax"))(hidden)
    return ganglion.Model(x, outputs)


MODELS = {
    "recurrent": recurrent,
    "recurrent tagger": recurrent_tagger,
    "classifier": classifier,
    "tagger": tagger,
    "tagger of floats": tagger_of_floats,
}
each_model = pytest.mark.parametrize("name", MODELS)


def batch(name: str, length: int, weighted: bool = False) -> tuple[Any, ...]:
    random = np.random.default_rng(length)
    x: Any = ids(length)
    if name == "tagger of floats":
        x = random.normal(size=(4, length, 2)).astype("float32")
        x[1, length // 2 + 1 :] = -1.0
    by_step = "tagger" in name
    y = random.integers(0, 3, (4, length) if by_step else (4,))
    if not weighted:
        return x, y
    weight = random.uniform(size=y.shape).astype("float32")
    return x, y, weight


class Unpadded(buckets.LengthBuckets):
    def padded(self, kind: str, table: Any) -> Any:
        return table, None


def pair(name: str) -> tuple[Any, Any]:
    """Return two equal models, the second of which is compiled for every length."""
    models = [MODELS[name](), MODELS[name]()]
    models[1].set_weights(models[0].get_weights())
    for model in models:
        model.compile(
            ganglion.optimizers.SGD(0.125),
            "sparse_categorical_crossentropy",
            metrics=["accuracy"],
            weighted_metrics=["sparse_categorical_crossentropy"],
        )
    models[1]._step_cache.buckets = Unpadded(models[1])
    return models[0], models[1]


def compiled(model: Any, kind: str) -> int:
    return sum(key[0] == kind for key in model._step_cache._steps)


def assert_same_weights(first: Any, other: Any) -> None:
    for mine, theirs in zip(first.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


@each_model
@pytest.mark.parametrize("weighted", [False, True])
def test_streams_train_and_evaluate_as_without_buckets(
    name: str, weighted: bool
) -> None:
    ours, plain = pair(name)

    def batches() -> Iterator[Any]:
        while True:
            yield from (batch(name, length, weighted) for length in LENGTHS)

    mine = ours.fit(batches(), verbose=0, steps_per_epoch=len(LENGTHS)).history
    other = plain.fit(batches(), verbose=0, steps_per_epoch=len(LENGTHS)).history
    for key, values in other.items():
        assert mine[key] == pytest.approx(values, rel=1e-5), key
    assert_same_weights(ours, plain)
    # 5 as it came, then 8 and 12.
    assert compiled(ours, "train") == 3
    assert compiled(plain, "train") == len(set(LENGTHS))
    mine = ours.evaluate(batches(), verbose=0, steps=len(LENGTHS))
    assert mine == pytest.approx(
        plain.evaluate(batches(), verbose=0, steps=len(LENGTHS)), rel=1e-5
    )
    assert compiled(ours, "test") == 3


@each_model
def test_predictions_have_their_length(name: str) -> None:
    ours, plain = pair(name)
    for length in LENGTHS:
        x = batch(name, length)[0]
        for method in ("predict", "predict_on_batch"):
            options = {"verbose": 0} if method == "predict" else {}
            mine = getattr(ours, method)(x, **options)
            other = getattr(plain, method)(x, **options)
            assert mine.shape == other.shape
            np.testing.assert_allclose(mine, other, rtol=1e-5, atol=1e-6)
    assert compiled(ours, "predict") == 3  # 5, 8 and 12 steps: one batch is a table


@each_model
def test_train_on_batch_and_evaluate(name: str) -> None:
    ours, plain = pair(name)
    for length in LENGTHS:
        x, y, weight = batch(name, length, weighted=True)
        mine = ours.train_on_batch(x, y, weight)
        assert mine == pytest.approx(plain.train_on_batch(x, y, weight), rel=2e-5)
        mine = ours.evaluate(x, y, sample_weight=weight, verbose=0)
        other = plain.evaluate(x, y, sample_weight=weight, verbose=0)
        assert mine == pytest.approx(other, rel=2e-5)
    assert_same_weights(ours, plain)
    assert compiled(ours, "train") == 3


def test_compiled_steps_pad_too() -> None:
    ganglion.config.set_backend("cpu")
    ours, plain = pair("recurrent tagger")
    for length in (3, 5):
        mine = ours.train_on_batch(*batch("recurrent tagger", length))
        other = plain.train_on_batch(*batch("recurrent tagger", length))
        assert mine == pytest.approx(other, rel=2e-5)
    assert_same_weights(ours, plain)


def test_padding_is_announced_once(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.tell_once.cache_clear()
    model = pair("tagger")[0]
    for length in LENGTHS:
        model.train_on_batch(*batch("tagger", length))
    assert capsys.readouterr().err.count("different lengths") == 1


def test_one_length_is_never_padded() -> None:
    model = pair("tagger")[0]
    for _ in range(3):
        model.train_on_batch(*batch("tagger", 9))
    ((_, signature, *_),) = model._step_cache._steps
    assert signature.columns[0][1] == (4, 9)


def test_a_resumed_run_pads_as_the_whole_one(tmp_path: Any) -> None:
    tagger = pair("tagger")[0]
    lengths = [5, 7, 6, 5]
    for length in lengths[:3]:
        tagger.train_on_batch(*batch("tagger", length))
    tagger.save(tmp_path / "half.keras")
    resumed = ganglion.models.load_model(tmp_path / "half.keras")
    tagger.train_on_batch(*batch("tagger", lengths[3]))
    resumed.train_on_batch(*batch("tagger", lengths[3]))
    for mine, theirs in zip(tagger.get_weights(), resumed.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def tail(*more: Any, mask_zero: bool = True) -> Any:
    x = ganglion.Input((None,), dtype="int32")
    hidden = layers.Embedding(6, 4, mask_zero=mask_zero)(x)
    for layer in more:
        hidden = layer(hidden)
    return ganglion.Model(x, hidden)


class OwnDense(layers.Dense):
    def call(self, inputs: Any) -> Any:
        return super().call(inputs) + inputs.shape[1]


@pytest.mark.filterwarnings("ignore:.*masking")
@pytest.mark.parametrize(
    "model",
    [
        lambda: tail(layers.Dense(2), mask_zero=False),
        lambda: tail(layers.GlobalMaxPooling1D()),
        lambda: tail(layers.Conv1D(2, 3, padding="same")),
        lambda: tail(layers.Lambda(lambda x: x * 2.0)),
        lambda: tail(OwnDense(2)),
        lambda: tail(layers.Dense(2, activation=lambda x: x + x.shape[1])),
        lambda: tail(layers.Dense(2, activity_regularizer="l2")),
        lambda: tail(layers.BatchNormalization(), lambda x: x * 2.0),
        lambda: tail(layers.Dropout(0.5, noise_shape=(None, None, 1))),
        lambda: tail(layers.LSTM(2, return_sequences=True, go_backwards=True)),
        lambda: tail(layers.LSTM(2, zero_output_for_mask=True)),
        lambda: tail(layers.TimeDistributed(layers.BatchNormalization())),
    ],
)
def test_no_proof_no_padding(model: Any) -> None:
    assert padding_rule(model()) is None


def test_models_that_do_more_are_not_padded() -> None:
    class Own(ganglion.Model):
        def call(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
            return super().call(inputs) * 2.0

    x = ganglion.Input((None,), dtype="int32")
    hidden = layers.Embedding(6, 4, mask_zero=True)(x)
    assert padding_rule(Own(x, hidden)) is None
    model = ganglion.Model(x, hidden)
    assert padding_rule(model) is not None
    model.add_loss(ganglion.ops.mean(hidden))
    assert padding_rule(model) is None
    both = ganglion.Model(x, [hidden, x])
    assert padding_rule(both) is None


@pytest.mark.parametrize(
    ("loss", "metrics"),
    [
        ("dice", []),
        (lambda y, p: ganglion.ops.mean(p, axis=-1), []),
        ("mse", ["auc"]),
        ("mse", [ganglion.metrics.RootMeanSquaredError()]),
    ],
)
def test_losses_and_metrics_over_steps_are_not_padded(loss: Any, metrics: Any) -> None:
    model = tail(layers.Dense(2, activation="sigmoid"))
    model.compile("sgd", loss, metrics=metrics)
    for length in (3, 5, 6):
        model.train_on_batch(ids(length), np.ones((4, length, 2), "float32"))
    assert compiled(model, "train") == 3


def test_a_sequential_without_an_input_is_padded_too() -> None:
    model = ganglion.Sequential(
        [layers.Embedding(6, 4, mask_zero=True), layers.GlobalAveragePooling1D()]
    )
    plain = ganglion.Sequential(model.layers)
    for length in (4, 3, 6, 7, 5):
        mine = model.predict(ids(length), verbose=0)
        np.testing.assert_allclose(mine, plain(ids(length)), rtol=1e-5, atol=1e-6)
    assert compiled(model, "predict") == 3  # the first built the model
