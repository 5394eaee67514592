"""`fit_many`: every model is what `fit` alone makes of it, to the bit."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import ClassVar

import numpy as np
import pytest

import ganglion as keras
from ganglion import callbacks, layers, many
from ganglion.compiler.cpu.script import Script
from ganglion.optimizers import SGD, Adam, schedules
from ganglion.training import fit_loop

RNG = np.random.default_rng(0)
X = RNG.normal(size=(70, 6))
Y = np.stack([X[:, 0] ** 2, X[:, 1] - X[:, 2]], axis=1)
CLASSES = (X[:, 0] > 0).astype("int64")
QUIET = {"verbose": 0, "batch_size": 16}


def build(rate=0.01, units=8, dropout=0.0, l2=0.0, momentum=None, outputs=2, decay=0):
    model = keras.Sequential(
        [
            keras.Input((6,)),
            layers.Dense(units, activation="relu", kernel_regularizer=_l2(l2)),
            layers.Dropout(dropout),
            layers.Dense(outputs),
        ]
    )
    if decay:
        rate = schedules.ExponentialDecay(rate, decay, 0.5)
    optimizer = Adam(rate) if momentum is None else SGD(rate, momentum=momentum)
    model.compile(optimizer, "mse", metrics=["mae"])
    return model


def _l2(amount):
    return keras.regularizers.L2(amount) if amount else None


def alone(setting, epochs, **arguments):
    """Train one model as a user would, without a set."""
    setting = dict(setting)
    keras.utils.set_random_seed(setting.pop("seed"))
    rows = setting.pop("rows", slice(None))
    target = setting.pop("target", None)
    y = Y if target is None else Y[:, [target]]
    fit = {k: setting.pop(k) for k in ("batch_size", "shuffle") if k in setting}
    weight = setting.pop("sample_weight", None)
    model = build(**setting)
    history = model.fit(
        X[rows],
        y[rows],
        sample_weight=None if weight is None else weight[rows],
        **{"epochs": epochs, **QUIET, **fit, **arguments},
    )
    return model, history


SETTINGS = [
    {"seed": 1},
    {"seed": 2},
    {"seed": 1, "rate": 0.1},
    {"seed": 3, "rate": np.float32(0.003)},
    {"seed": 3, "dropout": 0.25},
    {"seed": 4, "dropout": 0.25},
    {"seed": 4, "dropout": 0.5},
    {"seed": 5, "l2": 0.01},
    {"seed": 6, "l2": 0.1},
    {"seed": 7, "momentum": 0.9},
    {"seed": 8, "momentum": 0.5, "rate": 0.02},
    {"seed": 9, "units": 5},
    {"seed": 9, "units": 12},
    {"seed": 10, "decay": 4},
    {"seed": 11, "decay": 7},
    {"seed": 12, "rows": np.arange(0, 70, 2)},
    {"seed": 13, "rows": RNG.integers(0, 70, 70)},
    {"seed": 14, "target": 1, "outputs": 1},
    {"seed": 15, "batch_size": 10, "shuffle": False},
    {"seed": 16, "sample_weight": RNG.random(70)},
]


@pytest.fixture(scope="module")
def trained():
    return many.fit_many(
        build, SETTINGS, X, Y, epochs=3, validation_split=0.2, threads=2, **QUIET
    )


@pytest.mark.parametrize("index", range(len(SETTINGS)))
def test_each_model_is_what_it_would_be_alone(trained, index):
    model, history = alone(SETTINGS[index], 3, validation_split=0.2)
    member = trained[index]
    assert member.history.history == history.history
    assert list(member.history.history) == list(history.history)
    for ours, theirs in zip(member.model.weights, model.weights, strict=True):
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())
    pairs = zip(
        member.model.optimizer.variables, model.optimizer.variables, strict=True
    )
    for ours, theirs in pairs:
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


def test_equal_models_share_their_steps(trained):
    # Of the settings above: their structures, each with its batches of 16, the rest of
    # an epoch, and the validation.
    steps = trained[0].model._step_cache.shared
    assert all(member.model._step_cache.shared is steps for member in trained)
    before = steps.compilations
    again = many.fit_many(build, SETTINGS[:4], X, Y, epochs=1, threads=2, **QUIET)
    assert again[0].model._step_cache.shared.compilations == 2
    assert steps.compilations == before < 3 * len(SETTINGS)


def test_everything_that_fit_takes_reaches_it():
    weights = {0: 1.0, 1: 5.0}

    def classifier():
        model = keras.Sequential(
            [keras.Input((6,)), layers.Dense(2, activation="softmax")]
        )
        model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
        return model

    arguments = {
        "class_weight": weights, "epochs": 5, "initial_epoch": 2, "shuffle": False,
        "validation_data": (X[:20], CLASSES[:20]), "validation_freq": 2, **QUIET,
    }  # fmt: skip
    trained = many.fit_many(classifier, [{"seed": 3}], X, CLASSES, **arguments)
    keras.utils.set_random_seed(3)
    history = classifier().fit(X, CLASSES, **arguments)
    assert trained[0].history.history == history.history
    assert trained[0].history.epoch == [2, 3, 4]


def test_a_list_of_models_and_models_without_an_input():
    def own():
        model = keras.Sequential(
            [layers.Dense(3), layers.Dropout(0.2), layers.Dense(2)]
        )
        model.compile("sgd", "mse")
        return model

    keras.utils.set_random_seed(5)
    first, second = own(), own()
    keras.utils.set_random_seed(5)
    same = [own(), own()]
    trained = many.fit_many(same, None, X, Y, epochs=2, **QUIET)
    for model, member in zip((first, second), trained, strict=True):
        history = model.fit(X, Y, epochs=2, **QUIET)
        assert history.history == member.history.history
        assert member.seed is None


def test_settings_without_a_seed_get_one_and_random_numbers_go_on_as_before():
    keras.utils.set_random_seed(7)
    trained = many.fit_many(build, [{}, {}], X, Y, epochs=1, **QUIET)
    drawn = np.random.random()
    assert trained[0].seed != trained[1].seed
    _, history = alone({"seed": trained[1].seed}, 1)
    assert history.history == trained[1].history.history
    np.random.seed(7)
    assert drawn == np.random.random()


def test_folds_leave_each_row_out_once():
    settings = many.crossed(many.folds(70, 5, seed=1), many.grid(seed=[0, 1]))
    trained = many.fit_many(build, settings, X, Y, epochs=2, **QUIET)
    left_out = np.concatenate([m.setting["validation_rows"] for m in trained[::2]])
    np.testing.assert_array_equal(np.sort(left_out), np.arange(70))
    fold = settings[3]
    rows, held_out = fold["rows"], fold["validation_rows"]
    keras.utils.set_random_seed(1)
    history = build().fit(
        X[rows], Y[rows], validation_data=(X[held_out], Y[held_out]), epochs=2, **QUIET
    )
    assert trained[3].history.history == history.history
    assert trained.table()[3]["fold"] == 1


def test_models_with_several_outputs_have_the_same_metrics():
    def two(units):
        x = keras.Input((6,))
        hidden = layers.Dense(units)(x)
        model = keras.Model(x, [layers.Dense(1)(hidden), layers.Dense(1)(hidden)])
        model.compile("sgd", "mse")
        return model

    settings = many.grid(units=[2, 3], seed=[0])
    trained = many.fit_many(two, settings, X, [Y[:, :1], Y[:, 1:]], **QUIET)
    assert trained[0].logs.keys() == trained[1].logs.keys()
    assert set(trained[0].logs) == {"loss", "dense_1_loss", "dense_2_loss"}
    assert len(trained.ensemble().outputs) == 2


# ---- callbacks and endings -----------------------------------------------------------


class Names(callbacks.Callback):
    """Notes which model it was called for."""

    seen: ClassVar[list[tuple[int, int]]] = []

    def on_epoch_end(self, epoch, logs=None):
        self.seen.append((self.model_index, epoch))


def test_callbacks_know_the_index_of_their_model_and_do_not_mix():
    Names.seen.clear()
    stop = callbacks.EarlyStopping("val_loss", patience=1, restore_best_weights=True)
    settings = many.grid(rate=[0.3, 0.0001], seed=[0])
    arguments = {"epochs": 30, "validation_split": 0.3, **QUIET}
    trained = many.fit_many(
        build, settings, X, Y, callbacks=[stop, Names()], **arguments
    )
    epochs = [len(member.history.epoch) for member in trained]
    assert epochs[0] < epochs[1]
    for index in (0, 1):
        assert [e for i, e in Names.seen if i == index] == list(range(epochs[index]))
        own = callbacks.EarlyStopping("val_loss", patience=1, restore_best_weights=True)
        model, history = alone(settings[index], callbacks=[own], **arguments)
        assert history.history == trained[index].history.history
        np.testing.assert_array_equal(
            model.get_weights()[0], trained[index].model.get_weights()[0]
        )
    assert stop.model is None  # each model had a copy


def test_callbacks_by_a_function_of_the_index():
    given = {}

    def make(index):
        given[index] = Names()
        return given[index]

    trained = many.fit_many(
        build, many.grid(seed=[0, 1]), X, Y, callbacks=make, **QUIET
    )
    assert given[1].model is trained[1].model


class Files(callbacks.Callback):
    """Keeps a file open, which cannot be copied."""

    def __init__(self, path):
        super().__init__()
        self.file = open(path, "w", encoding="utf-8")  # noqa: SIM115 (closed by the test)


def test_copies_of_callbacks_write_to_files_of_their_own(tmp_path):
    written = [
        callbacks.CSVLogger(tmp_path / "log.csv"),
        callbacks.ModelCheckpoint(tmp_path / "{epoch:02d}-{loss:.0f}.weights.h5",
                                  save_weights_only=True),
        callbacks.BackupAndRestore(tmp_path / "backup", delete_checkpoint=False),
    ]  # fmt: skip
    arguments = {"callbacks": written, "epochs": 1, **QUIET}
    many.fit_many(build, many.grid(seed=[0, 1]), X, Y, **arguments)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert [name for name in names if name.startswith("log")] == [
        "log-0.csv",
        "log-1.csv",
    ]
    assert [name[-13:] for name in names[:2]] == ["-0.weights.h5", "-1.weights.h5"]
    assert sorted(path.name for path in (tmp_path / "backup").iterdir()) == ["0", "1"]


def test_callbacks_that_cannot_be_copied_say_what_to_do(tmp_path):
    files = Files(tmp_path / "notes.txt")
    with files.file, pytest.raises(TypeError, match="lambda index"):
        many.fit_many(build, [{}], X, Y, callbacks=[files], **QUIET)
    with pytest.raises(TypeError, match="pass an instance"):
        many.fit_many(build, [{}], X, Y, callbacks=callbacks.EarlyStopping, **QUIET)


class Pretrains(callbacks.Callback):
    """Trains another model, whose loss is not finite."""

    def on_train_begin(self, logs=None):
        build(momentum=0.9, rate=1e25).fit(X, Y, epochs=2, **QUIET)


def test_a_model_that_a_callback_trains_does_not_stop_its_own():
    arguments = {"callbacks": [Pretrains()], "epochs": 3, **QUIET}
    with pytest.warns(RuntimeWarning, match="finite"):
        trained = many.fit_many(build, [{"seed": 1}], X, Y, **arguments)
    assert trained[0].message is None
    assert trained[0].history.epoch == [0, 1, 2]


def headed(*parts, **arguments):
    model = keras.Sequential([keras.Input((6,)), *parts, layers.Dense(2)])
    model.compile("adam", "mse", **arguments)
    return model


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "shares",
    [
        lambda part, metric: headed(part),
        lambda part, metric: headed(metrics=[metric]),
        lambda part, metric: headed(part, run_eagerly=True),
    ],
)
def test_models_that_would_change_each_other_are_refused(shares, threads):
    part = layers.Dense(4, name="part")
    metric = keras.metrics.MeanAbsoluteError()
    with pytest.raises(ValueError, match="with another one of the set"):
        many.fit_many(
            lambda: shares(part, metric), [{}, {}], X, Y, threads=threads, **QUIET
        )


def test_models_may_share_what_is_frozen():
    base = keras.Sequential([keras.Input((6,)), layers.Dense(4), layers.Dropout(0.5)])
    base.trainable = False

    def transferred():
        inputs = keras.Input((6,))
        outputs = layers.Dense(2)(base(inputs, training=False))
        model = keras.Model(inputs, outputs)
        model.compile("adam", "mse")
        return model

    trained = many.fit_many(transferred, many.grid(seed=[1, 2]), X, Y, **QUIET)
    for member in trained:
        keras.utils.set_random_seed(member.seed)
        history = transferred().fit(X, Y, **QUIET)
        assert history.history == member.history.history
    # Dropout that is switched on draws from a generator, which each model moves.
    with pytest.raises(ValueError, match="seed_generator"):
        many.fit_many(lambda: headed(base), [{}, {}], X, Y, **QUIET)


def test_a_builder_that_returns_one_model_twice_is_refused():
    model = headed()
    with pytest.raises(ValueError, match="the same model for model 1"):
        many.fit_many(lambda: model, [{}, {}], X, Y, threads=1, **QUIET)


@pytest.mark.filterwarnings("error")
def test_a_model_that_turns_nan_stops_and_the_others_do_not_notice():
    settings = [{"seed": 0}, {"seed": 0, "rate": 1e30, "momentum": 0.0}, {"seed": 1}]
    trained = many.fit_many(build, settings, X, Y, epochs=4, **QUIET)
    bad = trained[1]
    assert "stopped being a finite number" in bad.message
    assert bad.history.message == bad.message
    assert len(bad.history.epoch) < 4
    assert [member.message for member in trained[::2]] == [None, None]
    assert trained[2].history.history == alone(settings[2], 4)[1].history
    assert trained.best().index != 1
    with pytest.raises(ValueError, match="No model has a number"):
        trained[1:2].best()


def test_an_error_in_one_model_says_which_it_was():
    class Fails(callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if self.model_index == 2:
                raise RuntimeError("of the user's own")

    with pytest.raises(RuntimeError, match="of the user's own") as error:
        many.fit_many(build, many.grid(seed=range(4)), X, Y, callbacks=Fails(), **QUIET)
    assert "model 2 (seed=2)" in error.value.__notes__[0]


def _interrupt_after(count):
    """Return callbacks that press Ctrl-C when some models are finished."""
    lock, ended = threading.Lock(), []

    class Presses(callbacks.Callback):
        def on_train_end(self, logs=None):
            with lock:
                ended.append(self.model_index)
                if len(ended) == count:
                    os.kill(os.getpid(), signal.SIGINT)
                    time.sleep(0.5)  # the main thread takes it: not at this moment

    return lambda index: Presses()


def test_ctrl_c_keeps_what_is_finished_and_a_resumed_set_is_the_same(tmp_path):
    path = tmp_path / "set.zip"
    settings = [{"rate": rate} for rate in np.linspace(0.001, 0.1, 8)]
    arguments = {"epochs": 30, "threads": 2, **QUIET}
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(many.Interrupted, match="goes on with the others") as error:
        many.fit_many(
            build,
            settings,
            X,
            Y,
            callbacks=_interrupt_after(2),
            resume=path,
            **arguments,
        )
    assert signal.getsignal(signal.SIGINT) is before
    finished = error.value.finished
    assert 1 <= len(finished) < 8
    assert not path.exists()
    resumed = many.fit_many(build, settings, X, Y, resume=path, **arguments)
    assert path.exists()
    folder = path.with_name("set.zip.parts")
    assert not folder.exists()
    folder.mkdir()  # as if the call had been stopped while it removed the folder
    (folder / "0001.json").write_text("")
    settings = [
        s | {"seed": member.seed} for s, member in zip(settings, resumed, strict=True)
    ]
    whole = many.fit_many(build, settings, X, Y, **arguments)
    for ours, theirs in zip(resumed, whole, strict=True):
        assert ours.history.history == theirs.history.history
        for a, b in zip(ours.model.variables, theirs.model.variables, strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy())
    # A third call finds all of them, and trains none.
    read = many.fit_many(
        build,
        [{k: v for k, v in s.items() if k != "seed"} for s in settings],
        X,
        Y,
        callbacks=lambda index: pytest.fail("trained again"),
        resume=path,
        **arguments,
    )
    assert [m.history.history for m in read] == [m.history.history for m in whole]


def test_ctrl_c_without_a_file_hands_out_what_is_finished():
    with pytest.raises(many.Interrupted, match="in the `finished`") as error:
        many.fit_many(
            build, many.grid(seed=range(6)), X, Y, epochs=30, threads=1,
            callbacks=_interrupt_after(2), **QUIET,
        )  # fmt: skip
    finished = [member.index for member in error.value.finished]
    assert finished == list(range(len(finished)))
    assert 2 <= len(finished) < 6


def test_another_set_is_not_resumed(tmp_path):
    path = tmp_path / "set.zip"
    settings = many.grid(seed=[0, 1])
    many.fit_many(build, settings, X, Y, resume=path, **QUIET)
    for arguments, what in (
        ({"settings": many.grid(seed=[0, 2])}, "settings"),
        ({"epochs": 2}, "arguments"),
        ({"x": X + 1}, "data"),
    ):
        given = {"settings": settings, "x": X, "y": Y, **QUIET, **arguments}
        with pytest.raises(ValueError, match=f"begun with other {what}"):
            many.fit_many(build, resume=path, **given)


def with_part(part=None, activation="relu"):
    hidden = layers.Dense(3, activation, kernel_regularizer=part)
    model = keras.Sequential([keras.Input((6,)), hidden, layers.Dense(2)])
    model.compile("adam", "mse")
    return model


def test_a_set_with_other_objects_data_or_builder_is_not_resumed(tmp_path):
    path = tmp_path / "set.zip"
    settings = [{"part": keras.regularizers.L2(0.1)}]
    held_out = {"validation_data": (X[:20], Y[:20])}
    arguments = {"resume": path, **held_out, **QUIET}
    trained = many.fit_many(with_part, settings, X, Y, **arguments)
    again = many.fit_many(with_part, settings, X, Y, **arguments)
    assert again[0].history.history == trained[0].history.history
    other = [{"part": keras.regularizers.L2(0.2)}]
    with pytest.raises(ValueError, match=r"other settings.*another name"):
        many.fit_many(with_part, other, X, Y, **arguments)
    with pytest.raises(ValueError, match="other data"):
        many.fit_many(
            with_part,
            settings,
            X,
            Y,
            **arguments | {"validation_data": (X[:9], Y[:9])},
        )
    with pytest.raises(ValueError, match="activation was 'relu' and is 'tanh'"):
        many.fit_many(lambda part: with_part(part, "tanh"), settings, X, Y, **arguments)


@pytest.mark.filterwarnings("ignore:Another call")
def test_calls_that_resume_one_set_wait_for_each_other(tmp_path):
    arguments = {"resume": tmp_path / "set.zip", "epochs": 3, **QUIET}
    seeds = many.grid(seed=range(3))
    sets = []

    def train():
        sets.append(many.fit_many(build, seeds, X, Y, **arguments))

    threads = [threading.Thread(target=train) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first, second = ([m.history.history for m in trained] for trained in sets)
    assert first == second


def test_an_error_says_how_to_keep_what_is_finished(tmp_path):
    def fails(number):
        if number == 1:
            raise RuntimeError("no")
        return build()

    arguments = {"threads": 1, **QUIET}
    with pytest.raises(RuntimeError) as failed:
        many.fit_many(fails, many.grid(number=[0, 1]), X, Y, **arguments)
    assert "With resume='set.zip'" in failed.value.__notes__[-1]
    arguments["resume"] = tmp_path / "set.zip"
    with pytest.raises(RuntimeError) as failed:
        many.fit_many(fails, many.grid(number=[0, 1]), X, Y, **arguments)
    assert "1 of 2 models are finished and kept" in failed.value.__notes__[-1]


# ---- progress ------------------------------------------------------------------------


def test_progress_shows_models_done_and_the_best(capsys):
    many.fit_many(build, many.grid(seed=[0, 1]), X, Y, epochs=2, batch_size=16)
    line = capsys.readouterr().out
    assert "2/2 models" in line
    assert "best loss: " in line
    many.fit_many(build, many.grid(seed=[0, 1]), X, Y, epochs=2, verbose=2, threads=1)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("1/2  seed=0  loss: ")
    many.fit_many(build, many.grid(seed=[0, 1]), X, Y, verbose=0)
    assert not capsys.readouterr().out


# ---- bad input -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"settings": []}, "There are no settings"),
        ({"settings": [{"rat": 0.1}]}, "Setting 0 has 'rat'.*Did you mean 'rate'"),
        ({"settings": [3]}, "Setting 0 is 3, not a dictionary"),
        ({"settings": [{"seed": -1}]}, "seed of setting 0 must be an integer"),
        ({"settings": [{"name": "a"}, {"name": "a"}]}, "the same name, 'a'"),
        ({"build": lambda needed: None, "settings": [{}]}, "lacks needed"),
        ({"build": lambda: 3, "settings": [{}]}, "is int, not a model"),
        (
            {"build": lambda: keras.Sequential([layers.Dense(1)]), "settings": [{}]},
            "is not compiled",
        ),
        ({"build": []}, "The list of models is empty"),
        ({"build": build()}, "or a list of compiled models"),
        ({"build": [build()] * 2}, "appears twice"),
        ({"build": [build()], "settings": [{}, {}]}, "1 models and 2 settings"),
        ({"build": [build()], "settings": [{"seed": 1}]}, "is built already"),
        ({"x": None}, "needs data"),
        ({"x": iter([])}, "a source of batches"),
        ({"settings": [{"rows": [70]}]}, "has the rows 0 to 69"),
        ({"settings": [{"rows": np.ones(3, bool)}]}, "a mask of shape"),
        ({"settings": [{"rows": [0.5]}]}, "must be a list of row numbers"),
        ({"settings": [{"target": 2}]}, "the columns 0 to 1"),
        ({"settings": [{"target": 0}], "y": CLASSES}, "rows and columns, not"),
        ({"epochs": 0.5}, "`epochs` must be an integer"),
        ({"settings": [{"epochs": "3"}]}, "`epochs` must be an integer"),
        ({"threads": 0}, "threads must be an integer"),
        ({"validation_data": 3}, "must be a tuple"),
        ({"validation_data": (X, Y, None, None)}, "not a tuple of 4"),
    ],
)
def test_bad_input_is_refused(given, message):
    arguments = {"build": build, "settings": [{"seed": 0}], "x": X, "y": Y, **QUIET}
    if not callable(given.get("build", build)):
        arguments["settings"] = None
    with pytest.raises((TypeError, ValueError), match=message):
        many.fit_many(**arguments | given)


def test_draws_without_a_seed_are_refused_as_models_would_share_them():
    def noisy():
        draw = layers.Lambda(lambda x: x + keras.random.normal((6,)))
        model = keras.Sequential([keras.Input((6,)), draw, layers.Dense(2)])
        model.compile("sgd", "mse")
        return model

    with pytest.raises(ValueError, match="without a seed"):
        many.fit_many(noisy, [{"seed": 0}, {"seed": 1}], X, Y, **QUIET)


def test_a_builder_whose_models_have_other_outputs_says_which():
    settings = [{"seed": 0}, {"seed": 1, "outputs": 3}]
    with pytest.raises(ValueError, match="3") as caught:
        many.fit_many(build, settings, X, Y, **QUIET)
    assert "model 1 (seed=1, outputs=3)" in "".join(caught.value.__notes__)


def test_where_memory_does_not_suffice_fewer_are_trained_at_once(monkeypatch):
    running = [0]
    fit = keras.Model.fit

    def greedy(self, *args, **kwargs):
        if running[0] == 1:
            raise MemoryError("no room for two")
        running[0] += 1
        try:
            time.sleep(0.05)
            return fit(self, *args, **kwargs)
        finally:
            running[0] -= 1

    settings = many.grid(seed=range(5))
    expected = many.fit_many(build, settings, X, Y, threads=1, **QUIET)
    monkeypatch.setattr(keras.Model, "fit", greedy)
    with pytest.warns(RuntimeWarning, match="for 2 models at once: going on with 1"):
        trained = many.fit_many(build, settings, X, Y, threads=2, **QUIET)
    assert [m.history.history for m in trained] == [m.history.history for m in expected]


def test_memory_that_does_not_suffice_for_one_model_is_an_error(monkeypatch):
    def fit(self, *args, **kwargs):
        raise MemoryError("no room at all")

    monkeypatch.setattr(keras.Model, "fit", fit)
    with (
        pytest.raises(MemoryError, match="no room") as caught,
        pytest.warns(RuntimeWarning, match="Memory does not suffice"),
    ):
        many.fit_many(build, many.grid(seed=range(3)), X, Y, threads=2, **QUIET)
    assert "This happened in model" in "".join(caught.value.__notes__)


def test_a_model_that_ends_early_leaves_its_place_to_a_waiting_one():
    begun = []

    class Stop(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            begun.append(self.model_index)
            if self.model_index % 2:
                self.model.stop_training = True

    settings = many.grid(seed=range(4))
    arguments = {"epochs": 3, "threads": 1, **QUIET}
    trained = many.fit_many(build, settings, X, Y, callbacks=[Stop()], **arguments)
    assert [len(member.history.epoch) for member in trained] == [3, 1, 3, 1]
    assert begun == [0, 0, 0, 1, 2, 2, 2, 3]


def test_epochs_of_models_alike_are_one_native_call(monkeypatch):
    rounds, execute = [], Script.execute

    def noted(self, most):
        rounds.append(most)
        return execute(self, most)

    monkeypatch.setattr(Script, "execute", noted)
    monkeypatch.setattr(fit_loop, "CHUNK_SECONDS", 1e6)
    settings = many.grid(seed=range(3))
    arguments = {**QUIET, "epochs": 4, "validation_split": 0.2, "threads": 1}
    trained = many.fit_many(build, settings, X, Y, **arguments)
    assert rounds == [3, 4, 4]  # the first one has to see how long an epoch takes
    monkeypatch.undo()
    for member, setting in zip(trained, settings, strict=True):
        (alone,) = many.fit_many(build, [setting], X, Y, **arguments)
        assert member.history.history == alone.history.history
