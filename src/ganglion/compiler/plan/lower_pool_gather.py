"""Gradients of pooling for a GPU: each element asks the windows that it lies in.

Windows that overlap give to the same elements, and so would have to go one after the
other. Here their gradients are laid out as far apart as the windows are, with zeros
around and between them: what an element is given is the sum over a window of that.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ganglion.compiler.ir.graph import Node, Value
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
    row_major,
)
from ganglion.compiler.plan.lower import Lowering
from ganglion.compiler.plan.split import padded_images

BOOL = np.dtype("bool")


@dataclass(frozen=True)
class _Axis:
    """One axis of the images: its windows, and where they are laid out."""

    size: int  # of the images
    windows: int
    window: int
    stride: int
    before: int  # padding

    @property
    def left(self) -> int:
        """The zeros that the first elements of the images need."""
        return max(self.window - 1 - self.before, 0)

    @property
    def right(self) -> int:
        """The zeros that the last elements of the images need."""
        return max(self.size - 1 + self.before - (self.windows - 1) * self.stride, 0)

    @property
    def extent(self) -> int:
        """How long the axis is where windows are laid out."""
        return self.left + (self.windows - 1) * self.stride + 1 + self.right


class _Layout:
    """Arrays with a value for each window, laid out over the images."""

    def __init__(self, node: Node, windows: Shape) -> None:
        attrs, rank = node.attrs, len(windows) - 2
        self._axes = [
            _Axis(
                node.shape[i + 1],
                windows[i + 1],
                attrs["window"][i],
                attrs["strides"][i],
                attrs["pairs"][i][0],
            )
            for i in range(rank)
        ]
        self._shape = (windows[0], *(one.extent for one in self._axes), windows[-1])

    def cleared(self, low: Lowering, dtype: np.dtype) -> View:
        """Return an array of zeros."""
        made = View.whole(low.new(self._shape, dtype, "pad"))
        low.emit(Loop.of("fill", self._shape, Literal(dtype, 0), made))
        return made

    def windows_of(self, made: View) -> View:
        """Return where each window has its value."""
        first, *steps, last = made.strides
        pairs = list(zip(steps, self._axes, strict=True))
        strides = (first, *(step * one.stride for step, one in pairs), last)
        return View(made.buffer, strides, sum(step * one.left for step, one in pairs))

    def copied(self, low: Lowering, values: Value) -> View:
        """Return an array with a value for each window, zeros elsewhere."""
        pairs = tuple((one.left, one.right) for one in self._axes)
        interior = tuple(one.stride - 1 for one in self._axes)
        return padded_images(low, values, pairs, interior)

    def asked(self, made: View) -> Load:
        """Return what an element finds of its windows: (images, places of a window).

        The window in which it is at the first place comes last, so steps go back.
        """
        steps = made.strides[1:-1]
        strides = (*made.strides, *(-step for step in steps))
        pairs = zip(steps, self._axes, strict=True)
        start = sum(step * (one.before + one.left) for step, one in pairs)
        return Load(made.buffer.dtype, View(made.buffer, strides, made.offset + start))


def lower_sum_pool_back(low: Lowering, node: Node) -> None:
    """Give each window's gradient to all of its elements."""
    (dy,) = node.inputs
    layout = _Layout(node, dy.shape)
    _emit_sum(low, node, layout.asked(layout.copied(low, dy)))


def lower_max_pool_back(
    low: Lowering, node: Node, elements: tuple[Expr, ...], dy: Value
) -> None:
    """Give each window's gradient to the first of its largest elements."""
    layout = _Layout(node, dy.shape)
    dtype = np.dtype("uint8" if len(elements) < 256 else "int32")
    places = layout.cleared(low, dtype)
    which = _first_largest(elements, dtype)
    low.emit(Loop.of("max_place", dy.shape, which, layout.windows_of(places)))
    window = node.attrs["window"]
    here = Index(dtype, (*(0,) * node.ndim, *row_major(window)))
    mine = Apply(BOOL, "equal", (layout.asked(places), here))
    given = layout.asked(layout.copied(low, dy))
    zero = Literal(node.dtype, 0.0)
    _emit_sum(low, node, Apply(node.dtype, "where", (mine, given, zero)))


def _emit_sum(low: Lowering, node: Node, expr: Expr) -> None:
    window = node.attrs["window"]
    target = View.whole(low.new(node.shape, node.dtype))
    low.buffers[node] = target.buffer
    shape = (*node.shape, *window)
    low.emit(Loop.of(node.op.name, shape, expr, target, len(window), "sum"))


def _first_largest(elements: tuple[Expr, ...], dtype: np.dtype) -> Expr:
    """Return which element is the first of the largest; of NaN, none is."""
    best = chained("maximum", elements)
    found: Expr = Literal(dtype, len(elements))
    for number, one in reversed(list(enumerate(elements))):
        wins = Apply(BOOL, "equal", (one, best))
        found = Apply(dtype, "where", (wins, Literal(dtype, number), found))
    return found
