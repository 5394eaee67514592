"""Checkpoints, backups, CSV files and other callbacks."""

import csv
import math
import os
import sys
import types

import numpy as np
import pytest
from callback_fakes import Model, fit

from ganglion.callbacks import (
    BackupAndRestore,
    Callback,
    CallbackList,
    CSVLogger,
    LambdaCallback,
    ModelCheckpoint,
    SwapEMAWeights,
)
from ganglion.variables import Variable


def test_checkpoint_fills_in_the_path(tmp_path):
    model = Model()
    path = tmp_path / "deep" / "{epoch:02d}-{val_loss:.2f}.keras"
    fit(model, [0.5, 0.25], ModelCheckpoint(path))
    names = [("model", str(tmp_path / "deep" / name)) for name in _PATHS]
    assert model.saved == names
    assert (tmp_path / "deep").is_dir()


_PATHS = ["01-0.50.keras", "02-0.25.keras"]


def test_checkpoint_of_the_best_only(tmp_path, capsys):
    model = Model()
    path = str(tmp_path / "{epoch}.weights.h5")
    best = ModelCheckpoint(path, save_best_only=True, save_weights_only=True, verbose=1)
    fit(model, [0.5, 0.6, math.nan, 0.25], best)
    saved = [str(tmp_path / f"{epoch}.weights.h5") for epoch in (1, 4)]
    assert model.saved == [("weights", path) for path in saved]
    text = capsys.readouterr().out
    assert (
        f"Epoch 1: val_loss improved from None to 0.50000, saving model to {saved[0]}"
    )
    assert "\nEpoch 2: val_loss did not improve from 0.50000\n" in text
    assert f"\nEpoch 4: finished saving model to {saved[1]}\n" in text


def test_checkpoint_keeps_to_its_threshold(tmp_path):
    model = Model()
    best = ModelCheckpoint(
        tmp_path / "m.keras", save_best_only=True, initial_value_threshold=0.3
    )
    fit(model, [0.5, 0.2], best)
    assert len(model.saved) == 1


def test_checkpoint_every_so_many_steps(tmp_path):
    model = Model()
    every = ModelCheckpoint(tmp_path / "{epoch}-{batch}.keras", save_freq=3)
    assert CallbackList([every]).needs_batches
    assert not CallbackList([ModelCheckpoint("m.keras")]).needs_batches
    fit(model, [0.5, 0.5], every, steps=4)
    assert [os.path.basename(path) for _, path in model.saved] == [
        "1-3.keras",
        "2-2.keras",
    ]


def test_checkpoint_refuses_wrong_paths(tmp_path):
    with pytest.raises(ValueError, match=r"ends in '\.weights\.h5'"):
        ModelCheckpoint("m.keras", save_weights_only=True)
    with pytest.raises(ValueError, match=r"ends in '\.keras'"):
        ModelCheckpoint("m.ckpt")
    ModelCheckpoint("weights.{epoch:02d}.hdf5", save_weights_only=True)
    ModelCheckpoint("{epoch:02d}.hdf5")
    with pytest.raises(ValueError, match="save_freq: 'step'"):
        ModelCheckpoint("m.keras", save_freq="step")
    with pytest.raises(KeyError, match="val_acc"):
        fit(Model(), [0.5], ModelCheckpoint("{val_acc}.keras"))
    folder = tmp_path / "folder.keras"
    folder.mkdir()
    with pytest.raises(IsADirectoryError, match="Give the path of a file"):
        fit(Model(), [0.5], ModelCheckpoint(folder))


@pytest.fixture
def saving(monkeypatch):
    """Stands for `ganglion.saving`: a checkpoint is the weights as text."""
    import ganglion

    def save_checkpoint(path, model):
        path.write_text(str(float(model.weights[0][0])))

    def load_checkpoint(path, model):
        model.weights = [np.full(2, float(path.read_text()), "float32")]

    module = types.ModuleType("ganglion.saving")
    module.save_checkpoint, module.load_checkpoint = save_checkpoint, load_checkpoint
    monkeypatch.setitem(sys.modules, "ganglion.saving", module)
    monkeypatch.setattr(ganglion, "saving", module, raising=False)
    return module


class Interrupts(Callback):
    def __init__(self, epoch):
        super().__init__()
        self.at = epoch

    def on_epoch_begin(self, epoch, logs=None):
        if epoch == self.at:
            raise KeyboardInterrupt


def test_training_goes_on_after_an_interruption(tmp_path, saving):
    folder = tmp_path / "backup"
    with pytest.raises(KeyboardInterrupt):
        fit(Model(), [0.5] * 5, BackupAndRestore(folder), Interrupts(3))
    files = sorted(path.name for path in folder.iterdir())
    assert files == ["epoch-3-batch-0.checkpoint", "training_metadata.json"]

    model = Model()
    backup = BackupAndRestore(folder)
    backup.set_model(model)
    backup.on_train_begin()
    assert model.initial_epoch == 3
    np.testing.assert_array_equal(model.weights[0], [3, 3])
    backup.on_train_end()
    assert not folder.exists()
    assert model.initial_epoch == 0


def test_a_resumed_training_is_the_one_that_was_never_stopped(tmp_path):
    import ganglion
    from ganglion import saving

    if not hasattr(saving, "save_checkpoint"):
        pytest.skip("ganglion.saving has no checkpoints yet")
    x = np.random.default_rng(0).random((40, 3), "float32")
    y = x.sum(1, keepdims=True)

    def train(seed, *callbacks):
        ganglion.utils.set_random_seed(seed)
        layers = [ganglion.Input((3,)), ganglion.layers.Dense(1)]
        model = ganglion.Sequential([*layers])
        model.compile("adam", "mse")
        return model.fit(x, y, 8, 5, verbose=0, callbacks=list(callbacks)).history[
            "loss"
        ]

    losses = train(1)
    folder = tmp_path / "backup"
    with pytest.raises(KeyboardInterrupt):
        train(1, BackupAndRestore(folder), Interrupts(3))
    # Another seed: everything that matters must come from the backup.
    assert train(2, BackupAndRestore(folder)) == losses[3:]


def test_a_damaged_backup_falls_back_to_the_one_before(tmp_path, saving):
    backup = BackupAndRestore(tmp_path, double_checkpoint=True)
    with pytest.raises(KeyboardInterrupt):
        fit(Model(), [0.5] * 5, backup, Interrupts(3))
    (tmp_path / "epoch-3-batch-0.checkpoint").write_text("damaged")
    model = Model()
    backup.set_model(model)
    with pytest.warns(UserWarning, match=r"epoch-3-batch-0.checkpoint cannot be used"):
        backup.on_train_begin()
    assert model.initial_epoch == 2
    np.testing.assert_array_equal(model.weights[0], [2, 2])


@pytest.mark.parametrize(
    "index",
    [b"", b"\0" * 64, b"[]", b'{"backups": 3}', b'{"backups": [{"file": "../x"}]}'],
    ids=["cut to nothing", "zeros", "a list", "a number", "another folder"],
)
def test_a_damaged_list_of_backups_is_told_and_skipped(tmp_path, saving, index):
    """What a power cut leaves: the names alone say where to go on."""
    backup = BackupAndRestore(tmp_path, double_checkpoint=True)
    with pytest.raises(KeyboardInterrupt):
        fit(Model(), [0.5] * 5, backup, Interrupts(3))
    (tmp_path / "training_metadata.json").write_bytes(index)
    model = Model()
    backup.set_model(model)
    with pytest.warns(UserWarning, match="list of backups .* is damaged"):
        backup.on_train_begin()
    assert model.initial_epoch == 3
    np.testing.assert_array_equal(model.weights[0], [3, 3])


def test_without_any_sound_backup_training_starts_anew(tmp_path, saving):
    backup = BackupAndRestore(tmp_path, delete_checkpoint=False)
    with pytest.raises(KeyboardInterrupt):
        fit(Model(), [0.5] * 5, backup, Interrupts(3))
    for name in ("training_metadata.json", "epoch-3-batch-0.checkpoint"):
        (tmp_path / name).write_bytes(b"")
    model = Model()
    model.initial_epoch = 0
    with (
        pytest.warns(UserWarning, match="is damaged"),
        pytest.warns(UserWarning, match="cannot be used"),
    ):
        fit(model, [0.5] * 2, backup)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["epoch-2-batch-0.checkpoint", "training_metadata.json"]


def test_backups_within_an_epoch(tmp_path, saving):
    backup = BackupAndRestore(tmp_path, save_freq=2, delete_checkpoint=False)
    assert backup.needs_batches_in("train")
    fit(Model(), [0.5], backup, steps=5)
    assert (tmp_path / "epoch-0-batch-4.checkpoint").read_text() == "4.0"


def test_backup_refuses_wrong_arguments(saving, tmp_path):
    with pytest.raises(ValueError, match="Empty `backup_dir`"):
        BackupAndRestore("")
    with pytest.raises(ValueError, match="save_freq: False"):
        BackupAndRestore("folder", save_freq=False)
    model = Model()
    model.built = False
    with pytest.raises(ValueError, match="built before `fit`"):
        fit(model, [0.5], BackupAndRestore(tmp_path))


def test_lambda_callback_calls_what_it_was_given():
    calls = []
    lambda_callback = LambdaCallback(
        on_epoch_end=lambda epoch, logs: calls.append(("epoch", epoch)),
        on_test_begin=lambda logs: calls.append(("test",)),
    )
    assert not CallbackList([lambda_callback]).needs_batches
    every = CallbackList([lambda_callback])
    every.on_epoch_end(2)
    every.on_test_begin()
    assert calls == [("epoch", 2), ("test",)]
    each = LambdaCallback(on_train_batch_end=lambda batch, logs: None)
    assert CallbackList([each]).needs_batches
    with pytest.raises(TypeError, match="Did you mean 'on_epoch_end'"):
        LambdaCallback(on_epoch_ends=print)


def test_csv_rows_are_there_after_every_epoch(tmp_path):
    path = tmp_path / "log.csv"
    seen = []
    look = LambdaCallback(on_epoch_end=lambda *_: seen.append(path.read_text()))
    fit(Model(), [0.5, 0.25], CSVLogger(path), look)
    assert seen[0] == "epoch,val_loss\n0,0.5\n"
    fit(Model(), [0.125], CSVLogger(path, append=True), begin=2)
    with open(path, newline="") as file:
        rows = list(csv.reader(file))
    assert rows == [["epoch", "val_loss"], ["0", "0.5"], ["1", "0.25"], ["2", "0.125"]]
    fit(Model(), [1.0], CSVLogger(path, separator=";"), metric="loss")
    assert path.read_text() == "epoch;loss;val_loss\n0;1.0;NA\n"


def test_averaged_weights_are_swapped_while_evaluating():
    weight = Variable(np.ones(2), name="w")
    average = Variable(np.zeros(2), name="a")
    model = Model()
    with pytest.raises(ValueError, match="use_ema=True"):
        fit(model, [0.5], SwapEMAWeights())
    model.optimizer.use_ema = True
    model.optimizer.averages = lambda: [(weight, average)]
    every = CallbackList([SwapEMAWeights()], model=model)
    every.on_test_begin()
    np.testing.assert_array_equal(weight.numpy(), [0, 0])
    np.testing.assert_array_equal(average.numpy(), [1, 1])
    every.on_test_end()
    np.testing.assert_array_equal(weight.numpy(), [1, 1])

    every = CallbackList([SwapEMAWeights(swap_on_epoch=True)], model=model, epochs=2)
    every.on_epoch_begin(0)
    every.on_epoch_end(0)
    np.testing.assert_array_equal(weight.numpy(), [0, 0])
    every.on_epoch_begin(1)
    np.testing.assert_array_equal(weight.numpy(), [1, 1])
    every.on_epoch_end(1)
    np.testing.assert_array_equal(weight.numpy(), [0, 0])
    np.testing.assert_array_equal(average.numpy(), [0, 0])


def test_the_average_of_the_real_optimizer_is_found():
    from ganglion.optimizers import SGD

    weight = Variable(np.ones(2), name="w")
    model = Model()
    model.optimizer = SGD(1.0, use_ema=True, ema_momentum=0.5)
    for _ in range(2):
        model.optimizer.apply([np.ones(2)], [weight])
    before = weight.numpy()
    every = CallbackList([SwapEMAWeights()], model=model)
    every.on_test_begin()
    assert not np.array_equal(weight.numpy(), before)
    every.on_test_end()
    np.testing.assert_array_equal(weight.numpy(), before)


@pytest.mark.rivals
def test_csv_file_is_that_of_keras(keras, tmp_path):
    texts = []
    for make, name in ((CSVLogger, "ours"), (keras.callbacks.CSVLogger, "theirs")):
        for append in (False, True):
            logger = make(tmp_path / name, append=append)
            logger.on_train_begin()
            for epoch in range(2):
                logs = {"loss": 0.5 / (epoch + 1), "each": np.array([1.0, 2.0])}
                logger.on_epoch_end(epoch, logs)
            logger.on_train_end()
        texts.append((tmp_path / name).read_bytes())
    assert texts[0] == texts[1]
