"""VGG with 19 layers."""

from __future__ import annotations

from ganglion.applications.frame import named, standard
from ganglion.applications.imagenet_utils import decode_predictions, preprocessing
from ganglion.applications.vgg16 import vgg

__all__ = ["VGG19", "decode_predictions", "preprocess_input"]

VGG19 = named(
    "VGG19",
    standard(
        "vgg19",
        vgg(
            "vgg19",
            (2, 2, 4, 4, 4),
            ("cbe5617147190e668d6c5d5026f83318", "253f8cb515780f3b799900260a226db6"),
        ),
    ),
    "VGG with 19 layers that learn",
)
preprocess_input = preprocessing("caffe")
