"""Times a training step on 1, 2, 4 ... threads: strong scaling, and equal bits.

    python tests/support/bench/strong_scaling.py --threads 1,2,4,8,16
    python tests/support/bench/strong_scaling.py wide mnist-cnn --write docs/scaling.md

Every number of threads has a process of its own; they take turns, on noise, through
`fit`. A row has the median milliseconds of a step over the rounds. After the first
epoch from equal weights the weights must be the same to the bit for all of them.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3] / "src"))

PROBES = ("mnist-perceptron", "mnist-mlp", "mnist-cnn", "cifar10-cam")
SECONDS = 0.3  # of a turn
FEW_STEPS, MOST_STEPS = 8, 64  # of an epoch
NOISE = 1.03  # a step up by less is none


def serve() -> None:
    """Train the network that each line names; print milliseconds and a digest."""
    from ganglion.compiler.cpu.threads import close_pool

    trainings: dict[str, Training] = {}
    for line in sys.stdin:
        name = line.strip()
        answer: str | float
        if name in trainings:
            answer = trainings[name].milliseconds()
        else:
            trainings[name] = Training(name)
            answer = trainings[name].digest()
        close_pool()  # or the next process could not have these cores for itself
        print(json.dumps(answer), flush=True)


class Training:
    """A network to be trained on noise, again and again."""

    def __init__(self, name: str) -> None:
        from ganglion import recipes, utils

        recipe = recipes.plain(recipes.get(name))
        utils.set_random_seed(0)
        self._model, self._batch = recipes.build(recipe), recipe.batch_size
        self._x, self._y = recipes.noise(recipe, MOST_STEPS * recipe.batch_size)

    def _train(self, steps: int) -> float:
        """Train for an epoch of so many steps; return its seconds."""
        start, rows = time.perf_counter(), steps * self._batch
        data = self._x[:rows], self._y[:rows]
        self._model.fit(*data, batch_size=self._batch, shuffle=False, verbose=0)
        return time.perf_counter() - start

    def digest(self) -> str:
        """Return what the weights are after a short epoch."""
        import numpy as np

        self._train(FEW_STEPS)
        weights = map(np.ascontiguousarray, self._model.get_weights())
        return hashlib.sha256(b"".join(w.tobytes() for w in weights)).hexdigest()

    def milliseconds(self) -> float:
        """Return those of a step, in epochs as long as a turn allows."""
        short = self._train(FEW_STEPS)
        most = int(SECONDS / short * FEW_STEPS)
        steps = max(FEW_STEPS, min(most, MOST_STEPS))
        times = [self._train(steps)]
        while sum(times) < SECONDS:
            times.append(self._train(steps))
        return statistics.fmean(times) / steps * 1e3


def started(threads: int) -> subprocess.Popen[str]:
    """Start a process that computes with so many threads."""
    return subprocess.Popen(
        [sys.executable, __file__, "--serve"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"GANGLION_THREADS": str(threads), "GANGLION_BACKEND": "cpu"},
    )


def asked(worker: subprocess.Popen[str], name: str) -> Any:
    """Let a process train a network once more; return what it says."""
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(f"{name}\n")
    worker.stdin.flush()
    return json.loads(worker.stdout.readline())


def row(workers: dict[int, Any], name: str, rounds: int) -> str:
    """Measure a network; return its line of the table."""
    digests = {asked(worker, name) for worker in workers.values()}
    for worker in workers.values():
        asked(worker, name)  # warms up
    times: dict[int, list[float]] = {count: [] for count in workers}
    for _ in range(rounds):
        for count, worker in workers.items():
            times[count].append(asked(worker, name))
    medians = [statistics.median(taken) for taken in times.values()]
    steps_up = [after / before for before, after in itertools.pairwise(medians)]
    worst = max(steps_up, default=1.0)
    cells = [f"{median:.3g}" for median in medians]
    cells += [f"{medians[0] / min(medians):.1f}×", f"{worst:.2f}"]
    cells[-1] += " up" if worst > NOISE else ""
    cells.append("yes" if len(digests) == 1 else "NO")
    return f"| {name} | " + " | ".join(cells) + " |"


def main() -> None:
    """Print the table, and keep it if asked."""
    from ganglion import recipes

    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--threads", default="1,2,4,8,16")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--serve", action="store_true")
    chosen = parser.parse_args()
    if chosen.serve:
        return serve()
    names = chosen.names or [*PROBES, *(network.name for network in recipes.NETWORKS)]
    counts = [int(text) for text in chosen.threads.split(",")]
    workers = {count: started(count) for count in counts}
    heads = ["network", *map(str, counts), "best speed-up", "worst step", "equal bits"]
    lines = [
        "| " + " | ".join(heads) + " |",
        "| " + " | ".join("---" for _ in heads) + " |",
    ]
    print(*lines, sep="\n", flush=True)
    for name in names:
        lines.append(row(workers, name, chosen.rounds))
        print(lines[-1], flush=True)
        if chosen.write:
            chosen.write.write_text("\n".join(lines) + "\n")
    for worker in workers.values():
        assert worker.stdin is not None
        worker.stdin.close()


if __name__ == "__main__":
    main()
