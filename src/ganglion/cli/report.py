"""`ganglion report`: the page on a race, made again from what it measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

SEVERAL = "race-report.html"


def report(
    races: Annotated[
        list[Path], typer.Argument(metavar="DIR", help="Folders of races.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            help="Where the page goes; by default into the race's folder, or "
            f"{SEVERAL} here when there are several."
        ),
    ] = None,
) -> None:
    """Make the page on a race again, or compare several races on one page."""
    from ganglion.race import results
    from ganglion.race.report import html as page
    from ganglion.race.report import markdown

    loaded = [results.load(race) for race in races]
    if out is not None:
        if out.is_dir():
            out = out / page.FILE
    elif len(races) > 1:
        out = Path(SEVERAL)
    else:
        folder = races[0] if races[0].is_dir() else races[0].parent
        out = folder / page.FILE
        print(markdown.write(loaded[0], folder))
    print(page.write(loaded, out))
