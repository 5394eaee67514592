"""The images of an epoch, augmented at random: the same ones for every engine.

Ganglion augments them inside its step, while it is timed; its rivals receive the
results as an array before their time is taken. They are computed from the same
counters, in a separate process, so that neither its memory nor its time counts.

Run as ``python -m ganglion.race.engines.augmented``: a request is JSON on its input.
"""

from __future__ import annotations

import importlib.util
import json
import mmap
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ganglion import config, files, recipes
from ganglion.recipes import Recipe

_PART = 4096  # images
STATES = "augment.npy"  # of the generators of a recipe's augmentation, at the start


@dataclass(frozen=True)
class Source:
    """The files of a race's images, and how a run augments them."""

    recipe: Recipe
    data: Path  # the folder of x.npy
    start: Path  # the folder of orders.npy and augment.npy
    batch_size: int
    dtype: str = "float32"

    def images(self, epoch: int) -> np.ndarray:
        """Return the images of an epoch (from 1), scaled, in the rows of x."""
        target = self.data / f"augmented-{os.getpid()}.npy"
        request = {
            "recipe": asdict(self.recipe),
            "data": str(self.data),
            "start": str(self.start),
            "batch_size": self.batch_size,
            "dtype": self.dtype,
            "epoch": epoch,
            "target": str(target),
        }
        program = [sys.executable, "-P", "-m", "ganglion.race.engines.augmented"]
        subprocess.run(program, input=json.dumps(request).encode(), check=True)
        images = np.load(target, mmap_mode="c")
        target.unlink()  # a mapping stays until its last user is gone
        return images


def parts(images: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield images in parts, and release each: memory is compared, too."""
    for at in range(0, len(images), _PART):
        rows = slice(at, at + _PART)
        yield rows, np.asarray(images[rows])
        mapped = getattr(images, "_mmap", None)
        if mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
            mapped.madvise(mmap.MADV_DONTNEED)


def save_weights(model: Any, folder: Path) -> None:
    """Write the weights that all engines start from."""
    weights = {f"w{i}": weight for i, weight in enumerate(model.get_weights())}
    np.savez(folder / "weights.npz", **weights)


def states_of(model: Any) -> np.ndarray:
    """Return the states of a model's random generators, in a row."""
    states = [generator.state.numpy() for generator in model._seed_generators]
    return np.array(states, "uint32").reshape(-1, 2)


def set_states(model: Any, states: np.ndarray) -> None:
    """Put the random generators back to where they were."""
    for generator, state in zip(model._seed_generators, states, strict=True):
        generator.state.assign(state)


def augmenter(recipe: Recipe) -> Any:
    """Return a model that only augments images, as in training."""
    from ganglion import layers
    from ganglion.models import Model

    scaling = recipe.layers[:1] if recipe.layers[0][0] == "Rescaling" else ()

    class Augmenter(Model):
        """The augmentation of a recipe and its scaling, always active."""

        def __init__(self) -> None:
            super().__init__()
            self.stack = [
                getattr(layers, kind)(**arguments)
                for kind, arguments in (*recipe.augment, *scaling)
            ]

        def call(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
            for layer in self.stack:
                inputs = layer(inputs, training=True)
            return inputs

    return Augmenter()


def augmented(
    recipe: Recipe, x: np.ndarray, states: np.ndarray, batch_size: int, epoch: int = 0
) -> np.ndarray:
    """Return images as an epoch (from 0) augments them, in the order of the epoch."""
    model = augmenter(recipe)
    set_states(model, states)
    steps = -(-len(x) // batch_size)
    if epoch:  # as many draws were made in each of the steps before
        model(x[:1])
        drawn = states_of(model) - states
        set_states(model, states + drawn * np.uint32(steps * epoch))
    rows = len(x) // batch_size * batch_size
    return np.concatenate(
        [
            model.predict(part, batch_size=batch_size, verbose=0)
            for part in (x[:rows], x[rows:])
            if len(part)
        ]
    )


def main() -> None:
    """Compute the images of an epoch into a file."""
    request = json.load(sys.stdin)
    has_compiler = importlib.util.find_spec("llvmlite") is not None
    config.set_backend("cpu" if has_compiler else "numpy")
    config.set_floatx(request["dtype"])
    data, start = Path(request["data"]), Path(request["start"])
    epoch = request["epoch"] - 1
    x = np.load(data / "x.npy", mmap_mode="r")
    order = np.load(start / "orders.npy", mmap_mode="r")[epoch]
    recipe, states = recipes.from_data(request["recipe"]), np.load(start / STATES)
    images = augmented(recipe, x[order], states, request["batch_size"], epoch)
    rows = np.empty_like(images)
    rows[order] = images
    files.write_file(request["target"], lambda file: np.save(file, rows), durable=False)


if __name__ == "__main__":
    main()
