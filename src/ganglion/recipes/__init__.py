"""The published experiments, as data.

A recipe says what to train on what and how; engines (ours and the rivals of the race)
read it, none has a copy.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ganglion.config import closest
from ganglion.images import networks
from ganglion.recipes.building import build, custom_objects, loss_weights, network
from ganglion.recipes.classifiers import CAM, CNN, FOLDER, MLP, PERCEPTRON
from ganglion.recipes.generative import GPT, VAE
from ganglion.recipes.records import LayerSpec, Published, Recipe
from ganglion.recipes.sequences import BIRNN, LSTM, NOISE, PROBES, RNN

__all__ = [
    "FOLDER",
    "PROBES",
    "RECIPES",
    "LayerSpec",
    "Published",
    "Recipe",
    "build",
    "custom_objects",
    "from_data",
    "get",
    "load",
    "loss_weights",
    "network",
    "noise",
    "plain",
    "prepared",
    "published",
    "tuned",
]

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (PERCEPTRON, MLP, CNN, CAM, RNN, BIRNN, LSTM, VAE, GPT, FOLDER)
}
_KNOWN = RECIPES | {probe.name: probe for probe in PROBES}


def get(name: str) -> Recipe:
    """Return a recipe by name.

    >>> get("mnist-mlp").parameters
    669706
    """
    if name not in _KNOWN:
        raise ValueError(f"Unknown recipe {name!r}. {closest(name, _KNOWN)}")
    return _KNOWN[name]


def published() -> list[str]:
    """Return the names of the recipes with published results on data for everyone.

    >>> published()
    ['mnist-perceptron', 'mnist-mlp', 'mnist-cnn', 'cifar10-cam', 'mnist-rnn', \
'mnist-birnn', 'mnist-lstm', 'mnist-vae']
    """
    return [
        recipe.name
        for recipe in RECIPES.values()
        if recipe.published and recipe.dataset != networks.DATASET
    ]


def from_data(data: dict[str, Any]) -> Recipe:
    """Return a recipe that went through JSON, as `dataclasses.asdict` gave it.

    >>> import dataclasses, json
    >>> sent = json.dumps(dataclasses.asdict(get("mnist-mlp")))
    >>> from_data(json.loads(sent)) == get("mnist-mlp")
    True
    """
    published = tuple(Published(**row) for row in data["published"])
    fields = {key: _tuples(value) for key, value in data.items()}
    return Recipe(**fields | {"published": published})


def _tuples(value: Any) -> Any:
    """Return JSON's lists as tuples, except those inside objects."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


def tuned(recipe: Recipe, optimizer: dict[str, float]) -> Recipe:
    """Return a recipe with other numbers for its optimizer.

    >>> tuned(get("mnist-mlp"), {"learning_rate": 0.1}).optimizer
    ('SGD', {'learning_rate': 0.1})
    """
    kind, arguments = recipe.optimizer
    arguments = arguments | optimizer
    if not arguments.get("momentum"):  # nothing to look ahead along; PyTorch objects
        arguments.pop("nesterov", None)
    return replace(recipe, optimizer=(kind, arguments))


def plain(recipe: Recipe) -> Recipe:
    """Return a recipe that leaves its images as they are."""
    return replace(recipe, augment=())


Arrays = tuple[np.ndarray, np.ndarray]
NOISE_ROWS = 12_800


def load(recipe: Recipe) -> tuple[Arrays, Arrays, str | None]:
    """Return (x, y) for training, the same for testing, and a remark on the data.

    Where MNIST cannot be had, our own drawn digits take its place, and the remark says
    so; other data sets have no substitute.
    """
    import importlib

    from ganglion.datasets import DataUnavailable

    if recipe.dataset == networks.DATASET:
        return networks.arrays(recipe)
    if recipe.dataset == NOISE:
        return noise(recipe, NOISE_ROWS), noise(recipe, NOISE_ROWS // 10, 1), None
    remark = None
    try:
        source = importlib.import_module(f"ganglion.datasets.{recipe.dataset}")
        train, test = source.load_data()
    except DataUnavailable as error:
        if recipe.dataset != "mnist":
            raise
        from ganglion.datasets import glyphs

        remark = (
            "MNIST cannot be had here; training on glyphs, Ganglion's own drawn "
            "digits, instead: accuracies are not comparable. "
            f"({str(error).splitlines()[0]})"
        )
        train, test = glyphs.load_data()
    return prepared(recipe, *train), prepared(recipe, *test), remark


def noise(recipe: Recipe, rows: int, seed: int = 0) -> Arrays:
    """Return random numbers in the shapes of a recipe's data.

    >>> x, y = noise(get("mnist-mlp"), 5)
    >>> x.shape, y.shape
    ((5, 28, 28), (5,))
    """
    rng, shape = np.random.default_rng(seed), (rows, *recipe.input_shape)
    if recipe.takes_tokens:
        x = rng.integers(0, recipe.classes, shape, "int32")
        return prepared(recipe, x, np.roll(x, -1, axis=1))
    x = rng.integers(0, 256, shape, "uint8")
    return prepared(recipe, x, rng.integers(0, recipe.classes, rows))


def prepared(recipe: Recipe, x: np.ndarray, y: np.ndarray) -> Arrays:
    """Return inputs and targets in the shapes that a recipe's network and loss take."""
    x = x.reshape(len(x), *recipe.input_shape)
    if recipe.reconstructs:
        return x, x.reshape(len(x), -1) * np.float32(1 / 255)
    if recipe.takes_tokens:
        return x, y.astype("int32")
    labels = y.reshape(-1).astype("int32")
    if recipe.one_hot:
        return x, np.eye(recipe.classes, dtype="float32")[labels]
    return x, labels
