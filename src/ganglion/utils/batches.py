"""Data that makes its batches itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


class PyDataset:
    """A data set whose batches are made on demand; derive from it.

    A subclass defines ``__len__`` (the number of batches) and ``__getitem__`` (a batch
    by its number, as a tuple of inputs and targets); `on_epoch_end` may reshuffle.

    Args:
        workers: Accepted; batches are made where training runs, one after the other.
        use_multiprocessing: Accepted, like `workers`.
        max_queue_size: Accepted, like `workers`.

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

    def __iter__(self) -> Iterator[Any]:
        index = 0
        while self.num_batches is None or index < self.num_batches:
            yield self[index]
            index += 1

    @property
    def num_batches(self) -> int | None:
        """The number of batches of an epoch, None for an endless data set."""
        if hasattr(self, "__len__"):
            return len(self)
        raise NotImplementedError(
            f"{type(self).__name__} needs a `__len__`, or a property `num_batches` "
            "(None for an endless data set)."
        )

    def on_epoch_begin(self) -> None:
        """Run before an epoch."""

    def on_epoch_end(self) -> None:
        """Run after an epoch."""


Sequence = PyDataset
