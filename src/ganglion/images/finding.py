"""Which images a folder holds, and of which classes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ganglion.images.errors import ImagesError

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


@dataclass(frozen=True)
class Part:
    """Files with the number of the class of each."""

    files: tuple[Path, ...]
    labels: np.ndarray


@dataclass(frozen=True)
class Listing:
    """What was found: one part ("all"), or those that the folders say."""

    folder: Path
    classes: tuple[str, ...]
    parts: dict[str, Part]
    others: int = 0  # files that are no images by their names

    @property
    def is_split(self) -> bool:
        """Whether the folder itself says what to train and what to test on."""
        return WHOLE not in self.parts

    def count(self) -> int:
        """Return the number of images."""
        return sum(len(one.files) for one in self.parts.values())


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
    parts = {_PART_NAMES.get(one.name.lower(), ""): one for one in inside}
    whole = len(parts) == len(inside) and "" not in parts
    # A train may be a class, too: its folder has images, not folders.
    if whole and TRAIN in parts and _subfolders(parts[TRAIN]):
        return _split(root, parts, known)
    named = {one.name: one for one in inside}
    check_case(root, named)
    found = {name: images_in(one) for name, one in named.items()}
    others = sum(count for _, count in found.values())
    files = {name: images for name, (images, _) in found.items()}
    _check_some(root, files)
    _check_each(root, files)
    classes = _classes(root, files, known)
    return Listing(root, classes, {WHOLE: _part(files, classes)}, others)


def _split(root: Path, folders: dict[str, Path], known: Sequence[str]) -> Listing:
    files: dict[str, dict[str, list[Path]]] = {}
    others = 0
    for part, folder in folders.items():
        named = {one.name: one for one in _subfolders(folder)}
        check_case(folder, named)
        found = {name: images_in(one) for name, one in named.items()}
        others += sum(count for _, count in found.values())
        files[part] = {name: images for name, (images, _) in found.items()}
        _check_some(folder, files[part])
    _check_each(folders[TRAIN], files[TRAIN])
    classes = _classes(folders[TRAIN], files[TRAIN], known)
    for part, folder in folders.items():
        _check_known(folder, files[part], classes)
    parts = {part: _part(one, classes) for part, one in files.items()}
    return Listing(root, classes, parts, others)


def _subfolders(folder: Path) -> list[Path]:
    found = [one for one in folder.iterdir() if one.is_dir()]
    return sorted(one for one in found if not one.name.startswith("."))


def images_in(folder: Path) -> tuple[list[Path], int]:
    """Return the images below a folder, in order, and how many other files."""
    images, others = [], 0
    for place, below, names in os.walk(folder):
        below[:] = sorted(one for one in below if not one.startswith("."))
        for name in sorted(names):
            if name.startswith("."):
                continue
            if is_image(name):
                images.append(Path(place, name))
            else:
                others += 1
    return images, others


def is_image(name: str) -> bool:
    """Tell by its ending whether a file should be an image.

    >>> is_image("Cat.JPG"), is_image("notes.txt")
    (True, False)
    """
    return name.lower().endswith(ENDINGS)


def check_case(folder: Path, names: Iterable[str]) -> None:
    """Refuse classes that some file systems, and most people, take for one."""
    alike = Counter(one.casefold() for one in names)
    twice = sorted(one for one in names if alike[one.casefold()] > 1)
    if twice:
        raise ImagesError(
            f"{folder}: the classes {', '.join(map(repr, twice))} differ only by case. "
            "If they are one class, put their images into one folder; if not, rename "
            "one of them."
        )


def _check_some(folder: Path, files: dict[str, list[Path]]) -> None:
    if any(files.values()):
        return
    loose = [one for one in folder.iterdir() if one.is_file() and is_image(one.name)]
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
    empty = sorted(name for name, found in files.items() if not found)
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


def _check_known(folder: Path, found: Iterable[str], known: Sequence[str]) -> None:
    strange = sorted(set(found) - set(known))
    if strange:
        raise ImagesError(
            f"{folder} has the class {', '.join(map(repr, strange))}, which is not "
            f"among those to tell apart: {', '.join(known)}."
        )


def _part(files: dict[str, list[Path]], classes: Sequence[str]) -> Part:
    found: list[Path] = []
    labels: list[int] = []
    for number, name in enumerate(classes):
        found += files.get(name, [])
        labels += [number] * len(files.get(name, []))
    return Part(tuple(found), np.array(labels, "int32"))
