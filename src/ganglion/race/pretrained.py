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
from dataclasses import dataclass, replace
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


@dataclass(frozen=True)
class Choices:
    """What a race on a pretrained start is asked for."""

    engines: tuple[str, ...] = tuple(ENGINES)
    runs: int = 1
    epochs: int = EPOCHS
    batch_size: int = BATCH
    threads: int = 1
    seed: int = 0  # of the first run; the others count up from it
    limit: float = LIMIT
    test: float | None = None  # how many images were held out, as asked for
    command: str = ""  # that repeats it

    def __post_init__(self) -> None:
        for name in self.engines:
            if name not in ENGINES:
                raise ValueError(
                    f"{name!r} cannot start from ImageNet here: choose "
                    f"{' or '.join(ENGINES)}."
                )

    @classmethod
    def of(cls, race: Race, limit: float | None = None) -> Choices:
        """Return what a race that goes on was asked for."""
        return cls(
            race.engines,
            race.runs,
            race.epochs,
            race.batch_size,
            race.threads,
            race.seed,
            limit or race.limit or LIMIT,
            race.images.get("test"),
            race.command,
        )


def run(
    held: Any,
    folder: Path,
    chosen: Choices,
    say: Say = print,
    before: Race | None = None,
) -> Race:
    """Race on an `ImageFolder`; results are kept in the folder after every run.

    One that goes on does what is missing `before`.
    """
    race = before or _new(held, chosen)
    have = {(one.engine, one.number) for one in race.finished}
    missing = {one.engine for one in race.skipped}
    present = [name for name in chosen.engines if name not in missing]
    save(race, folder)
    with tempfile.TemporaryDirectory(prefix="ganglion-pretrained-") as data:
        _lay_out(held, Path(data))
        for number in range(1, chosen.runs + 1):
            for name in present:
                if (name, number) in have:
                    continue
                say(f"{name}, run {number} of {chosen.runs} …")
                task = {"engine": name, "data": data, "classes": len(held.classes),
                        "epochs": chosen.epochs, "batch_size": chosen.batch_size,
                        "threads": chosen.threads,
                        "seed": chosen.seed + number - 1}  # fmt: skip
                made = _once(task, number, folder, chosen.limit)
                race = replace(race, finished=(*race.finished, made))
                save(race, folder)
                say(f"  {_told(made)}")
    race = replace(race, complete=True)
    save(race, folder)
    return race


def _new(held: Any, chosen: Choices) -> Race:
    rows, columns = held.form.size
    return Race(
        recipe=RECIPE,
        title=f"{held.folder.name}: {len(held.classes)} classes, {rows}×{columns}, "
        f"{held.counts()}, from EfficientNet-Lite0 of ImageNet",
        epochs=chosen.epochs,
        batch_size=chosen.batch_size,
        runs=chosen.runs,
        threads=chosen.threads,
        device="cpu",
        seed=chosen.seed,
        engines=chosen.engines,
        machine=machine.about_machine(""),
        versions=machine.versions([engine_named(name) for name in chosen.engines]),
        commit=machine.commit(),
        command=chosen.command,
        skipped=tuple(filter(None, map(_skipped, chosen.engines))),
        started=now(),
        images={
            "folder": str(held.folder.expanduser().absolute()),
            "test": chosen.test,
            "form": held.form.as_data(),
            "fingerprint": held.fingerprint,
        },
        limit=chosen.limit,
    )


def _skipped(name: str) -> Skipped | None:
    if name != "torch" or all(map(importlib.util.find_spec, _TORCH)):
        return None
    packages = " ".join(one.replace("_", "-") for one in _TORCH)
    return Skipped(name, f"not installed: pip install {packages}")


def _lay_out(held: Any, place: Path) -> None:
    parts = {"x": held.train.x, "y": held.train.y,
             "x_test": held.test.x, "y_test": held.test.y}  # fmt: skip
    for name, array in parts.items():
        np.save(place / f"{name}.npy", np.asarray(array))


def _once(task: dict[str, Any], number: int, folder: Path, limit: float) -> Run:
    started = now()
    begun = Run(task["engine"], number, task["seed"], "failed", started=started)
    module = "ganglion.race.pretrained_engines"
    # A home of its own, still empty: nothing is known of these images before.
    home = {"PYTHONPATH": _source(), "GANGLION_HOME": f"{task['data']}/{number}"}
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", module],
            input=json.dumps(task),
            capture_output=True,
            text=True,
            timeout=limit,
            env=environment(task["threads"]) | home,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return replace(begun, reason=f"did not end within {limit:.0f} s")
    _keep_log(folder, f"{task['engine']}-{number}.log", done.stderr)
    end = "\n".join(done.stderr.splitlines()[-LOG_LINES:])
    try:
        told = json.loads(done.stdout)
        epochs = tuple(Epoch(*one) for one in told.pop("epochs"))
    except (ValueError, KeyError, TypeError, AttributeError):
        return replace(begun, reason=f"exit code {done.returncode}", log_end=end)
    return replace(
        begun,
        status="done",
        epochs=epochs,
        train_seconds=sum(one.train_seconds for one in epochs),
        test_seconds=sum(one.test_seconds for one in epochs),
        **told,
    )


def _source() -> str:
    """Return where Ganglion lies, so that a worker finds the same one."""
    return str(Path(__file__).parents[2])


def _keep_log(folder: Path, name: str, text: str) -> None:
    place = folder / "logs"
    place.mkdir(parents=True, exist_ok=True)
    files.write_file(place / name, text.encode("utf-8", "replace"))


def _told(made: Run) -> str:
    if not made.done:
        return f"failed: {made.reason}"
    course = ", ".join(f"{one.test_accuracy:.4f}" for one in made.epochs)
    return f"{made.seconds:.1f} s, accuracy after each epoch {course}"
