"""Loss scaling and files of 16-bit weights, beside Keras."""

from typing import Any

import numpy as np
import pytest

import ganglion
from ganglion import config
from ganglion.optimizers import SGD, Adam, LossScaleOptimizer


def model_of(module: Any, policy: str = "mixed_float16") -> Any:
    layers = module.layers
    return module.Sequential(
        [
            module.Input((4,)),
            layers.Dense(5, activation="tanh", dtype=policy),
            layers.Dense(2, dtype=policy),
        ],
    )


def trained(module: Any, scale: float, weights: Any = None) -> tuple[Any, Any]:
    """Return a model after some steps, of which one has gradients that overflow."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(12, 4)), rng.normal(size=(12, 2))
    y[4] = 3e4  # times the scale it is too large for float16
    model = model_of(module)
    if weights is not None:
        model.set_weights(weights)
    start = model.get_weights()
    optimizer = module.optimizers.LossScaleOptimizer(
        module.optimizers.Adam(0.01), initial_scale=scale, dynamic_growth_steps=2
    )
    model.compile(optimizer, "mse")
    model.fit(x, y, batch_size=4, epochs=2, shuffle=False, verbose=0)
    return model, start


@pytest.mark.rivals
@pytest.mark.parametrize("backend", ["numpy", "cpu"])
def test_the_scale_is_adapted_within_the_step_as_in_keras(backend, keras):
    config.set_backend(backend)
    theirs, start = trained(keras, 64.0)
    ours, _ = trained(ganglion, 64.0, start)
    scale = theirs.optimizer.dynamic_scale
    assert float(ours.optimizer.dynamic_scale) == float(scale) != 64.0
    assert int(ours.optimizer.step_counter) == int(theirs.optimizer.step_counter)
    assert int(ours.optimizer.iterations) == int(theirs.optimizer.iterations) < 6
    for mine, other in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(mine, other, 5e-3, 5e-3)


def test_a_step_that_is_not_finite_changes_no_weight():
    weight = ganglion.Variable([1.0, 2.0])
    optimizer = LossScaleOptimizer(SGD(1.0), initial_scale=8.0)
    optimizer.apply([np.array([np.inf, 1.0], "float32")], [weight])
    assert weight.numpy().tolist() == [1.0, 2.0]
    assert (float(optimizer.dynamic_scale), int(optimizer.iterations)) == (4.0, 0)
    optimizer.apply([np.array([4.0, 8.0], "float32")], [weight])
    assert weight.numpy().tolist() == [0.0, 0.0]
    assert int(optimizer.step_counter) == 1


def test_models_of_float16_scale_their_loss_unless_told_otherwise():
    config.set_dtype_policy("mixed_float16")
    model = model_of(ganglion)
    model.compile("sgd", "mse")
    assert type(model.optimizer) is LossScaleOptimizer
    assert (
        model.optimizer.learning_rate is model.optimizer.inner_optimizer.learning_rate
    )
    model.compile("sgd", "mse", auto_scale_loss=False)
    assert type(model.optimizer) is SGD
    config.set_dtype_policy("mixed_bfloat16")
    other = model_of(ganglion)
    other.compile("sgd", "mse")
    assert type(other.optimizer) is SGD


def test_arguments_of_the_inner_optimizer_are_refused():
    with pytest.raises(ValueError, match="set `clipnorm` on the `inner_optimizer`"):
        LossScaleOptimizer(SGD(), clipnorm=1.0)
    with pytest.raises(ValueError, match="does not support arguments: `momentum`"):
        LossScaleOptimizer(SGD(), momentum=0.9)
    old = {"clipnorm": None, **LossScaleOptimizer(Adam()).get_config()}
    assert type(LossScaleOptimizer.from_config(old).inner_optimizer) is Adam


@pytest.mark.rivals
@pytest.mark.parametrize("ending", [".keras", ".weights.h5"])
@pytest.mark.parametrize("policy", ["float16", "bfloat16", "mixed_float16"])
def test_files_of_16_bits_go_both_ways(policy, ending, keras, tmp_path):
    for writer, reader in ((ganglion, keras), (keras, ganglion)):
        saved, path = model_of(writer, policy), str(tmp_path / f"model{ending}")
        if ending == ".keras":
            saved.save(path)
            loaded = reader.models.load_model(path)
        else:
            saved.save_weights(path)
            loaded = model_of(reader, policy)
            loaded.load_weights(path)
        assert loaded.layers[0].dtype_policy.name == policy
        for mine, other in zip(loaded.get_weights(), saved.get_weights(), strict=True):
            assert mine.dtype == other.dtype
            np.testing.assert_array_equal(mine, other)


@pytest.mark.rivals
@pytest.mark.filterwarnings("error:Skipping variable loading")
def test_a_model_in_training_goes_both_ways(keras, tmp_path):
    for writer, reader in ((ganglion, keras), (keras, ganglion)):
        saved, _ = trained(writer, 64.0)
        saved.save(str(tmp_path / "model.keras"))
        loaded = reader.models.load_model(str(tmp_path / "model.keras"))
        scale, expected = loaded.optimizer.dynamic_scale, saved.optimizer.dynamic_scale
        assert float(scale) == float(expected)
        assert int(loaded.optimizer.iterations) == int(saved.optimizer.iterations)
