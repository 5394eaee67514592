"""What the steps of a model depend on, read off the model itself.

Two models whose structures are equal have equal steps, each with its own variables. A
structure is all that a step is traced from: layers, losses, metrics, optimizer and
every number in them that is not a variable. It is read off the objects themselves, so
that what was changed after construction counts. Objects and functions that are not
Ganglion's may look at anything: a model with such has none.

Reading is a walk, breadth first, from a model to all that it holds. Every object is
opened once: it says what it is (a token), and has values, of which some are plain and
the others are opened in turn. Hundreds of models are read in one call of `fit_many`,
most of them made alike: so a walk leaves a `_Form`, which takes the next model through
the same walk in a few operations an object, and asks only whether it finds the same.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np

from ganglion.random import SeedGenerator
from ganglion.variables import Variable

# What an object remembers, or is called, and no step depends on.
_IGNORED = frozenset(
    (
        "name", "path", "_path", "created", "grad", "history", "notes",
        "stop_training", "stop_evaluating", "stop_predicting", "initial_epoch",
        "steps_per_execution", "jit_compile", "_step_cache", "_init_values",
        "_initial_weights", "_compile_arguments", "_was_called",
        "_warned_of_structure", "_inferred", "_tracker", "_output_names",
        "input_hint", "_array", "steps_done", "saved_metrics", "was_loaded",
        "callbacks", "saved_callbacks", "epoch_logs", "unfolded_calls", "is_plain",
    )
)  # fmt: skip
PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))
_EXACT = frozenset((bool, int, str, bytes, type(None)))  # equal ones are the same
_CONTAINERS = (list, tuple, dict)
_STANDARD = ("builtins", "collections")
_MOST_FORMS = 8  # that the next model is compared with


class UnknownCodeError(Exception):
    """Something in a model whose meaning cannot be read off it."""


class Key:
    """All that a walk has found: a long tuple, hashed once."""

    __slots__ = ("_hash", "_tokens")

    def __init__(self, tokens: tuple[Any, ...]) -> None:
        self._tokens, self._hash = tokens, hash(tokens)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Key) and self._tokens == other._tokens


@dataclass(frozen=True)
class Structure:
    """All that steps of a model depend on, and its variables in a fixed order."""

    key: Key
    variables: tuple[Variable, ...]


def structure_of(model: Any) -> Structure | None:
    """Return the structure of a model that is ready to train, None if it is hidden."""
    forms = _recent.forms
    try:
        for form in forms:
            variables = form.variables_of(model)
            if variables is not None:
                return Structure(form.key, variables)
        form, things = _walk(model)
    except UnknownCodeError:
        return None
    others = [known for known in forms if known.key != form.key]
    _recent.forms = (form, *others[: _MOST_FORMS - 1])
    return Structure(form.key, form.variables_among(things))


# ---- what an object is ---------------------------------------------------------------

Opened = tuple[Any, tuple[Any, ...]]  # what it is, and its values
Opener = Callable[[Any], Opened]
_NOTHING: tuple[Any, ...] = ()


def _opened(thing: Any) -> Opened:
    """Return what an object is, and its values that steps depend on."""
    kind: Any = type(thing)
    return _opener(kind)(thing)


def _plain(thing: Any) -> Opened:
    # Equal numbers of different types are different: 1, 1.0, True, -0.0.
    return repr(thing), _NOTHING


def _array(thing: Any) -> Opened:
    array = np.asarray(thing)
    return (array.shape, array.dtype, array.tobytes()), _NOTHING


def _list(thing: Any) -> Opened:
    return len(thing), tuple(thing)


def _dict(thing: Any) -> Opened:
    return len(thing), (*thing, *thing.values())


def _set(thing: Any) -> Opened:
    if not all(isinstance(element, PLAIN) for element in thing):
        raise UnknownCodeError  # in no order that two models share
    return tuple(sorted(map(repr, thing))), _NOTHING


def _type(thing: Any) -> Opened:
    return _known_name(thing), _NOTHING


def _function(thing: Any) -> Opened:
    cells = [cell.cell_contents for cell in thing.__closure__ or ()]
    line = thing.__code__.co_firstlineno  # lambdas have no name of their own
    token = _known_name(thing), line
    return token, (*cells, thing.__defaults__, thing.__kwdefaults__)


def _method(thing: Any) -> Opened:
    return thing.__name__, (thing.__self__,)


def _partial(thing: Any) -> Opened:
    return _NOTHING, (thing.func, thing.args, thing.keywords)


def _span(thing: Any) -> Opened:
    return _NOTHING, (thing.start, thing.stop, thing.step)


def _object(thing: Any) -> Opened:
    attributes = _attributes(thing)
    names, values_of = _that_matter(*_names(type(thing), attributes))
    return names, values_of(attributes)


def _variable(thing: Any) -> Opened:
    names, values = _object(thing)
    return (_kind_of_array(thing), names), values


def _kind_of_array(thing: Any) -> tuple[Any, ...] | None:
    """Return the shape and type of a variable, None of anything else."""
    if not isinstance(thing, Variable):
        return None
    array = thing.unsynced_array
    return array.shape, array.dtype


_ANYONES: tuple[tuple[Any, Opener], ...] = (
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
    """Return what opens objects of a class; most must be Ganglion's or Python's."""
    for kinds, opener in _ANYONES:
        if issubclass(kind, kinds):
            return opener
    _known_name(kind)
    return next(opener for kinds, opener in _OURS if issubclass(kind, kinds))


def is_ours(kind: Any) -> bool:
    """Return whether a class or function is Ganglion's."""
    module = str(getattr(kind, "__module__", ""))
    return module == "ganglion" or module.startswith("ganglion.")


def _known_name(thing: Any) -> str:
    """Return what a class or function is called, if it is Ganglion's or Python's."""
    if isinstance(thing, np.dtype):
        return str(thing)
    module = str(getattr(thing, "__module__", ""))
    if not is_ours(thing) and module not in (*_STANDARD, "numpy"):
        raise UnknownCodeError
    return f"{module}.{thing.__qualname__}"


# ---- attributes ----------------------------------------------------------------------


def _attributes(thing: Any) -> Mapping[str, Any]:
    kind: Any = type(thing)
    slots = _slots_of(kind)
    values: dict[str, Any] = getattr(thing, "__dict__", {})
    if not (slots or hasattr(thing, "__dict__") or is_ours(kind)):
        raise UnknownCodeError  # what it holds cannot be seen, as of a deque
    if slots:
        own = {name: getattr(thing, name) for name in slots if hasattr(thing, name)}
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
    """Return whether the seed only says where a generator began, and all names."""
    generator = attributes.get("seed_generator")
    is_seeded = issubclass(kind, SeedGenerator) or isinstance(generator, SeedGenerator)
    return is_seeded, tuple(attributes)


Getter = Callable[[Any], tuple[Any, ...]]


@functools.lru_cache(4096)
def _that_matter(
    is_seeded: bool, names: tuple[str, ...]
) -> tuple[tuple[str, ...], Getter]:
    """Return the names of attributes that steps depend on, and what returns those."""
    ignored = _IGNORED | {"seed"} if is_seeded else _IGNORED
    # Weights are there already: what drew them does not matter any more.
    names = tuple(n for n in names if n not in ignored and n[-11:] != "initializer")
    return names, _getter(names)


def _getter(keys: Sequence[Any]) -> Getter:
    """Return what takes some of a mapping or a sequence, as a tuple."""
    if len(keys) > 1:
        return itemgetter(*keys)
    if not keys:
        return lambda values: _NOTHING
    (key,) = keys
    return lambda values: (values[key],)


# ---- walks ---------------------------------------------------------------------------


@dataclass(frozen=True)
class _Entry:
    """What a walk has found in one object."""

    kind: Any
    names: tuple[str, ...] | None  # of all its attributes, where those are its values
    values_of: Getter  # of a dictionary of attributes
    array: tuple[Any, ...] | None  # the shape and type of a variable
    token: Any
    kinds: tuple[Any, ...]  # of its values
    exact: Getter  # values that are equal to these
    numbers: tuple[Any, ...]
    inexact: Getter  # plain values that have these texts
    texts: tuple[str, ...]
    empty: tuple[int, ...]  # where there are containers with nothing in them
    # Values to open: where they are, and the number of the object in the walk.
    opened: tuple[tuple[int, int], ...]


def _walk(model: Any) -> tuple[_Form, list[Any]]:
    """Open all that a model holds; return the way, and the objects in order."""
    things, seen = [model], {id(model): 0}
    entries = []
    for thing in things:  # which grows
        token, values = _opened(thing)
        sorts: dict[str, list[int]] = {sort: [] for sort in _SORTS}
        for index, value in enumerate(values):
            sorts[_sort(value)].append(index)
        opened = []
        for index in sorts["opened"]:
            number = seen.setdefault(id(values[index]), len(things))
            if number == len(things):
                things.append(values[index])
            opened.append((index, number))
        exact, inexact = _getter(sorts["exact"]), _getter(sorts["inexact"])
        entries.append(
            _Entry(
                type(thing), *_fast(thing), _kind_of_array(thing), token,
                tuple(map(type, values)), exact, exact(values), inexact,
                _texts(inexact(values)), tuple(sorts["empty"]), tuple(opened),
            )
        )  # fmt: skip
    return _Form(entries), things


_SORTS = ("exact", "inexact", "empty", "opened")


def _sort(value: Any) -> str:
    """Return how a value is compared with another one of its type."""
    if type(value) in _EXACT or (type(value) is float and (value < 0 or value > 0)):
        return "exact"
    if isinstance(value, PLAIN):
        return "inexact"  # -0.0 and 0.0 are equal, and not the same
    return "empty" if type(value) in _CONTAINERS and not value else "opened"


def _fast(thing: Any) -> tuple[tuple[str, ...] | None, Getter]:
    """Return the names of attributes and what returns their values, of most objects."""
    kind: Any = type(thing)
    openers: tuple[Opener, ...] = (_object, _variable)
    if _opener(kind) not in openers or _slots_of(kind):
        return None, _getter(())
    is_seeded, names = _names(kind, _attributes(thing))
    return names, _that_matter(is_seeded, names)[1]


class _Form:
    """A walk through a model that others can be led through; it keeps none alive."""

    def __init__(self, entries: Sequence[_Entry]) -> None:
        tokens = [
            (e.kind, e.token, e.kinds, e.numbers, e.texts, e.opened) for e in entries
        ]
        self.key = Key(tuple(tokens))
        self._entries = [tuple(vars(entry).values()) for entry in entries]
        self._variables = [
            number
            for number, entry in enumerate(entries)
            if issubclass(entry.kind, Variable)
        ]

    def variables_among(self, things: Sequence[Any]) -> tuple[Variable, ...]:
        """Return the variables among the objects of a walk."""
        return tuple([things[number] for number in self._variables])

    def variables_of(self, model: Any) -> tuple[Variable, ...] | None:
        """Return the variables of a model that is the same; None of any other."""
        things = [model] if type(model) is self._entries[0][0] else []
        for thing, entry in zip(things, self._entries, strict=False):
            (kind, names, values_of, array, token, kinds, exact, numbers, inexact,
             texts, empty, opened) = entry  # fmt: skip
            if names is not None:
                attributes = thing.__dict__
                if tuple(attributes) != names:
                    return None
                values = values_of(attributes)
                if array is not None:
                    own = thing.unsynced_array
                    if (own.shape, own.dtype) != array:
                        return None
            elif kind is list or kind is tuple:
                values = tuple(thing)
            else:
                found, values = _opener(kind)(thing)
                if found != token:
                    return None
            if tuple(map(type, values)) != kinds:
                return None
            if numbers and exact(values) != numbers:
                return None
            if texts and _texts(inexact(values)) != texts:
                return None
            for index in empty:
                if values[index]:
                    return None
            for index, number in opened:
                if number == len(things):
                    things.append(values[index])
                elif things[number] is not values[index]:
                    return None
        # What is one object here must not be two there.
        is_same = len(set(map(id, things))) == len(self._entries)
        return self.variables_among(things) if is_same else None


def _texts(values: Sequence[Any]) -> tuple[str, ...]:
    return tuple(map(repr, values))


class _Recent:
    forms: tuple[_Form, ...] = ()  # replaced as a whole: threads read it


_recent = _Recent()
