"""The same start for everyone: data, first weights, and the batches of each epoch.

The order of the rows is the one that Ganglion's own `fit` makes from its seed. It makes
it inside of its compiled step; everybody else is given it as an array, before the clock
starts. The same holds for images that are changed at random (`engines/augmented.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ganglion import random, recipes, utils
from ganglion.race.engines import augmented
from ganglion.recipes import Recipe


@dataclass(frozen=True)
class Start:
    """Where a run starts: a folder with weights and orders, and the order's seed."""

    folder: Path
    order_seed: int


def lay_out_data(recipe: Recipe, folder: Path) -> tuple[int, str]:
    """Write the data for the workers; return the number of rows and a remark."""
    (x, y), (x_test, y_test), remark = recipes.load(recipe)
    for name, array in {"x": x, "y": y, "x_test": x_test, "y_test": y_test}.items():
        np.save(folder / f"{name}.npy", array)
    return len(x), " ".join(filter(None, (remark, recipe.remark)))


def lay_out_start(
    recipe: Recipe, seed: int, epochs: int, rows: int, folder: Path
) -> Start:
    """Write first weights and orders, those of a model made after this seed."""
    utils.set_random_seed(seed)
    model = recipes.build(recipe)
    order_seed = int(model.training_state.order.array[0])
    folder.mkdir(parents=True, exist_ok=True)
    weights = {f"w{i}": one for i, one in enumerate(model.get_weights())}
    np.savez(folder / "weights.npz", **weights)
    if recipe.augment:
        np.save(folder / augmented.STATES, augmented.states_of(model))
    np.save(folder / "orders.npy", orders(recipe, order_seed, epochs, rows))
    return Start(folder, order_seed)


def orders(recipe: Recipe, order_seed: int, epochs: int, rows: int) -> np.ndarray:
    """Return the rows in the order of each epoch, an epoch a row.

    >>> orders(recipes.get("mnist-mlp"), 1, 2, 3).tolist()  # is not shuffled
    [[0, 1, 2], [0, 1, 2]]
    >>> orders(recipes.get("mnist-cnn"), 1, 1, 5).tolist() == [
    ...     random.shuffled(1, 0, 5).tolist()
    ... ]
    True
    """
    if not recipe.shuffle:
        return np.tile(np.arange(rows, dtype="int32"), (epochs, 1))
    made = [random.shuffled(order_seed, epoch, rows) for epoch in range(epochs)]
    return np.stack(made).astype("int32")
