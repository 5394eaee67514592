"""Training on a folder of images, and asking the model that comes of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ganglion import recipes
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
from ganglion.images.batches import batch_for
from ganglion.images.cache import Decoded
from ganglion.images.decoding import MODES
from ganglion.images.finding import TEST, WHOLE
from ganglion.images.judging import BestKeeper, Judge, Patience
from ganglion.images.loading import fingerprint, held_out

EPOCHS = 100  # at most: early stopping ends it
STEPS = 2000  # at most, where that many are more epochs
VALIDATION = 0.15
Skipped = tuple[Path, str]  # a file that cannot be read, and why


def new_model(held: ImageFolder, augmented: bool = True) -> Any:
    """Return a network for the images, which knows their classes."""
    rate = networks.first_rate(len(held.train))
    recipe = networks.recipe_of(held, augmented=augmented, rate=rate)
    model = recipes.build(recipe)
    remember(model, held)
    return model


def remember(model: Any, held: ImageFolder, **more: Any) -> None:
    """Note in a model what `predict` and `evaluate` need to know."""
    model.notes = model.notes | {
        "class_names": list(held.classes),
        "images": held.form.as_data(),
        "folder": {"fingerprint": held.fingerprint, **more},
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


def fit(
    model: Any,
    held: ImageFolder,
    *,
    epochs: int,
    batch_size: int,
    save: Path | None = None,
    more: Sequence[Any] = (),
    verbose: int = 1,
) -> BestKeeper:
    """Train with early stopping; the model ends with the weights of its best epoch.

    A model that was loaded goes on with the run that it is of, as if it had not been
    interrupted. Ctrl-C writes the file before it is raised again.
    """
    first = int(model.training_state.epoch.array)
    validation = None
    keeper = BestKeeper("loss", save)
    if held.validation is not None:
        validation = (held.validation.x, held.validation.y)
        patience = Patience.of(steps_of(len(held.train), batch_size))
        keeper = Judge(patience, len(held.classes), save)
        if first and model.training_state.saved_callbacks is None:
            keeper.begin(evaluated(model, held.validation), model)
    try:
        model.fit(
            held.train.x,
            held.train.y,
            batch_size=min(batch_size, len(held.train)),
            epochs=epochs,
            initial_epoch=first,
            validation_data=validation,
            validation_batch_size=batch_for(
                held.form.size, len(held.validation or held.train)
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
    found = model.evaluate(
        images.x, images.y, batch_size=size, verbose=0, return_dict=True
    )
    return dict(found)


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
            raise ImagesError(f"{name} takes {shape}, which is no image.")
        if not _is_shape(out) or len(out) != 2:
            raise ImagesError(f"{name} gives {out}, which is no class.")
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
        shape = self.model.input_shape
        x = x.reshape(len(x), *shape[1:])
        size = batch_for(self.form.size, len(x))
        made = self.model.predict(x, batch_size=size, verbose=0)
        if made.shape[1] == 1:  # one output of yes or no
            return np.concatenate([1 - made, made], axis=1)
        if np.allclose(made.sum(axis=1), 1, atol=1e-3) and made.min() >= 0:
            return made
        powers = np.exp(made - made.max(axis=1, keepdims=True))  # they were logits
        return powers / powers.sum(axis=1, keepdims=True)

    def read(self, files: Sequence[Path], keep: bool, watch: Any = None) -> Decoded:
        """Decode files as the model was trained to see them."""
        return read_files(files, self.form, watch, keep)

    def images_to_test(
        self, folder: Path, everything: bool = False, watch: Any = None
    ) -> tuple[Images, str, list[Skipped]]:
        """Return the images of a folder to test on, which they are, and what was not.

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
        same = names == [WHOLE] and noted.get("fingerprint") == fingerprint(listing)
        count = held_out(noted.get("test"), len(part)) if same else 0
        if everything or not count:
            return part, "all images", skipped
        _, rows = stratified(part.y, count)
        held = Images(part.x[rows], part.y[rows], tuple(part.files[i] for i in rows))
        return held, "the images held out from its training", skipped

    def _read_parts(
        self, listing: Listing, names: list[str], watch: Any
    ) -> tuple[Images, list[Skipped]]:
        x: list[np.ndarray] = []
        y: list[np.ndarray] = []
        files: list[Path] = []
        skipped: list[Skipped] = []
        for name in names:
            part = listing.parts[name]
            decoded = self.read(part.files, True, watch)
            skipped += [(part.files[i], why) for i, why in decoded.problems.items()]
            x.append(decoded.pixels)
            y.append(part.labels[decoded.kept])
            files += [part.files[i] for i in decoded.kept]
        if not files:
            raise ImagesError(f"None of the images in {listing.folder} can be read.")
        pixels = x[0] if len(x) == 1 else np.concatenate(x)
        return Images(pixels, np.concatenate(y), tuple(files)), skipped


def _is_shape(shape: Any) -> bool:
    return isinstance(shape, tuple) and all(
        one is None or isinstance(one, int) for one in shape
    )


def _names(noted: Any, count: int, name: str) -> tuple[str, ...]:
    if noted is None:
        return tuple(str(number) for number in range(count))
    if not isinstance(noted, list) or not all(isinstance(one, str) for one in noted):
        raise ImagesError(f"{name} notes class names that are no list of names.")
    if len(noted) != count:
        raise ImagesError(f"{name} notes {len(noted)} class names for {count} classes.")
    return tuple(noted)
