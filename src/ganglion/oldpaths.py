"""Old module paths: `keras.layers.core` and its kin, found with one warning each.

A path of Keras 2 is imported as a module that passes every name on to today's one.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from ganglion import keras2

_LAYER_FILES = (
    "core",
    "convolutional",
    "pooling",
    "normalization",
    "advanced_activations",
    "merge",
    "embeddings",
    "noise",
    "local",
)
_UTIL_FILES = ("np_utils", "generic_utils", "data_utils", "vis_utils", "layer_utils")

OLD_PATHS: dict[str, str] = {
    **{f"ganglion.layers.{name}": "ganglion.layers" for name in _LAYER_FILES},
    **{f"ganglion.utils.{name}": "ganglion.utils" for name in _UTIL_FILES},
    "ganglion.engine": "ganglion",
    "ganglion.engine.topology": "ganglion",
    "ganglion.engine.training": "ganglion",
    "ganglion.engine.base_layer": "ganglion",
    "ganglion.engine.input_layer": "ganglion.layers",
    "ganglion.objectives": "ganglion.losses",
    "ganglion.optimizers.legacy": "ganglion.optimizers",
    "ganglion.preprocessing": "ganglion.utils",
    "ganglion.preprocessing.sequence": "ganglion.utils",
    "ganglion.preprocessing.image": "ganglion.utils",
}


class _OldModule(Loader):
    """Makes a module that passes every name on to another."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Make the module."""
        old = spec.name.removeprefix("ganglion.")
        new = OLD_PATHS[spec.name]
        shown = new.replace("ganglion", "keras")
        # These two were kept by Keras 3, so they say nothing about the script's age.
        kept = old.startswith(("preprocessing", "optimizers.legacy"))
        keras2.note(f"`keras.{old}`", f"`{shown}`", changes_defaults=not kept)
        module = ModuleType(spec.name, f"Keras 2's name for {shown}.")
        target = importlib.import_module(new)

        def find(name: str) -> Any:
            inner = f"{spec.name}.{name}"
            return (
                importlib.import_module(inner)
                if inner in OLD_PATHS
                else getattr(target, name)
            )

        module.__getattr__ = find  # type: ignore[method-assign]
        module.__path__ = []
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Leave the module as it was made."""


class _OldPathFinder(MetaPathFinder):
    """Finds the modules of `OLD_PATHS`."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return how to load an old path, None for any other."""
        if fullname not in OLD_PATHS:
            return None
        return ModuleSpec(fullname, _OldModule(), is_package=True)


def install() -> None:
    """Make the old paths importable."""
    if not any(isinstance(one, _OldPathFinder) for one in sys.meta_path):
        sys.meta_path.append(_OldPathFinder())


def attribute_of(package: str) -> Callable[[str], Any]:
    """Return a module's `__getattr__` that finds its old sub-modules.

    With it, ``keras.layers.core.Dense`` works without an import of its own.
    """

    def find(name: str) -> Any:
        if f"{package}.{name}" in OLD_PATHS:
            return importlib.import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find
