"""Data for a model: labels, vectors and sequences, and data sets of batches."""

from __future__ import annotations

import itertools
from collections import abc
from typing import Any

import numpy as np

from ganglion import ops
from ganglion.ops.numpy import convert_to_tensor, is_tensor


def to_categorical(x: Any, num_classes: int | None = None) -> Any:
    """Turn class numbers into rows with a single one; a tensor into a tensor.

    >>> to_categorical([0, 2], num_classes=3)
    array([[1., 0., 0.],
           [0., 0., 1.]])
    """
    if is_tensor(x):
        return convert_to_tensor(to_categorical(np.asarray(x), num_classes))
    labels = np.asarray(x).astype("int64")
    shape = labels.shape
    if len(shape) > 1 and shape[-1] == 1:
        shape = shape[:-1]
    flat = labels.ravel()
    if not num_classes:
        if not flat.size:
            raise ValueError("`to_categorical` of no labels needs `num_classes`.")
        num_classes = int(flat.max()) + 1
    bad = np.flatnonzero((flat < 0) | (flat >= num_classes))
    if bad.size:
        raise ValueError(
            f"Label {flat[bad[0]]} at position {bad[0]} is not a class: with "
            f"num_classes={num_classes} they go from 0 to {num_classes - 1}."
        )
    rows = np.zeros((flat.size, num_classes))
    rows[np.arange(flat.size), flat] = 1
    return rows.reshape((*shape, num_classes))


def normalize(x: Any, axis: int = -1, order: Any = 2) -> Any:
    """Divide an array by its norm along an axis; zeros stay zeros.

    >>> normalize([[3.0, 4.0], [0.0, 0.0]])
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    if is_tensor(x):
        return ops.normalize(x, axis, order)
    array = np.asarray(x)
    norm = np.linalg.norm(array, order, axis, keepdims=True)
    return array / np.where(norm == 0, 1, norm)


def pad_sequences(
    sequences: Any,
    maxlen: int | None = None,
    dtype: Any = "int32",
    padding: str = "pre",
    truncating: str = "pre",
    value: Any = 0.0,
) -> np.ndarray:
    """Make all sequences of one length, by cutting and filling.

    Args:
        sequences: The sequences.
        maxlen: The length; by default, that of the longest.
        dtype: The type of the result.
        padding: Where to fill: "pre" or "post".
        truncating: Where to cut: "pre" or "post".
        value: What to fill with.

    >>> pad_sequences([[1], [2, 3, 4]], maxlen=2)
    array([[0, 1],
           [3, 4]], dtype=int32)
    """
    for name, side in (("padding", padding), ("truncating", truncating)):
        if side not in ("pre", "post"):
            raise ValueError(f"`{name}` is 'pre' or 'post', not {side!r}.")
    if not hasattr(sequences, "__len__"):
        raise ValueError("`sequences` must be a list of sequences.")
    if maxlen is not None and maxlen < 0:
        raise ValueError(f"`maxlen` is 0 or more, not {maxlen}.")
    lengths, inner = _measure(sequences)
    length = (max(lengths) if lengths else 0) if maxlen is None else maxlen
    if isinstance(value, str) and np.dtype(dtype).kind not in "OUS":
        raise ValueError(
            f"`dtype` {dtype} is not compatible with `value`, which is text: pass "
            "dtype=object for strings."
        )
    padded = np.full((len(sequences), length, *inner), value, dtype=dtype)
    for number, sequence in enumerate(sequences):
        start = 0 if truncating == "post" else max(len(sequence) - length, 0)
        rest = sequence[start : start + length]
        if not len(rest):
            continue
        row = np.asarray(rest, dtype=dtype)
        if row.shape[1:] != inner:
            raise ValueError(
                f"Sequence {number} holds elements of shape {row.shape[1:]}, the "
                f"others of shape {inner}."
            )
        where = slice(None, len(row)) if padding == "post" else slice(-len(row), None)
        padded[number, where] = row
    return padded


def _measure(sequences: abc.Sequence[Any]) -> tuple[list[int], tuple[int, ...]]:
    """Return the lengths, and the shape of an element of the first that has one."""
    try:
        lengths = [len(sequence) for sequence in sequences]
    except TypeError:
        raise ValueError(
            "`sequences` must be a list of sequences, but holds something that has no "
            "length."
        ) from None
    first = next((s for s, n in zip(sequences, lengths, strict=True) if n), ())
    return lengths, np.asarray(first).shape[1:]


class PyDataset:
    """A data set whose batches are made on demand; derive from it.

    A subclass defines ``__len__`` (the number of batches) and ``__getitem__`` (a batch
    by its number, as a tuple of inputs and targets); `on_epoch_end` may reshuffle.

    Args:
        workers: How many threads make batches; with 1, one of them works ahead of
            the training.
        use_multiprocessing: Whether they are processes, which get the data set pickled
            or forked; what they change of it is not seen here.
        max_queue_size: How many batches are made ahead by more than one worker.

    >>> class Squares(PyDataset):
    ...     def __len__(self):
    ...         return 2
    ...     def __getitem__(self, index):
    ...         return [index], [index**2]
    >>> list(Squares())
    [([0], [0]), ([1], [1])]
    """

    # Subclasses written for Keras 2's `Sequence` do not call `super().__init__()`.
    workers = 1
    use_multiprocessing = False
    max_queue_size = 10

    def __init__(
        self,
        workers: int = 1,
        use_multiprocessing: bool = False,
        max_queue_size: int = 10,
    ) -> None:
        self.workers = workers
        self.use_multiprocessing = use_multiprocessing
        self.max_queue_size = max_queue_size

    def __getitem__(self, index: int) -> Any:
        raise NotImplementedError(
            f"{type(self).__name__} needs a `__getitem__` that returns a batch."
        )

    def __iter__(self) -> abc.Iterator[Any]:
        try:
            count = self.num_batches
        except NotImplementedError:  # whoever iterates ends it
            count = None
        for index in itertools.count() if count is None else range(count):
            yield self[index]

    @property
    def num_batches(self) -> int | None:
        """The number of batches of an epoch, None for an endless data set."""
        if "_num_batches" in self.__dict__:
            return self._num_batches
        if hasattr(self, "__len__"):
            return len(self)
        raise NotImplementedError(
            f"{type(self).__name__} needs a `__len__`, or a property `num_batches` "
            "(None for an endless data set)."
        )

    @num_batches.setter
    def num_batches(self, count: int | None) -> None:
        # Keras 2 had no such property: its data sets may have an attribute so called.
        self._num_batches = count

    def on_epoch_begin(self) -> None:
        """Run before an epoch."""

    def on_epoch_end(self) -> None:
        """Run after an epoch."""


Sequence = PyDataset
