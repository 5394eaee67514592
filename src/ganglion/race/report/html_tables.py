"""The tables of `report.html`: a single race, or several side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ganglion.pages.markup import (
    Html,
    element,
    heading,
    headings,
    joined,
    number,
    table,
)
from ganglion.race import figures
from ganglion.race.figures import NOTHING, Group, Spread
from ganglion.race.report import content
from ganglion.race.report.charts import named, row_class, swatch
from ganglion.race.report.content import RunColumn, Value
from ganglion.race.results import Race, Run

_TIMES = (content.TRAINING, content.TESTING, content.RUN_TIME)


def summary(race: Race) -> Html:
    """Return all engines side by side, the fastest first."""
    ranked = figures.by_time(race)
    if not ranked:
        return element("p", content.NO_RUNS)
    columns = content.summary_columns(race)
    head = headings("engine", *(column.head for column in columns))
    rows = [
        element(
            "tr",
            named(group, group.form),
            *(
                number(_cell(column.value(race, group, ranked), column.decimals))
                for column in columns
            ),
            class_=row_class(group),
        )
        for group in ranked
    ]
    note = (
        "Averages ± sample standard deviation of the runs that came to their end. The "
        "run time is training and testing; import and preparation (build, compile, "
        "warm-up) come before it. Memory is the peak of the engine's whole process."
    )
    if any(group.settings for group in ranked):
        note += " An engine is compared with the fastest one of the same settings."
    verdicts = [
        element("p", line, class_="verdict")
        for line in figures.verdict(race).splitlines()
    ]
    caption = "All engines, fastest first"
    engines = table(caption, head, rows, hidden_caption=True, class_="summary")
    return joined([*verdicts, engines, element("p", note, class_="note")])


def _cell(value: Value, decimals: int) -> str:
    """Return a value of a table; deviations have a separate column."""
    if not isinstance(value, Spread) or value.deviation is None:
        return content.text(value, decimals)
    average, sign, deviation = content.text(value, decimals).partition(" ± ")
    return joined([average, element("span", sign + deviation, class_="dev")])


def run_by_run(race: Race) -> Html:
    """Return a table for each engine, as such comparisons are published."""
    return element("div", *map(_engine_table, figures.groups(race)), class_="cards")


def _engine_table(group: Group) -> Html:
    form = element("small", group.form) if group.form else None
    columns = (content.SCORES[group.score], *_TIMES)
    foot = [
        element("tr", element("th", name, scope="row", colspan=2), *map(number, cells))
        for name, cells in content.averages(group, columns)
    ]
    return table(
        joined([swatch(group.engine), group.label, form]),
        map(heading, ("run", "seed", *(column.head for column in columns))),
        [_run_row(run, columns) for run in group.runs],
        foot=foot,
        spoken=f"The runs of {group.label}",
    )


def _run_row(run: Run, columns: Sequence[RunColumn]) -> Html:
    row = [_row_number(run.number), number(str(run.seed))]
    if run.done:
        row += map(number, content.run_cells(run, columns))
    else:
        row.append(element("td", "failed", colspan=len(columns), class_="bad"))
    return element("tr", *row)


def _row_number(count: int) -> Html:
    return element("th", str(count), scope="row", class_="n")


def first_steps(race: Race) -> Html | None:
    """Return the losses of the first steps of each engine's first run."""
    groups = figures.with_first_losses(race)
    if not groups:
        return None
    texts = [element("p", text) for text in content.first_steps_texts(race)]
    names = [heading(joined([swatch(group.engine), group.label])) for group in groups]
    rows = [
        element("tr", _row_number(step), *map(number, losses))
        for step, losses in content.first_losses(groups)
    ]
    caption = "Losses of the first steps, run 1"
    return joined([*texts, table(caption, [heading("step"), *names], rows)])


def problems(race: Race) -> Html | None:
    """Return the runs that failed, with the end of their logs, and those skipped."""
    items = []
    for problem in content.problems(race):
        log = None
        if problem.log:
            title = element("summary", "The end of its log")
            log = element("details", title, element("pre", problem.log, tabindex=0))
        items.append(
            element("li", element("strong", problem.engine), problem.text, log)
        )
    return element("ul", *items, class_="problems") if items else None


def published(race: Race) -> Html | None:
    """Return the published results of this recipe."""
    if not race.published:
        return None
    rows = [
        element("tr", element("th", system, scope="row"), *map(number, cells))
        for system, *cells in content.published(race)
    ]
    head = headings("system", content.SCORES[race.score].head, "time")
    return table("Published by others, on other machines", head, rows)


def facts(race: Race) -> Html:
    """Return the exact versions and the machine."""
    parts = [_pairs(*part) for part in content.facts(race)]
    return element("div", *parts, class_="cards")


def _pairs(caption: str, head: tuple[str, str], pairs: dict[str, Any]) -> Html | None:
    rows = [
        element("tr", element("th", name, scope="row"), element("td", str(value)))
        for name, value in pairs.items()
        if value not in ("", None)
    ]
    names = [heading(name, False) for name in head]
    return table(caption, names, rows, class_="pairs") if rows else None


def repeat(race: Race) -> Html:
    """Return how to run the race again."""
    if not race.command:
        return element("p", "The command was not kept.")
    text = (
        f"Seed {race.seed}; each engine in a process of its own, threads: "
        f"{race.threads}, runs interleaved."
    )
    command = race.command
    if race.commit:
        command = f"git checkout {race.commit.removesuffix('+')}\n{command}"
    if race.commit.endswith("+"):
        text += " The checkout had changes that were not committed."
    return Html(element("p", text) + element("pre", command, tabindex=0))


def comparison(races: Sequence[Race], letters: Sequence[str]) -> Html:
    """Return run times and accuracies of several races, against the oldest."""
    key = [
        element("li", element("strong", f"{letter}: "), figures.label(race))
        for letter, race in zip(letters, races, strict=True)
    ]
    note = (
        f"Differences are to {letters[0]}, the oldest race. One that is smaller than "
        "the deviations of both races together counts as noise; of one run, the noise "
        "is not known."
    )
    warning = _differences_in_settings(races)
    score = content.SCORES[races[0].score]
    better = _better if races[0].score == "accuracy" else _nearer
    return joined(
        [
            element("ul", *key, class_="races"),
            element("p", warning, class_="bad") if warning else None,
            _against_oldest(races, letters, "Run time, s", content.RUN_TIME, _faster),
            _against_oldest(races, letters, score.head.capitalize(), score, better),
            element("p", note, class_="note"),
        ]
    )


def _differences_in_settings(races: Sequence[Race]) -> str:
    """Return in which settings races differ: such races are not to be compared."""
    texts = []
    for name in ("epochs", "batch size", "threads", "device"):
        values = [str(getattr(race, name.replace(" ", "_"))) for race in races]
        if len(set(values)) > 1:
            texts.append(f"{name} ({', '.join(values)})")
    return f"The races are not alike: {', '.join(texts)}." if texts else ""


Difference = Callable[[Spread, Spread], tuple[str, str, bool]]


def _faster(old: Spread, new: Spread) -> tuple[str, str, bool]:
    change = new.mean - old.mean
    text = f"{change / old.mean:+.1%}" if old.mean else f"{change:+.2f}"
    return text, "faster" if change < 0 else "slower", change < 0


def _better(old: Spread, new: Spread) -> tuple[str, str, bool]:
    change = new.mean - old.mean
    return f"{change:+.4f}", "better" if change > 0 else "worse", change > 0


def _nearer(old: Spread, new: Spread) -> tuple[str, str, bool]:
    text, _, is_larger = _better(old, new)
    return text, "worse" if is_larger else "better", not is_larger


def _against_oldest(
    races: Sequence[Race],
    letters: Sequence[str],
    caption: str,
    column: RunColumn,
    difference: Difference,
) -> Html:
    tables = [{group.label: group for group in figures.by_time(race)} for race in races]
    labels = dict.fromkeys(label for groups in reversed(tables) for label in groups)
    names = [letters[0]]
    for letter in letters[1:]:
        names += [letter, f"{letter} − {letters[0]}"]
    rows = []
    for label in labels:
        groups = [by_label.get(label) for by_label in tables]
        old, *others = [
            group.spread(column.value) if group else None for group in groups
        ]
        cells = [number(_cell(old, column.decimals))]
        for new in others:
            cells.append(number(_cell(new, column.decimals)))
            cells.append(_difference(old, new, difference))
        group = next(group for group in groups if group is not None)
        rows.append(element("tr", named(group), *cells, class_=row_class(group)))
    return table(caption, headings("engine", *names), rows)


def _difference(old: Spread | None, new: Spread | None, difference: Difference) -> Html:
    if old is None or new is None:
        return number(NOTHING)
    text, word, is_good = difference(old, new)
    if old.deviation is None or new.deviation is None:
        return number(f"{text} one run", class_="n same")  # its noise is not known
    if not figures.apart(old, new):
        return number(f"{text} noise", class_="n same")
    return number(f"{text} {word}", class_=f"n {'good' if is_good else 'bad'}")
