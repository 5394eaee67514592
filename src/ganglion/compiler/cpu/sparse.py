"""Emit contractions that skip zeros of the data as LLVM IR.

Matrix products visit the listed indices at which a group of rows has nonzeros; `gemm`
reads the lists. Convolutions use a bit for each element: a tile of rows combines the
bits of its windows into words, and its inner loop visits the set bits. These are
integer instructions, which run ahead of the products; computed from the data in vector
registers, words would queue behind them.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from ganglion.compiler.cpu.emitter import Emitted, Emitter
from ganglion.compiler.cpu.passes.skip_zeros import LOADED, NonzeroBits, Nonzeros, Word
from ganglion.compiler.cpu.products.gemm import Contraction
from ganglion.compiler.cpu.text import WIDTH, Val, named
from ganglion.compiler.cpu.tiles import (
    Piece,
    Span,
    Tile,
    TileShape,
    each_tile,
    full_tiles,
)
from ganglion.compiler.cpu.tuning import CPU
from ganglion.compiler.plan.kernels import Contract, Index, NonzeroIndices

MASK = f"i{WIDTH}"  # a bit for each lane


class NonzeroLists:
    """A kernel that lists nonzero indices, under construction.

    It tests bits: -0.0 is listed as well, which is harmless.
    """

    def __init__(self, kernel: Nonzeros) -> None:
        self.kernel = kernel
        self.emitter = Emitter()
        self.text = self.emitter.text
        self.align = kernel.source.buffer.dtype.itemsize
        self.bits = f"i{8 * self.align}"
        # How much of the inner axis is tested in vectors: only if it is contiguous.
        contiguous = kernel.inner.left == 1
        self.in_vectors = kernel.inner.size // WIDTH * WIDTH if contiguous else 0

    def emit(self) -> Emitted:
        """Return the text; a piece is a group of rows at an index of the batch."""
        kernel, text = self.kernel, self.text
        remainder = kernel.rows.size % kernel.nonzeros.group

        def piece(number: str) -> None:
            batch, group = text.divided(number, kernel.groups, "s")
            start = self._origin(batch)
            row = text.times(group, kernel.nonzeros.group)
            start = text.add(start, text.times(row, kernel.rows.left))
            source = self.emitter.base(kernel.source.buffer)
            source = text.address(source, self.bits, start)
            length = kernel.nonzeros.buffer.shape[-1]
            base = self.emitter.base(kernel.nonzeros.buffer)
            target = text.address(base, "i32", text.times(number, length))
            full = partial(self._group, source, target, kernel.nonzeros.group)
            if not remainder:
                full()
                return
            last = text.let(f"icmp eq i64 {group}, {kernel.groups - 1}")
            text.when(last, partial(self._group, source, target, remainder), full)

        return self.emitter.pieces(kernel.parallel, piece)

    def _origin(self, batch: str) -> str:
        """Return the offset in the source of an index of the batch."""
        text, start = self.text, str(self.kernel.source.offset)
        for axis in reversed(self.kernel.batch):
            index = text.let(f"srem i64 {batch}, {axis.size}")
            batch = text.let(f"sdiv i64 {batch}, {axis.size}")
            start = text.add(start, text.times(index, axis.left))
        return start

    def _group(self, source: str, target: str, size: int) -> None:
        """List the indices of a group; store -1 if a sample has no zero."""
        text = self.text
        mark_all = partial(text.do, f"store i32 -1, ptr {target}, align 4")
        list_nonzero = partial(self._list, source, target, size)
        text.when(self._looks_dense(source, size), mark_all, list_nonzero)

    def _looks_dense(self, source: str, size: int) -> str:
        """Return whether a sample has no zero, which is fast for dense data."""
        text = self.text
        if self.in_vectors:
            test, kind, stop, step = self._mask, MASK, self.in_vectors, WIDTH
            samples = CPU.sampled_vectors
        else:
            test, kind, stop, step = self._any, "i1", self.kernel.inner.size, 1
            samples = CPU.sampled_elements
        indices = range(0, stop, max(1, stop // step // samples) * step)
        every, *others = [test(source, str(index), size) for index in indices]
        for other in others:
            every = text.let(f"and {kind} {every}, {other}")
        return text.let(f"icmp eq {kind} {every}, -1")

    def _list(self, source: str, target: str, size: int) -> None:
        text = self.text
        first = text.address(target, "i32", NonzeroIndices.HEAD)

        def vector(index: str, carried: list[str]) -> list[str]:
            return [self._append(source, first, size, index, carried[0])]

        def single(index: str, carried: list[str]) -> list[str]:
            text.put_index(index, text.address(first, "i32", carried[0]))
            is_nonzero = self._any(source, index, size)
            more = text.let(f"zext i1 {is_nonzero} to i64")
            return [text.add(carried[0], more)]

        middle, stop = str(self.in_vectors), str(self.kernel.inner.size)
        (count,) = text.loop(0, middle, WIDTH, vector, [("i64", "0")])
        (count,) = text.loop(middle, stop, 1, single, [("i64", count)])
        text.put_index(count, target)

    def _append(
        self, source: str, first: str, size: int, index: str, count: str
    ) -> str:
        """Append the nonzero indices of a vector to the list; return its length."""
        text = self.text
        mask = self._mask(source, index, size)
        kind, flags = f"<{WIDTH} x i32>", f"<{WIDTH} x i1>"
        number = Index(self.kernel.nonzeros.buffer.dtype, (1,))
        indices = self.emitter.expression(number, [index], 0, WIDTH).name
        name = f"@llvm.experimental.vector.compress.v{WIDTH}i32"
        text.declare(f"declare {kind} {name}({kind}, {flags}, {kind})")
        chosen = text.let(f"bitcast {MASK} {mask} to {flags}")
        passed = f"{kind} {indices}, {flags} {chosen}, {kind} poison"
        packed = text.let(f"call {kind} {name}({passed})")
        to = text.address(first, "i32", count)
        text.do(f"store {kind} {packed}, ptr {to}, align 4")
        text.declare(f"declare {MASK} @llvm.ctpop.{MASK}({MASK})")
        more = text.let(f"call {MASK} @llvm.ctpop.{MASK}({MASK} {mask})")
        return text.add(count, text.let(f"zext {MASK} {more} to i64"))

    def _mask(self, source: str, index: str, size: int) -> str:
        """Return a mask of the indices of a vector at which some row is nonzero."""
        text, kind = self.text, f"<{WIDTH} x {self.bits}>"
        start = text.address(source, self.bits, index)
        total = self._either(start, size, kind)
        flags = text.let(f"icmp ne {kind} {total}, zeroinitializer")
        return text.let(f"bitcast <{WIDTH} x i1> {flags} to {MASK}")

    def _any(self, source: str, index: str, size: int) -> str:
        """Return whether some row is nonzero at an index."""
        text, bits = self.text, self.bits
        start = text.address(source, bits, text.times(index, self.kernel.inner.left))
        if self.kernel.rows.left == 1 and size > 1:
            kind = f"<{size} x {bits}>"
            vector = text.let(f"load {kind}, ptr {start}, align {self.align}")
            name = f"@llvm.vector.reduce.or.v{size}{bits}"
            text.declare(f"declare {bits} {name}({kind})")
            total = text.let(f"call {bits} {name}({kind} {vector})")
        else:
            total = self._either(start, size, bits)
        return text.let(f"icmp ne {bits} {total}, 0")

    def _either(self, start: str, rows: int, kind: str) -> str:
        """Return the bitwise or of some rows."""
        text, stride = self.text, self.kernel.rows.left
        addresses = [
            text.address(start, self.bits, row * stride) for row in range(rows)
        ]
        total = ""
        for address in addresses:
            value = text.let(f"load {kind}, ptr {address}, align {self.align}")
            total = text.let(f"or {kind} {total}, {value}") if total else value
        return total


# ---- convolutions --------------------------------------------------------------------


def emit_bits(kernel: NonzeroBits) -> Emitted:
    """Return the text of the kernel that sets a bit for each nonzero element."""
    emitter = Emitter()
    text, source = emitter.text, kernel.source
    bits = f"i{8 * source.dtype.itemsize}"
    each, length = source.size // kernel.parallel, kernel.target.shape[1]

    def mark(number: str, element: str, width: int) -> None:
        index = text.add(text.times(number, each), element)
        address = text.address(emitter.base(source), bits, index)
        kind = f"<{width} x {bits}>"
        values = text.let(f"load {kind}, ptr {address}, align {source.dtype.itemsize}")
        flags = text.let(f"icmp ne {kind} {values}, zeroinitializer")
        word = text.let(f"bitcast <{width} x i1> {flags} to i{width}")
        padded = -(-width // 8) * 8
        if padded > width:
            word = text.let(f"zext i{width} {word} to i{padded}")
        is_constant = element.isdigit()
        byte = (
            str(int(element) // 8)
            if is_constant
            else text.let(f"lshr i64 {element}, 3")
        )
        index = text.add(text.times(number, length), byte)
        address = text.address(emitter.base(kernel.target), "i8", index)
        text.do(f"store i{padded} {word}, ptr {address}, align 1")

    return emitter.pieces(
        kernel.parallel,
        lambda number: emitter.in_vectors(0, each, partial(mark, number)),
    )


class _WindowBits(NamedTuple):
    """The bits of the data from element `first` on, a word per row of a window."""

    first: str
    words: list[str]


class BitContraction(Contraction):
    """A contraction that skips inner indices at which all rows of a tile are zero."""

    def __init__(self, kernel: Contract) -> None:
        super().__init__(kernel)
        word = Word.of(kernel)
        assert word
        assert kernel.bits
        self.word, self.bits = word, kernel.bits
        vectors = min(-(-self.columns.size // WIDTH), CPU.tile_vectors)
        self.skipping = TileShape(word.rows, vectors, skips=True)

    def _region(
        self, piece: Piece, rows: Span, columns: Span, by_panels: bool = False
    ) -> None:
        strips = partial(self._strips, piece, rows)
        self.text.when(
            self._looks_dense(piece, rows),
            partial(self._tiles_of, piece, rows, columns, by_panels, self.dense),
            partial(self._panels, columns, self.skipping, strips),
        )

    def _looks_dense(self, piece: Piece, rows: Span) -> str:
        """Return whether sampled words have too many set bits for skipping to pay."""
        text = self.text
        start = text.add(piece.left, text.times(rows.start, self.tiled.left))
        axes = (*self.kernel.inner, self.tiled)
        sizes = (*(axis.size for axis in self.kernel.inner), rows.size)
        reach = sum((n - 1) * axis.left for n, axis in zip(sizes, axes, strict=True))
        farthest = max(0, reach + 1 - LOADED)
        total = "0"
        for part in CPU.sampled_words:
            element = text.add(start, int(farthest * part))
            word = self._any_row(self._bits_from(element))
            word = text.let(f"and i64 {word}, {2**LOADED - 1}")
            total = text.add(total, self._count(word))
        bits = len(CPU.sampled_words) * min(LOADED, reach + 1)
        return text.let(f"icmp sgt i64 {total}, {int(CPU.worth_skipping * bits)}")

    # ---- rows ------------------------------------------------------------------------

    def _strips(self, piece: Piece, rows: Span, column: str, widths: list[int]) -> None:
        """Emit all rows, in strips of tiles that shift the same loaded words."""
        text, left = self.text, self.tiled.left
        fitting = (LOADED - self.word.width) // left + 1  # rows whose windows fit
        tiles = 1 if self.word.outer else fitting // self.word.rows

        def strip(row: str, size: int) -> None:
            first = text.add(rows.start, row)
            start = text.add(piece.left, text.times(first, left))
            window = None if self.word.outer else self._window_bits(start)

            def tile(row: str, size: int) -> None:
                self._bit_tile(Tile(piece, row, size, column, widths), window)

            self._rows(Span(first, size), self.skipping, tile)

        each_tile(text, full_tiles(rows.size, tiles * self.word.rows), strip)

    def _bit_tile(self, tile: Tile, window: _WindowBits | None) -> None:
        text, right = self.text, self.kernel.right.buffer
        a = text.add(tile.piece.left, text.times(tile.row, self.tiled.left))
        b = text.add(tile.piece.right, text.times(tile.column, self.columns.right))
        b = text.address(self.emitter.base(right), self.element, b)
        self._store(tile, self._words(tile, 0, a, b, self._zeros(tile), window))

    # ---- words -----------------------------------------------------------------------

    def _words(
        self,
        tile: Tile,
        depth: int,
        a: str,
        b: str,
        totals: list[Val],
        window: _WindowBits | None,
    ) -> list[Val]:
        """Emit the sum over all words of a tile."""
        text = self.text
        if depth == len(self.word.outer):
            return self._set_bits(tile, a, b, totals, window or self._window_bits(a))
        axis = self.word.outer[depth]

        def step(index: str, carried: list[Val]) -> list[Val]:
            left = text.add(a, text.times(index, axis.left))
            right = text.address(b, self.element, text.times(index, axis.right))
            return self._words(tile, depth + 1, left, right, carried, window)

        return text.carry(0, axis.size, 1, totals, step)

    def _set_bits(
        self, tile: Tile, a: str, b: str, totals: list[Val], window: _WindowBits
    ) -> list[Val]:
        """Emit the sum over the set bits of a word."""
        text = self.text
        word = self._word(a, window)
        a = text.address(self.emitter.base(self.kernel.left.buffer), self.element, a)
        text.declare("declare i64 @llvm.cttz.i64(i64, i1)")

        def step(_: str, carried: list[str]) -> list[str]:
            remaining, *sums = carried
            bit = text.let(f"call i64 @llvm.cttz.i64(i64 {remaining}, i1 true)")
            less = text.let(f"sub i64 {remaining}, 1")
            remaining = text.let(f"and i64 {remaining}, {less}")
            left, right = self._offsets(bit)
            left = text.address(a, self.element, left)
            right = text.address(b, self.element, right)
            sums = [t.name for t in self._step(tile, left, right, named(sums, totals))]
            return [remaining, *sums]

        kinds = [("i64", word), *((t.type, t.name) for t in totals)]
        _, *ends = text.loop(0, self._count(word), 1, step, kinds)
        return named(ends, totals)

    def _offsets(self, bit: str) -> tuple[str, str]:
        """Return the offsets in left and right of the elements of a bit."""
        text, (middle, last) = self.text, (self.word.middle, self.word.last)
        width = self.word.width
        row = text.let(f"udiv i64 {bit}, {width}") if middle.size > 1 else "0"
        left = text.add(bit, text.times(row, middle.left - width))
        if last.left == 1:
            beyond = text.times(row, middle.right - width * last.right)
            return left, text.add(text.times(bit, last.right), beyond)
        within = text.let(f"urem i64 {bit}, {width}")
        index = text.let(f"udiv i64 {within}, {last.left}")
        right = text.times(row, middle.right)
        return left, text.add(right, text.times(index, last.right))

    def _word(self, a: str, window: _WindowBits) -> str:
        """Return a word with a bit for each inner index, from a window's bits."""
        text, last, word = self.text, self.word.last, ""
        mask = sum(1 << index * last.left for index in range(last.size))
        for number, bits in enumerate(window.words):
            if a != window.first:
                distance = text.let(f"sub i64 {a}, {window.first}")
                bits = text.let(f"lshr i64 {bits}, {distance}")
            bits = text.let(f"and i64 {bits}, {mask}")
            if number:
                bits = text.let(f"shl i64 {bits}, {number * self.word.width}")
            word = text.let(f"or i64 {word}, {bits}") if word else bits
        return word

    def _window_bits(self, a: str) -> _WindowBits:
        """Return the bits of a window's rows: whether any row of a tile is nonzero."""
        middle = self.word.middle
        rows = [self.text.add(a, n * middle.left) for n in range(middle.size)]
        return _WindowBits(a, [self._any_row(self._bits_from(row)) for row in rows])

    def _any_row(self, bits: str) -> str:
        """Return the bitwise or of the bits of a tile's rows, by doubling shifts."""
        text, covered = self.text, 1
        while covered < self.word.rows:
            more = min(covered, self.word.rows - covered)
            shifted = text.let(f"lshr i64 {bits}, {more * self.tiled.left}")
            bits = text.let(f"or i64 {bits}, {shifted}")
            covered += more
        return bits

    def _bits_from(self, element: str) -> str:
        """Return at least 57 bits from an element on, or up to the buffer's end."""
        text = self.text
        text.declare("declare i64 @llvm.umin.i64(i64, i64)")
        byte, last = text.let(f"lshr i64 {element}, 3"), self.bits.size - 8
        byte = text.let(f"call i64 @llvm.umin.i64(i64 {byte}, i64 {last})")
        address = text.address(self.emitter.base(self.bits), "i8", byte)
        word = text.let(f"load i64, ptr {address}, align 1")
        skipped = text.let(f"sub i64 {element}, {text.times(byte, 8)}")
        return text.let(f"lshr i64 {word}, {skipped}")

    def _count(self, word: str) -> str:
        self.text.declare("declare i64 @llvm.ctpop.i64(i64)")
        return self.text.let(f"call i64 @llvm.ctpop.i64(i64 {word})")
