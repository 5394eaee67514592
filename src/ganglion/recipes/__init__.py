"""The published experiments, as data.

A recipe says what to train on what and how; engines (ours and the rivals of the race)
read it, none has a copy.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from ganglion.config import closest
from ganglion.images import networks
from ganglion.recipes.building import build, custom_objects, loss_weights, network
from ganglion.recipes.classifiers import CAM, CNN, FOLDER, MLP, PERCEPTRON
from ganglion.recipes.generative import GPT, VAE
from ganglion.recipes.ordinary import NETWORKS
from ganglion.recipes.records import (
    INNER,
    NOISE,
    NOISE_AMOUNTS,
    LayerSpec,
    Published,
    Recipe,
)
from ganglion.recipes.sequences import BIRNN, LSTM, PROBES, RNN

__all__ = [
    "FOLDER",
    "NETWORKS",
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
    "still",
    "tuned",
]

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (PERCEPTRON, MLP, CNN, CAM, RNN, BIRNN, LSTM, VAE, GPT, FOLDER)
}
_KNOWN = RECIPES | {recipe.name: recipe for recipe in (*PROBES, *NETWORKS)}


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


def still(recipe: Recipe) -> Recipe:
    """Return a recipe whose network draws no random numbers.

    >>> get("deep").is_noisy, still(get("deep")).is_noisy
    (True, False)
    """
    return replace(recipe, layers=_stilled(recipe.layers))


def _stilled(layers: Iterable[LayerSpec]) -> tuple[LayerSpec, ...]:
    result = []
    for kind, arguments in layers:
        changed: dict[str, Any] = {
            name: _stilled(arguments[name]) for name in INNER if name in arguments
        }
        if kind in NOISE_AMOUNTS:
            changed[NOISE_AMOUNTS[kind][0]] = 0.0
        result.append((kind, arguments | changed))
    return tuple(result)


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
    """Return random numbers in the shapes of a recipe's data; no input is zero.

    >>> x, y = noise(get("mnist-mlp"), 5)
    >>> x.shape, y.shape
    ((5, 28, 28), (5,))
    """
    rng, shape = np.random.default_rng(seed), (rows, *recipe.input_shape)
    if recipe.takes_tokens:
        x = rng.integers(1, recipe.layers[0][1]["input_dim"], shape, "int32")
    elif recipe.takes_pixels:
        x = rng.integers(1, 256, shape, "uint8")
    else:
        x = 1 - rng.random(shape, "float32")
    if recipe.predicts_numbers:
        return x, rng.random((rows, recipe.classes), "float32")
    return prepared(
        recipe, x, rng.integers(0, recipe.classes, (rows, *recipe.target_shape))
    )


def prepared(recipe: Recipe, x: np.ndarray, y: np.ndarray) -> Arrays:
    """Return inputs and targets in the shapes that a recipe's network and loss take."""
    x = x.reshape(len(x), *recipe.input_shape)
    if recipe.reconstructs:
        is_scaled = not recipe.takes_pixels
        return x, x if is_scaled else x.reshape(len(x), -1) * np.float32(1 / 255)
    labels = y.reshape(len(x), *recipe.target_shape).astype("int32")
    if recipe.one_hot:
        return x, np.eye(recipe.classes, dtype="float32")[labels]
    return x, labels
