"""Saving and loading different models from many threads at once."""

from __future__ import annotations

import io
import pickle
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import ganglion as keras
from ganglion import layers, saving, serialization

THREADS, TURNS = 8, 3
X = np.random.default_rng(0).random((5, 4)).astype("float32")


@pytest.fixture(autouse=True)
def busy():
    """Let threads change as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def scale_by(number):
    class Scale(layers.Layer):
        """The same name in every thread, each another class."""

        def call(self, x):
            return x * number

    return Scale


def shared_model(number, scale):
    x = keras.Input((4,))
    both = layers.Dense(4, name="both")
    hidden = both(scale(name="scale")(both(x)))
    outer = keras.Model(x, layers.Dense(number + 1)(hidden), name=f"m{number}")
    return keras.Sequential([outer, layers.Dense(2)])


def every_thread(work):
    barrier = threading.Barrier(THREADS)

    def run(number):
        barrier.wait(60)
        return work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(run, range(THREADS)))


def test_different_models_at_once(tmp_path):
    def work(number):
        scale = scale_by(number)
        model = shared_model(number, scale)
        model.compile("adam", "mse")
        wanted = model(X)
        weights = model.get_weights()
        for turn in range(TURNS):
            path = tmp_path / f"{number}-{turn}.keras"
            model.save(path)
            loaded = saving.load_model(path, custom_objects={"Scale": scale})
            np.testing.assert_array_equal(loaded(X), wanted)
            inner = loaded.layers[0]
            assert inner.name == f"m{number}"
            assert len(inner.layers) == 4
            again = pickle.loads(pickle.dumps(keras.Sequential([inner.layers[1]])))
            assert again.layers[0].name == "both"
            model.save_weights(tmp_path / f"{number}.weights.h5")
            loaded.set_weights([0 * weight for weight in weights])
            loaded.load_weights(tmp_path / f"{number}.weights.h5")
            np.testing.assert_array_equal(loaded(X), wanted)
        return True

    assert all(every_thread(work))
    assert len(list(tmp_path.iterdir())) == THREADS * (TURNS + 1)


def test_one_file_by_all_threads(tmp_path):
    path = tmp_path / "m.keras"

    def work(number):
        for _ in range(TURNS):
            model = keras.Sequential([keras.Input((4,)), layers.Dense(number + 1)])
            model.save(path)
            assert saving.load_model(path).output_shape[1] <= THREADS
        return True

    assert all(every_thread(work))
    assert [path.name for path in tmp_path.iterdir()] == ["m.keras"]


def test_scopes_belong_to_their_threads():
    def work(number):
        scale = scale_by(number)
        for _ in range(200):
            with saving.custom_object_scope({"Scale": scale}):
                assert serialization.get_registered_object("Scale") is scale
            assert serialization.get_registered_object("Scale") is None
        return True

    assert all(every_thread(work))


def test_no_name_is_given_twice():
    names = every_thread(lambda _: [layers.Dense(1).name for _ in range(100)])
    assert len({name for some in names for name in some}) == 100 * THREADS


def test_into_memory():
    def work(number):
        model = shared_model(number, scale_by(2))
        for _ in range(TURNS):
            buffer = io.BytesIO()
            model.save(buffer)
            assert buffer.getvalue()[:2] == b"PK"
        return saving.model_to_json(model)

    for number, text in enumerate(every_thread(work)):
        assert f'"m{number}"' in text
