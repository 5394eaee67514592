"""Large products band by band, so that their readers find the rows in the cache.

A product that is larger than the cache is written to memory and read again by the loop
after it (a bias, ReLU, padding). In bands of a few rows of the image, one after the
other, it never leaves the cache.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ganglion.compiler.plan.epilogues import is_map
from ganglion.compiler.plan.kernels import (
    Buffer,
    Contract,
    Expr,
    Kernel,
    Literal,
    Load,
    Loop,
    Shape,
    View,
    extent,
    mapped,
)
from ganglion.compiler.plan.time_loop import TimeLoop, Window

LARGE = 1 << 20  # bytes of a product that does not stay in a cache
BAND = 1 << 18  # bytes of a band, which does


def in_bands(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Return the kernels; large products and their readers run band by band."""
    written = Counter(root for k in kernels for root in k.memory_written)
    readers = Counter(root for k in kernels for root in k.memory_read)
    products: dict[Buffer, Contract] = {}  # by the buffers that they write
    kept: list[Kernel] = []
    for kernel in kernels:
        if isinstance(kernel, Contract) and _is_large(kernel):
            root = kernel.out.buffer.root
            if written[root] == readers[root] == 1 and root.kind == "arena":
                products[root] = kernel
        for root in kernel.memory_read & products.keys():
            bands = _bands(products[root], kernel)
            if bands is not None:
                kept = [k for k in kept if k is not products[root]]
                kernel = bands
        # Nothing that a product reads may change before it is computed.
        for root, product in list(products.items()):
            if kernel.memory_written & product.memory_read:
                del products[root]
        kept.append(kernel)
    return kept


def _is_large(product: Contract) -> bool:
    plain = not (product.packed or product.bits or product.nonzeros or product.sums)
    return (
        plain
        and product.parallel == 1
        and len(product.rows) == len(product.columns) == 1
        and product.out.offset == 0
        and product.rows[0].out == product.columns[0].size
        and product.out.buffer.nbytes > LARGE
    )


def _bands(product: Contract, reader: Kernel) -> TimeLoop | None:
    """Return a product and the loop that reads it as a loop over bands, if it can be.

    The first axis of the reader goes over groups of rows of the product.
    """
    if not (isinstance(reader, Loop) and is_map(reader)):
        return None
    (rows,), (columns,) = product.rows, product.columns
    root, count = product.out.buffer.root, reader.shape[0]
    group = rows.size // count
    reads = [leaf.view for leaf in reader.leaves if isinstance(leaf, Load)]
    own = {(v.strides[0], v.offset) for v in reads if v.buffer.root == root}
    has_groups = rows.size % count == 0 and own == {(group * rows.out, 0)}
    if not has_groups or not all(isinstance(x, (Load, Literal)) for x in reader.leaves):
        return None
    most = max(BAND // (group * columns.size * root.dtype.itemsize), 1)
    each = max(n for n in range(1, min(most, count) + 1) if count % n == 0)
    if each == count:
        return None
    size = (each * group, columns.size)
    maker = _Bands(root, Buffer(f"{root.name}.band", size, root.dtype, "arena"), each)
    body = (maker.product(product, group), maker.loop(reader))
    return TimeLoop(reader.name, count // each, body, tuple(maker.windows))


class _Bands:
    """The body of a loop over bands under construction.

    Args:
        root: The buffer that the product writes and the loop reads.
        band: The buffer of a band.
        each: How many indices of the loop's first axis a band has.
    """

    def __init__(self, root: Buffer, band: Buffer, each: int) -> None:
        self._root, self._band, self._each = root, band, each
        self.windows: list[Window] = []

    def product(self, product: Contract, group: int) -> Contract:
        """Return the product of a band."""
        (rows,) = product.rows
        rows = replace(rows, size=self._each * group)
        axes = [*product.batch, rows, *product.inner]
        strides = tuple(axis.left for axis in axes)
        shape = tuple(axis.size for axis in axes)
        left = self._window(product.left, strides, shape, rows.size * rows.left)
        out = View(self._band, product.out.strides, 0)
        return replace(product, rows=(rows,), left=left, out=out)

    def loop(self, loop: Loop) -> Loop:
        """Return the loop over a band."""
        shape = (self._each, *loop.shape[1:])
        outputs = [
            (mapped(expr, lambda e: self._read(e, shape)), self._moved(view, shape))
            for expr, view in loop.outputs
        ]
        return replace(loop, shape=shape, outputs=tuple(outputs))

    def _read(self, expr: Expr, shape: Shape) -> Expr:
        if not isinstance(expr, Load):
            return expr
        return replace(expr, view=self._moved(expr.view, shape))

    def _moved(self, view: View, shape: Shape) -> View:
        if view.buffer.root == self._root:
            return replace(view, buffer=self._band)
        if not view.strides[0]:
            return view  # the same in every band
        return self._window(view, view.strides, shape, self._each * view.strides[0])

    def _window(self, view: View, strides: Shape, shape: Shape, step: int) -> View:
        """Return a view of the part of a buffer that a band uses."""
        low, high = extent(strides, 0, shape)
        name = f"{view.buffer.name}.{self._root.name}.{len(self.windows)}"
        size = (high - low + 1,)
        window = Buffer(name, size, view.buffer.dtype, "window")
        stacked = view.buffer.root
        self.windows.append(Window(window, stacked, view.offset + low, step))
        return replace(view, buffer=window, offset=-low)
