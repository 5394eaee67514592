"""The end of a race in the terminal: a table an engine, the first steps, a summary."""

from __future__ import annotations

import math
import statistics
from typing import Any

from ganglion.race import facts, figures
from ganglion.race.figures import NOTHING, Group
from ganglion.race.lockstep import DECISIVE, TOLERANCE
from ganglion.race.results import Race
from ganglion.system import terminal
from ganglion.system.terminal import cell, lines

WIDE = 130  # columns of a terminal that the whole summary fits into
RESULT = ("accuracy", "run time", "ratio")
COSTS = ("import", "prepare", "train", "test", "in all", "memory", "on disk")
SHOWN_STEPS = (1, 2, 3, 5, 10, 20)


def show(race: Race) -> None:
    """Print everything a race came to on standard output."""
    console = terminal.console()
    for group in figures.groups(race):
        if group.done:
            terminal.show(engine_table(group), console)
    for told in problems(race):
        console.print(lines(told), markup=False, highlight=False)
    steps = first_steps(race)
    if steps is not None:
        terminal.show(steps, console)
    for table in summary(race, console.width):
        terminal.show(table, console)
    console.print(lines(figures.verdict(race)), markup=False, highlight=False)
    for note in notes(race):
        console.print(lines(note), markup=False, highlight=False)


def engine_table(group: Group) -> Any:
    """Return one engine's runs with their average, in the published form."""
    from rich.table import Table

    form = f" ({group.form})" if group.form else ""
    title = cell(f"{group.label}{form}")
    table = Table("run", title=title, title_justify="left")
    for name in ("accuracy", "run time"):
        table.add_column(name, justify="right")
    for run in group.runs:
        cells = (figures.accuracy_text(run.accuracy), f"{run.seconds:.2f} s")
        table.add_row(str(run.number), *(cells if run.done else ("failed", NOTHING)))
    table.add_section()
    table.add_row(
        "average",
        figures.spread_text(group.accuracy, 4),
        f"{figures.spread_text(group.time, 2)} s",
    )
    return table


def summary(race: Race, width: int = terminal.WIDTH) -> list[Any]:
    """Return all engines side by side, fastest first: in two tables if it is narrow."""
    ranked = figures.by_time(race)
    title = f"{race.recipe}: {figures.swept(race, 'epochs', race.epochs)} epochs, "
    title += f"batch {figures.swept(race, 'batch-size', race.batch_size)}, "
    title += f"{figures.swept(race, 'threads', race.threads)} threads, {race.device}"
    names = [f"{one.label}: {one.form}" if one.form else one.label for one in ranked]
    results = [_result(one, ranked) for one in ranked]
    costs = [_costs(race, one) for one in ranked]
    others = _published(race)
    if width >= WIDE:
        rows = [[*one, *other] for one, other in zip(results, costs, strict=True)]
        title = f"{title}; seconds and megabytes"
        return [_table(title, (*RESULT, *COSTS), names, rows, others)]
    names_only = [one.label for one in ranked]
    return [
        _table(title, RESULT, names, results, others),
        _table("seconds and megabytes", COSTS, names_only, costs),
    ]


def _published(race: Race) -> list[list[str]]:
    """Return what others published, in the columns of our own results."""
    return [
        [f"published: {one['system']}", figures.accuracy_text(one["accuracy"]),
         str(one["time"])]
        for one in race.published
    ]  # fmt: skip


def _table(
    title: str,
    heads: Any,
    names: list[str],
    rows: list[list[str]],
    others: list[list[str]] | None = None,
) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(
        "engine",
        title=cell(title),
        title_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    for head in heads:
        table.add_column(head, justify="right")
    for name, row in zip(names, rows, strict=True):
        table.add_row(cell(name), *map(cell, row))
    if others:
        table.add_section()
        for row in others:
            table.add_row(*map(cell, row))
    return table


def _result(group: Group, ranked: list[Group]) -> list[str]:
    if not group.done:
        return ["failed", NOTHING, NOTHING]
    times = figures.ratio(group, ranked)
    return [
        figures.spread_text(group.accuracy, 4),
        f"{figures.spread_text(group.time, 2)} s",
        NOTHING if times is None else f"{times:.2f}",
    ]


def _costs(race: Race, group: Group) -> list[str]:
    seconds = (
        group.spread(lambda run: run.import_seconds),
        group.spread(lambda run: run.prepare_seconds),
        group.spread(lambda run: run.train_seconds),
        group.spread(lambda run: run.test_seconds),
        group.spread(lambda run: run.total_seconds),
    )
    return [
        *(NOTHING if one is None else f"{one.mean:.2f}" for one in seconds),
        figures.megabytes(group.memory),
        figures.megabytes(race.install_sizes.get(group.engine)),
    ]


def first_steps(race: Race) -> Any:
    """Return the losses of the first steps side by side, None if there are none."""
    from rich.table import Table

    groups = figures.with_first_losses(race)
    if not groups:
        return None
    far = figures.disagreement(race)
    told = f"; at most {far:.1e} apart, relatively, in any step" if far else ""
    table = Table("loss of step", title=f"lockstep{told}", title_justify="left")
    most = max(len(one.first_losses) for one in groups)
    shown = [step for step in SHOWN_STEPS if step <= most]
    exactly = _in_step_exactly(race)
    more = ["in step", "in float64"] if exactly else ["in step"]
    for name in (*map(str, shown), *more):
        table.add_column(name, justify="right")
    for group in groups:
        losses = group.first_losses
        alike = [one.first_losses for one in groups if one.settings == group.settings]
        count = in_step(alike)[alike.index(losses)]
        cells = [figures.loss_text(losses, step) for step in shown]
        cells += [f"{count} of {len(losses)}", exactly.get(group.label, NOTHING)]
        table.add_row(cell(group.label), *cells[: len(shown) + len(more)])
    return table


def _in_step_exactly(race: Race) -> dict[str, str]:
    """Return for how many of the steps in float64 each group keeps in step."""
    found = {}
    for one in race.exact_steps:
        counts = dict(zip(one.losses, in_step(list(one.losses.values())), strict=True))
        for group in figures.groups(race):
            point = group.runs[0].settings
            same = all(point.get(key) == one.settings.get(key) for key in DECISIVE)
            if same and group.engine in counts:
                steps = len(one.losses[group.engine])
                found[group.label] = f"{counts[group.engine]} of {steps}"
    return found


def in_step(courses: list[tuple[float, ...]]) -> list[int]:
    """Return for how many first steps each engine is within 1e-3 of their median.

    >>> in_step([(2.0, 1.0, 0.5), (2.0, 1.0, 0.6), (2.0001, 1.0, 0.5)])
    [3, 2, 3]
    """
    medians = [statistics.median(step) for step in zip(*courses, strict=False)]
    counts = []
    for losses in courses:
        near = [
            math.isclose(loss, middle, rel_tol=TOLERANCE)
            for loss, middle in zip(losses, medians, strict=False)
        ]
        counts.append(near.index(False) if False in near else len(near))
    return counts


def problems(race: Race) -> list[str]:
    """Return what did not run and why, with the end of its log."""
    found = []
    for run in race.finished:
        if not run.done:
            text = f"{figures.run_label(run)} failed: {run.reason}"
            lines = run.log_end.splitlines()
            found.append("\n".join([text, *(f"    | {line}" for line in lines)]))
    found += [f"{one.engine} was left out: {one.reason}" for one in race.skipped]
    return found


def notes(race: Race) -> list[str]:
    """Return what a reader must know to believe the tables."""
    found = []
    if told := facts.busy(race.machine, race.threads):
        found.append(told)
    found += [f"Lockstep: {told}" for told in figures.exact_texts(race)]
    if "data" in race.machine:
        found.append(str(race.machine["data"]))
    if race.published:
        found.append("Published figures are of others, on other machines.")
    if not race.complete:
        found.append(figures.progress(race))
    return found
