"""An input or an output of a file."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

STRINGS = np.dtype(object)  # in the place of a type: a row has texts


@dataclass(frozen=True)
class Port:
    """An input or an output: its name, its shape without rows, and its type."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def size(self) -> int:
        """The elements of a row."""
        return math.prod(self.shape)

    @property
    def is_text(self) -> bool:
        """Whether a row has texts."""
        return self.dtype == STRINGS

    def row_bytes(self, pointer: int) -> int:
        """Return the bytes of a row, where a pointer to a text has that many."""
        return self.size * (pointer if self.is_text else self.dtype.itemsize)
