"""A small folder of images where there is none at hand: photographs of CIFAR-10."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from ganglion import files
from ganglion.images.decoding import pillow

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse",
           "ship", "truck")  # fmt: skip
CHOSEN = ("airplane", "automobile", "bird", "cat", "horse", "ship")
EACH = 132
HELD_OUT = 192
NAME = "image-folder"


def cifar_folder(
    place: Path | None = None,
    classes: tuple[str, ...] = CHOSEN,
    each: int = EACH,
) -> Path:
    """Return a folder of CIFAR-10's photographs as PNG files, a folder a class.

    It is made on first use, beside the data sets, and renamed when it is whole.

    >>> cifar_folder().name  # doctest: +SKIP
    'image-folder'
    """
    from ganglion.datasets import cache, cifar10

    place = cache.folder() / NAME if place is None else place
    if _is_whole(place, classes, each):
        return place
    pillow()
    (x, y), _ = cifar10.load_data()
    place.parent.mkdir(parents=True, exist_ok=True)
    with files.new_folder(place, durable=False) as part:
        for name in classes:
            rows = np.flatnonzero(y.reshape(-1) == CLASSES.index(name))[:each]
            _write_class(part / name, x[rows])
    return place


def _is_whole(place: Path, classes: tuple[str, ...], each: int) -> bool:
    wanted = [f"{number:04}.png" for number in range(each)]
    return all(
        (place / name).is_dir() and sorted(os.listdir(place / name)) == wanted
        for name in classes
    )


def _write_class(folder: Path, pixels: np.ndarray) -> None:
    folder.mkdir()
    for number, one in enumerate(pixels):
        pillow().fromarray(one).save(folder / f"{number:04}.png")
