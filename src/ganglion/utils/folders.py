"""Folders of files as data: which files, of which classes, in Keras' order."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from ganglion.config import closest
from ganglion.images.finding import check_case
from ganglion.progress import print_message
from ganglion.system.records import record

LABEL_MODES = ("int", "categorical", "binary")
SUBSETS = ("training", "validation", "both")


@record(guarded=True)
class FileKind:
    """What kind of files a folder is searched for.

    Args:
        plural: Their name in messages.
        endings: Their endings.
        is_wanted: Returns whether a name is that of such a file.
        error: The exception where there are none.
    """

    plural: str
    endings: Sequence[str]
    is_wanted: Callable[[str], bool]
    error: type[ValueError] = ValueError


@record(guarded=True)
class Listing:
    """Files of a folder, with the numbers and names of their classes, if any."""

    files: list[str]
    numbers: np.ndarray | None
    names: list[str] | None

    def ordered(self, order: np.ndarray) -> Listing:
        """Return the files in another order."""
        numbers = None if self.numbers is None else self.numbers[order]
        return Listing([self.files[i] for i in order], numbers, self.names)

    def part(self, rows: slice) -> Listing:
        """Return some of the files."""
        numbers = None if self.numbers is None else self.numbers[rows]
        return Listing(self.files[rows], numbers, self.names)

    def labels(self, mode: str | None) -> np.ndarray | None:
        """Return the labels as a loss takes them."""
        if self.numbers is None:
            return None
        if mode == "binary":
            return self.numbers.astype("float32").reshape(-1, 1)
        if mode == "categorical":
            return np.eye(len(self.names or ()), dtype="float32")[self.numbers]
        return self.numbers


def list_files(
    directory: Any,
    labels: Any,
    label_mode: str | None,
    class_names: Any,
    follow_links: bool,
    verbose: bool,
    kind: FileKind,
) -> Listing:
    """Return the files of a folder by name, and print how many there are."""
    listing = _index_directory(directory, labels, class_names, follow_links, kind)
    names = listing.names
    if verbose:
        classes = "" if names is None else f" belonging to {len(names)} classes"
        print_message(f"Found {len(listing.files)} files{classes}.")
    if label_mode == "binary" and len(names or ()) != 2:
        raise ValueError(
            'When passing `label_mode="binary"`, there must be exactly 2 classes, got '
            f"{names}."
        )
    return listing


def split_files(
    listing: Listing,
    make: Callable[[Listing, bool], Any],
    shuffle: bool,
    seed: int,
    validation_split: float | None,
    subset: str | None,
    verbose: bool,
) -> Any:
    """Shuffle the files if requested, and return the data of the chosen subset.

    Args:
        listing: The files.
        make: Makes data of files; its argument is whether to shuffle in each epoch.
        shuffle: Whether to mix.
        seed: Of the mixing.
        validation_split: The share to hold out.
        subset: "training", "validation", "both", or None.
        verbose: Whether to print how many files are used.
    """
    if shuffle:
        order = np.arange(len(listing.files))
        np.random.RandomState(seed).shuffle(order)
        listing = listing.ordered(order)
    size = len(listing.files)
    count = size - int((validation_split or 0) * size)
    training, validation = listing.part(slice(count)), listing.part(slice(count, None))
    for name, part in (("training", training), ("validation", validation)):
        if verbose and subset in (name, "both"):
            print_message(f"Using {len(part.files)} files for {name}.")
    if subset == "both":
        return [make(training, shuffle), make(validation, False)]
    return make(validation if subset == "validation" else training, shuffle)


def check_arguments(
    labels: Any,
    label_mode: Any,
    class_names: Any,
    split: Any,
    subset: Any,
    shuffle: bool,
    seed: Any,
) -> None:
    """Refuse arguments of a data set of a folder that do not fit together."""
    listed = isinstance(labels, (list, tuple, np.ndarray))
    if not listed and labels not in ("inferred", None):
        raise ValueError(
            "`labels` argument should be 'inferred', None, or a list with a class "
            f"number for each file, got {labels!r}."
        )
    if class_names and (listed or labels is None):
        raise ValueError('You can only pass `class_names` if `labels="inferred"`.')
    if label_mode is not None and label_mode not in LABEL_MODES:
        known = closest(str(label_mode), LABEL_MODES)
        raise ValueError(
            f"`label_mode` argument must be one of {', '.join(LABEL_MODES)} or None. "
            f"{known}"
        )
    if not split:
        if subset is not None:
            raise ValueError("If `subset` is set, `validation_split` must be set, too.")
        return
    if not 0 < split < 1:
        raise ValueError(
            f"`validation_split` must be between 0 and 1, received: {split}."
        )
    if subset not in SUBSETS:
        raise ValueError(
            '`subset` must be either "training", "validation" or "both" with '
            f"`validation_split`, received: {subset!r}."
        )
    if shuffle and seed is None and subset != "both":
        raise ValueError(
            "With `validation_split` and shuffle=True you must provide a `seed`: "
            "otherwise the two subsets overlap."
        )


def _index_directory(
    directory: Any, labels: Any, class_names: Any, follow_links: bool, kind: FileKind
) -> Listing:
    root = Path(directory).expanduser()
    if not root.is_dir():
        raise kind.error(f"There is no folder {root}.")
    numbers: np.ndarray | None = None
    names: list[str] | None = None
    if isinstance(labels, str):
        files, numbers, names = _by_folders(root, class_names, follow_links, kind)
    else:
        files = _walk(root, follow_links, kind)
    if not files:
        raise kind.error(
            f"No {kind.plural} found in directory {root}: files that end in "
            f"{', '.join(kind.endings)}."
        )
    if labels is not None and not isinstance(labels, str):
        if len(labels) != len(files):
            raise ValueError(
                "Expected the lengths of `labels` to match the number of files in "
                f"{root}: {len(labels)} labels, {len(files)} {kind.plural}."
            )
        numbers = np.array(labels, "int32")
        names = [str(number) for number in sorted(set(numbers.tolist()))]
    return Listing(files, numbers, names)


def _by_folders(
    root: Path, class_names: Any, follow_links: bool, kind: FileKind
) -> tuple[list[str], np.ndarray, list[str]]:
    names = sorted(p.name for p in root.iterdir() if p.is_dir() and p.name[0] != ".")
    check_case(root, names)
    if class_names is not None:
        if not set(class_names) <= set(names):
            raise ValueError(
                "The `class_names` passed did not match the names of the folders of "
                f"{root}. Expected some of {names}, received: {list(class_names)}."
            )
        names = list(class_names)
    files: list[str] = []
    numbers: list[int] = []
    for number, name in enumerate(names):
        paths = _walk(root / name, follow_links, kind)
        if not paths:
            warnings.warn(f"{root / name} holds no {kind.plural}.", stacklevel=4)
        files += paths
        numbers += [number] * len(paths)
    return files, np.array(numbers, "int32"), names


def _walk(folder: Path, follow_links: bool, kind: FileKind) -> list[str]:
    folders = sorted(os.walk(folder, followlinks=follow_links), key=itemgetter(0))
    return [
        os.path.join(path, name)
        for path, _, names in folders
        for name in sorted(names)
        if kind.is_wanted(name)
    ]
