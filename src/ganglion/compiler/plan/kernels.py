"""The kernels that a plan consists of.

A kernel says what is computed where, in loops over affine views: what it reads and
writes, about what it costs, what it touches piece by piece, and what it means, in
NumPy. How to compute it fast is for the targets.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from operator import is_
from typing import ClassVar

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ganglion.compiler.plan.expressions import (
    Apply,
    Buffer,
    Expr,
    Index,
    Indirect,
    Literal,
    Load,
    Memory,
    Move,
    Shape,
    Shuffled,
    Uniform,
    View,
    chained,
    extent,
    fixed,
    mapped,
    moved,
    record,
    rewrite,
    row_major,
    sources,
    walk,
)

__all__ = [
    "Apply", "Axis", "Buffer", "Contract", "Expr", "Footprint", "Index", "Indirect",
    "Kernel", "Literal", "Load", "Loop", "Memory", "Move", "NonzeroIndices", "PoolBack",
    "Scan", "Scatter", "Shape", "Shuffled", "Touched", "Uniform", "View", "chained",
    "fixed", "mapped", "moved", "rewrite", "row_major", "sources", "touched_by", "walk",
]  # fmt: skip

# Nanoseconds of one core, roughly: a factor of ten decides, not one of two.
CALL, MULTIPLY_ADD, BYTE = 20.0, 0.025, 0.1
LANES = 16  # of a vector
Touched = tuple[View, Shape] | Buffer  # by a view, or any part of it


@record
class Footprint:
    """A kernel as equal units, and the buffers of which each has a part of its own.

    Unit u of n touches nothing of such a buffer but its u-th of n parts. The pieces of
    the kernel itself may be larger: of `grain` units each, the last of the rest.
    """

    units: int
    own: frozenset[Buffer]
    grain: int = 1

    @staticmethod
    def of(units: int, touched: Iterable[Touched]) -> Footprint:
        """Return the footprint of a kernel whose first axis has so many units."""
        own: set[Buffer] = set()
        shared: set[Buffer] = set()
        for access in touched:
            if isinstance(access, Buffer):
                shared.add(access.root)
            else:
                (own if _has_equal_parts(*access) else shared).add(
                    access[0].buffer.root
                )
        return Footprint(units, frozenset(own - shared))


def _has_equal_parts(view: View, shape: Shape) -> bool:
    """Return whether each index of the first axis has an equal part of the buffer."""
    step = view.strides[0]
    if step * shape[0] != view.buffer.size:
        return False
    lowest, highest = extent(view.strides[1:], view.offset, shape[1:])
    return lowest >= 0 and highest < step


def touched_by(exprs: Iterable[Expr], shape: Shape) -> Iterator[Touched]:
    """Yield what expressions of a loop read, without what is below them."""
    for expr in exprs:
        if isinstance(expr, Load):
            yield expr.view, shape
        else:
            yield from expr.reads()


def _leaves(exprs: Iterable[Expr]) -> list[Expr]:
    return [expr for expr in exprs if not isinstance(expr, (Apply, Literal))]


def _above_moved(expr: Expr, moved_to: Mapping[Expr, Expr]) -> Expr:
    """Return an expression above what has become of those below it."""
    children = expr.children
    new = [moved_to[child] for child in children]
    return expr if all(map(is_, new, children)) else expr.with_children(*new)


@record(eq=False)
class Kernel:
    """One entry of a plan; `parallel` iterations of it may run at the same time."""

    name: str

    @property
    def parallel(self) -> int:
        """How many independent pieces the kernel has."""
        raise NotImplementedError

    @property
    def cost(self) -> float:
        """About how many nanoseconds it takes on one core."""
        return CALL + BYTE * sum(b.nbytes for b in {*self.reads(), *self.writes()})

    def reads(self) -> list[Buffer]:
        """Return the buffers that are read."""
        raise NotImplementedError

    def writes(self) -> list[Buffer]:
        """Return the buffers that are written."""
        raise NotImplementedError

    @cached_property
    def memory_read(self) -> frozenset[Buffer]:
        """The memory that is read: every pass asks, so it is kept."""
        return frozenset(buffer.root for buffer in self.reads())

    @cached_property
    def memory_written(self) -> frozenset[Buffer]:
        """The memory that is written."""
        return frozenset(buffer.root for buffer in self.writes())

    def private(self) -> list[Buffer]:
        """Return the buffers of which a thread uses the part of its first piece."""
        return []

    def fault(self) -> str | None:
        """Return what is wrong with the kernel itself, None if nothing is."""
        return None

    def footprint(self) -> Footprint | None:
        """Return how it can be split along its first axis, None if it cannot."""
        return None

    @cached_property
    def known_footprint(self) -> Footprint | None:
        """Its footprint: several passes ask, so it is kept."""
        return self.footprint()

    def run(self, memory: Memory) -> None:
        """Do what it means, in NumPy."""
        raise NotImplementedError

    def describe(self) -> str:
        """Return its text in a printed plan."""
        reads = ", ".join(repr(buffer) for buffer in self.reads())
        writes = ", ".join(repr(buffer) for buffer in self.writes())
        return f"{self.name}: {writes} from {reads}"


@record(eq=False)
class Loop(Kernel):
    """For every point of `shape`, compute expressions, reduce and store them.

    Each of `outputs` has a view of its own. The last `reduced` axes are reduced by
    `how` ("sum", "max" or "argmax"); without any, every point is stored. With `adds`,
    the result is added to what is there (in the order of the loops, so elements may
    repeat along other than the first axis).
    """

    shape: Shape
    outputs: tuple[tuple[Expr, View], ...]
    reduced: int = 0
    how: str = ""
    adds: bool = False

    @classmethod
    def of(
        cls,
        name: str,
        shape: Shape,
        expr: Expr,
        target: View,
        reduced: int = 0,
        how: str = "",
        adds: bool = False,
    ) -> Loop:
        """Return a loop of a single output."""
        return cls(name, shape, ((expr, target),), reduced, how, adds)

    @property
    def exprs(self) -> list[Expr]:
        """What is computed, for each output."""
        return [expr for expr, _ in self.outputs]

    @property
    def expr(self) -> Expr:
        """What is computed for the first output."""
        return self.outputs[0][0]

    @property
    def target(self) -> View:
        """Where the first output is stored."""
        return self.outputs[0][1]

    @cached_property
    def every_expr(self) -> tuple[Expr, ...]:
        """What is computed, and all below it: what `walk` returns, for all passes."""
        return tuple(walk(*self.exprs))

    def extended(self, outputs: Sequence[tuple[Expr, View]]) -> Loop:
        """Return a loop that stores some more; what it has is not walked again."""
        loop = replace(self, outputs=(*self.outputs, *outputs))
        new = walk(*(expr for expr, _ in outputs), behind=self.every_expr)
        leaves = _leaves(new)
        read = {buffer.root for expr in leaves for buffer in expr.reads()}
        written = {view.buffer.root for _, view in outputs}
        vars(loop).update(
            every_expr=(*self.every_expr, *new),
            leaves=(*self.leaves, *leaves),
            memory_read=self.memory_read | read,
            memory_written=self.memory_written | written,
        )
        return loop

    def with_axes(
        self, shape: Shape, reduced: int, targets: Sequence[View], move: Move
    ) -> Loop:
        """Return it as a loop over other axes; `move` changes strides and offsets."""
        moved_to: dict[Expr, Expr] = {}
        for expr in self.every_expr:
            moved_to[expr] = _above_moved(expr, moved_to).moved(move)
        exprs = [moved_to[expr] for expr in self.exprs]
        outputs = tuple(zip(exprs, targets, strict=True))
        loop = replace(self, shape=shape, outputs=outputs, reduced=reduced)
        vars(loop).update(
            every_expr=tuple(moved_to.values()),
            memory_read=self.memory_read,
            memory_written=self.memory_written,
        )
        return loop

    @property
    def outer(self) -> Shape:
        """The axes that are stored."""
        return self.shape[: len(self.shape) - self.reduced]

    @property
    def parallel(self) -> int:
        return self.outer[0] if self.outer else 1

    @cached_property
    def cost(self) -> float:
        single = len(self.outputs) == 1
        exprs = self.every_expr if single else walk(self.expr)
        each = sum(expr.cost for expr in exprs)
        # A short last axis leaves most lanes of a vector empty.
        narrow = LANES / min(LANES, max(self.shape[-1:] or (1,)))
        return CALL + math.prod(self.shape) * each * min(narrow, 8.0)

    def reads(self) -> list[Buffer]:
        return list(self._read)

    @cached_property
    def leaves(self) -> tuple[Expr, ...]:
        """Those of its expressions that read something, or depend on the point."""
        return tuple(_leaves(self.every_expr))

    @cached_property
    def _read(self) -> tuple[Buffer, ...]:
        # Every pass asks, and expressions are long: computed once.
        buffers = [buffer for expr in self.leaves for buffer in expr.reads()]
        return (*buffers, self.target.buffer) if self.adds else tuple(buffers)

    @cached_property
    def _readers(self) -> dict[Buffer, list[Expr]]:
        readers: dict[Buffer, list[Expr]] = {}
        for expr in self.leaves:
            for buffer in expr.reads():
                readers.setdefault(buffer.root, []).append(expr)
        return readers

    def reading(self, memory: Buffer) -> Sequence[Expr]:
        """Return the expressions that read some memory themselves."""
        return self._readers.get(memory, ())

    def writes(self) -> list[Buffer]:
        return [view.buffer for _, view in self.outputs]

    def fault(self) -> str | None:
        loaded = [x.view for x in self.leaves if isinstance(x, Load)]
        stored = [view for _, view in self.outputs]
        return _leaves_memory(loaded, self.shape) or _leaves_memory(stored, self.outer)

    def footprint(self) -> Footprint | None:
        if not self.outer or (self.adds and len(self.shape) == 1):
            return None
        footprint = self._by_rows
        if len(self.outer) > 1:
            return footprint
        # The only axis is the one that vectors lie along: units are whole vectors.
        vectors, rest = divmod(footprint.units, LANES)
        return None if rest else Footprint(vectors, footprint.own)

    def by_rows(self) -> Footprint:
        """Return what each index of the first axis touches."""
        return self._by_rows

    @cached_property
    def _by_rows(self) -> Footprint:
        stored = [(view, self.outer) for _, view in self.outputs]
        touched = [*stored, *touched_by(self.leaves, self.shape)]
        return Footprint.of(self.shape[0], touched)

    def run(self, memory: Memory) -> None:
        values = memory.evaluate(self.exprs, self.shape)
        for value, (_, view) in zip(values, self.outputs, strict=True):
            reduced, target = self._reduced(value), memory.see(view, self.outer)
            if not self.adds:
                target[...] = reduced
                continue
            for index in itertools.product(*(range(n) for n in self.shape[:-1])):
                target[index] += reduced[index]

    def _reduced(self, value: np.ndarray) -> np.ndarray:
        axes = tuple(range(len(self.outer), len(self.shape)))
        if self.how == "argmax":
            return np.asarray(np.argmax(value, axis=-1))
        if self.how == "max":
            return np.asarray(np.max(value, axis=axes))
        if self.how == "sum":
            wide = np.float64 if value.dtype.kind == "f" else value.dtype
            return np.asarray(np.sum(value, axis=axes, dtype=wide))
        return value


def _leaves_memory(views: Iterable[View], shape: Shape) -> str | None:
    """Return how a view in a loop leaves its buffer, None if none does."""
    for view in views:
        if len(view.strides) != len(shape):
            return f"has other axes than {view}"
        low, high = extent(view.strides, view.offset, shape)
        if 0 not in shape and (low < 0 or high >= max(view.buffer.size, 1)):
            return f"leaves {view.buffer!r}: [{low}, {high}]"
    return None


@record
class NonzeroIndices:
    """Lists of the inner indices at which a group of rows is not all zero.

    For each index of the batch and each `group` of rows (the last may be smaller), the
    buffer has `HEAD` numbers, the first of which is how many indices follow; -1 stands
    for all of them, which `every` lists.
    """

    HEAD: ClassVar[int] = 16  # so that a list begins where a cache line does

    buffer: Buffer
    group: int
    every: Buffer


@record
class Axis:
    """One axis of a contraction: its extent and its strides in left, right and out."""

    size: int
    left: int = 0
    right: int = 0
    out: int = 0


@record(eq=False)
class Contract(Kernel):
    """out[b, m, n] = sum over k of left[b, m, k] * right[b, k, n].

    Every index may be several axes: each axis has an extent and a stride in the three
    arrays. The last axis of `columns` is contiguous in `out`; also in `right`, unless
    that is `packed`: panels of columns are copied there, row by row, before use. With
    `nonzeros`, left is zero at all other inner indices, and a sum may leave those out.
    With `bits`, one for each element of left's buffer, those are zero whose bit is not
    set, and may be left out as well. The `sums` of right's columns over the inner axis
    are stored, too, where somebody wants them. Meanwhile a target may bring into its
    cache what is `prefetched`, of which each index of the first axis has an equal part.
    """

    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    left: View
    right: View
    out: View
    bits: Buffer | None = None
    nonzeros: NonzeroIndices | None = None
    packed: Buffer | None = None  # (panels, inner, columns of a panel)
    sums: Buffer | None = None
    prefetched: tuple[Buffer, ...] = ()

    @property
    def kept(self) -> tuple[Axis, ...]:
        """The axes that are stored."""
        return (*self.batch, *self.rows, *self.columns)

    @property
    def axes(self) -> tuple[Axis, ...]:
        """All axes."""
        return (*self.kept, *self.inner)

    @property
    def parallel(self) -> int:
        return math.prod(axis.size for axis in self.batch)

    @property
    def cost(self) -> float:
        count = math.prod(axis.size for axis in self.axes)
        width = self.columns[-1].size if self.columns else 1
        return CALL + count * MULTIPLY_ADD * LANES / min(LANES, max(width, 1))

    def reads(self) -> list[Buffer]:
        lists = [self.nonzeros.buffer] if self.nonzeros else []
        bits = [self.bits] if self.bits else []
        return [self.left.buffer, self.right.buffer, *lists, *bits]

    def writes(self) -> list[Buffer]:
        sums = [self.sums] if self.sums else []
        return [self.out.buffer, *sums, *self.private()]

    def private(self) -> list[Buffer]:
        return [self.packed] if self.packed else []

    def footprint(self) -> Footprint | None:
        if not self.batch:
            return None
        sides = ((self.left, "left", self.axes), (self.right, "right", self.axes))
        touched: list[Touched] = [
            (_along(view, side, axes), tuple(axis.size for axis in axes))
            for view, side, axes in (*sides, (self.out, "out", self.kept))
        ]
        if self.nonzeros:
            lists = self.nonzeros.buffer
            touched.append((View.of(lists), lists.shape))
        if self.bits:
            touched.append(self.bits)  # words reach into the next image's
        return Footprint.of(self.batch[0].size, touched)

    def run(self, memory: Memory) -> None:
        def operand(view: View, side: str) -> np.ndarray:
            # Axes an operand does not have stay at size one.
            own = tuple(axis.size if getattr(axis, side) else 1 for axis in self.axes)
            return memory.see(_along(view, side, self.axes), own)

        left, right = operand(self.left, "left"), operand(self.right, "right")
        if self.nonzeros:
            left = np.where(self._listed(self.nonzeros, memory), left, 0)
        if self.bits:
            bits = np.unpackbits(memory.flat(self.bits), bitorder="little")
            steps = tuple(axis.left for axis in self.axes)
            is_set = as_strided(bits[self.left.offset :], left.shape, steps)
            left = np.where(is_set, left, 0)
        used = [[i for i, n in enumerate(x.shape) if n > 1] for x in (left, right)]
        kept = [i for i in range(len(self.kept)) if i in used[0] or i in used[1]]
        operands = (left.squeeze(), used[0], right.squeeze(), used[1])
        product = np.einsum(*operands, kept, optimize=True)
        shape = tuple(axis.size for axis in self.kept)
        ones = [n if i in kept else 1 for i, n in enumerate(shape)]
        out = memory.see(_along(self.out, "out", self.kept), shape)
        out[...] = product.reshape(ones)
        if self.sums:
            memory.flat(self.sums)[...] = right.sum(axis=-1).reshape(-1)

    def _listed(self, lists: NonzeroIndices, memory: Memory) -> np.ndarray:
        """Return which elements of the left operand are at indices of the lists."""
        (rows,), (inner,) = self.rows, self.inner
        *batch, groups, length = lists.buffer.shape
        lines = memory.flat(lists.buffer).reshape(-1, length)
        listed = np.zeros((math.prod(batch) * groups, inner.size), bool)
        for row, (count, *indices) in zip(listed, lines, strict=True):
            row[indices[NonzeroIndices.HEAD - 1 :][:count]] = True
        listed = np.repeat(listed.reshape(*batch, groups, -1), lists.group, axis=-2)
        listed = listed[..., : rows.size, :]
        return listed.reshape(*batch, rows.size, *(1 for _ in self.columns), -1)

    def describe(self) -> str:
        sizes = [
            "×".join(str(axis.size) for axis in axes) or "1"
            for axes in (self.batch, self.rows, self.columns, self.inner)
        ]
        text = "for batch {}, rows {}, columns {}, inner {}: ".format(*sizes)
        out, left, right = self.out.buffer, self.left.buffer, self.right.buffer
        lists = self.nonzeros.buffer if self.nonzeros else self.bits
        where = f"  at {lists.name}" if lists else ""
        where += f"  and {self.sums!r} = sums of columns" if self.sums else ""
        return f"{self.name} {text}{out!r} = {left!r} · {right!r}{where}"


def _along(view: View, side: str, axes: Sequence[Axis]) -> View:
    strides = tuple(getattr(axis, side) for axis in axes)
    return View(view.buffer, strides, view.offset)


@record(eq=False)
class Scan(Kernel):
    """A running sum along the last axis."""

    shape: Shape
    source: View
    target: View

    @property
    def parallel(self) -> int:
        return self.shape[0] if len(self.shape) > 1 else 1

    def reads(self) -> list[Buffer]:
        return [self.source.buffer]

    def writes(self) -> list[Buffer]:
        return [self.target.buffer]

    def run(self, memory: Memory) -> None:
        source = memory.see(self.source, self.shape)
        target = memory.see(self.target, self.shape)
        target[...] = np.cumsum(source, axis=-1, dtype=source.dtype)


@record(eq=False)
class Scatter(Kernel):
    """Add each of `count` rows of updates to the row of the target its index names."""

    count: int
    row: int
    updates: Buffer
    index: Buffer
    target: Buffer

    @property
    def parallel(self) -> int:
        return 1  # rows may repeat

    def reads(self) -> list[Buffer]:
        return [self.updates, self.index, self.target]

    def writes(self) -> list[Buffer]:
        return [self.target]

    def run(self, memory: Memory) -> None:
        rows = memory.flat(self.updates).reshape(self.count, -1)
        target = memory.flat(self.target).reshape(-1, self.row)
        index = memory.flat(self.index)
        exists = (index >= 0) & (index < len(target))
        np.add.at(target, index[exists], rows[exists])


@record(eq=False)
class PoolBack(Kernel):
    """Give each window's gradient to the first of its largest elements.

    `shape` is (images, *windows, channels); `elements` are those of a window, in order,
    and `taps` their offsets in dx. Without `largest`, it is looked for among them; a
    window whose `largest` is not `above` something gives nothing.
    """

    shape: Shape
    elements: tuple[Expr, ...]
    dy: View
    dx: View
    taps: Shape
    covers: bool = False  # every element is in exactly one window: nothing to add to
    largest: View | None = None
    above: float | None = None

    @property
    def parallel(self) -> int:
        return self.shape[0]

    def reads(self) -> list[Buffer]:
        old = [] if self.covers else [self.dx.buffer]
        largest = [self.largest.buffer] if self.largest else []
        return [*sources(*self.elements), self.dy.buffer, *largest, *old]

    def writes(self) -> list[Buffer]:
        return [self.dx.buffer]

    def _targets(self) -> list[View]:
        """Return where each element of the windows gets its gradient."""
        return [replace(self.dx, offset=self.dx.offset + tap) for tap in self.taps]

    def footprint(self) -> Footprint | None:
        views = [self.dy, *([self.largest] if self.largest else []), *self._targets()]
        touched = touched_by(walk(*self.elements), self.shape)
        every = [*touched, *((view, self.shape) for view in views)]
        return Footprint.of(self.shape[0], every)

    def run(self, memory: Memory) -> None:
        dy = memory.see(self.dy, self.shape)
        elements = memory.evaluate(self.elements, self.shape)
        largest = np.max(elements, axis=0)
        if self.largest:
            largest = memory.see(self.largest, self.shape)
        if self.above is not None:
            dy = np.where(largest > self.above, dy, 0)
        waiting = np.ones(self.shape, bool)
        for view, x in zip(self._targets(), elements, strict=True):
            wins = waiting & (x == largest)
            target = memory.see(view, self.shape)
            if self.covers:
                target[...] = 0
            for index in itertools.product(*(range(n) for n in self.shape[:-1])):
                target[index] += np.where(wins[index], dy[index], 0)
            waiting &= ~wins
