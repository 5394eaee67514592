"""MultiOptimizer and OptimizerMap beside Keras; ScheduleFreeAdamW by Keras on JAX."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from keras_programs import errors_of
from optimizer_runs import BOTH, gradients, run_eagerly, starts

import ganglion
from ganglion import optimizers


def two(keras: Any, **options: Any) -> Any:
    by_path = keras.optimizers.OptimizerMap(keras.optimizers.SGD(0.1, momentum=0.9))
    by_path["kern.*"] = keras.optimizers.Adam(0.05, weight_decay=0.1)
    return keras.optimizers.MultiOptimizer(by_path, **options)


def by_function(keras: Any) -> Any:
    adam, sgd = keras.optimizers.Adam(0.05), keras.optimizers.SGD(0.1, use_ema=True)
    return keras.optimizers.MultiOptimizer(lambda v: adam if "kern" in v.path else sgd)


MAKERS = [two, by_function, lambda keras: two(keras, loss_scale_factor=8.0)]


def run_keras(keras: Any, optimizer: Any) -> list[np.ndarray]:
    variables = [
        keras.Variable(value.astype("float32"), name=name)
        for value, name in zip(starts(), ("kernel", "bias"), strict=True)
    ]
    for step in gradients():
        tensors = [keras.ops.convert_to_tensor(each.astype("float32")) for each in step]
        optimizer.apply(tensors, variables)
    return [np.asarray(each) for each in (*variables, *optimizer.variables)]


@pytest.mark.rivals
@pytest.mark.parametrize("make", MAKERS, ids=["map", "function", "scaled"])
def test_several_as_keras(keras, make):
    theirs = run_keras(keras, make(keras))
    for run in BOTH:
        ours = run(make(ganglion))
        assert [each.shape for each in ours] == [each.shape for each in theirs]
        for our, their in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(our, their, rtol=2e-6, atol=1e-6)


@pytest.mark.rivals
def test_config_of_several(keras):
    config = two(ganglion).get_config()
    assert config.keys() == two(keras).get_config().keys()
    again = keras.optimizers.MultiOptimizer.from_config(config)
    assert [type(each).__name__ for each in again.optimizers] == ["Adam", "SGD"]
    ours = optimizers.deserialize(optimizers.serialize(two(ganglion)))
    np.testing.assert_array_equal(run_eagerly(ours)[0], run_eagerly(two(ganglion))[0])


def refusals(keras: Any) -> list[Any]:
    kinds = keras.optimizers
    by_path = kinds.OptimizerMap(kinds.SGD(), {"a.*": kinds.SGD(), ".*b": kinds.Adam()})
    calls = [
        lambda: kinds.OptimizerMap("sgd"),
        lambda: kinds.OptimizerMap(kinds.SGD(), []),
        lambda: by_path["ab"],
        lambda: by_path.__setitem__("a.*", kinds.SGD()),
        lambda: by_path.__setitem__(3, kinds.SGD()),
        lambda: by_path.__setitem__("c", "sgd"),
        lambda: by_path.__setitem__("c", kinds.MultiOptimizer(by_path)),
        lambda: kinds.MultiOptimizer(by_path).learning_rate,
        lambda: setattr(kinds.MultiOptimizer(by_path), "learning_rate", 1.0),
        lambda: kinds.MultiOptimizer(lambda v: "sgd").build([keras.Variable(1.0)]),
        lambda: kinds.Muon().zeropower_via_newtonschulz5(keras.ops.ones((3,)), 5),
    ]
    return errors_of(calls)


@pytest.mark.rivals
def test_refusals_as_keras(keras):
    assert refusals(ganglion) == refusals(keras)


def test_schedule_free():
    # Keras on TensorFlow reads a slot after it has changed; these are JAX' numbers.
    optimizer = optimizers.ScheduleFreeAdamW(0.1, warmup_steps=5)
    variable = ganglion.Variable(np.arange(3.0), name="v")
    for step in range(6):
        gradient = np.array([0.1, 0.2, -0.3]) * (step + 1)
        optimizer.apply([gradient], [variable])
    expected = [-0.28430957, 0.7156905, 2.2843094]
    np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("backend", ["numpy", "cpu"])
@pytest.mark.parametrize(
    "make",
    [two, lambda keras: optimizers.Muon(0.05), lambda keras: "schedulefreeadamw"],
    ids=["several", "muon", "schedule_free"],
)
def test_fit(make, backend):
    ganglion.config.set_backend(backend)
    try:
        ganglion.utils.set_random_seed(1)
        layers = [ganglion.Input((4,)), ganglion.layers.Dense(3, name="kern")]
        model = ganglion.Sequential([*layers, ganglion.layers.Dense(1)])
        model.compile(make(ganglion), "mse")
        x = np.random.default_rng(0).normal(size=(32, 4))
        losses = model.fit(x, x[:, :1], epochs=6, batch_size=8, verbose=0).history
    finally:
        ganglion.config._choices["backend"] = None
    assert losses["loss"][-1] < losses["loss"][0]


def test_callbacks_reach_every_optimizer(capsys):
    model = ganglion.Sequential([ganglion.Input((1,))])
    for name in ("kern", "rest"):
        model.add(ganglion.layers.Dense(1, use_bias=False, name=name))
    adam = optimizers.Adam(0.1, use_ema=True, name="adam")
    sgd = optimizers.SGD(0.2, name="sgd")
    by_path = optimizers.OptimizerMap(sgd, {".*kern/.*": adam})
    model.compile(optimizers.MultiOptimizer(by_path), "mse")
    model.train_on_batch(np.ones((1, 1)), np.zeros((1, 1)))
    halving = ganglion.callbacks.LearningRateScheduler(lambda _, rate: rate / 2, 1)
    plateau = ganglion.callbacks.ReduceLROnPlateau("loss", factor=0.5, patience=1)
    for callback in (halving, plateau):
        callback.set_model(model)
        callback.on_train_begin()
    halving.on_epoch_begin(0)
    assert "setting adam learning rate to 0.05" in capsys.readouterr().out
    for loss in (1.0, 1.0):
        logs = {"loss": loss}
        plateau.on_epoch_end(0, logs)
    assert logs["learning_rate_adam"] == pytest.approx(0.05)
    rates = [float(each.learning_rate) for each in (adam, sgd)]
    assert rates == pytest.approx([0.025, 0.05])
    swap = ganglion.callbacks.SwapEMAWeights()
    swap.set_model(model)
    before = model.get_weights()
    next(iter(adam.averages()))[1].assign([[9.0]])
    swap.on_test_begin()
    assert [float(weight[0, 0]) for weight in model.get_weights()] == [9.0, before[1]]
    swap.on_test_end()
    np.testing.assert_array_equal(model.get_weights(), before)


def test_a_build_that_failed_can_be_repeated():
    scaled = optimizers.LossScaleOptimizer(optimizers.SGD())
    optimizer = optimizers.MultiOptimizer(lambda variable: scaled)
    for _ in range(2):
        with pytest.raises(ValueError, match="cannot be used inside"):
            optimizer.build([ganglion.Variable(1.0)])
    assert not optimizer.built
