"""The end of a race in the terminal: a table an engine, the first steps, a summary."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from ganglion.race import figures
from ganglion.race.figures import NOTHING, Group, number_text
from ganglion.race.lockstep import OWN_LOCKSTEP
from ganglion.race.report import content
from ganglion.race.results import Race
from ganglion.race.run_engine import TOLERANCE
from ganglion.system import terminal
from ganglion.system.terminal import cell, lines

WIDE = 130  # columns of a terminal that the entire summary fits into
COSTS = {
    "import": content.IMPORT,
    "prepare": content.PREPARE,
    "train": content.TRAINING,
    "test": content.TESTING,
    "in all": content.IN_ALL,
}
SIZES = {"memory": content.MEMORY, "on disk": content.INSTALLED}
SHOWN_STEPS = (1, 2, 3, 5, 10, 20)


def show(race: Race) -> None:
    """Print everything a race came to on standard output."""
    console = terminal.console()

    def say(text: str) -> None:
        console.print(lines(text), markup=False, highlight=False)

    for group in figures.groups(race):
        if group.done:
            terminal.show(engine_table(group), console)
    for problem in problems(race):
        say(problem)
    if groups := figures.with_first_losses(race):
        terminal.show(first_steps(race, groups), console)
    for table in summary(race, console.width):
        terminal.show(table, console)
    say(figures.verdict(race))
    for note in notes(race):
        say(note)


def engine_table(group: Group) -> Any:
    """Return an engine's runs with their average, in the published form."""
    title = f"{group.label} ({group.form})" if group.form else group.label
    score = content.SCORES[group.score]
    rows = [
        [str(run.number), *content.run_cells(run, [score]), f"{run.seconds:.2f} s"]
        if run.done
        else [str(run.number), "failed", NOTHING]
        for run in group.runs
    ]
    average = ["average", *_result(group, [])[:2]]
    return _table(title, ("run", score.head, "run time"), rows, [average])


def summary(race: Race, width: int = terminal.WIDTH) -> list[Any]:
    """Return all engines side by side, fastest first: in two tables if it is narrow."""
    from rich.box import SIMPLE_HEAD

    look: dict[str, Any] = {"box": SIMPLE_HEAD, "pad_edge": False}
    ranked = figures.by_time(race)
    title = (
        f"{race.recipe}: {figures.swept(race, 'epochs')} epochs, "
        f"batch {figures.swept(race, 'batch-size')}, "
        f"{figures.swept(race, 'threads')} threads, {race.device}"
    )
    results = [
        [content.engine_name(group), *_result(group, ranked)] for group in ranked
    ]
    costs = [_costs(race, group) for group in ranked]
    others = [[f"published: {name}", *rest] for name, *rest in content.published(race)]
    names = (*COSTS, *SIZES)
    of_result = (content.SCORES[race.score].head, "run time", "ratio")
    if width >= WIDE:
        rows = [[*result, *other] for result, other in zip(results, costs, strict=True)]
        head = ("engine", *of_result, *names)
        return [_table(f"{title}; seconds and megabytes", head, rows, others, **look)]
    rows = [[group.label, *cost] for group, cost in zip(ranked, costs, strict=True)]
    return [
        _table(title, ("engine", *of_result), results, others, **look),
        _table("seconds and megabytes", ("engine", *names), rows, **look),
    ]


def _table(
    title: str,
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    foot: Iterable[Sequence[str]] = (),
    **look: Any,
) -> Any:
    """Return a table of Rich, all columns but the first to the right."""
    from rich.table import Table

    table = Table(head[0], title=cell(title), title_justify="left", **look)
    for name in head[1:]:
        table.add_column(name, justify="right")
    for part in (rows, foot):
        for row in part:
            table.add_row(*map(cell, row))
        table.add_section()
    return table


def _result(group: Group, ranked: list[Group]) -> list[str]:
    if not group.done:
        return ["failed", NOTHING, NOTHING]
    return [
        content.text(group.result, 4),
        f"{content.text(group.time, 2)} s",
        number_text(figures.ratio(group, ranked), 2),
    ]


def _costs(race: Race, group: Group) -> list[str]:
    _, means = next(content.averages(group, list(COSTS.values())))
    sizes = [column.value(race, group, []) for column in SIZES.values()]
    return [*means, *(content.text(size, 0) for size in sizes)]


def first_steps(race: Race, groups: list[Group]) -> Any:
    """Return the losses of the first steps side by side."""
    far = figures.disagreement(race)
    note = f"; at most {far:.1e} apart, relatively, in any step" if far else ""
    most = max(len(group.first_losses) for group in groups)
    steps = [step for step in SHOWN_STEPS if step <= most]
    exact = _in_step_exactly(race)
    rows = []
    for group in groups:
        losses = group.first_losses
        alike = [
            other.first_losses for other in groups if other.settings == group.settings
        ]
        count = in_step(alike)[alike.index(losses)]
        row = [group.label, *(content.loss_text(losses, step) for step in steps)]
        row.append(f"{count} of {len(losses)}")
        rows.append([*row, exact.get(group.label, NOTHING)] if exact else row)
    head = ["loss of step", *map(str, steps), "in step"]
    return _table(f"lockstep{note}", head + ["in float64"] * bool(exact), rows)


def _in_step_exactly(race: Race) -> dict[str, str]:
    """Return for how many of the steps in float64 each group keeps in step."""
    texts = {}
    for exact in race.exact_steps:
        counts = dict(
            zip(exact.losses, in_step(list(exact.losses.values())), strict=True)
        )
        for group in figures.groups(race):
            point = group.runs[0].settings
            is_same = all(
                point.get(key) == exact.settings.get(key) for key in OWN_LOCKSTEP
            )
            if is_same and group.engine in counts:
                steps = len(exact.losses[group.engine])
                texts[group.label] = f"{counts[group.engine]} of {steps}"
    return texts


def in_step(courses: list[tuple[float, ...]]) -> list[int]:
    """Return for how many first steps each engine is within 1e-3 of their median.

    >>> in_step([(2.0, 1.0, 0.5), (2.0, 1.0, 0.6), (2.0001, 1.0, 0.5)])
    [3, 2, 3]
    """
    medians = [statistics.median(step) for step in zip(*courses, strict=False)]
    counts = []
    for losses in courses:
        close = [
            math.isclose(loss, middle, rel_tol=TOLERANCE)
            for loss, middle in zip(losses, medians, strict=False)
        ]
        counts.append(close.index(False) if False in close else len(close))
    return counts


def problems(race: Race) -> list[str]:
    """Return what did not run and why, with the end of its log."""
    return [
        "\n".join(
            [str(problem), *(f"    | {line}" for line in problem.log.splitlines())]
        )
        for problem in content.problems(race)
    ]


def notes(race: Race) -> list[str]:
    """Return the remarks that belong below the tables."""
    texts = [f"Lockstep: {text}" for text in figures.exact_texts(race)]
    if race.published:
        texts.append("Published figures are of others, on other machines.")
    return [*texts, *content.warnings(race), *filter(None, [figures.progress(race)])]
