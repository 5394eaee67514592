"""Old module paths, such as `keras.layers.core`, with a warning for each.

A path of Keras 2 is imported as a module that passes every name on to today's one.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from ganglion import keras2
from ganglion.compat import unsupported

_LAYER_FILES = """core convolutional pooling normalization advanced_activations merge
embeddings noise local recurrent wrappers convolutional_recurrent cudnn_recurrent"""
_OLD_UTILS = """has_arg to_list unpack_singleton slice_arrays count_params print_summary
normalize_tuple normalize_padding normalize_data_format conv_output_length conv_utils"""
_UTIL_FILES = "np_utils generic_utils data_utils vis_utils layer_utils"

OLD_PATHS: dict[str, str] = {
    **{f"ganglion.layers.{name}": "ganglion.layers" for name in _LAYER_FILES.split()},
    **{f"ganglion.utils.{name}": "ganglion.utils" for name in _UTIL_FILES.split()},
    "ganglion.engine": "ganglion",
    "ganglion.engine.topology": "ganglion",
    "ganglion.engine.training": "ganglion",
    "ganglion.engine.base_layer": "ganglion",
    "ganglion.engine.input_layer": "ganglion.layers",
    "ganglion.objectives": "ganglion.losses",
    "ganglion.initializations": "ganglion.legacy.initializations",
    "ganglion.utils.conv_utils": "ganglion.utils.old_functions",
    "ganglion.backend.tensorflow_backend": "ganglion.backend",
    # Where `tf.keras` had what was new.
    "ganglion.experimental": "ganglion.optimizers.schedules",
    "ganglion.layers.experimental": "ganglion.layers",
    "ganglion.layers.experimental.preprocessing": "ganglion.layers",
    "ganglion.optimizers.experimental": "ganglion.optimizers",
    "ganglion.callbacks.experimental": "ganglion.callbacks",
    "ganglion.mixed_precision.experimental": "ganglion.mixed_precision",
    "ganglion.optimizers.legacy": "ganglion.optimizers",
    "ganglion.preprocessing": "ganglion.utils",
    "ganglion.preprocessing.sequence": "ganglion.utils.sequence",
    "ganglion.preprocessing.image": "ganglion.compat.image_generator",
    # Where Keras 3 keeps it.
    **{f"ganglion.{path}": "ganglion" for path in ("src", "src.legacy", "_legacy")},
    **{
        f"ganglion.{path}.preprocessing{name}": f"ganglion.{today}"
        for path in ("src.legacy", "_legacy")
        for name, today in (
            ("", "utils"),
            (".image", "compat.image_generator"),
            (".sequence", "utils.sequence"),
            (".text", "utils.text"),
        )
    },
    "ganglion.preprocessing.text": "ganglion.utils.text",
}
# Other names of the same things, in Keras 1, Keras 2 and `tf.keras`.
OLD_NAMES = {
    "ganglion.constraints": {
        "maxnorm": "max_norm",
        "nonneg": "non_neg",
        "unitnorm": "unit_norm",
    },
    "ganglion.initializers": {
        "normal": "RandomNormal",
        "one": "Ones",
        "uniform": "RandomUniform",
        "zero": "Zeros",
    },
    "ganglion.layers": {
        "AbstractRNNCell": "Layer",
        "AtrousConvolution1D": "Conv1D",
        "AtrousConvolution2D": "Conv2D",
        "CuDNNGRU": "legacy.cudnn.CuDNNGRU",
        "CuDNNLSTM": "legacy.cudnn.CuDNNLSTM",
        "Merge": "legacy.merge.Merge",
        "TimeDistributedDense": "Dense",
        "SyncBatchNormalization": "BatchNormalization",  # one device trains
    },
    "ganglion.losses": {"huber_loss": "huber"},
    "ganglion.utils": {
        name: f"utils.old_functions.{name}" for name in _OLD_UTILS.split()
    },
    "ganglion.models": {"model_from_config": "models.config.model_of_entry"},
    "ganglion.metrics": {"cosine_proximity": "metrics.means.cosine_similarity"},
}
# Importing a module in them imports them too: that is one old spelling, not two.
_FOLDERS = (
    "ganglion.engine",
    "ganglion.layers.experimental",
    "ganglion.preprocessing",
    "ganglion.src",
    "ganglion.src.legacy",
    "ganglion.src.legacy.preprocessing",
    "ganglion._legacy",
    "ganglion._legacy.preprocessing",
)


def _note(path: str) -> None:
    old = path.removeprefix("ganglion.")
    # Keras 3 has these, too: they say nothing about the script's age.
    in_keras3 = old.startswith(("preprocessing", "optimizers.legacy", "src", "_legacy"))
    today = f"`{OLD_PATHS[path].replace('ganglion', 'keras')}`"
    if old.endswith("preprocessing.text"):
        today = "gone from Keras, and kept here"
    if old.endswith("preprocessing.sequence"):
        today = "`keras.utils`; its Keras 2 names are gone from Keras, and kept here"
    if old.endswith("preprocessing.image"):
        today = "`keras.utils` for files, layers such as `RandomFlip` for augmentation"
    keras2.note(f"`keras.{old}`", today, changes_defaults=not in_keras3)


class _Merge(ModuleType):
    """`keras.layers.merge`: a module of Keras 2, and a function of Keras 1."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Merge tensors as Keras 1 did."""
        merge = importlib.import_module("ganglion.legacy.merge").merge
        return merge(*args, **kwargs)


class _OldModule(Loader):
    """Makes a module that passes every name on to another."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        new = OLD_PATHS[spec.name]
        if spec.name not in _FOLDERS:
            _note(spec.name)
        kind = _Merge if spec.name == "ganglion.layers.merge" else ModuleType
        module = kind(spec.name, f"Keras 2's name for {new}.")
        target = importlib.import_module(new)

        def find(name: str) -> Any:
            inner = f"{spec.name}.{name}"
            if inner in OLD_PATHS:
                return importlib.import_module(inner)
            why = unsupported.unsupported_reason(spec.name, name)
            if why is not None and not hasattr(target, name):
                return unsupported.stand_in(spec.name, name)
            if not name.startswith("__"):
                _note(spec.name)
            return getattr(target, name)

        module.__getattr__ = find  # type: ignore[method-assign]
        module.__path__ = []
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Leave the module as it was created."""


class _OldPathFinder(MetaPathFinder):
    """Finds the modules of `OLD_PATHS`, and says why others are missing.

    It is the last finder, called only if no other has found a module, also for `from
    keras.layers import LSTM`.
    """

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return how to load an old path, None for any other."""
        if fullname not in OLD_PATHS:
            package, _, name = fullname.rpartition(".")
            is_ours = package.split(".")[0] == "ganglion"
            if is_ours and not name.startswith("__"):
                package = OLD_PATHS.get(package, package)  # for which there are reasons
                known = dir(sys.modules.get(package))
                # Without `name=`, or Python's own text would stand in its place.
                raise ModuleNotFoundError(unsupported.explain(package, name, known))
            return None
        return ModuleSpec(fullname, _OldModule(), is_package=True)


# These have no `__getattr__` of their own, so that type checkers know their names.
_EXPLAINING = """ops optimizers losses metrics callbacks models random initializers
regularizers constraints"""
_OPS_BY_KIND = ("nn", "numpy", "linalg")


def install() -> None:
    """Make the old paths importable, and missing names say why they are missing."""
    if not any(isinstance(finder, _OldPathFinder) for finder in sys.meta_path):
        sys.meta_path.append(_OldPathFinder())
    for name in _EXPLAINING.split():
        module = sys.modules[f"ganglion.{name}"]
        module.__getattr__ = attribute_of(module.__name__)  # type: ignore[method-assign]
    # Keras has each op twice: `ops.relu`, `ops.nn.relu`; `ops.mean`, `ops.numpy.mean`.
    ops = sys.modules["ganglion.ops"]
    for name in _OPS_BY_KIND:
        module = sys.modules[f"ganglion.ops.{name}"]
        module.__getattr__ = functools.partial(getattr, ops)  # type: ignore[method-assign]


def attribute_of(package: str) -> Callable[[str], Any]:
    """Return a module's `__getattr__` that finds its old sub-modules.

    With it, ``keras.layers.core.Dense`` works without an import of its own.
    """

    def find(name: str) -> Any:
        if f"{package}.{name}" in OLD_PATHS:
            return importlib.import_module(f"{package}.{name}")
        if name in OLD_NAMES.get(package, {}):
            module, _, today = OLD_NAMES[package][name].rpartition(".")
            place = f"ganglion.{module}" if module else package
            return getattr(importlib.import_module(place), today)
        return unsupported.stand_in(package, name, dir(sys.modules[package]))

    return find
