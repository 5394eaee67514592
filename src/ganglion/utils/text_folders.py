"""Keras' `text_dataset_from_directory`: a folder of texts as data to train on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ganglion import files
from ganglion.utils.folders import (
    FileKind,
    Listing,
    check_arguments,
    list_files,
    split_files,
)
from ganglion.utils.row_dataset import RowDataset

_TEXTS = FileKind("text files", (".txt",), lambda name: name.lower().endswith(".txt"))
_TAIL = 3  # bytes that a cut may leave of a character


def text_dataset_from_directory(
    directory: Any,
    labels: Any = "inferred",
    label_mode: str | None = "int",
    class_names: Sequence[str] | None = None,
    batch_size: int | None = 32,
    max_length: int | None = None,
    shuffle: bool = True,
    seed: int | None = None,
    validation_split: float | None = None,
    subset: str | None = None,
    follow_links: bool = False,
    format: str = "tf",  # noqa: A002 (Keras' name)
    verbose: bool = True,
) -> Any:
    """Return the texts of a folder as data for `fit`, read once.

    Files, order and split are Keras'. Texts are Python strings in an array of objects.

    Args:
        directory: Holds a folder a class, with files that end in .txt, in UTF-8.
        labels: "inferred" (from the folders), None, or a list of class numbers.
        label_mode: "int", "categorical", "binary" or None.
        class_names: The order of the classes, or some of them.
        batch_size: Texts a batch; None for single texts.
        max_length: How many bytes of each text are read; None for all.
        shuffle: Whether to mix the texts; by name otherwise.
        seed: Of the mixing.
        validation_split: The share to hold out.
        subset: "training", "validation" or "both", if there is a share to hold out.
        follow_links: Whether to look into linked folders.
        format: Accepted; the data is our own.
        verbose: Whether to print what was found.
    """
    check_arguments(
        labels, label_mode, class_names, validation_split, subset, shuffle, seed
    )
    if format not in ("tf", "grain"):
        raise ValueError(f"`format` should be 'tf' or 'grain', got {format!r}.")
    if labels is None or label_mode is None:
        labels = label_mode = None
    seed = int(np.random.randint(1_000_000)) if seed is None else seed
    listing = list_files(
        directory, labels, label_mode, class_names, follow_links, verbose, _TEXTS
    )

    def dataset(part: Listing, mixed: bool) -> RowDataset:
        texts = _read(part.files, max_length)
        data = RowDataset(texts, part.labels(label_mode), batch_size, mixed, seed)
        data.class_names, data.file_paths = part.names, part.files
        return data

    return split_files(
        listing, dataset, shuffle, seed, validation_split, subset, verbose
    )


def _read(paths: list[str], max_length: int | None) -> np.ndarray:
    """Return the texts of files; refuse, in one message, all that are not UTF-8."""
    if not paths:
        raise ValueError("No texts are left for this subset.")
    texts = np.empty(len(paths), object)
    problems = []
    for number, path in enumerate(paths):
        data = files.read_file(path)
        try:
            texts[number] = _decoded(data, max_length)
        except UnicodeDecodeError as error:
            byte = error.object[error.start]
            problems.append(f"{path} (byte 0x{byte:02x} at {error.start})")
    if problems:
        raise ValueError(
            f"{len(problems)} of {len(paths)} files are not in UTF-8: "
            f"{'; '.join(problems):.1000}. Write them anew in UTF-8: "
            "path.write_text(path.read_text('latin-1'), 'utf-8'), say."
        )
    return texts


def _decoded(data: bytes, max_length: int | None) -> str:
    if max_length is None or len(data) <= max_length:
        return data.decode("utf-8-sig")
    for size in range(max_length, max(max_length - _TAIL, 0), -1):
        try:
            return data[:size].decode("utf-8-sig")
        except UnicodeDecodeError as error:
            if error.reason != "unexpected end of data":
                raise
    return data[: max(max_length - _TAIL, 0)].decode("utf-8-sig")
