"""Transfer learning: features of ImageNet, and a head that learns other classes.

Most of the network stays frozen, so what it computes of each image is computed once and
kept on disk. A head learns on top of its features in seconds; fine-tuning then changes
the last blocks as well, which makes it as accurate as training all of them.

    >>> from ganglion.applications import transfer
    >>> start = transfer.start(classes=6, size=128)  # doctest: +SKIP
    >>> transfer.train_head(start, (x, y), test)  # doctest: +SKIP
    >>> transfer.fine_tune(start, (x, y), test)  # doctest: +SKIP
    >>> start.model.save("mine.keras")  # doctest: +SKIP
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ganglion import layers
from ganglion.applications import feature_cache
from ganglion.applications.efficientnet_lite import SIZE, EfficientNetLite0
from ganglion.callbacks import EarlyStopping, History
from ganglion.models import Model
from ganglion.optimizers import Adam
from ganglion.optimizers.schedules import CosineDecay

BATCH = 32
HEAD_EPOCHS = 60  # each takes milliseconds
FINE_EPOCHS = 5
PATIENCE = 15
HEAD_RATE, FINE_RATE = 1e-3, 1e-4
# Layers before it stay frozen: edges and textures are the same in all images, and the
# last five blocks hold most of the weights at a third of the work.
CUT = "block10_add"
MOST_MAPS = 1 << 30  # bytes of frozen features to hold

Arrays = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Start:
    """A pretrained network with a new head; its parts share their layers."""

    model: Model  # pixels from 0 to 255 to classes
    body: Model  # pixels to features
    lower: Model  # pixels to maps, the first part of the body
    middle: Model  # maps to features, the rest of it
    upper: Model  # maps to classes
    head: Model  # features to classes


def start(
    classes: int,
    size: int | tuple[int, int] = SIZE,
    *,
    dropout: float = 0.2,
    weights: str | os.PathLike[str] | None = "imagenet",
    name: str = "pretrained",
) -> Start:
    """Return EfficientNetLite0 with a fresh head, its body frozen.

    Args:
        classes: How many classes the head distinguishes.
        size: Rows and columns of the images, or one number for both. The network
            was trained at 224; smaller is faster, below 96 accuracy suffers.
        dropout: The share of features left out in training the head.
        weights: As of `EfficientNetLite0`.
        name: The name of the model.

    >>> parts = start(3, 32, weights=None)
    >>> parts.model.output_shape, len(parts.model.trainable_weights)
    ((None, 3), 2)
    """
    rows, columns = (size, size) if isinstance(size, int) else size
    network = EfficientNetLite0(
        include_top=False,
        weights=weights,
        input_shape=(rows, columns, 3),
        include_preprocessing=True,
    )
    for layer in network.layers:
        layer.trainable = False
    pooled = layers.GlobalAveragePooling2D(name="features")(network.output)
    drop = layers.Dropout(dropout, name="head_dropout")
    dense = layers.Dense(classes, activation="softmax", name="head")
    model = Model(network.input, dense(drop(pooled)), name=name)
    boundary = network.get_layer(CUT).output
    alone = layers.Input((pooled.shape[-1],))
    return Start(
        model,
        body=Model(network.input, pooled, name=f"{name}_body"),
        lower=Model(network.input, boundary, name=f"{name}_lower"),
        middle=Model(boundary, pooled, name=f"{name}_middle"),
        upper=Model(boundary, model.output, name=f"{name}_upper"),
        head=Model(alone, dense(drop(alone)), name=f"{name}_head"),
    )


def maps(start: Start, pixels: np.ndarray, verbose: Any = 0) -> np.ndarray:
    """Return the frozen part's features of images, from disk if they are cached.

    Args:
        start: What `start` returned.
        pixels: The images, (images, rows, columns, 3), from 0 to 255.
        verbose: Whether to show progress, as in `predict`.
    """
    return feature_cache.outputs(start.lower, pixels, verbose)


def features(start: Start, pixels: np.ndarray, verbose: Any = 0) -> np.ndarray:
    """Return the features that the head learns from; arguments are those of `maps`."""
    network, inputs = start.body, pixels
    if _maps_fit(start, len(pixels)):  # they will serve fine-tuning, too
        network, inputs = start.middle, maps(start, pixels, verbose)
    return feature_cache.outputs(network, inputs, verbose)


def _maps_fit(start: Start, images: int) -> bool:
    return 4 * images * math.prod(start.lower.output_shape[1:]) <= MOST_MAPS


# ---- training --------------------------------------------------------------------


def train_head(
    start: Start,
    train: Arrays,
    validation: Arrays | None = None,
    *,
    epochs: int = HEAD_EPOCHS,
    batch_size: int = BATCH,
    learning_rate: float = HEAD_RATE,
    patience: int | None = None,
    callbacks: Sequence[Any] = (),
    verbose: Any = 0,
) -> History:
    """Train the head on frozen features; `start.model` is then ready to predict.

    Args:
        start: What `start` returned.
        train: Images and class numbers.
        validation: The same, to watch progress on, and to keep the best epoch by.
        epochs: Epochs of the head.
        batch_size: Images a step.
        learning_rate: Of Adam.
        patience: Epochs without a better validation loss before it stops; all epochs
            are run if None.
        callbacks: For `fit`.
        verbose: Whether to show progress.
    """
    x, y = features(start, train[0], verbose), train[1]
    held_out = None
    if validation is not None:
        held_out = (features(start, validation[0], verbose), validation[1])
    stop: list[Any] = []
    if patience is not None and held_out is not None:
        stop = [EarlyStopping(patience=patience, restore_best_weights=True)]
    compile_for_training(start.head, learning_rate)
    history = start.head.fit(
        x,
        y,
        batch_size=min(batch_size, len(x)),
        epochs=epochs,
        validation_data=held_out,
        callbacks=[*callbacks, *stop],
        verbose=verbose,
    )
    compile_for_training(start.model, learning_rate)  # so that it evaluates, too
    return history


def fine_tune(
    start: Start,
    train: Arrays,
    validation: Arrays | None = None,
    *,
    epochs: int = FINE_EPOCHS,
    batch_size: int = BATCH,
    learning_rate: float = FINE_RATE,
    whole: bool = False,
    callbacks: Sequence[Any] = (),
    verbose: Any = 0,
) -> History:
    """Train the last blocks, best after `train_head`; arguments are the same.

    Batch normalisation keeps what it learned from ImageNet's millions: a few hundred
    images would only blur its averages.

    Args:
        start: What `start` returned.
        train: Images and class numbers.
        validation: The same, to watch progress on.
        epochs: Epochs; the learning rate falls to 0 over them.
        batch_size: Images a step.
        learning_rate: Of Adam, in the beginning.
        whole: Whether all blocks learn: several times the work.
        callbacks: For `fit`.
        verbose: Whether to show progress.
    """
    network, held_out = start.model, validation
    learning = network.layers if whole else start.upper.layers
    for layer in network.layers:
        is_norm = isinstance(layer, layers.BatchNormalization)
        layer.trainable = layer in learning and not is_norm
    parts = [train] if validation is None else [train, validation]
    if not whole and _maps_fit(start, sum(len(x) for x, _ in parts)):
        network = start.upper
        train, *rest = ((maps(start, x, verbose), y) for x, y in parts)
        held_out = rest[0] if rest else None
    size = min(batch_size, len(train[0]))
    steps = epochs * -(-len(train[0]) // size)
    compile_for_training(network, CosineDecay(learning_rate, steps))
    history = network.fit(
        *train,
        batch_size=size,
        epochs=epochs,
        validation_data=held_out,
        callbacks=list(callbacks),
        verbose=verbose,
    )
    compile_for_training(start.model, learning_rate)  # so that it evaluates, too
    return history


def compile_for_training(model: Model, learning_rate: Any) -> None:
    """Compile a model for class numbers, with Adam."""
    model.compile(
        optimizer=Adam(learning_rate),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
