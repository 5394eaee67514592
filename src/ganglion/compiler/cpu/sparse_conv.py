"""Convolutions that leave out zeros of the data, in LLVM IR; and the bits they go by.

A tile of rows finds the bits of its windows in whole words, and its inner loop goes
from bit to bit. That is work for the processor's integer side, which runs ahead: were
words made from the data in vector registers, they would queue behind the products.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from ganglion.compiler.cpu.emitter import Emitted, Emitter
from ganglion.compiler.cpu.gemm import (
    VECTORS_AT_MOST,
    Contraction,
    Piece,
    Shape,
    Span,
    named,
    runs,
    whole_tiles,
)
from ganglion.compiler.cpu.skip_zeros import LOADED, NonzeroBits, Word
from ganglion.compiler.cpu.sparse import WORTH_SKIPPING
from ganglion.compiler.cpu.text import WIDTH, Val
from ganglion.compiler.plan.kernels import Contract

# Where words are looked at to tell dense data, as parts of all: seldom at frames.
LOOKS = (0.3, 0.7)


def emit_bits(kernel: NonzeroBits) -> Emitted:
    """Return the making of bits as text: 16 elements at a time, then the rest."""
    emitter = Emitter()
    text, source = emitter.text, kernel.source
    bits = f"i{8 * source.dtype.itemsize}"
    each, length = source.size // kernel.parallel, kernel.target.shape[1]

    def mark(number: str, place: str, width: int) -> None:
        at = text.add(text.times(number, each), place)
        address = text.address(emitter.base(source), bits, at)
        kind = f"<{width} x {bits}>"
        found = text.let(f"load {kind}, ptr {address}, align {source.dtype.itemsize}")
        flags = text.let(f"icmp ne {kind} {found}, zeroinitializer")
        word = text.let(f"bitcast <{width} x i1> {flags} to i{width}")
        whole = -(-width // 8) * 8
        if whole > width:
            word = text.let(f"zext i{width} {word} to i{whole}")
        known = place.isdigit()
        byte = str(int(place) // 8) if known else text.let(f"lshr i64 {place}, 3")
        at = text.add(text.times(number, length), byte)
        address = text.address(emitter.base(kernel.target), "i8", at)
        text.do(f"store i{whole} {word}, ptr {address}, align 1")

    def piece(number: list[str]) -> None:
        emitter.lanes_of("0", str(each), partial(mark, number[0]))

    emitter.nest([("%lo", "%hi")], piece)
    return emitter.emitted(kernel.parallel)


def emit_with_bits(kernel: Contract) -> Emitted:
    """Return a contraction that goes by bits as text."""
    return _ByBits(kernel).emit()


class _Seen(NamedTuple):
    """Words of bits, from an element of the data on: one for each row of a window."""

    first: str
    words: list[str]


class _ByBits(Contraction):
    """A contraction that leaves out the places at which all rows of a tile are zero."""

    def __init__(self, kernel: Contract) -> None:
        super().__init__(kernel)
        word = Word.of(kernel)
        assert word
        assert kernel.bits
        self.word, self.bits = word, kernel.bits
        vectors = min(-(-self.columns.size // WIDTH), VECTORS_AT_MOST)
        self.listed = Shape(word.rows, vectors, listed=True)

    def _region(
        self, piece: Piece, rows: Span, columns: Span, by_panels: bool = False
    ) -> None:
        """Run over a region, bit by bit unless its data is dense."""
        plain = partial(self._tiles_of, piece, rows, columns, by_panels, self.plain)
        self.text.when(
            self._looks_dense(piece, rows),
            plain,
            lambda: self._panels(
                columns, self.listed, partial(self._strips, piece, rows)
            ),
        )

    def _looks_dense(self, piece: Piece, rows: Span) -> str:
        """Return whether a few words have too many places to leave some out."""
        text = self.text
        start = text.add(piece.left, text.times(rows.start, self.tiled.left))
        axes = (*self.kernel.inner, self.tiled)
        sizes = (*(axis.size for axis in self.kernel.inner), rows.size)
        reach = sum((n - 1) * axis.left for n, axis in zip(sizes, axes, strict=True))
        farthest = max(0, reach + 1 - LOADED)
        total = "0"
        for look in LOOKS:
            place = text.add(start, str(int(farthest * look)))
            word = self._any_row(self._bits_from(place))
            word = text.let(f"and i64 {word}, {2**LOADED - 1}")
            total = text.add(total, self._count(word))
        most = int(WORTH_SKIPPING * len(LOOKS) * min(LOADED, reach + 1))
        return text.let(f"icmp sgt i64 {total}, {most}")

    # ---- rows ------------------------------------------------------------------------

    def _strips(self, piece: Piece, rows: Span, column: str, widths: list[int]) -> None:
        """Run over all rows: in strips of tiles whose words are shifts of the same."""
        text, left = self.text, self.tiled.left
        most = (LOADED - self.word.width) // left + 1  # rows whose windows fit a word
        many = 1 if self.word.outer else most // self.word.rows
        strips = whole_tiles(rows.size, many * self.word.rows)
        for start, size, count in runs(strips):

            def strip(row: str, _: list[str], size: int = size) -> list[str]:
                first = text.add(rows.start, row)
                at = text.add(piece.left, text.times(first, left))
                seen = None if self.word.outer else self._see(at)

                def tile(row: str, size: int) -> None:
                    self._tile_by_bits(piece, row, size, column, widths, seen)

                self._rows(Span(first, size), self.listed, tile)
                return []

            text.loop(str(start), str(start + size * count), size, strip)

    def _tile_by_bits(
        self,
        piece: Piece,
        row: str,
        size: int,
        column: str,
        widths: list[int],
        seen: _Seen | None,
    ) -> None:
        text, kernel = self.text, self.kernel
        a = text.add(piece.left, text.times(row, self.tiled.left))
        b = text.add(piece.right, text.times(column, self.columns.right))
        b = text.address(self.emitter.base(kernel.right.buffer), self.element, b)
        zeros = [self.maths.constant(0, self.dtype, w) for w in widths] * size
        totals = self._words(0, a, b, zeros, size, widths, seen)
        self._store(piece, row, size, column, widths, totals)

    # ---- words -----------------------------------------------------------------------

    def _words(
        self,
        depth: int,
        a: str,
        b: str,
        totals: list[Val],
        size: int,
        widths: list[int],
        seen: _Seen | None,
    ) -> list[Val]:
        """Add up over all words of a tile."""
        text = self.text
        if depth == len(self.word.outer):
            return self._places(a, b, totals, size, widths, seen or self._see(a))
        axis = self.word.outer[depth]

        def step(index: str, carried: list[str]) -> list[str]:
            here = text.add(a, text.times(index, axis.left))
            there = text.address(b, self.element, text.times(index, axis.right))
            inner = named(carried, totals)
            made = self._words(depth + 1, here, there, inner, size, widths, seen)
            return [one.name for one in made]

        kinds = [(t.type, t.name) for t in totals]
        return named(text.loop("0", str(axis.size), 1, step, kinds), totals)

    def _places(
        self,
        a: str,
        b: str,
        totals: list[Val],
        size: int,
        widths: list[int],
        seen: _Seen,
    ) -> list[Val]:
        """Add up over the places of a word."""
        text = self.text
        word = self._word(a, seen)
        a = text.address(self.emitter.base(self.kernel.left.buffer), self.element, a)
        text.declare("declare i64 @llvm.cttz.i64(i64, i1)")

        def step(_: str, carried: list[str]) -> list[str]:
            rest, *sums = carried
            bit = text.let(f"call i64 @llvm.cttz.i64(i64 {rest}, i1 true)")
            less = text.let(f"sub i64 {rest}, 1")
            rest = text.let(f"and i64 {rest}, {less}")
            left, right = self._offsets(bit)
            here = text.address(a, self.element, left)
            there = text.address(b, self.element, right)
            made = self._step(here, there, named(sums, totals), size, widths)
            return [rest, *(one.name for one in made)]

        kinds = [("i64", word), *((t.type, t.name) for t in totals)]
        _, *ends = text.loop("0", self._count(word), 1, step, kinds)
        return named(ends, totals)

    def _offsets(self, bit: str) -> tuple[str, str]:
        """Return how far from a tile's first a bit's elements are, left and right."""
        text, (middle, last) = self.text, (self.word.middle, self.word.last)
        width = self.word.width
        row = text.let(f"udiv i64 {bit}, {width}") if middle.size > 1 else "0"
        left = text.add(bit, text.times(row, middle.left - width))
        if last.left == 1:
            beyond = text.times(row, middle.right - width * last.right)
            return left, text.add(text.times(bit, last.right), beyond)
        within = text.let(f"urem i64 {bit}, {width}")
        place = text.let(f"udiv i64 {within}, {last.left}")
        right = text.times(row, middle.right)
        return left, text.add(right, text.times(place, last.right))

    def _word(self, a: str, seen: _Seen) -> str:
        """Return a bit for each place, by what was seen at or before it."""
        text, last, word = self.text, self.word.last, ""
        places = sum(1 << place * last.left for place in range(last.size))
        for number, bits in enumerate(seen.words):
            if a != seen.first:
                ahead = text.let(f"sub i64 {a}, {seen.first}")
                bits = text.let(f"lshr i64 {bits}, {ahead}")
            bits = text.let(f"and i64 {bits}, {places}")
            if number:
                bits = text.let(f"shl i64 {bits}, {number * self.word.width}")
            word = text.let(f"or i64 {word}, {bits}") if word else bits
        return word

    def _see(self, a: str) -> _Seen:
        """Return the bits of a window's rows: whether any row of a tile is not zero."""
        middle = self.word.middle
        places = [self.text.add(a, str(n * middle.left)) for n in range(middle.size)]
        return _Seen(a, [self._any_row(self._bits_from(at)) for at in places])

    def _any_row(self, bits: str) -> str:
        """Return for each element whether one of a tile's rows from it on has a bit."""
        text, covered = self.text, 1
        while covered < self.word.rows:
            more = min(covered, self.word.rows - covered)
            moved = text.let(f"lshr i64 {bits}, {more * self.tiled.left}")
            bits = text.let(f"or i64 {bits}, {moved}")
            covered += more
        return bits

    def _bits_from(self, place: str) -> str:
        """Return the bits of the elements from one on: 57, or what the buffer has."""
        text = self.text
        text.declare("declare i64 @llvm.umin.i64(i64, i64)")
        byte, last = text.let(f"lshr i64 {place}, 3"), self.bits.size - 8
        byte = text.let(f"call i64 @llvm.umin.i64(i64 {byte}, i64 {last})")
        address = text.address(self.emitter.base(self.bits), "i8", byte)
        word = text.let(f"load i64, ptr {address}, align 1")
        ahead = text.let(f"sub i64 {place}, {text.times(byte, 8)}")
        return text.let(f"lshr i64 {word}, {ahead}")

    def _count(self, word: str) -> str:
        self.text.declare("declare i64 @llvm.ctpop.i64(i64)")
        return self.text.let(f"call i64 @llvm.ctpop.i64(i64 {word})")
