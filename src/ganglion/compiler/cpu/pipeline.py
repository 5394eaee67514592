"""The CPU's passes, all of them, in order: from a program to a plan for threads."""

from __future__ import annotations

from functools import partial
from typing import Any

from ganglion import config
from ganglion.compiler.cpu.cache_blocking import block, conflict
from ganglion.compiler.cpu.plan import (
    CpuPlan,
    place_barriers,
    place_in_arena,
    unguarded,
    verify_memory,
)
from ganglion.compiler.cpu.pools import into_readers, mask_pooled
from ganglion.compiler.cpu.skip_zeros import skip_zeros
from ganglion.compiler.cpu.time_loop import split_rows
from ganglion.compiler.cpu.tuning import CPU
from ganglion.compiler.ir.program import Program
from ganglion.compiler.pipeline import (
    VERIFIERS,
    Pass,
    Pipeline,
    graph_pass,
    kernel_pass,
)
from ganglion.compiler.plan import plan as plans
from ganglion.compiler.plan.kernels import Contract, PoolBack
from ganglion.compiler.plan.lower import lower
from ganglion.compiler.plan.lowering import Preferences
from ganglion.compiler.plan.passes.graph import (
    integer_products_as_sums,
    transpose_narrow,
    without_empty,
)
from ganglion.compiler.plan.passes.loops import collapse, fuse
from ganglion.compiler.plan.passes.moments import one_pass
from ganglion.compiler.plan.plan import Plan, PlanError
from ganglion.compiler.plan.time_loop import TimeLoop


def _lower(program: Program) -> Plan:
    wants = Preferences(
        thread_splits=CPU.thread_splits,
        winograd=not config.precise(),
        packs_panels=True,
        pools_by_window=True,
    )
    return lower(program, wants)


def _shortcuts(stage: Any) -> bool:
    return not config.precise()


def verify(plan: CpuPlan) -> None:
    """Raise `PlanError` if what the last pass has added to a plan is wrong."""
    if plan.execution:
        if pair := unguarded(plan):
            text = f"no barrier between kernels {pair[0]} and {pair[1]}"
            raise PlanError(f"{plan.name}: {text}")
    elif plan.offsets:
        verify_memory(plan)
    else:
        plans.verify(plan)
        if pair := conflict(plan.kernels, plan.segments):
            text = f"kernels {pair[0]} and {pair[1]} cannot share a segment"
            raise PlanError(f"{plan.name}: {text}")


PIPELINE = Pipeline(
    (
        graph_pass(
            "integer-products",
            "kernels multiply floats: products of whole numbers become sums",
            integer_products_as_sums,
            ops=("matmul",),
            in_loops=True,
        ),
        graph_pass(
            "no-empty",
            "behind it, every kernel has something to do",
            without_empty,
            in_loops=True,
        ),
        graph_pass(
            "one-pass-moments",
            "batch norm reads its data once for mean and variance",
            partial(one_pass, thread_splits=CPU.thread_splits),
            ops=("sum",),
        ),
        graph_pass(
            "narrow-products",
            "a product of few columns would leave vectors empty: it is transposed",
            transpose_narrow,
            ops=("matmul",),
        ),
        graph_pass(
            "pool-masks",
            "a ReLU before a pool is asked once a window, not once an element",
            mask_pooled,
            ops=("max_pool_back",),
        ),
        Pass("lower", "values become buffers, ops become kernels", _lower),
        kernel_pass(
            "pool-readers",
            "who reads a pool's gradient computes it: it is not stored",
            into_readers,
            PoolBack,
        ),
        kernel_pass(
            "collapse",
            "fewer axes make tighter loops, and more loops alike",
            lambda kernels: [collapse(kernel) for kernel in kernels],
        ),
        kernel_pass("fuse", "loops that share data read it once", fuse, in_loops=True),
        kernel_pass(
            "split-time-loops",
            "threads take rows of a batch through all steps of time",
            split_rows,
            TimeLoop,
        ),
        kernel_pass(
            "skip-zeros",
            "products walk only through the data that is not zero",
            skip_zeros,
            Contract,
            applies=_shortcuts,
        ),
        Pass("cache-blocking", "what kernels hand on stays in a thread's cache", block),
        Pass("arena", "buffers that do not live together share memory", place_in_arena),
        Pass("barriers", "threads wait only where they must", place_barriers),
    ),
    {**VERIFIERS, CpuPlan: verify},
)


def build(program: Program, after: str | None = None) -> Any:
    """Return the plan of a program, or the stage after the pass of this name."""
    return PIPELINE.run(program, after)
