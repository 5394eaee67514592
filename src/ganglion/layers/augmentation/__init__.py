"""Layers on images: augmentation in training, sizes, colours, boxes."""

from ganglion.layers.augmentation.blurring import RandomGaussianBlur, RandomSharpness
from ganglion.layers.augmentation.boxes import MaxNumBoundingBoxes
from ganglion.layers.augmentation.chains import AugMix, Pipeline, RandAugment
from ganglion.layers.augmentation.colors import (
    AutoContrast,
    RandomBrightness,
    RandomColorDegeneration,
    RandomColorJitter,
    RandomContrast,
    RandomGrayscale,
    RandomHue,
    RandomInvert,
    RandomPosterization,
    RandomSaturation,
    Solarization,
)
from ganglion.layers.augmentation.histograms import (
    ContrastLimitedAdaptiveHistogramEqualization,
    Equalization,
)
from ganglion.layers.augmentation.mixing import CutMix, MixUp, RandomErasing
from ganglion.layers.augmentation.moving import (
    RandomFlip,
    RandomRotation,
    RandomShear,
    RandomTranslation,
    RandomZoom,
)
from ganglion.layers.augmentation.sizes import CenterCrop, RandomCrop, Resizing
from ganglion.layers.augmentation.warping import (
    RandomElasticTransform,
    RandomPerspective,
)

__all__ = [
    "AugMix",
    "AutoContrast",
    "CenterCrop",
    "ContrastLimitedAdaptiveHistogramEqualization",
    "CutMix",
    "Equalization",
    "MaxNumBoundingBoxes",
    "MixUp",
    "Pipeline",
    "RandAugment",
    "RandomBrightness",
    "RandomColorDegeneration",
    "RandomColorJitter",
    "RandomContrast",
    "RandomCrop",
    "RandomElasticTransform",
    "RandomErasing",
    "RandomFlip",
    "RandomGaussianBlur",
    "RandomGrayscale",
    "RandomHue",
    "RandomInvert",
    "RandomPerspective",
    "RandomPosterization",
    "RandomRotation",
    "RandomSaturation",
    "RandomSharpness",
    "RandomShear",
    "RandomTranslation",
    "RandomZoom",
    "Resizing",
    "Solarization",
]
