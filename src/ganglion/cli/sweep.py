"""`ganglion sweep`: a recipe, or a script's model, over settings, seeds and folds."""

from __future__ import annotations

import shlex
import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from ganglion import config
from ganglion import recipes as recipe_book
from ganglion.cli.console import INTERRUPTED, say
from ganglion.cli.options import Threads, completed, recipe_names

OUT = Path("results")


def sweep(
    context: typer.Context,
    experiment: Annotated[
        str,
        typer.Argument(
            metavar="RECIPE|SCRIPT.py",
            help="A recipe, or a script that defines `build(...)` and `data()`.",
            autocompletion=completed(recipe_names),
        ),
    ],
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE,...",
            help="What to vary, any number of times; of a recipe lr, momentum, "
            "batch-size and epochs, of a script the arguments of `build`.",
        ),
    ] = None,
    seeds: Annotated[str, typer.Option(help="Seeds and ranges: 0-99, or 1,5,7.")] = "0",
    folds: Annotated[
        int | None,
        typer.Option(help="Cross-validate on the training data instead.", min=2),
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="The experiment's own by default.", min=1)
    ] = None,
    threads: Threads = None,
    save: Annotated[
        Path | None,
        typer.Option(
            help="Keep the models in this file (.zip), each when it is finished; the "
            "same command goes on after Ctrl-C."
        ),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            metavar="ray|ray://HOST:PORT",
            help="Train on a Ray cluster: the one that this machine is a part of, or "
            "another one.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for results.json and report.html."),
    ] = None,
) -> None:
    """Train a model for every setting and seed, all at once, and report the spread.

    What follows `--` are arguments of the script.
    """
    from ganglion.many import sweep as sweeping
    from ganglion.many import sweep_report

    command = shlex.join(["ganglion", *sys.argv[1:]])  # a script has others
    chosen = sweeping.parse_seeds(seeds)
    if experiment.endswith(".py"):
        values = sweeping.parse_values(set_ or [])
        subject = sweeping.of_script(Path(experiment), context.args)
    elif context.args:
        raise ValueError(
            f"{' '.join(context.args)}: a recipe takes no arguments of its own; set its"
            " values by --set."
        )
    else:
        recipe = recipe_book.get(experiment)
        values = sweeping.recipe_values(recipe, set_ or [])
        subject = sweeping.of_recipe(recipe)
    if threads is not None:
        config.set_threads(threads)
    if out is not None:  # what is wrong with it is said before the training
        out.mkdir(parents=True, exist_ok=True)
    say(subject.remark)
    settings = sweeping.settings_of(subject, values, chosen, folds)
    count = epochs or subject.epochs
    models = "1 model" if len(settings) == 1 else f"{len(settings)} models"
    each = "1 epoch" if count == 1 else f"{count} epochs"
    say(f"{subject.name}: {models}, {each} each.")
    progress = None
    if sys.stderr.isatty():
        progress = sweep_report.LiveTable(subject.name, subject.score)
    results, is_whole = sweeping.run(
        subject,
        settings,
        epochs=epochs,
        threads=threads,
        save=save,
        on=on,
        progress=progress,
        command=command,
    )
    sweep_report.show(results)
    folder = out or OUT / f"sweep-{subject.name}-{datetime.now():%Y%m%d-%H%M%S}"
    results.save(folder)
    page = sweep_report.write(results, folder)
    if results.remark != subject.remark:
        say(results.remark.removeprefix(subject.remark).strip())
    say(f"{len(results.models)} models in {results.seconds:.1f} s.")
    say(f"Kept in {folder}: {sweeping.FILE} and {page}")
    if not is_whole:
        again = " The same command goes on with the others." if save else ""
        say(
            f"Stopped: {len(settings) - len(results.models)} models are missing.{again}"
        )
        raise typer.Exit(INTERRUPTED)
