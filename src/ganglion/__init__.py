"""Ganglion trains small neural networks at the speed of the hardware.

Models are written in the Keras API (``import ganglion as keras`` works):

>>> import numpy as np
>>> import ganglion as keras
>>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
>>> model.compile("adam", "mse")
>>> history = model.fit(np.eye(2), [0.0, 1.0], verbose=0)
"""

import importlib as _importlib
from typing import Any as _Any

from ganglion import (
    activations,
    callbacks,
    config,
    constraints,
    initializers,
    keras2,
    layers,
    losses,
    metrics,
    models,
    oldpaths,
    ops,
    optimizers,
    random,
    regularizers,
    tree,
    utils,
)
from ganglion.initializers import Initializer
from ganglion.layers import Input, InputSpec, Layer
from ganglion.losses import Loss
from ganglion.metrics import Metric
from ganglion.models import Functional, Model, Sequential
from ganglion.optimizers import Optimizer
from ganglion.random import SeedGenerator
from ganglion.regularizers import Regularizer
from ganglion.symbolic import KerasTensor
from ganglion.variables import Variable

__version__ = config.VERSION

oldpaths.install()
_old_module = oldpaths.attribute_of("ganglion")

# Found when first asked for: they need the network or files, or are rarely used.
_LAZY = (
    "applications",
    "backend",
    "datasets",
    "dtype_policies",
    "images",
    "explain",
    "mixed_precision",
    "recipes",
    "saving",
)


def __getattr__(name: str) -> _Any:
    if name in _LAZY:
        return _importlib.import_module(f"ganglion.{name}")
    return _old_module(name)


__all__ = [
    "Functional",
    "Initializer",
    "Input",
    "InputSpec",
    "KerasTensor",
    "Layer",
    "Loss",
    "Metric",
    "Model",
    "Optimizer",
    "Regularizer",
    "SeedGenerator",
    "Sequential",
    "Variable",
    "activations",
    "callbacks",
    "config",
    "constraints",
    "initializers",
    "keras2",
    "layers",
    "losses",
    "metrics",
    "models",
    "oldpaths",
    "ops",
    "optimizers",
    "random",
    "regularizers",
    "tree",
    "utils",
]
