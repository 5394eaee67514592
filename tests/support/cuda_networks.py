"""Networks of other kinds than the recipes', for the CUDA backend: here and on a GPU.

Each has what the recipes have not: depthwise convolutions, branches, groups, words.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from cpu_checks import step_of_model
from mini_gpt import mini_gpt

import ganglion
from ganglion import layers, models, optimizers
from ganglion.compiler.ir.graph import Program

CLASSES, WORDS = 10, 2000
Step = tuple[Program, dict[str, np.ndarray], dict[str, np.ndarray]]


def conv(x, filters, size=3, **options):
    """Return a convolution with a batch norm."""
    options = {"padding": "same", "use_bias": False} | options
    return layers.BatchNormalization()(layers.Conv2D(filters, size, **options)(x))


def depthwise(x, size, **options):
    """Return a depthwise convolution with a batch norm."""
    options = {"padding": "same", "use_bias": False} | options
    return layers.BatchNormalization()(layers.DepthwiseConv2D(size, **options)(x))


def relu(x):
    return layers.Activation("relu")(x)


def classify(x):
    x = layers.GlobalAveragePooling2D()(x)
    return layers.Dense(CLASSES, activation="softmax")(x)


def mobile(side):
    """Depthwise and pointwise convolutions; large windows, several of an input."""
    image = layers.Input((side, side, 3))
    x = relu(conv(image, 32))
    for filters, size, options in (
        (64, 3, {}),
        (64, 5, {"strides": 2}),
        (128, 3, {"depth_multiplier": 2}),
        (128, 3, {"dilation_rate": 2}),
    ):
        x = relu(depthwise(x, size, **options))
        x = relu(conv(x, filters, 1))
    return models.Model(image, classify(x))


def residual(side):
    """Branches that meet, some of them with steps of two."""
    image = layers.Input((side, side, 3))
    x = relu(conv(image, 16))
    for filters, strides in ((16, 1), (32, 2), (64, 2)):
        long = conv(relu(conv(x, filters, strides=strides)), filters)
        short = x if strides == 1 else conv(x, filters, 1, strides=strides)
        x = relu(layers.Add()([long, short]))
    return models.Model(image, classify(x))


def grouped(side):
    """Convolutions in groups of channels, and averages."""
    image = layers.Input((side, side, 3))
    x = relu(conv(image, 64))
    for _ in range(2):
        inner = relu(conv(relu(conv(x, 128, 1)), 128, groups=8))
        x = relu(layers.Add()([conv(inner, 64, 1), x]))
        x = layers.AveragePooling2D()(x)
    return models.Model(image, classify(x))


def branched(side):
    """Windows of several sizes beside each other, squeezed and excited."""
    image = layers.Input((side, side, 3))
    x = relu(conv(image, 24))
    parts = [relu(conv(x, 16, size)) for size in (1, 3, 5)]
    x = layers.Concatenate()([*parts, layers.MaxPooling2D(3, 1, "same")(x)])
    small = layers.GlobalAveragePooling2D()(x)
    scale = layers.Dense(72, "sigmoid")(layers.Dense(8, "relu")(small))
    x = layers.Multiply()([x, layers.Reshape((1, 1, 72))(scale)])
    return models.Model(image, classify(x))


def mirrored(side):
    """Down and up again: transposed convolutions, and other norms."""
    image = layers.Input((side, side, 3))
    x = layers.Conv2D(32, 3, strides=2, padding="same", activation="elu")(image)
    x = layers.GroupNormalization(8)(x)
    x = layers.Conv2DTranspose(16, 4, strides=2, padding="same")(x)
    x = layers.LayerNormalization()(layers.Activation("gelu")(x))
    x = layers.UpSampling2D()(layers.Conv2D(16, 3, strides=2)(x))
    return models.Model(image, classify(x))


def dense(side):
    """Wide layers with norms and dropout."""
    image = layers.Input((side, side, 3))
    x = layers.Flatten()(image)
    for units in (1024, 512, 512, 512):
        x = layers.LayerNormalization()(layers.Dense(units)(x))
        x = layers.Dropout(0.2)(layers.Activation("gelu")(x))
    return models.Model(image, layers.Dense(CLASSES, activation="softmax")(x))


def words(side):
    """Words in vectors, windows of words, the largest of each."""
    text = layers.Input((8 * side,), dtype="int32")
    x = layers.Embedding(WORDS, 64)(text)
    x = layers.Conv1D(128, 5, activation="relu")(x)
    x = layers.Dropout(0.5)(layers.GlobalMaxPooling1D()(x))
    return models.Model(text, layers.Dense(CLASSES, activation="softmax")(x))


def gpt(side):
    """Causal attention with heads, then the average of all steps."""
    inner = mini_gpt(ganglion, WORDS, length=2 * side, width=32, heads=4, blocks=2)
    x = layers.GlobalAveragePooling1D()(inner.output)
    return models.Model(inner.input, layers.Dense(CLASSES, activation="softmax")(x))


NETWORKS: dict[str, tuple[Callable, Callable]] = {
    "mobile": (mobile, optimizers.Adam),
    "residual": (residual, lambda: optimizers.SGD(0.1, momentum=0.9)),
    "grouped": (grouped, optimizers.SGD),
    "branched": (branched, optimizers.RMSprop),
    "mirrored": (mirrored, optimizers.Adam),
    "dense": (dense, optimizers.AdamW),
    "words": (words, optimizers.Adam),
    "gpt": (gpt, optimizers.AdamW),
}


def step_of(
    name: str,
    batch: int,
    side: int,
    rows: int = 0,
    optimizer: Callable | None = None,
) -> Step:
    """Return a network's training step, with random data and its state."""
    make, own = NETWORKS[name]
    model, rng, rows = make(side), np.random.default_rng(0), rows or 2 * batch
    model.compile((optimizer or own)(), "sparse_categorical_crossentropy")
    shape = (rows, *model.inputs[0].shape[1:])
    x = rng.normal(size=shape).astype("float32")
    if model.inputs[0].dtype == "int32":
        x = rng.integers(0, WORDS, shape).astype("int32")
    y = rng.integers(0, CLASSES, rows).astype("int32")
    return step_of_model(model, x, y, batch, rows)
