"""A pretrained start: ImageNet's features, and a head that learns your classes.

Frozen, the network never changes, so its features of each image are computed once, kept
on disk, and only the head is trained on them: seconds in place of minutes. Fine-tuning
goes on from there and changes the whole network.

    >>> from ganglion.applications import transfer
    >>> start = transfer.start(classes=6, size=128)  # doctest: +SKIP
    >>> transfer.train_head(start, (x, y), test)  # doctest: +SKIP
    >>> start.model.save("mine.keras")  # doctest: +SKIP
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import zipfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ganglion import callbacks, layers, optimizers
from ganglion.applications.efficientnet_lite import SIZE, EfficientNetLite0
from ganglion.models import Model

BATCH = 32
EPOCHS = 60  # of a head: each takes milliseconds
PATIENCE = 15
HEAD_RATE, FINE_RATE = 1e-3, 1e-4
MOST_KEPT = 2 << 30  # bytes of features on disk
VERSION = 1  # of the features; another network is another number

Arrays = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Start:
    """A pretrained network with a new head; the three share their layers."""

    model: Model  # pixels from 0 to 255 to classes
    body: Model  # pixels to features
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
        classes: How many classes the head tells apart.
        size: Rows and columns of the images, or one number for both. The network
            learned at 224; smaller is faster, below 96 it sees little.
        dropout: The share of features left out in training the head.
        weights: As of `EfficientNetLite0`.
        name: The name of the model.

    >>> made = start(3, 32, weights=None)
    >>> made.model.output_shape, len(made.model.trainable_weights)
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
    body = Model(network.input, pooled, name=f"{name}_body")
    alone = layers.Input((pooled.shape[-1],))
    return Start(model, body, Model(alone, dense(drop(alone)), name=f"{name}_head"))


# ---- features --------------------------------------------------------------------


def features(
    start: Start,
    pixels: np.ndarray,
    *,
    batch_size: int = BATCH,
    keep: bool = True,
    verbose: Any = 0,
) -> np.ndarray:
    """Return the body's features of images, from disk if they were computed before.

    Args:
        start: What `start` returned.
        pixels: The images, (images, rows, columns, 3), from 0 to 255.
        batch_size: Images at a time.
        keep: Whether to look for them on disk, and to keep them there.
        verbose: Whether to show progress, as in `predict`.
    """
    path = folder() / f"{_key(start.body, pixels)}.npz" if keep else None
    if path is not None:
        found = _read(path, (len(pixels), start.body.output_shape[-1]))
        if found is not None:
            return found
    size = min(batch_size, len(pixels))
    made = np.asarray(start.body.predict(pixels, batch_size=size, verbose=verbose))
    if path is not None:
        _write(path, made)
    return made


def folder() -> Path:
    """Return the folder of kept features: in GANGLION_HOME, else the user's cache."""
    home = os.environ.get("GANGLION_HOME")
    if not home:
        import platformdirs

        home = platformdirs.user_cache_dir("ganglion")
    return Path(home).expanduser() / "features"


def _key(body: Model, pixels: np.ndarray) -> str:
    """Return a name that other pixels, sizes or weights would change."""
    total = hashlib.blake2b(f"{VERSION} {pixels.shape} {pixels.dtype}".encode())
    for weight in body.weights:
        total.update(np.ascontiguousarray(weight.array).data)
    for row in pixels:  # one by one: they may lie on disk
        total.update(np.ascontiguousarray(row).data)
    return total.hexdigest()[:40]


def _read(path: Path, shape: tuple[int, int]) -> np.ndarray | None:
    """Return kept features, None where there are none or the file is damaged."""
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as held:
            found = held["features"]  # a zip checks its sums
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    if found.shape != shape or found.dtype != np.float32:
        return None
    with suppress(OSError):
        os.utime(path)
    return found


def _write(path: Path, made: np.ndarray) -> None:
    """Keep features; without a place for them they are computed again next time."""
    beside = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _make_room(path.parent, made.nbytes)
        handle, beside = tempfile.mkstemp(dir=path.parent, suffix=".part")
        with os.fdopen(handle, "wb") as file:
            np.savez(file, features=made)
        os.replace(beside, path)
    except OSError:
        pass
    finally:
        if beside is not None:
            Path(beside).unlink(missing_ok=True)


def _make_room(place: Path, size: int) -> None:
    entries = []
    for one in place.glob("*.npz"):
        with suppress(OSError):
            found = one.stat()
            entries.append((found.st_mtime, found.st_size, one))
    held = sum(entry[1] for entry in entries) + size
    for _, length, one in sorted(entries):
        if held <= MOST_KEPT:
            return
        one.unlink(missing_ok=True)
        held -= length


# ---- training --------------------------------------------------------------------


def train_head(
    start: Start,
    train: Arrays,
    validation: Arrays | None = None,
    *,
    epochs: int = EPOCHS,
    batch_size: int = BATCH,
    learning_rate: float = HEAD_RATE,
    patience: int | None = None,
    keep: bool = True,
    flip: bool = False,
    more_callbacks: Any = (),
    verbose: Any = 0,
) -> callbacks.History:
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
        keep: Whether to keep features on disk.
        flip: Whether to learn from mirrored images, too: twice the features to compute.
        more_callbacks: For `fit`.
        verbose: Whether to show progress.
    """
    how: dict[str, Any] = {"keep": keep, "verbose": verbose}
    x, y = features(start, train[0], **how), train[1]
    if flip:
        mirrored = features(start, train[0][:, :, ::-1], **how)
        x, y = np.concatenate([x, mirrored]), np.concatenate([y, y])
    held = None
    if validation is not None:
        held = (features(start, validation[0], **how), validation[1])
    compile_for_training(start.head, learning_rate)
    done = start.head.fit(
        x,
        y,
        batch_size=min(batch_size, len(x)),
        epochs=epochs,
        validation_data=held,
        callbacks=_callbacks(patience, held, more_callbacks),
        verbose=verbose,
    )
    compile_for_training(start.model, learning_rate)  # so that it evaluates, too
    return done


def fine_tune(
    start: Start,
    train: Arrays,
    validation: Arrays | None = None,
    *,
    epochs: int = 5,
    batch_size: int = BATCH,
    learning_rate: float = FINE_RATE,
    patience: int | None = None,
    more_callbacks: Any = (),
    verbose: Any = 0,
) -> callbacks.History:
    """Train the whole network, best after `train_head`; arguments are the same.

    Batch normalisation keeps what it learned from ImageNet's millions: a few hundred
    images would only blur its averages.
    """
    for layer in start.model.layers:
        layer.trainable = not isinstance(layer, layers.BatchNormalization)
    compile_for_training(start.model, learning_rate)
    return start.model.fit(
        *train,
        batch_size=min(batch_size, len(train[0])),
        epochs=epochs,
        validation_data=validation,
        callbacks=_callbacks(patience, validation, more_callbacks),
        verbose=verbose,
    )


def compile_for_training(model: Model, learning_rate: float) -> None:
    """Compile a model for class numbers, with Adam."""
    model.compile(
        optimizer=optimizers.Adam(learning_rate),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )


def _callbacks(patience: int | None, held: Any, more: Any) -> list[Any]:
    chosen = list(more)
    if patience is not None and held is not None:
        stop = callbacks.EarlyStopping(patience=patience, restore_best_weights=True)
        chosen.append(stop)
    return chosen
