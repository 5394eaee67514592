"""`ganglion train`: a published experiment, or a folder of your own images."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from ganglion import config
from ganglion import recipes as recipe_book
from ganglion.cli import resume as repeating
from ganglion.cli.console import INTERRUPTED, say
from ganglion.cli.options import (
    FITS,
    BatchSize,
    RecipeOrNone,
    Size,
    Threads,
    checked,
    choice,
    completed,
    seed_option,
    share_option,
)

LOGS = ("keras", "steps", "json")
COLORS = ("rgb", "grayscale")
FINE_TUNE = 5  # epochs
SAVE_SECONDS = 5.0  # saving more often than this would cost more than it protects


def train(
    context: typer.Context,
    recipe: RecipeOrNone = None,
    images: Annotated[
        Path | None,
        typer.Option(help="Your own folder: a folder a class, or train/ and test/."),
    ] = None,
    test: Annotated[
        float | None,
        share_option(
            "how many to hold out for the test, or their share; 0.2 by default."
        ),
    ] = None,
    validation: Annotated[
        float | None, share_option("the same, to find the best epoch; 0.15.")
    ] = None,
    size: Size = None,
    color: Annotated[
        str | None,
        choice(*COLORS, help="With --images: rgb or grayscale; by the images."),
    ] = None,
    fit: Annotated[
        str, choice(*FITS, help="With --images: crop, resize or pad to the size.")
    ] = "crop",
    augment: Annotated[
        bool,
        typer.Option(
            help="Change images at random in training: as the recipe does, or flip and "
            "shift those of --images."
        ),
    ] = True,
    pretrained: Annotated[
        bool,
        typer.Option(
            "--pretrained",
            help="With --images: start from EfficientNet-Lite0 of ImageNet; what its "
            "frozen part sees in each image is computed once.",
        ),
    ] = False,
    fine_tune: Annotated[
        int,
        typer.Option(
            help="With --pretrained: epochs of its last blocks, after those of the "
            "head; 0 leaves them frozen.",
            min=0,
        ),
    ] = FINE_TUNE,
    epochs: Annotated[
        int | None,
        typer.Option(help="Epochs in all; the recipe's own by default.", min=1),
    ] = None,
    batch_size: BatchSize = None,
    seed: Annotated[int, seed_option("Equal seeds give equal runs.")] = 0,
    backend: Annotated[
        str | None,
        typer.Option(
            help="Who computes; see `ganglion info`.",
            callback=checked(config.known_backend),
            autocompletion=completed(lambda: config.BACKENDS),
        ),
    ] = None,
    threads: Threads = None,
    log: Annotated[
        str,
        choice(*LOGS, help="keras: progress bar; steps: a line an epoch; json."),
    ] = "keras",
    save: Annotated[
        Path | None, typer.Option(help="Keep the model here (.keras), also on Ctrl-C.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Go on from a file that --save wrote.")
    ] = None,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch", help="Show it live in a page: curves, rates, heat maps."
        ),
    ] = False,
) -> None:
    """Train a published experiment, or a network for your own folder of images."""
    if save is not None:
        _check_target(save)
    if images is not None or recipe == recipe_book.FOLDER.name:
        if recipe is not None and images is not None:
            raise typer.BadParameter(f"a recipe ({recipe}) or --images, not both.")
        if not pretrained and fine_tune != FINE_TUNE:
            raise typer.BadParameter("--fine-tune goes with --pretrained.")
        options = {"validation": validation, "size": size, "color": color, "fit": fit,
                   "augment": augment, "epochs": epochs, "batch_size": batch_size,
                   "log": log, "save": save, "resume": resume,
                   "context": context,
                   "watch": _watch(context, "images") if watch else None}  # fmt: skip
        _choose(backend, threads, seed)
        _train_folder(images, test, options, fine_tune if pretrained else None)
        return
    if recipe is None:
        raise typer.BadParameter("say which recipe, or --images FOLDER.")
    of_images = {
        "--test": test is not None, "--validation": validation is not None,
        "--size": size is not None, "--color": color is not None,
        "--fit": fit != "crop", "--pretrained": pretrained,
        "--fine-tune": fine_tune != FINE_TUNE,
    }  # fmt: skip
    if any(of_images.values()):
        names = ", ".join(name for name, by_user in of_images.items() if by_user)
        raise typer.BadParameter(f"{names}: for --images FOLDER, not for a recipe.")
    chosen = recipe_book.get(recipe)
    _choose(backend, threads, seed)
    _train_recipe(
        context, chosen, epochs, batch_size, augment=augment, log=log, save=save,
        resume=resume, watches=watch,
    )  # fmt: skip


def _train_recipe(
    context: typer.Context,
    chosen: recipe_book.Recipe,
    epochs: int | None,
    batch_size: int | None,
    *,
    augment: bool,
    log: str,
    save: Path | None,
    resume: Path | None,
    watches: bool,
) -> None:
    """Train a recipe, or resume its training, and report the result."""
    model: Any = resume and _resumed(context, chosen, resume, augment)
    if not augment:
        if chosen.augment:
            say("Images are left as they are; the published run changes them.")
        chosen = recipe_book.plain(chosen)
    training, testing, remark = recipe_book.load(chosen)
    for line in (remark, chosen.remark):
        say(line or "")
    model = recipe_book.build(chosen) if model is None else model
    total = chosen.epochs if epochs is None else epochs
    first = int(model.training_state.epoch.array)
    _announce(chosen, model, total, batch_size, log)
    callbacks = _callbacks(log, save)
    if watches:
        callbacks.append(_watched(context, chosen, testing, batch_size))
    started = time.perf_counter()
    try:
        history = model.fit(
            *training,
            batch_size=batch_size or chosen.batch_size,
            epochs=total,
            initial_epoch=first,
            shuffle=chosen.shuffle,
            validation_data=testing,
            validation_batch_size=1000,
            callbacks=callbacks,
            verbose=1 if log == "keras" else 0,
        )
    except KeyboardInterrupt:
        _stopped(context, model, total, save)
        raise typer.Exit(INTERRUPTED) from None
    if save is not None:
        model.save(save)
        say(f"Saved {save}.")
    _conclude(chosen, history.history, time.perf_counter() - started)


def _train_folder(
    images: Path | None,
    test: float | None,
    options: dict[str, Any],
    fine_tune: int | None,
) -> None:
    """Train on a folder of images, the one of CIFAR-10 if there is none."""
    from ganglion.cli import train_images
    from ganglion.images import networks

    if images is None:
        images = networks.cifar_folder()
        test = recipe_book.FOLDER.source["test"] if test is None else test
    chosen = train_images.Choices(folder=images, test=test, **options)
    callbacks = _callbacks(chosen.log, None)
    if chosen.watch is not None:
        chosen.watch.name, chosen.watch.title = images.name, str(images)
        callbacks.append(chosen.watch)
    if fine_tune is None:
        done = train_images.train_folder(chosen, callbacks)
    else:
        done = train_images.train_pretrained(chosen, fine_tune, callbacks)
    if not done:
        raise typer.Exit(INTERRUPTED)


def _watch(context: typer.Context, name: str, title: str = "") -> Any:
    """Return a callback that shows the training in a page until the command ends."""
    from ganglion.serve.watch import Watch

    watch = Watch(name, title)
    context.call_on_close(watch.close)
    say(f"Watch it at {watch.address}")
    return watch


def _watched(
    context: typer.Context,
    recipe: recipe_book.Recipe,
    testing: Any,
    batch_size: int | None,
) -> Any:
    """Return the callback for a recipe, which looks at some of its test images."""
    watch = _watch(context, recipe.name, recipe.title)
    watch.batch_size = batch_size or recipe.batch_size
    x, y = testing[0], testing[1]
    if len(recipe.input_shape) >= 2 and recipe.score == "accuracy":
        watch.look_at(x, y.argmax(axis=-1) if recipe.one_hot else y)
    return watch


def _check_target(save: Path) -> None:
    """Refuse at once what would fail after hours of training."""
    if save.suffix != ".keras":
        raise typer.BadParameter(f"--save {save}: the name must end in .keras.")
    folder = save.absolute().parent
    if not folder.is_dir():
        raise typer.BadParameter(f"--save {save}: the folder {folder} does not exist.")


def _choose(backend: str | None, threads: int | None, seed: int) -> None:
    from ganglion import utils

    if backend is not None:
        config.set_backend(backend)
    if threads is not None:
        config.set_threads(threads)
    utils.set_random_seed(seed)


def _resumed(
    context: typer.Context, recipe: recipe_book.Recipe, resume: Path, augment: bool
) -> Any:
    """Return the model of a resumed run; refuse options that differ from its own."""
    from ganglion import saving

    wants_plain = bool(recipe.augment) and not augment
    if wants_plain and not resume.exists():
        raise _begun_otherwise(resume, "--no-augment")
    model = saving.load_model(resume, recipe_book.custom_objects())
    if model.name != recipe.name:
        raise ValueError(
            f"{resume} holds the model {model.name!r}, not {recipe.name!r}."
        )
    kinds = {type(layer).__name__ for layer in model.layers}
    is_plain = not any(kind in kinds for kind, _ in recipe.augment)
    if wants_plain and not is_plain:
        raise _begun_otherwise(resume, "--no-augment")
    if (
        is_plain
        and recipe.augment
        and augment
        and repeating.set_by_user(context, "augment")
    ):
        raise _begun_otherwise(resume, "--augment")
    return model


def _begun_otherwise(resume: Path, option: str) -> typer.BadParameter:
    return typer.BadParameter(
        f"{option} is for a new run: {resume} keeps what it was begun with."
    )


def _announce(
    recipe: recipe_book.Recipe, model: Any, total: int, batch: int | None, log: str
) -> None:
    from ganglion.compiler import registry

    if log == "keras":
        model.summary()
    first = int(model.training_state.epoch.array) + 1
    say(
        f"{recipe.name}: {recipe.title}; {model.count_params():,} parameters, batch "
        f"{batch or recipe.batch_size}, epochs {first} to {total}, "
        f"backend {registry.chosen_name()}"
    )


def _callbacks(log: str, save: Path | None) -> list[Any]:
    from ganglion.callbacks import EpochLogger
    from ganglion.progress import JsonLog, StepLog

    logs = {"steps": StepLog, "json": JsonLog}
    callbacks: list[Any] = [EpochLogger(logs[log]())] if log in logs else []
    return callbacks if save is None else [*callbacks, _keeper(save)]


def _keeper(save: Path) -> Any:
    """Return a callback that saves after an epoch, when some time has passed."""
    from ganglion import callbacks

    class Keeper(callbacks.Callback):
        saved = time.monotonic()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if time.monotonic() - self.saved > SAVE_SECONDS:
                self.model.save(save)
                self.saved = time.monotonic()

    return Keeper()


def _stopped(context: typer.Context, model: Any, total: int, save: Path | None) -> None:
    epoch = int(model.training_state.epoch.array) + 1
    say(f"\nStopped in epoch {min(epoch, total)} of {total}.")
    if save is None:
        say("Nothing was saved; give --save FILE to be able to resume.")
        return
    model.save(save)
    last = {"epochs": total, "resume": save, "save": save}
    say(f"Saved {save}. Go on with: {repeating.command(context, last)}")


def _conclude(
    recipe: recipe_book.Recipe, history: dict[str, list[float]], seconds: float
) -> None:
    tested = history.get(f"val_{recipe.score}")
    if not tested:
        say("Nothing left to train.")
        return
    published = ", ".join(
        f"{figure.score:.4f} {figure.system} ({figure.time})"
        for figure in recipe.published
    )
    text = f"Test {recipe.score} {tested[-1]:.4f} after {seconds:.1f} s."
    say(f"{text} Published: {published}." if published else text)
