"""Gradients of maximum pooling in CUDA C."""

from __future__ import annotations

import math

from ganglion.compiler.cuda.column_sums import MOST_ROWS, ColumnSum, across_of
from ganglion.compiler.cuda.elementwise import MOST_BLOCKS, lanes_of, store_lanes
from ganglion.compiler.cuda.epilogue import FusedKernel, Root, lanes_allowed
from ganglion.compiler.cuda.text import (
    THREADS,
    Body,
    Emitted,
    affine,
    c_type,
    computed,
    is_wide,
    number,
    root,
)
from ganglion.compiler.plan.kernels import Load, PoolBack, View, walk


def emit_pool_back(fused: FusedKernel) -> Emitted:
    """Give each window's gradient to the first of its largest elements.

    Windows share nothing: a thread has some channels of one.
    """
    kernel = fused.kernel
    assert isinstance(kernel, PoolBack)
    assert kernel.covers  # see `lower_pool_gather`
    windows, channels = math.prod(kernel.shape[:-1]), kernel.shape[-1]
    body = Body(is_wide(fused.buffers(), windows * channels))
    lanes = lanes_allowed(fused, channels)
    across = across_of(channels, lanes)
    column_sums = [ColumnSum(body, one, lanes) for one in fused.column_sums]
    down = THREADS // across
    blocks = _blocks(-(-windows // down), bool(column_sums))
    head = f"{body.index} i = ({body.index})block * {down} + THREAD / {across}"
    column = f"int c = THREAD % {across} * {lanes}"
    with (
        body.block(f"for ({head}; i < {windows}; i += blocks * {down})"),
        body.block(f"for ({column}; c < {channels}; c += {across * lanes})"),
    ):
        _one_window(body, kernel, lanes, column_sums)
    shared = 0
    for column_sum in column_sums:
        shared = max(shared, column_sum.finish(across, "block", blocks, "0", 1))
    return body.emitted(blocks, shared)


def _blocks(turns: int, with_sums: bool) -> int:
    """Return how many blocks share turns; all have as many of them, where they add up.

    >>> _blocks(576, True), _blocks(1024, True)
    (288, 256)
    """
    if not with_sums:
        return min(turns, MOST_BLOCKS)
    return -(-turns // -(-turns // MOST_ROWS))


def _one_window(
    body: Body, kernel: PoolBack, lanes: int, column_sums: list[ColumnSum]
) -> None:
    places = [*body.places("i", kernel.shape[:-1]), "c"]
    dtype = computed(kernel.dx.buffer.dtype)
    (slope,) = lanes_of(body, [Load(dtype, kernel.dy)], places, lanes, {})
    known = [_beside(body, kernel, tap, places, lanes) for tap in kernel.taps]
    elements = [
        lanes_of(body, [element], places, lanes, held)[0]
        for element, held in zip(kernel.elements, known, strict=True)
    ]
    slopes = []
    for _ in kernel.taps:
        slopes.append(body.fresh("d"))
        body.do(f"{c_type(dtype)} {slopes[-1]}[{lanes}];")
    body.lines.append("#pragma unroll")
    with body.block(f"for (int lane = 0; lane < {lanes}; lane++)"):
        values = [f"{one}[lane]" for one in elements]
        given = _given(body, values, f"{slope}[lane]", kernel)
        for name, value in zip(slopes, given, strict=True):
            body.do(f"{name}[lane] = {value};")
    stores: list[str] = []
    for tap, name, held in zip(kernel.taps, slopes, known, strict=True):
        dx = _at_tap(kernel, tap)
        flat = body.let(body.index, affine(places, dx.strides, dx.offset), "flat")
        seen = held | {root(dx.buffer): name}
        if lanes == 1:  # column sums take values then, not arrays of them
            seen = {key: f"{one}[0]" for key, one in seen.items()}
        for column_sum in column_sums:
            column_sum.add(flat, seen, stores)
        with body.into(stores):
            store_lanes(body, name, dx, places, lanes)
    body.lines += stores


def _at_tap(kernel: PoolBack, tap: int) -> View:
    """Return where an element of each window is given its gradient."""
    return View(kernel.dx.buffer, kernel.dx.strides, kernel.dx.offset + tap)


def _beside(
    body: Body, kernel: PoolBack, tap: int, places: list[str], lanes: int
) -> dict[Root, str]:
    """Load what elements are made of that lies in memory as their gradients do.

    Column sums read the same.
    """
    to = _at_tap(kernel, tap)
    held: dict[Root, str] = {}
    for one in walk(*kernel.elements):
        if not isinstance(one, Load) or one.view.buffer.size != to.buffer.size:
            continue
        view = one.view
        if (view.strides, view.offset) == (to.strides, to.offset):
            (held[root(view.buffer)],) = lanes_of(body, [one], places, lanes, {})
    return held


def _given(body: Body, elements: list[str], slope: str, kernel: PoolBack) -> list[str]:
    """Return what each element of a window is given."""
    dtype = computed(kernel.dx.buffer.dtype)
    best = elements[0]
    for one in elements[1:]:
        best = body.let(c_type(dtype), f"larger({best}, {one})", "best")
    given: list[str] = []
    before: list[str] = []
    for element in elements:
        wins = body.let("bool", " && ".join([*before, f"{element} == {best}"]), "wins")
        given.append(f"({wins} ? {slope} : {number(0, dtype)})")
        before.append(f"!{wins}")
    return given
