"""Functional models of NumPy's functions: in `fit`, in files, and read by Keras."""

from __future__ import annotations

import numpy as np
import pytest

import ganglion
from ganglion import config, ops
from ganglion.models import Model, Sequential
from ganglion.saving import load_model

X = np.random.default_rng(0).uniform(-1, 1, (16, 6)).astype("float32")


def built(k):
    """Return a model of ops, some of them host calls, in either library."""
    x = k.Input((6,))
    ordered = k.ops.sort(x, axis=-1)
    middle = k.ops.median(ordered, axis=1, keepdims=True)
    product = k.ops.prod(k.ops.cumprod(x + 2.0, axis=1), axis=1, keepdims=True)
    angle = k.ops.arctan2(ordered, x)
    there = k.ops.searchsorted(k.ops.convert_to_tensor([-0.5, 0.5]), ordered[:, 0])
    bits = k.ops.bitwise_xor(k.ops.argsort(x), k.ops.argsort(ordered))
    total = k.ops.cast(bits, "float32") + angle
    total = total + k.ops.cast(k.ops.expand_dims(there, 1), "float32")
    outputs = k.ops.concatenate([total, middle, product], axis=1)
    return k.Model(x, outputs)


def test_a_file_brings_it_back(tmp_path):
    model = built(ganglion)
    model.save(tmp_path / "m.keras")
    again = load_model(tmp_path / "m.keras")
    np.testing.assert_array_equal(
        again.predict(X, verbose=0), model.predict(X, verbose=0)
    )


@pytest.mark.rivals
def test_keras_reads_the_file_and_computes_the_same(keras, tmp_path):
    model = built(ganglion)
    model.save(tmp_path / "m.keras")
    theirs = keras.models.load_model(tmp_path / "m.keras")
    ours = model.predict(X, verbose=0)
    np.testing.assert_allclose(np.asarray(theirs(X)), ours, rtol=1e-5, atol=1e-5)


class Ordered(ganglion.layers.Layer):
    """Trains a scale through a sort, which is a host call."""

    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones")

    def call(self, x):
        ordered = ops.sort(x * self.scale)
        parts = [ops.quantile(ordered, 0.25, axis=-1), ops.prod(ordered, axis=-1)]
        return ops.stack(parts, axis=-1)


def losses(backend):
    before = config.backend_choice()
    config.set_backend(backend)
    try:
        model = Sequential([ganglion.Input((6,)), Ordered()])
        model.compile("sgd", "mse")
        history = model.fit(X, X[:, :2], 4, epochs=3, shuffle=False, verbose=0)
        return history.history["loss"]
    finally:
        config.set_backend(before)


def test_a_compiled_step_trains_through_host_calls_as_the_reference_does():
    assert losses("cpu")[-1] < losses("cpu")[0]
    np.testing.assert_allclose(losses("cpu"), losses("numpy"), rtol=1e-5)


def test_what_has_no_known_shape_is_refused_by_name_when_a_model_is_compiled():
    x = ganglion.Input((6,))
    model = Model(x, ops.cast(ops.nonzero(x)[0], "float32"))
    assert model.output_shape == (None,)
    with pytest.raises(NotImplementedError, match=r"ops\.nonzero.*ops\.where"):
        model.predict(X, verbose=0)
