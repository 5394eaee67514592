"""`many.search`: grids, random trials, Optuna and functions of `hp`."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import ganglion as keras
from ganglion import layers, many
from ganglion.many.searching import HyperParameters, RandomTrial

X = np.random.default_rng(0).normal(size=(40, 3))
Y = X[:, :1] * 2
QUIET = {"epochs": 4, "batch_size": 8, "verbose": 0}


def build(rate=0.1, units=2):
    model = keras.Sequential([keras.Input((3,)), layers.Dense(units), layers.Dense(1)])
    model.compile(keras.optimizers.SGD(rate), "mse")
    return model


def test_a_grid_has_every_point_and_the_best_is_found():
    space = {"rate": [0.1, 0.001], "units": range(2, 4)}
    found = many.search(build, space, X, Y, sampler="grid", batch=3, **QUIET)
    assert [trial["params"] for trial in found.trials] == many.grid(
        rate=[0.1, 0.001], units=[2, 3]
    )
    values = [trial["value"] for trial in found.trials]
    assert found.best_trial["value"] == min(values)
    assert found.best_model is found.models[int(np.argmin(values))].model
    keras.utils.set_random_seed(2)  # of trial 2
    history = build(0.001, 2).fit(X, Y, **QUIET).history
    assert found.models[2].history.history == history


def test_the_largest_accuracy_is_the_best():
    def classifier(rate):
        model = keras.Sequential([keras.Input((3,)), layers.Dense(1, "sigmoid")])
        optimizer = keras.optimizers.SGD(rate)
        model.compile(optimizer, "binary_crossentropy", metrics=["accuracy"])
        return model

    arguments = {"sampler": "grid", "monitor": "accuracy", **QUIET}
    found = many.search(classifier, {"rate": [0.0, 1.0]}, X, Y > 0, **arguments)
    values = [trial["value"] for trial in found.trials]
    assert values[0] < values[1]
    assert found.best_params == {"rate": 1.0}


def test_random_trials_are_those_of_their_seed():
    space = {
        "rate": many.uniform(1e-4, 0.1, log=True),
        "units": many.integer(2, 8, step=2),
    }
    arguments = {"trials": 6, "validation_split": 0.25, **QUIET}
    found = many.search(build, space, X, Y, seed=3, **arguments)
    again = many.search(build, space, X, Y, seed=3, batch=1, **arguments)
    assert found.trials == again.trials
    assert found.monitor == "val_loss"
    for trial in found.trials:
        assert 1e-4 <= trial["params"]["rate"] <= 0.1
        assert trial["params"]["units"] in (2, 4, 6, 8)
    assert len({trial["params"]["rate"] for trial in found.trials}) == 6


def test_callbacks_of_the_user_are_copied_for_each_trial():
    stop = keras.callbacks.EarlyStopping("loss", patience=1)
    space = {"rate": [0.1, 0.0, 0.1]}
    arguments = {"shuffle": False, "callbacks": [stop], **QUIET}
    found = many.search(build, space, X, Y, sampler="grid", batch=1, **arguments)
    assert [trial["epochs"] for trial in found.trials] == [4, 2, 4]
    assert stop.model is None


def test_functions_of_hp():
    def tuned(hp):
        rate = hp.Float("rate", 0.001, 0.1, sampling="log")
        units = hp.Int("units", 2, 6, step=2)
        hp.Boolean("flag")
        hp.Choice("kind", ["a", "b"])
        assert hp.get("units") == units
        return build(rate, units)

    found = many.search(tuned, None, X, Y, trials=3, **QUIET)
    assert set(found.best_params) == {"rate", "units", "flag", "kind"}


def test_drawn_values_stay_in_their_ranges():
    for number in range(30):
        trial = RandomTrial(number, seed=1)
        hp = HyperParameters(trial)
        assert hp.Int("a", 1, 1000, sampling="log") in range(1, 1001)
        assert hp.Float("b", 0.0, 1.0, step=0.25) in (0.0, 0.25, 0.5, 0.75, 1.0)
        assert hp.Int("a", 1, 1000) == trial.params["a"]  # a name has one value


def test_a_trial_without_a_number_is_never_the_best():
    space = {"rate": [1e30, 0.1]}
    found = many.search(build, space, X, Y, sampler="grid", **QUIET)
    assert [trial["state"] for trial in found.trials] == ["failed", "complete"]
    assert found.best_params == {"rate": 0.1}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"space": {}}, "The space is empty"),
        ({"space": {"rate": 3}}, "give a list of values"),
        ({"sampler": "gird"}, "Did you mean 'grid'"),
        ({"sampler": "grid", "space": {"rate": many.uniform(0, 1)}}, "needs a space"),
        ({"mode": "most"}, "must be 'auto', 'min' or 'max'"),
        ({"monitor": "val_novelty"}, "whether a larger 'val_novelty' is better"),
        ({"monitor": "val_loss"}, "There is no metric 'val_loss'"),
        ({"pruner": object()}, "are Optuna's"),
    ],
)
def test_bad_input_is_refused(given, message):
    arguments = {"space": {"rate": [0.1]}, "trials": 1, **QUIET, **given}
    with pytest.raises((TypeError, ValueError), match=message):
        many.search(build, arguments.pop("space"), X, Y, **arguments)
    with pytest.raises(ValueError, match="is empty"):
        many.uniform(1, 0)
    with pytest.raises(ValueError, match="begins above 0"):
        many.uniform(0, 1, log=True)


def test_without_optuna_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match="pip install optuna"):
        many.search(build, {"rate": [0.1]}, X, Y, sampler="optuna", **QUIET)


def test_optuna_asks_prunes_and_is_told(tmp_path):
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    space = {"rate": many.uniform(1e-5, 0.2, log=True), "units": many.integer(2, 4)}
    found = many.search(
        build,
        space,
        X,
        Y,
        trials=12,
        batch=4,
        sampler=optuna.samplers.TPESampler(seed=0, n_startup_trials=4),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=1),
        threads=1,
        **QUIET | {"epochs": 8},
    )
    states = [trial.state.name.lower() for trial in found.study.trials]
    assert states == [trial["state"] for trial in found.trials]
    pruned = [trial for trial in found.trials if trial["state"] == "pruned"]
    assert pruned
    assert all(trial["epochs"] < 8 for trial in pruned)
    assert found.study.best_params == found.best_params
    assert found.study.best_value == found.best_trial["value"]
