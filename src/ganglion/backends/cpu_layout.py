"""The tapes that threads walk: every call of a step with its pointers and its share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from ganglion.backends.cpu_emit import Record
from ganglion.backends.cpu_executor import JOB_WORDS, RECORD_WORDS, THREAD_WORDS
from ganglion.plan.kernel import Buffer, Mark, Plan

_LINE = 8  # words of a cache line


class Addresses(Protocol):
    """Something that knows where functions are."""

    def address(self, name: str) -> int:
        """Return the address of a function."""
        ...


def share(parallel: int, grain: int, thread: int, threads: int) -> tuple[int, int]:
    """Return the part of a range that one of some threads runs: whole grains.

    >>> [share(10, 4, thread, 2) for thread in range(2)]
    [(0, 8), (8, 10)]
    """
    blocks = -(-parallel // grain)
    first, last = (-(-blocks * n // threads) for n in (thread, thread + 1))
    return min(first * grain, parallel), min(last * grain, parallel)


class Layout:
    """A program laid out for a number of threads."""

    def __init__(
        self,
        plan: Plan,
        calls: Sequence[Record],
        library: Addresses,
        threads: int,
    ) -> None:
        self._threads = threads
        self._calls = calls
        self._constants: list[np.ndarray] = []  # kept alive
        slots = [one for call in calls for one in call.buffers]
        width = -(-max(len(slots), 1) // _LINE) * _LINE + _LINE
        self._pointers = np.zeros((threads, width), np.int64)
        self._slots: dict[str, list[int]] = {}
        self._bound: dict[str, int] = {}
        in_arena = []
        for column, one in enumerate(slots):
            if one.kind == "arena":
                in_arena.append((column, plan.offsets[one]))
            elif one.kind == "constant":
                self._pointers[:, column] = self._constant(one)
            else:
                self._slots.setdefault(one.name, []).append(column)
        self._in_arena, self._offsets = np.array(in_arena, np.int64).reshape(-1, 2).T
        self._arena = 0
        functions = [library.address(call.function) for call in calls]
        self._tapes = [self._tape(plan.marks, functions, t) for t in range(threads)]
        self._moving = [self._movers(slots, t) for t in range(threads)]
        self._columns = {n: np.array(c) for n, c in self._slots.items()}
        self._moved = [n for n in self._slots if n in plan.results]
        self._job = self._described()
        self._address = int(self._job.ctypes.data)

    def _constant(self, buffer: Buffer) -> int:
        array = np.ascontiguousarray(buffer.array)
        self._constants.append(array)
        return int(array.ctypes.data)

    def _tape(
        self, marks: Sequence[Mark], functions: Sequence[int], thread: int
    ) -> np.ndarray:
        """Return the records of one thread: what it has no share in is left out."""
        arguments = int(self._pointers[thread].ctypes.data)
        records: list[tuple[int, ...]] = []
        for call, mark, function in zip(self._calls, marks, functions, strict=True):
            if mark.alone or self._threads == 1:
                low, high = 0, call.parallel if thread == 0 else 0
            else:
                low, high = share(call.parallel, call.grain, thread, self._threads)
            barrier = int(mark.barrier and self._threads > 1)
            if low < high:
                records.append((function, arguments, high, low, barrier))
            elif barrier:
                records.append((0, 0, 0, 0, barrier))
            arguments += 8 * len(call.buffers)
        if not records:
            records.append((0,) * RECORD_WORDS)
        return np.array(records, np.int64)

    def _movers(self, slots: Sequence[Buffer], thread: int) -> np.ndarray:
        """Return the pointers that move on after each step, and by how much."""
        start = int(self._pointers[thread].ctypes.data)
        moving = [
            (start + 8 * column, one.nbytes)
            for column, one in enumerate(slots)
            if one.kind == "result"
        ]
        return np.array(moving, np.int64).reshape(-1, 2)

    def _described(self) -> np.ndarray:
        words = [0] * JOB_WORDS
        for tape, moving in zip(self._tapes, self._moving, strict=True):
            words += [tape.ctypes.data, len(tape), moving.ctypes.data, len(moving)]
        assert len(words) == JOB_WORDS + THREAD_WORDS * self._threads
        words[1] = self._threads
        return np.array(words, np.int64)

    def bind(self, arrays: Mapping[str, np.ndarray], arena: np.ndarray) -> None:
        """Point at these arrays; only what has changed is written."""
        start = arena.__array_interface__["data"][0]
        if start != self._arena:
            self._arena = start
            self._pointers[:, self._in_arena] = self._offsets + start
        bound = self._bound
        for name, columns in self._columns.items():
            address = arrays[name].__array_interface__["data"][0]
            if bound.get(name) != address:
                bound[name] = address
                self._pointers[:, columns] = address
        for name in self._moved:
            del bound[name]  # results move on while a program runs

    def job(self, steps: int, barrier: int = 0, spins: int = 0) -> int:
        """Return the address of the job of some steps."""
        self._job[0], self._job[2], self._job[3] = steps, barrier, spins
        return self._address
