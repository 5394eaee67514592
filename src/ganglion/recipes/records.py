"""The records of recipes, and layer specifications that several recipes share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

LayerSpec = tuple[str, dict[str, Any]]
PIXELS: LayerSpec = ("Rescaling", {"scale": 1 / 255})
NOISE = "noise"  # a data set of random numbers
INNER = ("layers", "shortcut")  # arguments of parts that are layers themselves


@dataclass(frozen=True)
class Published:
    """A published result of a recipe."""

    system: str
    score: float  # on the test set: accuracy, or loss where a recipe has none
    time: str


@dataclass(frozen=True)
class Recipe:
    """One experiment: the data, the network and the way it is trained.

    Layers are those of Keras by name, or parts of several of them (`building.PARTS`).
    """

    name: str
    title: str
    dataset: str
    input_shape: tuple[int, ...]
    layers: tuple[LayerSpec, ...]
    loss: str
    optimizer: tuple[str, dict[str, Any]]
    epochs: int
    parameters: int
    published: tuple[Published, ...]
    one_hot: bool = False
    reconstructs: bool = False  # the targets are the inputs, scaled
    shuffle: bool = True
    batch_size: int = 128
    classes: int = 10
    remark: str = ""
    metrics: tuple[str, ...] = field(default=("accuracy",))
    loss_weight: float = 1.0
    augment: tuple[LayerSpec, ...] = ()  # what happens to images in training only
    source: dict[str, Any] = field(default_factory=dict)  # of the data set "images"
    target_shape: tuple[int, ...] = ()  # of a row's labels, where it has many

    @property
    def score(self) -> str:
        """The score of a test: "accuracy", or "loss" where there is none."""
        return "accuracy" if "accuracy" in self.metrics else "loss"

    @property
    def takes_pixels(self) -> bool:
        """Whether the inputs are integers up to 255, scaled by the first layer."""
        return self.layers[0][0] == "Rescaling"

    @property
    def predicts_numbers(self) -> bool:
        """Whether the targets are numbers that are neither classes nor the inputs."""
        is_squared = self.loss == "mean_squared_error"
        return is_squared and not self.one_hot and not self.reconstructs

    @property
    def takes_tokens(self) -> bool:
        """Whether the inputs are integers that mean words or classes."""
        return self.layers[0][0] == "Embedding"

    @property
    def is_noisy(self) -> bool:
        """Whether the network draws random numbers: each engine has others."""
        return any(_draws(*spec) for spec in self.every_layer())

    def every_layer(self) -> Iterator[LayerSpec]:
        """Yield all layers, those of its parts as well."""
        return _every(self.layers)


# The argument by which a layer's random numbers grow, and its default.
NOISE_AMOUNTS = {"Sampling": ("stddev", 1.0), "Dropout": ("rate", 0.0)}


def _draws(kind: str, arguments: dict[str, Any]) -> bool:
    return kind in NOISE_AMOUNTS and bool(arguments.get(*NOISE_AMOUNTS[kind]))


def _every(layers: Iterable[LayerSpec]) -> Iterator[LayerSpec]:
    for kind, arguments in layers:
        yield kind, arguments
        for name in INNER:
            yield from _every(arguments.get(name, ()))


def dense(units: int, init: Any, activation: str | None = None) -> LayerSpec:
    """Return a dense layer."""
    arguments = {"units": units, "kernel_initializer": init, "activation": activation}
    return "Dense", arguments
