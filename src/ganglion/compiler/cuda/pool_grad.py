"""Emit gradients of max pooling as CUDA C."""

from __future__ import annotations

import math

from ganglion.compiler.cuda.column_sums import MOST_ROWS, ColumnSum, threads_across
from ganglion.compiler.cuda.elementwise import (
    MOST_BLOCKS,
    evaluate_vectors,
    store_vector,
    vector_width,
)
from ganglion.compiler.cuda.fusion import FusedKernel
from ganglion.compiler.cuda.text import (
    THREADS,
    Body,
    Emitted,
    affine,
    c_type,
    computed,
    is_wide,
    number,
)
from ganglion.compiler.plan.kernels import BufferKey, Load, View, walk
from ganglion.compiler.plan.scan_scatter import PoolBack


def emit_pool_back(fused: FusedKernel) -> Emitted:
    """Return the text that passes each window's gradient to its first maximum.

    Windows do not overlap: a thread computes some channels of a window.
    """
    kernel = fused.kernel
    assert isinstance(kernel, PoolBack)
    assert kernel.covers  # see `plan.lower_pools`
    windows, channels = math.prod(kernel.shape[:-1]), kernel.shape[-1]
    body = Body(is_wide(fused.buffers(), windows * channels))
    width = vector_width(fused, channels)
    across = threads_across(channels, width)
    column_sums = [ColumnSum(body, fused_sum, width) for fused_sum in fused.column_sums]
    down = THREADS // across
    blocks = _blocks(-(-windows // down), bool(column_sums))
    head = f"{body.index} i = ({body.index})block * {down} + THREAD / {across}"
    column = f"int c = THREAD % {across} * {width}"
    with (
        body.block(f"for ({head}; i < {windows}; i += blocks * {down})"),
        body.block(f"for ({column}; c < {channels}; c += {across * width})"),
    ):
        _emit_window(body, kernel, width, column_sums)
    shared = (total.finish(across, "block", blocks, "0", 1) for total in column_sums)
    return body.emitted(blocks, max(shared, default=0))


def _blocks(rounds: int, with_sums: bool) -> int:
    """Return how many blocks to launch; with column sums, all have as much work.

    >>> _blocks(576, True), _blocks(1024, True)
    (288, 256)
    """
    if not with_sums:
        return min(rounds, MOST_BLOCKS)
    return -(-rounds // -(-rounds // MOST_ROWS))


def _emit_window(
    body: Body, kernel: PoolBack, width: int, column_sums: list[ColumnSum]
) -> None:
    at = [*body.indices("i", kernel.shape[:-1]), "c"]
    dtype = computed(kernel.dx.buffer.dtype)
    (slope,) = evaluate_vectors(body, [Load(dtype, kernel.dy)], at, width, {})
    # A `tap` is the offset of an element of each window.
    targets = [
        View(kernel.dx.buffer, kernel.dx.strides, kernel.dx.offset + tap)
        for tap in kernel.taps
    ]
    loaded = [_load_beside(body, kernel, dx, at, width) for dx in targets]
    elements = [
        evaluate_vectors(body, [element], at, width, values)[0]
        for element, values in zip(kernel.elements, loaded, strict=True)
    ]
    slopes = [body.array(c_type(dtype), width, "d") for _ in targets]
    with body.unrolled(f"for (int lane = 0; lane < {width}; lane++)"):
        lanes = [f"{element}[lane]" for element in elements]
        shares = _shares(body, lanes, f"{slope}[lane]", kernel)
        for name, share in zip(slopes, shares, strict=True):
            body.do(f"{name}[lane] = {share};")
    stores: list[str] = []
    for dx, name, values in zip(targets, slopes, loaded, strict=True):
        flat = body.let(body.index, affine(at, dx.strides, dx.offset), "flat")
        values[dx.buffer.key] = name
        if width == 1:  # column sums take scalars then
            values = {key: f"{value}[0]" for key, value in values.items()}
        for column_sum in column_sums:
            column_sum.add(flat, values, stores)
        with body.into(stores):
            store_vector(body, name, dx, at, width)
    body.lines += stores


def _load_beside(
    body: Body, kernel: PoolBack, dx: View, at: list[str], width: int
) -> dict[BufferKey, str]:
    """Load the arrays that elements are computed from, if laid out as the gradients.

    Column sums use these values, too.
    """
    values: dict[BufferKey, str] = {}
    for expr in walk(*kernel.elements):
        if not isinstance(expr, Load) or expr.view.buffer.size != dx.buffer.size:
            continue
        view = expr.view
        if (view.strides, view.offset) == (dx.strides, dx.offset):
            (name,) = evaluate_vectors(body, [expr], at, width, {})
            values[view.buffer.key] = name
    return values


def _shares(body: Body, elements: list[str], slope: str, kernel: PoolBack) -> list[str]:
    """Return the share that each element of a window has of its gradient."""
    dtype = computed(kernel.dx.buffer.dtype)
    best = elements[0]
    for element in elements[1:]:
        best = body.let(c_type(dtype), f"larger({best}, {element})", "best")
    shares: list[str] = []
    before: list[str] = []
    for element in elements:
        wins = body.let("bool", " && ".join([*before, f"{element} == {best}"]), "wins")
        shares.append(f"({wins} ? {slope} : {number(0, dtype)})")
        before.append(f"!{wins}")
    return shares
