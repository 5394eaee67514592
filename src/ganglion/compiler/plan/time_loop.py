"""Loops over time: kernels that run at every step, each on windows of arrays."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from ganglion.compiler.plan.kernels import (
    Axis,
    Buffer,
    BufferKey,
    Contract,
    Footprint,
    Kernel,
    Loop,
    Memory,
)
from ganglion.system.records import record


@record
class Window:
    """A buffer of the body that is another part of a stacked buffer at each step.

    At step t it starts at element `offset + stride * t`; with `slots`, as for carries
    in a ring of slots, t is taken modulo their number.
    """

    buffer: Buffer
    stacked: Buffer
    offset: int
    stride: int
    slots: int = 0

    def start(self, step: int) -> int:
        """Return the element of the stacked buffer at which it starts."""
        return self.offset + self.stride * (step % self.slots if self.slots else step)


@record(eq=False)
class TimeLoop(Kernel):
    """Run the kernels of the body, in order, for every step of time."""

    steps: int
    body: tuple[Kernel, ...]
    windows: tuple[Window, ...]

    @property
    def parallel(self) -> int:
        return 1

    @property
    def cost(self) -> float:
        return self.steps * sum(kernel.cost for kernel in self.body)

    def reads(self) -> list[Buffer]:
        stacked = self._stacked()
        own = {b.key for kernel in self.body for b in kernel.writes()}
        touched = [b for kernel in self.body for b in kernel.reads()]
        return _distinct(stacked.get(b.key, b) for b in touched if b.key not in own)

    def writes(self) -> list[Buffer]:
        stacked = self._stacked()
        touched = [b for kernel in self.body for b in kernel.writes()]
        return _distinct(stacked.get(b.key, b) for b in touched)

    def private(self) -> list[Buffer]:
        return [b for kernel in self.body for b in kernel.private()]

    def _stacked(self) -> dict[BufferKey, Buffer]:
        return {window.buffer.key: window.stacked for window in self.windows}

    def memory_of(self, buffer: Buffer) -> BufferKey:
        """Return the key of a body's buffer, or of the stacked buffer behind it."""
        return self._stacked().get(buffer.key, buffer).key

    def run(self, memory: Memory) -> None:
        for step in range(self.steps):
            for window in self.windows:
                start = window.start(step)
                array = memory.flat(window.stacked)[start : start + window.buffer.size]
                memory.passing[window.buffer.key] = array
            for kernel in self.body:
                kernel.run(memory)

    def describe(self) -> str:
        lines = [f"{self.name} for {self.steps} steps:"]
        for window in self.windows:
            at = f"{window.offset} + {window.stride}·t"
            at += f" (t modulo {window.slots})" if window.slots else ""
            lines.append(f"    {window.buffer!r} is {window.stacked!r} at {at}")
        for kernel in self.body:
            lines += [f"    {line}" for line in kernel.describe().split("\n")]
        return "\n".join(lines)


def _distinct(buffers: Iterable[Buffer]) -> list[Buffer]:
    return list(dict.fromkeys(buffers))


# ---- independent rows of a batch -----------------------------------------------------


def split_rows(kernel: Kernel, each: int) -> Kernel:
    """Return a product as a batch of products of `each` rows; other kernels as is."""
    if not isinstance(kernel, Contract) or kernel.parallel > 1:
        return kernel
    first, *rest = kernel.rows
    groups = Axis(first.size // each, first.left * each, 0, first.out * each)
    rows = (replace(first, size=each), *rest)
    return replace(kernel, batch=(groups,), rows=rows)


def independent_rows(loop: TimeLoop) -> int:
    """Return how many rows, or groups of rows, are independent within the loop."""
    kernels = [split_rows(kernel, 1) for kernel in loop.body]
    rows = math.gcd(*(kernel.parallel for kernel in kernels))
    written = {loop.memory_of(b) for kernel in kernels for b in kernel.writes()}
    for kernel in kernels:
        footprint = _by_rows(kernel)
        if footprint is None:
            return 1
        own = {buffer.key for buffer in footprint.own}
        for buffer in (*kernel.reads(), *kernel.writes()):
            if loop.memory_of(buffer) in written and buffer.key not in own:
                return 1
    return max(rows, 1)


def _by_rows(kernel: Kernel) -> Footprint | None:
    if isinstance(kernel, Loop):
        return kernel.by_rows() if kernel.outer and not kernel.adds else None
    return kernel.footprint()
