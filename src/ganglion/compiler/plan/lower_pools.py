"""Lowering of pooling and its gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeGuard

import numpy as np

from ganglion.compiler.ir.graph import Node, Op, Value
from ganglion.compiler.ir.pointwise import less, where
from ganglion.compiler.ir.shaping import splat
from ganglion.compiler.plan.kernels import (
    Apply,
    Expr,
    Index,
    Literal,
    Load,
    Loop,
    Shape,
    View,
    chained,
    fixed,
    row_major,
)
from ganglion.compiler.plan.lower_copies import copy_into, padded_images
from ganglion.compiler.plan.lowering import AffineIndex, Lowering, Pairs
from ganglion.compiler.plan.scan_scatter import PoolBack
from ganglion.system.records import record

BOOL = np.dtype("bool")
FEW_TAPS = 4  # of a window that is unrolled


def _windows(
    x_view: View, shape: Shape, attrs: Mapping[str, Any]
) -> tuple[Shape, Shape]:
    """Return the shape of (windows, window) and the strides of x in it."""
    rank = len(shape) - 2
    steps = tuple(x_view.strides[i + 1] * attrs["strides"][i] for i in range(rank))
    taps = tuple(x_view.strides[i + 1] for i in range(rank))
    strides = (x_view.strides[0], *steps, x_view.strides[-1], *taps)
    return (*shape, *attrs["window"]), strides


def _element(
    low: Lowering, x: Value, shape: Shape, attrs: Mapping[str, Any], lowest: float
) -> Expr:
    """Return an element of a window, in a loop over (windows, window).

    Where windows do not overlap, a lazy value is inlined here.
    """
    window, strides = attrs["window"], attrs["strides"]
    padded = any(lo or hi for lo, hi in attrs["pairs"])
    if padded or any(w > s for w, s in zip(window, strides, strict=True)):
        view = _surrounded(low, x, attrs["pairs"], lowest)
        _, windows = _windows(view, shape, attrs)
        return Load(x.dtype, View(view.buffer, windows, view.offset))
    rank = len(shape) + len(window)

    def along(*steps: tuple[int, int]) -> AffineIndex:
        strides_of = dict(steps)
        return tuple(strides_of.get(axis, 0) for axis in range(rank)), 0

    first = len(shape)  # axis of the window
    spatial = [along((i + 1, strides[i]), (first + i, 1)) for i in range(len(window))]
    return low.at(x, (along((0, 1)), *spatial, along((first - 1, 1))))


def _surrounded(low: Lowering, x: Value, pairs: Pairs, value: float) -> View:
    if not any(lo or hi for lo, hi in pairs):
        return View.of(low.store(x))
    spans = zip(x.shape[1:-1], pairs, strict=True)
    spatial = tuple(n + lo + hi for n, (lo, hi) in spans)
    target = low.new((x.shape[0], *spatial, x.shape[-1]), x.dtype, "pad")
    padded = View.of(target)
    low.emit(Loop.of("fill", target.shape, Literal(x.dtype, value), padded))
    copy_into(low, x, padded, ((0, 0), *pairs, (0, 0)), (0,) * x.ndim)
    return padded


def lower_pool(low: Lowering, node: Node) -> None:
    """Emit a reduction of every window."""
    is_max = node.op.name == "max_pool"
    (x,) = node.inputs
    lowest = -math.inf if is_max else 0.0
    expr = _element(low, x, node.shape, node.attrs, lowest)
    target = low.allocate(node)
    window = node.attrs["window"]
    if low.target.pools_by_window and math.prod(window) <= FEW_TAPS:
        taps = [fixed(expr, tap) for tap in np.ndindex(*window)]
        reduced = _largest(taps) if is_max else chained("add", taps)
        low.emit(Loop.of(node.op.name, node.shape, reduced, View.of(target)))
        return
    shape = (*node.shape, *window)
    how = "max" if is_max else "sum"
    low.emit(Loop.of(node.op.name, shape, expr, View.of(target), len(window), how))


def _largest(exprs: list[Expr]) -> Expr:
    """Return the maximum; ReLUs of all operands become a single ReLU of it."""
    limits = {_limit(expr) for expr in exprs}
    if len(limits) > 1 or None in limits:
        return chained("maximum", exprs)
    inner = [expr.args[0] for expr in exprs if isinstance(expr, Apply)]
    (limit,) = limits
    return chained("maximum", [*inner, Literal(exprs[0].dtype, limit)])


def _limit(expr: Expr) -> float | None:
    """Return the constant in `maximum(x, constant)`, None for other expressions."""
    if not isinstance(expr, Apply) or expr.op != "maximum":
        return None
    return expr.args[1].value if isinstance(expr.args[1], Literal) else None


def _cleared(low: Lowering, node: Node) -> View:
    spans = zip(node.shape[1:-1], node.attrs["pairs"], strict=True)
    spatial = tuple(n + lo + hi for n, (lo, hi) in spans)
    shape = (node.shape[0], *spatial, node.shape[-1])
    target = low.new(shape, node.dtype, "pad")
    cleared = View.of(target)
    low.emit(Loop.of("fill", shape, Literal(node.dtype, 0.0), cleared))
    return cleared


def _without_padding(low: Lowering, node: Node, padded: View) -> None:
    """Store the interior of a padded array as the value of a node."""
    pairs = node.attrs["pairs"]
    if padded.buffer.shape == node.shape:
        low.buffers[node] = padded.buffer
        return
    target = low.allocate(node)
    offset = sum(lo * s for (lo, _), s in zip(pairs, padded.strides[1:], strict=False))
    inside = Load(node.dtype, View(padded.buffer, padded.strides, offset))
    low.emit(Loop.of("copy", node.shape, inside, View.of(target)))


def lower_sum_pool_back(low: Lowering, node: Node) -> None:
    """Emit the gradient of sum pooling: each window's, added to its elements."""
    (dy,) = node.inputs
    if _covers(node, dy.shape):
        _spread(low, node, dy)
        return
    if not low.target.pools_by_window:
        _gather_sum_pool_back(low, node)
        return
    padded = _cleared(low, node)
    shape, strides = _windows(padded, dy.shape, node.attrs)
    grads = View.of(low.store(dy))
    taps = (0,) * len(node.attrs["window"])
    expr = Load(node.dtype, View(grads.buffer, (*grads.strides, *taps)))
    # Windows may overlap: those of an image are added one after the other.
    order = _taps_before_channels(len(shape), len(taps))
    kernel = Loop.of(
        node.op.name,
        tuple(shape[i] for i in order),
        Load(
            node.dtype, View(grads.buffer, tuple(expr.view.strides[i] for i in order))
        ),
        View(padded.buffer, tuple(strides[i] for i in order)),
        adds=True,
    )
    low.emit(kernel)
    _without_padding(low, node, padded)


def _spread(low: Lowering, node: Node, dy: Value) -> None:
    """Copy each window's gradient to its elements: windows do not overlap."""
    first, *steps, last = row_major(dy.shape)
    shape, strides = [dy.shape[0]], [first]
    for size, step, window in zip(
        dy.shape[1:-1], steps, node.attrs["window"], strict=True
    ):
        shape += [size, window]
        strides += [step, 0]
    loop_shape = (*shape, dy.shape[-1])
    grads = View(low.store(dy), (*strides, last))
    target = low.allocate(node)
    to = View(target, row_major(loop_shape))
    low.emit(Loop.of(node.op.name, loop_shape, Load(node.dtype, grads), to))


def _taps_before_channels(rank: int, taps: int) -> list[int]:
    """Return an order of axes with channels last, so that stores are contiguous."""
    channel = rank - taps - 1
    return [*range(channel), *range(channel + 1, rank), channel]


def lower_max_pool_back(low: Lowering, node: Node) -> None:
    """Emit the gradient of max pooling: each window's goes to its first maximum."""
    x, y, dy = node.inputs
    # A mask that depends on the maximum alone is computed by the kernel itself.
    above = None
    if low.target.pools_by_window and _is_masked(dy, y):
        dy, above = dy.inputs[1], 0.0
    element = _element(low, x, y.shape, node.attrs, -math.inf)
    window = list(np.ndindex(*node.attrs["window"]))
    elements = tuple(fixed(element, tap) for tap in window)
    covers = _covers(node, y.shape)
    if not (low.target.pools_by_window or covers):
        _gather_max_pool_back(low, node, elements, dy)
        return
    padded = View.of(low.new(node.shape, node.dtype)) if covers else _cleared(low, node)
    _, strides = _windows(padded, y.shape, node.attrs)
    starts, steps = strides[: y.ndim], strides[y.ndim :]
    taps = tuple(sum(t * s for t, s in zip(tap, steps, strict=True)) for tap in window)
    grads, back = View.of(low.store(dy)), View(padded.buffer, starts)
    largest = View.of(low.store(y)) if low.target.pools_by_window else None
    arguments = (elements, grads, back, taps, covers, largest, above)
    low.emit(PoolBack("max_pool_back", y.shape, *arguments))
    _without_padding(low, node, padded)


def _covers(node: Node, windows: Shape) -> bool:
    """Return whether each element of the images is in exactly one window."""
    window = node.attrs["window"]
    return (
        not any(lo or hi for lo, hi in node.attrs["pairs"])
        and node.attrs["strides"] == window
        and all(
            n * w == size
            for n, w, size in zip(windows[1:-1], window, node.shape[1:-1], strict=True)
        )
    )


def _is_masked(dy: Value, y: Value) -> TypeGuard[Node]:
    """Return whether a value is where(0 < y, something, 0)."""
    if not _is(dy, where) or splat(dy.inputs[2]) != 0:
        return False
    above = dy.inputs[0]
    return _is(above, less) and splat(above.inputs[0]) == 0 and above.inputs[1] is y


def _is(value: Value, op: Op) -> TypeGuard[Node]:
    return isinstance(value, Node) and value.op is op


# ---- gradients as gathers, for many threads ------------------------------------------
# Windows that overlap would have to add to their elements one after the other. So each
# element gathers from its windows instead: the windows' gradients are laid out at the
# distances of the windows, with zeros around and between them, and the gradient of an
# element is the sum over a window of that array.


@record(guarded=True)
class _WindowAxis:
    """An axis of the images: its windows, and their layout."""

    size: int  # of the images
    windows: int
    window: int
    stride: int
    before: int  # padding

    @property
    def left(self) -> int:
        """The zeros before the first window."""
        return max(self.window - 1 - self.before, 0)

    @property
    def right(self) -> int:
        """The zeros behind the last window."""
        return max(self.size - 1 + self.before - (self.windows - 1) * self.stride, 0)

    @property
    def extent(self) -> int:
        """The length of the axis in the layout."""
        return self.left + (self.windows - 1) * self.stride + 1 + self.right


class _WindowLayout:
    """The layout of arrays with a value for each window, at the windows' distances."""

    def __init__(self, node: Node, windows: Shape) -> None:
        attrs, rank = node.attrs, len(windows) - 2
        self._axes = [
            _WindowAxis(
                node.shape[i + 1],
                windows[i + 1],
                attrs["window"][i],
                attrs["strides"][i],
                attrs["pairs"][i][0],
            )
            for i in range(rank)
        ]
        self._shape = (windows[0], *(axis.extent for axis in self._axes), windows[-1])

    def cleared(self, low: Lowering, dtype: np.dtype) -> View:
        """Return an array of zeros."""
        padded = View.of(low.new(self._shape, dtype, "pad"))
        low.emit(Loop.of("fill", self._shape, Literal(dtype, 0), padded))
        return padded

    def windows_of(self, padded: View) -> View:
        """Return the view of the windows' values."""
        first, *steps, last = padded.strides
        pairs = list(zip(steps, self._axes, strict=True))
        strides = (first, *(step * axis.stride for step, axis in pairs), last)
        return View(
            padded.buffer, strides, sum(step * axis.left for step, axis in pairs)
        )

    def copied(self, low: Lowering, values: Value) -> View:
        """Return an array with a value for each window, zeros elsewhere."""
        pairs = tuple((axis.left, axis.right) for axis in self._axes)
        interior = tuple(axis.stride - 1 for axis in self._axes)
        return padded_images(low, values, pairs, interior)

    def gathered(self, padded: View) -> Load:
        """Return the load of an element's windows, in a loop over (images, taps).

        The window in which the element is the first tap is the last: strides are
        negative.
        """
        steps = padded.strides[1:-1]
        strides = (*padded.strides, *(-step for step in steps))
        pairs = zip(steps, self._axes, strict=True)
        start = sum(step * (axis.before + axis.left) for step, axis in pairs)
        return Load(
            padded.buffer.dtype, View(padded.buffer, strides, padded.offset + start)
        )


def _gather_sum_pool_back(low: Lowering, node: Node) -> None:
    """Emit the sum of the gradients of each element's windows."""
    (dy,) = node.inputs
    layout = _WindowLayout(node, dy.shape)
    _emit_sum(low, node, layout.gathered(layout.copied(low, dy)))


def _gather_max_pool_back(
    low: Lowering, node: Node, elements: tuple[Expr, ...], dy: Value
) -> None:
    """Emit the sum of the gradients of the windows in which an element wins."""
    layout = _WindowLayout(node, dy.shape)
    dtype = np.dtype("uint8" if len(elements) < 256 else "int32")
    winners = layout.cleared(low, dtype)
    which = _first_largest(elements, dtype)
    low.emit(Loop.of("max_place", dy.shape, which, layout.windows_of(winners)))
    window = node.attrs["window"]
    tap = Index(dtype, (*(0,) * node.ndim, *row_major(window)))
    wins = Apply(BOOL, "equal", (layout.gathered(winners), tap))
    gradient = layout.gathered(layout.copied(low, dy))
    zero = Literal(node.dtype, 0.0)
    _emit_sum(low, node, Apply(node.dtype, "where", (wins, gradient, zero)))


def _emit_sum(low: Lowering, node: Node, expr: Expr) -> None:
    window = node.attrs["window"]
    target = View.of(low.new(node.shape, node.dtype))
    low.buffers[node] = target.buffer
    shape = (*node.shape, *window)
    low.emit(Loop.of(node.op.name, shape, expr, target, len(window), "sum"))


def _first_largest(elements: tuple[Expr, ...], dtype: np.dtype) -> Expr:
    """Return the number of the first maximum; of NaN, the number of elements."""
    best = chained("maximum", elements)
    first: Expr = Literal(dtype, len(elements))
    for number, element in reversed(list(enumerate(elements))):
        wins = Apply(BOOL, "equal", (element, best))
        first = Apply(dtype, "where", (wins, Literal(dtype, number), first))
    return first
