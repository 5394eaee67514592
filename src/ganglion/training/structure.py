"""The structure of a model: everything that its steps depend on.

Two models whose structures are equal have equal steps, each with its own variables. A
structure covers everything that a step is traced from: layers, losses, metrics,
optimizer and every number in them that is not a variable. It is read from the objects
themselves, so that changes after construction count. Objects and functions that are not
Ganglion's may depend on anything: a model that has some has no structure.

Reading is a breadth-first walk from a model to all objects that it refers to. Every
object is opened once into a token, which identifies it, and its values, of which some
are plain and the others are opened in turn. `fit_many` reads hundreds of models in a
call, most of them alike: so a walk is stored as a `_Form`, which checks the next model
for the same walk in a few operations per object.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping, Sequence
from operator import is_, itemgetter
from typing import Any

import numpy as np

from ganglion.random import SeedGenerator
from ganglion.system.records import record
from ganglion.variables import Variable

# Attributes that no step depends on: names, and cached results.
_IGNORED = frozenset(
    (
        "name", "own_name", "layer_name", "path", "_path", "created", "grad",
        "history", "notes",
        "stop_training", "stop_evaluating", "stop_predicting", "initial_epoch",
        "steps_per_execution", "jit_compile", "_step_cache", "_init_values",
        "_initial_weights", "_compile_arguments", "_was_called",
        "_warned_of_structure", "_inferred", "_tracker", "_output_names",
        "input_hint", "_array", "steps_done", "saved_metrics", "was_loaded",
        "callbacks", "saved_callbacks", "epoch_logs", "unfolded_calls", "is_plain",
        "end_of",
    )
)  # fmt: skip
PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))
_EXACT = frozenset((bool, int, str, bytes, type(None)))  # compared by equality
_CONTAINERS = (list, tuple, dict)
_STANDARD = ("builtins", "collections")
_MOST_FORMS = 8  # that the next model is compared with


class UnknownCodeError(Exception):
    """An object in a model whose meaning cannot be read from it."""


class Key:
    """The tokens of a walk: a long tuple, hashed once."""

    __slots__ = ("_hash", "_tokens")

    def __init__(self, tokens: tuple[Any, ...]) -> None:
        self._tokens, self._hash = tokens, hash(tokens)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Key) and self._tokens == other._tokens


@record(guarded=True)
class Structure:
    """A key of all that a model's steps depend on, and its variables in order."""

    key: Key
    variables: tuple[Variable, ...]


def structure_of(model: Any) -> Structure | None:
    """Return the structure of a model that is ready to train, None if it has none."""
    forms = _recent.forms
    try:
        for form in forms:
            variables = form.variables_of(model)
            if variables is not None:
                return Structure(form.key, variables)
        form, objects = _walk(model)
    except UnknownCodeError:
        return None
    others = [known for known in forms if known.key != form.key]
    _recent.forms = (form, *others[: _MOST_FORMS - 1])
    return Structure(form.key, form.variables_among(objects))


# ---- opening an object ---------------------------------------------------------------

Opened = tuple[Any, tuple[Any, ...]]  # a token, and the values of the object
Opener = Callable[[Any], Opened]
_NOTHING: tuple[Any, ...] = ()


def _opened(obj: Any) -> Opened:
    """Return the token of an object, and its values that steps depend on."""
    kind: Any = type(obj)
    return _opener(kind)(obj)


def _plain(obj: Any) -> Opened:
    # Equal numbers of different types are different: 1, 1.0, True, -0.0.
    return repr(obj), _NOTHING


def _array(obj: Any) -> Opened:
    array = np.asarray(obj)
    return (array.shape, array.dtype, array.tobytes()), _NOTHING


def _list(obj: Any) -> Opened:
    return len(obj), tuple(obj)


def _dict(obj: Any) -> Opened:
    return len(obj), (*obj, *obj.values())


def _set(obj: Any) -> Opened:
    if not all(isinstance(element, PLAIN) for element in obj):
        raise UnknownCodeError  # has no order that two models share
    return tuple(sorted(map(repr, obj))), _NOTHING


def _type(obj: Any) -> Opened:
    return _known_name(obj), _NOTHING


def _function(obj: Any) -> Opened:
    cells = [cell.cell_contents for cell in obj.__closure__ or ()]
    line = obj.__code__.co_firstlineno  # lambdas have no name of their own
    token = _known_name(obj), line
    return token, (*cells, obj.__defaults__, obj.__kwdefaults__)


def _method(obj: Any) -> Opened:
    return obj.__name__, (obj.__self__,)


def _partial(obj: Any) -> Opened:
    return _NOTHING, (obj.func, obj.args, obj.keywords)


def _span(obj: Any) -> Opened:
    return _NOTHING, (obj.start, obj.stop, obj.step)


def _object(obj: Any) -> Opened:
    attributes = _attributes(obj)
    names, values_of = _that_matter(*_names(type(obj), attributes))
    return names, values_of(attributes)


def _variable(obj: Any) -> Opened:
    names, values = _object(obj)
    return (_kind_of_array(obj), names), values


def _kind_of_array(obj: Any) -> tuple[Any, ...] | None:
    """Return the shape and type of a variable, None for any other object."""
    if not isinstance(obj, Variable):
        return None
    array = obj.unsynced_array
    return array.shape, array.dtype


# Openers of classes from any library, and of Ganglion's and Python's own classes.
_OF_ANY: tuple[tuple[Any, Opener], ...] = (
    (PLAIN, _plain),
    ((np.ndarray, np.generic), _array),
    ((type, np.dtype), _type),
    (types.FunctionType, _function),
    (types.MethodType, _method),
    (functools.partial, _partial),
    (Variable, _variable),
)
_OURS: tuple[tuple[Any, Opener], ...] = (
    ((list, tuple), _list),
    (dict, _dict),
    ((set, frozenset), _set),
    ((slice, range), _span),
    (object, _object),
)


@functools.cache
def _opener(kind: Any) -> Opener:
    """Return the opener of a class; most must be Ganglion's or Python's."""
    for kinds, opener in _OF_ANY:
        if issubclass(kind, kinds):
            return opener
    _known_name(kind)
    return next(opener for kinds, opener in _OURS if issubclass(kind, kinds))


def is_ours(kind: Any) -> bool:
    """Return whether a class or function is Ganglion's."""
    module = str(getattr(kind, "__module__", ""))
    return module == "ganglion" or module.startswith("ganglion.")


def _known_name(obj: Any) -> str:
    """Return the name of a class or function; raise for those of other libraries."""
    if isinstance(obj, np.dtype):
        return str(obj)
    module = str(getattr(obj, "__module__", ""))
    if not is_ours(obj) and module not in (*_STANDARD, "numpy"):
        raise UnknownCodeError
    return f"{module}.{obj.__qualname__}"


# ---- attributes ----------------------------------------------------------------------


def _attributes(obj: Any) -> Mapping[str, Any]:
    kind: Any = type(obj)
    slots = _slots_of(kind)
    values: dict[str, Any] = getattr(obj, "__dict__", {})
    if not (slots or hasattr(obj, "__dict__") or is_ours(kind)):
        raise UnknownCodeError  # its content is not visible, as in a deque
    if slots:
        own = {name: getattr(obj, name) for name in slots if hasattr(obj, name)}
        values = {**values, **own}
    return values


@functools.cache
def _slots_of(kind: Any) -> tuple[str, ...]:
    names: list[str] = []
    for base in kind.__mro__:
        slots = base.__dict__.get("__slots__", ())
        names += (slots,) if isinstance(slots, str) else slots
    return tuple(name for name in names if name not in ("__dict__", "__weakref__"))


def _names(kind: Any, attributes: Mapping[str, Any]) -> tuple[bool, tuple[str, ...]]:
    """Return whether `seed` is only a generator's initial seed, and all names."""
    generator = attributes.get("seed_generator")
    is_seeded = issubclass(kind, SeedGenerator) or isinstance(generator, SeedGenerator)
    return is_seeded, tuple(attributes)


Getter = Callable[[Any], tuple[Any, ...]]


@functools.lru_cache(4096)
def _that_matter(
    is_seeded: bool, names: tuple[str, ...]
) -> tuple[tuple[str, ...], Getter]:
    """Return the names of attributes that steps depend on, and their getter."""
    ignored = _IGNORED | {"seed"} if is_seeded else _IGNORED
    # Weights exist already: their initializers no longer matter.
    names = tuple(n for n in names if n not in ignored and n[-11:] != "initializer")
    return names, _getter(names)


def _getter(keys: Sequence[Any]) -> Getter:
    """Return a function that takes values from a mapping or sequence, as a tuple."""
    if len(keys) > 1:
        return itemgetter(*keys)
    if not keys:
        return lambda values: _NOTHING
    (key,) = keys
    return lambda values: (values[key],)


# ---- walks ---------------------------------------------------------------------------


@record(guarded=True)
class _Entry:
    """An object of a walk."""

    kind: Any
    names: tuple[str, ...] | None  # of all its attributes, if those are its values
    values_of: Getter  # of a dictionary of attributes
    array: tuple[Any, ...] | None  # the shape and type of a variable
    token: Any
    kinds: tuple[Any, ...]  # of its values
    exact: Mapping[int, Any]  # values that are equal to these
    inexact: Mapping[int, str]  # plain values, as texts
    empty: tuple[int, ...]  # positions of empty containers
    # Values to open: their positions, and the numbers of the objects in the walk.
    opened: tuple[tuple[int, int], ...]


def _walk(model: Any) -> tuple[_Form, list[Any]]:
    """Open all objects of a model; return the walk, and the objects in order."""
    objects, seen = [model], {id(model): 0}
    entries = []
    for obj in objects:  # which grows meanwhile
        token, values = _opened(obj)
        sorts: dict[str, list[int]] = {sort: [] for sort in _SORTS}
        for index, value in enumerate(values):
            sorts[_sort(value)].append(index)
        opened = []
        for index in sorts["opened"]:
            number = seen.setdefault(id(values[index]), len(objects))
            if number == len(objects):
                objects.append(values[index])
            opened.append((index, number))
        entries.append(
            _Entry(
                type(obj), *_fast(obj), _kind_of_array(obj), token,
                tuple(map(type, values)), {n: values[n] for n in sorts["exact"]},
                {n: repr(values[n]) for n in sorts["inexact"]}, tuple(sorts["empty"]),
                tuple(opened),
            )
        )  # fmt: skip
    return _Form(entries), objects


_SORTS = ("exact", "inexact", "empty", "opened")


def _sort(value: Any) -> str:
    """Return how a value is compared with another value of its type."""
    if type(value) in _EXACT or (type(value) is float and (value < 0 or value > 0)):
        return "exact"
    if isinstance(value, PLAIN):
        return "inexact"  # -0.0 and 0.0 compare equal
    return "empty" if type(value) in _CONTAINERS and not value else "opened"


def _fast(obj: Any) -> tuple[tuple[str, ...] | None, Getter]:
    """Return the names of attributes and the getter of their values, if it has any."""
    kind: Any = type(obj)
    openers: tuple[Opener, ...] = (_object, _variable)
    if _opener(kind) not in openers or _slots_of(kind):
        return None, _getter(())
    is_seeded, names = _names(kind, _attributes(obj))
    return names, _that_matter(is_seeded, names)[1]


class _Form:
    """A walk that other models can be compared with; it keeps no model alive.

    The values of all objects are read one after the other, behind the model itself, and
    compared at once.
    """

    def __init__(self, entries: Sequence[_Entry]) -> None:
        tokens = [
            (e.kind, e.token, e.kinds, *_items(e.exact), *_items(e.inexact), e.opened)
            for e in entries
        ]
        self.key = Key(tuple(tokens))
        self._kinds = [entries[0].kind]
        places = {0: 0}  # of objects among the values
        exact, inexact = dict[int, Any](), dict[int, str]()
        empty, again = list[int](), dict[int, int]()
        for entry in entries:
            start = len(self._kinds)
            self._kinds += entry.kinds
            exact |= {start + index: value for index, value in entry.exact.items()}
            inexact |= {start + index: text for index, text in entry.inexact.items()}
            empty += [start + index for index in entry.empty]
            for index, number in entry.opened:
                place = places.setdefault(number, start + index)
                if place != start + index:
                    again[start + index] = place
        self._opened: list[tuple[Any, ...]] = [
            (places[n], e.kind, e.names, e.values_of, e.array, _opener(e.kind), e.token)
            for n, e in enumerate(entries)
        ]
        self._exact, self._numbers = _getter(list(exact)), tuple(exact.values())
        self._inexact, self._texts = _getter(list(inexact)), tuple(inexact.values())
        self._empty = _getter(empty)
        self._again, self._firsts = _getter(list(again)), _getter(list(again.values()))
        self._objects = _getter([places[number] for number in range(len(entries))])
        self._variables = [
            number
            for number, entry in enumerate(entries)
            if issubclass(entry.kind, Variable)
        ]

    def variables_among(self, objects: Sequence[Any]) -> tuple[Variable, ...]:
        """Return the variables among the objects of a walk."""
        return tuple([objects[number] for number in self._variables])

    def variables_of(self, model: Any) -> tuple[Variable, ...] | None:
        """Return the variables of a model of the same structure, None for others."""
        values = [model]
        for place, kind, names, values_of, array, opener, token in self._opened:
            obj = values[place]
            if type(obj) is not kind:
                return None
            if names is not None:
                attributes = obj.__dict__
                if tuple(attributes) != names:
                    return None
                values += values_of(attributes)
                if array is not None:
                    own = obj.unsynced_array
                    if (own.shape, own.dtype) != array:
                        return None
            elif kind is list or kind is tuple:
                if len(obj) != token:
                    return None
                values += obj
            else:
                own_token, opened = opener(obj)
                if own_token != token:
                    return None
                values += opened
        return self._variables_if_equal(values)

    def _variables_if_equal(self, values: list[Any]) -> tuple[Variable, ...] | None:
        """Return the variables among the values of all objects, if these are equal."""
        is_equal = (
            list(map(type, values)) == self._kinds
            and self._exact(values) == self._numbers
            and tuple(map(repr, self._inexact(values))) == self._texts
            and not any(self._empty(values))
            and all(map(is_, self._again(values), self._firsts(values)))
        )
        if not is_equal:
            return None
        objects = self._objects(values)
        # An object that is shared here must not be two objects there.
        is_same = len(set(map(id, objects))) == len(objects)
        return self.variables_among(objects) if is_same else None


def _items(values: Mapping[int, Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    return tuple(values), tuple(values.values())


class _Recent:
    forms: tuple[_Form, ...] = ()  # replaced atomically: threads read it


_recent = _Recent()
