"""Folders of images as recipes: a network for the size of the data, and the split.

A recipe of this kind has the data set "images" and says in `source` which folder is
meant and how it is read; without a folder, one is made of CIFAR-10's photographs.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ganglion import files
from ganglion.images import Form, ImageFolder, ImagesError, load
from ganglion.images.decoding import pillow
from ganglion.system.terminal import printable

if TYPE_CHECKING:
    from ganglion.recipes import LayerSpec, Recipe

DATASET = "images"
NAME = "image-folder"
SMALLEST_MAP = 8  # pooling ends here: the rest is averaged
FIRST_FILTERS, MOST_FILTERS = 32, 256
DEEPER_FROM = 2000  # images, from which two convolutions a block pay
# Images up to which a batch size holds: with few, an epoch has more steps.
BATCHES = ((60, 8), (400, 16), (2_000, 32), (20_000, 64))
LARGEST_BATCH = 128
RACE_EPOCHS = 20
RATE = 0.05  # lowered when it no longer helps; for batches of
RATE_BATCH = 32  # and more: smaller ones are noisier
RACE_RATE = 0.005  # constant, so low enough for the end
NAMED = 10  # unreadable files, at most
# A small folder for a first try: photographs of CIFAR-10.
CIFAR_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog",
                 "horse", "ship", "truck")  # fmt: skip
FASHION_CLASSES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal",
                   "shirt", "sneaker", "bag", "ankle boot")  # fmt: skip
CIFAR_CHOSEN = ("airplane", "automobile", "bird", "cat", "horse", "ship")
CIFAR_EACH, CIFAR_HELD_OUT = 132, 192
_THEIRS = "author's own images"
PUBLISHED = (  # system, accuracy, time
    (f"Keras, {_THEIRS}", 0.9518, "7 min 16 s"),
    (f"PyTorch, {_THEIRS}", 0.9857, "27 min 10 s"),
    (f"PyTorch optimised, {_THEIRS}", 0.9818, "12 min 2 s"),
)


def class_names(model: Any, count: int, data: str | None = None) -> list[str]:
    """Return the names of classes: of a model's file or its data set, else numbers.

    Args:
        model: Has the names in its notes, or the name of a recipe or data set.
        count: How many classes there are; names of another number are not theirs.
        data: The data set of the images, where it is known.
    """
    by_data = {"cifar10": CIFAR_CLASSES, "fashion_mnist": FASHION_CLASSES}
    known = by_data.get(data or model.name)
    if model.name == "cifar10-cam":  # the published model, on other images
        known = known or CIFAR_CLASSES
    for names in (model.notes.get("class_names"), known):
        if isinstance(names, (list, tuple)) and len(names) == count:
            return [str(name) for name in names]
    return [str(number) for number in range(count)]


def network(shape: tuple[int, ...], classes: int, images: int) -> tuple[LayerSpec, ...]:
    """Return a small network with batch normalisation for so many images.

    >>> [kind for kind, _ in network((32, 32, 3), 6, 600)][:4]
    ['Rescaling', 'Conv2D', 'BatchNormalization', 'Activation']
    >>> len(network((128, 128, 3), 2, 600)) > len(network((32, 32, 3), 2, 600))
    True
    """
    stack: list[LayerSpec] = [("Rescaling", {"scale": 1 / 255})]
    filters, side = FIRST_FILTERS, min(shape[:2])
    while True:
        for _ in range(2 if images >= DEEPER_FROM else 1):
            stack += _convolution(filters)
        if side // 2 < SMALLEST_MAP:
            break
        stack.append(("MaxPooling2D", {"pool_size": 2}))
        filters, side = min(2 * filters, MOST_FILTERS), side // 2
    stack.append(("GlobalAveragePooling2D", {}))
    stack.append(("Dense", {"units": classes, "activation": "softmax"}))
    return tuple(stack)


# A mirrored photograph is a photograph; a mirrored letter is not: `--no-augment`.
_AUGMENTATION: tuple[LayerSpec, ...] = (
    ("RandomFlip", {"mode": "horizontal"}),
    (
        "RandomTranslation",
        {"height_factor": 0.1, "width_factor": 0.1, "fill_mode": "nearest"},
    ),
)


def _convolution(filters: int) -> list[LayerSpec]:
    shape = {"filters": filters, "kernel_size": 3, "padding": "same"}
    return [
        ("Conv2D", shape | {"kernel_initializer": "he_normal"}),
        # An epoch of some hundred images is a few steps: averages must follow sooner.
        ("BatchNormalization", {"momentum": 0.9}),
        ("Activation", {"activation": "relu"}),
    ]


def optimizer(rate: float) -> tuple[str, dict[str, Any]]:
    """Return the optimizer for a learning rate."""
    return "SGD", {"learning_rate": rate, "momentum": 0.9, "nesterov": True}


def batch_size(images: int) -> int:
    """Return how many images to take a step.

    >>> batch_size(600), batch_size(10_000), batch_size(50_000)
    (32, 64, 128)
    """
    return next((size for most, size in BATCHES if images <= most), LARGEST_BATCH)


def first_rate(images: int) -> float:
    """Return the learning rate to begin with.

    >>> first_rate(600), first_rate(100)
    (0.05, 0.025)
    """
    return RATE * min(1, batch_size(images) / RATE_BATCH)


def recipe_of(
    data: ImageFolder,
    source: dict[str, Any] | None = None,
    *,
    augmented: bool = False,
    rate: float = RACE_RATE,
) -> Recipe:
    """Return the recipe for images that were read; `source` says from where."""
    from ganglion.recipes import Published, Recipe, build

    count, shape = len(data.train), data.form.shape
    recipe = Recipe(
        name=NAME,
        title=_title(data),
        dataset=DATASET,
        input_shape=shape,
        layers=network(shape, len(data.classes), count),
        augment=_AUGMENTATION if augmented else (),
        loss="sparse_categorical_crossentropy",
        optimizer=optimizer(rate),
        epochs=RACE_EPOCHS,
        parameters=0,
        published=tuple(Published(*row) for row in PUBLISHED),
        batch_size=batch_size(count),
        classes=len(data.classes),
        source=source or {},
    )
    return replace(recipe, parameters=build(recipe).count_params())


def _title(data: ImageFolder) -> str:
    rows, columns = data.form.size
    color = "grey" if data.form.color == "grayscale" else "colour"
    return (
        f"{data.folder.name}: {len(data.classes)} classes, {rows}×{columns} {color}, "
        f"{data.counts()}"
    )


def of_folder(
    folder: str | os.PathLike[str],
    *,
    size: int | tuple[int, int] | None = None,
    test: float | None = None,
    fit: str = "crop",
    watch: Any = None,
) -> Recipe:
    """Return the recipe to race on a folder: the same pixels and split for everyone."""
    data = load(folder, size=size, test=test, fit=fit, watch=watch)
    if data.test is None:
        raise ImagesError(
            f"{data.folder} leaves nothing to test on: hold some images out (--test N)."
        )
    source = {
        "folder": str(Path(folder).expanduser().absolute()),
        "test": test,
        "form": data.form.as_data(),
        "fingerprint": data.fingerprint,
    }
    return recipe_of(data, source)


def of_source(source: dict[str, Any]) -> Recipe:
    """Return the recipe of a resumed race; refuse a folder that has changed."""
    return recipe_of(read_source(source), source)


Arrays = tuple[np.ndarray, np.ndarray]


def arrays(recipe: Recipe) -> tuple[Arrays, Arrays, str | None]:
    """Return (x, y) to train on, the same to test on, and which files were left out."""
    data = read_source(recipe.source)
    assert data.test is not None
    remark = skipped_text(data.folder, data.skipped) or None
    return (data.train.x, data.train.y), (data.test.x, data.test.y), remark


def read_source(source: dict[str, Any]) -> ImageFolder:
    """Read the folder of a recipe again; refuse one that has changed."""
    if "form" not in source:
        raise ImagesError("Nothing was kept of how the images were read: start anew.")
    form = Form.from_data(source["form"])
    data = load(
        source.get("folder") or cifar_folder(),
        size=form.size,
        color=form.color,
        fit=form.fit,
        test=source.get("test"),
    )
    if data.fingerprint != source.get("fingerprint", data.fingerprint):
        raise ImagesError(
            f"The images in {data.folder} are not the same as before: start anew."
        )
    return data


def cifar_folder(
    folder: Path | None = None,
    classes: tuple[str, ...] = CIFAR_CHOSEN,
    each: int = CIFAR_EACH,
) -> Path:
    """Return a folder of CIFAR-10's photographs as PNG files, a folder a class.

    It is made on first use, beside the data sets, and renamed when it is complete.

    >>> cifar_folder().name  # doctest: +SKIP
    'image-folder'
    """
    from ganglion.datasets import cifar10, loading

    folder = loading.folder() / NAME if folder is None else folder
    names = [f"{number:04}.png" for number in range(each)]
    if all(
        (folder / name).is_dir() and sorted(os.listdir(folder / name)) == names
        for name in classes
    ):
        return folder
    image_module = pillow()
    (x, y), _ = cifar10.load_data()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with files.new_folder(folder, durable=False) as part:
        for name in classes:
            (part / name).mkdir()
            rows = np.flatnonzero(y.reshape(-1) == CIFAR_CLASSES.index(name))[:each]
            for file_name, pixels in zip(names, x[rows], strict=False):
                image_module.fromarray(pixels).save(part / name / file_name)
    return folder


def skipped_text(folder: Path, skipped: Sequence[tuple[Path, str]]) -> str:
    """Return which files of a folder were left out and why, "" if none were."""
    if not skipped:
        return ""
    count = len(skipped)
    names = [(path.relative_to(folder.expanduser()), why) for path, why in skipped]
    each = [f"{printable(path.as_posix())} ({why})" for path, why in names[:NAMED]]
    more = f"; and {count - NAMED} more" if count > NAMED else ""
    files = "1 file is" if count == 1 else f"{count} files are"
    return f"{files} left out, unreadable: {'; '.join(each)}{more}."
