"""`many.search`: grids, random trials, Optuna and functions of `hp`."""

from __future__ import annotations

import sys
import threading

import numpy as np
import pytest

import ganglion as keras
from ganglion import layers, many
from ganglion.many.spaces import HyperParameters, RandomTrial

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


def test_hp_has_scopes_conditions_and_factors():
    drawn = []

    def tuned(hp):
        kind = hp.Choice("kind", ["a", "b"])
        with hp.conditional_scope("kind", ["a"]), hp.name_scope("of"):
            units = hp.Int("units", 2, 6)
        width = hp.Int("width", 1, 16, step=4, sampling="log")
        assert (units is not None) == (kind == "a") == ("of/units" in hp)
        assert hp["width"] == width
        assert width in (1, 4, 16)
        drawn.append(hp.Boolean("b", parent_name="kind", parent_values="b") is None)
        assert drawn[-1] == (kind == "a")
        return build(0.1)

    class Hyper:
        """What KerasTuner calls a HyperModel."""

        def build(self, hp):
            return tuned(hp)

    found = many.search(Hyper(), None, X, Y, trials=6, seed=1, **QUIET)
    assert set(drawn) == {True, False}
    members = zip(found.models, found.trials, strict=True)
    assert all(m.setting.items() >= t["params"].items() for m, t in members)
    with pytest.raises(ValueError, match="'linear' or 'log'"):
        HyperParameters(RandomTrial(0, 0)).Float("a", 1, 2, sampling="reverse_log")


def test_arguments_of_fit_can_be_searched_and_callbacks_know_their_trial():
    seen = []

    def noted(index):
        seen.append(index)

    space = {"rate": [0.1, 0.01], "epochs": [1, 2]}
    arguments = {"sampler": "grid", "batch": 3, "callbacks": noted, **QUIET}
    found = many.search(build, space, X, Y, **arguments)
    assert [trial["epochs"] for trial in found.trials] == [1, 2, 1, 2]
    assert seen == [0, 1, 2, 3]
    rows = found.models.table()
    assert [row["index"] for row in rows] == seen
    assert [row["rate"] for row in rows] == [0.1, 0.1, 0.01, 0.01]


class Stop(keras.callbacks.Callback):
    """Ctrl-C at the end of one trial."""

    def on_train_end(self, logs=None):
        if self.model_index == self.at:
            raise KeyboardInterrupt


def test_a_search_that_is_stopped_keeps_what_is_finished(tmp_path):
    stop = Stop()
    stop.at = 2
    given = {"trials": 4, "batch": 2, "threads": 1, **QUIET}
    space = {"rate": many.uniform(0.01, 0.1)}
    with pytest.raises(many.Interrupted, match="2 of 4 trials") as stopped:
        many.search(build, space, X, Y, callbacks=[stop], **given)
    assert [member.name for member in stopped.value.finished] == ["0", "1"]
    given["resume"] = tmp_path / "set.zip"
    with pytest.raises(many.Interrupted, match="goes on with the others"):
        many.search(build, space, X, Y, callbacks=[stop], **given)
    found = many.search(build, space, X, Y, **given)
    del given["resume"]
    assert found.trials == many.search(build, space, X, Y, **given).trials
    other = {"rate": many.uniform(0.01, 0.2)}
    given["resume"] = tmp_path / "set.zip"
    with pytest.raises(ValueError, match="other settings"):
        many.search(build, other, X, Y, **given)


def test_optuna_is_told_of_trials_that_did_not_finish():
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = optuna.storages.InMemoryStorage()
    stop = Stop()
    stop.at = 1
    space = {"rate": many.uniform(0.01, 0.1)}
    study = {"sampler": "optuna", "storage": storage, "study_name": "rates"}
    given = {"trials": 2, "threads": 1, **study, **QUIET}
    with pytest.raises(many.Interrupted, match="`storage`"):
        many.search(build, space, X, Y, callbacks=[stop], **given)
    found = many.search(build, space, X, Y, **given)
    states = [trial.state.name for trial in found.study.trials]
    assert states == ["COMPLETE", "FAIL", "COMPLETE", "COMPLETE"]
    with pytest.raises(ValueError, match="to minimize; this search would maximize"):
        many.search(build, space, X, Y, mode="max", **given)
    with pytest.raises(ValueError, match="known beforehand"):
        many.search(build, space, X, Y, resume="set.zip", **given)
    grid = optuna.samplers.GridSampler({"rate": [0.1, 0.01]})
    given = {"sampler": grid, "trials": 9, "batch": 1, **QUIET}
    assert len(many.search(build, {"rate": [0.1, 0.01]}, X, Y, **given).trials) == 2


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
        ({"trials": 0}, "`trials` must be an integer >= 1"),
        ({"batch": 0}, "`batch` must be an integer >= 1"),
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
    with pytest.raises(ValueError, match="step of a range"):
        many.integer(1, 5, step=0)
    with pytest.raises(ValueError, match=r"1\.5 is none"):
        many.integer(1.5, 5)


def test_without_optuna_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match="pip install optuna"):
        many.search(build, {"rate": [0.1]}, X, Y, sampler="optuna", **QUIET)


def pruned_search(optuna, builder=build, space=None, **arguments):
    given = {
        "trials": 12,
        "batch": 4,
        "sampler": optuna.samplers.TPESampler(seed=0, n_startup_trials=4),
        "pruner": optuna.pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=1),
        **QUIET,
        "epochs": 8,
        **arguments,
    }
    return many.search(builder, space, X, Y, **given)


SPACE = {"rate": many.uniform(1e-5, 0.2, log=True), "units": many.integer(2, 4)}


def test_optuna_asks_prunes_and_is_told():
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    found = pruned_search(optuna, space=SPACE, threads=1)
    unpruned = pruned_search(optuna, space=SPACE, pruner=None)
    assert {trial["state"] for trial in unpruned.trials} == {"complete"}
    states = [trial.state.name.lower() for trial in found.study.trials]
    assert states == [trial["state"] for trial in found.trials]
    pruned = [trial for trial in found.trials if trial["state"] == "pruned"]
    assert pruned
    assert all(trial["epochs"] < 8 for trial in pruned)
    assert found.study.best_params == found.best_params
    assert found.study.best_value == found.best_trial["value"]
    # Trial 5 is that of its seed, alone.
    params = found.trials[5]["params"]
    keras.utils.set_random_seed(5)
    epochs = {"epochs": found.trials[5]["epochs"]}
    alone = build(**params).fit(X, Y, **QUIET | epochs)
    assert found.models[5].history.history == alone.history


def test_trials_do_not_depend_on_the_number_of_threads():
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)

    def tuned(hp):
        return build(hp.Float("rate", 1e-5, 0.2, sampling="log"), hp.Int("units", 2, 4))

    none, halving = optuna.pruners.NopPruner, optuna.pruners.SuccessiveHalvingPruner
    for builder, space in ((build, SPACE), (tuned, None)):
        for pruner in (none, halving, optuna.pruners.HyperbandPruner):
            searches = [
                pruned_search(optuna, builder, space, pruner=pruner(), threads=threads)
                for threads in (1, 2, 3)
            ]
            first, *others = [found.trials for found in searches]
            assert others == [first, first]
            pruned = sum(trial["state"] == "pruned" for trial in first)
            assert (pruned > 0) == (pruner is not none)
            study = searches[0].study
            assert len(study.trials[-1].intermediate_values) == first[-1]["epochs"]


def test_eight_trials_train_together_by_default():
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    eight = pruned_search(optuna, space=SPACE, batch=8)
    assert pruned_search(optuna, space=SPACE, batch=None).trials == eight.trials


class NoMemory(keras.callbacks.Callback):
    """A trial for which there is no memory at first."""

    def __init__(self, trial):
        super().__init__()
        self.trial, self.has_failed = trial, threading.Event()

    def __deepcopy__(self, memo):
        copy = NoMemory(self.trial)
        copy.has_failed = self.has_failed  # of all trials
        return copy

    def on_train_begin(self, logs=None):
        if self.model_index == self.trial and not self.has_failed.is_set():
            self.has_failed.set()
            raise MemoryError


def test_a_trial_that_found_no_memory_is_trained_later():
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with pytest.warns(RuntimeWarning, match="going on with 3"):
        found = pruned_search(optuna, space=SPACE, callbacks=[NoMemory(4)])
    assert [trial["number"] for trial in found.trials] == list(range(12))


def test_an_error_in_a_trial_names_it_and_ends_the_others():
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = {"storage": optuna.storages.InMemoryStorage(), "study_name": "errors"}

    def fails(rate, units):
        if units == 3:
            raise ZeroDivisionError
        return build(rate, units)

    with pytest.raises(ZeroDivisionError) as error:
        pruned_search(optuna, fails, SPACE, **study)
    assert "units=3" in error.value.__notes__[0]
    states = [trial.state.name for trial in optuna.load_study(**study).trials]
    assert "FAIL" in states
    assert "RUNNING" not in states
