"""`ganglion recipes`, `data`, `cache` and `info`: what there is, and where."""

from __future__ import annotations

from typing import Annotated

import typer

from ganglion import recipes as recipe_book
from ganglion.cli.console import say
from ganglion.cli.options import completed, dataset_names
from ganglion.system import terminal


def recipes() -> None:
    """List the published experiments."""
    from rich.table import Table

    table = Table("recipe", "model", "parameters", "training", "published")
    for recipe in recipe_book.RECIPES.values():
        kind, arguments = recipe.optimizer
        numbers = ", ".join(f"{key} {value}" for key, value in arguments.items())
        table.add_row(
            recipe.name,
            recipe.title,
            f"{recipe.parameters:,}",
            f"{recipe.loss}, {kind} ({numbers}), batch {recipe.batch_size}, "
            f"{recipe.epochs} epochs",
            "\n".join(
                f"{recipe.score} {figure.score:.4f} {figure.system}, {figure.time}"
                for figure in recipe.published
            ),
        )
    terminal.show(table)


def data(
    action: Annotated[
        str | None,
        typer.Argument(
            help="`fetch`, or nothing.", autocompletion=completed(lambda: ["fetch"])
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Argument(
            help="Which data set, or `all`.",
            autocompletion=completed(lambda: [*dataset_names(), "all"]),
        ),
    ] = None,
) -> None:
    """Show the data sets and where they are kept; fetch one."""
    from rich.table import Table

    from ganglion import datasets

    if action is not None:
        if action != "fetch" or name is None:
            raise typer.BadParameter("say `ganglion data fetch NAME`.")
        for fetched in datasets.NAMES if name == "all" else [name]:
            say(f"{fetched}: {datasets.fetch(fetched)}")
        return
    table = Table("data set", "what", "train", "test", "here")
    for known in datasets.info():
        here = "not yet" if known.size is None else f"{known.size / 1e6:.0f} MB"
        shapes = (str(known.train_shape), str(known.test_shape))
        table.add_row(known.name, known.title, *shapes, here)
    terminal.show(table)
    print(f"Kept in {datasets.info()[0].path.parent}; GANGLION_HOME moves it.")


def cache(
    action: Annotated[
        str | None,
        typer.Argument(
            help="`clear`, or nothing.", autocompletion=completed(lambda: ["clear"])
        ),
    ] = None,
) -> None:
    """Show where compiled programs are kept, and how many; clear them."""
    from ganglion.compiler import cache as programs

    if action not in (None, "clear"):
        raise typer.BadParameter(f"{action!r}; say `ganglion cache clear`.")
    contents = programs.contents()
    size = f"{contents.count} compiled programs, {contents.size / 1e6:.1f} MB"
    if action == "clear":
        programs.clear()
        say(f"Removed {size}, from {contents.folder}.")
        return
    print(f"{size} of at most {programs.LIMIT / 1e6:.0f} MB, in {contents.folder}")


def info() -> None:
    """Show versions, the processor, which backends work here, and what is kept."""
    from ganglion.race import machine

    for name, value in (machine.facts() | machine.kept()).items():
        print(terminal.lines(f"{name:<12} {value}"))
