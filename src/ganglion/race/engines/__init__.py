"""Ganglion and its rivals: a short file per engine, all reading the same recipe.

Each file has a function::

    prepare(task: Task, form: str) -> Trainer

A trainer serves two purposes: `ganglion bench` times single steps (`run`), `ganglion
race` full trainings (`epoch` and `test`). Every engine runs in a process of its own
(see `worker`), which also measures the time.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from ganglion.config import closest
from ganglion.recipes import LayerSpec, Recipe

PASSIVE = "passive"
PRECISE = "ganglion-precise"  # no shortcuts: it multiplies what others multiply
TEST_BATCH = 1000  # rows at a time when testing, the same in every engine
Layers = tuple[LayerSpec, ...]
T = TypeVar("T")


class Unavailable(RuntimeError):  # noqa: N818 (not an error: it is not available)
    """An engine that is installed, but cannot use the requested device."""


@dataclass(frozen=True)
class Task:
    """The input of every engine: a recipe, the first weights, and the same batches."""

    recipe: Recipe
    weights: list[np.ndarray]  # in the order of Keras' `get_weights`
    x: np.ndarray  # images as they come, integers from 0 to 255
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
        """The number of full batches; `bench` drops a smaller last batch."""
        return len(self.x) // self.batch_size


class Trainer(Protocol):
    """A model in an engine."""

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
        """Compile everything that `epoch` and `test` need, with no other effect."""
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

    def in_batches(self, x: np.ndarray, size: int) -> Any:
        """Return rows in batches of a size, in the form that `predict` takes."""
        ...

    def predict(self, batches: Any) -> np.ndarray:
        """Return the outputs for all rows, in a single array."""
        ...

    def feed(self, images: np.ndarray) -> None:
        """Take these scaled images in place of the task's, row by row."""
        ...


class RivalTrainer(Trainer):
    """The base of trainers whose `epoch` takes any order."""

    batch_size: int
    _loss: Any = math.nan

    def loss(self) -> float:
        return float(self._loss)

    def steps(self, order: np.ndarray, count: int) -> list[float]:
        size = self.batch_size
        parts = [order[at * size : (at + 1) * size] for at in range(count)]
        return [self.epoch(part)[0] for part in parts if len(part)]

    def warm_up(self, order: np.ndarray) -> None:
        """Run full batches, the smaller last batch, and the test set once each."""
        self.epoch(order[: 2 * self.batch_size])
        if rest := len(order) % self.batch_size:
            self.epoch(order[-rest:])
        self.test()
        self.reset()


@dataclass(frozen=True)
class Engine:
    """One way to train: its module, the packages it needs, and its forms.

    If an engine has several forms, each is tried and the fastest one is timed. The
    first one must compile fast: XLA can take minutes for a loop of convolutions.
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

        Code of `torch.compile` brings a second OpenMP, whose threads and those of
        PyTorch itself wait for work by spinning, on the same cores; passive ones sleep.
        """
        passive = {"OMP_WAIT_POLICY": "PASSIVE"} if form.endswith(PASSIVE) else {}
        return self.environment | passive

    def unavailable_reason(self) -> str | None:
        """Return why this engine cannot run here and how to get it, None if it can."""
        for package in self.packages:
            if importlib.util.find_spec(package) is None:
                return f"{package} is not installed: {self.install}"
        return None


def _engine(
    name: str, module: str, packages: str, *forms: str, install: str = "", **more: Any
) -> Engine:
    needed = tuple(packages.split())
    command = f"pip install {install or packages}"
    return Engine(name, f"{__name__}.{module}", needed, forms, command, **more)


_OURS = ("ganglion", "ganglion.layers", "ganglion.models")
ENGINES: dict[str, Engine] = {
    engine.name: engine
    for engine in (
        _engine(
            "ganglion", "ganglion", "llvmlite", "fit",
            imports=(*_OURS, "llvmlite.binding"),
        ),
        _engine(
            PRECISE, "ganglion", "llvmlite", "fit",
            environment={"GANGLION_PRECISE": "1"},
        ),
        _engine("ganglion-numpy", "ganglion", "", "numpy", imports=_OURS),
        _engine(
            "keras", "keras", "keras tensorflow", "graph", "XLA",
            install="keras tensorflow-cpu",
        ),
        _engine(
            "keras-jax", "keras", "keras jax", "jitted",
            environment={"KERAS_BACKEND": "jax"},
        ),
        _engine(
            "keras-torch", "keras", "keras torch", "eager",
            environment={"KERAS_BACKEND": "torch"},
        ),
        _engine(
            "tensorflow", "tensorflow", "tensorflow",
            "loop", "loop of XLA steps", "XLA loop", install="tensorflow-cpu",
        ),
        _engine("torch", "torch", "torch", "eager"),
        _engine(
            "torch-optimized", "torch_optimized", "torch",
            "eager", "compiled", f"compiled, {PASSIVE}",
            on_cuda=("CUDA graph", "compiled", "compiled, CUDA graph"),
        ),
        _engine("jax", "jax", "jax", "jitted step", "scan", on_cuda=("scan",)),
    )
}  # fmt: skip
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


# ---- data, the same for every rival --------------------------------------------------


def scaled(task: Task) -> tuple[Layers, np.ndarray]:
    """Return the layers after the scaling of pixels, and the images scaled.

    Rivals get their pixels ready as floats before the clock starts; Ganglion does not.
    """
    return task.recipe.layers[int(task.recipe.takes_pixels) :], pixels(task, task.x)


def pixels(task: Task, x: np.ndarray) -> np.ndarray:
    """Return images as a recipe's network takes them after its scaling."""
    if task.recipe.takes_tokens:
        return x
    images = x.astype(task.dtype)
    if task.recipe.takes_pixels:  # in place: memory is compared, too
        scaling = task.recipe.layers[0][1]
        images *= images.dtype.type(scaling["scale"])
        images += images.dtype.type(scaling.get("offset", 0.0))
    return images


def split(x: np.ndarray, size: int) -> list[np.ndarray]:
    """Return rows in batches of a size; the last one may be smaller."""
    return [x[at : at + size] for at in range(0, len(x), size)]


def test_set(task: Task) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the test set in batches, scaled; none if there is no test set."""
    if task.x_test is None or task.y_test is None:
        return []
    x, y = pixels(task, task.x_test), task.y_test
    return list(zip(split(x, TEST_BATCH), split(y, TEST_BATCH), strict=True))


def averages(batches: Iterable[tuple[Any, Any, int]]) -> tuple[float, float]:
    """Return loss and accuracy from loss, hits and rows of each batch.

    Hits are NaN where a recipe has no accuracy.
    """
    batches = list(batches)  # so that all are started before the first is awaited
    total = sum(float(loss) * rows for loss, _, rows in batches)
    hits = sum(float(right) for _, right, _ in batches)
    count = sum(rows for _, _, rows in batches)
    return total / count, hits / count


def last_accuracy(history: Mapping[str, list[float]]) -> float:
    """Return the accuracy of the last epoch, NaN where a recipe has none."""
    return history["accuracy"][-1] if "accuracy" in history else math.nan


# ---- the parts of a recipe -----------------------------------------------------------


def up_to_logits(recipe: Recipe, layers: Layers) -> Layers:
    """Leave the final softmax to the loss, as the rivals' fast functions expect."""
    if not leaves_softmax(recipe):
        return layers
    kind, arguments = layers[-1]
    if arguments.get("activation") != "softmax":
        raise untranslated("a cross-entropy", f"without softmax before it ({kind})")
    if kind == "Activation":
        return layers[:-1]
    return (*layers[:-1], (kind, arguments | {"activation": None}))


def leaves_softmax(recipe: Recipe) -> bool:
    """Return whether the rivals' loss has the softmax: predictions need their own."""
    return "crossentropy" in recipe.loss


def is_convolved(recipe: Recipe) -> bool:
    """Return whether rows are images or sequences with channels."""
    return any("Conv" in kind for kind, _ in recipe.layers)


class Sgd(NamedTuple):
    """The numbers of plain descent."""

    rate: float
    momentum: float = 0.0
    is_nesterov: bool = False


class Adam(NamedTuple):
    """The numbers of Adam; with a decay it is AdamW."""

    rate: float
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7
    decay: float = 0.0


def optimizer(recipe: Recipe) -> Sgd | Adam:
    """Return the optimizer of a recipe, with Keras' defaults.

    >>> from ganglion import recipes
    >>> optimizer(recipes.get("mnist-mlp")), optimizer(recipes.get("mnist-vae")).rate
    (Sgd(rate=0.5, momentum=0.0, is_nesterov=False), 0.001)
    """
    kind, arguments = recipe.optimizer
    names = {"learning_rate": "rate", "nesterov": "is_nesterov"}
    names |= {"weight_decay": "decay"}
    kinds: dict[str, Any] = {"SGD": Sgd, "Adam": Adam, "AdamW": Adam}
    record = translation(kinds, "the optimizer", kind)
    unknown = {names.get(k, k) for k in arguments} - set(record._fields)
    if unknown:
        raise untranslated(f"an argument of {kind}:", ", ".join(sorted(unknown)))
    numbers: Sgd | Adam = record(**{names.get(k, k): v for k, v in arguments.items()})
    return numbers


def translation(table: Mapping[str, T], part: str, name: str) -> T:
    """Return the translation of a part of a recipe from an engine's own table."""
    if name not in table:
        raise untranslated(part, name)
    return table[name]


def untranslated(part: str, name: Any) -> NotImplementedError:
    """Return the error for a part of a recipe that an engine cannot translate."""
    return NotImplementedError(
        f"This engine has no translation of {part} {name}; add it to its file in "
        "ganglion/race/engines."
    )
