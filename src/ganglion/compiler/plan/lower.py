"""Lowering of a program: ops of more than an element, products, results and state."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ganglion.compiler.ir import host
from ganglion.compiler.ir.graph import Node, Program, ShapeError, Value
from ganglion.compiler.plan.host_call import lower_host_call
from ganglion.compiler.plan.kernels import (
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
)
from ganglion.compiler.plan.lower_conv import (
    lower_conv,
    lower_conv_kernel,
    lower_conv_transpose,
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
    contiguous,
    copy_into,
    identity,
    thread_split,
)
from ganglion.compiler.plan.plan import Plan

LANES = 16  # rows or columns: products with fewer are thin
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
        _refuse_complex(node)
        if node.op.name in _LOWER:
            _LOWER[node.op.name](low, node)
        elif node.op.kind == host.KIND:
            lower_host_call(low, node)


def _refuse_complex(node: Node) -> None:
    if node.dtype.kind == "c" and node.op.kind not in (host.KIND, "item"):
        raise ShapeError(
            f"{node.op.name}: complex numbers are not compiled {node.origin}: compute "
            "with their parts, `ops.real(x)` and `ops.imag(x)`, or set run_eagerly=True"
        )


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
CACHED_ELEMENTS = 2**17  # of a right matrix that stays in the cache meanwhile
LARGE_PART_ROWS, FEWEST_PARTS = 256, 8  # where it does not

# ---- products: matrices and all three passes of convolution --------------------------
# They differ in nothing but their axes and strides, so all become a `Contract`.


def _matmul(low: Lowering, node: Node) -> None:
    """Multiply matrices; a right one that is transposed is packed, or copied first."""
    a, b = node.inputs
    left, right = low.view_in_any_order(a), _right_operand(low, b)
    if node.ndim == 2 and min(node.shape) < LANES:
        _lower_thin(low, node, left, _with_rows(low, b, right))
        return
    stored = _result_of_matmul(low, node)
    product = _product(low, node, left, right, *stored)
    scratch = low.target.scratch_for(product)
    if scratch is not None:
        buffer = low.new(scratch, node.dtype, "packed")
        product = replace(product, packed=buffer)
    elif right.strides[-1] != 1:
        product = _product(low, node, left, _with_rows(low, b, right), *stored)
    low.emit(product)


def _product(
    low: Lowering, node: Node, left: View, right: View, out: Shape, target: View
) -> Contract:
    """Return the contraction that a product of matrices is."""
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
    """Return a matrix with its rows side by side: one that is transposed is copied."""
    if view.strides[-1] == 1 or matrix.shape[-1] == 1:
        return view
    return contiguous(low, view, matrix.shape, tuple(range(matrix.ndim)))


def _right_operand(low: Lowering, value: Value) -> View:
    """Return a product's right operand: in any order, if its rows stay rows."""
    if not isinstance(value, Node) or value.op.name != "transpose":
        return low.view(value)
    keeps_rows = value.attrs["axes"][-1] == value.ndim - 1
    return low.view_in_any_order(value) if keeps_rows else low.view(value)


def _result_of_matmul(low: Lowering, node: Node) -> tuple[Shape, View]:
    """Return the strides of a product's axes, and where it is stored.

    Its rows are stored in the order in which its only reader wants them.
    """
    transposed = low.transposed_by(node)
    if transposed is None:
        out = row_major(node.shape)
        return out, View(low.allocate(node), out)
    strides = row_major(transposed.shape)
    out = tuple(strides[transposed.attrs["axes"].index(i)] for i in range(node.ndim))
    return out, View(low.allocate(transposed), out)


def _row_parts(low: Lowering, node: Node) -> int:
    """Return into how many parts of its rows a tall product is cut.

    Each part goes through all of the right matrix, which stays in the cache; and what
    it reads and writes may stay there, too, between the kernels before and after it.
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
        for root in writer.memory_read:
            readers.setdefault(root, set()).add(number)
    for number, writer in enumerate(writers):
        state = writer.target.buffer
        if readers.get(state, set()) - {number} or _reads_other_elements(writer):
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


def _reads_other_elements(writer: Loop) -> bool:
    """Return whether a new state needs other elements of the old one than its own."""
    state, strides = writer.target.buffer, writer.target.strides
    return any(
        isinstance(load, Load) and (load.view.strides, load.view.offset) != (strides, 0)
        for load in writer.reading(state)
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
    "conv": lower_conv,
    "conv_transpose": lower_conv_transpose,
    "conv_kernel": lower_conv_kernel,
    "max_pool": lower_pool,
    "sum_pool": lower_pool,
    "sum_pool_back": lower_sum_pool_back,
    "max_pool_back": lower_max_pool_back,
}
