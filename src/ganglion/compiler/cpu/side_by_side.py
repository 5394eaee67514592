"""Steps that do not depend on each other, as those of `predict`, in several threads.

Each thread runs its own steps from the first kernel to the last, in an arena of its
own. It never waits for another, so that even steps that are too small for threads to
share keep all cores busy. Every step has the bits that it has on one thread.
"""

from __future__ import annotations

from collections.abc import Mapping

from ganglion import config
from ganglion.compiler.cpu import threads as cpu_threads
from ganglion.compiler.cpu import tuning
from ganglion.compiler.plan.kernels import Apply, Buffer, Expr, Literal, Load, Loop
from ganglion.compiler.plan.plan import Plan


def advanced(plan: Plan) -> Mapping[str, int] | None:
    """Return by how much a step advances each state, None if it does more than that.

    Of states that only count, any step can begin where those before it would end.
    """
    counters: dict[str, int] = {}
    for kernel in plan.kernels:
        written = {b.root for b in kernel.writes() if b.root.kind == "state"}
        if written and not isinstance(kernel, Loop):
            return None
        for expr, view in kernel.outputs if isinstance(kernel, Loop) else ():
            if view.buffer.root in written:
                by = _addend(expr, view.buffer)
                if by is None or view.buffer.size != 1 or view.buffer.name in counters:
                    return None
                counters[view.buffer.name] = by
    return counters


def _addend(expr: Expr, counter: Buffer) -> int | None:
    """Return the whole number that an expression adds to a counter."""
    if not isinstance(expr, Apply) or expr.op != "add" or expr.dtype.kind not in "iu":
        return None
    loads = [arg for arg in expr.args if isinstance(arg, Load)]
    numbers = [arg for arg in expr.args if isinstance(arg, Literal)]
    if len(loads) != 1 or len(numbers) != 1 or loads[0].view.buffer is not counter:
        return None
    return int(numbers[0].value)


def threads_for(steps: int, nanoseconds: float, nbytes: int) -> int:
    """Return how many threads are to share so many steps out, 1 if that does not pay.

    Args:
        steps: How many there are.
        nanoseconds: What a step takes on one thread, by estimate.
        nbytes: What a step reads and writes besides its data: where a core's cache is
            too small for that, threads had better share each step.
    """
    pays = int(steps * nanoseconds / tuning.CPU.worth_sharing_out)
    most = min(config.threads(), steps, pays)
    if most < 2 or nbytes > tuning.CPU.own_cache or cpu_threads.crowded(most):
        return 1
    return most
