"""Keras' `image_dataset_from_directory`: a folder of images as data to train on."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from ganglion import config
from ganglion.config import closest
from ganglion.images import Form, ImagesError, read_files
from ganglion.images.finding import ENDINGS, check_case, is_image
from ganglion.progress import print_message
from ganglion.random import shuffled
from ganglion.utils.data import PyDataset

_LABEL_MODES = ("int", "categorical", "binary")
_METHODS = {
    "bilinear": "bilinear",
    "nearest": "nearest",
    "bicubic": "bicubic",
    "mitchellcubic": "bicubic",
    "area": "box",
    "gaussian": "hamming",
    "lanczos3": "lanczos",
    "lanczos5": "lanczos",
}
_SUBSETS = ("training", "validation", "both")


class ImageDataset(PyDataset):
    """Images of a folder in batches; `fit` takes the rows themselves, and is fast.

    `class_names` and `file_paths` are as in Keras; `x` and `y` are arrays of all rows.
    The methods of tf.data's that scripts call on such data (`take`, `map`, `cache`,
    `shuffle`, `prefetch`) are there.
    """

    def __init__(
        self,
        x: np.ndarray,
        y: np.ndarray | None,
        batch_size: int | None,
        shuffle: bool,
        seed: int,
    ) -> None:
        super().__init__()
        self.x, self.y = x, y
        self.batch_size, self._shuffle, self._seed = batch_size, shuffle, seed
        self.class_names: list[str] | None = None
        self.file_paths: list[str] = []
        self._passes = 0
        self._change: Callable[..., Any] | None = None

    def __len__(self) -> int:
        return -(-len(self.x) // (self.batch_size or 1))

    def __getitem__(self, index: int) -> Any:
        return self._batch(np.arange(len(self.x)), index)

    def __iter__(self) -> Iterator[Any]:
        order = np.arange(len(self.x))
        if self._shuffle:
            order = shuffled(self._seed, self._passes, len(order))
            self._passes += 1
        for index in range(len(self)):
            yield self._batch(order, index)

    def _batch(self, order: np.ndarray, index: int) -> Any:
        size = self.batch_size or 1
        rows = np.sort(order[index * size : (index + 1) * size])
        parts = [self.x[rows].astype(config.floatx())]
        parts += [] if self.y is None else [self.y[rows]]
        if self.batch_size is None:  # single images
            parts = [part[0] for part in parts]
        batch = parts[0] if self.y is None else tuple(parts)
        return batch if self._change is None else _applied(self._change, batch)

    def as_rows(self) -> dict[str, Any] | None:
        """Return what `fit` needs to work on the rows; None if batches are changed."""
        if self._change is not None or self.batch_size is None:
            return None
        return {
            "x": self.x,
            "y": self.y,
            "batch_size": min(self.batch_size, len(self.x)),
            "shuffle": self._shuffle,
        }

    def _copy(self, **changed: Any) -> ImageDataset:
        copied = copy.copy(self)
        vars(copied).update(changed)
        return copied

    def take(self, count: int) -> ImageDataset:
        """Return the data of the first batches."""
        rows = slice(0, count * (self.batch_size or 1) if count >= 0 else None)
        y = None if self.y is None else self.y[rows]
        return self._copy(x=self.x[rows], y=y, file_paths=self.file_paths[rows])

    def map(self, map_func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return the data with a function applied to every batch."""
        before = self._change

        def both(*batch: Any) -> Any:
            return _applied(map_func, batch if before is None else before(*batch))

        return self._copy(_change=both)

    def shuffle(self, *args: Any, **kwargs: Any) -> ImageDataset:
        """Return the data in another order in each epoch, all rows at once."""
        return self._copy(_shuffle=True)

    def cache(self, *args: Any, **kwargs: Any) -> ImageDataset:
        """Return the data: it is decoded already."""
        return self

    def prefetch(self, *args: Any, **kwargs: Any) -> ImageDataset:
        """Return the data: there is nothing to wait for."""
        return self


def _applied(function: Callable[..., Any], batch: Any) -> Any:
    return function(*batch) if isinstance(batch, tuple) else function(batch)


def image_dataset_from_directory(
    directory: Any,
    labels: Any = "inferred",
    label_mode: str | None = "int",
    class_names: Sequence[str] | None = None,
    color_mode: str = "rgb",
    batch_size: int | None = 32,
    image_size: Any = (256, 256),
    shuffle: bool = True,
    seed: int | None = None,
    validation_split: float | None = None,
    subset: str | None = None,
    interpolation: str = "bilinear",
    follow_links: bool = False,
    crop_to_aspect_ratio: bool = False,
    pad_to_aspect_ratio: bool = False,
    data_format: str | None = None,
    format: str = "tf",  # noqa: A002 (Keras' name)
    verbose: bool = True,
) -> Any:
    """Return the images of a folder as data for `fit`, decoded once.

    Files, order and split are Keras'. Images are upright by their EXIF data, and
    averaged when they are made smaller; both as people see them.

    Args:
        directory: Holds a folder a class.
        labels: "inferred" (from the folders), None, or a list of class numbers.
        label_mode: "int", "categorical", "binary" or None.
        class_names: The order of the classes, or some of them.
        color_mode: "rgb", "rgba" or "grayscale".
        batch_size: Images a batch; None for single images.
        image_size: Rows and columns.
        shuffle: Whether to mix the images; by name otherwise.
        seed: Of the mixing.
        validation_split: The share to hold out.
        subset: "training", "validation" or "both", if there is a share to hold out.
        interpolation: How to resize.
        follow_links: Whether to look into linked folders.
        crop_to_aspect_ratio: Whether to cut images to the shape asked for.
        pad_to_aspect_ratio: Whether to add black bars to get that shape.
        data_format: "channels_last".
        format: Accepted; the data is our own.
        verbose: Whether to say what was found.
    """
    _check(labels, label_mode, class_names, validation_split, subset, shuffle, seed)
    if data_format == "channels_first":
        raise ValueError("data_format='channels_first' is not supported.")
    if format not in ("tf", "grain"):
        raise ValueError(f"`format` is 'tf' or 'grain', not {format!r}.")
    form = _form(
        image_size, color_mode, interpolation, crop_to_aspect_ratio, pad_to_aspect_ratio
    )
    if labels is None or label_mode is None:
        labels = label_mode = None
    seed = int(np.random.randint(1_000_000)) if seed is None else seed
    files, numbers, names = _index(directory, labels, class_names, follow_links)
    if verbose:
        classes = "" if names is None else f" belonging to {len(names)} classes"
        print_message(f"Found {len(files)} files{classes}.")
    if label_mode == "binary" and len(names or ()) != 2:
        raise ValueError(f"label_mode='binary' takes two classes, not {names}.")
    if shuffle:
        order = np.arange(len(files))
        np.random.RandomState(seed).shuffle(order)
        files = [files[i] for i in order]
        numbers = None if numbers is None else numbers[order]

    def dataset(rows: slice, mixed: bool) -> ImageDataset:
        labels = None if numbers is None else numbers[rows]
        x, y, paths = _decoded(files[rows], labels, form, label_mode, names)
        data = ImageDataset(x, y, batch_size, mixed, seed)
        data.class_names, data.file_paths = names, paths
        return data

    count = len(files) - int((validation_split or 0) * len(files))
    training, validation = slice(0, count), slice(count, None)
    if subset == "both":
        return [dataset(training, shuffle), dataset(validation, False)]
    return dataset(validation if subset == "validation" else training, shuffle)


def _check(
    labels: Any,
    label_mode: Any,
    class_names: Any,
    split: Any,
    subset: Any,
    shuffle: bool,
    seed: Any,
) -> None:
    listed = isinstance(labels, (list, tuple, np.ndarray))
    if not listed and labels not in ("inferred", None):
        raise ValueError(
            "`labels` is 'inferred', None, or a list with a class number for each "
            f"file, not {labels!r}."
        )
    if class_names and (listed or labels is None):
        raise ValueError("`class_names` can be given with labels='inferred' only.")
    if label_mode is not None and label_mode not in _LABEL_MODES:
        known = closest(str(label_mode), _LABEL_MODES)
        raise ValueError(f"Unknown `label_mode`. {known}")
    if split is None:
        if subset is not None:
            raise ValueError("`subset` goes with `validation_split`.")
        return
    if not 0 < split < 1:
        raise ValueError(f"`validation_split` lies between 0 and 1, not {split}.")
    if subset not in _SUBSETS:
        raise ValueError(
            f"With `validation_split`, `subset` is one of {', '.join(_SUBSETS)}, not "
            f"{subset!r}."
        )
    if shuffle and seed is None and subset != "both":
        raise ValueError(
            "With `validation_split` and shuffle=True give a `seed`: otherwise the two "
            "subsets overlap."
        )


def _form(size: Any, color: str, interpolation: str, crop: bool, pad: bool) -> Form:
    if crop and pad:
        raise ValueError(
            "Only one of `pad_to_aspect_ratio` and `crop_to_aspect_ratio` can be True."
        )
    if interpolation.lower() not in _METHODS:
        known = closest(interpolation, _METHODS)
        raise ValueError(f"Unknown `interpolation`. {known}")
    if isinstance(size, int):
        size = (size, size)
    if not isinstance(size, (list, tuple)) or len(size) != 2:
        raise ValueError(f"`image_size` is two whole numbers, not {size!r}.")
    fit = "crop" if crop else "pad" if pad else "resize"
    method = _METHODS[interpolation.lower()]
    return Form((int(size[0]), int(size[1])), color, fit, method, background=None)


def _index(
    directory: Any, labels: Any, class_names: Any, follow_links: bool
) -> tuple[list[str], np.ndarray | None, list[str] | None]:
    """Return files, class numbers and class names, in Keras' order."""
    root = Path(directory).expanduser()
    if not root.is_dir():
        raise ImagesError(f"There is no folder {root}.")
    numbers: np.ndarray | None = None
    names: list[str] | None = None
    if isinstance(labels, str):
        files, numbers, names = _by_folders(root, class_names, follow_links)
    else:
        files = _walk(root, follow_links)
    if not files:
        raise ImagesError(
            f"No images found in {root}: files that end in {', '.join(ENDINGS)}."
        )
    if labels is not None and not isinstance(labels, str):
        if len(labels) != len(files):
            raise ValueError(
                f"`labels` has {len(labels)} numbers, and {root} has {len(files)} "
                "images."
            )
        numbers = np.array(labels, "int32")
        names = [str(number) for number in sorted(set(numbers.tolist()))]
    return files, numbers, names


def _by_folders(
    root: Path, class_names: Any, follow_links: bool
) -> tuple[list[str], np.ndarray, list[str]]:
    names = sorted(p.name for p in root.iterdir() if p.is_dir() and p.name[0] != ".")
    check_case(root, names)
    if class_names is not None:
        if not set(class_names) <= set(names):
            raise ValueError(
                f"`class_names` {list(class_names)} are not all among the folders of "
                f"{root}: {names}."
            )
        names = list(class_names)
    files: list[str] = []
    numbers: list[int] = []
    for number, name in enumerate(names):
        paths = _walk(root / name, follow_links)
        if not paths:
            warnings.warn(f"{root / name} holds no images.", stacklevel=4)
        files += paths
        numbers += [number] * len(paths)
    return files, np.array(numbers, "int32"), names


def _walk(folder: Path, follow_links: bool) -> list[str]:
    folders = sorted(os.walk(folder, followlinks=follow_links), key=itemgetter(0))
    return [
        os.path.join(path, name)
        for path, _, names in folders
        for name in sorted(names)
        if is_image(name)
    ]


def _decoded(
    files: list[str],
    numbers: np.ndarray | None,
    form: Form,
    label_mode: str | None,
    names: list[str] | None,
) -> tuple[np.ndarray, np.ndarray | None, list[str]]:
    """Decode; leave out what cannot be read, and warn of it."""
    if not files:
        raise ImagesError("No images are left for this subset.")
    decoded = read_files([Path(path) for path in files], form)
    if problems := decoded.problems:
        reasons = "; ".join(f"{files[i]}: {why}" for i, why in problems.items())
        warnings.warn(
            f"{len(problems)} of {len(files)} files are left out, since they cannot be "
            f"read: {reasons:.1000}",
            stacklevel=4,
        )
    if not len(decoded.readable):
        raise ImagesError("None of the images can be read.")
    y = None if numbers is None else numbers[decoded.readable]
    if y is not None and label_mode == "binary":
        y = y.astype("float32").reshape(-1, 1)
    elif y is not None and label_mode == "categorical":
        y = np.eye(len(names or ()), dtype="float32")[y]
    return decoded.pixels, y, [files[number] for number in decoded.readable]
