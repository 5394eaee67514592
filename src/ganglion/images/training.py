"""Training on a folder of images, and asking the model that comes of it.

With few images an epoch is a few steps and validation a few images: what happens in it
is mostly chance. So patience is counted in steps, the first ones never end it, and
epochs are judged by an average of some of them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ganglion import callbacks, recipes
from ganglion.callbacks.rates import learning_rate_of, set_learning_rate
from ganglion.callbacks.states import number, weights_or_none, whole_number
from ganglion.images import (
    Form,
    ImageFolder,
    Images,
    ImagesError,
    Listing,
    find,
    networks,
    read_files,
    stratified,
)
from ganglion.images.cache import Decoded
from ganglion.images.decoding import MODES
from ganglion.images.finding import TEST, WHOLE
from ganglion.images.loading import batch_for, fingerprint, held_out

EPOCHS = 100  # at most: early stopping ends it
STEPS = 2000  # at most, where that many are more epochs
VALIDATION = 0.15
SAVE_SECONDS = 5.0  # how much training a power failure may cost
SLOWER = 0.3  # the learning rate at the end
# In a score that is otherwise the error: if there is no error, the loss decides.
LOSS_SHARE = 0.1
LEAST_CHANGE = 3e-3  # of the score
# Steps of training, however many epochs they are.
WARM_UP_STEPS, SLOWER_STEPS, STOP_STEPS, AVERAGED_STEPS = 200, 100, 250, 50

Skipped = tuple[Path, str]  # a file that cannot be read, and why


def new_model(data: ImageFolder, augmented: bool = True) -> Any:
    """Return a network for the images, which stores the names of their classes."""
    rate = networks.first_rate(len(data.train))
    recipe = networks.recipe_of(data, augmented=augmented, rate=rate)
    model = recipes.build(recipe)
    remember(model, data)
    return model


def remember(model: Any, data: ImageFolder, **more: Any) -> None:
    """Store in a model what `predict` and `evaluate` need."""
    model.notes = model.notes | {
        "class_names": list(data.classes),
        "images": data.form.as_data(),
        "folder": {"fingerprint": data.fingerprint, **more},
    }


def most_epochs(images: int, batch_size: int) -> int:
    """Return how many epochs a training has at most: with few images, more.

    >>> most_epochs(600, 32), most_epochs(100, 16)
    (106, 286)
    """
    return max(EPOCHS, math.ceil(STEPS / steps_of(images, batch_size)))


def steps_of(images: int, batch_size: int) -> int:
    """Return how many steps an epoch has."""
    return max(1, math.ceil(images / batch_size))


class BestKeeper(callbacks.Callback):
    """Keeps the weights of the best epoch, in memory and in a file.

    The file is a model with the weights of the best epoch, and holds everything that is
    needed to resume the run from its last epoch.

    Args:
        monitor: What is to become small.
        save: The file; None for none.
        best: What has to be beaten.
    """

    def __init__(self, monitor: str, save: Path | None, best: float = np.inf) -> None:
        super().__init__()
        self.monitor, self.save, self.best = monitor, save, best
        self.epoch: int | None = None  # from 1
        self.weights: list[np.ndarray] | None = None
        self._latest: list[np.ndarray] | None = None  # while the model has the best
        self._saved = time.monotonic()

    def value_of(self, logs: dict[str, Any]) -> float | None:
        """Return what an epoch is judged by."""
        return logs.get(self.monitor)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        value = self.value_of(logs or {})
        is_better = value is not None and value < self.best
        if value is not None and is_better:
            self.best, self.epoch = value, epoch + 1
            self.weights = self.model.get_weights()
        self.after(epoch)
        last = epoch + 1 == (self.params or {}).get("epochs")
        is_over = last or getattr(self.model, "stop_training", False)
        if is_better or is_over or time.monotonic() - self._saved > SAVE_SECONDS:
            self.write()

    def after(self, epoch: int) -> None:
        """Do what follows from the epoch, before it is written."""

    def write(self) -> None:
        """Write the file, if there is to be one."""
        if self.save is None:
            return
        with self._best_weights():
            self.model.save(self.save)
        self._saved = time.monotonic()

    @contextmanager
    def _best_weights(self) -> Iterator[None]:
        """Give the model the weights of the best epoch for the block."""
        if self.weights is None:
            yield
            return
        self._latest = self.model.get_weights()
        self.model.set_weights(self.weights)
        try:
            yield
        finally:
            self.model.set_weights(self._latest)
            self._latest = None

    def get_state(self) -> dict[str, Any]:
        best_is_in_the_model = self._latest is not None
        return {
            "best": self.best,
            "epoch": self.epoch,
            "best_is_in_the_model": best_is_in_the_model,
            "weights": self._latest if best_is_in_the_model else self.weights,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        self.best = number(state, "best")
        is_new = state["epoch"] is None
        self.epoch = None if is_new else whole_number(state, "epoch")
        self.weights = weights_or_none(state, "weights", self.model)
        if state["best_is_in_the_model"] and self.weights is not None:
            latest, self.weights = self.weights, self.model.get_weights()
            self.model.set_weights(latest)


@dataclass(frozen=True)
class Patience:
    """The patience of callbacks in epochs, by the number of steps of an epoch."""

    warm_up: int  # before any counting
    slower_after: int
    stop_after: int
    averaged: int

    @classmethod
    def of(cls, steps: int) -> Patience:
        """Return the patience for epochs of so many steps.

        >>> Patience.of(5).stop_after > Patience.of(20).stop_after
        True
        >>> Patience.of(1000)
        Patience(warm_up=1, slower_after=6, stop_after=15, averaged=1)
        """

        def epochs(count: int, least: int) -> int:
            return max(least, math.ceil(count / steps))

        return cls(
            warm_up=epochs(WARM_UP_STEPS, 1),
            slower_after=epochs(SLOWER_STEPS, 6),
            stop_after=epochs(STOP_STEPS, 15),
            averaged=epochs(AVERAGED_STEPS, 1),
        )


class Judge(BestKeeper):
    """Keeps the best epoch, lowers the learning rate, and ends training.

    An epoch's score is the share of validation images that it gets wrong, and a little
    of the loss. The loss alone would often find the first epoch best: with few images
    a network is sure of itself long before it is right. What is compared is the average
    of the last epochs' scores; an epoch that is worse than it does not count as best.

    Args:
        patience: How many epochs to wait for what.
        classes: How many there are.
        save: The file; None for none.
    """

    def __init__(self, patience: Patience, classes: int, save: Path | None) -> None:
        super().__init__("val_loss", save)
        self.patience = patience
        classes = max(classes, 2)
        self._guessing = math.log(classes)  # the loss of knowing nothing
        # Before the first epoch all is guessing: a lucky first one is not the best.
        self.average = 1 - 1 / classes + LOSS_SHARE
        self.lowest = math.inf  # of the averages
        self.waited = self.waited_to_slow = 0

    def begin(self, logs: dict[str, float], model: Any) -> None:
        """Take a model as it is for the best so far, by what validation says of it."""
        logs = {f"val_{name}": value for name, value in logs.items()}
        value = self.value_of(logs)
        if value is not None:
            self.best, self.weights = value, model.get_weights()

    def value_of(self, logs: dict[str, Any]) -> float | None:
        if "val_accuracy" not in logs:
            return None
        loss = LOSS_SHARE * logs["val_loss"] / self._guessing
        score = 1 - logs["val_accuracy"] + loss
        if not math.isfinite(score):
            return None
        self.average += (score - self.average) / self.patience.averaged
        return max(score, self.average)

    def after(self, epoch: int) -> None:
        if epoch + 1 < self.patience.warm_up:
            return
        if epoch + 1 == self.patience.warm_up:
            self.best = math.inf  # scores before it are luck, good or bad
        if self.average < self.lowest - LEAST_CHANGE:
            self.lowest, self.waited, self.waited_to_slow = self.average, 0, 0
            return
        self.waited += 1
        self.waited_to_slow += 1
        if self.waited >= self.patience.stop_after:
            self.model.stop_training = True
        elif self.waited_to_slow >= self.patience.slower_after:
            self.waited_to_slow = 0
            rate = learning_rate_of(self.model.optimizer)
            if rate is not None:
                set_learning_rate(self.model.optimizer, SLOWER * rate)

    def get_state(self) -> dict[str, Any]:
        own = ("average", "lowest", "waited", "waited_to_slow")
        return super().get_state() | {name: getattr(self, name) for name in own}

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        self.average = number(state, "average")
        self.lowest = number(state, "lowest")
        self.waited = whole_number(state, "waited")
        self.waited_to_slow = whole_number(state, "waited_to_slow")


def fit(
    model: Any,
    data: ImageFolder,
    *,
    epochs: int,
    batch_size: int,
    save: Path | None = None,
    more: Sequence[Any] = (),
    verbose: int = 1,
) -> BestKeeper:
    """Train with early stopping; the model ends with the weights of its best epoch.

    The run of a model that was loaded is resumed, as if it had not been interrupted.
    Ctrl-C writes the file before it is raised again.
    """
    first = int(model.training_state.epoch.array)
    validation = None
    keeper = BestKeeper("loss", save)
    if data.validation is not None:
        validation = (data.validation.x, data.validation.y)
        patience = Patience.of(steps_of(len(data.train), batch_size))
        keeper = Judge(patience, len(data.classes), save)
        if first and model.training_state.saved_callbacks is None:
            keeper.begin(evaluated(model, data.validation), model)
    try:
        model.fit(
            data.train.x,
            data.train.y,
            batch_size=min(batch_size, len(data.train)),
            epochs=epochs,
            initial_epoch=first,
            validation_data=validation,
            validation_batch_size=batch_for(
                data.form.size, len(data.validation or data.train)
            ),
            callbacks=[*more, keeper],
            verbose=verbose,
        )
    except KeyboardInterrupt:
        keeper.write()
        raise
    if keeper.weights is not None:
        model.set_weights(keeper.weights)
    return keeper


def evaluated(model: Any, images: Images) -> dict[str, float]:
    """Return loss and accuracy on some images."""
    size = batch_for(images.x.shape[1:3], len(images))
    settings = {"batch_size": size, "verbose": 0, "return_dict": True}
    return dict(model.evaluate(images.x, images.y, **settings))


@dataclass(frozen=True)
class Classifier:
    """A model with the names of its classes and the form of its images."""

    model: Any
    classes: tuple[str, ...]
    form: Form

    @classmethod
    def of(cls, model: Any, name: str = "The model") -> Classifier:
        """Return what a model is to images; by its shapes if it has no notes of it."""
        shape, out = model.input_shape, model.output_shape
        if not _is_shape(shape) or len(shape) not in (3, 4) or None in shape[1:3]:
            raise ImagesError(f"{name} takes {shape}, which is not an image.")
        if not _is_shape(out) or len(out) != 2:
            raise ImagesError(f"{name} gives {out}, which is not a class.")
        count = 2 if out[-1] == 1 else int(out[-1])
        classes = _names(model.notes.get("class_names"), count, name)
        channels = shape[3] if len(shape) == 4 else 1
        color = {len(mode): name for name, mode in MODES.items()}.get(channels)
        if color is None:
            raise ImagesError(f"{name} takes images of {channels} channels.")
        noted = model.notes.get("images")
        form = Form.from_data(noted) if noted else Form((shape[1], shape[2]), color)
        if form.shape != (shape[1], shape[2], channels):
            raise ImagesError(
                f"{name} takes {shape}, but notes images of {form.shape}."
            )
        return cls(model, classes, form)

    def probabilities(self, x: np.ndarray) -> np.ndarray:
        """Return the probability of every class for some images."""
        x = x.reshape(len(x), *self.model.input_shape[1:])
        size = batch_for(self.form.size, len(x))
        scores = self.model.predict(x, batch_size=size, verbose=0)
        if scores.shape[1] == 1:  # one output of yes or no
            return np.concatenate([1 - scores, scores], axis=1)
        if np.allclose(scores.sum(axis=1), 1, atol=1e-3) and scores.min() >= 0:
            return scores
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))  # of logits
        return powers / powers.sum(axis=1, keepdims=True)

    def read(self, files: Sequence[Path], keep: bool, watch: Any = None) -> Decoded:
        """Decode files as the model was trained to see them."""
        return read_files(files, self.form, watch, keep)

    def images_to_test(
        self, folder: Path, everything: bool = False, watch: Any = None
    ) -> tuple[Images, str, list[Skipped]]:
        """Return the images of a folder to test on, what they are, and skipped files.

        Those of its `test/`; those held out, if the model was trained on this very
        folder; else all.
        """
        listing = find(folder, self.classes)
        names = sorted(listing.parts)
        if TEST in names and not everything:
            names = [TEST]
        part, skipped = self._read_parts(listing, names, watch)
        if names == [TEST]:
            return part, "test/", skipped
        noted = self.model.notes.get("folder") or {}
        unchanged = names == [WHOLE] and noted.get("fingerprint") == fingerprint(
            listing
        )
        count = held_out(noted.get("test"), len(part)) if unchanged else 0
        if everything or not count:
            return part, "all images", skipped
        _, rows = stratified(part.y, count)
        chosen = Images(part.x[rows], part.y[rows], tuple(part.files[i] for i in rows))
        return chosen, "the images held out from its training", skipped

    def _read_parts(
        self, listing: Listing, names: list[str], watch: Any
    ) -> tuple[Images, list[Skipped]]:
        x, y, files, skipped = [], [], [], []
        for name in names:
            part = listing.parts[name]
            decoded = self.read(part.files, True, watch)
            skipped += [(part.files[i], why) for i, why in decoded.problems.items()]
            x.append(decoded.pixels)
            y.append(part.labels[decoded.readable])
            files += [part.files[i] for i in decoded.readable]
        if not files:
            raise ImagesError(f"None of the images in {listing.folder} can be read.")
        pixels = x[0] if len(x) == 1 else np.concatenate(x)
        return Images(pixels, np.concatenate(y), tuple(files)), skipped


def _is_shape(shape: Any) -> bool:
    return isinstance(shape, tuple) and all(
        isinstance(size, (int, type(None))) for size in shape
    )


def _names(noted: Any, count: int, name: str) -> tuple[str, ...]:
    if noted is None:
        return tuple(str(number) for number in range(count))
    if not isinstance(noted, list) or not all(isinstance(text, str) for text in noted):
        raise ImagesError(f"{name} notes class names that are not a list of names.")
    if len(noted) != count:
        raise ImagesError(f"{name} notes {len(noted)} class names for {count} classes.")
    return tuple(noted)
