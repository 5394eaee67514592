"""Rows that are read batch by batch: files larger than memory, sparse matrices.

A data set of h5py, a memory map whose numbers must be converted, and the rows of
`scipy.sparse` never become one array: each batch is read, converted and made dense by
itself, in a thread ahead of the step. A memory map of float32, or of small
integers, needs none of it: a compiled step gathers from the map.
"""

from __future__ import annotations

from typing import Any

import numpy as np

MOST_BYTES = 1 << 30  # of a file that is read at once


class LazyRows:
    """Rows that are read on access.

    >>> rows = LazyRows(np.arange(12).reshape(6, 2))
    >>> rows[2:][np.array([3, 0])].tolist(), rows[2:].shape
    ([[10, 11], [4, 5]], (4, 2))
    """

    def __init__(self, source: Any, begin: int = 0, end: int | None = None) -> None:
        self._source = source
        self._begin = begin
        self._end = int(source.shape[0]) if end is None else end
        self.shape = (self._end - begin, *map(int, source.shape[1:]))
        self.dtype = np.dtype(source.dtype)
        self.ndim = len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> Any:
        if isinstance(rows, slice):
            begin, end, step = rows.indices(len(self))
            if step != 1:
                raise ValueError("Rows of a file can be sliced only with a step of 1.")
            if end - begin < len(self):
                return LazyRows(self._source, self._begin + begin, self._begin + end)
            return self
        return self._read(np.asarray(rows) + self._begin)

    def _read(self, rows: np.ndarray) -> np.ndarray:
        """Read rows in any order; h5py takes indices in increasing order only."""
        ordered, inverse = np.unique(rows, return_inverse=True)
        is_range = len(ordered) and ordered[-1] - ordered[0] + 1 == len(ordered)
        key: Any = slice(ordered[0], ordered[-1] + 1) if is_range else ordered
        part = self._source[key]
        if hasattr(part, "toarray"):
            part = part.toarray()
        return np.asarray(part)[inverse]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self._read(np.arange(len(self)) + self._begin), dtype)


def as_lazy(x: Any) -> Any:
    """Return data that must be read in batches as `LazyRows`, other data unchanged."""
    if hasattr(x, "tocsr") and hasattr(x, "toarray"):
        return LazyRows(x.tocsr())
    if isinstance(x, np.memmap) and x.ndim:
        is_as_computed = x.dtype.name in ("float32", "int32", "uint8", "int8", "bool")
        is_ready = is_as_computed and x.flags.c_contiguous
        return x if is_ready or x.nbytes <= MOST_BYTES else LazyRows(x)
    if type(x).__module__.partition(".")[0] == "h5py" and hasattr(x, "chunks"):
        return LazyRows(x) if x.nbytes > MOST_BYTES else x[()]
    return x
