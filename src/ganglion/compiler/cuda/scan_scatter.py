"""Emit scatters and scans as CUDA C: adding in place, running sums, adding rows."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ganglion.compiler.cuda.elementwise import (
    MOST_BLOCKS,
    Bindings,
    blocks_for,
    each_index,
    evaluate,
)
from ganglion.compiler.cuda.text import (
    THREADS,
    Body,
    Emitted,
    affine,
    c_type,
    is_wide,
    power_of_two,
)
from ganglion.compiler.plan.kernels import Loop, Shape
from ganglion.compiler.plan.scan_scatter import Scan, Scatter

SHORT_SCAN = 64
MOST_BUCKETS = 512
MOST_LISTED = 32 * THREADS  # indices that a block scans at a time


# ---- adding in place ---------------------------------------------------------------


@dataclass(frozen=True)
class Group:
    """Axes of a target whose offsets overlap only with each other's."""

    axes: tuple[int, ...]
    unit: int  # every offset of the group is a multiple of it
    count: int  # of such offsets


def groups_of(shape: Shape, strides: Shape) -> list[Group]:
    """Split the axes of a target into groups whose offsets add up without overlap.

    >>> [g.axes for g in groups_of((4, 8, 3, 16), (160, 16, 16, 1))]
    [(3,), (1, 2), (0,)]
    """
    axes = [axis for axis, n in enumerate(shape) if strides[axis] and n > 1]
    axes.sort(key=lambda a: (abs(strides[a]), a))
    groups: list[list[int]] = []
    span = 0
    for position, axis in enumerate(axes):
        if not groups or math.gcd(*(strides[a] for a in axes[position:])) > span:
            groups.append([])
        groups[-1].append(axis)
        span += (shape[axis] - 1) * abs(strides[axis])
    return [_group(group, shape, strides) for group in groups]


def _group(axes: list[int], shape: Shape, strides: Shape) -> Group:
    unit = math.gcd(*(strides[a] for a in axes))
    span = sum((shape[a] - 1) * abs(strides[a]) for a in axes)
    return Group(tuple(axes), unit, span // unit + 1)


def emit_adds(kernel: Loop) -> Emitted:
    """Return the text of a loop that adds to its target, deterministically.

    Each thread owns an element of the target: it enumerates the iterations of the loop
    that add to it, and adds them in order.
    """
    assert len(kernel.outputs) == 1
    shape, strides = kernel.shape, kernel.target.strides
    groups = groups_of(shape, strides)
    count = math.prod(group.count for group in groups) if math.prod(shape) else 0
    body = Body(is_wide([*kernel.reads(), *kernel.writes()], count))
    kind = c_type(kernel.target.buffer.dtype)
    # Offsets count from the lowest address.
    low = sum(s * (n - 1) for s, n in zip(strides, shape, strict=True) if s < 0)
    with body.block(each_index(body, count)):
        offsets = body.indices("i", [group.count for group in groups], "q")
        units = [group.unit for group in groups]
        offset = affine(offsets, units, kernel.target.offset + low)
        target = f"{body.pointer(kernel.target.buffer)}[{offset}]"
        body.do(f"{kind} total = {target};")
        indices = ["0"] * len(shape)
        overlapping: list[tuple[Group, str]] = []
        for group, offset in zip(groups, offsets, strict=True):
            if len(group.axes) == 1:
                (axis,) = group.axes
                indices[axis] = _upward(offset, axis, shape, strides)
            else:
                overlapping.append((group, offset))
        _search(body, kernel, indices, overlapping)
        body.do(f"{target} = total;")
    return body.emitted(blocks_for(count))


def _upward(index: str, axis: int, shape: Shape, strides: Shape) -> str:
    """Return an index as its distance from the lowest address."""
    return index if strides[axis] > 0 else f"({shape[axis] - 1} - {index})"


def _search(
    body: Body, kernel: Loop, indices: list[str], groups: list[tuple[Group, str]]
) -> None:
    """Append a search for the iterations of the loop that add to a target's element.

    In each group, the index along the longest axis is solved for the others.
    """
    shape, strides = kernel.shape, kernel.target.strides
    solved = [max(group.axes, key=lambda a: shape[a]) for group, _ in groups]
    searched = {a for group, _ in groups for a in group.axes} - set(solved)
    loops = 0
    for axis, size in enumerate(shape):
        if size > 1 and (strides[axis] == 0 or axis in searched):
            name = indices[axis] = body.fresh("a")
            body.do(f"for (int {name} = 0; {name} < {size}; {name}++) {{")
            loops += 1
    for (group, offset), axis in zip(groups, solved, strict=True):
        others = [a for a in group.axes if a != axis]
        distances = [_upward(indices[a], a, shape, strides) for a in others]
        taken = affine(distances, [abs(strides[a]) // group.unit for a in others])
        rest = body.let(body.index, f"{offset} - ({taken})", "rest")
        step = abs(strides[axis]) // group.unit
        misses = f"{rest} < 0 || {rest} / {step} >= {shape[axis]}"
        if step > 1:
            misses += f" || {rest} % {step} != 0"
        body.do(f"if ({misses}) continue;")
        solution = body.let(body.index, f"{rest} / {step}", "s")
        indices[axis] = _upward(solution, axis, shape, strides)
    (value,) = evaluate(body, [kernel.expr], Bindings(indices))
    body.do(f"total += {value};")
    for _ in range(loops):
        body.do("}")


# ---- running sums ------------------------------------------------------------------


def emit_scan(kernel: Scan) -> Emitted:
    """Return the text of a running sum: a thread per row, or a block per long row."""
    rows, length = math.prod(kernel.shape[:-1]), kernel.shape[-1]
    dtype = kernel.source.buffer.dtype
    body = Body(is_wide([*kernel.reads(), *kernel.writes()], rows * length))
    kind = c_type(dtype)
    if length <= SHORT_SCAN or rows >= 16 * length:
        with body.block(each_index(body, rows if length else 0)):
            at = body.indices("i", kernel.shape[:-1])
            body.do(f"{kind} total = 0;")
            with body.block(f"for (int k = 0; k < {length}; k++)"):
                body.do(f"total += {body.element(kernel.source, [*at, 'k'])};")
                body.do(f"{body.element(kernel.target, [*at, 'k'])} = total;")
        return body.emitted(blocks_for(rows))
    body.do(f"{kind}* sums = ({kind}*)shared_bytes;")
    with body.block(f"for ({body.index} i = block; i < {rows}; i += blocks)"):
        at = body.indices("i", kernel.shape[:-1])
        body.do(f"{kind} carried = 0;")
        with body.block(f"for (int first = 0; first < {length}; first += THREADS)"):
            body.do("const int k = first + THREAD;")
            value = body.element(kernel.source, [*at, "k"])
            body.do(f"{kind} mine = k < {length} ? {value} : ({kind})0;")
            body.do("sums[THREAD] = mine;")
            body.do("BARRIER;")
            with body.block("for (int step = 1; step < THREADS; step *= 2)"):
                body.do("if (THREAD >= step) mine += sums[THREAD - step];")
                body.do("BARRIER;")
                body.do("sums[THREAD] = mine;")
                body.do("BARRIER;")
            target = body.element(kernel.target, [*at, "k"])
            body.do(f"if (k < {length}) {target} = carried + mine;")
            body.do("carried += sums[THREADS - 1];")
            body.do("BARRIER;")
    return body.emitted(min(rows, MOST_BLOCKS), THREADS * dtype.itemsize)


# ---- adding rows -------------------------------------------------------------------


def emit_scatter(kernel: Scatter) -> Emitted:
    """Return the text that adds rows at indices, as in gradients of embeddings.

    The rows of the target are dealt to buckets, one for each block. A block scans all
    indices and lists the updates of its rows in order, so that sums are deterministic.
    Padding may be half of all indices: a row with many updates is added up by all
    threads of its block.
    """
    arrays = (kernel.updates, kernel.index, kernel.target)
    body = Body(is_wide(arrays))
    if not kernel.count * kernel.row:
        return body.emitted(1)
    pointers = ", ".join(map(body.pointer, arrays))
    rows, size = kernel.target.shape[0], kernel.target.dtype.itemsize
    width = math.gcd(kernel.row, min(4, 16 // size))
    buckets = min(MOST_BUCKETS, power_of_two(rows), power_of_two(kernel.count // 8))
    listed = min(MOST_LISTED, -(-kernel.count // THREADS) * THREADS)
    numbers = (rows, kernel.count, kernel.row, width, buckets, listed)
    kinds = (c_type(kernel.index.dtype), c_type(kernel.target.dtype))
    shape = ", ".join(map(str, (*numbers, *kinds)))
    body.do(f"Scatter<{shape}> scatter = {{{pointers}}};")
    body.do("scatter.run(block, blocks);")
    shared = THREADS * (8 + width * size) + 6 * listed
    return body.emitted(min(buckets, MOST_BLOCKS), shared)
