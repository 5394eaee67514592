"""Loops over places in CUDA C: maps, and what epilogues add to any kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ganglion.compiler.cuda.epilogue import FusedKernel, Root, Stored, lanes_allowed
from ganglion.compiler.cuda.expressions import Places, evaluate
from ganglion.compiler.cuda.target import TUNING, GpuSpec
from ganglion.compiler.cuda.text import (
    THREADS,
    Body,
    Emitted,
    affine,
    c_type,
    is_wide,
    root,
)
from ganglion.compiler.plan.kernels import Expr, Load, Loop, Shape, View, walk

MOST_BLOCKS = 65_535  # beyond, blocks take several turns


def emit_map(fused: FusedKernel, spec: GpuSpec, rows: int = 0) -> Emitted:
    """Return a loop without reduction, and its epilogues, as text.

    With `rows`, a block has so many of its rows.
    """
    kernel = fused.kernel
    assert isinstance(kernel, Loop)
    total = math.prod(kernel.shape)
    body = Body(is_wide(fused.buffers(), total), row_wise=rows > 0)
    shape = kernel.shape or (1,)
    each = math.prod(shape[1:])
    width = _width(fused, kernel, total, spec)
    if rows:
        shape, total, width = (rows, *shape[1:]), rows * each, 1
    count = total // width
    groups = (*shape[:-1], shape[-1] // width)
    head = f"{body.index} i = ({body.index})block * THREADS + THREAD"
    if (
        THREADS < count <= TUNING.one_block_elements
    ):  # one block may have to take several turns
        body.lines.append("#pragma unroll 4")
    loop = f"for ({head}; i < {count}; i += blocks * THREADS)"
    if count <= THREADS:  # one turn of the first block, so no loop
        loop = f"if ({head}; i < {count})"
    with body.block(loop):
        at = body.places("i", groups)
        if width > 1:
            at[-1] = body.let(body.index, f"{at[-1]} * {width}", "i")
        at = body.in_rows(at[: len(kernel.shape)])
        held = compute_and_store(body, kernel.stored, at, width, {}, fused)
        flat = "i" if width == 1 else f"i * {width}"
        if rows:
            flat = f"row0 * {each} + i"
        emit_epilogues(body, fused, flat, width, held)
    return body.emitted(min(-(-count // THREADS), MOST_BLOCKS))


def _width(fused: FusedKernel, kernel: Loop, total: int, spec: GpuSpec) -> int:
    """Return how many neighbours a thread computes: more where there is much to do."""
    if not kernel.shape:
        return 1
    most = most_lanes(kernel)
    while most > 1 and total // most < spec.processors * THREADS:
        most //= 2
    return lanes_allowed(fused, kernel.shape[-1], most)


def most_lanes(kernel: Loop) -> int:
    """Return how many neighbours fit into one access of memory."""
    widest = max(view.buffer.dtype.itemsize for _, view in kernel.stored)
    return 2 if widest > 4 else 4


def emit_epilogues(
    body: Body,
    fused: FusedKernel,
    flat: str,
    width: int,
    held: dict[Root, str],
    later: list[str] | None = None,
) -> None:
    """Append the epilogues of a kernel at the place in memory where its results are.

    With `later`, what they store is put there, so that loads need not wait for it.
    """
    if not fused.epilogues:
        return
    start = flat if flat.isidentifier() else body.let(body.index, flat, "flat")
    decoded: dict[Shape, list[str]] = {}
    for epilogue in fused.epilogues:
        if epilogue.shape not in decoded:
            decoded[epilogue.shape] = body.places(start, epilogue.shape, "g")
        at = decoded[epilogue.shape]
        held |= compute_and_store(body, epilogue.stored, at, width, held, fused, later)


def compute_and_store(
    body: Body,
    stored: Stored,
    at: Sequence[str],
    width: int,
    held: Mapping[Root, str],
    fused: FusedKernel,
    later: list[str] | None = None,
) -> dict[Root, str]:
    """Compute expressions at some neighbours and store them; return what they are."""
    exprs = [expr for expr, _ in stored]
    if width == 1:
        values = evaluate(body, exprs, Places(at, held))
    else:
        values = lanes_of(body, exprs, at, width, held)
    made = dict(zip((root(view.buffer) for _, view in stored), values, strict=True))
    with body.into(later):
        for value, (_, view) in zip(values, stored, strict=True):
            if root(view.buffer) in fused.unstored:
                continue
            rounds = root(view.buffer) in fused.rounded
            if width > 1:
                if rounds:
                    body.do(f"round_lanes({value});")
                store_lanes(body, value, view, at, width)
            else:
                kept = f"rounded_to_tf32({value})" if rounds else value
                body.do(f"{body.element(view, at)} = {kept};")
    return made


def lanes_of(
    body: Body,
    exprs: Sequence[Expr],
    at: Sequence[str],
    width: int,
    held: Mapping[Root, str],
    axis: int = -1,
) -> list[str]:
    """Compute expressions at neighbours along an axis; return the arrays of values."""
    vectors: dict[View, str] = {}
    for one in walk(*exprs):
        if isinstance(one, Load) and root(one.view.buffer) not in held:
            view = one.view
            if view not in vectors and in_lanes(view, width, axis):
                name = body.fresh("q")
                body.do(f"{c_type(one.dtype)} {name}[{width}];")
                place = affine(at, view.strides, view.offset)
                body.do(f"load_lanes({name}, {body.pointer(view.buffer)} + {place});")
                vectors[view] = name
    values = []
    for expr in exprs:
        name = body.fresh("r")
        body.do(f"{c_type(expr.dtype)} {name}[{width}];")
        values.append(name)
    body.lines.append("#pragma unroll")
    with body.block(f"for (int lane = 0; lane < {width}; lane++)"):
        here = list(at)
        here[axis] = body.let(body.index, f"{at[axis]} + lane", "j")
        places = Places(
            here,
            {key: f"{name}[lane]" for key, name in held.items()},
            {view: f"{name}[lane]" for view, name in vectors.items()},
        )
        for name, value in zip(values, evaluate(body, exprs, places), strict=True):
            body.do(f"{name}[lane] = {value};")
    return values


def in_lanes(view: View, width: int, axis: int = -1) -> bool:
    """Return whether neighbours of a view can be loaded and stored at once."""
    others = list(view.strides)
    last = others.pop(axis)
    aligned = not any(s % width for s in (*others, view.offset))
    # Results of several steps lie one after the other.
    return last == 1 and aligned and not view.buffer.size % width


def store_lanes(
    body: Body, value: str, view: View, at: Sequence[str], width: int
) -> None:
    """Store neighbours that are in an array."""
    place = affine(at, view.strides, view.offset)
    if in_lanes(view, width):
        body.do(f"store_lanes({body.pointer(view.buffer)} + {place}, {value});")
        return
    step = view.strides[-1]
    body.lines.append("#pragma unroll")
    body.do(
        f"for (int lane = 0; lane < {width}; lane++) "
        f"{body.pointer(view.buffer)}[{place} + lane * {step}] = {value}[lane];"
    )
