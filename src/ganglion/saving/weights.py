"""Weights in HDF5, in the groups in which Keras 3 puts them.

A layer's arrays are at ``<path>/vars/<n>``. The path is made of attribute names and, in
lists, of class names with a number (``layers/dense_1``): names of layers differ from
run to run, their paths do not.
"""

from __future__ import annotations

import contextlib
import inspect
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from ganglion.layers.base import Layer
from ganglion.optimizers import Optimizer
from ganglion.saving import h5
from ganglion.system.terminal import lines
from ganglion.variables import Variable, snake_case

OWN_GROUP = "ganglion"  # what Keras does not save; Keras does not look there
_OLD_LAYERS = "_layer_checkpoint_dependencies"  # Keras 2.13's name of "layers"


class Part:
    """A layer or an optimizer, and where its arrays are in a file."""

    def __init__(self, path: str, owner: Any) -> None:
        self.path, self.owner = path, owner

    @property
    def is_optimizer(self) -> bool:
        """Whether this is the optimizer, not a layer."""
        return isinstance(self.owner, Optimizer)

    @property
    def variables(self) -> list[Variable]:
        """The variables of this part alone, those first that were made to train."""
        if self.is_optimizer:
            return list(self.owner.variables)
        return list(self.owner._own_variables())

    def overrides(self, method: str) -> bool:
        """Return whether a layer saves or loads in its own way."""
        own = getattr(type(self.owner), method)
        if self.is_optimizer or getattr(self.owner, "saves_plainly", False):
            return False
        return own is not getattr(Layer, method)

    @property
    def group(self) -> str:
        """The group of its arrays in a file."""
        return f"{self.path}/vars" if self.path else "vars"

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the objects to save, by their number or name in the file."""
        if self.overrides("save_own_variables"):
            store: dict[str, Any] = {}
            self.owner.save_own_variables(store)
            return {key: np.asarray(value) for key, value in store.items()}
        return {str(i): variable.array for i, variable in enumerate(self.variables)}

    def __str__(self) -> str:
        kind = "optimizer" if self.is_optimizer else "layer"
        return f'{kind} "{self.owner.name}"'


def parts_of(
    model: Any, skipped: Iterable[Any] = (), file: Any = None
) -> Iterator[Part]:
    """Yield everything in a model that has arrays, in Keras' order, each once.

    What is skipped is left out, with all below it. What has several names in the model
    goes by the one that the file has.
    """
    yield from _Walk(skipped, file).of(model, "")


class _Walk:
    """One way through a model, which passes each layer once."""

    def __init__(self, skipped: Iterable[Any], file: Any) -> None:
        # Kept alive, so that its id is not reused by another list.
        self._seen = {id(owner): owner for owner in skipped}
        self._file = file

    def of(self, owner: Any, path: str) -> Iterator[Part]:
        """Yield a layer or an optimizer, and everything in it."""
        if id(owner) in self._seen:
            return
        self._seen[id(owner)] = owner
        yield Part(path, owner)
        if isinstance(owner, Optimizer):
            if isinstance(inner := getattr(owner, "inner_optimizer", None), Optimizer):
                yield from self.of(inner, f"{path}/inner_optimizer")
            return
        for name, value in _children(owner, self._names_at(path)):
            yield from self._value(value, f"{path}/{name}" if path else name)

    def _names_at(self, path: str) -> set[str]:
        """Return the contents of the file at a path."""
        group = {} if self._file is None else self._file.get(path or "/", {})
        names = set(group) if hasattr(group, "keys") else set()
        return names | {"layers"} if _OLD_LAYERS in names else names

    def _value(self, value: Any, path: str) -> Iterator[Part]:
        if isinstance(value, (Layer, Optimizer)):
            yield from self.of(value, path)
        elif isinstance(value, (list, tuple, dict)) and id(value) not in self._seen:
            self._seen[id(value)] = value
            yield from self._list(value, path)

    def _list(self, values: Any, path: str) -> Iterator[Part]:
        used: Counter[str] = Counter()
        for value in list(values.values()) if isinstance(values, dict) else values:
            if isinstance(value, (Layer, Optimizer)):
                name = snake_case(type(value).__name__)
            elif isinstance(value, (list, tuple, dict)):
                name = "container"
            else:
                continue
            numbered = f"{name}_{used[name]}" if used[name] else name
            used[name] += 1
            yield from self._value(value, f"{path}/{numbered}")


def _children(owner: Any, in_file: set[str]) -> list[tuple[str, Any]]:
    """Return the attributes of a layer by name, private ones last, as Keras does.

    Those that are in the file come before those that are not.
    """
    ignored = type(owner)._untracked
    attributes = {key: v for key, v in vars(owner).items() if key not in ignored}
    attributes |= _shown_layers(owner, attributes)
    is_model = hasattr(owner, "get_compile_config")
    if is_model:
        attributes["layers"] = owner.layers
    is_graph = is_model and (owner._network is not None or hasattr(owner, "_stack"))

    def rank(name: str) -> tuple[bool, bool, bool, str]:
        # A model that is made of layers, not of attributes, begins with them.
        is_late = is_graph and name != "layers"
        return is_late, name not in in_file, name.startswith("_"), name

    return [(name, attributes[name]) for name in sorted(attributes, key=rank)]


def _shown_layers(owner: Any, attributes: dict[str, Any]) -> dict[str, Layer]:
    """Return those attributes that properties show under other names.

    Keras walks properties, too.
    """
    held = {id(value) for value in attributes.values() if isinstance(value, Layer)}
    shown: dict[str, Layer] = {}
    for name in dir(type(owner)) if held else ():
        getter = getattr(inspect.getattr_static(type(owner), name), "fget", None)
        is_ours = getattr(getter, "__module__", "").startswith("ganglion.")
        if getter is None or (is_ours and f"_{name}" not in attributes):
            continue
        with contextlib.suppress(Exception):  # a property may need a layer to be built
            if id(value := getattr(owner, name)) in held:
                shown[name] = value
    return shown


# ---- saving ----------------------------------------------------------------------


def write(model: Any, file: Any, skipped: Iterable[Any] = ()) -> None:
    """Write all weights and the optimizer's state into an open HDF5 file."""
    for part in parts_of(model, skipped):
        if arrays := part.arrays():
            group = file.create_group(part.group)
            group.attrs["name"] = part.owner.name
            for name, value in arrays.items():
                h5.put(group, name, value)


# ---- loading ---------------------------------------------------------------------


class MismatchError(ValueError):
    """The file and the model do not fit together."""


def read(
    model: Any, file: Any, skip_mismatch: bool = False, skipped: Iterable[Any] = ()
) -> None:
    """Read all layers' weights from an open HDF5 file; none changes unless all fit."""
    wanted = {part.group for part in parts_of(model, skipped, file)}
    is_old = _OLD_LAYERS in file and "layers" not in file
    fitting: list[tuple[Part, dict[str, Any]]] = []
    problems: list[str] = []
    known: set[str] = set()
    for part in parts_of(model, file=file):
        name = part.group.replace("layers", _OLD_LAYERS) if is_old else part.group
        known.add(name)
        if part.is_optimizer or part.group not in wanted:
            continue
        datasets = dict(file.get(name, {}))
        problem = _problem(part, datasets)
        # A layer that loads itself decides what a missing group means.
        is_asked = part.overrides("load_own_variables") and not skip_mismatch
        if problem:
            problems.append(problem)
        elif datasets or is_asked:
            fitting.append((part, datasets))
    problems += _left_over(file, known)
    if problems:
        _report(problems, skip_mismatch)
    for part, datasets in fitting:
        _assign(part, datasets)


def _problem(part: Part, datasets: dict[str, Any]) -> str | None:
    """Return why a layer's arrays in the file do not fit, None if they do."""
    if part.overrides("load_own_variables"):
        return None
    variables = part.variables
    if len(variables) != len(datasets):
        shapes = [tuple(dataset.shape) for dataset in datasets.values()]
        expected = [variable.shape for variable in variables]
        return (
            f"{part} expected {len(expected)} variables {expected}, but received "
            f"{len(shapes)} variables {shapes} at {part.path or 'its top'!r} of the "
            "file"
        )
    for number, variable in enumerate(variables):
        dataset = datasets.get(str(number))
        if dataset is None:
            return f"{part}: the file has no weight {number} at {part.path!r}"
        if tuple(dataset.shape) != variable.shape:
            return (
                f"{part}, weight {variable.name!r}: expected shape {variable.shape}, "
                f"found {tuple(dataset.shape)}"
            )
    return None


def _left_over(file: Any, known: set[str]) -> list[str]:
    """Name the groups of arrays for which the model has no layer."""
    problems: list[str] = []

    def look(path: str, item: Any) -> None:
        parts = path.split("/")
        is_layer = parts[0] != OWN_GROUP and "optimizer" not in parts
        if parts[-1] == "vars" and is_layer and len(item) and path not in known:
            if _is_of_optimizer(item):
                return  # an attribute, which a loaded model may not have built yet
            name = h5.attribute(item, "name", path)
            problems.append(
                f'the file has weights for a layer "{name}" at {path!r}, which the '
                "model does not have"
            )

    file.visititems(look)
    return problems


def _is_of_optimizer(group: Any) -> bool:
    """Return whether arrays begin with a number of steps and a learning rate."""
    first, second = group.get("0"), group.get("1")
    if first is None or second is None:
        return False
    kinds = first.dtype.kind + second.dtype.kind
    return first.shape == second.shape == () and kinds in ("if", "uf")


def _report(problems: list[str], skip_mismatch: bool) -> None:
    count = len(problems)
    text = lines("; ".join(problems[:4])) + ("; ..." if count > 4 else "")
    if skip_mismatch:
        warnings.warn(
            f"{count} mismatch(es) were skipped: {text}.", UserWarning, stacklevel=6
        )
        return
    raise MismatchError(
        f"the weights do not fit the model, in {count} place(s): {text}. Shapes must "
        "match: nothing was changed. Load them into the model they were saved from; "
        "`load_weights(..., skip_mismatch=True)` loads what fits."
    )


def _assign(part: Part, datasets: dict[str, Any]) -> None:
    arrays = {name: h5.array(dataset) for name, dataset in datasets.items()}
    if part.overrides("load_own_variables"):
        try:
            part.owner.load_own_variables(arrays)
        except KeyError as error:
            raise MismatchError(
                f"{part} asks for {error} at {part.path or 'its top'!r} of the file, "
                "which does not have it"
            ) from error
        return
    for number, variable in enumerate(part.variables):
        variable.assign(arrays[str(number)])


def read_optimizers(model: Any, file: Any) -> None:
    """Read the state of a model's optimizer, and of those of models inside of it."""
    for part in parts_of(model):
        if part.is_optimizer:
            _read_optimizer(part, file.get(part.group, {}))


def _read_optimizer(part: Part, group: Any) -> None:
    """Read the optimizer's state; one that does not fit leaves a fresh one."""
    variables = part.variables
    datasets = [group[str(i)] for i in range(len(group)) if str(i) in group]
    shapes = [tuple(dataset.shape) for dataset in datasets]
    fits = shapes == [variable.shape for variable in variables]
    # An optimizer that never made a step is saved without its slots.
    is_new = len(shapes) <= 2 and not any(shapes)
    if not fits and not is_new:
        warnings.warn(
            f"The state of the {part} does not fit ({len(variables)} arrays, "
            f"{len(shapes)} in the file) and was left out: training starts with a "
            "fresh one.",
            stacklevel=6,
        )
        return
    for variable, dataset in zip(variables, datasets, strict=False):
        variable.assign(h5.array(dataset))
