"""The GPU's passes, all of them, in order: from a program to launches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

from ganglion.compiler.cuda.launches import (
    Schedule,
    StepKernels,
    is_one_blocks,
    verify_schedule,
    verify_step,
)
from ganglion.compiler.cuda.one_block import place_in_block
from ganglion.compiler.cuda.passes.prefetch import keep_prefetched_exact, split_prefetch
from ganglion.compiler.cuda.passes.products import (
    depthwise_as_loops,
    keep_bytes,
    narrow_as_loop,
    read_inside_padding,
    round_operands,
    split_column_sums,
    split_long_contractions,
)
from ganglion.compiler.cuda.passes.simplify import (
    compare_results_alone,
    eliminate_common_subexpressions,
    hoist_constants,
)
from ganglion.compiler.cuda.resident import make_resident
from ganglion.compiler.cuda.scheduler import (
    allocate,
    drop_unread_stores,
    end_run,
    mark_ready,
    round_stores,
    schedule,
    stage_rows,
)
from ganglion.compiler.cuda.target import TUNING, GpuSpec
from ganglion.compiler.ir.graph import Program, has_short_floats
from ganglion.compiler.pipeline import (
    VERIFIERS,
    Pass,
    Pipeline,
    graph_pass,
    kernel_pass,
)
from ganglion.compiler.plan.kernels import Kernel
from ganglion.compiler.plan.lowering import Preferences, lower
from ganglion.compiler.plan.passes.graph import (
    adds_up_rows,
    has_empty,
    integer_products_as_sums,
    is_integer_product,
    is_narrow,
    one_pass,
    transpose_narrow,
    without_empty,
)
from ganglion.compiler.plan.passes.loops import collapse_all, fuse
from ganglion.compiler.plan.passes.short_floats import compute_in_float32
from ganglion.compiler.plan.rules import RULES


def step_pass(
    name: str, why: str, run: Callable[[Sequence[Kernel]], Iterable[Kernel]]
) -> Pass:
    """Return a pass over the kernels of every step."""

    def change(step: StepKernels) -> StepKernels:
        return replace(step, every=tuple(run(step.every)))

    return Pass(name, why, change)


def compare_relu_results(step: StepKernels) -> StepKernels:
    """Return a step whose ReLUs need no input once they have a result."""
    return replace(step, every=tuple(compare_results_alone(step.every)))


def _has_launches(step: StepKernels) -> bool:
    return not step.resident


@cache
def pipeline(spec: GpuSpec) -> Pipeline:
    """Return the passes for a GPU: from a program to its `Schedule`."""
    precision = spec.products
    return Pipeline(
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
                "batch norm reads its data once, and sums it in float64",
                one_pass,
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
            Pass(
                "lower",
                "values become buffers, ops become kernels",
                partial(lower, target=Preferences(), rules=RULES),
            ),
            kernel_pass(
                "collapse",
                "fewer axes make tighter loops, and more loops can be fused",
                collapse_all,
            ),
            kernel_pass(
                "fuse",
                "loops that share data read it once",
                partial(fuse, large_loop=TUNING.unfused_loop_elements),
                in_loops=True,
            ),
            kernel_pass(
                "cse",
                "arrays that are computed twice are computed once",
                eliminate_common_subexpressions,
            ),
            Pass(
                "constants",
                "constant arrays are computed once, before the first step",
                hoist_constants,
            ),
            step_pass(
                "inside-padding",
                "products read the interior of a padded copy, if there is one",
                read_inside_padding,
            ),
            step_pass(
                "depthwise",
                "depthwise convolutions are loops: a tile would be mostly empty",
                depthwise_as_loops,
            ),
            step_pass(
                "narrow-loops",
                "narrow products are loops, so that they can be fused row-wise",
                partial(map, narrow_as_loop),
            ),
            Pass(
                "resident",
                "a small step runs in a single block, without launches between kernels",
                make_resident,
                partial(is_one_blocks, spec=spec),
            ),
            Pass(
                "relu-results",
                "gradients of ReLUs compare results: inputs need not be stored",
                compare_relu_results,
                _has_launches,
            ),
            Pass(
                "byte-operands",
                "images stay bytes, a quarter of the memory; products scale their sums",
                keep_bytes,
                lambda step: precision == "tf32" and not step.resident,
            ),
            Pass(
                "rounded-operands",
                "tensor cores take rounded operands: round once, not in every tile",
                partial(round_operands, bf16=spec.bf16),
                lambda step: precision != "float32" and not step.resident,
            ),
            Pass(
                "split-k",
                "long sums with few results would leave most of a GPU idle",
                partial(split_long_contractions, spec=spec),
                _has_launches,
            ),
            Pass(
                "prefetch",
                "the next batch is drawn and gathered beside a step's products",
                split_prefetch,
                _has_launches,
            ),
            Pass(
                "exact-prefetch",
                "the first batch must equal prefetched ones bit for bit",
                keep_prefetched_exact,
                _has_launches,
            ),
            Pass(
                "split-column-sums",
                "deferred column sums are fused into the maps that they sum",
                split_column_sums,
                _has_launches,
            ),
            Pass(
                "launches",
                "kernels become epilogues and partitions of few launches",
                schedule,
            ),
            Pass(
                "drop-stores",
                "results that only epilogues read stay in registers",
                drop_unread_stores,
            ),
            Pass(
                "stage-rows",
                "arrays that a row-wise block reads again stay in shared memory",
                stage_rows,
                lambda schedule: not schedule.step.resident,
            ),
            Pass(
                "rounded-stores",
                "operands of products are rounded where they are stored",
                round_stores,
                lambda schedule: precision == "tf32",
            ),
            Pass(
                "in-block",
                "swizzling avoids bank conflicts; small loops use different warps",
                place_in_block,
                lambda schedule: schedule.step.resident,
            ),
            Pass(
                "ready-before-launch",
                "operands are loaded while the previous launch still runs",
                mark_ready,
                lambda schedule: not schedule.step.resident,
            ),
            Pass(
                "last-step",
                "a run's last step does not advance cursors for a next one",
                end_run,
            ),
            Pass(
                "memory",
                "arrays that are not live at the same time share memory",
                allocate,
            ),
        ),
        {**VERIFIERS, StepKernels: verify_step, Schedule: verify_schedule},
    )


def build(program: Program, spec: GpuSpec, after: str | None = None) -> Any:
    """Return the schedule of a program, or the stage after the pass named `after`."""
    if names := program.graph.host_calls:
        raise NotImplementedError(
            f"{', '.join(sorted(names))}: computed in Python on the host, which a "
            "recorded step on a GPU cannot call. Run this model on the CPU: "
            "GANGLION_BACKEND=cpu, or ganglion.config.set_backend('cpu')."
        )
    return pipeline(spec).run(program, after)
