"""`keras.tree`: every function on structures of every kind, beside Keras."""

from collections import OrderedDict, defaultdict, deque, namedtuple
from typing import Any

import pytest

import ganglion

P = namedtuple("P", "a b")
Q = namedtuple("P", "a b")


def leaves(*values: Any) -> tuple[Any, ...]:
    return values


CASES: list[tuple[Any, ...]] = [
    ("flatten", [OrderedDict(b=1, a=2), {"b": 1, "a": 2}]),
    ("flatten", (None, [None], [])),
    ("flatten", deque([1, [2]])),
    ("flatten", {1: 2, "a": 3}),
    ("flatten", {6: 1, 100: 2}),
    *(("is_nested", x) for x in ({1, 2}, deque(), (), "ab", None, P(1, 2), {})),
    ("flatten_with_path", OrderedDict(b=[1, {"c": 2}], a=P(3, (4,)))),
    ("flatten_with_path", 5),
    ("flatten_with_path", [None, []]),
    ("map_structure", leaves, P(1, [2]), P(3, [4])),
    ("map_structure", leaves, P(1, 2), Q(3, 4)),
    ("map_structure", leaves, [1], (2,)),
    ("map_structure", leaves, {"a": 1}, OrderedDict(a=2)),
    ("map_structure", leaves, OrderedDict(b=1, a=5), {"a": 2, "b": 3}),
    ("map_structure", leaves, {"a": 1}, {"b": 1}),
    ("map_structure", leaves, [1], [[2]]),
    ("map_structure", leaves, [[2]], [1]),
    ("map_structure", leaves, [1], [1, 2]),
    ("map_structure", leaves),
    ("map_structure", leaves, [None, 1]),
    ("map_structure", leaves, deque([1, 2], 3)),
    ("map_structure", leaves, defaultdict(list, b=1, a=2)),
    ("map_structure_up_to", [1, [1, 1]], str, [[1, 1], [2, 2]]),
    ("map_structure_up_to", [1, [1, 1]], str, [[1, 1], 2]),
    ("map_structure_up_to", [1], str, (1,)),
    ("map_structure_up_to", [1], str),
    ("map_structure_up_to", {"a": 0}, leaves, {"a": [1]}, {"a": 2}),
    ("assert_same_structure", [1], [2]),
    ("assert_same_structure", [1], (2,)),
    ("assert_same_structure", [1], [2, 3]),
    ("assert_same_structure", 1, 2),
    ("assert_same_structure", [1], 2),
    ("assert_same_structure", P(1, 2), Q(1, 2)),
    ("assert_same_structure", OrderedDict(a=1), {"a": 2}),
    ("assert_same_structure", None, []),
    ("assert_same_paths", [0, 1], (2, 3)),
    ("assert_same_paths", P(0, 1), Q(0, 1)),
    ("assert_same_paths", [0], [1, 2]),
    ("assert_same_paths", {"a": 1}, {"b": 1}),
    ("pack_sequence_as", {"c": {"c": (1, 2), "a": 3}, "a": {"e": 1}}, [1, 2, 3, 4]),
    ("pack_sequence_as", [1], [1, 2]),
    ("pack_sequence_as", [1, 2], [1]),
    ("pack_sequence_as", 1, [1]),
    ("pack_sequence_as", 1, [1, 2]),
    ("pack_sequence_as", [1], 5),
    ("pack_sequence_as", P(1, 2), (3, 4)),
    ("pack_sequence_as", OrderedDict(b=1, a=2), [3, 4]),
    ("lists_to_tuples", [1, {"a": [2, [3]]}, (4, [5])]),
    ("lists_to_tuples", P([1], 2)),
    ("map_shape_structure", leaves, [(1, None), {"a": [2, 3], "b": ((1,),)}]),
    ("map_shape_structure", leaves, ()),
    ("map_shape_structure", leaves, [[]]),
    ("map_shape_structure", leaves, [(1, 2.0)]),
    ("map_shape_structure", leaves, None),
]
NONES = (
    ([None, 1],),
    ([None, 1], [None, 2]),
    ([None, 1], [3, 2]),
    ([3, 1], [None, 2]),
)
TRAVERSED = ([(1, 2), [3], {"a": 4}], [1, 2, [2]], OrderedDict(b=2, a=[1]))


def result(function: Any, *args: Any, **options: Any) -> str:
    try:
        return repr(function(*args, **options))
    except Exception as error:  # the type of the error is what is compared
        return type(error).__name__


def traversal(tree: Any, structure: Any, top_down: bool) -> tuple[Any, list[Any]]:
    """Return what `traverse` makes of a structure, and the order of its visits."""
    visits = []

    def visit(part: Any) -> Any:
        visits.append(part)
        if part == 2:
            return tree.MAP_TO_NONE
        return tuple(part) if isinstance(part, list) else None

    return tree.traverse(visit, structure, top_down=top_down), visits


@pytest.mark.rivals
def test_as_keras(keras):
    for name, *args in CASES:
        ours, theirs = getattr(ganglion.tree, name), getattr(keras.tree, name)
        assert result(ours, *args) == result(theirs, *args), (name, args)


@pytest.mark.rivals
@pytest.mark.parametrize("none_is_leaf", [True, False])
def test_none_as_a_leaf(keras, none_is_leaf):
    for structures in NONES:
        options = {"none_is_leaf": none_is_leaf}
        ours = result(ganglion.tree.map_structure, leaves, *structures, **options)
        theirs = result(keras.tree.map_structure, leaves, *structures, **options)
        assert ours == theirs, structures


@pytest.mark.rivals
@pytest.mark.parametrize("top_down", [True, False])
def test_traverse(keras, top_down):
    for structure in TRAVERSED:
        ours = traversal(ganglion.tree, structure, top_down)
        assert repr(ours) == repr(traversal(keras.tree, structure, top_down))


def test_up_to_none():
    shallow = [None, [None, None]]
    mapped = ganglion.tree.map_structure_up_to(shallow, str, [[1, 1], [2, 2]])
    assert mapped == ["[1, 1]", ["2", "2"]]  # as Keras' text says; its code refuses it


def test_containers_of_layers_are_structures():
    layer = ganglion.layers.Layer()
    layer.kept = {"b": [1], "a": {2}}  # a set among others is a leaf
    assert ganglion.tree.flatten(layer.kept) == [2, 1]
    assert ganglion.tree.flatten({"a": {2}}) == [{2}]
    doubled = ganglion.tree.map_structure(lambda *x: sum(x), layer.kept, layer.kept)
    assert doubled == {"b": [2], "a": {4}}
    assert type(doubled) is type(layer.kept)
    assert type(doubled["a"]) is type(layer.kept["a"])
