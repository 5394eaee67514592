"""Import hooks that make `keras` and `tensorflow` resolve to Ganglion.

`install()` makes ``import keras``, ``from keras.layers import Dense``, ``import
tensorflow as tf``, ``tf.keras`` and ``from tensorflow.keras import layers`` find
Ganglion, whatever else is installed. The modules below `keras` are those of `ganglion`
themselves; only the top one is a separate module, with the version of Keras.

>>> target_of("keras.layers.core"), target_of("tensorflow.keras.models")
('ganglion.layers.core', 'ganglion.models')
>>> target_of("tensorflow.data"), target_of("numpy")
('ganglion.compat.tensorflow.data', None)
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from ganglion import config, keras2

# The longest prefix that fits is replaced. `keras.api` and `keras.src` are where Keras
# 3 keeps its names, `tensorflow.python.keras` where TensorFlow had a copy of Keras 2.
ALIASES = {
    "keras": "ganglion",
    "keras.api": "ganglion",
    "keras.src": "ganglion",
    "keras.src.legacy": "ganglion.src.legacy",
    "tf_keras": "ganglion",
    "keras_preprocessing": "ganglion.preprocessing",
    "tensorflow": "ganglion.compat.tensorflow",
    "tensorflow.keras": "ganglion",
    "tensorflow.keras.api": "ganglion",
    "tensorflow.python.keras": "ganglion",
    **{
        f"tensorflow.{name}": f"ganglion.{name}"  # `tf.losses` is `tf.keras.losses`
        for name in ("initializers", "losses", "metrics", "optimizers")
    },
    "tensorflow.compat.v1.keras": "ganglion",
    "tensorflow.compat.v2": "ganglion.compat.tensorflow",
    "tensorflow.compat.v2.keras": "ganglion",
}
# Packages that are built on TensorFlow or Keras, and alternatives to them.
REFUSED = {
    "tensorflow_datasets": "Use `keras.datasets`, or save the arrays with NumPy in a "
    "Python that has TensorFlow, and load them here.",
    "tensorflow_hub": "Save the model in Keras (`.keras`) and load the file here.",
    "tensorflow_probability": "Draw with `keras.random`, and write densities with "
    "`keras.ops`.",
    "tensorflow_addons": "Keras has most of it by now: AdamW, Lamb, "
    "GroupNormalization, BinaryFocalCrossentropy.",
    "tensorflow_text": "Use the layer `TextVectorization`.",
    "tensorflow_io": "Read files with NumPy, h5py or Pillow.",
    "keras_hub": "Save the model in Keras (`.keras`) and load the file here.",
    "keras_nlp": "Save the model in Keras (`.keras`) and load the file here.",
    "keras_cv": "Save the model in Keras (`.keras`) and load the file here.",
}
_TENSORFLOW = "ganglion.compat.tensorflow"
_JAX = "ganglion.compat.jax"
VERSIONS = {
    "keras": {2: "2.15.0", 3: "3.15.0"},
    "tensorflow": {2: "2.15.0", 3: "2.21.0"},
}


def target_of(name: str) -> str | None:
    """Return the module of Ganglion that a name refers to, None for other names."""
    prefix = name
    while prefix and prefix not in ALIASES:
        prefix = prefix.rpartition(".")[0]
    return ALIASES[prefix] + name[len(prefix) :] if prefix else None


def _jax_target(name: str) -> str | None:
    """Return our module for one of JAX, in scripts that run Keras on JAX."""
    is_jax = name.partition(".")[0] == "jax"
    if not is_jax or os.environ.get("KERAS_BACKEND") != "jax":
        return None
    return _JAX + name.removeprefix("jax")


def version_of(package: str) -> str:
    """Return the version of Keras or TensorFlow whose names and defaults apply."""
    return VERSIONS[package][2 if keras2.active() else 3]


class KerasModule(ModuleType):
    """`keras` itself: all of `ganglion`, and the version of Keras it implements."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "Ganglion, under the name of Keras.")
        self.__path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        ganglion = sys.modules["ganglion"]
        if name == "__version__":
            return version_of("keras")
        if name.startswith("__") and name not in ("__all__", "__file__"):
            raise AttributeError(name)
        return getattr(ganglion, name)

    def __dir__(self) -> list[str]:
        return dir(sys.modules["ganglion"])


class _AliasLoader(Loader):
    """Loads a module of Ganglion under another name."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._own_spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        if self._target == "ganglion":
            if os.environ.get("KERAS_BACKEND") == "torch":
                importlib.import_module("ganglion.compat.pytorch_methods").install()
            return KerasModule(spec.name)
        for room in (_TENSORFLOW, _JAX):
            if self._target.startswith(room):
                namespaces = importlib.import_module(f"{room}.namespaces")
                return namespaces.load(self._target[len(room) + 1 :])
        try:
            module = importlib.import_module(self._target)
        except ModuleNotFoundError as error:
            if error.name != self._target:
                raise
            raise ModuleNotFoundError(
                f"{spec.name}: Ganglion has no such module.", name=spec.name
            ) from None
        self._own_spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module back its own specification: importing has replaced it."""
        if self._own_spec is not None:
            module.__spec__ = self._own_spec


class AliasFinder(MetaPathFinder):
    """The first finder, so that no installed Keras or TensorFlow is found instead."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return the specification of an alias, None for any other module."""
        name = target_of(fullname) or _jax_target(fullname)
        if name is not None:
            return ModuleSpec(fullname, _AliasLoader(name), is_package=True)
        if fullname in REFUSED:
            raise ModuleNotFoundError(
                f"{fullname}: it is built on TensorFlow or Keras themselves, in whose "
                f"place Ganglion stands here. {REFUSED[fullname]}",
                name=fullname,
            )
        return None


def install() -> None:
    """Make `keras` and `tensorflow` resolve to Ganglion in this process from now on.

    Refused if either has been imported already: their objects would be mixed.
    """
    if is_installed():
        return
    for name in ("keras", "tensorflow", "tf_keras"):
        if name in sys.modules:
            raise RuntimeError(
                f"`{name}` itself is imported already. Call "
                "`ganglion.install_as_keras()` before the first import of Keras or "
                "TensorFlow; in a notebook, restart the kernel first."
            )
    sys.meta_path.insert(0, AliasFinder())
    config.stand_for_keras(True)


def is_installed() -> bool:
    """Return whether `keras` and `tensorflow` are Ganglion."""
    return any(isinstance(finder, AliasFinder) for finder in sys.meta_path)


def uninstall() -> None:
    """Remove the hooks, and the modules imported through them."""
    config.stand_for_keras(False)
    methods = sys.modules.get("ganglion.compat.pytorch_methods")
    if methods is not None:
        methods.uninstall()
    sys.meta_path[:] = [
        finder for finder in sys.meta_path if not isinstance(finder, AliasFinder)
    ]
    for name, module in list(sys.modules.items()):
        if target_of(name) is not None or type(module).__module__.startswith(_JAX):
            del sys.modules[name]
