"""`ganglion train --images`: a network for your own folder of images."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer

from ganglion.cli import resume as cli_again
from ganglion.system import terminal

FEW_IMAGES = 600  # fewer to train on: a pretrained start is much better
# What --pretrained cannot follow, or has another meaning there.
NOT_PRETRAINED = ("resume", "epochs", "size", "color", "augment", "batch_size")


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
    log: str
    save: Path | None
    resume: Path | None
    context: typer.Context  # with all that was given, to be repeated


def train_folder(chosen: Choices, more: list[Any]) -> bool:
    """Train on a folder of images; return whether it came to its end."""
    from ganglion.images import networks, training

    model = None
    if chosen.resume is not None:
        from ganglion import saving

        model = saving.load_model(chosen.resume)
        chosen = _as_begun(chosen, model)
    held = _load(chosen, model)
    say(networks.skipped_text(held.folder, held.skipped))
    if model is None:
        model = training.new_model(held, chosen.augment)
    elif (known := model.notes.get("class_names")) != list(held.classes):
        raise ValueError(
            f"{chosen.resume} tells other classes apart than {held.folder} has: "
            f"{', '.join(map(terminal.shown, known or ['unnamed ones']))}."
        )
    training.remember(model, held, test=chosen.test, validation=chosen.validation)
    size = chosen.batch_size or networks.batch_size(len(held.train))
    total = chosen.epochs or training.most_epochs(len(held.train), size)
    _announce(chosen, model, held, f"batch {size}, at most {total} epochs")
    started = time.perf_counter()
    try:
        keeper = training.fit(
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
    from ganglion.compiler import registry

    if chosen.log == "keras":
        model.summary()
    rows, columns = held.form.size
    say(
        f"{held.folder}: {len(held.classes)} classes "
        f"({', '.join(map(terminal.shown, held.classes))}); "
        f"{held.counts()}; {rows}×{columns} {held.form.color}\n"
        f"{model.count_params():,} parameters, {how}, backend {registry.shown()}"
    )


def _load(chosen: Choices, model: Any) -> Any:
    """Read the folder: as a model that goes on is used to, or as is asked for."""
    if model is None:
        return load_folder(chosen, size=parse_size(chosen.size), color=chosen.color)
    from ganglion.images.training import Classifier

    form = Classifier.of(model, str(chosen.resume)).form
    return load_folder(chosen, size=form.size, color=form.color, fit=form.fit)


def _as_begun(chosen: Choices, model: Any) -> Choices:
    """Return the choices with the split that a run was begun with.

    Another one would test on images that were trained on; another form or augmentation
    would be another network.
    """
    noted = model.notes.get("folder") or {}
    split = {name: noted[name] for name in ("test", "validation") if name in noted}
    for name, begun in split.items():
        if cli_again.given(chosen.context, name) and getattr(chosen, name) != begun:
            how = "without it" if begun is None else f"with --{name} {begun:g}"
            raise typer.BadParameter(
                f"--{name} is for a new run: {chosen.resume} was begun {how}."
            )
    size = parse_size(chosen.size)
    asked: dict[str, Any] = {
        "size": [size, size] if isinstance(size, int) else list(size or ()),
        "color": chosen.color,
        "fit": chosen.fit,
        "augment": chosen.augment,
    }
    begun_with = (model.notes.get("images") or {}) | {"augment": _augments(model)}
    for name, value in asked.items():
        is_given = cli_again.given(chosen.context, name)
        if is_given and begun_with.get(name, value) != value:
            raise typer.BadParameter(
                f"--{name} is for a new run: {chosen.resume} keeps what it was begun "
                "with."
            )
    return replace(chosen, **split)


def _augments(model: Any) -> bool:
    return any(type(layer).__name__.startswith("Random") for layer in model.layers)


def load_folder(chosen: Choices, **form: Any) -> Any:
    """Read the folder; some images find the best epoch, unless it has its own."""
    from ganglion import images
    from ganglion.images.finding import VALIDATION, find
    from ganglion.images.training import VALIDATION as SHARE

    share = chosen.validation
    if share is None:
        share = 0 if VALIDATION in find(chosen.folder).parts else SHARE
    how = {"fit": chosen.fit} | form
    with decoding() as watch:
        return images.load(
            chosen.folder, test=chosen.test, validation=share, watch=watch, **how
        )


def _stopped(chosen: Choices, model: Any, total: int) -> None:
    epoch = int(model.training_state.epoch.array) + 1
    say(f"\nStopped in epoch {min(epoch, total)} of at most {total}.")
    if chosen.save is None:
        say("Nothing was saved; give --save FILE to be able to resume.")
        return
    last = {"epochs": total, "resume": chosen.save, "save": chosen.save}
    again = cli_again.command(chosen.context, last)
    say(f"{chosen.save} holds the best epoch. Go on with: {again}")


def _conclude(
    chosen: Choices, model: Any, held: Any, keeper: Any, seconds: float
) -> None:
    from ganglion.images import training

    when = f"epoch {keeper.epoch}" if keeper.epoch else "where it began"
    told = f"{seconds:.1f} s; the best is {when}"
    for name, part in (("validation", held.validation), ("test", held.test)):
        if part is not None:
            found = training.evaluated(model, part)
            told += f", {name} accuracy {found['accuracy']:.4f} ({len(part)} images)"
    say(f"{told}.")
    if chosen.save is None:
        say("The model was not saved; give --save FILE to keep it.")
    else:
        say(f"Saved {chosen.save}. Ask it with: ganglion predict {chosen.save} IMAGE …")
    if len(held.train) < FEW_IMAGES:
        say(_suggestion(chosen, len(held.train)))


def _suggestion(chosen: Choices, images: int) -> str:
    """Say what does better with few images, and how to get it."""
    from ganglion.applications.efficientnet_lite import weights_file

    again = cli_again.command(chosen.context, {"pretrained": True}, NOT_PRETRAINED)
    install = ""
    try:
        weights_file()
    except ImportError:
        install = 'pip install "ganglion-nn[pretrained]", then '
    return (
        f"{images} images are few to learn from; a network that has seen ImageNet does "
        f"better with them, in seconds: {install}{again}"
    )


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


def files_of(given: list[Path]) -> list[Path]:
    """Return files as given, and the images below folders."""
    from ganglion.images.finding import images_in

    found: list[Path] = []
    for one in given:
        below = images_in(one)[0] if one.is_dir() else [one]
        if not below:
            raise ValueError(f"{one} holds no images.")
        found += below
    return found


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


def say(text: str) -> None:
    """Tell the user something that is not a result: results go to standard output."""
    if text:
        print(terminal.lines(text), file=sys.stderr, flush=True)
