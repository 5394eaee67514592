"""KerasFileEditor: look into a file of weights, change it, and save it again."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np

from ganglion.saving import archive, h5
from ganglion.saving.files import local_path, reading
from ganglion.saving.weights import OWN_GROUP, parts_of
from ganglion.system.terminal import lines

Weights = dict[str, Any]  # arrays, and dictionaries of them, by name


class KerasFileEditor:
    """The weights of a `.keras` or `.weights.h5` file, by the paths of their objects.

    >>> import tempfile
    >>> import ganglion as keras
    >>> model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save_weights(f"{folder}/m.weights.h5")
    ...     editor = keras.saving.KerasFileEditor(f"{folder}/m.weights.h5")
    ...     editor.rename_object("layers/dense", "head")
    ...     editor.save(f"{folder}/new.weights.h5")
    Keras model file '...'
    >>> list(editor.weights_dict["layers"])
    ['head']
    """

    def __init__(self, filepath: Any) -> None:
        self.filepath = str(filepath)
        self.config: dict[str, Any] | None = None
        self.metadata: dict[str, Any] | None = None
        path = local_path(filepath)
        if not self.filepath.endswith((".keras", ".weights.h5")):
            raise ValueError(
                "Only a `.keras` or a `.weights.h5` file can be edited, not "
                f"{self.filepath!r}."
            )
        with reading(filepath):
            source: Any = path
            if self.filepath.endswith(".keras"):
                self.config, weights, self.metadata = archive.read_parts(path)
                source = io.BytesIO(weights)
            with h5.open_h5(source) as file:
                self.weights_dict = _tree(file)
        print(f"Keras model file '{lines(self.filepath)}'")
        if self.metadata is not None:
            version = self.metadata.get("keras_version")
            print(f"Saved with Keras {lines(str(version))}")

    def summary(self) -> None:
        """Print the objects of the file with the shapes of their weights."""
        print("Weights structure")
        for depth, name, value in _walk(self.weights_dict):
            what = "" if isinstance(value, dict) else f": shape={tuple(value.shape)}"
            print(f"{'  ' * depth}{lines(name)}{what}")

    # ---- comparing -------------------------------------------------------------------

    def compare(self, reference_model: Any) -> dict[str, Any]:
        """Print where the file and a model differ; return how often, and how often not.

        The entries are `status` ("success" or "error"), `error_count` and
        `match_count`.
        """
        expected: Weights = {}
        for part in parts_of(reference_model):
            if arrays := part.arrays():
                _at(expected, part.path.split("/") if part.path else []).update(arrays)
        ours = dict(_flat(self.weights_dict))
        theirs = dict(_flat(expected))
        common = ours.keys() & theirs.keys()
        wrong = {path for path in common if ours[path].shape != theirs[path].shape}
        problems = [
            f"Weight shape mismatch for {path}: {tuple(ours[path].shape)} in the file, "
            f"{tuple(theirs[path].shape)} in the model"
            for path in sorted(wrong)
        ]
        problems += _missing(self.weights_dict, expected, "file", "model")
        problems += _missing(expected, self.weights_dict, "model", "file")
        for problem in problems:
            print(f"...{lines(problem)}")
        verdict = "is not compatible" if problems else "is compatible"
        print(f"The file {verdict} with the model: {len(problems)} error(s).")
        return {
            "status": "error" if problems else "success",
            "error_count": len(problems),
            "match_count": len(common - wrong),
        }

    # ---- editing ---------------------------------------------------------------------

    def rename_object(self, object_name: str, new_name: str) -> None:
        """Give an object (a layer) another name."""
        if "/" in new_name:
            raise ValueError(f"A new name is not a path, got {new_name!r}.")
        holder, name = self._find(object_name)
        holder[new_name] = holder.pop(name)

    def delete_object(self, object_name: str) -> None:
        """Remove an object with all its weights."""
        holder, name = self._find(object_name)
        del holder[name]

    def add_object(self, object_path: str, weights: dict[str, Any]) -> None:
        """Add an object with weights by name, as {"0": kernel, "1": bias}."""
        _check_weights(weights)
        *parents, name = object_path.split("/")
        holder = self.weights_dict
        for parent in parents:
            if parent not in holder:
                raise ValueError(f"There is no object {'/'.join(parents)!r}.")
            holder = holder[parent]
        holder[name] = dict(weights)

    def delete_weight(self, object_name: str, weight_name: str) -> None:
        """Remove a weight of an object."""
        holder, name = self._find(object_name)
        if weight_name not in holder[name]:
            raise ValueError(
                f"The object {object_name!r} has no weight {weight_name!r}; it has "
                f"{', '.join(holder[name])}."
            )
        del holder[name][weight_name]

    def add_weights(self, object_name: str, weights: dict[str, Any]) -> None:
        """Add weights to an object that is there."""
        _check_weights(weights)
        holder, name = self._find(object_name)
        holder[name].update(weights)

    def save(self, filepath: Any) -> None:
        """Save the weights as they are now, to a `.weights.h5` file."""
        if not str(filepath).endswith(".weights.h5"):
            raise ValueError(
                f"The name of the file must end in `.weights.h5`, got {filepath!r}."
            )
        h5.write_h5(local_path(filepath), lambda file: _put(file, self.weights_dict))

    def resave_weights(self, filepath: Any) -> None:
        """Save the weights; `save` by another name."""
        self.save(filepath)

    def _find(self, object_name: str) -> tuple[Weights, str]:
        """Return what holds an object, and its name there."""
        if "/" in object_name:
            *parents, name = object_name.split("/")
            holder: Any = self.weights_dict
            for parent in parents:
                holder = holder.get(parent, {})
            holders = [holder] if name in holder else []
        else:
            name = object_name
            holders = list(_holders(self.weights_dict, name))
        if not holders:
            raise ValueError(
                f"There is no object {object_name!r}: `summary()` lists all of them."
            )
        if len(holders) > 1:
            raise ValueError(
                f"The name {object_name!r} occurs {len(holders)} times: give the whole "
                "path."
            )
        return holders[0], name


def _tree(group: Any) -> Weights:
    """Return the arrays of a group and of those below; `vars` belongs to its owner."""
    weights: Weights = {}
    for name, item in group.items():
        if name == OWN_GROUP and group.name == "/":
            continue
        if name == "vars":
            weights.update({key: h5.array(value) for key, value in item.items()})
        elif hasattr(item, "items"):
            below = _tree(item)
            if below:
                weights[name] = below
        else:
            weights[name] = h5.array(item)
    return weights


def _put(group: Any, weights: Weights) -> None:
    arrays = {k: v for k, v in weights.items() if not isinstance(v, dict)}
    if arrays:
        own = group.create_group("vars")
        for name, value in arrays.items():
            h5.put(own, name, np.asarray(value))
    for name, value in weights.items():
        if isinstance(value, dict) and value:
            _put(group.create_group(name), value)


def _walk(weights: Weights, depth: int = 0) -> Iterator[tuple[int, str, Any]]:
    for name, value in weights.items():
        yield depth, name, value
        if isinstance(value, dict):
            yield from _walk(value, depth + 1)


def _flat(weights: Weights, path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in weights.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{path}/{name}")
        else:
            yield f"{path}/{name}", value


def _missing(
    holder: Weights, other: Weights, here: str, there: str, path: str = ""
) -> list[str]:
    """Name what the first structure has and the second lacks; an object counts once."""
    problems: list[str] = []
    for name, value in holder.items():
        inner = f"{path}/{name}"
        if name not in other:
            kind = "Object" if isinstance(value, dict) else "Weight"
            problems.append(f"{kind} {inner} is in the {here}, but not in the {there}")
        elif isinstance(value, dict) and isinstance(other[name], dict):
            problems += _missing(value, other[name], here, there, inner)
    return problems


def _at(weights: Weights, names: list[str]) -> Weights:
    for name in names:
        weights = weights.setdefault(name, {})
    return weights


def _holders(weights: Weights, name: str) -> Iterator[Weights]:
    if name in weights:
        yield weights
    for value in list(weights.values()):
        if isinstance(value, dict):
            yield from _holders(value, name)


def _check_weights(weights: Any) -> None:
    if not isinstance(weights, dict):
        raise ValueError(
            "`weights` must be a dictionary of arrays by name, as "
            f'{{"0": kernel, "1": bias}}, got {type(weights).__name__}.'
        )
