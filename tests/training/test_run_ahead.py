"""Epochs that are run at once are those that would have been run one by one."""

from __future__ import annotations

import numpy as np
import pytest

import ganglion as keras
from ganglion import layers, many
from ganglion.training import fit_loop
from ganglion.training.run_ahead import RunAhead

RNG = np.random.default_rng(0)
X = RNG.normal(size=(45, 5)).astype("float32")
Y = (X[:, :1] > 0).astype("float32")


@pytest.fixture
def at_once(monkeypatch):
    """How many epochs were run at once, one number a call."""
    calls = []
    run = RunAhead.run

    def counted(self, most):
        logs = run(self, most)
        calls.append(len(logs))
        return logs

    monkeypatch.setattr(RunAhead, "run", counted)
    monkeypatch.setattr(fit_loop, "CHUNK_SECONDS", 1000.0)  # on any machine
    return calls


def build(rate=0.01):
    keras.utils.set_random_seed(3)
    stack = [layers.Dense(4, "relu"), layers.Dropout(0.3), layers.Dense(1, "sigmoid")]
    model = keras.Sequential([keras.Input((5,)), *stack])
    optimizer = keras.optimizers.Adam(rate)
    model.compile(optimizer, "binary_crossentropy", metrics=["accuracy", "auc"])
    return model


def state(model):
    """Return all that a training leaves behind."""
    training = model.training_state
    variables = [*model.variables, *model.optimizer.variables]
    variables += [v for metric in model.metrics for v in metric.variables]
    variables += [training.position, training.order, training.epoch]
    return [variable.numpy() for variable in variables]


def assert_same(ours, theirs):
    for a, b in zip(state(ours), state(theirs), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    "arguments",
    [
        {"batch_size": 8},  # 5 batches, and 5 rows that are left
        {"batch_size": 8, "validation_split": 0.4},
        {"batch_size": 45, "validation_data": (X[:9], Y[:9]), "shuffle": False},
    ],
)
def test_epochs_at_once_are_those_one_by_one(at_once, arguments, monkeypatch):
    ahead = build()
    history = ahead.fit(X, Y, epochs=9, verbose=0, **arguments)
    assert sum(at_once) >= 7  # the first one is timed
    monkeypatch.setattr(RunAhead, "epochs", lambda self, left: 1)
    one_by_one = build()
    expected = one_by_one.fit(X, Y, epochs=9, verbose=0, **arguments)
    assert history.history == expected.history
    assert history.epoch == expected.epoch
    assert_same(ahead, one_by_one)
    # Training goes on from there in the same way.
    again = [model.fit(X, Y, epochs=2, verbose=0) for model in (ahead, one_by_one)]
    assert again[0].history == again[1].history


class Watching(keras.callbacks.Callback):
    """A callback that looks at the weights after every epoch."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def on_epoch_end(self, epoch, logs=None):
        self.seen.append(self.model.layers[0].kernel.numpy())


class OwnHistory(keras.callbacks.History):
    """A history of the user's own, which may do anything."""

    def on_epoch_end(self, epoch, logs=None):
        super().on_epoch_end(epoch, logs)
        self.model.stop_training = epoch == 3


@pytest.mark.parametrize("callback", [Watching(), OwnHistory()])
def test_a_callback_that_looks_sees_every_epoch(at_once, callback):
    model = build()
    history = model.fit(X, Y, epochs=6, verbose=0, callbacks=[callback])
    assert not at_once
    if isinstance(callback, Watching):
        assert len(np.unique(np.stack(callback.seen), axis=0)) == 6
    else:
        assert history.epoch == [0, 1, 2, 3]


class Halved(keras.metrics.Mean):
    """A metric of the user's own, that starts in its own way."""

    def reset_state(self):
        self.total.assign(self.total * 0.5)


def test_metrics_of_the_user_start_in_their_own_way(at_once):
    model = build()
    metric = Halved(name="halved")
    model.compile("sgd", "mse", metrics=[metric])
    model.fit(X, Y, epochs=5, verbose=0)
    assert sum(at_once) == 0


def test_validation_now_and_then_and_parts_of_epochs_are_not_run_at_once(at_once):
    data = {"validation_data": (X[:9], Y[:9])}
    build().fit(X, Y, epochs=5, verbose=0, validation_freq=2, **data)
    build().fit(X, Y, epochs=5, verbose=0, batch_size=8, steps_per_epoch=3)
    assert not at_once


def test_one_of_many_models_stops_at_the_epoch_whose_loss_is_no_number(at_once):
    def line(rate):
        model = keras.Sequential([keras.Input((5,)), layers.Dense(1)])
        model.compile(keras.optimizers.SGD(rate), "mse")
        return model

    settings = many.grid(rate=[1e-3, 30.0], seed=1)
    arguments = {"epochs": 40, "batch_size": 9, "verbose": 0}
    fine, lost = many.fit_many(line, settings, X, Y, **arguments)
    assert sum(at_once) > 30
    assert fine.message is None
    assert len(fine.history.epoch) == 40
    last = len(lost.history.epoch)
    assert last < 40
    assert f"(epoch {last})" in str(lost.message)
    losses = lost.history.history["loss"]
    assert np.isfinite(losses[:-1]).all()
    assert not np.isfinite(losses[-1])
