"""Lowering: every value of a graph becomes a buffer, or is inlined where it is used.

A lazy value returns an expression for its element at affine indices of a loop. So
broadcasts, transposes and slices cost nothing, and chains of pointwise ops are inlined
into the kernel that stores their result. Reductions, contractions, and the results and
new states of a program are emitted as kernels.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from functools import cache, lru_cache, reduce
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from ganglion.compiler.ir import host
from ganglion.compiler.ir.graph import (
    BFLOAT16,
    FLOAT32,
    Constant,
    Graph,
    Node,
    Op,
    Program,
    ShapeError,
    Value,
)
from ganglion.compiler.plan.kernels import (
    MAX_OUTPUTS,
    Apply,
    Axis,
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
    rewrite,
    row_major,
)
from ganglion.compiler.plan.plan import Plan
from ganglion.compiler.plan.scan_scatter import Scan
from ganglion.system.records import record

# An index of a value, affine in the indices of a loop: coefficients and a constant.
AffineIndex = tuple[Shape, int]
Indices = tuple[AffineIndex, ...]
Pairs = tuple[tuple[int, int], ...]
# Lowering rules of ops, by name; host calls by their kind. See `rules`.
Rules = Mapping[str, Callable[["Lowering", Node], None]]

_COSTS = {"exp": 8, "log": 10, "tanh": 12, "sigmoid": 10, "erf": 12, "power": 20}
_COSTS |= {"log1p": 10, "expm1": 10, "sin": 12, "cos": 12, "divide": 3, "sqrt": 3}
_COSTS |= dict.fromkeys(("arcsin", "arccos", "arctan", "arctan2", "cbrt", "erfc"), 40)
_LAZY_COSTS = {"random_uniform": 100, "shuffle": 100, "iota": 1, "gather": 1}
CHEAP = 6  # recomputing this much costs less than storing and loading
_MOVEMENT = ("broadcast", "transpose", "slice", "reverse", "reshape", "iota", "field")
MAX_DEPTH, MAX_COST = 40, 200  # of an expression; beyond, values are stored
LONG_SUM = 4096  # elements
LONG_INNER, FEW_RESULTS = 2048, 4096  # of a product whose sums threads share
LONG_PART = 256  # inner indices of a part of such a sum, at least
LANES = 16  # rows or columns: products with fewer are thin
MAX_PARTIAL_SUMS = 1 << 17  # elements of all partial sums
DOT_ROWS = 1  # of a product by a transposed matrix that is not copied, at most
COLUMN_ROWS = 4  # likewise, where a product with a single column is as fast
PART_ROWS = 64  # at least: fewer would load the right matrix too often
CACHED_ELEMENTS = 2**17  # of a right matrix that stays in the cache
LARGE_PART_ROWS, FEWEST_PARTS = 256, 8  # if it does not


def never_packed(_: Contract) -> None:
    """Return None: products are never packed."""


def never_summed(_: Contract) -> bool:
    """Return False: products are never computed by sums along rows."""
    return False


@record(guarded=True)
class Preferences:
    """What a target requires of lowering."""

    # The largest number of equal parts into which a batch, or a long sum, is divided
    # for threads, whatever their number; a GPU divides work by itself.
    thread_splits: int = 1
    winograd: bool = False  # convolve by Winograd's method where it pays
    # Store the points of all tiles where blocks of tiles would read more weights than a
    # second-level cache holds again and again.
    winograd_by_point: bool = True
    # Returns the shape of a buffer for packed blocks of a product, None for no packing.
    scratch_for: Callable[[Contract], Shape | None] = never_packed
    # Whether a product with a single column is computed by sums along its rows: then
    # one of few rows by a transposed matrix has a column for each of its rows.
    sums_along_rows: Callable[[Contract], bool] = never_summed
    rounds_products: bool = False  # round operands of float32 products to bfloat16
    # Store images with adjacent pixels if their convolution has a single channel.
    pixels_side_by_side: bool = False
    # Compute convolutions from many to few channels with taps as columns of a product.
    few_channels_by_taps: bool = False
    # Split a strided transposed convolution into a convolution for each phase.
    strides_by_phase: bool = False
    # Compute a depthwise kernel's gradient by sums of several taps, not a product each.
    depthwise_sums: bool = False
    # Run over windows of pools one after the other; else each element gathers from the
    # windows that it is in.
    pools_by_window: bool = False


@lru_cache(maxsize=4096)
def thread_split(size: int, most: int) -> int:
    """Return into how many equal parts to divide an axis, up to `most`.

    >>> thread_split(128, 32), thread_split(100, 32), thread_split(97, 32)
    (32, 25, 1)
    """
    return max(n for n in range(1, most + 1) if size % n == 0)


@lru_cache(maxsize=4096)
def identity(shape: Shape) -> Indices:
    """Return the indices in a loop over a value's own axes."""
    rank = len(shape)
    return tuple(
        (tuple(1 if j == i else 0 for j in range(rank)), 0) for i in range(rank)
    )


# The indices in a loop over a value's elements in memory order.
FLAT = identity((1,))


def _scaled(index: AffineIndex, factor: int, offset: int) -> AffineIndex:
    coefficients, constant = index
    return tuple(c * factor for c in coefficients), constant * factor + offset


class _NotStoredError(Exception):
    """A value must be stored before an expression can load it."""

    def __init__(self, value: Value) -> None:
        super().__init__(value)
        self.value = value


class Lowering:
    """The state of lowering one graph: what is stored where, and the kernels so far."""

    def __init__(
        self, graph: Graph, data: set[str], target: Preferences, rules: Rules
    ) -> None:
        self.graph, self.target, self.rules = graph, target, rules
        self.kernels: list[Kernel] = []
        self.buffers: dict[Value, Buffer] = {}
        # Buffers allocated in advance for values, and the values of fields of loops.
        self.destinations: dict[Value, Buffer] = {}
        self._made: dict[Hashable, Buffer] = {}
        self.fields: dict[Value, Value] = {}
        self.count = 0
        for value in graph.inputs:
            kind = "data" if value.name in data else "state"
            buffer = Buffer(value.name, value.shape, value.dtype, kind)
            self.buffers[value] = buffer
        # Cached expressions: they are shared, and passes over kernels visit each once.
        self._loads: dict[tuple[Buffer, Indices], Load] = {}
        self._expanded: dict[tuple[Value, Indices], Expr] = {}
        self._costs: dict[Value, int] = {}
        self._expensive: set[Value] = set()
        self._flat: set[Value] = set(graph.inputs)
        self._estimate()

    def _estimate(self) -> None:
        """Decide which lazy values to store: those that are expensive or deep."""
        nodes = self.graph.nodes
        sources = [x if len(x) < 2 else {*x} for x in [node.inputs for node in nodes]]
        consumers = Counter(chain.from_iterable(sources))
        consumers.update(self.graph.outputs.values())
        self._used_again = {value for value, count in consumers.items() if count > 1}
        self._only_transposed: dict[Value, Node] = {
            node.inputs[0]: node
            for node in nodes
            if node.op.name == "transpose" and consumers[node.inputs[0]] == 1
        }
        costs, depths, flat = self._costs, dict[Value, int](), self._flat
        for node in nodes:
            op, inputs = node.op, node.inputs
            inlining = _inlining(op)
            if inlining is None:
                continue
            if op.name == "broadcast" and node.size > inputs[0].size:
                self._store_repeated(inputs[0])
            (cost, moves), depth = inlining, 1
            for value in inputs:
                if value in costs:
                    cost += costs[value]
                    below = depths.get(value, 0)
                    depth = below + 1 if below >= depth else depth
            again = cost > CHEAP and not moves and node in self._used_again
            if again or depth > MAX_DEPTH or cost > MAX_COST:
                self._expensive.add(node)
            else:
                costs[node], depths[node] = cost, depth
            if (op.kind == "pointwise" or _keeps_order(node)) and (
                flat.issuperset(inputs) or all(map(self._lies_flat, inputs))
            ):
                flat.add(node)

    def _lies_flat(self, x: Value) -> bool:
        """Return whether a loop may visit a value in memory order."""
        if not isinstance(x, Node) or x in self._flat or x in self._expensive:
            return True
        if x.op.name == "broadcast":
            return x.inputs[0].ndim == 0
        return _inlining(x.op) is None

    def _store_repeated(self, x: Value) -> None:
        """Store a value that a broadcast repeats, rather than recompute it."""
        if self._costs.get(x, 0) > 0:
            self._expensive.add(x)
            self._costs[x] = 0

    def lower_nodes(self) -> None:
        """Emit the kernels of all ops that have a rule; the others are lazy."""
        for node in self.graph.nodes:
            if node.dtype.kind == "c":
                _refuse_complex(node)
            is_host_call = node.op.kind == host.KIND
            rule = self.rules.get(host.KIND if is_host_call else node.op.name)
            if rule is not None:
                rule(self, node)

    # ---- buffers and kernels -----------------------------------------------------

    def new(self, shape: Shape, dtype: np.dtype, name: str = "t") -> Buffer:
        """Return a new temporary buffer."""
        self.count += 1
        return Buffer(f"{name}{self.count}", shape, np.dtype(dtype), "arena")

    def allocate(self, value: Value) -> Buffer:
        """Return the buffer in which a value will be stored."""
        buffer = self.destinations.get(value) or self.new(value.shape, value.dtype)
        self.buffers[value] = buffer
        return buffer

    def once(self, key: Hashable, make: Callable[[], Buffer]) -> Buffer:
        """Return the buffer created under a key before, or create it."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def emit(self, kernel: Kernel) -> None:
        """Append a kernel to the plan, unless it stores nothing."""
        if not (isinstance(kernel, Loop) and 0 in kernel.outer):
            self.kernels.append(kernel)

    def store(self, value: Value) -> Buffer:
        """Return the buffer that holds a value, row by row, computing it if needed.

        If another value must be stored first, that is done and this tried again:
        recursion would be as deep as the graph is long.
        """
        pending = [value]
        while pending:
            last = pending[-1]
            try:
                if last not in self.buffers:
                    self.buffers[last] = self._computed(last)
                pending.pop()
            except _NotStoredError as missing:
                pending.append(missing.value)
        return self.buffers[value]

    def _computed(self, value: Value) -> Buffer:
        """Return a new buffer with a value, or raise `_NotStoredError`."""
        if isinstance(value, Constant):
            array = np.ascontiguousarray(value.array)
            self.count += 1
            name = f"c{self.count}"
            return Buffer(name, value.shape, value.dtype, "constant", array)
        assert isinstance(value, Node)
        if value.op.name == "reshape":
            return self._reshaped(self.stored(value.inputs[0]), value.shape)
        target = self.destinations.get(value)
        if target is None:  # the same one when this is tried again
            target = self.once(value, lambda: self.new(value.shape, value.dtype))
        expr = self.element(value, identity(value.shape), force=True)
        self.emit(Loop.of(value.op.name, value.shape, expr, View.of(target)))
        return target

    def stored(self, value: Value) -> Buffer:
        """Return the buffer that holds a value, or raise `_NotStoredError`."""
        buffer = self.buffers.get(value)
        if buffer is not None:
            return buffer
        if isinstance(value, Constant):
            return self.store(value)
        raise _NotStoredError(value)

    def _reshaped(self, buffer: Buffer, shape: Shape) -> Buffer:
        """Return an alias of a buffer in another shape."""
        return replace(buffer, shape=shape, alias_of=buffer.root)

    def view(self, value: Value) -> View:
        """Return a value as an affine view of a buffer, storing it if it is no view."""
        if value in self.buffers or isinstance(value, Constant):
            return View.of(self.store(value))
        if self._is_movement(value):
            expr = self.at(value, identity(value.shape))
            if isinstance(expr, Load):
                return expr.view
        return View.of(self.store(value))

    def view_in_any_order(self, value: Value) -> View:
        """Return a view with its axes in any order in memory: nothing is transposed."""
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
        """Return the transposition of a value, if that is its only reader.

        The last axis must stay in place, so that rows can be stored in its order.
        """
        reader = self._only_transposed.get(value)
        if reader is None:
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
        """Return whether a value is some rows of a loop's results, in their shape."""
        if value not in self.fields:
            return False
        view = self.view(value)
        return view.strides == row_major(value.shape)

    # ---- expressions ---------------------------------------------------------------

    def at(self, value: Value, indices: Indices, force: bool = False) -> Expr:
        """Return the expression of a value's element at some indices.

        With `force`, the value itself is expanded even if it should be stored.
        """
        while True:
            try:
                return self.element(value, indices, force)
            except _NotStoredError as missing:
                self.store(missing.value)

    def elements_of(self, value: Node) -> tuple[Shape, Expr]:
        """Return a loop over all of a value, with the fewest axes, and its body.

        The value itself is expanded even if it should be stored.
        """
        if value.ndim > 1 and value in self._flat:
            return (value.size,), self.at(value, FLAT, force=True)
        return value.shape, self.at(value, identity(value.shape), force=True)

    def element(self, value: Value, indices: Indices, force: bool = False) -> Expr:
        """Return the same; raise `_NotStoredError` if a value must be stored first.

        An expression is no deeper than `MAX_DEPTH`, which bounds this recursion. The
        values to store may form a chain as long as the graph: see `store`.
        """
        if not isinstance(value, Node):
            if isinstance(value, Constant) and value.size == 1:
                return Literal(value.dtype, value.array.item())
            return self._load(self.stored(value), indices)
        buffer = self.buffers.get(value)
        if buffer is not None:
            return self._load(buffer, indices)
        op = value.op
        is_pointwise = op.kind == "pointwise"
        if not force and (
            value in self._expensive or not (is_pointwise or self._is_inlined(value))
        ):
            return self._load(self.stored(value), indices)
        lazy = _pointwise if is_pointwise else _LAZY[op.name]
        if lazy in _REORDERING and indices == FLAT and value in self._flat:
            return self.element(value.inputs[0], FLAT)
        if value not in self._used_again:
            return lazy(self, value, indices)
        key = value, indices
        expr = self._expanded.get(key)
        if expr is None:
            expr = self._expanded[key] = lazy(self, value, indices)
        return expr

    def _load(self, buffer: Buffer, indices: Indices) -> Load:
        key = buffer, indices
        load = self._loads.get(key)
        if load is None:
            strides: Shape = (1,)
            offset = 0
            if indices != FLAT or len(buffer.shape) == 1:
                strides, offset = _combined(indices, row_major(buffer.shape))
            load = Load(buffer.dtype, View(buffer, strides, offset))
            self._loads[key] = load
        return load

    def number_in(self, buffer: Buffer, rank: int) -> Load:
        """Return the load of a scalar buffer, at every point of so many axes."""
        key = buffer, (((0,) * rank, 0),)
        load = self._loads.get(key)
        if load is None:
            load = self._loads[key] = Load(buffer.dtype, View(buffer, (0,) * rank))
        return load

    def _is_inlined(self, value: Node) -> bool:
        """Return whether to compute a value where it is used, instead of storing it."""
        name = value.op.name
        if name == "shuffle":
            return False
        if name == "reshape":
            (x,) = value.inputs
            splits = _split_axes(x.shape, value.shape) is not None
            return splits or self.is_contiguous(x)
        return True


def _keeps_order(node: Node) -> bool:
    """Return whether the elements of a node are in the memory order of its inputs."""
    if node.op.kind == "pointwise":
        return True
    if node.op.name == "transpose":
        sizes = zip(node.attrs["axes"], node.shape, strict=True)
        moved = [axis for axis, size in sizes if size > 1]
        return moved == sorted(moved)
    return node.op.name == "reshape"


class _Inlining(NamedTuple):
    """The cost of computing an op where it is used, and whether it only moves data."""

    cost: int
    moves: bool


@cache
def _inlining(op: Op) -> _Inlining | None:
    """Return how to inline an op, None if it is lowered to a kernel of its own."""
    if op.kind == "pointwise":
        return _Inlining(_COSTS.get(op.name, 1), False)
    if op.name not in _LAZY:
        return None
    return _Inlining(_LAZY_COSTS.get(op.name, 0), op.name in _MOVEMENT)


@lru_cache(maxsize=4096)
def _combined(indices: Indices, strides: Shape) -> tuple[Shape, int]:
    """Return strides and an offset: the flat index, affine in the indices of a loop."""
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


def _pointwise(low: Lowering, node: Node, indices: Indices) -> Expr:
    args = tuple([low.element(value, indices) for value in node.inputs])
    if node.op.name == "cast" and node.dtype == args[0].dtype:
        return args[0]
    return Apply(node.dtype, node.op.name, args)


def _broadcast(low: Lowering, node: Node, indices: Indices) -> Expr:
    (x,) = node.inputs
    own = indices[len(indices) - x.ndim :]
    rank = len(indices[0][0]) if indices else 0
    first = ((0,) * rank, 0)
    inner = tuple(
        first if size == 1 else index for size, index in zip(x.shape, own, strict=True)
    )
    return _inner_element(low, x, inner, rank)


def _inner_element(low: Lowering, x: Value, inner: Indices, rank: int) -> Expr:
    """Return an element; a scalar has no index that tells the rank of the loop."""
    if inner or rank == 0 or isinstance(x, Constant):
        return low.element(x, inner)
    return low.number_in(low.stored(x), rank)


def _transpose(low: Lowering, node: Node, indices: Indices) -> Expr:
    inner: list[AffineIndex] = [indices[0]] * node.ndim
    for axis, source in enumerate(node.attrs["axes"]):
        inner[source] = indices[axis]
    return low.element(node.inputs[0], tuple(inner))


def _slice(low: Lowering, node: Node, indices: Indices) -> Expr:
    spans = zip(indices, node.attrs["starts"], node.attrs["steps"], strict=True)
    inner = tuple(_scaled(index, step, start) for index, start, step in spans)
    return low.element(node.inputs[0], inner)


def _reverse(low: Lowering, node: Node, indices: Indices) -> Expr:
    inner = tuple(
        _scaled(index, -1, size - 1) if axis in node.attrs["axes"] else index
        for axis, (index, size) in enumerate(zip(indices, node.shape, strict=True))
    )
    return low.element(node.inputs[0], inner)


@lru_cache(maxsize=4096)
def _split_axes(old: Shape, new: Shape) -> tuple[Shape, ...] | None:
    """Return, for each old axis, the new axes it was split into; None if any merged.

    >>> _split_axes((6, 4), (2, 3, 1, 4))
    ((0, 1), (2, 3))
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
    return tuple(groups) if all(n == 1 for n in new[at:]) else None


def _reshape(low: Lowering, node: Node, indices: Indices) -> Expr:
    (x,) = node.inputs
    groups = _split_axes(x.shape, node.shape)
    if groups is None and low.is_contiguous(x):
        view = low.view(x)
        strides, offset = _combined(indices, row_major(node.shape))
        return Load(node.dtype, View(view.buffer, strides, view.offset + offset))
    if groups is None:
        return low._load(low.stored(node), indices)
    rank = len(indices[0][0]) if indices else 0
    inner = []
    for group in groups:
        sizes = tuple(node.shape[axis] for axis in group)
        chosen = tuple(indices[axis] for axis in group)
        flat, offset = _combined(chosen, row_major(sizes))
        inner.append((flat if group else (0,) * rank, offset))
    return _inner_element(low, x, tuple(inner), rank)


def _field(low: Lowering, node: Node, indices: Indices) -> Expr:
    return low.element(low.fields[node], indices)


def _iota(low: Lowering, node: Node, indices: Indices) -> Expr:
    (coefficients, constant) = indices[0]
    return Index(node.dtype, coefficients, constant)


def _gather(low: Lowering, node: Node, indices: Indices) -> Expr:
    table, index = node.inputs
    buffer = low.stored(table)
    rank = len(indices[0][0]) if indices else 0
    row = _inner_element(low, index, indices[: index.ndim], rank)
    strides, offset = _combined(indices[index.ndim :], row_major(table.shape[1:]))
    size = int(np.prod(table.shape[1:], dtype=np.int64))
    within = strides or (0,) * rank
    return Indirect(node.dtype, buffer, row, table.shape[0], size, within, offset)


def _uniform(low: Lowering, node: Node, indices: Indices) -> Expr:
    strides, offset = _combined(indices, row_major(node.shape))
    element = Index(np.dtype("int64"), strides, offset)
    state = low.stored(node.inputs[0])
    return Uniform(node.dtype, state, element)


def _shuffle(low: Lowering, node: Node, indices: Indices) -> Expr:
    state, position = node.inputs
    expr = low.element(position, indices)
    return Shuffled(node.dtype, low.stored(state), expr, node.attrs["rows"])


_LAZY: dict[str, Callable[[Lowering, Node, Indices], Expr]] = {
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


_REORDERING = (_transpose, _reshape)


# ---- reductions ----------------------------------------------------------------------


def _reduction_indices(x: Value, axes: Shape) -> tuple[Shape, Indices]:
    """Return a loop over outer, then reduced axes, and the indices of x in it."""
    order = [i for i in range(x.ndim) if i not in axes] + list(axes)
    rank = x.ndim
    indices: list[Any] = [None] * rank
    for position, axis in enumerate(order):
        indices[axis] = (tuple(int(j == position) for j in range(rank)), 0)
    return tuple(x.shape[i] for i in order), tuple(indices)


def lower_reduce(low: Lowering, node: Node) -> None:
    """Emit a reduction as a loop; a long sum in parts that run in parallel."""
    (x,), axes = node.inputs, tuple(sorted(node.attrs["axes"]))
    shape, indices = _reduction_indices(x, axes)
    target = low.allocate(node)
    kept, count = node.size, math.prod(x.shape[i] for i in axes)
    most = low.target.thread_splits
    parts = thread_split(x.shape[axes[0]], most) if axes else 1
    is_sum = node.op.name == "sum"
    sliced = bool(axes) and axes[0] > 0 and 2 * x.shape[0] >= most
    long = count >= LONG_SUM and kept <= LONG_SUM and not sliced
    expr = low.at(x, indices)
    if not (is_sum and long and parts > 1):
        view = View(target, row_major(node.shape))
        low.emit(Loop.of(node.op.name, shape, expr, view, len(axes), node.op.name))
        return
    _long_sum(low, node, shape, expr, parts, target)


def _long_sum(
    low: Lowering, node: Node, shape: Shape, expr: Expr, parts: int, target: Buffer
) -> None:
    """Emit a fixed number of partial sums, which run in parallel, and their sum."""
    kept = len(node.shape)
    wide = np.dtype("float64") if node.dtype.kind == "f" else node.dtype
    partial = low.new((parts, *node.shape), wide)
    split_shape = (parts, *node.shape, shape[kept] // parts, *shape[kept + 1 :])
    expr = _shifted(expr, kept, shape[kept] // parts)
    view = View(partial, row_major(partial.shape))
    reduced = len(shape) - kept
    low.emit(Loop.of("sum", split_shape, expr, view, reduced, "sum"))
    strides = row_major(partial.shape)
    total = Load(wide, View(partial, (*strides[1:], strides[0])))
    view = View(target, row_major(node.shape))
    low.emit(Loop.of("sum", (*node.shape, parts), total, view, 1, "sum"))


def _shifted(expr: Expr, axis: int, part: int) -> Expr:
    """Rewrite an expression for a loop whose axis is split into (part, index)."""

    def strides(old: Shape) -> Shape:
        return (old[axis] * part, *old) if old else ()

    return rewrite(expr, strides)


def lower_argmax(low: Lowering, node: Node) -> None:
    """Emit the index of the largest element along an axis."""
    (x,) = node.inputs
    shape, indices = _reduction_indices(x, (node.attrs["axis"],))
    target = low.allocate(node)
    view = View(target, row_major(node.shape))
    low.emit(Loop.of("argmax", shape, low.at(x, indices), view, 1, "argmax"))


def lower_cumsum(low: Lowering, node: Node) -> None:
    """Emit a running sum along an axis."""
    (x,), axis = node.inputs, node.attrs["axis"]
    source, target = low.view(x), low.allocate(node)
    order = [i for i in range(x.ndim) if i != axis] + [axis]

    def ordered(view: View) -> View:
        return View(view.buffer, tuple(view.strides[i] for i in order), view.offset)

    shape = tuple(x.shape[i] for i in order)
    low.emit(Scan("cumsum", shape, ordered(source), ordered(View.of(target))))


# ---- products: matrices and all three passes of convolution --------------------------
# They differ only in their axes and strides, so all of them become a `Contract`.


def lower_matmul(low: Lowering, node: Node) -> None:
    """Emit a matrix product; a transposed right operand is packed, or copied first."""
    a, b = node.inputs
    left, right = low.view_in_any_order(a), _right_operand(low, b)
    stored = _result_of_matmul(low, node)
    rounds = low.target.rounds_products and node.dtype == FLOAT32
    # With a single column, there is no transposed matrix: sums are over many rows.
    transposed = node.shape[-1] > 1 and left.strides[-1] == right.strides[-2] == 1
    if node.shape[-2] <= COLUMN_ROWS and transposed and not rounds:
        product = _by_columns(node, left, right, *stored)
        if low.target.sums_along_rows(product):
            low.emit(product)
            return
    if node.shape[-2] <= DOT_ROWS and transposed:
        _lower_dots(low, node, left, right, stored[1], rounds)
        return
    is_thin = node.ndim == 2 and (min(node.shape) < LANES or _has_long_sums(low, node))
    if not (is_thin and right.strides[-1] == 1) or rounds:  # few rows do not pay
        product = replace(_product(low, node, left, right, *stored), rounded=rounds)
        scratch = low.target.scratch_for(product)
        if scratch is not None:
            buffer = low.new(scratch, node.dtype, "packed")
            low.emit(replace(product, packed=buffer))
            return
    if rounds:
        left, right = _rounded(low, a, left), _rounded(low, b, right)
    right = _with_rows(low, b, right)
    if is_thin:
        _lower_thin(low, node, left, right, stored[1].buffer)
    else:
        low.emit(_product(low, node, left, right, *stored))


def _has_long_sums(low: Lowering, node: Node) -> bool:
    """Return whether threads share the long sums of a product with few results."""
    is_long = node.inputs[0].shape[-1] >= LONG_INNER and node.size <= FEW_RESULTS
    return is_long and low.target.thread_splits > 1


def _rounded(low: Lowering, matrix: Value, view: View) -> View:
    """Return a copy of a matrix, rounded to bfloat16."""

    def copy() -> Buffer:
        target = low.new(matrix.shape, matrix.dtype)
        expr = _as_bfloat16(Load(matrix.dtype, view))
        low.emit(Loop.of("round", matrix.shape, expr, View.of(target)))
        return target

    return View.of(low.once(("rounded", view, matrix.shape), copy))


def _as_bfloat16(expr: Expr) -> Expr:
    return Apply(expr.dtype, "cast", (Apply(BFLOAT16, "cast", (expr,)),))


def _product(
    low: Lowering, node: Node, left: View, right: View, out: Shape, target: View
) -> Contract:
    """Return a matrix product as a contraction."""
    batch = tuple(
        Axis(size, left.strides[i], right.strides[i], out[i])
        for i, size in enumerate(node.shape[:-2])
    )
    row = Axis(node.shape[-2], left.strides[-2], 0, out[-2])
    parts = _row_parts(low, node)
    if parts > 1:
        each = row.size // parts
        batch = (Axis(parts, row.left * each, 0, row.out * each),)
        row = replace(row, size=each)
    columns = (Axis(node.shape[-1], 0, right.strides[-1], out[-1]),)
    inner = (Axis(node.inputs[0].shape[-1], left.strides[-1], right.strides[-2], 0),)
    return Contract("matmul", batch, (row,), columns, inner, left, right, target)


def _with_rows(low: Lowering, matrix: Value, view: View) -> View:
    """Return a matrix with contiguous rows: a transposed matrix is copied."""
    if view.strides[-1] == 1 or matrix.shape[-1] == 1:
        return view
    return contiguous(low, view, matrix.shape, tuple(range(matrix.ndim)))


def _right_operand(low: Lowering, value: Value) -> View:
    """Return a product's right operand: in any order of axes that keeps its rows."""
    if not isinstance(value, Node) or value.op.name != "transpose":
        return low.view(value)
    keeps_rows = value.attrs["axes"][-1] == value.ndim - 1
    return low.view_in_any_order(value) if keeps_rows else low.view(value)


def _result_of_matmul(low: Lowering, node: Node) -> tuple[Shape, View]:
    """Return the strides of a product's axes, and the view that stores it.

    If its only reader transposes it, it is stored in transposed order.
    """
    transposed = low.transposed_by(node)
    if transposed is None:
        out = row_major(node.shape)
        return out, View(low.allocate(node), out)
    strides = row_major(transposed.shape)
    out = tuple(strides[transposed.attrs["axes"].index(i)] for i in range(node.ndim))
    return out, View(low.allocate(transposed), out)


def _row_parts(low: Lowering, node: Node) -> int:
    """Return into how many parts to divide the rows of a tall product.

    Each part reads all of the right matrix, which stays in the cache; the part's own
    operands may stay there as well, between the kernels before and after it.
    """
    if node.ndim != 2:
        return 1
    rows, right = node.shape[0], node.inputs[1]
    if right.size <= CACHED_ELEMENTS:
        parts = thread_split(rows, low.target.thread_splits)
        return parts if rows >= PART_ROWS * parts else 1
    most = min(low.target.thread_splits, rows // LARGE_PART_ROWS)
    parts = thread_split(rows, max(1, most))
    return parts if parts >= FEWEST_PARTS else 1


def _by_columns(
    node: Node, left: View, right: View, out: Shape, target: View
) -> Contract:
    """Return the product of some rows with a transposed matrix, a column for each."""
    sizes = (*node.shape[:-2], node.shape[-2])
    batch = tuple(
        Axis(size, (*right.strides[:-2], 0)[i], left.strides[i], out[i])
        for i, size in enumerate(sizes)
        if size > 1
    )
    row = Axis(node.shape[-1], right.strides[-1], 0, out[-1])
    inner = (Axis(node.inputs[0].shape[-1], right.strides[-2], left.strides[-1], 0),)
    column = (Axis(1, 0, 1, 1),)
    return Contract("matmul", batch, (row,), column, inner, right, left, target)


def _lower_dots(
    low: Lowering, node: Node, left: View, right: View, out: View, rounds: bool
) -> None:
    """Emit the product of a row with a transposed matrix: dot products of rows."""
    outer = len(node.shape) - 2
    batches = [view.strides[:outer] for view in (left, right)]
    a = View(left.buffer, (*batches[0], left.strides[-2], 0, 1), left.offset)
    b = View(right.buffer, (*batches[1], 0, right.strides[-1], 1), right.offset)
    factors: tuple[Expr, ...] = (Load(node.dtype, a), Load(node.dtype, b))
    if rounds:
        factors = tuple(map(_as_bfloat16, factors))
    shape = (*node.shape, node.inputs[0].shape[-1])
    expr = Apply(node.dtype, "multiply", factors)
    low.emit(Loop.of("dots", shape, expr, out, 1, "sum"))


def _lower_thin(
    low: Lowering, node: Node, left: View, right: View, target: Buffer
) -> None:
    """Emit a product by slices of the rows, or of the inner axis.

    Its operands are large and its result is small: threads exchange little.
    """
    (rows, columns), inner = node.shape, node.inputs[0].shape[1]
    by_rows = columns < LANES
    long = rows if by_rows else inner
    least = LONG_PART if _has_long_sums(low, node) and not by_rows else LANES
    most = min(low.target.thread_splits, long // least)
    parts = thread_split(long, max(1, most))
    if not by_rows and node.size * parts > MAX_PARTIAL_SUMS:
        parts = 1
    each = long // parts
    row = Axis(rows, left.strides[0], 0, columns)
    step = Axis(inner, left.strides[1], right.strides[0], 0)
    column = Axis(columns, 0, right.strides[1], 1)
    if by_rows:
        part = Axis(parts, row.left * each, 0, row.out * each)
        row, out = replace(row, size=each), View(target, (columns * each, columns, 1))
    else:
        part = Axis(parts, step.left * each, step.right * each, node.size)
        step = replace(step, size=each)
        products = target if parts == 1 else low.new((parts, *node.shape), node.dtype)
        out = View(products, (node.size, columns, 1))
    low.emit(Contract("matmul", (part,), (row,), (column,), (step,), left, right, out))
    if out.buffer is not target:
        sums = Load(node.dtype, View(out.buffer, (columns, 1, node.size)))
        low.emit(Loop.of("sum", (*node.shape, parts), sums, View.of(target), 1, "sum"))


def contiguous(low: Lowering, view: View, shape: Shape, order: Shape) -> View:
    """Return a copy of a view, with its axes in the given order in memory."""
    sizes = tuple(shape[i] for i in order)
    target = low.new(sizes, view.buffer.dtype)
    source = View(view.buffer, tuple(view.strides[i] for i in order), view.offset)
    low.emit(Loop.of("pack", sizes, Load(source.buffer.dtype, source), View.of(target)))
    strides = [0] * len(shape)
    for position, axis in enumerate(order):
        strides[axis] = row_major(sizes)[position]
    return View(target, tuple(strides))


# ---- a program: its results and its state --------------------------------------------


def lower(program: Program, target: Preferences, rules: Rules) -> Plan:
    """Return the kernels of a program, in order, and the buffers they work on."""
    low = Lowering(program.graph, set(program.data), target, rules)
    low.lower_nodes()
    results = _results(low, program.results)
    _write_state(low, program)
    inputs = {value.name: low.buffers[value] for value in program.graph.inputs}
    data = {name: inputs[name] for name in program.data}
    state = {name: inputs[name] for name in program.state}
    return Plan(program.graph.name, tuple(low.kernels), data, state, results)


def _refuse_complex(node: Node) -> None:
    if node.op.kind not in (host.KIND, "item"):
        raise ShapeError(
            f"{node.op.name}: complex numbers are not compiled {node.origin}: compute "
            "with their parts, `ops.real(x)` and `ops.imag(x)`, or set run_eagerly=True"
        )


def _results(low: Lowering, names: tuple[str, ...]) -> dict[str, Buffer]:
    results = {}
    for name in names:
        value = low.graph.outputs[name]
        buffer = Buffer(name, value.shape, value.dtype, "result")
        if value.size:
            expr = low.at(value, identity(value.shape))
            low.emit(Loop.of("result", value.shape, expr, View.of(buffer)))
        results[name] = buffer
    return results


def _write_state(low: Lowering, program: Program) -> None:
    """Store new states in place if their old values are no longer read."""
    inputs = {value.name: value for value in low.graph.inputs}
    writers: list[Loop] = []
    for name in program.state:
        value = low.graph.outputs.get(name)
        if value is not None and value.size:
            writers.append(_writer(low, value, low.buffers[inputs[name]]))
    copies: list[Kernel] = []
    for together in _read_by_each_other(writers):
        if _are_in_place(together):
            low.emit(reduce(Loop.with_outputs_of, together))
        else:
            copies += [_stored_apart(low, writer) for writer in together]
    for kernel in copies:
        low.emit(kernel)


def _read_by_each_other(writers: list[Loop]) -> list[list[Loop]]:
    """Group the writers of states that read each other's states."""
    number_of = {writer.target.buffer: n for n, writer in enumerate(writers)}
    groups = {n: [n] for n in range(len(writers))}
    for number, writer in enumerate(writers):
        for state in writer.memory_read & number_of.keys():
            mine, other = groups[number], groups[number_of[state]]
            if mine is not other:
                mine += other
                groups.update(dict.fromkeys(other, mine))
    distinct = {id(group): sorted(group) for group in groups.values()}
    return [[writers[n] for n in group] for group in sorted(distinct.values())]


def _are_in_place(writers: list[Loop]) -> bool:
    """Return whether each point of some loops reads no state at another point."""
    first = writers[0]
    return len(writers) <= MAX_OUTPUTS and all(
        writer.shape == first.shape
        and not any(_reads_other_elements(writer, other.target) for other in writers)
        for writer in writers
    )


def _stored_apart(low: Lowering, writer: Loop) -> Kernel:
    """Store a new state beside the old one; return the copy that goes at the end."""
    state = writer.target.buffer
    view = View(low.new(state.shape, state.dtype, "next"), writer.target.strides)
    low.emit(replace(writer, outputs=((writer.expr, view),)))
    return Loop.of("copy", writer.shape, Load(state.dtype, view), writer.target)


def _writer(low: Lowering, value: Value, state: Buffer) -> Loop:
    if not isinstance(value, Node):
        expr = low.at(value, identity(value.shape))
        return Loop.of("update", value.shape, expr, View.of(state))
    shape, expr = low.elements_of(value)
    return Loop.of("update", shape, expr, View(state, row_major(shape)))


def _reads_other_elements(writer: Loop, stored: View) -> bool:
    """Return whether a new state needs other elements of an old state than its own."""
    place = stored.strides, stored.offset
    return any(
        not isinstance(expr, Load) or (expr.view.strides, expr.view.offset) != place
        for expr in writer.reading(stored.buffer)
    )
