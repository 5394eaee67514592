"""An engine in a separate process, which answers requests in lines of JSON.

Run as ``python -P worker.py MODULE FORM``. Requests and answers::

    {"do": "load", "modules": [...]}  -> {"seconds": ...}
    {"do": "prepare", "recipe": ..., "folder": ..., "batch_size": ..., "threads": ...}
        -> {"seconds": ..., "parameters": ...}, or {"unavailable": why}
        (a race has "start", too, and for a finer lockstep "dtype": "float64")
    {"do": "memory"}             -> {"bytes": ...}

    {"do": "run", "steps": 100}  -> {"seconds": ..., "loss": ...}       (bench)
    {"do": "predict", "rows": 1000, "sizes": [250, 1000], "times": 3}
        -> {"seconds": ..., "size": 250, "outputs": [...]}
    {"do": "peak", "threads": 2} -> {"NumPy": ..., "Ganglion": ...}

    {"do": "first", "steps": 20} -> {"losses": [...]}                   (race)
    {"do": "try_out", "steps": 8} -> {"seconds": ...}
    {"do": "epoch", "number": 1} -> {"train_loss": ..., "test_seconds": ..., ...}

The folder holds x.npy, y.npy and weights.npz; for a race, also x_test.npy, y_test.npy
and, in the folder `start`, weights.npz, orders.npy (an epoch a row) and, where images
are changed at random, augment.npy (the states of its generators). An error ends the
process, with its stack trace in the log; the end of the input ends it, too.

Only the standard library is imported before an engine is: the import time is measured,
that of Ganglion as well. (For the same reason this file is run by its path.)
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from ganglion.race.engines import Task, Trainer
    from ganglion.race.engines.augmented import Source
    from ganglion.recipes import Recipe


OUTPUTS = 20  # of a prediction, to compare engines by


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
    """End this process, whatever it is doing, when its parent has ended."""
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


class Handler:
    """The requests that a worker answers."""

    def __init__(self, module: str, form: str) -> None:
        self._module, self._form = module, form
        self._trainer: Trainer | None = None
        self._orders: np.ndarray | None = None
        self._batches = 1  # full batches in an epoch
        self._source: Source | None = None  # of images that are changed each epoch
        self._fed = 0  # the epoch whose images the engine has
        self._x: np.ndarray | None = None
        self._predicted: dict[int, tuple[int, Any]] = {}  # batches by how many rows

    def load(self, modules: list[str], memory: int | None = None) -> dict[str, float]:
        """Import an engine's packages, with a limit on memory (bytes) if it is set."""
        if memory is not None:
            import resource

            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        started = time.perf_counter()
        for name in modules:
            importlib.import_module(name)
        return {"seconds": time.perf_counter() - started}

    def prepare(
        self,
        recipe: str | dict[str, Any],
        folder: str,
        batch_size: int,
        threads: int,
        start: str | None = None,
        optimizer: dict[str, float] | None = None,
        augment: bool = False,
        dtype: str = "float32",
        **more: Any,
    ) -> dict[str, Any]:
        """Build the engine's model; for a race (`start` is given), warm it up, too.

        Without `start`, the images stay as they are, unless `augment` asks the engine
        to change them itself. `more` are other fields of the task.
        """
        from ganglion import recipes
        from ganglion.race.engines import Task, Unavailable

        limit_cores(threads)
        if isinstance(recipe, str):
            chosen = recipes.get(recipe)
        else:
            chosen = recipes.from_data(recipe)
        if start is None and not augment:
            chosen = recipes.plain(chosen)
        data, begin = Path(folder), Path(start or folder)
        names = ["x", "y"] if start is None else ["x", "y", "x_test", "y_test"]
        more |= {name: read(data / f"{name}.npy", dtype) for name in names}
        if start is not None:
            self._orders = read(begin / "orders.npy")
            if chosen.augment:
                self._set_source(chosen, data, begin, batch_size, dtype)
                more["states"] = read(begin / "augment.npy")
        task = Task(
            rounded(recipes.tuned(chosen, optimizer or {})),
            read_weights(begin, dtype),
            batch_size=batch_size,
            threads=threads,
            augments=augment,
            dtype=dtype,
            **more,
        )
        self._batches, self._x = max(1, task.batches), task.x
        self._predicted.clear()
        try:
            return self._build(task)
        except Unavailable as reason:
            return {"unavailable": str(reason)}

    def _build(self, task: Task) -> dict[str, Any]:
        started = time.perf_counter()
        engine = importlib.import_module(self._module)
        trainer: Trainer = engine.prepare(task, self._form)
        seconds = time.perf_counter() - started
        self._feed(1, trainer)
        started = time.perf_counter()
        if self._orders is not None and task.dtype == "float32":
            trainer.warm_up(self._orders[0])
        elif self._orders is not None:  # only first steps will be requested
            trainer.reset()
        seconds += time.perf_counter() - started
        self._trainer = trainer
        count = sum(weight.size for weight in trainer.weights())
        return {"seconds": seconds, "parameters": int(count)}

    def run(self, steps: int) -> dict[str, float]:
        """Train for some steps."""
        trainer = self._ready()
        seconds = trainer.run(steps)
        return {"seconds": seconds, "loss": trainer.loss()}

    def predict(self, rows: int, sizes: list[int], times: int = 1) -> dict[str, Any]:
        """Predict rows some times, in batches of the size that is fastest here.

        The weights are the first ones again. Some outputs are returned, to compare.
        """
        trainer = self._ready()
        if rows not in self._predicted:
            trainer.reset()
            self._predicted[rows] = self._fastest_batches(rows, sizes)
        size, batches = self._predicted[rows]
        started = time.perf_counter()
        for _ in range(times):
            outputs = trainer.predict(batches)
        seconds = time.perf_counter() - started
        some = outputs.reshape(-1)[:OUTPUTS].tolist()
        return {"seconds": seconds, "size": size, "outputs": some}

    def _fastest_batches(self, rows: int, sizes: list[int]) -> tuple[int, Any]:
        """Return the size of batches that takes the least time, and rows in them."""
        import numpy as np

        trainer, x = self._ready(), self._x
        assert x is not None, "prepare first"
        x = np.resize(x, (rows, *x.shape[1:]))
        tried: list[tuple[float, int, Any]] = []
        for size in sizes:
            batches = trainer.in_batches(x, size)
            trainer.predict(batches)  # compiles
            started = time.perf_counter()
            trainer.predict(batches)
            tried.append((time.perf_counter() - started, size, batches))
        return min(tried, key=lambda attempt: attempt[:2])[1:]

    def first(self, steps: int) -> dict[str, list[float]]:
        """Return the losses of the first steps, then restore the first state.

        There are fewer if an epoch has fewer steps: small folders of images.
        """
        trainer, orders = self._ready(), self._order(1)
        self._feed(1, trainer)
        steps = min(steps, self._batches)
        losses = list(map(float, trainer.steps(orders, steps)))
        trainer.reset()
        return {"losses": losses}

    def try_out(self, steps: int, batch_size: int) -> dict[str, float]:
        """Return the time of some steps of an epoch, then restore the first state."""
        trainer, order = self._ready(), self._order(1)[: steps * batch_size]
        self._feed(1, trainer)
        started = time.perf_counter()
        trainer.epoch(order)
        seconds = time.perf_counter() - started
        trainer.reset()
        done = -(-len(order) // batch_size)  # an epoch may have fewer
        return {"seconds": seconds * steps / done}

    def epoch(self, number: int) -> dict[str, float]:
        """Train for an epoch and test, each with its own clock."""
        trainer, order = self._ready(), self._order(number)
        self._feed(number, trainer)
        began = time.perf_counter()
        loss, accuracy = trainer.epoch(order)
        trained = time.perf_counter()
        test_loss, test_accuracy = trainer.test()
        tested = time.perf_counter()
        return {
            "train_loss": float(loss),
            "train_accuracy": float(accuracy),
            "test_loss": float(test_loss),
            "test_accuracy": float(test_accuracy),
            "train_seconds": trained - began,
            "test_seconds": tested - trained,
        }

    def _set_source(self, *source: Any) -> None:
        """Set the source of augmented images; Ganglion augments them itself."""
        from ganglion.race.engines.augmented import Source

        if self._module != "ganglion.race.engines.ganglion":
            self._source = Source(*source)

    def _feed(self, number: int, trainer: Trainer) -> None:
        """Pass the images of an epoch to the engine, if they change; not timed."""
        if self._source is None or self._fed == number:
            return
        trainer.feed(self._source.images(number))
        self._fed = number

    def _ready(self) -> Trainer:
        assert self._trainer is not None, "prepare first"
        return self._trainer

    def _order(self, number: int) -> np.ndarray:
        assert self._orders is not None, "prepare with `start` first"
        return self._orders[number - 1]

    def peak(self, threads: int) -> dict[str, float]:
        """Measure the operations a second of a large matrix product."""
        from ganglion.race.engines import peak

        limit_cores(threads)
        return peak.measure(threads)

    def memory(self) -> dict[str, int]:
        """Return the most memory this process has had."""
        return {"bytes": most_memory()}


def read(path: Path, dtype: str = "float32") -> np.ndarray:
    """Return an array from a file, floats as this dtype."""
    import numpy as np

    array = np.load(path)
    return array.astype(dtype, copy=False) if array.dtype.kind == "f" else array


def read_weights(folder: Path, dtype: str) -> list[np.ndarray]:
    """Return the weights to start from."""
    import numpy as np

    with np.load(folder / "weights.npz") as file:
        return [file[f"w{i}"].astype(dtype) for i in range(len(file.files))]


def rounded(recipe: Recipe) -> Recipe:
    """Round the optimizer's numbers to float32, as Keras has them in float64."""
    from dataclasses import replace

    import numpy as np

    kind, arguments = recipe.optimizer
    floats = {k: v for k, v in arguments.items() if isinstance(v, float)}
    rounded = {k: float(np.float32(v)) for k, v in floats.items()}
    return replace(recipe, optimizer=(kind, arguments | rounded))


def limit_cores(threads: int) -> None:
    """Restrict this process to as many cores as threads, which all engines respect."""
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
