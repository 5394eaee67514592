"""`ganglion export`: a model for places without Ganglion."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from ganglion.cli.console import say, working
from ganglion.cli.options import ModelFile, choice, completed

PAGE = "index.html"


def _format_names() -> list[str]:
    from ganglion.export import formats

    return formats.names()


def _target_names() -> list[str]:
    from ganglion.export.targets import MACHINES

    return ["native", *MACHINES]


def _list_formats(is_asked: bool) -> None:
    if is_asked:
        from ganglion.export import formats

        for row in formats.FORMATS:
            print(f"{row.name:12} {' '.join(row.suffixes):12} {row.description}")
        raise typer.Exit


@contextmanager
def _folder(path: Path | None) -> Iterator[None]:
    """Make a missing folder for this block; remove it if the block fails."""
    is_new = path is not None and not path.exists()
    if path is not None:
        path.mkdir(exist_ok=True)
    try:
        yield
    except BaseException:
        if path is not None and is_new:
            path.rmdir()
        raise


def _sizes(text: str) -> tuple[int | None, ...]:
    """Return the shape of an input, with an axis of rows before what was given.

    >>> _sizes("28x28x1")
    (None, 28, 28, 1)
    """
    parts = text.lower().replace("×", "x").split("x")
    if not all(part.isdigit() and int(part) for part in parts):
        raise typer.BadParameter(f"--shape {text}: give sizes such as 100x8.")
    return (None, *map(int, parts))


def export(
    model: ModelFile,
    out: Annotated[
        Path | None, typer.Argument(help="The file to write.", show_default=False)
    ] = None,
    format: Annotated[  # noqa: A002 (the option's name)
        str | None,
        typer.Option(
            help="What to write; by default the suffix of OUT says it.",
            autocompletion=completed(_format_names),
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            help="The machine to compile for: this one by default, or one of "
            "x86-64-avx2, x86-64-avx512, aarch64-linux, aarch64-macos, riscv64, "
            "cortex-m4, cortex-m7.",
            autocompletion=completed(_target_names),
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="What C calls the model; by default the name of OUT."),
    ] = None,
    weights: Annotated[
        str | None,
        choice("inside", "file", help="Weights inside, or in a file of their own."),
    ] = None,
    int8: Annotated[
        bool,
        typer.Option(
            "--int8",
            help="A byte a weight; needs --sample, and says what it changes.",
        ),
    ] = False,
    sample: Annotated[
        Path | None,
        typer.Option(help="With --int8: rows, as .npy, or .npz of x and y."),
    ] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SIZES",
            help="100x8: the shape of a row, where the model leaves sizes open; "
            "once for each input.",
        ),
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Write index.html there: a page to try the model in any browser.",
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
    from ganglion.layers import InputSpec

    if (out is None) == (page is None):
        raise typer.BadParameter("say what to write: OUT, or --page FOLDER.")
    if page is not None:
        format, out = "page", page / PAGE  # noqa: A001
    assert out is not None
    find(format, out)  # before the model is read: that takes longer
    shapes = [InputSpec(shape=_sizes(text)) for text in shape or ()]
    options = {
        "input_signature": shapes or None,
        "name": name,
        "weights": weights,
        "target": target,
        "int8": int8 or None,
        "sample": sample,
    }
    with working(f"exporting {model}"), _folder(page):
        exported = export_model(saving.load_model(model), out, format, **options)
    say(str(exported))
