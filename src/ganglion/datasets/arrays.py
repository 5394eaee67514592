"""The four arrays of a data set, and the checksum that says they are the true ones."""

import hashlib
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Split = tuple[Bytes, Bytes]


class Arrays(NamedTuple):
    """A whole data set: images and labels, for training and for testing."""

    x_train: Bytes
    y_train: Bytes
    x_test: Bytes
    y_test: Bytes

    def splits(self) -> tuple[Split, Split]:
        """The nested pairs that Keras' ``load_data`` returns."""
        return (self.x_train, self.y_train), (self.x_test, self.y_test)

    def owned(self) -> "Arrays":
        """The same arrays, whole and writable: a fetch gives what the cache gives."""
        return Arrays(
            *(np.require(array, requirements=["C", "W", "O"]) for array in self)
        )

    def sha256(self) -> str:
        """One checksum over names, types, shapes and contents.

        >>> dot = np.zeros((1, 1, 1), np.uint8)
        >>> Arrays(dot, dot, dot, dot).sha256()[:16]
        'e70fcc797a049c67'
        """
        total = hashlib.sha256()
        for name, array in self._asdict().items():
            # Shape and type belong to the sum: the same bytes cut differently
            # are another data set.
            total.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
            total.update(np.ascontiguousarray(array).data)
        return total.hexdigest()
