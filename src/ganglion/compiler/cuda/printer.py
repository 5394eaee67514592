"""What a GPU runs, as text: launches, the lanes side by side in them, their kernels.

It is the plan after all passes for CUDA: copies of operands that are kept as tensor
cores take them, parts of long contractions, loops that have become epilogues of others,
and what a step prepares for the next one.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

from ganglion.compiler.cuda.emit import Call, Emission, Target, schedule_of
from ganglion.compiler.cuda.epilogue import Parted, Work
from ganglion.compiler.cuda.launches import Haste, Lane, Launch
from ganglion.compiler.plan.kernels import Kernel
from ganglion.compiler.plan.plan import Plan
from ganglion.compiler.plan.printer import kernel_text

_WHEN = {
    "once": "before all steps",
    "first": "before the first step",
    "every": "in every step",
    "last": "in the last step, in place of those",
}
_PRIORITY = {
    Haste.NOW: "",
    Haste.LATER: ", deferred",
    Haste.ASIDE: ", prefetch for the next step",
}


def show(plan: Plan, emission: Emission, target: Target) -> str:
    """Return the text of all launches of a plan."""
    schedule = schedule_of(plan, target)
    lines = [
        f"plan {plan.name} on sm_{target.capability}, {target.products}: "
        f"{len(emission.every)} launches a step, arena {emission.arena:,} bytes, "
        f"{emission.own_bytes:,} bytes of its own"
    ]
    for when, title in _WHEN.items():
        launches, calls = getattr(schedule, when), getattr(emission, when)
        if calls:
            lines += ["", f"{title}:"]
        for number, (call, launch) in enumerate(zip_longest(calls, launches)):
            if when == "last" and call in emission.every:
                lines.append(
                    f"  last  {number:2} as every {emission.every.index(call)}"
                )
            else:
                lines += _launch(when, number, call, launch)
    return "\n".join(lines)


def _launch(when: str, number: int, call: Call, launch: Launch | None) -> Iterator[str]:
    yield (
        f"  {when:5} {number:2} {call.function}: {call.blocks} blocks, "
        f"{call.shared:,} bytes shared"
    )
    if launch is None:
        yield "      counts the step"
        return
    for position, lane in enumerate(launch.lanes):
        yield f"    lane {position}{_PRIORITY[lane.haste]}{_rows(lane)}:"
        for work in lane.works:
            yield from _work(work, "      ")


def _rows(lane: Lane) -> str:
    return ", row-wise: each block goes through all with its rows" * lane.by_rows


def _work(work: Work, indent: str, role: str = "") -> Iterator[str]:
    """Yield a kernel, what goes on with its values, and sums of what it computes."""
    yield from _kernel(work.kernel, indent, role)
    deeper = f"{indent}  "
    for loop in work.guests:
        yield from _kernel(loop, deeper, "epilogue: ")
    for tally in work.tallies:
        yield from _work(tally, deeper, "column sum: ")
    if work.dropped:
        names = ", ".join(sorted(name for _, name in work.dropped))
        yield f"{deeper}not stored: {names}"


def _kernel(kernel: Kernel, indent: str, role: str) -> Iterator[str]:
    first, *rest = kernel_text(kernel).split("\n")
    parts = f"  in {kernel.parts} parts" if isinstance(kernel, Parted) else ""
    yield f"{indent}{role}{first}{parts}"
    yield from (f"{indent}  {line.strip()}" for line in rest)
