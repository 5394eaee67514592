"""`report.html`: a race, or several, as a page that needs no network.

Everything is inside: the tables as plain HTML, the curves as data for a script that
draws them with uPlot.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from ganglion import files
from ganglion.pages.markup import Html, element, joined
from ganglion.race import figures
from ganglion.race.report import charts as report_charts
from ganglion.race.report import content, html_tables
from ganglion.race.results import Race

FILE = "report.html"


def write(races: Sequence[Race], path: str | Path) -> Path:
    """Write a page on a race, or on several side by side; return its path.

    >>> import tempfile
    >>> race = Race("mnist-mlp", "784 → 10", 1, 128, 1, 2, "cpu", 0, ("torch",))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(write([race], f"{folder}/report.html").name)
    report.html
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    return files.write_file(path, page(races).encode("utf-8", "replace"))


def page(races: Sequence[Race]) -> str:
    """Return the page as text."""
    if not races:
        raise ValueError("There is no race to report on; give at least one.")
    charts: list[dict[str, Any]] = []
    if len(races) == 1:
        body = _single(races[0], charts)
    else:
        body = _several(sorted(races, key=lambda race: race.started), charts)
    return report_charts.document(_title(races), body, charts, "ganglion race")


def _title(races: Sequence[Race]) -> str:
    names = ", ".join(dict.fromkeys(race.recipe for race in races))
    if len(races) == 1:
        return f"{names}: the same training, side by side"
    return f"{names}: {len(races)} races"


def _single(race: Race, charts: list[dict[str, Any]]) -> Html:
    top = element(
        "header",
        element("h1", _title([race])),
        element("p", race.title, class_="subtitle"),
        _settings(race),
    )
    first, rest = _parts(race)
    curves = section(race.score.capitalize(), _curves([race], [""], charts), 2)
    results = section("Summary", first, 2, id_="results")
    sections = [section(title, content, 2) for title, content in rest]
    return joined([top, element("main", results, curves, *sections), _footer()])


def _several(races: Sequence[Race], charts: list[dict[str, Any]]) -> Html:
    top = element(
        "header",
        element("h1", _title(races)),
        element("p", "Oldest first.", class_="subtitle"),
    )
    letters = _letters(len(races))
    sections = []
    for recipe in dict.fromkeys(race.recipe for race in races):
        alike = [i for i, race in enumerate(races) if race.recipe == recipe]
        sections.append(
            _recipe([races[i] for i in alike], [letters[i] for i in alike], charts)
        )
    return joined([top, element("main", *sections, id="results"), _footer()])


def _recipe(
    races: Sequence[Race], letters: Sequence[str], charts: list[dict[str, Any]]
) -> Html:
    parts = []
    if len(races) > 1:
        beside = html_tables.comparison(races, letters)
        parts.append(section("Beside each other", beside, 3))
    score = races[0].score.capitalize()
    parts.append(section(score, _curves(races, letters, charts), 3))
    for race, letter in zip(races, letters, strict=True):
        first, rest = _parts(race)
        content = [_settings(race), section("Summary", first, 4)]
        content += [section(title, part, 4) for title, part in rest]
        title = f"{letter}: {figures.label(race)}"
        parts.append(section(title, joined(content), 3))
    return section(f"{races[0].recipe}: {races[0].title}", joined(parts), 2)


def _letters(count: int) -> list[str]:
    return [
        ascii_uppercase[i] if i < len(ascii_uppercase) else str(i + 1)
        for i in range(count)
    ]


def _parts(race: Race) -> tuple[Html, list[tuple[str, Html | None]]]:
    """Return the summary of a race, and its other parts with their titles."""
    return html_tables.summary(race), [
        ("Start-up, memory, size", report_charts.bars(race)),
        ("Run by run", html_tables.run_by_run(race)),
        ("What did not run", html_tables.problems(race)),
        ("First steps", html_tables.first_steps(race)),
        ("Published results", html_tables.published(race)),
        ("Versions and machine", html_tables.facts(race)),
        ("How to repeat it", html_tables.repeat(race)),
    ]


def _curves(
    races: Sequence[Race], letters: Sequence[str], charts: list[dict[str, Any]]
) -> Html:
    curves: list[dict[str, Any]] = []
    for i, race in enumerate(races):
        prefix = f"{letters[i]}: " if letters[i] else ""
        seen: dict[str, int] = {}
        for group in figures.groups(race):
            # The newest race is drawn in full lines, a sweep's first setting too.
            dash = len(races) - 1 - i + seen.get(group.engine, 0)
            seen[group.engine] = seen.get(group.engine, 0) + 1
            curves.append(report_charts.curve(group, i, dash, prefix))
    name = str(len(charts))
    score, grows = f"test {races[0].score}", races[0].score != "loss"
    charts.append({"name": name, "score": score, "grows": grows, "curves": curves})
    labels = [
        f"{letter}: {figures.label(race)}"
        for letter, race in zip(letters, races, strict=True)
    ]
    return report_charts.curves_section(name, score, curves, labels)


def section(
    title: str, content: str | None, level: int, id_: str | None = None
) -> Html:
    """Return a part of a page with its title; nothing if it is empty."""
    if not content:
        return Html()
    return element("section", element(f"h{level}", title), content, id=id_)


def _settings(race: Race) -> Html:
    settings = {
        "epochs": figures.swept(race, "epochs"),
        "batch": figures.swept(race, "batch-size"),
        "runs an engine": race.runs,
        "threads": figures.swept(race, "threads"),
        "device": race.device,
        "machine": figures.device(race),
        "started": figures.readable_time(race.started),
    }
    pairs = [
        element("div", element("dt", name), element("dd", str(value)))
        for name, value in settings.items()
        if value != ""
    ]
    warnings = [*content.warnings(race), figures.progress(race)]
    notes = [element("p", text, class_="bad", role="note") for text in warnings if text]
    return joined([element("dl", *pairs, class_="settings"), *notes])


def _footer() -> Html:
    return element(
        "footer",
        "Made by ganglion race; curves drawn with uPlot (MIT licence). This page is "
        "whole: it asks no network for anything.",
    )
