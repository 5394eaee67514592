"""Winograd's kernels in LLVM IR: transforms and tiles, and those of the weights."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import NamedTuple

import numpy as np

from ganglion.compiler.cpu.emitter import Emitted, Emitter
from ganglion.compiler.cpu.text import Parameter, Text, Val
from ganglion.compiler.cpu.tiles import each_tile, even_tiles
from ganglion.compiler.cpu.tuning import CPU, accumulators
from ganglion.compiler.plan.kernels import View
from ganglion.compiler.plan.winograd import (
    FLOAT,
    LANES,
    Pair,
    Plane,
    Taps,
    Tiled,
    Tiling,
    WinogradKernel,
    WinogradWeights,
    both_matrices,
    padded,
    panels,
    weight_rows,
)
from ganglion.system.records import record

Pixel = Callable[[int, int], Val]
Where = tuple[str, str, str]  # image, row and column of a tile
Both = tuple[np.ndarray, np.ndarray]  # the transforms along rows and columns


@record(guarded=True)
class Window:
    """The pixels of a tile, and the address used for those outside of the image.

    They are those of one of several planes, which differ in where they begin and end.
    """

    planes: tuple[Plane, ...]
    size: Pair
    elsewhere: str
    first: str = "0"  # channel
    number: str = "0"  # of the plane

    @property
    def view(self) -> View:
        """The first plane, which has the strides of all."""
        return self.planes[0].view

    @property
    def channels(self) -> int:
        """The channels of a plane."""
        return self.planes[0].shape[3]


def _row_groups(matrix: np.ndarray, every: Sequence[int]) -> list[Sequence[int]]:
    """Return rows to compute together: pairs are not parted, and registers suffice.

    >>> rows, _ = both_matrices((3, 3), (6, 6)).inputs
    >>> [list(group) for group in _row_groups(rows, range(6))]
    [[0, 5], [1, 2, 3, 4]]
    """
    rows, columns = matrix.shape
    most = max(1, CPU.halfway_vectors // columns // 2) * 2
    outer = {0, rows - 1} if _in_pairs(matrix) else set()
    alone = [row for row in every if row in outer]
    rest = [row for row in every if row not in outer]
    runs: list[Sequence[int]] = [rest[i : i + most] for i in range(0, len(rest), most)]
    return [alone, *runs] if alone else runs


def _in_pairs(matrix: np.ndarray) -> bool:
    """Return whether rows but the first and last are pairs, alternately of one sign."""
    return _are_pairs(matrix.tobytes(), matrix.shape)


@cache
def _are_pairs(numbers: bytes, shape: tuple[int, int]) -> bool:
    matrix = np.frombuffer(numbers).reshape(shape)
    signs = (-1.0) ** np.arange(matrix.shape[1])
    pairs = range(1, len(matrix) - 1, 2)
    return len(matrix) % 2 == 0 and all(
        np.array_equal(matrix[i + 1], signs * matrix[i]) for i in pairs
    )


def _even_and_odd(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return an array without its odd elements, and without its even ones."""
    even, odd = values.copy(), values.copy()
    even[1::2], odd[0::2] = 0, 0
    return even, odd


class Transforms:
    """The transforms of a tile, along one axis and along both."""

    def __init__(self, parameters: int = 0) -> None:
        self.emitter = Emitter(parameters)
        self.text, self.maths = self.emitter.text, self.emitter.maths

    def at(self, base: str, index: str | int) -> str:
        """Return the address of an element."""
        return self.text.address(base, "float", index)

    def both(
        self, transforms: Both, load: Pixel, only: Sequence[int] | None = None
    ) -> Iterator[tuple[int, Val]]:
        """Transform the columns of a tile, then its rows; yield points as they come.

        If `only` some rows are wanted, their points are counted from the first.

        Values must be stored at once. A few rows are computed at a time, and the pixels
        loaded again for the next: spilling registers would take longer.
        """
        down, right = transforms
        height, width = down.shape[1], right.shape[1]
        if height == 1:
            yield from enumerate(self.along(right, [load(0, j) for j in range(width)]))
            return
        every = only or range(len(down))
        for rows in _row_groups(down, every):
            columns = [
                self.along(down, [load(i, j) for i in range(height)], rows)
                for j in range(width)
            ]
            for row, values in zip(rows, zip(*columns, strict=True), strict=True):
                for j, value in enumerate(self.along(right, list(values))):
                    yield every.index(row) * len(right) + j, value

    def more(self, a: Val, factor: float, b: Val) -> Val:
        """Return factor * a + b."""
        if abs(factor) == 1:
            return self.maths.add(b, a) if factor > 0 else self.maths.subtract(b, a)
        return self.maths.fma(a, self.maths.constant(factor, FLOAT, a.width), b)

    def dot(self, factors: Sequence[float] | np.ndarray, values: Sequence[Val]) -> Val:
        """Return the sum of factors times values; a factor of one costs nothing."""
        terms = [(f, v) for f, v in zip(factors, values, strict=True) if f]
        if not terms:
            return self.maths.constant(0, FLOAT, values[0].width)
        first = next((i for i, (f, _) in enumerate(terms) if f == 1), 0)
        factor, total = terms.pop(first)
        if factor != 1:
            scale = self.maths.constant(factor, FLOAT, total.width)
            total = self.maths.multiply(total, scale)
        for factor, value in terms:
            total = self.more(value, factor, total)
        return total

    def along(
        self, matrix: np.ndarray, values: list[Val], rows: Sequence[int] | None = None
    ) -> list[Val]:
        """Return a matrix times values, or only some rows of that.

        Points come in pairs of opposite sign, whose rows (or columns) differ only in
        the sign of every other element: what they share is computed once.
        """
        rows = rows or range(len(matrix))
        if _in_pairs(matrix):
            return self._by_rows(matrix, values, rows)
        if _in_pairs(matrix.T):
            return self._by_columns(matrix, values, rows)
        raise ValueError("the rows or columns of a transform come in pairs")

    def _by_rows(
        self, matrix: np.ndarray, values: list[Val], rows: Sequence[int]
    ) -> list[Val]:
        sums: dict[int, Val] = {}
        for row in rows:
            if row in (0, len(matrix) - 1):
                sums[row] = self.dot(matrix[row], values)
            elif row % 2:
                even, odd = _even_and_odd(matrix[row])
                scale = odd[np.flatnonzero(odd)[-1]] if odd.any() else 1.0
                evens, other = self.dot(even, values), self.dot(odd / scale, values)
                sums[row] = self.more(other, scale, evens)
                sums[row + 1] = self.more(other, -scale, evens)
        return [sums[row] for row in rows]

    def _by_columns(
        self, matrix: np.ndarray, values: list[Val], rows: Sequence[int]
    ) -> list[Val]:
        terms, factors = [values[0]], [matrix[:, 0]]
        for column in range(1, len(values) - 1, 2):
            pair = values[column : column + 2]
            terms += [self.maths.add(*pair), self.maths.subtract(*pair)]
            factors += _even_and_odd(matrix[:, column])
        terms.append(values[-1])
        factors.append(matrix[:, -1])
        return [self.dot([factor[row] for factor in factors], terms) for row in rows]

    # ---- control ---------------------------------------------------------------------

    def vectors(self, channels: int, body: Callable[[str, int], None]) -> None:
        """Run over channels in vectors of one width; the last may repeat some."""
        text = self.text
        width = min(LANES, 1 << (channels.bit_length() - 1))

        def step(index: str) -> None:
            if channels % width:
                last = str(channels - width)
                before = text.let(f"icmp slt i64 {index}, {last}")
                index = text.let(f"select i1 {before}, i64 {index}, i64 {last}")
            body(text.opaque(index), width)

        text.each(0, channels, width, step)

    def vectors_once(self, channels: int, body: Callable[[str, int], None]) -> None:
        """Run over channels in vectors, narrower ones at the end; none is repeated."""
        start, width = 0, LANES
        while start < channels:
            tiles = [(at, width) for at in range(start, channels - width + 1, width)]
            each_tile(self.text, tiles, body)
            start, width = start + len(tiles) * width, width // 2

    def within(self, index: str, size: int | str) -> str:
        """Return whether 0 <= index < size."""
        return self.text.let(f"icmp ult i64 {index}, {size}")


def _back(transforms: Both) -> Both:
    rows, columns = transforms
    return rows.T, columns.T


class Counts(NamedTuple):
    """The parameters of a kernel over tiles: any number of images has the same text."""

    tiles: int
    piece: int  # tiles
    pieces: int

    @staticmethod
    def of(kernel: Tiled) -> Counts:
        """Return the numbers of a kernel."""
        tiling = kernel.tiling
        return Counts(tiling.tiles, tiling.piece, kernel.parallel)


class Blocks(Transforms):
    """What the passes over images share: tiles, blocks and products."""

    def __init__(self, tiling: Tiling) -> None:
        self.counts = Counts(*map(Parameter, range(len(Counts._fields))))
        super().__init__(len(self.counts))
        self.tiling = tiling
        self.inputs, self.outputs = tiling.matrices.inputs, tiling.matrices.outputs
        # The transforms of gradients, which go the other way.
        self.inputs_back, self.spread = _back(self.inputs), _back(self.outputs)

    def blocks_of(self, piece: str, body: Callable[[str, str, str], None]) -> None:
        """Run over the blocks of a piece: its first tile, a block's, their count."""
        text, tiling, counts = self.text, self.tiling, self.counts
        first = text.times(piece, counts.piece)
        last = self._least(text.add(first, counts.piece), counts.tiles)

        def block(start: str) -> None:
            left = text.let(f"sub i64 {last}, {start}")
            body(first, start, self._least(left, tiling.block))

        text.each(first, last, tiling.block, block)

    def _least(self, value: str, most: int) -> str:
        below = self.text.let(f"icmp slt i64 {value}, {most}")
        return self.text.let(f"select i1 {below}, i64 {value}, i64 {most}")

    def tiles(self, start: str, count: str, body: Callable[[str, Where], None]) -> None:
        """Run over the tiles of a block: the number in it, and where it is."""
        text, (down, right) = self.text, self.tiling.across

        def tile(number: str) -> None:
            index = text.add(start, number)
            rest, column = text.divided(index, right)
            image, row = text.divided(rest, down)
            body(number, (image, row, column))

        text.each(0, count, 1, tile)

    def pixels(
        self, window: Window, where: Where, body: Callable[[list[list[str]]], None]
    ) -> None:
        """Run a body with the addresses of a tile's pixels; see `Window`."""
        text, view, (rows_of, columns_of) = self.text, window.view, window.size
        heights, widths = zip(*(plane.extent for plane in window.planes), strict=True)
        top, left, corner = self._corner(window, where)

        def pixel(i: int, j: int) -> str:
            return self.at(corner, i * view.strides[1] + j * view.strides[2])

        def every(address: Callable[[int, int], str]) -> list[list[str]]:
            return [[address(i, j) for j in range(columns_of)] for i in range(rows_of)]

        def inside() -> None:
            body(every(pixel))

        def careful() -> None:
            height, width = self._of_plane(window, heights, widths)
            rows = [self.within(text.add(top, i), height) for i in range(rows_of)]
            columns = [self.within(text.add(left, j), width) for j in range(columns_of)]

            def chosen(i: int, j: int) -> str:
                both = text.let(f"and i1 {rows[i]}, {columns[j]}")
                pointers = f"ptr {pixel(i, j)}, ptr {window.elsewhere}"
                return text.let(f"select i1 {both}, {pointers}")

            body(every(chosen))

        if self._all_inside(window):
            inside()
            return
        most_down, most_across = self._of_plane(
            window,
            [max(height - rows_of + 1, 0) for height in heights],
            [max(width - columns_of + 1, 0) for width in widths],
        )
        down, across = self.within(top, most_down), self.within(left, most_across)
        fits = text.let(f"and i1 {down}, {across}")
        text.when(fits, inside, careful, "done")

    def _corner(self, window: Window, where: Where) -> tuple[str, str, str]:
        """Return the row and the column of a tile's first pixel, and its address."""
        text, view, (down, right) = self.text, window.view, self.tiling.step
        above, before, offset = self._of_plane(
            window,
            [-plane.before[0] for plane in window.planes],
            [-plane.before[1] for plane in window.planes],
            [plane.view.offset for plane in window.planes],
        )
        top = text.add(text.times(where[1], down), above)
        left = text.add(text.times(where[2], right), before)
        index = text.affine([where[0], top, left], view.strides[:3], 0)
        base = self.emitter.base(view.buffer)
        index = text.add(text.add(index, offset), window.first)
        return top, left, self.at(base, index)

    def _of_plane(self, window: Window, *every: Sequence[int]) -> list[int | str]:
        """Return those of some numbers, one for each plane, that a window's plane has.

        A loop over planes has one text for all of them.
        """
        text, chosen = self.text, list[int | str]()
        for numbers in every:
            value: int | str = numbers[0]
            for plane, number in enumerate(numbers):
                if number != numbers[0]:
                    is_it = text.let(f"icmp eq i64 {window.number}, {plane}")
                    value = text.let(f"select i1 {is_it}, i64 {number}, i64 {value}")
            chosen.append(value)
        return chosen

    def prefetch_below(self, window: Window, where: Where, channels: int) -> None:
        """Prefetch the pixels of the tile below into the second-level cache.

        Tiles walk through some rows of pixels at once, of which each is a page or so:
        the processor does not prefetch beyond by itself. A single row is a stream.
        """
        view, (down, right) = window.view, self.tiling.step
        if self.tiling.span[0] == 1:
            return
        _, _, corner = self._corner(window, where)

        def line(channel: str) -> None:
            here = self.at(corner, channel)
            for i, j in itertools.product(range(down), range(right)):
                offset = (window.size[0] + i) * view.strides[1] + j * view.strides[2]
                self.emitter.prefetch(self.at(here, offset))

        self.text.each(0, channels, LANES, line)

    def _all_inside(self, window: Window) -> bool:
        tiling = self.tiling
        return all(
            lo <= 0 and (tiles - 1) * step - lo + size <= n
            for plane in window.planes
            for tiles, step, lo, size, n in zip(
                *(tiling.across, tiling.step, plane.before, window.size, plane.extent),
                strict=True,
            )
        )

    def each_plane(
        self,
        window: Window,
        group: str,
        groups: int,
        body: Callable[[Window, str], None],
    ) -> None:
        """Run over a group of planes: the window of each, and its first channel."""
        text, count = self.text, len(window.planes) // groups
        start = text.times(group, count)

        def plane(index: str) -> None:
            own = replace(window, number=text.add(index, start))
            body(own, text.times(index, window.channels))

        if count == 1:
            plane("0")
        else:
            text.each(0, count, 1, plane)

    def tiles_of_planes(
        self, window: Window, start: str, count: str, body: Callable[[str, Where], None]
    ) -> None:
        """Run over the tiles of a block, whose products come next."""
        self.tiles(start, count, body)
        if len(window.planes) > 1:  # constants of their loop stay in registers
            self.emitter.free_registers()

    def all_planes(
        self, window: Window, where: Where, target: str, transforms: Both, stride: int
    ) -> None:
        """Transform a tile of all planes, whose channels lie side by side."""

        def plane(own: Window, first: str) -> None:
            into = (transforms, own.channels, self.at(target, first), stride)
            self.pixels(own, where, partial(self.transformed, *into))

        self.each_plane(window, "0", 1, plane)

    def transformed(
        self,
        transforms: Both,
        channels: int,
        target: str,
        stride: int,
        pixels: list[list[str]],
        only: Sequence[int] | None = None,
    ) -> None:
        """Transform a tile, channel by channel, into the points of a block."""

        def vector(channel: str, width: int) -> None:
            def pixel(i: int, j: int) -> Val:
                return self.emitter.load(self.at(pixels[i][j], channel), FLOAT, width)

            here = self.at(target, channel)
            for point, value in self.both(transforms, pixel, only):
                self.emitter.store(value, self.at(here, point * stride))

        self.vectors(channels, vector)

    def transformed_back(
        self,
        transforms: Both,
        channels: int,
        stride: int,
        adds: bool,
        source: str,
        pixels: list[list[str]],
    ) -> None:
        """Transform the points of a tile back into pixels, or add them to those."""
        addresses = [address for row in pixels for address in row]

        def vector(channel: str, width: int) -> None:
            here = self.at(source, channel)

            def product(i: int, j: int) -> Val:
                point = i * self.tiling.span[1] + j
                return self.emitter.load(self.at(here, point * stride), FLOAT, width)

            for pixel, value in self.both(transforms, product):
                there = self.at(addresses[pixel], channel)
                if adds:
                    old = self.emitter.load(there, FLOAT, width)
                    value = self.maths.add(old, value)
                self.emitter.store(value, there)

        # What is added must be added once.
        vectors = self.vectors_once if adds else self.vectors
        vectors(channels, vector)

    def product(
        self,
        a: tuple[str, int, int],
        b: tuple[str, int],
        inner: str,
        totals: list[Val],
        widths: tuple[int, ...],
    ) -> list[Val]:
        """Add up rows of a (address, row stride, inner stride) times vectors of b."""
        text, rows = self.text, len(totals) // len(widths)

        def step(k: str, carried: list[Val]) -> list[Val]:
            left = self.at(a[0], text.times(k, a[2]))
            right = self.at(b[0], text.times(k, b[1]))
            vectors = [
                self.emitter.load(self.at(right, v * LANES), FLOAT, width)
                for v, width in enumerate(widths)
            ]
            sums: list[Val] = []
            for r in range(rows):
                scalar = self.emitter.load(self.at(left, r * a[1]), FLOAT, 1)
                copies = self.maths.splats(scalar, widths)
                old = carried[r * len(widths) : (r + 1) * len(widths)]
                sums += map(self.maths.fma, copies, vectors, old)
            return sums

        return text.carry(0, inner, 1, totals, step)

    def row_tiles(
        self, rows: int, vectors: int, body: Callable[[str, int], None]
    ) -> None:
        """Run over tiles of rows of nearly equal size that fit the registers."""
        most = max(1, min(accumulators() // vectors, CPU.tile_rows))
        each_tile(self.text, even_tiles(rows, most), body)


def each_panel(
    text: Text, channels: int, body: Callable[[str, tuple[int, ...], int], None]
) -> None:
    """Run a body for each panel, those of equal shape in one loop.

    It is given the first channel, the widths of the vectors and how many channels there
    are: fewer than the vectors have lanes, at the end.
    """
    runs: dict[tuple[tuple[int, ...], int], list[int]] = {}
    for start, widths in panels(channels):
        live = min(sum(widths), channels - start)
        runs.setdefault((widths, live), []).append(start)
    for (widths, live), starts in runs.items():

        def panel(
            first: str, widths: tuple[int, ...] = widths, live: int = live
        ) -> None:
            body(first, widths, live)

        text.each(starts[0], starts[-1] + sum(widths), sum(widths), panel)


# ---- weights -------------------------------------------------------------------------


class Weights(Transforms):
    """Weights into Winograd's space, and their gradients back: by input channels."""

    def emit(self, kernel: WinogradWeights) -> Emitted:
        """Emit the transform of weights."""
        text, target = self.text, self.emitter.base(kernel.target)
        rows, points = weight_rows(kernel.channels), math.prod(kernel.span)
        transforms = both_matrices(kernel.taps, kernel.span).weights

        def channel(part: Taps, row: str) -> None:
            each_panel(text, part.shape[3], partial(panel, part, row))

        def panel(
            part: Taps, row: str, first: str, widths: tuple[int, ...], live: int
        ) -> None:
            wide = sum(widths)
            here = self.at(target, text.times(first, points * rows))
            here = self.at(here, text.add(text.times(row, wide), part.first * wide))

            def vector(index: str, size: int) -> None:
                taps = self._taps(part, row, text.add(first, index), size)
                there = self.at(here, index)
                for point, value in self.both(transforms, taps):
                    self.emitter.store(value, self.at(there, point * rows * wide))

            sizes = [(at, min(LANES, live - at)) for at in range(0, live, LANES)]
            each_tile(text, sizes, vector)

        return self._each_channel(kernel.sources, channel)

    def _each_channel(
        self, parts: Sequence[Taps], body: Callable[[Taps, str], None]
    ) -> Emitted:
        """Run a body for the input channels of all parts that a thread takes."""
        text, channels = self.text, parts[0].shape[2]

        def piece(number: str) -> None:
            if len(parts) == 1:
                body(parts[0], number)
                return
            which, row = text.divided(number, channels)
            for position, part in enumerate(parts):
                matches = text.let(f"icmp eq i64 {which}, {position}")
                text.when(matches, partial(body, part, row))

        return self.emitter.pieces(channels * len(parts), piece)

    def _taps(self, part: Taps, row: str, first: str, size: int) -> Pixel:
        """Return what loads taps of some channels; zeros where there are no more."""
        view, width = part.view, padded(size)
        base = self.emitter.base(view.buffer)
        here = self.at(base, self.text.times(row, view.strides[2]))
        here = self.at(here, first)

        def tap(i: int, j: int) -> Val:
            if i >= part.shape[0] or j >= part.shape[1]:
                return self.maths.constant(0, FLOAT, width)
            offset = i * view.strides[0] + j * view.strides[1] + view.offset
            value = self.emitter.load(self.at(here, offset), FLOAT, size)
            return value if size == width else self._widened(value, width)

        return tap

    def _widened(self, value: Val, width: int) -> Val:
        if value.width == 1:
            zero = self.maths.constant(0, FLOAT, 1)
            return self.maths.gathered([value, *[zero] * (width - 1)])
        zeros = Val("zeroinitializer", FLOAT, value.width)
        order = [*range(value.width), *[value.width] * (width - value.width)]
        return self.maths.picked(value, zeros, order)

    def emit_back(self, kernel: WinogradKernel) -> Emitted:
        """Emit the sum of the slices' gradients, transformed back."""
        text = self.text
        slices, points, rows, wide = kernel.sums.shape
        sums = self.emitter.base(kernel.sums)
        transforms = _back(both_matrices(kernel.taps, kernel.span).weights)

        def vector(part: Taps, row: str, channel: str, width: int) -> None:
            here = self.at(sums, text.times(text.add(row, part.first), wide))
            here = self.at(here, channel)

            def add(number: str, carried: list[Val]) -> list[Val]:
                number = text.opaque(number)
                base = self.at(here, text.times(number, points * rows * wide))
                totals = []
                for i, total in enumerate(carried):
                    self.emitter.prefetch(self.at(base, (i * rows + 1) * wide))
                    address = self.at(base, i * rows * wide)
                    value = self.emitter.load(address, FLOAT, width)
                    totals.append(self.maths.add(total, value))
                return totals

            zeros = [self.maths.constant(0, FLOAT, width)] * points
            totals = text.carry(0, slices, 1, zeros, add)
            target = self.at(self.emitter.base(part.view.buffer), part.view.offset)
            there = self.at(target, text.times(row, part.view.strides[2]))
            there = self.at(there, channel)
            for tap, value in self.both(
                transforms, lambda i, j: totals[i * kernel.span[1] + j]
            ):
                i, j = divmod(tap, kernel.taps[1])
                if i < part.shape[0] and j < part.shape[1]:
                    offset = i * part.view.strides[0] + j * part.view.strides[1]
                    self.emitter.store(value, self.at(there, offset))

        return self._each_channel(
            kernel.targets,
            lambda part, row: self.vectors(part.shape[3], partial(vector, part, row)),
        )
