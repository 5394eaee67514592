"""Keras' `image_dataset_from_directory`: a folder of images as data to train on."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ganglion import config
from ganglion.config import closest
from ganglion.images import Form, ImagesError, read_files
from ganglion.images.decoding import MODES
from ganglion.images.finding import ENDINGS, is_image
from ganglion.utils.folders import (
    FileKind,
    Listing,
    check_arguments,
    list_files,
    split_files,
)
from ganglion.utils.row_dataset import RowDataset

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


_IMAGES = FileKind("images", ENDINGS, is_image, ImagesError)


class ImageDataset(RowDataset):
    """Images of a folder in batches; integers in memory, floats in a batch."""

    def _inputs(self, rows: np.ndarray) -> np.ndarray:
        pixels: np.ndarray = self.x[rows].astype(config.floatx())
        return pixels


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
        crop_to_aspect_ratio: Whether to crop images to the requested shape.
        pad_to_aspect_ratio: Whether to add black bars to get that shape.
        data_format: "channels_last" or "channels_first"; None for Keras' default.
        format: Accepted; the data is our own.
        verbose: Whether to print what was found.
    """
    check_arguments(
        labels, label_mode, class_names, validation_split, subset, shuffle, seed
    )
    channels_first = config.data_format_of(data_format) == "channels_first"
    if format not in ("tf", "grain"):
        raise ValueError(f"`format` should be 'tf' or 'grain', got {format!r}.")
    form = _form(
        image_size, color_mode, interpolation, crop_to_aspect_ratio, pad_to_aspect_ratio
    )
    if labels is None or label_mode is None:
        labels = label_mode = None
    seed = int(np.random.randint(1_000_000)) if seed is None else seed
    listing = list_files(
        directory, labels, label_mode, class_names, follow_links, verbose, _IMAGES
    )

    def dataset(part: Listing, mixed: bool) -> ImageDataset:
        pixels, readable = _decoded(part, form)
        if channels_first:
            pixels = np.ascontiguousarray(np.moveaxis(pixels, -1, 1))
        data = ImageDataset(
            pixels, readable.labels(label_mode), batch_size, mixed, seed
        )
        data.class_names, data.file_paths = readable.names, readable.files
        return data

    return split_files(
        listing, dataset, shuffle, seed, validation_split, subset, verbose
    )


def _form(size: Any, color: str, interpolation: str, crop: bool, pad: bool) -> Form:
    if crop and pad:
        raise ValueError(
            "Only one of `pad_to_aspect_ratio` and `crop_to_aspect_ratio` can be True."
        )
    if color not in MODES:
        raise ValueError(
            f"`color_mode` must be one of {', '.join(MODES)}. {closest(color, MODES)}"
        )
    if interpolation.lower() not in _METHODS:
        known = closest(interpolation, _METHODS)
        raise ValueError(f"Unknown `interpolation`. {known}")
    if isinstance(size, int):
        size = (size, size)
    if not isinstance(size, (list, tuple)) or len(size) != 2:
        raise ValueError(f"`image_size` is two integers, not {size!r}.")
    fit = "crop" if crop else "pad" if pad else "resize"
    method = _METHODS[interpolation.lower()]
    return Form((int(size[0]), int(size[1])), color, fit, method, background=None)


def _decoded(listing: Listing, form: Form) -> tuple[np.ndarray, Listing]:
    """Decode; leave out what cannot be read, and warn of it."""
    files = listing.files
    if not files:
        raise ImagesError("No images are left for this subset.")
    decoded = read_files([Path(path) for path in files], form)
    if problems := decoded.problems:
        reasons = "; ".join(f"{files[i]}: {why}" for i, why in problems.items())
        warnings.warn(
            f"{len(problems)} of {len(files)} files are left out, since they cannot be "
            f"read: {reasons:.1000}",
            stacklevel=5,
        )
    if not len(decoded.readable):
        raise ImagesError("None of the images can be read.")
    return decoded.pixels, listing.ordered(decoded.readable)
