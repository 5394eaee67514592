"""The published experiments, as data.

A recipe says what to train on what and how; engines (ours and the rivals of the race)
read it, none has a copy.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ganglion.config import closest
from ganglion.images import networks

LayerSpec = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Published:
    """A published result of a recipe."""

    system: str
    accuracy: float
    time: str


@dataclass(frozen=True)
class Recipe:
    """One experiment: the data, the network and the way it is trained."""

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
    shuffle: bool = True
    batch_size: int = 128
    classes: int = 10
    remark: str = ""
    metrics: tuple[str, ...] = field(default=("accuracy",))
    augment: tuple[LayerSpec, ...] = ()  # what happens to images in training only
    source: dict[str, Any] = field(default_factory=dict)  # of the data set "images"


_PIXELS: LayerSpec = ("Rescaling", {"scale": 1 / 255})
_SMALL = {"class_name": "RandomUniform", "config": {"minval": -0.01, "maxval": 0.01}}


def _dense(units: int, init: Any, activation: str | None = None) -> LayerSpec:
    arguments = {"units": units, "kernel_initializer": init, "activation": activation}
    return "Dense", arguments


def _conv(filters: int, size: int, padding: str = "valid", **more: Any) -> LayerSpec:
    arguments = {"filters": filters, "kernel_size": size, "padding": padding}
    return "Conv2D", arguments | {"kernel_initializer": "he_normal"} | more


_NORM_RELU: tuple[LayerSpec, ...] = (
    ("BatchNormalization", {}),
    ("Activation", {"activation": "relu"}),
)
_POOL: LayerSpec = ("MaxPooling2D", {"pool_size": 2})


# ImageDataGenerator(horizontal_flip=True, zoom_range=0.5): rows and columns are zoomed
# each by a number of its own from 0.5 to 1.5, and the border goes on outside.
_ZOOM = {"height_factor": (-0.5, 0.5), "width_factor": (-0.5, 0.5)}
_FLIP_AND_ZOOM: tuple[LayerSpec, ...] = (
    ("RandomFlip", {"mode": "horizontal"}),
    ("RandomZoom", _ZOOM | {"fill_mode": "nearest"}),
)


def _same_convs(filters: int) -> tuple[LayerSpec, ...]:
    return (_conv(filters, 3, "same"), *_NORM_RELU) * 2


PERCEPTRON = Recipe(
    name="mnist-perceptron",
    title="784 → 10 sigmoid",
    dataset="mnist",
    input_shape=(28, 28),
    layers=(_PIXELS, ("Flatten", {}), _dense(10, _SMALL, "sigmoid")),
    loss="mean_squared_error",
    optimizer=("SGD", {"learning_rate": 0.5}),
    epochs=20,
    parameters=7_850,
    one_hot=True,
    published=(
        Published("TensorFlow", 0.9089, "14 s"),
        Published("own CPU engine", 0.9087, "22 s"),
    ),
)

MLP = Recipe(
    name="mnist-mlp",
    title="784 → 512 relu → 512 relu → 10 softmax",
    dataset="mnist",
    input_shape=(28, 28),
    layers=(
        _PIXELS,
        ("Flatten", {}),
        _dense(512, _SMALL, "relu"),
        _dense(512, _SMALL, "relu"),
        _dense(10, _SMALL, "softmax"),
    ),
    loss="sparse_categorical_crossentropy",
    optimizer=("SGD", {"learning_rate": 0.5}),
    epochs=30,
    parameters=669_706,
    shuffle=False,
    published=(
        Published("Keras CPU", 0.9844, "4 s an epoch"),
        Published("TensorFlow GPU", 0.9834, "42 s"),
        Published("own CPU engine", 0.9839, "2694 s"),
    ),
)

CNN = Recipe(
    name="mnist-cnn",
    title="two 5×5 convolutions with batch norm and pooling, dense 512, softmax",
    dataset="mnist",
    input_shape=(28, 28, 1),
    layers=(
        _PIXELS,
        _conv(24, 5),
        *_NORM_RELU,
        _POOL,
        _conv(48, 5),
        *_NORM_RELU,
        _POOL,
        ("Flatten", {}),
        _dense(512, "he_normal"),
        *_NORM_RELU,
        _dense(10, "he_normal", "softmax"),
    ),
    loss="sparse_categorical_crossentropy",
    optimizer=("SGD", {"learning_rate": 0.5}),
    epochs=20,
    parameters=430_666,
    published=(
        Published("Keras CPU", 0.9942, "106 s an epoch"),
        Published("TensorFlow GPU", 0.9940, "72 s"),
        Published("own GPU engine", 0.9936, "1392 s"),
    ),
)

CAM = Recipe(
    name="cifar10-cam",
    title="six 3×3 convolutions, class activation map, global average pooling",
    dataset="cifar10",
    input_shape=(32, 32, 3),
    layers=(
        _PIXELS,
        *_same_convs(32),
        _POOL,
        *_same_convs(64),
        _POOL,
        *_same_convs(128),
        _conv(10, 1, name="class_activation_map"),
        ("GlobalAveragePooling2D", {}),
        ("Activation", {"activation": "softmax"}),
    ),
    loss="sparse_categorical_crossentropy",
    optimizer=("SGD", {"learning_rate": 0.1, "momentum": 0.9, "nesterov": True}),
    epochs=50,
    parameters=290_090,
    published=(Published("Keras GPU", 0.8668, "11 s an epoch"),),
    augment=_FLIP_AND_ZOOM,
)

FOLDER = Recipe(
    name=networks.NAME,
    title="600 photographs of six classes, PNG files: three 3×3 convolutions",
    dataset=networks.DATASET,
    input_shape=(32, 32, 3),
    layers=networks.network((32, 32, 3), 6, 600),
    loss="sparse_categorical_crossentropy",
    optimizer=networks.optimizer(networks.RACE_RATE),
    epochs=networks.RACE_EPOCHS,
    parameters=94_918,
    published=tuple(Published(*row) for row in networks.PUBLISHED),
    batch_size=32,
    classes=6,
    source={"test": 192, "form": {"size": (32, 32), "color": "rgb", "fit": "crop"}},
)

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe for recipe in (PERCEPTRON, MLP, CNN, CAM, FOLDER)
}


def get(name: str) -> Recipe:
    """Return a recipe by name.

    >>> get("mnist-mlp").parameters
    669706
    """
    if name not in RECIPES:
        raise ValueError(f"Unknown recipe {name!r}. {closest(name, RECIPES)}")
    return RECIPES[name]


def published() -> list[str]:
    """Return the names of the recipes with published results on data for everyone.

    >>> published()
    ['mnist-perceptron', 'mnist-mlp', 'mnist-cnn', 'cifar10-cam']
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


def build(recipe: Recipe) -> Any:
    """Return the recipe's model, compiled and ready to train.

    >>> build(get("mnist-cnn")).count_params()
    430666
    """
    from ganglion import layers, optimizers
    from ganglion.models import Sequential

    stack: list[Any] = [layers.Input(recipe.input_shape)]
    for kind, arguments in (*recipe.augment, *recipe.layers):
        stack.append(getattr(layers, kind)(**arguments))
    model = Sequential(stack, name=recipe.name)
    kind, arguments = recipe.optimizer
    model.compile(
        optimizer=getattr(optimizers, kind)(**arguments),
        loss=recipe.loss,
        metrics=list(recipe.metrics),
    )
    return model


Arrays = tuple[np.ndarray, np.ndarray]


def load(recipe: Recipe) -> tuple[Arrays, Arrays, str | None]:
    """Return (x, y) for training, the same for testing, and a remark on the data.

    Where MNIST cannot be had, our own drawn digits take its place, and the remark says
    so; other data sets have no substitute.
    """
    import importlib

    from ganglion.datasets import DataUnavailable

    if recipe.dataset == networks.DATASET:
        return networks.arrays(recipe)
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


def prepared(recipe: Recipe, x: np.ndarray, y: np.ndarray) -> Arrays:
    """Return images and labels in the shapes that a recipe's network and loss take."""
    labels = y.reshape(-1).astype("int32")
    x = x.reshape(len(x), *recipe.input_shape)
    if recipe.one_hot:
        return x, np.eye(recipe.classes, dtype="float32")[labels]
    return x, labels
