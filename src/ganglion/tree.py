"""Nested lists, tuples and dictionaries as a flat sequence and back.

Dictionaries come in the order of their sorted keys, an `OrderedDict` in its own, as in
Keras; None is a leaf.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from typing import Any

# Containers; those in the attributes of layers are registered, too.
_NODES: tuple[type[Any], ...] = (dict, list, tuple, deque)
_REGISTERED: list[type] = []


def register_node(cls: type) -> type:
    """Take a class of containers for one with parts, which is rebuilt from them."""
    global _NODES
    _NODES = (*_NODES, cls)
    _REGISTERED.append(cls)
    return cls


class MAP_TO_NONE:  # noqa: N801 - Keras' spelling
    """What a function given to `traverse` returns to put None in a part's place."""


def is_nested(structure: Any) -> bool:
    """Return whether this holds parts: a list, a tuple, a dictionary or a deque.

    >>> is_nested({"a": 1}), is_nested("text"), is_nested(None)
    (True, False, False)
    """
    return isinstance(structure, _NODES)


def flatten(structure: Any) -> list[Any]:
    """Return the leaves in order; dictionaries by sorted key, as Keras does.

    >>> flatten({"b": [1, 2], "a": (3,)})
    [3, 1, 2]
    """
    if not isinstance(structure, _NODES):
        return [structure]
    leaves: list[Any] = []
    _collect(structure, leaves)
    return leaves


def _collect(structure: Any, leaves: list[Any]) -> None:
    parts = structure
    if isinstance(structure, dict):
        parts = [structure[key] for key in _ordered_keys(structure)]
    for part in parts:
        if isinstance(part, _NODES):
            _collect(part, leaves)
        else:
            leaves.append(part)


def flatten_with_path(structure: Any) -> list[tuple[tuple[Any, ...], Any]]:
    """Return the leaves in order, each with the path of indices and keys to it.

    >>> flatten_with_path([{"a": 42}])
    [((0, 'a'), 42)]
    """
    if not is_nested(structure):
        return [((), structure)]
    return [
        ((key, *path), leaf)
        for key, part in _parts(structure)
        for path, leaf in flatten_with_path(part)
    ]


def map_leaves(function: Callable[[Any], Any], structure: Any) -> Any:
    """Apply a function to every leaf, keeping the structure.

    >>> map_leaves(str, {"a": [1, (2, 3)]})
    {'a': ['1', ('2', '3')]}
    """
    if not isinstance(structure, _NODES):
        return function(structure)
    kind = type(structure)
    if kind is list or kind is tuple:
        return kind([map_leaves(function, part) for part in structure])
    return _rebuilt(
        structure,
        {key: map_leaves(function, part) for key, part in _parts(structure)},
    )


def map_structure(
    func: Callable[..., Any], *structures: Any, none_is_leaf: bool = True
) -> Any:
    """Apply a function to the leaves at the same place of equal structures.

    With `none_is_leaf=False`, None stays None and the function does not see it.

    >>> map_structure(lambda a, b: a + b, [1, {"x": 2}], [10, {"x": 20}])
    [11, {'x': 22}]
    """
    if not callable(func):
        raise TypeError(f"`func` must be callable, got {func!r}.")
    if not structures:
        raise ValueError("`map_structure` needs at least one structure.")
    first, *others = structures
    if is_nested(first):
        for other in others:
            _check_same_node(first, other)
        beside = [dict(_parts(other)) for other in others]
        return _rebuilt(
            first,
            {
                key: map_structure(
                    func, part, *(o[key] for o in beside), none_is_leaf=none_is_leaf
                )
                for key, part in _parts(first)
            },
        )
    for other in others:
        if is_nested(other):
            raise ValueError(_difference(first, other))
    nothing = [leaf is None for leaf in structures]
    if none_is_leaf or not any(nothing):
        return func(first, *others)
    if not all(nothing):
        raise ValueError("The structures don't have None in the same places.")
    return None


def map_structure_up_to(
    shallow_structure: Any, func: Callable[..., Any], *structures: Any
) -> Any:
    """Apply a function where a shallower structure has its leaves.

    >>> map_structure_up_to([None, None], len, [[1, 1], [2]])
    [2, 1]
    """
    if not structures:
        raise ValueError("`map_structure_up_to` needs at least one structure.")
    if not is_nested(shallow_structure):
        return func(*structures)
    for structure in structures:
        _check_same_node(shallow_structure, structure)
    beside = [dict(_parts(structure)) for structure in structures]
    return _rebuilt(
        shallow_structure,
        {
            key: map_structure_up_to(part, func, *(each[key] for each in beside))
            for key, part in _parts(shallow_structure)
        },
    )


def map_shape_structure(func: Callable[[Any], Any], structure: Any) -> Any:
    """Apply a function to every shape: a list or tuple of integers and None.

    >>> map_shape_structure(len, {"a": (None, 3), "b": [(2,), (4, 5)]})
    {'a': 2, 'b': [1, 2]}
    """
    if is_shape(structure) or not is_nested(structure):
        return func(structure)
    return _rebuilt(
        structure,
        {key: map_shape_structure(func, part) for key, part in _parts(structure)},
    )


def is_shape(structure: Any) -> bool:
    """Return whether this is a list or tuple of nothing but integers and None."""
    return isinstance(structure, (list, tuple)) and all(
        size is None or isinstance(size, int) for size in structure
    )


def traverse(func: Callable[[Any], Any], structure: Any, top_down: bool = True) -> Any:
    """Call a function on every part, and put what it returns in the part's place.

    None leaves the part as it is; `MAP_TO_NONE` puts None there. From the top down, a
    part that was replaced is not entered.

    >>> traverse(lambda part: tuple(part) if isinstance(part, list) else None, [1, [2]])
    (1, [2])
    """
    if not callable(func):
        raise TypeError(f"`func` must be callable, got {func!r}.")

    def below(part: Any) -> Any:
        if not is_nested(part):
            return part
        parts = {key: visit(child) for key, child in _parts(part)}
        return _rebuilt(part, parts)

    def visit(part: Any) -> Any:
        if not top_down:
            part = below(part)
        result = func(part)
        if result is None:
            return below(part) if top_down else part
        return None if result is MAP_TO_NONE else result

    return visit(structure)


def lists_to_tuples(structure: Any) -> Any:
    """Return the structure with tuples in place of lists.

    >>> lists_to_tuples([1, {"a": [2]}])
    (1, {'a': (2,)})
    """
    return traverse(
        lambda part: tuple(part) if isinstance(part, list) else None,
        structure,
        top_down=False,
    )


def assert_same_structure(a: Any, b: Any, check_types: Any = None) -> None:
    """Refuse two structures that are not nested in the same way, in the same types.

    A `dict`, an `OrderedDict` and a `defaultdict` with the same keys are the same.
    """
    if check_types is not None:
        warnings.warn(
            "`check_types` changes nothing: leave it out, or use `assert_same_paths`, "
            "which takes lists and tuples for the same.",
            DeprecationWarning,
            stacklevel=2,
        )
    map_structure(lambda *leaves: None, a, b)


def assert_same_paths(a: Any, b: Any) -> None:
    """Refuse two structures whose leaves lie at different indices and keys.

    >>> assert_same_paths([0, 1], (2, 3))
    """
    paths = [{path for path, _ in flatten_with_path(each)} for each in (a, b)]
    if paths[0] != paths[1]:
        only_a = sorted(map(str, paths[0] - paths[1]))
        only_b = sorted(map(str, paths[1] - paths[0]))
        raise ValueError(
            "`a` and `b` don't have the same paths. Only in `a`: "
            f"{', '.join(only_a) or 'none'}. "
            f"Only in `b`: {', '.join(only_b) or 'none'}."
        )


def pack_sequence_as(structure: Any, flat_sequence: Any) -> Any:
    """Put new leaves, in flat order, into the structure of another.

    >>> pack_sequence_as({"b": 0, "a": [0, 0]}, [1, 2, 3])
    {'b': 3, 'a': [1, 2]}
    """
    leaves = list(flat_sequence)
    count = len(flatten(structure))
    if len(leaves) != count:
        raise ValueError(
            f"The sequence has {len(leaves)} leaves, the structure holds {count}."
        )
    return pack(structure, leaves)


def pack(structure: Any, leaves: list[Any]) -> Any:
    """Put new leaves into the structure of another; it must have as many.

    >>> pack({"b": 0, "a": [0, 0]}, [1, 2, 3])
    {'b': 3, 'a': [1, 2]}
    """
    if not isinstance(structure, _NODES):
        return leaves[0]
    rest = iter(leaves)

    def fill(part: Any) -> Any:
        if not is_nested(part):
            return next(rest)
        return _rebuilt(part, {key: fill(child) for key, child in _parts(part)})

    return fill(structure)


def _parts(structure: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the parts of a nested structure with their keys, in flat order."""
    if isinstance(structure, dict):
        return ((key, structure[key]) for key in _ordered_keys(structure))
    return iter(enumerate(structure))


def _ordered_keys(structure: dict[Any, Any]) -> list[Any]:
    if isinstance(structure, OrderedDict):
        return list(structure)
    try:
        return sorted(structure)
    except TypeError:  # keys of several types
        try:
            return sorted(structure, key=lambda key: (type(key).__qualname__, key))
        except TypeError:
            return list(structure)


def _rebuilt(like: Any, parts: dict[Any, Any]) -> Any:
    """Return a structure of the same type with other parts."""
    if isinstance(like, dict):
        items = {key: parts[key] for key in like}
        if type(like) in _REGISTERED:
            return type(like)(items)
        if isinstance(like, defaultdict):
            return type(like)(like.default_factory, items)
        return OrderedDict(items) if isinstance(like, OrderedDict) else items
    if hasattr(like, "_fields"):
        return type(like)(*parts.values())
    if isinstance(like, deque):
        return type(like)(parts.values(), like.maxlen)
    return type(like)(parts.values())


def _check_same_node(a: Any, b: Any) -> None:
    """Refuse two parts of other types, keys or lengths."""
    if isinstance(a, dict):
        is_same = isinstance(b, dict) and a.keys() == b.keys()
    else:
        is_same = _sequence_type(a) is _sequence_type(b) and len(a) == len(b)
    if not is_same:
        raise ValueError(_difference(a, b))


def _difference(a: Any, b: Any) -> str:
    return (
        "The structures don't have the same nested structure: expected "
        f"{_description(a)}, got {_description(b)}."
    )


def _sequence_type(structure: Any) -> type:
    """Return what kind of sequence this is; lists that track their layers are lists."""
    if hasattr(structure, "_fields"):
        return type(structure)
    kinds = (kind for kind in _NODES if isinstance(structure, kind))
    return next(kinds, type(None))


def _description(structure: Any) -> str:
    name = type(structure).__name__
    if isinstance(structure, dict):
        return f"{name} (keys: {list(structure)})"
    if not is_nested(structure):
        return f"{name} (a leaf)"
    name = f"namedtuple {name}" if hasattr(structure, "_fields") else name
    return f"{name} (number of parts: {len(structure)})"
