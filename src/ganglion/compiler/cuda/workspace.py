"""The memory on the device that belongs to one program."""

from __future__ import annotations

from functools import partial

from ganglion.compiler.cuda.emit import Emission, constants_of
from ganglion.compiler.cuda.memory import Memory
from ganglion.compiler.cuda.text import root
from ganglion.compiler.plan.kernels import Buffer

RESULT_BYTES = 64 << 20  # of all results that are kept on the device


class Workspace:
    """The memory of one program: constants, scratch, results, what is filled once."""

    def __init__(self, emission: Emission, memory: Memory) -> None:
        self._emission, self._memory, driver = emission, memory, memory.driver
        self._blocks: list[tuple[int, int]] = []
        self._base = self._allocate(emission.workspace_bytes)
        driver.fill(self._base, 0, emission.workspace_bytes)
        self._constants = {}
        for key, array in constants_of(emission).items():
            self._constants[key] = self._allocate(array.nbytes)
            driver.upload(self._constants[key], array)
        driver.wait()
        each = max((one.nbytes for one in emission.results.values()), default=1)
        self.capacity = max(1, min(4096, RESULT_BYTES // max(each, 1)))
        if not emission.results:
            self.capacity = 1 << 60
        self.results = {
            name: self._allocate(one.nbytes * self.capacity)
            for name, one in emission.results.items()
        }
        self._step = self._allocate(4)

    def _allocate(self, nbytes: int) -> int:
        address = self._memory.allocate(nbytes, "a program's own memory")
        self._blocks.append((address, nbytes))
        return address

    def __del__(self) -> None:
        for address, nbytes in getattr(self, "_blocks", []):
            self._memory.discard(partial(self._memory.release, address, nbytes))

    def address(self, buffer: Buffer) -> int:
        """Return where a buffer is."""
        if buffer.kind == "constant":
            return self._constants[root(buffer)]
        if buffer.kind == "result":
            return self.results[buffer.name]
        if buffer.kind == "step":
            return self._step
        return self._base + self._emission.workspace[root(buffer)]

    def restart(self) -> None:
        """Count steps from zero."""
        self._memory.driver.fill(self._step, 0, 4)
