"""Arrays of the host that are mirrored on the device, and memory to allocate from.

Only what has changed since the last run is copied: state is compared with what it was.
Data is brought once, because a new `fit` brings new arrays in any case.
"""

from __future__ import annotations

import threading
import weakref
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ganglion.compiler import device_arrays
from ganglion.compiler.cuda.driver import Driver, OutOfMemory
from ganglion.compiler.cuda.emit import Emission, constants_of
from ganglion.compiler.plan.kernels import Buffer

UNIT = 512  # bytes of an allocation
COMPARED_AT_ONCE = 4096  # bytes
RESULT_BYTES = 64 << 20  # of all results of a program on the device
SPARE_PINNED = 64 << 20  # bytes of the host that are kept for the next mirror


@dataclass(eq=False)
class Mirror:
    """An array's copy on the device, and what the host's looked like then."""

    address: int
    size: int
    host_copy: np.ndarray | None = None  # of the host's bytes
    is_current: bool = False  # of data: whether the device has it as it is
    host_range: tuple[int, int] | None = None  # of data: address and size
    users: int = 0  # arrays that it is the mirror of
    uploaded: int = -1  # of state: after which wait it was last copied here


def as_bytes(array: np.ndarray) -> np.ndarray:
    """Return the bytes of a contiguous array."""
    return array.reshape(-1).view(np.uint8)


class Memory:
    """The memory of one device."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self._mirrors: dict[int, Mirror] = {}
        self._data_mirrors: dict[tuple[int, int], Mirror] = {}
        self._spare: dict[int, list[int]] = defaultdict(list)
        self._spare_pinned: dict[int, list[np.ndarray]] = defaultdict(list)
        self._spare_pinned_bytes = 0
        # Finalizers run at any time and in any thread, also in the middle of a change
        # of these tables: they only say here what is to be done, under the lock.
        self._discarded: deque[Callable[[], None]] = deque()
        self._arena = (0, 0)
        self._waits = 0
        self.kept_code: dict[Any, Any] = {}  # see `code.py`
        self.lock = threading.RLock()
        IN_USE.add(self)

    # ---- allocation ----------------------------------------------------------------

    def allocate(self, nbytes: int, purpose: str, remedy: str = "`batch_size`") -> int:
        """Return the address of memory that may have been used before."""
        size = self.rounded(nbytes)
        self.collect()
        if self._spare[size]:
            return self._spare[size].pop()
        try:
            return self.driver.allocate(size)
        except OutOfMemory:
            self._give_back()
        try:
            return self.driver.allocate(size)
        except OutOfMemory:
            raise self.refused(size, purpose, remedy) from None

    def refused(self, size: int, purpose: str, remedy: str) -> MemoryError:
        """Return the error for something that the device has no room for."""
        free, total = self.driver.memory()
        return MemoryError(
            f"The GPU has no room for {purpose}: {_megabytes(size)} are needed, "
            f"{_megabytes(free)} of {_megabytes(total)} are free. Lower {remedy}, or "
            "use the backend 'cpu'."
        )

    @staticmethod
    def rounded(nbytes: int) -> int:
        """Return the size of a block of memory."""
        return -(-max(nbytes, 1) // UNIT) * UNIT

    def release(self, address: int, nbytes: int) -> None:
        """Keep memory for the next allocation of the same size."""
        self._spare[self.rounded(nbytes)].append(address)

    def discard(self, free: Callable[[], None]) -> None:
        """Let go of something when the device is asked next; for finalizers."""
        self._discarded.append(free)

    def collect(self) -> None:
        """Do what finalizers have asked for."""
        while self._discarded:
            self._discarded.popleft()()

    def unload(self, graphs: list[Any], modules: list[Any]) -> None:
        """Let go of recordings and code."""
        self.wait()
        for graph in graphs:
            self.driver.forget(graph)
        for module in modules:
            self.driver.unload(module)

    def _give_back(self) -> None:
        self.wait()
        for addresses in self._spare.values():
            while addresses:
                self.driver.free(addresses.pop())
        for arrays in self._spare_pinned.values():
            while arrays:
                self.driver.free_host(arrays.pop())
        self._spare_pinned_bytes = 0

    def free(self) -> None:
        """Give back to the device what no program uses now, and the shared arena."""
        with self.lock:
            self.driver.use()
            self.kept_code.clear()
            self.collect()
            self._give_back()
            address, _ = self._arena
            if address:  # the next run allocates it, and records again
                self._arena = (0, 0)
                self.driver.free(address)

    def arena(self, nbytes: int) -> int:
        """Return memory that all programs use in turn; it moves when it must grow."""
        address, size = self._arena
        if size < nbytes:
            if address:
                self.wait()
                self._arena = (0, 0)
                self.driver.free(address)
            address = self.allocate(nbytes, "what is computed within a step")
            self._arena = (address, self.rounded(nbytes))
        return address

    # ---- mirrors -------------------------------------------------------------------

    def mirror(self, array: np.ndarray, name: str, is_data: bool) -> Mirror:
        """Return an array's mirror; it is made when it is first asked for."""
        known = self._mirrors.get(id(array))
        if known is None:
            known = self._mirror_of_data(array, name) if is_data else None
            if known is None:
                device_arrays.sync_to_host(array)  # it may be dirty on another device
                purpose = f"the array {name!r}"
                address = self.allocate(array.nbytes, purpose, "the model's size")
                known = Mirror(address, array.nbytes)
            known.users += 1
            self._mirrors[id(array)] = known
            gone = weakref.finalize(array, self._forget, id(array))
            gone.atexit = False
        return known

    def _mirror_of_data(self, array: np.ndarray, name: str) -> Mirror:
        """Return the mirror of some memory: one, however many arrays show it.

        A new array is a sign that it may have been changed.
        """
        host_range = (array.__array_interface__["data"][0], array.nbytes)
        known = self._data_mirrors.get(host_range)
        if known is None:
            remedy = "the rows given at a time (a generator gives batches)"
            address = self.allocate(array.nbytes, f"the array {name!r}", remedy)
            known = self._data_mirrors[host_range] = Mirror(
                address, array.nbytes, host_range=host_range
            )
        known.is_current = False
        return known

    def _forget(self, key: int) -> None:
        """Note that an array is gone: at once, another may get its address."""
        device_arrays.forget(key)
        mirror = self._mirrors.pop(key, None)
        if mirror is not None:
            self.discard(partial(self._leave, mirror))

    def _leave(self, mirror: Mirror) -> None:
        """Use the memory of a mirror again, if this was its last array."""
        mirror.users -= 1
        if mirror.users:
            return
        if mirror.host_range is not None:
            self._data_mirrors.pop(mirror.host_range, None)
        self.release(mirror.address, mirror.size)
        if mirror.host_copy is not None:
            self.release_host(mirror.host_copy)

    def refresh(self, array: np.ndarray, mirror: Mirror, is_data: bool) -> bool:
        """Copy an array to the device if it has changed; return whether it has."""
        if is_data:
            if mirror.is_current:
                return False
            self.driver.upload(mirror.address, array)
            mirror.is_current = True
            return True
        if mirror.host_copy is None:
            mirror.host_copy = self.host_array(array.nbytes)
        elif _equal(mirror.host_copy, array):
            return False
        if mirror.uploaded == self._waits:  # that copy may still read what it saw
            self.wait()
        mirror.host_copy[...] = as_bytes(array)
        self.driver.upload(mirror.address, mirror.host_copy)
        mirror.uploaded = self._waits
        return True

    def wait(self) -> None:
        """Wait until everything is done, all copies too."""
        self.driver.wait()
        self._waits += 1

    def host_array(self, nbytes: int) -> np.ndarray:
        """Return memory of the host that is copied from and to quickly."""
        spare = self._spare_pinned[nbytes]
        if spare:
            self._spare_pinned_bytes -= nbytes
            return spare.pop()
        try:
            return self.driver.host_array(nbytes)
        except OutOfMemory:  # copies from and to other memory are only slower
            return np.empty(nbytes, np.uint8)

    def release_host(self, array: np.ndarray) -> None:
        """Keep memory of the host for who needs as much, if it is not too much."""
        if self._spare_pinned_bytes + array.nbytes <= SPARE_PINNED:
            self._spare_pinned[array.nbytes].append(array)
            self._spare_pinned_bytes += array.nbytes
        else:
            self.wait()  # a copy may still read it
            self.driver.free_host(array)

    def copy_to_host(self, mirror: Mirror, array: np.ndarray) -> None:
        """Copy what the device has into an array, under the lock."""
        self.driver.use()
        self.fetch(mirror)
        self.wait()
        as_bytes(array)[...] = mirror.host_copy

    def fetch(self, mirror: Mirror) -> None:
        """Start copying what the device has; it is in `seen` after a wait."""
        if mirror.host_copy is None:
            mirror.host_copy = self.host_array(mirror.size)
        self.driver.download(mirror.host_copy, mirror.address)


IN_USE: weakref.WeakSet[Memory] = weakref.WeakSet()


def _equal(host_copy: np.ndarray, array: np.ndarray) -> bool:
    """Compare bytes with an array's, eight at a time where there are as many."""
    if len(host_copy) <= COMPARED_AT_ONCE:
        return host_copy.tobytes() == array.tobytes()
    new, words = as_bytes(array), len(host_copy) // 8 * 8
    first, second = (array[:words].view(np.uint64) for array in (host_copy, new))
    return np.array_equal(first, second) and np.array_equal(
        host_copy[words:], new[words:]
    )


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def contiguous(arrays: dict[str, Any]) -> dict[str, Any]:
    """Return copies of the arrays that do not lie in one block."""
    return {
        name: np.ascontiguousarray(array)
        for name, array in arrays.items()
        if not array.flags.c_contiguous
    }


class Workspace:
    """The memory on the device that belongs to one program.

    It has constants, scratch memory, results, and what is made once or prefetched. Of
    many models each has its own, and its own arena: they run at the same time.
    """

    def __init__(self, emission: Emission, memory: Memory, models: int = 1) -> None:
        self._emission, self._memory, driver = emission, memory, memory.driver
        self._blocks: list[tuple[int, int]] = []
        own_arena = emission.schedule.arena if models > 1 else 0
        self.stride = memory.rounded(emission.workspace_bytes) + own_arena
        self._base = self._allocate(self.stride * models)
        self.arena = self._base + memory.rounded(emission.workspace_bytes)
        driver.fill(self._base, 0, self.stride * models)
        self._constants = {}
        for key, array in constants_of(emission).items():
            self._constants[key] = self._allocate(array.nbytes)
            driver.upload(self._constants[key], array)
        driver.wait()
        each = max(
            (result.nbytes for result in emission.schedule.plan.results.values()),
            default=1,
        )
        self.capacity = max(1, min(4096, RESULT_BYTES // max(each, 1)))
        if not emission.schedule.plan.results:
            self.capacity = 1 << 60
        self.results = {
            name: self._allocate(result.nbytes * self.capacity)
            for name, result in emission.schedule.plan.results.items()
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
            return self._constants[buffer.key]
        if buffer.kind == "result":
            return self.results[buffer.name]
        if buffer.kind == "step":
            return self._step
        return self._base + self._emission.workspace[buffer.key]

    def restart(self) -> None:
        """Count steps from zero."""
        self._memory.driver.fill(self._step, 0, 4)
