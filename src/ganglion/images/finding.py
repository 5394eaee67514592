"""The images of a folder, their classes, and the choice of those held out for tests."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from ganglion.random import shuffled
from ganglion.system.records import record

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif")
WHOLE, TRAIN, VALIDATION, TEST = "all", "train", "validation", "test"
_PART_NAMES = {
    "train": TRAIN,
    "training": TRAIN,
    "val": VALIDATION,
    "valid": VALIDATION,
    "validation": VALIDATION,
    "test": TEST,
    "testing": TEST,
}


class ImagesError(ValueError):
    """A folder that cannot be trained on; the text says why, and what to do."""


@record(guarded=True)
class Part:
    """Files with the number of the class of each."""

    files: tuple[Path, ...]
    labels: np.ndarray


@record(guarded=True)
class Listing:
    """The images of a folder: a single part ("all"), or the parts of its subfolders."""

    folder: Path
    classes: tuple[str, ...]
    parts: dict[str, Part]
    others: int = 0  # files that are no images by their names

    @property
    def is_split(self) -> bool:
        """Whether the folder itself defines what to train and what to test on."""
        return WHOLE not in self.parts

    def count(self) -> int:
        """Return the number of images."""
        return sum(len(part.files) for part in self.parts.values())


def find(folder: str | os.PathLike[str], known: Sequence[str] = ()) -> Listing:
    """List the images of a folder by class.

    Args:
        folder: Holds a folder a class, or `train/`, `test/` (and `validation/`).
        known: The classes of a model: others are refused, and some may be missing.
    """
    root = Path(folder).expanduser()
    if not root.exists():
        raise ImagesError(f"There is no folder {root}.")
    if not root.is_dir():
        raise ImagesError(f"{root} is a file: give a folder with a folder a class.")
    inside = _subfolders(root)
    parts = {_PART_NAMES.get(path.name.lower(), ""): path for path in inside}
    is_split = len(parts) == len(inside) and "" not in parts and TRAIN in parts
    # A train may be a class, too: its folder has images, not folders.
    if not is_split or not _subfolders(parts[TRAIN]):
        parts = {WHOLE: root}
    files: dict[str, dict[str, list[Path]]] = {}
    others = 0
    for part, path in parts.items():
        named = {subfolder.name: subfolder for subfolder in _subfolders(path)}
        check_case(path, named)
        contents = {name: images_in(subfolder) for name, subfolder in named.items()}
        others += sum(count for _, count in contents.values())
        files[part] = {name: images for name, (images, _) in contents.items()}
        _check_some(path, files[part])
    base = WHOLE if WHOLE in parts else TRAIN
    _check_each(parts[base], files[base])
    classes = _classes(parts[base], files[base], known)
    for part, path in parts.items():
        _check_known(path, files[part], classes)
    listed = {part: _part(paths, classes) for part, paths in files.items()}
    return Listing(root, classes, listed, others)


def _subfolders(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.iterdir()
        if path.is_dir() and not path.name.startswith(".")
    )


def images_in(folder: Path) -> tuple[list[Path], int]:
    """Return the images below a folder, in order, and how many other files."""
    images, others = [], 0
    for parent, below, names in os.walk(folder):
        below[:] = sorted(name for name in below if not name.startswith("."))
        visible = sorted(name for name in names if not name.startswith("."))
        images += [Path(parent, name) for name in visible if is_image(name)]
        others += sum(not is_image(name) for name in visible)
    return images, others


def is_image(name: str) -> bool:
    """Return whether a file should be an image, by its ending.

    >>> is_image("Cat.JPG"), is_image("notes.txt")
    (True, False)
    """
    return name.lower().endswith(ENDINGS)


def check_case(folder: Path, names: Iterable[str]) -> None:
    """Refuse classes that some file systems, and most people, take for one."""
    counts = Counter(name.casefold() for name in names)
    twice = sorted(name for name in names if counts[name.casefold()] > 1)
    if twice:
        raise ImagesError(
            f"{folder}: the classes {', '.join(map(repr, twice))} differ only by case. "
            "If they are one class, put their files into one folder; if not, rename "
            "one of them."
        )


def _check_some(folder: Path, files: dict[str, list[Path]]) -> None:
    if any(files.values()):
        return
    loose = [p for p in folder.iterdir() if p.is_file() and is_image(p.name)]
    if loose and not files:
        raise ImagesError(
            f"{folder} holds {len(loose)} images, but no folders: put the images of "
            "each class into a folder that has the name of the class."
        )
    raise ImagesError(
        f"{folder} holds no images: a folder a class was expected, with files that end "
        f"in {', '.join(ENDINGS)}."
    )


def _check_each(folder: Path, files: dict[str, list[Path]]) -> None:
    empty = sorted(name for name, images in files.items() if not images)
    if empty:
        raise ImagesError(
            f"{folder}: no images in the folder of the class "
            f"{', '.join(map(repr, empty))}. Put some in, or remove the folder."
        )


def _classes(
    folder: Path, files: dict[str, list[Path]], known: Sequence[str]
) -> tuple[str, ...]:
    if known:
        _check_known(folder, files, known)
        return tuple(known)
    if len(files) == 1:
        raise ImagesError(
            f"{folder} holds images of one class only, {next(iter(files))!r}: learning "
            "to tell classes apart takes two or more."
        )
    return tuple(sorted(files))


def _check_known(folder: Path, names: Iterable[str], known: Sequence[str]) -> None:
    strange = sorted(set(names) - set(known))
    if strange:
        raise ImagesError(
            f"{folder} has the class {', '.join(map(repr, strange))}, which is not "
            f"among those to tell apart: {', '.join(known)}."
        )


def _part(files: dict[str, list[Path]], classes: Sequence[str]) -> Part:
    pairs = [
        (path, i) for i, name in enumerate(classes) for path in files.get(name, [])
    ]
    return Part(tuple(p for p, _ in pairs), np.array([i for _, i in pairs], "int32"))


def stratified(
    labels: np.ndarray, count: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows to keep and ``count`` rows to hold out, each class its share.

    >>> train, test = stratified(np.array([0, 0, 0, 0, 1, 1]), 3)
    >>> sorted(np.array([0, 0, 0, 0, 1, 1])[test].tolist())
    [0, 0, 1]
    >>> sorted([*train.tolist(), *test.tolist()])
    [0, 1, 2, 3, 4, 5]
    """
    labels = np.asarray(labels)
    classes, sizes = np.unique(labels, return_counts=True)
    most = int((sizes - 1).sum())  # of every class one stays to learn from
    if not 0 <= count <= most:
        raise ImagesError(
            f"{count} of {len(labels)} images cannot be held out: of each of the "
            f"{len(classes)} classes one must stay to learn from, so at most {most}."
        )
    chosen: list[int] = []
    for label, share in zip(classes, _shares(sizes, count), strict=True):
        rows = np.flatnonzero(labels == label)
        order = shuffled(seed, int(label), len(rows))
        chosen += rows[order[:share]].tolist()
    test = np.array(sorted(chosen), dtype="int64")
    return np.setdiff1d(np.arange(len(labels)), test), test


def _shares(sizes: np.ndarray, count: int) -> list[int]:
    """Return how many of each class: in proportion, at least one where there is room.

    >>> _shares(np.array([90, 9, 9]), 12), _shares(np.array([2, 1, 1]), 1)
    ([10, 1, 1], [1, 0, 0])
    """
    room = sizes - 1
    exact = sizes * (count / sizes.sum())
    shares = np.minimum(np.floor(exact).astype(int), room)
    if count >= len(sizes):
        shares = np.maximum(shares, np.minimum(1, room))
    while shares.sum() != count:  # the largest remainders first
        step = 1 if shares.sum() < count else -1
        gap = step * (exact - shares)
        bound = shares >= room if step > 0 else shares <= 1
        shares[int(np.argmax(np.where(bound, -np.inf, gap)))] += step
    return [int(share) for share in shares]
