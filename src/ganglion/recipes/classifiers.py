"""Experiments that classify images by dense layers and convolutions."""

from __future__ import annotations

from typing import Any

from ganglion.images import networks
from ganglion.recipes.records import PIXELS, LayerSpec, Published, Recipe, dense

_SMALL = {"class_name": "RandomUniform", "config": {"minval": -0.01, "maxval": 0.01}}


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
    layers=(PIXELS, ("Flatten", {}), dense(10, _SMALL, "sigmoid")),
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
        PIXELS,
        ("Flatten", {}),
        dense(512, _SMALL, "relu"),
        dense(512, _SMALL, "relu"),
        dense(10, _SMALL, "softmax"),
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
        PIXELS,
        _conv(24, 5),
        *_NORM_RELU,
        _POOL,
        _conv(48, 5),
        *_NORM_RELU,
        _POOL,
        ("Flatten", {}),
        dense(512, "he_normal"),
        *_NORM_RELU,
        dense(10, "he_normal", "softmax"),
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
        PIXELS,
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
