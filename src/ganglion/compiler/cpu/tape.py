"""The tapes that threads walk: every call of a step with its pointers and its share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Protocol

import numpy as np

from ganglion.compiler.cpu.emit import Record
from ganglion.compiler.cpu.step_loop import (
    JOB_WORDS,
    RANGE_WORDS,
    RECORD_WORDS,
    THREAD_WORDS,
)
from ganglion.compiler.plan.cost import work
from ganglion.compiler.plan.kernels import Buffer
from ganglion.compiler.plan.plan import Plan

_LINE = 8  # words of a cache line
PIECES = 16  # of a kernel that is not in a band
WORTH_SHARING_OUT = 100_000.0  # nanoseconds: with less, taking turns costs too much


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


def _pieces(call: Record) -> int:
    """Return how many slices threads may take a kernel in: none of them is empty.

    >>> _pieces(Record("f", (), 1000, 64)), _pieces(Record("f", (), 17, 1))
    (16, 9)
    """
    blocks = -(-call.parallel // call.grain)
    each = -(-blocks // PIECES)
    return -(-blocks // each)


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
        self._plan = plan
        slots = [one for call in calls for one in call.buffers]
        width = -(-max(len(slots), 1) // _LINE) * _LINE + _LINE
        self._pointers = np.zeros((threads, width), np.int64)
        self._slots: dict[str, list[int]] = {}
        self._bound: dict[str, int] = {}
        counts = (len(call.buffers) for call in calls)
        self._first_slot = list(accumulate(counts, initial=0))
        self._bands = plan.band_of()
        self._slices = [
            band.slices if band else _pieces(call)
            for band, call in zip(self._bands, calls, strict=True)
        ]
        self._ranges = self._shared_out()
        for column, one in enumerate(slots):
            if one.kind == "constant":
                self._pointers[:, column] = self._constant(one)
            elif one.kind != "arena":
                self._slots.setdefault(one.name, []).append(column)
        self._in_arena = [n for n, one in enumerate(slots) if one.kind == "arena"]
        self._offsets = np.array([self._places(t) for t in range(threads)], np.int64)
        self._arena = 0
        # Of pointers that move with slices: where they start, and that in the arena.
        self._moves: list[tuple[np.ndarray, np.ndarray]] = []
        functions = [library.address(call.function) for call in calls]
        self._tapes = [self._tape(functions, t) for t in range(threads)]
        self._moving = [self._movers(slots, t) for t in range(threads)]
        self._columns = {n: np.array(c) for n, c in self._slots.items()}
        self._moved = [n for n in self._slots if n in plan.results]
        self._job = self._described()
        self._address = int(self._job.ctypes.data)

    def _constant(self, buffer: Buffer) -> int:
        array = np.ascontiguousarray(buffer.array)
        self._constants.append(array)
        return int(array.ctypes.data)

    def _places(self, thread: int) -> list[int]:
        """Return where in the arena a thread finds the buffers of the calls."""
        found = []
        for number, call in enumerate(self._calls):
            private = self._plan.kernels[number].private()
            part = self._part(number, thread)
            for one in call.buffers:
                if one.kind == "arena":
                    own = part * one.nbytes // call.parallel if one in private else 0
                    found.append(self._plan.offsets[one.root] + own)
        return found

    def _part(self, number: int, thread: int) -> int:
        """Return which part of private buffers a thread uses: no two the same."""
        call = self._calls[number]
        return (
            thread if self._threads <= call.parallel else self._share(number, thread)[0]
        )

    def _tape(self, functions: Sequence[int], thread: int) -> np.ndarray:
        """Return the records of one thread: what it has no share in is left out."""
        records: list[tuple[int, ...]] = []
        for run in self._plan.runs():
            own: list[tuple[int, ...]] = []
            ranges = self._ranges.get(run.start)
            if ranges is not None:
                where = int(ranges.ctypes.data)
                own.append((0, where, len(run), self._threads, 0))
            for number, low, high in self._shares(run, thread):
                arguments = self._arguments(number, thread)
                moves = self._moves_of(number, thread) if ranges is not None else 0
                own.append((functions[number], arguments, high, low, moves))
            if self._plan.marks[run.stop - 1].barrier and self._threads > 1:
                own = own or [(0,) * RECORD_WORDS]
                last = -1 if ranges is None else 0
                own[last] = (*own[last][:-1], 1)
            records += own
        return np.array(records or [(0,) * RECORD_WORDS], np.int64)

    def _moves_of(self, number: int, thread: int) -> int:
        """Return which pointers of a call move so that a thread has one slice only."""
        band, slices = self._bands[number], self._slices[number]
        # Far apart: processors look ahead, and would take lines from one another.
        part, _ = share(slices, 1, thread, self._threads)
        found = []
        for slot, one in enumerate(self._calls[number].buffers):
            if band and one.root in self._plan.passing:
                each = band.each(one.nbytes)
                found.append((slot, self._plan.offsets[one.root] + part * each, each))
        if not found or self._threads > slices or self._uses_rest(number):
            return 0
        moves = np.array([len(found), *(word for one in found for word in one)])
        self._moves.append((moves[2::3], moves[2::3].copy()))
        return int(moves.ctypes.data)

    def _uses_rest(self, number: int) -> bool:
        """Return whether a thread would have no more room than a smaller last slice."""
        band, slices = self._bands[number], self._slices[number]
        last, _ = share(slices, 1, self._threads - 1, self._threads)
        return band is not None and band.units > 0 and last == slices - 1

    def _shares(self, run: range, thread: int) -> Iterator[tuple[int, int, int]]:
        """Yield kernels and what a thread runs of them, from where to where.

        Of what is shared out as it runs: the end of all, and the size of a slice.
        """
        slices = self._slices[run.start]
        if run.start in self._ranges:
            for number in run:
                call, band = self._calls[number], self._bands[number]
                blocks = -(-call.parallel // call.grain)
                each = -(-blocks // slices) * call.grain
                if band is not None:
                    each = band.each(call.parallel)
                yield number, call.parallel, each
        elif len(run) == 1:
            low, high = self._share(run.start, thread)
            if low < high:
                yield run.start, low, high
        else:
            for one in range(*share(slices, 1, thread, self._threads)):
                for number in run:
                    band, whole = self._bands[number], self._calls[number].parallel
                    assert band is not None
                    each = band.each(whole)
                    yield number, one * each, min((one + 1) * each, whole)

    def _share(self, number: int, thread: int) -> tuple[int, int]:
        """Return what a thread runs of a kernel."""
        call = self._calls[number]
        if self._threads == 1:
            return 0, call.parallel
        if self._plan.marks[number].alone:
            return 0, call.parallel if thread == 0 else 0
        return share(call.parallel, call.grain, thread, self._threads)

    def _shared_out(self) -> dict[int, np.ndarray]:
        """Return ranges of slices for the runs whose slices threads take as they go."""
        made = {}
        for run in self._plan.runs():
            if self._plan.marks[run.start].alone:
                continue
            kernels = self._plan.kernels[run.start : run.stop]
            touched = {one.root for kernel in kernels for one in kernel.writes()}
            if self._threads == 1 and touched.isdisjoint(self._plan.passing):
                continue
            private = any(
                kernel.private() and self._threads > self._calls[number].parallel
                for number, kernel in zip(run, kernels, strict=True)
            )
            if private or sum(work(one) for one in kernels) < WORTH_SHARING_OUT:
                continue
            slices = self._slices[run.start]
            ranges = np.zeros((self._threads, RANGE_WORDS), np.int64)
            for thread in range(self._threads):
                first, last = share(slices, 1, thread, self._threads)
                ranges[thread, 1:3] = first, last - first
            made[run.start] = ranges
        return made

    def _arguments(self, number: int, thread: int) -> int:
        """Return where a call's pointers are."""
        return int(self._pointers[thread, self._first_slot[number] :].ctypes.data)

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
            for moved, places in self._moves:
                moved[...] = places + start
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
        for ranges in self._ranges.values():
            ranges[:, 0] = 0
        return self._address
