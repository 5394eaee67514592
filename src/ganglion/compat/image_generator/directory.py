"""Batches of changed images from a folder with a folder a class."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from ganglion import config
from ganglion.compat.image_generator.iterators import ENDINGS, ImageIterator

_CLASS_MODES = ("categorical", "binary", "sparse", "input", None)


class DirectoryIterator(ImageIterator):
    """Batches from a folder with a folder a class; decoded once, when first asked."""

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
            known = ", ".join(repr(one) for one in _CLASS_MODES)
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
            found = _listed(root / name, follow_links, span)
            self.filenames += [str(one.relative_to(root)) for one in found]
            numbers += [number] * len(found)
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
        """The images, as whole numbers from 0 to 255."""
        if self._pixels is None:
            self._pixels = self._decoded()
        return self._pixels

    def _decoded(self) -> np.ndarray:
        from ganglion.images.decoding import Form
        from ganglion.images.loading import read_files

        fit = "crop" if self.keep_aspect_ratio else "resize"
        rows, columns = self.target_size
        form = Form((rows, columns), self.color_mode, fit, self.interpolation, None)
        read = read_files([Path(one) for one in self.filepaths], form)
        if read.problems:
            number, why = next(iter(read.problems.items()))
            raise ValueError(
                f"{len(read.problems)} of {self.samples} files cannot be read as "
                f"images; the first is {self.filepaths[number]}: {why}"
            )
        return read.pixels

    @property
    def y(self) -> np.ndarray | None:  # type: ignore[override]
        """The labels in the form that `class_mode` asks for."""
        if self.class_mode == "categorical":
            return np.eye(self.num_classes, dtype=self.dtype)[self.classes]
        if self.class_mode == "binary":
            return self.classes.astype(self.dtype)
        return self.classes if self.class_mode == "sparse" else None

    def in_the_step(self) -> bool:
        return self.class_mode != "input" and super().in_the_step()

    def _get_batches_of_transformed_samples(self, index_array: np.ndarray) -> Any:
        made = super()._get_batches_of_transformed_samples(index_array)
        return (made, made.copy()) if self.class_mode == "input" else made


def _folders(root: Path) -> list[str]:
    if not root.is_dir():
        raise FileNotFoundError(f"There is no folder {root}.")
    return sorted(one.name for one in root.iterdir() if one.is_dir())


def _span(subset: str | None, share: float) -> tuple[float, float]:
    if subset is None:
        return 0.0, 1.0
    if subset not in ("training", "validation"):
        raise ValueError(
            f"Unknown `subset` {subset!r}: use 'training' or 'validation'."
        )
    return (0.0, share) if subset == "validation" else (share, 1.0)


def _listed(folder: Path, follow: bool, span: tuple[float, float]) -> list[Path]:
    """Return the image files of a class, sorted, and of them the part of a subset."""
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no folder {folder} for this class.")
    found = []
    for place, _, names in sorted(os.walk(folder, followlinks=follow)):
        known = (one for one in sorted(names) if one.lower().endswith(ENDINGS))
        found += [Path(place) / one for one in known]
    return found[int(span[0] * len(found)) : int(span[1] * len(found))]
