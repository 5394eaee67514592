"""`keras.distillation`: a small model learns from a large model."""

from ganglion.distillation.distiller import Distiller
from ganglion.distillation.losses import (
    DistillationLoss,
    FeatureDistillation,
    LogitsDistillation,
)

__all__ = [
    "DistillationLoss",
    "Distiller",
    "FeatureDistillation",
    "LogitsDistillation",
]
