"""Maps in CUDA C, transposing copies, and what epilogues add to any kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ganglion.compiler.cuda.epilogue import FusedKernel, Stored, is_copy
from ganglion.compiler.cuda.expressions import (
    Bindings,
    evaluate,
    evaluate_vectors,
    store_vector,
)
from ganglion.compiler.cuda.target import TUNING, GpuSpec
from ganglion.compiler.cuda.text import (
    THREADS,
    Body,
    Emitted,
    affine,
    c_type,
    computed,
    is_wide,
)
from ganglion.compiler.plan.expressions import BufferKey
from ganglion.compiler.plan.kernels import Load, Loop, Shape

MOST_BLOCKS = 65_535  # beyond, blocks take several turns
TILE = 32  # rows and columns that are transposed at a time, in shared memory
FEWEST_TRANSPOSED = 8  # elements of an axis that are worth it
TILES_PER_BLOCK, TRANSPOSING_BLOCKS = 4, 64  # if there are enough tiles for all


def emit_map(fused: FusedKernel, spec: GpuSpec, rows: int = 0) -> Emitted:
    """Return a loop without reduction, and its epilogues, as text.

    With `rows`, a block has so many of its rows.
    """
    kernel = fused.kernel
    assert isinstance(kernel, Loop)
    total = math.prod(kernel.shape)
    body = Body(is_wide(fused.buffers(), total), row_wise=rows > 0)
    shape = kernel.shape or (1,)
    row_size = math.prod(shape[1:])
    width = _map_width(fused, kernel, total, spec)
    if rows:
        shape, total, width = (rows, *shape[1:]), rows * row_size, 1
    count = total // width
    if THREADS < count <= TUNING.one_block_elements:  # of which a block takes turns
        body.unroll(4)
    with body.block(each_index(body, count, loops=count > THREADS)):
        at = body.indices("i", (*shape[:-1], shape[-1] // width))
        if width > 1:
            at[-1] = body.let(body.index, f"{at[-1]} * {width}", "i")
        at = body.in_rows(at[: len(kernel.shape)])
        values = compute_and_store(body, kernel.outputs, at, width, {}, fused)
        flat = "i" if width == 1 else f"i * {width}"
        if rows:
            flat = f"row0 * {row_size} + i"
        emit_epilogues(body, fused, flat, width, values)
    return body.emitted(blocks_for(count))


def each_index(body: Body, count: int, loops: bool = True) -> str:
    """Return the head of a loop in which every thread takes its share of indices.

    Without `loops`, threads of the first block take one turn.
    """
    start = f"{body.index} i = ({body.index})block * THREADS + THREAD"
    if not loops:
        return f"if ({start}; i < {count})"
    return f"for ({start}; i < {count}; i += blocks * THREADS)"


def blocks_for(count: int) -> int:
    """Return how many blocks have a thread for each of so many elements."""
    return min(-(-count // THREADS), MOST_BLOCKS)


def _map_width(fused: FusedKernel, kernel: Loop, total: int, spec: GpuSpec) -> int:
    """Return how many neighbours a thread computes: more where there is much to do."""
    if not kernel.shape:
        return 1
    most = widest_access(kernel)
    while most > 1 and total // most < spec.processors * TUNING.busy_threads:
        most //= 2
    return vector_width(fused, kernel.shape[-1], most)


def widest_access(kernel: Loop) -> int:
    """Return how many neighbours fit into one access of memory."""
    widest = max(view.buffer.dtype.itemsize for _, view in kernel.outputs)
    return 2 if widest > 4 else 4


def vector_width(fused: FusedKernel, last: int, most: int = 4) -> int:
    """Return how many neighbours may be computed at once: a power of two."""
    sizes = [last, *(loop.shape[-1] if loop.shape else 1 for loop in fused.epilogues)]
    while most > 1 and any(size % most for size in sizes):
        most //= 2
    return most


def emit_epilogues(
    body: Body,
    fused: FusedKernel,
    flat: str,
    width: int,
    values: dict[BufferKey, str],
    stores: list[str] | None = None,
) -> None:
    """Append the epilogues of a kernel at the offset in memory of its results.

    With `stores`, what they store is put there, so that loads need not wait for it.
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
    """Compute expressions at some neighbours and store them; return their values."""
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
    """An axis of a copy, with its strides in what is read and what is written."""

    size: int
    read: int
    write: int


def transposed_axes(fused: FusedKernel) -> tuple[Axis, Axis, list[Axis]] | None:
    """Return the axes along which a copy reads and writes neighbours, and the others.

    None if these are not two axes, or it is not only a copy. A plain loop would write,
    or read, here and there: eight times the memory.
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
    """Return a copy that goes through shared memory tile by tile as text."""
    kernel = fused.kernel
    assert isinstance(kernel, Loop)
    assert isinstance(kernel.expr, Load)
    source, target = kernel.expr.view, kernel.target
    along, beside, others = axes
    body = Body(is_wide(fused.buffers()))
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
            value = f"{body.pointer(source.buffer)}[{offset}]"
            body.do(f"  square[u * {TILE + 1} + x] = {value};")
        body.do("BARRIER;")
        with body.unrolled(lines):
            offset = f"{end} + (b + x) * {beside.write} + (a + u) * {along.write}"
            body.do(f"if (a + u < {along.size} && b + x < {beside.size})")
            value = f"square[x * {TILE + 1} + u]"
            if target.buffer.key in fused.rounded:
                value = f"rounded_to_tf32({value})"
            body.do(f"  {body.pointer(target.buffer)}[{offset}] = {value};")
        body.do("BARRIER;")
    blocks = min(count, max(count // TILES_PER_BLOCK, TRANSPOSING_BLOCKS))
    return body.emitted(blocks, TILE * (TILE + 1) * dtype.itemsize)
