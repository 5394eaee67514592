"""SpectralNormalization, ReversibleEmbedding and own wrappers beside Keras."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ganglion
from ganglion import layers

pytestmark = pytest.mark.rivals

RNG = np.random.default_rng(0)
X = RNG.normal(size=(16, 6, 6, 2)).astype("float32")
WORDS = RNG.integers(0, 9, (16, 4)).astype("int32")


def twins(keras: Any, make: Any, x: np.ndarray) -> tuple[Any, Any]:
    """Return our layer and Keras', built and with equal weights."""
    pair = make(ganglion), make(keras)
    for layer in pair:
        layer(x)
    ours, theirs = pair
    assert [w.path for w in ours.weights] == [w.path for w in theirs.weights]
    assert [w.trainable for w in ours.weights] == [w.trainable for w in theirs.weights]
    theirs.set_weights(ours.get_weights())
    return ours, theirs


@pytest.mark.parametrize(
    ("make", "x"),
    [
        (lambda k: k.layers.Dense(5, name="a"), X),
        (lambda k: k.layers.Conv2D(4, 3, name="a"), X),
        (lambda k: k.layers.Embedding(9, 3, name="a"), WORDS),
    ],
)
def test_spectral_normalization(keras: Any, make: Any, x: np.ndarray) -> None:
    def wrapped(k: Any) -> Any:
        return k.layers.SpectralNormalization(make(k), power_iterations=3, name="b")

    ours, theirs = twins(keras, wrapped, x)
    for training in (False, True, True, False):
        mine = ours(x, training=training)
        if x is not WORDS:  # Keras rounds the rows of an Embedding to integers
            np.testing.assert_allclose(mine, theirs(x, training=training), atol=2e-6)
            for w, v in zip(ours.get_weights(), theirs.get_weights(), strict=True):
                np.testing.assert_allclose(w, v, atol=1e-6)
    assert ours.compute_output_shape((None, *x.shape[1:])) == (None, *mine.shape[1:])
    config = ours.get_config()
    assert set(config) == set(theirs.get_config())
    assert type(ours).from_config(config).power_iterations == 3


def test_training_moves_the_normalised_kernel(keras: Any) -> None:
    """A gradient is that of the kernel which was assigned, not of the one before."""
    y = RNG.normal(size=(16, 1)).astype("float32")

    def network(k: Any) -> Any:
        convolution = k.layers.Conv2D(3, 3, activation="tanh")
        model = k.Sequential(
            [
                k.Input(X.shape[1:]),
                k.layers.SpectralNormalization(convolution),
                k.layers.BatchNormalization(renorm=True, renorm_clipping={"rmax": 3}),
                k.layers.Flatten(),
                k.layers.SpectralNormalization(k.layers.Dense(1)),
            ]
        )
        model.compile(k.optimizers.SGD(0.05), "mse")
        return model

    ours, theirs = network(ganglion), network(keras)
    theirs.set_weights(ours.get_weights())
    histories = [
        model.fit(X, y, 8, epochs=2, shuffle=False, verbose=0).history["loss"]
        for model in (ours, theirs)
    ]
    np.testing.assert_allclose(*histories, rtol=1e-4)
    for mine, other in zip(ours.get_weights(), theirs.get_weights(), strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-4)


@pytest.mark.parametrize("tied", [True, False])
def test_reversible_embedding(keras: Any, tied: bool) -> None:
    def make(k: Any) -> Any:
        return k.layers.ReversibleEmbedding(
            9, 3, tie_weights=tied, mask_zero=True, logit_soft_cap=0.1, name="a"
        )

    ours, theirs = twins(keras, make, WORDS)
    rows, other = ours(WORDS), theirs(WORDS)
    np.testing.assert_array_equal(rows, other)
    np.testing.assert_array_equal(rows._keras_mask, WORDS != 0)
    np.testing.assert_allclose(
        ours(rows, reverse=True), theirs(other, reverse=True), atol=1e-6
    )
    for reverse, shape in ((False, (None, 4)), (True, (None, None, 3))):
        assert ours.compute_output_shape(shape, reverse=reverse) == tuple(
            theirs.compute_output_shape(shape, reverse=reverse)
        )
    inputs = ganglion.Input((4,), dtype="int32")
    model = ganglion.Model(inputs, ours(ours(inputs), reverse=True))
    assert model.output_shape == (None, 4, 9)


class Twice(layers.Wrapper):
    def call(self, inputs: Any) -> Any:
        return self.layer(self.layer(inputs))


def test_a_wrapper_of_ones_own() -> None:
    ganglion.saving.register_keras_serializable("own")(Twice)
    layer = Twice(layers.Dense(2, name="inner"), name="outer")
    layer(np.ones((3, 2), "float32"))
    assert [w.path for w in layer.weights] == [
        "outer/inner/kernel",
        "outer/inner/bias",
    ]
    again = layers.deserialize(layers.serialize(layer))
    assert again.layer.units == 2
    with pytest.raises(ValueError, match="isn't a supported layer type"):
        Twice(3)


@pytest.mark.parametrize("name", layers.foreign.__all__)
def test_models_of_other_frameworks_are_refused(name: str) -> None:
    with pytest.raises(NotImplementedError, match="set_weights"):
        getattr(layers, name)(None)
