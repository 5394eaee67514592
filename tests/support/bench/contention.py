"""The slowdown of a training step beside other busy processes, and of PyTorch's.

    python tests/support/bench/contention.py                      # two others
    python tests/support/bench/contention.py --others 2 8 --recipes mnist-cnn

Engines take turns, each alone and beside so many processes that only count, in rounds
of about a second. A row has the median milliseconds of a step, alone and beside them,
and their ratio; those of both engines are to be compared, which met the same machine.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ganglion import recipes
from ganglion.race.bench.steps import write_data
from ganglion.race.engines import engine, process

RECIPES = ("mnist-perceptron", "mnist-mlp", "mnist-cnn", "cifar10-cam")
ENGINES = {"ganglion": "", "torch": ""}  # and their forms, the first of each if empty
ROUND_SECONDS, MOST_STEPS = 1.0, 20_000


@contextlib.contextmanager
def busy(count: int) -> Iterator[None]:
    """Have so many processes count for as long as the block runs."""
    others = [
        subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
        for _ in range(count)
    ]
    try:
        time.sleep(0.5 if others else 0.2)  # until they are all at it
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


class Worker:
    """An engine in a process of its own, and how long its steps took."""

    def __init__(self, name: str, task: dict[str, object], threads: int) -> None:
        self.name, chosen = name, engine(name)
        form = ENGINES[name] or chosen.forms_on("cpu")[0]
        folder = Path(str(task["folder"]))
        self.process = process.start(chosen, form, threads, folder)
        self.process.ask("prepare", **task)
        self._steps = 3
        for _ in range(2):
            seconds = self.process.ask("run", steps=self._steps)["seconds"]
            enough = int(self._steps * ROUND_SECONDS / seconds)
            self._steps = max(3, min(MOST_STEPS, enough))
        self.milliseconds: dict[int, list[float]] = {}

    def run(self, others: int) -> None:
        """Take the steps of a round, beside so many others."""
        seconds = self.process.ask("run", steps=self._steps)["seconds"]
        times = self.milliseconds.setdefault(others, [])
        times.append(1000 * seconds / self._steps)


def measure(name: str, loads: list[int], threads: int, rounds: int) -> None:
    """Print a row for each load and engine."""
    recipe = recipes.get(name)
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        write_data(recipe, recipe.batch_size, Path(folder))
        task = {"recipe": name, "folder": folder, "batch_size": recipe.batch_size}
        task |= {"threads": threads, "device": "cpu", "precision": "float32"}
        workers = []
        for label in ENGINES:
            workers.append(Worker(label, task, threads))
            stack.callback(workers[-1].process.end)
        for _ in range(rounds):
            for others in (0, *loads):
                with busy(others):
                    for worker in workers:
                        worker.run(others)
            workers.reverse()
        for others in loads:
            for worker in sorted(workers, key=lambda worker: worker.name):
                _print(name, others, worker)


def _print(name: str, others: int, worker: Worker) -> None:
    alone, beside = (statistics.median(worker.milliseconds[n]) for n in (0, others))
    figures = f"{alone:9.3f} ms alone {beside:9.3f} beside  {beside / alone:6.2f} times"
    print(f"{name:18} {others:3} others  {worker.name:10}{figures}", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--others", type=int, nargs="+", default=[2])
    parser.add_argument("--recipes", nargs="+", default=RECIPES)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    for name in chosen.recipes:
        measure(name, chosen.others, chosen.threads, chosen.rounds)


if __name__ == "__main__":
    main()
