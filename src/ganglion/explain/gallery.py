"""Class activation maps of many images as files: a folder a class, and its sheet.

Everything is drawn into a hidden folder beside its place and renamed at the end, so
that Ctrl-C and a full disk leave nothing behind.
"""

from __future__ import annotations

import csv
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ganglion.explain.maps import ActivationMaps, class_activation_map
from ganglion.explain.pictures import contact_sheet, overlay
from ganglion.explain.png import png_bytes

LEAST_SIDE = 96  # pixels; smaller pictures are enlarged
ON_A_SHEET = 48
INDEX = "index.csv"
_CHUNK = 200  # pictures drawn at a time
_FAST = 1  # of zlib: a fifth larger than the best, ten times as fast

Watch = Callable[[int, int], None]


@dataclass(frozen=True)
class Pictures:
    """Images with the names of their files, and their classes where these are known."""

    pixels: np.ndarray  # (images, height, width, channels), as for `predict`
    names: Sequence[str]  # without an ending
    labels: np.ndarray | None = None


def write_gallery(
    model: Any,
    pictures: Pictures,
    out: str | os.PathLike[str],
    classes: Sequence[str],
    *,
    class_index: int | None = None,
    watch: Watch | None = None,
    verbose: Any = 0,
    **settings: Any,
) -> ActivationMaps:
    """Write a PNG for each image under its predicted class, and a sheet for each class.

    Args:
        model: The model.
        pictures: The images.
        out: A new folder.
        classes: The name of each class.
        class_index: The class to draw the map of; by default the predicted one.
        watch: Called with the pictures drawn and their number.
        verbose: Whether to show the progress of computing.
        **settings: More for `class_activation_map`.
    """
    place = free_folder(out)
    found = class_activation_map(
        model,
        pictures.pixels,
        class_index,
        size="features",
        verbose=verbose,
        **settings,
    )
    predicted = predicted_classes(found.scores)
    folders = folder_names(classes)
    with _new_folder(place) as part:
        paths = _paths(predicted, folders, pictures.names)
        for name in {one.split("/")[0] for one in paths}:
            (part / name).mkdir()
        _draw(part, paths, pictures.pixels, found.maps, watch)
        for number in np.unique(predicted):
            rows = _spread(np.flatnonzero(predicted == number), ON_A_SHEET)
            _sheet(
                part / f"{folders[number]}.png", pictures, found.maps, predicted, rows
            )
        _index(part / INDEX, paths, pictures, found, classes)
    return found


def free_folder(out: str | os.PathLike[str]) -> Path:
    """Return the place of a new folder; refuse one that holds something."""
    place = Path(out).expanduser().absolute()
    if not place.parent.is_dir():
        raise FileNotFoundError(
            f"There is no folder {place.parent} to write {out} into."
        )
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise FileExistsError(
            f"{out} holds something already: name another folder (--out), or remove it."
        )
    return place


@contextmanager
def _new_folder(place: Path) -> Iterator[Path]:
    part = Path(
        tempfile.mkdtemp(dir=place.parent, prefix=f".{place.name}.", suffix=".part")
    )
    try:
        part.chmod(0o755)
        yield part
        os.replace(part, place)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def predicted_classes(scores: np.ndarray) -> np.ndarray:
    """Return the most likely class of each row; one unit tells 0 from 1."""
    if scores.shape[1] == 1:
        return (scores[:, 0] > 0.5).astype(int)
    return scores.argmax(axis=1)


def folder_names(classes: Sequence[str]) -> list[str]:
    """Return a folder's name for each class: whatever a class is called, it is safe.

    >>> folder_names(["cat", "../dog", "Cat", ""])
    ['cat', '_dog', 'Cat-2', 'class-3']
    """
    made: list[str] = []
    seen: set[str] = set()
    for number, name in enumerate(classes):
        safe = re.sub(r"[^\w ()+-]+", "_", str(name)).strip()[:80] or f"class-{number}"
        if safe.lower() in seen:
            safe = f"{safe}-{number}"
        seen.add(safe.lower())
        made.append(safe)
    return made


def _paths(
    predicted: np.ndarray, folders: list[str], names: Sequence[str]
) -> list[str]:
    """Return where each picture goes; equal names get a number."""
    seen: set[str] = set()
    made = []
    for number, name in zip(predicted, names, strict=True):
        stem = f"{folders[number]}/{name}"
        path, count = f"{stem}.png", 1
        while path.lower() in seen:
            count += 1
            path = f"{stem}-{count}.png"
        seen.add(path.lower())
        made.append(path)
    return made


def scale_for(pixels: np.ndarray) -> int:
    """Return how many times to enlarge, so that a map can be seen."""
    return max(1, -(-LEAST_SIDE // min(pixels.shape[1:3])))


def _draw(
    part: Path, paths: list[str], pixels: np.ndarray, maps: np.ndarray, watch: Any
) -> None:
    scale = scale_for(pixels)
    total = len(paths)

    def write(path: str, image: np.ndarray) -> None:
        (part / path).write_bytes(png_bytes(image, _FAST))

    pool = ThreadPoolExecutor(os.cpu_count() or 1)  # zlib and files leave Python alone
    try:
        for at in range(0, total, _CHUNK):
            rows = slice(at, at + _CHUNK)
            drawn = overlay(pixels[rows], maps[rows], scale)
            list(pool.map(write, paths[rows], drawn))
            if watch is not None:
                watch(min(at + _CHUNK, total), total)
    finally:
        pool.shutdown(cancel_futures=True)


def _spread(rows: np.ndarray, most: int) -> np.ndarray:
    """Return some rows from all over, in order: the first ones may be alike."""
    if len(rows) <= most:
        return rows
    return rows[np.linspace(0, len(rows) - 1, most).round().astype(int)]


def _sheet(
    path: Path,
    pictures: Pictures,
    maps: np.ndarray,
    predicted: np.ndarray,
    rows: np.ndarray,
) -> None:
    pixels = pictures.pixels[rows]
    drawn = overlay(pixels, maps[rows], scale_for(pixels))
    labels = pictures.labels
    is_wrong = None if labels is None else labels[rows] != predicted[rows]
    path.write_bytes(png_bytes(contact_sheet(pixels, drawn, is_wrong=is_wrong)))


def _index(
    path: Path,
    paths: list[str],
    pictures: Pictures,
    found: ActivationMaps,
    classes: Sequence[str],
) -> None:
    """Write what each file shows, for those who want to look further."""
    predicted = predicted_classes(found.scores)
    best = found.scores.max(axis=1)
    if found.scores.shape[1] == 1:
        best = np.where(predicted == 1, best, 1 - best)
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        extra = [] if pictures.labels is None else ["class"]
        table.writerow(["file", "predicted", "score", "map of", *extra])
        for row, name in enumerate(paths):
            told = [name, classes[predicted[row]], f"{best[row]:.4f}"]
            told.append(classes[found.classes[row]])
            if pictures.labels is not None:
                told.append(classes[pictures.labels[row]])
            table.writerow(told)
