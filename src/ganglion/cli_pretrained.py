"""`ganglion train --images FOLDER --pretrained`: a folder on top of ImageNet."""

from __future__ import annotations

import sys
import time
from typing import Any

import typer

EPOCHS = 100  # of the head, at most; each takes milliseconds


def train_folder(chosen: Any, fine_tune: int, more: list[Any]) -> bool:
    """Train a head, then the whole network if asked; return whether it came to its end.

    Args:
        chosen: What `ganglion train --images` was asked for.
        fine_tune: Epochs of the whole network, after the head's.
        more: Callbacks that print a line an epoch.
    """
    if chosen.resume is not None:
        raise typer.BadParameter(
            "--pretrained starts anew, which takes seconds: its features are kept. "
            "Leave --resume away."
        )
    held = _load(chosen)
    from ganglion import image_recipes, image_training
    from ganglion.applications import transfer

    _say(image_recipes.told_of_skipped(held))
    start = _start(held)
    image_training.remember(start.model, held, test=chosen.test)
    rows, columns = held.form.size
    _say(
        f"{held.folder}: {len(held.classes)} classes ({', '.join(held.classes)}); "
        f"{held.counts()}; {rows}×{columns}\n"
        f"EfficientNet-Lite0 of ImageNet, {start.model.count_params():,} parameters"
    )
    train, validation = _arrays(held.train), _arrays(held.validation)
    trained = False
    try:
        begun = time.perf_counter()
        _features(transfer, start, held, chosen)
        told = f"Features {_since(begun)} s"
        begun = time.perf_counter()
        done = transfer.train_head(
            start,
            train,
            validation,
            epochs=chosen.epochs or EPOCHS,
            batch_size=chosen.batch_size or transfer.BATCH,
            patience=transfer.PATIENCE,
            more_callbacks=more,
        )
        trained = True
        _say(f"{told}, {len(done.epoch)} epochs of the head {_since(begun)} s.")
        if fine_tune:
            begun = time.perf_counter()
            transfer.fine_tune(
                start,
                train,
                validation,
                epochs=fine_tune,
                batch_size=chosen.batch_size or transfer.BATCH,
                patience=transfer.PATIENCE,
                more_callbacks=more,
                verbose=1 if chosen.log == "keras" else 0,
            )
            _say(f"Fine-tuned for {_since(begun)} s.")
    except KeyboardInterrupt:
        _stopped(chosen, start.model, trained)
        return False
    _conclude(chosen, start, held, bool(fine_tune))
    return True


def _load(chosen: Any) -> Any:
    from ganglion import images
    from ganglion.applications.efficientnet_lite import SIZE
    from ganglion.cli_images import decoding, parse_size
    from ganglion.image_training import VALIDATION as SHARE
    from ganglion.images.finding import VALIDATION, find

    if chosen.color not in (None, "rgb"):
        raise typer.BadParameter("--pretrained sees colours: leave --color away.")
    share = chosen.validation
    if share is None:
        share = 0 if VALIDATION in find(chosen.folder).parts else SHARE
    with decoding() as watch:
        return images.load(
            chosen.folder,
            size=parse_size(chosen.size) or SIZE,
            test=chosen.test,
            validation=share,
            color="rgb",
            fit=chosen.fit,
            watch=watch,
        )


def _start(held: Any) -> Any:
    from ganglion.applications import transfer

    try:
        return transfer.start(len(held.classes), held.form.size)
    except ImportError as error:
        raise RuntimeError(str(error)) from None


def _features(transfer: Any, start: Any, held: Any, chosen: Any) -> None:
    """Compute the features of all images, or find those of the last time."""
    verbose = 1 if chosen.log == "keras" and sys.stderr.isatty() else 0
    for part in (held.train, held.validation, held.test):
        if part is not None:
            transfer.features(start, part.x, verbose=verbose)


def _arrays(part: Any) -> Any:
    return None if part is None else (part.x, part.y)


def _since(begun: float) -> str:
    return f"{time.perf_counter() - begun:.1f}"


def _stopped(chosen: Any, model: Any, trained: bool) -> None:
    if chosen.save is not None and trained:
        model.save(chosen.save)
        _say(f"\nStopped in fine-tuning. Saved {chosen.save} as it is now.")
        return
    _say("\nStopped; nothing was saved. What was computed of the features is kept.")


def _conclude(chosen: Any, start: Any, held: Any, fine_tuned: bool) -> None:
    from ganglion.applications import transfer

    told = []
    for name, part in (("Validation", held.validation), ("Test", held.test)):
        if part is None:
            continue
        if fine_tuned:
            given = {"batch_size": min(transfer.BATCH, len(part))}
            found = start.model.evaluate(part.x, part.y, verbose=0, **given)
        else:  # the features are there already
            x = transfer.features(start, part.x)
            found = start.head.evaluate(x, part.y, verbose=0)
        told.append(f"{name} accuracy {found[1]:.4f} ({len(part)} images)")
    _say(f"{', '.join(told)}.")
    if chosen.save is None:
        _say("The model was not saved; give --save FILE to keep it.")
        return
    start.model.save(chosen.save)
    _say(f"Saved {chosen.save}. Ask it with: ganglion predict {chosen.save} IMAGE …")


def _say(text: str) -> None:
    if text:
        print(text, file=sys.stderr, flush=True)
