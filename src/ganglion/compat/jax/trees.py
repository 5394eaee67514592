"""`jax.tree`: structures of arrays, in which None is no leaf."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ganglion import tree


class TreeDef:
    """A structure without its leaves.

    >>> leaves, structure = flatten({"b": 1, "a": [2, None]})
    >>> leaves, structure.num_leaves, structure.unflatten([3, 4])
    ([2, 1], 2, {'b': 4, 'a': [3, None]})
    """

    def __init__(self, structure: Any) -> None:
        # A leaf is a number here: an array of it could not be told from None.
        self._structure = tree.map_leaves(lambda leaf: leaf is not None, structure)

    @property
    def num_leaves(self) -> int:
        """How many leaves there are."""
        return sum(tree.flatten(self._structure))

    def unflatten(self, leaves: Any) -> Any:
        """Return the structure with these leaves."""
        given = list(leaves)
        if len(given) != self.num_leaves:
            raise ValueError(
                f"Too many or too few leaves: {self.num_leaves} are expected, got "
                f"{len(given)}."
            )
        rest = iter(given)
        return tree.map_leaves(
            lambda is_leaf: next(rest) if is_leaf else None, self._structure
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TreeDef) and self._structure == other._structure

    def __repr__(self) -> str:
        stars = tree.map_leaves(lambda leaf: "*" if leaf else None, self._structure)
        return f"PyTreeDef({stars})".replace("'*'", "*")

    __hash__ = None  # type: ignore[assignment]


def flatten(tree_: Any) -> tuple[list[Any], TreeDef]:
    """Return the leaves of a structure, and the structure."""
    return leaves(tree_), TreeDef(tree_)


def leaves(tree_: Any) -> list[Any]:
    """Return the leaves of a structure."""
    return [leaf for leaf in tree.flatten(tree_) if leaf is not None]


def unflatten(treedef: TreeDef, leaves: Any) -> Any:
    """Return a structure with these leaves."""
    return treedef.unflatten(leaves)


def tree_map(f: Callable[..., Any], tree_: Any, *rest: Any, is_leaf: Any = None) -> Any:
    """Return the results of a function for every leaf."""
    if is_leaf is not None:
        raise NotImplementedError(
            "jax.tree.map: `is_leaf` is not supported; walk through such a structure "
            "with a function of your own."
        )

    def applied(leaf: Any, *others: Any) -> Any:
        return None if leaf is None else f(leaf, *others)

    return tree.map_structure(applied, tree_, *rest)


def reduce(function: Callable[..., Any], tree_: Any, *initializer: Any) -> Any:
    """Return what a function makes of all leaves, two at a time."""
    return functools.reduce(function, leaves(tree_), *initializer)
