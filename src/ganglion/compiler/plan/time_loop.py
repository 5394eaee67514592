"""A loop over time: kernels that run step after step, each on its slice of arrays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ganglion.compiler.plan.kernels import Buffer, Kernel, Memory


@dataclass(frozen=True)
class Window:
    """A buffer of the body: at each step another part of a stacked one.

    At step t it begins `offset + stride * t` elements behind the start; where carries
    take turns in a few slots, t is taken modulo their number.
    """

    buffer: Buffer
    stacked: Buffer
    offset: int
    stride: int
    slots: int = 0

    def start(self, step: int) -> int:
        """Return the element that it begins at."""
        return self.offset + self.stride * (step % self.slots if self.slots else step)


@dataclass(frozen=True, eq=False)
class TimeLoop(Kernel):
    """For every step of time, run the kernels of the body, in order."""

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
        own = {b.root for kernel in self.body for b in kernel.writes()}
        touched = [b for kernel in self.body for b in kernel.reads()]
        return _distinct(stacked.get(b.root, b) for b in touched if b.root not in own)

    def writes(self) -> list[Buffer]:
        stacked = self._stacked()
        touched = [b for kernel in self.body for b in kernel.writes()]
        return _distinct(stacked.get(b.root, b) for b in touched)

    def private(self) -> list[Buffer]:
        return [b for kernel in self.body for b in kernel.private()]

    def _stacked(self) -> dict[Buffer, Buffer]:
        return {window.buffer: window.stacked for window in self.windows}

    def run(self, memory: Memory) -> None:
        for step in range(self.steps):
            for window in self.windows:
                start = window.start(step)
                array = memory.flat(window.stacked)[start : start + window.buffer.size]
                memory.windows[window.buffer] = array
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
