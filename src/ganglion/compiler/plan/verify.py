"""The plan's verifier: nothing that lives overlaps, nothing is read before written."""

from __future__ import annotations

from bisect import bisect_left

from ganglion.compiler.plan.barriers import unguarded
from ganglion.compiler.plan.cache_blocking import quarrel
from ganglion.compiler.plan.kernels import Buffer, Load, Loop, View, walk
from ganglion.compiler.plan.memory import lifetimes
from ganglion.compiler.plan.plan import Plan


class PlanError(Exception):
    """A plan that breaks its own rules: a bug in Ganglion, not in the model."""


def verify(plan: Plan) -> Plan:
    """Return the plan if it is well formed, else raise `PlanError`."""
    written: set[Buffer] = set()
    for number, kernel in enumerate(plan.kernels):
        for one in kernel.reads():
            root = one.root
            if root.kind == "arena" and root not in written:
                raise PlanError(f"{plan.name}: kernel {number} reads {one!r} too early")
        for one in kernel.writes():
            if one.kind in ("data", "constant"):
                raise PlanError(f"{plan.name}: kernel {number} writes {one!r}")
            written.add(one.root)
        if isinstance(kernel, Loop):
            _verify_loop(plan, number, kernel)
    pair = quarrel(plan.kernels, plan.bands)
    if pair is not None:
        raise PlanError(
            f"{plan.name}: kernels {pair[0]} and {pair[1]} cannot share a band"
        )
    if not plan.marks:  # not yet placed in memory
        return plan
    _verify_memory(plan)
    pair = unguarded(plan)
    if pair is not None:
        raise PlanError(
            f"{plan.name}: no barrier between kernels {pair[0]} and {pair[1]}"
        )
    return plan


def _verify_loop(plan: Plan, number: int, kernel: Loop) -> None:
    for one in walk(*kernel.exprs):
        if isinstance(one, Load):
            _inside(plan, number, one.view, kernel.shape)
    for _, view in kernel.outputs:
        _inside(plan, number, view, kernel.outer)


def _inside(plan: Plan, number: int, view: View, shape: tuple[int, ...]) -> None:
    if len(view.strides) != len(shape):
        raise PlanError(f"{plan.name}: kernel {number} has other axes than {view}")
    low = high = view.offset
    for size, stride in zip(shape, view.strides, strict=True):
        if size == 0:
            return
        low += min(stride * (size - 1), 0)
        high += max(stride * (size - 1), 0)
    if low < 0 or high >= max(view.buffer.size, 1):
        raise PlanError(
            f"{plan.name}: kernel {number} leaves {view.buffer!r}: [{low}, {high}]"
        )


def _verify_memory(plan: Plan) -> None:
    """Walk through the runs: what lives in one stands apart from its neighbours."""
    lives = lifetimes(plan)
    begins: dict[int, list[Buffer]] = {}
    ends: dict[int, list[Buffer]] = {}
    for buffer, (first, last) in lives.items():
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


def _apart(plan: Plan, a: Buffer, b: Buffer) -> bool:
    low, high = sorted((a, b), key=lambda one: plan.offsets[one])
    # Empty ones have a place as well: no two are at the same.
    return plan.offsets[low] + max(low.nbytes, 1) <= plan.offsets[high]
