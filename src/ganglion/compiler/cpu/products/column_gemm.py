"""Products with one column, two or four: sums along the rows of the left matrix.

Tiles would fill few lanes of each vector. So a vector has several inner indices, each
with all columns. A tile adds up some rows, each in a vector of its own, and then the
lanes of all of them together, halves first, until there is a lane for each result. A
sum has the same bits wherever its row lies, but not those of a single chain.
"""

from __future__ import annotations

from functools import partial

from ganglion.compiler.cpu.products.small_gemm import Matrices, ProductText
from ganglion.compiler.cpu.text import WIDTH, Val
from ganglion.compiler.cpu.tuning import CPU


class ColumnProductText(ProductText):
    """The text of a kind of small contractions that have few columns."""

    @property
    def _together(self) -> int:
        """Inner indices of a vector, and rows of a tile, whose results fill another."""
        return WIDTH // self.kind.dotted

    def _multiply(self, matrices: Matrices, first: str, rows: str) -> None:
        tile = partial(self._tile, matrices, self.text.add(first, rows))
        self.text.each(first, self.text.add(first, rows), self._together, tile)

    def _tile(self, matrices: Matrices, end: str, row: str) -> None:
        """Add up some rows; those beyond the last are the last one again."""
        text, (_, down, out) = self.text, self.sizes.row
        count = text.smaller(text.minus(end, row), str(self._together))
        last = text.minus(count, "1")
        lines = []
        for below in range(self._together):
            here = text.add(row, text.smaller(str(below), last))
            at = text.times(here, down)
            lines.append(text.address(matrices.left, self.element, at))
        if self.kind.ahead:
            self._prefetch_tile(lines[0])
        sums: list[Val] = []
        for start in range(0, len(lines), CPU.dotted_lines):
            group = lines[start : start + CPU.dotted_lines]
            sums += self._sums(matrices.right, group)
        total = self._folded(sums)
        at = text.address(matrices.out, self.element, text.times(row, out))
        live = text.times(count, self.kind.dotted)
        self.emitter.in_tail(live, lambda: self.emitter.store(total, at))

    def _prefetch_tile(self, line: str) -> None:
        """Prefetch rows of a tile that is ahead: loads with a mask wait for them."""
        text, (_, down, _), (ahead,) = self.text, self.sizes.row, self.sizes.ahead
        start = text.address(line, self.element, ahead)
        step = CPU.line_bytes // self.kind.dtype.itemsize

        def prefetch(index: str) -> None:
            self.emitter.prefetch(text.address(start, self.element, index), 1)

        text.each(0, text.times(str(self._together), down), step, prefetch)

    def _sums(self, right: str, lines: list[str]) -> list[Val]:
        """Return the sums of the products of each line, lane by lane."""
        text, tail, step = self.text, self.emitter.in_tail, self._together
        size, _, down = self.sizes.inner[0]
        whole = text.rounded_down(str(size), step)
        rest = text.let(f"and i64 {size}, {step - 1}")
        of_right = text.times(rest, self.kind.dotted)

        def load(start: str, index: str) -> Val:
            at = text.address(start, self.element, index)
            return self.emitter.load(at, self.kind.dtype, WIDTH)

        def add(factor: Val, elements: list[Val], totals: list[Val]) -> list[Val]:
            pairs = zip(map(self._repeated, elements), totals, strict=True)
            return [self.maths.fma(element, factor, total) for element, total in pairs]

        def full(index: str, totals: list[Val]) -> list[Val]:
            factor = load(right, text.times(index, down))
            return add(factor, [load(line, index) for line in lines], totals)

        def short(index: str, totals: list[Val]) -> list[Val]:
            factor = tail(of_right, lambda: load(right, text.times(index, down)))
            elements = tail(rest, lambda: [load(line, index) for line in lines])
            return add(factor, elements, totals)

        totals = text.carry(0, whole, step, self._zeros(len(lines)), full)
        return text.carry(whole, str(size), step, totals, short)

    def _repeated(self, elements: Val) -> Val:
        """Return the first elements, each as often as there are columns."""
        if self.kind.dotted == 1:
            return elements
        order = [lane // self.kind.dotted for lane in range(WIDTH)]
        return self.maths.picked(elements, elements, order)

    def _folded(self, vectors: list[Val]) -> Val:
        """Return the sums of all lanes of each column, row by row."""
        step = WIDTH // 2
        while len(vectors) > 1:
            half = len(vectors) // 2
            pairs = zip(vectors[:half], vectors[half:], strict=True)
            vectors = [self._halved(a, b, step) for a, b in pairs]
            step //= 2
        return vectors[0]

    def _halved(self, a: Val, b: Val, step: int) -> Val:
        """Add lanes so far apart: of one vector where this bit is 0, else the other."""
        lanes = range(WIDTH)
        same = [lane + WIDTH if lane & step else lane for lane in lanes]
        other = [lane + WIDTH - step if lane & step else lane + step for lane in lanes]
        pick = partial(self.maths.picked, a, b)
        return self.maths.add(pick(same), pick(other))
