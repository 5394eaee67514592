"""Ordinary networks, as data: `ganglion bench --networks` times them on noise.

They are the shapes that people train every day, in the form that Keras' examples and
the papers give them. None is trained for a result.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ganglion.recipes.records import NOISE, LayerSpec, Recipe, dense

Layers = tuple[LayerSpec, ...]
_INIT = "glorot_uniform"
_RELU: LayerSpec = ("Activation", {"activation": "relu"})
_NORM: LayerSpec = ("BatchNormalization", {})
_POOL: LayerSpec = ("MaxPooling2D", {"pool_size": 2})
_AVERAGE: LayerSpec = ("GlobalAveragePooling2D", {})
_IMAGE = (32, 32, 3)
_ADAM = ("Adam", {"learning_rate": 0.001})
_MOMENTUM = ("SGD", {"learning_rate": 0.01, "momentum": 0.9})


def _network(
    name: str,
    title: str,
    shape: tuple[int, ...],
    batch_size: int,
    layers: Iterable[LayerSpec],
    parameters: int,
    optimizer: tuple[str, dict[str, Any]] = _ADAM,
    **more: Any,
) -> Recipe:
    """Return a network that is only timed: a classifier, unless more is said."""
    return Recipe(
        name=name,
        title=title,
        dataset=NOISE,
        input_shape=shape,
        layers=tuple(layers),
        loss=more.pop("loss", "sparse_categorical_crossentropy"),
        optimizer=optimizer,
        epochs=1,
        parameters=parameters,
        published=(),
        batch_size=batch_size,
        **more,
    )


def _conv(filters: int, size: int, kind: str = "Conv2D", **more: Any) -> LayerSpec:
    arguments = {"filters": filters, "kernel_size": size, "padding": "same"}
    return kind, arguments | {"kernel_initializer": "he_normal"} | more


def _conv_relu(filters: int, size: int, **more: Any) -> LayerSpec:
    return _conv(filters, size, activation="relu", **more)


def _normed(filters: int, size: int, **more: Any) -> Layers:
    """Return a convolution without a bias, which its batch norm would take away."""
    return _conv(filters, size, use_bias=False, **more), _NORM


def _softmax(classes: int) -> LayerSpec:
    return dense(classes, _INIT, "softmax")


# ---- blocks --------------------------------------------------------------------------


def _residual(filters: int, strides: int) -> Layers:
    """Return a block of ResNet; one that changes shapes projects its input."""
    body = [*_normed(filters, 3, strides=strides), _RELU, *_normed(filters, 3)]
    block: dict[str, Any] = {"layers": body}
    if strides > 1:
        block["shortcut"] = [_conv(filters, 1, strides=strides)]
    return ("Residual", block), _RELU


def _separable(filters: int, strides: int) -> Layers:
    """Return a block of MobileNet: each channel by itself, then all at each pixel."""
    depthwise = {"kernel_size": 3, "padding": "same", "strides": strides}
    return (
        ("DepthwiseConv2D", depthwise | {"use_bias": False}),
        _NORM,
        _RELU,
        *_normed(filters, 1),
        _RELU,
    )


def _u(filters: int, depth: int) -> Layers:
    """Return a U: two convolutions, and around a smaller U two more."""
    twice = (_conv_relu(filters, 3),) * 2
    if depth == 0:
        return twice
    up = _conv(filters, 2, "Conv2DTranspose", strides=2)
    inner = [_POOL, *_u(2 * filters, depth - 1), up]
    return (*twice, ("Skip", {"layers": inner}), *twice)


# ---- networks ------------------------------------------------------------------------

NETWORKS = (
    _network(
        "tabular",
        "20 → 64 relu → 64 relu → 1",
        (20,),
        32,
        (dense(64, _INIT, "relu"), dense(64, _INIT, "relu"), dense(1, _INIT)),
        5_569,
        loss="mean_squared_error",
        metrics=(),
        classes=1,
    ),
    _network(
        "wide",
        "1024 → 4096 relu → 4096 relu → 1000 softmax",
        (1024,),
        256,
        (*(dense(4096, _INIT, "relu"),) * 2, _softmax(1000)),
        25_076_712,
        classes=1000,
    ),
    _network(
        "deep",
        "ten layers of 128 with batch norm and dropout",
        (128,),
        64,
        (
            *(dense(128, _INIT), _NORM, _RELU, ("Dropout", {"rate": 0.2})) * 10,
            _softmax(10),
        ),
        171_530,
    ),
    _network(
        "resnet-20",
        "ResNet-20 on 32×32×3",
        _IMAGE,
        128,
        (
            *_normed(16, 3),
            _RELU,
            *_residual(16, 1) * 3,
            *(*_residual(32, 2), *_residual(32, 1) * 2),
            *(*_residual(64, 2), *_residual(64, 1) * 2),
            _AVERAGE,
            _softmax(10),
        ),
        273_754,
        _MOMENTUM,
    ),
    _network(
        "vgg",
        "3×3 convolutions of 64, 64, 128, 128, 256, 256 on 32×32×3, dense 256",
        _IMAGE,
        64,
        (
            *(*(_conv_relu(64, 3),) * 2, _POOL),
            *(*(_conv_relu(128, 3),) * 2, _POOL),
            *(*(_conv_relu(256, 3),) * 2, _POOL),
            ("Flatten", {}),
            dense(256, _INIT, "relu"),
            _softmax(10),
        ),
        2_196_810,
        _MOMENTUM,
    ),
    _network(
        "mobilenet",
        "depthwise separable convolutions of 64 to 512 on 32×32×3",
        _IMAGE,
        64,
        (
            *_normed(32, 3),
            _RELU,
            *_separable(64, 1),
            *(*_separable(128, 2), *_separable(128, 1)),
            *(*_separable(256, 2), *_separable(256, 1)),
            *(*_separable(512, 2), *_separable(512, 1)),
            _AVERAGE,
            _softmax(10),
        ),
        549_578,
        _MOMENTUM,
    ),
    _network(
        "conv1d",
        "1D convolutions of 64, 128, 128 on 500 steps of 6",
        (500, 6),
        32,
        (
            _conv_relu(64, 7, kind="Conv1D"),
            ("MaxPooling1D", {"pool_size": 2}),
            _conv_relu(128, 5, kind="Conv1D"),
            ("MaxPooling1D", {"pool_size": 2}),
            _conv_relu(128, 3, kind="Conv1D"),
            ("GlobalAveragePooling1D", {}),
            _softmax(10),
        ),
        94_410,
    ),
    _network(
        "autoencoder",
        "4×4 convolutions of 32, 64 with strides and back, transposed, on 28×28×1",
        (28, 28, 1),
        128,
        (
            _conv_relu(32, 4, strides=2),
            _conv_relu(64, 4, strides=2),
            _conv_relu(64, 4, kind="Conv2DTranspose", strides=2),
            _conv_relu(32, 4, kind="Conv2DTranspose", strides=2),
            _conv(1, 3, activation="sigmoid"),
        ),
        132_065,
        loss="mean_squared_error",
        metrics=(),
        reconstructs=True,
    ),
    _network(
        "u-net",
        "U-Net of 32, 64, 128, 256 on 64×64×3, three classes a pixel",
        (64, 64, 3),
        16,
        (*_u(32, 3), _conv(3, 1, activation="softmax")),
        1_925_667,
        classes=3,
        target_shape=(64, 64),
    ),
    _network(
        "embedding-bag",
        "the mean of 200 rows of 20,000×64, 20 classes",
        (200,),
        128,
        (
            ("Embedding", {"input_dim": 20_000, "output_dim": 64}),
            ("GlobalAveragePooling1D", {}),
            _softmax(20),
        ),
        1_281_300,
        classes=20,
    ),
)
