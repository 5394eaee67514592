"""Buffers, affine views, and the expressions that loops compute from them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, reduce
from operator import is_
from typing import Any, TypeVar, dataclass_transform, overload

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ganglion.compiler.ir.host import HostFunction
from ganglion.compiler.ir.shaping import is_float
from ganglion.compiler.ir.table import OPS

T = TypeVar("T")
Shape = tuple[int, ...]
BufferKey = tuple[str, str]  # kind and name
Move = Callable[[Shape, int], tuple[Shape, int]]  # of strides and an offset

# Costs in nanoseconds of one core, roughly: a factor of ten decides, not one of two.
ELEMENT, FUNCTION, DRAW, SHUFFLE = 0.04, 0.7, 4.0, 60.0
FUNCTIONS = {"exp", "log", "tanh", "sigmoid", "erf", "power", "log1p", "expm1"}
FUNCTIONS |= {"sin", "cos", "divide", "sqrt", "erfc", "arcsin", "arccos", "arctan"}
FUNCTIONS |= {"arctan2", "cbrt", "nextafter"}


@overload
def record(cls: type[T]) -> type[T]: ...
@overload
def record(*, eq: bool) -> Callable[[type[T]], type[T]]: ...
@dataclass_transform(frozen_default=True)
def record(cls: Any = None, *, eq: bool = True) -> Any:
    """Make a class of frozen records, of which a plan has thousands.

    Only mypy keeps them from being changed: a dataclass that looks after itself takes
    three times as long to make.
    """
    as_record = dataclass(eq=eq, unsafe_hash=eq)
    return as_record if cls is None else as_record(cls)


@record(eq=False)
class Buffer:
    """A block of memory: an input, a constant, a result, or temporary."""

    name: str
    shape: Shape
    dtype: np.dtype
    # "data", "state", "constant", "arena", "result", "window", or "host": a function
    kind: str
    array: np.ndarray | None = None  # of constants
    alias_of: Buffer | None = None  # whose memory it is, if not its own
    function: HostFunction | None = None  # that a host call runs

    @property
    def root(self) -> Buffer:
        """The buffer whose memory it is: itself, or what it is another shape of."""
        return self.alias_of or self

    @property
    def key(self) -> BufferKey:
        """What names its memory: copies of a buffer, of other types too, share it."""
        return self.kind, self.name

    @cached_property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @cached_property
    def nbytes(self) -> int:
        """The number of bytes."""
        return self.size * self.dtype.itemsize

    def __repr__(self) -> str:
        return f"{self.name}:{self.dtype.name}{list(self.shape)}"


@lru_cache(maxsize=4096)
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


@lru_cache(maxsize=4096)
def extent(strides: Shape, offset: int, shape: Shape) -> tuple[int, int]:
    """Return the lowest and the highest element that a loop reaches.

    >>> extent((4, -1), 3, (2, 4))
    (0, 7)
    """
    spans = [s * (n - 1) for s, n in zip(strides, shape, strict=True)]
    low = sum(span for span in spans if span < 0)
    high = sum(span for span in spans if span > 0)
    return offset + low, offset + high


@record
class View:
    """Elements of a buffer at offset + sum(index * stride), a stride per loop axis."""

    buffer: Buffer
    strides: Shape
    offset: int = 0

    @staticmethod
    def of(buffer: Buffer) -> View:
        """Return the view of all of a buffer by its own axes."""
        return View(buffer, row_major(buffer.shape))


class Memory:
    """The arrays of a step, which the meaning of kernels works on."""

    def __init__(
        self, named: Mapping[str, np.ndarray], arena: Mapping[Buffer, np.ndarray]
    ) -> None:
        self._named, self._arena = named, arena
        self.windows: dict[BufferKey, np.ndarray] = {}  # of a loop over time, at a step

    def flat(self, buffer: Buffer) -> np.ndarray:
        """Return all elements of a buffer, one after the other."""
        if buffer.array is not None:
            return buffer.array.reshape(-1)
        if buffer.kind == "window":
            return self.windows[buffer.key]
        if buffer.kind != "arena":
            return self._named[buffer.name].reshape(-1)
        return self._arena[buffer.root]

    def see(self, view: View, shape: Shape) -> np.ndarray:
        """Return an array whose elements are those of a view."""
        flat = self.flat(view.buffer)
        steps = tuple(s * flat.itemsize for s in view.strides)
        return as_strided(flat[view.offset :], shape, steps)

    def array(self, buffer: Buffer) -> np.ndarray:
        """Return a buffer in its own shape."""
        return self.flat(buffer).reshape(buffer.shape)

    def evaluate(self, exprs: Sequence[Expr], shape: Shape) -> list[np.ndarray]:
        """Return what expressions are at every point of a loop."""
        known: dict[Expr, np.ndarray] = {}
        for expr in walk(*exprs):
            args = [known[child] for child in expr.children]
            value = expr.evaluate(args, shape, self)
            known[expr] = np.broadcast_to(value, shape)
        return [known[expr] for expr in exprs]


# ---- expressions -------------------------------------------------------------------


@record(eq=False)
class Expr:
    """What one iteration of a loop computes."""

    dtype: np.dtype

    @property
    def children(self) -> tuple[Expr, ...]:
        """The expressions directly below."""
        return ()

    def with_children(self, *children: Expr) -> Expr:
        """Return it above other expressions, as many as it has children."""
        return self

    @property
    def cost(self) -> float:
        """About how many nanoseconds it takes, without its children."""
        return ELEMENT

    def reads(self) -> tuple[Buffer, ...]:
        """Return the buffers that it reads, without its children."""
        return ()

    def moved(self, move: Move) -> Expr:
        """Return it for other axes: strides and offsets are changed."""
        return self

    def evaluate(self, args: list[np.ndarray], shape: Shape, memory: Memory) -> Any:
        """Return what it means in NumPy, given what its children do."""
        raise NotImplementedError


@record(eq=False)
class Load(Expr):
    """An element of a view."""

    view: View

    def reads(self) -> tuple[Buffer, ...]:
        return (self.view.buffer,)

    def moved(self, move: Move) -> Expr:
        view = self.view
        strides, offset = move(view.strides, view.offset)
        if strides == view.strides and offset == view.offset:
            return self
        return Load(self.dtype, View(view.buffer, strides, offset))

    def evaluate(self, args: list[np.ndarray], shape: Shape, memory: Memory) -> Any:
        return np.array(memory.see(self.view, shape))


@record(eq=False)
class Literal(Expr):
    """A number."""

    value: Any

    def evaluate(self, args: list[np.ndarray], shape: Shape, memory: Memory) -> Any:
        return np.array(self.value, self.dtype)


@record(eq=False)
class Index(Expr):
    """offset + sum(index * stride): a whole number that depends on the point."""

    strides: Shape
    offset: int = 0

    def moved(self, move: Move) -> Expr:
        strides, offset = move(self.strides, self.offset)
        return replace(self, strides=strides, offset=offset)

    def evaluate(self, args: list[np.ndarray], shape: Shape, memory: Memory) -> Any:
        return _indices(self.strides, self.offset, shape).astype(self.dtype)


def _indices(strides: Shape, offset: int, shape: Shape) -> np.ndarray:
    total = np.full(shape, offset, np.int64)
    for stride, index in zip(strides, np.indices(shape, sparse=True), strict=True):
        total += index * stride
    return total


@record(eq=False)
class Apply(Expr):
    """A pointwise op of the graph on other expressions."""

    op: str
    args: tuple[Expr, ...]

    @property
    def children(self) -> tuple[Expr, ...]:
        return self.args

    def with_children(self, *children: Expr) -> Expr:
        return Apply(self.dtype, self.op, children)

    @property
    def cost(self) -> float:
        return FUNCTION if self.op in FUNCTIONS else ELEMENT

    def evaluate(self, args: list[np.ndarray], shape: Shape, memory: Memory) -> Any:
        if self.op == "cast":
            return args[0].astype(self.dtype)
        return np.asarray(OPS[self.op].meaning(*args))


@record(eq=False)
class Indirect(Expr):
    """An element of a row of a table; the row is chosen by an index."""

    table: Buffer
    row: Expr
    rows: int
    row_size: int
    within: Shape  # strides within the row
    offset: int = 0

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.row,)

    def with_children(self, *children: Expr) -> Expr:
        return replace(self, row=children[0])

    @property
    def cost(self) -> float:
        return 2 * ELEMENT

    def reads(self) -> tuple[Buffer, ...]:
        return (self.table,)

    def moved(self, move: Move) -> Expr:
        within, offset = move(self.within, self.offset)
        return replace(self, within=within, offset=offset)

    def evaluate(self, args: list[np.ndarray], shape: Shape, memory: Memory) -> Any:
        within = _indices(self.within, self.offset, shape)
        row = args[0].astype(np.int64)
        exists = (row >= 0) & (row < self.rows)
        flat = memory.flat(self.table)
        elements = flat[np.where(exists, row, 0) * self.row_size + within]
        nan = self.dtype.type(np.nan if is_float(self.dtype) else 0)
        return np.where(exists, elements, nan) if is_float(self.dtype) else elements


@record(eq=False)
class Uniform(Expr):
    """A uniform random number of the state's stream, by the element's number."""

    state: Buffer
    element: Index

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.element,)

    def with_children(self, *children: Expr) -> Expr:
        (element,) = children
        assert isinstance(element, Index)
        return replace(self, element=element)

    @property
    def cost(self) -> float:
        return DRAW

    def reads(self) -> tuple[Buffer, ...]:
        return (self.state,)

    def evaluate(self, args: list[np.ndarray], shape: Shape, memory: Memory) -> Any:
        (numbers,), state = args, memory.flat(self.state)
        count = (int(numbers.max()) + 1,)
        drawn = OPS["random_uniform"].meaning(state, count, self.dtype.name)
        return drawn[numbers]


@record(eq=False)
class Shuffled(Expr):
    """A position of a random order of the rows."""

    state: Buffer
    position: Expr
    rows: int

    @property
    def children(self) -> tuple[Expr, ...]:
        return (self.position,)

    def with_children(self, *children: Expr) -> Expr:
        return replace(self, position=children[0])

    @property
    def cost(self) -> float:
        return SHUFFLE

    def reads(self) -> tuple[Buffer, ...]:
        return (self.state,)

    def evaluate(self, args: list[np.ndarray], shape: Shape, memory: Memory) -> Any:
        return OPS["shuffle"].meaning(memory.flat(self.state), args[0], self.rows)


def walk(*exprs: Expr, behind: Iterable[Expr] = ()) -> list[Expr]:
    """Return expressions and all below them, children first, each once.

    Those `behind` which it goes on are left out.
    """
    order: list[Expr] = []
    seen: set[Expr] = set(behind)
    stack: list[Expr | None] = [*reversed(exprs)]
    while stack:
        expr = stack.pop()
        if expr is None:  # what is below the next one is in the list by now
            above = stack.pop()
            assert above is not None
            order.append(above)
        elif expr not in seen:
            seen.add(expr)
            if children := expr.children:
                stack += (expr, None, *children)
            else:
                order.append(expr)
    return order


def sources(*exprs: Expr) -> list[Buffer]:
    """Return the buffers that expressions read."""
    return [buffer for expr in walk(*exprs) for buffer in expr.reads()]


def mapped(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """Return an expression with all of it changed, from the bottom up.

    What nothing below has changed is given to `change` as it is.
    """
    changed: dict[Expr, Expr] = {}
    for node in walk(expr):
        new, old = node, node.children
        if old:
            children = [changed[child] for child in old]
            if not all(map(is_, children, old)):
                new = node.with_children(*children)
        changed[node] = change(new)
    return changed[expr]


def moved(expr: Expr, move: Move) -> Expr:
    """Return an expression for other axes: strides and offsets are changed."""
    return mapped(expr, lambda node: node.moved(move))


def rewrite(expr: Expr, strides: Callable[[Shape], Shape]) -> Expr:
    """Return an expression with every list of strides changed."""
    return moved(expr, lambda old, offset: (strides(old), offset))


def chained(op: str, exprs: Sequence[Expr]) -> Expr:
    """Return what an op makes of the first two, of that and the third, and so on."""
    return reduce(lambda a, b: Apply(a.dtype, op, (a, b)), exprs)


def fixed(expr: Expr, indices: Shape) -> Expr:
    """Return an expression with its loop's last axes fixed at some indices."""

    def fix(strides: Shape, offset: int) -> tuple[Shape, int]:
        outer = len(strides) - len(indices)
        start = sum(s * i for s, i in zip(strides[outer:], indices, strict=True))
        return strides[:outer], offset + start

    return moved(expr, fix)
