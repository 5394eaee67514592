"""Rows for a model whose first layers run on the host: texts, lookups and hashes.

The host part of a small table is computed once. If its result is large, or its size
differs from batch to batch, each batch is computed by itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ganglion import tree
from ganglion.random import shuffled
from ganglion.system.records import record

MOST_BYTES = 256 << 20  # of the numbers of a table that is computed at once


@record(guarded=True)
class RowBatches:
    """Arrays as batches of their rows, in order or shuffled.

    >>> batches = RowBatches((np.arange(5), None, None), rows=5, size=2)
    >>> [x.tolist() for x, _, _ in batches]
    [[0, 1], [2, 3], [4]]
    >>> [x.tolist() for x, _, _ in batches.shuffled(seed=1, epoch=0)]
    [[1, 4], [0, 2], [3]]
    """

    parts: tuple[Any, Any, Any]  # x, y and weights
    rows: int
    size: int
    order: np.ndarray | None = None

    def __len__(self) -> int:
        return -(-self.rows // self.size)

    def __getitem__(self, number: int) -> tuple[Any, Any, Any]:
        if not 0 <= number < len(self):
            raise IndexError(number)
        rows: Any = slice(number * self.size, (number + 1) * self.size)
        return self._taken(rows if self.order is None else self.order[rows])

    def _taken(self, rows: Any) -> Any:
        def taken(leaf: Any) -> Any:
            return None if leaf is None else leaf[rows]

        return tuple(tree.map_leaves(taken, part) for part in self.parts)

    def shuffled(self, seed: int, epoch: int) -> RowBatches:
        """Return the batches in the order of an epoch, that of a compiled step."""
        return replace(self, order=shuffled(seed, epoch, self.rows))

    def split(self, share: float) -> tuple[RowBatches, RowBatches]:
        """Split off the last rows for validation."""
        at = split_row(self.rows, share)
        before, behind = self._taken(slice(at)), self._taken(slice(at, None))
        return (
            RowBatches(before, at, min(self.size, at)),
            RowBatches(behind, self.rows - at, min(self.size, self.rows - at)),
        )


def split_row(rows: int, share: float) -> int:
    """Return the first row of a share of the rows at the end."""
    if not 0 < share < 1:
        raise ValueError(f"`validation_split` must lie in (0, 1), got {share}.")
    at = int(np.floor(rows * (1 - share)))
    if at == 0 or at == rows:
        raise ValueError(
            f"validation_split={share} of {rows} rows leaves one part empty."
        )
    return at
