"""`ganglion.metrics`: what training reports, as classes, functions and names.

>>> get("mse").name
'mean_squared_error'
"""

from __future__ import annotations

from typing import Any

from ganglion.losses import (
    BCE,
    KLD,
    MAE,
    MAPE,
    MSE,
    MSLE,
    bce,
    binary_crossentropy,
    binary_focal_crossentropy,
    categorical_crossentropy,
    categorical_focal_crossentropy,
    categorical_hinge,
    hinge,
    huber,
    kl_divergence,
    kld,
    kullback_leibler_divergence,
    log_cosh,
    logcosh,
    mae,
    mape,
    mean_absolute_error,
    mean_absolute_percentage_error,
    mean_squared_error,
    mean_squared_logarithmic_error,
    mse,
    msle,
    poisson,
    sparse_categorical_crossentropy,
    squared_hinge,
)
from ganglion.metrics import accuracies, confusion, curves, iou, means, scores
from ganglion.metrics.accuracies import *
from ganglion.metrics.base import Mean, MeanMetricWrapper, Metric, Sum
from ganglion.metrics.confusion import *
from ganglion.metrics.curves import *
from ganglion.metrics.iou import *
from ganglion.metrics.means import *
from ganglion.metrics.scores import *
from ganglion.serialization import custom_object_scope, resolve, serialize_keras_object


def get(identifier: Any) -> Any:
    """Return the metric that a name, configuration, class or object means.

    >>> get("AUC").curve
    'ROC'
    """
    return resolve("keras.metrics", identifier, "metric")


def serialize(metric: Any) -> Any:
    """Return plain data that names or rebuilds a metric."""
    return serialize_keras_object(metric)


def deserialize(config: Any, custom_objects: dict[str, Any] | None = None) -> Any:
    """Return the metric that plain data describes."""
    with custom_object_scope(custom_objects or {}):
        return get(config)


__all__ = [
    "BCE", "KLD", "MAE", "MAPE", "MSE", "MSLE", "Mean", "MeanMetricWrapper", "Metric",
    "Sum", "bce", "binary_crossentropy", "binary_focal_crossentropy",
    "categorical_crossentropy", "categorical_focal_crossentropy", "categorical_hinge",
    "deserialize", "get", "hinge", "huber", "kl_divergence", "kld",
    "kullback_leibler_divergence", "log_cosh", "logcosh", "mae", "mape",
    "mean_absolute_error", "mean_absolute_percentage_error", "mean_squared_error",
    "mean_squared_logarithmic_error", "mse", "msle", "poisson", "serialize",
    "sparse_categorical_crossentropy", "squared_hinge",
]  # fmt: skip
__all__ += accuracies.__all__
__all__ += confusion.__all__
__all__ += curves.__all__
__all__ += iou.__all__
__all__ += means.__all__
__all__ += scores.__all__
