"""`ganglion train --images FOLDER --pretrained`: a folder on top of ImageNet."""

from __future__ import annotations

import sys
import time
from typing import Any

import typer

from ganglion.cli.images import load_folder, parse_size, say
from ganglion.system import terminal

EPOCHS = 100  # of the head, at most; each takes milliseconds


def train_folder(chosen: Any, fine_tune: int, more: list[Any]) -> bool:
    """Train a head, then the last blocks; return whether it came to its end.

    Args:
        chosen: What `ganglion train --images` was asked for.
        fine_tune: Epochs of the last blocks, after the head's.
        more: Callbacks that print a line an epoch.
    """
    if chosen.resume is not None:
        raise typer.BadParameter(
            "--pretrained starts anew, which takes seconds: its features are kept. "
            "Leave --resume away."
        )
    if chosen.color not in (None, "rgb"):
        raise typer.BadParameter("--pretrained sees colours: leave --color away.")
    from ganglion.applications.efficientnet_lite import SIZE
    from ganglion.images import networks, training

    held = load_folder(chosen, size=parse_size(chosen.size) or SIZE, color="rgb")
    say(networks.skipped_text(held.folder, held.skipped))
    start = _start(held)
    training.remember(start.model, held, test=chosen.test)
    rows, columns = held.form.size
    say(
        f"{held.folder}: {len(held.classes)} classes "
        f"({', '.join(map(terminal.shown, held.classes))}); "
        f"{held.counts()}; {rows}×{columns}\n"
        f"EfficientNet-Lite0 of ImageNet, {start.model.count_params():,} parameters"
    )
    try:
        _train_head(start, held, chosen, more)
    except KeyboardInterrupt:
        say("\nStopped; nothing was saved. What was computed of the images is kept.")
        return False
    try:
        if fine_tune:
            _fine_tune(start, held, chosen, fine_tune, more)
    except KeyboardInterrupt:
        if chosen.save is not None:
            start.model.save(chosen.save)
        where = f"Saved {chosen.save} as it is now" if chosen.save else "Nothing saved"
        say(f"\nStopped in fine-tuning. {where}.")
        return False
    _conclude(start, held, chosen)
    return True


def _train_head(start: Any, held: Any, chosen: Any, more: list[Any]) -> None:
    from ganglion.applications import transfer

    begun = time.perf_counter()
    verbose = 1 if chosen.log == "keras" and sys.stderr.isatty() else 0
    for part in (held.train, held.validation, held.test):
        if part is not None:  # computed now, or found from the last time
            transfer.features(start, part.x, verbose=verbose)
    told = f"Features {_since(begun)} s"
    begun = time.perf_counter()
    done = transfer.train_head(
        start,
        _arrays(held.train),
        _arrays(held.validation),
        epochs=chosen.epochs or EPOCHS,
        batch_size=chosen.batch_size or transfer.BATCH,
        patience=transfer.PATIENCE,
        callbacks=more,
    )
    say(f"{told}, {len(done.epoch)} epochs of the head {_since(begun)} s.")


def _fine_tune(
    start: Any, held: Any, chosen: Any, epochs: int, more: list[Any]
) -> None:
    from ganglion.applications import transfer

    begun = time.perf_counter()
    transfer.fine_tune(
        start,
        _arrays(held.train),
        _arrays(held.validation),
        epochs=epochs,
        batch_size=chosen.batch_size or transfer.BATCH,
        callbacks=more,
        verbose=1 if chosen.log == "keras" else 0,
    )
    say(f"{epochs} epochs of the last blocks {_since(begun)} s.")


def _start(held: Any) -> Any:
    from ganglion.applications import transfer

    try:
        return transfer.start(len(held.classes), held.form.size)
    except ImportError as error:
        raise RuntimeError(str(error)) from None


def _arrays(part: Any) -> Any:
    return None if part is None else (part.x, part.y)


def _since(begun: float) -> str:
    return f"{time.perf_counter() - begun:.1f}"


def _conclude(start: Any, held: Any, chosen: Any) -> None:
    from ganglion.applications import transfer

    told = []
    for name, part in (("Validation", held.validation), ("Test", held.test)):
        if part is not None:  # what the frozen part computed of them is there already
            x = transfer.features(start, part.x)
            _, accuracy = start.head.evaluate(x, part.y, verbose=0)
            told.append(f"{name} accuracy {accuracy:.4f} ({len(part)} images)")
    say(f"{'; '.join(told)}.")
    if chosen.save is None:
        say("The model was not saved; give --save FILE to keep it.")
        return
    start.model.save(chosen.save)
    say(f"Saved {chosen.save}. Ask it with: ganglion predict {chosen.save} IMAGE …")
