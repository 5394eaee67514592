"""Steps that do not depend on each other, as those of `predict`, in several threads.

Each thread runs its own steps from the first kernel to the last, in an arena of its
own. It never waits for another, so that even steps that are too small for threads to
share keep all cores busy. Every step has the bits that it has on one thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ganglion import config
from ganglion.compiler.cpu import threads as cpu_threads
from ganglion.compiler.cpu import tuning
from ganglion.compiler.cpu.backend import (
    JOB_WORDS,
    THREAD_WORDS,
    Layout,
    address_of,
    new_job,
)
from ganglion.compiler.cpu.plan import CpuPlan, aligned
from ganglion.compiler.plan.kernels import Apply, Buffer, Expr, Literal, Load, Loop
from ganglion.compiler.plan.plan import Plan

LINE, PAGE = 64, 4096  # bytes that threads had better not share


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


class Team:
    """Layouts for one thread each, which run steps side by side.

    Every thread has its rows of the results, an arena and counters of its own.

    Args:
        plan: What a step runs.
        layouts: One for each thread; counters are among what moves.
        counters: By how much a step advances each of them.
    """

    def __init__(
        self, plan: CpuPlan, layouts: Sequence[Layout], counters: Mapping[str, int]
    ) -> None:
        self._layouts, self._by = layouts, counters
        self._result_bytes = {name: b.nbytes for name, b in plan.results.items()}
        self._arena_bytes = -(-plan.arena // PAGE) * PAGE
        # One for each thread, in a cache line of its own.
        self._counters = {name: aligned(len(layouts) * LINE) for name in counters}
        self._job = new_job([layout.parts[0] for layout in layouts])
        self._fewer = self._job[JOB_WORDS:].reshape(-1, THREAD_WORDS)[:, -1]

    @property
    def arena_bytes(self) -> int:
        """What the arenas of all threads take together."""
        return self._arena_bytes * len(self._layouts)

    def run(
        self,
        pool: cpu_threads.Pool,
        addresses: Mapping[str, int],
        state: Mapping[str, np.ndarray],
        steps: int,
        arena: np.ndarray,
    ) -> None:
        """Run steps, about equally many on each thread, and advance the counters."""
        threads = len(self._layouts)
        each, rest = divmod(steps, threads)  # the first threads run one more
        firsts = [thread * each + min(thread, rest) for thread in range(threads)]
        moving = {name: [start] * threads for name, start in addresses.items()}
        for name, nbytes in self._result_bytes.items():
            moving[name] = [addresses[name] + first * nbytes for first in firsts]
        for name, lines in self._counters.items():
            counter, by = state[name], self._by[name]
            own = lines.view(counter.dtype)[:: LINE // counter.itemsize]
            own[...] = counter + np.multiply(firsts, by).astype(counter.dtype)
            counter[...] += by * steps
            start = address_of(lines)
            moving[name] = list(range(start, start + threads * LINE, LINE))
        for thread, layout in enumerate(self._layouts):
            addresses = {name: starts[thread] for name, starts in moving.items()}
            layout.bind(addresses, state, arena, thread * self._arena_bytes)
            layout.job(each)  # begins to count slices anew
        self._job[0] = each + (rest > 0)
        self._job[2:JOB_WORDS] = pool.barrier, pool.spins
        self._fewer[:rest], self._fewer[rest:] = 0, rest > 0
        pool.run(address_of(self._job), threads)
