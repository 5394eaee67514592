"""Passes over a graph, before it is lowered to kernels."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from ganglion.compiler.ir.arrays import concat, slice_
from ganglion.compiler.ir.contraction import matmul
from ganglion.compiler.ir.graph import Constant, Graph, Input, Node, Value, rewritten
from ganglion.compiler.ir.pointwise import (
    add,
    cast,
    divide,
    less,
    maximum,
    multiply,
    subtract,
    where,
)
from ganglion.compiler.ir.scan import instantiated, scan
from ganglion.compiler.ir.shaping import (
    broadcast,
    is_float,
    reshape,
    splat,
    sum_,
    transpose,
)
from ganglion.compiler.plan.lowering import LONG_SUM, thread_split

NARROW, MANY_ROWS = 16, 32  # columns and rows of a product that is transposed

# ---- integer products ----------------------------------------------------------------
# Products of integer matrices become sums of products: contractions are emitted as
# fused multiply-adds of floats, which would round. They are rare and small.


def integer_products_as_sums(graph: Graph) -> Graph:
    """Return a graph in which all matrix products are of floats."""

    def rule(old: Node, new: Node) -> Value:
        return _sum_of_products(new) if is_integer_product(old) else new

    return rewritten(graph, rule, (matmul,))


def is_integer_product(node: Node) -> bool:
    """Return whether a node multiplies integer matrices."""
    return node.op is matmul and not is_float(node.dtype)


def _sum_of_products(node: Node) -> Value:
    left, right = node.inputs
    *stack, rows, inner = left.shape
    columns = right.shape[-1]
    shape = (*stack, rows, inner, columns)
    left = broadcast(reshape(left, shape=(*stack, rows, inner, 1)), shape=shape)
    right = broadcast(reshape(right, shape=(*stack, 1, inner, columns)), shape=shape)
    return sum_(multiply(left, right), axes=(len(stack) + 1,))


# ---- empty arrays ------------------------------------------------------------------
# An empty sum is 0, and concatenation with an empty array is the identity. After this
# pass, no kernel has to handle axes of length 0.


def without_empty(graph: Graph) -> Graph:
    """Return a graph without empty values, except as inputs and outputs."""

    def rule(old: Node, new: Node) -> Value:
        if not new.size:
            return Constant(np.zeros(new.shape, new.dtype))
        if new.op.kind in ("loop", "host") or all(value.size for value in new.inputs):
            return new
        return _from_nothing(new)

    return rewritten(graph, rule)


def has_empty(graph: Graph) -> bool:
    """Return whether a graph has empty values."""
    return any(0 in shape for shape, _ in graph.types)


def _from_nothing(node: Node) -> Value:
    """Return the value of a nonempty node, some of whose inputs are empty."""
    if node.op is concat:
        parts = [value for value in node.inputs if value.size]
        return parts[0] if len(parts) == 1 else concat(*parts, **node.attrs)
    if node.op.name == "pad":
        return _filled(node, node.attrs["value"])
    if node.op.name == "gather":  # from a table without rows
        return _filled(node, math.nan if is_float(node.dtype) else 0)
    return _filled(node, 0)  # an empty sum


def _filled(node: Node, number: float) -> Value:
    scalar = Constant(number, node.dtype)
    return broadcast(scalar, shape=node.shape) if node.shape else scalar


# ---- narrow products ---------------------------------------------------------------
# The lanes of a vector are columns of a product. The weight gradient of a layer with
# few outputs, xᵀ·g, would leave most lanes empty; (gᵀ·x)ᵀ fills them.


def transpose_narrow(graph: Graph) -> Graph:
    """Return a graph with narrow products replaced by transposed ones."""

    def rule(old: Node, new: Node) -> Value:
        if not is_narrow(old):
            return new
        left, right = new.inputs
        return _transposed(matmul(_transposed(right), _transposed(left)))

    return rewritten(graph, rule, (matmul,))


def is_narrow(node: Node) -> bool:
    """Return whether a product has few columns, and rows that are contiguous."""
    if node.op is not matmul or node.shape[-1] >= NARROW or node.shape[-2] < MANY_ROWS:
        return False
    left = node.inputs[0]
    return isinstance(left, Node) and left.op is transpose and _swaps_last_axes(left)


def _swaps_last_axes(node: Node) -> bool:
    """Return whether a node exchanges the last two axes and no others."""
    axes = tuple(node.attrs["axes"])
    return axes == (*range(node.ndim - 2), node.ndim - 1, node.ndim - 2)


def _transposed(value: Value) -> Value:
    if isinstance(value, Node) and value.op is transpose and _swaps_last_axes(value):
        return value.inputs[0]
    rank = value.ndim
    return transpose(value, axes=(*range(rank - 2), rank - 1, rank - 2))


# ---- masks ---------------------------------------------------------------------------
# The gradient of ReLU depends on whether its input was positive. Its output tells as
# well, and is stored for the next layer anyway: the input need not be. The same holds
# for leaky ReLU.


def masks_of_outputs(graph: Graph) -> Graph:
    """Return a graph in which gradients of ReLUs compare outputs instead of inputs.

    b < a becomes b < maximum(a, b), which is equivalent: both are false if an operand
    is NaN. Likewise 0 < x becomes 0 < where(0 < x, x, slope * x).
    """
    pairs = {tuple(map(id, n.inputs)) for n in graph.nodes if n.op is maximum}
    larger: dict[tuple[int, ...], Value] = {}
    leaky = _leaky_by_mask(graph)
    activated: dict[Value, Value] = {}

    def rule(old: Node, new: Node) -> Value:
        if old.op is maximum:
            return larger.setdefault(tuple(map(id, old.inputs)), new)
        if old in leaky:
            (zero, x), (node, slope) = new.inputs, leaky[old]
            activated[node] = where(new, x, multiply(x, slope))
            return less(zero, activated[node])
        if old in activated:
            return activated[old]
        if old.op is not less:
            return new
        pair = tuple(map(id, reversed(old.inputs)))
        if pair not in pairs:
            return new
        b, a = new.inputs
        if pair not in larger:
            larger[pair] = maximum(a, b)
        return less(b, larger[pair])

    return rewritten(graph, rule, (maximum, less, where))


def is_relu(node: Node) -> bool:
    """Return whether a node may be a ReLU or is a leaky ReLU."""
    return node.op is maximum or (node.op is where and _slope(node) is not None)


def _leaky_by_mask(graph: Graph) -> dict[Value, tuple[Node, Value]]:
    """Return leaky ReLUs and their slopes, by masks that have other readers."""
    choices = [node for node in graph.nodes if node.op is where]
    slopes = {node: slope for node in choices if (slope := _slope(node)) is not None}
    if not slopes:
        return {}
    uses = Counter(source for node in graph.nodes for source in node.inputs)
    return {
        node.inputs[0]: (node, slope)
        for node, slope in slopes.items()
        if uses[node.inputs[0]] > 1
    }


def _slope(node: Node) -> Value | None:
    """Return the slope in `where(0 < x, x, slope * x)` if it is positive, else None."""
    mask, x, scaled = node.inputs
    if not (isinstance(mask, Node) and isinstance(scaled, Node)):
        return None
    if (mask.op, scaled.op) != (less, multiply) or splat(mask.inputs[0]) != 0:
        return None
    number = splat(scaled.inputs[1])
    if number is None or not number > 0:
        return None
    return scaled.inputs[1] if mask.inputs[1] is x is scaled.inputs[0] else None


# ---- mean and variance in a single pass over the data --------------------------------
# The graph computes a mean, then the sum of squared deviations from it. This pass sums
# each slice of the batch relative to one of its elements, which is close to the mean,
# and combines the slices (Chan, Golub and LeVeque 1979). Where float64 is cheap, plain
# sums in float64 are as accurate.
#
# A bias that is added to all data is added to the mean instead: batch norm subtracts
# both.

FEWEST_ROWS = 64  # from which on a single pass is faster, though its sums are wider


class _Pair(NamedTuple):
    """The mean and the squared deviations, which a graph computes in two passes."""

    mean: Node
    squares: Node  # the sum of (x - mean)²


def one_pass(graph: Graph, thread_splits: int = 1) -> Graph:
    """Return a graph that computes long sums of squared deviations in a single pass.

    They are combined from at most `thread_splits` slices; without thread splits, they
    are summed in float64, even those of fewer rows.
    """
    in_float64 = thread_splits == 1
    moments, fewest = partial(_moments, most=thread_splits), LONG_SUM
    if in_float64:
        moments, fewest = partial(_float64_moments), FEWEST_ROWS
    pairs = [pair for node in graph.nodes if (pair := _pair(node, fewest)) is not None]
    if not pairs:
        return graph
    means = {pair.mean: pair for pair in pairs}
    squares: dict[Node, Value] = {}

    def rule(old: Node, new: Node) -> Value:
        if old in squares:
            return reshape(squares[old], shape=old.shape)
        if old in means:
            mean, squares[means[old].squares] = moments(_summed(new))
            return reshape(mean, shape=old.shape)
        return new if in_float64 else _without_biases(new)

    return rewritten(graph, rule)


def adds_up_rows(node: Node, fewest: int = FEWEST_ROWS) -> bool:
    """Return whether a node sums all axes but the last, over enough rows."""
    if node.op is not sum_ or node.dtype != np.float32:
        return False
    shape, axes = node.inputs[0].shape, tuple(sorted(node.attrs["axes"]))
    return axes == tuple(range(len(shape) - 1)) and math.prod(shape[:-1]) >= fewest


def _summed(mean: Node) -> Value:
    """Return the data of a mean."""
    total = _through(mean.inputs[0], reshape)
    assert isinstance(total, Node)
    return total.inputs[0]


def _pair(squares: Node, fewest: int) -> _Pair | None:
    """Return the mean and squares, if a node sums squared deviations of enough rows."""
    if not adds_up_rows(squares, fewest):
        return None
    product, axes = squares.inputs[0], tuple(sorted(squares.attrs["axes"]))
    count = math.prod(product.shape[:-1])
    factors = _operands(product, multiply)
    if factors is None or factors[0] is not factors[1]:
        return None
    terms = _operands(factors[0], subtract)
    if terms is None:
        return None
    x, mean = terms[0], _through(terms[1], broadcast)
    quotient = _operands(mean, divide)
    if quotient is None or not isinstance(mean, Node):
        return None
    total, number = _through(quotient[0], reshape), splat(quotient[1])
    if not isinstance(total, Node) or total.op is not sum_ or number != count:
        return None
    matches = total.inputs[0] is x and tuple(sorted(total.attrs["axes"])) == axes
    return _Pair(mean, squares) if matches else None


def _operands(value: Value, op: object) -> tuple[Value, ...] | None:
    return value.inputs if isinstance(value, Node) and value.op is op else None


def _through(value: Value, op: object) -> Value:
    return value.inputs[0] if isinstance(value, Node) and value.op is op else value


def _moments(x: Value, most: int) -> tuple[Value, Value]:
    """Return the mean and the sum of squared deviations, along the last axis."""
    source, bias = _without_bias(x)
    slices = thread_split(x.shape[0], most)
    shape = (slices, x.shape[0] // slices, *x.shape[1:])
    reshaped = reshape(source, shape=shape)
    spatial = tuple(range(1, len(shape) - 1))
    first = slice_(
        reshaped,
        starts=(0,) * len(shape),
        stops=tuple(1 if axis in spatial else n for axis, n in enumerate(shape)),
        steps=(1,) * len(shape),
    )
    deviations = subtract(reshaped, broadcast(first, shape=shape))
    sums = sum_(deviations, axes=spatial)
    squares = sum_(multiply(deviations, deviations), axes=spatial)
    count = math.prod(shape[1:-1])
    shift = divide(sums, _number(count, sums))
    means = add(reshape(first, shape=sums.shape), shift)
    mean = sum_(means, axes=(0,))
    mean = divide(mean, _number(slices, mean))
    within = subtract(squares, multiply(sums, shift))
    distances = subtract(means, broadcast(mean, shape=means.shape))
    between = multiply(multiply(distances, distances), _number(count, distances))
    total = sum_(add(within, between), axes=(0,))
    return (mean if bias is None else add(mean, bias)), total


def _float64_moments(x: Value) -> tuple[Value, Value]:
    """Return the same from plain sums in float64."""
    source, bias = _without_bias(x)
    wide = cast(source, dtype="float64")
    axes = tuple(range(x.ndim - 1))
    total = sum_(wide, axes=axes)
    squares = sum_(multiply(wide, wide), axes=axes)
    mean = divide(total, _number(math.prod(x.shape[:-1]), total))
    around = subtract(squares, multiply(total, mean))
    around = cast(maximum(around, _number(0, around)), dtype=x.dtype.name)
    mean = cast(mean, dtype=x.dtype.name)
    return (mean if bias is None else add(mean, bias)), around


def _number(number: int, like: Value) -> Value:
    return broadcast(Constant(np.asarray(number, like.dtype)), shape=like.shape)


def _without_biases(node: Node) -> Value:
    """Return x - mean for (x + bias) - (mean + bias), as batch norm has it."""
    terms = _operands(node, subtract)
    if terms is None:
        return node
    (x, bias), mean = _without_bias(terms[0]), _through(terms[1], broadcast)
    other = _operands(_through(mean, reshape), add)
    if bias is None or other is None or other[1] is not bias:
        return node
    if mean.shape[-1] != mean.size:  # not by the last axis
        return node
    return subtract(x, broadcast(reshape(other[0], shape=mean.shape), shape=x.shape))


def _without_bias(x: Value) -> tuple[Value, Value | None]:
    """Split x into values and a bias that is added along the last axis, if any."""
    terms = _operands(x, add)
    if terms is not None and x.ndim > 1:
        bias = _through(terms[1], broadcast)
        if bias is not terms[1] and bias.shape == x.shape[-1:]:
            return terms[0], bias
    return x, None


# ---- inputs of loops over time -------------------------------------------------------
# Cheap pointwise functions of products, such as a bias, are computed within the loop
# that reads them: otherwise they would be an extra pass over an array of all steps.


def light_inputs_in_loops(graph: Graph) -> Graph:
    """Return a graph whose loops apply pointwise functions to products themselves."""
    readers = Counter(value for node in graph.nodes for value in set(node.inputs))
    readers.update(graph.outputs.values())

    def rule(old: Node, new: Node) -> Value:
        if old.op is not scan:
            return new
        first, count = old.attrs["carries"], old.attrs["stacked"]
        light = [
            number
            for number in range(first, first + count)
            if readers[old.inputs[number]] == 1 and _is_light(old.inputs[number])
        ]
        return _LoopWithInputs(new).computing(light) if light else new

    return rewritten(graph, rule, (scan,))


def _is_light(value: Value) -> bool:
    """Return whether a value is a pointwise function of products, for all steps."""
    return (
        isinstance(value, Node)
        and value.op.kind == "pointwise"
        and all(_repeats(x) or _is_light(x) or _is_product(x) for x in value.inputs)
    )


def _repeats(value: Value) -> bool:
    """Return whether a value is the same at all steps."""
    if not isinstance(value, Node) or value.op is not broadcast:
        return False
    return value.inputs[0].ndim < value.ndim


def _is_product(value: Value) -> bool:
    while isinstance(value, Node) and value.op is reshape:
        (value,) = value.inputs
    return isinstance(value, Node) and value.op.kind == "contraction"


class _LoopWithInputs:
    """A loop under construction that computes some of its stacked inputs itself."""

    def __init__(self, loop: Node) -> None:
        self._loop, self._body = loop, loop.attrs["body"]
        self._carries = loop.attrs["carries"]
        after = self._carries + loop.attrs["stacked"]
        pairs = list(zip(self._body.inputs, loop.inputs, strict=True))
        self._state, self._constants = pairs[: self._carries], pairs[after:]
        self._stacked = pairs[self._carries : after]

    def computing(self, numbers: Sequence[int]) -> Node:
        """Return the loop with these inputs computed in its body."""
        light = {self._body.inputs[n]: self._loop.inputs[n] for n in numbers}
        self._stacked = [pair for pair in self._stacked if pair[0] not in light]
        slices = {inner: self._slice(value) for inner, value in light.items()}
        outputs = instantiated(self._body.outputs.values(), slices)
        pairs = (*self._state, *self._stacked, *self._constants)
        names = dict(zip(self._body.outputs, outputs, strict=True))
        body = Graph.of(self._body.name, [inner for inner, _ in pairs], names)
        attrs = {**self._loop.attrs, "body": body, "stacked": len(self._stacked)}
        inputs = tuple(outer for _, outer in pairs)
        loop = self._loop
        return Node(loop.op, inputs, attrs, loop.shape, loop.dtype, loop.origin)

    def _slice(self, value: Value) -> Value:
        """Return the body's counterpart, at each step, of a value of all steps."""
        shape = value.shape[1:]
        if _repeats(value):
            assert isinstance(value, Node)
            return broadcast(self._constant(value.inputs[0]), shape=shape)
        if _is_light(value):
            assert isinstance(value, Node)
            inputs = tuple(self._slice(x) for x in value.inputs)
            origin = value.origin
            return Node(value.op, inputs, value.attrs, shape, value.dtype, origin)
        inner = Input(f"p{len(self._stacked)}", shape, value.dtype)
        self._stacked.append((inner, value))
        return inner

    def _constant(self, value: Value) -> Value:
        if isinstance(value, Constant):
            return value
        inner = Input(f"q{len(self._constants)}", value.shape, value.dtype)
        self._constants.append((inner, value))
        return inner
