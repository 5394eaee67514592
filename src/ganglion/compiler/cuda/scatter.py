"""Rows that are added where indices say, such as gradients of embeddings.

Rows of the target are dealt to buckets. A block has one of them: it looks through all
indices and lists the updates of its rows, in their order, so that sums are always taken
in the same order. Words that fill up a text may be half of all indices: a row that has
many updates is added up by all threads of its block.
"""

from __future__ import annotations

from ganglion.compiler.cuda.elementwise import MOST_BLOCKS
from ganglion.compiler.cuda.text import (
    THREADS,
    Body,
    Emitted,
    c_type,
    is_wide,
    power_of_two,
)
from ganglion.compiler.plan.kernels import Scatter

MOST_BUCKETS = 512
MOST_LISTED = 32 * THREADS  # indices that are looked through together


def emit_scatter(kernel: Scatter) -> Emitted:
    """Return how rows are added to those that indices name."""
    arrays = (kernel.updates, kernel.index, kernel.target)
    body = Body(is_wide(arrays))
    if not kernel.count * kernel.row:
        return body.emitted(1)
    given = ", ".join(body.pointer(one) for one in arrays)
    rows, size = kernel.target.shape[0], kernel.target.dtype.itemsize
    lanes = min(4, 16 // size)
    while kernel.row % lanes:
        lanes //= 2
    buckets = min(MOST_BUCKETS, power_of_two(rows), power_of_two(kernel.count // 8))
    listed = min(MOST_LISTED, -(-kernel.count // THREADS) * THREADS)
    numbers = (rows, kernel.count, kernel.row, lanes, buckets, listed)
    kinds = (c_type(kernel.index.dtype), c_type(kernel.target.dtype))
    shape = ", ".join(map(str, (*numbers, *kinds)))
    body.do(f"Scatter<{shape}> scatter = {{{given}}};")
    body.do("scatter.run(block, blocks);")
    shared = THREADS * (8 + lanes * size) + 6 * listed
    return body.emitted(min(buckets, MOST_BLOCKS), shared)
