"""The plan's verifier: nothing is read before it is written, or outside of memory."""

from __future__ import annotations

from ganglion.compiler.plan.kernels import Buffer, Load, Loop, View, walk
from ganglion.compiler.plan.plan import Plan


class PlanError(Exception):
    """A plan that breaks its own rules: a bug in Ganglion, not in the model."""


def verify(plan: Plan) -> Plan:
    """Return the plan if it is well formed, else raise `PlanError`."""
    written: set[Buffer] = set()
    for number, kernel in enumerate(plan.kernels):
        for buffer in kernel.reads():
            root = buffer.root
            if root.kind == "arena" and root not in written:
                text = f"kernel {number} reads {buffer!r} too early"
                raise PlanError(f"{plan.name}: {text}")
        for buffer in kernel.writes():
            if buffer.kind in ("data", "constant"):
                raise PlanError(f"{plan.name}: kernel {number} writes {buffer!r}")
            written.add(buffer.root)
        if isinstance(kernel, Loop):
            _verify_loop(plan, number, kernel)
    return plan


def _verify_loop(plan: Plan, number: int, kernel: Loop) -> None:
    for expr in walk(*kernel.exprs):
        if isinstance(expr, Load):
            _inside(plan, number, expr.view, kernel.shape)
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
