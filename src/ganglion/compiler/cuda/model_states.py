"""The variables of many models on a GPU: each model has a row of memory.

A model's variables lie a fixed stride behind those of the model before. Small arrays,
such as sums of metrics and cursors, come first in a row, so that a single strided copy
transfers those of all models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from ganglion.compiler.cuda.memory import Memory
from ganglion.compiler.plan.plan import rounded

ALIGNMENT = 128  # bytes; 16 for what is smaller than that
SMALL = 64  # bytes


@dataclass(frozen=True)
class ModelStates:
    """Where the variables of all models are, by the names of a program."""

    address_of_first: int
    stride: int
    offsets: Mapping[str, int]

    def address(self, name: str) -> int:
        """Return the address of the first model's variable."""
        return self.address_of_first + self.offsets[name]


class ModelRows:
    """A row of memory for each model, on the device and on the host."""

    def __init__(self, first: Sequence[np.ndarray], models: int, on: Memory) -> None:
        self._memory, self.models = on, models
        self._offsets = [0] * len(first)
        self._kinds = [(array.shape, array.dtype) for array in first]
        end = 0
        order = sorted(range(len(first)), key=lambda n: first[n].nbytes > SMALL)
        self._small_bytes = 0
        for number in order:
            is_small = first[number].nbytes <= SMALL
            end = rounded(end, 16 if is_small else ALIGNMENT)
            self._offsets[number] = end
            end += first[number].nbytes
            if is_small:
                self._small_bytes = rounded(end, 16)
        self.stride = rounded(max(end, 1), ALIGNMENT)
        with on.lock:
            on.driver.use()
            purpose = f"the variables of {models} models"
            remedy = "how many models are trained at once"
            nbytes = self.stride * models
            self._address = on.allocate(nbytes, purpose, remedy)
            self._host = on.host_array(nbytes).reshape(models, self.stride)

    def __del__(self) -> None:
        if hasattr(self, "_host"):
            address, nbytes = self._address, self.stride * self.models
            self._memory.discard(partial(self._memory.release, address, nbytes))
            host = self._host.reshape(-1)
            self._memory.discard(partial(self._memory.release_host, host))

    def array(self, number: int) -> np.ndarray:
        """Return a variable of all models on the host: a view with a row for each."""
        shape, dtype = self._kinds[number]
        return np.ndarray(
            (self.models, *shape),
            dtype,
            self._host.reshape(-1),
            self._offsets[number],
            (self.stride, *np.empty(shape, dtype).strides),
        )

    def states(self, numbers: Mapping[str, int]) -> ModelStates:
        """Return the variables under the names of a program."""
        offsets = {name: self._offsets[number] for name, number in numbers.items()}
        return ModelStates(self._address, self.stride, offsets)

    def upload(self, small: bool = False) -> None:
        """Copy all rows to the device, or only the small arrays of all models."""
        with self._memory.lock:
            self._memory.driver.use()
            rows = self._host[:, : self._small_bytes] if small else self._host
            self._memory.driver.upload_rows(self._address, rows, self.stride)

    def download(self, small: bool = False) -> None:
        """Wait for the device, and copy all rows from it, or only the small arrays."""
        with self._memory.lock:
            self._memory.driver.use()
            rows = self._host[:, : self._small_bytes] if small else self._host
            self._memory.driver.download_rows(rows, self._address, self.stride)
            self._memory.wait()
