"""Copies that turn an array: what lies side by side is read and written side by side.

Squares of it go through shared memory. A plain loop would write, or read, here and
there: eight times the memory.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ganglion.compiler.cuda.epilogue import FusedKernel, is_copy
from ganglion.compiler.cuda.text import (
    THREADS,
    Body,
    Emitted,
    affine,
    c_type,
    computed,
    is_wide,
    root,
)
from ganglion.compiler.plan.kernels import Load, Loop

SIDE = 32  # of a square
FEWEST = 8  # elements of a side that are worth a square
TURNS, BLOCKS = 4, 64  # a block takes some squares, if there are enough for all


class Axis(NamedTuple):
    """An axis of a copy, with its steps in what is read and what is written."""

    size: int
    read: int
    write: int


def turned_axes(fused: FusedKernel) -> tuple[Axis, Axis, list[Axis]] | None:
    """Return the axes along which a copy reads and writes neighbours, and the others.

    None if it does not turn them, or is not only a copy.
    """
    kernel = fused.kernel
    if not isinstance(kernel, Loop) or not is_copy(kernel) or fused.epilogues:
        return None
    assert isinstance(kernel.expr, Load)
    strides = kernel.expr.view.strides, kernel.target.strides
    axes = [Axis(*one) for one in zip(kernel.shape, *strides, strict=True)]
    reads = [one for one in axes if one.read == 1 and one.size >= FEWEST]
    writes = [one for one in axes if abs(one.write) == 1 and one.size >= FEWEST]
    if len(reads) != 1 or len(writes) != 1 or reads == writes:
        return None
    others = [one for one in axes if one not in (*reads, *writes)]
    return reads[0], writes[0], others


def emit_turned(fused: FusedKernel, axes: tuple[Axis, Axis, list[Axis]]) -> Emitted:
    """Return a copy that turns an array as text."""
    kernel = fused.kernel
    assert isinstance(kernel, Loop)
    assert isinstance(kernel.expr, Load)
    source, target = kernel.expr.view, kernel.target
    along, beside, others = axes
    body = Body(is_wide(fused.buffers()))
    dtype = computed(source.buffer.dtype)
    across, down = -(-along.size // SIDE), -(-beside.size // SIDE)
    count = across * down * math.prod(one.size for one in others)
    body.do("const int x = THREAD % 32, y = THREAD / 32;")
    body.do(f"{c_type(dtype)}* square = ({c_type(dtype)}*)shared_bytes;")
    with body.block(f"for (int tile = block; tile < {count}; tile += blocks)"):
        body.do(f"const int a = tile % {across} * {SIDE};")
        body.do(f"const int b = tile / {across} % {down} * {SIDE};")
        rest = body.let(body.index, f"tile / {across * down}", "rest")
        at = body.places(rest, [one.size for one in others])
        reads = affine(at, [one.read for one in others], source.offset)
        writes = affine(at, [one.write for one in others], target.offset)
        begin, end = body.let(body.index, reads), body.let(body.index, writes)
        step = THREADS // SIDE
        body.lines.append("#pragma unroll")
        with body.block(f"for (int u = y; u < {SIDE}; u += {step})"):
            place = f"{begin} + a + x + (b + u) * {beside.read}"
            body.do(f"if (a + x < {along.size} && b + u < {beside.size})")
            value = f"{body.pointer(source.buffer)}[{place}]"
            body.do(f"  square[u * {SIDE + 1} + x] = {value};")
        body.do("BARRIER;")
        body.lines.append("#pragma unroll")
        with body.block(f"for (int u = y; u < {SIDE}; u += {step})"):
            place = f"{end} + (b + x) * {beside.write} + (a + u) * {along.write}"
            body.do(f"if (a + u < {along.size} && b + x < {beside.size})")
            value = f"square[x * {SIDE + 1} + u]"
            if root(target.buffer) in fused.rounded:
                value = f"rounded_to_tf32({value})"
            body.do(f"  {body.pointer(target.buffer)}[{place}] = {value};")
        body.do("BARRIER;")
    size = SIDE * (SIDE + 1) * dtype.itemsize
    return body.emitted(min(count, max(count // TURNS, BLOCKS)), size)
