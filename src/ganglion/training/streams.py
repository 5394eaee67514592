"""Streams of batches: generators, a `PyDataset`, a `DataLoader`, rows for the host."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from ganglion.random import shuffled
from ganglion.system.prefetch import in_workers
from ganglion.training.host_rows import RowBatches

ClassWeight = dict[int, float] | None


class Stream:
    """A stream of batches: a generator, a `PyDataset`, or any iterable of (x, y, w)."""

    def __init__(
        self,
        source: Any,
        shuffle: bool = False,
        seed: int = 0,
        class_weight: ClassWeight = None,
    ) -> None:
        self._source = source
        self.class_weight = class_weight
        self._shuffle, self._seed = shuffle, seed
        self.pass_number, self.seen = 0, 0  # the pass, and its batches so far
        self._indexed = hasattr(source, "__getitem__") and hasattr(source, "__len__")
        self._open: Iterator[Any] | None = None
        self._began = False
        self.length = self._length()

    def _length(self) -> int | None:
        known = getattr(self._source, "num_batches", None)
        if known is not None and not callable(known):
            return int(known)
        try:
            return len(self._source)
        except TypeError:
            return None

    def batches(
        self, limit: int | None, done: int = 0
    ) -> Iterator[tuple[Any, Any, Any]]:
        """Yield an epoch: up to ``limit`` batches, or until the source ends.

        With a limit, an epoch continues where the one before ended, as in Keras; at the
        end of the source it ends early. ``done`` of the epoch were seen before it was
        interrupted. A generator that ended in an earlier epoch yields nothing.
        """
        if limit is None:
            self._refuse_endless()
        if limit is None and not done:
            self.restart()
        _call(self._source, "on_epoch_begin")
        wanted = self.length if limit is None else limit
        count, is_over = done, self._pass_is_over()
        if self._open is None:
            self._open = self._start(done)
        while (wanted is None or count < wanted) and not is_over:
            try:
                batch = next(self._open)
            except StopIteration:
                is_over = True
                break
            self._began = True
            self.seen += 1
            count += 1
            yield unpack(batch)
            is_over = self._pass_is_over()
        if is_over:
            self.restart()
            self.pass_number += 1
        if not self._began and not done:
            raise ValueError(
                "The generator yielded no batch: there is nothing to work on. A "
                "generator that was used before is at its end: make a new one."
            )
        is_short = count == 0 or (wanted is not None and count < wanted)
        if is_short or (is_over and self._is_generator()):
            warn_of_end(count, wanted)

    def _refuse_endless(self) -> None:
        cardinality = getattr(self._source, "cardinality", None)  # of tf.data
        if callable(cardinality) and int(cardinality()) == -1:
            raise ValueError(
                "The data set repeats without an end, so an epoch has none: say how "
                "many batches it has with `steps_per_epoch` (`steps` in `evaluate` and "
                "`predict`), or call `repeat` with a number."
            )

    def _pass_is_over(self) -> bool:
        return self.length is not None and self.seen >= self.length

    def _is_generator(self) -> bool:
        return self.length is None and iter(self._source) is self._source

    def _start(self, done: int) -> Iterator[Any]:
        if not self._indexed:
            batches = iter(self._source)
            for _ in range(done):  # what an interrupted run has seen
                next(batches, None)
            return batches
        order: Any = range(len(self._source))
        if self._shuffle and isinstance(self._source, RowBatches):
            batches = self._source.shuffled(self._seed, self.pass_number)
            return (batches[index] for index in order[self.seen :])
        if self._shuffle:
            order = shuffled(self._seed, self.pass_number, len(order)).tolist()
        return self._by_number(order[self.seen :])

    def _by_number(self, indices: Any) -> Iterator[Any]:
        """Yield batches by number, prepared by as many workers as the source sets."""
        workers = int(getattr(self._source, "workers", 1))
        processes = bool(getattr(self._source, "use_multiprocessing", False))
        if workers < 2 and not processes:
            return (self._source[index] for index in indices)
        ahead = int(getattr(self._source, "max_queue_size", 10))
        return in_workers(self._source, indices, max(workers, 1), ahead, processes)

    def split(self, share: float) -> tuple[Stream, Stream]:
        """Split off the last rows of arrays for validation, before any shuffling."""
        assert isinstance(self._source, RowBatches)
        first, last = self._source.split(share)
        return Stream(first, self._shuffle, self._seed), Stream(last)

    def restart(self) -> None:
        """Restart with the first batch, if the source can be read more than once."""
        self._open, self.seen = None, 0

    def end_epoch(self) -> None:
        """Notify a `PyDataset` of the end of an epoch."""
        _call(self._source, "on_epoch_end")


def _call(source: Any, hook: str) -> None:
    method = getattr(source, hook, None)
    if method is not None:
        method()


def warn_of_end(count: int, wanted: int | None) -> None:
    """Warn, in Keras' words, that the data has ended before the epoch."""
    of = "" if wanted is None else f" of {wanted}"
    warnings.warn(
        "Your input ran out of data; interrupting training. The data ended after "
        f"{count}{of} batches: make sure that it can generate at least "
        "`steps_per_epoch * epochs` batches, or lower `steps_per_epoch`.",
        stacklevel=3,
    )


def unpack(batch: Any) -> tuple[Any, Any, Any]:
    """Return (x, y, sample_weight) from what a generator yields.

    >>> unpack((1, 2))
    (1, 2, None)
    """
    if not isinstance(batch, tuple) and not (
        isinstance(batch, list) and len(batch) in (2, 3)
    ):
        return batch, None, None
    parts = tuple(batch)
    if not 1 <= len(parts) <= 3:
        raise ValueError(
            f"A batch must be (x,), (x, y) or (x, y, sample_weight), not {len(parts)} "
            "parts."
        )
    return (*parts, None, None)[:3]
