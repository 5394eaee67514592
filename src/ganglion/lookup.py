"""How `"relu"`, `{"class_name": ...}` or an object itself becomes the object meant."""

from __future__ import annotations

import inspect
from typing import Any

from ganglion.serialization import deserialize_keras_object, look_up


def resolve(module: str, identifier: Any, what: str) -> Any:
    """Return the object an identifier means; a class is made with its defaults.

    Lists every known name, or the closest ones, when there is no such thing.
    """
    if identifier is None:
        return None
    if isinstance(identifier, dict):
        return deserialize_keras_object(identifier)
    if isinstance(identifier, str):
        identifier = look_up(module, identifier, what)
    if inspect.isclass(identifier):
        return identifier()
    if callable(identifier) or hasattr(identifier, "get_config"):
        return identifier
    raise ValueError(f"{identifier!r} is no {what}: give a name, an object or None.")


class Configured:
    """A small object that is remade from the attributes its `__init__` names."""

    def get_config(self) -> dict[str, Any]:
        """Return the arguments that make an equal object."""
        names = inspect.signature(type(self).__init__).parameters
        return {name: getattr(self, name) for name in list(names)[1:]}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Make an object from its configuration."""
        return cls(**{k: deserialize_keras_object(v) for k, v in config.items()})

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and (self.get_config() == other.get_config())

    def __hash__(self) -> int:
        return id(self)
