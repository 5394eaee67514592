"""The parts of a plan: buffers, affine views of them, expressions and kernels.

A kernel is a loop nest over affine views. It knows what it reads and writes, its
estimated cost, its footprint unit by unit, and its meaning in NumPy. How to compute it
fast is up to the targets.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, reduce
from operator import is_
from typing import Any, ClassVar

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ganglion.compiler.ir import graph
from ganglion.compiler.ir.graph import BFLOAT16, kept
from ganglion.compiler.ir.host import HostFunction
from ganglion.compiler.ir.shaping import is_float
from ganglion.compiler.ir.table import OPS
from ganglion.system.records import record

Shape = tuple[int, ...]
BufferKey = tuple[str, str]  # kind and name
Move = Callable[[Shape, int], tuple[Shape, int]]  # of strides and an offset

# Rough costs in nanoseconds on a single core: decisions depend on factors of ten.
CALL, MULTIPLY_ADD, BYTE = 20.0, 0.025, 0.1
ELEMENT, FUNCTION, DRAW, SHUFFLE = 0.04, 0.7, 4.0, 60.0
FUNCTIONS = {"exp", "log", "tanh", "sigmoid", "erf", "power", "log1p", "expm1"}
FUNCTIONS |= {"sin", "cos", "divide", "sqrt", "erfc", "arcsin", "arccos", "arctan"}
FUNCTIONS |= {"arctan2", "cbrt", "nextafter"}


@record(eq=False)
class Buffer:
    """A block of memory: an input, a constant, a result, or temporary."""

    name: str
    shape: Shape
    dtype: np.dtype
    # "data", "state", "constant", "arena", "result", "window", "host" (a function) or
    # "register" (values without memory, from a kernel to its epilogue)
    kind: str
    array: np.ndarray | None = None  # of constants
    alias_of: Buffer | None = None  # the buffer that owns its memory, if another does
    function: HostFunction | None = None  # that a host call runs

    @property
    def root(self) -> Buffer:
        """The buffer that owns the memory: itself, or the one that it reshapes."""
        return self.alias_of or self

    @kept
    def key(self) -> BufferKey:
        """The identity of its memory, shared by buffers of other shapes and types."""
        return self.kind, self.name

    @kept
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @kept
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
    """Return the lowest and the highest element that a loop accesses.

    >>> extent((4, -1), 3, (2, 4))
    (0, 7)
    """
    spans = [s * (n - 1) for s, n in zip(strides, shape, strict=True)]
    low = sum(span for span in spans if span < 0)
    high = sum(span for span in spans if span > 0)
    return offset + low, offset + high


@record
class View:
    """Elements of a buffer at offset + sum(index * stride), with a stride per axis."""

    buffer: Buffer
    strides: Shape
    offset: int = 0

    @staticmethod
    def of(buffer: Buffer) -> View:
        """Return the view of a buffer along its own axes."""
        return View(buffer, row_major(buffer.shape))


class Memory:
    """The arrays of a step, as the interpreter of kernels sees them."""

    def __init__(
        self, named: Mapping[str, np.ndarray], arena: Mapping[Buffer, np.ndarray]
    ) -> None:
        self._named, self._arena = named, arena
        # Windows of a time loop at a step, and registers that epilogues read.
        self.passing: dict[BufferKey, np.ndarray] = {}

    def flat(self, buffer: Buffer) -> np.ndarray:
        """Return the elements of a buffer as a flat array."""
        if buffer.array is not None:
            return buffer.array.reshape(-1)
        if buffer.kind in ("window", "register"):
            return self.passing[buffer.key]
        if buffer.kind != "arena":
            return self._named[buffer.name].reshape(-1)
        return self._arena[buffer.root]

    def see(self, view: View, shape: Shape) -> np.ndarray:
        """Return a view as a NumPy array."""
        flat = self.flat(view.buffer)
        steps = tuple(s * flat.itemsize for s in view.strides)
        return as_strided(flat[view.offset :], shape, steps)

    def array(self, buffer: Buffer) -> np.ndarray:
        """Return a buffer in its own shape."""
        return self.flat(buffer).reshape(buffer.shape)

    def evaluate(self, exprs: Sequence[Expr], shape: Shape) -> list[np.ndarray]:
        """Return the values of expressions at every point of a loop."""
        known: dict[Expr, np.ndarray] = {}
        for expr in walk(*exprs):
            args = [known[child] for child in expr.children]
            value = expr.evaluate(args, shape, self)
            known[expr] = np.broadcast_to(value, shape)
        return [known[expr] for expr in exprs]


# ---- expressions -------------------------------------------------------------------


@record(eq=False)
class Expr:
    """What an iteration of a loop computes."""

    dtype: np.dtype

    @property
    def children(self) -> tuple[Expr, ...]:
        """The operands."""
        return ()

    def with_children(self, *children: Expr) -> Expr:
        """Return the expression with other operands."""
        return self

    @property
    def cost(self) -> float:
        """Its estimated nanoseconds, without its children."""
        return ELEMENT

    def reads(self) -> tuple[Buffer, ...]:
        """Return the buffers that it reads, without its children."""
        return ()

    def moved(self, move: Move) -> Expr:
        """Return the expression over other axes, by changing strides and offsets."""
        return self

    def evaluate(self, args: list[np.ndarray], shape: Shape, memory: Memory) -> Any:
        """Return its value in NumPy, given the values of its children."""
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
    """The integer offset + sum(index * stride) at each point of a loop."""

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
    """A pointwise op of the graph, applied to other expressions."""

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
    """A gather: an element of a table's row that an index selects."""

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
    """A uniform random number from a generator's state, by the element's number."""

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
    """The row at a position of a random permutation."""

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


def walk(*exprs: Expr) -> list[Expr]:
    """Return expressions and their subexpressions in postorder, without duplicates."""
    order: list[Expr] = []
    seen: set[Expr] = set()
    stack: list[Expr | None] = [*reversed(exprs)]
    while stack:
        expr = stack.pop()
        if expr is None:  # the operands of the next expression are in the list
            order.append(stack.pop())  # type: ignore[arg-type]
        elif expr not in seen:
            seen.add(expr)
            if type(expr) is Load or type(expr) is Literal:  # most have no operands
                order.append(expr)
            elif children := expr.args if type(expr) is Apply else expr.children:
                stack += (expr, None)
                stack += children
            else:
                order.append(expr)
    return order


def sources(*exprs: Expr) -> list[Buffer]:
    """Return the buffers that expressions read."""
    return [buffer for expr in walk(*exprs) for buffer in expr.reads()]


def mapped(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """Return an expression with every node changed, bottom-up.

    `change` gets the original node where none of its operands have changed.
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
    """Return an expression over other axes, by changing all strides and offsets."""
    return mapped(expr, lambda node: node.moved(move))


def rewrite(expr: Expr, strides: Callable[[Shape], Shape]) -> Expr:
    """Return an expression with all of its strides changed."""
    return moved(expr, lambda old, offset: (strides(old), offset))


def chained(op: str, exprs: Sequence[Expr]) -> Expr:
    """Return the left fold of an op over expressions."""
    return reduce(lambda a, b: Apply(a.dtype, op, (a, b)), exprs)


def fixed(expr: Expr, indices: Shape) -> Expr:
    """Return an expression with the last axes of its loop fixed at some indices."""

    def fix(strides: Shape, offset: int) -> tuple[Shape, int]:
        outer = len(strides) - len(indices)
        start = sum(s * i for s, i in zip(strides[outer:], indices, strict=True))
        return strides[:outer], offset + start

    return moved(expr, fix)


# ---- kernels -----------------------------------------------------------------------

LANES = 16  # of a vector
MAX_OUTPUTS = 12  # of a loop: more would spill registers
Touched = tuple[View, Shape] | Buffer  # an affine access, or any part of a buffer


@record
class Footprint:
    """A kernel divided into equal units, and the buffers that are divided alike.

    Of a buffer in `own`, unit u of n touches only the u-th of n equal parts. The kernel
    may run several units at a time: `grain` of them, except for the last.
    """

    units: int
    own: frozenset[Buffer]
    grain: int = 1

    @staticmethod
    def of(units: int, touched: Iterable[Touched]) -> Footprint:
        """Return the footprint of a kernel with this many units."""
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
    """Return whether each index of the first axis touches an equal part of a buffer."""
    step = view.strides[0]
    if step * shape[0] != view.buffer.size:
        return False
    lowest, highest = extent(view.strides[1:], view.offset, shape[1:])
    return lowest >= 0 and highest < step


def touched_by(exprs: Iterable[Expr], shape: Shape) -> Iterator[Touched]:
    """Yield what expressions of a loop read themselves, without subexpressions."""
    for expr in exprs:
        if isinstance(expr, Load):
            yield expr.view, shape
        else:
            yield from expr.reads()


def _leaves(exprs: Iterable[Expr]) -> list[Expr]:
    return [x for x in exprs if type(x) is not Apply and type(x) is not Literal]


def _above_changed(expr: Expr, changed: Mapping[Expr, Expr]) -> Expr:
    """Return an expression with its operands replaced by those in `changed`."""
    if type(expr) is Apply:
        args = tuple([changed[arg] for arg in expr.args])
        is_same = all(map(is_, args, expr.args))
        return expr if is_same else Apply(expr.dtype, expr.op, args)
    children = expr.children
    if not children:
        return expr
    new = [changed[child] for child in children]
    return expr if all(map(is_, new, children)) else expr.with_children(*new)


@record(eq=False)
class Kernel:
    """An entry of a plan, with `parallel` pieces that may run at the same time."""

    name: str

    @property
    def parallel(self) -> int:
        """How many independent pieces the kernel has."""
        raise NotImplementedError

    @property
    def cost(self) -> float:
        """Its estimated nanoseconds on a single core."""
        return CALL + BYTE * sum(b.nbytes for b in {*self.reads(), *self.writes()})

    def reads(self) -> list[Buffer]:
        """Return the buffers that are read."""
        raise NotImplementedError

    def writes(self) -> list[Buffer]:
        """Return the buffers that are written."""
        raise NotImplementedError

    @kept
    def memory_read(self) -> frozenset[Buffer]:
        """The memory that is read."""
        return frozenset([buffer.root for buffer in self.reads()])

    @kept
    def memory_written(self) -> frozenset[Buffer]:
        """The memory that is written."""
        return frozenset([buffer.root for buffer in self.writes()])

    @kept
    def memory_touched(self) -> frozenset[Buffer]:
        """The memory that is read or written."""
        return self.memory_read | self.memory_written

    def private(self) -> list[Buffer]:
        """Return scratch buffers of which each thread uses a part of its own."""
        return []

    def fault(self) -> str | None:
        """Return what is wrong with the kernel, None if it is valid."""
        return None

    def footprint(self) -> Footprint | None:
        """Return how it can be split along its first axis, None if it cannot."""
        return None

    @kept
    def known_footprint(self) -> Footprint | None:
        """Its footprint, computed once."""
        return self.footprint()

    def run(self, memory: Memory) -> None:
        """Run the kernel in NumPy, which defines its meaning."""
        raise NotImplementedError

    def describe(self) -> str:
        """Return the kernel as text, for a printed plan."""
        reads = ", ".join(repr(buffer) for buffer in self.reads())
        writes = ", ".join(repr(buffer) for buffer in self.writes())
        return f"{self.name}: {writes} from {reads}"


@record(eq=False)
class Loop(Kernel):
    """A loop nest over `shape` that computes expressions, reduces and stores them.

    The last `reduced` axes are reduced by `how` ("sum", "max" or "argmax"); without
    them, every point is stored. Each output has its own view. With `adds`, results are
    added to the elements stored before, in the order of the loop: an element may be
    updated repeatedly, except along the first axis.
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
        """The expression of each output."""
        return [expr for expr, _ in self.outputs]

    @property
    def expr(self) -> Expr:
        """The expression of the first output."""
        return self.outputs[0][0]

    @property
    def target(self) -> View:
        """The view that stores the first output."""
        return self.outputs[0][1]

    @kept
    def every_expr(self) -> tuple[Expr, ...]:
        """All expressions and subexpressions, as `walk` returns them."""
        return tuple(walk(*self.exprs))

    def with_outputs(self, outputs: tuple[tuple[Expr, View], ...]) -> Loop:
        """Return a loop over the same points with other outputs."""
        return Loop(self.name, self.shape, outputs, self.reduced, self.how, self.adds)

    def with_outputs_of(self, other: Loop) -> Loop:
        """Return a loop with the outputs of both, without walking expressions again."""
        loop = self.with_outputs((*self.outputs, *other.outputs))
        known = set(self.every_expr)
        new = [expr for expr in other.every_expr if expr not in known]
        vars(loop).update(
            every_expr=(*self.every_expr, *new),
            leaves=(*self.leaves, *_leaves(new)),
            memory_read=self.memory_read | other.memory_read,
            memory_written=self.memory_written | other.memory_written,
        )
        return loop

    def with_axes(
        self,
        shape: Shape,
        reduced: int,
        targets: Sequence[View],
        move: Move,
        moved_to: dict[Expr, Expr],
    ) -> Loop:
        """Return the loop over other axes; `move` changes strides and offsets.

        `moved_to` caches moved expressions, which loops may share.
        """
        every = self._changed(lambda expr: expr.moved(move), moved_to)
        exprs = [moved_to[expr] for expr in self.exprs]
        outputs = tuple(zip(exprs, targets, strict=True))
        loop = Loop(self.name, shape, outputs, reduced, self.how, self.adds)
        vars(loop).update(
            every_expr=every,
            memory_read=self.memory_read,
            memory_written=self.memory_written,
        )
        return loop

    def with_exprs(
        self, change: Callable[[Expr], Expr], changed: dict[Expr, Expr]
    ) -> Loop:
        """Return the loop with all expressions changed; `changed` caches results."""
        every = self._changed(change, changed)
        outputs = tuple([(changed[expr], view) for expr, view in self.outputs])
        loop = self.with_outputs(outputs)
        vars(loop).update(every_expr=every)
        return loop

    def _changed(
        self, change: Callable[[Expr], Expr], changed: dict[Expr, Expr]
    ) -> tuple[Expr, ...]:
        """Return all expressions, changed; add them to `changed`."""
        for expr in self.every_expr:
            if expr not in changed:
                changed[expr] = change(_above_changed(expr, changed))
        return tuple([changed[expr] for expr in self.every_expr])

    @property
    def outer(self) -> Shape:
        """The axes that are stored."""
        return self.shape[: len(self.shape) - self.reduced]

    @property
    def parallel(self) -> int:
        return self.outer[0] if self.outer else 1

    @kept
    def cost(self) -> float:
        single = len(self.outputs) == 1
        exprs = self.every_expr if single else walk(self.expr)
        each = sum([expr.cost for expr in exprs])
        # A short last axis leaves most lanes of a vector empty.
        narrow = LANES / min(LANES, max(self.shape[-1:] or (1,)))
        return CALL + math.prod(self.shape) * each * min(narrow, 8.0)

    @kept
    def temporary_bytes(self) -> int:
        """An upper bound of the bytes that it reads from other kernels' results."""
        points = math.prod(self.shape)
        temporary = [buffer for buffer in self.memory_read if buffer.kind == "arena"]
        return sum([min(b.nbytes, points * b.dtype.itemsize) for b in temporary])

    def reads(self) -> list[Buffer]:
        return list(self._read)

    @kept
    def leaves(self) -> tuple[Expr, ...]:
        """The expressions that read memory, or depend on the loop's indices."""
        return tuple(_leaves(self.every_expr))

    @kept
    def _read(self) -> tuple[Buffer, ...]:

        buffers = [buffer for expr in self.leaves for buffer in expr.reads()]
        return (*buffers, self.target.buffer) if self.adds else tuple(buffers)

    @kept
    def memory_read(self) -> frozenset[Buffer]:
        return frozenset([buffer.alias_of or buffer for buffer in self._read])

    @kept
    def _readers(self) -> dict[Buffer, list[Expr]]:
        readers: dict[Buffer, list[Expr]] = {}
        for expr in self.leaves:
            for buffer in expr.reads():
                readers.setdefault(buffer.root, []).append(expr)
        return readers

    def reading(self, memory: Buffer) -> Sequence[Expr]:
        """Return the expressions that read from some memory."""
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
        # The only axis is vectorized: units are complete vectors.
        vectors, rest = divmod(footprint.units, LANES)
        return None if rest else Footprint(vectors, footprint.own)

    def by_rows(self) -> Footprint:
        """Return the footprint with each index of the first axis as a unit."""
        return self._by_rows

    @kept
    def _by_rows(self) -> Footprint:
        return Footprint.of(self.shape[0], self.touched())

    def touched(self) -> list[Touched]:
        """Return all accesses: what is stored and what is read."""
        stored = [(view, self.outer) for _, view in self.outputs]
        return [*stored, *touched_by(self.leaves, self.shape)]

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
    """Return which view is out of bounds in a loop, None if none is."""
    for view in views:
        if len(view.strides) != len(shape):
            return f"has other axes than {view}"
        low, high = extent(view.strides, view.offset, shape)
        if 0 not in shape and (low < 0 or high >= max(view.buffer.size, 1)):
            return f"leaves {view.buffer!r}: [{low}, {high}]"
    return None


@record
class NonzeroIndices:
    """Lists of the inner indices at which a group of rows has a nonzero element.

    For each index of the batch and each `group` of rows (the last may be smaller), the
    buffer has a header of `HEAD` numbers, followed by the indices. The first number is
    their count, or -1 for all indices, which are then read from `every`.
    """

    HEAD: ClassVar[int] = 16  # numbers, so that indices start at a cache line

    buffer: Buffer
    group: int
    every: Buffer


@record
class Axis:
    """An axis of a contraction: its extent, and its strides in left, right and out."""

    size: int
    left: int = 0
    right: int = 0
    out: int = 0


@record(eq=False)
class Contract(Kernel):
    """out[b, m, n] = sum over k of left[b, m, k] * right[b, k, n].

    Each index stands for several axes, with an extent and a stride in the three arrays.
    The last axis of `columns` is contiguous in `out`, and in `right` unless there is a
    `packed` buffer, into which panels of its columns are copied before use.

    - With `nonzeros`, left is zero except at the listed inner indices, and with `bits`,
      a bit per element of left's buffer, except where the bit is set: such products may
      be skipped.
    - `sums` stores the sums of right's columns over the inner axis.
    - `prefetched` are buffers that a target may prefetch into its cache meanwhile, an
      equal part at each index of the first axis.
    - Operands of a `rounded` contraction are rounded to bfloat16, halves to even.
    - The `epilogue` is a loop over the axes of the result, in their order, that reads
      its elements. If it is their only reader, `out` is of the kind "register".
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
    packed: Buffer | None = None  # (parts, elements): a part for each thread
    sums: Buffer | None = None
    prefetched: tuple[Buffer, ...] = ()
    rounded: bool = False
    epilogue: Loop | None = None

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

    @graph.kept
    def cost(self) -> float:
        count = math.prod([axis.size for axis in self.axes])
        width = self.columns[-1].size if self.columns else 1
        more = self.epilogue.cost if self.epilogue else CALL
        return more + count * MULTIPLY_ADD * LANES / min(LANES, max(width, 1))

    def reads(self) -> list[Buffer]:
        lists = [self.nonzeros.buffer] if self.nonzeros else []
        bits = [self.bits] if self.bits else []
        more = self.epilogue.reads() if self.epilogue else []
        more = [buffer for buffer in more if buffer.root is not self.out.buffer.root]
        return [self.left.buffer, self.right.buffer, *lists, *bits, *more]

    def writes(self) -> list[Buffer]:
        out = [] if self.out.buffer.kind == "register" else [self.out.buffer]
        sums = [self.sums] if self.sums else []
        more = self.epilogue.writes() if self.epilogue else []
        return [*out, *sums, *self.private(), *more]

    def private(self) -> list[Buffer]:
        return [self.packed] if self.packed else []

    def fault(self) -> str | None:
        out, epilogue = self.out, self.epilogue
        if epilogue is None:
            is_lost = out.buffer.kind == "register"
            return "does not store its result" if is_lost else None
        strides = tuple(axis.out if axis.size > 1 else 0 for axis in self.kept)
        own = all(
            isinstance(expr, Load) and expr.view.strides == strides
            for expr in epilogue.reading(out.buffer.root)
        )
        shape = tuple(axis.size for axis in self.kept)
        if not own or epilogue.shape != shape or epilogue.reduced or epilogue.adds:
            return "has an epilogue of other elements"
        return epilogue.fault()

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
            touched.append(self.bits)  # words overlap with the next image's bits
        if self.epilogue:
            touched += self.epilogue.touched()
        return Footprint.of(self.batch[0].size, touched)

    def run(self, memory: Memory) -> None:
        def operand(view: View, side: str) -> np.ndarray:
            # Axes that an operand does not have stay at size 1.
            own = tuple(axis.size if getattr(axis, side) else 1 for axis in self.axes)
            return memory.see(_along(view, side, self.axes), own)

        left, right = operand(self.left, "left"), operand(self.right, "right")
        if self.rounded:
            left, right = (x.astype(BFLOAT16).astype(x.dtype) for x in (left, right))
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
        target = self.out.buffer
        if target.kind == "register":
            memory.passing[target.key] = np.empty(target.size, target.dtype)
        out = memory.see(_along(self.out, "out", self.kept), shape)
        out[...] = product.reshape(ones)
        if self.sums:
            memory.flat(self.sums)[...] = right.sum(axis=-1).reshape(-1)
        if self.epilogue:
            self.epilogue.run(memory)

    def _listed(self, lists: NonzeroIndices, memory: Memory) -> np.ndarray:
        """Return a mask of the left operand's elements at listed indices."""
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
