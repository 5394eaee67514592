"""The classes of ImageNet by name, where the names are to be had."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

CLASSES = 1000
FILE = "imagenet_class_index.json"
ORIGIN = f"https://storage.googleapis.com/download.tensorflow.org/data/{FILE}"
_HASH = "c2c37ea517e94d9795004a39431a14cb"

Label = tuple[str, str]


def decode_predictions(
    preds: Any, top: int = 5, class_index: str | os.PathLike[str] | None = None
) -> list[list[tuple[str, str, float]]]:
    """Return the best classes of each row: WordNet number, name and score.

    Args:
        preds: The scores, (rows, 1000).
        top: How many classes a row.
        class_index: A file of names in Keras' form (`imagenet_class_index.json`). By
            default the one that Keras keeps, else it is fetched once.
    """
    scores = np.asarray(preds)
    if scores.ndim != 2 or scores.shape[1] != CLASSES:
        raise ValueError(
            f"`decode_predictions` needs scores of shape (rows, {CLASSES}): a model "
            f"with its ImageNet top. Got {scores.shape}."
        )
    labels = class_labels(class_index)
    best = np.argsort(-scores, axis=1, kind="stable")[:, :top]
    return [
        [(*labels[index], float(row[index])) for index in indices]
        for row, indices in zip(scores, best, strict=True)
    ]


def class_labels(class_index: str | os.PathLike[str] | None = None) -> list[Label]:
    """Return WordNet number and name of the 1,000 classes, in order."""
    path = Path(class_index) if class_index is not None else _index_file()
    try:
        table = json.loads(path.read_text())
        rows = [table[str(number)] for number in range(CLASSES)]
        return [(str(wordnet), str(name)) for wordnet, name in rows]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is not a table of the {CLASSES} classes of ImageNet, such as "
            f'{{"0": ["n01440764", "tench"], ...}} ({error}).'
        ) from None


def _index_file() -> Path:
    """Return the table: where Keras keeps it, or fetched."""
    keras_home = os.environ.get("KERAS_HOME") or Path.home() / ".keras"
    keras = Path(keras_home) / "models" / FILE
    if keras.is_file():
        return keras
    from ganglion.utils import get_file

    try:
        return Path(get_file(FILE, ORIGIN, file_hash=_HASH, cache_subdir="models"))
    except OSError as error:
        raise OSError(
            f"The names of ImageNet's classes cannot be fetched ({error}). Put a file "
            f"of them at {keras}, or take the numbers, `preds.argmax(axis=1)`."
        ) from None
