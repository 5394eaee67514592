"""The cost of random augmentation: steps with it and without, in turns.

Each engine runs twice, in processes of their own: on the images as they are, and with
the recipe's augmentation as a part of its step. Ganglion has it in the compiled step,
Keras as layers of the model, PyTorch as a grid and `grid_sample` on the whole batch.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ganglion import config, recipes
from ganglion.race import machine
from ganglion.race.bench import report, steps
from ganglion.race.bench.result import Entry, milliseconds
from ganglion.race.bench.steps import Bench, Running
from ganglion.race.engines import Engine, engine
from ganglion.recipes import Recipe

OWN = ("ganglion", "keras", "keras-jax", "keras-torch", "torch", "torch-optimized")
COLUMNS = ("engine", "plain, ms", "augmented, ms", "more, ms", "more")
Say = Callable[[str], None]


@dataclass
class Cost:
    """One engine, without and with augmentation, round by round."""

    engine: str
    plain: Entry
    changed: Entry

    @property
    def problem(self) -> str:
        """The reason why there are no times, "" if there are."""
        return self.plain.problem or self.changed.problem

    @property
    def share(self) -> float:
        """The part of a step that augmentation adds: the median over the rounds."""
        both = zip(self.changed.milliseconds, self.plain.milliseconds, strict=False)
        return statistics.median(more / less for more, less in both) - 1

    @property
    def milliseconds(self) -> float:
        """The milliseconds that it adds to a step."""
        return self.share * self.plain.median

    def cells(self) -> tuple[str, ...]:
        """Return a row of the table."""
        return (
            f"{self.engine}: {self.changed.form}",
            milliseconds(self.plain.median),
            milliseconds(self.changed.median),
            f"{self.milliseconds:.2f}",
            f"{self.share:.1%}",
        )


@dataclass
class Costs:
    """The measurements of a recipe."""

    recipe: str
    batch_size: int
    threads: int
    entries: list[Cost]
    skipped: list[str] = field(default_factory=list)
    busy: float = 0.0
    interrupted: bool = False

    @property
    def timed(self) -> list[Cost]:
        """The engines that have times, cheapest first."""
        timed = [cost for cost in self.entries if cost.changed.milliseconds]
        return sorted(timed, key=lambda cost: cost.milliseconds)

    def as_data(self) -> dict[str, Any]:
        """Return the figures as JSON can hold them."""
        rows = {
            cost.engine: {
                "form": cost.changed.form,
                "plain_milliseconds": cost.plain.milliseconds,
                "augmented_milliseconds": cost.changed.milliseconds,
                "share": cost.share,
            }
            for cost in self.timed
        }
        problems = {cost.engine: cost.problem for cost in self.entries if cost.problem}
        facts = {"recipe": self.recipe, "batch_size": self.batch_size}
        facts |= {"threads": self.threads, "machine": machine.facts()}
        return {**facts, "busy": self.busy, "engines": rows, "problems": problems}


def measure(
    names: list[str],
    against: str,
    *,
    rounds: int,
    batch_size: int | None = None,
    threads: int | None = None,
    say: Say = lambda text: None,
) -> list[Costs]:
    """Measure recipes that change their images; with no names, the published ones."""
    chosen = [recipes.get(name) for name in names or recipes.published()]
    augmented = [recipe for recipe in chosen if recipe.augment]
    if not augmented:
        raise ValueError(f"Nothing is augmented in {', '.join(names)}.")
    rivals = filter(None, map(str.strip, against.split(",")))
    engines = [engine(name) for name in dict.fromkeys(["ganglion", *rivals])]
    count = threads or config.threads()
    results: list[Costs] = []
    for recipe in augmented:
        say(f"{recipe.name}:")
        results.append(run(recipe, engines, rounds, count, batch_size, say))
        if results[-1].interrupted:
            break
    return results


def run(
    recipe: Recipe,
    engines: list[Engine],
    rounds: int,
    threads: int,
    batch_size: int | None,
    say: Say,
) -> Costs:
    """Measure a recipe; Ctrl-C returns the results so far."""
    size = batch_size or recipe.batch_size
    costs = Costs(recipe.name, size, threads, [], busy=steps.busy())
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        task = {"recipe": recipe.name, "folder": name, "batch_size": size}
        task["threads"] = threads
        try:
            steps.write_data(recipe, size, folder)
            pair = []
            for augment in (False, True):
                logs = folder / ("augmented" if augment else "plain")
                logs.mkdir()
                pair.append(
                    Bench(stack, task | {"augment": augment}, logs, threads, say)
                )
            ready = _prepare(costs, engines, pair)
            for number in range(rounds):
                say(f"round {number + 1} of {rounds}")
                ready = pair[0].take_turns(ready, number)
        except KeyboardInterrupt:
            costs.interrupted = True
    return costs


def _prepare(costs: Costs, engines: list[Engine], pair: list[Bench]) -> list[Running]:
    """Start each engine twice; an engine that cannot do both is not timed."""
    ready: list[Running] = []
    for rival in engines:
        if rival.name not in OWN:
            costs.skipped.append(rival.name)
            continue
        problem = rival.unavailable_reason() or ""
        entries = [Entry(rival.name, problem=problem) for _ in pair]
        costs.entries.append(Cost(rival.name, *entries))
        both = [
            running
            for bench, entry in zip(pair, entries, strict=True)
            for running in bench.prepare([rival], [entry])
        ]
        if len(both) == len(pair):
            ready += both
    return ready


def notes(costs: Costs) -> list[str]:
    """Return further notes."""
    texts = [
        f"{cost.engine}: {cost.problem.splitlines()[0]}"
        for cost in costs.entries
        if cost.problem
    ]
    if costs.skipped:
        texts.append(
            f"Not timed, because they have no augmentation of their own here: "
            f"{', '.join(costs.skipped)}."
        )
    if costs.busy > steps.QUIET:
        texts.append(f"{steps.busy_text(costs.busy)}: mistrust small differences.")
    if costs.interrupted:
        texts.append(steps.INTERRUPTED)
    return texts


def print_table(costs: Costs) -> None:
    """Print the costs as text."""
    kinds = ", ".join(kind for kind, _ in recipes.get(costs.recipe).augment)
    title = (
        f"{costs.recipe}: a step with {kinds} and without; batch "
        f"{costs.batch_size}, threads: {costs.threads}"
    )
    rows = [cost.cells() for cost in costs.timed]
    report.print_result(title, COLUMNS, rows, notes(costs))


def as_json(costs: list[Costs]) -> str:
    """Return everything that was measured."""
    return json.dumps([cost.as_data() for cost in costs], indent=2)
