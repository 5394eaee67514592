"""Winograd's convolution of images, its adjoint, and its gradient to the weights.

A block of tiles is transformed, multiplied and transformed back before the next one,
so that everything in between stays in the second-level cache of its thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain

from ganglion.compiler.cpu.emitter import Emitted
from ganglion.compiler.cpu.text import BOOL, Val
from ganglion.compiler.cpu.winograd import Blocks, Both, Where, Window, each_panel
from ganglion.compiler.plan.winograd import (
    FLOAT,
    LANES,
    Plane,
    WinogradConv,
    WinogradGrads,
    WinogradOutputs,
    WinogradPoints,
    WinogradSpread,
    padded,
    panels,
    weight_rows,
    widest_panel,
)

Region = tuple[str, int]  # address of a block's points, and how far they are apart


class Conv(Blocks):
    """Images times transformed weights, or the adjoint."""

    def __init__(self, kernel: WinogradConv) -> None:
        super().__init__(kernel.tiling)
        self.kernel, tiling = kernel, kernel.tiling
        self.spreads = isinstance(kernel, WinogradSpread)
        self.channels, self.out = kernel.channels
        self.stride, self.row = tiling.stride(self.channels), self.channels
        if kernel.stored:
            self.stride, self.row = kernel.stored.stride, kernel.stored.row
        self.wide_stride = tiling.stride(widest_panel(self.out))

    def emit(self) -> Emitted:
        """Emit the convolution."""
        stored, points = self.kernel.stored, self.tiling.points
        self.v = self.m = self.emitter.base(self.kernel.scratch)
        if stored:
            every = self.emitter.base(stored.buffer)
        else:
            self.m = self.at(self.v, points * self.stride)
        self.nowhere = self.at(self.m, points * self.wide_stride)

        def block(_: str, start: str, count: str) -> None:
            if stored:
                self.v = self.at(every, self.text.times(start, self.row))
            if self.spreads:
                self._clear(start, count)
            self._inputs(start, count)
            self._panels(start, count)

        return self.emitter.pieces(
            self.counts.pieces, lambda piece: self.blocks_of(piece, block)
        )

    def _clear(self, tile: str, count: str) -> None:
        """Fill the images of a block with zeros, to be added to."""
        text = self.text
        each = math.prod(self.tiling.across)
        size = math.prod(self.kernel.target.shape[1:])
        start = text.times(text.let(f"udiv i64 {tile}, {each}"), size)
        images = text.let(f"udiv i64 {count}, {each}")
        base = self.emitter.base(self.kernel.target.view.buffer)

        def clear(index: str, width: int) -> None:
            zero = self.maths.constant(0, FLOAT, width)
            self.emitter.store(zero, self.at(base, index))

        self.emitter.in_vectors(start, text.add(start, text.times(images, size)), clear)

    def _inputs(self, start: str, count: str) -> None:
        """Transform the inputs of a block."""
        tiling, text = self.tiling, self.text
        transforms, size = self.inputs, tiling.span
        if self.spreads:
            transforms, size = self.spread, tiling.step
        none = self.emitter.base(self.kernel.zeros)
        window = Window(self.kernel.sources, size, none)

        def tile(number: str, where: Where) -> None:
            here = self.at(self.v, text.times(number, self.row))
            self.all_planes(window, where, here, transforms, self.stride)

        self.tiles_of_planes(window, start, count, tile)

    def _panels(self, block: str, count: str) -> None:
        """Run over the panels of weights."""

        def panel(first: str, widths: tuple[int, ...], live: int) -> None:
            self._products(first, widths)
            self._outputs(first, live, sum(widths), block, count)

        each_panel(self.text, self.out, panel)

    def _products(self, first: str, widths: tuple[int, ...]) -> None:
        """Multiply the points of a block by those of a panel of weights."""
        text, channels, wide = self.text, self.channels, sum(widths)
        each = weight_rows(channels)
        base = self.emitter.base(self.kernel.weights)
        panel = self.at(base, text.times(first, self.tiling.points * each))

        def point(number: str) -> None:
            left = self.at(self.v, text.times(number, self.stride))
            right = self.at(panel, text.times(number, each * wide))
            target = self.at(self.m, text.times(number, self.wide_stride))

            def rows(row: str, size: int) -> None:
                a = self.at(left, text.times(row, self.row))
                zeros = [self.maths.constant(0, FLOAT, w) for w in widths] * size
                sums = self.product(
                    (a, self.row, 1), (right, wide), str(channels), zeros, widths
                )
                c = self.at(target, text.times(row, wide))
                for i, total in enumerate(sums):
                    r, v = divmod(i, len(widths))
                    self.emitter.store(total, self.at(c, r * wide + v * LANES))

            self.row_tiles(self.tiling.block, len(widths), rows)

        text.each(0, self.tiling.points, 1, point)

    def _outputs(
        self, first: str, live: int, wide: int, block: str, count: str
    ) -> None:
        """Transform the products of a block back, and store them or add them."""
        text, tiling = self.text, self.tiling
        size = tiling.span if self.spreads else tiling.step
        window = Window((self.kernel.target,), size, self.nowhere, first)

        transforms = self.inputs_back if self.spreads else self.outputs
        into = (transforms, live, self.wide_stride, self.spreads)

        def tile(number: str, where: Where) -> None:
            source = self.at(self.m, text.times(number, wide))
            self.pixels(window, where, partial(self.transformed_back, *into, source))

        self.tiles(block, count, tile)


class Points(Blocks):
    """Transformed images, or gradients, for products by point."""

    def __init__(self, kernel: WinogradPoints) -> None:
        super().__init__(kernel.tiling)
        self.kernel = kernel

    def emit(self) -> Emitted:
        """Emit the transform of all planes."""
        kernel, text, tiling = self.kernel, self.text, self.tiling
        transforms, size = self.inputs, tiling.span
        if kernel.is_gradient:
            transforms, size = self.spread, tiling.step
        none = self.emitter.base(kernel.zeros)
        target = self.emitter.base(kernel.target.buffer)
        row, stride = kernel.target.row, kernel.target.stride

        def block(_: str, start: str, count: str) -> None:
            base = self.at(target, text.times(start, row))
            window = Window(kernel.sources, size, none)

            def tile(number: str, where: Where) -> None:
                here = self.at(base, text.times(number, row))
                self.all_planes(window, where, here, transforms, stride)

            self.tiles(start, count, tile)

        return self.emitter.pieces(
            self.counts.pieces, lambda piece: self.blocks_of(piece, block)
        )


class Outputs(Blocks):
    """Products by point, transformed into the outputs of a convolution."""

    def __init__(self, kernel: WinogradOutputs) -> None:
        super().__init__(kernel.tiling)
        self.kernel = kernel

    def emit(self) -> Emitted:
        """Emit the transform of all outputs."""
        kernel, text = self.kernel, self.text
        source = self.emitter.base(kernel.points.buffer)
        nowhere = self.emitter.base(kernel.scratch)
        row, stride = kernel.points.row, kernel.points.stride
        window = Window((kernel.target,), self.tiling.step, nowhere)
        into = (self.outputs, kernel.target.shape[3], stride, False)

        def block(_: str, start: str, count: str) -> None:
            base = self.at(source, text.times(start, row))

            def tile(number: str, where: Where) -> None:
                here = self.at(base, text.times(number, row))
                self.pixels(window, where, partial(self.transformed_back, *into, here))

            self.tiles(start, count, tile)

        return self.emitter.pieces(
            self.counts.pieces, lambda piece: self.blocks_of(piece, block)
        )


class Grads(Blocks):
    """Transformed images times transformed gradients, summed over tiles."""

    def __init__(self, kernel: WinogradGrads) -> None:
        super().__init__(kernel.tiling)
        self.kernel = kernel
        out = kernel.tiling.outputs[3]
        self.channels = kernel.tiling.channels // kernel.plane_groups
        self.wide, self.live = padded(out), out // kernel.groups
        self.group = padded(self.live)
        self.row_group = "0"  # which of the groups of rows of points a piece has
        self.planes = "0"  # which of the groups of planes a piece has

    def emit(self) -> Emitted:
        """Emit the sums; a piece is a slice of tiles and a group of channels."""
        kernel, text, tiling = self.kernel, self.text, self.tiling
        stride, group_stride = tiling.stride(self.channels), tiling.stride(self.group)
        v = self.emitter.base(kernel.scratch)
        z = self.at(v, tiling.points // kernel.row_groups * stride)
        regions = (v, stride), (z, group_stride)
        each = kernel.sums.size // kernel.sums.shape[0]

        def piece(part: str) -> None:
            group, self.row_group, self.planes = "0", "0", "0"
            if kernel.plane_groups > 1:
                part, self.planes = text.divided(part, kernel.plane_groups)
            if kernel.groups > 1:
                part, group = text.divided(part, kernel.groups)
            if kernel.row_groups > 1:
                part, self.row_group = text.divided(part, kernel.row_groups)
            channel = text.times(group, self.group)
            sums = self.at(self.emitter.base(kernel.sums), text.times(part, each))
            sums = self.at(sums, channel)
            sums = self.at(sums, text.times(self.planes, self.channels * self.wide))

            def block(first: str, start: str, count: str) -> None:
                self._for_rows(
                    partial(self._transforms, start, count, channel, *regions)
                )
                starts = text.let(f"icmp eq i64 {start}, {first}")
                self._sums(*regions, sums, starts, count)

            self.blocks_of(part, block)

        return self.emitter.pieces(self.counts.pieces, piece)

    def _for_rows(self, body: Callable[[Sequence[int] | None], None]) -> None:
        """Run a body for the rows of points that a piece has."""
        groups, last = self.kernel.row_groups, self.tiling.span[0] - 1
        if groups == 1:
            body(None)
            return
        pairs = [(0, last), *((row, row + 1) for row in range(1, last, 2))]
        each = len(pairs) // groups
        for group in range(groups):
            rows = [*chain(*pairs[group * each : (group + 1) * each])]
            matches = self.text.let(f"icmp eq i64 {self.row_group}, {group}")
            self.text.when(matches, partial(body, rows))

    def _row(self, number: str) -> str:
        """Return the row of points that is a piece's row of this number."""
        text, groups, span = self.text, self.kernel.row_groups, self.tiling.span[0]
        if groups == 1:
            return number
        # Of all rows in pairs; the second of the first pair is the last row.
        number = text.add(text.times(self.row_group, span // groups), number)
        row = text.add(number, "-1")
        row = text.let(
            f"select i1 {text.let(f'icmp eq i64 {number}, 0')}, i64 0, i64 {row}"
        )
        is_last = text.let(f"icmp eq i64 {number}, 1")
        return text.let(f"select i1 {is_last}, i64 {span - 1}, i64 {row}")

    def _transforms(
        self,
        start: str,
        count: str,
        channel: str,
        v: Region,
        z: Region,
        only: Sequence[int] | None,
    ) -> None:
        """Transform images and gradients of a block."""
        kernel, tiling = self.kernel, self.tiling
        none = self.emitter.base(kernel.zeros)
        images = Window(kernel.sources, tiling.span, none)
        gradient = (Plane(kernel.grads, tiling.outputs),)
        grads = Window(gradient, tiling.step, none, channel)

        def tile(number: str, where: Where) -> None:
            here = self.at(v[0], self.text.times(number, self.channels))
            there = self.at(z[0], self.text.times(number, self.group))

            def plane(window: Window, first: str) -> None:
                own = (self.inputs, window.channels, self.at(here, first), v[1])
                self._transform(window, where, own, only)

            self.each_plane(images, self.planes, kernel.plane_groups, plane)
            own = (self.spread, self.live, there, z[1])
            self._transform(grads, where, own, only)

        self.tiles_of_planes(images, start, count, tile)

    def _transform(
        self,
        window: Window,
        where: Where,
        into: tuple[Both, int, str, int],
        only: Sequence[int] | None,
    ) -> None:
        """Transform a tile by some matrices: channels, to where, points apart."""
        self.prefetch_below(window, where, into[1])
        self.pixels(window, where, partial(self.transformed, *into, only=only))

    def _sums(self, v: Region, z: Region, sums: str, starts: str, count: str) -> None:
        """Add a block's products to the sums of the points."""
        text, tiling = self.text, self.tiling
        channels, wide, group = self.channels, self.wide, self.group
        single = tiling.piece <= tiling.block
        each = weight_rows(tiling.channels) * wide

        def point(at: list[str]) -> None:
            here = text.add(text.times(at[0], tiling.span[1]), at[1])
            there = text.add(text.times(self._row(at[0]), tiling.span[1]), at[1])
            left = self.at(v[0], text.times(here, v[1]))
            right = self.at(z[0], text.times(here, z[1]))
            target = self.at(sums, text.times(there, each))

            def tile(row: str, size: int, first: str, widths: tuple[int, ...]) -> None:
                here = self.at(self.at(target, text.times(row, wide)), first)
                cells = [
                    (self.at(here, r * wide + n * LANES), width)
                    for r in range(size)
                    for n, width in enumerate(widths)
                ]
                old = [self.maths.constant(0, FLOAT, width) for _, width in cells]
                if not single:
                    old = [self._sum_so_far(starts, *cell) for cell in cells]
                    for address, _ in cells:  # all sums are more than a cache holds
                        self.emitter.prefetch(self.at(address, size * wide), 1)
                a, b = self.at(left, row), self.at(right, first)
                new = self.product((a, 1, channels), (b, group), count, old, widths)
                for total, (address, _) in zip(new, cells, strict=True):
                    self.emitter.store(total, address)

            self._cells(channels, tile)

        rows = str(tiling.span[0] // self.kernel.row_groups)
        self.emitter.nest([("0", rows), (0, tiling.span[1])], point)

    def _cells(
        self, rows: int, tile: Callable[[str, int, str, tuple[int, ...]], None]
    ) -> None:
        """Run over tiles of rows and panels of columns."""
        runs: dict[tuple[int, ...], list[int]] = {}
        for start, widths in panels(self.live):
            runs.setdefault(widths, []).append(start)
        for widths, starts in runs.items():

            def panel(first: str, widths: tuple[int, ...] = widths) -> None:
                self.row_tiles(
                    rows, len(widths), lambda row, size: tile(row, size, first, widths)
                )

            stop = starts[-1] + sum(widths)
            self.text.each(starts[0], stop, sum(widths), panel)

    def _sum_so_far(self, starts: str, address: str, width: int) -> Val:
        """Return the sum so far; at the start of a slice it is zero."""
        zero = self.maths.constant(0, FLOAT, width)
        old = self.emitter.load(address, FLOAT, width)
        return self.maths.select(Val(starts, BOOL, 1), zero, old)
