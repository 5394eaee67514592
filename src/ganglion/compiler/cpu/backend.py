"""The CPU backend's runtime: load or compile code, lay out memory, run steps."""

from __future__ import annotations

import math
import os
import threading
import time
import weakref
from bisect import insort
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Container, Hashable, Iterator, Mapping, Sequence
from ctypes import addressof, c_char
from itertools import accumulate
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ganglion import config
from ganglion.compiler.cpu import jit, tuning
from ganglion.compiler.cpu.emit import Record
from ganglion.compiler.cpu.host_calls import Callback
from ganglion.compiler.cpu.pipeline import build
from ganglion.compiler.cpu.plan import CpuPlan, aligned
from ganglion.compiler.ir.graph import FixedArrays, Program, kept
from ganglion.compiler.plan.kernels import Buffer
from ganglion.system import forks

if TYPE_CHECKING:
    from ganglion.compiler.cpu.machine import Trials
    from ganglion.compiler.cpu.side_by_side import Team

Arrays = Mapping[str, np.ndarray]
Addresses = Mapping[str, int]


def unavailable_reason() -> str | None:
    """Return why this backend cannot run here, None if it can."""
    try:
        import llvmlite.binding  # noqa: F401
    except (ImportError, OSError) as error:
        return f"llvmlite cannot be loaded ({error}); pip install llvmlite"
    return None


def compile(program: Program) -> CompiledProgram:  # noqa: A001 (the backends' verb)
    """Compile a program for this machine, or reuse the code of an equal program."""
    with forks.held_off():
        key = ProgramKey(program)
        loaded = LOADED.get(key)
        if loaded is None:
            plan = build(program)
            loaded = Loaded(plan, *jit.load(plan), program.state)
            is_small = loaded.constant_bytes() <= MAX_CONSTANT_BYTES
            if is_small and program.may_have_structure:
                LOADED.add(key, loaded)
        names = dict(zip(loaded.state, program.state, strict=True))
        return CompiledProgram(loaded.plan, loaded, names)


class ProgramKey:
    """Everything that the plan and the code of a program depend on.

    Writing down a structure takes a tenth of the time of planning: it is compared last,
    so that a program unlike all others needs none.
    """

    def __init__(self, program: Program) -> None:
        graph, self._program = program.graph, program
        sizes = tuple([value.shape for value in graph.inputs])
        roles = program.data, len(program.state), program.results
        settings = config.precise(), jit.identity(jit.host()), tuning.CPU
        self._outline = (len(graph.nodes), sizes, roles, settings)

    def __hash__(self) -> int:
        return hash(self._outline)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ProgramKey) or self._outline != other._outline:
            return False
        structure = self._program.structure
        return structure is not None and structure == other._program.structure


def free_memory() -> None:
    """Free the arenas that are not in use, and the code of programs that are gone."""
    with forks.held_off():
        ARENAS.free()
        LOADED.clear()
        jit.forget_functions()
        jit.dispose()


class Loaded(NamedTuple):
    """A plan, its calls and their functions, and the names of its states."""

    plan: CpuPlan
    calls: list[Record]
    functions: dict[str, jit.Function]
    state: tuple[str, ...]

    def constant_bytes(self) -> int:
        """Return the bytes of its constants."""
        buffers = {buffer for call in self.calls for buffer in call.buffers}
        return sum(buffer.nbytes for buffer in buffers if buffer.kind == "constant")


class LoadedPrograms:
    """A least-recently-used cache of compiled programs.

    The same model is often built again: for other folds of the data, seeds or rates.
    """

    def __init__(self, capacity: int) -> None:
        self._lock, self._capacity = threading.Lock(), capacity
        self._loaded: OrderedDict[Hashable, Loaded] = OrderedDict()

    def get(self, key: Hashable) -> Loaded | None:
        """Return the code of an equal program, None if there is none."""
        with self._lock:
            if key in self._loaded:
                self._loaded.move_to_end(key)
            return self._loaded.get(key)

    def add(self, key: Hashable, loaded: Loaded) -> None:
        """Add a program, evicting the least recently used one if there are too many."""
        with self._lock:
            self._loaded[key] = loaded
            if len(self._loaded) > self._capacity:
                self._loaded.popitem(last=False)

    def clear(self) -> None:
        """Remove all programs."""
        with self._lock:
            self._loaded.clear()


LOADED = LoadedPrograms(capacity=64)
MAX_CONSTANT_BYTES = 1 << 20  # of a program that is cached


def callbacks_of(
    calls: Sequence[Record], errors: list[BaseException]
) -> dict[Buffer, Callback]:
    """Return callbacks through which compiled code makes a step's host calls."""
    return {
        buffer: Callback(buffer.function, errors, jit.native().flush_subnormals)
        for call in calls
        for buffer in call.buffers
        if buffer.function is not None
    }


class CompiledProgram:
    """A plan as machine code, with its memory and the calls of a step."""

    keeps_on_device = False

    def __init__(
        self,
        plan: CpuPlan,
        loaded: Loaded | None = None,
        names: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.plan = plan
        if loaded is None:
            loaded = Loaded(plan, *jit.load(plan), tuple(plan.state))
        self._calls, self._functions = loaded.calls, loaded.functions
        self._names = names  # of the program's states, by the plan's names
        ARENAS.announce(self, plan.arena)
        # Unused layouts, by number of threads.
        self._layouts: defaultdict[int, list[Layout]] = defaultdict(list)
        self._teams: dict[int, Team] = {}
        # By the limit of threads, and whether other processes use the machine.
        self._trials_of: dict[tuple[int, bool], Trials] = {}
        self._host_errors: list[BaseException] = []  # raised by host calls
        self._callbacks = callbacks_of(self._calls, self._host_errors)
        # Runs share the list of errors: programs with host calls run one at a time.
        self._calling_host = threading.Lock()
        # For tests: a number of threads even where it does not pay, and an arena full
        # of NaN before each step, to expose reads of unwritten memory.
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
        results: dict[str, np.ndarray] = {}
        addresses: dict[str, int] = {}  # of data and results
        for name, buffer in self.plan.results.items():
            results[name] = np.empty((steps, *buffer.shape), buffer.dtype)
            addresses[name] = address_of(results[name])
        if not self._calls or steps <= 0:
            return results
        data = _contiguous(data)
        for name, array in data.items():
            addresses[name] = address_of(array)
        arrays = state if type(state) is FixedArrays else _contiguous(state)
        with forks.held_off():
            if self._callbacks:
                self._run_with_host_calls(addresses, arrays, steps)
            else:
                self._run(addresses, arrays, steps)
        if arrays is not state:
            for name, array in state.items():
                if arrays[name] is not array:
                    array[...] = arrays[name]
        return results

    def _run_with_host_calls(
        self, addresses: Addresses, state: Arrays, steps: int
    ) -> None:
        """Run steps with host calls; restore the state if one of them fails."""
        with self._calling_host:
            before = {name: array.copy() for name, array in state.items()}
            self._run(addresses, state, steps)
            if self._host_errors:
                error = self._host_errors[0]
                self._host_errors.clear()
                for name, array in before.items():
                    state[name][...] = array
                raise error

    def _run(self, addresses: Addresses, state: Arrays, steps: int) -> None:
        is_small = self._is_small(steps) and not (self.poisons or self.forced_threads)
        if not is_small and self._run_side_by_side(addresses, state, steps):
            return
        arena = ARENAS.reserve(self.plan.arena)
        try:
            if is_small:
                self._run_alone(addresses, state, steps, arena)
            else:
                self._run_in_parts(addresses, state, steps, arena)
        finally:
            ARENAS.release(arena)

    def _run_in_parts(
        self, addresses: Addresses, state: Arrays, steps: int, arena: np.ndarray
    ) -> None:
        """Run steps; in parts, until the best number of threads has been measured."""
        done = 0
        while done < steps:
            if self.poisons:
                arena[:] = 0xFF
            threads, count, trials = self._next_part(steps - done)
            start = self._after(addresses, done)
            ran_on, nanoseconds = self._advance(start, state, count, threads, arena)
            if trials is not None and ran_on == threads:
                trials.add(threads, nanoseconds / count)
            done += count

    def _after(self, addresses: Addresses, steps: int) -> dict[str, int]:
        """Return addresses for a run that starts after some steps."""
        results = self.plan.results.items()
        return {
            **addresses,
            **{name: addresses[name] + steps * each.nbytes for name, each in results},
        }

    def _run_side_by_side(
        self, addresses: Addresses, state: Arrays, steps: int
    ) -> bool:
        """Run steps in parallel if they are independent and it pays.

        Return whether they were run.
        """
        if not self.plan.results or self._callbacks or self.forced_threads:
            return False
        if self._is_small(steps) or self._counters is None:
            return False
        # Imported here, because training does not need it.
        from ganglion.compiler.cpu import side_by_side
        from ganglion.compiler.cpu import threads as cpu_threads

        count = side_by_side.threads_for(steps, self._alone, self._bytes_of_step)
        if count == 1:
            return False
        with cpu_threads.shared(count) as pool:
            if pool is None:
                return False
            if count not in self._teams:  # only the thread that holds the pool is here
                layouts = [self._layout(1, self._counters) for _ in range(count)]
                team = side_by_side.Team(self.plan, layouts, self._counters)
                self._teams[count] = team
            team = self._teams[count]
            arena = ARENAS.reserve(team.arena_bytes)
            try:
                team.run(pool, addresses, state, steps, arena)
            finally:
                ARENAS.release(arena)
        return True

    @kept
    def _counters(self) -> Mapping[str, int] | None:
        """How far a step advances each state, None if it does more than count."""
        from ganglion.compiler.cpu import side_by_side

        counters = side_by_side.advanced(self.plan)
        if counters is None:
            return None
        return {self._names.get(name, name): by for name, by in counters.items()}

    @kept
    def _bytes_of_step(self) -> int:
        """The bytes that a step touches besides its data and results."""
        states = (buffer.nbytes for buffer in self.plan.state.values())
        return self.plan.arena + sum(states)

    def _next_part(self, steps: int) -> tuple[int, int, Trials | None]:
        """Return threads and steps for the next part, and trials if it is a trial."""
        if self.poisons:
            return self._threads(steps), 1, None
        if self.forced_threads or self._is_small(steps) or config.threads() == 1:
            return self._threads(steps), steps, None
        trials = self._trials(config.threads())
        if trials.is_decided or (count := trials.next()) is None:
            return trials.best, steps, None
        trial_steps = math.ceil(tuning.CPU.trial / trials.estimates[count])
        return count, min(trial_steps, steps), trials

    def _advance(
        self,
        addresses: Addresses,
        state: Arrays,
        steps: int,
        threads: int,
        arena: np.ndarray,
    ) -> tuple[int, int]:
        """Run some steps; return the number of threads used, and the nanoseconds."""
        if threads > 1:
            # Imported here, because small steps need no pool.
            from ganglion.compiler.cpu import threads as cpu_threads

            with cpu_threads.shared(threads) as pool:
                if pool is not None:
                    layout = self._unused_layout(threads)
                    layout.bind(addresses, state, arena)
                    start = time.perf_counter_ns()
                    pool.run(layout.job(steps, pool.barrier, pool.spins), threads)
                    taken = time.perf_counter_ns() - start
                    self._layouts[threads].append(layout)
                    return threads, taken
        start = time.perf_counter_ns()
        self._run_alone(addresses, state, steps, arena)
        return 1, time.perf_counter_ns() - start

    def _run_alone(
        self, addresses: Addresses, state: Arrays, steps: int, arena: np.ndarray
    ) -> None:
        layout = self._unused_layout(1)
        layout.bind(addresses, state, arena)
        jit.native().alone(layout.job(steps))
        self._layouts[1].append(layout)

    def layout_for_scripts(self, steps: int) -> Layout | None:
        """Take a layout for runs of so many steps in a script, None if impossible.

        Runs in a script have a single thread, no host calls and no results.
        """
        if self._callbacks or self.poisons or self.plan.results or not self._calls:
            return None
        layout = None if self._threads(steps) > 1 else self._unused_layout(1)
        if layout is not None and layout.takes_slices:
            self.return_layout(layout)
            return None
        return layout

    def return_layout(self, layout: Layout) -> None:
        """Return a layout for one thread to the pool of unused ones."""
        self._layouts[1].append(layout)

    def _threads(self, steps: int) -> int:
        """Return the best number of threads; results do not depend on it."""
        if self.forced_threads:
            return self.forced_threads
        if self._is_small(steps):
            return 1
        limit = config.threads()
        return self._trials(limit).best if limit > 1 else 1

    def _is_small(self, steps: int) -> bool:
        """Return whether waking other threads takes longer than running the steps."""
        return self._alone * steps < tuning.CPU.worth_waking

    def _trials(self, limit: int) -> Trials:
        """Return the trials of up to `limit` threads."""
        from ganglion.compiler.cpu import machine
        from ganglion.compiler.cpu import threads as cpu_threads

        key = limit, cpu_threads.crowded(1)
        if key not in self._trials_of:
            counts = machine.counts(limit)
            estimates = {n: self._estimate(n, machine.barrier(n)) for n in counts[1:]}
            self._trials_of[key] = machine.Trials({1: self._alone, **estimates})
        return self._trials_of[key]

    @kept
    def _alone(self) -> float:
        """The estimated nanoseconds of a step on one thread."""
        return self._estimate(1)

    def _estimate(self, threads: int, barrier: float = 0.0) -> float:
        """Return the estimated nanoseconds of a step on some threads."""
        total = 0.0
        plan = self.plan
        for kernel, how, call in zip(
            plan.kernels, plan.execution, self._calls, strict=True
        ):
            part = 1.0 if how.one_thread else largest_share(call, threads)
            total += kernel.cost * part + barrier * how.barrier
        return total

    def _unused_layout(self, threads: int) -> Layout:
        """Take an unused layout: each concurrent run needs its own."""
        try:
            return self._layouts[threads].pop()
        except IndexError:
            return self._layout(threads)

    def _layout(self, threads: int, moving: Container[str] = ()) -> Layout:
        return Layout(
            self.plan,
            self._calls,
            lambda name: self._functions[name].address,
            threads,
            self._callbacks,
            self._names,
            moving,
        )


# ---- memory --------------------------------------------------------------------------
# Nothing in an arena outlives a step, and programs run one after the other: the steps
# of training, testing and prediction share the memory of the largest.
#
# A tape holds the calls of a step for one thread, as records of five words: function,
# arguments, end and start of the thread's range, and whether a barrier follows.
#
# Large kernels are run slice by slice. A record without a function precedes them: (0,
# ranges, number of records, threads, whether a barrier follows). Their own records hold
# the size of a slice, the end of the range, and cursors: the number of pointers that
# move with the slices, then for each its slot, its address for slice 0, and the bytes
# of a slice that it moves back by. Each thread owns a range of slices and takes one at
# a time; a thread that is done steals from the others, so that an interrupted thread
# does not hold up the rest.

_LINE = 8  # words of a cache line
RECORD_WORDS = 5
# Words of a job: steps, threads, barrier, spins; then for each thread its tape, its
# cursors, and the number of steps that it skips.
JOB_WORDS, THREAD_WORDS = 4, 5
# Words of a thread's range of slices, padded to a cache line: taken, first, count.
RANGE_WORDS = 8
CORES = os.cpu_count() or 1


class Arenas:
    """A pool of arenas, which keeps the largest while a program may need them.

    Programs that run one after the other share an arena. Python threads may run
    programs concurrently: at most as many arenas are kept as there are cores.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: list[np.ndarray] = []  # the largest last
        self._needed: Counter[int] = Counter()  # programs by the size that they need
        self._gone: deque[int] = deque()  # sizes that programs needed which are gone

    def announce(self, owner: object, nbytes: int) -> None:
        """Note that a program needs an arena of this size for as long as it lives."""
        with self._lock:
            self._needed[nbytes] += 1
            self._settle()
        weakref.finalize(owner, self._forget, nbytes).atexit = False

    def _forget(self, nbytes: int) -> None:
        self._gone.append(nbytes)
        # A finalizer may run in a thread that holds the lock: it must not wait for it.
        if self._lock.acquire(blocking=False):
            try:
                self._settle()
            finally:
                self._lock.release()

    def _settle(self) -> None:
        """Uncount programs that are gone; free arenas that are larger than needed."""
        if not self._gone:
            return
        while self._gone:
            self._needed[self._gone.popleft()] -= 1
        self._needed += Counter()  # drops sizes whose count is zero
        largest = max(self._needed, default=0)
        self._free = [arena for arena in self._free if len(arena) <= largest]

    def reserve(self, nbytes: int) -> np.ndarray:
        """Return an arena of at least this size, which no other run uses."""
        with self._lock:
            if self._gone:
                self._settle()
            arena = self._free.pop() if self._free else None
        if arena is None or len(arena) < nbytes:
            arena = None  # frees the small arena before a large one is allocated
            arena = aligned(nbytes)
        return arena

    def release(self, arena: np.ndarray) -> None:
        """Return an arena to the pool."""
        with self._lock:
            insort(self._free, arena, key=len)
            if len(self._free) > CORES:
                del self._free[0]

    def free(self) -> None:
        """Free all arenas that are not reserved."""
        with self._lock:
            self._free = []


ARENAS = Arenas()


def share(parallel: int, grain: int, thread: int, threads: int) -> tuple[int, int]:
    """Return the range of a kernel that a thread runs, in complete grains.

    >>> [share(10, 4, thread, 2) for thread in range(2)]
    [(0, 8), (8, 10)]
    """
    blocks = -(-parallel // grain)
    first, last = (-(-blocks * n // threads) for n in (thread, thread + 1))
    return min(first * grain, parallel), min(last * grain, parallel)


def largest_share(call: Record, threads: int) -> float:
    """Return the fraction of a kernel that its busiest thread runs.

    >>> [largest_share(Record("f", (), 1000, 100), threads) for threads in (4, 16)]
    [0.3, 0.1]
    """
    blocks = -(-call.parallel // call.grain)
    return -(-blocks // threads) / blocks


def _slices(call: Record, threads: int) -> int:
    """Return into how many slices a kernel is divided, none of them empty.

    >>> [_slices(Record("f", (), 1000, 64), threads) for threads in (2, 16)]
    [16, 16]
    >>> [_slices(Record("f", (), 128, 1), threads) for threads in (2, 16)]
    [16, 64]
    """
    limit = max(tuning.CPU.kernel_slices, tuning.CPU.slices_of_thread * threads)
    return -(-call.grains // -(-call.grains // limit))


class Layout:
    """A program laid out for a number of threads: pointers, tapes and a job."""

    def __init__(
        self,
        plan: CpuPlan,
        calls: Sequence[Record],
        address: Callable[[str], int],
        threads: int,
        callbacks: Mapping[Buffer, Callback] = MappingProxyType({}),
        names: Mapping[str, str] = MappingProxyType({}),
        moving: Container[str] = (),
    ) -> None:
        self._plan, self._calls, self._threads = plan, calls, threads
        # The buffer whose address a slot holds; None for the value of a parameter.
        slots = [
            buffer
            for call in calls
            for buffer in (*call.buffers, *(None for _ in call.parameters))
        ]
        width = -(-max(len(slots), 1) // _LINE) * _LINE + _LINE
        self._pointers = np.zeros((threads, width), np.int64)
        counts = (len(call.buffers) + len(call.parameters) for call in calls)
        self._first_slot = list(accumulate(counts, initial=0))
        self._segments = plan.segment_of()
        self._slices = [
            segment.slices if segment else _slices(call, threads)
            for segment, call in zip(self._segments, calls, strict=True)
        ]
        self._ranges = self._slice_ranges()
        self._constants: list[np.ndarray] = []  # references that keep them alive
        self._run_slots, self._state_slots = self._bound_slots(
            slots, callbacks, names, moving
        )
        self._words = self._pointers.data.cast("B").cast("q")
        self._bound: weakref.ref[FixedArrays] | None = None
        self._in_arena = [n for n, b in enumerate(slots) if b and b.kind == "arena"]
        offsets = [self._arena_offsets(thread) for thread in range(threads)]
        self._offsets = np.array(offsets, np.int64)
        self._arena: weakref.ref[np.ndarray] | None = None
        self._first = 0
        # Of pointers that move with slices: addresses for slice 0, and their offsets.
        self._slice_cursors: list[tuple[np.ndarray, np.ndarray]] = []
        functions = [address(call.function) for call in calls]
        self._tapes = [self._tape(functions, thread) for thread in range(threads)]
        self._step_cursors = [self._cursors(slots, thread) for thread in range(threads)]
        self.parts = [
            (tape.ctypes.data, len(tape), cursors.ctypes.data, len(cursors))
            for tape, cursors in zip(self._tapes, self._step_cursors, strict=True)
        ]
        job = new_job(self.parts)
        self._job = job.data
        self._address = int(job.ctypes.data)

    def _bound_slots(
        self,
        slots: Sequence[Buffer | None],
        callbacks: Mapping[Buffer, Callback],
        names: Mapping[str, str],
        moving: Container[str],
    ) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
        """Set pointers that never change; return those that `bind` sets, by array.

        First the slots of data, results, and states in `moving`, which every run binds;
        then those of the other states.
        """
        for first, call in zip(self._first_slot, self._calls, strict=False):
            start = first + len(call.buffers)
            end = start + len(call.parameters)
            self._pointers[:, start:end] = call.parameters
        of_run: defaultdict[str, list[int]] = defaultdict(list)
        of_state: defaultdict[str, list[int]] = defaultdict(list)
        for column, buffer in enumerate(slots):
            if buffer is None:
                continue
            if buffer.kind == "constant":
                self._constants.append(np.ascontiguousarray(buffer.array))
                self._pointers[:, column] = self._constants[-1].ctypes.data
            elif buffer.kind == "host":
                self._pointers[:, column] = callbacks[buffer].address
            elif buffer.kind == "state":
                name = names.get(buffer.name, buffer.name)
                (of_run if name in moving else of_state)[name].append(column)
            elif buffer.kind != "arena":
                of_run[buffer.name].append(column)
        return self._slots_of(of_run), self._slots_of(of_state)

    def _slots_of(self, columns: Mapping[str, list[int]]) -> dict[str, list[int]]:
        """Return the slots of arrays in all threads, given their columns."""
        threads, width = self._pointers.shape
        starts = range(0, threads * width, width)
        return {
            name: [start + column for start in starts for column in array_columns]
            for name, array_columns in columns.items()
        }

    def _arena_offsets(self, thread: int) -> list[int]:
        """Return the offsets in the arena of the calls' buffers, for a thread."""
        offsets = []
        for number, call in enumerate(self._calls):
            private = self._plan.kernels[number].private()
            part = thread  # of private buffers
            if self._threads > call.grains:
                part = self._range(number, thread)[0] // call.grain
            for buffer in call.buffers:
                if buffer.kind == "arena":
                    start = self._plan.offsets[buffer.root]
                    if buffer in private:
                        start += part * buffer.nbytes // call.grains
                    offsets.append(start)
        return offsets

    def _tape(self, functions: Sequence[int], thread: int) -> np.ndarray:
        """Return the records of a thread, without kernels of which it runs nothing."""
        records: list[tuple[int, ...]] = []
        pointers = int(self._pointers[thread].ctypes.data)
        for run in self._plan.runs():
            of_run: list[tuple[int, ...]] = []
            ranges = self._ranges.get(run.start)
            if ranges is not None:
                of_run.append((0, int(ranges.ctypes.data), len(run), self._threads, 0))
            for number, low, high in self._work(run, thread):
                arguments = pointers + 8 * self._first_slot[number]
                cursors = 0 if ranges is None else self._cursors_of(number, thread)
                of_run.append((functions[number], arguments, high, low, cursors))
            if self._plan.execution[run.stop - 1].barrier and self._threads > 1:
                of_run = of_run or [(0,) * RECORD_WORDS]
                last = -1 if ranges is None else 0
                of_run[last] = (*of_run[last][:-1], 1)
            records += of_run
        return np.array(records or [(0,) * RECORD_WORDS], np.int64)

    def _cursors_of(self, number: int, thread: int) -> int:
        """Return cursors that keep a call's tile-local pointers at the same memory."""
        segment, slices = self._segments[number], self._slices[number]
        # Threads use distant memory: prefetched lines would be shared falsely.
        part, _ = share(slices, 1, thread, self._threads)
        words: list[int] = []
        for slot, buffer in enumerate(self._calls[number].buffers):
            if segment and buffer.root in self._plan.tile_local:
                size = segment.each(buffer.nbytes)
                start = self._plan.offsets[buffer.root]
                words += [slot, start + part * size, size]
        if not words or self._threads > slices or self._has_short_slice(number):
            return 0
        cursors = np.array([len(words) // 3, *words])
        self._slice_cursors.append((cursors[2::3], cursors[2::3].copy()))
        return int(cursors.ctypes.data)

    def _has_short_slice(self, number: int) -> bool:
        """Return whether a thread's memory would be that of a smaller last slice."""
        segment, slices = self._segments[number], self._slices[number]
        last, _ = share(slices, 1, self._threads - 1, self._threads)
        return segment is not None and segment.units > 0 and last == slices - 1

    def _work(self, run: range, thread: int) -> Iterator[tuple[int, int, int]]:
        """Yield kernels, with the range of each that a thread runs.

        If threads take slices dynamically: with the end and the size of a slice.
        """
        slices = self._slices[run.start]
        if run.start in self._ranges:
            for number in run:
                call, segment = self._calls[number], self._segments[number]
                size = -(-call.grains // slices) * call.grain
                if segment:
                    size = segment.each(call.parallel)
                yield number, call.parallel, size
        elif len(run) == 1:
            low, high = self._range(run.start, thread)
            if low < high:
                yield run.start, low, high
        else:
            for index in range(*share(slices, 1, thread, self._threads)):
                for number in run:
                    segment, end = self._segments[number], self._calls[number].parallel
                    assert segment is not None
                    size = segment.each(end)
                    yield number, index * size, min((index + 1) * size, end)

    def _range(self, number: int, thread: int) -> tuple[int, int]:
        """Return the range of a kernel that a thread runs."""
        call = self._calls[number]
        if self._threads == 1:
            return 0, call.parallel
        if self._plan.execution[number].one_thread:
            return 0, call.parallel if thread == 0 else 0
        return share(call.parallel, call.grain, thread, self._threads)

    def _slice_ranges(self) -> dict[int, np.ndarray]:
        """Return the threads' ranges of slices, for runs with dynamic slices."""
        ranges_of = {}
        for run in self._plan.runs():
            if self._plan.execution[run.start].one_thread:
                continue
            kernels = self._plan.kernels[run.start : run.stop]
            written = {buffer.root for kernel in kernels for buffer in kernel.writes()}
            if self._threads == 1 and written.isdisjoint(self._plan.tile_local):
                continue
            private = any(
                kernel.private() and self._threads > self._calls[number].grains
                for number, kernel in zip(run, kernels, strict=True)
            )
            cost = sum(kernel.cost for kernel in kernels)
            if private or cost < tuning.CPU.worth_stealing:
                continue
            ranges = np.zeros((self._threads, RANGE_WORDS), np.int64)
            for thread in range(self._threads):
                first, last = share(self._slices[run.start], 1, thread, self._threads)
                ranges[thread, 1:3] = first, last - first
            ranges_of[run.start] = ranges
        return ranges_of

    def _cursors(self, slots: Sequence[Buffer | None], thread: int) -> np.ndarray:
        """Return the pointers that advance after each step, with their strides."""
        start = int(self._pointers[thread].ctypes.data)
        cursors = [
            (start + 8 * column, buffer.nbytes)
            for column, buffer in enumerate(slots)
            if buffer and buffer.kind == "result"
        ]
        return np.array(cursors, np.int64).reshape(-1, 2)

    def bind(
        self,
        addresses: Addresses,
        state: Arrays,
        arena: np.ndarray,
        first: int = 0,
    ) -> None:
        """Set all pointers; the arena starts at byte `first`.

        Only pointers that may have changed are written.
        """
        if self._arena is None or self._arena() is not arena or self._first != first:
            self._arena, self._first = weakref.ref(arena), first
            start = address_of(arena) + first
            self._pointers[:, self._in_arena] = self._offsets + start
            for cursors, offsets in self._slice_cursors:
                cursors[...] = offsets + start
        words = self._words
        for name, slots in self._run_slots.items():
            address = addresses[name]
            for slot in slots:
                words[slot] = address
        if self._bound is not None and self._bound() is state:
            return
        for name, slots in self._state_slots.items():
            address = address_of(state[name])
            for slot in slots:
                words[slot] = address
        self._bound = weakref.ref(state) if type(state) is FixedArrays else None

    @property
    def takes_slices(self) -> bool:
        """Whether threads take slices dynamically, by counters that each run resets."""
        return bool(self._ranges)

    def job(self, steps: int, barrier: int = 0, spins: int = 0) -> int:
        """Return the address of the job that runs some steps."""
        self._job[0], self._job[2], self._job[3] = steps, barrier, spins
        for ranges in self._ranges.values():
            ranges[:, 0] = 0
        return self._address


def new_job(parts: Sequence[tuple[int, int, int, int]]) -> np.ndarray:
    """Return a job with the tapes and cursors of its threads, each with its length.

    Steps, barrier and spins are filled in before it runs.
    """
    words = [0, len(parts), 0, 0, *(word for part in parts for word in (*part, 0))]
    assert len(words) == JOB_WORDS + THREAD_WORDS * len(parts)
    return np.array(words, np.int64)


def _contiguous(arrays: Arrays) -> dict[str, np.ndarray]:
    """Return arrays, with contiguous copies of those that are not."""
    return {
        name: array if array.flags.c_contiguous else np.asarray(array, order="C")
        for name, array in arrays.items()
    }


def address_of(array: np.ndarray) -> int:
    """Return the address of an array's first element."""
    try:
        return addressof(c_char.from_buffer(array))  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):  # read-only, or empty: the slow way
        address: int = array.__array_interface__["data"][0]
        return address
