"""Before any clock counts: do all engines compute the same, and in which form best?

Every engine is built in each of its forms, takes the first steps, and is tried out for
a moment. Parameter counts and the loss of the first batch must agree; which form is
fastest is kept for the race.

Where the first steps diverge in float32, they are taken once more in float64. A maximum
between two almost equal pixels, or a ReLU almost at zero, is decided by the last bit of
a sum, and every engine adds up in its own order. At a large learning rate such a bit is
1e-3 of the loss a few steps later, between any two engines. In float64 that bit is 29
places further down: engines that compute the same stay together, and one with another
gradient or update does not.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from ganglion import files
from ganglion.race import figures, run_engine
from ganglion.race.engines import Unavailable
from ganglion.race.engines.process import EngineError
from ganglion.race.results import ExactSteps
from ganglion.race.run_engine import (
    TOLERANCE,
    Job,
    Session,
    agree,
    refused_for_loss,
    refused_for_parameters,
)
from ganglion.race.settings import Settings

PATIENCE = 60.0  # seconds for a form to get ready when another is ready
TRIALS = 3
TRIAL_SECONDS = 1.0
FEWEST_STEPS = 4
FILE = "lockstep.json"
EXACT = "float64"
OWN_LOCKSTEP = ("batch-size", "threads", "precision")  # keys of a sweep that have one

Say = Callable[[str, str], None]
T = TypeVar("T")


@dataclass
class Examined:
    """Facts about an engine that are established before the race."""

    engine: str
    form: str = ""
    parameters: int = 0
    losses: tuple[float, ...] = ()
    seed: int = 0  # of the start that gave these losses
    exact: tuple[float, ...] = ()  # losses in float64, where they were taken
    inexact: str = ""  # why they were not
    start_seconds: float = 0.0  # import and preparation
    step_seconds: float = 0.0
    problem: str = ""  # why it does not race
    log_end: str = ""
    unavailable: str = ""  # why it cannot be here at all
    tried: dict[str, str] = field(default_factory=dict)  # what became of each form

    def __post_init__(self) -> None:
        self.losses, self.exact = tuple(self.losses), tuple(self.exact)  # JSON has none

    @property
    def races(self) -> bool:
        """Whether the engine takes part."""
        return not self.problem and not self.unavailable

    def seconds(self, steps: int) -> float:
        """Return about how long a run of some steps will take."""
        return self.start_seconds + steps * self.step_seconds


def examine(job: Job, say: Say) -> Examined:
    """Try an engine's forms; return the facts about the fastest."""
    engine, limit = job.engine, job.limit
    best, tried = Examined(engine.name), {}
    for form in engine.forms_on(job.settings.device):
        say(engine.name, f"lockstep: {form}")
        result = _try(replace(job, form=form, limit=limit))
        if result.unavailable:
            return result
        if result.problem:
            tried[form] = result.problem.splitlines()[0]
            best = best if best.form else result
            continue
        tried[form] = f"{1000 * result.step_seconds:.3g} ms a step"
        limit = min(limit, max(PATIENCE, 2 * result.start_seconds))
        if not best.form or best.problem or result.step_seconds < best.step_seconds:
            best = result
    best.tried = tried
    return best


def _try(job: Job) -> Examined:
    result = Examined(job.engine.name, job.form, seed=job.settings.seed_of(1))
    try:
        with run_engine.open_session(job, f"lockstep-{job.form}") as session:
            result.start_seconds = session.load()
            ready = session.prepare()
            result.start_seconds += ready["seconds"]
            result.parameters = int(ready["parameters"])
            result.losses = session.first_losses()
            result.step_seconds = _step_seconds(session, job.settings.batch_size)
    except EngineError as error:
        result.problem, result.log_end = error.reason, error.log_end
    except Unavailable as reason:
        result.unavailable = str(reason)
    return result


def _step_seconds(session: Session, batch_size: int) -> float:
    """Return the seconds of a step, the best of a few trials."""

    def trial(steps: int) -> float:
        seconds = session.ask("try_out", "seconds", steps=steps, batch_size=batch_size)
        return max(float(seconds), 1e-9) / steps

    steps, step = FEWEST_STEPS, trial(FEWEST_STEPS)
    while steps < 400 and 2 * steps * step < TRIAL_SECONDS:
        steps = min(400, max(2 * steps, int(TRIAL_SECONDS / step)))
        step = trial(steps)
    return min(trial(steps) for _ in range(TRIALS))


def judge(
    examined: Sequence[Examined], parameters: int, within: float = TOLERANCE
) -> float:
    """Refuse engines that compute something else; return the first batch's loss."""
    alike = partial(agree, within=within)
    racing = [entry for entry in examined if entry.races]
    for entry in racing:
        if entry.parameters != parameters:
            entry.problem = refused_for_parameters(entry.parameters, parameters)
        elif not entry.losses:
            entry.problem = "refused: it took no first step"
    firsts = {entry.engine: entry.losses[0] for entry in racing if entry.races}
    right = most_shared(firsts, alike) if firsts else math.nan
    for entry in racing:
        if entry.races and not alike(entry.losses[0], right):
            entry.problem = refused_for_loss(entry.losses[0], right)
    return right


def most_shared(values: dict[str, T], alike: Callable[[T, T], bool]) -> T:
    """Return the value of most engines; in a tie, Ganglion's.

    >>> most_shared({"ganglion": 1.0, "jax": 2.0, "torch": 2.0001}, agree)
    2.0
    """

    def friends(name: str) -> tuple[int, bool]:
        count = sum(alike(values[name], other) for other in values.values())
        return count, name == figures.OURS

    return values[max(values, key=friends)]


# ---- in float64 ----------------------------------------------------------------------


def due_exactly(examined: Iterable[Examined]) -> list[Examined]:
    """Return the engines that have yet to take float64 steps: none if all agree.

    >>> near, far = Examined("a", losses=(2.0, 1.0)), Examined("b", losses=(2.0, 1.1))
    >>> due_exactly([near, near]), [one.engine for one in due_exactly([near, far])]
    ([], ['a', 'b'])
    """
    racing = [entry for entry in examined if entry.races]
    if _together(*(entry.losses for entry in racing)):
        return []
    return [entry for entry in racing if not entry.exact and not entry.inexact]


def take_exact_steps(job: Job, say: Say) -> run_engine.Losses:
    """Return the losses of the first steps in float64, or why there are none."""
    say(job.engine.name, f"lockstep: {EXACT}")
    settings = replace(job.settings, dtype=EXACT, precision="float32")
    job = replace(job, settings=settings)
    return run_engine.take_first_steps(job, f"lockstep-{EXACT}")


def judge_exactly(
    examined: Collection[Examined], settings: Settings
) -> ExactSteps | None:
    """Refuse engines that differ from most in float64; return the steps, if any.

    The steps in float64 show that all train the same. That the code that will race does
    so is shown by the loss after one update, which rounding does not move yet.

    An engine that could not take these steps races: nothing is known against it, and
    the results say so.
    """
    ready = [entry for entry in examined if entry.exact]
    missing = {entry.engine: entry.inexact for entry in examined if entry.inexact}
    if not ready and not missing:
        return None
    losses = {entry.engine: entry.exact for entry in ready}
    right = most_shared(losses, _together) if losses else ()
    for entry in ready:
        if not _together(entry.exact, right):
            entry.problem = (
                f"refused before timing: its first steps in {EXACT} are "
                f"{figures.distance([entry.exact, right]):.1e} off those of the others"
            )
        elif settings.precision == "float32" and not _together(
            entry.losses[:2], right[:2]
        ):
            entry.problem = (
                "refused before timing: after one update its loss in float32 is "
                f"{entry.losses[1]:.6g}, in {EXACT} {right[1]:.6g}"
            )
    losses = {entry.engine: entry.exact for entry in ready if entry.races}
    far = figures.distance(losses.values())
    return ExactSteps(settings.learning_rate, far, losses, missing, settings.point)


def _together(*courses: tuple[float, ...]) -> bool:
    return figures.distance(courses) <= TOLERANCE


# ---- its file ------------------------------------------------------------------------


def file_name(settings: Settings) -> str:
    """Return the file of a race's lockstep, or of one at a point of a sweep.

    Only some keys of a sweep change which form is fastest.
    """
    keys = [key for key in OWN_LOCKSTEP if key in settings.point]
    parts = [f"-{key}-{settings.point[key]}" for key in keys]
    return f"lockstep{''.join(parts)}.json"


def save(examined: Iterable[Examined], folder: Path, name: str = FILE) -> None:
    """Write the facts next to the results, so that a resumed race has them."""
    text = json.dumps([asdict(entry) for entry in examined], indent=1)
    files.write_file(folder / name, text.encode())


def load(folder: Path, name: str = FILE) -> dict[str, Examined]:
    """Return what a race had measured before it was interrupted, by engine.

    What cannot be read is examined again.
    """
    try:
        saved = [Examined(**entry) for entry in json.loads((folder / name).read_text())]
    except (OSError, ValueError, TypeError):
        return {}
    return {entry.engine: entry for entry in saved if not entry.unavailable}
