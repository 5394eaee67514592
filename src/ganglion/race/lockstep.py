"""Before any clock counts: do all engines compute the same, and in which form best?

Every engine is built in each of its forms, takes the first steps, and is tried out for
a moment. Parameter counts and the loss of the first batch must agree; which form is
fastest is kept for the race.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from ganglion import files
from ganglion.race import session
from ganglion.race.engines import Unavailable
from ganglion.race.engines.process import EngineError
from ganglion.race.figures import OURS
from ganglion.race.session import Job, Session
from ganglion.race.settings import Settings

TOLERANCE = 1e-3  # of a loss, relative
ROUNDED = {"tf32": 2e-3, "bf16": 2e-2}  # the same, where operands have fewer bits
PATIENCE = 60.0  # seconds for a form to get ready when another one already is
TRIALS = 3
TRIAL_SECONDS = 1.0
FEWEST_STEPS = 4
FILE = "lockstep.json"
DECISIVE = ("batch-size", "threads", "precision")  # keys of a sweep with own locksteps

Say = Callable[[str, str], None]
T = TypeVar("T")


@dataclass
class Found:
    """What was found about one engine before the race."""

    engine: str
    form: str = ""
    parameters: int = 0
    losses: tuple[float, ...] = ()
    seed: int = 0  # of the start that gave these losses
    exact: tuple[float, ...] = ()  # losses in float64, where they were taken: `exact`
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


def examine(job: Job, say: Say) -> Found:
    """Try an engine's forms; return what was found about the fastest one."""
    engine, limit = job.engine, job.limit
    best, tried = Found(engine.name), {}
    for form in engine.forms_on(job.settings.device):
        say(engine.name, f"lockstep: {form}")
        one = _try(replace(job, form=form, limit=limit))
        if one.unavailable:
            return one
        if one.problem:
            tried[form] = one.problem.splitlines()[0]
            best = best if best.form else one
            continue
        tried[form] = f"{1000 * one.step_seconds:.3g} ms a step"
        limit = min(limit, max(PATIENCE, 2 * one.start_seconds))
        if not best.form or best.problem or one.step_seconds < best.step_seconds:
            best = one
    best.tried = tried
    return best


def _try(job: Job) -> Found:
    found = Found(job.engine.name, job.form, seed=job.settings.seed_of(1))
    try:
        with session.opened(job, f"lockstep-{job.form}") as asked:
            found.start_seconds = asked.load()
            made = asked.prepare()
            found.start_seconds += made["seconds"]
            found.parameters = int(made["parameters"])
            found.losses = asked.first_losses()
            found.step_seconds = _try_out(asked, job.settings.batch_size)
    except EngineError as error:
        found.problem, found.log_end = error.reason, error.log_end
    except Unavailable as reason:
        found.unavailable = str(reason)
    return found


def _try_out(asked: Session, size: int) -> float:
    """Return the seconds of a step, the best of a few moments."""

    def once(steps: int) -> float:
        found = asked.ask("try_out", "seconds", steps=steps, batch_size=size)
        return max(float(found), 1e-9) / steps

    steps, step = FEWEST_STEPS, once(FEWEST_STEPS)
    while steps < 400 and 2 * steps * step < TRIAL_SECONDS:
        steps = min(400, max(2 * steps, int(TRIAL_SECONDS / step)))
        step = once(steps)
    return min(once(steps) for _ in range(TRIALS))


def judge(
    all_found: Sequence[Found], parameters: int, precision: str = "float32"
) -> float:
    """Mark those that compute something else; return the loss of the first batch."""
    alike = partial(agree, precision=precision)
    racing = [one for one in all_found if one.races]
    for one in racing:
        if one.parameters != parameters:
            one.problem = refused_for_parameters(one.parameters, parameters)
        elif not one.losses:
            one.problem = "refused: it took no first step"
    firsts = {one.engine: one.losses[0] for one in racing if one.races}
    right = most_shared(firsts, alike) if firsts else math.nan
    for one in racing:
        if one.races and not alike(one.losses[0], right):
            one.problem = refused_for_loss(one.losses[0], right)
    return right


def most_shared(told: dict[str, T], alike: Callable[[T, T], bool]) -> T:
    """Return what most engines say; of as many and as many, Ganglion is believed.

    >>> most_shared({"ganglion": 1.0, "jax": 2.0, "torch": 2.0001}, agree)
    2.0
    """

    def friends(name: str) -> tuple[int, bool]:
        return sum(alike(told[name], one) for one in told.values()), name == OURS

    return told[max(told, key=friends)]


def agree(loss: float, other: float, precision: str = "float32") -> bool:
    """Say whether two losses are the same but for rounding.

    >>> agree(2.3000, 2.3001), agree(2.3, 2.4), agree(2.30, 2.32, "bf16")
    (True, False, True)
    """
    return math.isclose(loss, other, rel_tol=ROUNDED.get(precision, TOLERANCE))


def refused_for_parameters(found: int, wanted: int) -> str:
    """Say why an engine with another number of parameters does not race."""
    return f"refused before timing: {found:,} parameters, not {wanted:,}"


def refused_for_loss(found: float, wanted: float) -> str:
    """Say why an engine with another first loss does not race."""
    return (
        f"refused before timing: the loss of the first batch is {found:.6g}, "
        f"not {wanted:.6g}"
    )


def name_of_file(settings: Settings) -> str:
    """Return where it is kept what was found for a race, or for a point of a sweep.

    Only the decisive keys change which form is fastest.
    """
    keys = [key for key in DECISIVE if key in settings.point]
    parts = [f"-{key}-{settings.point[key]}" for key in keys]
    return f"lockstep{''.join(parts)}.json"


def keep(all_found: Iterable[Found], folder: Path, name: str = FILE) -> None:
    """Write what was found beside the results, so that a resumed race has it."""
    text = json.dumps([asdict(one) for one in all_found], indent=1)
    files.write_file(folder / name, text.encode())


def kept(folder: Path, name: str = FILE) -> dict[str, Found]:
    """Return what a race found before it was interrupted, by engine.

    What cannot be read is found out anew.
    """
    try:
        found = [Found(**one) for one in json.loads((folder / name).read_text())]
    except (OSError, ValueError, TypeError):
        return {}
    return {one.engine: one for one in found if not one.unavailable}
