"""`ganglion predict` and `ganglion evaluate`: what a model predicts for images."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ganglion.cli.console import decoding, say
from ganglion.cli.options import ModelFile, completed
from ganglion.system import terminal

FORMATS = ("table", "csv", "json")
SHOWN = 3  # classes a row of the table


def predict(
    model: ModelFile,
    images: Annotated[
        list[Path], typer.Argument(metavar="IMAGE…", help="Image files, or folders.")
    ],
    format: Annotated[  # noqa: A002 (the option's name)
        str,
        typer.Option(
            help="table, csv or json.", autocompletion=completed(lambda: FORMATS)
        ),
    ] = "table",
) -> None:
    """Print the class of images, and how sure the model is."""
    from ganglion import saving
    from ganglion.images import training

    _check_format(format)
    classifier = training.Classifier.of(saving.load_model(model), str(model))
    files = files_of(images)
    with decoding() as watch:
        decoded = classifier.read(files, keep=False, watch=watch)
    for number, why in decoded.problems.items():
        say(f"{terminal.printable(files[number])}: {why}")
    readable = [files[number] for number in decoded.readable]
    if readable:
        _print(
            format,
            readable,
            classifier.classes,
            classifier.probabilities(decoded.pixels),
        )
    elif format == "json":
        print("[]")
    if decoded.problems:
        count, total = len(decoded.problems), len(files)
        say(f"{count} of {total} files could not be read.")
        raise typer.Exit(1)


def _print(
    form: str, files: list[Path], classes: tuple[str, ...], probabilities: Any
) -> None:
    best = probabilities.argmax(axis=1)
    if form == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        names = [terminal.printable(name) for name in classes]
        writer.writerow(["file", "class", "probability", *names])
        for path, number, row in zip(files, best, probabilities, strict=True):
            each = [f"{number:.6f}" for number in row]
            writer.writerow(
                [terminal.printable(path), names[number], each[number], *each]
            )
    elif form == "json":
        rows = [
            {
                "file": str(path),
                "class": classes[number],
                "probability": float(row[number]),
                "probabilities": dict(zip(classes, map(float, row), strict=True)),
            }
            for path, number, row in zip(files, best, probabilities, strict=True)
        ]
        print(terminal.json_shown(json.dumps(rows, indent=1, ensure_ascii=False)))
    else:
        _print_table(files, classes, probabilities)


def _print_table(
    files: list[Path], classes: tuple[str, ...], probabilities: Any
) -> None:
    from rich.table import Table

    table = Table("image", "class")
    table.add_column("probability", justify="right")
    table.add_column("then")
    for path, row in zip(files, probabilities, strict=True):
        order = row.argsort()[::-1]
        then = ", ".join(f"{classes[i]} {row[i]:.3f}" for i in order[1:SHOWN])
        first = order[0]
        cells = (str(path), classes[first], f"{row[first]:.3f}", then)
        table.add_row(*(terminal.cell(terminal.printable(cell)) for cell in cells))
    terminal.show(table)


def evaluate(
    model: ModelFile,
    images: Annotated[
        Path, typer.Option(help="A folder with a folder a class, or train/ and test/.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Draw the confusion matrix as a PNG file, too.")
    ] = None,
    everything: Annotated[
        bool,
        typer.Option(
            "--all",
            help="All images, also those it was trained on; by default those held out, "
            "if it was trained on this folder, or test/.",
        ),
    ] = False,
    format: Annotated[  # noqa: A002 (the option's name)
        str,
        typer.Option(
            help="table or json.", autocompletion=completed(lambda: ("table", "json"))
        ),
    ] = "table",
) -> None:
    """Test a model on a folder: accuracy, precision and recall, confusion."""
    from ganglion import saving
    from ganglion.images import networks, scores, training

    _check_format(format, ("table", "json"))
    if out is not None and out.suffix.lower() != ".png":
        raise typer.BadParameter(f"--out {out}: the name must end in .png.")
    classifier = training.Classifier.of(saving.load_model(model), str(model))
    with decoding() as watch:
        part, which, skipped = classifier.images_to_test(images, everything, watch)
    say(networks.skipped_text(images, skipped))
    predicted = classifier.probabilities(part.x).argmax(axis=1)
    result = scores.Scores.of(part.y, predicted, classifier.classes)
    if format == "json":
        data = result.as_data() | {"tested": which, "unreadable": len(skipped)}
        print(terminal.json_shown(json.dumps(data, indent=1, ensure_ascii=False)))
    else:
        _show(result, which)
    if out is not None:
        scores.write_picture(result, out)
        say(f"Drew {out}.")


def _show(result: Any, which: str) -> None:
    from ganglion.images import scores

    console = terminal.console()
    console.print(
        terminal.lines(
            f"accuracy {result.accuracy:.4f} on {result.count:,} images ({which})"
        ),
        markup=False,
        highlight=False,
    )
    terminal.show(scores.class_table(result), console)
    if len(result.classes) <= scores.MOST_DRAWN:
        console.print(scores.confusion_table(result))
    else:
        say("Too many classes to draw here: --out FILE.png draws the confusion.")


def _check_format(name: str, known: tuple[str, ...] = FORMATS) -> None:
    if name not in known:
        raise typer.BadParameter(f"--format {name}: choose {', '.join(known)}.")


def files_of(paths: list[Path]) -> list[Path]:
    """Return files as they are, and the images below folders."""
    from ganglion.images.finding import images_in

    files: list[Path] = []
    for path in paths:
        below = images_in(path)[0] if path.is_dir() else [path]
        if not below:
            raise ValueError(f"{path} holds no images.")
        files += below
    return files
