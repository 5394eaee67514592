"""What the runs of a race come to: averages, deviations, ratios, and how to say them.

The run time is training and testing together, as the published tables count it. Only
runs that came to their end are averaged. Nothing here favours an engine: ratios are to
the fastest one, whoever it is.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ganglion.race.results import ExactSteps, Race, Run

OURS = "ganglion"
NOTHING = "–"


@dataclass(frozen=True)
class Spread:
    """An average, and the sample standard deviation where there are two values.

    >>> Spread.of([1.0, 3.0]).text(1), Spread.of([2.0]).text(1)
    ('2.0 ± 1.4', '2.0')
    """

    mean: float
    deviation: float | None

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Return the spread of some values, at least one."""
        kept = list(values)
        if not all(map(math.isfinite, kept)):
            return cls(math.nan, math.nan)
        apart = statistics.stdev(kept) if len(kept) > 1 else None
        return cls(statistics.fmean(kept), apart)

    def text(self, decimals: int) -> str:
        """Return "average ± deviation"."""
        average = f"{self.mean:.{decimals}f}"
        if self.deviation is None:
            return average
        return f"{average} ± {self.deviation:.{decimals}f}"


@dataclass(frozen=True)
class Group:
    """The runs of one engine with the same settings of a sweep, if there is one."""

    engine: str
    settings: str
    runs: tuple[Run, ...]

    @property
    def label(self) -> str:
        """The engine, with its settings in a sweep."""
        return f"{self.engine} ({self.settings})" if self.settings else self.engine

    @property
    def form(self) -> str:
        """The form, or forms, that the engine took."""
        return ", ".join(dict.fromkeys(one.form for one in self.runs if one.form))

    @property
    def done(self) -> list[Run]:
        """The runs that came to their end, and are averaged."""
        return [one for one in self.runs if one.done]

    @property
    def failed(self) -> list[Run]:
        """The runs that did not."""
        return [one for one in self.runs if not one.done]

    @property
    def first_losses(self) -> tuple[float, ...]:
        """The losses of the first steps of the first run."""
        return self.runs[0].first_losses

    def spread(self, of: Callable[[Run], float]) -> Spread | None:
        """Return the spread of a figure of the finished runs, None without any."""
        return Spread.of(map(of, self.done)) if self.done else None

    @property
    def accuracy(self) -> Spread | None:
        """The test accuracy at the end."""
        values = [one.accuracy for one in self.done if one.accuracy is not None]
        return Spread.of(values) if values else None

    @property
    def time(self) -> Spread | None:
        """The run time."""
        return self.spread(lambda run: run.seconds)

    @property
    def memory(self) -> int | None:
        """The most memory a run took."""
        return max((one.peak_memory for one in self.done), default=0) or None


def settings_text(settings: dict[str, Any]) -> str:
    """Return the settings of a sweep in one line.

    >>> settings_text({"lr": 0.1, "batch-size": 64})
    'lr 0.1, batch-size 64'
    """
    return ", ".join(f"{key} {value}" for key, value in settings.items())


def swept(race: Race, key: str, value: Any) -> str:
    """Return a setting of a race, or the values that a sweep gives it.

    >>> race = Race("m", "t", 1, 64, 1, 2, "cpu", 0, (), sweep={"batch-size": [64, 99]})
    >>> swept(race, "batch-size", race.batch_size), swept(race, "epochs", race.epochs)
    ('64 or 99', '1')
    """
    return " or ".join(map(str, race.sweep.get(key, [value])))


def run_label(run: Run) -> str:
    """Return which run this is: the engine, its settings in a sweep, the number."""
    settings = settings_text(run.settings)
    who = f"{run.engine} ({settings})" if settings else run.engine
    return f"{who}, run {run.number}"


def groups(race: Race) -> list[Group]:
    """Return the runs of each engine, in the race's own order of engines."""
    found: dict[tuple[str, str], list[Run]] = {}
    for engine in race.engines:
        for run in race.finished:
            if run.engine == engine:
                key = engine, settings_text(run.settings)
                found.setdefault(key, []).append(run)
    for run in race.finished:
        if run.engine not in race.engines:
            key = run.engine, settings_text(run.settings)
            found.setdefault(key, []).append(run)
    return [
        Group(*key, tuple(sorted(runs, key=lambda run: run.number)))
        for key, runs in found.items()
    ]


def by_time(race: Race) -> list[Group]:
    """Return the groups, fastest first; those that never came to an end are last."""

    def key(group: Group) -> float:
        mean = group.time.mean if group.time else math.inf
        return math.inf if math.isnan(mean) else mean

    return sorted(groups(race), key=key)


def ratio(group: Group, ranked: list[Group]) -> float | None:
    """Return a run time as a multiple of the fastest one with the same settings."""
    best = next((one for one in ranked if one.settings == group.settings), None)
    if best is None or best.time is None or group.time is None or not best.time.mean:
        return None
    return group.time.mean / best.time.mean


def apart(one: Spread, other: Spread) -> bool:
    """Say whether two averages differ by more than their deviations together.

    >>> apart(Spread(1.0, 0.1), Spread(1.1, 0.1)), apart(Spread(1, 0.1), Spread(2, 0.1))
    (False, True)
    """
    noise = (one.deviation or 0.0) + (other.deviation or 0.0)
    return abs(one.mean - other.mean) > noise


def verdict(race: Race) -> str:
    """Return how Ganglion stands to the best rival, for good or ill.

    It is one line; in a sweep, one for each of its settings.
    """
    ranked = [one for one in by_time(race) if one.time]
    sweep = dict.fromkeys(one.settings for one in groups(race)) or [""]
    lines = []
    for settings in sweep:
        alike = [one for one in ranked if one.settings == settings]
        lines.append((f"{settings}: " if settings else "") + _verdict(alike))
    return "\n".join(lines)


def _verdict(ranked: list[Group]) -> str:
    ours = next((one for one in ranked if one.engine == OURS), None)
    best = next((one for one in ranked if not one.engine.startswith(OURS)), None)
    if ours is None or best is None or not (ours.time and best.time):
        return "Nothing to compare: Ganglion or every rival is missing."
    if not ours.time.mean or not best.time.mean:
        return "Nothing to compare: a run took no time."
    if not apart(ours.time, best.time):
        return (
            f"{ours.engine} and {best.engine}, the fastest rival, take the same time, "
            "as far as the spread of the runs can tell."
        )
    times = best.time.mean / ours.time.mean
    few = " There is one run only: how far runs spread is not known."
    note = few if None in (ours.time.deviation, best.time.deviation) else ""
    if times >= 1:
        return (
            f"{best.engine}, the fastest rival, takes {times:.2f}× as long as "
            f"Ganglion.{note}"
        )
    return (
        f"{best.engine} is faster: {ours.engine} takes {1 / times:.2f}× as long as "
        f"it.{note}"
    )


def progress(race: Race) -> str:
    """Return what is missing from a race, nothing if it is complete."""
    if race.complete:
        return ""
    return (
        f"This race is not complete: {len(race.finished)} runs are in. "
        "Continue it with `ganglion race --resume` and its folder."
    )


def remark(race: Race) -> str:
    """Return what a reader must know of the data, nothing if it is the real one."""
    return str(race.machine.get("data") or "")


def label(race: Race) -> str:
    """Return a short name for a race among others: version, processor, day."""
    version = race.versions.get("ganglion", "")
    if race.commit:
        changed = "+" if race.commit.endswith("+") else ""
        version = f"{version} ({race.commit[:7]}{changed})".strip()
    where = str(race.machine.get("gpu" if race.device == "cuda" else "cpu") or "")
    parts = (f"Ganglion {version}" if version else "", where, race.started[:10])
    return ", ".join(part for part in parts if part) or "unnamed race"


def with_first_losses(race: Race) -> list[Group]:
    """Return the groups whose first steps are known."""
    return [group for group in groups(race) if group.first_losses]


def loss_text(losses: tuple[float, ...], step: int) -> str:
    """Return the loss of a step (from 1), or the sign for nothing.

    >>> loss_text((2.5,), 1), loss_text((2.5,), 2)
    ('2.50000', '–')
    """
    return f"{losses[step - 1]:.5f}" if step <= len(losses) else NOTHING


def disagreement(race: Race) -> float | None:
    """Return how far engines are apart in the losses of the same first steps.

    It is the largest relative difference in any step of any run that two engines share;
    infinite if only one of them has a loss that is a number.
    """
    shared: dict[tuple[int, str], list[tuple[float, ...]]] = {}
    for run in race.finished:
        if run.first_losses:
            key = run.number, settings_text(run.settings)
            shared.setdefault(key, []).append(run.first_losses)
    compared = [many for many in shared.values() if len(many) > 1]
    return max(map(distance, compared), default=None)


def distance(courses: Iterable[tuple[float, ...]]) -> float:
    """Return the largest relative difference of losses in any step.

    >>> distance([(2.0, 1.0), (2.0, 0.75)])
    0.25
    """
    return max(map(_apart_by, zip(*courses, strict=False)), default=0.0)


def _apart_by(losses: tuple[float, ...]) -> float:
    if not all(map(math.isfinite, losses)):
        return math.inf if any(map(math.isfinite, losses)) else 0.0
    largest = max(map(abs, losses))
    return (max(losses) - min(losses)) / largest if largest else 0.0


def exact_texts(race: Race) -> list[str]:
    """Say how near the first steps are in float64, for each time they were taken."""
    return [_exact_text(one) for one in race.exact_steps]


def _exact_text(one: ExactSteps) -> str:
    point = f"{settings_text(one.settings)}: " if one.settings else ""
    steps = min(map(len, one.losses.values()), default=0)
    told = (
        f"{point}in float64, at the same learning rate of {one.learning_rate:.3g}, the "
        f"first {steps} steps of {', '.join(one.losses)} are at most {one.apart:.1e} "
        "apart, relatively."
    )
    why = [f" {name} took no steps in it: {why}." for name, why in one.missing.items()]
    return "".join([told[0].upper(), told[1:], *why])


def accuracy_text(value: float | None) -> str:
    """Return an accuracy as it is published."""
    return NOTHING if value is None else f"{value:.4f}"


def spread_text(spread: Spread | None, decimals: int) -> str:
    """Return a spread, or the sign for nothing."""
    return NOTHING if spread is None else spread.text(decimals)


def megabytes(size: int | None) -> str:
    """Return a size in millions of bytes.

    >>> megabytes(123_456_789), megabytes(None)
    ('123', '–')
    """
    return NOTHING if not size else f"{size / 1e6:,.0f}"


def when(moment: str) -> str:
    """Return an ISO time for people.

    >>> when("2026-11-15T06:03:11.5+00:00")
    '2026-11-15 06:03 UTC'
    """
    if len(moment) < 16 or moment[10:11] != "T":
        return moment or NOTHING
    return f"{moment[:10]} {moment[11:16]} UTC"
