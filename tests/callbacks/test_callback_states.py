"""Callbacks go on where they were: a resumed run stops and slows as a whole one."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ganglion as keras
from ganglion import callbacks, layers, saving
from ganglion.saving import h5, state

pytest.importorskip("h5py")

RNG = np.random.default_rng(8)
X = RNG.normal(size=(72, 5)).astype("float32")
Y = RNG.integers(0, 3, 72)  # noise: what is learned of it makes validation worse
STEPS, EPOCHS = 4, 14


class Diary(callbacks.Callback):
    """An own callback with a state: integers, texts, arrays, nested."""

    def __init__(self) -> None:
        super().__init__()
        self.epochs: list[int] = []
        self.last = np.zeros(2, "float32")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.epochs.append(epoch)
        self.last = np.array([epoch, logs["val_loss"]], "float32")

    def get_state(self) -> dict[str, Any]:
        return {"epochs": {"seen": self.epochs, "what": "epochs"}, "last": self.last}

    def set_state(self, state: dict[str, Any]) -> None:
        assert state["epochs"]["what"] == "epochs"
        self.epochs, self.last = state["epochs"]["seen"], state["last"]


class Stop(callbacks.Callback):
    """Interrupts a run in one of its hooks."""

    def __init__(self, hook: str, epoch: int, batch: int = 0) -> None:
        super().__init__()
        self.hook, self.epoch, self.batch, self.now = hook, epoch, batch, 0

    def _at(self, hook: str, batch: int = 0) -> None:
        if (hook, self.now, batch) == (self.hook, self.epoch, self.batch):
            raise KeyboardInterrupt

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.now = epoch
        self._at("begin")

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._at("step", batch)

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        self._at("validation")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._at("end")


def new_model(rate: float = 0.1) -> Any:
    keras.utils.set_random_seed(3)
    model = keras.Sequential(
        [
            keras.Input((5,)),
            layers.Dense(16, activation="relu"),
            layers.Dropout(0.2),
            layers.Dense(3, activation="softmax"),
        ]
    )
    model.compile(
        keras.optimizers.SGD(rate, momentum=0.9),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return model


def new_callbacks(folder: Path) -> dict[str, Any]:
    return {
        "stopping": callbacks.EarlyStopping(patience=6, restore_best_weights=True),
        "slower": callbacks.ReduceLROnPlateau(factor=0.5, patience=2, cooldown=1),
        "best": callbacks.ModelCheckpoint(folder / "best.keras", save_best_only=True),
        "diary": Diary(),
        "table": callbacks.CSVLogger(folder / "log.csv"),
    }


def train(model: Any, callbacks: list[Any], first: int = 0) -> Any:
    return model.fit(
        X[:56],
        Y[:56],
        batch_size=14,
        epochs=EPOCHS,
        initial_epoch=first,
        validation_data=(X[56:], Y[56:]),
        callbacks=callbacks,
        verbose=0,
    )


class Result:
    """All that two equal runs have in common."""

    def __init__(self, model: Any, used: dict[str, Any], history: Any, folder: Path):
        self.arrays = [
            *model.get_weights(),
            *(v.numpy() for v in model.optimizer.variables),
        ]
        self.stopped = used["stopping"].stopped_epoch, used["stopping"].best_epoch
        self.counts = used["slower"].wait, used["slower"].best
        self.epochs, self.last = used["diary"].epochs, used["diary"].last.tolist()
        self.history = {name: values[-1] for name, values in history.history.items()}
        self.table = (folder / "log.csv").read_text()
        self.kept = saving.load_model(folder / "best.keras").get_weights()


def assert_same(full: Result, parts: Result) -> None:
    assert full.stopped == parts.stopped
    assert full.counts == parts.counts
    assert (full.epochs, full.last) == (parts.epochs, parts.last)
    assert full.table == parts.table
    for name, value in parts.history.items():
        assert full.history[name] == value
    for mine, its in zip(
        [*full.arrays, *full.kept], [*parts.arrays, *parts.kept], strict=True
    ):
        np.testing.assert_array_equal(mine, its)


@pytest.fixture(scope="module")
def full_run(tmp_path_factory: Any) -> Result:
    folder = tmp_path_factory.mktemp("whole")
    model, used = new_model(), new_callbacks(folder)
    history = train(model, list(used.values()))
    result = Result(model, used, history, folder)
    # The run is worth comparing: it slowed down, and stopped after its best epoch.
    assert 1 < result.stopped[1] < result.stopped[0] < EPOCHS - 1
    assert float(model.optimizer.learning_rate.numpy()) < 0.06
    return result


def stops_of(full_run: Result) -> list[Stop]:
    stopped, best = full_run.stopped
    return [
        Stop("step", 0, 1),
        Stop("begin", 1),
        Stop("end", best),
        Stop("begin", best + 1),
        Stop("step", best + 3, 2),
        Stop("step", stopped, STEPS - 1),
        Stop("validation", stopped),
        Stop("end", stopped),
    ]


@pytest.mark.parametrize("number", range(8))
def test_an_interrupted_run_goes_on_as_if_it_had_not_been(tmp_path, full_run, number):
    stop, used = stops_of(full_run)[number], new_callbacks(tmp_path)
    callbacks = list(used.values())
    callbacks.insert(
        number % len(callbacks), stop
    )  # some are called before it, some after
    part = new_model()
    with pytest.raises(KeyboardInterrupt):
        train(part, callbacks)
    part.save(tmp_path / "part.keras")
    model, used = saving.load_model(tmp_path / "part.keras"), new_callbacks(tmp_path)
    first = int(model.training_state.epoch.array)
    history = train(model, list(used.values()), first)
    assert_same(full_run, Result(model, used, history, tmp_path))


@pytest.mark.parametrize("place", [0, 2, 5])
@pytest.mark.parametrize("every", ["epoch", 3])
def test_a_backup_brings_callbacks_back_however_often(tmp_path, full_run, place, every):
    stopped, best = full_run.stopped
    stops = [Stop("step", best + 1, 3), Stop("end", stopped), Stop("begin", EPOCHS)]
    if place == 2:
        stops.insert(0, Stop("validation", 1))
    for stop in stops:
        model, used = new_model(rate=0.7), new_callbacks(tmp_path)
        if stop is stops[0]:
            model = new_model()
        used_callbacks = list(used.values())
        backup = callbacks.BackupAndRestore(tmp_path / "backup", save_freq=every)
        used_callbacks.insert(place, backup)
        try:
            history = train(model, [*used_callbacks, stop])
        except KeyboardInterrupt:
            assert stop is not stops[-1]
    assert_same(full_run, Result(model, used, history, tmp_path))
    assert not (tmp_path / "backup").exists()


def test_a_rate_that_depends_on_the_last_one_is_lowered_once_an_epoch(tmp_path):
    def run(*more: Any, model: Any = None, first: int = 0) -> Any:
        lower = callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9)
        model = new_model() if model is None else model
        try:
            train(model, [*more, lower], first)
        except KeyboardInterrupt:
            model.save(tmp_path / "m.keras")
        return model

    straight = run()
    run(Stop("step", 3, 1))
    model = saving.load_model(tmp_path / "m.keras")
    run(Stop("begin", 5), model=model, first=3)
    model = saving.load_model(tmp_path / "m.keras")
    run(model=model, first=5)
    for mine, its in zip(straight.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, its)


def test_averaged_weights_are_not_taken_for_those_in_training(tmp_path):
    def run(model: Any = None, first: int = 0, *more: Any) -> Any:
        if model is None:
            model = new_model()
            optimizer = keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5)
            model.compile(optimizer, "sparse_categorical_crossentropy")
        train(model, [callbacks.SwapEMAWeights(swap_on_epoch=True), *more], first)
        return model

    straight, part = run(), tmp_path / "part.keras"
    checkpoint = callbacks.ModelCheckpoint(part, save_freq="epoch")
    with pytest.raises(KeyboardInterrupt):
        run(None, 0, checkpoint, Stop("begin", 4))
    model = saving.load_model(part)
    run(model, 4)
    for mine, its in zip(straight.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, its)


def test_a_file_is_kept_through_loading_and_saving(tmp_path, full_run):
    part, used = new_model(), new_callbacks(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        train(part, [*used.values(), Stop("step", full_run.stopped[0], 0)])
    part.save(tmp_path / "a.keras")
    saving.load_model(tmp_path / "a.keras").save(tmp_path / "b.keras")
    model, used = saving.load_model(tmp_path / "b.keras"), new_callbacks(tmp_path)
    history = train(model, list(used.values()), int(model.training_state.epoch.array))
    assert used["stopping"].stopped_epoch == full_run.stopped[0]
    assert len(history.epoch) == 1


def test_other_callbacks_and_other_epochs_start_anew(tmp_path):
    part = new_model()
    stopping = callbacks.EarlyStopping(patience=6)
    with pytest.raises(KeyboardInterrupt):
        train(part, [stopping, Diary(), Stop("step", 5, 0)])
    assert stopping.wait > 0
    part.save(tmp_path / "m.keras")
    fresh = callbacks.EarlyStopping("val_accuracy", patience=60)
    model = saving.load_model(tmp_path / "m.keras")
    train(model, [fresh], 5)  # another metric: nothing is known of it
    assert fresh.best_epoch >= 5
    diary = Diary()
    train(saving.load_model(tmp_path / "m.keras"), [diary])  # from epoch 0
    assert diary.epochs == list(range(EPOCHS))
    finished = new_model()
    train(finished, [callbacks.EarlyStopping(patience=3)])
    finished.save(tmp_path / "done.keras")  # that run is over: a new one is another
    model = saving.load_model(tmp_path / "done.keras")
    first = int(model.training_state.epoch.array)
    assert len(train(model, [callbacks.EarlyStopping(patience=3)], first).epoch) > 1


def test_a_state_that_no_file_can_hold_is_refused_by_name(tmp_path):
    class Odd(Diary):
        def get_state(self) -> dict[str, Any]:
            return {"when": object()}

    part = new_model()
    with pytest.raises(KeyboardInterrupt):
        train(part, [Odd(), Stop("begin", 1)])
    with pytest.raises(TypeError, match=r"Odd.*object.*cannot be kept in a file"):
        part.save(tmp_path / "m.keras")
    assert not (tmp_path / "m.keras").exists()


def test_a_state_that_does_not_fit_is_refused_by_name(tmp_path):
    class EarlyStopping(callbacks.EarlyStopping):
        def get_state(self) -> dict[str, Any]:
            return super().get_state() | {"best_weights": [np.zeros(3)]}

    part = new_model()
    with pytest.raises(KeyboardInterrupt):
        train(part, [EarlyStopping(), Stop("begin", 1)])
    part.save(tmp_path / "m.keras")
    model = saving.load_model(tmp_path / "m.keras")
    with pytest.raises(ValueError, match="EarlyStopping of val_loss does not fit"):
        train(model, [callbacks.EarlyStopping()], 1)


@pytest.mark.parametrize("depth", [1500, 100_000])
def test_states_that_are_nested_too_deeply_are_refused(depth):
    text = "[" * depth + "]" * depth
    with h5.open_h5(io.BytesIO(), "w") as file:
        h5.put(file, "json", np.frombuffer(text.encode(), "uint8"))
        file.create_group("arrays")
        with pytest.raises(ValueError, match="nested too deeply"):
            state.get_plain(file)
