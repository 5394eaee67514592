"""Which backend and precision are used, when nobody or Keras' names say so."""

from types import SimpleNamespace

import numpy as np
import pytest

import ganglion as keras
from ganglion import config, recipes
from ganglion.cli import dump
from ganglion.compiler import registry
from ganglion.compiler.cuda import backend, driver
from ganglion.race import machine
from ganglion.system import terminal
from ganglion.training.fit_loop import ChunkSizer


@pytest.fixture(autouse=True)
def _as_at_the_start(monkeypatch):
    monkeypatch.setattr(config, "_choices", dict(config._choices) | {"backend": None})
    monkeypatch.delenv("GANGLION_BACKEND", raising=False)
    monkeypatch.delenv("GANGLION_PRECISION", raising=False)
    terminal.tell_once.cache_clear()


@pytest.fixture
def gpu(monkeypatch):
    """Let there be a GPU, until somebody wants to use it."""
    monkeypatch.setattr(driver, "unavailable_reason", lambda: None)
    monkeypatch.setattr(
        driver, "driver", lambda: SimpleNamespace(name="a dream of a GPU")
    )


def program(name, step="train"):
    return dump.program_of(recipes.get(name), step)


# ---- auto --------------------------------------------------------------------------


def test_a_model_that_is_worth_it_goes_to_the_gpu_and_it_is_told_once(gpu, capsys):
    large, small = program("mnist-mlp"), program("mnist-perceptron")
    assert registry.backend_for(large) == "cuda"
    assert registry.backend_for(large) == "cuda"
    told = capsys.readouterr().err
    assert told.count("Running on the GPU: a dream of a GPU, tf32") == 1
    assert registry.backend_for(small) == config.backend()
    assert registry.backend_for(small, on_gpu=True) == "cuda"  # with its model


def test_what_was_asked_for_is_used(gpu):
    config.set_backend("cpu")
    assert registry.backend_for(program("mnist-mlp")) == "cpu"
    config.set_backend("cuda")
    assert registry.backend_for(program("mnist-perceptron")) == "cuda"


def test_a_gpu_that_is_asked_for_by_name_gets_ready_while_a_step_is_traced(monkeypatch):
    begun = []
    monkeypatch.setattr(driver, "start", lambda: begun.append(True))
    x, y = np.zeros((4, 3), "float32"), np.zeros((4, 2), "float32")
    model = keras.Sequential([keras.layers.Dense(2)])
    model.compile("sgd", "mse")
    model.fit(x, y, verbose=0)
    assert not begun
    config.set_backend("cuda")
    monkeypatch.setattr(
        model._step_cache, "traced", lambda *_: pytest.fail("too early")
    )
    with pytest.raises(pytest.fail.Exception):
        model.fit(x, y, verbose=0)
    assert begun


def test_a_driver_that_does_not_start_is_asked_again(monkeypatch):
    answers = [OSError("no room"), "a GPU"]

    def started():
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr(driver, "CudaDriver", started)
    driver.start.cache_clear()
    with pytest.raises(OSError, match="no room"):
        driver.driver()
    assert [driver.driver(), driver.driver()] == ["a GPU", "a GPU"]
    driver.start.cache_clear()


def test_what_is_told_to_expect(gpu, monkeypatch):
    assert registry.chosen_name() == "auto"
    monkeypatch.setattr(backend, "unavailable_reason", lambda: None)
    assert machine.facts()["  cuda"] == "works, for models that are worth it"
    config.set_backend("cuda")
    assert registry.chosen_name() == "cuda"
    assert machine.facts()["  cuda"] == "works, in use"


def test_without_a_gpu_the_processor_is_used(monkeypatch, capsys):
    monkeypatch.setattr(driver, "unavailable_reason", lambda: "there is none")
    assert registry.backend_for(program("mnist-mlp")) in ("cpu", "numpy")
    assert not capsys.readouterr().err


def test_operations_of_all_three_passes_of_a_convolution():
    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Input((6, 5, 2)),
            layers.Conv2D(3, 3, padding="same", use_bias=False),
            layers.Conv2D(4, 3, padding="same", use_bias=False),
            layers.Flatten(),
            layers.Dense(1, use_bias=False),
        ]
    )
    model.compile("sgd", "mse")
    config.set_backend("numpy")
    x, y = np.zeros((7, 6, 5, 2), "float32"), np.zeros((7, 1), "float32")
    model.fit(x, y, batch_size=7, verbose=0)
    ((step, _),) = model._step_cache._steps.values()
    first, second, dense = 6 * 5 * 9 * 2 * 3, 6 * 5 * 9 * 3 * 4, 6 * 5 * 4
    expected = 2 * 7 * (2 * first + 3 * second + 3 * dense)  # pixels need no gradient
    assert registry.operations(step.program.graph) == expected


# ---- mixed_bfloat16 ----------------------------------------------------------------


def test_the_policy_of_keras_is_a_precision():
    assert config.precision() == "tf32"
    keras.mixed_precision.set_global_policy("mixed_bfloat16")
    assert config.precision() == "bf16"
    assert keras.mixed_precision.global_policy().compute_dtype == "bfloat16"
    assert config.dtype_policy() == keras.dtype_policies.DTypePolicy("mixed_bfloat16")
    assert config.floatx() == "float32"
    config.set_dtype_policy(keras.mixed_precision.Policy("float64"))
    assert (config.precision(), config.floatx()) == ("tf32", "float32")


@pytest.mark.parametrize(
    "policy", ["mixed_bfloat16", keras.DTypePolicy("mixed_bfloat16")]
)
def test_a_layer_takes_the_policy_and_keeps_float32_weights(policy):
    layer = keras.layers.Dense(2, dtype=policy)
    layer.build((None, 3))
    assert layer.kernel.dtype == "float32"
    saved = layer.get_config()
    assert saved["dtype"]["config"]["name"] == "mixed_bfloat16"
    assert keras.layers.Dense.from_config(saved).compute_dtype == "bfloat16"


# ---- chunks ------------------------------------------------------------------------


def test_the_second_epoch_knows_how_many_steps_to_take_at_a_time(monkeypatch):
    taken = []
    chunk = ChunkSizer.chunk
    monkeypatch.setattr(
        ChunkSizer,
        "chunk",
        lambda self, most: taken.append(chunk(self, most)) or taken[-1],
    )
    monkeypatch.setattr("ganglion.training.fit_loop.CHUNK_SECONDS", 1e9)
    config.set_backend("numpy")
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x, y = np.ones((100, 4)), np.ones((100, 1))
    model.fit(x, y, batch_size=2, epochs=2, verbose=0)
    assert taken == [1, 16, 33, 50]
    taken.clear()
    model.fit(x, y, batch_size=4, epochs=1, verbose=0)
    assert taken[0] == 1  # another step, another sizer
