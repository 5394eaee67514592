"""Skip zeros of the data in products.

Four of five pixels of MNIST are zero. If the left operand of a product is input data,
at most scaled, a kernel lists for each group of rows the inner indices at which not all
rows are zero, and the product visits the listed indices. Sums keep their order, and
their bits. Likewise if it is a single row that went through a ReLU: such a product is
bound by reading its weights, and skips those of zero inputs.

The windows of a convolution overlap: lists for all of them would be longer than the
data. So a kernel sets a bit for each nonzero element, once for all passes, and tiles
extract the bits of their windows by shifts, a word at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from ganglion.compiler.cpu.tuning import CPU
from ganglion.compiler.plan.kernels import (
    CALL,
    ELEMENT,
    Apply,
    Axis,
    Buffer,
    Contract,
    Expr,
    Footprint,
    Indirect,
    Kernel,
    Literal,
    Load,
    Loop,
    Memory,
    NonzeroIndices,
    View,
    walk,
)
from ganglion.system.records import record

WORD, LOADED = 64, 57  # bits of a word, and of an unaligned load that are valid
_INDEX, _BYTE = np.dtype("int32"), np.dtype("uint8")


@record(eq=False)
class Nonzeros(Kernel):
    """List the inner indices at which a group of rows has a nonzero element."""

    batch: tuple[Axis, ...]
    rows: Axis
    inner: Axis
    source: View
    nonzeros: NonzeroIndices

    @property
    def groups(self) -> int:
        """The groups of rows at each index of the batch."""
        return -(-self.rows.size // self.nonzeros.group)

    @property
    def parallel(self) -> int:
        return self.groups * math.prod(axis.size for axis in self.batch)

    def reads(self) -> list[Buffer]:
        return [self.source.buffer]

    def writes(self) -> list[Buffer]:
        return [self.nonzeros.buffer]

    @property
    def cost(self) -> float:
        axes = (*self.batch, self.rows, self.inner)
        return CALL + ELEMENT * math.prod(axis.size for axis in axes)

    def footprint(self) -> Footprint | None:
        group, target = self.nonzeros.group, self.nonzeros.buffer
        divides = self.rows.size % group == 0
        rows = (
            (Axis(self.groups, self.rows.left * group), replace(self.rows, size=group))
            if divides
            else (self.rows,)
        )
        axes = (*self.batch, *rows, self.inner)
        strides = tuple(axis.left for axis in axes)
        source = View(self.source.buffer, strides, self.source.offset)
        units, lists = axes[0].size, View.of(target)
        if units != target.shape[0]:
            return None
        sizes = tuple(axis.size for axis in axes)
        return Footprint.of(units, [(source, sizes), (lists, target.shape)])

    def run(self, memory: Memory) -> None:
        axes = (*self.batch, self.rows, self.inner)
        strides, sizes = zip(*((axis.left, axis.size) for axis in axes), strict=True)
        source = memory.see(replace(self.source, strides=strides), sizes)
        lists = memory.flat(self.nonzeros.buffer)
        lists = lists.reshape(-1, self.groups, self.nonzeros.buffer.shape[-1])
        starts = range(0, self.rows.size, self.nonzeros.group)
        for piece, rows in enumerate(source.reshape(-1, *source.shape[-2:])):
            for group, start in enumerate(starts):
                members = rows[start : start + self.nonzeros.group]
                (indices,) = np.nonzero((members != 0).any(axis=0))
                lists[piece, group, 0] = len(indices)
                lists[piece, group, NonzeroIndices.HEAD :][: len(indices)] = indices

    def describe(self) -> str:
        groups = f"{self.parallel} groups of {self.nonzeros.group}"
        lists, source = self.nonzeros.buffer, self.source.buffer
        text = f"for {groups}, inner {self.inner.size}: {lists!r}"
        return f"{text} = where {source!r} is not zero"


@record(eq=False)
class NonzeroBits(Kernel):
    """Set a bit for each nonzero element, from the lowest bit of a byte upwards."""

    source: Buffer
    target: Buffer

    @property
    def parallel(self) -> int:
        return self.target.shape[0]

    def reads(self) -> list[Buffer]:
        return [self.source]

    def writes(self) -> list[Buffer]:
        return [self.target]

    @property
    def cost(self) -> float:
        return CALL + ELEMENT * self.source.size

    def footprint(self) -> Footprint | None:
        each = self.source.size // self.parallel
        source = View(self.source, (each, 1)), (self.parallel, each)
        target = View.of(self.target), self.target.shape
        return Footprint.of(self.parallel, [source, target])

    def run(self, memory: Memory) -> None:
        parts = memory.flat(self.source).reshape(self.parallel, -1)
        bits = np.packbits(parts != 0, axis=-1, bitorder="little")
        memory.flat(self.target)[:] = bits.reshape(-1)

    def describe(self) -> str:
        bits, source = self.target, self.source
        return f"for {source.size} elements: {bits!r} = where {source!r} is not zero"


@record(guarded=True)
class Word:
    """The inner indices of a tile of rows whose bits are combined in a word.

    A word has the indices of `last`, for each index of `middle`; `outer` has the words.
    Bit b stands for element b % width of the window's row b // width.
    """

    rows: int
    outer: tuple[Axis, ...]
    middle: Axis
    last: Axis

    @property
    def width(self) -> int:
        """The elements from the first to the last index along the last axis."""
        return (self.last.size - 1) * self.last.left + 1

    @staticmethod
    def of(contraction: Contract) -> Word | None:
        """Return the words of a contraction, None if they would hold too few bits."""
        tiled, (*outer, last) = contraction.rows[-1], contraction.inner
        columns = math.prod(axis.size for axis in contraction.columns)
        group = CPU.zero_group if columns > CPU.thin_columns else CPU.thin_zero_group
        rows = -(-tiled.size // max(1, tiled.size // group))  # no tile is much smaller
        room = LOADED - (rows - 1) * tiled.left
        if min(tiled.left, last.left) < 1 or room < 1:
            return None
        *others, last = _split(last, (room - 1) // last.left + 1)
        word = Word(rows, (*outer, *others), Axis(1), last)
        if word.outer:
            *others, middle = _split(word.outer[-1], WORD // word.width)
            word = replace(word, outer=(*word.outer[:-1], *others), middle=middle)
        return word if word.middle.size * last.size >= CPU.listed_bits else None


def _split(axis: Axis, most: int) -> tuple[Axis, ...]:
    """Split an axis in two, the second of length `most` at most, unless it fits."""
    size = max(n for n in range(1, most + 1) if axis.size % n == 0)
    inner = replace(axis, size=size)
    if size == axis.size:
        return (inner,)
    return Axis(axis.size // size, axis.left * size, axis.right * size), inner


def skip_zeros(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Return the kernels, with lists of nonzeros for products that may gain by them.

    Convolutions get bits instead.
    """
    if not any(isinstance(kernel, Contract) and _is_long(kernel) for kernel in kernels):
        return list(kernels)
    scaled, rectified = _scaled_data(kernels), _rectified(kernels)
    finders: dict[object, Nonzeros | NonzeroBits] = {}
    result: list[Kernel] = []
    for kernel in kernels:
        if not isinstance(kernel, Contract) or not _gains(kernel, scaled, rectified):
            result.append(kernel)
            continue
        key, find = (_key, nonzero_lists) if _is_product(kernel) else (_root, _bits)
        which = key(kernel)
        if which not in finders:
            finders[which] = find(kernel, len(finders))
            result.append(finders[which])
        finder = finders[which]
        if isinstance(finder, Nonzeros):
            result.append(replace(kernel, nonzeros=finder.nonzeros))
        else:
            result.append(replace(kernel, bits=finder.target))
    return result


def _is_product(contraction: Contract) -> bool:
    """Return whether a contraction is a matrix product, not a convolution."""
    return len(contraction.rows) == 1 and len(contraction.inner) == 1


def _root(contraction: Contract) -> Buffer:
    return contraction.left.buffer.root


def _scaled_data(kernels: Iterable[Kernel]) -> set[Buffer]:
    """Return the buffers that hold data, unchanged or scaled."""
    writers: dict[Buffer, list[Kernel]] = {}
    for kernel in kernels:
        for root in kernel.memory_written:
            writers.setdefault(root, []).append(kernel)
    read = frozenset[Buffer]().union(*(kernel.memory_read for kernel in kernels))
    scaled = {root for root in read if root.kind == "data"}
    for kernel in kernels:
        for root in kernel.memory_written:
            if writers[root][-1] is not kernel:
                continue
            if all(scaled.isdisjoint(each.memory_read) for each in writers[root]):
                continue
            stored = [e for each in writers[root] for e in _stored(each, root)]
            values = [e for e in stored if not _is_zero(e)]  # without padding
            if values and all(e and _keeps_zeros(e, scaled) for e in values):
                scaled.add(root)
    return scaled


def _rectified(kernels: Iterable[Kernel]) -> set[Buffer]:
    """Return the buffers that a ReLU has written."""
    return {
        root
        for kernel in kernels
        if isinstance(kernel, Loop) and _has_relu(kernel)
        for root in kernel.memory_written
    }


def _has_relu(kernel: Loop) -> bool:
    return any(
        isinstance(expr, Apply)
        and expr.op == "maximum"
        and any(isinstance(arg, Literal) and arg.value == 0 for arg in expr.args)
        for expr in kernel.every_expr
    )


def _stored(kernel: Kernel, to: Buffer) -> list[Expr | None]:
    """Return the expressions that a kernel stores in a buffer, None if unknown."""
    if not isinstance(kernel, Loop) or kernel.reduced or kernel.adds:
        return [None]
    views = kernel.outputs
    return [expr for expr, v in views if v.buffer.root is to]


def _is_zero(expr: Expr | None) -> bool:
    return isinstance(expr, Literal) and expr.value == 0


def _keeps_zeros(expr: Expr, data: set[Buffer]) -> bool:
    """Return whether an expression is zero wherever the data is."""
    keeps: dict[int, bool] = {}
    for node in walk(expr):
        if isinstance(node, (Load, Indirect)):
            buffer = node.view.buffer if isinstance(node, Load) else node.table
            root = buffer.root
            keeps[id(node)] = root.kind == "data" or root in data
        elif isinstance(node, Apply):
            args = [keeps[id(arg)] for arg in node.args]
            scaled = node.op in ("cast", "negative", "divide") and args[0]
            keeps[id(node)] = scaled or (node.op == "multiply" and any(args))
        else:
            keeps[id(node)] = False
    return keeps[id(expr)]


def _is_long(contraction: Contract) -> bool:
    """Return whether skipping zeros can save more than finding them costs."""
    columns = math.prod(axis.size for axis in contraction.columns)
    inner = math.prod(axis.size for axis in contraction.inner)
    if math.prod(axis.size for axis in contraction.axes) < CPU.listed_product:
        return False
    return inner >= CPU.listed_inner and columns >= CPU.listed_columns


def _gains(contraction: Contract, scaled: set[Buffer], rectified: set[Buffer]) -> bool:
    """Return whether zeros of a product's left operand may be skipped."""
    root = _root(contraction)
    is_data = root.kind == "data" or root in scaled
    if not is_data and not (root in rectified and _waits_for_weights(contraction)):
        return False
    if not _is_long(contraction) or contraction.rounded:
        return False
    if _is_product(contraction):
        return contraction.columns[-1].right == 1  # rows of the right operand
    # Bits are computed for an entire buffer, so all of it must be used.
    images = contraction.batch[0]
    return (
        images.size * images.left == root.size >= WORD
        and Word.of(contraction) is not None
    )


def _waits_for_weights(contraction: Contract) -> bool:
    """Return whether a product of one row reads each of its weights once."""
    return (
        _is_product(contraction)
        and contraction.rows[0].size == 1
        and contraction.packed is None
        and all(axis.right or axis.size == 1 for axis in contraction.batch)
    )


def _key(contraction: Contract) -> object:
    """Return a key of everything that a product's lists depend on."""
    axes = (*contraction.batch, *contraction.rows, *contraction.inner)
    root = _root(contraction)
    return root, contraction.left.offset, tuple((axis.size, axis.left) for axis in axes)


def nonzero_lists(contraction: Contract, number: int) -> Nonzeros:
    """Return the kernel that lists the nonzeros of a product."""
    (rows,), (inner,) = contraction.rows, contraction.inner
    columns = math.prod(axis.size for axis in contraction.columns)
    group = min(
        CPU.zero_group if columns > CPU.thin_columns else CPU.thin_zero_group, rows.size
    )
    length = NonzeroIndices.HEAD + -(-inner.size // CPU.vector_width) * CPU.vector_width
    batch = tuple(axis.size for axis in contraction.batch)
    shape = (*batch, -(-rows.size // group), length)
    every = np.arange(inner.size, dtype=_INDEX)
    lists = NonzeroIndices(
        Buffer(f"nonzeros{number}", shape, _INDEX, "arena"),
        group,
        Buffer(f"every{number}", every.shape, _INDEX, "constant", every),
    )
    # Without the product's other strides: the same data has the same lists.
    axes = [Axis(axis.size, axis.left) for axis in (*contraction.batch, rows, inner)]
    *outer, rows, inner = axes
    return Nonzeros("nonzeros", tuple(outer), rows, inner, contraction.left, lists)


def _bits(contraction: Contract, number: int) -> NonzeroBits:
    """Return the kernel that computes the bits of a convolution's data."""
    source = contraction.left.buffer
    images = contraction.batch[0].size
    slices = images if source.size % (8 * images) == 0 else 1
    shape = (slices, -(-source.size // (8 * slices)))
    target = Buffer(f"bits{number}", shape, _BYTE, "arena")
    return NonzeroBits("nonzero_bits", source, target)
