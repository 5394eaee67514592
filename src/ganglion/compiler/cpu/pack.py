"""Panels of a matrix, copied row by row: a product reads them again and again.

Rows of a panel lie far apart in the matrix, where they fall on one another in the
cache; or it lies the other way round, and its columns are turned into rows.
"""

from __future__ import annotations

from dataclasses import replace

from ganglion.compiler.cpu.emitter import Emitter
from ganglion.compiler.cpu.scan_scatter import transposed
from ganglion.compiler.cpu.text import WIDTH
from ganglion.compiler.plan.kernels import Contract, View


def as_packed(kernel: Contract) -> Contract:
    """Return a contraction that reads packed panels; of each, the first column is 0."""
    if kernel.packed is None:
        return kernel
    (inner,), (columns,) = kernel.inner, kernel.columns
    return replace(
        kernel,
        right=View(kernel.packed, (kernel.packed.shape[-1], 1)),
        inner=(replace(inner, right=kernel.packed.shape[-1]),),
        columns=(replace(columns, right=1),),
    )


def emit_pack(emitter: Emitter, kernel: Contract, first: str, size: int) -> None:
    """Copy `size` columns of the right operand, from the first, to their place."""
    assert kernel.packed is not None
    (inner,), (columns,), text = kernel.inner, kernel.columns, emitter.text
    strides = (inner.right, columns.right)
    source = View(kernel.right.buffer, strides, kernel.right.offset)
    target = View(kernel.packed, (kernel.packed.shape[-1], 1))
    square = WIDTH if columns.right != 1 else 1  # rows that are turned at once
    rows, across = inner.size // square * square, size // WIDTH * WIDTH

    def block(row: str, _: list[str]) -> list[str]:
        for start in range(0, across, WIDTH):
            column = text.add(first, str(start))
            if square == 1:
                vectors = [emitter.load_view(source, [row, column], 1, WIDTH)]
            else:
                places = [text.add(column, str(lane)) for lane in range(WIDTH)]
                found = [emitter.load_view(source, [row, c], 0, WIDTH) for c in places]
                vectors = transposed(emitter, found)
            for lane, vector in enumerate(vectors):
                place = [text.add(row, str(lane)), str(start)]
                emitter.put_view(vector, target, place, 1, WIDTH)
        return []

    def single(at: list[str]) -> None:
        place = [at[0], text.add(first, at[1])]
        one = emitter.load_view(source, place, 1, 1)
        emitter.put_view(one, target, at, 1, 1)

    text.loop("0", str(rows), square, block)
    emitter.nest([("0", str(rows)), (str(across), str(size))], single)
    emitter.nest([(str(rows), str(inner.size)), ("0", str(size))], single)
