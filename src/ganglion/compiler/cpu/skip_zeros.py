"""Zeros of the data: products walk through the data that is not zero.

Four of five pixels of MNIST are zero, and a zero adds nothing to a sum of products. So
where the left operand of a product is data as it was given, at most scaled, a kernel
lists for each few rows the inner indices at which not all of them are zero, and the
product goes through that list. Sums keep their order, and so their bits.

The windows of a convolution overlap, and lists for all of them would be longer than the
data. So a kernel marks each element with a bit, once for all passes; a tile finds the
bits of its windows by shifting, as many at a time as a word holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

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
    record,
    walk,
)

WORD, LOADED = 64, 57  # bits of a word, and those that one from any bit on has
_INDEX, _BYTE = np.dtype("int32"), np.dtype("uint8")


@record(eq=False)
class Nonzeros(Kernel):
    """List the inner indices at which a group of rows is not all zero."""

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
                some = rows[start : start + self.nonzeros.group]
                (indices,) = np.nonzero((some != 0).any(axis=0))
                lists[piece, group, 0] = len(indices)
                lists[piece, group, NonzeroIndices.HEAD :][: len(indices)] = indices

    def describe(self) -> str:
        groups = f"{self.parallel} groups of {self.nonzeros.group}"
        lists, source = self.nonzeros.buffer, self.source.buffer
        text = f"for {groups}, inner {self.inner.size}: {lists!r}"
        return f"{text} = where {source!r} is not zero"


@record(eq=False)
class NonzeroBits(Kernel):
    """Set a bit for each element that is not zero, the first one lowest in its byte."""

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


@dataclass(frozen=True)
class Word:
    """Which inner indices of a tile of rows have their bits in one word.

    Those of `last`, for each index of `middle`; words follow each other along `outer`.
    Bit b stands for the element b % width of the window's row b // width.
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
        """Return the words of a contraction, None where they hold too few."""
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
    """Split an axis in two, the second at most `most` long; in one if all fit."""
    size = max(n for n in range(1, most + 1) if axis.size % n == 0)
    inner = replace(axis, size=size)
    if size == axis.size:
        return (inner,)
    return Axis(axis.size // size, axis.left * size, axis.right * size), inner


def skip_zeros(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Return the kernels, with lists of nonzeros for the products that may use some.

    Convolutions have bits instead.
    """
    if not any(isinstance(kernel, Contract) and _is_long(kernel) for kernel in kernels):
        return list(kernels)
    scaled = _scaled_data(kernels)
    finders: dict[object, Nonzeros | NonzeroBits] = {}
    result: list[Kernel] = []
    for kernel in kernels:
        if not isinstance(kernel, Contract) or not _gains(kernel, scaled):
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
    """Return whether a contraction is no convolution."""
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
            rest = [e for e in stored if not _is_zero(e)]  # except a frame of zeros
            if rest and all(e and _keeps_zeros(e, scaled) for e in rest):
                scaled.add(root)
    return scaled


def _stored(kernel: Kernel, to: Buffer) -> list[Expr | None]:
    """Return what a kernel stores in a buffer, None for what is more than a copy."""
    if not isinstance(kernel, Loop) or kernel.reduced or kernel.adds:
        return [None]
    views = kernel.outputs
    return [expr for expr, v in views if v.buffer.root is to]


def _is_zero(expr: Expr | None) -> bool:
    return isinstance(expr, Literal) and expr.value == 0


def _keeps_zeros(expr: Expr, data: set[Buffer]) -> bool:
    """Return whether an expression is zero wherever the data is."""
    kept: dict[int, bool] = {}
    for node in walk(expr):
        if isinstance(node, (Load, Indirect)):
            buffer = node.view.buffer if isinstance(node, Load) else node.table
            root = buffer.root
            kept[id(node)] = root.kind == "data" or root in data
        elif isinstance(node, Apply):
            args = [kept[id(arg)] for arg in node.args]
            scaled = node.op in ("cast", "negative", "divide") and args[0]
            kept[id(node)] = scaled or (node.op == "multiply" and any(args))
        else:
            kept[id(node)] = False
    return kept[id(expr)]


def _is_long(contraction: Contract) -> bool:
    """Return whether leaving out zeros can save more than finding them costs."""
    columns = math.prod(axis.size for axis in contraction.columns)
    inner = math.prod(axis.size for axis in contraction.inner)
    if math.prod(axis.size for axis in contraction.axes) < CPU.listed_product:
        return False
    return inner >= CPU.listed_inner and columns >= CPU.listed_columns


def _gains(contraction: Contract, scaled: set[Buffer]) -> bool:
    """Return whether the left operand of a product is data that is worth looking at."""
    root = _root(contraction)
    if root.kind != "data" and root not in scaled:
        return False
    if not _is_long(contraction) or contraction.rounded:
        return False
    if _is_product(contraction):
        return contraction.columns[-1].right == 1  # lists go through rows
    # Bits are made for all of a buffer, so all of it must be used.
    images = contraction.batch[0]
    return (
        images.size * images.left == root.size >= WORD
        and Word.of(contraction) is not None
    )


def _key(contraction: Contract) -> object:
    """Return what the lists of a product depend on."""
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
    # Without strides of what a product makes of it: equal data has equal kernels.
    axes = [Axis(axis.size, axis.left) for axis in (*contraction.batch, rows, inner)]
    *outer, rows, inner = axes
    return Nonzeros("nonzeros", tuple(outer), rows, inner, contraction.left, lists)


def _bits(contraction: Contract, number: int) -> NonzeroBits:
    """Return the kernel that marks the elements of a convolution's data."""
    source = contraction.left.buffer
    images = contraction.batch[0].size
    slices = images if source.size % (8 * images) == 0 else 1
    shape = (slices, -(-source.size // (8 * slices)))
    target = Buffer(f"bits{number}", shape, _BYTE, "arena")
    return NonzeroBits("nonzero_bits", source, target)
