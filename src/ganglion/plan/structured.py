"""Lowering of the ops that are more than one element at a time.

Everything with multiplications becomes a `Contract`: matrix products and all three
passes of convolution differ in nothing but their axes and strides.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ganglion.ir.graph import Node, Value
from ganglion.plan import winograd
from ganglion.plan.kernel import (
    Apply,
    Axis,
    Buffer,
    Contract,
    Expr,
    Literal,
    Load,
    Loop,
    PoolBack,
    Scan,
    Scatter,
    Shape,
    View,
    rewrite,
    row_major,
)
from ganglion.plan.lower import LONG_SUM, SLICES, Lowering, Places, identity

Pairs = tuple[tuple[int, int], ...]


def lower_node(low: Lowering, node: Node) -> None:
    """Emit the kernels of an op that is not lazy."""
    _LOWER[node.op.name](low, node)


def is_structured(node: Node) -> bool:
    """Tell whether an op has kernels of its own."""
    return node.op.name in _LOWER


# ---- reductions ----------------------------------------------------------------------


def _reduction_places(x: Value, axes: Shape) -> tuple[Shape, Places]:
    """Return a loop over kept axes, then reduced ones, and the places of x in it."""
    order = [i for i in range(x.ndim) if i not in axes] + list(axes)
    rank = x.ndim
    places: list[Any] = [None] * rank
    for position, axis in enumerate(order):
        places[axis] = (tuple(int(j == position) for j in range(rank)), 0)
    return tuple(x.shape[i] for i in order), tuple(places)


def _reduce(low: Lowering, node: Node) -> None:
    (x,), axes = node.inputs, tuple(sorted(node.attrs["axes"]))
    shape, places = _reduction_places(x, axes)
    target = low.new(node.shape, node.dtype)
    low.buffers[node] = target
    kept, count = node.size, math.prod(x.shape[i] for i in axes)
    parts = _parts(x.shape[axes[0]]) if axes else 1
    is_sum = node.op.name == "sum"
    expr = low.at(x, places)
    if not (is_sum and count >= LONG_SUM and kept <= LONG_SUM and parts > 1):
        view = View(target, row_major(node.shape))
        low.emit(Loop(node.op.name, shape, expr, view, len(axes), node.op.name))
        return
    _long_sum(low, node, shape, expr, parts, target)


def _long_sum(
    low: Lowering, node: Node, shape: Shape, expr: Expr, parts: int, target: Buffer
) -> None:
    """Sum in a fixed number of parts that may run at the same time, then add those."""
    kept = len(node.shape)
    wide = np.dtype("float64") if node.dtype.kind == "f" else node.dtype
    partial = low.new((parts, *node.shape), wide)
    cut = (parts, *node.shape, shape[kept] // parts, *shape[kept + 1 :])
    expr = _shifted(expr, kept, shape[kept] // parts)
    view = View(partial, row_major(partial.shape))
    reduced = len(shape) - kept
    low.emit(Loop("sum", cut, expr, view, reduced, "sum"))
    strides = row_major(partial.shape)
    total = Load(wide, View(partial, (*strides[1:], strides[0])))
    view = View(target, row_major(node.shape))
    low.emit(Loop("sum", (*node.shape, parts), total, view, 1, "sum"))


def _parts(size: int) -> int:
    return max(n for n in range(1, SLICES + 1) if size % n == 0)


def _shifted(expr: Expr, axis: int, part: int) -> Expr:
    """Rewrite an expression for a loop whose axis is cut into (part number, place)."""

    def strides(old: Shape) -> Shape:
        return (old[axis] * part, *old) if old else ()

    return rewrite(expr, strides)


def _argmax(low: Lowering, node: Node) -> None:
    (x,) = node.inputs
    shape, places = _reduction_places(x, (node.attrs["axis"],))
    target = low.new(node.shape, node.dtype)
    low.buffers[node] = target
    view = View(target, row_major(node.shape))
    low.emit(Loop("argmax", shape, low.at(x, places), view, 1, "argmax"))


def _cumsum(low: Lowering, node: Node) -> None:
    (x,), axis = node.inputs, node.attrs["axis"]
    source, target = low.view(x), low.new(node.shape, node.dtype)
    low.buffers[node] = target
    order = [i for i in range(x.ndim) if i != axis] + [axis]

    def ordered(view: View) -> View:
        return View(view.buffer, tuple(view.strides[i] for i in order), view.offset)

    shape = tuple(x.shape[i] for i in order)
    low.emit(Scan("cumsum", shape, ordered(source), ordered(View.whole(target))))


# ---- movement that is no affine view ---------------------------------------------------


def _pad(low: Lowering, node: Node) -> None:
    pairs, interior = node.attrs["pairs"], node.attrs["interior"]
    target = low.new(node.shape, node.dtype)
    low.buffers[node] = target
    fill = Literal(node.dtype, node.dtype.type(node.attrs["value"]).item())
    whole = View.whole(target)
    low.emit(Loop("fill", node.shape, fill, whole))
    _copy_into(low, node.inputs[0], whole, pairs, interior)


def _copy_into(
    low: Lowering, x: Value, whole: View, pairs: Pairs, interior: Shape
) -> None:
    if x.size == 0:
        return
    strides = tuple(s * (i + 1) for s, i in zip(whole.strides, interior, strict=True))
    offset = sum(lo * s for (lo, _), s in zip(pairs, whole.strides, strict=True))
    view = View(whole.buffer, strides, whole.offset + offset)
    low.emit(Loop("copy", x.shape, low.at(x, identity(x.shape)), view))


def _concat(low: Lowering, node: Node) -> None:
    target = low.new(node.shape, node.dtype)
    low.buffers[node] = target
    whole, axis, start = View.whole(target), node.attrs["axis"], 0
    for one in node.inputs:
        pairs = tuple((start if i == axis else 0, 0) for i in range(node.ndim))
        _copy_into(low, one, whole, pairs, (0,) * node.ndim)
        start += one.shape[axis]


def _scatter_add(low: Lowering, node: Node) -> None:
    """Clear the rows, then add every update to its row, in order."""
    updates, index = node.inputs
    target = low.new(node.shape, node.dtype)
    low.buffers[node] = target
    low.emit(Loop("fill", node.shape, Literal(node.dtype, 0), View.whole(target)))
    count = index.size
    row = node.size // max(node.shape[0], 1)
    low.emit(
        Scatter("scatter_add", count, row, low.store(updates), low.store(index), target)
    )


# ---- contractions ----------------------------------------------------------------------


def _contiguous(low: Lowering, view: View, shape: Shape, order: Shape) -> View:
    """Copy a view so that its axes lie in memory in the given order."""
    sizes = tuple(shape[i] for i in order)
    target = low.new(sizes, view.buffer.dtype)
    source = View(view.buffer, tuple(view.strides[i] for i in order), view.offset)
    low.emit(Loop("pack", sizes, Load(source.buffer.dtype, source), View.whole(target)))
    strides = [0] * len(shape)
    for position, axis in enumerate(order):
        strides[axis] = row_major(sizes)[position]
    return View(target, tuple(strides))


def _matmul(low: Lowering, node: Node) -> None:
    a, b = node.inputs
    left, right = low.view(a), low.view(b)
    if right.strides[-1] != 1 and b.shape[-1] > 1:
        right = _contiguous(low, right, b.shape, tuple(range(b.ndim)))
    target = low.new(node.shape, node.dtype)
    low.buffers[node] = target
    out = row_major(node.shape)
    batch = tuple(
        Axis(size, left.strides[i], right.strides[i], out[i])
        for i, size in enumerate(node.shape[:-2])
    )
    rows = (Axis(node.shape[-2], left.strides[-2], 0, out[-2]),)
    columns = (Axis(node.shape[-1], 0, right.strides[-1], out[-1]),)
    inner = (Axis(a.shape[-1], left.strides[-1], right.strides[-2], 0),)
    whole = View(target, out)
    low.emit(Contract("matmul", batch, rows, columns, inner, left, right, whole))


def _padded_images(low: Lowering, x: Value, pairs: Pairs, interior: Shape) -> View:
    """Return images with zeros around (and between) their pixels."""
    if not any(lo or hi for lo, hi in pairs) and not any(interior):
        view = low.view(x)
        return view if view.strides[-1] == 1 else View.whole(low.store(x))
    spans = zip(x.shape[1:-1], pairs, interior, strict=True)
    spatial = tuple(n + lo + hi + max(n - 1, 0) * i for n, (lo, hi), i in spans)
    target = low.new((x.shape[0], *spatial, x.shape[-1]), x.dtype, "pad")
    whole = View.whole(target)
    low.emit(Loop("fill", target.shape, Literal(x.dtype, 0.0), whole))
    _copy_into(low, x, whole, ((0, 0), *pairs, (0, 0)), (0, *interior, 0))
    return whole


def _conv(low: Lowering, node: Node) -> None:
    x, w = node.inputs
    attrs = node.attrs
    kernel = View.whole(low.store(w))
    if winograd.chosen(node, w.shape[:-2], x.shape, node.shape):
        winograd.lower_conv(low, node, x, kernel, w.shape, attrs["pairs"])
        return
    images = _padded_images(low, x, attrs["pairs"], (0,) * (x.ndim - 2))
    target = low.new(node.shape, node.dtype)
    low.buffers[node] = target
    _emit_conv(low, "conv", images, kernel, w.shape, target, node.shape, attrs)


def _emit_conv(
    low: Lowering,
    name: str,
    images: View,
    kernel: View,
    kernel_shape: Shape,
    target: Buffer,
    out_shape: Shape,
    attrs: dict[str, Any],
) -> None:
    groups, out = attrs["groups"], row_major(out_shape)
    per_in, channels = kernel_shape[-2], kernel_shape[-1]
    per_out = channels // groups
    spatial = range(1, len(out_shape) - 1)
    steps, dilation = attrs["strides"], attrs["dilation"]
    rows = tuple(
        Axis(out_shape[i], images.strides[i] * steps[i - 1], 0, out[i]) for i in spatial
    )
    taps = tuple(
        Axis(
            kernel_shape[i - 1],
            images.strides[i] * dilation[i - 1],
            kernel.strides[i - 1],
        )
        for i in spatial
    )
    batch = (Axis(out_shape[0], images.strides[0], 0, out[0]),)
    if per_in == 1 and groups > 1:
        _emit_depthwise(low, name, images, kernel, batch, rows, taps, target, per_out)
        return
    if groups > 1:
        batch += (Axis(groups, per_in, per_out, per_out),)
    inner = (*taps, Axis(per_in, 1, kernel.strides[-2]))
    columns = (Axis(per_out, 0, 1, 1),)
    low.emit(
        Contract(name, batch, rows, columns, inner, images, kernel, View(target, out))
    )


def _emit_depthwise(
    low: Lowering,
    name: str,
    images: View,
    kernel: View,
    batch: tuple[Axis, ...],
    rows: tuple[Axis, ...],
    taps: tuple[Axis, ...],
    target: Buffer,
    per_out: int,
) -> None:
    """Channels never mix: one loop over channels, the taps reduced inside."""
    groups = target.shape[-1] // per_out
    channel = (Axis(groups, 1, per_out, per_out), Axis(per_out, 0, 1, 1))
    outer = (*batch, *rows, *channel)
    axes = (*outer, *taps)
    shape = tuple(one.size for one in axes)
    dtype = target.dtype
    left = Load(dtype, View(images.buffer, tuple(a.left for a in axes), images.offset))
    right = Load(
        dtype, View(kernel.buffer, tuple(a.right for a in axes), kernel.offset)
    )
    expr = Apply(dtype, "multiply", (left, right))
    view = View(target, tuple(one.out for one in outer))
    low.emit(Loop(name, shape, expr, view, len(taps), "sum"))


def _conv_transpose(low: Lowering, node: Node) -> None:
    """Convolve the spread gradient with the kernel turned around."""
    dy, w = node.inputs
    attrs = node.attrs
    groups, kernel, dilation = attrs["groups"], w.shape[:-2], attrs["dilation"]
    spans = zip(kernel, dilation, attrs["pairs"], node.shape[1:-1], strict=True)
    pairs: list[tuple[int, int]] = []
    for axis, (k, d, (lo, _), n) in enumerate(spans):
        reach = (k - 1) * d
        spread = (dy.shape[axis + 1] - 1) * attrs["strides"][axis] + 1
        pairs.append((reach - lo, n + reach - spread - (reach - lo)))
    if any(n < 0 for pair in pairs for n in pair):
        _conv_transpose_by_adding(low, node)
        return
    turned, shape = _turned(low, w, groups)
    if winograd.chosen(node, kernel, dy.shape, node.shape):
        winograd.lower_conv(low, node, dy, turned, shape, tuple(pairs))
        return
    interior = tuple(s - 1 for s in attrs["strides"])
    images = _padded_images(low, dy, tuple(pairs), interior)
    target = low.new(node.shape, node.dtype)
    low.buffers[node] = target
    once = {**attrs, "strides": (1,) * len(kernel)}
    _emit_conv(low, "conv_transpose", images, turned, shape, target, node.shape, once)


def _turned(low: Lowering, w: Value, groups: int) -> tuple[View, Shape]:
    """Flip a kernel's taps and exchange its channels, within each group."""
    view = View.whole(low.store(w))
    taps = len(w.shape) - 2
    per_in, per_out = w.shape[-2], w.shape[-1] // groups
    # (taps..., out within group, group, in): contiguous in the new outputs.
    sizes = (*w.shape[:-2], per_out, groups, per_in)
    flipped = tuple(-s for s in view.strides[:taps])
    offset = sum((n - 1) * s for n, s in zip(w.shape[:-2], view.strides, strict=False))
    strides = (*flipped, 1, per_out, view.strides[-2])
    target = low.new(sizes, w.dtype)
    load = Load(w.dtype, View(view.buffer, strides, offset))
    low.emit(Loop("pack", sizes, load, View.whole(target)))
    shape = (*w.shape[:-2], per_out, groups * per_in)
    return View(target, row_major(shape)), shape


def _conv_transpose_by_adding(low: Lowering, node: Node) -> None:
    """Add every product where it belongs: for padding wider than the kernel."""
    dy, w = node.inputs
    attrs, groups = node.attrs, node.attrs["groups"]
    spans = zip(node.shape[1:-1], attrs["pairs"], strict=True)
    full = tuple(n + lo + hi for n, (lo, hi) in spans)
    padded = low.new((node.shape[0], *full, node.shape[-1]), node.dtype, "pad")
    whole = View.whole(padded)
    low.emit(Loop("fill", padded.shape, Literal(node.dtype, 0.0), whole))
    grads, kernel = View.whole(low.store(dy)), View.whole(low.store(w))
    per_in, per_out = w.shape[-2], w.shape[-1] // groups
    axes = [Axis(dy.shape[0], grads.strides[0], 0, whole.strides[0])]
    for i, k in enumerate(w.shape[:-2]):
        out = whole.strides[i + 1]
        axes.append(
            Axis(dy.shape[i + 1], grads.strides[i + 1], 0, out * attrs["strides"][i])
        )
        axes.append(Axis(k, 0, kernel.strides[i], out * attrs["dilation"][i]))
    axes.append(Axis(groups, per_out, per_out, per_in))
    axes.append(Axis(per_out, 1, 1, 0))
    axes.append(Axis(per_in, 0, kernel.strides[-2], 1))
    dtype = node.dtype
    left = Load(dtype, View(grads.buffer, tuple(a.left for a in axes)))
    right = Load(dtype, View(kernel.buffer, tuple(a.right for a in axes)))
    expr = Apply(dtype, "multiply", (left, right))
    view = View(padded, tuple(a.out for a in axes))
    low.emit(Loop("conv_transpose", tuple(a.size for a in axes), expr, view, adds=True))
    target = low.new(node.shape, dtype)
    low.buffers[node] = target
    offset = sum(
        lo * s for (lo, _), s in zip(attrs["pairs"], whole.strides[1:], strict=False)
    )
    inside = Load(dtype, View(padded, whole.strides, offset))
    low.emit(Loop("copy", node.shape, inside, View.whole(target)))


def _conv_kernel(low: Lowering, node: Node) -> None:
    x, dy = node.inputs
    attrs, groups = node.attrs, node.attrs["groups"]
    if winograd.chosen(node, node.shape[:-2], x.shape, dy.shape):
        winograd.lower_conv_kernel(low, node)
        return
    images = _padded_images(low, x, attrs["pairs"], (0,) * (x.ndim - 2))
    grads = low.view(dy)
    if grads.strides[-1] != 1:
        grads = View.whole(low.store(dy))
    per_in, per_out = x.shape[-1] // groups, dy.shape[-1] // groups
    out = row_major(node.shape)
    parts = _parts(x.shape[0])
    partial = low.new((parts, *node.shape), node.dtype)
    spatial = range(len(node.shape) - 2)
    taps = tuple(
        Axis(node.shape[i], images.strides[i + 1] * attrs["dilation"][i], 0, out[i])
        for i in spatial
    )
    pixels = tuple(
        Axis(
            dy.shape[i + 1],
            images.strides[i + 1] * attrs["strides"][i],
            grads.strides[i + 1],
        )
        for i in spatial
    )
    each = x.shape[0] // parts
    batch = (Axis(parts, images.strides[0] * each, grads.strides[0] * each, node.size),)
    if groups > 1:
        batch += (Axis(groups, per_in, per_out, per_out),)
    inner = (Axis(each, images.strides[0], grads.strides[0]), *pixels)
    rows = (*taps, Axis(per_in, 1, 0, out[-2]))
    columns = (Axis(per_out, 0, 1, 1),)
    whole = View(partial, (node.size, *out))
    low.emit(Contract("conv_kernel", batch, rows, columns, inner, images, grads, whole))
    target = low.new(node.shape, node.dtype)
    low.buffers[node] = target
    strides = row_major(partial.shape)
    total = Load(node.dtype, View(partial, (*strides[1:], strides[0])))
    view = View(target, out)
    low.emit(Loop("sum", (*node.shape, parts), total, view, 1, "sum"))


# ---- pooling ---------------------------------------------------------------------------


def _windows(x_view: View, shape: Shape, attrs: dict[str, Any]) -> tuple[Shape, Shape]:
    """Return the shape of (places, window) and the strides of x in it."""
    rank = len(shape) - 2
    steps = tuple(x_view.strides[i + 1] * attrs["strides"][i] for i in range(rank))
    taps = tuple(x_view.strides[i + 1] for i in range(rank))
    strides = (x_view.strides[0], *steps, x_view.strides[-1], *taps)
    return (*shape, *attrs["window"]), strides


def _surrounded(low: Lowering, x: Value, pairs: Pairs, value: float) -> View:
    if not any(lo or hi for lo, hi in pairs):
        return View.whole(low.store(x))
    spans = zip(x.shape[1:-1], pairs, strict=True)
    spatial = tuple(n + lo + hi for n, (lo, hi) in spans)
    target = low.new((x.shape[0], *spatial, x.shape[-1]), x.dtype, "pad")
    whole = View.whole(target)
    low.emit(Loop("fill", target.shape, Literal(x.dtype, value), whole))
    _copy_into(low, x, whole, ((0, 0), *pairs, (0, 0)), (0,) * x.ndim)
    return whole


def _pool(low: Lowering, node: Node) -> None:
    is_max = node.op.name == "max_pool"
    (x,) = node.inputs
    lowest = -math.inf if is_max else 0.0
    view = _surrounded(low, x, node.attrs["pairs"], lowest)
    shape, strides = _windows(view, node.shape, node.attrs)
    target = low.new(node.shape, node.dtype)
    low.buffers[node] = target
    expr = Load(x.dtype, View(view.buffer, strides, view.offset))
    how, reduced = "max" if is_max else "sum", len(node.attrs["window"])
    low.emit(Loop(node.op.name, shape, expr, View.whole(target), reduced, how))


def _cleared(low: Lowering, node: Node) -> View:
    spans = zip(node.shape[1:-1], node.attrs["pairs"], strict=True)
    spatial = tuple(n + lo + hi for n, (lo, hi) in spans)
    shape = (node.shape[0], *spatial, node.shape[-1])
    target = low.new(shape, node.dtype, "pad")
    whole = View.whole(target)
    low.emit(Loop("fill", shape, Literal(node.dtype, 0.0), whole))
    return whole


def _cut_out(low: Lowering, node: Node, whole: View) -> None:
    """Keep what lies inside of the padding."""
    pairs = node.attrs["pairs"]
    if whole.buffer.shape == node.shape:
        low.buffers[node] = whole.buffer
        return
    target = low.new(node.shape, node.dtype)
    low.buffers[node] = target
    offset = sum(lo * s for (lo, _), s in zip(pairs, whole.strides[1:], strict=False))
    inside = Load(node.dtype, View(whole.buffer, whole.strides, offset))
    low.emit(Loop("copy", node.shape, inside, View.whole(target)))


def _sum_pool_back(low: Lowering, node: Node) -> None:
    (dy,) = node.inputs
    whole = _cleared(low, node)
    shape, strides = _windows(whole, dy.shape, node.attrs)
    grads = View.whole(low.store(dy))
    taps = (0,) * len(node.attrs["window"])
    expr = Load(node.dtype, View(grads.buffer, (*grads.strides, *taps)))
    # Windows may overlap: within an image they are added one after the other.
    order = _taps_before_channels(len(shape), len(taps))
    kernel = Loop(
        node.op.name,
        tuple(shape[i] for i in order),
        Load(
            node.dtype, View(grads.buffer, tuple(expr.view.strides[i] for i in order))
        ),
        View(whole.buffer, tuple(strides[i] for i in order)),
        adds=True,
    )
    low.emit(kernel)
    _cut_out(low, node, whole)


def _taps_before_channels(rank: int, taps: int) -> list[int]:
    """Put the channels last, so that neighbours in the loop are neighbours in memory."""
    channel = rank - taps - 1
    return [*range(channel), *range(channel + 1, rank), channel]


def _max_pool_back(low: Lowering, node: Node) -> None:
    x, y, dy = node.inputs
    images = _surrounded(low, x, node.attrs["pairs"], -math.inf)
    covers = _covers(node, y.shape)
    whole = (
        View.whole(low.new(node.shape, node.dtype)) if covers else _cleared(low, node)
    )
    rank = len(node.attrs["window"])
    _, strides = _windows(images, y.shape, node.attrs)
    places = View(images.buffer, strides[: rank + 2], images.offset)
    back = View(whole.buffer, strides[: rank + 2])
    taps = tuple(
        sum(t * s for t, s in zip(tap, strides[rank + 2 :], strict=True))
        for tap in np.ndindex(*node.attrs["window"])
    )
    best, grads = View.whole(low.store(y)), View.whole(low.store(dy))
    low.emit(
        PoolBack("max_pool_back", y.shape, places, best, grads, back, taps, covers)
    )
    _cut_out(low, node, whole)


def _covers(node: Node, windows: Shape) -> bool:
    """Tell whether each element of the images lies in exactly one window."""
    window = node.attrs["window"]
    return (
        not any(lo or hi for lo, hi in node.attrs["pairs"])
        and node.attrs["strides"] == window
        and all(
            n * w == size
            for n, w, size in zip(windows[1:-1], window, node.shape[1:-1], strict=True)
        )
    )


_LOWER: dict[str, Callable[[Lowering, Node], None]] = {
    "sum": _reduce,
    "max": _reduce,
    "argmax": _argmax,
    "cumsum": _cumsum,
    "pad": _pad,
    "concat": _concat,
    "scatter_add": _scatter_add,
    "matmul": _matmul,
    "conv": _conv,
    "conv_transpose": _conv_transpose,
    "conv_kernel": _conv_kernel,
    "max_pool": _pool,
    "sum_pool": _pool,
    "sum_pool_back": _sum_pool_back,
    "max_pool_back": _max_pool_back,
}
