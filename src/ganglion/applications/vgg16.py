"""VGG: rows of 3x3 convolutions, each followed by a maximum over 2x2 pixels."""

from __future__ import annotations

from typing import Any

from ganglion import layers
from ganglion.applications.frame import Architecture, named, standard, weight_files
from ganglion.applications.imagenet_utils import decode_predictions, preprocessing

__all__ = ["VGG16", "decode_predictions", "preprocess_input"]

FILTERS = (64, 128, 256, 512, 512)


def vgg(name: str, counts: tuple[int, ...], checksums: tuple[str, str]) -> Architecture:
    """Return the network with these numbers of convolutions in its five stages."""

    def features(x: Any) -> Any:
        for block, (filters, count) in enumerate(zip(FILTERS, counts, strict=True), 1):
            for number in range(1, count + 1):
                x = layers.Conv2D(
                    filters,
                    3,
                    activation="relu",
                    padding="same",
                    name=f"block{block}_conv{number}",
                )(x)
            x = layers.MaxPooling2D(2, strides=2, name=f"block{block}_pool")(x)
        return x

    def top(x: Any, classes: int, activation: Any) -> Any:
        x = layers.Flatten(name="flatten")(x)
        for number in (1, 2):
            x = layers.Dense(4096, activation="relu", name=f"fc{number}")(x)
        return layers.Dense(classes, activation=activation, name="predictions")(x)

    stem = f"{name}_weights_tf_dim_ordering_tf_kernels"
    files = weight_files(f"tensorflow/keras-applications/{name}", stem, checksums)
    pools = (None, None)
    return Architecture(features, top=top, files=files, pool_names=pools)


VGG16 = named(
    "VGG16",
    standard(
        "vgg16",
        vgg(
            "vgg16",
            (2, 2, 3, 3, 3),
            ("64373286793e3c8b2b4e3219cbf3544b", "6d6bbae143d832006294945121d1f1fc"),
        ),
    ),
    "VGG with 16 layers that learn",
)
preprocess_input = preprocessing("caffe")
