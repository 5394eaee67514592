"""Experiments with recurrent layers: the rows of an image as steps in time.

The probes are not trained for a result: `ganglion bench` times their steps.
"""

from __future__ import annotations

from typing import Any

from ganglion.recipes.records import (
    NOISE,
    PIXELS,
    LayerSpec,
    Published,
    Recipe,
    dense,
)


def _recurrent(kind: str, units: int = 128, **more: Any) -> LayerSpec:
    return kind, {"units": units} | more


def _both_ways(spec: LayerSpec) -> LayerSpec:
    kind, arguments = spec
    return "Bidirectional", {"layer": {"class_name": kind, "config": arguments}}


_RELU = _recurrent("SimpleRNN", activation="relu", kernel_initializer="he_normal")
_LSTM = _recurrent("LSTM", recurrent_activation="keras2_hard_sigmoid")


def _rows(
    name: str,
    title: str,
    layer: LayerSpec,
    init: str,
    rate: float,
    epochs: int,
    parameters: int,
    published: tuple[Published, ...],
) -> Recipe:
    """Return an experiment that reads an image row by row."""
    return Recipe(
        name=name,
        title=title,
        dataset="mnist",
        input_shape=(28, 28),
        layers=(PIXELS, layer, dense(10, init, "softmax")),
        loss="sparse_categorical_crossentropy",
        optimizer=("SGD", {"learning_rate": rate, "momentum": 0.9, "nesterov": True}),
        epochs=epochs,
        parameters=parameters,
        published=published,
    )


RNN = _rows(
    "mnist-rnn",
    "28 rows of 28 pixels → SimpleRNN 128 relu → 10 softmax",
    _RELU,
    "he_normal",
    0.005,
    100,
    21_386,
    (
        Published("Keras CPU", 0.9826, "5 s an epoch"),
        Published("Keras, after one epoch", 0.9194, "5 s"),
    ),
)
BIRNN = _rows(
    "mnist-birnn",
    "28 rows of 28 pixels → bidirectional SimpleRNN 128 relu → 10 softmax",
    _both_ways(_RELU),
    "he_normal",
    0.005,
    100,
    42_762,
    (
        Published("Keras CPU", 0.9863, "7 s an epoch"),
        Published("Keras, after one epoch", 0.9198, "7 s"),
    ),
)
LSTM = _rows(
    "mnist-lstm",
    "28 rows of 28 pixels → bidirectional LSTM 128 → 10 softmax",
    _both_ways(_LSTM),
    "glorot_uniform",
    0.5,
    30,
    163_338,
    (
        Published("Keras CPU", 0.9920, "30 s an epoch"),
        Published("Keras, after one epoch", 0.9741, "30 s"),
    ),
)


def _probe(
    name: str,
    title: str,
    shape: tuple[int, int],
    layers: tuple[LayerSpec, ...],
    parameters: int,
) -> Recipe:
    """Return a network that is only timed, on noise."""
    return Recipe(
        name=name,
        title=title,
        dataset=NOISE,
        input_shape=shape,
        layers=(PIXELS, *layers, dense(10, "glorot_uniform", "softmax")),
        loss="sparse_categorical_crossentropy",
        optimizer=("SGD", {"learning_rate": 0.01}),
        epochs=1,
        parameters=parameters,
        published=(),
    )


PROBES = (
    _probe(
        "rnn",
        "SimpleRNN 128 on 28 steps of 28",
        (28, 28),
        (_recurrent("SimpleRNN"),),
        21_386,
    ),
    _probe(
        "lstm",
        "bidirectional LSTM 128 on 28 steps of 28",
        (28, 28),
        (_both_ways(_recurrent("LSTM")),),
        163_338,
    ),
    _probe(
        "gru2",
        "two GRUs of 256 on 100 steps of 32",
        (100, 32),
        (_recurrent("GRU", 256, return_sequences=True), _recurrent("GRU", 256)),
        620_042,
    ),
)
