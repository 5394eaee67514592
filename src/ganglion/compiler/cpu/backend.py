"""The CPU backend's runtime: find or compile the code, lay out memory, run steps."""

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
    """Compile a program for this machine, or share the code of an equal one."""
    with forks.held_off():
        key = _key_of(program)
        loaded = None if key is None else LOADED.get(key)
        if loaded is None:
            plan = build(program)
            loaded = Loaded(plan, *jit.load(plan), program.state)
            if key is not None and loaded.constant_bytes() <= MOST_CONSTANT_BYTES:
                LOADED.add(key, loaded)
        names = dict(zip(loaded.state, program.state, strict=True))
        return CompiledProgram(loaded.plan, loaded, names)


def _key_of(program: Program) -> Hashable | None:
    """Return all that the plan and the code of a program depend on."""
    structure = program.structure
    if structure is None:
        return None
    return structure, config.precise(), jit.identity(jit.host()), tuning.CPU


def free_memory() -> None:
    """Free the memory that programs share while none runs, and the code of old ones."""
    with forks.held_off():
        ARENAS.free()
        LOADED.clear()
        jit.forget_functions()
        jit.dispose()


class Loaded(NamedTuple):
    """A plan, its calls and their functions, and what its states are called."""

    plan: CpuPlan
    calls: list[Record]
    functions: dict[str, jit.Function]
    state: tuple[str, ...]

    def constant_bytes(self) -> int:
        """Return how much memory its constants take."""
        buffers = {buffer for call in self.calls for buffer in call.buffers}
        return sum(buffer.nbytes for buffer in buffers if buffer.kind == "constant")


class LoadedPrograms:
    """What the last programs were compiled to: the same model is often made again.

    For other folds of the data, other seeds or other rates, say.
    """

    def __init__(self, most: int) -> None:
        self._lock, self._most = threading.Lock(), most
        self._loaded: OrderedDict[Hashable, Loaded] = OrderedDict()

    def get(self, key: Hashable) -> Loaded | None:
        """Return what an equal program was compiled to, if any was."""
        with self._lock:
            if key in self._loaded:
                self._loaded.move_to_end(key)
            return self._loaded.get(key)

    def add(self, key: Hashable, loaded: Loaded) -> None:
        """Keep one, instead of another that was not used for longest."""
        with self._lock:
            self._loaded[key] = loaded
            if len(self._loaded) > self._most:
                self._loaded.popitem(last=False)

    def clear(self) -> None:
        """Keep none."""
        with self._lock:
            self._loaded.clear()


LOADED = LoadedPrograms(most=64)
MOST_CONSTANT_BYTES = 1 << 20  # of a program that is kept: tables of numbers are not


def callbacks_of(
    calls: Sequence[Record], errors: list[BaseException]
) -> dict[Buffer, Callback]:
    """Return the host calls of a step, callable from compiled code."""
    return {
        buffer: Callback(buffer.function, errors, jit.native().flush_subnormals)
        for call in calls
        for buffer in call.buffers
        if buffer.function is not None
    }


class CompiledProgram:
    """A plan as machine code, its memory, and the calls of a step."""

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
        self._names = names  # of states, where the plan has others for them
        ARENAS.announce(self, plan.arena)
        # Those that no run is using, by their number of threads.
        self._layouts: defaultdict[int, list[Layout]] = defaultdict(list)
        self._teams: dict[int, Team] = {}
        # By the most threads that may be used, and whether others use the machine.
        self._known_trials: dict[tuple[int, bool], Trials] = {}
        # What host calls raise, and the addresses that compiled code calls them at.
        self._host_errors: list[BaseException] = []
        self._callbacks = callbacks_of(self._calls, self._host_errors)
        # Host calls have one list of errors: such programs run one at a time.
        self._calling_host = threading.Lock()
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
        own = state if type(state) is FixedArrays else _contiguous(state)
        with forks.held_off():
            if self._callbacks:
                self._run_with_host_calls(addresses, own, steps)
            else:
                self._run(addresses, own, steps)
        if own is not state:
            for name, array in state.items():
                if own[name] is not array:
                    array[...] = own[name]
        return results

    def _run_with_host_calls(
        self, addresses: Addresses, state: Arrays, steps: int
    ) -> None:
        """Run steps that call the host; put the state back if a call has failed."""
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
        if not is_small and self._share_out(addresses, state, steps):
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
        """Run steps; in parts, as long as it is not known on how many threads best."""
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
        """Return addresses for a run that begins after some steps."""
        results = self.plan.results.items()
        return {
            **addresses,
            **{name: addresses[name] + steps * each.nbytes for name, each in results},
        }

    def _share_out(self, addresses: Addresses, state: Arrays, steps: int) -> bool:
        """Run steps side by side if they do not depend on each other and it pays.

        Return whether they were run.
        """
        if not self.plan.results or self._callbacks or self.forced_threads:
            return False
        if self._is_small(steps) or self._counters is None:
            return False
        # Here, because training never needs it.
        from ganglion.compiler.cpu import side_by_side
        from ganglion.compiler.cpu import threads as cpu_threads

        count = side_by_side.threads_for(steps, self._alone, self._bytes_of_step)
        if count == 1:
            return False
        with cpu_threads.shared(count) as pool:
            if pool is None:
                return False
            if count not in self._teams:  # no other thread is here with the pool
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
        """By how much a step advances each state, None if it does more than that."""
        from ganglion.compiler.cpu import side_by_side

        counters = side_by_side.advanced(self.plan)
        if counters is None:
            return None
        return {self._names.get(name, name): by for name, by in counters.items()}

    @kept
    def _bytes_of_step(self) -> int:
        """What a step reads and writes besides its data and its results."""
        states = (buffer.nbytes for buffer in self.plan.state.values())
        return self.plan.arena + sum(states)

    def _next_part(self, steps: int) -> tuple[int, int, Trials | None]:
        """Return on how many threads to run how many of some steps, and if to try."""
        if self.poisons:
            return self._threads(steps), 1, None
        if self.forced_threads or self._is_small(steps) or config.threads() == 1:
            return self._threads(steps), steps, None
        trials = self._trials(config.threads())
        if trials.is_decided or (count := trials.next()) is None:
            return trials.best, steps, None
        enough = math.ceil(tuning.CPU.trial / trials.estimates[count])
        return count, min(enough, steps), trials

    def _advance(
        self,
        addresses: Addresses,
        state: Arrays,
        steps: int,
        threads: int,
        arena: np.ndarray,
    ) -> tuple[int, int]:
        """Run some steps; return on how many threads, and the nanoseconds they took."""
        if threads > 1:
            # Here, because small steps need no pool.
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
        """Take a layout for runs of so many steps in a script, None if it cannot be.

        There, a run has one thread, calls nothing of the host and returns nothing.
        """
        if self._callbacks or self.poisons or self.plan.results or not self._calls:
            return None
        layout = None if self._threads(steps) > 1 else self._unused_layout(1)
        if layout is not None and layout.takes_slices:
            self.return_layout(layout)
            return None
        return layout

    def return_layout(self, layout: Layout) -> None:
        """Give back a layout for one thread."""
        self._layouts[1].append(layout)

    def _threads(self, steps: int) -> int:
        """Return how many threads pay: results are the same for any number."""
        if self.forced_threads:
            return self.forced_threads
        if self._is_small(steps):
            return 1
        most = config.threads()
        return self._trials(most).best if most > 1 else 1

    def _is_small(self, steps: int) -> bool:
        """Return whether waking other threads takes longer than some steps."""
        return self._alone * steps < tuning.CPU.worth_waking

    def _trials(self, most: int) -> Trials:
        """Return what is known of the time on each number of threads."""
        from ganglion.compiler.cpu import machine
        from ganglion.compiler.cpu import threads as cpu_threads

        key = most, cpu_threads.crowded(1)
        if key not in self._known_trials:
            counts = machine.counts(most)
            estimates = {n: self._estimate(n, machine.barrier(n)) for n in counts[1:]}
            self._known_trials[key] = machine.Trials({1: self._alone, **estimates})
        return self._known_trials[key]

    @kept
    def _alone(self) -> float:
        """About how many nanoseconds a step takes on one thread."""
        return self._estimate(1)

    def _estimate(self, threads: int, barrier: float = 0.0) -> float:
        """Return about how many nanoseconds a step takes on some threads."""
        total = 0.0
        plan = self.plan
        for kernel, how, call in zip(
            plan.kernels, plan.execution, self._calls, strict=True
        ):
            part = 1.0 if how.one_thread else largest_share(call, threads)
            total += kernel.cost * part + barrier * how.barrier
        return total

    def _unused_layout(self, threads: int) -> Layout:
        """Take a layout: runs at the same time have a table of pointers each."""
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
# Programs run one after the other, and nothing in an arena outlives a step: so the
# steps of training, testing and prediction need the memory of the largest, not the sum.
# A tape holds every call of a step, with its pointers and what the thread runs of it.
#
# Tapes have records of five words: function, arguments, end and start of the thread's
# range, barrier or not. Where there is much to do, a record without a function stands
# before some that are run slice by slice: (0, ranges, number of records, threads,
# barrier or not), and those hold the size of a slice, the end of the range, and the
# cursors: how many of their pointers move with the slices, then of each its slot, its
# address for slice 0, and the bytes of a slice that it moves back by. Each thread owns
# a range of the slices and takes one at a time; a thread that is done steals from the
# others, so that one that was interrupted holds up nobody for long.

_LINE = 8  # words of a cache line
RECORD_WORDS = 5
# Words of a job: steps, threads, barrier, spins; then of each thread its tape, its
# cursors, and how many steps fewer it runs.
JOB_WORDS, THREAD_WORDS = 4, 5
# Words of a thread's range of slices, a cache line: taken so far, first, how many.
RANGE_WORDS = 8
CORES = os.cpu_count() or 1


class Arenas:
    """Lends arenas; keeps the largest ones while some program may need them again.

    Programs that run one after the other use one. Threads of Python may run programs
    beside each other: as many are kept as there are cores.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: list[np.ndarray] = []  # the largest last
        self._needed: Counter[int] = Counter()
        self._gone: deque[int] = deque()  # what programs needed that are gone

    def announce(self, owner: object, nbytes: int) -> None:
        """Note that a program will need so much, for as long as it lives."""
        with self._lock:
            self._needed[nbytes] += 1
            self._settle()
        weakref.finalize(owner, self._forget, nbytes).atexit = False

    def _forget(self, nbytes: int) -> None:
        self._gone.append(nbytes)
        # A finalizer may run while this very thread holds the lock: it must not wait.
        if self._lock.acquire(blocking=False):
            try:
                self._settle()
            finally:
                self._lock.release()

    def _settle(self) -> None:
        """Count off programs that are gone; free an arena that none needs any more."""
        if not self._gone:
            return
        while self._gone:
            self._needed[self._gone.popleft()] -= 1
        self._needed += Counter()  # drops what is no longer needed at all
        most = max(self._needed, default=0)
        self._free = [arena for arena in self._free if len(arena) <= most]

    def reserve(self, nbytes: int) -> np.ndarray:
        """Reserve at least this much; programs that run at once get their own."""
        with self._lock:
            if self._gone:
                self._settle()
            arena = self._free.pop() if self._free else None
        if arena is None or len(arena) < nbytes:
            arena = None  # free the small one before there is a large one
            arena = aligned(nbytes)
        return arena

    def release(self, arena: np.ndarray) -> None:
        """Take back what was reserved."""
        with self._lock:
            insort(self._free, arena, key=len)
            if len(self._free) > CORES:
                del self._free[0]

    def free(self) -> None:
        """Free what is not reserved now; the next run allocates it anew."""
        with self._lock:
            self._free = []


ARENAS = Arenas()


def share(parallel: int, grain: int, thread: int, threads: int) -> tuple[int, int]:
    """Return the range that one of some threads runs, in whole grains.

    >>> [share(10, 4, thread, 2) for thread in range(2)]
    [(0, 8), (8, 10)]
    """
    blocks = -(-parallel // grain)
    first, last = (-(-blocks * n // threads) for n in (thread, thread + 1))
    return min(first * grain, parallel), min(last * grain, parallel)


def largest_share(call: Record, threads: int) -> float:
    """Return the part of a kernel that its busiest thread runs.

    >>> [largest_share(Record("f", (), 1000, 100), threads) for threads in (4, 16)]
    [0.3, 0.1]
    """
    blocks = -(-call.parallel // call.grain)
    return -(-blocks // threads) / blocks


def _slices(call: Record, threads: int) -> int:
    """Return how many slices threads may take a kernel in: none of them is empty.

    >>> [_slices(Record("f", (), 1000, 64), threads) for threads in (2, 16)]
    [16, 16]
    >>> [_slices(Record("f", (), 128, 1), threads) for threads in (2, 16)]
    [16, 64]
    """
    most = max(tuning.CPU.kernel_slices, tuning.CPU.slices_of_thread * threads)
    return -(-call.grains // -(-call.grains // most))


class Layout:
    """A program laid out for a number of threads; functions are known by address."""

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
        # Whose address a slot holds; None where it holds the value of a parameter.
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
        for first, call in zip(self._first_slot, calls, strict=False):
            start = first + len(call.buffers)
            end = start + len(call.parameters)
            self._pointers[:, start:end] = call.parameters
        self._constants: list[np.ndarray] = []  # keeps them alive
        # What is bound in every run: data, results, and states that are `moving`.
        of_run: defaultdict[str, list[int]] = defaultdict(list)
        of_state: defaultdict[str, list[int]] = defaultdict(list)  # the other states
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
        self._run_slots = self._slots_of(of_run)
        self._state_slots = self._slots_of(of_state)
        self._words = self._pointers.data.cast("B").cast("q")
        self._bound: weakref.ref[FixedArrays] | None = None
        self._in_arena = [n for n, b in enumerate(slots) if b and b.kind == "arena"]
        offsets = [self._arena_offsets(thread) for thread in range(threads)]
        self._offsets = np.array(offsets, np.int64)
        self._arena: weakref.ref[np.ndarray] | None = None
        self._first = 0
        # Of pointers that move with slices: for slice 0, and that without the arena.
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

    def _slots_of(self, columns: Mapping[str, list[int]]) -> dict[str, list[int]]:
        """Return where in the table of all threads arrays are pointed to."""
        threads, width = self._pointers.shape
        starts = range(0, threads * width, width)
        return {
            name: [start + column for start in starts for column in own]
            for name, own in columns.items()
        }

    def _arena_offsets(self, thread: int) -> list[int]:
        """Return where in the arena a thread finds the buffers of the calls."""
        offsets = []
        for number, call in enumerate(self._calls):
            private = self._plan.kernels[number].private()
            part = thread  # of private buffers: no two threads use the same
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
        """Return the records of one thread, without those it runs nothing of."""
        records: list[tuple[int, ...]] = []
        for run in self._plan.runs():
            own: list[tuple[int, ...]] = []
            ranges = self._ranges.get(run.start)
            if ranges is not None:
                own.append((0, int(ranges.ctypes.data), len(run), self._threads, 0))
            for number, low, high in self._work(run, thread):
                slot = self._first_slot[number]
                arguments = int(self._pointers[thread, slot:].ctypes.data)
                cursors = 0 if ranges is None else self._cursors_of(number, thread)
                own.append((functions[number], arguments, high, low, cursors))
            if self._plan.execution[run.stop - 1].barrier and self._threads > 1:
                own = own or [(0,) * RECORD_WORDS]
                last = -1 if ranges is None else 0
                own[last] = (*own[last][:-1], 1)
            records += own
        return np.array(records or [(0,) * RECORD_WORDS], np.int64)

    def _cursors_of(self, number: int, thread: int) -> int:
        """Return the pointers of a call that move so that a thread has one slice."""
        segment, slices = self._segments[number], self._slices[number]
        # Far apart: processors prefetch, and would take lines from one another.
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
        """Return whether a thread would have no more room than a smaller last slice."""
        segment, slices = self._segments[number], self._slices[number]
        last, _ = share(slices, 1, self._threads - 1, self._threads)
        return segment is not None and segment.units > 0 and last == slices - 1

    def _work(self, run: range, thread: int) -> Iterator[tuple[int, int, int]]:
        """Yield kernels and the range that a thread runs of them.

        Where threads take slices as they go: the end of all, and the size of a slice.
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
        """Return what a thread runs of a kernel."""
        call = self._calls[number]
        if self._threads == 1:
            return 0, call.parallel
        if self._plan.execution[number].one_thread:
            return 0, call.parallel if thread == 0 else 0
        return share(call.parallel, call.grain, thread, self._threads)

    def _slice_ranges(self) -> dict[int, np.ndarray]:
        """Return the threads' ranges of the runs whose slices they take as they go."""
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
        """Return the pointers that move on after each step, and by how much."""
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
        """Point at data and results, at the state, and into the arena from a byte on.

        Only what may have changed is written.
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
        """Whether threads take slices as they go, which each run begins to count."""
        return bool(self._ranges)

    def job(self, steps: int, barrier: int = 0, spins: int = 0) -> int:
        """Return the address of the job of some steps."""
        self._job[0], self._job[2], self._job[3] = steps, barrier, spins
        for ranges in self._ranges.values():
            ranges[:, 0] = 0
        return self._address


def new_job(parts: Sequence[tuple[int, int, int, int]]) -> np.ndarray:
    """Return a job with these parts of its threads: tape, its length, cursors, theirs.

    Its steps, its barrier and how long to spin there are still to be filled in.
    """
    words = [0, len(parts), 0, 0, *(word for part in parts for word in (*part, 0))]
    assert len(words) == JOB_WORDS + THREAD_WORDS * len(parts)
    return np.array(words, np.int64)


def _contiguous(arrays: Arrays) -> dict[str, np.ndarray]:
    """Return contiguous arrays: those that are not, as copies."""
    return {
        name: array if array.flags.c_contiguous else np.asarray(array, order="C")
        for name, array in arrays.items()
    }


def address_of(array: np.ndarray) -> int:
    """Return where the numbers of an array begin."""
    try:
        return addressof(c_char.from_buffer(array))  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):  # read-only, or empty: the slow way
        address: int = array.__array_interface__["data"][0]
        return address
