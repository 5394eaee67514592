"""Networks that learned something already.

>>> from ganglion import applications
>>> base = applications.EfficientNetLite0(
...     include_top=False, weights=None, input_shape=(64, 64, 3), pooling="avg"
... )
>>> base.output_shape
(None, 1280)
"""

from __future__ import annotations

import importlib
from typing import Any

from ganglion.applications import efficientnet_lite, imagenet
from ganglion.applications.efficientnet_lite import EfficientNetLite0
from ganglion.oldpaths import attribute_of
from ganglion.saving.torch_file import read_state_dict

# The networks of Keras, by the module of each; imported on first use.
MODULES: dict[str, tuple[str, ...]] = {
    "convnext": tuple(
        f"ConvNeXt{size}" for size in ("Base", "Large", "Small", "Tiny", "XLarge")
    ),
    "densenet": ("DenseNet121", "DenseNet169", "DenseNet201"),
    "efficientnet": tuple(f"EfficientNetB{number}" for number in range(8)),
    "efficientnet_v2": tuple(
        f"EfficientNetV2{size}" for size in ("B0", "B1", "B2", "B3", "L", "M", "S")
    ),
    "imagenet_utils": (),
    "inception_resnet_v2": ("InceptionResNetV2",),
    "inception_v3": ("InceptionV3",),
    "mobilenet": ("MobileNet",),
    "mobilenet_v2": ("MobileNetV2",),
    "mobilenet_v3": ("MobileNetV3Large", "MobileNetV3Small"),
    "nasnet": ("NASNetLarge", "NASNetMobile"),
    "resnet": ("ResNet50", "ResNet101", "ResNet152"),
    "resnet50": (),
    "resnet_v2": ("ResNet50V2", "ResNet101V2", "ResNet152V2"),
    "vgg16": ("VGG16",),
    "vgg19": ("VGG19",),
    "xception": ("Xception",),
}
_HOMES = {name: module for module, names in MODULES.items() for name in names}
_old = attribute_of("ganglion.applications")

__all__ = ["EfficientNetLite0", "efficientnet_lite", "imagenet", "read_state_dict"]
__all__ += [*MODULES, *_HOMES]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name, name)
    if home not in MODULES:
        return _old(name)
    module = importlib.import_module(f"ganglion.applications.{home}")
    return getattr(module, name) if name in _HOMES else module
