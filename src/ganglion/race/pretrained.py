"""A race on a pretrained start: most of it frozen, against PyTorch's fine-tuning.

Both start from the same ImageNet weights and see the same pixels and split, but they do
not train alike: this race is about what a user of a small folder gets, and when.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ganglion import files
from ganglion.race import machine
from ganglion.race.engines import engine as engine_named
from ganglion.race.engines.process import environment
from ganglion.race.pretrained_engines import ENGINES
from ganglion.race.results import Epoch, Race, Run, Skipped, save
from ganglion.race.run_engine import now

RECIPE = "pretrained"
EPOCHS, BATCH = 5, 32
LIMIT = 3600.0  # seconds a run may take
LOG_LINES = 12
_TORCH = ("torch", "efficientnet_lite_pytorch")
Say = Callable[[str], None]


def new_race(
    images: Any,
    *,
    engines: tuple[str, ...] = tuple(ENGINES),
    runs: int = 1,
    epochs: int = EPOCHS,
    batch_size: int = BATCH,
    threads: int = 1,
    seed: int = 0,
    limit: float = LIMIT,
    test: float | None = None,
    command: str = "",
) -> Race:
    """Return a race on an `ImageFolder` that has yet to be run.

    `seed` is that of the first run; the others count up from it. `test` is how many
    images were held out, as asked for.
    """
    for name in engines:
        if name not in ENGINES:
            known = " or ".join(ENGINES)
            raise ValueError(
                f"{name!r} cannot start from ImageNet here: choose {known}."
            )
    rows, columns = images.form.size
    return Race(
        recipe=RECIPE,
        title=f"{images.folder.name}: {len(images.classes)} classes, {rows}×{columns}, "
        f"{images.counts()}, from EfficientNet-Lite0 of ImageNet",
        epochs=epochs,
        batch_size=batch_size,
        runs=runs,
        threads=threads,
        device="cpu",
        seed=seed,
        engines=engines,
        machine=machine.about_machine(""),
        versions=machine.versions([engine_named(name) for name in engines]),
        commit=machine.commit(),
        command=command,
        skipped=tuple(filter(None, map(_skipped, engines))),
        started=now(),
        images={
            "folder": str(images.folder.expanduser().absolute()),
            "test": test,
            "form": images.form.as_data(),
            "fingerprint": images.fingerprint,
        },
        limit=limit,
    )


def run(images: Any, folder: Path, race: Race, say: Say = print) -> Race:
    """Run what a race still lacks; results are saved in the folder after each."""
    have = {(run.engine, run.number) for run in race.finished}
    missing = {skip.engine for skip in race.skipped}
    present = [name for name in race.engines if name not in missing]
    save(race, folder)
    with tempfile.TemporaryDirectory(prefix="ganglion-pretrained-") as data:
        _write_data(images, Path(data))
        for number in range(1, race.runs + 1):
            for name in present:
                if (name, number) in have:
                    continue
                say(f"{name}, run {number} of {race.runs} …")
                task = {"engine": name, "data": data, "classes": len(images.classes),
                        "epochs": race.epochs, "batch_size": race.batch_size,
                        "threads": race.threads,
                        "seed": race.seed + number - 1}  # fmt: skip
                run = _once(task, number, folder, race.limit or LIMIT)
                race = replace(race, finished=(*race.finished, run))
                save(race, folder)
                say(f"  {_outcome(run)}")
    race = replace(race, complete=True)
    save(race, folder)
    return race


def _skipped(name: str) -> Skipped | None:
    if name != "torch" or all(map(importlib.util.find_spec, _TORCH)):
        return None
    packages = " ".join(name.replace("_", "-") for name in _TORCH)
    return Skipped(name, f"not installed: pip install {packages}")


def _write_data(images: Any, folder: Path) -> None:
    parts = {"x": images.train.x, "y": images.train.y,
             "x_test": images.test.x, "y_test": images.test.y}  # fmt: skip
    for name, array in parts.items():
        np.save(folder / f"{name}.npy", np.asarray(array))


def _once(task: dict[str, Any], number: int, folder: Path, limit: float) -> Run:
    run = Run(task["engine"], number, task["seed"], "failed", started=now())
    module = "ganglion.race.pretrained_engines"
    # The same Ganglion, with an empty home: nothing is known of these images before.
    home_variable = {
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "GANGLION_HOME": f"{task['data']}/{number}",
    }
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", module],
            input=json.dumps(task),
            capture_output=True,
            text=True,
            timeout=limit,
            env=environment(task["threads"]) | home_variable,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return replace(run, reason=f"did not end within {limit:.0f} s")
    logs = folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    log = done.stderr.encode("utf-8", "replace")
    files.write_file(logs / f"{task['engine']}-{number}.log", log)
    try:
        answer = json.loads(done.stdout)
        epochs = tuple(Epoch(*epoch) for epoch in answer.pop("epochs"))
    except (ValueError, KeyError, TypeError, AttributeError):
        log_end = "\n".join(done.stderr.splitlines()[-LOG_LINES:])
        return replace(run, reason=f"exit code {done.returncode}", log_end=log_end)
    return replace(
        run,
        status="done",
        epochs=epochs,
        train_seconds=sum(epoch.train_seconds for epoch in epochs),
        test_seconds=sum(epoch.test_seconds for epoch in epochs),
        **answer,
    )


def _outcome(run: Run) -> str:
    if not run.done:
        return f"failed: {run.reason}"
    course = ", ".join(f"{epoch.test_accuracy:.4f}" for epoch in run.epochs)
    return f"{run.seconds:.1f} s, accuracy after each epoch {course}"
