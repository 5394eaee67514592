"""One engine in a process of its own; it speaks JSON lines over its pipes.

Run as ``python -m ganglion.rivals.worker MODULE FORM``. Requests and answers::

    {"do": "prepare", "recipe": ..., "folder": ..., "batch_size": ..., "threads": ...}
        -> {"seconds": ..., "parameters": ...}
    {"do": "run", "steps": 100}  -> {"seconds": ..., "loss": ...}
    {"do": "peak", "threads": 2} -> {"NumPy": ..., "Ganglion": ...}
    {"do": "memory"}             -> {"bytes": ...}

The folder holds x.npy, y.npy and weights.npz. An error ends the process, with its
stack trace in the log; the end of the input ends it, too.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from ganglion import recipes
from ganglion.rivals import Task, Trainer, peak


def main() -> None:
    """Answer requests until there are none."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the frameworks print goes to the log, not between answers
    threading.Thread(target=end_with_parent, daemon=True).start()
    module, form = sys.argv[1:]
    handler = Handler(module, form)
    for line in sys.stdin:
        request = json.loads(line)
        answer = getattr(handler, request.pop("do"))(**request)
        print(json.dumps(answer), file=answers, flush=True)


def end_with_parent() -> None:
    """End this process, in whatever it is, when the one that asks is gone."""
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


class Handler:
    """What a worker can be asked for."""

    def __init__(self, module: str, form: str) -> None:
        self._module, self._form = module, form
        self._trainer: Trainer | None = None

    def prepare(
        self, recipe: str, folder: str, batch_size: int, threads: int
    ) -> dict[str, Any]:
        """Import the engine and build its model."""
        limit_cores(threads)
        started = time.perf_counter()
        given = Path(folder)
        with np.load(given / "weights.npz") as kept:
            weights = [kept[f"w{i}"] for i in range(len(kept.files))]
        x, y = (np.load(given / f"{name}.npy") for name in "xy")
        task = Task(recipes.get(recipe), weights, x, y, batch_size, threads)
        engine = importlib.import_module(self._module)
        self._trainer = engine.prepare(task, self._form)
        seconds = time.perf_counter() - started
        count = sum(one.size for one in self._trainer.weights())
        return {"seconds": seconds, "parameters": count}

    def run(self, steps: int) -> dict[str, float]:
        """Train for some steps."""
        assert self._trainer is not None, "prepare first"
        seconds = self._trainer.run(steps)
        return {"seconds": seconds, "loss": self._trainer.loss()}

    def peak(self, threads: int) -> dict[str, float]:
        """Measure what the machine can do."""
        limit_cores(threads)
        return peak.measure(threads)

    def memory(self) -> dict[str, int]:
        """Return the most memory this process has had."""
        return {"bytes": most_memory()}


def limit_cores(threads: int) -> None:
    """Keep to as many cores as there are to be threads: all engines obey this."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def most_memory() -> int:
    """Return the most memory that this process has had, in bytes.

    Linux' `ru_maxrss` begins with that of the process that started this one, so the
    high-water mark of this program itself is preferred.
    """
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


if __name__ == "__main__":
    main()
