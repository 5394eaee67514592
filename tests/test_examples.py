"""Every public class of the rooms that users import from has an example that runs."""

from __future__ import annotations

import importlib
import inspect

import pytest

ROOMS = (
    "callbacks", "constraints", "distillation", "initializers", "layers", "losses",
    "many", "metrics", "models", "optimizers", "optimizers.schedules", "regularizers",
)  # fmt: skip
# These only say why they are not here, and what to do instead.
REFUSE = {
    "FlaxLayer", "JaxLayer", "OrbaxCheckpoint", "TFSMLayer", "TorchModuleWrapper"
}  # fmt: skip


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_class_has_an_example(room: str) -> None:
    module = importlib.import_module(f"ganglion.{room}")
    names = getattr(module, "__all__", None) or vars(module)
    classes = {
        thing
        for name in names
        if not name.startswith("_")
        and inspect.isclass(thing := getattr(module, name))
        and thing.__module__.startswith(f"ganglion.{room}")
    }
    assert classes
    without = {cls.__name__ for cls in classes if ">>> " not in (cls.__doc__ or "")}
    assert without <= REFUSE
