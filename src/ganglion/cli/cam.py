"""`ganglion cam`: class activation maps of a model on images."""

from __future__ import annotations

import math
import sys
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer

from ganglion.cli.console import INTERRUPTED, say
from ganglion.cli.options import ModelFile, choice, completed, dataset_names
from ganglion.cli.predict import files_of
from ganglion.system import terminal

METHODS = ("cam", "grad-cam", "auto")
OUT = Path("class-activation-maps")


def cam(
    model: ModelFile,
    images: Annotated[
        list[Path] | None, typer.Argument(help="Image files, or folders of them.")
    ] = None,
    out: Annotated[Path, typer.Option(help="A new folder for the pictures.")] = OUT,
    data: Annotated[
        str | None,
        typer.Option(
            help="The test images of a data set: cifar10, mnist.",
            autocompletion=completed(dataset_names),
        ),
    ] = None,
    class_name: Annotated[
        str | None,
        typer.Option(
            "--class", help="Draw this class (name or number), not the predicted one."
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help="Only the first images.", min=1)
    ] = None,
    method: Annotated[
        str,
        choice(*METHODS, help="cam, grad-cam, or auto by the model's shape."),
    ] = "auto",
    layer: Annotated[
        str | None, typer.Option(help="For grad-cam: the layer to look at.")
    ] = None,
) -> None:
    """Draw class activation maps: a PNG an image, under its predicted class.

    Each class gets a sheet of pairs besides, image and heat map; red frames mark the
    images that were taken for another class.
    """
    if bool(images) == bool(data):
        raise typer.BadParameter("give image files, or a data set with --data.")
    from ganglion import saving
    from ganglion.explain import gallery
    from ganglion.images.networks import class_names

    gallery.free_folder(out)
    net = saving.load_model(model)
    try:
        chosen = _of_data(net, data, limit) if data else _of_files(net, images, limit)
    except ImportError as error:  # Pillow
        raise RuntimeError(str(error)) from None
    classes = class_names(net, max(int(net.output_shape[-1]), 2), data)
    try:
        written = gallery.write_gallery(
            net,
            chosen,
            out,
            classes,
            class_index=_number(class_name, classes),
            method=method,
            layer=layer,
            watch=_Bar(),
        )
    except KeyboardInterrupt:
        say("\nStopped; nothing was written.")
        raise typer.Exit(INTERRUPTED) from None
    _conclude(written, chosen, classes, out)


class _Bar:
    """Shows how many pictures are drawn, on a terminal."""

    def __init__(self) -> None:
        self._bar: Any = None

    def __call__(self, done: int, total: int) -> None:
        from ganglion.utils import Progbar

        if self._bar is None:
            self._bar = Progbar(
                total, verbose=1 if sys.stderr.isatty() else 0, unit_name="picture"
            )
        self._bar.update(done)


def _input_shape(net: Any) -> tuple[int, ...]:
    shape = net.input_shape
    if not isinstance(shape, tuple) or len(shape) != 4:
        raise ValueError(
            f"The model takes {shape}, not images of shape (height, width, channels)."
        )
    return shape[1:]


def _of_data(net: Any, data: str, limit: int | None) -> Any:
    import importlib

    from ganglion import datasets
    from ganglion.config import closest
    from ganglion.explain.gallery import Pictures

    if data not in datasets.NAMES:
        raise ValueError(f"Unknown data set {data!r}. {closest(data, datasets.NAMES)}")
    _, (x, y) = importlib.import_module(f"ganglion.datasets.{data}").load_data()
    x, labels = x[:limit], y.reshape(-1)[:limit].astype(int)
    x = x.reshape(*x.shape[:3], -1)
    if x.shape[1:] != _input_shape(net):
        raise ValueError(
            f"The images of {data} have the shape {x.shape[1:]}, but the model takes "
            f"{_input_shape(net)}."
        )
    width = len(str(len(x) - 1))
    return Pictures(x, [f"{row:0{width}}" for row in range(len(x))], labels)


def _of_files(net: Any, paths: list[Path] | None, limit: int | None) -> Any:
    from ganglion import images
    from ganglion.explain.gallery import Pictures
    from ganglion.images.cache import LARGEST_IN_MEMORY

    files = files_of(paths or [])[:limit]
    form = _form(net)
    # Many large ones stay on disk, in the cache; a few are not worth keeping.
    is_large = len(files) * math.prod(form.shape) > LARGEST_IN_MEMORY
    decoded = images.read_files(files, form, keep=is_large)
    for number, why in decoded.problems.items():
        say(f"Skipped {terminal.printable(files[number])}: {why}")
    if not len(decoded.readable):
        raise ValueError("None of the files is an image that can be read.")
    return Pictures(decoded.pixels, [files[number].stem for number in decoded.readable])


def _form(net: Any) -> Any:
    """Return how images become what the model takes: as noted, or by its input."""
    from ganglion.images import Form

    noted = net.notes.get("images")
    if noted:
        return Form.from_data(noted)
    height, width, channels = _input_shape(net)
    if channels not in (1, 3):
        raise ValueError(f"The model takes {channels} channels, not grey or colours.")
    size = (height or 224, width or 224)
    return Form(size, "rgb" if channels == 3 else "grayscale")


def _number(class_name: str | None, classes: list[str]) -> int | None:
    from ganglion.config import closest

    if class_name is None:
        return None
    for number, name in enumerate(classes):
        if class_name.lower() == name.lower():
            return number
    if class_name.isdecimal() and int(class_name) < len(classes):
        return int(class_name)
    raise ValueError(f"Unknown class {class_name!r}. {closest(class_name, classes)}")


def _conclude(written: Any, chosen: Any, classes: list[str], out: Path) -> None:
    predicted = written.predicted
    for number, count in sorted(Counter(predicted.tolist()).items()):
        line = f"{terminal.printable(classes[number]):<12} {count:>6} images"
        if chosen.labels is not None:
            right = int((chosen.labels[predicted == number] == number).sum())
            line += f", {right / count:>6.1%} right"
        print(line)
    say(
        f"{len(predicted)} pictures by {written.method} of the layer "
        f"{written.layer!r}, in {out}: a folder and a sheet for each class, "
        "and index.csv."
    )
