"""`ganglion export`: a model for places without Ganglion."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ganglion.cli.console import say, working
from ganglion.cli.options import ModelFile, completed


def _format_names() -> list[str]:
    from ganglion.export import formats

    return formats.names()


def _list_formats(is_asked: bool) -> None:
    if is_asked:
        from ganglion.export import formats

        for row in formats.FORMATS:
            print(f"{row.name:12} {' '.join(row.suffixes):12} {row.description}")
        raise typer.Exit


def export(
    model: ModelFile,
    out: Annotated[Path, typer.Argument(help="The file to write.")],
    format: Annotated[  # noqa: A002 (the option's name)
        str | None,
        typer.Option(
            help="What to write; by default the suffix of OUT says it.",
            autocompletion=completed(_format_names),
        ),
    ] = None,
    formats: Annotated[
        bool,
        typer.Option(
            "--formats",
            callback=_list_formats,
            is_eager=True,
            help="List the formats and exit.",
        ),
    ] = False,
) -> None:
    """Write a model in a format that runs without Ganglion."""
    from ganglion import saving
    from ganglion.export import export_model
    from ganglion.export.formats import find

    find(format, out)  # before the model is read: that takes longer
    with working(f"exporting {model}"):
        exported = export_model(saving.load_model(model), out, format)
    say(str(exported))
