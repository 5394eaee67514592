"""Winograd's convolution in LLVM IR.

A block of tiles is transformed, multiplied and transformed back before the next one,
so that everything in between stays in the second-level cache of its thread.
"""

from __future__ import annotations

from collections.abc import Callable

from ganglion.backends.cpu_emitter import Emitted
from ganglion.backends.cpu_text import Val
from ganglion.backends.cpu_winograd_tile import Blocks, Grid, Transforms
from ganglion.plan.kernel import Kernel
from ganglion.plan.winograd import (
    FLOAT,
    LANES,
    PLACES,
    SPAN,
    WinogradConv,
    WinogradGrads,
    WinogradKernel,
    WinogradWeights,
    kernel_matrix,
    padded,
    panels,
)


def emit_winograd(kernel: Kernel) -> Emitted:
    """Return one of Winograd's kernels as text."""
    if isinstance(kernel, WinogradWeights):
        return _Weights().emit(kernel)
    if isinstance(kernel, WinogradConv):
        return _Conv(kernel.tiling).emit(kernel)
    if isinstance(kernel, WinogradGrads):
        return _Grads(kernel.tiling).emit(kernel)
    assert isinstance(kernel, WinogradKernel)
    return _Weights().emit_back(kernel)


class _Weights(Transforms):
    """Weights into Winograd's space, and their gradients back."""

    def emit(self, kernel: WinogradWeights) -> Emitted:
        """Emit the transform of weights; a piece is an input channel."""
        _, _, rows, channels = kernel.shape
        source = self.emitter.base(kernel.source.buffer)
        target = self.emitter.base(kernel.target)
        transform = self.by_matrix(kernel_matrix(kernel.shape[0]))

        def row(at: list[str]) -> None:
            for start, widths in panels(channels):
                wide, first = sum(widths), 0
                for width in widths:
                    grid = self._taps(kernel, source, at[0], start + first, width)
                    place = self.text.times(at[0], wide)
                    here = self.at(target, PLACES * rows * start + first)
                    here = self.at(here, place)
                    for i, one in enumerate(self.both(transform, grid)):
                        self.emitter.put(one, self.at(here, i * rows * wide))
                    first += width

        self.emitter.nest([("%lo", "%hi")], row)
        return self.emitter.emitted(rows)

    def _taps(
        self, kernel: WinogradWeights, base: str, row: str, first: int, width: int
    ) -> Grid:
        """Load the taps of some channels; zeros where there are no more channels."""
        view, (taps, _, _, channels) = kernel.source, kernel.shape
        known = min(width, channels - first)
        here = self.at(base, self.text.times(row, view.strides[2]))

        def one(i: int, j: int) -> Val:
            place = i * view.strides[0] + j * view.strides[1] + first + view.offset
            value = self.emitter.load(self.at(here, place), FLOAT, known)
            return value if known == width else self._widened(value, width)

        return [[one(i, j) for j in range(taps)] for i in range(taps)]

    def _widened(self, value: Val, width: int) -> Val:
        if value.width == 1:
            zero = self.maths.constant(0, FLOAT, 1)
            return self.maths.gathered([value, *[zero] * (width - 1)])
        order = [*range(value.width), *[value.width] * (width - value.width)]
        mask = ", ".join(f"i32 {i}" for i in order)
        name = self.text.let(
            f"shufflevector {value.type} {value.name}, {value.type} zeroinitializer, "
            f"<{width} x i32> <{mask}>"
        )
        return Val(name, FLOAT, width)

    def emit_back(self, kernel: WinogradKernel) -> Emitted:
        """Emit the sum over slices and the way back; a piece is an input channel."""
        text = self.text
        taps, _, rows, channels = kernel.shape
        wide = padded(channels)
        sums, target = self.emitter.base(kernel.sums), self.emitter.base(kernel.target)
        transform = self.by_matrix(kernel_matrix(taps).T)

        def vector(row: str, channel: str, width: int) -> None:
            here = self.at(self.at(sums, text.times(row, wide)), channel)

            def add(number: str, carried: list[str]) -> list[str]:
                base = self.at(here, text.times(number, PLACES * rows * wide))
                made = []
                for i, name in enumerate(carried):
                    one = self.emitter.load(
                        self.at(base, i * rows * wide), FLOAT, width
                    )
                    made.append(self.add(Val(name, FLOAT, width), one).name)
                return made

            zero = self.maths.constant(0, FLOAT, width)
            start = [(zero.type, zero.name)] * PLACES
            ends = text.loop("0", str(kernel.slices), 1, add, start)
            totals = [Val(name, FLOAT, width) for name in ends]
            grid = [totals[i : i + SPAN] for i in range(0, PLACES, SPAN)]
            there = self.at(self.at(target, text.times(row, channels)), channel)
            for i, one in enumerate(self.both(transform, grid)):
                self.emitter.put(one, self.at(there, i * rows * channels))

        self.emitter.nest(
            [("%lo", "%hi")],
            lambda at: self.lanes(channels, lambda c, w: vector(at[0], c, w)),
        )
        return self.emitter.emitted(rows)


class _Conv(Blocks):
    """Images times transformed weights."""

    def emit(self, kernel: WinogradConv) -> Emitted:
        """Emit the convolution."""
        tiling, text = self.tiling, self.text
        channels, out = tiling.inputs[3], tiling.outputs[3]
        cut = panels(out)
        widest = max(sum(widths) for _, widths in cut)
        stride, wide_stride = tiling.stride(channels), tiling.stride(widest)
        region = kernel.scratch.shape[1]
        scratch = self.emitter.base(kernel.scratch)
        self.v = self.at(scratch, text.times("%lo", region))
        self.m = self.at(self.v, PLACES * stride)
        self.nowhere = self.at(self.m, PLACES * wide_stride)

        def block(_: str, __: str, index: str, count: str) -> None:
            def tile(number: str, image: str, row: str, column: str) -> None:
                here = self.at(self.v, text.times(number, channels))
                self.load_tiles(
                    kernel.images,
                    kernel.zeros,
                    tiling.inputs,
                    SPAN,
                    tiling.before,
                    (image, row, column),
                    lambda p: self.transformed(self.inputs, p, channels, here, stride),
                )

            self.tiles(index, count, tile)
            self._panels(kernel, cut, index, count, stride, wide_stride)

        self.pieces(block)
        return self.emitter.emitted(tiling.pieces)

    def _panels(
        self,
        kernel: WinogradConv,
        cut: list[tuple[int, tuple[int, ...]]],
        index: str,
        count: str,
        stride: int,
        wide_stride: int,
    ) -> None:
        """Run over the panels, those of equal shape in one loop."""
        out, at = self.tiling.outputs[3], 0
        while at < len(cut):
            start, widths = cut[at]
            wide = sum(widths)
            live = min(wide, out - start)
            alike = [c for c in cut[at:] if c[1] == widths and out - c[0] >= wide]
            many = max(len(alike), 1)

            def panel(
                first: str,
                _: list[str],
                widths: tuple[int, ...] = widths,
                n: int = live,
            ) -> list[str]:
                self._products(kernel, first, widths, stride, wide_stride)
                self._back(kernel, first, n, sum(widths), index, count, wide_stride)
                return []

            self.text.loop(str(start), str(start + many * wide), wide, panel)
            at += many

    def _products(
        self,
        kernel: WinogradConv,
        first: str,
        widths: tuple[int, ...],
        stride: int,
        wide_stride: int,
    ) -> None:
        """Multiply the 36 places of a block by those of a panel of weights."""
        text, tiling = self.text, self.tiling
        channels, wide = tiling.inputs[3], sum(widths)
        base = self.emitter.base(kernel.weights)
        panel = self.at(base, text.times(first, PLACES * channels))

        def place(at: list[str]) -> None:
            left = self.at(self.v, text.times(at[0], stride))
            right = self.at(panel, text.times(at[0], channels * wide))
            target = self.at(self.m, text.times(at[0], wide_stride))

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

            self.row_tiles(tiling.block, len(widths), rows)

        self.emitter.nest([("0", str(PLACES))], place)

    def _back(
        self,
        kernel: WinogradConv,
        first: str,
        live: int,
        wide: int,
        index: str,
        count: str,
        stride: int,
    ) -> None:
        """Transform products into outputs."""
        text, tiling = self.text, self.tiling
        _, height, width, out = tiling.outputs
        size = tiling.step
        transform = self.outputs if size == 4 else self.outputs_of_two
        base = self.at(self.emitter.base(kernel.target), first)
        partial = height % size or width % size

        def tile(number: str, image: str, row: str, column: str) -> None:
            source = self.at(self.m, text.times(number, wide))
            strides = (height * width * out, width * out * size, out * size)
            corner = self.at(base, text.affine([image, row, column], strides, 0))

            def store(places: list[str]) -> None:
                def vector(channel: str, lanes: int) -> None:
                    here = self.at(source, channel)
                    loads = [
                        self.emitter.load(self.at(here, i * stride), FLOAT, lanes)
                        for i in range(PLACES)
                    ]
                    grid = [loads[i : i + SPAN] for i in range(0, PLACES, SPAN)]
                    made = self.both(transform, grid)
                    for one, place in zip(made, places, strict=True):
                        self.emitter.put(one, self.at(place, channel))

                self.lanes(live, vector)

            def all_of(i: int, j: int) -> str:
                return self.at(corner, (i * width + j) * out)

            def careful() -> None:
                top, left = text.times(row, size), text.times(column, size)
                rows = [self.within(text.add(top, str(i)), height) for i in range(size)]
                sides = [
                    self.within(text.add(left, str(i)), width) for i in range(size)
                ]
                places = []
                for i in range(size):
                    for j in range(size):
                        both = self.both_hold(rows[i], sides[j])
                        to = f"select i1 {both}, ptr {all_of(i, j)}, ptr {self.nowhere}"
                        places.append(text.let(to))
                # Outputs that are not there all go to one place behind the scratch,
                # whatever their channel.
                store(places)

            def inside() -> None:
                store([all_of(i, j) for i in range(size) for j in range(size)])

            if not partial:
                inside()
                return
            fits = self.both_hold(
                self.within(row, height // size), self.within(column, width // size)
            )
            self.choose(fits, inside, careful)

        self.tiles(index, count, tile)


class _Grads(Blocks):
    """Transformed images times transformed gradients, summed over tiles."""

    def emit(self, kernel: WinogradGrads) -> Emitted:
        """Emit the sums; a piece is a slice with sums of its own."""
        tiling, text = self.tiling, self.text
        channels, out = tiling.inputs[3], tiling.outputs[3]
        wide = padded(out)
        stride, wide_stride = tiling.stride(channels), tiling.stride(wide)
        scratch = self.emitter.base(kernel.scratch)
        v = self.at(scratch, text.times("%lo", kernel.scratch.shape[1]))
        z = self.at(v, PLACES * stride)
        size = tiling.step
        spread = self.grads if size == 4 else self.grads_of_two

        def block(piece: str, first: str, index: str, count: str) -> None:
            def tile(number: str, image: str, row: str, column: str) -> None:
                where = (image, row, column)
                here = self.at(v, text.times(number, channels))
                there = self.at(z, text.times(number, wide))
                self.load_tiles(
                    kernel.images,
                    kernel.zeros,
                    tiling.inputs,
                    SPAN,
                    tiling.before,
                    where,
                    lambda p: self.transformed(self.inputs, p, channels, here, stride),
                )
                self.load_tiles(
                    kernel.grads,
                    kernel.zeros,
                    tiling.outputs,
                    size,
                    (0, 0),
                    where,
                    lambda p: self.transformed(spread, p, out, there, wide_stride),
                )

            self.tiles(index, count, tile)
            base = self.emitter.base(kernel.sums)
            sums = self.at(base, text.times(piece, PLACES * channels * wide))
            starts = text.let(f"icmp eq i64 {index}, {first}")
            self._sums((v, stride), (z, wide_stride), sums, starts, count)

        self.pieces(block)
        return self.emitter.emitted(tiling.pieces)

    def _sums(
        self,
        v: tuple[str, int],
        z: tuple[str, int],
        sums: str,
        starts: str,
        count: str,
    ) -> None:
        """Add a block's products to the sums of the 36 places."""
        text, tiling = self.text, self.tiling
        channels, wide = tiling.inputs[3], padded(tiling.outputs[3])
        single = tiling.blocks <= tiling.pieces

        def place(at: list[str]) -> None:
            left = self.at(v[0], text.times(at[0], v[1]))
            right = self.at(z[0], text.times(at[0], z[1]))
            target = self.at(sums, text.times(at[0], channels * wide))

            def tile(row: str, size: int, first: str, widths: tuple[int, ...]) -> None:
                here = self.at(self.at(target, text.times(row, wide)), first)
                cells = [
                    (self.at(here, r * wide + n * LANES), width)
                    for r in range(size)
                    for n, width in enumerate(widths)
                ]
                old = [self.maths.constant(0, FLOAT, width) for _, width in cells]
                if not single:
                    old = [self._kept(starts, *cell) for cell in cells]
                a, b = self.at(left, row), self.at(right, first)
                made = self.product((a, 1, channels), (b, wide), count, old, widths)
                for one, (address, _) in zip(made, cells, strict=True):
                    self.emitter.put(one, address)

            self._cells(channels, tile)

        self.emitter.nest([("0", str(PLACES))], place)

    def _cells(
        self, rows: int, tile: Callable[[str, int, str, tuple[int, ...]], None]
    ) -> None:
        """Run over tiles of rows and panels of columns."""
        cut = panels(self.tiling.outputs[3])
        runs: dict[tuple[int, ...], list[int]] = {}
        for start, widths in cut:
            runs.setdefault(widths, []).append(start)
        for widths, starts in runs.items():

            def panel(
                first: str, _: list[str], widths: tuple[int, ...] = widths
            ) -> list[str]:
                self.row_tiles(
                    rows, len(widths), lambda row, size: tile(row, size, first, widths)
                )
                return []

            stop = starts[-1] + sum(widths)
            self.text.loop(str(starts[0]), str(stop), sum(widths), panel)

    def _kept(self, starts: str, address: str, width: int) -> Val:
        """Return the sum so far; at the start of a slice it is zero."""
        zero = self.maths.constant(0, FLOAT, width)
        old = self.emitter.load(address, FLOAT, width)
        kind = zero.type
        name = self.text.let(
            f"select i1 {starts}, {kind} {zero.name}, {kind} {old.name}"
        )
        return Val(name, FLOAT, width)
