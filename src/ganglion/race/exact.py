"""The first steps once more, in float64, where they part in float32.

A maximum between two almost equal pixels, or a ReLU almost at zero, is decided by the
last bit of a sum, and every engine adds up in its own order. At a large learning rate
such a bit is 1e-3 of the loss a few steps later, between any two engines. In float64
that bit is 29 places further down: from the same weights, on the same batches and at
the recipe's own rate, engines that compute the same stay together, and one with another
gradient or update does not.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from ganglion.race import figures, session
from ganglion.race.engines import Unavailable
from ganglion.race.engines.process import EngineError
from ganglion.race.lockstep import TOLERANCE, Found, Say, most_shared
from ganglion.race.results import ExactSteps
from ganglion.race.session import Job
from ganglion.race.settings import Settings

DTYPE = "float64"
Losses = tuple[float, ...]
Taken = tuple[Losses, str]  # or why there are none


def due(all_found: Iterable[Found]) -> list[Found]:
    """Return the engines that have yet to take these steps: none if all keep in step.

    >>> near, far = Found("a", losses=(2.0, 1.0)), Found("b", losses=(2.0, 1.1))
    >>> due([near, near]), [one.engine for one in due([near, far])]
    ([], ['a', 'b'])
    """
    racing = [one for one in all_found if one.races]
    if _together(*(one.losses for one in racing)):
        return []
    return [one for one in racing if not one.exact and not one.inexact]


def take_steps(job: Job, say: Say) -> Taken:
    """Return the losses of the first steps in float64, or why there are none."""
    say(job.engine.name, f"lockstep: {DTYPE}")
    finer = replace(job.settings, dtype=DTYPE, precision="float32")
    job = replace(job, settings=finer)
    try:
        with session.opened(job, f"lockstep-{DTYPE}") as asked:
            asked.load()
            asked.prepare()
            return asked.first_losses(), ""
    except (EngineError, Unavailable) as error:
        return (), getattr(error, "reason", str(error))


def judge(all_found: Collection[Found], settings: Settings) -> ExactSteps | None:
    """Refuse engines that part from what most do; return what was seen, if anything.

    The steps in float64 tell that all train the same. That the code that will race does
    so tells the loss after one update, which rounding does not move yet.

    An engine that could not take these steps races: nothing is known against it, and
    the results say so.
    """
    ready = [one for one in all_found if one.exact]
    missing = {one.engine: one.inexact for one in all_found if one.inexact}
    if not ready and not missing:
        return None
    taken = {one.engine: one.exact for one in ready}
    right = most_shared(taken, _together) if taken else ()
    whole = settings.precision == "float32"  # no bits are cut off on purpose
    for one in ready:
        if not _together(one.exact, right):
            one.problem = (
                f"refused before timing: its first steps in {DTYPE} are "
                f"{figures.distance([one.exact, right]):.1e} off those of the others"
            )
        elif whole and not _together(one.losses[:2], right[:2]):
            one.problem = (
                "refused before timing: after one update its loss in float32 is "
                f"{one.losses[1]:.6g}, in {DTYPE} {right[1]:.6g}"
            )
    taken = {one.engine: one.exact for one in ready if one.races}
    far = figures.distance(taken.values())
    return ExactSteps(settings.learning_rate, far, taken, missing, settings.point)


def _together(*courses: Losses) -> bool:
    return figures.distance(courses) <= TOLERANCE
