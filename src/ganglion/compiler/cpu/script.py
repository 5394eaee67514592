"""Rounds of several runs in a single call of native code, which releases the GIL.

An epoch is more than steps: metrics are reset, rows are shuffled, a validation follows.
A script does all of that for many epochs, and records the metrics after each.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType

import numpy as np

from ganglion.compiler.cpu import jit
from ganglion.compiler.cpu.backend import (
    ARENAS,
    Arrays,
    CompiledProgram,
    Layout,
    address_of,
)
from ganglion.system import forks

RUN, COPY, INCREASE, END_IF_POSITIVE = range(4)  # as `step_loop.ll` has them


class Script:
    """The commands of a round; a context manager: ``with Script() as script:``."""

    def __init__(self) -> None:
        self._commands: list[tuple[int, int, int, int]] = []
        self._recorded: list[tuple[int, np.ndarray]] = []  # command number, source
        self._layouts: list[tuple[CompiledProgram, Layout, Arrays, Arrays]] = []
        self._arrays: list[np.ndarray] = []  # whose addresses are in commands

    def __enter__(self) -> Script:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for program, layout, *_ in self._layouts:
            program.return_layout(layout)

    def run(
        self,
        program: object,
        data: Mapping[str, np.ndarray],
        state: Mapping[str, np.ndarray],
        steps: int,
    ) -> bool:
        """Run a program for some steps; return whether a script can do that."""
        if not isinstance(program, CompiledProgram):
            return False
        layout = program.layout_for_scripts(steps)
        if layout is None:
            return False
        self._layouts.append((program, layout, data, state))
        arrays = (*data.values(), *state.values())
        is_plain = all(array.flags.c_contiguous for array in arrays)
        self._commands.append((RUN, layout.job(steps), steps, 0))
        return is_plain

    def assign(self, target: np.ndarray, numbers: np.ndarray) -> None:
        """Copy numbers of the same type into an array."""
        self._arrays += [target, numbers]
        addresses = address_of(numbers), address_of(target)
        self._commands.append((COPY, *addresses, target.nbytes))

    def increase(self, number: np.ndarray) -> None:
        """Increment a 32-bit integer."""
        self._arrays.append(number)
        self._commands.append((INCREASE, address_of(number), 1, 0))

    def record(self, source: np.ndarray) -> None:
        """Record an array at this point of every round."""
        self._recorded.append((len(self._commands), source))
        self._commands.append((COPY, address_of(source), 0, source.nbytes))

    def end_if_positive(self, flag: np.ndarray) -> None:
        """End after this round if a number of 32 bits is positive."""
        self._arrays.append(flag)
        self._commands.append((END_IF_POSITIVE, address_of(flag), 0, 0))

    def execute(self, rounds: int) -> tuple[int, list[np.ndarray]]:
        """Run up to `rounds` rounds; return their number, and the records of each."""
        records = [
            np.empty((rounds, *source.shape), source.dtype)
            for _, source in self._recorded
        ]
        words = np.tile(np.array(self._commands, np.int64), (rounds, 1, 1))
        for (number, source), rows in zip(self._recorded, records, strict=True):
            targets = address_of(rows) + source.nbytes * np.arange(rounds)
            words[:, number, 2] = targets
        with forks.held_off():
            sizes = [program.plan.arena for program, *_ in self._layouts]
            arena = ARENAS.reserve(max(sizes, default=0))
            try:
                for _, layout, data, state in self._layouts:
                    addresses = {name: address_of(a) for name, a in data.items()}
                    layout.bind(addresses, state, arena)
                commands = words.shape[1]
                done = jit.native().script(words.ctypes.data, rounds * commands)
            finally:
                ARENAS.release(arena)
        return done // commands, records
