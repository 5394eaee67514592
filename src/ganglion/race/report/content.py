"""The contents of a race's reports, defined once: columns, rows, problems, notes.

`terminal_tables`, `markdown` and `html` decide only what a table or a note looks like.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from ganglion.race import figures, machine
from ganglion.race.figures import NOTHING, Group, Spread, number_text
from ganglion.race.results import Race, Run

NO_RUNS = "No run is finished yet."
Value = Spread | str | None


class RunColumn(NamedTuple):
    """A figure of a single run, of which groups have an average and a deviation."""

    head: str
    value: Callable[[Run], float | None]
    decimals: int = 2


SCORES = {
    "accuracy": RunColumn("accuracy", lambda run: run.tested("accuracy"), 4),
    "loss": RunColumn("test loss", lambda run: run.tested("loss"), 4),
}
RUN_TIME = RunColumn("run time, s", attrgetter("seconds"))
TRAINING = RunColumn("training, s", attrgetter("train_seconds"))
TESTING = RunColumn("testing, s", attrgetter("test_seconds"))
IMPORT = RunColumn("import, s", attrgetter("import_seconds"))
PREPARE = RunColumn("prepare, s", attrgetter("prepare_seconds"))
IN_ALL = RunColumn("in all, s", attrgetter("total_seconds"))


class Column(NamedTuple):
    """A column of the summary, an engine a row."""

    head: str
    value: Callable[[Race, Group, list[Group]], Value]
    decimals: int = 2


def _of_runs(column: RunColumn) -> Column:
    return Column(
        column.head,
        lambda race, group, ranked: group.spread(column.value),
        column.decimals,
    )


def _run_count(group: Group) -> str:
    count = len(group.runs)
    return f"{len(group.done)} of {count}" if group.failed else str(count)


MEMORY = Column(
    "memory, MB", lambda race, group, ranked: figures.megabytes(group.memory)
)
INSTALLED = Column(
    "installed, MB",
    lambda race, group, ranked: figures.megabytes(race.install_sizes.get(group.engine)),
)
_COUNT = Column("runs", lambda race, group, ranked: _run_count(group))
_TIMES_AND_SIZES = (
    _of_runs(RUN_TIME),
    Column(
        "× fastest",
        lambda race, group, ranked: number_text(figures.ratio(group, ranked), 2),
    ),
    *map(_of_runs, (TRAINING, TESTING, IMPORT, PREPARE)),
    MEMORY,
    INSTALLED,
)


def summary_columns(race: Race) -> tuple[Column, ...]:
    """Return the columns of the summary."""
    return _COUNT, _of_runs(SCORES[race.score]), *_TIMES_AND_SIZES


def text(value: Value, decimals: int) -> str:
    """Return a value of a table as plain text."""
    if isinstance(value, Spread):
        return value.text(decimals)
    return value or NOTHING


def run_cells(run: Run, columns: Sequence[RunColumn]) -> list[str]:
    """Return the figures of a run."""
    return [number_text(column.value(run), column.decimals) for column in columns]


def averages(
    group: Group, columns: Sequence[RunColumn]
) -> Iterator[tuple[str, list[str]]]:
    """Yield the averages and the deviations of some columns, each with its name."""
    spreads = [group.spread(column.value) for column in columns]
    for name, part in (("average", "mean"), ("deviation", "deviation")):
        yield (
            name,
            [
                number_text(getattr(spread, part, None), column.decimals)
                for spread, column in zip(spreads, columns, strict=True)
            ],
        )


def engine_name(group: Group) -> str:
    """Return an engine with its settings and its form."""
    return f"{group.label}: {group.form}" if group.form else group.label


class Problem(NamedTuple):
    """A run that failed, or an engine that was left out."""

    engine: str
    text: str  # continues after the engine's name
    log: str = ""

    def __str__(self) -> str:
        return self.engine + self.text


def problems(race: Race) -> list[Problem]:
    """Return what did not run and why."""
    failed = [
        Problem(
            figures.engine_label(run.engine, figures.settings_text(run.settings)),
            f", run {run.number} failed: {run.reason or 'no reason was given'}",
            run.log_end,
        )
        for run in race.finished
        if not run.done
    ]
    left_out = [
        Problem(skip.engine, f" was left out: {skip.reason}") for skip in race.skipped
    ]
    return failed + left_out


def warnings(race: Race) -> list[str]:
    """Return the remarks on the machine and the data."""
    remark = str(race.machine.get("data") or "")
    return [text for text in (machine.busy(race.machine, race.threads), remark) if text]


def first_steps_texts(race: Race) -> list[str]:
    """Return how near the engines are in their first steps."""
    text = "All engines start from the same weights and see the same batches."
    far = figures.disagreement(race)
    if far is not None:
        text += f" In all runs, their losses are at most {far:.1e} apart, relatively."
    return [text, *figures.exact_texts(race)]


def first_losses(groups: Sequence[Group]) -> Iterator[tuple[int, list[str]]]:
    """Yield each of the first steps (from 1) with the losses of all groups."""
    for step in range(1, max(len(group.first_losses) for group in groups) + 1):
        yield step, [loss_text(group.first_losses, step) for group in groups]


def loss_text(losses: tuple[float, ...], step: int) -> str:
    """Return the loss of a step (from 1), or the sign for nothing.

    >>> loss_text((2.5,), 1), loss_text((2.5,), 2)
    ('2.50000', '–')
    """
    return number_text(losses[step - 1] if step <= len(losses) else None, 5)


def published(race: Race) -> list[list[str]]:
    """Return published results: system, accuracy or loss, and time."""
    return [
        [str(row["system"]), number_text(row[race.score], 4), str(row["time"])]
        for row in race.published
    ]


def facts(race: Race) -> list[tuple[str, tuple[str, str], dict[str, Any]]]:
    """Return titles, heads and pairs: the exact versions, and the machine."""
    commit = {"git commit": race.commit} if race.commit else {}
    return [
        ("Versions", ("package", "version"), race.versions | commit),
        ("Machine", ("part", "what"), race.machine),
    ]
