"""Batches of changed images, by number or in sequence; from arrays or files."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterator as Iteration
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ganglion import config
from ganglion.compat.image_generator.draws import Draws
from ganglion.random import shuffled
from ganglion.utils.data import PyDataset
from ganglion.variables import draw_seed

ENDINGS = ("png", "jpg", "jpeg", "bmp", "ppm", "tif", "tiff")


@dataclass(frozen=True)
class Change:
    """The change of a batch of images in a step; equal ones share a compiled step."""

    generator: Any
    fingerprint: tuple[Any, ...]  # the generator may be given other settings later
    seed: int | None

    def __call__(self, images: Any, batch: Any, order_seed: Any) -> Any:
        """Change images, by the number of their batch."""
        seed = order_seed if self.seed is None else np.uint32(int(self.seed) % 2**32)
        return self.generator.augmented(images, Draws(seed, batch))


class Iterator(PyDataset):
    """Batches by number, or in sequence without end."""

    white_list_formats = ENDINGS

    def __init__(
        self, n: int, batch_size: int, shuffle: bool, seed: Any, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.n, self.batch_size = n, int(batch_size)
        self.shuffle, self.seed = bool(shuffle), seed
        self._order_seed = draw_seed() if seed is None else int(seed)
        self._pass = 0
        self.lock = threading.Lock()
        self.index_array: np.ndarray | None = None
        self.total_batches_seen = 0
        self.reset()
        self.index_generator = self._flow_index()

    def __len__(self) -> int:
        return -(-self.n // self.batch_size)

    def __getitem__(self, idx: int) -> Any:
        if not 0 <= idx < len(self):
            raise IndexError(f"There is no batch {idx}: there are {len(self)}.")
        if self.index_array is None:
            self._set_index_array()
        assert self.index_array is not None
        self.total_batches_seen += 1
        start = self.batch_size * idx
        return self.batch(self.index_array[start : start + self.batch_size])

    def _set_index_array(self) -> None:
        self.index_array = np.arange(self.n)
        if self.shuffle:
            self.index_array = shuffled(self._order_seed, self._pass, self.n)
        self._pass += 1

    def on_epoch_end(self) -> None:
        self._set_index_array()

    def reset(self) -> None:
        """Begin with the first batch again."""
        self.batch_index = 0

    def _flow_index(self) -> Iteration[np.ndarray]:
        while True:
            if self.batch_index == 0:
                self._set_index_array()
            assert self.index_array is not None
            start = self.batch_index * self.batch_size
            self.batch_index = (self.batch_index + 1) % max(len(self), 1)
            self.total_batches_seen += 1
            yield self.index_array[start : start + self.batch_size]

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        with self.lock:
            rows = next(self.index_generator)
        return self.batch(rows)

    def next(self) -> Any:
        """Return the next batch, by the name of Python 2."""
        return next(self)

    def batch(self, index_array: np.ndarray) -> Any:
        """Return the batch of these rows."""
        return self._get_batches_of_transformed_samples(index_array)

    def _get_batches_of_transformed_samples(self, index_array: np.ndarray) -> Any:
        raise NotImplementedError(
            f"{type(self).__name__} does not define "
            "`_get_batches_of_transformed_samples(index_array)`."
        )


class ImageIterator(Iterator):
    """Images in memory with their labels and weights."""

    image_data_generator: Any
    x: np.ndarray
    x_misc: list[np.ndarray]
    y: np.ndarray | None
    sample_weight: Any
    save_to_dir: Any
    save_prefix: str
    save_format: str

    def _get_batches_of_transformed_samples(self, index_array: np.ndarray) -> Any:
        inputs: Any = self._changed(self.x[index_array])
        if self.save_to_dir:
            self._save(inputs, index_array)
        if self.x_misc:
            inputs = [inputs, *(array[index_array] for array in self.x_misc)]
        if self.y is None:
            return inputs
        parts = [inputs, self.y[index_array]]
        if self.sample_weight is not None:
            parts.append(self.sample_weight[index_array])
        return tuple(parts)

    def _changed(self, images: np.ndarray) -> np.ndarray:
        generator = self.image_data_generator
        draws = Draws(np.uint32(self._order_seed % 2**32), self.total_batches_seen - 1)
        if generator.in_the_step:
            return np.asarray(generator.augmented(images, draws))
        parameters = generator.drawn(len(images), images.shape[1:], draws)
        changed = np.asarray(generator.changed(images, parameters))
        return np.stack([generator.standardize(image.copy()) for image in changed])

    def _save(self, images: np.ndarray, rows: np.ndarray) -> None:
        from ganglion.utils.images import array_to_img, write_img

        for image, row in zip(images, rows, strict=True):
            number = f"{self.total_batches_seen}_{row}"
            name = f"{self.save_prefix}_{number}.{self.save_format}"
            picture = array_to_img(image, scale=True)
            path = os.path.join(self.save_to_dir, name)
            write_img(path, picture, durable=False)

    # ---- inside of a step ------------------------------------------------------------

    def in_the_step(self) -> bool:
        """Return whether `fit` can do all of this inside of its compiled step."""
        return self.image_data_generator.in_the_step and not self.save_to_dir

    def columns(self) -> tuple[Any, Any, Any]:
        """Return the unchanged x, y and sample weights."""
        x: Any = [self.x, *self.x_misc] if self.x_misc else self.x
        return x, self.y, self.sample_weight

    @property
    def change(self) -> Change:
        """The change of the images of a batch in a step."""
        generator = self.image_data_generator
        return Change(generator, generator.fingerprint(), self.seed)


class NumpyArrayIterator(ImageIterator):
    """Batches from arrays."""

    def __init__(
        self,
        x: Any,
        y: Any,
        image_data_generator: Any,
        batch_size: int = 32,
        shuffle: bool = False,
        sample_weight: Any = None,
        seed: Any = None,
        data_format: str | None = None,
        save_to_dir: Any = None,
        save_prefix: str = "",
        save_format: str = "png",
        subset: str | None = None,
        ignore_class_split: bool = False,
        dtype: Any = None,
    ) -> None:
        self.dtype = dtype or config.floatx()
        self.data_format = data_format or config.image_data_format()
        misc: list[Any] = []
        if isinstance(x, (tuple, list)) and len(x) == 2 and np.ndim(x[0]) == 4:
            misc = list(x[1]) if isinstance(x[1], list) else [x[1]]
            x = x[0]
        parts = {"x": np.asarray(x), "y": y, "sample_weight": sample_weight}
        arrays = {k: np.asarray(v) for k, v in parts.items() if v is not None}
        arrays |= {f"x[{i}]": np.asarray(array) for i, array in enumerate(misc, 1)}
        _check_images(arrays)
        if subset is not None:
            share = image_data_generator._validation_split
            arrays = _subset(arrays, subset, share, ignore_class_split)
        self.x, self.y = arrays["x"], arrays.get("y")
        self.sample_weight = arrays.get("sample_weight")
        self.x_misc = [array for name, array in arrays.items() if "[" in name]
        self.image_data_generator = image_data_generator
        self.save_to_dir, self.save_prefix = save_to_dir, save_prefix
        self.save_format = save_format
        super().__init__(len(self.x), batch_size, shuffle, seed)


def _check_images(arrays: dict[str, np.ndarray]) -> None:
    x = arrays["x"]
    if x.ndim != 4:
        raise ValueError(
            "`flow` needs images of shape (images, rows, columns, channels), got "
            f"{x.shape}."
        )
    if x.dtype.kind not in "biuf":
        raise TypeError(f"`x` has the type {x.dtype}, which is not numbers.")
    for name, array in arrays.items():
        if len(array) != len(x):
            raise ValueError(
                f"`x` has {len(x)} images, but `{name}` has {len(array)} rows."
            )
    if x.shape[3] not in (1, 3, 4):
        warnings.warn(
            "Images have 1, 3 or 4 channels on the last axis; these have "
            f"{x.shape[3]}.",
            stacklevel=4,
        )


def _is_validation(subset: str) -> bool:
    if subset not in ("training", "validation"):
        raise ValueError(
            f"Unknown `subset` {subset!r}: use 'training' or 'validation'."
        )
    return subset == "validation"


def _subset(
    arrays: dict[str, np.ndarray], subset: str, share: float, ignore_classes: bool
) -> dict[str, np.ndarray]:
    at = int(len(arrays["x"]) * share)
    rows = slice(0, at) if _is_validation(subset) else slice(at, None)
    y = arrays.get("y")
    if y is not None and not ignore_classes:
        classes = np.unique(y[:at]), np.unique(y[at:])
        if not np.array_equal(*classes):
            raise ValueError(
                "The two subsets do not have the same classes: shuffle the arrays "
                "first if they are sorted by class."
            )
    return {name: array[rows] for name, array in arrays.items()}


_CLASS_MODES = ("categorical", "binary", "sparse", "input", None)


class DirectoryIterator(ImageIterator):
    """Batches from a folder with a folder per class, decoded once, on first use."""

    allowed_class_modes = frozenset(_CLASS_MODES)

    def __init__(
        self,
        directory: Any,
        image_data_generator: Any,
        target_size: tuple[int, int] = (256, 256),
        color_mode: str = "rgb",
        classes: Any = None,
        class_mode: str | None = "categorical",
        batch_size: int = 32,
        shuffle: bool = True,
        seed: Any = None,
        data_format: str | None = None,
        save_to_dir: Any = None,
        save_prefix: str = "",
        save_format: str = "png",
        follow_links: bool = False,
        subset: str | None = None,
        interpolation: str = "nearest",
        keep_aspect_ratio: bool = False,
        dtype: Any = None,
    ) -> None:
        if class_mode not in _CLASS_MODES:
            known = ", ".join(map(repr, _CLASS_MODES))
            raise ValueError(
                f"Unknown `class_mode` {class_mode!r}: use one of {known}."
            )
        self.directory, self.class_mode = directory, class_mode
        self.target_size, self.color_mode = tuple(target_size), color_mode
        self.interpolation, self.keep_aspect_ratio = interpolation, keep_aspect_ratio
        self.dtype = dtype or config.floatx()
        self.data_format = data_format or config.image_data_format()
        self.image_data_generator = image_data_generator
        self.save_to_dir, self.save_prefix = save_to_dir, save_prefix
        self.save_format, self.subset = save_format, subset
        self.x_misc, self.sample_weight = [], None
        root = Path(directory)
        names = list(classes) if classes else _folders(root)
        self.class_indices = {name: number for number, name in enumerate(names)}
        self.num_classes = len(names)
        span = _span(subset, image_data_generator._validation_split)
        self.filenames: list[str] = []
        numbers: list[int] = []
        for name, number in self.class_indices.items():
            files = _listed(root / name, follow_links, span)
            self.filenames += [str(file.relative_to(root)) for file in files]
            numbers += [number] * len(files)
        self.classes = np.array(numbers, "int32")
        self.samples = len(self.filenames)
        if not self.samples:
            raise ValueError(
                f"{root} holds no images: it should hold a folder for each class, and "
                f"these hold files that end in {', '.join(ENDINGS)}."
            )
        print(f"Found {self.samples} images belonging to {self.num_classes} classes.")
        self._pixels: np.ndarray | None = None
        super().__init__(self.samples, batch_size, shuffle, seed)

    @property
    def filepaths(self) -> list[str]:
        """The files, in the order of the rows."""
        return [os.path.join(self.directory, name) for name in self.filenames]

    @property
    def labels(self) -> np.ndarray:
        """The class of each file, as a number."""
        return self.classes

    @property
    def x(self) -> np.ndarray:  # type: ignore[override]
        """The images, as integers from 0 to 255."""
        if self._pixels is None:
            self._pixels = self._decoded()
        return self._pixels

    def _decoded(self) -> np.ndarray:
        from ganglion.images.decoding import Form
        from ganglion.images.loading import read_files

        fit = "crop" if self.keep_aspect_ratio else "resize"
        rows, columns = self.target_size
        form = Form((rows, columns), self.color_mode, fit, self.interpolation, None)
        read = read_files(list(map(Path, self.filepaths)), form)
        if read.problems:
            number, why = next(iter(read.problems.items()))
            raise ValueError(
                f"{len(read.problems)} of {self.samples} files cannot be read as "
                f"images; the first is {self.filepaths[number]}: {why}"
            )
        return read.pixels

    @property
    def y(self) -> np.ndarray | None:  # type: ignore[override]
        """The labels in the form that `class_mode` requests."""
        if self.class_mode == "categorical":
            return np.eye(self.num_classes, dtype=self.dtype)[self.classes]
        if self.class_mode == "binary":
            return self.classes.astype(self.dtype)
        return self.classes if self.class_mode == "sparse" else None

    def in_the_step(self) -> bool:
        return self.class_mode != "input" and super().in_the_step()

    def _get_batches_of_transformed_samples(self, index_array: np.ndarray) -> Any:
        batch = super()._get_batches_of_transformed_samples(index_array)
        return (batch, batch.copy()) if self.class_mode == "input" else batch


def _folders(root: Path) -> list[str]:
    if not root.is_dir():
        raise FileNotFoundError(f"There is no folder {root}.")
    return sorted(path.name for path in root.iterdir() if path.is_dir())


def _span(subset: str | None, share: float) -> tuple[float, float]:
    if subset is None:
        return 0.0, 1.0
    return (0.0, share) if _is_validation(subset) else (share, 1.0)


def _listed(folder: Path, follow: bool, span: tuple[float, float]) -> list[Path]:
    """Return the image files of a class, sorted, and of them the part of a subset."""
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no folder {folder} for this class.")
    files = [
        Path(path) / name
        for path, _, names in sorted(os.walk(folder, followlinks=follow))
        for name in sorted(names)
        if name.lower().endswith(ENDINGS)
    ]
    return files[int(span[0] * len(files)) : int(span[1] * len(files))]
