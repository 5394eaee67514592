"""`ganglion train --images`, `predict` and `evaluate`: your own folder of images."""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

FORMATS = ("table", "csv", "json")
SHOWN = 3  # classes a row of the table


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command(
        epilog="Examples:  ganglion predict pets.keras cat.jpg  |  "
        "ganglion predict pets.keras holiday/ --format csv > found.csv"
    )(predict)
    app.command(
        epilog="Examples:  ganglion evaluate pets.keras --images photos  |  "
        "ganglion evaluate pets.keras --images photos --all --out confusion.png"
    )(evaluate)


@dataclass(frozen=True)
class Choices:
    """What `ganglion train --images` is asked for."""

    folder: Path
    test: float | None
    validation: float | None
    size: str | None
    color: str | None
    fit: str
    augment: bool
    epochs: int | None
    batch_size: int | None
    seed: int
    log: str
    save: Path | None
    resume: Path | None


def train_folder(chosen: Choices, more: list[Any]) -> bool:
    """Train on a folder of images; return whether it came to its end."""
    from ganglion import image_recipes, image_training

    model = None
    if chosen.resume is not None:
        from ganglion import saving

        model = saving.load_model(chosen.resume)
    held = _load(chosen, model)
    _say(image_recipes.told_of_skipped(held))
    if model is None:
        model = image_training.new_model(held, chosen.augment)
    elif model.notes.get("class_names") != list(held.classes):
        raise ValueError(
            f"{chosen.resume} tells other classes apart than {held.folder} has: "
            f"{', '.join(model.notes.get('class_names') or ['unnamed ones'])}."
        )
    image_training.remember(model, held, test=chosen.test)
    total = chosen.epochs or image_training.EPOCHS
    size = chosen.batch_size or image_recipes.batch_size(len(held.train))
    _announce(chosen, model, held, f"batch {size}, at most {total} epochs")
    started = time.perf_counter()
    try:
        keeper = image_training.fit(
            model,
            held,
            epochs=total,
            batch_size=size,
            save=chosen.save,
            more=more,
            verbose=1 if chosen.log == "keras" else 0,
        )
    except KeyboardInterrupt:
        _stopped(chosen, model, total)
        return False
    _conclude(chosen, model, held, keeper, time.perf_counter() - started)
    return True


def _announce(chosen: Choices, model: Any, held: Any, how: str) -> None:
    from ganglion.backends import choice

    if chosen.log == "keras":
        model.summary()
    rows, columns = held.form.size
    _say(
        f"{held.folder}: {len(held.classes)} classes ({', '.join(held.classes)}); "
        f"{held.counts()}; {rows}×{columns} {held.form.color}\n"
        f"{model.count_params():,} parameters, {how}, backend {choice.shown()}"
    )


def _load(chosen: Choices, model: Any) -> Any:
    """Read the folder: as a model that goes on is used to, or as is asked for."""
    from ganglion import images
    from ganglion.image_training import VALIDATION as SHARE
    from ganglion.image_training import Classifier
    from ganglion.images.finding import VALIDATION, find

    given: dict[str, Any] = {
        "size": parse_size(chosen.size),
        "color": chosen.color,
        "fit": chosen.fit,
    }
    share = chosen.validation
    if share is None:
        share = 0 if VALIDATION in find(chosen.folder).parts else SHARE
    if model is not None:
        form = Classifier.of(model, str(chosen.resume)).form
        given = {"size": form.size, "color": form.color, "fit": form.fit}
    with decoding() as watch:
        return images.load(
            chosen.folder,
            test=chosen.test,
            validation=share,
            watch=watch,
            **given,
        )


def _stopped(chosen: Choices, model: Any, total: int) -> None:
    epoch = int(model.training_state.epoch.array) + 1
    _say(f"\nStopped in epoch {min(epoch, total)} of at most {total}.")
    if chosen.save is None:
        _say("Nothing was saved; give --save FILE to be able to resume.")
        return
    if not _is_ours(chosen.save, model):  # before the end of the first epoch
        model.save(chosen.save)
    again = f"--images {chosen.folder} --resume {chosen.save} --save {chosen.save}"
    if chosen.test is not None:
        again += f" --test {chosen.test:g}"
    if chosen.validation is not None:
        again += f" --validation {chosen.validation:g}"
    if chosen.seed:
        again += f" --seed {chosen.seed}"
    _say(f"{chosen.save} holds the best epoch. Go on with: ganglion train {again}")


def _is_ours(path: Path, model: Any) -> bool:
    """Tell whether a file holds an epoch of this training."""
    from ganglion import saving

    if not path.exists() or not int(model.training_state.epoch.array):
        return False
    try:
        kept = saving.load_model(path)
    except ValueError:
        return False
    return bool(kept.notes == model.notes)


def _conclude(
    chosen: Choices, model: Any, held: Any, keeper: Any, seconds: float
) -> None:
    from ganglion import image_training

    if chosen.save is not None and keeper.epoch is None:
        model.save(chosen.save)  # no epoch was better than where it went on from
    when = f"epoch {keeper.epoch}" if keeper.epoch else "where it began"
    told = f"{seconds:.1f} s; the best is {when}"
    for name, part in (("validation", held.validation), ("test", held.test)):
        if part is not None:
            found = image_training.evaluated(model, part)
            told += f", {name} accuracy {found['accuracy']:.4f} ({len(part)} images)"
    _say(f"{told}.")
    if chosen.save is None:
        _say("The model was not saved; give --save FILE to keep it.")
    else:
        _say(
            f"Saved {chosen.save}. Ask it with: ganglion predict {chosen.save} IMAGE …"
        )


def predict(
    model: Annotated[Path, typer.Argument(help="A model file (.keras).")],
    images: Annotated[
        list[Path], typer.Argument(metavar="IMAGE…", help="Image files, or folders.")
    ],
    format: Annotated[  # noqa: A002 (the option's name)
        str, typer.Option(help="table, csv or json.")
    ] = "table",
) -> None:
    """Print the class of images, and how sure the model is."""
    from ganglion import image_training, saving

    _check_format(format)
    asked = image_training.Classifier.of(saving.load_model(model), str(model))
    files = _files(images)
    with decoding() as watch:
        decoded = asked.read(files, keep=False, watch=watch)
    for number, why in decoded.problems.items():
        _say(f"{files[number]}: {why}")
    kept = [files[number] for number in decoded.kept]
    if kept:
        _print(format, kept, asked.classes, asked.probabilities(decoded.pixels))
    elif format == "json":
        print("[]")
    if decoded.problems:
        count, total = len(decoded.problems), len(files)
        _say(f"{count} of {total} files could not be read.")
        raise typer.Exit(1)


def _files(given: list[Path]) -> list[Path]:
    """Return files as given, and the images below folders."""
    from ganglion.images.finding import images_in

    found: list[Path] = []
    for one in given:
        if one.is_dir():
            below = images_in(one)[0]
            if not below:
                raise ValueError(f"{one} holds no images.")
            found += below
        else:
            found.append(one)
    return found


def _print(form: str, files: list[Path], classes: tuple[str, ...], made: Any) -> None:
    best = made.argmax(axis=1)
    if form == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(["file", "class", "probability", *classes])
        for path, number, row in zip(files, best, made, strict=True):
            each = [f"{one:.6f}" for one in row]
            writer.writerow([path, classes[number], each[number], *each])
    elif form == "json":
        rows = [
            {
                "file": str(path),
                "class": classes[number],
                "probability": float(row[number]),
                "probabilities": dict(zip(classes, map(float, row), strict=True)),
            }
            for path, number, row in zip(files, best, made, strict=True)
        ]
        print(json.dumps(rows, indent=1, ensure_ascii=False))
    else:
        _print_table(files, classes, made)


def _print_table(files: list[Path], classes: tuple[str, ...], made: Any) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table("image", "class")
    table.add_column("probability", justify="right")
    table.add_column("then")
    for path, row in zip(files, made, strict=True):
        order = row.argsort()[::-1]
        then = ", ".join(f"{classes[i]} {row[i]:.3f}" for i in order[1:SHOWN])
        first = order[0]
        cells = (str(path), classes[first], f"{row[first]:.3f}", then)
        table.add_row(*map(Text, cells))
    _console().print(table)


def evaluate(
    model: Annotated[Path, typer.Argument(help="A model file (.keras).")],
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
        str, typer.Option(help="table or json.")
    ] = "table",
) -> None:
    """Test a model on a folder: accuracy, precision and recall, confusion."""
    from ganglion import image_recipes, image_training, saving
    from ganglion.images import scores

    _check_format(format, ("table", "json"))
    if out is not None and out.suffix.lower() != ".png":
        raise typer.BadParameter(f"--out {out}: the name must end in .png.")
    asked = image_training.Classifier.of(saving.load_model(model), str(model))
    with decoding() as watch:
        part, which, skipped = asked.images_to_test(images, everything, watch)
    _say(image_recipes.told_of(images, skipped))
    said = asked.probabilities(part.x).argmax(axis=1)
    found = scores.Scores.of(part.y, said, asked.classes)
    if format == "json":
        data = found.as_data() | {"tested": which, "unreadable": len(skipped)}
        print(json.dumps(data, indent=1, ensure_ascii=False))
    else:
        _show(found, which)
    if out is not None:
        scores.write_picture(found, out)
        _say(f"Drew {out}.")


def _show(found: Any, which: str) -> None:
    from ganglion.images import scores

    console = _console()
    console.print(
        f"accuracy {found.accuracy:.4f} on {found.count:,} images ({which})",
        markup=False,
        highlight=False,
    )
    console.print(scores.class_table(found))
    if len(found.classes) <= scores.MOST_DRAWN:
        console.print(scores.confusion_table(found))
    else:
        _say("Too many classes to draw here: --out FILE.png draws the confusion.")


def parse_size(text: str | None) -> int | tuple[int, int] | None:
    """Return a size of images from the command line.

    >>> parse_size("64"), parse_size("64x48"), parse_size(None)
    (64, (64, 48), None)
    """
    if text is None:
        return None
    parts = text.lower().replace("×", "x").split("x")
    if not all(one.isdigit() and int(one) for one in parts) or len(parts) > 2:
        raise typer.BadParameter(f"--size {text}: give 64, or 64x48 (rows, columns).")
    return int(parts[0]) if len(parts) == 1 else (int(parts[0]), int(parts[1]))


@contextmanager
def decoding() -> Iterator[Callable[[int, int], None] | None]:
    """Show how far decoding is, where somebody looks at a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("decoding images", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _check_format(given: str, known: tuple[str, ...] = FORMATS) -> None:
    if given not in known:
        raise typer.BadParameter(f"--format {given}: choose {', '.join(known)}.")


def _console() -> Any:
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 144)


def _say(text: str) -> None:
    """Tell the user something that is not a result: results go to standard output."""
    if text:
        print(text, file=sys.stderr, flush=True)
