"""Kernels that are not loops over views: scans, scatters, gradients of pools."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np

from ganglion.compiler.plan.kernels import (
    Buffer,
    Expr,
    Footprint,
    Kernel,
    Memory,
    Shape,
    View,
    sources,
    touched_by,
    walk,
)
from ganglion.system.records import record


@record(eq=False)
class Scan(Kernel):
    """A running sum along the last axis."""

    shape: Shape
    source: View
    target: View

    @property
    def parallel(self) -> int:
        return self.shape[0] if len(self.shape) > 1 else 1

    def reads(self) -> list[Buffer]:
        return [self.source.buffer]

    def writes(self) -> list[Buffer]:
        return [self.target.buffer]

    def run(self, memory: Memory) -> None:
        source = memory.see(self.source, self.shape)
        target = memory.see(self.target, self.shape)
        target[...] = np.cumsum(source, axis=-1, dtype=source.dtype)


@record(eq=False)
class Scatter(Kernel):
    """Add each of `count` rows of updates to the row of the target at its index."""

    count: int
    row: int
    updates: Buffer
    index: Buffer
    target: Buffer

    @property
    def parallel(self) -> int:
        return 1  # rows may repeat

    def reads(self) -> list[Buffer]:
        return [self.updates, self.index, self.target]

    def writes(self) -> list[Buffer]:
        return [self.target]

    def run(self, memory: Memory) -> None:
        rows = memory.flat(self.updates).reshape(self.count, -1)
        target = memory.flat(self.target).reshape(-1, self.row)
        index = memory.flat(self.index)
        exists = (index >= 0) & (index < len(target))
        np.add.at(target, index[exists], rows[exists])


@record(eq=False)
class PoolBack(Kernel):
    """Pass each window's gradient to the first of its largest elements.

    `shape` is (images, *windows, channels); `elements` are those of a window, in order,
    and `taps` their offsets in dx. `largest` are the maxima, if they are stored. With
    `above`, windows whose maximum is not larger than that pass on no gradient.
    """

    shape: Shape
    elements: tuple[Expr, ...]
    dy: View
    dx: View
    taps: Shape
    covers: bool = False  # every element is in exactly one window: store, do not add
    largest: View | None = None
    above: float | None = None

    @property
    def parallel(self) -> int:
        return self.shape[0]

    def reads(self) -> list[Buffer]:
        old = [] if self.covers else [self.dx.buffer]
        largest = [self.largest.buffer] if self.largest else []
        return [*sources(*self.elements), self.dy.buffer, *largest, *old]

    def writes(self) -> list[Buffer]:
        return [self.dx.buffer]

    def _targets(self) -> list[View]:
        """Return the view of dx for each element of a window."""
        return [replace(self.dx, offset=self.dx.offset + tap) for tap in self.taps]

    def footprint(self) -> Footprint | None:
        views = [self.dy, *([self.largest] if self.largest else []), *self._targets()]
        touched = touched_by(walk(*self.elements), self.shape)
        every = [*touched, *((view, self.shape) for view in views)]
        return Footprint.of(self.shape[0], every)

    def run(self, memory: Memory) -> None:
        dy = memory.see(self.dy, self.shape)
        elements = memory.evaluate(self.elements, self.shape)
        largest = np.max(elements, axis=0)
        if self.largest:
            largest = memory.see(self.largest, self.shape)
        if self.above is not None:
            dy = np.where(largest > self.above, dy, 0)
        waiting = np.ones(self.shape, bool)
        for view, x in zip(self._targets(), elements, strict=True):
            wins = waiting & (x == largest)
            target = memory.see(view, self.shape)
            if self.covers:
                target[...] = 0
            for index in itertools.product(*(range(n) for n in self.shape[:-1])):
                target[index] += np.where(wins[index], dy[index], 0)
            waiting &= ~wins
