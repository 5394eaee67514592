"""The use of the CUDA backend through the public API, checked here and on a GPU.

    python3 tests/support/cuda_use.py     on a machine with a GPU

Without one, `test_cuda_use.py` lets a CPU play the GPU. Every check is told which
other backend computes the same.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2] / "src")]

import ganglion as keras  # noqa: E402
from ganglion import config, layers, saving  # noqa: E402

ROWS, SIZE, BATCH = 70, 6, 16  # four whole batches and a smaller one
RNG = np.random.default_rng(5)
X = RNG.normal(size=(ROWS, SIZE)).astype("float32")
Y = RNG.integers(0, 3, ROWS)


def model_of():
    """Return a model with all that has a state: dropout, batch norm, Adam, metrics."""
    keras.utils.set_random_seed(11)
    model = keras.Sequential(
        [
            keras.Input((SIZE,)),
            layers.Dense(8, activation="relu"),
            layers.BatchNormalization(),
            layers.Dropout(0.4),
            layers.Dense(3, activation="softmax"),
        ]
    )
    model.compile(
        keras.optimizers.Adam(0.01),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return model


def train(model, epochs, **arguments):
    validation = (X[:10], Y[:10])
    return model.fit(
        X, Y, batch_size=BATCH, epochs=epochs, verbose=0, **arguments,
        validation_data=validation,
    ).history  # fmt: skip


def state_of(model):
    arrays = [
        variable.array for variable in (*model.variables, *model.optimizer.variables)
    ]
    state = model.training_state
    return [
        np.array(array) for array in (*arrays, state.order.array, state.position.array)
    ]


def near(actual, wanted):
    for a, b in zip(actual, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4)


def equal(actual, wanted):
    for a, b in zip(actual, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


def both(action, other):
    """Return what an action gives on the GPU and elsewhere."""
    results = []
    for backend in ("cuda", other):
        config.set_backend(backend)
        results.append(action())
    config.set_backend("cuda")
    return results


def fit_evaluate_and_predict(other):
    def all_of_it():
        model = model_of()
        history = train(model, 3)
        scores = model.evaluate(X[:33], Y[:33], batch_size=10, verbose=0)
        return [*history.values(), scores, model.predict(X[:21], verbose=0)]

    near(*both(all_of_it, other))


def a_callback_sees_and_changes_every_batch(other):
    def watched():
        model, seen = model_of(), []

        class Watch(keras.callbacks.Callback):
            def on_train_batch_end(self, batch, logs=None):
                kernel = model.layers[0].kernel
                seen.append(np.array(kernel))
                if batch == 2:
                    kernel.assign(np.array(kernel) * 0.5)

        train(model, 2, callbacks=[Watch()])
        assert len(seen) == 2 * -(-ROWS // BATCH)
        assert all((a != b).any() for a, b in itertools.pairwise(seen))
        return seen

    near(*both(watched, other))


def a_resumed_run_equals_one_that_was_never_stopped(other):
    class StopAfter(keras.callbacks.Callback):
        left = 7

        def on_train_batch_end(self, batch, logs=None):
            self.left -= 1
            if not self.left:
                raise KeyboardInterrupt

    full, stopped = model_of(), model_of()
    train(full, 3)
    try:
        train(stopped, 3, callbacks=[StopAfter()])
    except KeyboardInterrupt:
        pass
    else:
        raise AssertionError("it was not stopped")
    with tempfile.TemporaryDirectory() as folder:
        saving.save_model(stopped, Path(folder) / "part.keras")
        resumed = saving.load_model(Path(folder) / "part.keras")
    train(resumed, 3, initial_epoch=int(resumed.training_state.epoch))
    equal(state_of(resumed), state_of(full))


def a_model_goes_to_another_backend_and_back(other):
    wandering, settled = model_of(), model_of()
    for backend in ("cuda", other, "cuda"):
        config.set_backend(backend)
        train(wandering, 2)
        config.set_backend(other)
        train(settled, 2)
    config.set_backend("cuda")
    near(state_of(wandering), state_of(settled))


def ctrl_c_is_answered_and_the_model_goes_on(other):
    """Returns how many seconds the answer took."""
    model = model_of()
    train(model, 1)  # compiled
    asked = []

    def ask():
        asked.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(0.7, ask)
    timer.start()
    try:
        train(model, 10**6)
    except KeyboardInterrupt:
        seconds = time.perf_counter() - asked[0]
    else:
        raise AssertionError("it went on to the end")
    before = state_of(model)
    model.training_state.position.array[...] = 0
    train(model, 1)
    assert any((a != b).any() for a, b in zip(before, state_of(model), strict=True))
    return seconds


def no_room_on_the_device_leaves_a_usable_model(other):
    keras.utils.set_random_seed(3)
    wide = 4096
    model = keras.Sequential(
        [keras.Input((1,)), layers.Dense(wide, "relu"), layers.Dense(1)]
    )
    rows = 50_000_000  # 800 GB between the layers
    x = np.ones((rows, 1), "float32")
    few = model.predict(x[:100], batch_size=50, verbose=0)
    try:
        model.predict(x, batch_size=rows, verbose=0)
    except MemoryError as error:
        message = str(error)
    else:
        raise AssertionError("there was room for everything")
    assert "MB are needed" in message, message
    assert "Lower `batch_size`" in message, message
    equal([model.predict(x[:100], batch_size=50, verbose=0)], [few])


def a_changed_pixel_is_seen(other):
    x = np.zeros((1 << 21, 4), "float32")  # too large to be compared as a whole
    model = keras.Sequential([keras.Input((4,)), layers.Dense(1, use_bias=False)])
    config.set_backend("cuda")
    assert not model.predict(x, batch_size=1 << 21, verbose=0).any()
    x[123_456, 2] = 1.0
    predictions = model.predict(x, batch_size=1 << 21, verbose=0)
    assert np.flatnonzero(predictions).tolist() == [123_456]


def resume_on_the_command_line(other):
    from command_line import run, weights_of

    env = {"SMALL_ROWS": "4000", "GANGLION_BACKEND": "cuda"}
    with tempfile.TemporaryDirectory() as folder:
        full_path, part = Path(folder) / "whole.keras", Path(folder) / "part.keras"
        for target, *more in (
            (full_path, "--epochs", 4),
            (part, "--epochs", 2),
            (part, "--epochs", 4, "--resume", part),
        ):
            done = run("train", "mnist-mlp", *more, "--save", target, **env)
            assert done.returncode == 0, done.stderr
        equal(weights_of(part), weights_of(full_path))


ANYWHERE = (
    fit_evaluate_and_predict,
    a_callback_sees_and_changes_every_batch,
    a_resumed_run_equals_one_that_was_never_stopped,
    a_model_goes_to_another_backend_and_back,
    ctrl_c_is_answered_and_the_model_goes_on,
)
ON_A_GPU = (
    *ANYWHERE,
    no_room_on_the_device_leaves_a_usable_model,
    a_changed_pixel_is_seen,
    resume_on_the_command_line,
)


def main():
    bad = 0
    config.set_precision("float32")
    for check in ON_A_GPU:
        config.set_backend("cuda")
        started = time.perf_counter()
        try:
            answer = check("cpu")
            assert answer is None or answer < 0.5, f"{answer:.2f} s until Ctrl-C"
            outcome = "good" if answer is None else f"good, after {answer:.3f} s"
        except Exception as error:
            bad += 1
            outcome = f"FAILED {type(error).__name__}: {str(error)[:600]}"
        spent = time.perf_counter() - started
        print(f"{check.__name__}: {outcome} ({spent:.1f} s)", flush=True)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
