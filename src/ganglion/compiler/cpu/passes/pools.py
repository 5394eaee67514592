"""Gradients of max pooling: masked at the pool's result, computed by their readers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeGuard

import numpy as np

from ganglion.compiler.cpu.tuning import CPU
from ganglion.compiler.ir.graph import Graph, Node, Op, Value, rewritten
from ganglion.compiler.ir.pointwise import less, maximum, where
from ganglion.compiler.ir.pooling import max_pool, max_pool_back
from ganglion.compiler.ir.shaping import fill, splat
from ganglion.compiler.plan.kernels import (
    Apply,
    Expr,
    Kernel,
    Literal,
    Load,
    Loop,
    Move,
    Shape,
    View,
    chained,
    mapped,
    moved,
    row_major,
    walk,
)
from ganglion.compiler.plan.scan_scatter import PoolBack
from ganglion.system.records import record

# ---- masks ---------------------------------------------------------------------------
# The gradient of a ReLU before a pool is masked at the pool's result.
#
# The graph masks each element that was not positive. Only the maximum of a window gets
# a gradient, and it is positive if the pool's result is: a single comparison per
# window, after which the maximum is found without a ReLU.


def mask_pooled(graph: Graph) -> Graph:
    """Return a graph in which gradients of pools are masked before they are spread."""
    return rewritten(graph, lambda _, new: _masked(new), (where,))


def _masked(node: Node) -> Value:
    """Return where(0 < x, back(relu(x), y, dy), 0) as back(x, y, where(0 < y, dy, 0)).

    These are equal: where y > 0, x = y is equivalent to relu(x) = y, and elsewhere the
    gradient is zero.
    """
    if node.op is not where or splat(node.inputs[2]) != 0:
        return node
    above, back, _ = node.inputs
    if not (_is(above, less) and _is(back, max_pool_back)):
        return node
    (zero, x), (relu, y, dy) = above.inputs, back.inputs
    pooled = _is(y, max_pool) and y.inputs[0] is relu and y.attrs == back.attrs
    if not (pooled and splat(zero) == 0 and _is_relu(relu, x)):
        return node
    positive = where(less(fill(0, y), y), dy, fill(0, dy))
    return max_pool_back(x, y, positive, **back.attrs)


def _is_relu(value: Value, x: Value) -> bool:
    if not _is(value, maximum):
        return False
    a, b = value.inputs
    return (a is x and splat(b) == 0) or (b is x and splat(a) == 0)


def _is(value: Value, op: Op) -> TypeGuard[Node]:
    return isinstance(value, Node) and value.op is op


# ---- readers -----------------------------------------------------------------------
# Kernels that read the gradient of a pool compute it themselves, so it is not stored.
#
# The gradient of max pooling is as large as the images, and most of it is zero. A loop
# that reads it (such as batch norm's sums and gradient) can run over windows instead,
# find the maximum of each, and handle all elements of a window: the gradient is
# neither written nor read.

BOOL = np.dtype("bool")


def into_readers(kernels: Sequence[Kernel]) -> list[Kernel]:
    """Return the kernels without pools' gradients that readers can compute."""
    result = list(kernels)
    for pool in kernels:
        if (
            isinstance(pool, PoolBack)
            and pool.covers
            and len(pool.taps) <= CPU.pool_reader_taps
        ):
            readers = _readers(result, pool)
            if readers:
                changed = [readers.get(kernel, kernel) for kernel in result]
                result = [kernel for kernel in changed if kernel is not pool]
    return result


def _readers(kernels: list[Kernel], pool: PoolBack) -> dict[Kernel, Kernel]:
    """Return the readers of a pool's gradient over windows; none if any cannot be."""
    first = kernels.index(pool)
    root = pool.dx.buffer.root
    inputs = {buffer.root for buffer in pool.reads()}
    readers: dict[Kernel, Kernel] = {}
    last = first
    for number, kernel in enumerate(kernels[first + 1 :], first + 1):
        if root in (buffer.root for buffer in kernel.reads()):
            reader = _Reader.of(kernel, pool)
            if reader is None or len(readers) == CPU.pool_readers:
                return {}
            readers[kernel], last = reader.over_windows(), number
    written = (buffer for kernel in kernels[first:last] for buffer in kernel.writes())
    if not inputs.isdisjoint(buffer.root for buffer in written):
        return {}
    return readers


@record(guarded=True)
class _Reader:
    """A loop that reads each element of a pool's gradient once."""

    loop: Loop
    pool: PoolBack
    loads: frozenset[Expr]  # of the gradient
    spatial: Shape  # the loop's axis for each spatial axis of the images
    seen: Shape  # strides of the loop in the gradient

    @staticmethod
    def of(kernel: Kernel, pool: PoolBack) -> _Reader | None:
        """Return a kernel as a reader, None if it is no such loop."""
        if not isinstance(kernel, Loop) or kernel.adds or len(kernel.outputs) > 1:
            return None
        if kernel.how not in ("", "sum") or kernel.target.buffer.kind != "arena":
            return None
        root = pool.dx.buffer.root
        loads = [
            node
            for node in walk(kernel.expr)
            if isinstance(node, Load) and node.view.buffer.root is root
        ]
        views = {(load.view.strides, load.view.offset) for load in loads}
        if len(views) != 1:  # more of them, or none: read by an index
            return None
        ((seen, offset),) = views
        spatial = _spatial(kernel, pool.dx.buffer.shape, seen)
        if offset or spatial is None:
            return None
        return _Reader(kernel, pool, frozenset(loads), spatial, seen)

    @property
    def window(self) -> Shape:
        """The size of a window."""
        images = self.pool.dx.buffer.shape[1:-1]
        return tuple(n // m for n, m in zip(images, self.pool.shape[1:-1], strict=True))

    def over_windows(self) -> Loop:
        """Return the loop over windows, which handles all elements of a window."""
        sizes = dict(zip(self.spatial, self.pool.shape[1:-1], strict=True))
        shape = tuple(sizes.get(a, n) for a, n in enumerate(self.loop.shape))
        stored: list[tuple[Expr, View]] = []
        taps = np.ndindex(*self.window)
        for tap, gradient in zip(taps, self._gradients(), strict=True):
            move = self._moved(tap)
            expr = self._with(moved(self._without(), move), gradient)
            strides, offset = self.loop.target.strides, self.loop.target.offset
            if not self.loop.reduced:
                strides, offset = move(strides, offset)
            stored.append((expr, View(self.loop.target.buffer, strides, offset)))
        if self.loop.reduced:
            total = chained("add", [expr for expr, _ in stored])
            return replace(self.loop, shape=shape, outputs=((total, self.loop.target),))
        return replace(self.loop, shape=shape, outputs=tuple(stored))

    def _moved(self, tap: Shape) -> Move:
        """Return the move from strides over images to those of a tap over windows."""

        def move(strides: Shape, offset: int) -> tuple[Shape, int]:
            moved = list(strides)
            for axis, size, at in zip(self.spatial, self.window, tap, strict=True):
                offset += at * moved[axis]
                moved[axis] *= size
            return tuple(moved), offset

        return move

    def _without(self) -> Expr:
        """Return the expression with placeholders for the gradient."""
        gap = _Gap(self.pool.dx.buffer.dtype)
        return mapped(self.loop.expr, lambda node: gap if node in self.loads else node)

    def _with(self, expr: Expr, gradient: Expr) -> Expr:
        return mapped(expr, lambda node: gradient if isinstance(node, _Gap) else node)

    def _gradients(self) -> list[Expr]:
        """Return the gradient of each element of a window, in the loop over windows."""
        each = row_major(self.pool.dx.buffer.shape)[0]  # of an image
        axis_of = dict(zip(self.spatial, range(1, 1 + len(self.spatial)), strict=True))

        def move(strides: Shape, offset: int) -> tuple[Shape, int]:
            strides_of_windows = []
            for axis, step in enumerate(self.seen):
                if axis in axis_of:
                    strides_of_windows.append(strides[axis_of[axis]])
                else:
                    images, channels = divmod(step, each)
                    strides_of_windows.append(
                        images * strides[0] + channels * strides[-1]
                    )
            return tuple(strides_of_windows), offset

        def load(view: View) -> Load:
            moved = View(view.buffer, *move(view.strides, view.offset))
            return Load(view.buffer.dtype, moved)

        elements = [moved(element, move) for element in self.pool.elements]
        stored = self.pool.largest
        largest = load(stored) if stored else chained("maximum", elements)
        gradient: Expr = load(self.pool.dy)
        if self.pool.above is not None:
            none = Literal(gradient.dtype, 0.0)
            level = Literal(gradient.dtype, self.pool.above)
            over = Apply(BOOL, "less", (level, largest))
            gradient = Apply(gradient.dtype, "where", (over, gradient, none))
        return _to_first_largest(elements, largest, gradient)


@record(eq=False)
class _Gap(Expr):
    """A placeholder in an expression."""


def _spatial(loop: Loop, images: Shape, seen: Shape) -> Shape | None:
    """Return a loop's axis for each spatial axis, None if its axes do not fit.

    Besides those, a loop may have axes of images, possibly split, and of channels.
    """
    each, *steps, _ = row_major(images)
    spatial = []
    for step, size in zip(steps, images[1:-1], strict=True):
        axes = [a for a, s in enumerate(seen) if s == step and loop.shape[a] == size]
        if len(axes) != 1:
            return None
        spatial += axes
    for axis, (step, size) in enumerate(zip(seen, loop.shape, strict=True)):
        channels = step * (size - 1) < images[-1]
        if axis not in spatial and step % each and not channels:
            return None
    outer = len(loop.shape) - loop.reduced
    all_alike = loop.reduced == 0 or all(axis >= outer for axis in spatial)
    return tuple(spatial) if all_alike else None


def _to_first_largest(
    elements: list[Expr], largest: Expr, gradient: Expr
) -> list[Expr]:
    """Return each element's gradient: the first maximum gets all of it.

    >>> x = [Literal(np.dtype("float32"), n) for n in (1.0, 3.0)]
    >>> [where.op for where in _to_first_largest(x, x[1], x[0])]
    ['where', 'where']
    """
    none = Literal(gradient.dtype, 0.0)
    gradients: list[Expr] = []
    waiting: Expr | None = None
    for element in elements:
        wins: Expr = Apply(BOOL, "equal", (element, largest))
        loses = Apply(BOOL, "logical_not", (wins,))
        if waiting is not None:
            wins = Apply(BOOL, "logical_and", (waiting, wins))
            loses = Apply(BOOL, "logical_and", (waiting, loses))
        waiting = loses
        gradients.append(Apply(gradient.dtype, "where", (wins, gradient, none)))
    return gradients
