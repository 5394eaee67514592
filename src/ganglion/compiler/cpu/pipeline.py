"""The CPU's compiler: every pass in order, then one function a kernel, as LLVM IR."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ganglion import config
from ganglion.compiler.cpu.elementwise import LoopText
from ganglion.compiler.cpu.emitter import Emitted
from ganglion.compiler.cpu.gemm import Contraction
from ganglion.compiler.cpu.plan import (
    CpuPlan,
    block,
    conflict,
    place_barriers,
    place_in_arena,
    unguarded,
    verify_memory,
)
from ganglion.compiler.cpu.pools import into_readers, mask_pooled
from ganglion.compiler.cpu.scan_scatter import emit_pool_back, emit_scan, emit_scatter
from ganglion.compiler.cpu.skip_zeros import NonzeroBits, Nonzeros, skip_zeros
from ganglion.compiler.cpu.sparse import BitContraction, NonzeroLists, emit_bits
from ganglion.compiler.cpu.time_loop import emit_time_loop, split_time_loops
from ganglion.compiler.cpu.tuning import CPU
from ganglion.compiler.cpu.winograd import Weights
from ganglion.compiler.cpu.winograd_conv import Conv, Grads
from ganglion.compiler.ir.program import Program
from ganglion.compiler.pipeline import (
    VERIFIERS,
    Pass,
    Pipeline,
    graph_pass,
    kernel_pass,
)
from ganglion.compiler.plan import plan as plans
from ganglion.compiler.plan.kernels import (
    Buffer,
    Contract,
    Kernel,
    Loop,
    PoolBack,
    Scan,
    Scatter,
)
from ganglion.compiler.plan.lower import lower
from ganglion.compiler.plan.lowering import Preferences
from ganglion.compiler.plan.passes.graph import (
    integer_products_as_sums,
    light_inputs_in_loops,
    one_pass,
    transpose_narrow,
    without_empty,
)
from ganglion.compiler.plan.passes.loops import collapse, fuse
from ganglion.compiler.plan.plan import Plan, PlanError
from ganglion.compiler.plan.time_loop import TimeLoop
from ganglion.compiler.plan.winograd import (
    WinogradConv,
    WinogradGrads,
    WinogradKernel,
    WinogradSpread,
    WinogradWeights,
)


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
        graph_pass(
            "loop-inputs",
            "a bias behind the input products of a loop needs no pass of its own",
            light_inputs_in_loops,
            ops=("scan",),
            in_loops=True,
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
            split_time_loops,
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


# ---- kernels as text -----------------------------------------------------------------

EMITTERS: dict[type[Kernel], Callable[[Any], Emitted]] = {
    Loop: lambda k: LoopText(k).emit(),
    Contract: lambda k: (BitContraction if k.bits else Contraction)(k).emit(),
    PoolBack: emit_pool_back,
    Scan: emit_scan,
    Scatter: emit_scatter,
    Nonzeros: lambda k: NonzeroLists(k).emit(),
    NonzeroBits: emit_bits,
    TimeLoop: lambda k: emit_time_loop(k, emit_kernel),
    WinogradWeights: lambda k: Weights().emit(k),
    WinogradConv: lambda k: Conv(k).emit(),
    WinogradSpread: lambda k: Conv(k).emit(),
    WinogradGrads: lambda k: Grads(k).emit(),
    WinogradKernel: lambda k: Weights().emit_back(k),
}


@dataclass(frozen=True)
class Record:
    """One call of a step: a function by its hash, its buffers, how threads split it."""

    function: str
    buffers: tuple[Buffer, ...]
    parallel: int
    grain: int


def emit(plan: Plan) -> tuple[dict[str, str], list[Record]]:
    """Return every function's module by its hash, and the calls of a step in order."""
    modules: dict[str, str] = {}
    records = []
    for kernel in plan.kernels:
        emitted = emit_kernel(kernel)
        _check_buffers(kernel, emitted)
        name = "k" + hashlib.sha256(emitted.text.encode()).hexdigest()[:24]
        if name not in modules:
            modules[name] = _module(name, emitted)
        records.append(Record(name, emitted.buffers, emitted.parallel, emitted.grain))
    return modules, records


def emit_kernel(kernel: Kernel) -> Emitted:
    """Return a kernel as text."""
    return EMITTERS[type(kernel)](kernel)


def _check_buffers(kernel: Kernel, emitted: Emitted) -> None:
    """Refuse code that touches buffers its kernel does not name: barriers need them."""
    named = {*kernel.reads(), *kernel.writes()}
    hidden = [b for b in emitted.buffers if b not in named and b.kind != "constant"]
    if hidden:
        raise AssertionError(f"{kernel.name} does not name {hidden}")


def _module(name: str, emitted: Emitted) -> str:
    text = emitted.text.replace("define void @kernel(", f"define void @{name}(", 1)
    declared, helpers = sorted(emitted.declared), sorted(emitted.helpers)
    return "\n".join([*declared, text, *helpers, "attributes #0 = { nounwind }", ""])
