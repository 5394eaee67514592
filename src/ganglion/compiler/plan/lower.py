"""Lowering of a program: ops of more than an element, products, results and state."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ganglion.compiler.ir.graph import Node, Value
from ganglion.compiler.ir.program import Program
from ganglion.compiler.plan import lower_winograd
from ganglion.compiler.plan.kernels import (
    Apply,
    Axis,
    Buffer,
    Contract,
    Expr,
    Kernel,
    Literal,
    Load,
    Loop,
    Scan,
    Scatter,
    Shape,
    View,
    rewrite,
    row_major,
    walk,
)
from ganglion.compiler.plan.lower_pools import (
    lower_max_pool_back,
    lower_pool,
    lower_sum_pool_back,
)
from ganglion.compiler.plan.lower_scan import lower_scan
from ganglion.compiler.plan.lowering import (
    LONG_SUM,
    Indices,
    Lowering,
    Preferences,
    copy_into,
    identity,
    padded_images,
    thread_split,
)
from ganglion.compiler.plan.plan import Plan

LANES = 16  # rows or columns: products with fewer are thin
PANEL = 2 * LANES  # columns that a tile of registers has, if it has many rows
PACKED_ROWS = 2 * 14  # of a product whose right matrix is worth copying by panels
MAX_PARTIAL_SUMS = 1 << 17  # elements of partial sums, all parts together


def lower(program: Program, target: Preferences) -> Plan:
    """Return the kernels of a program, in order, and the buffers they work on."""
    low = Lowering(program.graph, set(program.data), target)
    _lower_nodes(low)
    results = _results(low, program.results)
    _write_state(low, program)
    inputs = {value.name: low.buffers[value] for value in program.graph.inputs}
    data = {name: inputs[name] for name in program.data}
    state = {name: inputs[name] for name in program.state}
    return Plan(program.graph.name, tuple(low.kernels), data, state, results)


def _lower_nodes(low: Lowering) -> None:
    for node in low.graph.nodes:
        if node.op.name in _LOWER:
            _LOWER[node.op.name](low, node)


# ---- reductions ----------------------------------------------------------------------


def _reduction_indices(x: Value, axes: Shape) -> tuple[Shape, Indices]:
    """Return a loop over kept axes, then reduced ones, and the indices of x in it."""
    order = [i for i in range(x.ndim) if i not in axes] + list(axes)
    rank = x.ndim
    indices: list[Any] = [None] * rank
    for position, axis in enumerate(order):
        indices[axis] = (tuple(int(j == position) for j in range(rank)), 0)
    return tuple(x.shape[i] for i in order), tuple(indices)


def _reduce(low: Lowering, node: Node) -> None:
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
    """Sum in a fixed number of parts that may run at the same time, then add those."""
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


def _argmax(low: Lowering, node: Node) -> None:
    (x,) = node.inputs
    shape, indices = _reduction_indices(x, (node.attrs["axis"],))
    target = low.allocate(node)
    view = View(target, row_major(node.shape))
    low.emit(Loop.of("argmax", shape, low.at(x, indices), view, 1, "argmax"))


def _cumsum(low: Lowering, node: Node) -> None:
    (x,), axis = node.inputs, node.attrs["axis"]
    source, target = low.view(x), low.allocate(node)
    order = [i for i in range(x.ndim) if i != axis] + [axis]

    def ordered(view: View) -> View:
        return View(view.buffer, tuple(view.strides[i] for i in order), view.offset)

    shape = tuple(x.shape[i] for i in order)
    low.emit(Scan("cumsum", shape, ordered(source), ordered(View.of(target))))


# ---- movement that is no affine view ----------------------------------------------


def _pad(low: Lowering, node: Node) -> None:
    pairs, interior = node.attrs["pairs"], node.attrs["interior"]
    target = low.allocate(node)
    fill = Literal(node.dtype, node.dtype.type(node.attrs["value"]).item())
    padded = View.of(target)
    low.emit(Loop.of("fill", node.shape, fill, padded))
    copy_into(low, node.inputs[0], padded, pairs, interior)


def _concat(low: Lowering, node: Node) -> None:
    target = low.allocate(node)
    joined, axis, start = View.of(target), node.attrs["axis"], 0
    for value in node.inputs:
        pairs = tuple((start if i == axis else 0, 0) for i in range(node.ndim))
        copy_into(low, value, joined, pairs, (0,) * node.ndim)
        start += value.shape[axis]


def _scatter_add(low: Lowering, node: Node) -> None:
    """Clear the rows, then add every update to its row, in order."""
    updates, index = node.inputs
    target = low.allocate(node)
    low.emit(Loop.of("fill", node.shape, Literal(node.dtype, 0), View.of(target)))
    count = index.size
    row = node.size // max(node.shape[0], 1)
    low.emit(
        Scatter("scatter_add", count, row, low.store(updates), low.store(index), target)
    )


PART_ROWS = 64  # at least: fewer would read the right matrix too often

# ---- products: matrices and all three passes of convolution --------------------------
# They differ in nothing but their axes and strides, so all become a `Contract`.


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


def _matmul(low: Lowering, node: Node) -> None:
    """Multiply matrices; a right one that is transposed is packed first."""
    a, b = node.inputs
    left, right = low.view_in_any_order(a), low.view(b)
    packed = _panels(low, node, right)
    if right.strides[-1] != 1 and b.shape[-1] > 1 and packed is None:
        right = _contiguous(low, right, b.shape, tuple(range(b.ndim)))
    if node.ndim == 2 and min(node.shape) < LANES:
        _lower_thin(low, node, left, right)
        return
    target = low.allocate(node)
    out = row_major(node.shape)
    batch = tuple(
        Axis(size, left.strides[i], right.strides[i], out[i])
        for i, size in enumerate(node.shape[:-2])
    )
    row = Axis(node.shape[-2], left.strides[-2], 0, out[-2])
    parts = _row_parts(low, node) if packed is None else 1
    if parts > 1:
        each = row.size // parts
        batch = (Axis(parts, row.left * each, 0, row.out * each),)
        row = replace(row, size=each)
    rows = (row,)
    columns = (Axis(node.shape[-1], 0, right.strides[-1], out[-1]),)
    inner = (Axis(a.shape[-1], left.strides[-1], right.strides[-2], 0),)
    product = View(target, out)
    views = (left, right, product)
    low.emit(Contract("matmul", batch, rows, columns, inner, *views, packed=packed))


def _row_parts(low: Lowering, node: Node) -> int:
    """Return into how many parts of its rows a tall product is cut.

    Each part goes through all of the right matrix, which stays in the cache; and what
    it reads and writes may stay there, too, between the kernels before and after it.
    """
    if node.ndim != 2:
        return 1
    parts = thread_split(node.shape[0], low.target.thread_splits)
    return parts if node.shape[0] >= PART_ROWS * parts else 1


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
    target = low.allocate(node)
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


def _conv(low: Lowering, node: Node) -> None:
    """Convolve: by Winograd's method where that is worth it, else directly."""
    x, w = node.inputs
    attrs = node.attrs
    kernel = View.of(low.store(w))
    if lower_winograd.chosen(low, node, w.shape[:-2], x.shape, node.shape):
        lower_winograd.lower_conv(low, node, x, kernel, w.shape, attrs["pairs"])
        return
    images = padded_images(low, x, attrs["pairs"], (0,) * (x.ndim - 2))
    target = low.allocate(node)
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


def _conv_transpose(low: Lowering, node: Node) -> None:
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
    target = low.allocate(node)
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
    target = low.allocate(node)
    offset = sum(
        lo * s for (lo, _), s in zip(attrs["pairs"], images.strides[1:], strict=False)
    )
    inside = Load(dtype, View(padded, images.strides, offset))
    low.emit(Loop.of("copy", node.shape, inside, View.of(target)))


def _conv_kernel(low: Lowering, node: Node) -> None:
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
    target = low.allocate(node)
    strides = row_major(partial.shape)
    total = Load(node.dtype, View(partial, (*strides[1:], strides[0])))
    view = View(target, out)
    low.emit(Loop.of("sum", (*node.shape, parts), total, view, 1, "sum"))


# ---- results and state -----------------------------------------------------------


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
    """Write new states in place where the old value is no longer read."""
    inputs = {value.name: value for value in low.graph.inputs}
    writers: list[Loop] = []
    for name in program.state:
        value = low.graph.outputs.get(name)
        if value is not None and value.size:
            writers.append(_writer(low, value, low.buffers[inputs[name]]))
    copies: list[Kernel] = []
    readers: dict[Buffer, set[int]] = {}
    for number, writer in enumerate(writers):
        for buffer in writer.reads():
            readers.setdefault(buffer.root, set()).add(number)
    for number, writer in enumerate(writers):
        state = writer.target.buffer
        if readers.get(state, set()) - {number} or _reads_other_elements(low, writer):
            copy = low.new(state.shape, state.dtype, "next")
            low.emit(replace(writer, outputs=((writer.expr, View.of(copy)),)))
            load = Load(state.dtype, View.of(copy))
            copies.append(Loop.of("copy", state.shape, load, View.of(state)))
        else:
            low.emit(writer)
    for kernel in copies:
        low.emit(kernel)


def _writer(low: Lowering, value: Value, state: Buffer) -> Loop:
    expr = low.at(value, identity(value.shape), force=isinstance(value, Node))
    return Loop.of("update", value.shape, expr, View.of(state))


def _reads_other_elements(low: Lowering, writer: Loop) -> bool:
    """Return whether a new state needs other elements of the old one than its own."""
    state, strides = writer.target.buffer, writer.target.strides
    views = [node.view for node in walk(writer.expr) if isinstance(node, Load)]
    return any(
        view.buffer.root is state and (view.strides != strides or view.offset != 0)
        for view in views
    )


_LOWER: dict[str, Callable[[Lowering, Node], None]] = {
    "sum": _reduce,
    "max": _reduce,
    "argmax": _argmax,
    "cumsum": _cumsum,
    "pad": _pad,
    "concat": _concat,
    "scatter_add": _scatter_add,
    "scan": lambda low, node: lower_scan(low, node, _lower_nodes),
    "matmul": _matmul,
    "conv": _conv,
    "conv_transpose": _conv_transpose,
    "conv_kernel": _conv_kernel,
    "max_pool": lower_pool,
    "sum_pool": lower_pool,
    "sum_pool_back": lower_sum_pool_back,
    "max_pool_back": lower_max_pool_back,
}
