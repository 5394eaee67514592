"""Winograd's convolution in LLVM IR: transforms along channels, products in tiles.

A block of tiles is transformed, multiplied and transformed back before the next one,
so that everything in between stays in the second-level cache of its thread.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ganglion.backends.cpu_loop import Emitted, Emitter
from ganglion.backends.cpu_text import Val
from ganglion.plan.kernel import Buffer, Kernel, View
from ganglion.plan.winograd import (
    FLOAT,
    LANES,
    PLACES,
    SPAN,
    Tiling,
    WinogradConv,
    WinogradGrads,
    WinogradKernel,
    WinogradWeights,
    kernel_matrix,
    padded,
    panels,
)

ACCUMULATORS = 28  # that fit beside the operands in 32 vector registers
ROWS_AT_MOST = 14
Transform = Callable[[list[Val]], list[Val]]
Grid = list[list[Val]]


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


class _Transforms:
    """The transforms of a tile, along one axis and along both."""

    def __init__(self) -> None:
        self.emitter = Emitter()
        self.text, self.maths = self.emitter.text, self.emitter.maths

    def at(self, base: str, index: str | int) -> str:
        """Return the address of an element."""
        return self.text.address(base, "float", str(index))

    def both(self, transform: Transform, grid: Grid) -> Grid:
        """Transform the columns of a grid, then its rows."""
        columns = [transform(list(column)) for column in zip(*grid, strict=True)]
        return [transform(list(row)) for row in zip(*columns, strict=True)]

    def add(self, a: Val, b: Val) -> Val:
        """Return a + b."""
        return self.maths.binary("fadd", a, b)

    def minus(self, a: Val, b: Val) -> Val:
        """Return a - b."""
        return self.maths.binary("fsub", a, b)

    def more(self, a: Val, factor: float, b: Val) -> Val:
        """Return factor * a + b."""
        return self.maths.fma(a, self.maths.constant(factor, FLOAT, a.width), b)

    def inputs(self, d: list[Val]) -> list[Val]:
        """Transform six inputs (Bᵀd)."""
        more = self.more
        even, odd = more(d[2], -4, d[4]), more(d[1], -4, d[3])
        near, step = self.minus(d[4], d[2]), self.minus(d[3], d[1])
        return [
            more(d[0], 4, more(d[2], -5, d[4])),
            self.add(even, odd),
            self.minus(even, odd),
            more(step, 2, near),
            more(step, -2, near),
            more(d[1], 4, more(d[3], -5, d[5])),
        ]

    def outputs(self, m: list[Val]) -> list[Val]:
        """Transform six products into four outputs (Aᵀm)."""
        s1, d1 = self.add(m[1], m[2]), self.minus(m[1], m[2])
        s2, d2 = self.add(m[3], m[4]), self.minus(m[3], m[4])
        first = self.add(self.add(m[0], s1), s2)
        last = self.add(self.more(d2, 8, d1), m[5])
        return [first, self.more(d2, 2, d1), self.more(s2, 4, s1), last]

    def outputs_of_two(self, m: list[Val]) -> list[Val]:
        """Transform six products into two outputs."""
        s1, d1 = self.add(m[1], m[2]), self.minus(m[1], m[2])
        s2, d2 = self.add(m[3], m[4]), self.minus(m[3], m[4])
        first = self.add(self.add(m[0], s1), s2)
        return [first, self.add(self.more(d2, 2, d1), m[5])]

    def grads(self, y: list[Val]) -> list[Val]:
        """Spread the gradients of four outputs over six places (Ay)."""
        e, o = self.add(y[0], y[2]), self.add(y[1], y[3])
        e4, o4 = self.more(y[2], 4, y[0]), self.more(y[3], 4, y[1])
        made = [self.add(e, o), self.minus(e, o)]
        return [y[0], *made, self.more(o4, 2, e4), self.more(o4, -2, e4), y[3]]

    def grads_of_two(self, y: list[Val]) -> list[Val]:
        """Spread the gradients of two outputs over six places."""
        made = [self.add(y[0], y[1]), self.minus(y[0], y[1])]
        return [y[0], *made, self.more(y[1], 2, y[0]), self.more(y[1], -2, y[0]), y[1]]

    def by_matrix(self, matrix: np.ndarray) -> Transform:
        """Return the transform that multiplies by a matrix."""

        def transform(values: list[Val]) -> list[Val]:
            made = []
            for row in matrix:
                total = self.maths.constant(0, FLOAT, values[0].width)
                for factor, value in zip(row, values, strict=True):
                    total = self.more(value, factor, total) if factor else total
                made.append(total)
            return made

        return transform

    # ---- control ---------------------------------------------------------------------

    def lanes(self, channels: int, body: Callable[[str, int], None]) -> None:
        """Run over channels in vectors of one width; the last may repeat some."""
        text = self.text
        width = min(LANES, 1 << (channels.bit_length() - 1))

        def step(index: str, _: list[str]) -> list[str]:
            if channels % width:
                last = str(channels - width)
                before = text.let(f"icmp slt i64 {index}, {last}")
                index = text.let(f"select i1 {before}, i64 {index}, i64 {last}")
            body(index, width)
            return []

        text.loop("0", str(channels), width, step)

    def choose(
        self, condition: str, yes: Callable[[], None], no: Callable[[], None]
    ) -> None:
        """Do one thing or the other."""
        text = self.text
        names = [text.fresh(stem) for stem in ("yes", "no", "done")]
        text.do(f"br i1 {condition}, label {names[0]}, label {names[1]}")
        for name, body in zip(names, (yes, no), strict=False):
            text.label(name)
            body()
            text.do(f"br label {names[2]}")
        text.label(names[2])

    def both_hold(self, a: str, b: str) -> str:
        """Return whether two conditions hold."""
        return self.text.let(f"and i1 {a}, {b}")

    def within(self, index: str, size: int) -> str:
        """Return whether 0 <= index < size."""
        return self.text.let(f"icmp ult i64 {index}, {size}")


class _Weights(_Transforms):
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
                    for i, one in enumerate(sum(self.both(transform, grid), [])):
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
            for i, one in enumerate(sum(self.both(transform, grid), [])):
                self.emitter.put(one, self.at(there, i * rows * channels))

        self.emitter.nest(
            [("%lo", "%hi")],
            lambda at: self.lanes(channels, lambda c, w: vector(at[0], c, w)),
        )
        return self.emitter.emitted(rows)


class _Blocks(_Transforms):
    """What the passes over images share: tiles, blocks and products."""

    def __init__(self, tiling: Tiling) -> None:
        super().__init__()
        self.tiling = tiling

    def pieces(self, body: Callable[[str, str, str, str], None]) -> None:
        """Run over the blocks of each piece: piece, first block, block, tiles of it."""
        text, tiling = self.text, self.tiling

        def cut(number: str) -> str:
            whole = text.times(number, tiling.blocks)
            return text.let(f"sdiv i64 {whole}, {tiling.pieces}")

        def piece(number: list[str]) -> None:
            first, last = cut(number[0]), cut(text.add(number[0], "1"))

            def block(index: str, _: list[str]) -> list[str]:
                start = text.times(index, tiling.block)
                left = text.let(f"sub i64 {tiling.tiles}, {start}")
                full = text.let(f"icmp slt i64 {tiling.block}, {left}")
                count = text.let(f"select i1 {full}, i64 {tiling.block}, i64 {left}")
                body(number[0], first, index, count)
                return []

            text.loop(first, last, 1, block)

        self.emitter.nest([("%lo", "%hi")], piece)

    def tiles(
        self, block: str, count: str, body: Callable[[str, str, str, str], None]
    ) -> None:
        """Run over the tiles of a block: number in it, image, tile row and column."""
        text, (down, right) = self.text, self.tiling.across
        start = text.times(block, self.tiling.block)

        def tile(number: str, _: list[str]) -> list[str]:
            whole = text.add(start, number)
            rest = text.let(f"udiv i64 {whole}, {right}")
            column = text.let(f"urem i64 {whole}, {right}")
            image = text.let(f"udiv i64 {rest}, {down}")
            row = text.let(f"urem i64 {rest}, {down}")
            body(number, image, row, column)
            return []

        text.loop("0", count, 1, tile)

    def load_tiles(
        self,
        view: View,
        zeros: Buffer,
        shape: tuple[int, ...],
        size: int,
        before: tuple[int, int],
        where: tuple[str, str, str],
        body: Callable[[list[list[str]]], None],
    ) -> None:
        """Give a body the addresses of a tile's pixels; zeros where there are none."""
        text, step = self.text, self.tiling.step
        _, height, width, _ = shape
        top = text.add(text.times(where[1], step), str(-before[0]))
        left = text.add(text.times(where[2], step), str(-before[1]))
        index = text.affine([where[0], top, left], view.strides[:3], view.offset)
        corner = self.at(self.emitter.base(view.buffer), index)
        none = self.emitter.base(zeros)

        def pixel(i: int, j: int) -> str:
            return self.at(corner, i * view.strides[1] + j * view.strides[2])

        def inside() -> None:
            body([[pixel(i, j) for j in range(size)] for i in range(size)])

        def careful() -> None:
            rows = [self.within(text.add(top, str(i)), height) for i in range(size)]
            columns = [self.within(text.add(left, str(j)), width) for j in range(size)]
            places = []
            for i, row in enumerate(rows):
                places.append([])
                for j, column in enumerate(columns):
                    both = self.both_hold(row, column)
                    choice = f"select i1 {both}, ptr {pixel(i, j)}, ptr {none}"
                    places[-1].append(text.let(choice))
            body(places)

        last_row = (self.tiling.across[0] - 1) * step - before[0] + size
        last_column = (self.tiling.across[1] - 1) * step - before[1] + size
        if max(before) <= 0 and last_row <= height and last_column <= width:
            inside()
            return
        fits = self.both_hold(
            self.within(top, max(height - size + 1, 0)),
            self.within(left, max(width - size + 1, 0)),
        )
        self.choose(fits, inside, careful)

    def transformed(
        self,
        transform: Transform,
        pixels: list[list[str]],
        channels: int,
        target: str,
        stride: int,
    ) -> None:
        """Transform a tile, channel by channel, into the 36 places of a block."""

        def vector(channel: str, width: int) -> None:
            grid = [
                [self.emitter.load(self.at(p, channel), FLOAT, width) for p in row]
                for row in pixels
            ]
            here = self.at(target, channel)
            for i, one in enumerate(sum(self.both(transform, grid), [])):
                self.emitter.put(one, self.at(here, i * stride))

        self.lanes(channels, vector)

    def product(
        self,
        a: tuple[str, int, int],
        b: tuple[str, int],
        inner: str,
        totals: list[Val],
        widths: tuple[int, ...],
    ) -> list[Val]:
        """Add up rows of a (address, row stride, inner stride) times vectors of b."""
        text = self.text
        rows = len(totals) // len(widths)

        def step(k: str, carried: list[str]) -> list[str]:
            left = self.at(a[0], text.times(k, a[2]))
            right = self.at(b[0], text.times(k, b[1]))
            vectors = [
                self.emitter.load(self.at(right, v * LANES), FLOAT, width)
                for v, width in enumerate(widths)
            ]
            made = []
            for r in range(rows):
                one = self.emitter.load(self.at(left, r * a[1]), FLOAT, 1)
                wide = {w: self.maths.splat(one, w) for w in sorted(set(widths))}
                for v, width in enumerate(widths):
                    old = Val(carried[r * len(widths) + v], FLOAT, width)
                    made.append(self.maths.fma(wide[width], vectors[v], old).name)
            return made

        ends = text.loop("0", inner, 1, step, [(t.type, t.name) for t in totals])
        return [Val(n, FLOAT, t.width) for n, t in zip(ends, totals, strict=True)]

    def row_tiles(
        self, rows: int, vectors: int, body: Callable[[str, int], None]
    ) -> None:
        """Cut rows into tiles of nearly equal size that fit the registers."""
        most = min(ACCUMULATORS // vectors, ROWS_AT_MOST)
        count = -(-rows // most)
        base, longer = divmod(rows, count)

        def tile(size: int) -> Callable[[str, list[str]], list[str]]:
            def run(row: str, _: list[str]) -> list[str]:
                body(row, size)
                return []

            return run

        middle = longer * (base + 1)
        if longer:
            self.text.loop("0", str(middle), base + 1, tile(base + 1))
        self.text.loop(str(middle), str(rows), base, tile(base))


class _Conv(_Blocks):
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
                    made = sum(self.both(transform, grid), [])
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


class _Grads(_Blocks):
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
