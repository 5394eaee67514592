"""Independent steps, such as those of `predict`, in parallel on several threads.

Each thread runs entire steps in its own arena, without barriers, so that even
steps that are too small to be shared keep all cores busy. Results have the same bits as
on a single thread.
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

LINE, PAGE = 64, 4096  # bytes, to which threads' memory is padded


def advanced(plan: Plan) -> Mapping[str, int] | None:
    """Return how far a step advances each state, None if it does more than count.

    The value of a counter before any step is known, without running the steps before.
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
    """Return the integer that an expression adds to a counter."""
    if not isinstance(expr, Apply) or expr.op != "add" or expr.dtype.kind not in "iu":
        return None
    loads = [arg for arg in expr.args if isinstance(arg, Load)]
    numbers = [arg for arg in expr.args if isinstance(arg, Literal)]
    if len(loads) != 1 or len(numbers) != 1 or loads[0].view.buffer is not counter:
        return None
    return int(numbers[0].value)


def threads_for(steps: int, nanoseconds: float, nbytes: int) -> int:
    """Return how many threads to run steps on, 1 if it does not pay.

    Args:
        steps: The number of steps.
        nanoseconds: The estimated time of a step on one thread.
        nbytes: The memory that a step touches besides its data: if it exceeds a core's
            cache, threads should share each step instead.
    """
    pays = int(steps * nanoseconds / tuning.CPU.worth_sharing_out)
    count = min(config.threads(), steps, pays)
    if count < 2 or nbytes > tuning.CPU.own_cache or cpu_threads.crowded(count):
        return 1
    return count


class Team:
    """Single-threaded layouts that run steps in parallel.

    Every thread has its own rows of the results, arena and counters.

    Args:
        plan: The plan of a step.
        layouts: A layout for each thread, with the counters as moving states.
        counters: How far a step advances each counter.
    """

    def __init__(
        self, plan: CpuPlan, layouts: Sequence[Layout], counters: Mapping[str, int]
    ) -> None:
        self._layouts, self._advances = layouts, counters
        self._result_bytes = {name: b.nbytes for name, b in plan.results.items()}
        self._arena_bytes = -(-plan.arena // PAGE) * PAGE
        # A counter for each thread, in its own cache line.
        self._counters = {name: aligned(len(layouts) * LINE) for name in counters}
        self._job = new_job([layout.parts[0] for layout in layouts])
        self._skipped = self._job[JOB_WORDS:].reshape(-1, THREAD_WORDS)[:, -1]

    @property
    def arena_bytes(self) -> int:
        """The bytes of the arenas of all threads."""
        return self._arena_bytes * len(self._layouts)

    def run(
        self,
        pool: cpu_threads.Pool,
        addresses: Mapping[str, int],
        state: Mapping[str, np.ndarray],
        steps: int,
        arena: np.ndarray,
    ) -> None:
        """Run steps, divided equally among threads, and advance the counters."""
        threads = len(self._layouts)
        each, extra = divmod(steps, threads)  # the first threads run one more
        starts = [thread * each + min(thread, extra) for thread in range(threads)]
        moving = {name: [address] * threads for name, address in addresses.items()}
        for name, nbytes in self._result_bytes.items():
            moving[name] = [addresses[name] + start * nbytes for start in starts]
        for name, lines in self._counters.items():
            counter, by = state[name], self._advances[name]
            copies = lines.view(counter.dtype)[:: LINE // counter.itemsize]
            copies[...] = counter + np.multiply(starts, by).astype(counter.dtype)
            counter[...] += by * steps
            first = address_of(lines)
            moving[name] = list(range(first, first + threads * LINE, LINE))
        for thread, layout in enumerate(self._layouts):
            of_thread = {name: values[thread] for name, values in moving.items()}
            layout.bind(of_thread, state, arena, thread * self._arena_bytes)
            layout.job(each)  # resets the layout's slices
        self._job[0] = each + (extra > 0)
        self._job[2:JOB_WORDS] = pool.barrier, pool.spins
        self._skipped[:extra], self._skipped[extra:] = 0, extra > 0
        pool.run(address_of(self._job), threads)
