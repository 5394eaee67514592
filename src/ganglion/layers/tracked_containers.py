"""Lists, dictionaries and sets in attributes of layers, which report their changes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import (
    Iterable,
    Iterator,
    MutableMapping,
    MutableSequence,
    MutableSet,
)
from typing import TYPE_CHECKING, Any

from ganglion import tree

if TYPE_CHECKING:
    from ganglion.layers.tracking import Tracker


class _Reporting:
    """The base of the containers below: it reports their changes to a tracker."""

    tracker: Tracker | None = None

    def _add(self, value: Any) -> Any:
        if self.tracker is not None:
            self.tracker.watch(value)
        return value

    def _drop(self, values: Iterable[Any]) -> None:
        if self.tracker is not None:
            for value in list(values):
                self.tracker.untrack(value)


def _tracked(values: Iterable[Any], tracker: Tracker | None) -> Iterator[Any]:
    return (value if tracker is None else tracker.track(value) for value in values)


class TrackedList(_Reporting, list[Any]):
    """A list in an attribute of a layer."""

    def __init__(self, values: Iterable[Any] = (), tracker: Tracker | None = None):
        super().__init__(_tracked(values, tracker))
        self.tracker = tracker

    def __reduce__(self) -> Any:
        return list, (list(self),)

    def insert(self, index: Any, value: Any) -> None:
        super().insert(index, self._add(value))

    def __setitem__(self, index: Any, value: Any) -> None:
        self._drop(self[index] if isinstance(index, slice) else [self[index]])
        new = list(value) if isinstance(index, slice) else value
        super().__setitem__(index, new)
        for item in new if isinstance(index, slice) else [new]:
            self._add(item)

    def __delitem__(self, index: Any) -> None:
        self._drop(self[index] if isinstance(index, slice) else [self[index]])
        super().__delitem__(index)

    def remove(self, value: Any) -> None:
        index = next((i for i, item in enumerate(self) if item is value), None)
        del self[self.index(value) if index is None else index]


class TrackedDict(_Reporting, dict[Any, Any]):
    """A dictionary in an attribute of a layer."""

    def __init__(self, values: Any = (), tracker: Tracker | None = None) -> None:
        items = dict(values)
        super().__init__(zip(items, _tracked(items.values(), tracker), strict=True))
        self.tracker = tracker

    def __reduce__(self) -> Any:
        return dict, (dict(self),)

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, self._add(value))

    def __delitem__(self, key: Any) -> None:
        self._drop([self[key]])
        super().__delitem__(key)

    def __ior__(self, other: Any) -> Any:  # type: ignore[misc]
        self.update(other)
        return self

    def popitem(self, *args: Any, **kwargs: Any) -> Any:
        key, value = super().popitem(*args, **kwargs)
        self._drop([value])
        return key, value


class TrackedOrderedDict(TrackedDict, OrderedDict[Any, Any]):
    """An ordered dictionary in an attribute of a layer."""

    def __reduce__(self) -> Any:
        return OrderedDict, (list(self.items()),)


class TrackedSet(_Reporting, set[Any]):
    """A set in an attribute of a layer."""

    def __init__(self, values: Iterable[Any] = (), tracker: Tracker | None = None):
        super().__init__(_tracked(values, tracker))
        self.tracker = tracker

    def __reduce__(self) -> Any:
        return set, (set(self),)

    def add(self, value: Any) -> None:
        super().add(self._add(value))

    def update(self, *others: Iterable[Any]) -> None:
        for value in [value for other in others for value in other]:
            self.add(value)

    def discard(self, value: Any) -> None:
        if value in self:
            super().discard(value)
            self._drop([value])


# The other methods that change a container call those above.
for _cls, _base, _names in (
    (TrackedList, MutableSequence, "append extend __iadd__ pop clear"),
    (TrackedDict, MutableMapping, "update setdefault pop clear"),
    (TrackedSet, MutableSet, "__ior__ remove pop clear"),
):
    for _name in _names.split():
        setattr(_cls, _name, getattr(_base, _name))

# Only exactly these types: subclasses, the user's own, are watched, but not replaced.
TRACKED: dict[type, type] = {
    list: TrackedList,
    dict: TrackedDict,
    OrderedDict: TrackedOrderedDict,
    set: TrackedSet,
}
for _tracked_type in TRACKED.values():
    tree.register_node(_tracked_type)
