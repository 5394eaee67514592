"""Models that a GPU trains together, on an emulated one."""

import cuda_host
import numpy as np
import pytest
from cuda_checks import play_gpu

import ganglion as keras
from ganglion import layers, many
from ganglion.compiler.cuda import code
from ganglion.compiler.cuda.memory import Memory
from ganglion.many import lockstep
from ganglion.training import sharing
from ganglion.training.step import StepCache

pytestmark = pytest.mark.skipif(
    cuda_host.reason() is not None, reason=str(cuda_host.reason())
)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 6)).astype("float32")
Y = RNG.integers(0, 3, 40)
SETTINGS = [
    {"rate": 0.1, "seed": 0},
    {"rate": 0.02, "seed": 1},
    {"rate": 0.5, "seed": 2},
]


@pytest.fixture(autouse=True)
def _played(tmp_path, monkeypatch):
    play_gpu(monkeypatch, tmp_path, "tf32")


def build(rate, units=5):
    hidden = [layers.Dense(units, activation="relu"), layers.Dropout(0.3, seed=1)]
    head = layers.Dense(3, activation="softmax")
    model = keras.Sequential([keras.Input((6,)), *hidden, head])
    optimizer = keras.optimizers.Adam(rate)
    model.compile(optimizer, "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def groups_of(monkeypatch):
    """Return a list that the sizes of groups are written to."""
    sizes, train = [], lockstep.Group.train

    def noted(self, *args):
        sizes.append(len(self._members))
        return train(self, *args)

    monkeypatch.setattr(lockstep.Group, "train", noted)
    return sizes


ARGUMENTS = {"batch_size": 16, "epochs": 3}


@pytest.mark.parametrize("rows", [9, 25])  # to validate on: one batch, or more
def test_a_group_has_the_bits_of_each_alone(rows, monkeypatch):
    monkeypatch.setitem(ARGUMENTS, "validation_data", (X[:rows], Y[:rows]))
    sizes = groups_of(monkeypatch)
    together = many.fit_many(build, SETTINGS, X, Y, verbose=0, **ARGUMENTS)
    assert sizes == [3]
    for member, setting in zip(together, SETTINGS, strict=True):
        (alone,) = many.fit_many(build, [setting], X, Y, verbose=0, **ARGUMENTS)
        assert member.history.history == alone.history.history
        assert member.history.epoch == [0, 1, 2]
        for ours, theirs in zip(
            member.model.get_weights(), alone.model.get_weights(), strict=True
        ):
            np.testing.assert_array_equal(ours, theirs)
    assert sizes == [3]  # one alone is no group


def test_structures_are_grouped(monkeypatch):
    sizes = groups_of(monkeypatch)
    settings = many.grid(rate=[0.1, 0.01], units=[4, 5], seed=[0])
    trained = many.fit_many(build, settings, X, Y, batch_size=20, verbose=0)
    assert sizes == [2, 2]
    assert [member.setting["units"] for member in trained] == [
        setting["units"] for setting in settings
    ]


def test_one_that_is_not_a_number_any_more_stops_alone():
    settings = [*SETTINGS[:2], {"rate": 1e38, "seed": 0}]
    arguments = {"batch_size": 20, "epochs": 3, "verbose": 0}
    trained = many.fit_many(build, settings, X, Y, **arguments)
    assert [len(member.history.epoch) for member in trained] == [3, 3, 1]
    assert "finite" in trained[2].message
    others = many.fit_many(build, settings[:2], X, Y, **arguments)
    for member, other in zip(trained[:2], others, strict=True):
        assert member.history.history == other.history.history


def test_training_goes_on_where_a_group_ended():
    models = [build(0.1), build(0.02)]
    many.fit_many(models, None, X, Y, batch_size=20, epochs=2, verbose=0)
    for model in models:
        assert int(model.training_state.epoch.array) == 2
        assert int(model.optimizer.iterations) == 4
        model.fit(X, Y, batch_size=20, verbose=0)
        assert int(model.optimizer.iterations) == 6


def test_no_room_for_all_at_once_is_said(monkeypatch, capsys):
    train, sizes = lockstep.Group.train, []

    def crowded(self, *args):
        sizes.append(len(self._members))
        if len(self._members) > 2:
            raise MemoryError("no room")
        return train(self, *args)

    monkeypatch.setattr(lockstep.Group, "train", crowded)
    trained = many.fit_many(build, SETTINGS, X, Y, batch_size=20, verbose=0)
    assert len(trained) == 3
    assert sizes == [3, 1, 2]
    assert "in parts" in "".join(capsys.readouterr())


def test_a_set_like_the_last_one_is_neither_traced_nor_emitted_again(monkeypatch):
    traced, emitted = [], []
    trace, emit = StepCache.traced, code.emit_program

    def noted_trace(self, *args):
        traced.append(args)
        return trace(self, *args)

    def noted_emit(*args):
        emitted.append(args)
        return emit(*args)

    monkeypatch.setattr(StepCache, "traced", noted_trace)
    monkeypatch.setattr(code, "emit_program", noted_emit)
    sharing.RECENT.clear()
    arguments = {"batch_size": 20, "epochs": 2, "verbose": 0}
    first = many.fit_many(build, SETTINGS, X, Y, **arguments)
    steps = len(traced)
    assert len(emitted) == steps == 1
    again = many.fit_many(build, SETTINGS, X, Y, **arguments)
    assert (len(traced), len(emitted)) == (steps, steps)
    for one, other in zip(first, again, strict=True):
        assert one.history.history == other.history.history
    many.fit_many(build, SETTINGS[:2], X, Y, **arguments)
    assert (len(traced), len(emitted)) == (steps, steps + 1)  # for so many models
    others = many.grid(rate=[0.1], units=[3], seed=[0, 1])
    many.fit_many(build, others, X, Y, **arguments)
    assert len(traced) == steps + 1


def test_metrics_that_are_no_means_are_those_of_each_alone(monkeypatch):
    def regressor(rate):
        model = keras.Sequential([keras.Input((6,)), layers.Dense(1)])
        error = keras.metrics.RootMeanSquaredError()
        model.compile(keras.optimizers.SGD(rate), "mse", metrics=["mae", error])
        return model

    sizes = groups_of(monkeypatch)
    settings = [{"rate": 0.1, "seed": 0}, {"rate": 1e20, "seed": 1}]
    arguments = {"batch_size": 20, "epochs": 3, "verbose": 0, "validation_split": 0.5}
    together = many.fit_many(regressor, settings, X, X[:, 0], **arguments)
    assert sizes == [2]
    for member, setting in zip(together, settings, strict=True):
        (alone,) = many.fit_many(regressor, [setting], X, X[:, 0], **arguments)
        np.testing.assert_equal(member.history.history, alone.history.history)
    assert [len(member.history.epoch) for member in together] == [3, 2]


def test_a_group_that_shares_what_it_trains_is_refused():
    part = layers.Dense(5, name="part")

    def shares():
        model = keras.Sequential([keras.Input((6,)), part, layers.Dense(3)])
        model.compile("sgd", "mse")
        return model

    with pytest.raises(ValueError, match="part/kernel"):
        many.fit_many(shares, [{}, {}], X, X[:, :3], **ARGUMENTS, verbose=0)


def test_epochs_run_at_once_have_the_bits_of_each_alone(monkeypatch):
    """Also where a model stops among them: those are run again."""
    monkeypatch.setattr(lockstep, "_SECONDS_AT_ONCE", 1e9)
    run, sizes = lockstep.Group._epochs, []

    def noted(self, passes, most, running):
        done = run(self, passes, most, running)
        sizes.append((most, done))
        return done

    monkeypatch.setattr(lockstep.Group, "_epochs", noted)

    def regressor(rate):
        model = keras.Sequential([keras.Input((6,)), layers.Dense(1)])
        model.compile(keras.optimizers.SGD(rate), "mse", metrics=["mae"])
        return model

    settings = [{"rate": 0.1, "seed": 0}, {"rate": 7e4, "seed": 1}]
    arguments = {"batch_size": 20, "epochs": 8, "verbose": 0, "validation_split": 0.5}
    together = many.fit_many(regressor, settings, X, X[:, 0], **arguments)
    ended = len(together[1].history.epoch)
    assert 1 < ended < 8  # among several
    assert (4, 1) in sizes
    assert (2, 2) in sizes
    for member, setting in zip(together, settings, strict=True):
        (alone,) = many.fit_many(regressor, [setting], X, X[:, 0], **arguments)
        np.testing.assert_equal(member.history.history, alone.history.history)
        for ours, theirs in zip(
            member.model.get_weights(), alone.model.get_weights(), strict=True
        ):
            np.testing.assert_array_equal(ours, theirs)


def test_no_room_for_a_copy_means_one_epoch_at_a_time(monkeypatch):
    monkeypatch.setattr(lockstep, "_SECONDS_AT_ONCE", 1e9)
    expected = many.fit_many(build, SETTINGS, X, Y, verbose=0, **ARGUMENTS)
    allocate = Memory.allocate

    def crowded(self, nbytes, purpose, remedy=""):
        if purpose.startswith("a copy"):
            raise MemoryError("no room")
        return allocate(self, nbytes, purpose, remedy)

    monkeypatch.setattr(Memory, "allocate", crowded)
    trained = many.fit_many(build, SETTINGS, X, Y, verbose=0, **ARGUMENTS)
    for one, other in zip(trained, expected, strict=True):
        assert one.history.history == other.history.history


def test_metrics_with_many_sums_start_anew_every_epoch():
    def classifier(rate):
        model = keras.Sequential([keras.Input((6,)), layers.Dense(1)])
        area = keras.metrics.AUC(num_thresholds=50, from_logits=True)
        loss = keras.losses.BinaryCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(rate), loss, metrics=[area])
        return model

    settings = [{"rate": 0.1, "seed": 0}, {"rate": 0.5, "seed": 1}]
    arguments = {"batch_size": 20, "epochs": 3, "verbose": 0}
    labels = (X[:, 0] > 0).astype("float32")
    together = many.fit_many(classifier, settings, X, labels, **arguments)
    for member, setting in zip(together, settings, strict=True):
        (alone,) = many.fit_many(classifier, [setting], X, labels, **arguments)
        assert member.history.history == alone.history.history


def test_models_are_read_once_and_again_after_compile(monkeypatch):
    """A model of another structure begins by its own `fit`."""
    begun = []
    fit = keras.Model.fit

    def noted(self, *args, **kwargs):
        begun.append(self)
        return fit(self, *args, **kwargs)

    monkeypatch.setattr(keras.Model, "fit", noted)
    sizes = groups_of(monkeypatch)
    models = [build(0.1), build(0.02), build(0.1, units=4), build(0.3)]
    arguments = {"batch_size": 20, "verbose": 0}
    many.fit_many(models, None, X, Y, **arguments)
    assert sizes == [3]
    assert begun == [models[0], models[2], models[3], models[2]]
    models[1].layers[0].trainable = False
    models[1].compile("adam", "sparse_categorical_crossentropy")
    before = models[1].layers[0].get_weights()[0]
    many.fit_many(models, None, X, Y, **arguments)
    assert sizes == [3, 2]
    np.testing.assert_array_equal(models[1].layers[0].get_weights()[0], before)
