"""The images of an epoch, changed at random: the same ones for every engine.

Ganglion changes them inside of its step, and its clock; everybody else is given the
results as an array, before the clock starts. They are computed from the same counters,
in a process of their own: neither its memory nor its time is the engine's.

Run as ``python -m ganglion.race.engines.augmented``: a request is JSON on its input.
"""

from __future__ import annotations

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
    """Where the images of a race are, and how a run changes them."""

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
        made = np.load(target, mmap_mode="c")
        target.unlink()  # what is mapped stays until nobody needs it
        return made


def parts(images: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Yield images in parts, and let go of each: memory is compared, too."""
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
    """Return the states of a model's random generators, one in a row."""
    found = [one.state.numpy() for one in model._seed_generators()]
    return np.array(found, "uint32").reshape(-1, 2)


def set_states(model: Any, states: np.ndarray) -> None:
    """Put the random generators back to where they were."""
    for one, state in zip(model._seed_generators(), states, strict=True):
        one.state.assign(state)


def changer(recipe: Recipe) -> Any:
    """Return a model that does nothing but change images as in training."""
    from ganglion import layers
    from ganglion.models import Model

    class Changer(Model):
        """The augmentation of a recipe and its scaling, always at work."""

        def __init__(self) -> None:
            super().__init__()
            kinds = (*recipe.augment, *_scaling(recipe))
            self.stack = [getattr(layers, kind)(**given) for kind, given in kinds]

        def call(self, inputs: Any, training: Any = None, mask: Any = None) -> Any:
            for layer in self.stack:
                inputs = layer(inputs, training=True)
            return inputs

    return Changer()


def _scaling(recipe: Recipe) -> tuple[Any, ...]:
    first = recipe.layers[0]
    return (first,) if first[0] == "Rescaling" else ()


def changed(
    recipe: Recipe, x: np.ndarray, states: np.ndarray, batch_size: int, epoch: int = 0
) -> np.ndarray:
    """Return images as an epoch (from 0) changes them, given in its order."""
    model = changer(recipe)
    set_states(model, states)
    steps = -(-len(x) // batch_size)
    if epoch:  # as many draws were made in each of the steps before
        model(x[:1])
        drawn = states_of(model) - states
        set_states(model, states + drawn * np.uint32(steps * epoch))
    whole = len(x) // batch_size * batch_size
    parts = [x[:whole], x[whole:]]
    made = [
        model.predict(part, batch_size=batch_size, verbose=0)
        for part in parts
        if len(part)
    ]
    return np.concatenate(made)


def main() -> None:
    """Compute the images of an epoch into a file."""
    given = json.load(sys.stdin)
    _choose_backend()
    config.set_floatx(given["dtype"])
    data, start = Path(given["data"]), Path(given["start"])
    x = np.load(data / "x.npy", mmap_mode="r")
    order = np.load(start / "orders.npy", mmap_mode="r")[given["epoch"] - 1]
    made = changed(
        recipes.from_data(given["recipe"]),
        x[order],
        np.load(start / STATES),
        given["batch_size"],
        given["epoch"] - 1,
    )
    placed = np.empty_like(made)
    placed[order] = made
    files.write_file(given["target"], lambda file: np.save(file, placed), durable=False)


def _choose_backend() -> None:
    import importlib.util

    there = importlib.util.find_spec("llvmlite") is not None
    config.set_backend("cpu" if there else "numpy")


if __name__ == "__main__":
    main()
