"""Races that never took place, for tests of what is made of their results."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

from ganglion.race.results import Epoch, Race, Run, Skipped

# Seconds an epoch, import, prepare, megabytes at the peak, megabytes installed.
SPEEDS = {
    "ganglion": (0.62, 0.21, 0.34, 168, 190),
    "keras": (2.31, 3.1, 1.4, 905, 1480),
    "tensorflow": (1.52, 2.8, 2.2, 861, 1350),
    "torch": (5.93, 1.9, 0.2, 512, 890),
    "torch-optimized": (1.11, 1.9, 14.6, 688, 890),
    "jax": (0.98, 0.9, 1.9, 433, 420),
}
FORMS = {
    "ganglion": "fit",
    "keras": "graph",
    "tensorflow": "loop",
    "torch": "eager",
    "torch-optimized": "compiled",
    "jax": "scan",
}


def epoch(number: int, seconds: float, chance: random.Random) -> Epoch:
    error = 0.016 + 0.09 * math.exp(-number / 2.2) + chance.gauss(0, 0.0006)
    return Epoch(
        number=number,
        train_loss=error * 2.6,
        train_accuracy=1 - error * 0.8,
        test_loss=error * 3.1,
        test_accuracy=1 - error,
        train_seconds=seconds * chance.uniform(0.97, 1.04),
        test_seconds=seconds * 0.06 * chance.uniform(0.95, 1.1),
    )


def run(engine: str, number: int, epochs: int, **more: Any) -> Run:
    chance = random.Random(f"{engine} {number} {more.pop('salt', '')}")
    seconds, imports, prepares, memory, _ = SPEEDS[engine]
    seconds *= more.pop("slower", 1.0)
    done = tuple(epoch(number + 1, seconds, chance) for number in range(epochs))
    losses = random.Random(number)  # in lockstep: the same for every engine
    arguments: dict[str, Any] = {
        "status": "done",
        "form": FORMS[engine],
        "import_seconds": imports * chance.uniform(0.95, 1.1),
        "prepare_seconds": prepares * chance.uniform(0.95, 1.1),
        "train_seconds": sum(epoch_done.train_seconds for epoch_done in done),
        "test_seconds": sum(epoch_done.test_seconds for epoch_done in done),
        "epochs": done,
        "first_losses": tuple(
            (2.3026 * math.exp(-step / 30) + losses.uniform(-0.02, 0.02))
            * (1 + chance.uniform(-2e-6, 2e-6))
            for step in range(20)
        ),
        "parameters": 669_706,
        "peak_memory": int(memory * 1e6 * chance.uniform(0.99, 1.02)),
        "started": f"2026-11-15T06:{10 + number:02d}:00+00:00",
    }
    return Run(engine, number, number - 1, **arguments | more)


def race(runs: int = 4, epochs: int = 10, **more: Any) -> Race:
    slower, salt = more.pop("slower", 1.0), more.pop("salt", "")
    engines = tuple(SPEEDS)
    arguments: dict[str, Any] = {
        "recipe": "mnist-mlp",
        "title": "784 → 512 relu → 512 relu → 10 softmax",
        "epochs": epochs,
        "batch_size": 128,
        "runs": runs,
        "threads": 2,
        "device": "cpu",
        "seed": 0,
        "engines": engines,
        "machine": {
            "cpu": "AMD EPYC 9B14",
            "cores": 2,
            "memory": "8 GB",
            "os": "Linux 6.1, x86_64",
            "gpu": "",
        },
        "versions": {
            "ganglion": "0.1.0",
            "python": "3.12.3",
            "numpy": "2.3.1",
            "torch": "2.13.0",
            "tensorflow-cpu": "2.21.0",
            "keras": "3.15.0",
            "jax": "0.10.2",
        },
        "commit": "169ce72f00d1234567890abcdef1234567890abc",
        "command": f"ganglion race mnist-mlp --runs {runs} --epochs {epochs}",
        "install_sizes": {name: SPEEDS[name][4] * 10**6 for name in engines},
        "published": [
            {"system": "Keras CPU", "accuracy": 0.9844, "time": "4 s an epoch"},
            {"system": "TensorFlow GPU", "accuracy": 0.9834, "time": "42 s"},
        ],
        "skipped": (
            Skipped("keras-jax", "keras is not installed: pip install keras jax"),
        ),
        "finished": tuple(
            run(
                name,
                number + 1,
                epochs,
                slower=slower if name == "ganglion" else 1.0,
                salt=salt,
            )
            for number in range(runs)
            for name in engines
        ),
        "complete": True,
        "started": "2026-11-15T06:10:00+00:00",
    }
    return Race(**arguments | more)


def with_a_failure(race_done: Race, engine: str = "tensorflow", **more: Any) -> Race:
    """Return a race in which every run of an engine crashed."""
    broken = {
        "status": "failed",
        "reason": "killed by the time limit of 600 s",
        "log_end": "step 12\nstep 13\n",
        "epochs": (),
        "first_losses": (),
        "train_seconds": 0.0,
        "test_seconds": 0.0,
        "peak_memory": 0,
    } | more
    finished = tuple(
        replace(each, **broken) if each.engine == engine else each
        for each in race_done.finished
    )
    return replace(race_done, finished=finished)
