"""`results.md`: a race in the form of the published tables.

One table an engine, run by run, with the average; then all engines side by side.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ganglion import files
from ganglion.pages.markup import clean
from ganglion.race import figures
from ganglion.race.figures import NOTHING, Group
from ganglion.race.report import content
from ganglion.race.results import Race

FILE = "results.md"


def write(race: Race, folder: str | Path) -> Path:
    """Write `results.md` into the folder of a race; return the file."""
    data = text(race).encode("utf-8", "replace")
    return files.write_file(Path(folder) / FILE, data)


def text(race: Race) -> str:
    """Return a race as a Markdown page.

    >>> race = Race("mnist-mlp", "784 → 10", 1, 128, 1, 2, "cpu", 0, ("torch",))
    >>> print(text(race).splitlines()[0])
    # mnist-mlp: the same training, side by side
    """
    parts = [
        f"# {_safe(race.recipe)}: the same training, side by side",
        *_settings(race),
        *_summary(race),
        *map(_engine, figures.groups(race)),
        *_problems(race),
        *_first_steps(race),
        *_published(race),
        *_facts(race),
    ]
    if race.command:
        parts.append(f"## How to repeat it\n\n{_fenced(race.command)}")
    return "\n\n".join(filter(None, parts)) + "\n"


def _settings(race: Race) -> list[str]:
    epochs, batch, threads, seed = (
        _safe(figures.swept(race, key))
        for key in ("epochs", "batch-size", "threads", "seed")
    )
    settings = (
        f"{_safe(race.title)}. Epochs: {epochs}, batch {batch}, runs an engine: "
        f"{race.runs}, threads: {threads}, device: {_safe(race.device)}, seed {seed}; "
        f"started {_safe(figures.readable_time(race.started))}."
    )
    return [settings, *map(_safe, content.warnings(race)), figures.progress(race)]


def _summary(race: Race) -> list[str]:
    ranked = figures.by_time(race)
    if not ranked:
        return [content.NO_RUNS]
    rows, columns = [], content.summary_columns(race)
    for group in ranked:
        name = _safe(content.engine_name(group))
        cells = [
            content.text(column.value(race, group, ranked), column.decimals)
            for column in columns
        ]
        rows.append([f"**{name}**" if group.engine == figures.OURS else name, *cells])
    head = ["engine", *(column.head for column in columns)]
    note = (
        "Averages ± sample standard deviation. The run time is training and testing; "
        "import and preparation (build, compile, warm-up) come before it."
    )
    verdicts = map(_safe, figures.verdict(race).splitlines())
    return ["## Summary", *verdicts, _table(head, rows), note]


def _engine(group: Group) -> str:
    """Return the table of an engine, as they were published."""
    columns = (content.SCORES[group.score], content.RUN_TIME)
    failed = ["failed", NOTHING]
    rows = [
        [str(run.number), *(content.run_cells(run, columns) if run.done else failed)]
        for run in group.runs
    ]
    rows += [
        [f"**{name}**", *cells] for name, cells in content.averages(group, columns)
    ]
    table = _table(["run", *(column.head for column in columns)], rows)
    return f"## {_safe(group.label)}\n\n{table}"


def _problems(race: Race) -> list[str]:
    lines = []
    for problem in content.problems(race):
        lines.append(f"- {_safe(problem)}")
        if problem.log:
            lines.append(_fenced(problem.log, "  "))
    return ["## What did not run", "\n".join(lines)] if lines else []


def _first_steps(race: Race) -> list[str]:
    """Return the losses of the first steps, which all engines must share."""
    groups = figures.with_first_losses(race)
    if not groups:
        return []
    rows = [[str(step), *losses] for step, losses in content.first_losses(groups)]
    head = ["step", *(_safe(group.label) for group in groups)]
    texts = map(_safe, content.first_steps_texts(race))
    return ["## Losses of the first steps", *texts, _table(head, rows)]


def _published(race: Race) -> list[str]:
    if not race.published:
        return []
    rows = [list(map(_safe, row)) for row in content.published(race)]
    table = _table(("system", content.SCORES[race.score].head, "time"), rows)
    return ["## Published", "By others, on other machines.", table]


def _facts(race: Race) -> list[str]:
    parts = []
    for title, head, pairs in content.facts(race):
        if pairs:
            rows = [[_safe(name), _safe(value)] for name, value in pairs.items()]
            parts += [f"## {title}", _table(head, rows, "l")]
    return parts


def _table(head: Sequence[str], rows: list[list[str]], side: str = "r") -> str:
    """Return a Markdown table, its columns padded so that the text reads well too.

    Args:
        head: The names of the columns.
        rows: The cells, row by row.
        side: Of all columns but the first: "l" or "r".
    """
    sides = "l" + side * (len(head) - 1)
    widths = [
        max(3, len(name), *(len(row[i]) for row in rows)) if rows else len(name)
        for i, name in enumerate(head)
    ]
    rule = [
        "-" * (width - 1) + (":" if side == "r" else "-")
        for width, side in zip(widths, sides, strict=True)
    ]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if side == "r" else cell.ljust(width)
            for cell, width, side in zip(cells, widths, sides, strict=True)
        )
        return f"| {' | '.join(padded)} |"

    return "\n".join([line(head), line(rule), *map(line, rows)])


def _safe(value: Any) -> str:
    """Return any text as a single line that Markdown takes literally."""
    line = " ".join(clean(str(value)).split())
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*\[\]|#]|(?<!\w)_|_(?!\w))", r"\\\1", line)


def _fenced(code: str, indent: str = "") -> str:
    """Return a block of code, fenced longer than any fence inside of it."""
    code = clean(code)
    longest = max(map(len, re.findall(r"`+", code)), default=0)
    fence = "`" * max(3, longest + 1)
    lines = [fence, *code.rstrip().splitlines(), fence]
    return "\n".join(indent + line for line in lines)
