"""`ganglion bench`: a training step in Ganglion and in its rivals, side by side."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from ganglion import config
from ganglion import recipes as recipe_book
from ganglion.cli.console import INTERRUPTED, say
from ganglion.cli.options import (
    BatchSize,
    Threads,
    choice,
    completed,
    completed_list,
    engine_names,
    timed_names,
)
from ganglion.race.engines import RIVALS


def bench(
    recipes: Annotated[
        list[str] | None,
        typer.Argument(
            help="Which recipes, or rnn, lstm, gru2; the published ones by default. "
            "With --networks, which networks; all by default.",
            autocompletion=completed(timed_names),
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            help="Rivals, with commas between; all by default.",
            autocompletion=completed_list(engine_names),
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(help="Turns of each engine.", min=1)] = 7,
    batch_size: BatchSize = None,
    threads: Threads = None,
    device: Annotated[str, choice("cpu", "cuda", help="cpu or cuda.")] = "cpu",
    precision: Annotated[
        str | None,
        typer.Option(
            help="With --device cuda: tf32, bf16, float32; tf32,bf16.",
            autocompletion=completed_list(lambda: config.PRECISIONS),
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    write: Annotated[
        Path | None, typer.Option(help="Keep the tables in this page, too.")
    ] = None,
    networks: Annotated[
        bool,
        typer.Option(
            "--networks", help="Ordinary networks on noise: steps and predictions."
        ),
    ] = False,
    augment: Annotated[
        bool,
        typer.Option("--augment", help="What changing images at random costs."),
    ] = False,
) -> None:
    """Time a training step in Ganglion and in its rivals, side by side."""
    common: dict[str, Any] = {
        "rounds": rounds, "batch_size": batch_size, "threads": threads, "say": say,
    }  # fmt: skip
    if networks:
        if device != "cpu" or precision is not None or augment:
            raise typer.BadParameter(
                "--networks are measured on the CPU as they are: no --device, "
                "no --precision, no --augment."
            )
        results = _networks(recipes or [], against, json, write, common)
    elif augment:
        if device != "cpu" or precision is not None:
            raise typer.BadParameter(
                "--augment is measured on the CPU: no --device, no --precision."
            )
        if write is not None:
            raise typer.BadParameter("--augment has no page to --write; take --json.")
        results = _augment(recipes or [], against or ",".join(RIVALS), json, common)
    else:
        names = recipes or recipe_book.published()
        common |= {"device": device, "precision": precision}
        results = _steps(names, against, json, write, common)
    if any(result.interrupted for result in results):
        raise typer.Exit(INTERRUPTED)


def _steps(*arguments: Any) -> list[Any]:
    from ganglion.race.bench import report

    def show(done: list[Any]) -> None:
        report.print_table(done[-1])

    return _measured(report, show, *arguments)


def _networks(*arguments: Any) -> list[Any]:
    from ganglion.race.bench import networks

    def show(done: list[Any]) -> None:
        last = done[-1].recipe
        networks.print_table([result for result in done if result.recipe == last])

    return _measured(networks, show, *arguments)


def _measured(
    benchmark: Any,
    show: Callable[[list[Any]], None],
    names: list[str],
    against: str | None,
    json: bool,
    write: Path | None,
    common: dict[str, Any],
) -> list[Any]:
    """Run a benchmark; show and write each result as it comes, or print all as JSON."""
    from ganglion.race.bench import report

    def keep(done: list[Any]) -> None:
        if not json:
            show(done)
        if write is not None:
            benchmark.write(done, write, _command(write))

    results: list[Any] = benchmark.measure(names, against, each=keep, **common)
    if json:
        print(report.as_json(results))
    return results


def _command(page: Path) -> str:
    """Return the command that writes a page, as the page shows it."""
    command = " ".join(["ganglion", *sys.argv[1:]])
    return command.replace(str(page), f"docs/{page.name}")


def _augment(
    names: list[str], against: str, json: bool, common: dict[str, Any]
) -> list[Any]:
    from ganglion.race.bench import augment

    results = augment.measure(names, against, **common)
    if json:
        print(augment.as_json(results))
    else:
        for result in results:
            augment.print_table(result)
    return results
