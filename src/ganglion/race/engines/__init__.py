"""Ganglion and its rivals: one short file an engine, all reading the same recipe.

Each file has one function::

    prepare(task: Task, form: str) -> Trainer

A trainer serves two masters: `ganglion bench` times single steps (`run`), `ganglion
race` whole trainings (`epoch` and `test`). Every engine is meant to run in a process of
its own (see `worker`), which also holds the clock. What the layers of a recipe are in
an engine's own words stands beside it, in `*_layers.py`.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ganglion.config import closest
from ganglion.recipes import LayerSpec, Recipe

PASSIVE = "passive"
PRECISE = "ganglion-precise"  # no shortcuts: it multiplies what others multiply
TEST_BATCH = 1000  # rows at a time when testing, the same in every engine


class Unavailable(RuntimeError):  # noqa: N818 (nobody made an error: it is not here)
    """An engine that is installed, but cannot work on the device asked for."""


@dataclass(frozen=True)
class Task:
    """What every engine is given: a recipe, where to start, and the same batches."""

    recipe: Recipe
    weights: list[np.ndarray]  # in the order of Keras' `get_weights`
    x: np.ndarray  # images as they come, whole numbers from 0 to 255
    y: np.ndarray
    batch_size: int
    threads: int
    device: str = "cpu"
    precision: str = "float32"  # of products: "tf32" and "bf16" are of GPUs
    x_test: np.ndarray | None = None
    y_test: np.ndarray | None = None
    order_seed: int = 0  # of the shuffle: Ganglion makes the order that others get
    states: np.ndarray | None = None  # of random generators that change images
    augments: bool = False  # the engine itself changes the images, in its step
    dtype: str = "float32"  # of weights and pixels; the lockstep has a finer one, too

    @property
    def batches(self) -> int:
        """How many whole batches the rows are; `bench` has no smaller last one."""
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

    def warm_up(self, order: np.ndarray) -> None:
        """Compile all that `epoch` and `test` need, and leave everything as it was."""
        ...

    def steps(self, order: np.ndarray, count: int) -> list[float]:
        """Train on the first batches of an order; return the loss of each."""
        ...

    def epoch(self, order: np.ndarray) -> tuple[float, float]:
        """Train on these rows in this order, the last batch may be smaller.

        Returns loss and accuracy as Keras does: the mean over the rows, taken while
        the weights are learning.
        """
        ...

    def test(self) -> tuple[float, float]:
        """Return loss and accuracy on the test set."""
        ...

    def reset(self) -> None:
        """Go back to the weights of the task and to a fresh optimizer."""
        ...

    def feed(self, images: np.ndarray) -> None:
        """Take these scaled images in place of the task's, row by row."""
        ...


class Rival:
    """What trainers of the race share when their `epoch` takes any order."""

    batch_size: int

    def epoch(self, order: np.ndarray) -> tuple[float, float]:
        """Train on these rows in this order."""
        raise NotImplementedError

    def test(self) -> tuple[float, float]:
        """Return loss and accuracy on the test set."""
        raise NotImplementedError

    def reset(self) -> None:
        """Go back to where the training began."""
        raise NotImplementedError

    def feed(self, images: np.ndarray) -> None:
        """Take these scaled images in place of the task's, row by row."""
        raise NotImplementedError

    def steps(self, order: np.ndarray, count: int) -> list[float]:
        """Train on the first batches of an order; return the loss of each."""
        size = self.batch_size
        parts = [order[at * size : (at + 1) * size] for at in range(count)]
        return [self.epoch(part)[0] for part in parts if len(part)]

    def warm_up(self, order: np.ndarray) -> None:
        """Take whole batches, the smaller last one, and the test set once each."""
        self.epoch(order[: 2 * self.batch_size])
        if rest := len(order) % self.batch_size:
            self.epoch(order[-rest:])
        self.test()
        self.reset()


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
    environment: dict[str, str] = field(default_factory=dict)
    imports: tuple[str, ...] = ()  # what a user's script imports; the packages if none
    on_cuda: tuple[str, ...] = ()  # the forms on a GPU, where they are others

    def forms_on(self, device: str) -> tuple[str, ...]:
        """Return the forms to try on a device."""
        return self.on_cuda if device == "cuda" and self.on_cuda else self.forms

    def variables(self, form: str) -> dict[str, str]:
        """Return the environment variables of a form.

        What `torch.compile` makes brings a second OpenMP, whose threads and those of
        PyTorch itself wait for work by spinning, on the same cores; passive ones sleep.
        """
        passive = {"OMP_WAIT_POLICY": "PASSIVE"} if form.endswith(PASSIVE) else {}
        return self.environment | passive

    def missing(self) -> str | None:
        """Say why this engine cannot run here and how to get it, None if it can."""
        for package in self.packages:
            if importlib.util.find_spec(package) is None:
                return f"{package} is not installed: {self.install}"
        return None


_ROOM = "ganglion.race.engines"
_OURS = ("ganglion", "ganglion.layers", "ganglion.models")
_LLVM = "pip install llvmlite"
_KERAS = f"{_ROOM}.keras"
ENGINES: dict[str, Engine] = {
    one.name: one
    for one in (
        Engine(
            "ganglion",
            f"{_ROOM}.ganglion",
            ("llvmlite",),
            ("fit",),
            _LLVM,
            imports=(*_OURS, "llvmlite.binding"),
        ),
        Engine(
            PRECISE,
            f"{_ROOM}.ganglion",
            ("llvmlite",),
            ("fit",),
            _LLVM,
            {"GANGLION_PRECISE": "1"},
        ),
        Engine("ganglion-numpy", f"{_ROOM}.ganglion", (), ("numpy",), imports=_OURS),
        Engine(
            "keras",
            _KERAS,
            ("keras", "tensorflow"),
            ("graph", "XLA"),
            "pip install keras tensorflow-cpu",
        ),
        Engine(
            "keras-jax",
            _KERAS,
            ("keras", "jax"),
            ("jitted",),
            "pip install keras jax",
            {"KERAS_BACKEND": "jax"},
        ),
        Engine(
            "keras-torch",
            _KERAS,
            ("keras", "torch"),
            ("eager",),
            "pip install keras torch",
            {"KERAS_BACKEND": "torch"},
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
            ("eager", "compiled", f"compiled, {PASSIVE}"),
            "pip install torch",
            on_cuda=("CUDA graph", "compiled", "compiled, CUDA graph"),
        ),
        Engine(
            "jax",
            f"{_ROOM}.jax",
            ("jax",),
            ("jitted step", "scan"),
            "pip install jax",
            on_cuda=("scan",),
        ),
    )
}
RIVALS = ("keras", "tensorflow", "torch", "torch-optimized", "jax")
ON_GPU = ("torch", "torch-optimized", "jax", "keras-jax", "keras-torch", "tensorflow")


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
    layers = task.recipe.layers
    return layers[_scales(task) :], pixels(task, task.x)


def pixels(task: Task, x: np.ndarray) -> np.ndarray:
    """Return images as a recipe's network takes them after its scaling."""
    made = x.astype(task.dtype)
    if _scales(task):  # in place: memory is compared, too
        given = task.recipe.layers[0][1]
        made *= made.dtype.type(given["scale"])
        made += made.dtype.type(given.get("offset", 0.0))
    return made


def _scales(task: Task) -> bool:
    return task.recipe.layers[0][0] == "Rescaling"


def test_set(task: Task) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the test set in batches, scaled; none if there is no test set."""
    if task.x_test is None or task.y_test is None:
        return []
    x, y = pixels(task, task.x_test), task.y_test
    starts = range(0, len(x), TEST_BATCH)
    return [(x[at : at + TEST_BATCH], y[at : at + TEST_BATCH]) for at in starts]


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
        "ganglion/race/engines."
    )
