"""The CPU backend's runtime: find or compile the code, lay out memory, run steps."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping

import numpy as np

from ganglion import config
from ganglion.compiler import cache
from ganglion.compiler.cpu import emit, jit, tuning
from ganglion.compiler.cpu import threads as cpu_threads
from ganglion.compiler.cpu.emit import Record
from ganglion.compiler.cpu.pipeline import build
from ganglion.compiler.cpu.plan import CpuPlan, total_work
from ganglion.compiler.cpu.tape import ARENAS, Layout
from ganglion.compiler.ir.program import Program
from ganglion.compiler.plan.kernels import Buffer
from ganglion.system import forks


def unavailable_reason() -> str | None:
    """Return why this backend cannot run here, None if it can."""
    try:
        import llvmlite.binding  # noqa: F401
    except (ImportError, OSError) as error:
        return f"llvmlite cannot be loaded ({error}); pip install llvmlite"
    return None


def compile(program: Program) -> CompiledProgram:  # noqa: A001 (the backends' verb)
    """Compile a program for this machine."""
    with forks.held_off():
        return CompiledProgram(build(program))


def code_of(plan: CpuPlan) -> tuple[bytes, list[Record]]:
    """Return a plan as machine code and calls, from the cache where it is known."""
    try:
        key, buffers = cache.digest_of(plan)
    except TypeError:  # a kernel that cannot be written down is compiled each time
        return _compiled(plan)
    path = cache.path_of(jit.identity(jit.host()), key)
    entry = cache.read(path)
    if entry is not None:
        return _unpacked(entry, buffers)
    code, calls = _compiled(plan)
    numbers = {buffer: number for number, buffer in enumerate(buffers)}
    if all(buffer in numbers for call in calls for buffer in call.buffers):
        cache.keep(path, _packed(code, calls, numbers))
    return code, calls


def _compiled(plan: CpuPlan) -> tuple[bytes, list[Record]]:
    modules, calls = emit.emit(plan)
    return jit.object_code(modules.values(), jit.host()), calls


def _packed(code: bytes, calls: list[Record], numbers: dict[Buffer, int]) -> bytes:
    rows = [
        (call.function, [numbers[b] for b in call.buffers], call.parallel, call.grain)
        for call in calls
    ]
    return json.dumps(rows).encode() + b"\n" + code


def _unpacked(entry: bytes, buffers: list[Buffer]) -> tuple[bytes, list[Record]]:
    head, _, code = entry.partition(b"\n")
    calls = [
        Record(name, tuple(buffers[n] for n in numbers), parallel, grain)
        for name, numbers, parallel, grain in json.loads(head)
    ]
    return code, calls


def free_memory() -> None:
    """Free the memory that programs share while none runs, and the code of old ones."""
    with forks.held_off():
        ARENAS.free()
        jit.dispose()


class CompiledProgram:
    """A plan as machine code, its memory, and the calls of a step."""

    keeps_on_device = False

    def __init__(self, plan: CpuPlan) -> None:
        self.plan = plan
        code, self._calls = code_of(plan)
        self._library = jit.Library(code)
        ARENAS.announce(self, plan.arena)
        self._layouts: dict[int, Layout] = {}
        self._estimates: dict[int, float] = {}
        self._busy = threading.Lock()  # one table of pointers: one run at a time
        # For tests: a number of threads even where it does not pay, and an arena full
        # of NaN before each step, so that reads of unwritten memory show.
        self.forced_threads: int | None = None
        self.poisons = False

    def run(
        self,
        data: Mapping[str, np.ndarray],
        state: Mapping[str, np.ndarray],
        steps: int,
        keep_on_device: bool = False,
    ) -> dict[str, np.ndarray]:
        """Advance the state arrays in place; return the results of every step."""
        results = {
            name: np.empty((steps, *buffer.shape), buffer.dtype)
            for name, buffer in self.plan.results.items()
        }
        arrays = {**data, **state}
        copied = {
            name: (array, np.ascontiguousarray(array))
            for name, array in arrays.items()
            if not array.flags.c_contiguous
        }
        arrays.update((name, copy) for name, (_, copy) in copied.items())
        if self._calls and steps > 0:
            running = forks.held_off()
            with running, self._busy, ARENAS.reserved(self.plan.arena) as arena:
                self._run(arrays, results, steps, arena)
        for name, (array, copy) in copied.items():
            if name in state:
                array[...] = copy
        return results

    def _run(
        self,
        arrays: dict[str, np.ndarray],
        results: dict[str, np.ndarray],
        steps: int,
        arena: np.ndarray,
    ) -> None:
        if not self.poisons:
            self._advance(arrays | results, steps, arena)
            return
        for step in range(steps):
            arena[:] = 0xFF
            row = {name: array[step : step + 1] for name, array in results.items()}
            self._advance(arrays | row, 1, arena)

    def _advance(
        self, arrays: Mapping[str, np.ndarray], steps: int, arena: np.ndarray
    ) -> None:
        threads = self._threads(steps)
        if threads > 1:
            with cpu_threads.shared(threads) as pool:
                if pool is not None:
                    layout = self._layout(threads)
                    layout.bind(arrays, arena)
                    pool.run(layout.job(steps, pool.barrier, pool.spins))
                    return
        layout = self._layout(1)
        layout.bind(arrays, arena)
        cpu_threads.native().alone(layout.job(steps))

    def _threads(self, steps: int) -> int:
        """Return how many threads pay: results are the same for any number."""
        if self.forced_threads:
            return self.forced_threads
        alone = self._estimate(1)
        if alone * steps < tuning.CPU.worth_waking:
            return 1
        threads = config.threads()
        most = tuning.CPU.shared_time * alone
        return threads if threads > 1 and self._estimate(threads) < most else 1

    def _estimate(self, threads: int) -> float:
        if threads not in self._estimates:
            self._estimates[threads] = total_work(self.plan, threads)
        return self._estimates[threads]

    def _layout(self, threads: int) -> Layout:
        if threads not in self._layouts:
            new = Layout(self.plan, self._calls, self._library.address, threads)
            self._layouts[threads] = new
        return self._layouts[threads]
