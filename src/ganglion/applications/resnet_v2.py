"""Residual networks whose blocks normalise before they convolve."""

from __future__ import annotations

from typing import Any

from ganglion.applications.frame import named, standard
from ganglion.applications.imagenet_utils import decode_predictions, preprocessing
from ganglion.applications.resnet import resnet

__all__ = [
    "ResNet50V2", "ResNet101V2", "ResNet152V2", "decode_predictions",
    "preprocess_input",
]  # fmt: skip


def _second(layer_count: int, counts: tuple[int, ...], *checksums: str) -> Any:
    name = f"resnet{layer_count}v2"
    architecture = resnet(name, counts, (checksums[0], checksums[1]), second=True)
    sentence = f"the second residual network of {layer_count} layers"
    return named(f"ResNet{layer_count}V2", standard(name, architecture), sentence)


ResNet50V2 = _second(
    50,
    (3, 4, 6, 3),
    "3ef43a0b657b3be2300d5770ece849e0",
    "fac2f116257151a9d068a22e544a4917",
)
ResNet101V2 = _second(
    101,
    (3, 4, 23, 3),
    "6343647c601c52e1368623803854d971",
    "c0ed64b8031c3730f411d2eb4eea35b5",
)
ResNet152V2 = _second(
    152,
    (3, 8, 36, 3),
    "a49b44d1979771252814e80f8ec446f9",
    "ed17cf2e0169df9d443503ef94b23b33",
)
preprocess_input = preprocessing("tf")
