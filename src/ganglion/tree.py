"""Nested lists, tuples and dictionaries as one flat sequence and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def flatten(structure: Any) -> list[Any]:
    """Return the leaves in order; dictionaries by sorted key, as Keras does.

    >>> flatten({"b": [1, 2], "a": (3,)})
    [3, 1, 2]
    """
    if isinstance(structure, dict):
        return [leaf for key in sorted(structure) for leaf in flatten(structure[key])]
    if isinstance(structure, (list, tuple)):
        return [leaf for part in structure for leaf in flatten(part)]
    return [structure]


def map_leaves(function: Callable[[Any], Any], structure: Any) -> Any:
    """Apply a function to every leaf, keeping the structure.

    >>> map_leaves(str, {"a": [1, (2, 3)]})
    {'a': ['1', ('2', '3')]}
    """
    if isinstance(structure, dict):
        return {key: map_leaves(function, part) for key, part in structure.items()}
    if isinstance(structure, tuple) and hasattr(structure, "_fields"):
        return type(structure)(*(map_leaves(function, part) for part in structure))
    if isinstance(structure, (list, tuple)):
        return type(structure)(map_leaves(function, part) for part in structure)
    return function(structure)


def pack(structure: Any, leaves: list[Any]) -> Any:
    """Put new leaves, in flat order, into the structure of another.

    >>> pack({"b": 0, "a": [0, 0]}, [1, 2, 3])
    {'b': 3, 'a': [1, 2]}
    """
    rest = iter(leaves)

    def fill(part: Any) -> Any:
        if isinstance(part, dict):
            filled = {key: fill(part[key]) for key in sorted(part)}
            return {key: filled[key] for key in part}
        if isinstance(part, tuple) and hasattr(part, "_fields"):
            return type(part)(*map(fill, part))
        if isinstance(part, (list, tuple)):
            return type(part)([fill(item) for item in part])
        return next(rest)

    return fill(structure)
