"""Winograd's convolution of images, and its adjoint, in LLVM IR.

A block of tiles is transformed, multiplied and transformed back before the next one,
so that everything in between stays in the second-level cache of its thread.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

import numpy as np

from ganglion.compiler.cpu.emitter import Emitted
from ganglion.compiler.cpu.text import Val
from ganglion.compiler.cpu.winograd_tile import Blocks, Where, Window
from ganglion.compiler.plan.kernels import View
from ganglion.compiler.plan.winograd import (
    FLOAT,
    LANES,
    WinogradConv,
    WinogradSpread,
    panels,
)


class Conv(Blocks):
    """Images times transformed weights."""

    def __init__(self, kernel: WinogradConv) -> None:
        super().__init__(kernel.tiling)
        self.kernel, tiling = kernel, kernel.tiling
        self.spreads = isinstance(kernel, WinogradSpread)
        ends = tiling.inputs, tiling.outputs
        self.source, self.made = ends[::-1] if self.spreads else ends
        self.channels, self.out = self.source[3], self.made[3]
        widest = max(sum(widths) for _, widths in panels(self.out))
        self.stride = tiling.stride(self.channels)
        self.wide_stride = tiling.stride(widest)

    def emit(self) -> Emitted:
        """Emit the convolution."""
        kernel = self.kernel
        self.v = self.emitter.base(kernel.scratch)
        places = self.tiling.places
        self.m = self.at(self.v, places * self.stride)
        self.nowhere = self.at(self.m, places * self.wide_stride)

        def block(_: str, start: str, count: str) -> None:
            if self.spreads:
                self._clear(start, count)
            self._inputs(start, count)
            self._panels(start, count)

        self.pieces(block)
        return self.emitter.emitted(self.tiling.pieces)

    def _clear(self, tile: str, count: str) -> None:
        """Fill the images of a block with zeros, to be added to."""
        text = self.text
        each = math.prod(self.tiling.across)
        size = math.prod(self.made[1:])
        start = text.times(text.let(f"udiv i64 {tile}, {each}"), size)
        images = text.let(f"udiv i64 {count}, {each}")
        base = self.emitter.base(self.kernel.target)

        def clear(place: str, width: int) -> None:
            zero = self.maths.constant(0, FLOAT, width)
            self.emitter.put(zero, self.at(base, place))

        self.emitter.lanes_of(start, text.add(start, text.times(images, size)), clear)

    def _inputs(self, start: str, count: str) -> None:
        """Transform the inputs of a block."""
        tiling, text = self.tiling, self.text
        matrix, size, before = self.inputs, tiling.span, tiling.before
        if self.spreads:
            matrix, size, before = self.spread, tiling.step, (0, 0)
        none = self.emitter.base(self.kernel.zeros)
        extent = self.source[1], self.source[2]
        window = Window(self.kernel.images, extent, size, before, none)

        def tile(number: str, where: Where) -> None:
            here = self.at(self.v, text.times(number, self.channels))
            into = (matrix, self.channels, here, self.stride)
            self.pixels(window, where, functools.partial(self.transformed, *into))

        self.tiles(start, count, tile)

    def _panels(self, block: str, count: str) -> None:
        """Run over the panels, those of equal shape in one loop."""
        cut, at = panels(self.out), 0
        while at < len(cut):
            start, widths = cut[at]
            wide = sum(widths)
            live = min(wide, self.out - start)
            alike = [c for c in cut[at:] if c[1] == widths and self.out - c[0] >= wide]
            many = max(len(alike), 1)

            def panel(
                first: str,
                _: list[str],
                widths: tuple[int, ...] = widths,
                n: int = live,
            ) -> list[str]:
                self._products(first, widths)
                self._outputs(first, n, sum(widths), block, count)
                return []

            self.text.loop(str(start), str(start + many * wide), wide, panel)
            at += many

    def _products(self, first: str, widths: tuple[int, ...]) -> None:
        """Multiply the places of a block by those of a panel of weights."""
        text, channels, wide = self.text, self.channels, sum(widths)
        base = self.emitter.base(self.kernel.weights)
        panel = self.at(base, text.times(first, self.tiling.places * channels))

        def place(at: list[str]) -> None:
            left = self.at(self.v, text.times(at[0], self.stride))
            right = self.at(panel, text.times(at[0], channels * wide))
            target = self.at(self.m, text.times(at[0], self.wide_stride))

            def rows(row: str, size: int) -> None:
                a = self.at(left, text.times(row, channels))
                zeros = [self.maths.constant(0, FLOAT, w) for w in widths] * size
                made = self.product(
                    (a, channels, 1), (right, wide), str(channels), zeros, widths
                )
                c = self.at(target, text.times(row, wide))
                for i, one in enumerate(made):
                    r, v = divmod(i, len(widths))
                    self.emitter.put(one, self.at(c, r * wide + v * LANES))

            self.row_tiles(self.tiling.block, len(widths), rows)

        self.emitter.nest([("0", str(self.tiling.places))], place)

    def _outputs(
        self, first: str, live: int, wide: int, block: str, count: str
    ) -> None:
        """Transform the products of a block back, and store them or add them."""
        text, tiling = self.text, self.tiling
        size, before = tiling.step, (0, 0)
        if self.spreads:
            size, before = tiling.span, tiling.before
        extent = self.made[1], self.made[2]
        view = View.whole(self.kernel.target)
        window = Window(view, extent, size, before, self.nowhere, first)

        def tile(number: str, where: Where) -> None:
            source = self.at(self.m, text.times(number, wide))
            self.pixels(window, where, lambda found: self._store(source, found, live))

        self.tiles(block, count, tile)

    def _store(self, source: str, pixels: list[list[str]], live: int) -> None:
        """Transform one tile back."""
        places = [place for row in pixels for place in row]
        span = self.tiling.span

        def made(
            matrix: np.ndarray, channel: str, width: int
        ) -> Iterator[tuple[str, Val]]:
            here = self.at(source, channel)

            def product(i: int, j: int) -> Val:
                place = self.at(here, (i * span + j) * self.wide_stride)
                return self.emitter.load(place, FLOAT, width)

            for place, one in self.both(matrix, product):
                yield self.at(places[place], channel), one

        def store(channel: str, width: int) -> None:
            for there, one in made(self.outputs, channel, width):
                self.emitter.put(one, there)

        def add(channel: str, width: int) -> None:
            for there, one in made(self.inputs_back, channel, width):
                old = self.emitter.load(there, FLOAT, width)
                self.emitter.put(self.add(old, one), there)

        if self.spreads:
            self.lanes_once(live, add)  # what is added must be added once
        else:
            self.lanes(live, store)
