"""Convolutions of one channel: their pixels take the lanes of columns."""

import numpy as np
import pytest

from ganglion import Input, Model, config, layers, optimizers, utils

KINDS = [
    lambda: layers.Conv2D(1, 7, padding="same", activation="sigmoid"),
    lambda: layers.Conv2D(1, 3, strides=2, padding="same"),
    lambda: layers.Conv2D(1, 3, dilation_rate=2),
    lambda: layers.Conv2DTranspose(1, 4, strides=2, padding="same"),
    lambda: layers.Conv2D(1, 1),
]


def trained(backend, kind):
    """Return losses and outputs of a network that ends in one channel."""
    config.set_backend(backend)
    utils.set_random_seed(1)
    inputs = Input((20, 23, 3))
    model = Model(inputs, kind()(layers.Conv2D(5, 3, padding="same")(inputs)))
    model.compile(optimizers.SGD(0.1), "mse")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6, 20, 23, 3)).astype("float32")
    y = rng.normal(size=(6, *model.output_shape[1:])).astype("float32")
    losses = model.fit(x, y, batch_size=3, epochs=2, verbose=0, shuffle=False)
    return losses.history["loss"], model.predict(x, verbose=0)


@pytest.mark.parametrize("kind", KINDS)
def test_one_channel_agrees_with_the_reference(kind):
    try:
        losses, outputs = trained("numpy", kind)
        compiled, results = trained("cpu", kind)
    finally:
        config.set_backend("numpy")
    np.testing.assert_allclose(compiled, losses, rtol=1e-5)
    np.testing.assert_allclose(results, outputs, atol=1e-5)
