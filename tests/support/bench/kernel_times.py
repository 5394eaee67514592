"""Times each kernel of a recipe's training step on some threads.

    python tests/support/bench/kernel_times.py mnist-mlp --threads 1,16
    python tests/support/bench/kernel_times.py wide --threads 2 --least 1

The step is run up to the end of each kernel (of each segment, whose kernels run slice
by slice): a row is the microseconds that it takes longer than the step up to the one
before, as the median over rounds that take turns. "share" is the part of the kernel
that its busiest thread runs, by the plan.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[3] / "src"))

from ganglion import recipes
from ganglion.compiler.cpu import backend, jit, threads
from ganglion.compiler.cpu.plan import CpuPlan, Execution
from ganglion.training.data_adapters import Table

SECONDS = 0.02  # of a turn of the whole step
MOST_STEPS = 1000


def compiled(name: str) -> tuple[backend.CompiledProgram, dict[str, np.ndarray]]:
    """Return a recipe's training step on noise, and the arrays that it runs on."""
    recipe = recipes.plain(recipes.get(name))
    table = Table(*recipes.noise(recipe, recipe.batch_size))
    signature = table.signature(recipe.batch_size, recipe.batch_size, False)
    step = recipes.build(recipe)._step_cache.traced("train", table, signature)
    arrays = {key: value.array.copy() for key, value in step.variables.items()}
    return backend.compile(step.program), table.arrays() | arrays


def up_to(plan: CpuPlan, end: int) -> CpuPlan:
    """Return the first kernels of a plan, with a barrier behind them."""
    *before, last = plan.execution[:end]
    return replace(
        plan,
        kernels=plan.kernels[:end],
        segments=tuple(s for s in plan.segments if s.last <= end),
        execution=(*before, Execution(last.one_thread, barrier=True)),
    )


class Prefixes:
    """A program's kernels up to each run, laid out for some threads."""

    def __init__(
        self,
        program: backend.CompiledProgram,
        arrays: dict[str, np.ndarray],
        count: int,
    ) -> None:
        plan = program.plan
        self.count, self.runs = count, list(plan.runs())
        self.shares = [
            backend.largest_share(call, count) if not how.one_thread else 1.0
            for call, how in zip(program._calls, plan.execution, strict=True)
        ]
        results = {
            name: np.empty((MOST_STEPS, *buffer.shape), buffer.dtype)
            for name, buffer in plan.results.items()
        }
        self.arena = backend.ARENAS.reserve(plan.arena)
        self.arrays = arrays | results
        self.addresses = {
            name: backend.address_of(a) for name, a in self.arrays.items()
        }
        self.layouts = [
            backend.Layout(
                up_to(plan, run.stop),
                program._calls[: run.stop],
                lambda name: program._functions[name].address,
                count,
                program._callbacks,
                program._names,
            )
            for run in self.runs
        ]
        self._run(self.layouts[-1], 3)
        seconds = self._run(self.layouts[-1], 10) / 10
        self.steps = max(3, min(MOST_STEPS, int(SECONDS / seconds)))

    def _run(self, layout: backend.Layout, steps: int) -> float:
        # Results are written from the start again.
        layout.bind(self.addresses, self.arrays, self.arena)
        start = time.perf_counter()
        if self.count == 1:
            jit.native().alone(layout.job(steps))
        else:
            with threads.shared(self.count) as pool:
                assert pool is not None
                pool.run(layout.job(steps, pool.barrier, pool.spins), self.count)
        return time.perf_counter() - start

    def round(self) -> list[float]:
        """Return the microseconds of a step up to each run."""
        return [
            self._run(layout, self.steps) / self.steps * 1e6 for layout in self.layouts
        ]

    def medians(self, rounds: int) -> list[float]:
        """Return the microseconds of each run."""
        times = np.array([self.round() for _ in range(rounds)])
        return list(np.diff(np.median(times, axis=0), prepend=0.0))


def main() -> None:
    """Print a table a recipe."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="+")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--least", type=float, default=0.0, help="microseconds shown")
    args = parser.parse_args()
    counts = [int(count) for count in args.threads.split(",")]
    os.environ["GANGLION_THREADS"] = str(max(counts))
    for name in args.names:
        program, arrays = compiled(name)
        columns = [Prefixes(program, arrays, count) for count in counts]
        times = [column.medians(args.rounds) for column in columns]
        totals = "  ".join(f"{sum(column):8.1f}" for column in times)
        print(f"{name}, threads {args.threads}: {totals} microseconds")
        for number, run in enumerate(columns[0].runs):
            own = [column[number] for column in times]
            if max(own) < args.least:
                continue
            share = columns[-1].shares[run.start]
            wait = "|" if program.plan.execution[run.stop - 1].barrier else " "
            cells = "  ".join(f"{each:8.1f}" for each in own)
            for kernel in program.plan.kernels[run.start : run.stop]:
                print(f"{cells}  {share:.3f} {wait} {kernel.describe()[:110]}")
                cells, wait = " " * len(cells), " "


if __name__ == "__main__":
    main()
