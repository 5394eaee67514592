"""A resumed run equals one that was never stopped, bit for bit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import SOURCE, SUPPORT_PATHS
from saving_models import small

import ganglion as keras
from ganglion import layers, saving

pytest.importorskip("h5py")


RNG = np.random.default_rng(5)
X = RNG.normal(size=(70, 6)).astype("float32")
Y = RNG.integers(0, 3, 70)


def busy() -> Any:
    """A model with everything that has a state: dropout, batch norm, Adam, metrics."""
    keras.utils.set_random_seed(11)
    model = keras.Sequential(
        [
            keras.Input((6,)),
            layers.Dense(8, activation="relu"),
            layers.BatchNormalization(),
            layers.Dropout(0.4),
            layers.GaussianNoise(0.1),
            layers.Dense(3, activation="softmax"),
        ]
    )
    model.compile(
        keras.optimizers.Adam(0.01),
        "sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return model


class StopAfter(keras.callbacks.Callback):
    """Interrupts training after some batches, as Ctrl-C does."""

    def __init__(self, batches: int) -> None:
        super().__init__()
        self.left = batches

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


def train(model: Any, epochs: int, first: int = 0, **options: Any) -> Any:
    return model.fit(
        X,
        Y,
        batch_size=16,
        epochs=epochs,
        initial_epoch=first,
        verbose=0,
        validation_data=(X[:10], Y[:10]),
        **options,
    )


def all_state(model: Any) -> list[np.ndarray]:
    arrays = [
        variable.array for variable in (*model.variables, *model.optimizer.variables)
    ]
    return [
        *arrays,
        model.training_state.order.array,
        model.training_state.position.array,
    ]


def assert_same_state(a: Any, b: Any) -> None:
    for first, other in zip(all_state(a), all_state(b), strict=True):
        np.testing.assert_array_equal(first, other)


def test_training_goes_on_after_an_epoch_bit_for_bit(tmp_path):
    straight = busy()
    history = train(straight, 5).history
    part = busy()
    train(part, 2)
    part.save(tmp_path / "m.keras")
    resumed = saving.load_model(tmp_path / "m.keras")
    rest = train(resumed, 5, first=int(resumed.training_state.epoch)).history
    assert_same_state(straight, resumed)
    for name, values in history.items():
        assert values[2:] == rest[name]


@pytest.mark.parametrize("batches", [1, 7, 8, 10])
def test_training_goes_on_in_the_middle_of_an_epoch_bit_for_bit(tmp_path, batches):
    straight = busy()
    history = train(straight, 4).history
    part = busy()
    with pytest.raises(KeyboardInterrupt):
        train(part, 4, callbacks=[StopAfter(batches)])
    saving.save_checkpoint(tmp_path / "c", part)
    resumed = busy()
    resumed.evaluate(X[:5], Y[:5], verbose=0)  # must leave no trace in the metrics
    epoch = saving.load_checkpoint(tmp_path / "c", resumed)
    resumed.evaluate(X[:5], Y[:5], verbose=0)
    assert epoch == (batches - 1) // 5
    rest = train(resumed, 4, first=epoch).history
    assert_same_state(straight, resumed)
    for name, values in history.items():
        assert values[epoch:] == rest[name]


def test_epochs_of_a_given_length_go_on_in_the_middle(tmp_path):
    straight = busy()
    train(straight, 4, steps_per_epoch=3)
    part = busy()
    with pytest.raises(KeyboardInterrupt):
        train(part, 4, steps_per_epoch=3, callbacks=[StopAfter(8)])
    part.save(tmp_path / "m.keras")
    resumed = saving.load_model(tmp_path / "m.keras")
    train(resumed, 4, first=int(resumed.training_state.epoch), steps_per_epoch=3)
    assert_same_state(straight, resumed)


class Batches(keras.utils.PyDataset):
    """Batches that `fit` visits in a new order in each epoch."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> Any:
        rows = slice(index * 14, (index + 1) * 14)
        return X[rows], Y[rows]


@pytest.mark.parametrize("batches", [5, 7])
def test_streams_of_batches_go_on(tmp_path, batches):
    straight = busy()
    straight.fit(Batches(), epochs=3, verbose=0)
    part = busy()
    with pytest.raises(KeyboardInterrupt):
        part.fit(Batches(), epochs=3, verbose=0, callbacks=[StopAfter(batches)])
    saving.save_checkpoint(tmp_path / "c", part)
    resumed = busy()
    epoch = saving.load_checkpoint(tmp_path / "c", resumed)
    resumed.fit(Batches(), epochs=3, initial_epoch=epoch, verbose=0)
    assert_same_state(straight, resumed)


def test_a_backup_brings_a_run_back(tmp_path):
    straight = busy()
    train(straight, 4)
    part = busy()
    backup = keras.callbacks.BackupAndRestore(tmp_path / "b", save_freq=1)
    with pytest.raises(KeyboardInterrupt):
        train(part, 4, callbacks=[backup, StopAfter(7)])
    resumed = busy()
    train(resumed, 4, callbacks=[keras.callbacks.BackupAndRestore(tmp_path / "b")])
    assert_same_state(straight, resumed)


def test_another_process_goes_on_bit_for_bit(tmp_path):
    straight = busy()
    train(straight, 3)
    part = busy()
    with pytest.raises(KeyboardInterrupt):
        train(part, 3, callbacks=[StopAfter(7)])
    part.save(tmp_path / "m.keras")
    code = (
        "import sys; sys.path[:0] = sys.argv[2:]\n"
        "import test_saving_resume as t\n"
        "from ganglion import saving\n"
        "model = saving.load_model(sys.argv[1])\n"
        "t.train(model, 3, first=int(model.training_state.epoch))\n"
        "model.save(sys.argv[1])\n"
    )
    paths = [str(Path(__file__).parent), *SUPPORT_PATHS, str(SOURCE)]
    command = [sys.executable, "-c", code, str(tmp_path / "m.keras"), *paths]
    subprocess.run(command, check=True, timeout=300)
    assert_same_state(straight, saving.load_model(tmp_path / "m.keras"))


def test_a_loaded_model_may_also_start_anew(tmp_path):
    part = busy()
    with pytest.raises(KeyboardInterrupt):
        train(part, 2, callbacks=[StopAfter(7)])
    part.save(tmp_path / "m.keras")
    model = saving.load_model(tmp_path / "m.keras")
    train(model, 1)  # epoch 0 again, from the first row
    assert int(model.optimizer.iterations.numpy()) == 7 + 5


def test_train_on_batch_after_loading_reports_that_batch_only(tmp_path):
    part = busy()
    with pytest.raises(KeyboardInterrupt):
        train(part, 2, callbacks=[StopAfter(2)])
    part.save(tmp_path / "m.keras")
    model = saving.load_model(tmp_path / "m.keras")
    assert model.train_on_batch(X[:8], Y[:8]) == part.train_on_batch(X[:8], Y[:8])


def test_weights_alone_are_no_checkpoint(tmp_path):
    model = small()
    model.save_weights(tmp_path / "m.weights.h5")
    with pytest.raises(
        ValueError, match=r"m\.weights\.h5.*not a checkpoint.*load_weights"
    ):
        saving.load_checkpoint(tmp_path / "m.weights.h5", model)


def test_other_data_than_that_of_the_saved_run_is_refused(tmp_path):
    part = busy()
    with pytest.raises(KeyboardInterrupt):
        train(part, 2, callbacks=[StopAfter(4)])
    part.save(tmp_path / "m.keras")
    model = saving.load_model(tmp_path / "m.keras")
    with pytest.raises(ValueError, match=r"saved at row 64 .* has 20 rows"):
        model.fit(X[:20], Y[:20], batch_size=16, verbose=0)


def adversaries() -> tuple[Any, Any]:
    """A discriminator that is frozen after its `compile`, and the model around it."""
    keras.utils.set_random_seed(4)
    judge = keras.Sequential(
        [keras.Input((2,)), layers.Dense(1, activation="sigmoid")], name="judge"
    )
    judge.compile("adam", "binary_crossentropy")
    judge.trainable = False
    maker = keras.Sequential([keras.Input((6,)), layers.Dense(2)], name="maker")
    x = keras.Input((6,))
    both = keras.Model(x, judge(maker(x)))
    both.compile("adam", "binary_crossentropy")
    return both, judge


def test_a_frozen_discriminator_goes_on_learning_by_itself(tmp_path):
    ones = np.ones((70, 1), "float32")

    def play(both: Any, judge: Any) -> None:
        judge.train_on_batch(X[:, :2], ones)
        both.train_on_batch(X, ones)

    straight, straight_judge = adversaries()
    play(straight, straight_judge)
    straight.save(tmp_path / "m.keras")
    resumed = saving.load_model(tmp_path / "m.keras")
    judge = resumed.get_layer("judge")
    assert len(judge.optimizer.variables) == 2 + 2 * 2
    play(straight, straight_judge)
    play(resumed, judge)
    assert_same_state(straight, resumed)
    mine, its = straight_judge.optimizer.variables, judge.optimizer.variables
    for first, other in zip(mine, its, strict=True):
        np.testing.assert_array_equal(first.array, other.array)


def test_draws_without_a_seed_go_on_too(tmp_path):
    """Keras 2's VAE draws its noise by `K.random_normal`, which has no seed."""

    def build():
        keras.utils.set_random_seed(5)
        x = keras.Input((3,))

        def noisy(value):
            return value + keras.random.normal((value.shape[0], 3))

        model = keras.Model(x, keras.layers.Dense(2)(keras.layers.Lambda(noisy)(x)))
        model.compile("sgd", "mse")
        return model

    data = (np.ones((20, 3), "float32"), np.zeros((20, 2), "float32"))
    full_run = build()
    full_run.fit(*data, batch_size=5, epochs=4, verbose=0)
    half = build()
    half.fit(*data, batch_size=5, epochs=2, verbose=0)
    saving.save_checkpoint(tmp_path / "half.keras", half)
    rest = build()
    epoch = saving.load_checkpoint(tmp_path / "half.keras", rest)
    rest.fit(*data, batch_size=5, epochs=4, initial_epoch=epoch, verbose=0)
    for a, b in zip(full_run.get_weights(), rest.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
