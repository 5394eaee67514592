"""Lowering of a program: ops of more than an element, results and state."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ganglion.compiler.ir.graph import Node, Value
from ganglion.compiler.ir.program import Program
from ganglion.compiler.plan.kernels import (
    Buffer,
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
from ganglion.compiler.plan.lower_contractions import (
    lower_conv,
    lower_conv_kernel,
    lower_conv_transpose,
    lower_matmul,
)
from ganglion.compiler.plan.lower_pools import (
    lower_max_pool_back,
    lower_pool,
    lower_sum_pool_back,
)
from ganglion.compiler.plan.lowering import (
    LONG_SUM,
    Indices,
    Lowering,
    Preferences,
    copy_into,
    identity,
    thread_split,
)
from ganglion.compiler.plan.plan import Plan


def lower(program: Program, target: Preferences) -> Plan:
    """Return the kernels of a program, in order, and the buffers they work on."""
    low = Lowering(program.graph, set(program.data), target)
    for node in program.graph.nodes:
        if node.op.name in _LOWER:
            _LOWER[node.op.name](low, node)
    results = _results(low, program.results)
    _write_state(low, program)
    inputs = {value.name: low.buffers[value] for value in program.graph.inputs}
    data = {name: inputs[name] for name in program.data}
    state = {name: inputs[name] for name in program.state}
    return Plan(program.graph.name, tuple(low.kernels), data, state, results)


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
    target = low.new(node.shape, node.dtype)
    low.buffers[node] = target
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
    cut = (parts, *node.shape, shape[kept] // parts, *shape[kept + 1 :])
    expr = _shifted(expr, kept, shape[kept] // parts)
    view = View(partial, row_major(partial.shape))
    reduced = len(shape) - kept
    low.emit(Loop.of("sum", cut, expr, view, reduced, "sum"))
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
    target = low.new(node.shape, node.dtype)
    low.buffers[node] = target
    view = View(target, row_major(node.shape))
    low.emit(Loop.of("argmax", shape, low.at(x, indices), view, 1, "argmax"))


def _cumsum(low: Lowering, node: Node) -> None:
    (x,), axis = node.inputs, node.attrs["axis"]
    source, target = low.view(x), low.new(node.shape, node.dtype)
    low.buffers[node] = target
    order = [i for i in range(x.ndim) if i != axis] + [axis]

    def ordered(view: View) -> View:
        return View(view.buffer, tuple(view.strides[i] for i in order), view.offset)

    shape = tuple(x.shape[i] for i in order)
    low.emit(Scan("cumsum", shape, ordered(source), ordered(View.of(target))))


# ---- movement that is no affine view ----------------------------------------------


def _pad(low: Lowering, node: Node) -> None:
    pairs, interior = node.attrs["pairs"], node.attrs["interior"]
    target = low.new(node.shape, node.dtype)
    low.buffers[node] = target
    fill = Literal(node.dtype, node.dtype.type(node.attrs["value"]).item())
    padded = View.of(target)
    low.emit(Loop.of("fill", node.shape, fill, padded))
    copy_into(low, node.inputs[0], padded, pairs, interior)


def _concat(low: Lowering, node: Node) -> None:
    target = low.new(node.shape, node.dtype)
    low.buffers[node] = target
    joined, axis, start = View.of(target), node.attrs["axis"], 0
    for value in node.inputs:
        pairs = tuple((start if i == axis else 0, 0) for i in range(node.ndim))
        copy_into(low, value, joined, pairs, (0,) * node.ndim)
        start += value.shape[axis]


def _scatter_add(low: Lowering, node: Node) -> None:
    """Clear the rows, then add every update to its row, in order."""
    updates, index = node.inputs
    target = low.new(node.shape, node.dtype)
    low.buffers[node] = target
    low.emit(Loop.of("fill", node.shape, Literal(node.dtype, 0), View.of(target)))
    count = index.size
    row = node.size // max(node.shape[0], 1)
    low.emit(
        Scatter("scatter_add", count, row, low.store(updates), low.store(index), target)
    )


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
    "matmul": lower_matmul,
    "conv": lower_conv,
    "conv_transpose": lower_conv_transpose,
    "conv_kernel": lower_conv_kernel,
    "max_pool": lower_pool,
    "sum_pool": lower_pool,
    "sum_pool_back": lower_sum_pool_back,
    "max_pool_back": lower_max_pool_back,
}
