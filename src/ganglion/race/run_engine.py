"""A run of an engine: its start, its worker process, and its epochs.

All engines start from the same weights and see the same batches. The order of the rows
is the one that Ganglion's own `fit` makes from its seed, inside of its compiled step;
the others are given it as an array, before the clock starts. The same holds for images
that are augmented at random (`engines/augmented.py`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from ganglion import random, recipes, utils
from ganglion.race.engines import Engine, Unavailable, augmented
from ganglion.race.engines.process import LIMIT, EngineError, Process
from ganglion.race.results import Epoch, Run
from ganglion.race.settings import Settings
from ganglion.race.watch import Watch
from ganglion.recipes import Recipe

FIRST_STEPS = 20
TOLERANCE = 1e-3  # of a loss, relative
ROUNDED = {"tf32": 2e-3, "bf16": 2e-2}  # the same, where operands have fewer bits
NOISY = 0.05  # the same, where every engine draws its own random numbers


@dataclass(frozen=True)
class Folders:
    """The folders of a race: the data for its workers, and its results."""

    data: Path
    results: Path

    def log(self, name: str) -> Path:
        """Return the file of a log; makes its folder."""
        folder = self.results / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{name.replace(' ', '-')}.log"


@dataclass(frozen=True)
class Start:
    """The start of a run: a folder with weights and orders, and the order's seed."""

    folder: Path
    order_seed: int


@dataclass(frozen=True)
class Job:
    """An engine at work, with everything that is needed to do it anywhere."""

    engine: Engine
    settings: Settings
    folders: Folders
    start: Start
    form: str = ""
    number: int = 1  # of the run
    limit: float = LIMIT  # seconds
    first_loss: float = math.nan  # what the first batch must give; NaN if not known


# ---- the same start for all ----------------------------------------------------------


def write_data(recipe: Recipe, folder: Path) -> tuple[int, str]:
    """Write the data for the workers; return the number of rows and a remark."""
    (x, y), (x_test, y_test), remark = recipes.load(recipe)
    for name, array in {"x": x, "y": y, "x_test": x_test, "y_test": y_test}.items():
        np.save(folder / f"{name}.npy", array)
    return len(x), " ".join(filter(None, (remark, recipe.remark)))


def write_start(
    recipe: Recipe, seed: int, epochs: int, rows: int, folder: Path
) -> Start:
    """Write first weights and orders, those of a model built with this seed."""
    utils.set_random_seed(seed)
    model = recipes.build(recipe)
    order_seed = int(model.training_state.order.array[0])
    folder.mkdir(parents=True, exist_ok=True)
    augmented.save_weights(model, folder)
    if recipe.augment:
        np.save(folder / augmented.STATES, augmented.states_of(model))
    np.save(folder / "orders.npy", orders(recipe, order_seed, epochs, rows))
    return Start(folder, order_seed)


def orders(recipe: Recipe, order_seed: int, epochs: int, rows: int) -> np.ndarray:
    """Return the rows in the order of each epoch, an epoch a row.

    >>> orders(recipes.get("mnist-mlp"), 1, 2, 3).tolist()  # is not shuffled
    [[0, 1, 2], [0, 1, 2]]
    >>> orders(recipes.get("mnist-cnn"), 1, 1, 5).tolist() == [
    ...     random.shuffled(1, 0, 5).tolist()
    ... ]
    True
    """
    if not recipe.shuffle:
        return np.tile(np.arange(rows, dtype="int32"), (epochs, 1))
    shuffled = [random.shuffled(order_seed, epoch, rows) for epoch in range(epochs)]
    return np.stack(shuffled).astype("int32")


# ---- a worker ------------------------------------------------------------------------


class Session:
    """Sends requests to a worker; all answers together have a limit of seconds."""

    def __init__(self, process: Process, job: Job) -> None:
        self.process, self._job = process, job
        self._end = time.monotonic() + job.limit

    def ask(self, do: str, key: str, **arguments: Any) -> Any:
        """Return a key of an answer, or all of it (""); a missing key is an error."""
        left = self._end - time.monotonic()
        try:
            answer = self.process.ask(do, max(left, 0.1), **arguments)
        except EngineError as error:
            if "no answer within" not in error.reason:
                raise
            raise EngineError(
                f"did not finish within {self._job.limit:.3g} s (while in {do!r})",
                error.log_end,
            ) from None
        if "unavailable" in answer:
            raise Unavailable(answer["unavailable"])
        if key and key not in answer:
            raise self.invalid(do, answer)
        return answer[key] if key else answer

    def invalid(self, do: str, answer: Any) -> EngineError:
        """Return the error for an answer that makes no sense."""
        return EngineError(
            f"answered {do!r} with {str(answer)[:200]}", self.process.log_end()
        )

    def load(self) -> float:
        """Import the engine; return the seconds."""
        engine, memory = self._job.engine, self._job.settings.memory
        modules = list(engine.imports or engine.packages)
        return float(self.ask("load", "seconds", modules=modules, memory=memory))

    def prepare(self, start: Start | None = None) -> dict[str, Any]:
        """Build, compile and warm up; return seconds and parameters."""
        settings, start = self._job.settings, start or self._job.start
        answer = self.ask(
            "prepare",
            "",
            recipe=asdict(settings.full_recipe) if settings.custom else settings.recipe,
            folder=str(self._job.folders.data),
            batch_size=settings.batch_size,
            threads=settings.threads,
            device=settings.device,
            precision=settings.precision,
            start=str(start.folder),
            order_seed=start.order_seed,
            optimizer=settings.optimizer,
            dtype=settings.dtype,
        )
        return dict(answer)

    def first_losses(self, steps: int = FIRST_STEPS) -> tuple[float, ...]:
        """Return the losses of the first steps."""
        losses = self.ask("first", "losses", steps=steps)
        try:
            return tuple(map(float, losses))
        except (TypeError, ValueError):
            raise self.invalid("first", losses) from None

    def epoch(self, number: int) -> Epoch:
        """Train for an epoch and test."""
        answer = self.ask("epoch", "", number=number)
        try:
            return Epoch(number, **{key: float(value) for key, value in answer.items()})
        except (TypeError, ValueError):
            raise self.invalid("epoch", answer) from None


@contextmanager
def open_session(job: Job, purpose: str) -> Iterator[Session]:
    """Start a worker and end it at the end, whatever happens.

    Ganglion keeps compiled programs on disk; here it is given an empty folder each
    time, so that its time to compile is measured.
    """
    log = f"{job.engine.name}-{purpose}{job.settings.label}"
    home_folder = job.folders.data / "homes" / log.replace(" ", "-")
    variables = job.engine.variables(job.form) | {"GANGLION_HOME": str(home_folder)}
    process = Process(
        job.engine.module,
        job.form,
        job.settings.threads,
        job.folders.log(log),
        variables,
        job.settings.device,
    )
    try:
        yield Session(process, job)
    finally:
        process.end()


def take_first_steps(job: Job, purpose: str, steps: int = FIRST_STEPS) -> Losses:
    """Return the losses of the first steps in a new worker, or why there are none."""
    try:
        with open_session(job, purpose) as session:
            session.load()
            session.prepare()
            return session.first_losses(steps), ""
    except (EngineError, Unavailable) as error:
        return (), getattr(error, "reason", str(error))


Losses = tuple[tuple[float, ...], str]


# ---- a run ---------------------------------------------------------------------------


class Refused(EngineError):  # noqa: N818 (it did not fail: it computes something else)
    """An engine that computes something else than the others."""


def new_run(engine: str, settings: Settings, number: int, **more: Any) -> Run:
    """Return the record of a run that begins now, or that cannot."""
    more = {"status": "done", "started": now(), "settings": settings.point} | more
    return Run(engine, number, settings.seed_of(number), **more)


def run_once(job: Job, watch: Watch) -> Run:
    """Run an engine once, in a separate process; a failure is a result, too."""
    settings, name = job.settings, job.engine.name
    run = new_run(name, settings, job.number, form=job.form)
    try:
        with open_session(job, f"run-{job.number}") as session:
            watch.says(name, f"run {job.number}: getting ready")
            run = replace(run, import_seconds=session.load())
            ready = session.prepare()
            seconds, parameters = float(ready["seconds"]), int(ready["parameters"])
            run = replace(run, prepare_seconds=seconds, parameters=parameters)
            run = replace(run, first_losses=session.first_losses())
            _check(job, run)
            for number in range(1, settings.epochs + 1):
                watch.training(name, job.number, number, settings.epochs)
                epoch = session.epoch(number)
                run = replace(
                    run,
                    epochs=(*run.epochs, epoch),
                    train_seconds=run.train_seconds + epoch.train_seconds,
                    test_seconds=run.test_seconds + epoch.test_seconds,
                )
                watch.tested(name, job.number, epoch)
            run = replace(run, peak_memory=int(session.ask("memory", "bytes")))
    except (EngineError, Unavailable) as error:
        reason = getattr(error, "reason", str(error))
        log_end = getattr(error, "log_end", "")
        run = replace(run, status="failed", reason=reason, log_end=log_end)
    watch.finished(run)
    return run


def _check(job: Job, run: Run) -> None:
    """Refuse an engine with another number of parameters or another first loss."""
    parameters, loss = job.settings.full_recipe.parameters, job.first_loss
    if run.parameters != parameters:
        raise Refused(refused_for_parameters(run.parameters, parameters))
    if math.isnan(loss):
        return
    if not agree(run.first_losses[0], loss, tolerance(job.settings)):
        raise Refused(refused_for_loss(run.first_losses[0], loss))


def tolerance(settings: Settings) -> float:
    """Return how far apart, relatively, the first losses of engines may be."""
    if settings.full_recipe.is_noisy:
        return NOISY
    return ROUNDED.get(settings.precision, TOLERANCE)


def agree(loss: float, other: float, within: float = TOLERANCE) -> bool:
    """Return whether two losses are equal up to rounding.

    >>> agree(2.3000, 2.3001), agree(2.3, 2.4), agree(2.30, 2.32, 2e-2)
    (True, False, True)
    """
    return math.isclose(loss, other, rel_tol=within)


def refused_for_parameters(count: int, expected: int) -> str:
    """Return why an engine with another number of parameters does not race."""
    return f"refused before timing: {count:,} parameters, not {expected:,}"


def refused_for_loss(loss: float, expected: float) -> str:
    """Return why an engine with another first loss does not race."""
    return (
        f"refused before timing: the loss of the first batch is {loss:.6g}, "
        f"not {expected:.6g}"
    )


def now() -> str:
    """Return the time in UTC, as ISO 8601 has it."""
    return datetime.now(UTC).isoformat(timespec="seconds")
