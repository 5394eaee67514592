"""Early stopping and learning rates on a stand-in model, and against Keras."""

import math
import types

import numpy as np
import pytest
from callback_fakes import Model, fit

from ganglion import keras2
from ganglion.callbacks import (
    CallbackList,
    EarlyStopping,
    LambdaCallback,
    LearningRateScheduler,
    ReduceLROnPlateau,
    TerminateOnNaN,
)


def test_early_stopping_goes_back_to_the_best_weights(capsys):
    model = Model()
    stop = EarlyStopping(patience=2, restore_best_weights=True, verbose=1)
    history = fit(model, [0.5, 0.4, 0.45, 0.42, 0.1], stop)
    assert history.epoch == [0, 1, 2, 3]
    assert stop.stopped_epoch == 3
    assert stop.best == 0.4
    assert stop.best_epoch == 1
    np.testing.assert_array_equal(model.weights[0], [2, 2])
    assert capsys.readouterr().out == (
        "Epoch 4: early stopping\n"
        "Restoring model weights from the end of the best epoch: 2.\n"
    )


def test_early_stopping_knows_the_best_epoch_without_its_weights():
    stop = EarlyStopping(patience=2)
    fit(Model(), [0.5, 0.4, 0.45, 0.42, 0.1], stop)
    assert stop.best_epoch == 1


def test_early_stopping_can_be_used_again():
    stop = EarlyStopping(patience=1)
    fit(Model(), [0.1, 0.2, 0.3], stop)
    assert fit(Model(), [0.9, 0.8, 0.7], stop).epoch == [0, 1, 2]


def test_the_direction_goes_by_the_metric_then_by_its_name():
    model = Model()
    model.metrics = [types.SimpleNamespace(name="score", _direction="up")]
    for name, losses, expected in [
        ("val_score", [0.1, 0.2, 0.1], 0.2),
        ("val_accuracy", [0.1, 0.2, 0.1], 0.2),
        ("val_mean_squared_error", [0.2, 0.1, 0.2], 0.1),
        ("digit_loss", [0.2, 0.1, 0.2], 0.1),
    ]:
        stop = EarlyStopping(name, patience=9)
        fit(model, losses, stop, metric=name)
        assert stop.best == expected
    with pytest.raises(ValueError, match="maximized or minimized: pass mode"):
        fit(model, [1.0], EarlyStopping("val_own"), metric="val_own")


def test_unknown_monitor_warns_with_the_names_there_are():
    stop = EarlyStopping("val_loss_2", patience=0)
    with pytest.warns(
        UserWarning, match=r"'val_loss_2', which is not .*: 'val_loss'\."
    ):
        assert fit(Model(), [0.5, 0.6], stop).epoch == [0, 1]


def test_unknown_mode_warns():
    with pytest.warns(UserWarning, match="mode 'maximum' is unknown"):
        assert EarlyStopping(mode="maximum").mode == "auto"


def test_names_of_keras_2_are_accepted_with_one_warning():
    keras2.set_active(None)
    stop = EarlyStopping("val_acc", patience=9)
    with pytest.warns(keras2.Keras2Warning, match="val_accuracy") as caught:
        fit(Model(), [0.5, 0.6, 0.4], stop, metric="val_accuracy")
    assert len(caught) == 1
    assert stop.best == 0.6
    assert not keras2.active()


def test_terminate_on_nan(capsys):
    model = Model()
    assert fit(model, [0.5, math.nan, 0.5], TerminateOnNaN()).epoch == [0, 1]
    assert "Batch 0: Invalid loss" in capsys.readouterr().out
    with pytest.raises(RuntimeError, match="became inf"):
        fit(model, [math.inf], TerminateOnNaN(raise_error=True))
    assert not CallbackList([TerminateOnNaN()]).needs_batches


def test_scheduler_sets_and_logs_the_rate(capsys):
    model = Model()
    scheduler = LearningRateScheduler(lambda epoch, rate: rate / 2, verbose=1)
    history = fit(model, [0.5, 0.5], scheduler)
    rates = history.history["learning_rate"]
    np.testing.assert_allclose(rates, [0.05, 0.025], rtol=1e-6)
    assert "\nEpoch 1: LearningRateScheduler setting learning rate to 0.05" in (
        capsys.readouterr().out
    )


def test_scheduler_takes_functions_of_the_epoch_alone():
    model = Model()
    fit(model, [0.5, 0.5], LearningRateScheduler(lambda epoch: 0.5 / (epoch + 1)))
    assert float(model.optimizer.learning_rate) == 0.25


def test_scheduler_does_not_hide_errors_of_the_function():
    def wrong(epoch, rate):
        raise TypeError("inside")

    with pytest.raises(TypeError, match="inside"):
        fit(Model(), [0.5], LearningRateScheduler(wrong))


@pytest.mark.parametrize("result", [None, "0.1", True, [0.1]])
def test_scheduler_refuses_what_is_no_number(result):
    with pytest.raises(ValueError, match="should be a float"):
        fit(Model(), [0.5], LearningRateScheduler(lambda epoch, rate: result))


@pytest.mark.parametrize(
    "callback", [LearningRateScheduler(lambda epoch: 0.1), ReduceLROnPlateau()]
)
def test_a_schedule_of_the_optimizer_cannot_be_changed(callback):
    model = Model()
    model.optimizer._learning_rate = lambda step: 0.1
    with pytest.raises(TypeError, match="created with a `LearningRateSchedule`"):
        fit(model, [0.5], callback)


def test_the_real_optimizers_are_understood():
    from ganglion.optimizers import SGD
    from ganglion.optimizers.schedules import ExponentialDecay

    model = Model()
    model.optimizer = SGD(0.5)
    fit(model, [0.5], LearningRateScheduler(lambda epoch, rate: rate * 0.5))
    assert float(model.optimizer.learning_rate) == 0.25
    model.optimizer = SGD(ExponentialDecay(0.5, 10, 0.9))
    with pytest.raises(TypeError, match="created with a `LearningRateSchedule`"):
        fit(model, [0.5], LearningRateScheduler(lambda epoch: 0.1))


def test_plateau_lowers_the_rate_to_the_least_one(capsys):
    model = Model()
    plateau = ReduceLROnPlateau(factor=0.5, patience=1, min_lr=0.04, verbose=1)
    history = fit(model, [0.5] * 5, plateau)
    rates = history.history["learning_rate"]
    np.testing.assert_allclose(rates, [0.1, 0.1, 0.05, 0.04, 0.04], rtol=1e-6)
    assert "Epoch 2: ReduceLROnPlateau reducing learning rate to 0.05" in (
        capsys.readouterr().out
    )


def test_plateau_refuses_factors_that_do_not_lower():
    with pytest.raises(ValueError, match=r"factor >= 1\.0"):
        ReduceLROnPlateau(factor=1.0)
    with pytest.raises(TypeError, match=r"does not know the argument.* wait"):
        ReduceLROnPlateau(wait=3)


def drive_keras(keras, callback, losses, metric, rate=0.1):
    """Give the same epochs to a callback of Keras; return what it left behind."""
    model = Model()
    model.optimizer = keras.optimizers.SGD(rate)
    callback.set_model(model)
    callback.set_params({"epochs": len(losses)})
    callback.on_train_begin()
    rates = []
    for epoch, loss in enumerate(losses):
        callback.on_epoch_begin(epoch)
        model.weights[0] += 1
        callback.on_epoch_end(epoch, {metric: loss})
        rates.append(float(np.asarray(model.optimizer.learning_rate)))
        if model.stop_training:
            break
    callback.on_train_end()
    return model, rates


@pytest.mark.rivals
@pytest.mark.parametrize("seed", range(12))
def test_early_stopping_decides_as_keras(keras, seed):
    draw = np.random.default_rng(seed)
    losses = draw.random(9).round(1).tolist()
    options = {
        "monitor": "loss",
        "min_delta": float(draw.choice([0, 0.05, 0.2])),
        "patience": int(draw.integers(0, 4)),
        "mode": str(draw.choice(["auto", "max"])),
        "baseline": draw.choice([None, 0.3]),
        "restore_best_weights": bool(draw.integers(2)),
        "start_from_epoch": int(draw.integers(0, 3)),
    }
    theirs = keras.callbacks.EarlyStopping(**options)
    their_model, _ = drive_keras(keras, theirs, losses, "loss")
    ours, model = EarlyStopping(**options), Model()
    fit(model, losses, ours, metric="loss")
    for name in ("stopped_epoch", "best", "wait"):
        assert getattr(ours, name) == getattr(theirs, name), name
    np.testing.assert_array_equal(model.weights[0], their_model.weights[0])


@pytest.mark.rivals
@pytest.mark.parametrize("seed", range(12))
def test_plateau_decides_as_keras(keras, seed):
    draw = np.random.default_rng(seed)
    losses = draw.random(12).round(1).tolist()
    options = {
        "monitor": "loss",
        "factor": 0.5,
        "patience": int(draw.integers(0, 4)),
        "min_delta": float(draw.choice([0, 0.15])),
        "cooldown": int(draw.integers(0, 3)),
        "min_lr": float(draw.choice([0, 0.02])),
    }
    theirs = keras.callbacks.ReduceLROnPlateau(**options)
    _, their_rates = drive_keras(keras, theirs, losses, "loss")
    rates = []
    model = Model()
    look = LambdaCallback(
        on_epoch_end=lambda *_: rates.append(float(model.optimizer.learning_rate))
    )
    fit(model, losses, ReduceLROnPlateau(**options), look, metric="loss")
    np.testing.assert_allclose(rates, their_rates, rtol=1e-6)
