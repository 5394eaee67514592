"""The CUDA backend's runtime: compile, keep memory on the device, replay steps."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import numpy as np

from ganglion.compiler import device_arrays
from ganglion.compiler.cuda import driver as cuda_driver
from ganglion.compiler.cuda.code import LoadedCode
from ganglion.compiler.cuda.emit import Call
from ganglion.compiler.cuda.launches import NEXT
from ganglion.compiler.cuda.memory import (
    IN_USE,
    Memory,
    Mirror,
    Workspace,
    as_bytes,
    contiguous,
)
from ganglion.compiler.cuda.model_states import ModelRows, ModelStates
from ganglion.compiler.cuda.text import THREADS
from ganglion.compiler.ir.graph import Program
from ganglion.compiler.plan.kernels import Buffer

MAX_NODES, MAX_STEPS = 2048, 32  # launches and steps of a recorded graph
MIN_RECORDED_STEPS = 3  # fewer are launched faster than they are recorded
MAX_BINDINGS = 4  # whose recordings are cached: each `fit` may bring other arrays
DEVICE_RESIDENT_BYTES = 64  # smaller arrays are read after every chunk anyway


def unavailable_reason() -> str | None:
    """Return why this backend cannot run here, None if it can."""
    return cuda_driver.unavailable_reason()


def compile(program: Program) -> CompiledProgram:  # noqa: A001 (the backends' verb)
    """Compile a program for this machine's GPU."""
    return CompiledProgram(program, memory())


def compile_models(program: Program, models: int) -> CompiledProgram | None:
    """Compile a program for many models at once; return None where that is impossible.

    Blocks of a loop over time wait for each other, and would deadlock if more of them
    were launched than run at once. Results of each step have no memory per model.
    """
    if program.results or program.graph.has_loops:
        return None
    on = memory()
    on.driver.use()
    return CompiledProgram(program, on, models, LoadedCode.cached(program, on, models))


def model_rows(
    first: Sequence[np.ndarray], models: int, leading: Sequence[int] = ()
) -> ModelRows:
    """Return memory for arrays of many models."""
    return ModelRows(first, models, memory(), leading)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Defer Ctrl-C: between the launches of a step, the state is inconsistent."""
    interrupts: list[Any] = []
    is_main = threading.current_thread() is threading.main_thread()
    handler = signal.getsignal(signal.SIGINT) if is_main else None
    if not callable(handler):
        yield
        return
    signal.signal(signal.SIGINT, lambda *args: interrupts.append(args))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if interrupts:
            handler(*interrupts[0])


@cache
def memory() -> Memory:
    """Return the memory of this process's GPU."""
    return Memory(cuda_driver.driver())


def free_memory() -> None:
    """Return all memory that no program uses to the GPU, if one is in use."""
    for memory in list(IN_USE):
        memory.free()


class CompiledProgram:
    """A program as machine code, its memory on the device, and its recorded steps.

    With several `models` it trains them all at once, by `run_models`.
    """

    keeps_on_device = True

    def __init__(
        self,
        program: Program,
        on: Memory,
        models: int = 1,
        code: LoadedCode | None = None,
    ) -> None:
        self._memory, self._driver, self._models = on, on.driver, models
        self._driver.use()
        self._bindings: dict[tuple[int, ...], _Binding] = {}
        self._code = code or LoadedCode(program, on, models)
        self.emission = self._code.emission
        self._functions = self._code.functions
        self._schedule = self.emission.schedule
        self.plan = plan = self._schedule.plan
        with on.lock:
            self._workspace = Workspace(self.emission, on, models)
        written = {b.key for kernel in plan.kernels for b in kernel.writes()}
        self._written = [n for n, b in plan.state.items() if b.key in written]
        self._prepared = False
        self.poisons = False  # for tests: fill the arena with NaN before each run

    def __del__(self) -> None:
        bindings = getattr(self, "_bindings", {})
        graphs = [g for binding in bindings.values() for g in binding.graphs.values()]
        if graphs:  # to be destroyed before the code that they launch
            self._memory.discard(partial(self._memory.unload, graphs, []))

    def run(
        self,
        data: Mapping[str, np.ndarray],
        state: Mapping[str, np.ndarray],
        steps: int,
        keep_on_device: bool = False,
    ) -> dict[str, np.ndarray]:
        """Advance the state arrays; return the results of every step.

        With `keep_on_device`, large arrays of state are not copied back: see
        `device_arrays`.
        """
        results = {
            name: np.empty((steps, *result.shape), result.dtype)
            for name, result in self.plan.results.items()
        }
        if steps < 1 or not self.emission.every:
            return results
        with self._memory.lock, undisturbed():
            self._driver.use()
            self._memory.collect()
            arrays = {**data, **state}
            copies = contiguous(arrays)
            mirrors = self._mirrored(arrays | copies)
            addresses = {name: mirror.address for name, mirror in mirrors.items()}
            arena = self._memory.arena(self._schedule.arena)
            binding = self._binding(addresses, arena)
            if self.poisons:
                arena = self._memory.arena(self._schedule.arena)
                self._driver.fill(arena, 0xFF, self._schedule.arena)
            self._advance(binding, results, steps)
            resident: set[str] = set()
            if keep_on_device:
                resident = self._leave_on_device(mirrors, state, copies)
            self._take_back(mirrors, state, copies, resident)
        return results

    def run_models(
        self, data: Mapping[str, np.ndarray], state: ModelStates, steps: int
    ) -> None:
        """Advance the state of all models on the device, asynchronously."""
        if steps < 1 or not self.emission.every:
            return
        with self._memory.lock, undisturbed():
            self._driver.use()
            self._memory.collect()
            copies = contiguous(dict(data))
            mirrors = self._mirrored({**data, **copies}, self.plan.data)
            addresses = {name: mirror.address for name, mirror in mirrors.items()}
            addresses |= {name: state.address(name) for name in self.plan.state}
            binding = self._binding(addresses, self._workspace.arena, state.stride)
            self._launch(binding, steps)
            if copies:  # whose memory is freed when this returns
                self._driver.wait()

    def _mirrored(
        self, arrays: Mapping[str, np.ndarray], names: Iterable[str] | None = None
    ) -> dict[str, Mirror]:
        """Return the mirrors of arrays, updated from the host where those changed."""
        mirrors = {}
        for name in names or (*self.plan.data, *self.plan.state):
            is_data = name in self.plan.data
            mirror = mirrors[name] = self._memory.mirror(arrays[name], name, is_data)
            if not device_arrays.is_dirty_on_device(arrays[name]):
                self._memory.refresh(arrays[name], mirror, is_data)
        return mirrors

    def _leave_on_device(
        self,
        mirrors: Mapping[str, Mirror],
        state: Mapping[str, np.ndarray],
        copies: Mapping[str, np.ndarray],
    ) -> set[str]:
        """Leave large arrays on the device until they are read; return their names."""
        large = {
            name
            for name in self._written
            if state[name].nbytes >= DEVICE_RESIDENT_BYTES
        }
        for name in large - copies.keys():
            if not device_arrays.is_dirty_on_device(state[name]):
                fetch = partial(self._memory.copy_to_host, mirrors[name])
                device_arrays.mark_dirty_on_device(
                    state[name], fetch, self._memory.lock
                )
        return large - copies.keys()

    def _take_back(
        self,
        mirrors: Mapping[str, Mirror],
        state: Mapping[str, np.ndarray],
        copies: Mapping[str, np.ndarray],
        resident: Set[str],
    ) -> None:
        """Copy the new state to the host, except what stays on the device."""
        to_host = [name for name in self._written if name not in resident]
        for name in to_host:
            device_arrays.forget(id(state[name]))
            self._memory.fetch(mirrors[name])
        self._memory.wait()
        for name in to_host:
            host_copy = mirrors[name].host_copy
            assert host_copy is not None
            if name in copies:
                as_bytes(copies[name])[...] = host_copy
                state[name][...] = copies[name]
            else:
                as_bytes(state[name])[...] = host_copy

    # ---- launches ------------------------------------------------------------------

    def _binding(
        self, addresses: Mapping[str, int], arena: int, state_stride: int = 0
    ) -> _Binding:
        """Return arguments and recordings for these addresses, cached or new."""
        key = (arena, state_stride, *addresses.values())
        binding = self._bindings.pop(key, None)
        if binding is None:
            while len(self._bindings) >= MAX_BINDINGS:
                oldest = self._bindings.pop(next(iter(self._bindings)))
                for graph in oldest.graphs.values():
                    self._driver.forget(graph)
            binding = self._new_binding(addresses, arena, state_stride)
        self._bindings[key] = binding  # the most recently used is evicted last
        if not self._prepared:  # constants, in both of the double buffers
            for odd in (0, 1) if self._schedule.double_buffered else (0,):
                self._launch_all(binding, self.emission.once, odd)
            self._driver.wait()
            self._prepared = True
        return binding

    def _new_binding(
        self, addresses: Mapping[str, int], arena: int, state_stride: int
    ) -> _Binding:
        strides = [state_stride, self._workspace.stride] * self.emission.models
        values = {
            (call, odd): [
                *(self._address(b, addresses, arena, odd) for b in call.buffers),
                *strides,
            ]
            for call in self.emission.calls
            for odd in (0, 1)
        }
        arguments = {key: self._driver.arguments(row) for key, row in values.items()}
        return _Binding(values, arguments)

    def _address(
        self, buffer: Buffer, mirrors: Mapping[str, int], arena: int, odd: int
    ) -> int:
        if buffer.kind in ("data", "state"):
            return mirrors[buffer.name]
        if buffer.kind == "arena" and buffer.key in self._schedule.offsets:
            return arena + self._schedule.offsets[buffer.key]
        if odd and buffer.name in self._schedule.double_buffered:
            buffer = replace(buffer, kind="arena" if buffer.kind == NEXT else NEXT)
        return self._workspace.address(buffer)

    def _advance(
        self, binding: _Binding, results: Mapping[str, np.ndarray], steps: int
    ) -> None:
        done = 0
        while done < steps:
            count = min(steps - done, self._workspace.capacity)
            if results:
                self._workspace.restart()
            self._launch(binding, count)
            for name, array in results.items():
                part = array[done : done + count]
                if part.nbytes:
                    self._driver.download(part, self._workspace.results[name])
            if results:
                self._driver.wait()
            done += count

    def _launch(self, binding: _Binding, steps: int) -> None:
        if self._schedule.step.resident:
            (call,) = self.emission.every
            arguments = self._driver.arguments([*binding.values[call, 0], steps])
            self._launch_one(call, arguments)
            return
        if not self.emission.first:
            self._repeat(binding, steps)
            return
        if steps > MIN_RECORDED_STEPS:
            self._driver.replay(self._graph(binding, 0, 0))
        else:
            self._launch_all(binding, self.emission.first, 0)
        self._repeat(binding, steps - 1)
        self._launch_all(binding, self.emission.last, (steps - 1) % 2)

    def _repeat(self, binding: _Binding, steps: int) -> None:
        """Replay recordings of 32, 16, ..., 1 steps, or launch them if they are few."""
        if steps < MIN_RECORDED_STEPS:
            for number in range(steps):
                self._launch_all(binding, self.emission.every, number % 2)
            return
        count, done = MAX_STEPS, 0
        while count > 1 and count * len(self.emission.every) > MAX_NODES:
            count //= 2
        while done < steps:
            while count > steps - done:
                count //= 2
            self._driver.replay(self._graph(binding, count, done % 2))
            done += count

    def _launch_all(self, binding: _Binding, calls: Sequence[Call], odd: int) -> None:
        for call in calls:
            self._launch_one(call, binding.arguments[call, odd])

    def _launch_one(self, call: Call, arguments: Any) -> None:
        blocks = (call.blocks, self._models)
        function = self._functions[call.function]
        self._driver.launch(function, blocks, THREADS, call.shared, arguments)

    def _graph(self, binding: _Binding, steps: int, odd: int) -> Any:
        """Return a recording of some steps, or with `steps` 0 of their prologue."""
        if (steps, odd) not in binding.graphs:
            self._driver.begin_capture()
            try:
                if not steps:
                    self._launch_all(binding, self.emission.first, 0)
                for number in range(steps):
                    self._launch_all(binding, self.emission.every, (odd + number) % 2)
            finally:
                graph = self._driver.end_capture()
            binding.graphs[steps, odd] = graph
        return binding.graphs[steps, odd]


@dataclass
class _Binding:
    """The arguments and recordings of launches, for arrays at certain addresses."""

    values: dict[tuple[Call, int], list[int]]  # by launch, for even and odd steps
    arguments: dict[tuple[Call, int], Any]  # the same values, as the driver takes them
    graphs: dict[tuple[int, int], Any] = field(default_factory=dict)
