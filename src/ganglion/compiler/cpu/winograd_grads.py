"""The gradient of Winograd's convolution to its weights, in LLVM IR."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ganglion.compiler.cpu.emitter import Emitted
from ganglion.compiler.cpu.text import Val
from ganglion.compiler.cpu.winograd_tile import Blocks, Where, Window
from ganglion.compiler.plan.winograd import (
    FLOAT,
    LANES,
    WinogradGrads,
    padded,
    panels,
)


class Grads(Blocks):
    """Transformed images times transformed gradients, summed over tiles."""

    def __init__(self, kernel: WinogradGrads) -> None:
        super().__init__(kernel.tiling)
        self.kernel = kernel
        self.channels, out = kernel.tiling.inputs[3], kernel.tiling.outputs[3]
        self.wide, self.live = padded(out), out // kernel.groups
        self.group = padded(self.live)
        self.pair = "0"  # of rows of places that a piece has

    def emit(self) -> Emitted:
        """Emit the sums; a piece is a slice of tiles and a group of channels."""
        kernel, text, tiling = self.kernel, self.text, self.tiling
        stride, group_stride = tiling.stride(self.channels), tiling.stride(self.group)
        v = self.emitter.base(kernel.scratch)
        z = self.at(v, tiling.places // kernel.pairs * stride)
        each = tiling.places * self.channels * self.wide

        def piece(number: list[str]) -> None:
            part, group = self._cut(number[0], kernel.groups)
            part, self.pair = self._cut(part, kernel.pairs)
            channel = text.times(group, self.group)
            sums = self.at(self.emitter.base(kernel.sums), text.times(part, each))
            sums = self.at(sums, channel)

            def block(first: str, start: str, count: str) -> None:
                transforms = partial(self._transforms, start, count, channel)
                self._for_rows(partial(transforms, (v, stride), (z, group_stride)))
                starts = text.let(f"icmp eq i64 {start}, {first}")
                self._sums((v, stride), (z, group_stride), sums, starts, count)

            self.blocks_of(part, block)

        self.emitter.nest([("%lo", "%hi")], piece)
        return self.emitter.emitted(kernel.parallel)

    def _cut(self, number: str, by: int) -> tuple[str, str]:
        """Return the quotient and the remainder of a number."""
        if by == 1:
            return number, "0"
        quotient = self.text.let(f"udiv i64 {number}, {by}")
        return quotient, self.text.let(f"urem i64 {number}, {by}")

    def _for_rows(self, body: Callable[[Sequence[int] | None], None]) -> None:
        """Run a body for the rows of places that a piece has."""
        if not self.kernel.by_rows:
            body(None)
            return
        for pair in range(self.kernel.pairs):
            rows = (2 * pair - 1, 2 * pair) if pair else (0, self.tiling.span - 1)
            same = self.text.let(f"icmp eq i64 {self.pair}, {pair}")
            self.text.when(same, partial(body, rows))

    def _row(self, number: str) -> str:
        """Return the row of places that is a piece's row of this number."""
        if not self.kernel.by_rows:
            return number
        text = self.text
        twice = text.add(text.times(self.pair, 2), "-1")
        outer = text.times(number, self.tiling.span - 1)
        first = text.let(f"icmp eq i64 {self.pair}, 0")
        inner = text.add(twice, number)
        return text.let(f"select i1 {first}, i64 {outer}, i64 {inner}")

    def _transforms(
        self,
        start: str,
        count: str,
        channel: str,
        v: tuple[str, int],
        z: tuple[str, int],
        only: Sequence[int] | None,
    ) -> None:
        """Transform images and gradients of a block."""
        kernel, tiling, text = self.kernel, self.tiling, self.text
        none = self.emitter.base(kernel.zeros)

        extents = [(one[1], one[2]) for one in (tiling.inputs, tiling.outputs)]
        images = Window(kernel.images, extents[0], tiling.span, tiling.before, none)
        step = tiling.step
        grads = Window(kernel.grads, extents[1], step, (0, 0), none, channel)

        passes = [
            (images, self.inputs, self.channels, self.channels, v),
            (grads, self.spread, self.live, self.group, z),
        ]

        def tile(number: str, where: Where) -> None:
            for window, matrix, channels, row, (base, stride) in passes:
                self.ask_ahead(window, where, channels)
                here = self.at(base, text.times(number, row))
                into = (matrix, channels, here, stride)
                store = partial(self.transformed, *into, only=only)
                self.pixels(window, where, store)

        self.tiles(start, count, tile)

    def _sums(
        self,
        v: tuple[str, int],
        z: tuple[str, int],
        sums: str,
        starts: str,
        count: str,
    ) -> None:
        """Add a block's products to the sums of the places."""
        text, tiling = self.text, self.tiling
        channels, wide, group = tiling.inputs[3], self.wide, self.group
        single = tiling.piece <= tiling.block

        def place(at: list[str]) -> None:
            here = text.add(text.times(at[0], tiling.span), at[1])
            there = text.add(text.times(self._row(at[0]), tiling.span), at[1])
            left = self.at(v[0], text.times(here, v[1]))
            right = self.at(z[0], text.times(here, z[1]))
            target = self.at(sums, text.times(there, channels * wide))

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
                made = self.product((a, 1, channels), (b, group), count, old, widths)
                for one, (address, _) in zip(made, cells, strict=True):
                    self.emitter.put(one, address)

            self._cells(channels, tile)

        rows = str(tiling.span // self.kernel.pairs)
        self.emitter.nest([("0", rows), ("0", str(tiling.span))], place)

    def _cells(
        self, rows: int, tile: Callable[[str, int, str, tuple[int, ...]], None]
    ) -> None:
        """Run over tiles of rows and panels of columns."""
        cut = panels(self.live)
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
