"""One model under many threads: its answers are those it gives to one thread."""

from __future__ import annotations

import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cuda_host
import numpy as np
import pytest
from cuda_checks import emulated
from training_models import alike, trained_beside

import ganglion as keras
from ganglion import config
from ganglion.compiler import registry
from ganglion.compiler.cuda import backend as cuda_run
from ganglion.compiler.cuda import driver

THREADS = 8
# `GANGLION_STRESS=1000` makes as many calls in each thread.
CALLS = int(os.environ.get("GANGLION_STRESS", "12"))


@pytest.fixture(params=["numpy", "cpu", "cuda"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Choose each backend; where there is no GPU, a processor plays it."""
    name = str(request.param)
    if name == "cuda" and driver.unavailable_reason() is not None:
        if cuda_host.reason():
            pytest.skip(str(cuda_host.reason()))
        memory = emulated()
        monkeypatch.setattr(cuda_run, "memory", lambda: memory)
        monkeypatch.setattr(cuda_run, "unavailable_reason", lambda: None)
        monkeypatch.setattr(registry, "expect", lambda: None)
    config.set_backend(name)
    return name


def network(seed: int = 0) -> Any:
    keras.utils.set_random_seed(seed)
    layers = [keras.Input((6,)), keras.layers.Dense(9, "relu"), keras.layers.Dense(3)]
    model = keras.Sequential(layers)
    model.compile("sgd", "mse", metrics=["mae"])
    return model


def rows(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, 6)).astype("float32")


def in_threads(work: Any) -> list[Any]:
    """Call `work(number)` in several threads that start together."""
    start = threading.Barrier(THREADS)

    def begin(number: int) -> Any:
        start.wait()
        return work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(begin, range(THREADS)))


@pytest.mark.usefixtures("backend")
def test_predictions_of_many_threads_are_those_of_one() -> None:
    model = network()
    # Different lengths and entry points, so that different programs run.
    inputs = [rows(20 + 8 * (number % 2), number) for number in range(THREADS)]
    verbs = [
        lambda x: model.predict(x, batch_size=8, verbose=0),
        model.predict_on_batch,
    ]
    wanted = [[verb(x) for verb in verbs] for x in inputs]

    def ask(number: int) -> int:
        wrong = 0
        for call in range(CALLS):
            answer = verbs[call % 2](inputs[number])
            wrong += not np.array_equal(answer, wanted[number][call % 2])
        return wrong

    assert in_threads(ask) == [0] * THREADS


@pytest.mark.usefixtures("backend")
def test_evaluations_of_many_threads_are_those_of_one() -> None:
    model = network()
    inputs = [rows(20 + 8 * (number % 2), number) for number in range(THREADS)]
    targets = [x[:, :3] * (1 + number) for number, x in enumerate(inputs)]
    pairs = list(zip(inputs, targets, strict=True))
    verbs = [
        lambda x, y: model.evaluate(x, y, batch_size=8, verbose=0),
        model.test_on_batch,
    ]
    wanted = [[verb(*pair) for verb in verbs] for pair in pairs]

    def ask(number: int) -> list[Any]:
        return [verbs[call % 2](*pairs[number]) for call in range(CALLS)]

    for answers, right in zip(in_threads(ask), wanted, strict=True):
        assert answers == right * (CALLS // 2)


class Pauses(keras.callbacks.Callback):
    """Lets another thread do something in the middle of every epoch."""

    def __init__(self, interlude: Any) -> None:
        super().__init__()
        self.interlude = interlude

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 1:
            thread = threading.Thread(target=self.interlude)
            thread.start()
            thread.join()


@pytest.mark.usefixtures("backend")
def test_training_does_not_notice_what_other_threads_ask() -> None:
    x = rows(40, 1)
    alone, beside = network(), network()
    callback = [Pauses(lambda: None)]
    undisturbed = alone.fit(x, x[:, :3], 8, 3, callbacks=callback, verbose=0)
    answers = []

    def interlude() -> None:
        answers.append(beside.evaluate(x, -x[:, :3], batch_size=16, verbose=0))
        answers.append(beside.predict(x, batch_size=16, verbose=0))
        beside.test_on_batch(x, -x[:, :3])

    history = beside.fit(x, x[:, :3], 8, 3, callbacks=[Pauses(interlude)], verbose=0)
    assert history.history == undisturbed.history
    assert len(answers) == 6
    for first, other in zip(alone.get_weights(), beside.get_weights(), strict=True):
        np.testing.assert_array_equal(first, other)


@pytest.mark.usefixtures("backend")
def test_a_second_training_of_one_model_is_refused() -> None:
    x, model, refused = rows(16, 1), network(), []

    def interlude() -> None:
        for verb in (model.fit, model.train_on_batch):
            with pytest.raises(RuntimeError, match="being trained by another thread"):
                verb(x, x[:, :3])
            refused.append(verb)

    model.fit(x, x[:, :3], 4, callbacks=[Pauses(interlude)], verbose=0)
    assert len(refused) == 2
    model.fit(x, x[:, :3], 4, verbose=0)  # after the first, all is as before


@pytest.mark.usefixtures("backend")
def test_models_are_built_and_trained_beside_each_other() -> None:
    x = rows(24, 1)

    def train(number: int) -> Any:
        layers = [keras.layers.Dense(4, "relu") for _ in range(5)]
        model = keras.Sequential([keras.Input((6,)), *layers, keras.layers.Dense(1)])
        names = [layer.name for layer in model.layers]
        assert len(set(names)) == len(names)
        for index, weight in enumerate(model.weights):
            weight.assign(np.random.default_rng(index).normal(size=weight.shape) / 2)
        model.compile(keras.optimizers.SGD(0.01), "mse")
        model.fit(x, x[:, :1], 8, 2, shuffle=False, verbose=0)
        return model.get_weights()

    for number, weights in enumerate(in_threads(train)):
        for first, other in zip(weights, train(number), strict=True):
            np.testing.assert_array_equal(first, other)


@pytest.mark.usefixtures("backend")
def test_a_model_without_weights_yet_is_built_once() -> None:
    keras.utils.set_random_seed(3)
    model = keras.Sequential([keras.layers.Dense(4, "relu"), keras.layers.Dense(2)])
    x = rows(20, 3)
    answers = in_threads(lambda _: model.predict(x, batch_size=8, verbose=0))
    for answer in answers:
        np.testing.assert_array_equal(answer, answers[0])
    assert len(model.weights) == 4


def test_what_is_saved_while_another_thread_trains_is_of_whole_steps(
    tmp_path: Path,
) -> None:
    config.set_backend("cpu")
    model, x, y = alike()
    model.fit(x, y, 32, verbose=0)
    with trained_beside(model, x, y):
        for number in range(CALLS):
            path = tmp_path / f"{number}.keras"
            model.save(path)
            saved = [keras.models.load_model(path), pickle.loads(pickle.dumps(model))]
            kernels = [
                model.get_weights()[0],
                *(model.get_weights()[0] for model in saved),
            ]
            for kernel in kernels:
                assert (kernel == kernel[0, 0]).all()


@pytest.mark.usefixtures("backend")
def test_a_layer_that_is_called_by_many_threads_is_built_once() -> None:
    x = rows(4, 1)
    for _ in range(3):
        layer = keras.layers.Dense(5)
        answers = in_threads(lambda _, layer=layer: layer(x))
        assert len(layer.weights) == 2
        for answer in answers:
            np.testing.assert_array_equal(answer, answers[0])
