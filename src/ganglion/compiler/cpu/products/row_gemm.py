"""Products of one row with a matrix: each element of the matrix is read once.

Tiles of columns would read short runs of the matrix, lines apart, which no hardware
prefetcher follows. So several entire lines are read side by side, and the sums of all
columns, which a first cache holds, are loaded and stored for each group of lines. They
are added up in the order of the inner indices, with the bits that tiles give.
"""

from __future__ import annotations

from functools import partial

from ganglion.compiler.cpu.products.small_gemm import Matrices, ProductText
from ganglion.compiler.cpu.text import WIDTH
from ganglion.compiler.cpu.tuning import CPU


class RowProductText(ProductText):
    """The text of a kind of small contractions whose rows stream the right matrix."""

    def _multiply(self, matrices: Matrices, first: str, rows: str) -> None:
        text, lines = self.text, CPU.streamed_lines
        self._across(matrices, CPU.streamed_vectors, partial(self._clear, matrices))
        indices = self._list(matrices, first) if self.kind.group else None
        count = indices[0] if indices else str(self.sizes.inner[0][0])
        whole = str(text.rounded_down(count, lines))
        add = partial(self._add_lines, matrices, indices[1] if indices else None)
        text.each(0, whole, lines, lambda number: add(number, lines))
        text.each(whole, count, 1, lambda number: add(number, 1))

    def _clear(self, matrices: Matrices, column: str, vectors: int) -> None:
        for vector, zero in enumerate(self._zeros(vectors)):
            self._store(zero, matrices.out, column, vector)

    def _add_lines(
        self, matrices: Matrices, listed: str | None, number: str, count: int
    ) -> None:
        """Add some lines of the right matrix, each times its element of the row."""
        text, (_, across, down) = self.text, self.sizes.inner[0]
        load = partial(self.emitter.load, dtype=self.kind.dtype)
        factors, lines = [], []
        for below in range(count):
            index = text.add(number, below)
            if listed is not None:
                index = self._listed_index(listed, index)
            at = text.address(matrices.left, self.element, text.times(index, across))
            factors.append(self.maths.splat(load(at, width=1), WIDTH))
            at = text.times(index, down)
            lines.append(text.address(matrices.right, self.element, at))

        def add(column: str, vectors: int) -> None:
            for vector in range(vectors):
                here = text.add(column, vector * WIDTH)
                at = text.address(matrices.out, self.element, here)
                total = load(at, width=WIDTH)
                for factor, line in zip(factors, lines, strict=True):
                    below = load(text.address(line, self.element, here), width=WIDTH)
                    total = self.maths.fma(factor, below, total)
                self.emitter.store(total, at)

        self._across(matrices, CPU.streamed_vectors, add)
