"""The variables of many models on a GPU: each model has a row of memory.

A model's variables lie a fixed stride behind those of the model before. Those that are
set before each epoch come first in a row, then other small ones such as counters, so
that a single strided copy transfers those of all models.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

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
    """A row of memory for each model, on the device and on the host.

    Args:
        first: The variables of the first model.
        models: How many models there are.
        on: The memory of a device.
        leading: The numbers of the variables that are set before each epoch.
    """

    def __init__(
        self,
        first: Sequence[np.ndarray],
        models: int,
        on: Memory,
        leading: Sequence[int] = (),
    ) -> None:
        self._memory, self.models = on, models
        self._offsets = [0] * len(first)
        self._kinds = [(array.shape, array.dtype) for array in first]
        end = 0
        self._small_bytes = self._leading_bytes = 0
        others = [number for number in range(len(first)) if number not in leading]
        others.sort(key=lambda n: first[n].nbytes > SMALL)
        self._pieces: list[tuple[int, bytes]] = []  # variables, with what is before
        for number in (*leading, *others):
            is_small = first[number].nbytes <= SMALL
            last, end = end, rounded(end, 16 if is_small else ALIGNMENT)
            self._pieces.append((number, bytes(end - last)))
            self._offsets[number] = end
            end += first[number].nbytes
            if is_small or number in leading:
                self._small_bytes = rounded(end, 16)
            if number in leading:
                self._leading_bytes = self._small_bytes
        self.stride = rounded(max(end, 1), ALIGNMENT)
        with on.lock:
            on.driver.use()
            purpose = f"the variables of {models} models"
            remedy = "how many models are trained at once"
            nbytes = self.stride * models
            self._address = on.allocate(nbytes, purpose, remedy)
            self._host = on.host_array(nbytes).reshape(models, self.stride)
        self._saved: int | None = None  # the address of a copy of all rows

    def __del__(self) -> None:
        if hasattr(self, "_host"):
            address, nbytes = self._address, self.stride * self.models
            self._memory.discard(partial(self._memory.release, address, nbytes))
            if self._saved is not None:
                saved = self._saved
                self._memory.discard(partial(self._memory.release, saved, nbytes))
            host = self._host.reshape(-1)
            self._memory.discard(partial(self._memory.release_host, host))

    def array(self, number: int) -> np.ndarray:
        """Return a variable of all models on the host: a view with a row for each."""
        return self._view(number, self._host)

    def _view(self, number: int, host: np.ndarray) -> np.ndarray:
        shape, dtype = self._kinds[number]
        return np.ndarray(
            (self.models, *shape),
            dtype,
            host.reshape(-1),
            self._offsets[number],
            (host.shape[1], *np.empty(shape, dtype).strides),
        )

    def fill(self, model: int, arrays: Sequence[np.ndarray]) -> None:
        """Set all variables of a model on the host."""
        parts: list[Any] = []  # buffers
        for number, before in self._pieces:
            parts += (before, arrays[number])
        try:  # several times as fast as one by one
            row = np.frombuffer(b"".join(parts), np.uint8)
        except (ValueError, BufferError):  # of a type that is not NumPy's own
            for number, array in enumerate(arrays):
                self.array(number)[model] = array
        else:
            self._host[model, : row.size] = row

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

    # ---- epochs that the host does not wait for ------------------------------------

    def save(self) -> bool:
        """Copy all rows on the device; return False if there is no room."""
        nbytes = self.stride * self.models
        with self._memory.lock:
            self._memory.driver.use()
            if self._saved is None:
                purpose = f"a copy of the variables of {self.models} models"
                try:
                    self._saved = self._memory.allocate(nbytes, purpose, "models")
                except MemoryError:
                    return False
            self._memory.driver.copy(self._saved, self._address, nbytes)
        return True

    def restore(self) -> None:
        """Set all rows on the device to what was saved."""
        assert self._saved is not None
        with self._memory.lock:
            self._memory.driver.use()
            nbytes = self.stride * self.models
            self._memory.driver.copy(self._address, self._saved, nbytes)

    def passes(self, least: int, most: int, most_bytes: int) -> Passes:
        """Return memory for the leading variables in passes: as many as fit."""
        each = 2 * self.models * max(self._leading_bytes, 1)
        count = min(max(most_bytes // each, least), most)
        return Passes(self, self._memory, count)


class Passes:
    """The leading variables of all models before and after passes through the data.

    The host sets those of several passes, and reads them when all of these are over.
    Between passes, only the device copies: many short rows take long from the host.
    """

    def __init__(self, rows: ModelRows, on: Memory, count: int) -> None:
        self._rows, self._memory, self.count = rows, on, count
        shape = (2, count, rows.models, rows._leading_bytes)
        with on.lock:
            on.driver.use()
            self._host = on.host_array(math.prod(shape))
            purpose, remedy = "metrics", "how many models are trained at once"
            self._address = on.allocate(self._host.nbytes, purpose, remedy)
        self._before, self._after = self._host.reshape(shape)

    def __del__(self) -> None:
        if hasattr(self, "_address"):
            release, nbytes = self._memory.release, self._host.nbytes
            self._memory.discard(partial(release, self._address, nbytes))
        if hasattr(self, "_host"):
            self._memory.discard(partial(self._memory.release_host, self._host))

    def set(self, number: int) -> None:
        """Begin a pass with what the host has of the leading variables."""
        self._before[number] = self._rows._host[:, : self._rows._leading_bytes]

    def upload(self, count: int) -> None:
        """Start copying what so many passes begin with."""
        with self._memory.lock:
            self._memory.driver.use()
            self._memory.driver.upload(self._address, self._before[:count])

    def begin(self, number: int) -> None:
        """Set the leading variables on the device."""
        self._copy(self._rows._address, self._rows.stride, *self._place(0, number))

    def end(self, number: int) -> None:
        """Keep the leading variables on the device."""
        self._copy(*self._place(1, number), self._rows._address, self._rows.stride)

    def download(self, count: int) -> None:
        """Start copying what so many passes have ended with."""
        address, _ = self._place(1, 0)
        with self._memory.lock:
            self._memory.driver.use()
            self._memory.driver.download(self._after[:count], address)

    def array(self, number: int, variable: int) -> np.ndarray:
        """Return a variable of all models as it was after a pass, once it is here."""
        return self._rows._view(variable, self._after[number])

    def _place(self, side: int, number: int) -> tuple[int, int]:
        """Return the address of the first model's variables, and the stride."""
        width = self._rows._leading_bytes
        index = side * self.count + number
        return self._address + index * self._rows.models * width, width

    def _copy(self, to: int, stride: int, address: int, from_stride: int) -> None:
        shape = (self._rows.models, self._rows._leading_bytes)
        with self._memory.lock:
            self._memory.driver.use()
            self._memory.driver.copy_rows(to, stride, address, from_stride, shape)
