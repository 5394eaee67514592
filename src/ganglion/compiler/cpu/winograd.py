"""Winograd's kernels in LLVM IR; here, what is done to weights and their gradients."""

from __future__ import annotations

from ganglion.compiler.cpu.emitter import Emitted
from ganglion.compiler.cpu.text import Val
from ganglion.compiler.cpu.winograd_conv import Conv
from ganglion.compiler.cpu.winograd_grads import Grads
from ganglion.compiler.cpu.winograd_tile import Pixel, Transforms
from ganglion.compiler.plan.kernels import Kernel
from ganglion.compiler.plan.winograd import (
    FLOAT,
    WinogradConv,
    WinogradGrads,
    WinogradKernel,
    WinogradWeights,
    matrices,
    padded,
    panels,
)


def emit_winograd(kernel: Kernel) -> Emitted:
    """Return one of Winograd's kernels as text."""
    if isinstance(kernel, WinogradWeights):
        return _Weights().emit(kernel)
    if isinstance(kernel, WinogradConv):
        return Conv(kernel).emit()
    if isinstance(kernel, WinogradGrads):
        return Grads(kernel).emit()
    assert isinstance(kernel, WinogradKernel)
    return _Weights().emit_back(kernel)


class _Weights(Transforms):
    """Weights into Winograd's space, and their gradients back."""

    def emit(self, kernel: WinogradWeights) -> Emitted:
        """Emit the transform of weights; a piece is an input channel."""
        _, _, rows, channels = kernel.shape
        source = self.emitter.base(kernel.source.buffer)
        target = self.emitter.base(kernel.target)
        matrix = matrices(kernel.shape[0], kernel.span).weights
        places = kernel.span**2

        def row(at: list[str]) -> None:
            for start, widths in panels(channels):
                wide, first = sum(widths), 0
                for width in widths:
                    taps = self._taps(kernel, source, at[0], start + first, width)
                    place = self.text.times(at[0], wide)
                    here = self.at(target, places * rows * start + first)
                    here = self.at(here, place)
                    for i, one in self.both(matrix, taps):
                        self.emitter.put(one, self.at(here, i * rows * wide))
                    first += width

        self.emitter.nest([("%lo", "%hi")], row)
        return self.emitter.emitted(rows)

    def _taps(
        self, kernel: WinogradWeights, base: str, row: str, first: int, width: int
    ) -> Pixel:
        """Return what loads taps of some channels; zeros where there are no more."""
        view, channels = kernel.source, kernel.shape[3]
        known = min(width, channels - first)
        here = self.at(base, self.text.times(row, view.strides[2]))

        def one(i: int, j: int) -> Val:
            place = i * view.strides[0] + j * view.strides[1] + first + view.offset
            value = self.emitter.load(self.at(here, place), FLOAT, known)
            return value if known == width else self._widened(value, width)

        return one

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
        span, places = kernel.span, kernel.span**2
        matrix = matrices(taps, span).weights.T

        def vector(row: str, channel: str, width: int) -> None:
            here = self.at(self.at(sums, text.times(row, wide)), channel)

            def add(number: str, carried: list[str]) -> list[str]:
                base = self.at(here, text.times(number, places * rows * wide))
                made = []
                for i, name in enumerate(carried):
                    self.emitter.fetch(self.at(base, (i * rows + 1) * wide))
                    one = self.emitter.load(
                        self.at(base, i * rows * wide), FLOAT, width
                    )
                    made.append(self.add(Val(name, FLOAT, width), one).name)
                return made

            zero = self.maths.constant(0, FLOAT, width)
            start = [(zero.type, zero.name)] * places
            ends = text.loop("0", str(kernel.slices), 1, add, start)
            totals = [Val(name, FLOAT, width) for name in ends]
            there = self.at(self.at(target, text.times(row, channels)), channel)
            for i, one in self.both(matrix, lambda i, j: totals[i * span + j]):
                self.emitter.put(one, self.at(there, i * rows * channels))

        self.emitter.nest(
            [("%lo", "%hi")],
            lambda at: self.lanes(channels, lambda c, w: vector(at[0], c, w)),
        )
        return self.emitter.emitted(rows)
