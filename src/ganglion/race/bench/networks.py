"""Ordinary networks in Ganglion and its rivals: training steps and predictions.

All is timed on noise without zeros, so that nothing can be left out. Engines must agree
on the losses of the first steps, without dropout, and on what they predict from the
first weights, before a clock starts.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from ganglion import config, files, recipes
from ganglion.race.bench import report, steps
from ganglion.race.bench.result import Entry, Result, milliseconds
from ganglion.race.bench.steps import Bench, Comparison, Figure, Running
from ganglion.race.engines import RIVALS, Engine, engine, process
from ganglion.race.engines.augmented import save_weights
from ganglion.recipes import Recipe

MANY = (10_000, 5_000, 2_000, 1_000, 500, 200, 100)  # rows to predict: the most that go
MOST_BYTES = 2**27  # of the inputs
MOST_OPERATIONS = 1e11  # of the products in a prediction: a second or so
SIZES = (250, 1_000, 10_000)  # of batches in a prediction
MOST_ACTIVATIONS = 2**28  # bytes of the largest layer's outputs for such a batch
LOSSES = Comparison(steps.TOLERANCES["float32"])
OUTPUTS = Comparison(2e-3, 1e-5, "first output {0:.6g}")
Say = Callable[[str], None]


def names() -> list[str]:
    """Return the networks that are timed if none is named."""
    return [network.name for network in recipes.NETWORKS]


def measure(
    chosen: list[str],
    against: str | None,
    *,
    rounds: int,
    batch_size: int | None,
    threads: int | None,
    each: Callable[[list[Result]], None],
    say: Say,
) -> list[Result]:
    """Measure networks against rivals, both by name; `each` gets the results so far."""
    networks = [recipes.get(name) for name in chosen or names()]
    rivals = RIVALS if against is None else map(str.strip, against.split(","))
    engines = [engine(name) for name in dict.fromkeys(["ganglion", *rivals]) if name]
    done: list[Result] = []
    for network in networks:
        say(f"{network.name}:")
        done += run(
            network,
            engines,
            rounds=rounds,
            threads=threads or config.threads(),
            batch_size=batch_size,
            say=lambda text: say(f"  {text}"),
        )
        each(done)
        if done[-1].interrupted:
            break
    return done


def run(
    recipe: Recipe,
    engines: list[Engine],
    *,
    rounds: int,
    threads: int,
    batch_size: int | None = None,
    say: Say = lambda text: None,
) -> list[Result]:
    """Measure a network; Ctrl-C returns the results so far."""
    recipe, size = recipes.plain(recipe), batch_size or recipe.batch_size
    entries = [
        Entry(each.name, problem=each.unavailable_reason() or "") for each in engines
    ]
    results = [Result(recipe.name, size, threads, entries, 0.0, {}, steps.busy())]
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        task = {"recipe": asdict(recipe), "folder": name, "batch_size": size}
        try:
            results[0].operations, figures = _write_data(recipe, size, folder)
            bench = Bench(stack, task | {"threads": threads}, folder, threads, say)
            bench.ready = {}
            bench.still = asdict(recipes.still(recipe)) if recipe.is_noisy else None
            running = bench.prepare(engines, entries)
            running = steps.agreeing(running, recipe.parameters, LOSSES)
            _take_rounds(bench, running, rounds, say)
            for figure in figures:
                say(figure.name)
                results.append(replace(results[0], figure=figure.name, entries=[]))
                bench.figure = figure
                running = _predicting(bench, running, results[-1])
                running = steps.agreeing(running, recipe.parameters, OUTPUTS)
                _take_rounds(bench, running, rounds, say)
        except KeyboardInterrupt:
            results[-1].interrupted = True
    return results


def _take_rounds(bench: Bench, running: list[Running], rounds: int, say: Say) -> None:
    for number in range(rounds):
        say(f"round {number + 1} of {rounds}")
        running = bench.take_turns(running, number)


def _predicting(bench: Bench, trained: list[Running], result: Result) -> list[Running]:
    """Return the engines that agree, each in the form that predicts fastest."""
    assert bench.ready is not None
    running = []
    for before in trained:
        name = before.entry.engine
        entry = Entry(name, version=before.entry.version)
        result.entries.append(entry)
        forms = [
            Running(replace(entry, form=form.entry.form), form.process, form.parameters)
            for form in bench.ready[name]
            if not form.entry.problem
        ]
        for form in forms:
            form.entry.tried = entry.tried
            form.entry.losses = [0.0]  # none are taken
        ready = [form for form in forms if bench.warms_up(form, process.LIMIT)]
        fastest = bench.choose(ready, entry)
        if fastest is not None:
            entry.losses = bench.figure.ask(fastest.process, 1)["outputs"]
            running.append(fastest)
    return running


# ---- data ----------------------------------------------------------------------------


def _write_data(recipe: Recipe, size: int, folder: Path) -> tuple[float, list[Figure]]:
    """Write noise and weights for the workers; return operations and predictions."""
    from ganglion import utils

    utils.set_random_seed(0)
    model = recipes.build(recipe)
    row = recipes.noise(recipe, 1)[0].nbytes
    rows = max(min(steps.ROWS, MOST_BYTES // 2 // row) // size, 1) * size
    x, y = recipes.noise(recipe, rows)
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", y)
    save_weights(model, folder)
    return steps.operations(model, size), list(_predictions(model, row))


def _predictions(model: Any, row: int) -> Iterator[Figure]:
    """Yield the batches to predict: a single row, and as many rows as fit."""
    yield Figure("predict 1 row", 1, (1,))
    forward = 2.0 * sum(steps.products(model))
    rows = next(
        (
            count
            for count in MANY
            if count * row <= MOST_BYTES and count * forward <= MOST_OPERATIONS
        ),
        MANY[-1],
    )
    outputs = (np.prod(layer.output.shape[1:]) for layer in model.layers)
    largest = 4 * int(max(outputs))
    fitting = [
        size for size in SIZES if size < rows and size * largest <= MOST_ACTIVATIONS
    ]
    if rows * largest <= MOST_ACTIVATIONS:
        fitting.append(rows)
    yield Figure(f"predict {rows:,} rows", rows, tuple(fitting) or (min(100, rows),))


# ---- tables and pages ----------------------------------------------------------------

COLUMNS = ("network", "figure", "Ganglion, ms", "best rival, ms", "rival", "ratio")


def summary(results: list[Result]) -> list[list[str]]:
    """Return the rows of the table: a network's figures and those of the best rival."""
    rows = []
    for result in results:
        ours, best = result.ours, result.best_rival
        if ours is None or best is None:
            continue
        times = [milliseconds(entry.median) for entry in (ours, best)]
        rival, ratio = f"{best.engine}: {best.form}", result.ratio(best, ours)
        rows.append([result.recipe, result.figure, *times, rival, f"{ratio:.2f}"])
    return rows


def print_table(results: list[Result]) -> None:
    """Print the results of a network, and notes."""
    texts = [note for result in results for note in _notes(result)]
    title = report.title(results[0])
    report.print_result(title, COLUMNS, summary(results), dict.fromkeys(texts))


def _notes(result: Result) -> list[str]:
    texts = [
        f"{result.recipe}, {result.figure}: {entry.engine}: {entry.problem}"
        for entry in result.entries
        if entry.problem
    ]
    if result.busy > steps.QUIET:
        texts.append(
            f"{result.recipe}: {steps.busy_text(result.busy)}; mistrust small ratios."
        )
    return [*texts, *([steps.INTERRUPTED] if result.interrupted else [])]


def write(results: list[Result], path: Path, command: str) -> None:
    """Write the page."""
    about = report.about("about_networks.md").format(command=command)
    lines = [about, report.conditions(results), *_table(COLUMNS, summary(results)), ""]
    for network in dict.fromkeys(result.recipe for result in results):
        lines += _section([result for result in results if result.recipe == network])
    files.write_file(path, "\n".join(lines).encode())


def _section(results: list[Result]) -> Iterator[str]:
    """Yield the lines of a network: every engine, and each of its forms."""
    first = results[0]
    recipe = recipes.get(first.recipe)
    yield f"## {first.recipe}"
    yield ""
    yield f"{recipe.title}; batch {first.batch_size}, threads: {first.threads}."
    yield ""
    figures = [result.figure for result in results]
    by_engine: dict[str, list[str]] = {}
    for result in results:
        for entry in result.timed:
            cells = by_engine.setdefault(entry.engine, [])
            cells += [""] * (figures.index(result.figure) - len(cells))
            cells.append(_cell(result, entry))
    rows = [[name, *cells] for name, cells in by_engine.items()]
    yield from _table(("engine", *figures), rows)
    for note in dict.fromkeys(note for result in results for note in _notes(result)):
        yield ""
        yield f"- {note.splitlines()[0]}"
    yield ""


def _cell(result: Result, entry: Entry) -> str:
    """Return an engine's time and form, and how many times Ganglion's that is."""
    text = f"{milliseconds(entry.median)} ms ({entry.form})"
    if result.ours is None or entry is result.ours:
        return text
    return f"{text}, {result.ratio(entry, result.ours):.2f}"


def _table(head: tuple[str, ...], rows: list[list[str]]) -> list[str]:
    table = [list(head), ["---"] * len(head), *rows]
    return ["| " + " | ".join(row) + " |" for row in table]
