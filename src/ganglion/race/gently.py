"""The first steps once more, at a small learning rate, where they part at the real one.

A maximum between two almost equal pixels, or a ReLU almost at zero, is decided by the
last bit of a sum, and every engine adds up in its own order. At a large learning rate
such a bit is 1e-3 of the loss a few steps later, between any two engines. At a fiftieth
of the rate it is not, and engines that compute the same keep in step: gradients and
updates are compared, not luck.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from ganglion.race import session
from ganglion.race.lockstep import TOLERANCE, Found, Say
from ganglion.race.order import Start
from ganglion.race.session import Place
from ganglion.race.settings import Settings
from ganglion.rivals import Engine, Unavailable
from ganglion.rivals.process import LIMIT, EngineError

PART = 0.02  # of the learning rate
OURS = "ganglion"
Take = Callable[[list[Found], Settings], None]


def check(
    found: Mapping[str, Found],
    engines: Mapping[str, Engine],
    settings: Settings,
    take: Take,
) -> str:
    """Refuse engines that part from the others; return what was seen, "" if nothing.

    Nothing is done where all keep in step at the recipe's own rate. What has to be done
    is to `take` the steps of some engines.
    """
    racing = [one for one in found.values() if one.races and one.engine in engines]
    if len(racing) < 2 or apart([one.losses for one in racing]) <= TOLERANCE:
        return ""
    small = _small(settings)
    take([one for one in racing if not one.gentle], small)
    _refuse([one for one in racing if one.races])
    courses = [one.gentle for one in racing if one.races]
    return (
        f"at the recipe's learning rate rounding grows (docs/race.md); at "
        f"{_rate(small):.3g}, {min(map(len, courses), default=0)} steps are at most "
        f"{apart(courses):.0e} apart"
    )


def _rate(settings: Settings) -> float:
    _, given = settings.what.optimizer
    return float(settings.optimizer.get("learning_rate", given["learning_rate"]))


def _small(settings: Settings) -> Settings:
    rate = {"learning_rate": PART * _rate(settings)}
    return replace(settings, optimizer=settings.optimizer | rate)


def take_steps(
    found: Found,
    engine: Engine,
    settings: Settings,
    place: Place,
    start: Start,
    say: Say,
) -> None:
    """Take the first steps of an engine at the rate of these settings."""
    say(engine.name, f"lockstep: learning rate {_rate(settings):.3g}")
    log = f"{engine.name}-lockstep-gently"
    limit = settings.limit or LIMIT
    try:
        with session.opened(engine, found.form, settings, place, log, limit) as asked:
            asked.load(engine)
            asked.prepare(place, start)
            found.gentle = asked.first_losses()
    except EngineError as error:
        found.problem, found.log_end = error.reason, error.log_end
    except Unavailable as reason:
        found.unavailable = str(reason)


def _refuse(racing: list[Found]) -> None:
    """Mark those that part from what most do; of two, Ganglion is believed."""

    def friends(one: Found) -> tuple[int, bool]:
        near = sum(apart([one.gentle, other.gentle]) <= TOLERANCE for other in racing)
        return near, one.engine == OURS

    if not racing:
        return
    right = max(racing, key=friends).gentle
    for one in racing:
        far = apart([one.gentle, right])
        if not far <= TOLERANCE:
            one.problem = (
                f"refused before timing: its first steps at {PART:g} of the learning "
                f"rate are {far:.1e} off those of the others"
            )


def apart(courses: list[tuple[float, ...]]) -> float:
    """Return the largest relative difference in any step; infinite if one is no number.

    >>> apart([(2.0, 1.0), (2.0, 1.1)])
    0.1
    """
    most = 0.0
    for step in zip(*courses, strict=False):
        if not all(map(math.isfinite, step)):
            return math.inf
        low, high = min(step), max(step)
        most = max(most, (high - low) / max(abs(low), 1e-12))
    return round(most, 12)
