"""Batches of changed images, by number or one after the other; from arrays."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterator as Iteration
from dataclasses import dataclass
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
    """What a step does to a batch of images; equal ones share a compiled step."""

    generator: Any
    fingerprint: tuple[Any, ...]  # the generator may be given other settings later
    seed: int | None

    def __call__(self, images: Any, batch: Any, order_seed: Any) -> Any:
        """Change images, by the number of their batch."""
        seed = order_seed if self.seed is None else np.uint32(int(self.seed) % 2**32)
        return self.generator.augmented(images, Draws(seed, batch))


class Iterator(PyDataset):
    """Batches by number, or one after the other without end."""

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

    def batch(self, index_array: np.ndarray) -> Any:
        """Return the batch of these rows."""
        return self._get_batches_of_transformed_samples(index_array)

    def _get_batches_of_transformed_samples(self, index_array: np.ndarray) -> Any:
        raise NotImplementedError(
            f"{type(self).__name__} does not define "
            "`_get_batches_of_transformed_samples(index_array)`."
        )


class ImageIterator(Iterator):
    """Images in memory with what belongs to them."""

    image_data_generator: Any
    x: np.ndarray
    x_misc: list[np.ndarray]
    y: np.ndarray | None
    sample_weight: Any
    save_to_dir: Any
    save_prefix: str
    save_format: str

    def _get_batches_of_transformed_samples(self, index_array: np.ndarray) -> Any:
        made = self._changed(self.x[index_array])
        if self.save_to_dir:
            self._save(made, index_array)
        inputs: Any = made
        if self.x_misc:
            inputs = [made, *(one[index_array] for one in self.x_misc)]
        if self._labels() is None:
            return inputs
        parts = [inputs, self._labels(made, index_array)]
        if self.sample_weight is not None:
            parts.append(self.sample_weight[index_array])
        return tuple(parts)

    def _labels(self, made: Any = None, rows: Any = None) -> Any:
        if self.y is None or rows is None:
            return self.y
        return self.y[rows]

    def _changed(self, images: np.ndarray) -> np.ndarray:
        made = self.image_data_generator
        draws = Draws(np.uint32(self._order_seed % 2**32), self.total_batches_seen - 1)
        if made.in_the_step:
            return np.asarray(made.augmented(images, draws))
        given = made.drawn(len(images), images.shape[1:], draws)
        changed = np.asarray(made.changed(images, given))
        return np.stack([made.standardize(one.copy()) for one in changed])

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
        return x, self._labels(), self.sample_weight

    @property
    def change(self) -> Change:
        """What a step does to the images of a batch."""
        made = self.image_data_generator
        return Change(made, made.fingerprint(), self.seed)


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
        given = {k: np.asarray(v) for k, v in parts.items() if v is not None}
        given |= {f"x[{i + 1}]": np.asarray(one) for i, one in enumerate(misc)}
        _check_images(given)
        if subset is not None:
            share = image_data_generator._validation_split
            given = _subset(given, subset, share, ignore_class_split)
        self.x, self.y = given["x"], given.get("y")
        self.sample_weight = given.get("sample_weight")
        self.x_misc = [one for name, one in given.items() if name.startswith("x[")]
        self.image_data_generator = image_data_generator
        self.save_to_dir, self.save_prefix = save_to_dir, save_prefix
        self.save_format = save_format
        super().__init__(len(self.x), batch_size, shuffle, seed)


def _check_images(given: dict[str, np.ndarray]) -> None:
    x = given["x"]
    if x.ndim != 4:
        raise ValueError(
            "`flow` needs images of shape (images, rows, columns, channels), got "
            f"{x.shape}."
        )
    if x.dtype.kind not in "biuf":
        raise TypeError(f"`x` has the type {x.dtype}, which is not numbers.")
    for name, one in given.items():
        if len(one) != len(x):
            raise ValueError(
                f"`x` has {len(x)} images, but `{name}` has {len(one)} rows."
            )
    if x.shape[3] not in (1, 3, 4):
        warnings.warn(
            "Images have 1, 3 or 4 channels on the last axis; these have "
            f"{x.shape[3]}.",
            stacklevel=4,
        )


def _same(one: np.ndarray, two: np.ndarray) -> bool:
    return np.array_equal(np.unique(one), np.unique(two))


def _subset(
    given: dict[str, np.ndarray], subset: str, share: float, ignore_classes: bool
) -> dict[str, np.ndarray]:
    if subset not in ("training", "validation"):
        raise ValueError(
            f"Unknown `subset` {subset!r}: use 'training' or 'validation'."
        )
    at = int(len(given["x"]) * share)
    y = given.get("y")
    if y is not None and not ignore_classes and not _same(y[:at], y[at:]):
        raise ValueError(
            "The two subsets do not have the same classes: shuffle the arrays first if "
            "they are sorted by class."
        )
    rows = slice(0, at) if subset == "validation" else slice(at, None)
    return {name: one[rows] for name, one in given.items()}
