"""The callback list, the history, the loggers."""

import numpy as np
import pytest
from callback_fakes import Model, fit

from ganglion import callbacks
from ganglion.callbacks import (
    Callback,
    CallbackList,
    EpochLogger,
    History,
    ProgbarLogger,
)
from ganglion.progress import StepLog

HOOKS = [name for name in dir(Callback) if name.startswith("on_")]


def test_every_hook_reaches_every_callback_in_order():
    calls = []

    def spy(name):
        return lambda self, *args: calls.append((self.tag, name, args))

    spy_class = type("Spy", (Callback,), {name: spy(name) for name in HOOKS})
    spies = [spy_class(), spy_class()]
    spies[0].tag, spies[1].tag = "a", "b"
    every = CallbackList(spies)
    for name in HOOKS:
        numbered = "batch" in name or "epoch" in name
        args = (3, {"loss": np.float32(0.5)}) if numbered else ({"loss": 0.5},)
        calls.clear()
        getattr(every, name)(*args)
        expected = (*args[:-1], {"loss": 0.5})
        assert calls == [("a", name, expected), ("b", name, expected)]
    calls.clear()
    every.on_predict_batch_begin({})  # whatever is given as the number goes through
    assert [args[0] for _, _, args in calls] == [{}, {}]


def test_older_batch_hooks_are_called():
    class Old(Callback):
        seen = ()

        def on_batch_end(self, batch, logs=None):
            self.seen += ((batch, logs["loss"]),)

    old = Old()
    fit(Model(), [0.5], old, steps=2)
    assert old.seen == ((0, 0.5), (1, 0.5))


def test_what_one_callback_adds_to_the_logs_the_history_keeps():
    class Adds(Callback):
        def on_epoch_end(self, epoch, logs=None):
            logs["extra"] = epoch * 10

    history = fit(Model(), [0.5, 0.25], Adds())
    assert history.history == {"val_loss": [0.5, 0.25], "extra": [0, 10]}
    assert history.epoch == [0, 1]
    assert history.params == {"verbose": 0, "epochs": 9, "steps": 1}


def test_model_knows_its_history():
    model = Model()
    assert fit(model, [0.5]) is model.history


def test_needs_batches_only_where_a_batch_hook_is_overridden():
    class Epochs(Callback):
        def on_epoch_end(self, epoch, logs=None): ...

    class Batches(Callback):
        def on_train_batch_begin(self, batch, logs=None): ...

    class OldBatches(Callback):
        def on_batch_end(self, batch, logs=None): ...

    class TestBatches(Callback):
        def on_test_batch_end(self, batch, logs=None): ...

    class Chunks(Callback):
        @callbacks.per_chunk
        def on_train_batch_end(self, batch, logs=None): ...

    class MoreThanChunks(Chunks):
        def on_train_batch_end(self, batch, logs=None): ...

    quiet = [Epochs(), Chunks(), ProgbarLogger(), History()]
    assert not CallbackList(quiet, add_progbar=True).needs_batches
    for loud in (Batches, OldBatches, MoreThanChunks):
        every = CallbackList([*quiet, loud()])
        assert every.needs_batches
        assert every.needs_batches_in("train")
        assert not every.needs_batches_in("test")
        assert CallbackList([loud()]).hears_batches_in("train")
    every = CallbackList([TestBatches()])
    assert every.needs_batches
    assert not every.needs_batches_in("train")
    # Who is told of chunks of batches, needs them or not.
    printing = callbacks.LambdaCallback(on_batch_end=print)
    for callback in (Chunks(), ProgbarLogger(), printing):
        assert CallbackList([callback]).hears_batches_in("train")
    for callback in (Epochs(), History(), TestBatches(), callbacks.LambdaCallback()):
        assert not CallbackList([callback]).hears_batches_in("train")


def test_what_is_no_callback_is_refused():
    with pytest.raises(TypeError, match="History is a class: pass an instance"):
        CallbackList([History])
    with pytest.raises(TypeError, match="is not a callback"):
        CallbackList(["early"])


def test_a_subclass_may_forget_its_parent():
    class Careless(Callback):
        def __init__(self):
            pass

    model = Model()
    careless = Careless()
    assert careless.model is None
    fit(model, [0.5], careless)
    assert careless.model is model


def test_progress_of_fit_on_a_log(capsys):
    model = Model()
    every = CallbackList(
        add_history=True, add_progbar=True, model=model, verbose=1, epochs=2, steps=4
    )
    every.on_train_begin()
    for epoch in range(2):
        every.on_epoch_begin(epoch)
        every.on_train_batch_end(3, {"loss": 1.0})
        every.on_test_begin()
        every.on_test_batch_end(0, {"loss": 9.0})
        every.on_test_end({"loss": 9.0})
        every.on_epoch_end(epoch, {"val_loss": 0.25, "loss": 0.5})
    every.on_train_end()
    lines = capsys.readouterr().out.splitlines()
    assert [lines[0], lines[2]] == ["Epoch 1/2", "Epoch 2/2"]
    assert len(lines) == 4
    for line in (lines[1], lines[3]):
        assert line.startswith("4/4 ━━━━━━━━━━━━━━━━━━━━ 0s ")
        assert line.endswith("/step - loss: 0.5000 - val_loss: 0.2500")


def test_progress_of_evaluate_and_predict(capsys):
    logger = ProgbarLogger()
    every = CallbackList([logger], verbose=2, epochs=1, steps=3)
    every.on_test_begin()
    every.on_test_batch_end(2, {"loss": 0.5})
    every.on_test_end({"loss": 0.5})
    every.on_predict_begin()
    every.on_predict_batch_end(2, {"outputs": np.zeros(3)})
    every.on_predict_end()
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("3/3 - 0s - ")
    assert first.endswith("/step - loss: 0.5000")
    assert second.endswith("/step")


def test_the_number_of_steps_is_learnt_from_the_first_epoch(capsys):
    logger = ProgbarLogger()
    every = CallbackList([logger], verbose=1, epochs=2, steps=None)
    every.on_train_begin()
    for epoch in range(2):
        every.on_epoch_begin(epoch)
        every.on_train_batch_end(6, {"loss": 1.0})
        every.on_epoch_end(epoch, {"loss": 1.0})
    lines = capsys.readouterr().out.splitlines()
    assert [line[:4] for line in lines[1::2]] == ["7/7 ", "7/7 "]


def test_an_epoch_logger_takes_the_place_of_the_bar(capsys):
    every = CallbackList([EpochLogger(StepLog())], add_progbar=True)
    assert not any(isinstance(callback, ProgbarLogger) for callback in every.callbacks)
    every.on_epoch_begin(0)
    every.on_epoch_end(0, {"loss": 0.5, "val_loss": 0.25})
    assert capsys.readouterr().out.startswith("loss: 0.5000 / 0.2500    step 1  ")
