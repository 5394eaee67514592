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
from ganglion.dtypes import DTypePolicy, FloatDTypePolicy
from ganglion.gradients import GradientTape, grad, value_and_grad
from ganglion.initializers import Initializer
from ganglion.layers import Input, InputSpec, Layer
from ganglion.losses import Loss
from ganglion.metrics import Metric
from ganglion.models import Functional, Model, Sequential
from ganglion.models.function import Function
from ganglion.operation import Operation
from ganglion.optimizers import Optimizer
from ganglion.quantizers import Quantizer
from ganglion.random import SeedGenerator
from ganglion.regularizers import Regularizer
from ganglion.scopes import RematScope, SymbolicScope, device, name_scope, remat
from ganglion.symbolic import KerasTensor
from ganglion.training.functions import function
from ganglion.variables import StatelessScope, Variable

__version__ = config.VERSION


def version() -> str:
    """Return the version of Ganglion."""
    return __version__


oldpaths.install()
_old_module = oldpaths.attribute_of("ganglion")

# Imported on first use: they need the network or files, or are rarely used.
_LAZY = (
    "applications",
    "backend",
    "datasets",
    "distillation",
    "distribution",
    "dtype_policies",
    "export",
    "images",
    "legacy",
    "explain",
    "many",
    "mixed_precision",
    "quantizers",
    "recipes",
    "saving",
    "visualization",
    "wrappers",
)


def load_onnx(filepath: _Any) -> _Any:
    """Return the model of an ONNX file, as layers that can be trained.

    See `ganglion.export.onnx`; it needs the extra `onnx`.
    """
    from ganglion.export import onnx

    return onnx.load_onnx(filepath)


def install_as_keras() -> None:
    """Let `keras`, `tensorflow` and `tf.keras` be Ganglion from here on.

    One line at the top of a script, before its own imports; ``ganglion run script.py``
    does the same without it, and ``%load_ext ganglion`` in a notebook.
    """
    from ganglion.compat import aliases

    aliases.install()


def load_ipython_extension(ipython: _Any) -> None:
    """Do as `install_as_keras`, for ``%load_ext ganglion``."""
    install_as_keras()


def unload_ipython_extension(ipython: _Any) -> None:
    """Leave `keras` and `tensorflow` to what is installed, for ``%unload_ext``."""
    from ganglion.compat import aliases

    aliases.uninstall()


def __getattr__(name: str) -> _Any:
    if name in _LAZY:
        return _importlib.import_module(f"ganglion.{name}")
    return _old_module(name)


__all__ = [
    "DTypePolicy",
    "FloatDTypePolicy",
    "Function",
    "Functional",
    "GradientTape",
    "Initializer",
    "Input",
    "InputSpec",
    "KerasTensor",
    "Layer",
    "Loss",
    "Metric",
    "Model",
    "Operation",
    "Optimizer",
    "Quantizer",
    "Regularizer",
    "RematScope",
    "SeedGenerator",
    "Sequential",
    "StatelessScope",
    "SymbolicScope",
    "Variable",
    "activations",
    "callbacks",
    "config",
    "constraints",
    "device",
    "function",
    "grad",
    "initializers",
    "install_as_keras",
    "keras2",
    "layers",
    "load_onnx",
    "losses",
    "metrics",
    "models",
    "name_scope",
    "oldpaths",
    "ops",
    "optimizers",
    "random",
    "regularizers",
    "remat",
    "tree",
    "utils",
    "value_and_grad",
    "version",
]
