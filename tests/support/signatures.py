"""Signatures as they are compared with Keras': names, kinds and defaults."""

from __future__ import annotations

import functools
import inspect
from typing import Any

Rows = list[tuple[str, str, Any]]


def find(root: Any, path: str) -> Any:
    """Return what a dotted path leads to, or None."""
    for name in path.split("."):
        root = getattr(root, name, None)
    return root


def _made_by(thing: Any) -> Any:
    """Return a class as Python 3.11.3 and later sees it: by `__init__`.

    Before, any inherited `__new__` hid an `__init__` that is inherited, too.
    """
    if not isinstance(thing, type):
        return thing
    for base in thing.__mro__:
        if "__new__" in vars(base):
            return thing
        if "__init__" in vars(base):
            return functools.partial(thing.__init__, None)
    return thing


def parameters(thing: Any) -> Rows:
    """Return names, kinds and defaults; defaults that are objects by their type."""
    rows = []
    for parameter in inspect.signature(_made_by(thing)).parameters.values():
        default = parameter.default
        plain = default is inspect.Parameter.empty or isinstance(
            default, (str, int, float, bool, tuple, list, dict, type(None))
        )
        shown = default if plain else type(default)
        rows.append((parameter.name, parameter.kind.name, shown))
    return rows


def spelled_out(thing: Any) -> Rows:
    """Return the parameters of a class that shows `*args, **kwargs`, from its base."""
    rows = parameters(thing)
    for base in thing.__mro__ if isinstance(thing, type) else ():
        if not all(kind.startswith("VAR_") for _, kind, _ in rows):
            break
        if "__init__" in vars(base):
            rows = parameters(functools.partial(base.__init__, None))
    return rows
