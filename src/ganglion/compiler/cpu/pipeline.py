"""The CPU's passes, all of them, in order: from a program to a plan for threads."""

from __future__ import annotations

from typing import Any

from ganglion import config
from ganglion.compiler.ir.program import Program
from ganglion.compiler.pipeline import Pass, Pipeline, graph_pass, kernel_pass
from ganglion.compiler.plan.barriers import schedule
from ganglion.compiler.plan.cache_blocking import block
from ganglion.compiler.plan.kernels import Contract, PoolBack
from ganglion.compiler.plan.lower_structured import lower
from ganglion.compiler.plan.memory import place
from ganglion.compiler.plan.passes.collapse import collapse
from ganglion.compiler.plan.passes.empty import without_empty
from ganglion.compiler.plan.passes.fuse import fuse
from ganglion.compiler.plan.passes.integer_products import as_sums
from ganglion.compiler.plan.passes.moments import one_pass
from ganglion.compiler.plan.passes.narrow import turn_narrow
from ganglion.compiler.plan.passes.pool_masks import mask_pooled
from ganglion.compiler.plan.passes.pool_readers import into_readers
from ganglion.compiler.plan.plan import Plan
from ganglion.compiler.plan.sparsity import skip_zeros


def _lower(program: Program) -> Plan:
    return lower(program, winograd=not config.precise())


def _shortcuts(stage: Any) -> bool:
    return not config.precise()


PIPELINE = Pipeline(
    (
        graph_pass(
            "integer-products",
            "kernels multiply floats: products of whole numbers become sums",
            as_sums,
            ops=("matmul",),
        ),
        graph_pass(
            "no-empty",
            "behind it, every kernel has something to do",
            without_empty,
        ),
        graph_pass(
            "one-pass-moments",
            "batch norm reads its data once for mean and variance",
            one_pass,
            ops=("sum",),
        ),
        graph_pass(
            "narrow-products",
            "a product of few columns would leave vectors empty: it is transposed",
            turn_narrow,
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
            lambda kernels: [collapse(one) for one in kernels],
        ),
        kernel_pass("fuse", "loops that share data read it once", fuse),
        kernel_pass(
            "skip-zeros",
            "products walk only through the data that is not zero",
            skip_zeros,
            Contract,
            applies=_shortcuts,
        ),
        Pass("cache-blocking", "what kernels hand on stays in a thread's cache", block),
        Pass("arena", "buffers that do not live together share memory", place),
        Pass("barriers", "threads wait only where they must", schedule),
    )
)


def build(program: Program, after: str | None = None) -> Any:
    """Return the plan of a program, or the stage after the pass of this name."""
    return PIPELINE.run(program, after)
