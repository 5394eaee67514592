"""The outputs of a model in a row, and what the user gives for each of them.

Losses, metrics, labels and weights come as one thing for all outputs, as a list in
their order, or as a dictionary by their names.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any

from ganglion import tree
from ganglion.config import closest
from ganglion.losses.base import to_array
from ganglion.metrics.base import Metric


class Outputs:
    """The predictions in a row, with their names (None where there is none).

    >>> outputs = Outputs({"b": 1.5, "a": 2.5})
    >>> outputs.names, outputs.leaves
    (['a', 'b'], [2.5, 1.5])
    >>> outputs.assign({"a": "mse"}, "loss")
    ['mse', None]
    """

    def __init__(self, y_pred: Any, names: Sequence[str] | None = None) -> None:
        self.leaves: list[Any]
        self.names: list[Any]
        is_nested = _nested(y_pred)
        is_flat = is_nested and not any(_nested(one) for one in _parts(y_pred))
        self._structure = y_pred if is_nested and not is_flat else None
        if isinstance(y_pred, dict) and is_flat:
            self.names = _key_order(y_pred, names)
            self.leaves = [y_pred[name] for name in self.names]
        else:
            self.leaves = tree.flatten(y_pred)
            known = names is not None and len(names) == len(self.leaves)
            self.names = list(names or []) if known else [None] * len(self.leaves)
        # As in Keras, losses are called by the whole path, metrics by the output.
        self.loss_names: list[Any] = self.names
        if self._structure is not None:
            self.loss_names = _paths(self._structure, iter(self.names))

    def __len__(self) -> int:
        return len(self.leaves)

    def assign(self, given: Any, what: str, share: bool = True) -> list[Any]:
        """Return what is given for each output, None where nothing is."""
        alike = self._alike(given)
        if alike is not None:
            return alike
        if isinstance(given, dict) and "class_name" not in given:
            return self._by_name(given, what)
        if isinstance(given, (list, tuple)):
            return self._in_order(list(given), what)
        if given is not None and not share and len(self) > 1:
            raise ValueError(
                f"`{what}` is one value, {given!r}, but the model has {len(self)} "
                f"outputs: give a list with one value for each."
            )
        return [given] * len(self)

    def assign_lists(self, given: Any, what: str) -> list[list[Any]]:
        """Return the list of things given for each output, such as its metrics."""
        if len(self) == 1 or not given:
            return [listed(given) for _ in self.leaves]
        alike = self._alike(given)
        if alike is not None:
            return [listed(one) for one in alike]
        is_one = isinstance(given, (list, tuple)) and len(given) == 1
        if is_one and not any(isinstance(one, Metric) for one in listed(given)):
            # Keras 2 measured every output by such a list; Keras 3 refuses it.
            return [listed(given) for _ in self.leaves]
        return [listed(one) for one in self.assign(given, what)]

    def _alike(self, given: Any) -> list[Any] | None:
        """Return what is given in the nested structure of the outputs, else None."""
        if self._structure is None or not _nested(given):
            return None
        return _up_to(self._structure, given)

    def _by_name(self, given: dict[str, Any], what: str) -> list[Any]:
        if len(self) == 1 and len(given) == 1 and self.names == [None]:
            return list(given.values())
        if None in self.names:
            raise ValueError(
                f"`{what}` is a dictionary, but the outputs of this model have no "
                "names: give a list, in the order of the outputs."
            )
        for name in given:
            if name not in self.names:
                raise ValueError(
                    f"`{what}` names the output {name!r}, which this model does not "
                    f"have. {closest(str(name), self.names)}"
                )
        return [given.get(name) for name in self.names]

    def _in_order(self, given: list[Any], what: str) -> list[Any]:
        for flat in (given, listed(given)):
            if len(flat) == len(self):
                return flat
        named = [name for name in self.names if name]
        raise ValueError(
            f"`{what}` has {len(given)} entries, but the model has {len(self)} "
            f"output(s){': ' + ', '.join(named) if named else ''}. Give one entry for "
            "each, None where there is none."
        )

    def align(self, given: Any, what: str, wanted: list[bool]) -> list[Any]:
        """Return the labels (or weights) of each output; all wanted ones must be there.

        A list may leave out the outputs that are not wanted.
        """
        found = self._aligned(to_array(given), what, wanted)
        for name, value, is_wanted in zip(self.names, found, wanted, strict=True):
            if is_wanted and value is None:
                where = f" for the output {name!r}" if name else ""
                raise ValueError(f"There are no {what}{where}, but a loss or metric.")
        return found

    def _aligned(self, given: Any, what: str, wanted: list[bool]) -> list[Any]:
        if given is None:
            return [None] * len(self)
        alike = self._alike(given)
        if alike is not None:
            return alike
        if isinstance(given, dict) and None not in self.names:
            return self._by_name(given, what)
        flat = tree.flatten(given)
        if len(flat) == len(self):
            return flat
        if len(flat) == sum(wanted):
            rest = iter(flat)
            return [next(rest) if is_wanted else None for is_wanted in wanted]
        raise ValueError(
            f"The model has {len(self)} output(s), but there are {len(flat)} arrays of "
            f"{what}: give one for each output."
        )

    def spread(self, sample_weight: Any, wanted: list[bool]) -> list[Any]:
        """Return the sample weights of each output; one array serves them all."""
        sample_weight = to_array(sample_weight)
        alike = self._alike(sample_weight)
        if alike is not None:
            return alike
        if isinstance(sample_weight, dict):
            return self._by_name(sample_weight, "sample_weight")
        flat = tree.flatten(sample_weight)
        if len(flat) == 1:
            return flat * len(self)
        return self._aligned(sample_weight, "sample weights", wanted)


def _nested(structure: Any) -> bool:
    return isinstance(structure, (list, tuple, dict))


def _parts(structure: Any) -> list[Any]:
    return list(structure.values() if isinstance(structure, dict) else structure)


def _up_to(structure: Any, given: Any) -> list[Any] | None:
    """Return the parts of what is given that stand where a structure has leaves.

    >>> _up_to({"a": [1, 2], "b": 3}, {"a": ["x", ["y"]], "b": None})
    ['x', ['y'], None]
    """
    if not _nested(structure):
        return [given]
    if not _nested(given) or isinstance(structure, dict) != isinstance(given, dict):
        return None
    keys = sorted(structure) if isinstance(structure, dict) else range(len(structure))
    if len(structure) != len(given) or (
        isinstance(given, dict) and set(structure) != set(given)
    ):
        return None
    found: list[Any] = []
    for key in keys:
        part = _up_to(structure[key], given[key])
        if part is None:
            return None
        found += part
    return found


def _paths(structure: Any, names: Iterator[Any], above: tuple[str, ...] = ()) -> Any:
    """Return the keys and numbers down to each leaf; a leaf of a list has its name."""
    found: list[Any] = []
    is_dict = isinstance(structure, dict)
    for key in sorted(structure) if is_dict else range(len(structure)):
        part = structure[key]
        if _nested(part):
            found += _paths(part, names, (*above, str(key)))
            continue
        name = next(names)
        last = str(key) if is_dict else name
        found.append("/".join((*above, last)) if last else None)
    return found


def _key_order(y_pred: dict[str, Any], names: Sequence[str] | None) -> list[str]:
    if names is not None and set(names) == set(y_pred):
        return list(names)
    return list(y_pred) if isinstance(y_pred, OrderedDict) else sorted(y_pred)


def listed(given: Any) -> list[Any]:
    """Return the things in nested lists and dictionaries; a configuration is one."""
    if given is None:
        return []
    if isinstance(given, dict) and "class_name" not in given:
        given = list(given.values())
    if isinstance(given, (list, tuple)):
        return [one for part in given for one in listed(part)]
    return [given]
