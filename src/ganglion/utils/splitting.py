"""Keras' `split_dataset`: data in memory, split in two."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import numpy as np

from ganglion import tree
from ganglion.tensors import as_tensor
from ganglion.utils.row_dataset import RowDataset


class Columns:
    """Arrays of as many rows in a structure, which is indexed by the row."""

    def __init__(self, structure: Any) -> None:
        self.structure = structure

    def __len__(self) -> int:
        return len(tree.flatten(self.structure)[0])

    def __getitem__(self, rows: Any) -> Columns:
        return Columns(tree.map_leaves(lambda column: column[rows], self.structure))


class StructuredRows(RowDataset):
    """Rows of several arrays: each element has the structure of the samples."""

    x: Columns

    def _batch(self, order: np.ndarray, index: int) -> Any:
        size = self.batch_size or 1
        rows = order[index * size : (index + 1) * size]
        chosen = rows[0] if self.batch_size is None else rows
        batch = tree.map_leaves(as_tensor, self.x[chosen].structure)
        change = self._change
        if change is None:
            return batch
        return change(*batch) if isinstance(batch, tuple) else change(batch)

    def as_rows(self) -> dict[str, Any] | None:
        """Return what `fit` needs to work on the rows, if they are x, or x and y."""
        known = super().as_rows()
        parts = self.x.structure
        if known is None or (isinstance(parts, tuple) and len(parts) != 2):
            return None
        x, y = parts if isinstance(parts, tuple) else (parts, None)
        return known | {"x": x, "y": y}


def split_dataset(
    dataset: Any,
    left_size: float | None = None,
    right_size: float | None = None,
    shuffle: bool = False,
    seed: int | None = None,
    preferred_backend: str | None = None,
) -> tuple[StructuredRows, StructuredRows]:
    """Split data into a left and a right part.

    Args:
        dataset: An array, a list or tuple of arrays of as many rows, or a data set of
            samples: of `tf.data`, of PyTorch, or of Ganglion.
        left_size: How many rows, or which share of them, go to the left; None for all
            that are not on the right.
        right_size: The same for the right.
        shuffle: Whether to mix the rows first.
        seed: Of the mixing.
        preferred_backend: None, "tensorflow", "jax", "numpy" or "torch"; the parts are
            Ganglion's own in any case.

    >>> left, right = split_dataset(np.arange(10), left_size=0.8)
    >>> len(left), [int(row) for row in right]
    (8, [8, 9])
    """
    backends = (None, "tensorflow", "torch", "jax", "numpy", "openvino")
    if preferred_backend not in backends:
        raise ValueError(
            f"`preferred_backend` is one of {', '.join(map(str, backends))}, not "
            f"{preferred_backend!r}."
        )
    columns, batch_size = _columns(dataset)
    if left_size is None and right_size is None:
        raise ValueError("Give `left_size`, `right_size`, or both.")
    total = len(columns)
    left, right = _sizes(left_size, right_size, total)
    order = list(range(total))
    if shuffle:
        # Python's own shuffle of a list: the same rows as in Keras for a seed.
        random.Random(random.randint(0, 1_000_000) if seed is None else seed).shuffle(
            order
        )
    numbers = np.array(order)
    return tuple(
        StructuredRows(columns[rows], None, batch_size, False, 0)
        for rows in (numbers[:left], numbers[total - right :])
    )  # type: ignore[return-value]


def _columns(dataset: Any) -> tuple[Columns, int | None]:
    """Return the rows of data of any kind, and its batch size if it has one."""
    if isinstance(dataset, np.ndarray):
        return Columns(dataset), None
    if isinstance(dataset, (list, tuple)):
        return Columns(tuple(_checked_arrays(dataset))), None
    is_set = hasattr(dataset, "unbatch") or hasattr(dataset, "__getitem__")
    if not is_set or isinstance(dataset, (str, dict)):
        raise TypeError(
            "`dataset` must be an array, a list or tuple of arrays, or a data set of "
            f"tf.data or PyTorch, not {type(dataset).__name__}."
        )
    batch_size = _batch_size(dataset)
    samples = dataset if batch_size is None else dataset.unbatch()
    return _gathered(_samples(samples)), batch_size


def _checked_arrays(arrays: Any) -> list[np.ndarray]:
    if not arrays:
        raise ValueError("There are no arrays to split: the list is empty.")
    for number, array in enumerate(arrays):
        if not isinstance(array, np.ndarray):
            raise ValueError(
                f"A list of arrays is expected, but number {number} is "
                f"{type(array).__name__}."
            )
        if len(array) != len(arrays[0]):
            raise ValueError(
                f"The arrays must have as many rows: number {number} has "
                f"{len(array)}, the first {len(arrays[0])}."
            )
    return list(arrays)


def _batch_size(dataset: Any) -> int | None:
    """Return the batch size of a data set, None for one of single samples."""
    size = getattr(dataset, "batch_size", getattr(dataset, "_batch_size", None))
    if not hasattr(dataset, "unbatch") or size is None:
        return None
    return int(size.numpy() if hasattr(size, "numpy") else size)


def _samples(dataset: Any) -> Iterable[Any]:
    if hasattr(dataset, "as_numpy_iterator"):
        return dataset.as_numpy_iterator()
    if hasattr(dataset, "__len__"):
        return (dataset[row] for row in range(len(dataset)))
    return iter(dataset)


def _gathered(samples: Iterable[Any]) -> Columns:
    rows = [tree.map_leaves(np.asarray, sample) for sample in samples]
    if not rows:
        raise ValueError("The data set is empty: there is nothing to split.")
    leaves = [tree.flatten(row) for row in rows]
    shapes = [[leaf.shape for leaf in row] for row in leaves]
    for number, shape in enumerate(shapes):
        if shape != shapes[0]:
            raise ValueError(
                f"All samples must have the same shape: number {number} has {shape}, "
                f"the first {shapes[0]}."
            )
    columns = [np.stack(column) for column in zip(*leaves, strict=True)]
    return Columns(tree.lists_to_tuples(tree.pack(rows[0], columns)))


def _sizes(left: Any, right: Any, total: int) -> tuple[int, int]:
    for name, size in (("left_size", left), ("right_size", right)):
        _check_size(name, size, total)
    if isinstance(left, float) and isinstance(right, float) and left + right > 1:
        raise ValueError("`left_size` and `right_size` are more than all: above 1.")
    counts = [
        round(size * total) if isinstance(size, float) else size
        for size in (left, right)
    ]
    if counts[0] is None:
        counts[0] = total - counts[1]
    if counts[1] is None:
        counts[1] = total - counts[0]
    if sum(counts) > total:
        raise ValueError(
            f"{counts[0]} rows on the left and {counts[1]} on the right are more than "
            f"all {total}."
        )
    if 0 in counts:
        raise ValueError(
            f"Of {total} rows, {counts[0]} would go to the left and {counts[1]} to the "
            "right: neither part may be empty."
        )
    return counts[0], counts[1]


def _check_size(name: str, size: Any, total: int) -> None:
    if size is None:
        return
    if type(size) not in (int, float):
        raise TypeError(f"`{name}` must be a number or None, got {size!r}.")
    most = 1 if isinstance(size, float) else total
    if not 0 < size < most:
        raise ValueError(
            f"`{name}` must be an integer between 0 and {total}, or a share "
            f"between 0 and 1, got {size!r}."
        )
