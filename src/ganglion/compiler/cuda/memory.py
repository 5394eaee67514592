"""Device memory: an allocator, and mirrors of the host's arrays.

Only arrays that changed since the last run are copied: state is compared with a copy of
what was uploaded last. Data is uploaded once: a new `fit` brings new arrays anyway.
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
SMALL_COMPARED = 4096  # bytes, up to which arrays are compared as `bytes`
RESULT_BYTES = 64 << 20  # of the buffer on the device for a result of many steps
SPARE_PINNED = 64 << 20  # bytes of pinned host memory that are pooled for reuse


@dataclass(eq=False)
class Mirror:
    """An array's copy on the device, and of state, the bytes that were copied."""

    address: int
    size: int
    host_copy: np.ndarray | None = None  # of state: pinned bytes of the last transfer
    is_current: bool = False  # of data: whether it has been uploaded
    host_range: tuple[int, int] | None = None  # of data: address and size on the host
    users: int = 0  # host arrays that it mirrors
    uploaded: int = -1  # of state: the number of waits before its last upload


def as_bytes(array: np.ndarray) -> np.ndarray:
    """Return the bytes of a contiguous array."""
    return array.reshape(-1).view(np.uint8)


class Memory:
    """The memory of a device."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self._mirrors: dict[int, Mirror] = {}
        self._data_mirrors: dict[tuple[int, int], Mirror] = {}
        self._spare: dict[int, list[int]] = defaultdict(list)
        self._spare_pinned: dict[int, list[np.ndarray]] = defaultdict(list)
        self._spare_pinned_bytes = 0
        # Finalizers run at any time and in any thread, even while these tables change:
        # they only queue what `collect` is to do, under the lock.
        self._discarded: deque[Callable[[], None]] = deque()
        self._arena = (0, 0)
        self._waits = 0
        self.code_cache: dict[Any, Any] = {}  # see `code.py`
        self.lock = threading.RLock()
        IN_USE.add(self)

    # ---- allocation ----------------------------------------------------------------

    def allocate(self, nbytes: int, purpose: str, remedy: str = "`batch_size`") -> int:
        """Return the address of uninitialized memory."""
        size = self.rounded(nbytes)
        self.collect()
        if self._spare[size]:
            return self._spare[size].pop()
        try:
            return self.driver.allocate(size)
        except OutOfMemory:
            self._free_spare()
        try:
            return self.driver.allocate(size)
        except OutOfMemory:
            raise self.refused(size, purpose, remedy) from None

    def refused(self, size: int, purpose: str, remedy: str) -> MemoryError:
        """Return the error for an allocation that failed."""
        free, total = self.driver.memory()
        return MemoryError(
            f"The GPU has no room for {purpose}: {_megabytes(size)} are needed, "
            f"{_megabytes(free)} of {_megabytes(total)} are free. Lower {remedy}, or "
            "use the backend 'cpu'."
        )

    @staticmethod
    def rounded(nbytes: int) -> int:
        """Return the size of the block that is allocated for so many bytes."""
        return -(-max(nbytes, 1) // UNIT) * UNIT

    def release(self, address: int, nbytes: int) -> None:
        """Keep memory for the next allocation of the same size."""
        self._spare[self.rounded(nbytes)].append(address)

    def discard(self, free: Callable[[], None]) -> None:
        """Queue a finalizer's work until the next call of `collect`."""
        self._discarded.append(free)

    def collect(self) -> None:
        """Do what finalizers have queued."""
        while self._discarded:
            self._discarded.popleft()()

    def unload(self, graphs: list[Any], modules: list[Any]) -> None:
        """Destroy recordings, and unload code."""
        self.wait()
        for graph in graphs:
            self.driver.forget(graph)
        for module in modules:
            self.driver.unload(module)

    def _free_spare(self) -> None:
        self.wait()
        for addresses in self._spare.values():
            while addresses:
                self.driver.free(addresses.pop())
        for arrays in self._spare_pinned.values():
            while arrays:
                self.driver.free_host(arrays.pop())
        self._spare_pinned_bytes = 0

    def free(self) -> None:
        """Free the code cache, the shared arena and all memory that is not in use."""
        with self.lock:
            self.driver.use()
            self.code_cache.clear()
            self.collect()
            self._free_spare()
            address, _ = self._arena
            if address:  # the next run allocates another one, and records anew
                self._arena = (0, 0)
                self.driver.free(address)

    def arena(self, nbytes: int) -> int:
        """Return the arena that all programs share; it moves when it grows."""
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
        """Return an array's mirror, created at the first call."""
        mirror = self._mirrors.get(id(array))
        if mirror is not None:
            return mirror
        if is_data:
            mirror = self._mirror_of_data(array, name)
        else:
            device_arrays.sync_to_host(array)  # it may be dirty on another device
            purpose = f"the array {name!r}"
            address = self.allocate(array.nbytes, purpose, "the model's size")
            mirror = Mirror(address, array.nbytes)
        mirror.users += 1
        self._mirrors[id(array)] = mirror
        finalizer = weakref.finalize(array, self._forget, id(array))
        finalizer.atexit = False
        return mirror

    def _mirror_of_data(self, array: np.ndarray, name: str) -> Mirror:
        """Return the mirror of a range of host memory, shared by all views of it.

        A new view may show other contents: the mirror is uploaded again.
        """
        host_range = (array.__array_interface__["data"][0], array.nbytes)
        mirror = self._data_mirrors.get(host_range)
        if mirror is None:
            remedy = "the rows given at a time (a generator gives batches)"
            address = self.allocate(array.nbytes, f"the array {name!r}", remedy)
            mirror = Mirror(address, array.nbytes, host_range=host_range)
            self._data_mirrors[host_range] = mirror
        mirror.is_current = False
        return mirror

    def _forget(self, key: int) -> None:
        """Drop a freed array at once: the next array may reuse its `id`."""
        device_arrays.forget(key)
        mirror = self._mirrors.pop(key, None)
        if mirror is not None:
            self.discard(partial(self._release, mirror))

    def _release(self, mirror: Mirror) -> None:
        """Release the memory of a mirror, if this was its last array."""
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
        if mirror.uploaded == self._waits:  # the last upload may still be reading it
            self.wait()
        mirror.host_copy[...] = as_bytes(array)
        self.driver.upload(mirror.address, mirror.host_copy)
        mirror.uploaded = self._waits
        return True

    def wait(self) -> None:
        """Wait for all launches and copies."""
        self.driver.wait()
        self._waits += 1

    def host_array(self, nbytes: int) -> np.ndarray:
        """Return pinned host memory, from and to which copies are fast."""
        spare = self._spare_pinned[nbytes]
        if spare:
            self._spare_pinned_bytes -= nbytes
            return spare.pop()
        try:
            return self.driver.host_array(nbytes)
        except OutOfMemory:  # copies from and to other memory are only slower
            return np.empty(nbytes, np.uint8)

    def release_host(self, array: np.ndarray) -> None:
        """Pool pinned host memory for reuse, up to a limit."""
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
        """Start copying a mirror into its `host_copy`, complete after a wait."""
        if mirror.host_copy is None:
            mirror.host_copy = self.host_array(mirror.size)
        self.driver.download(mirror.host_copy, mirror.address)


IN_USE: weakref.WeakSet[Memory] = weakref.WeakSet()


def _equal(host_copy: np.ndarray, array: np.ndarray) -> bool:
    """Return whether an array has these bytes, comparing eight of many at a time."""
    if len(host_copy) <= SMALL_COMPARED:
        return host_copy.tobytes() == array.tobytes()
    new, words = as_bytes(array), len(host_copy) // 8 * 8
    first, second = (array[:words].view(np.uint64) for array in (host_copy, new))
    return np.array_equal(first, second) and np.array_equal(
        host_copy[words:], new[words:]
    )


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.1f} MB"


def contiguous(arrays: dict[str, Any]) -> dict[str, Any]:
    """Return contiguous copies of the arrays that are not C-contiguous."""
    return {
        name: np.ascontiguousarray(array)
        for name, array in arrays.items()
        if not array.flags.c_contiguous
    }


class Workspace:
    """The device memory that belongs to a program.

    It holds constants, scratch memory, results, and arrays that are computed once or
    prefetched. Each of many models has its own, with an arena: they run concurrently.
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
        results = emission.schedule.plan.results
        self.capacity = 1 << 60  # steps, whose results are stored until they are read
        if results:
            largest = max(result.nbytes for result in results.values())
            self.capacity = max(1, min(4096, RESULT_BYTES // max(largest, 1)))
        self.results = {
            name: self._allocate(result.nbytes * self.capacity)
            for name, result in results.items()
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
        """Return the address of a buffer."""
        if buffer.kind == "constant":
            return self._constants[buffer.key]
        if buffer.kind == "result":
            return self.results[buffer.name]
        if buffer.kind == "step":
            return self._step
        return self._base + self._emission.workspace[buffer.key]

    def restart(self) -> None:
        """Reset the counter of steps, which numbers their results."""
        self._memory.driver.fill(self._step, 0, 4)
