"""What a layer keeps in its attributes: variables, layers, metrics and random seeds.

They are found wherever they lie, as in Keras: in an attribute or in lists, tuples,
dictionaries and sets, nested, also when they are appended later. `Tracker.track` is the
one place that looks; a layer calls it for whatever is set as an attribute.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from typing import Any

from ganglion.metrics.base import Metric
from ganglion.random import SeedGenerator
from ganglion.variables import Variable


class Tracker:
    """The things that belong to one layer, each once, in the order they came."""

    def __init__(self, layer_type: type) -> None:
        self._layer_type = layer_type
        self._stores: dict[str, list[Any]] = {
            "trainable": [],  # variables, by what they were when they came
            "fixed": [],
            "layers": [],
            "metrics": [],
            "seeds": [],
        }
        self._known: set[int] = set()
        self._watched: list[Any] = []  # containers that cannot tell of their changes

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_known": None}  # a copy's things have other numbers

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._known = {id(one) for store in self._stores.values() for one in store}

    # ---- what is there -----------------------------------------------------------

    @property
    def variables(self) -> list[Variable]:
        """The variables, those that were trainable when they came first."""
        return [*self._now("trainable"), *self._stores["fixed"]]

    @property
    def trainable(self) -> list[Variable]:
        """The variables that train as long as the layer does."""
        return self._now("trainable")

    @property
    def layers(self) -> list[Any]:
        """The layers."""
        return self._now("layers")

    @property
    def metrics(self) -> list[Metric]:
        """The metrics."""
        return self._now("metrics")

    @property
    def seeds(self) -> list[SeedGenerator]:
        """The random generators."""
        return self._now("seeds")

    def _now(self, kind: str) -> list[Any]:
        for container in self._watched:
            for one in _contents(container):
                self.track(one)
        return list(self._stores[kind])

    # ---- what comes and goes -----------------------------------------------------

    def track(self, value: Any) -> Any:
        """Note what a value holds; return it, with containers that tell of changes."""
        kind = self._kind(value)
        if kind is not None:
            if id(value) not in self._known:
                self._known.add(id(value))
                self._stores[kind].append(value)
            return value
        if type(value) in _TELLING:
            return _TELLING[type(value)](value, self)
        if isinstance(value, tuple):
            return self._track_tuple(value)
        if isinstance(value, (list, dict, set, deque)):
            self.watch(value)
        return value

    def watch(self, value: Any) -> None:
        """Note what a value holds, now and later, and leave it as it is."""
        if not isinstance(value, (list, dict, set, deque)):
            self.track(value)
        elif not any(one is value for one in self._watched):
            self._watched.append(value)
            for one in _contents(value):
                self.watch(one)

    def _track_tuple(self, value: tuple[Any, ...]) -> Any:
        parts = [self.track(one) for one in value]
        if all(new is old for new, old in zip(parts, value, strict=True)):
            return value
        is_named = hasattr(value, "_fields")
        return type(value)(*parts) if is_named else type(value)(parts)

    def _kind(self, value: Any) -> str | None:
        if isinstance(value, Variable):
            return "trainable" if value.trainable else "fixed"
        if isinstance(value, self._layer_type):
            return "layers"
        if isinstance(value, Metric):
            return "metrics"
        return "seeds" if isinstance(value, SeedGenerator) else None

    def untrack(self, value: Any) -> None:
        """Forget a thing that was taken out of its container."""
        if id(value) in self._known:
            self._known.discard(id(value))
            for store in self._stores.values():
                store[:] = [one for one in store if one is not value]


def _contents(container: Any) -> list[Any]:
    return list(container.values() if isinstance(container, dict) else container)


class _Telling:
    """What the containers below have in common: they tell a tracker of changes."""

    tracker: Tracker | None = None

    def _come(self, value: Any) -> Any:
        if self.tracker is not None:
            self.tracker.watch(value)
        return value

    def _go(self, values: Iterable[Any]) -> None:
        for one in list(values):
            if self.tracker is not None:
                self.tracker.untrack(one)


def _taken(values: Iterable[Any], tracker: Tracker | None) -> Iterator[Any]:
    return (one if tracker is None else tracker.track(one) for one in values)


class TrackedList(_Telling, list[Any]):
    """A list in an attribute of a layer."""

    def __init__(self, values: Iterable[Any] = (), tracker: Tracker | None = None):
        super().__init__(_taken(values, tracker))
        self.tracker = tracker

    def __reduce__(self) -> Any:
        return list, (list(self),)

    def append(self, value: Any) -> None:
        super().append(self._come(value))

    def insert(self, index: Any, value: Any) -> None:
        super().insert(index, self._come(value))

    def extend(self, values: Iterable[Any]) -> None:
        super().extend([self._come(one) for one in values])

    def __iadd__(self, values: Iterable[Any]) -> Any:  # type: ignore[misc]
        self.extend(values)
        return self

    def __setitem__(self, index: Any, value: Any) -> None:
        self._go(self[index] if isinstance(index, slice) else [self[index]])
        new = list(value) if isinstance(index, slice) else value
        super().__setitem__(index, new)
        for one in new if isinstance(index, slice) else [new]:
            self._come(one)

    def __delitem__(self, index: Any) -> None:
        self._go(self[index] if isinstance(index, slice) else [self[index]])
        super().__delitem__(index)

    def pop(self, index: Any = -1) -> Any:
        value = super().pop(index)
        self._go([value])
        return value

    def remove(self, value: Any) -> None:
        place = next((i for i, one in enumerate(self) if one is value), None)
        if place is None:
            place = self.index(value)
        del self[place]

    def clear(self) -> None:
        self._go(self)
        super().clear()


class TrackedDict(_Telling, dict[Any, Any]):
    """A dictionary in an attribute of a layer."""

    def __init__(self, values: Any = (), tracker: Tracker | None = None) -> None:
        held = dict(values)
        super().__init__(zip(held, _taken(held.values(), tracker), strict=True))
        self.tracker = tracker

    def __reduce__(self) -> Any:
        return dict, (dict(self),)

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, self._come(value))

    def update(self, *args: Any, **kwargs: Any) -> None:
        for key, value in dict(*args, **kwargs).items():
            self[key] = value

    def __ior__(self, other: Any) -> Any:  # type: ignore[misc]
        self.update(other)
        return self

    def setdefault(self, key: Any, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def __delitem__(self, key: Any) -> None:
        self._go([self[key]])
        super().__delitem__(key)

    def pop(self, key: Any, *default: Any) -> Any:
        self._go([self[key]] if key in self else [])
        return super().pop(key, *default)

    def popitem(self, *args: Any, **kwargs: Any) -> Any:
        key, value = super().popitem(*args, **kwargs)
        self._go([value])
        return key, value

    def clear(self) -> None:
        self._go(self.values())
        super().clear()


class TrackedOrderedDict(TrackedDict, OrderedDict[Any, Any]):
    """An ordered dictionary in an attribute of a layer."""

    def __reduce__(self) -> Any:
        return OrderedDict, (list(self.items()),)


class TrackedSet(_Telling, set[Any]):
    """A set in an attribute of a layer."""

    def __init__(self, values: Iterable[Any] = (), tracker: Tracker | None = None):
        super().__init__(_taken(values, tracker))
        self.tracker = tracker

    def __reduce__(self) -> Any:
        return set, (set(self),)

    def add(self, value: Any) -> None:
        super().add(self._come(value))

    def update(self, *others: Iterable[Any]) -> None:
        for one in [one for other in others for one in other]:
            self.add(one)

    def __ior__(self, other: Any) -> Any:  # type: ignore[misc]
        self.update(other)
        return self

    def remove(self, value: Any) -> None:
        super().remove(value)
        self._go([value])

    def discard(self, value: Any) -> None:
        if value in self:
            self.remove(value)

    def pop(self) -> Any:
        value = super().pop()
        self._go([value])
        return value

    def clear(self) -> None:
        self._go(self)
        super().clear()


# Only these very types: a subclass of the user's own is watched, and stays what it is.
_TELLING: dict[type, type] = {
    list: TrackedList,
    dict: TrackedDict,
    OrderedDict: TrackedOrderedDict,
    set: TrackedSet,
}
