"""The CPU's passes, all of them, in order: from a program to its plan."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import replace
from functools import partial
from typing import Any

from ganglion import config
from ganglion.compiler.cpu.jit import has_fast_third_cache
from ganglion.compiler.cpu.passes.barriers import place_barriers, unguarded
from ganglion.compiler.cpu.passes.cache_blocking import block, conflict
from ganglion.compiler.cpu.passes.column_sums import sum_in_products
from ganglion.compiler.cpu.passes.fill_intervals import fill_intervals
from ganglion.compiler.cpu.passes.fuse_epilogues import fuse_epilogues
from ganglion.compiler.cpu.passes.in_place import write_in_place
from ganglion.compiler.cpu.passes.pools import into_readers, mask_pooled
from ganglion.compiler.cpu.passes.skip_zeros import skip_zeros
from ganglion.compiler.cpu.plan import (
    CpuPlan,
    for_one_thread,
    lifetimes,
    place_in_arena,
)
from ganglion.compiler.cpu.products.packing import scratch_for
from ganglion.compiler.cpu.products.small_gemm import (
    goes_by_panels,
    repays_epilogue,
    sums_along_rows,
)
from ganglion.compiler.cpu.time_loop import split_time_loops
from ganglion.compiler.cpu.tuning import CPU
from ganglion.compiler.ir.graph import Node, Program, has_short_floats
from ganglion.compiler.pipeline import (
    VERIFIERS,
    Pass,
    Pipeline,
    graph_pass,
    kernel_pass,
)
from ganglion.compiler.plan import plan as plans
from ganglion.compiler.plan.kernels import Buffer, Contract
from ganglion.compiler.plan.lowering import Preferences, lower
from ganglion.compiler.plan.passes.graph import (
    adds_up_rows,
    has_empty,
    integer_products_as_sums,
    is_integer_product,
    is_narrow,
    is_relu,
    light_inputs_in_loops,
    masks_of_outputs,
    one_pass,
    transpose_narrow,
    without_empty,
)
from ganglion.compiler.plan.passes.loops import collapse_all, fuse, rows_as_columns
from ganglion.compiler.plan.passes.one_row import along_one_axis, as_images
from ganglion.compiler.plan.passes.short_floats import compute_in_float32
from ganglion.compiler.plan.passes.volumes import as_slices, in_depth
from ganglion.compiler.plan.passes.winograd import share_points
from ganglion.compiler.plan.plan import Plan, PlanError
from ganglion.compiler.plan.rules import RULES
from ganglion.compiler.plan.scan_scatter import PoolBack
from ganglion.compiler.plan.time_loop import TimeLoop
from ganglion.compiler.plan.winograd import WinogradPoints

_PREFERENCES = Preferences(
    scratch_for=scratch_for,
    sums_along_rows=sums_along_rows,
    pixels_side_by_side=True,
    few_channels_by_taps=True,
    strides_by_phase=True,
    depthwise_sums=True,
    pools_by_window=True,
)


def _lower(program: Program) -> Plan:
    wants = replace(
        _PREFERENCES,
        thread_splits=CPU.thread_splits,
        winograd=not config.precise(),
        winograd_by_point=not has_fast_third_cache(),
        rounds_products=config.precision() == "bf16",
    )
    return lower(program, wants, RULES)


def _may_be_image(node: Node) -> bool:
    return along_one_axis(node) and not config.precise()


def _may_be_slices(node: Node) -> bool:
    return in_depth(node) and not config.precise()


def _may_skip_zeros(product: Contract) -> bool:
    count = math.prod(axis.size for axis in product.axes)
    return count >= CPU.listed_product and not config.precise()


def _may_add_columns(product: Contract) -> bool:
    return product.packed is not None or goes_by_panels(product)


def _block(plan: Plan) -> CpuPlan:
    if all(kernel.cost < CPU.worth_sharing for kernel in plan.kernels):
        return for_one_thread(plan)
    return block(plan)


def _is_shared(plan: CpuPlan) -> bool:
    return not plan.execution  # a plan for a single thread has it from the start


def verify(plan: CpuPlan) -> None:
    """Raise `PlanError` if anything that a plan has by now is wrong."""
    plans.verify(plan)
    if plan.segments and (pair := conflict(plan.kernels, plan.segments)):
        text = f"kernels {pair[0]} and {pair[1]} cannot share a segment"
        raise PlanError(f"{plan.name}: {text}")
    if plan.offsets:
        verify_memory(plan)
    is_shared = any(not how.one_thread for how in plan.execution)
    if is_shared and (pair := unguarded(plan)):
        text = f"no barrier between kernels {pair[0]} and {pair[1]}"
        raise PlanError(f"{plan.name}: {text}")


def verify_memory(plan: CpuPlan) -> None:
    """Check at each run that the buffers which are live do not overlap."""
    begins: dict[int, list[Buffer]] = {}
    ends: dict[int, list[Buffer]] = {}
    for buffer, (first, last) in lifetimes(plan).items():
        begins.setdefault(first, []).append(buffer)
        ends.setdefault(last, []).append(buffer)
    alive: dict[int, Buffer] = {}
    starts: list[int] = []  # of those alive, in order
    for run in sorted({*begins, *ends}):
        for buffer in begins.get(run, []):
            at = bisect_left(starts, plan.offsets[buffer])
            for start in starts[max(at - 1, 0) : at + 1]:
                if not _apart(plan, buffer, alive[start]):
                    pair = f"{buffer!r} and {alive[start]!r}"
                    raise PlanError(f"{plan.name}: {pair} share memory")
            starts.insert(at, plan.offsets[buffer])
            alive[plan.offsets[buffer]] = buffer
        for buffer in ends.get(run, []):
            del starts[bisect_left(starts, plan.offsets[buffer])]


def _apart(plan: CpuPlan, a: Buffer, b: Buffer) -> bool:
    low, high = sorted((a, b), key=lambda buffer: plan.offsets[buffer])
    # Empty ones have an offset as well: no two have the same.
    return plan.offsets[low] + max(low.nbytes, 1) <= plan.offsets[high]


PIPELINE = Pipeline(
    (
        graph_pass(
            "short-floats",
            "16-bit floats are only stored: arithmetic is in float32",
            compute_in_float32,
            when=has_short_floats,
        ),
        graph_pass(
            "integer-products",
            "contractions are of floats only: integer products become sums",
            integer_products_as_sums,
            ops=("matmul",),
            where=is_integer_product,
            in_loops=True,
        ),
        graph_pass(
            "no-empty",
            "later passes may assume that no array is empty",
            without_empty,
            when=has_empty,
            in_loops=True,
        ),
        graph_pass(
            "one-pass-moments",
            "batch norm reads its data once for mean and variance",
            partial(one_pass, thread_splits=CPU.thread_splits),
            ops=("sum",),
            where=adds_up_rows,
        ),
        graph_pass(
            "narrow-products",
            "a product of few columns would leave lanes idle: it is transposed",
            transpose_narrow,
            ops=("matmul",),
            where=is_narrow,
        ),
        graph_pass(
            "one-row",
            "sequences are images of one row, where those take less to convolve",
            as_images,
            ops=("conv", "conv_transpose", "conv_kernel"),
            where=_may_be_image,
        ),
        graph_pass(
            "volumes",
            "slices of volumes are images of many channels, where those take less",
            as_slices,
            ops=("conv", "conv_transpose", "conv_kernel"),
            where=_may_be_slices,
        ),
        graph_pass(
            "pool-masks",
            "the mask of a ReLU before a pool is computed once per window",
            mask_pooled,
            ops=("max_pool_back",),
        ),
        graph_pass(
            "output-masks",
            "gradients of ReLUs compare outputs, so that inputs need not be stored",
            masks_of_outputs,
            ops=("maximum", "where"),
            where=is_relu,
            in_loops=True,
        ),
        graph_pass(
            "loop-inputs",
            "loops add the bias of their input products themselves",
            light_inputs_in_loops,
            ops=("scan",),
            in_loops=True,
        ),
        Pass("lower", "values become buffers, ops become kernels", _lower),
        kernel_pass(
            "pool-readers",
            "readers of a pool's gradient compute it: it is not stored",
            into_readers,
            PoolBack,
        ),
        kernel_pass(
            "winograd-points",
            "images are transformed once for a convolution and a gradient of weights",
            share_points,
            WinogradPoints,
        ),
        kernel_pass(
            "collapse",
            "fewer axes make tighter loops, and more loops can be fused",
            collapse_all,
        ),
        kernel_pass(
            "one-column",
            "a product of one column would leave lanes idle: its rows become columns",
            rows_as_columns,
            Contract,
        ),
        kernel_pass(
            "fuse",
            "loops that share data read it once",
            partial(fuse, large_loop=CPU.unfused_loop),
            in_loops=True,
        ),
        kernel_pass(
            "split-time-loops",
            "each thread runs all time steps of some rows of a batch",
            split_time_loops,
            TimeLoop,
        ),
        kernel_pass(
            "skip-zeros",
            "products of sparse data visit only its nonzero elements",
            skip_zeros,
            Contract,
            where=_may_skip_zeros,
        ),
        kernel_pass(
            "column-sums",
            "a product sums the columns of an operand: gradients of biases",
            sum_in_products,
            Contract,
            where=_may_add_columns,
        ),
        kernel_pass(
            "epilogues",
            "loops over a product's result run on its tiles, in cache",
            fuse_epilogues,
            Contract,
            where=repays_epilogue,
            in_loops=True,
        ),
        Pass("cache-blocking", "intermediate values stay in a thread's cache", _block),
        Pass(
            "in-place",
            "a loop overwrites its input if that is dead: slices take less cache",
            write_in_place,
            applies=_is_shared,
        ),
        Pass(
            "fill-intervals",
            "kernels move up into earlier intervals, so that fewer barriers remain",
            fill_intervals,
            applies=_is_shared,
        ),
        Pass(
            "arena",
            "buffers that are not live at the same time share memory",
            place_in_arena,
        ),
        Pass(
            "barriers",
            "threads wait only where dependences require it",
            place_barriers,
            applies=_is_shared,
        ),
    ),
    {**VERIFIERS, CpuPlan: verify},
)


def build(program: Program, after: str | None = None) -> Any:
    """Return the plan of a program, or the stage after the pass of this name."""
    return PIPELINE.run(program, after)
