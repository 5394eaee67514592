"""Print what a GPU runs: launches, their partitions and kernels.

The plan is shown after all passes for CUDA: with rounded copies of operands, split-K
parts of long contractions, epilogues under their producers, and prefetched kernels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import zip_longest

from ganglion.compiler.cuda.emit import Call, Emission
from ganglion.compiler.cuda.fusion import FusedKernel, SplitContract
from ganglion.compiler.cuda.launches import (
    Launch,
    Partition,
    Priority,
    Schedule,
    StepKernels,
)
from ganglion.compiler.cuda.target import GpuSpec
from ganglion.compiler.plan.kernels import Kernel
from ganglion.compiler.plan.printer import kernel_text

_WHEN = {
    "once": "before all steps",
    "first": "before the first step",
    "every": "in every step",
    "last": "in the last step, in place of those",
}
_PRIORITY = {
    Priority.CRITICAL: "",
    Priority.DEFERRED: ", deferred",
    Priority.PREFETCH: ", prefetch for the next step",
}


def show(emission: Emission, spec: GpuSpec) -> str:
    """Return all launches of a program as text."""
    schedule = emission.schedule
    lines = [
        f"plan {schedule.plan.name} on sm_{spec.capability}, {spec.products}: "
        f"{len(emission.every)} launches a step, arena {schedule.arena:,} bytes, "
        f"workspace {emission.workspace_bytes:,} bytes"
    ]
    for when, title in _WHEN.items():
        launches, calls = getattr(schedule, when), getattr(emission, when)
        if calls:
            lines += ["", f"{title}:"]
        if calls and calls[0].resident:
            lines += _resident(calls[0], launches)
            continue
        for number, (call, launch) in enumerate(zip_longest(calls, launches)):
            head = f"  {when:5} {number:2}"
            if when == "last" and call in emission.every:
                lines.append(f"{head} as every {emission.every.index(call)}")
                continue
            size = f"{call.blocks} blocks, {call.shared:,} bytes shared"
            lines.append(f"{head} {call.function}: {size}")
            lines += ["      counts the step"] if launch is None else _launch(launch)
    return "\n".join(lines)


def _resident(call: Call, launches: Iterable[Launch]) -> Iterator[str]:
    """Yield the kernels of a resident block, which runs many steps in one launch."""
    size = f"1 block, {call.shared:,} bytes shared, for many steps"
    yield f"  every  0 {call.function}: {size}"
    for launch in launches:
        for fused in launch.fused_kernels:
            yield from _fused(fused, "      ")


def show_stage(stage: StepKernels | Schedule) -> str:
    """Return the kernels or launches of a stage as text."""
    lines = [f"plan {stage.plan.name}"]
    for when, title in _WHEN.items():
        part: list[str] = []
        if isinstance(stage, StepKernels):
            name = {"first": "prefetched", "last": ""}.get(when, when)
            for kernel in getattr(stage, name, ()):
                part += _kernel(kernel, "  ", "")
        else:
            for number, launch in enumerate(getattr(stage, when)):
                part += [f"  {when:5} {number:2}", *_launch(launch)]
        lines += ["", f"{title}:", *part] if part else []
    return "\n".join(lines)


def _launch(launch: Launch) -> Iterator[str]:
    for position, partition in enumerate(launch.partitions):
        priority = _PRIORITY[partition.priority]
        yield f"    partition {position}{priority}{_rows(partition)}:"
        for fused in partition.fused_kernels:
            yield from _fused(fused, "      ")


def _rows(partition: Partition) -> str:
    return ", row-wise: each block goes through all with its rows" * partition.row_wise


def _fused(fused: FusedKernel, indent: str, role: str = "") -> Iterator[str]:
    """Yield a kernel, its epilogues, and the column sums of its results."""
    yield from _kernel(fused.kernel, indent, role)
    deeper = f"{indent}  "
    for loop in fused.epilogues:
        yield from _kernel(loop, deeper, "epilogue: ")
    for column_sum in fused.column_sums:
        yield from _fused(column_sum, deeper, "column sum: ")
    if fused.unstored:
        names = ", ".join(sorted(name for _, name in fused.unstored))
        yield f"{deeper}not stored: {names}"


def _kernel(kernel: Kernel, indent: str, role: str) -> Iterator[str]:
    first, *rest = kernel_text(kernel).split("\n")
    parts = f"  in {kernel.parts} parts" if isinstance(kernel, SplitContract) else ""
    yield f"{indent}{role}{first}{parts}"
    yield from (f"{indent}  {line.strip()}" for line in rest)
