"""Class activation maps of many images as files: a folder a class, and its sheet.

Everything is drawn into a hidden folder beside its place and renamed at the end, so
that Ctrl-C and a full disk leave nothing behind.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ganglion import files
from ganglion.datasets import png
from ganglion.explain.maps import ActivationMaps, class_activation_map
from ganglion.explain.pictures import contact_sheet, overlay
from ganglion.images.loading import batch_for

LEAST_SIDE = 96  # pixels; smaller pictures are enlarged
ON_A_SHEET = 48
INDEX = "index.csv"
_FAST = 1  # of zlib: a fifth larger than the best, ten times as fast

Watch = Callable[[int, int], None]


@dataclass(frozen=True)
class Pictures:
    """Images with the names of their files, and their classes where these are known."""

    pixels: np.ndarray  # (images, height, width, channels), as for `predict`
    names: Sequence[str]  # without an ending
    labels: np.ndarray | None = None


@dataclass(frozen=True)
class Gallery:
    """The contents of a gallery: a row an image, in the order of the images."""

    paths: list[str]  # below its folder
    predicted: np.ndarray
    classes: np.ndarray  # that the maps are of
    scores: np.ndarray
    method: str
    layer: str


def write_gallery(
    model: Any,
    pictures: Pictures,
    out: str | os.PathLike[str],
    classes: Sequence[str],
    *,
    class_index: int | None = None,
    watch: Watch | None = None,
    **settings: Any,
) -> Gallery:
    """Write a PNG for each image under its predicted class, and a sheet for each class.

    Maps are computed and drawn a batch at a time, so that memory does not grow with the
    number of images.

    Args:
        model: The model.
        pictures: The images.
        out: A new folder.
        classes: The name of each class.
        class_index: The class to draw the map of; by default the predicted one.
        watch: Called with the pictures drawn and their number.
        **settings: More for `class_activation_map`.
    """
    folder = free_folder(out)
    folders = folder_names(classes)
    with files.new_folder(folder, durable=False) as part, _writer() as write:
        batches = []
        taken: set[str] = set()
        for rows, result in _each_batch(model, pictures.pixels, class_index, settings):
            pixels = pictures.pixels[rows]
            predicted = predicted_classes(result.scores)
            paths = [
                _free_path(f"{folders[number]}/{name}", taken)
                for number, name in zip(predicted, pictures.names[rows], strict=True)
            ]
            drawn = overlay(pixels, result.maps, scale_for(pixels))
            write([part / path for path in paths], drawn)
            batches.append(Gallery(paths, predicted, *result[1:]))
            if watch is not None:
                watch(rows.start + len(paths), len(pictures.names))
        gallery = _joined(batches)
        _write_sheets(part, pictures, gallery, folders)
        _write_index(part / INDEX, pictures, gallery, classes)
    return gallery


def _each_batch(
    model: Any, pixels: np.ndarray, class_index: int | None, settings: dict[str, Any]
) -> Iterator[tuple[slice, ActivationMaps]]:
    """Compute the maps of some images after the other, at the size of the features."""
    total = len(pixels)
    size = batch_for(pixels.shape[1:3], total)
    for at in range(0, total, size):
        # The last batch is filled up: another size would be compiled again.
        x = pixels[np.minimum(np.arange(at, at + size), total - 1)]
        maps, classes, scores, method, layer = class_activation_map(
            model, x, class_index, size="features", batch_size=size, **settings
        )
        rows = slice(at, min(at + size, total))
        n = rows.stop - at
        yield rows, ActivationMaps(maps[:n], classes[:n], scores[:n], method, layer)


def _joined(parts: list[Gallery]) -> Gallery:
    return Gallery(
        [path for part in parts for path in part.paths],
        np.concatenate([part.predicted for part in parts]),
        np.concatenate([part.classes for part in parts]),
        np.concatenate([part.scores for part in parts]),
        parts[0].method,
        parts[0].layer,
    )


def free_folder(out: str | os.PathLike[str]) -> Path:
    """Return the path of a new folder; refuse one that holds something."""
    folder = Path(out).expanduser().absolute()
    if not folder.parent.is_dir():
        raise FileNotFoundError(
            f"There is no folder {folder.parent} to write {out} into."
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(
            f"{out} holds something already: name another folder (--out), or remove it."
        )
    return folder


def predicted_classes(scores: np.ndarray) -> np.ndarray:
    """Return the most likely class of each row; a single unit means class 0 or 1."""
    if scores.shape[1] == 1:
        return (scores[:, 0] > 0.5).astype(int)
    return scores.argmax(axis=1)


def folder_names(classes: Sequence[str]) -> list[str]:
    """Return a folder's name for each class: whatever a class is called, it is safe.

    >>> folder_names(["cat", "../dog", "Cat", ""])
    ['cat', '_dog', 'Cat-2', 'class-3']
    """
    folders: list[str] = []
    seen: set[str] = set()
    for number, name in enumerate(classes):
        safe = re.sub(r"[^\w ()+-]+", "_", str(name)).strip()[:80] or f"class-{number}"
        if safe.lower() in seen:
            safe = f"{safe}-{number}"
        seen.add(safe.lower())
        folders.append(safe)
    return folders


def _free_path(stem: str, taken: set[str]) -> str:
    """Return a path that is not taken yet; some disks take cat and Cat for one."""
    path, count = f"{stem}.png", 1
    while path.lower() in taken:
        count += 1
        path = f"{stem}-{count}.png"
    taken.add(path.lower())
    return path


def scale_for(pixels: np.ndarray) -> int:
    """Return how many times to enlarge, so that a map can be seen."""
    return max(1, -(-LEAST_SIDE // min(pixels.shape[1:3])))


@contextmanager
def _writer() -> Iterator[Callable[[list[Path], np.ndarray], None]]:
    """Give what writes pictures to paths, side by side."""

    def write_one(path: Path, image: np.ndarray) -> None:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(png.encode(image, _FAST))  # in a folder yet to be renamed

    def write(paths: list[Path], images: np.ndarray) -> None:
        for _ in pool.map(write_one, paths, images):
            pass  # an error of one is raised here

    pool = ThreadPoolExecutor(os.cpu_count() or 1)  # zlib and files leave Python alone
    try:
        yield write
    finally:
        pool.shutdown(cancel_futures=True)


def _spread(rows: np.ndarray, most: int) -> np.ndarray:
    """Return some rows from all over, in order: the first ones may be alike."""
    if len(rows) <= most:
        return rows
    return rows[np.linspace(0, len(rows) - 1, most).round().astype(int)]


def _write_sheets(
    part: Path, pictures: Pictures, gallery: Gallery, folders: Sequence[str]
) -> None:
    """Draw a sheet a class, of the pictures that were written."""
    for number in np.unique(gallery.predicted):
        rows = _spread(np.flatnonzero(gallery.predicted == number), ON_A_SHEET)
        paths = [part / gallery.paths[row] for row in rows]
        drawn = np.stack([png.decode(path.read_bytes()) for path in paths])
        labels = pictures.labels
        is_wrong = None if labels is None else labels[rows] != number
        sheet = contact_sheet(pictures.pixels[rows], drawn, is_wrong=is_wrong)
        (part / f"{folders[number]}.png").write_bytes(png.encode(sheet))


def _write_index(
    path: Path, pictures: Pictures, gallery: Gallery, classes: Sequence[str]
) -> None:
    """Write an index of what each file shows."""
    best, labels = gallery.scores.max(axis=1), pictures.labels
    if gallery.scores.shape[1] == 1:
        best = np.where(gallery.predicted == 1, best, 1 - best)
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        extra = [] if labels is None else ["class"]
        table.writerow(["file", "predicted", "score", "map of", *extra])
        for row, name in enumerate(gallery.paths):
            numbers = [gallery.predicted[row], gallery.classes[row]]
            numbers += [] if labels is None else [labels[row]]
            predicted, *others = (classes[number] for number in numbers)
            table.writerow([name, predicted, f"{best[row]:.4f}", *others])
