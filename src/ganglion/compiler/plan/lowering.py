"""Lowering: every value of the graph becomes a buffer, or is inlined where it is used.

A lazy value is asked for its element at affine indices of some loop, and answers with
an expression; so broadcasts, transposes and slices cost nothing, and chains of
pointwise ops are inlined into the kernel that stores their result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from ganglion.compiler.ir.graph import (
    Constant,
    Deep,
    Graph,
    Input,
    Node,
    Value,
    finished,
)
from ganglion.compiler.plan.kernels import (
    Apply,
    Buffer,
    Contract,
    Expr,
    Index,
    Indirect,
    Kernel,
    Literal,
    Load,
    Loop,
    Shape,
    Shuffled,
    Uniform,
    View,
    row_major,
)

# An index of a value as a function of the loop's axes: coefficients and a constant.
AffineIndex = tuple[Shape, int]
Indices = tuple[AffineIndex, ...]
Pairs = tuple[tuple[int, int], ...]

_COSTS = {"exp": 8, "log": 10, "tanh": 12, "sigmoid": 10, "erf": 12, "power": 20}
_COSTS |= {"log1p": 10, "expm1": 10, "sin": 12, "cos": 12, "divide": 3, "sqrt": 3}
_COSTS |= dict.fromkeys(("arcsin", "arccos", "arctan", "arctan2", "cbrt", "erfc"), 40)
CHEAP = 6  # recomputing this much costs less than storing and loading
_MOVEMENT = ("broadcast", "transpose", "slice", "reverse", "reshape", "iota", "field")
MAX_DEPTH, MAX_COST = 40, 200  # of an expression; beyond, values are stored
LONG_SUM = 4096  # elements


def never_packed(_: Contract) -> None:
    """Return no buffer for packed blocks of a product."""


@dataclass(frozen=True)
class Preferences:
    """What a target requires of lowering."""

    # Into how many equal parts a batch, or a long sum, is cut at most for threads to
    # share, whatever their number; a GPU cuts by itself.
    thread_splits: int = 1
    winograd: bool = False  # convolutions with fewer multiplications
    # The shape of a buffer for packed blocks of a product's matrices, None without.
    scratch_for: Callable[[Contract], Shape | None] = never_packed
    # Images whose convolution has one channel are stored with pixels side by side.
    pixels_side_by_side: bool = False
    # Of a convolution with few channels out of many, taps are the columns of a product.
    few_channels_by_taps: bool = False
    # A transposed convolution with strides is one convolution for each phase.
    strides_by_phase: bool = False
    # A depthwise kernel's gradient is sums of several taps; else a product a channel.
    depthwise_sums: bool = False
    # Windows of pools are walked through one after the other; else each element asks
    # the windows that it lies in, all at once.
    pools_by_window: bool = False


@lru_cache(maxsize=4096)
def thread_split(size: int, most: int) -> int:
    """Return into how many equal parts an axis is cut, of at most so many.

    >>> thread_split(128, 32), thread_split(100, 32), thread_split(97, 32)
    (32, 25, 1)
    """
    return max(n for n in range(1, most + 1) if size % n == 0)


@lru_cache(maxsize=4096)
def identity(shape: Shape) -> Indices:
    """Return the indices in a loop that runs over a value's own axes."""
    rank = len(shape)
    return tuple(
        (tuple(1 if j == i else 0 for j in range(rank)), 0) for i in range(rank)
    )


def _scaled(index: AffineIndex, factor: int, offset: int) -> AffineIndex:
    coefficients, constant = index
    return tuple(c * factor for c in coefficients), constant * factor + offset


class Lowering:
    """The state of lowering one graph: what is stored where, and the kernels so far."""

    def __init__(self, graph: Graph, data: set[str], target: Preferences) -> None:
        self.graph, self.target = graph, target
        self.kernels: list[Kernel] = []
        self.buffers: dict[Value, Buffer] = {}
        # Where values go that have a place of their own, and what fields of loops are.
        self.destinations: dict[Value, Buffer] = {}
        self._made: dict[Hashable, Buffer] = {}
        self.fields: dict[Value, Value] = {}
        self.count = 0
        for value in graph.inputs:
            kind = "data" if value.name in data else "state"
            buffer = Buffer(value.name, value.shape, value.dtype, kind)
            self.buffers[value] = buffer
        self._costs: dict[Value, int] = {}
        self._expensive: set[Value] = set()
        self._estimate()

    def _estimate(self) -> None:
        """Decide which lazy values are stored all the same: expensive or deep ones."""
        nodes = self.graph.nodes
        consumers = Counter(value for node in nodes for value in set(node.inputs))
        consumers.update(self.graph.outputs.values())
        self._only_readers: dict[Value, Node] = {
            value: node
            for node in nodes
            for value in node.inputs
            if consumers[value] == 1
        }
        depths: dict[Value, int] = {}
        for node in nodes:
            if node.op.kind != "pointwise" and node.op.name not in _LAZY:
                continue
            if node.op.name == "broadcast" and node.size > node.inputs[0].size:
                self._store_repeated(node.inputs[0])
            cost, depth = _own_cost(node), 1
            for value in node.inputs:
                cost += self._costs.get(value, 0)
                depth = max(depth, 1 + depths.get(value, 0))
            used_again = consumers[node] > 1 and cost > CHEAP
            movement = node.op.name in _MOVEMENT
            if depth > MAX_DEPTH or cost > MAX_COST or (used_again and not movement):
                self._expensive.add(node)
            else:
                self._costs[node], depths[node] = cost, depth

    def _store_repeated(self, x: Value) -> None:
        """Store what is repeated many times, rather than compute it many times."""
        if self._costs.get(x, 0) > 0:
            self._expensive.add(x)
            self._costs[x] = 0

    # ---- buffers and kernels -----------------------------------------------------

    def new(self, shape: Shape, dtype: np.dtype, name: str = "t") -> Buffer:
        """Return a new temporary buffer."""
        self.count += 1
        return Buffer(f"{name}{self.count}", shape, np.dtype(dtype), "arena")

    def allocate(self, value: Value) -> Buffer:
        """Return the buffer that a value is going to be stored in."""
        buffer = self.destinations.get(value) or self.new(value.shape, value.dtype)
        self.buffers[value] = buffer
        return buffer

    def once(self, key: Hashable, make: Callable[[], Buffer]) -> Buffer:
        """Return what was made under a key before, or make it: one copy serves all."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def emit(self, kernel: Kernel) -> None:
        """Append a kernel to the plan, unless it has nothing to store."""
        if not (isinstance(kernel, Loop) and 0 in kernel.outer):
            self.kernels.append(kernel)

    def store(self, value: Value) -> Buffer:
        """Return the buffer that holds a value, row by row, computing it if needed."""
        return self.buffers.get(value) or finished(self._storing(value))

    def _storing(self, value: Value) -> Deep[Buffer]:
        if value not in self.buffers:
            self.buffers[value] = yield self._computing(value)
        return self.buffers[value]

    def _computing(self, value: Value) -> Deep[Buffer]:
        if isinstance(value, Constant):
            array = np.ascontiguousarray(value.array)
            self.count += 1
            name = f"c{self.count}"
            return Buffer(name, value.shape, value.dtype, "constant", array)
        assert isinstance(value, Node)
        if value.op.name == "reshape":
            inner = yield self._storing(value.inputs[0])
            return self._reshaped(inner, value.shape)
        target = self.destinations.get(value) or self.new(value.shape, value.dtype)
        expr = yield self._expanding(value, identity(value.shape), force=True)
        self.emit(Loop.of(value.op.name, value.shape, expr, View.of(target)))
        return target

    def _reshaped(self, buffer: Buffer, shape: Shape) -> Buffer:
        """Return a buffer seen in another shape: the same memory."""
        return replace(buffer, shape=shape, alias_of=buffer.root)

    def view(self, value: Value) -> View:
        """Return a value as an affine view of a buffer, storing it if it is none."""
        if value in self.buffers or isinstance(value, Constant):
            return View.of(self.store(value))
        if self._is_movement(value):
            expr = self.at(value, identity(value.shape))
            if isinstance(expr, Load):
                return expr.view
        return View.of(self.store(value))

    def view_in_any_order(self, value: Value) -> View:
        """Return a view for which any order of axes will do: nothing is transposed."""
        base = value
        while (
            isinstance(base, Node)
            and base not in self.buffers
            and base.op.name == "transpose"
        ):
            base = base.inputs[0]
        if not self._is_slots(base):
            self.store(base)
        return self.view(value)

    def transposed_by(self, value: Value) -> Node | None:
        """Return the transposition of a value that is its only reader.

        It leaves the last axis where it is, so that rows can be stored in its order.
        """
        reader = self._only_readers.get(value)
        if reader is None or reader.op.name != "transpose":
            return None
        return reader if reader.attrs["axes"][-1] == value.ndim - 1 else None

    def _is_slots(self, value: Value) -> bool:
        """Return whether a value is some rows of a loop's results, in any shape."""
        while isinstance(value, Node) and value.op.name == "reshape":
            value = value.inputs[0]
        return value in self.fields

    def _is_movement(self, value: Value) -> bool:
        names = ("transpose", "slice", "reverse", "broadcast", "reshape", "field")
        while isinstance(value, Node) and value not in self.buffers:
            if value.op.name not in names:
                return False
            value = self.fields.get(value, value.inputs[0])
        return True

    def is_contiguous(self, value: Value) -> bool:
        """Return whether a value is some rows of a loop's results, one by one."""
        if value not in self.fields:
            return False
        view = self.view(value)
        return view.strides == row_major(value.shape)

    # ---- expressions ---------------------------------------------------------------

    def at(self, value: Value, indices: Indices, force: bool = False) -> Expr:
        """Return the expression of a value's element at some indices.

        With `force`, the value itself is expanded even where it should be stored.
        """
        known = self._known(value, indices)
        return known or finished(self._expanding(value, indices, force))

    # An expression is no deeper than `MAX_DEPTH`: its parts are expanded in place. What
    # must be stored first may lead as far as the graph is long.

    def _expanding(
        self, value: Value, indices: Indices, force: bool = False
    ) -> Deep[Expr]:
        if (expr := self._known(value, indices)) is not None:
            return expr
        if isinstance(value, (Constant, Input)):
            return self._load((yield self._storing(value)), indices)
        assert isinstance(value, Node)
        lazy = _LAZY.get(value.op.name)
        if value.op.kind == "pointwise":
            lazy = _pointwise
        if lazy is None or not (force or self._is_inlined(value)):
            return self._load((yield self._storing(value)), indices)
        return (yield from lazy(self, value, indices))

    def _known(self, value: Value, indices: Indices) -> Expr | None:
        """Return the element of a number, or of what is stored by now; else None."""
        if isinstance(value, Constant) and value.size == 1:
            return Literal(value.dtype, value.array.item())
        buffer = self.buffers.get(value)
        return None if buffer is None else self._load(buffer, indices)

    def _load(self, buffer: Buffer, indices: Indices) -> Load:
        strides, offset = _combined(indices, row_major(buffer.shape))
        return Load(buffer.dtype, View(buffer, strides, offset))

    def _is_inlined(self, value: Node) -> bool:
        """Return whether to compute a value where it is used, instead of storing it."""
        name = value.op.name
        if value in self._expensive or name == "shuffle":
            return False
        if name == "reshape":
            (x,) = value.inputs
            splits = _split_axes(x.shape, value.shape) is not None
            return splits or self.is_contiguous(x)
        return True


def _own_cost(node: Node) -> int:
    if node.op.kind == "pointwise":
        return _COSTS.get(node.op.name, 1)
    if node.op.name in ("random_uniform", "shuffle"):
        return 100
    return 1 if node.op.name in ("iota", "gather") else 0


@lru_cache(maxsize=4096)
def _combined(indices: Indices, strides: Shape) -> tuple[Shape, int]:
    """Multiply indices by strides: the flat index, affine in the loop's axes."""
    if not indices:
        return (), 0
    rank = len(indices[0][0])
    total = [0] * rank
    offset = 0
    for (coefficients, constant), stride in zip(indices, strides, strict=True):
        offset += constant * stride
        for axis, coefficient in enumerate(coefficients):
            total[axis] += coefficient * stride
    return tuple(total), offset


def _pointwise(low: Lowering, node: Node, indices: Indices) -> Deep[Expr]:
    args: list[Expr] = []
    for value in node.inputs:
        known = low._known(value, indices)  # most are: no call has to wait for them
        args.append(known or (yield from low._expanding(value, indices)))
    if node.op.name == "cast" and node.dtype == args[0].dtype:
        return args[0]
    return Apply(node.dtype, node.op.name, tuple(args))


def _broadcast(low: Lowering, node: Node, indices: Indices) -> Deep[Expr]:
    (x,) = node.inputs
    own = indices[len(indices) - x.ndim :]
    rank = len(indices[0][0]) if indices else 0
    first = ((0,) * rank, 0)
    inner = tuple(
        first if size == 1 else index for size, index in zip(x.shape, own, strict=True)
    )
    return (yield from _expanding_inner(low, x, inner, rank))


def _expanding_inner(low: Lowering, x: Value, inner: Indices, rank: int) -> Deep[Expr]:
    """Expand a value; a scalar has no index that says how many axes the loop has."""
    if inner or rank == 0 or isinstance(x, Constant):
        return low._known(x, inner) or (yield from low._expanding(x, inner))
    buffer = yield low._storing(x)
    return Load(buffer.dtype, View(buffer, (0,) * rank))


def _transpose(low: Lowering, node: Node, indices: Indices) -> Deep[Expr]:
    inner: list[AffineIndex] = [indices[0]] * node.ndim
    for axis, source in enumerate(node.attrs["axes"]):
        inner[source] = indices[axis]
    return (yield from low._expanding(node.inputs[0], tuple(inner)))


def _slice(low: Lowering, node: Node, indices: Indices) -> Deep[Expr]:
    spans = zip(indices, node.attrs["starts"], node.attrs["steps"], strict=True)
    inner = tuple(_scaled(index, step, start) for index, start, step in spans)
    return (yield from low._expanding(node.inputs[0], inner))


def _reverse(low: Lowering, node: Node, indices: Indices) -> Deep[Expr]:
    inner = tuple(
        _scaled(index, -1, size - 1) if axis in node.attrs["axes"] else index
        for axis, (index, size) in enumerate(zip(indices, node.shape, strict=True))
    )
    return (yield from low._expanding(node.inputs[0], inner))


def _split_axes(old: Shape, new: Shape) -> list[tuple[int, ...]] | None:
    """Return, for each old axis, the new axes it was split into, None if any merged.

    >>> _split_axes((6, 4), (2, 3, 1, 4))
    [(0, 1), (2, 3)]
    >>> _split_axes((2, 3), (6,)) is None
    True
    """
    groups, at = [], 0
    for size in old:
        taken, product = [], 1
        while at < len(new) and product < size:
            product *= new[at]
            taken.append(at)
            at += 1
        if product != size:
            return None
        groups.append(tuple(taken))
    return groups if all(n == 1 for n in new[at:]) else None


def _reshape(low: Lowering, node: Node, indices: Indices) -> Deep[Expr]:
    (x,) = node.inputs
    groups = _split_axes(x.shape, node.shape)
    if groups is None and low.is_contiguous(x):
        view = low.view(x)
        strides, offset = _combined(indices, row_major(node.shape))
        return Load(node.dtype, View(view.buffer, strides, view.offset + offset))
    if groups is None:
        return low._load((yield low._storing(node)), indices)
    rank = len(indices[0][0]) if indices else 0
    inner = []
    for group in groups:
        sizes = tuple(node.shape[axis] for axis in group)
        chosen = tuple(indices[axis] for axis in group)
        flat, offset = _combined(chosen, row_major(sizes))
        inner.append((flat if group else (0,) * rank, offset))
    return (yield from _expanding_inner(low, x, tuple(inner), rank))


def _field(low: Lowering, node: Node, indices: Indices) -> Deep[Expr]:
    return (yield low._expanding(low.fields[node], indices))


def _iota(low: Lowering, node: Node, indices: Indices) -> Deep[Expr]:
    yield from ()  # a generator, as its siblings are: it asks for nothing
    (coefficients, constant) = indices[0]
    return Index(node.dtype, coefficients, constant)


def _gather(low: Lowering, node: Node, indices: Indices) -> Deep[Expr]:
    table, index = node.inputs
    buffer = yield low._storing(table)
    rank = len(indices[0][0]) if indices else 0
    row = yield from _expanding_inner(low, index, indices[: index.ndim], rank)
    strides, offset = _combined(indices[index.ndim :], row_major(table.shape[1:]))
    size = int(np.prod(table.shape[1:], dtype=np.int64))
    within = strides or (0,) * rank
    return Indirect(node.dtype, buffer, row, table.shape[0], size, within, offset)


def _uniform(low: Lowering, node: Node, indices: Indices) -> Deep[Expr]:
    strides, offset = _combined(indices, row_major(node.shape))
    element = Index(np.dtype("int64"), strides, offset)
    state = yield low._storing(node.inputs[0])
    return Uniform(node.dtype, state, element)


def _shuffle(low: Lowering, node: Node, indices: Indices) -> Deep[Expr]:
    state, position = node.inputs
    expr = yield low._expanding(position, indices)
    stored = yield low._storing(state)
    return Shuffled(node.dtype, stored, expr, node.attrs["rows"])


_LAZY: dict[str, Callable[[Lowering, Node, Indices], Deep[Expr]]] = {
    "broadcast": _broadcast,
    "transpose": _transpose,
    "slice": _slice,
    "reverse": _reverse,
    "reshape": _reshape,
    "field": _field,
    "iota": _iota,
    "gather": _gather,
    "random_uniform": _uniform,
    "shuffle": _shuffle,
}


# ---- copying into a larger array ----------------------------------------------------


def copy_into(
    low: Lowering, x: Value, target: View, pairs: Pairs, interior: Shape
) -> None:
    """Copy a value into a larger one, after and between what is left free."""
    if x.size == 0:
        return
    strides = tuple(s * (i + 1) for s, i in zip(target.strides, interior, strict=True))
    offset = sum(lo * s for (lo, _), s in zip(pairs, target.strides, strict=True))
    view = View(target.buffer, strides, target.offset + offset)
    low.emit(Loop.of("copy", x.shape, low.at(x, identity(x.shape)), view))


def fill_border(low: Lowering, target: View, shape: Shape, pairs: Pairs) -> None:
    """Fill what lies outside of an array, which is `pairs` larger, with zeros."""
    dtype = target.buffer.dtype
    inside = [(lo, n) for n, (lo, _) in zip(shape, pairs, strict=True)]
    padded = [(0, lo + n + hi) for n, (lo, hi) in zip(shape, pairs, strict=True)]
    for axis, (lo, hi) in enumerate(pairs):
        for start, size in ((0, lo), (lo + shape[axis], hi)):
            strip = [*inside[:axis], (start, size), *padded[axis + 1 :]]
            sizes = tuple(size for _, size in strip)
            offset = sum(
                n * stride for (n, _), stride in zip(strip, target.strides, strict=True)
            )
            if 0 not in sizes:
                view = replace(target, offset=target.offset + offset)
                low.emit(Loop.of("fill", sizes, Literal(dtype, 0.0), view))


def padded_images(low: Lowering, x: Value, pairs: Pairs, interior: Shape) -> View:
    """Return images with zeros around (and between) their pixels."""
    if not any(lo or hi for lo, hi in pairs) and not any(interior):
        view = low.view(x)
        return view if view.strides[-1] == 1 else View.of(low.store(x))
    spans = zip(x.shape[1:-1], pairs, interior, strict=True)
    spatial = tuple(n + lo + hi + max(n - 1, 0) * i for n, (lo, hi), i in spans)
    target = low.new((x.shape[0], *spatial, x.shape[-1]), x.dtype, "pad")
    padded = View.of(target)
    low.emit(Loop.of("fill", target.shape, Literal(x.dtype, 0.0), padded))
    copy_into(low, x, padded, ((0, 0), *pairs, (0, 0)), (0, *interior, 0))
    return padded


def contiguous(low: Lowering, view: View, shape: Shape, order: Shape) -> View:
    """Copy a view so that its axes lie in memory in the given order."""
    sizes = tuple(shape[i] for i in order)
    target = low.new(sizes, view.buffer.dtype)
    source = View(view.buffer, tuple(view.strides[i] for i in order), view.offset)
    low.emit(Loop.of("pack", sizes, Load(source.buffer.dtype, source), View.of(target)))
    strides = [0] * len(shape)
    for position, axis in enumerate(order):
        strides[axis] = row_major(sizes)[position]
    return View(target, tuple(strides))
