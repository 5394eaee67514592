"""Models for Python's pickle, copy and joblib: as the bytes of a `.keras` file.

The bytes are data, and are read as any file is. Classes and functions of the user's go
beside them: pickle names them as it names all others, so they are found where they are
importable.
"""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np

from ganglion import serialization
from ganglion.callbacks import History
from ganglion.saving import archive
from ganglion.saving.files import reading

_PLAIN = (bool, int, float, complex, str, bytes, np.generic, np.ndarray, type(None))


def reduced(model: Any) -> tuple[Any, tuple[Any, ...]] | None:
    """Return what `__reduce__` returns for a model, None if a file cannot hold it."""
    is_graph = model._network is not None
    if not is_graph and (not model.built or _compiles_itself(model)):
        return None
    if model.compiled and model.optimizer is not None:
        model.prepare_training()
    try:
        with serialization.by_reference() as objects:
            buffer = io.BytesIO()
            with model.between_steps():
                archive.write(model, buffer, dated=False)
        arguments = (buffer.getvalue(), objects, _attributes(model))
        if not is_graph:
            # Whether its class can be rebuilt is only known by rebuilding it.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                restored(*arguments[:2], {})
    except (ValueError, TypeError, NotImplementedError):
        if is_graph:
            raise
        return None
    return restored, arguments


def _compiles_itself(model: Any) -> bool:
    """Return whether a model has a `compile` of its own, which alone can restore it."""
    own = getattr(type(model).compile, "__module__", "").partition(".")[0]
    return model.compiled and own != "ganglion"


def restored(data: bytes, objects: dict[str, Any], attributes: dict[str, Any]) -> Any:
    """Return the model that `reduced` has written."""
    with reading("The pickled model", len(data)):
        model = archive.read(io.BytesIO(data), objects, True)
    attributes = dict(attributes)
    history = attributes.pop("history", None)
    for name, value in attributes.items():
        setattr(model, name, value)
    if history is not None:
        model.history = History()
        model.history.set_model(model)
        vars(model.history).update(history)
    return model


def _attributes(model: Any) -> dict[str, Any]:
    """Return the attributes that a file does not contain: a user's numbers, say."""
    attributes = {
        name: value
        for name, value in vars(model).items()
        if not name.startswith("_") and name not in _IN_FILE and _is_plain(value)
    }
    if model.history is not None:
        # Without its model, which would hold this history again, and so on.
        history = vars(model.history).items()
        attributes["history"] = {name: v for name, v in history if name != "_model"}
    return attributes


# Attributes that loading restores by itself.
_IN_FILE = frozenset(
    ("name", "built", "compiled", "dtype", "autocast", "supports_masking", "input_hint",
     "loss", "optimizer", "history", "input_spec", "activity_regularizer",
     "loss_tracker", "notes", "created")
)  # fmt: skip


def _is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(map(_is_plain, value)) and all(map(_is_plain, value.values()))
    if isinstance(value, (list, tuple, set, frozenset)):
        return all(map(_is_plain, value))
    return isinstance(value, _PLAIN)
