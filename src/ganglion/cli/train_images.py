"""`ganglion train --images`: a network for your own folder of images.

With --pretrained it starts from ImageNet: a head is trained, then the last blocks.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer

from ganglion.cli import resume as repeating
from ganglion.cli.console import decoding, say
from ganglion.cli.options import parse_size
from ganglion.system import terminal

FEW_IMAGES = 600  # fewer to train on: a pretrained start is much better
HEAD_EPOCHS = 100  # at most; each takes milliseconds
# What --pretrained cannot follow, or has another meaning there.
NOT_PRETRAINED = ("resume", "epochs", "size", "color", "augment", "batch_size")


@dataclass(frozen=True)
class Choices:
    """The choices of `ganglion train --images`."""

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
    context: typer.Context  # with all arguments, to be repeated
    watch: Any  # a callback that shows pictures, None without viewers

    def load(self, **form: Any) -> Any:
        """Read the folder; some images find the best epoch, unless it has its own."""
        from ganglion import images
        from ganglion.images import networks
        from ganglion.images.finding import VALIDATION, find
        from ganglion.images.training import VALIDATION as SHARE

        share = self.validation
        if share is None:
            share = 0 if VALIDATION in find(self.folder).parts else SHARE
        form = {"fit": self.fit} | form
        with decoding() as watch:
            data = images.load(
                self.folder, test=self.test, validation=share, watch=watch, **form
            )
        say(networks.skipped_text(data.folder, data.skipped))
        return data

    def announce(self, data: Any, network: str, color: str = "") -> None:
        """Print which model is trained on which data."""
        rows, columns = data.form.size
        say(
            f"{data.folder}: {len(data.classes)} classes "
            f"({', '.join(map(terminal.printable, data.classes))}); "
            f"{data.counts()}; {rows}×{columns}{color}\n{network}"
        )

    def tell_where(self) -> None:
        """Print where the model is, and how to use it."""
        if self.save is None:
            say("The model was not saved; give --save FILE to keep it.")
        else:
            say(f"Saved {self.save}. Ask it with: ganglion predict {self.save} IMAGE …")


def train_folder(chosen: Choices, callbacks: list[Any]) -> bool:
    """Train on a folder of images; return whether it came to its end."""
    from ganglion.compiler import registry
    from ganglion.images import networks, training

    chosen, model, data = _prepared(chosen)
    size = chosen.batch_size or networks.batch_size(len(data.train))
    total = chosen.epochs or training.most_epochs(len(data.train), size)
    if chosen.log == "keras":
        model.summary()
    chosen.announce(
        data,
        f"{model.count_params():,} parameters, batch {size}, at most {total} epochs, "
        f"backend {registry.chosen_name()}",
        f" {data.form.color}",
    )
    if chosen.watch is not None:
        part = data.validation or data.train
        chosen.watch.batch_size = size
        chosen.watch.look_at(part.x, part.y)
    started = time.perf_counter()
    try:
        keeper = training.fit(
            model,
            data,
            epochs=total,
            batch_size=size,
            save=chosen.save,
            more=callbacks,
            verbose=1 if chosen.log == "keras" else 0,
        )
    except KeyboardInterrupt:
        _stopped(chosen, model, total)
        return False
    _conclude(chosen, model, data, keeper, time.perf_counter() - started)
    return True


def _prepared(chosen: Choices) -> tuple[Choices, Any, Any]:
    """Return the choices, with those of a resumed run, its model and the images."""
    from ganglion.images import training

    model = None
    if chosen.resume is not None:
        from ganglion import saving

        model = saving.load_model(chosen.resume)
        chosen = _with_saved_split(chosen, model)
    data = chosen.load(**_form(chosen, model))
    if model is None:
        model = training.new_model(data, chosen.augment)
    elif (known := model.notes.get("class_names")) != list(data.classes):
        raise ValueError(
            f"{chosen.resume} was trained on other classes than {data.folder} has: "
            f"{', '.join(map(terminal.printable, known or ['unnamed ones']))}."
        )
    training.remember(model, data, test=chosen.test, validation=chosen.validation)
    return chosen, model, data


def _form(chosen: Choices, model: Any) -> dict[str, Any]:
    """Return how images are read: as for the resumed model, or as requested."""
    if model is None:
        return {"size": parse_size(chosen.size), "color": chosen.color}
    from ganglion.images.training import Classifier

    form = Classifier.of(model, str(chosen.resume)).form
    return {"size": form.size, "color": form.color, "fit": form.fit}


def _with_saved_split(chosen: Choices, model: Any) -> Choices:
    """Return the choices with the split that a run was begun with.

    Another one would test on images that were trained on; another form or augmentation
    would be another network.
    """
    noted = model.notes.get("folder") or {}
    split = {name: noted[name] for name in ("test", "validation") if name in noted}
    for name, begun in split.items():
        if (
            repeating.set_by_user(chosen.context, name)
            and getattr(chosen, name) != begun
        ):
            how = "without it" if begun is None else f"with --{name} {begun:g}"
            raise typer.BadParameter(
                f"--{name} is for a new run: {chosen.resume} was begun {how}."
            )
    size = parse_size(chosen.size)
    options: dict[str, Any] = {
        "size": [size, size] if isinstance(size, int) else list(size or ()),
        "color": chosen.color,
        "fit": chosen.fit,
        "augment": chosen.augment,
    }
    augments = any(type(layer).__name__.startswith("Random") for layer in model.layers)
    begun_with = (model.notes.get("images") or {}) | {"augment": augments}
    for name, value in options.items():
        by_user = repeating.set_by_user(chosen.context, name)
        if by_user and begun_with.get(name, value) != value:
            raise typer.BadParameter(
                f"--{name} is for a new run: {chosen.resume} keeps what it was begun "
                "with."
            )
    return replace(chosen, **split)


def _stopped(chosen: Choices, model: Any, total: int) -> None:
    epoch = int(model.training_state.epoch.array) + 1
    say(f"\nStopped in epoch {min(epoch, total)} of at most {total}.")
    if chosen.save is None:
        say("Nothing was saved; give --save FILE to be able to resume.")
        return
    last = {"epochs": total, "resume": chosen.save, "save": chosen.save}
    again = repeating.command(chosen.context, last)
    say(f"{chosen.save} holds the best epoch. Go on with: {again}")


def _conclude(
    chosen: Choices, model: Any, data: Any, keeper: Any, seconds: float
) -> None:
    from ganglion.images import training

    when = f"epoch {keeper.epoch}" if keeper.epoch else "where it began"
    text = f"{seconds:.1f} s; the best is {when}"
    for name, part in (("validation", data.validation), ("test", data.test)):
        if part is not None:
            accuracy = training.evaluated(model, part)["accuracy"]
            text += f", {name} accuracy {accuracy:.4f} ({len(part)} images)"
    say(f"{text}.")
    chosen.tell_where()
    if len(data.train) < FEW_IMAGES:
        say(_suggestion(chosen, len(data.train)))


def _suggestion(chosen: Choices, images: int) -> str:
    """Return what does better with few images, and how to get it."""
    from ganglion.applications.efficientnet_lite import weights_file

    again = repeating.command(chosen.context, {"pretrained": True}, NOT_PRETRAINED)
    install = ""
    try:
        weights_file()
    except ImportError:
        install = 'pip install "ganglion-nn[pretrained]", then '
    return (
        f"{images} images are few to learn from; a network that has seen ImageNet does "
        f"better with them, in seconds: {install}{again}"
    )


# ---- --pretrained --------------------------------------------------------------------


def train_pretrained(chosen: Choices, fine_tune: int, callbacks: list[Any]) -> bool:
    """Train a head, then the last blocks; return whether it came to its end.

    Args:
        chosen: The choices of `ganglion train --images`.
        fine_tune: Epochs of the last blocks, after the head's.
        callbacks: What prints a line an epoch.
    """
    if chosen.resume is not None:
        raise typer.BadParameter(
            "--pretrained starts anew, which takes seconds: its features are kept. "
            "Leave --resume out."
        )
    if chosen.color not in (None, "rgb"):
        raise typer.BadParameter("--pretrained sees colours: leave --color out.")
    from ganglion.applications import transfer
    from ganglion.applications.efficientnet_lite import SIZE
    from ganglion.images import training

    data = chosen.load(size=parse_size(chosen.size) or SIZE, color="rgb")
    try:
        start = transfer.start(len(data.classes), data.form.size)
    except ImportError as error:
        raise RuntimeError(str(error)) from None
    training.remember(start.model, data, test=chosen.test)
    parameters = f"{start.model.count_params():,} parameters"
    chosen.announce(data, f"EfficientNet-Lite0 of ImageNet, {parameters}")
    try:
        _train_head(start, data, chosen, callbacks)
    except KeyboardInterrupt:
        say("\nStopped; nothing was saved. What was computed of the images is kept.")
        return False
    try:
        if fine_tune:
            _fine_tune(start, data, chosen, fine_tune, callbacks)
    except KeyboardInterrupt:
        if chosen.save is not None:
            start.model.save(chosen.save)
        where = f"Saved {chosen.save} as it is now" if chosen.save else "Nothing saved"
        say(f"\nStopped in fine-tuning. {where}.")
        return False
    _conclude_pretrained(start, data, chosen)
    return True


def _train_head(start: Any, data: Any, chosen: Choices, callbacks: list[Any]) -> None:
    from ganglion.applications import transfer

    begun = time.perf_counter()
    verbose = 1 if chosen.log == "keras" and sys.stderr.isatty() else 0
    for part in (data.train, data.validation, data.test):
        if part is not None:  # computed now, or kept from the last time
            transfer.features(start, part.x, verbose=verbose)
    features = time.perf_counter()
    done = transfer.train_head(
        start,
        _arrays(data.train),
        _arrays(data.validation),
        epochs=chosen.epochs or HEAD_EPOCHS,
        batch_size=chosen.batch_size or transfer.BATCH,
        patience=transfer.PATIENCE,
        callbacks=callbacks,
    )
    say(
        f"Features {features - begun:.1f} s, {len(done.epoch)} epochs of the head "
        f"{time.perf_counter() - features:.1f} s."
    )


def _fine_tune(
    start: Any, data: Any, chosen: Choices, epochs: int, callbacks: list[Any]
) -> None:
    from ganglion.applications import transfer

    begun = time.perf_counter()
    transfer.fine_tune(
        start,
        _arrays(data.train),
        _arrays(data.validation),
        epochs=epochs,
        batch_size=chosen.batch_size or transfer.BATCH,
        callbacks=callbacks,
        verbose=1 if chosen.log == "keras" else 0,
    )
    say(f"{epochs} epochs of the last blocks {time.perf_counter() - begun:.1f} s.")


def _arrays(part: Any) -> Any:
    return None if part is None else (part.x, part.y)


def _conclude_pretrained(start: Any, data: Any, chosen: Choices) -> None:
    from ganglion.applications import transfer

    texts = []
    for name, part in (("Validation", data.validation), ("Test", data.test)):
        if part is not None:  # their frozen features are stored already
            x = transfer.features(start, part.x)
            _, accuracy = start.head.evaluate(x, part.y, verbose=0)
            texts.append(f"{name} accuracy {accuracy:.4f} ({len(part)} images)")
    say(f"{'; '.join(texts)}.")
    if chosen.save is not None:
        start.model.save(chosen.save)
    chosen.tell_where()
