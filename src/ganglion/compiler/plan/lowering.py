"""Lowering: every value of the graph becomes a buffer, or is computed where it is used.

A lazy value is asked for its element at an affine place of some loop, and answers with
an expression; so broadcasts, transposes and slices cost nothing, and chains of
pointwise ops melt into the kernel that stores their result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

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
Place = tuple[Shape, int]
Places = tuple[Place, ...]
Pairs = tuple[tuple[int, int], ...]

_COSTS = {"exp": 8, "log": 10, "tanh": 12, "sigmoid": 10, "erf": 12, "power": 20}
_COSTS |= {"log1p": 10, "expm1": 10, "sin": 12, "cos": 12, "divide": 3, "sqrt": 3}
CHEAP = 6  # recomputing this much costs less than storing and loading
_MOVEMENT = ("broadcast", "transpose", "slice", "reverse", "reshape", "iota")
LONGEST, DEAREST = 40, 200  # depth and cost at which a chain is cut
LONG_SUM = 4096  # elements


@dataclass(frozen=True)
class Preferences:
    """What a target wants of lowering."""

    # Into how many equal parts a batch, or a long sum, is cut at most for threads to
    # share, whatever their number; a GPU cuts by itself.
    thread_splits: int = 1
    winograd: bool = False  # convolutions with fewer multiplications
    packs_panels: bool = False  # of a product's right matrix, while it is used
    # Windows of pools are walked through one after the other; else each element asks
    # the windows that it lies in, all at once.
    pools_by_window: bool = False


def thread_split(size: int, most: int) -> int:
    """Return into how many equal parts an axis is cut, of at most so many.

    >>> thread_split(128, 32), thread_split(100, 32), thread_split(97, 32)
    (32, 25, 1)
    """
    return max(n for n in range(1, most + 1) if size % n == 0)


def identity(shape: Shape) -> Places:
    """Return the places of a loop that runs over a value's own axes."""
    rank = len(shape)
    return tuple(
        (tuple(1 if j == i else 0 for j in range(rank)), 0) for i in range(rank)
    )


def _scaled(place: Place, factor: int, offset: int) -> Place:
    coefficients, constant = place
    return tuple(c * factor for c in coefficients), constant * factor + offset


class Lowering:
    """The state of lowering one graph: what is stored where, and the kernels so far."""

    def __init__(self, graph: Graph, data: set[str], target: Preferences) -> None:
        self.graph, self.target = graph, target
        self.kernels: list[Kernel] = []
        self.buffers: dict[Value, Buffer] = {}
        self._count = 0
        for one in graph.inputs:
            kind = "data" if one.name in data else "state"
            self.buffers[one] = Buffer(one.name, one.shape, one.dtype, kind)
        self._costs: dict[Value, int] = {}
        self._kept: set[Value] = set()
        self._estimate()

    def _estimate(self) -> None:
        """Decide which lazy values are stored all the same: the dear and the long."""
        consumers = Counter(
            one for node in self.graph.nodes for one in set(node.inputs)
        )
        consumers.update(self.graph.outputs.values())
        depths: dict[Value, int] = {}
        for node in self.graph.nodes:
            if node.op.kind != "pointwise" and node.op.name not in _LAZY:
                continue
            if node.op.name == "broadcast" and node.size > node.inputs[0].size:
                self._keep_small(node.inputs[0])
            cost = sum(self._costs.get(one, 0) for one in node.inputs)
            depth = 1 + max((depths.get(one, 0) for one in node.inputs), default=0)
            cost += _own_cost(node)
            used_again = consumers[node] > 1 and cost > CHEAP
            movement = node.op.name in _MOVEMENT
            if depth > LONGEST or cost > DEAREST or (used_again and not movement):
                self._kept.add(node)
            else:
                self._costs[node], depths[node] = cost, depth

    def _keep_small(self, x: Value) -> None:
        """Store what is repeated many times, rather than compute it many times."""
        if self._costs.get(x, 0) > 0:
            self._kept.add(x)
            self._costs[x] = 0

    # ---- buffers and kernels -----------------------------------------------------

    def new(self, shape: Shape, dtype: np.dtype, name: str = "t") -> Buffer:
        """Return a new temporary buffer."""
        self._count += 1
        return Buffer(f"{name}{self._count}", shape, np.dtype(dtype), "arena")

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
            self._count += 1
            name = f"c{self._count}"
            return Buffer(name, value.shape, value.dtype, "constant", array)
        assert isinstance(value, Node)
        if value.op.name == "reshape":
            inner = yield self._storing(value.inputs[0])
            return self._renamed(inner, value.shape)
        target = self.new(value.shape, value.dtype)
        expr = yield self._expanding(value, identity(value.shape), force=True)
        self.emit(Loop.of(value.op.name, value.shape, expr, View.whole(target)))
        return target

    def _renamed(self, buffer: Buffer, shape: Shape) -> Buffer:
        """Return a buffer seen in another shape: the same memory."""
        return replace(buffer, shape=shape, alias_of=buffer.root)

    def view(self, value: Value) -> View:
        """Return a value as an affine view of a buffer, storing it if it is none."""
        if value in self.buffers or isinstance(value, Constant):
            return View.whole(self.store(value))
        if self._is_movement(value):
            expr = self.at(value, identity(value.shape))
            if isinstance(expr, Load):
                return expr.view
        return View.whole(self.store(value))

    def turned_view(self, value: Value) -> View:
        """Return a view for which any order of axes will do: nothing is turned."""
        base = value
        while (
            isinstance(base, Node)
            and base not in self.buffers
            and base.op.name == "transpose"
        ):
            base = base.inputs[0]
        self.store(base)
        return self.view(value)

    def _is_movement(self, value: Value) -> bool:
        names = ("transpose", "slice", "reverse", "broadcast", "reshape")
        while isinstance(value, Node) and value not in self.buffers:
            if value.op.name not in names:
                return False
            value = value.inputs[0]
        return True

    # ---- expressions ---------------------------------------------------------------

    def at(self, value: Value, places: Places, force: bool = False) -> Expr:
        """Return the expression of a value's element at some places of a loop.

        With `force`, the value itself is expanded even where it should be stored.
        """
        return finished(self._expanding(value, places, force))

    def _expanding(
        self, value: Value, places: Places, force: bool = False
    ) -> Deep[Expr]:
        if isinstance(value, Constant) and value.size == 1:
            return Literal(value.dtype, value.array.item())
        if value in self.buffers or isinstance(value, (Constant, Input)):
            return self._load((yield self._storing(value)), places)
        assert isinstance(value, Node)
        lazy = _LAZY.get(value.op.name)
        if value.op.kind == "pointwise":
            lazy = _pointwise
        if lazy is None or not (force or self._melts(value)):
            return self._load((yield self._storing(value)), places)
        return (yield lazy(self, value, places))

    def _load(self, buffer: Buffer, places: Places) -> Load:
        strides, offset = _combined(places, row_major(buffer.shape))
        return Load(buffer.dtype, View(buffer, strides, offset))

    def _melts(self, value: Node) -> bool:
        """Return whether to compute a value where it is used, instead of storing it."""
        name = value.op.name
        if value in self._kept or name == "shuffle":
            return False
        if name == "reshape":
            return _splits(value.inputs[0].shape, value.shape) is not None
        return True


def _own_cost(node: Node) -> int:
    if node.op.kind == "pointwise":
        return _COSTS.get(node.op.name, 1)
    if node.op.name in ("random_uniform", "shuffle"):
        return 100
    return 1 if node.op.name in ("iota", "gather") else 0


def _combined(places: Places, strides: Shape) -> tuple[Shape, int]:
    """Multiply places by strides: the flat place, affine in the loop's axes."""
    if not places:
        return (), 0
    rank = len(places[0][0])
    total = [0] * rank
    offset = 0
    for (coefficients, constant), stride in zip(places, strides, strict=True):
        offset += constant * stride
        for axis, coefficient in enumerate(coefficients):
            total[axis] += coefficient * stride
    return tuple(total), offset


def _pointwise(low: Lowering, node: Node, places: Places) -> Deep[Expr]:
    args: tuple[Expr, ...] = ()
    for one in node.inputs:
        args += ((yield low._expanding(one, places)),)
    if node.op.name == "cast" and node.dtype == args[0].dtype:
        return args[0]
    return Apply(node.dtype, node.op.name, args)


def _broadcast(low: Lowering, node: Node, places: Places) -> Deep[Expr]:
    (x,) = node.inputs
    kept = places[len(places) - x.ndim :]
    rank = len(places[0][0]) if places else 0
    nowhere = ((0,) * rank, 0)
    inner = tuple(
        nowhere if size == 1 else place
        for size, place in zip(x.shape, kept, strict=True)
    )
    return (yield _padded(low, x, inner, rank))


def _padded(low: Lowering, x: Value, inner: Places, rank: int) -> Deep[Expr]:
    """Expand a value; a scalar has no place that tells how many axes the loop has."""
    if inner or rank == 0:
        return (yield low._expanding(x, inner))
    if isinstance(x, Constant):
        return (yield low._expanding(x, ()))
    buffer = yield low._storing(x)
    return Load(buffer.dtype, View(buffer, (0,) * rank))


def _transpose(low: Lowering, node: Node, places: Places) -> Deep[Expr]:
    inner: list[Place] = [places[0]] * node.ndim
    for axis, source in enumerate(node.attrs["axes"]):
        inner[source] = places[axis]
    return (yield low._expanding(node.inputs[0], tuple(inner)))


def _slice(low: Lowering, node: Node, places: Places) -> Deep[Expr]:
    spans = zip(places, node.attrs["starts"], node.attrs["steps"], strict=True)
    inner = tuple(_scaled(place, step, start) for place, start, step in spans)
    return (yield low._expanding(node.inputs[0], inner))


def _reverse(low: Lowering, node: Node, places: Places) -> Deep[Expr]:
    inner = tuple(
        _scaled(place, -1, size - 1) if axis in node.attrs["axes"] else place
        for axis, (place, size) in enumerate(zip(places, node.shape, strict=True))
    )
    return (yield low._expanding(node.inputs[0], inner))


def _splits(old: Shape, new: Shape) -> list[tuple[int, ...]] | None:
    """Return, for each old axis, the new axes it was split into, None if any merged.

    >>> _splits((6, 4), (2, 3, 1, 4))
    [(0, 1), (2, 3)]
    >>> _splits((2, 3), (6,)) is None
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


def _reshape(low: Lowering, node: Node, places: Places) -> Deep[Expr]:
    (x,) = node.inputs
    groups = _splits(x.shape, node.shape)
    if groups is None:
        return low._load((yield low._storing(node)), places)
    rank = len(places[0][0]) if places else 0
    inner = []
    for group in groups:
        sizes = tuple(node.shape[axis] for axis in group)
        chosen = tuple(places[axis] for axis in group)
        flat, offset = _combined(chosen, row_major(sizes))
        inner.append((flat if group else (0,) * rank, offset))
    return (yield _padded(low, x, tuple(inner), rank))


def _iota(low: Lowering, node: Node, places: Places) -> Deep[Expr]:
    yield from ()  # a generator, as its siblings are: it asks for nothing
    (coefficients, constant) = places[0]
    return Index(node.dtype, coefficients, constant)


def _gather(low: Lowering, node: Node, places: Places) -> Deep[Expr]:
    table, index = node.inputs
    buffer = yield low._storing(table)
    rank = len(places[0][0]) if places else 0
    row = yield _padded(low, index, places[: index.ndim], rank)
    strides, offset = _combined(places[index.ndim :], row_major(table.shape[1:]))
    size = int(np.prod(table.shape[1:], dtype=np.int64))
    within = strides or (0,) * rank
    return Indirect(node.dtype, buffer, row, table.shape[0], size, within, offset)


def _uniform(low: Lowering, node: Node, places: Places) -> Deep[Expr]:
    strides, offset = _combined(places, row_major(node.shape))
    element = Index(np.dtype("int64"), strides, offset)
    state = yield low._storing(node.inputs[0])
    return Uniform(node.dtype, state, element)


def _shuffle(low: Lowering, node: Node, places: Places) -> Deep[Expr]:
    state, position = node.inputs
    expr = yield low._expanding(position, places)
    stored = yield low._storing(state)
    return Shuffled(node.dtype, stored, expr, node.attrs["rows"])


_LAZY: dict[str, Callable[[Lowering, Node, Places], Deep[Expr]]] = {
    "broadcast": _broadcast,
    "transpose": _transpose,
    "slice": _slice,
    "reverse": _reverse,
    "reshape": _reshape,
    "iota": _iota,
    "gather": _gather,
    "random_uniform": _uniform,
    "shuffle": _shuffle,
}


# ---- copying into a larger array ----------------------------------------------------


def copy_into(
    low: Lowering, x: Value, whole: View, pairs: Pairs, interior: Shape
) -> None:
    """Copy a value into a larger one, after and between what is left free."""
    if x.size == 0:
        return
    strides = tuple(s * (i + 1) for s, i in zip(whole.strides, interior, strict=True))
    offset = sum(lo * s for (lo, _), s in zip(pairs, whole.strides, strict=True))
    view = View(whole.buffer, strides, whole.offset + offset)
    low.emit(Loop.of("copy", x.shape, low.at(x, identity(x.shape)), view))


def padded_images(low: Lowering, x: Value, pairs: Pairs, interior: Shape) -> View:
    """Return images with zeros around (and between) their pixels."""
    if not any(lo or hi for lo, hi in pairs) and not any(interior):
        view = low.view(x)
        return view if view.strides[-1] == 1 else View.whole(low.store(x))
    spans = zip(x.shape[1:-1], pairs, interior, strict=True)
    spatial = tuple(n + lo + hi + max(n - 1, 0) * i for n, (lo, hi), i in spans)
    target = low.new((x.shape[0], *spatial, x.shape[-1]), x.dtype, "pad")
    whole = View.whole(target)
    low.emit(Loop.of("fill", target.shape, Literal(x.dtype, 0.0), whole))
    copy_into(low, x, whole, ((0, 0), *pairs, (0, 0)), (0, *interior, 0))
    return whole
