"""How `"relu"`, `{"class_name": ...}` or an object itself becomes the object meant."""

from __future__ import annotations

import functools
import inspect
import types
from typing import Any

import numpy as np

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
        parameters = list(inspect.signature(type(self).__init__).parameters.values())
        named = [one.name for one in parameters[1:] if one.kind not in _REST]
        return {name: getattr(self, name) for name in named if hasattr(self, name)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Any:
        """Make an object from its configuration."""
        return cls(**{k: deserialize_keras_object(v) for k, v in config.items()})

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return False
        assert isinstance(other, Configured)
        return bool(_key(self.get_config()) == _key(other.get_config()))

    def __hash__(self) -> int:
        return hash((type(self), _key(self.get_config())))


_REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _key(value: Any) -> Any:
    """Return something that is equal, and hashed alike, for equal configurations.

    >>> _key({"b": [1, 2.0]}) == _key({"b": (1.0, 2)})
    True
    """
    if isinstance(value, dict):
        return frozenset((name, _key(one)) for name, one in value.items())
    if isinstance(value, (list, tuple)):
        return tuple(_key(one) for one in value)
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    try:
        hash(value)
    except TypeError:
        return type(value), id(value)
    return value


def with_defaults(function: Any, qualname: str, **defaults: Any) -> Any:
    """Return a copy of a function under another name, with some other defaults.

    >>> def scale(x, factor=2):
    ...     return x * factor
    >>> with_defaults(scale, "triple", factor=3)(5)
    15
    """
    copy = types.FunctionType(
        function.__code__, function.__globals__, closure=function.__closure__
    )
    functools.update_wrapper(copy, function)
    del copy.__wrapped__  # type: ignore[attr-defined]
    copy.__qualname__ = qualname
    parameters = inspect.signature(function).parameters.values()
    copy.__defaults__ = tuple(
        defaults.get(parameter.name, parameter.default)
        for parameter in parameters
        if parameter.default is not parameter.empty
        and parameter.kind is parameter.POSITIONAL_OR_KEYWORD
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy
