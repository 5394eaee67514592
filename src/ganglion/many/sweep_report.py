"""The results of a sweep: a table in the terminal, live or at its end, and a page."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from ganglion import files
from ganglion.many.model_set import ModelSet
from ganglion.many.progress import Progress
from ganglion.many.sweep import (
    Group,
    Results,
    default_score,
    groups_of,
    grows,
    held_out,
    model_record,
)
from ganglion.pages import parallel_axes
from ganglion.pages.markup import (
    Html,
    clean,
    element,
    headings,
    joined,
    number,
    table,
)
from ganglion.race.figures import NOTHING, number_text, readable_time
from ganglion.race.report import charts
from ganglion.race.report.html import section
from ganglion.system import terminal

FILE = "report.html"
COLUMNS = ("models", "mean", "± deviation", "best", "worst")
SIGNS = len(charts.SHAPES)


def cells(group: Group) -> list[str]:
    """Return the figures of a group as the tables show them."""
    figures = (group.mean, group.deviation, group.best, group.worst)
    count = str(len(group.models))
    failed = f" ({group.failed} failed)" if group.failed else ""
    return [count + failed, *(number_text(figure, 4) for figure in figures)]


# ---- in the terminal -----------------------------------------------------------------


def terminal_table(
    groups: list[Group], title: str, published: Sequence[dict[str, Any]] = ()
) -> Any:
    """Return the groups as a table of Rich, with the published figures below them."""
    from rich.table import Table

    shown = Table(
        "settings", *COLUMNS, title=terminal.cell(title), title_justify="left"
    )
    for column in shown.columns[1:]:
        column.justify = "right"
    for group in groups:
        shown.add_row(terminal.cell(group.label), *cells(group))
    for figure in published:
        name = f"published: {figure['system']} ({figure['time']})"
        empty = [NOTHING] * (len(COLUMNS) - 2)
        shown.add_row(terminal.cell(name), NOTHING, f"{figure['score']:.4f}", *empty)
    return shown


def show(results: Results) -> None:
    """Print the table of a sweep."""
    title = f"{results.name}: {results.score} after {results.epochs} epochs"
    terminal.show(terminal_table(results.groups, title, results.published))


class LiveTable(Progress):
    """The table while it grows, on a terminal."""

    def __init__(self, name: str, score: str | None) -> None:
        super().__init__(verbose=0)
        self._name, self._score = name, score
        self._live: Any = None

    def show(self) -> None:
        """Redraw the table."""
        from rich.console import Console
        from rich.live import Live

        if self._live is None:
            console = Console(stderr=True)
            self._live = Live(console=console, auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(self._table(self.done), refresh=True)

    def _table(self, done: ModelSet) -> Any:
        groups: list[Group] = []
        if done:
            known = done[0].history.history
            score = held_out(self._score, known) or default_score(done)
            ordered = sorted(done, key=lambda member: member.index)
            records = list(map(model_record, ordered))
            groups = groups_of(records, score, grows(done, score))
        title = f"{self._name}: {len(done)}/{self.total} models  {self.time_left}"
        return terminal_table(groups, title)

    def end(self) -> None:
        if self._live is not None:
            self._live.stop()


# ---- as a page -----------------------------------------------------------------------


def write(results: Results, folder: Path) -> Path:
    """Write `report.html` into a folder; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    return files.write_file(folder / FILE, page(results).encode("utf-8", "replace"))


def page(results: Results) -> str:
    """Return the page as text."""
    kind = "held-out" if results.score.startswith("val_") else "training"
    score = f"{kind} {results.score.removeprefix('val_')}"
    groups = results.groups
    curves = [_curve(group, n) for n, group in enumerate(groups)]
    top = element(
        "header",
        element("h1", f"{results.name}: {len(results.models)} models"),
        element("p", results.title, class_="subtitle") if results.title else None,
        _facts(results),
    )
    body = element(
        "main",
        section("Summary", _summary(results), 2, id_="results"),
        section(
            score.capitalize(),
            charts.curves_section(
                "0", score, curves, [""], lines="Settings", over_time=False
            ),
            2,
        ),
        section("Settings and results", _parallel(results), 2),
        section("Spread", _spread(results), 2),
        section("Every model", _models(results), 2),
        section("Machine", _machine(results), 2),
    )
    chart: dict[str, Any] = {"name": "0", "score": score, "curves": curves}
    chart["grows"] = results.larger_is_better
    content = joined([top, body, _footer()])
    title = f"{results.name}: a sweep"
    return charts.document(title, content, [chart], "ganglion sweep")


def _curve(group: Group, place: int) -> dict[str, Any]:
    """Return the curves of a group as the page's script draws them."""
    runs = [group.curve(model) for model in group.models]
    average = [
        float(np.mean(known)) if (known := [v for v in at if v is not None]) else None
        for at in zip_longest(*runs)
    ]
    return {
        "engine": clean(group.label),
        "label": clean(group.label),
        "place": place,
        "settings": "",
        "race": 0,
        "dash": place // SIGNS,
        "average": {"score": average},
        "runs": [{"score": run} for run in runs] if len(runs) > 1 else [],
    }


def _facts(results: Results) -> Html:
    facts = {
        "models": f"{len(results.models)} of {results.total}",
        "epochs": results.epochs,
        "time": f"{results.seconds:.1f} s",
        "threads": results.threads,
        "started": readable_time(results.started),
    }
    pairs = [
        element("div", element("dt", name), element("dd", str(value)))
        for name, value in facts.items()
    ]
    note = element("p", results.remark, class_="bad", role="note")
    return joined(
        [element("dl", *pairs, class_="settings"), note if results.remark else None]
    )


def _name(group: Group, place: int) -> Html:
    return element("th", charts.sign(place), group.label, scope="row")


def _summary(results: Results) -> Html:
    rows = [
        element("tr", _name(group, place), *map(number, cells(group)))
        for place, group in enumerate(results.groups)
    ]
    for figure in results.published:
        name = f"published: {figure['system']} ({figure['time']})"
        figures = [NOTHING, f"{figure['score']:.4f}", NOTHING, NOTHING, NOTHING]
        rows.append(
            element("tr", element("th", name, scope="row"), *map(number, figures))
        )
    note = (
        f"{results.score} after the last epoch; ± is the sample standard deviation "
        "over the models of a setting."
    )
    drawn = table(
        "All settings",
        headings("settings", *COLUMNS),
        rows,
        hidden_caption=True,
        class_="summary",
    )
    return joined([drawn, element("p", note, class_="note")])


def _spread(results: Results) -> Html | None:
    """Return where the models of each setting ended, as marks along a line."""
    ends = [score for group in results.groups for score in group.scores]
    if len(ends) < 2 or min(ends) == max(ends):
        return None
    low, high = min(ends), max(ends)
    rows = []
    for place, group in enumerate(results.groups):
        marks = [
            element(
                "rect",
                x=f"{99.5 * (score - low) / (high - low):.2f}",
                width=0.5,
                height=10,
                class_="pale",
            )
            for score in group.scores
        ]
        strip = element(
            "svg",
            *marks,
            class_=f"e{place % SIGNS}",
            viewBox="0 0 100 10",
            preserveAspectRatio="none",
        )
        bar = element("td", strip, class_="bar", aria_hidden="true")
        span = [number_text(group.worst, 4), number_text(group.best, 4)]
        rows.append(element("tr", _name(group, place), *map(number, span), bar))
    head = [*headings("settings", "worst", "best"), element("td", class_="bar")]
    title = f"Every model's end, from {low:.4f} to {high:.4f}"
    return element("div", table(title, head, rows), class_="bars")


def _parallel(results: Results) -> Html | None:
    """Return every model as a line over its settings, coloured by its result."""
    ends = [
        (group, model, curve[-1])
        for group in results.groups
        for model in group.models
        if (curve := group.curve(model)) and curve[-1] is not None
    ]
    if not ends:
        return None
    grows = results.groups[0].larger_is_better
    names = [
        f"{clean(group.label)}, seed {model['seed']}"
        + ("" if model["fold"] is None else f", fold {model['fold']}")
        for group, model, _ in ends
    ]
    scores = [float(end) for _, _, end in ends]
    drawn = parallel_axes.parallel_axes(
        [model["setting"] for _, model, _ in ends], scores, names, results.score, grows
    )
    if drawn is None:
        return None
    worst, best = sorted(scores, reverse=not grows)[:: len(scores) - 1]
    scale = parallel_axes.legend(f"worst {worst:.4f}", f"{best:.4f} best")
    return joined([drawn, scale])


def _models(results: Results) -> Html:
    rows = []
    for group in results.groups:
        for model in group.models:
            curve = group.curve(model)
            end = number_text(curve[-1] if curve else None, 4)
            fold = NOTHING if model["fold"] is None else str(model["fold"])
            figures = [str(model["seed"]), fold, str(len(curve)), end]
            rows.append(
                element(
                    "tr",
                    element("th", group.label, scope="row"),
                    *map(number, figures),
                    element("td", model["message"] or ""),
                )
            )
    head = [
        *headings("settings", "seed", "fold", "epochs", results.score),
        element("th", "message", scope="col"),
    ]
    title = element("summary", f"{len(rows)} models")
    return element("details", title, table("Every model", head, rows))


def _machine(results: Results) -> Html:
    facts = {**results.machine, "command": results.command}
    rows = [
        element("tr", element("th", name, scope="row"), element("td", str(value)))
        for name, value in facts.items()
    ]
    head = headings("what", "")
    return table("Machine", head, rows, hidden_caption=True, class_="pairs")


def _footer() -> Html:
    return element(
        "footer",
        "Made by ganglion sweep; curves drawn with uPlot (MIT licence). This page is "
        "whole: it asks no network for anything.",
    )
