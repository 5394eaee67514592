"""Optimizers: how the gradients change the weights, with Keras' formulas."""

from __future__ import annotations

from typing import Any

from ganglion.optimizers import schedules
from ganglion.optimizers.adam import Adafactor, Adam, Adamax, AdamW, Lamb, Nadam
from ganglion.optimizers.base import Optimizer
from ganglion.optimizers.descent import SGD, Adadelta, Adagrad, Ftrl, Lion, RMSprop
from ganglion.optimizers.loss_scale import LossScaleOptimizer
from ganglion.optimizers.multi import MultiOptimizer, OptimizerMap
from ganglion.optimizers.muon import Muon
from ganglion.optimizers.schedule_free import ScheduleFreeAdamW
from ganglion.serialization import (
    custom_object_scope,
    names_in,
    resolve,
    serialize_keras_object,
)

__all__ = [
    "SGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Ftrl",
    "Lamb", "Lion", "LossScaleOptimizer", "MultiOptimizer", "Muon", "Nadam",
    "Optimizer", "OptimizerMap", "RMSprop", "ScheduleFreeAdamW", "deserialize",
    "get", "schedules", "serialize",
]  # fmt: skip


def get(identifier: Any) -> Any:
    """Return the optimizer that a name, configuration or object means.

    >>> type(get("adam")).__name__
    'Adam'
    """
    if isinstance(identifier, str) and identifier.lower() in names_in(_MODULE):
        identifier = identifier.lower()
    optimizer = resolve(_MODULE, identifier, "optimizer")
    if optimizer is None or isinstance(optimizer, Optimizer):
        return optimizer
    raise ValueError(
        f"{identifier!r} is not an optimizer: give a name such as 'adam', a "
        "configuration, or an object such as SGD(learning_rate=0.1)."
    )


_MODULE = "keras.optimizers"


def serialize(optimizer: Any) -> Any:
    """Return plain data that rebuilds an optimizer."""
    return serialize_keras_object(optimizer)


def deserialize(config: Any, custom_objects: dict[str, Any] | None = None) -> Any:
    """Rebuild an optimizer from plain data."""
    with custom_object_scope(custom_objects or {}):
        return get(config)
