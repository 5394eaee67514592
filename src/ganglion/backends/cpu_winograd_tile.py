"""What Winograd's kernels are made of, in LLVM IR: transforms, tiles and products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ganglion.backends.cpu_emitter import Emitter
from ganglion.backends.cpu_text import Val
from ganglion.plan.kernel import View
from ganglion.plan.winograd import FLOAT, LANES, Tiling

ACCUMULATORS = 28  # that fit beside the operands in 32 vector registers
ROWS_AT_MOST = 14
Transform = Callable[[list[Val]], list[Val]]
Grid = list[list[Val]]
Where = tuple[str, str, str]  # image, row and column of a tile


@dataclass(frozen=True)
class Window:
    """Pixels of images that belong to a tile, and what stands in for missing ones."""

    view: View
    extent: tuple[int, int]  # height and width of the images
    size: int
    before: tuple[int, int]  # how far the first tile begins outside
    elsewhere: str
    first: str = "0"  # channel


def _in_pairs(matrix: np.ndarray) -> bool:
    """Tell whether rows but the first and last are pairs, alternately of one sign."""
    signs = (-1.0) ** np.arange(matrix.shape[1])
    pairs = range(1, len(matrix) - 1, 2)
    return len(matrix) % 2 == 0 and all(
        np.array_equal(matrix[i + 1], signs * matrix[i]) for i in pairs
    )


class Transforms:
    """The transforms of a tile, along one axis and along both."""

    def __init__(self) -> None:
        self.emitter = Emitter()
        self.text, self.maths = self.emitter.text, self.emitter.maths

    def at(self, base: str, index: str | int) -> str:
        """Return the address of an element."""
        return self.text.address(base, "float", str(index))

    def both(self, transform: Transform, grid: Grid) -> list[Val]:
        """Transform the columns of a grid, then its rows; return them one by one."""
        columns = [transform(list(column)) for column in zip(*grid, strict=True)]
        rows = [transform(list(row)) for row in zip(*columns, strict=True)]
        return [one for row in rows for one in row]

    def add(self, a: Val, b: Val) -> Val:
        """Return a + b."""
        return self.maths.binary("fadd", a, b)

    def minus(self, a: Val, b: Val) -> Val:
        """Return a - b."""
        return self.maths.binary("fsub", a, b)

    def more(self, a: Val, factor: float, b: Val) -> Val:
        """Return factor * a + b."""
        if abs(factor) == 1:
            return self.add(b, a) if factor > 0 else self.minus(b, a)
        return self.maths.fma(a, self.maths.constant(factor, FLOAT, a.width), b)

    def dot(self, factors: Sequence[float], values: Sequence[Val]) -> Val:
        """Return the sum of factors times values; a factor of one costs nothing."""
        terms = [(f, v) for f, v in zip(factors, values, strict=True) if f]
        if not terms:
            return self.maths.constant(0, FLOAT, values[0].width)
        first = next((i for i, (f, _) in enumerate(terms) if f == 1), 0)
        factor, total = terms.pop(first)
        if factor != 1:
            scale = self.maths.constant(factor, FLOAT, total.width)
            total = self.maths.binary("fmul", total, scale)
        for factor, value in terms:
            total = self.more(value, factor, total)
        return total

    def by_matrix(self, matrix: np.ndarray) -> Transform:
        """Return the transform that multiplies by a matrix.

        Points come in pairs of opposite sign, whose rows (or columns) differ only in
        the sign of every other element: what they share is computed once.
        """
        if _in_pairs(matrix):
            return lambda values: self._by_rows(matrix, values)
        if _in_pairs(matrix.T):
            return lambda values: self._by_columns(matrix, values)
        raise ValueError("the rows or columns of a transform come in pairs")

    def _by_rows(self, matrix: np.ndarray, values: list[Val]) -> list[Val]:
        made = [self.dot(matrix[0], values)]
        for row in range(1, len(matrix) - 1, 2):
            even, odd = matrix[row].copy(), matrix[row].copy()
            even[1::2], odd[0::2] = 0, 0
            scale = odd[np.flatnonzero(odd)[-1]] if odd.any() else 1.0
            same, other = self.dot(even, values), self.dot(odd / scale, values)
            made += [self.more(other, scale, same), self.more(other, -scale, same)]
        return [*made, self.dot(matrix[-1], values)]

    def _by_columns(self, matrix: np.ndarray, values: list[Val]) -> list[Val]:
        terms, factors = [values[0]], [matrix[:, 0]]
        for column in range(1, len(values) - 1, 2):
            a, b = values[column : column + 2]
            even, odd = matrix[:, column].copy(), matrix[:, column].copy()
            even[1::2], odd[0::2] = 0, 0
            terms += [self.add(a, b), self.minus(a, b)]
            factors += [even, odd]
        terms.append(values[-1])
        factors.append(matrix[:, -1])
        return [self.dot(row, terms) for row in np.array(factors).T]

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

    def lanes_once(self, channels: int, body: Callable[[str, int], None]) -> None:
        """Run over channels in vectors, narrower ones at the end; none is repeated."""
        start, width = 0, LANES
        while start < channels:
            stop = start + (channels - start) // width * width

            def step(index: str, _: list[str], width: int = width) -> list[str]:
                body(index, width)
                return []

            self.text.loop(str(start), str(stop), width, step)
            start, width = stop, width // 2

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


class Blocks(Transforms):
    """What the passes over images share: tiles, blocks and products."""

    def __init__(self, tiling: Tiling) -> None:
        super().__init__()
        self.tiling = tiling
        found = tiling.matrices
        self.inputs = self.by_matrix(found.inputs)
        self.outputs = self.by_matrix(found.outputs)
        # The transforms of gradients, which go the other way.
        self.inputs_back = self.by_matrix(found.inputs.T)
        self.spread = self.by_matrix(found.outputs.T)

    def pieces(self, body: Callable[[str, str, str], None]) -> None:
        """Run over the blocks of each piece: its first tile, a block's, their count."""

        def piece(number: list[str]) -> None:
            self.blocks_of(number[0], body)

        self.emitter.nest([("%lo", "%hi")], piece)

    def blocks_of(self, piece: str, body: Callable[[str, str, str], None]) -> None:
        """Run over the blocks of a piece: its first tile, a block's, their count."""
        text, tiling = self.text, self.tiling
        first = text.times(piece, tiling.piece)
        last = self._least(text.add(first, str(tiling.piece)), tiling.tiles)

        def block(start: str, _: list[str]) -> list[str]:
            left = text.let(f"sub i64 {last}, {start}")
            body(first, start, self._least(left, tiling.block))
            return []

        text.loop(first, last, tiling.block, block)

    def _least(self, value: str, most: int) -> str:
        below = self.text.let(f"icmp slt i64 {value}, {most}")
        return self.text.let(f"select i1 {below}, i64 {value}, i64 {most}")

    def tiles(self, start: str, count: str, body: Callable[[str, Where], None]) -> None:
        """Run over the tiles of a block: the number in it, and where it is."""
        text, (down, right) = self.text, self.tiling.across

        def tile(number: str, _: list[str]) -> list[str]:
            whole = text.add(start, number)
            rest = text.let(f"udiv i64 {whole}, {right}")
            column = text.let(f"urem i64 {whole}, {right}")
            image = text.let(f"udiv i64 {rest}, {down}")
            row = text.let(f"urem i64 {rest}, {down}")
            body(number, (image, row, column))
            return []

        text.loop("0", count, 1, tile)

    def pixels(
        self,
        window: Window,
        where: Where,
        body: Callable[[list[list[str]]], None],
    ) -> None:
        """Give a body the addresses of a tile's pixels; elsewhere, what stands in."""
        text, step, size = self.text, self.tiling.step, window.size
        view, (height, width) = window.view, window.extent
        top = text.add(text.times(where[1], step), str(-window.before[0]))
        left = text.add(text.times(where[2], step), str(-window.before[1]))
        index = text.affine([where[0], top, left], view.strides[:3], view.offset)
        corner = self.at(self.emitter.base(view.buffer), text.add(index, window.first))

        def pixel(i: int, j: int) -> str:
            return self.at(corner, i * view.strides[1] + j * view.strides[2])

        def inside() -> None:
            body([[pixel(i, j) for j in range(size)] for i in range(size)])

        def careful() -> None:
            rows = [self.within(text.add(top, str(i)), height) for i in range(size)]
            columns = [self.within(text.add(left, str(j)), width) for j in range(size)]

            def chosen(i: int, j: int) -> str:
                both = self.both_hold(rows[i], columns[j])
                there = pixel(i, j)
                return text.let(
                    f"select i1 {both}, ptr {there}, ptr {window.elsewhere}"
                )

            body([[chosen(i, j) for j in range(size)] for i in range(size)])

        if self._all_inside(window):
            inside()
            return
        fits = self.both_hold(
            self.within(top, max(height - size + 1, 0)),
            self.within(left, max(width - size + 1, 0)),
        )
        self.choose(fits, inside, careful)

    def _all_inside(self, window: Window) -> bool:
        spans = zip(self.tiling.across, window.before, window.extent, strict=True)
        return all(
            lo <= 0 and (tiles - 1) * self.tiling.step - lo + window.size <= n
            for tiles, lo, n in spans
        )

    def transformed(
        self,
        transform: Transform,
        pixels: list[list[str]],
        channels: int,
        target: str,
        stride: int,
    ) -> None:
        """Transform a tile, channel by channel, into the places of a block."""

        def vector(channel: str, width: int) -> None:
            grid = [
                [self.emitter.load(self.at(p, channel), FLOAT, width) for p in row]
                for row in pixels
            ]
            here = self.at(target, channel)
            for i, one in enumerate(self.both(transform, grid)):
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
