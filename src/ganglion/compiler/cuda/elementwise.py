"""Emit expressions, maps, transposing copies and epilogues as CUDA C.

An expression is evaluated at a single index, or at a vector of adjacent indices. The
functions that it calls are in `device/common.cuh`, or CUDA's own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ganglion.compiler.cuda.fusion import BlockRows, FusedKernel, Stored
from ganglion.compiler.cuda.target import TUNING, GpuSpec
from ganglion.compiler.cuda.text import (
    C_OPS,
    THREADS,
    Body,
    Emitted,
    affine,
    c_type,
    computed,
    is_wide,
    number,
)
from ganglion.compiler.ir.graph import is_short
from ganglion.compiler.ir.shaping import is_float
from ganglion.compiler.plan.epilogues import is_copy
from ganglion.compiler.plan.kernels import (
    Apply,
    BufferKey,
    Expr,
    Index,
    Indirect,
    Literal,
    Load,
    Loop,
    Shape,
    Shuffled,
    Uniform,
    View,
    walk,
)

I64 = np.dtype("int64")
_OVERFLOWING = ("add", "subtract", "multiply", "negative", "left_shift")
_OPS = C_OPS | {
    "maximum": "larger({0}, {1})",
    "minimum": "smaller({0}, {1})",
    "remainder": "remainder_of({0}, {1})",
    "absolute": "size_of({0})",
    "sign": "sign_of({0})",
    "sigmoid": "sigmoid_of({0})",
    "tanh": "tanh_of({0})",
    "is_finite": "is_finite({0})",
}
# Without branches, so that a thread overlaps several of them.
_APPROXIMATE = _OPS | {"divide": "quotient({0}, {1})", "sqrt": "near_root({0})"}
# Powers that arithmetic computes faster and as exactly.
_POWERS = {
    1.0: "{0}",
    2.0: "{0} * {0}",
    3.0: "{0} * {0} * {0}",
    -1.0: "{1} / {0}",
    0.5: "root_of({0})",
    -0.5: "{1} / root_of({0})",
}


@dataclass(frozen=True)
class Bindings:
    """The indices at which expressions are evaluated, and values already in registers.

    `values` are elements of buffers that this kernel computes, to be used in place of
    loads. `vectors` are elements of views that vector loads have read.
    """

    indices: Sequence[str]
    values: Mapping[BufferKey, str] = field(default_factory=dict)
    vectors: Mapping[View, str] = field(default_factory=dict)


def evaluate(body: Body, exprs: Sequence[Expr], at: Bindings) -> list[str]:
    """Append the computation of expressions; return the names of their values."""
    names: dict[int, str] = {}
    loaded: dict[View, str] = {}
    for expr in walk(*exprs):
        if isinstance(expr, Load):
            if expr.view not in loaded:
                loaded[expr.view] = _load(body, expr, at)
            names[id(expr)] = loaded[expr.view]
        elif isinstance(expr, Literal):
            names[id(expr)] = number(expr.value, expr.dtype)
        else:
            text = _text(body, expr, at, names)
            names[id(expr)] = body.let(c_type(expr.dtype), text)
    return [names[id(expr)] for expr in exprs]


def _load(body: Body, load: Load, at: Bindings) -> str:
    view = load.view
    value = at.values.get(view.buffer.key) or at.vectors.get(view)
    return value or body.let(c_type(load.dtype), body.element(view, at.indices))


def _text(body: Body, expr: Expr, at: Bindings, names: dict[int, str]) -> str:
    if isinstance(expr, Index):
        return cast(
            f"({affine(at.indices, expr.strides, expr.offset)})", I64, expr.dtype
        )
    if isinstance(expr, Apply):
        return _apply(expr, [names[id(arg)] for arg in expr.args], body.in_block)
    if isinstance(expr, Indirect):
        return _indirect(body, expr, at, names[id(expr.row)])
    if isinstance(expr, Uniform):
        state, element = body.pointer(expr.state), names[id(expr.element)]
        return f"uniform_of<{c_type(expr.dtype)}>({state}, {element})"
    assert isinstance(expr, Shuffled)
    state, position = body.pointer(expr.state), names[id(expr.position)]
    function = "shuffled<false>" if body.in_block else "shuffled"
    return f"{function}({state}, {position}, {expr.rows}u)"


def _apply(expr: Apply, args: list[str], approximate: bool = False) -> str:
    dtype, source, last = expr.dtype, expr.args[0].dtype, expr.args[-1]
    if expr.op == "cast":
        return cast(args[0], source, dtype)
    if isinstance(last, Literal) and isinstance(last.value, (int, float)):
        value = float(last.value)
        if expr.op == "divide" and _has_exact_inverse(value):
            return f"{args[0]} * {number(1 / value, source)}"
        if expr.op == "power" and value in _POWERS:
            return _POWERS[value].format(args[0], number(1, source))
    if expr.op == "negative" and args[0].startswith("-"):
        args = [f"({args[0]})"]  # "--" would be another operator
    ops = _APPROXIMATE if approximate and dtype == np.float32 else _OPS
    text = ops[expr.op].format(*args, f="f" * (dtype.itemsize == 4))
    # C computes small integers as int: make them wrap around in their own type.
    if expr.op in _OVERFLOWING and dtype.kind in "iu" and dtype.itemsize < 4:
        return f"({c_type(dtype)})({text})"
    return text


def _has_exact_inverse(value: float) -> bool:
    """Return whether a number is a power of two, far from overflow and underflow."""
    return math.frexp(value)[0] in (0.5, -0.5) and 2**-99 < abs(value) < 2**99


def cast(value: str, old: np.dtype, new: np.dtype) -> str:
    """Return a conversion with NumPy's semantics."""
    if old == new:
        return value
    if is_short(old):
        return cast(f"(float){value}", np.dtype("float32"), new)
    if is_short(new):
        return f"as_{new.name}({value})"
    if new.kind == "b":
        return f"({value} != 0)"
    if old.kind == "f" and new.kind == "u" and new.itemsize < 8:
        value = f"(long long)({value})"  # negative numbers wrap around
    return f"({c_type(new)})({value})"


def _indirect(body: Body, expr: Indirect, at: Bindings, row: str) -> str:
    """Return a load from the row that an index selects; NaN outside of the table."""
    within = affine(at.indices, expr.within, expr.offset)
    inside = body.let("bool", f"(unsigned long long){row} < {expr.rows}ull")
    kind = "long long" if expr.table.size > 2**31 - 1 else "int"
    offset = f"({inside} ? ({kind}){row} : 0) * {expr.row_size} + {within}"
    element = f"{body.pointer(expr.table)}[{body.offset(expr.table, offset)}]"
    if not is_float(expr.dtype):
        return element
    return f"{inside} ? {element} : {number(math.nan, expr.dtype)}"


# ---- vectors of adjacent elements along an axis --------------------------------------


def evaluate_vectors(
    body: Body,
    exprs: Sequence[Expr],
    indices: Sequence[str],
    width: int,
    values: Mapping[BufferKey, str],
    axis: int = -1,
) -> list[str]:
    """Compute expressions at adjacent indices along an axis; return their arrays."""
    vectors: dict[View, str] = {}
    for expr in walk(*exprs):
        if isinstance(expr, Load) and expr.view.buffer.key not in values:
            view = expr.view
            if view not in vectors and is_vector_access(view, width, axis):
                vectors[view] = body.array(c_type(expr.dtype), width, "q")
                offset = affine(indices, view.strides, view.offset)
                offset = body.offset(view.buffer, offset)
                source = f"{body.pointer(view.buffer)} + {offset}"
                body.do(f"load_lanes({vectors[view]}, {source});")
    names = [body.array(c_type(expr.dtype), width, "r") for expr in exprs]
    with body.unrolled(f"for (int lane = 0; lane < {width}; lane++)"):
        lane_indices = list(indices)
        lane_indices[axis] = body.let(body.index, f"{indices[axis]} + lane", "j")
        at = Bindings(
            lane_indices,
            {key: f"{name}[lane]" for key, name in values.items()},
            {view: f"{name}[lane]" for view, name in vectors.items()},
        )
        for name, value in zip(names, evaluate(body, exprs, at), strict=True):
            body.do(f"{name}[lane] = {value};")
    return names


def is_vector_access(view: View, width: int, axis: int = -1) -> bool:
    """Return whether adjacent elements of a view are an aligned vector in memory."""
    others = list(view.strides)
    stride = others.pop(axis)
    aligned = not any(s % width for s in (*others, view.offset))
    # The results of each step follow those of the step before.
    return stride == 1 and aligned and not view.buffer.size % width


def store_vector(
    body: Body, value: str, view: View, indices: Sequence[str], width: int
) -> None:
    """Store an array of values at adjacent indices along the last axis."""
    offset = affine(indices, view.strides, view.offset)
    pointer = body.pointer(view.buffer)
    if is_vector_access(view, width):
        offset = body.offset(view.buffer, offset)
        body.do(f"store_lanes({pointer} + {offset}, {value});")
        return
    offset = body.offset(view.buffer, f"{offset} + lane * {view.strides[-1]}")
    body.unroll()
    body.do(
        f"for (int lane = 0; lane < {width}; lane++) "
        f"{pointer}[{offset}] = {value}[lane];"
    )


# ---- maps, and the epilogues of any kernel -------------------------------------------


MOST_BLOCKS = 65_535  # more elements are computed in a grid-stride loop
TILE = 32  # rows and columns that are transposed at a time, in shared memory
FEWEST_TRANSPOSED = 8  # elements of an axis that is worth transposing
TILES_PER_BLOCK, TRANSPOSING_BLOCKS = 4, 64  # if there are enough tiles for all


def emit_map(
    fused: FusedKernel, spec: GpuSpec, rows: BlockRows | None = None, models: int = 1
) -> Emitted:
    """Return the text of a loop without reduction, and of its epilogues.

    With `rows`, a block computes some rows of it. Many models keep a GPU busy together:
    each has few blocks, whose loops are unrolled to have several loads in flight.
    """
    kernel = fused.kernel
    assert isinstance(kernel, Loop)
    total = math.prod(kernel.shape)
    axes = rows.axes if rows else ()
    wide = is_wide(fused.buffers(), total)
    body = Body(wide, axes, fused.in_block)
    shape = kernel.shape or (1,)
    width = _map_width(fused, kernel, total * models, spec)
    if rows:
        shape = rows.of(shape)
        total = math.prod(shape)
        width = vector_width(fused, shape[-1]) if total >= 4 * THREADS else 1
    count = total // width
    if THREADS < count <= TUNING.one_block_elements or (models > 1 and count > THREADS):
        body.unroll(4)
    with body.block(each_index(body, count, loops=count > THREADS)):
        at = body.indices("i", (*shape[:-1], shape[-1] // width))
        if width > 1:
            at[-1] = body.let(body.index, f"{at[-1]} * {width}", "i")
        at = body.in_rows(at[: len(kernel.shape)])
        values = compute_and_store(body, kernel.outputs, at, width, {}, fused)
        flat = "i" if width == 1 else f"i * {width}"
        if rows:
            flat = f"row0 * {total // rows.count} + {flat}"
        emit_epilogues(body, fused, flat, width, values)
    return body.emitted(blocks_for(count))


def each_index(body: Body, count: int, loops: bool = True) -> str:
    """Return the head of a grid-stride loop over indices.

    Without `loops`, each thread of the first block has at most a single index.
    """
    start = f"{body.index} i = ({body.index})block * THREADS + {body.thread}"
    if not loops:
        return f"if ({start}; i < {count})"
    return f"for ({start}; i < {count}; i += blocks * THREADS)"


def blocks_for(count: int) -> int:
    """Return how many blocks have a thread for each element, up to a limit."""
    return min(-(-count // THREADS), MOST_BLOCKS)


def _map_width(fused: FusedKernel, kernel: Loop, total: int, spec: GpuSpec) -> int:
    """Return the vector width of a map: narrower where a GPU would not be busy."""
    if not kernel.shape:
        return 1
    width = widest_access(kernel)
    while width > 1 and total // width < spec.processors * TUNING.busy_threads:
        width //= 2
    return vector_width(fused, kernel.shape[-1], width)


def widest_access(kernel: Loop) -> int:
    """Return how many elements fit into a single access of memory."""
    widest = max(view.buffer.dtype.itemsize for _, view in kernel.outputs)
    return 2 if widest > 4 else 4


def vector_width(fused: FusedKernel, last: int, widest: int = 4) -> int:
    """Return the largest power of two that divides the last axis of all loops."""
    sizes = [last, *(loop.shape[-1] if loop.shape else 1 for loop in fused.epilogues)]
    width = widest
    while width > 1 and any(size % width for size in sizes):
        width //= 2
    return width


def emit_epilogues(
    body: Body,
    fused: FusedKernel,
    flat: str,
    width: int,
    values: dict[BufferKey, str],
    stores: list[str] | None = None,
) -> None:
    """Append the epilogues of a kernel, at the flat offset of its results.

    With `stores`, store instructions go to that list, to be placed behind later loads.
    """
    if not fused.epilogues:
        return
    start = flat if flat.isidentifier() else body.let(body.index, flat, "flat")
    indices: dict[Shape, list[str]] = {}
    for epilogue in fused.epilogues:
        if epilogue.shape not in indices:
            indices[epilogue.shape] = body.indices(start, epilogue.shape, "g")
        at = indices[epilogue.shape]
        values |= compute_and_store(
            body, epilogue.outputs, at, width, values, fused, stores
        )


def compute_and_store(
    body: Body,
    stored: Stored,
    at: Sequence[str],
    width: int,
    values: Mapping[BufferKey, str],
    fused: FusedKernel,
    stores: list[str] | None = None,
) -> dict[BufferKey, str]:
    """Compute and store expressions at a vector of indices; return their values."""
    exprs = [expr for expr, _ in stored]
    if width == 1:
        results = evaluate(body, exprs, Bindings(at, values))
    else:
        results = evaluate_vectors(body, exprs, at, width, values)
    with body.into(stores):
        for value, (_, view) in zip(results, stored, strict=True):
            if view.buffer.key in fused.unstored:
                continue
            rounds = view.buffer.key in fused.rounded
            if width > 1:
                if rounds:
                    body.do(f"round_lanes({value});")
                store_vector(body, value, view, at, width)
            else:
                value = f"rounded_to_tf32({value})" if rounds else value
                body.do(f"{body.element(view, at)} = {value};")
    return dict(zip((view.buffer.key for _, view in stored), results, strict=True))


# ---- transposing copies ------------------------------------------------------------


class Axis(NamedTuple):
    """An axis of a copy, with its strides in the source and in the target."""

    size: int
    read: int
    write: int


def transposed_axes(fused: FusedKernel) -> tuple[Axis, Axis, list[Axis]] | None:
    """Return the contiguous axes of a copy's source and target, and its other axes.

    None if those are the same axis, or the kernel is not a mere copy. A plain loop
    would read or write single elements of 32-byte sectors: eight times the traffic.
    """
    kernel = fused.kernel
    if not isinstance(kernel, Loop) or not is_copy(kernel) or fused.epilogues:
        return None
    assert isinstance(kernel.expr, Load)
    strides = kernel.expr.view.strides, kernel.target.strides
    axes = [Axis(*axis) for axis in zip(kernel.shape, *strides, strict=True)]
    long = [axis for axis in axes if axis.size >= FEWEST_TRANSPOSED]
    reads = [axis for axis in long if axis.read == 1]
    writes = [axis for axis in long if abs(axis.write) == 1]
    if len(reads) != 1 or len(writes) != 1 or reads == writes:
        return None
    others = [axis for axis in axes if axis not in (*reads, *writes)]
    return reads[0], writes[0], others


def emit_transpose(fused: FusedKernel, axes: tuple[Axis, Axis, list[Axis]]) -> Emitted:
    """Return the text of a copy that is transposed tile by tile in shared memory."""
    kernel = fused.kernel
    assert isinstance(kernel, Loop)
    assert isinstance(kernel.expr, Load)
    source, target = kernel.expr.view, kernel.target
    along, beside, others = axes
    body = Body(is_wide(fused.buffers()), (), fused.in_block)
    dtype = computed(source.buffer.dtype)
    across, down = -(-along.size // TILE), -(-beside.size // TILE)
    count = across * down * math.prod(axis.size for axis in others)
    body.do("const int x = THREAD % 32, y = THREAD / 32;")
    body.do(f"{c_type(dtype)}* square = ({c_type(dtype)}*)shared_bytes;")
    with body.block(f"for (int tile = block; tile < {count}; tile += blocks)"):
        body.do(f"const int a = tile % {across} * {TILE};")
        body.do(f"const int b = tile / {across} % {down} * {TILE};")
        rest = body.let(body.index, f"tile / {across * down}", "rest")
        at = body.indices(rest, [axis.size for axis in others])
        reads = affine(at, [axis.read for axis in others], source.offset)
        writes = affine(at, [axis.write for axis in others], target.offset)
        begin, end = body.let(body.index, reads), body.let(body.index, writes)
        lines = f"for (int u = y; u < {TILE}; u += {THREADS // TILE})"
        with body.unrolled(lines):
            offset = f"{begin} + a + x + (b + u) * {beside.read}"
            body.do(f"if (a + x < {along.size} && b + u < {beside.size})")
            offset = body.offset(source.buffer, offset)
            value = f"{body.pointer(source.buffer)}[{offset}]"
            body.do(f"  square[u * {TILE + 1} + x] = {value};")
        body.do("BARRIER;")
        with body.unrolled(lines):
            offset = f"{end} + (b + x) * {beside.write} + (a + u) * {along.write}"
            body.do(f"if (a + u < {along.size} && b + x < {beside.size})")
            value = f"square[x * {TILE + 1} + u]"
            if target.buffer.key in fused.rounded:
                value = f"rounded_to_tf32({value})"
            offset = body.offset(target.buffer, offset)
            body.do(f"  {body.pointer(target.buffer)}[{offset}] = {value};")
        body.do("BARRIER;")
    blocks = min(count, max(count // TILES_PER_BLOCK, TRANSPOSING_BLOCKS))
    return body.emitted(blocks, TILE * (TILE + 1) * dtype.itemsize)
