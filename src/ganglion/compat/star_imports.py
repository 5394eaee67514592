"""The names that `from keras.layers import *` gave a script besides the layers.

The modules of Keras 2 had no `__all__`: a star also imported what they had imported,
and scripts use `K` and `np` without importing them.

>>> sorted(names_of("from keras.regularizers import *"))
['K']
>>> names_of("from keras.layers import Dense")
{}
"""

from __future__ import annotations

import ast
import importlib
from typing import Any

_LAYERS = "K np copy warnings activations initializers regularizers constraints"
# The names that a star imported, by module.
_BROUGHT = {
    "layers": f"{_LAYERS} conv_utils interfaces InputSpec",
    "engine": "Input InputLayer InputSpec Layer Model",
    "engine.topology": "K np InputSpec Layer Input InputLayer",
    "models": "K Input InputLayer Model Sequential load_model save_model",
    "callbacks": "K np os csv time json warnings deque OrderedDict Progbar",
    "initializers": "K np",
    "preprocessing.image": "K np os",
    **dict.fromkeys(("optimizers", "losses", "metrics", "constraints"), "K"),
    **dict.fromkeys(("activations", "regularizers"), "K"),
}
_PLACES = {
    "K": "ganglion.backend",
    "np": "numpy",
    "conv_utils": "ganglion.utils",
    "interfaces": "ganglion.legacy.interfaces",
    "InputSpec": "ganglion.layers:InputSpec",
    "InputLayer": "ganglion.layers:InputLayer",
    "Layer": "ganglion.layers:Layer",
    "Input": "ganglion:Input",
    "Model": "ganglion:Model",
    "Sequential": "ganglion:Sequential",
    "load_model": "ganglion.models:load_model",
    "save_model": "ganglion.models:save_model",
    "Progbar": "ganglion.utils:Progbar",
    "deque": "collections:deque",
    "OrderedDict": "collections:OrderedDict",
    **{
        name: f"ganglion.{name}"
        for name in ("activations", "initializers", "regularizers", "constraints")
    },
}


def names_of(text: str | bytes) -> dict[str, Any]:
    """Return the names that a star import of Keras 2 adds to the module's own."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return {}  # Python reports it better when it runs the file
    brought: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
            module = node.module or ""
            names = _BROUGHT.get(module.removeprefix("keras."), "")
            brought.update((name, _found(name)) for name in names.split())
    return brought


def _found(name: str) -> Any:
    path, _, attribute = _PLACES.get(name, name).partition(":")
    module = importlib.import_module(path)
    return getattr(module, attribute) if attribute else module
