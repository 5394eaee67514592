"""A small data set and a small classifier, for tests of training."""

import threading
from contextlib import contextmanager

import numpy as np

import ganglion as keras
from ganglion import layers, optimizers


def blobs(rows=60, features=4, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, rows)
    x = rng.normal(size=(rows, features)) + 2 * np.eye(classes, features)[y]
    return x.astype("float32"), y.astype("int32")


def classifier(features=4, classes=3, **compile_arguments):
    model = keras.Sequential(
        [
            keras.Input((features,)),
            layers.Dense(8, activation="relu"),
            layers.Dense(classes, activation="softmax"),
        ]
    )
    arguments = {
        "optimizer": optimizers.SGD(0.1),
        "loss": "sparse_categorical_crossentropy",
        "metrics": ["accuracy"],
    }
    model.compile(**(arguments | compile_arguments))
    return model


def alike():
    """Return a model whose weights are all equal after whole steps, x and y."""
    model = keras.Sequential(
        [keras.Input((64,)), keras.layers.Dense(512, use_bias=False)]
    )
    model.set_weights([np.ones((64, 512), "float32")])
    model.compile(keras.optimizers.SGD(1e-3), "mse")
    return model, np.ones((256, 64), "float32"), np.zeros((256, 512), "float32")


@contextmanager
def trained_beside(model, x, y):
    """Let another thread train a model for the time of a block."""
    ends = threading.Event()

    def train():
        while not ends.is_set():
            model.fit(x, y, 32, verbose=0)

    thread = threading.Thread(target=train)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()
