"""Ganglion and its rivals: one short file an engine, all reading the same recipe.

Each file has one function::

    prepare(task: Task, form: str) -> Trainer

and each trainer three methods: `run` trains, `loss` and `weights` say what came out.
Every engine is meant to run in a process of its own (see `worker`).
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ganglion.config import closest
from ganglion.recipes import LayerSpec, Recipe


@dataclass(frozen=True)
class Task:
    """What every engine is given: a recipe, where to start, and the same batches."""

    recipe: Recipe
    weights: list[np.ndarray]  # in the order of Keras' `get_weights`
    x: np.ndarray  # images as they come, whole numbers from 0 to 255
    y: np.ndarray
    batch_size: int
    threads: int

    @property
    def batches(self) -> int:
        """How many batches the rows are; there is no smaller last one."""
        return len(self.x) // self.batch_size


class Trainer(Protocol):
    """A model at work in one engine."""

    def run(self, steps: int) -> float:
        """Train for some steps; return how many seconds they took.

        The steps go through the batches in order, from the first one, and around.
        """
        ...

    def loss(self) -> float:
        """Return the mean loss over the steps of the last `run`."""
        ...

    def weights(self) -> list[np.ndarray]:
        """Return the weights as they are now, in the order of the task's."""
        ...


@dataclass(frozen=True)
class Engine:
    """One way to train: its file here, what it needs, and the forms it can take.

    Where an engine has several forms, each is tried and the fastest one is timed. The
    first is one that is ready soon: XLA can take minutes over a loop of convolutions.
    """

    name: str
    module: str
    packages: tuple[str, ...]
    forms: tuple[str, ...]
    install: str = ""

    def missing(self) -> str | None:
        """Say why this engine cannot run here and how to get it, None if it can."""
        for package in self.packages:
            if importlib.util.find_spec(package) is None:
                return f"{package} is not installed: {self.install}"
        return None


_ROOM = "ganglion.rivals"
ENGINES: dict[str, Engine] = {
    one.name: one
    for one in (
        Engine("ganglion", f"{_ROOM}.ganglion", ("llvmlite",), ("fit",)),
        Engine(
            "keras",
            f"{_ROOM}.keras",
            ("keras", "tensorflow"),
            ("graph", "XLA"),
            "pip install keras tensorflow-cpu",
        ),
        Engine(
            "tensorflow",
            f"{_ROOM}.tensorflow",
            ("tensorflow",),
            ("loop", "loop of XLA steps", "XLA loop"),
            "pip install tensorflow-cpu",
        ),
        Engine("torch", f"{_ROOM}.torch", ("torch",), ("eager",), "pip install torch"),
        Engine(
            "torch-optimized",
            f"{_ROOM}.torch_optimized",
            ("torch",),
            ("eager", "compiled"),
            "pip install torch",
        ),
        Engine(
            "jax", f"{_ROOM}.jax", ("jax",), ("jitted step", "scan"), "pip install jax"
        ),
    )
}
RIVALS = tuple(name for name in ENGINES if name != "ganglion")


def engine(name: str) -> Engine:
    """Return an engine by name.

    >>> engine("jax").forms
    ('jitted step', 'scan')
    """
    if name not in ENGINES:
        raise ValueError(f"Unknown engine {name!r}. {closest(name, ENGINES)}")
    return ENGINES[name]


def scaled(task: Task) -> tuple[tuple[LayerSpec, ...], np.ndarray]:
    """Return the layers after the scaling of pixels, and the images scaled.

    Rivals get their pixels ready as floats before the clock starts; Ganglion does not.
    """
    layers, x = task.recipe.layers, task.x.astype("float32")
    if layers[0][0] == "Rescaling":
        given = layers[0][1]
        x = x * np.float32(given["scale"]) + np.float32(given.get("offset", 0.0))
        layers = layers[1:]
    return layers, x


def up_to_logits(
    recipe: Recipe, layers: tuple[LayerSpec, ...]
) -> tuple[LayerSpec, ...]:
    """Leave the final softmax to the loss, where the rivals' fast functions want it."""
    if "crossentropy" not in recipe.loss:
        return layers
    kind, given = layers[-1]
    if given.get("activation") != "softmax":
        raise untranslated("a cross-entropy", f"without softmax before it ({kind})")
    if kind == "Activation":
        return layers[:-1]
    return (*layers[:-1], (kind, given | {"activation": None}))


def untranslated(what: str, kind: Any) -> NotImplementedError:
    """Return the error for a part of a recipe that an engine has no words for."""
    return NotImplementedError(
        f"This engine has no translation of {what} {kind}; add it to its file in "
        "ganglion/rivals."
    )
