"""The figures of a race: averages, deviations, ratios, and their texts.

The run time is training and testing together, as the published tables count it. Only
finished runs are averaged. Nothing here favours an engine: ratios are to the fastest
one, whichever it is.
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
        """Return the spread of some values, of which there is at least one."""
        values = list(values)
        if not all(map(math.isfinite, values)):
            return cls(math.nan, math.nan)
        deviation = statistics.stdev(values) if len(values) > 1 else None
        return cls(statistics.fmean(values), deviation)

    def text(self, decimals: int) -> str:
        """Return "average ± deviation"."""
        average = f"{self.mean:.{decimals}f}"
        if self.deviation is None:
            return average
        return f"{average} ± {self.deviation:.{decimals}f}"


@dataclass(frozen=True)
class Group:
    """The runs of an engine with the same settings of a sweep, if there is one."""

    engine: str
    settings: str
    runs: tuple[Run, ...]
    score: str = "accuracy"

    @property
    def label(self) -> str:
        """The engine, with its settings in a sweep."""
        return engine_label(self.engine, self.settings)

    @property
    def form(self) -> str:
        """The form, or forms, that the engine took."""
        return ", ".join(dict.fromkeys(run.form for run in self.runs if run.form))

    @property
    def done(self) -> list[Run]:
        """The finished runs, which are averaged."""
        return [run for run in self.runs if run.done]

    @property
    def failed(self) -> list[Run]:
        """The runs that failed."""
        return [run for run in self.runs if not run.done]

    @property
    def first_losses(self) -> tuple[float, ...]:
        """The losses of the first steps of the first run."""
        return self.runs[0].first_losses

    def spread(self, value: Callable[[Run], float | None]) -> Spread | None:
        """Return the spread of a value over the finished runs, None without any."""
        values = [number for run in self.done if (number := value(run)) is not None]
        return Spread.of(values) if values else None

    @property
    def result(self) -> Spread | None:
        """The test's accuracy, or its loss, at the end."""
        return self.spread(lambda run: run.tested(self.score))

    @property
    def time(self) -> Spread | None:
        """The run time."""
        return self.spread(lambda run: run.seconds)

    @property
    def memory(self) -> int | None:
        """The most memory a run took."""
        return max((run.peak_memory for run in self.done), default=0) or None


def engine_label(engine: str, settings: str) -> str:
    """Return an engine, with its settings in a sweep."""
    return f"{engine} ({settings})" if settings else engine


def settings_text(settings: dict[str, Any]) -> str:
    """Return the settings of a sweep in one line.

    >>> settings_text({"lr": 0.1, "batch-size": 64})
    'lr 0.1, batch-size 64'
    """
    return ", ".join(f"{key} {value}" for key, value in settings.items())


def swept(race: Race, key: str) -> str:
    """Return a setting of a race, or the values that a sweep gives it.

    >>> race = Race("m", "t", 1, 64, 1, 2, "cpu", 0, (), sweep={"batch-size": [64, 99]})
    >>> swept(race, "batch-size"), swept(race, "epochs")
    ('64 or 99', '1')
    """
    values = race.sweep.get(key) or [getattr(race, key.replace("-", "_"))]
    return " or ".join(map(str, values))


def groups(race: Race) -> list[Group]:
    """Return the runs of each engine, in the race's own order of engines."""
    names = dict.fromkeys([*race.engines, *(run.engine for run in race.finished)])
    grouped: dict[tuple[str, str], list[Run]] = {}
    for name in names:
        for run in race.finished:
            if run.engine == name:
                key = name, settings_text(run.settings)
                grouped.setdefault(key, []).append(run)
    return [
        Group(*key, tuple(sorted(runs, key=lambda run: run.number)), race.score)
        for key, runs in grouped.items()
    ]


def by_time(race: Race) -> list[Group]:
    """Return the groups, fastest first; those without a finished run are last."""

    def key(group: Group) -> float:
        mean = group.time.mean if group.time else math.inf
        return math.inf if math.isnan(mean) else mean

    return sorted(groups(race), key=key)


def ratio(group: Group, ranked: list[Group]) -> float | None:
    """Return a run time as a multiple of the fastest with the same settings."""
    best = next(
        (candidate for candidate in ranked if candidate.settings == group.settings),
        None,
    )
    if best is None or best.time is None or group.time is None or not best.time.mean:
        return None
    return group.time.mean / best.time.mean


def apart(spread: Spread, other: Spread) -> bool:
    """Return whether two averages differ by more than their deviations together.

    >>> apart(Spread(1.0, 0.1), Spread(1.1, 0.1)), apart(Spread(1, 0.1), Spread(2, 0.1))
    (False, True)
    """
    noise = (spread.deviation or 0.0) + (other.deviation or 0.0)
    return abs(spread.mean - other.mean) > noise


def verdict(race: Race) -> str:
    """Return how Ganglion compares with the best rival: a line per sweep setting."""
    ranked = [group for group in by_time(race) if group.time]
    lines = []
    for settings in dict.fromkeys(group.settings for group in groups(race)) or [""]:
        alike = [group for group in ranked if group.settings == settings]
        lines.append((f"{settings}: " if settings else "") + _verdict(alike))
    return "\n".join(lines)


def _verdict(ranked: list[Group]) -> str:
    ours = next((group for group in ranked if group.engine == OURS), None)
    best = next((group for group in ranked if not group.engine.startswith(OURS)), None)
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
    is_single = None in (ours.time.deviation, best.time.deviation)
    note = " There is one run only: how far runs spread is not known."
    if times >= 1:
        text = f"{best.engine}, the fastest rival, takes {times:.2f}× as long as "
        text += "Ganglion."
    else:
        text = f"{best.engine} is faster: {ours.engine} takes {1 / times:.2f}× as long "
        text += "as it."
    return text + (note if is_single else "")


def progress(race: Race) -> str:
    """Return the runs that are missing from a race, none if it is complete."""
    if race.complete:
        return ""
    return (
        f"This race is not complete: {len(race.finished)} runs are in. "
        "Continue it with `ganglion race --resume` and its folder."
    )


def label(race: Race) -> str:
    """Return a short name for a race among others: version, processor, day."""
    version = race.versions.get("ganglion", "")
    if race.commit:
        changed = "+" if race.commit.endswith("+") else ""
        version = f"{version} ({race.commit[:7]}{changed})".strip()
    parts = (f"Ganglion {version}" if version else "", device(race), race.started[:10])
    return ", ".join(part for part in parts if part) or "unnamed race"


def device(race: Race) -> str:
    """Return the name of the processor, or of the GPU, that a race ran on."""
    return str(race.machine.get("gpu" if race.device == "cuda" else "cpu") or "")


def with_first_losses(race: Race) -> list[Group]:
    """Return the groups whose first steps are known."""
    return [group for group in groups(race) if group.first_losses]


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
    compared = [courses for courses in shared.values() if len(courses) > 1]
    return max(map(distance, compared), default=None)


def distance(courses: Iterable[tuple[float, ...]]) -> float:
    """Return the largest relative difference of losses in any step.

    >>> distance([(2.0, 1.0), (2.0, 0.75)])
    0.25
    """
    return max(map(_relative_range, zip(*courses, strict=False)), default=0.0)


def _relative_range(losses: tuple[float, ...]) -> float:
    if not all(map(math.isfinite, losses)):
        return math.inf if any(map(math.isfinite, losses)) else 0.0
    largest = max(map(abs, losses))
    return (max(losses) - min(losses)) / largest if largest else 0.0


def exact_texts(race: Race) -> list[str]:
    """Return how near the first steps are in float64, each time they were taken."""
    return [_exact_text(steps) for steps in race.exact_steps]


def _exact_text(exact: ExactSteps) -> str:
    point = f"{settings_text(exact.settings)}: " if exact.settings else ""
    steps = min(map(len, exact.losses.values()), default=0)
    text = (
        f"{point}in float64, at the same learning rate of {exact.learning_rate:.3g}, "
        f"the first {steps} steps of {', '.join(exact.losses)} are at most "
        f"{exact.apart:.1e} apart, relatively."
    )
    for name, reason in exact.missing.items():
        text += f" {name} took no steps in it: {reason}."
    return text[0].upper() + text[1:]


def number_text(value: float | None, decimals: int) -> str:
    """Return a number, or the sign for nothing.

    >>> number_text(0.98765, 4), number_text(None, 2)
    ('0.9877', '–')
    """
    return NOTHING if value is None else f"{value:.{decimals}f}"


def megabytes(size: int | None) -> str:
    """Return a size in millions of bytes.

    >>> megabytes(123_456_789), megabytes(None)
    ('123', '–')
    """
    return f"{size / 1e6:,.0f}" if size else NOTHING


def readable_time(moment: str) -> str:
    """Return an ISO time in readable form.

    >>> readable_time("2026-11-15T06:03:11.5+00:00")
    '2026-11-15 06:03 UTC'
    """
    if len(moment) < 16 or moment[10:11] != "T":
        return moment or NOTHING
    return f"{moment[:10]} {moment[11:16]} UTC"
