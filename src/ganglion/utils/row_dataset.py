"""Rows in memory as a data set of batches, with the methods of tf.data's."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ganglion.random import shuffled
from ganglion.tensors import as_tensor
from ganglion.utils.data import PyDataset

# Other methods of tf.data, looked up there on use; the last two are those that its data
# sets call on the ones that they join (`zip`, `concatenate`, `interleave`).
_FURTHER = frozenset(
    {"apply", "cardinality", "concatenate", "element_spec", "enumerate", "filter"}
    | {"flat_map", "get_single_element", "interleave", "options", "padded_batch"}
    | {"reduce", "repeat", "scan", "shard", "take_while", "window", "with_options"}
    | {"_start", "_length"}
)


class RowDataset(PyDataset):
    """Rows in batches; `fit` takes the rows themselves, and is fast.

    `x` and `y` hold all rows. The methods of tf.data's that scripts call on such data
    (`take`, `skip`, `map`, `batch`, `unbatch`, `cache`, `shuffle`, `prefetch`,
    `as_numpy_iterator`) are there; `class_names` and `file_paths` are as in Keras where
    rows are files.

    Args:
        x: The rows: an array, or what can be indexed like one.
        y: What belongs to them, or None.
        batch_size: Rows a batch; None for single rows.
        shuffle: Whether each pass has its own order.
        seed: Of those orders.

    >>> data = RowDataset(np.arange(5), None, 2, False, 0)
    >>> [batch.tolist() for batch in data.map(lambda x: 10 * x)]
    [[0, 10], [20, 30], [40]]
    """

    def __init__(
        self,
        x: Any,
        y: np.ndarray | None,
        batch_size: int | None,
        shuffle: bool,
        seed: int,
    ) -> None:
        super().__init__()
        self.x, self.y = x, y
        self.batch_size, self._shuffle, self._seed = batch_size, shuffle, seed
        self.class_names: list[str] | None = None
        self.file_paths: list[str] = []
        self._passes = 0
        self._change: Callable[..., Any] | None = None

    def __len__(self) -> int:
        return -(-len(self.x) // (self.batch_size or 1))

    def __getitem__(self, index: int) -> Any:
        return self._batch(np.arange(len(self.x)), index)

    def __iter__(self) -> Iterator[Any]:
        order = np.arange(len(self.x))
        if self._shuffle:
            order = shuffled(self._seed, self._passes, len(order))
            self._passes += 1
        for index in range(len(self)):
            yield self._batch(order, index)

    def _batch(self, order: np.ndarray, index: int) -> Any:
        size = self.batch_size or 1
        rows = np.sort(order[index * size : (index + 1) * size])
        parts = [self._inputs(rows)]
        parts += [] if self.y is None else [self.y[rows]]
        if self.batch_size is None:  # single rows
            parts = [part[0] for part in parts]
        parts = [as_tensor(part) for part in parts]
        batch = parts[0] if self.y is None else tuple(parts)
        return batch if self._change is None else _applied(self._change, batch)

    def _inputs(self, rows: np.ndarray) -> np.ndarray:
        inputs: np.ndarray = self.x[rows]
        return inputs

    def as_rows(self) -> dict[str, Any] | None:
        """Return what `fit` needs to work on the rows; None if batches are changed."""
        if self._change is not None or self.batch_size is None:
            return None
        return {
            "x": self.x,
            "y": self.y,
            "batch_size": min(self.batch_size, len(self.x)),
            "shuffle": self._shuffle,
        }

    def _copy(self, **changed: Any) -> RowDataset:
        copied = copy.copy(self)
        vars(copied).update(changed)
        return copied

    def _part(self, rows: slice) -> RowDataset:
        y = None if self.y is None else self.y[rows]
        return self._copy(x=self.x[rows], y=y, file_paths=self.file_paths[rows])

    def take(self, count: int) -> RowDataset:
        """Return the data of the first batches."""
        return self._part(slice(self._rows_in(count) if count >= 0 else None))

    def skip(self, count: int) -> RowDataset:
        """Return the data of all but the first batches; of none if `count` is -1."""
        return self._part(
            slice(self._rows_in(count) if count >= 0 else len(self.x), None)
        )

    def _rows_in(self, batches: int) -> int:
        return batches * (self.batch_size or 1)

    def batch(
        self, batch_size: int, drop_remainder: bool = False, *args: Any, **kwargs: Any
    ) -> Any:
        """Return the data in batches; it must be of single rows."""
        if self.batch_size is not None:
            raise ValueError(
                f"The data is in batches of {self.batch_size} already: pass "
                "`batch_size` where it is made, or call `unbatch` first."
            )
        if self._change is not None:
            return self._as_tf_data().batch(batch_size, drop_remainder)
        count = len(self.x) // batch_size * batch_size if drop_remainder else None
        return self._part(slice(count))._copy(batch_size=batch_size)

    def unbatch(self) -> Any:
        """Return the data as single rows."""
        if self._change is not None:  # what `map` has made of the batches
            return self._as_tf_data().unbatch()
        return self._copy(batch_size=None)

    def as_numpy_iterator(self) -> Iterator[Any]:
        """Return an iterator over the batches, which are arrays."""
        return iter(self)

    def map(self, map_func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Return the data with a function applied to every batch."""
        before = self._change

        def both(*batch: Any) -> Any:
            return _applied(map_func, batch if before is None else before(*batch))

        return self._copy(_change=both)

    def shuffle(self, *args: Any, **kwargs: Any) -> RowDataset:
        """Return the data in another order in each epoch, all rows at once."""
        return self._copy(_shuffle=True)

    def __getattr__(self, name: str) -> Any:
        if name not in _FURTHER:
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}"
            )
        return getattr(self._as_tf_data(), name)

    def _as_tf_data(self) -> Any:
        # By its name, and late: `compat.tensorflow` is built on top of all this.
        data = importlib.import_module("ganglion.compat.tensorflow.data.dataset")
        return data.Dataset.from_batches(self)

    def cache(self, *args: Any, **kwargs: Any) -> RowDataset:
        """Return the data: it is decoded already."""
        return self

    def prefetch(self, *args: Any, **kwargs: Any) -> RowDataset:
        """Return the data: there is nothing to wait for."""
        return self


def _applied(function: Callable[..., Any], batch: Any) -> Any:
    return function(*batch) if isinstance(batch, tuple) else function(batch)
