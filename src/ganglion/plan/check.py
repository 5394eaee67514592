"""The plan's verifier: nothing that lives overlaps, nothing is read before written."""

from __future__ import annotations

from ganglion.plan.bands import quarrel
from ganglion.plan.kernel import Buffer, Load, Loop, View, walk
from ganglion.plan.memory import lifetimes
from ganglion.plan.plan import Plan
from ganglion.plan.schedule import unguarded


class PlanError(Exception):
    """A plan that breaks its own rules: a bug in Ganglion, not in the model."""


def verify(plan: Plan, aliases: dict[Buffer, Buffer]) -> Plan:
    """Return the plan if it is well formed, else raise `PlanError`."""
    written: set[Buffer] = set()
    for number, kernel in enumerate(plan.kernels):
        for one in kernel.reads():
            root = aliases.get(one, one)
            if root.kind == "arena" and root not in written:
                raise PlanError(f"{plan.name}: kernel {number} reads {one!r} too early")
        for one in kernel.writes():
            if one.kind in ("data", "constant"):
                raise PlanError(f"{plan.name}: kernel {number} writes {one!r}")
            written.add(aliases.get(one, one))
        if isinstance(kernel, Loop):
            _verify_loop(plan, number, kernel)
    _verify_memory(plan, aliases)
    pair = quarrel(plan.kernels, plan.bands, aliases)
    if pair is not None:
        raise PlanError(
            f"{plan.name}: kernels {pair[0]} and {pair[1]} cannot share a band"
        )
    pair = unguarded(plan, aliases)
    if pair is not None:
        raise PlanError(
            f"{plan.name}: no barrier between kernels {pair[0]} and {pair[1]}"
        )
    return plan


def _verify_loop(plan: Plan, number: int, kernel: Loop) -> None:
    for one in walk(*(expr for expr, _ in kernel.stored)):
        if isinstance(one, Load):
            _inside(plan, number, one.view, kernel.shape)
    for _, view in kernel.stored:
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


def _verify_memory(plan: Plan, aliases: dict[Buffer, Buffer]) -> None:
    lives = list(lifetimes(plan, aliases).items())
    for i, (a, life) in enumerate(lives):
        for b, other in lives[:i]:
            together = life[0] <= other[1] and other[0] <= life[1]
            apart = (
                plan.offsets[a] + a.nbytes <= plan.offsets[b]
                or plan.offsets[b] + b.nbytes <= plan.offsets[a]
            )
            if together and not apart:
                raise PlanError(f"{plan.name}: {a!r} and {b!r} share memory")
