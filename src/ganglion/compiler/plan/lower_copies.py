"""Lowering of copies into larger arrays: padding, concatenation, scatters."""

from __future__ import annotations

from dataclasses import replace

from ganglion.compiler.ir.graph import Node, Value
from ganglion.compiler.plan.kernels import Literal, Loop, Shape, View
from ganglion.compiler.plan.lowering import Lowering, Pairs, identity
from ganglion.compiler.plan.scan_scatter import Scatter


def copy_into(
    low: Lowering, x: Value, target: View, pairs: Pairs, interior: Shape
) -> None:
    """Copy a value into a larger array, behind and between gaps."""
    if x.size == 0:
        return
    strides = tuple(s * (i + 1) for s, i in zip(target.strides, interior, strict=True))
    offset = sum(lo * s for (lo, _), s in zip(pairs, target.strides, strict=True))
    view = View(target.buffer, strides, target.offset + offset)
    low.emit(Loop.of("copy", x.shape, low.at(x, identity(x.shape)), view))


def fill_border(low: Lowering, target: View, shape: Shape, pairs: Pairs) -> None:
    """Fill the border of a padded array with zeros; its interior has `shape`."""
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
    """Return a view of images with zeros around and between their pixels."""
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


def lower_pad(low: Lowering, node: Node) -> None:
    """Fill an array, then copy the value into it."""
    pairs, interior = node.attrs["pairs"], node.attrs["interior"]
    target = low.allocate(node)
    fill = Literal(node.dtype, node.dtype.type(node.attrs["value"]).item())
    padded = View.of(target)
    low.emit(Loop.of("fill", node.shape, fill, padded))
    copy_into(low, node.inputs[0], padded, pairs, interior)


def lower_concat(low: Lowering, node: Node) -> None:
    """Copy values side by side."""
    target = low.allocate(node)
    joined, axis, start = View.of(target), node.attrs["axis"], 0
    for value in node.inputs:
        pairs = tuple((start if i == axis else 0, 0) for i in range(node.ndim))
        copy_into(low, value, joined, pairs, (0,) * node.ndim)
        start += value.shape[axis]


def lower_scatter_add(low: Lowering, node: Node) -> None:
    """Fill the target with zeros, then add every update to its row, in order."""
    updates, index = node.inputs
    target = low.allocate(node)
    low.emit(Loop.of("fill", node.shape, Literal(node.dtype, 0), View.of(target)))
    count = index.size
    row = node.size // max(node.shape[0], 1)
    low.emit(
        Scatter("scatter_add", count, row, low.store(updates), low.store(index), target)
    )
