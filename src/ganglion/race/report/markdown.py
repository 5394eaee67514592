"""`results.md`: a race in the form of the published tables.

One table an engine, run by run, with the average; then all engines side by side.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ganglion import files
from ganglion.race import facts, figures
from ganglion.race.figures import NOTHING, Group
from ganglion.race.report.markup import clean
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
        _what(race),
        _summary(race),
        *_engines(race),
        *_problems(race),
        *_first_steps(race),
        *_published(race),
        *_facts(race),
        *_repeat(race),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _what(race: Race) -> str:
    epochs = figures.swept(race, "epochs", race.epochs)
    batch = figures.swept(race, "batch-size", race.batch_size)
    threads = figures.swept(race, "threads", race.threads)
    seed = figures.swept(race, "seed", race.seed)
    lines = [
        f"{_safe(race.title)}. Epochs: {_safe(epochs)}, batch {_safe(batch)}, runs an "
        f"engine: {race.runs}, threads: {_safe(threads)}, device: "
        f"{_safe(race.device)}, seed {_safe(seed)}; started "
        f"{_safe(figures.when(race.started))}.",
        _safe(facts.busy(race.machine, race.threads)),
        _safe(figures.remark(race)),
        figures.progress(race),
    ]
    return "\n\n".join(line for line in lines if line)


SUMMARY = (
    "engine", "runs", "accuracy", "run time, s", "× fastest", "training, s",
    "testing, s", "import, s", "prepare, s", "memory, MB", "installed, MB",
)  # fmt: skip


def _summary(race: Race) -> str:
    ranked = figures.by_time(race)
    if not ranked:
        return "No run is finished yet."
    rows = [_summary_row(race, one, ranked) for one in ranked]
    note = (
        "Averages ± sample standard deviation. The run time is training and testing; "
        "import and preparation (build, compile, warm-up) come before it."
    )
    table = _table(SUMMARY, rows)
    verdict = "\n\n".join(map(_safe, figures.verdict(race).splitlines()))
    return f"## Summary\n\n{verdict}\n\n{table}\n\n{note}"


def _summary_row(race: Race, group: Group, ranked: list[Group]) -> list[str]:
    times = figures.ratio(group, ranked)
    label = f"{group.label}: {group.form}" if group.form else group.label
    return [
        f"**{_safe(label)}**" if group.engine == figures.OURS else _safe(label),
        f"{len(group.done)} of {len(group.runs)}" if group.failed else str(
            len(group.runs)
        ),
        figures.spread_text(group.accuracy, 4),
        figures.spread_text(group.time, 2),
        NOTHING if times is None else f"{times:.2f}",
        figures.spread_text(group.spread(lambda run: run.train_seconds), 2),
        figures.spread_text(group.spread(lambda run: run.test_seconds), 2),
        figures.spread_text(group.spread(lambda run: run.import_seconds), 2),
        figures.spread_text(group.spread(lambda run: run.prepare_seconds), 2),
        figures.megabytes(group.memory),
        figures.megabytes(race.install_sizes.get(group.engine)),
    ]  # fmt: skip


def _engines(race: Race) -> list[str]:
    """Return one table an engine, as they were published."""
    return [_engine(group) for group in figures.groups(race)]


def _engine(group: Group) -> str:
    rows = [
        [
            str(run.number),
            figures.accuracy_text(run.accuracy) if run.done else "failed",
            f"{run.seconds:.2f}" if run.done else NOTHING,
        ]
        for run in group.runs
    ]
    for name, of in (("average", "mean"), ("deviation", "deviation")):
        cells = [_part(group.accuracy, of, 4), _part(group.time, of, 2)]
        rows.append([f"**{name}**", *cells])
    table = _table(("run", "accuracy", "run time, s"), rows)
    return f"## {_safe(group.label)}\n\n{table}"


def _part(spread: figures.Spread | None, name: str, decimals: int) -> str:
    value = getattr(spread, name, None)
    return NOTHING if value is None else f"{value:.{decimals}f}"


def _problems(race: Race) -> list[str]:
    found = []
    for run in race.finished:
        if not run.done:
            reason = _safe(run.reason) or "no reason was given"
            found.append(f"- {_safe(figures.run_label(run))} failed: {reason}")
            if run.log_end:
                found.append(_fenced(run.log_end, "  "))
    found += [
        f"- {_safe(one.engine)} was left out: {_safe(one.reason)}"
        for one in race.skipped
    ]
    return ["## What did not run", "\n".join(found)] if found else []


def _first_steps(race: Race) -> list[str]:
    """Return the losses of the first steps, which all engines must share."""
    groups = figures.with_first_losses(race)
    if not groups:
        return []
    count = max(len(one.first_losses) for one in groups)
    rows = [
        [str(step), *(figures.loss_text(one.first_losses, step) for one in groups)]
        for step in range(1, count + 1)
    ]
    head = ["step", *(_safe(one.label) for one in groups)]
    told = "All engines start from the same weights and see the same batches."
    far = figures.disagreement(race)
    if far is not None:
        told += f" They are at most {far:.1e} apart, relatively, in any run."
    told = "\n\n".join([told, *map(_safe, figures.exact_texts(race))])
    return [f"## Losses of the first steps\n\n{told}\n\n{_table(head, rows)}"]


def _published(race: Race) -> list[str]:
    if not race.published:
        return []
    rows = [
        [_safe(one["system"]), f"{one['accuracy']:.4f}", _safe(one["time"])]
        for one in race.published
    ]
    table = _table(("system", "accuracy", "time"), rows)
    return [f"## Published\n\nBy others, on other machines.\n\n{table}"]


def _facts(race: Race) -> list[str]:
    commit = {"git commit": race.commit} if race.commit else {}
    versions = _table(("package", "version"), _pairs(race.versions | commit), "ll")
    machine = _table(("part", "what"), _pairs(race.machine), "ll")
    return [
        f"## Versions\n\n{versions}" if race.versions or commit else "",
        f"## Machine\n\n{machine}" if race.machine else "",
    ]


def _pairs(facts: dict[str, Any]) -> list[list[str]]:
    return [[_safe(key), _safe(value)] for key, value in facts.items()]


def _repeat(race: Race) -> list[str]:
    if not race.command:
        return []
    return [f"## How to repeat it\n\n{_fenced(race.command)}"]


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], align: str = "") -> str:
    """Return a Markdown table, its columns padded so that the text reads well too."""
    rows = [list(row) for row in rows]
    align = align or "l" + "r" * (len(head) - 1)
    widths = [
        max(3, len(name), *(len(row[i]) for row in rows)) if rows else len(name)
        for i, name in enumerate(head)
    ]
    rule = [
        "-" * (width - 1) + ":" if side == "r" else "-" * width
        for width, side in zip(widths, align, strict=True)
    ]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if side == "r" else cell.ljust(width)
            for cell, width, side in zip(cells, widths, align, strict=True)
        )
        return f"| {' | '.join(padded)} |"

    return "\n".join([line(head), line(rule), *map(line, rows)])


def _safe(value: Any) -> str:
    """Return any text as one line that Markdown takes literally."""
    line = " ".join(clean(str(value)).split())
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*\[\]|#]|(?<!\w)_|_(?!\w))", r"\\\1", line)


def _fenced(content: str, indent: str = "") -> str:
    """Return a block of code, fenced longer than any fence inside of it."""
    content = clean(content)
    longest = max((len(one) for one in re.findall(r"`+", content)), default=0)
    fence = "`" * max(3, longest + 1)
    lines = [fence, *content.rstrip().splitlines(), fence]
    return "\n".join(indent + line for line in lines)
