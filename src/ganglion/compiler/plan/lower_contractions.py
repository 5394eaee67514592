"""Lowering of products: matrices and all three passes of convolution.

They differ in nothing but their axes and strides, so all become a `Contract`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ganglion.compiler.ir.graph import Node, Value
from ganglion.compiler.plan import lower_winograd
from ganglion.compiler.plan.kernels import (
    Apply,
    Axis,
    Buffer,
    Contract,
    Literal,
    Load,
    Loop,
    Shape,
    View,
    row_major,
)
from ganglion.compiler.plan.lowering import Lowering, padded_images, thread_split

LANES = 16  # rows or columns: products with fewer are thin
PANEL = 2 * LANES  # columns that a tile of registers has, if it has many rows
PACKED_ROWS = 2 * 14  # of a product whose right matrix is worth copying by panels
MAX_PARTIAL_SUMS = 1 << 17  # elements of partial sums, all parts together


def _contiguous(low: Lowering, view: View, shape: Shape, order: Shape) -> View:
    """Copy a view so that its axes lie in memory in the given order."""
    sizes = tuple(shape[i] for i in order)
    target = low.new(sizes, view.buffer.dtype)
    source = View(view.buffer, tuple(view.strides[i] for i in order), view.offset)
    low.emit(Loop.of("pack", sizes, Load(source.buffer.dtype, source), View.of(target)))
    strides = [0] * len(shape)
    for position, axis in enumerate(order):
        strides[axis] = row_major(sizes)[position]
    return View(target, tuple(strides))


def lower_matmul(low: Lowering, node: Node) -> None:
    """Multiply matrices; a right one that is transposed is packed first."""
    a, b = node.inputs
    left, right = low.view_in_any_order(a), low.view(b)
    packed = _panels(low, node, right)
    if right.strides[-1] != 1 and b.shape[-1] > 1 and packed is None:
        right = _contiguous(low, right, b.shape, tuple(range(b.ndim)))
    if node.ndim == 2 and min(node.shape) < LANES:
        _lower_thin(low, node, left, right)
        return
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
    product = View(target, out)
    views = (left, right, product)
    low.emit(Contract("matmul", batch, rows, columns, inner, *views, packed=packed))


def _panels(low: Lowering, node: Node, right: View) -> Buffer | None:
    """Return a buffer for panels of the right matrix, None if it is used as it lies."""
    a, b = node.inputs
    (inner, columns), rows = b.shape[-2:], a.shape[-2]
    transposed = right.strides[-1] != 1 and right.strides[-2] == 1
    if (
        not low.target.packs_panels
        or node.ndim > 2
        or not transposed
        or b.size <= a.size
    ):
        return None
    if rows < PACKED_ROWS or columns < PANEL:
        return None
    return low.new((-(-columns // PANEL), inner, PANEL), b.dtype, "panels")


def _lower_thin(low: Lowering, node: Node, left: View, right: View) -> None:
    """Multiply by slices of the batch: of the rows, or of the inner axis.

    So threads exchange little: their operands are large, the result is not.
    """
    (rows, columns), inner = node.shape, node.inputs[0].shape[1]
    target = low.new(node.shape, node.dtype)
    low.buffers[node] = target
    by_rows = columns < LANES
    long = rows if by_rows else inner
    most = min(low.target.thread_splits, long // LANES)
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


def lower_conv(low: Lowering, node: Node) -> None:
    """Convolve: by Winograd's method where that is worth it, else directly."""
    x, w = node.inputs
    attrs = node.attrs
    kernel = View.of(low.store(w))
    if lower_winograd.chosen(low, node, w.shape[:-2], x.shape, node.shape):
        lower_winograd.lower_conv(low, node, x, kernel, w.shape, attrs["pairs"])
        return
    images = padded_images(low, x, attrs["pairs"], (0,) * (x.ndim - 2))
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
    attrs: Mapping[str, Any],
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
    batch: tuple[Axis, ...] = (Axis(out_shape[0], images.strides[0], 0, out[0]),)
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
    shape = tuple(axis.size for axis in axes)
    dtype = target.dtype
    left = Load(dtype, View(images.buffer, tuple(a.left for a in axes), images.offset))
    right = Load(
        dtype, View(kernel.buffer, tuple(a.right for a in axes), kernel.offset)
    )
    expr = Apply(dtype, "multiply", (left, right))
    view = View(target, tuple(size.out for size in outer))
    low.emit(Loop.of(name, shape, expr, view, len(taps), "sum"))


def lower_conv_transpose(low: Lowering, node: Node) -> None:
    """Convolve the spread gradient with the flipped kernel."""
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
    if lower_winograd.chosen(low, node, kernel, dy.shape, node.shape):
        lower_winograd.lower_conv_transpose(low, node, tuple(pairs))
        return
    transposed, shape = _transposed_kernel(low, w, groups)
    interior = tuple(s - 1 for s in attrs["strides"])
    images = padded_images(low, dy, tuple(pairs), interior)
    target = low.new(node.shape, node.dtype)
    low.buffers[node] = target
    once = {**attrs, "strides": (1,) * len(kernel)}
    _emit_conv(
        low, "conv_transpose", images, transposed, shape, target, node.shape, once
    )


def _transposed_kernel(low: Lowering, w: Value, groups: int) -> tuple[View, Shape]:
    """Flip a kernel's taps and exchange its channels, within each group."""
    view = View.of(low.store(w))
    taps = len(w.shape) - 2
    per_in, per_out = w.shape[-2], w.shape[-1] // groups
    # (taps..., out within group, group, in): contiguous in the new outputs.
    sizes = (*w.shape[:-2], per_out, groups, per_in)
    flipped = tuple(-s for s in view.strides[:taps])
    offset = sum((n - 1) * s for n, s in zip(w.shape[:-2], view.strides, strict=False))
    strides = (*flipped, 1, per_out, view.strides[-2])
    target = low.new(sizes, w.dtype)
    load = Load(w.dtype, View(view.buffer, strides, offset))
    low.emit(Loop.of("pack", sizes, load, View.of(target)))
    shape = (*w.shape[:-2], per_out, groups * per_in)
    return View(target, row_major(shape)), shape


def _conv_transpose_by_adding(low: Lowering, node: Node) -> None:
    """Add every product where it belongs: for padding wider than the kernel."""
    dy, w = node.inputs
    attrs, groups = node.attrs, node.attrs["groups"]
    spans = zip(node.shape[1:-1], attrs["pairs"], strict=True)
    full = tuple(n + lo + hi for n, (lo, hi) in spans)
    padded = low.new((node.shape[0], *full, node.shape[-1]), node.dtype, "pad")
    images = View.of(padded)
    low.emit(Loop.of("fill", padded.shape, Literal(node.dtype, 0.0), images))
    grads, kernel = View.of(low.store(dy)), View.of(low.store(w))
    per_in, per_out = w.shape[-2], w.shape[-1] // groups
    axes = [Axis(dy.shape[0], grads.strides[0], 0, images.strides[0])]
    for i, k in enumerate(w.shape[:-2]):
        out = images.strides[i + 1]
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
    low.emit(
        Loop.of("conv_transpose", tuple(a.size for a in axes), expr, view, adds=True)
    )
    target = low.new(node.shape, dtype)
    low.buffers[node] = target
    offset = sum(
        lo * s for (lo, _), s in zip(attrs["pairs"], images.strides[1:], strict=False)
    )
    inside = Load(dtype, View(padded, images.strides, offset))
    low.emit(Loop.of("copy", node.shape, inside, View.of(target)))


def lower_conv_kernel(low: Lowering, node: Node) -> None:
    """Compute a kernel's gradient: split along the batch, then added up."""
    x, dy = node.inputs
    attrs, groups = node.attrs, node.attrs["groups"]
    if lower_winograd.chosen(low, node, node.shape[:-2], x.shape, dy.shape):
        lower_winograd.lower_conv_kernel(low, node)
        return
    images = padded_images(low, x, attrs["pairs"], (0,) * (x.ndim - 2))
    grads = low.view(dy)
    if grads.strides[-1] != 1:
        grads = View.of(low.store(dy))
    per_in, per_out = x.shape[-1] // groups, dy.shape[-1] // groups
    out = row_major(node.shape)
    parts = thread_split(x.shape[0], low.target.thread_splits)
    partial = low.new((parts, *node.shape) if parts > 1 else node.shape, node.dtype)
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
    batch: tuple[Axis, ...] = (
        Axis(parts, images.strides[0] * each, grads.strides[0] * each, node.size),
    )
    if groups > 1:
        batch += (Axis(groups, per_in, per_out, per_out),)
    inner = (Axis(each, images.strides[0], grads.strides[0]), *pixels)
    rows = (*taps, Axis(per_in, 1, 0, out[-2]))
    columns = (Axis(per_out, 0, 1, 1),)
    sums = View(partial, (node.size, *out))
    low.emit(Contract("conv_kernel", batch, rows, columns, inner, images, grads, sums))
    if parts == 1:
        low.buffers[node] = partial
        return
    target = low.new(node.shape, node.dtype)
    low.buffers[node] = target
    strides = row_major(partial.shape)
    total = Load(node.dtype, View(partial, (*strides[1:], strides[0])))
    view = View(target, out)
    low.emit(Loop.of("sum", (*node.shape, parts), total, view, 1, "sum"))
