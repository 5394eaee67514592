"""Names of Keras that Ganglion does not have: each with the reason and the way out.

>>> print(explain("ganglion.layers", "RandomWidth"))
keras.layers.RandomWidth: Keras 3 has it no more. Use RandomZoom or RandomCrop, which \
keep to one size; or write it as a Layer with `ganglion.ops`.
>>> print(explain("ganglion.layers", "Dens", ["Dense", "Dropout"]))
keras.layers.Dens: there is no such name. Did you mean 'Dense'?
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from functools import cache
from typing import Any

from ganglion import config

_OWN_LAYER = "Write it as a Layer with `ganglion.ops`."

# A reason with the way out, and the names it holds for: a module and what is in it, or
# a module alone for all that is in it.
_TABLE = {
    "Keras 3 has it no more. Use RandomZoom or RandomCrop, which keep to one size; or "
    "write it as a Layer with `ganglion.ops`.": ("layers: RandomHeight RandomWidth",),
    "one machine with one device trains here. Use the model itself.": (
        "utils: multi_gpu_model",
    ),
    "YAML files are not read, because they may run code. Use `to_json` and "
    "`model_from_json`.": ("models: model_from_yaml",),
    "feature columns are gone from Keras. Use `Normalization`, `StringLookup` and "
    "`CategoryEncoding`, or `keras.utils.FeatureSpace`.": ("layers: DenseFeatures",),
    "`fit` makes batches ahead by itself. Pass it the `PyDataset` (`Sequence`) or the "
    "generator, with `workers=` of the `PyDataset`.": (
        "utils: OrderedEnqueuer GeneratorEnqueuer SequenceEnqueuer",
    ),
    "`fit` takes data sets of h5py as they are: open the file with h5py.": (
        "utils: HDF5Matrix",
    ),
    "Keras 3 has it no more. Write it as a Metric.": (
        "metrics: MeanRelativeError MeanTensor SumOverBatchSize",
    ),
    "it worked on graphs of TensorFlow 1. Pass `compile` a metric of Keras: `AUC()`, "
    "`MeanIoU(num_classes)`, `Precision()`, `Recall()`, 'accuracy'.": (
        "metrics: auc mean_iou precision recall accuracy mean",
    ),
    "optimizers of TensorFlow itself are not run. Use that of the same name in "
    "`keras.optimizers`.": ("optimizers: TFOptimizer",),
    "it makes functions of byte code. Define them by name.": (
        "utils: func_dump func_load",
    ),
    "Keras 2 dropped it. Write one step as a cell, a Layer with `state_size` and "
    "`call(inputs, states)`, and give it to `RNN(cell)`.": (
        "layers: Recurrent time_distributed_dense",
    ),
    f"Keras 2 dropped this layer. {_OWN_LAYER}": ("layers: MaxoutDense Highway",),
    f"it is not there yet. {_OWN_LAYER}": (
        "layers: LocallyConnected1D LocallyConnected2D",
    ),
    "it worked on TensorFlow sessions and graphs, which Ganglion does not have. Write "
    "a Layer or a loss with `ganglion.ops`, and call the model on arrays to look "
    "inside.": (
        "backend: manual_variable_initialization py_all is_placeholder",
        "estimator",
    ),
}


def stand_in(package: str, name: str, known: Iterable[str] = ()) -> Any:
    """Return a placeholder for an unsupported name, which scripts must not use.

    Calling it, reading an attribute or deriving from it explains why it is
    unsupported. Other names are refused at once.
    """
    text = explain(package, name, known)
    if unsupported_reason(package, name) is None or not config.stands_for_keras():
        raise AttributeError(text)
    return _StandIn(name, (), {"__doc__": text})


class _StandIn(type):
    """The type of unsupported objects; its documentation explains why."""

    def __init__(
        cls, name: str, bases: tuple[type, ...], names: dict[str, Any]
    ) -> None:
        for base in bases:
            raise NotImplementedError(base.__doc__)
        super().__init__(name, bases, names)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(cls.__doc__)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotImplementedError(cls.__doc__)


@cache
def _reasons() -> dict[str, str]:
    reasons: dict[str, str] = {}
    for reason, entries in _TABLE.items():
        for entry in entries:
            module, _, names = entry.partition(":")
            full = [f"{module}.{name}" for name in names.split()] or [module]
            reasons |= dict.fromkeys(full, reason)
    return reasons


def unsupported_reason(package: str, name: str) -> str | None:
    """Return why a name is unsupported, None for one that is not known at all."""
    full = f"{package}.{name}".removeprefix("ganglion.")
    while full and full not in _reasons():
        full = full.rpartition(".")[0]
    return _reasons().get(full)


def _similar(name: str, known: Iterable[str]) -> list[str]:
    """Return which names may be meant; tools of Python mean the private ones they say.

    They ask every module for them, and to compare hundreds of names takes long.

    >>> _similar("Dens", ["Dense", "Flatten"]), _similar("__wrapped__", ["wrapped"])
    (['Dense'], [])
    """
    if name.startswith("_"):
        return []
    public = [other for other in known if not other.startswith("_")]
    return difflib.get_close_matches(name, public, n=2, cutoff=0.7)


def explain(package: str, name: str, known: Iterable[str] = ()) -> str:
    """Return why a name is unsupported and what to do, or which one may be meant."""
    keras_name = f"{package}.{name}".replace("ganglion", "keras", 1)
    why = unsupported_reason(package, name)
    if why is None:
        similar = _similar(name, known)
        meant = " or ".join(map(repr, similar))
        why = "there is no such name." + (f" Did you mean {meant}?" if similar else "")
    return f"{keras_name}: {why}"
