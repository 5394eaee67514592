"""Networks drawn at random, for what no one would think of testing.

They are small: images of a few pixels, layers of a few units, blocks in any order.
"""

from __future__ import annotations

from random import Random

import numpy as np
from cpu_checks import step_of_model

from ganglion import layers, models, optimizers, utils

ACTIVATIONS = ("relu", "elu", "gelu", "tanh", "sigmoid", "swish", "selu", "leaky_relu")
MOST_ELEMENTS = 3000  # of an example between layers
WORDS = 50


def step_of(seed, optimizer=None):
    """Return a training step of a random network, with random data and its state."""
    rng, numbers = Random(seed), np.random.default_rng(seed)
    utils.set_random_seed(seed)
    model, classes = network(rng)
    rows = rng.choice([1, 2, 3, 5, 8, 16, 33])
    (tensor,) = model.inputs
    shape = (rows, *tensor.shape[1:])
    x = numbers.normal(size=shape).astype("float32")
    if tensor.dtype == "int32":
        x = numbers.integers(0, WORDS, shape).astype("int32")
    model.compile(optimizer or optimizers.SGD(0.1), "sparse_categorical_crossentropy")
    y = numbers.integers(0, classes, rows).astype("int32")
    return step_of_model(model, x, y, rows, rows)


def network(rng: Random):
    """Return a random classifier, and its number of classes."""
    rank = rng.choice([0, 1, 1, 2, 2, 2, 3])
    side = rng.choice([5, 6, 8, 9, 12]) if rank < 3 else 6
    if rank == 1 and rng.random() < 0.5:
        tensor = layers.Input((2 * side,), dtype="int32")
        x = layers.Embedding(WORDS, rng.choice([3, 8, 16, 33]))(tensor)
    elif rank:
        tensor = x = layers.Input((side,) * rank + (rng.choice([1, 3, 4]),))
    else:
        tensor = x = layers.Input((side * side,))
    for _ in range(rng.randint(1, 6)):
        x = block(rng, x)
    if len(x.shape) > 2:
        pool = rng.choice(["GlobalAveragePooling", "GlobalMaxPooling", ""])
        x = layer(pool, x)()(x) if pool else layers.Flatten()(x)
    for _ in range(rng.randint(0, 2)):
        x = block(rng, x)
    classes = rng.choice([2, 5, 10])
    return models.Model(tensor, layers.Dense(classes, "softmax")(x)), classes


def layer(name, x):
    """Return the layer of that name for images of as many axes."""
    return getattr(layers, f"{name}{len(x.shape) - 2}D")


def block(rng: Random, x):
    """Return some layers on top of others."""
    if len(x.shape) == 2:
        return rng.choice([dense, dense, dense, residual, gated, beside])(rng, x)
    kinds = (conv, conv, conv, conv, pooled, pooled, residual, gated, beside, moved)
    x = rng.choice(kinds)(rng, x)
    if np.prod(x.shape[1:]) > MOST_ELEMENTS:
        x = layer("MaxPooling", x)(2, padding="same")(x)
    return x


def dense(rng: Random, x):
    units = rng.choice([1, 3, 10, 16, 33, 64, 100])
    return active(rng, normal(rng, layers.Dense(units, use_bias=rng.random() < 0.8)(x)))


def conv(rng: Random, x):
    return active(rng, normal(rng, _conv(rng, x)))


def _conv(rng: Random, x):
    size, channels = rng.choice([1, 1, 2, 3, 3, 3, 5]), x.shape[-1]
    small = min(x.shape[1:-1]) <= size
    arguments = {"padding": "same" if small or rng.random() < 0.7 else "valid"}
    arguments["use_bias"] = rng.random() < 0.6
    filters, strides = rng.choice([1, 3, 4, 5, 8, 16, 17]), rng.choice([1, 1, 1, 2, 3])
    groups = rng.choice([n for n in (1, 2, 3, 4, 8) if channels % n == 0])
    flat = len(x.shape) < 5
    kind = rng.choice(
        ["", "", "", "groups", "dilated", "up", *["depth", "both"] * flat]
    )
    if kind == "depth":
        many = rng.choice([1, 1, 2, 3])
        convolution = layer("DepthwiseConv", x)
        return convolution(size, strides, depth_multiplier=many, **arguments)(x)
    if kind == "both":
        return layer("SeparableConv", x)(filters, size, strides, **arguments)(x)
    if kind == "up":
        name = f"Conv{len(x.shape) - 2}DTranspose"
        return getattr(layers, name)(filters, size, rng.choice([1, 2]), **arguments)(x)
    if kind == "groups":
        filters = groups * rng.choice([1, 2, 4, 8])
        return layer("Conv", x)(filters, size, groups=groups, **arguments)(x)
    if kind == "dilated":
        arguments["padding"] = "same"
        return layer("Conv", x)(filters, size, dilation_rate=2, **arguments)(x)
    return layer("Conv", x)(filters, size, strides, **arguments)(x)


def pooled(rng: Random, x):
    size = rng.choice([2, 2, 3])
    if min(x.shape[1:-1]) < size:
        return x
    strides, padding = rng.choice([None, 1, 2]), rng.choice(["same", "valid"])
    kind = rng.choice(["MaxPooling", "AveragePooling"])
    return layer(kind, x)(size, strides, padding)(x)


def _like(x):
    """Return a layer whose result has the same shape."""
    if len(x.shape) == 2:
        return layers.Dense(x.shape[-1])
    return layer("Conv", x)(x.shape[-1], 3, padding="same")


def residual(rng: Random, x):
    return active(rng, layers.Add()([x, normal(rng, _like(x)(x))]))


def gated(rng: Random, x):
    channels, rank = x.shape[-1], len(x.shape) - 2
    small = layer("GlobalAveragePooling", x)()(x) if rank else x
    scale = layers.Dense(channels, "sigmoid")(small)
    return layers.Multiply()([x, layers.Reshape((1,) * rank + (channels,))(scale)])


def beside(rng: Random, x):
    if len(x.shape) == 2:
        return layers.Concatenate()([x, layers.Dense(8, "relu")(x)])
    parts = [layer("Conv", x)(4, 1)(x), layer("Conv", x)(8, 3, padding="same")(x)]
    return layers.Concatenate()(parts)


def moved(rng: Random, x):
    if rng.random() < 0.3:
        return layer("UpSampling", x)()(x)
    if rng.random() < 0.5 or min(x.shape[1:-1]) < 4:
        return layer("ZeroPadding", x)(1)(x)
    return layer("Cropping", x)(1)(x)


def normal(rng: Random, x):
    batch = layers.BatchNormalization(scale=rng.random() < 0.7)
    others = [layers.LayerNormalization(), layers.RMSNormalization()]
    if x.shape[-1] % 4 == 0:
        others.append(layers.GroupNormalization(4))
    return rng.choice([batch, batch, layers.Identity(), *others])(x)


def active(rng: Random, x):
    named = [layers.Activation(rng.choice(ACTIVATIONS)) for _ in range(5)]
    return rng.choice([layers.PReLU(), layers.LeakyReLU(), *named])(x)
