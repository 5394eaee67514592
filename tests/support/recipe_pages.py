"""Writes `docs/recipes`: a page for each recipe, its published figures beside our log.

    python tests/support/recipe_pages.py mnist-mlp    # trains it, and writes its log
    python tests/support/recipe_pages.py              # writes the pages from the logs

A log is what `ganglion train RECIPE --log json` prints, with the command, the machine
and the day in front.
"""

from __future__ import annotations

import datetime
import io
import json
import re
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from folders import ROOT

from ganglion import config, recipes, variables
from ganglion.race import machine
from ganglion.recipes import Recipe

FOLDER = ROOT / "docs" / "recipes"
LOGS = FOLDER / "logs"
BENCHMARKS = ROOT / "docs" / "benchmarks.md"
WIDTH, HEIGHT, MARGIN = 640, 280, 44


# ---- logs ----------------------------------------------------------------------------


def train(name: str, *options: str) -> None:
    """Train a recipe and keep its log."""
    words = ["train", name, "--log", "json", *options]
    done = subprocess.run(
        [sys.executable, "-m", "ganglion", *words],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    keep(name, words, [json.loads(line) for line in done.stdout.splitlines()])


def keep(
    name: str, words: list[str], epochs: list[dict[str, Any]], note: str = ""
) -> None:
    """Write the log of a recipe."""
    about = {
        "command": " ".join(["ganglion", *words]),
        "version": config.VERSION,
        "machine": f"{machine.processor()}, {machine.vector_width()}",
        "date": datetime.date.today().isoformat(),
        "note": note,
    }
    LOGS.mkdir(parents=True, exist_ok=True)
    rounded = [
        {key: float(f"{value:.6g}") for key, value in epoch.items()} for epoch in epochs
    ]
    lines = [json.dumps(row) for row in (about, *rounded)]
    (LOGS / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def log_of(name: str) -> tuple[dict[str, Any], list[dict[str, Any]]] | None:
    """Return what is known of a log, and its epochs; None where there is none."""
    path = LOGS / f"{name}.jsonl"
    if not path.exists():
        return None
    about, *epochs = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    return about, epochs


# ---- pages ---------------------------------------------------------------------------


def pages() -> dict[Path, str]:
    """Return every page and picture, by its path."""
    texts = {FOLDER / "index.md": _index()}
    for recipe in recipes.RECIPES.values():
        texts[FOLDER / f"{recipe.name}.md"] = _page(recipe)
        if log := log_of(recipe.name):
            texts[FOLDER / f"{recipe.name}.svg"] = _curve(recipe, log[1])
    return texts


def _index() -> str:
    rows = ["| recipe | network | published | ours |", "|---|---|---|---|"]
    for recipe in recipes.RECIPES.values():
        best = recipe.published[0] if recipe.published else None
        published = f"{_score(recipe, best.score)}, {best.time}" if best else "–"
        log = log_of(recipe.name)
        ours = _score(recipe, log[1][-1][f"val_{recipe.score}"]) if log else "–"
        link = f"[`{recipe.name}`]({recipe.name}.md)"
        rows.append(f"| {link} | {recipe.title} | {published} | {ours} |")
    return "\n".join(
        [
            "# Recipes",
            "",
            "Experiments with published results, as data: what to train on what, and "
            "how. `ganglion train NAME` runs one, `ganglion race NAME` runs it in "
            "other frameworks, too, `ganglion dump NAME --plan` shows what it is "
            "compiled to. Each page has the published figures beside a log of ours, "
            "which is seed 0 and nothing but seed 0: `ganglion sweep mnist-mlp --seeds "
            "0-9` shows how much of it is chance. (The published figures of "
            "`image-folder` are of photographs that nobody else has.)",
            "",
            *rows,
            "",
        ]
    )


def _page(recipe: Recipe) -> str:
    parts = [
        f"# {recipe.name}",
        f"{recipe.title[0].upper()}{recipe.title[1:]}; "
        f"{recipe.parameters:,} parameters.",
        f"    ganglion train {recipe.name}\n    ganglion race {recipe.name}",
        _settings(recipe),
        "## Results",
        _results(recipe),
        *_log(recipe),
        *_steps(recipe),
        "## The network",
        f"```text\n{_summary(recipe)}\n```",
    ]
    if recipe.remark:
        parts.insert(-2, recipe.remark)
    return "\n\n".join(parts) + "\n"


def _settings(recipe: Recipe) -> str:
    kind, arguments = recipe.optimizer
    numbers = ", ".join(f"{key} {value}" for key, value in arguments.items())
    changed = ", ".join(kind for kind, _ in recipe.augment)
    rows = {
        "data": f"`{recipe.dataset}`" + (f", changed by {changed}" if changed else ""),
        "loss": f"`{recipe.loss}`",
        "optimizer": f"{kind} ({numbers})",
        "batch": f"{recipe.batch_size} rows, "
        + ("shuffled" if recipe.shuffle else "in the order of the data"),
        "epochs": str(recipe.epochs),
    }
    return "\n".join(
        ["| | |", "|---|---|", *(f"| {k} | {v} |" for k, v in rows.items())]
    )


def _results(recipe: Recipe) -> str:
    rows = [f"| | test {recipe.score} | time |", "|---|---|---|"]
    for figure in recipe.published:
        score = _score(recipe, figure.score)
        rows.append(f"| published: {figure.system} | {score} | {figure.time} |")
    if log := log_of(recipe.name):
        name, epochs = f"val_{recipe.score}", log[1]
        seconds = 0.0
        for count, epoch in enumerate(epochs, 1):
            seconds += epoch["seconds"]
            if count in (1, len(epochs)):
                label = "one epoch" if count == 1 else f"{count} epochs"
                score = _score(recipe, epoch[name])
                rows.append(f"| Ganglion, after {label} | {score} | {seconds:,.1f} s |")
    return "\n".join(rows)


def _log(recipe: Recipe) -> list[str]:
    log = log_of(recipe.name)
    if log is None:
        return ["## Log", "No log of a whole training is kept here yet."]
    about, epochs = log
    origin = f"`{about['command']}`, Ganglion {about['version']}, {about['machine']}, "
    origin += f"{about['date']}."
    note = f" {about['note']}" if about["note"] else ""
    lines = [_line(recipe, epoch) for epoch in epochs if _is_shown(epoch, len(epochs))]
    return [
        "## Log",
        f"![The test {recipe.score} after each epoch]({recipe.name}.svg)",
        f"{origin}{note} Training / test:",
        "```text\n" + "\n".join(lines) + "\n```",
    ]


def _is_shown(epoch: dict[str, Any], count: int) -> bool:
    number = int(epoch["epoch"])
    return number <= 5 or number == count or number % max(1, count // 10) == 0


def _line(recipe: Recipe, epoch: dict[str, Any]) -> str:
    """Return an epoch as `--log steps` prints it, which is the published form."""
    loss = f"loss: {epoch['loss']:.4f} / {epoch['val_loss']:.4f}"
    accuracy = ""
    if recipe.score == "accuracy":
        both = f"{epoch['accuracy']:.4f} / {epoch['val_accuracy']:.4f}"
        accuracy = f"    accuracy: {both}"
    return f"{loss}{accuracy}    step {int(epoch['epoch'])}  {epoch['seconds']:.2f} sec"


def _steps(recipe: Recipe) -> list[str]:
    """Return the table of `docs/benchmarks.md` for a recipe, where there is one."""
    text = BENCHMARKS.read_text(encoding="utf-8")
    section = re.search(rf"^## {recipe.name}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    if section is None:
        return []
    table = re.findall(r"^\| .*", section[1], re.M)
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in table]
    rows = ["| " + " | ".join([row[0], row[1], row[3]]) + " |" for row in cells]
    day = re.search(r"Measured on ([\d-]+)", text)
    when = f", measured on {day[1]}" if day else ""
    return [
        "## A step beside the rivals",
        f"Milliseconds a training step on two cores{when}, and their ratio; "
        "[benchmarks](../benchmarks.md) says how.",
        "\n".join(rows),
    ]


def _summary(recipe: Recipe) -> str:
    variables.reset_names()  # layers are numbered from the start on every page
    with redirect_stdout(io.StringIO()) as printed:
        recipes.build(recipe).summary(line_length=76)
    return printed.getvalue().rstrip()


def _score(recipe: Recipe, value: float) -> str:
    return f"{value:.4f}" if recipe.score == "accuracy" else f"{value:.2f}"


# ---- pictures ------------------------------------------------------------------------


def _curve(recipe: Recipe, epochs: list[dict[str, Any]]) -> str:
    """Return the scores over the epochs, with the published ones as lines, as SVG."""
    values = [epoch[f"val_{recipe.score}"] for epoch in epochs]
    figures = [
        figure for figure in recipe.published if "one epoch" not in figure.system
    ]
    levels = [*values, *(figure.score for figure in figures)]
    low, high = min(levels), max(levels)
    room = (high - low) * 0.08 or 0.01
    low, high = low - room, high + room

    def across(epoch: int) -> float:
        span = max(1, len(values) - 1)
        return MARGIN + (WIDTH - 2 * MARGIN) * (epoch - 1) / span

    def down(value: float) -> float:
        return HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * (value - low) / (high - low)

    points = " ".join(f"{across(n):.1f},{down(v):.1f}" for n, v in enumerate(values, 1))
    right = WIDTH - MARGIN
    lines = [
        f'<line class="published" x1="{MARGIN}" x2="{right}" y1="{down(f.score):.1f}" '
        f'y2="{down(f.score):.1f}"><title>{f.system}: {_score(recipe, f.score)}</title>'
        "</line>"
        for f in figures
    ]
    marks = [
        f'<text x="2" y="{down(value) + 4:.1f}">{_score(recipe, value)}</text>'
        for value in (low + room, high - room)
    ]
    title = f"{recipe.name}: test {recipe.score} after each epoch; dashed: published"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            'role="img" font-family="sans-serif" font-size="12" fill="#777">',
            f"<title>{title}</title>",
            "<style>polyline{fill:none;stroke:#3f51b5;stroke-width:2}"
            ".published{stroke:#e08030;stroke-dasharray:6 4}"
            ".axis{stroke:#999}</style>",
            f'<text x="{MARGIN}" y="20">{title}</text>',
            f'<line class="axis" x1="{MARGIN}" x2="{right}" y1="{HEIGHT - MARGIN}" '
            f'y2="{HEIGHT - MARGIN}"/>',
            f'<text x="{MARGIN}" y="{HEIGHT - 22}">1</text>',
            f'<text x="{right}" y="{HEIGHT - 22}" text-anchor="end">'
            f"{len(values)} epochs</text>",
            *lines,
            *marks,
            f'<polyline points="{points}"/>',
            "</svg>",
            "",
        ]
    )


if __name__ == "__main__":
    for wanted in sys.argv[1:]:
        train(wanted)
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
