"""Buffers, affine views, expressions and the kernels that a plan consists of.

A kernel says what is computed where, in loops over affine views; how to compute it
fast is for the backends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any, ClassVar

import numpy as np

Shape = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Buffer:
    """A block of memory: an input, a constant, or a place in the arena."""

    name: str
    shape: Shape
    dtype: np.dtype
    kind: str  # "data", "state", "constant", "arena" or "result"
    array: np.ndarray | None = None  # of constants
    alias_of: Buffer | None = None  # whose memory it is, if not its own

    @property
    def root(self) -> Buffer:
        """The buffer whose memory it is: itself, or what it is another shape of."""
        return self.alias_of or self

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The number of bytes."""
        return self.size * self.dtype.itemsize

    def __repr__(self) -> str:
        return f"{self.name}:{self.dtype.name}{list(self.shape)}"


def row_major(shape: Shape) -> Shape:
    """Return the strides, in elements, of an array laid out row by row.

    >>> row_major((2, 3, 4))
    (12, 4, 1)
    """
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


@dataclass(frozen=True)
class View:
    """Elements of a buffer at offset + sum(index * stride), a stride per loop axis."""

    buffer: Buffer
    strides: Shape
    offset: int = 0

    @staticmethod
    def whole(buffer: Buffer) -> View:
        """Return the view of a whole buffer by its own axes."""
        return View(buffer, row_major(buffer.shape))


# ---- expressions -------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Expr:
    """What one iteration of a loop computes."""

    dtype: np.dtype


@dataclass(frozen=True, eq=False)
class Load(Expr):
    """An element of a view."""

    view: View


@dataclass(frozen=True, eq=False)
class Literal(Expr):
    """A number."""

    value: Any


@dataclass(frozen=True, eq=False)
class Index(Expr):
    """offset + sum(index * stride): a whole number that depends on the place."""

    strides: Shape
    offset: int = 0


@dataclass(frozen=True, eq=False)
class Apply(Expr):
    """A pointwise op of the graph on other expressions."""

    op: str
    args: tuple[Expr, ...]


@dataclass(frozen=True, eq=False)
class Indirect(Expr):
    """A row of a table chosen by an index, and a place within the row."""

    table: Buffer
    row: Expr
    rows: int
    row_size: int
    within: Shape
    offset: int = 0


@dataclass(frozen=True, eq=False)
class Uniform(Expr):
    """A uniform random number of the state's stream, by the element's number."""

    state: Buffer
    element: Index


@dataclass(frozen=True, eq=False)
class Shuffled(Expr):
    """A position of a random order of the rows."""

    state: Buffer
    position: Expr
    rows: int


def children(expr: Expr) -> tuple[Expr, ...]:
    """Return the expressions directly below one."""
    if isinstance(expr, Apply):
        return expr.args
    if isinstance(expr, Indirect):
        return (expr.row,)
    if isinstance(expr, Uniform):
        return (expr.element,)
    if isinstance(expr, Shuffled):
        return (expr.position,)
    return ()


def walk(*exprs: Expr) -> Iterator[Expr]:
    """Yield expressions and all below them, children first, each once."""
    seen: set[int] = set()
    stack: list[Expr | None] = [*reversed(exprs)]
    while stack:
        one = stack.pop()
        if one is None:  # what is below the next one has been yielded
            above = stack.pop()
            assert above is not None
            yield above
        elif id(one) not in seen:
            seen.add(id(one))
            below = children(one)
            if below:
                stack += (one, None, *below)
            else:
                yield one


def sources(*exprs: Expr) -> list[Buffer]:
    """Return the buffers that expressions read."""
    found = []
    for one in walk(*exprs):
        if isinstance(one, Load):
            found.append(one.view.buffer)
        elif isinstance(one, Indirect):
            found.append(one.table)
        elif isinstance(one, (Uniform, Shuffled)):
            found.append(one.state)
    return found


def mapped(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """Return an expression with all of it changed, from the bottom up."""
    made: dict[int, Expr] = {}
    for one in walk(expr):
        parts: dict[str, Any] = {}
        for name, value in vars(one).items():
            if isinstance(value, Expr):
                parts[name] = made[id(value)]
            elif name == "args":
                parts[name] = tuple(made[id(arg)] for arg in value)
        made[id(one)] = change(replace(one, **parts) if parts else one)
    return made[id(expr)]


def placed(expr: Expr, place: Callable[[Shape, int], tuple[Shape, int]]) -> Expr:
    """Return an expression for other axes: strides and offsets are changed."""

    def change(one: Expr) -> Expr:
        if isinstance(one, Load):
            strides, offset = place(one.view.strides, one.view.offset)
            return replace(one, view=View(one.view.buffer, strides, offset))
        if isinstance(one, Index):
            strides, offset = place(one.strides, one.offset)
            return replace(one, strides=strides, offset=offset)
        if isinstance(one, Indirect):
            within, offset = place(one.within, one.offset)
            return replace(one, within=within, offset=offset)
        return one

    return mapped(expr, change)


def rewrite(expr: Expr, strides: Callable[[Shape], Shape]) -> Expr:
    """Return an expression with every list of strides changed."""
    return placed(expr, lambda old, offset: (strides(old), offset))


def chained(op: str, exprs: Sequence[Expr]) -> Expr:
    """Return what an op makes of the first two, of that and the third, and so on."""
    return reduce(lambda a, b: Apply(a.dtype, op, (a, b)), exprs)


def fixed(expr: Expr, places: Shape) -> Expr:
    """Return an expression with its loop's last axes fixed at some places."""

    def cut(strides: Shape, offset: int) -> tuple[Shape, int]:
        kept = len(strides) - len(places)
        moved = sum(s * p for s, p in zip(strides[kept:], places, strict=True))
        return strides[:kept], offset + moved

    return placed(expr, cut)


# ---- kernels -----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Kernel:
    """One entry of a plan; `parallel` iterations of it may run at the same time."""

    name: str

    @property
    def parallel(self) -> int:
        """How many independent pieces the kernel has."""
        raise NotImplementedError

    def reads(self) -> list[Buffer]:
        """Return the buffers that are read."""
        raise NotImplementedError

    def writes(self) -> list[Buffer]:
        """Return the buffers that are written."""
        raise NotImplementedError

    def private(self) -> list[Buffer]:
        """Return the buffers of which a thread uses the part of its first piece."""
        return []


@dataclass(frozen=True, eq=False)
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

    @property
    def outer(self) -> Shape:
        """The axes that are stored."""
        return self.shape[: len(self.shape) - self.reduced]

    @property
    def parallel(self) -> int:
        """How many independent pieces the kernel has."""
        return self.outer[0] if self.outer else 1

    def reads(self) -> list[Buffer]:
        """Return the buffers that are read."""
        return list(self._read)

    @cached_property
    def _read(self) -> tuple[Buffer, ...]:
        # Every pass asks, and expressions are long: found once.
        found = sources(*self.exprs)
        return (*found, self.target.buffer) if self.adds else tuple(found)

    def writes(self) -> list[Buffer]:
        """Return the buffers that are written."""
        return [view.buffer for _, view in self.outputs]


@dataclass(frozen=True)
class Places:
    """Lists of the places of an inner axis where a group of rows is not all zero.

    For each place of the batch and each `group` of rows (the last may be smaller), the
    buffer has `HEAD` numbers, the first of which is how many places follow; -1 stands
    for all of them, which `every` lists.
    """

    HEAD: ClassVar[int] = 16  # so that a list begins where a cache line does

    buffer: Buffer
    group: int
    every: Buffer


@dataclass(frozen=True, eq=False)
class Contract(Kernel):
    """out[b, m, n] = sum over k of left[b, m, k] * right[b, k, n].

    Every index may be several axes: each axis has an extent and a stride in the three
    arrays. The last axis of `columns` is contiguous in `out`; also in `right`, unless
    that is `packed`: panels of columns are copied there, row by row, before use. With
    `places`, left is zero at all others, and a sum may leave those out.
    With `bits`, one for each element of left's buffer, those are zero whose bit is not
    set, and may be left out as well.
    """

    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    inner: tuple[Axis, ...]
    left: View
    right: View
    out: View
    bits: Buffer | None = None
    places: Places | None = None
    packed: Buffer | None = None  # (panels, inner, columns of a panel)

    @property
    def parallel(self) -> int:
        """How many independent pieces the kernel has."""
        return math.prod(one.size for one in self.batch)

    def reads(self) -> list[Buffer]:
        """Return the buffers that are read."""
        lists = [self.places.buffer] if self.places else []
        bits = [self.bits] if self.bits else []
        return [self.left.buffer, self.right.buffer, *lists, *bits]

    def writes(self) -> list[Buffer]:
        """Return the buffers that are written."""
        return [self.out.buffer, *self.private()]

    def private(self) -> list[Buffer]:
        """Return the buffers of which a thread uses the part of its first piece."""
        return [self.packed] if self.packed else []


@dataclass(frozen=True)
class Axis:
    """One axis of a contraction: its extent and its strides in left, right and out."""

    size: int
    left: int = 0
    right: int = 0
    out: int = 0


@dataclass(frozen=True, eq=False)
class Scan(Kernel):
    """A running sum along the last axis."""

    shape: Shape
    source: View
    target: View

    @property
    def parallel(self) -> int:
        """How many independent pieces the kernel has."""
        return self.shape[0] if len(self.shape) > 1 else 1

    def reads(self) -> list[Buffer]:
        """Return the buffers that are read."""
        return [self.source.buffer]

    def writes(self) -> list[Buffer]:
        """Return the buffers that are written."""
        return [self.target.buffer]


@dataclass(frozen=True, eq=False)
class Scatter(Kernel):
    """Add each of `count` rows of updates to the row of the target its index names."""

    count: int
    row: int
    updates: Buffer
    index: Buffer
    target: Buffer

    @property
    def parallel(self) -> int:
        """How many independent pieces the kernel has: rows may repeat, so one."""
        return 1

    def reads(self) -> list[Buffer]:
        """Return the buffers that are read."""
        return [self.updates, self.index, self.target]

    def writes(self) -> list[Buffer]:
        """Return the buffers that are written."""
        return [self.target]


@dataclass(frozen=True, eq=False)
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
        """How many independent pieces the kernel has."""
        return self.shape[0]

    def reads(self) -> list[Buffer]:
        """Return the buffers that are read."""
        old = [] if self.covers else [self.dx.buffer]
        known = [self.largest.buffer] if self.largest else []
        return [*sources(*self.elements), self.dy.buffer, *known, *old]

    def writes(self) -> list[Buffer]:
        """Return the buffers that are written."""
        return [self.dx.buffer]
