"""A model's weights under PyTorch's names: a dictionary of arrays, out and in.

A layer of a functional model is called by its name (``conv2d.weight``), one that an
attribute holds by that (``blocks.0.conv.weight``), as PyTorch does. Reading goes by
names where they are those of the model, otherwise by order and shape: the layers of one
kind and size, in the order of the file, are those of the model in its order.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ganglion import layers
from ganglion.saving.torch_layout import Layout, Shape, layout_of, whole_variables
from ganglion.saving.weights import MismatchError
from ganglion.system.terminal import printable
from ganglion.variables import Variable

# PyTorch counts the batches that a norm has seen, for averages that we do not have.
_COUNTER = "num_batches_tracked"
_RNN = re.compile(r"((?:weight|bias)_(?:ih|hh)_l)(\d+)(_reverse)?")
_SHOWN = 4


@dataclass(frozen=True)
class _Module:
    """The variables of one module of PyTorch, and their layout."""

    name: str
    variables: Mapping[str, Variable]
    layout: Layout

    def tensors(self) -> dict[str, np.ndarray]:
        arrays = {name: variable.array for name, variable in self.variables.items()}
        tensors = self.layout.to_torch(arrays)
        prefix = f"{self.name}." if self.name else ""
        return {prefix + name: tensor for name, tensor in tensors.items()}

    def arrays(self, tensors: Mapping[str, np.ndarray]) -> dict[Variable, np.ndarray]:
        prefix = f"{self.name}." if self.name else ""
        weights = {
            name.removeprefix(prefix): tensor for name, tensor in tensors.items()
        }
        arrays = self.layout.from_torch(weights)
        return {self.variables[name]: array for name, array in arrays.items()}


def state_dict(model: Any) -> dict[str, np.ndarray]:
    """Return a model's weights under PyTorch's names, in PyTorch's layout.

    >>> import ganglion as keras
    >>> model = keras.Sequential(
    ...     [keras.Input((4,)), keras.layers.Dense(3, name="fc")]
    ... )
    >>> {name: array.shape for name, array in state_dict(model).items()}
    {'fc.weight': (3, 4), 'fc.bias': (3,)}
    """
    return {
        name: np.ascontiguousarray(tensor).reshape(tensor.shape)
        for module in _modules(model)
        for name, tensor in module.tensors().items()
    }


def load_state_dict(
    model: Any,
    state: Mapping[str, Any],
    skip_mismatch: bool = False,
    is_ordered: bool = True,
) -> None:
    """Load weights that are laid out as PyTorch has them; all of them, or none.

    Args:
        model: A built model of the same architecture.
        state: Arrays, or PyTorch's tensors, by name.
        skip_mismatch: Whether to load what fits by its name, and to warn of the rest.
        is_ordered: Whether the order is that of the model the weights come from.
    """
    arrays = {
        name: _as_array(value)
        for name, value in state.items()
        if name.rpartition(".")[2] != _COUNTER
    }
    modules = list(_modules(model))
    wanted = {
        name: t.shape for module in modules for name, t in module.tensors().items()
    }
    if skip_mismatch:
        fitting = _fitting(arrays, wanted)
    elif arrays.keys() == wanted.keys():
        _check_shapes(arrays, wanted)
        fitting = arrays
    else:
        fitting = _by_order(arrays, wanted, is_ordered)
    new: dict[Variable, np.ndarray] = {}
    for module in modules:
        names = module.tensors().keys()
        if all(name in fitting for name in names):
            new |= module.arrays({name: fitting[name] for name in names})
    for variable, array in new.items():
        _check_type(variable, array)
    for variable, array in new.items():
        variable.assign(array)


def _as_array(value: Any) -> np.ndarray:
    if hasattr(value, "detach"):  # PyTorch's
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":
            value = value.float()
    return np.asarray(value)


# ---- the modules of a model ----------------------------------------------------------


def _modules(model: Any) -> Iterator[_Module]:
    """Yield everything that has weights, in the order of the model, each once."""
    seen: set[Variable] = set()
    names: Counter[str] = Counter()
    for module in _walk(model, "", None, set()):
        if not seen.isdisjoint(module.variables.values()):
            continue
        seen.update(module.variables.values())
        number, names[module.name] = names[module.name], names[module.name] + 1
        name = f"{module.name}_{number}" if number else module.name
        yield _Module(name, module.variables, module.layout)


def _walk(
    layer: Any, name: str, image: Shape | None, seen: set[int]
) -> Iterator[_Module]:
    if id(layer) in seen:
        return
    seen.add(id(layer))
    joined = whole_variables(layer)
    variables = joined or _unique({}, layer._own_variables())
    if variables:
        yield _Module(name, variables, layout_of(layer, variables, image))
    if joined is None:
        flattened = _flattened(layer)
        for part, child in _children(layer):
            path = f"{name}.{part}" if name else part
            yield from _walk(child, path, flattened.get(id(child)), seen)


def _unique(names: dict[str, Variable], variables: Any) -> dict[str, Variable]:
    for variable in variables:
        name, number = variable.own_name, 0
        while name in names:
            number += 1
            name = f"{variable.own_name}_{number}"
        names[name] = variable
    return names


def _children(layer: Any) -> list[tuple[str, Any]]:
    """Return the layers directly below one, by name."""
    is_graph = getattr(layer, "_network", None) is not None or hasattr(layer, "_stack")
    if is_graph:
        known = [(child.name, child) for child in layer.layers]
    else:
        known = [
            entry
            for key, value in vars(layer).items()
            if key not in type(layer)._untracked
            for entry in _held(key.lstrip("_"), value)
        ]
    held = {id(child) for _, child in known}
    rest = [child for child in layer._layers_below() if id(child) not in held]
    return known + [(child.name, child) for child in rest]


def _held(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, layers.Layer):
        yield name, value
    elif isinstance(value, (list, tuple, dict)):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for key, part in pairs:
            yield from _held(f"{name}.{key}", part)


# ---- images that are flattened -------------------------------------------------------

_WINDOWED = ("Conv", "Pool")


def _flattened(model: Any) -> dict[int, Shape]:
    """Return the layers after a Flatten of images, with the shape of the images.

    PyTorch's images have their channels first, so that it flattens in another order.
    """
    network = getattr(model, "_network", None)
    if network is None:
        return {}
    images: dict[Any, Shape] = {}  # tensors that are images, channels last
    rows: dict[Any, Shape] = {}  # tensors that are flattened ones
    images_before: dict[int, Shape] = {}
    for call in network.calls:
        layer, inputs = call.operation, list(call.inputs)
        if not isinstance(layer, layers.Layer) or len(inputs) != 1:
            continue
        (source,), outputs = inputs, call.outputs
        if not hasattr(outputs, "shape"):
            continue
        if source in rows:
            images_before[id(layer)] = rows[source]
            if outputs.shape == source.shape and not isinstance(layer, layers.Dense):
                rows[outputs] = rows[source]
        elif isinstance(layer, layers.Flatten) and source in images:
            rows[outputs] = images[source]
        elif _makes_images(layer) or (
            source in images and len(outputs.shape) == len(source.shape)
        ):
            shape = outputs.shape[1:]
            if len(shape) > 1 and None not in shape:
                images[outputs] = tuple(shape)
    return images_before


def _makes_images(layer: Any) -> bool:
    is_windowed = any(word in type(layer).__name__ for word in _WINDOWED)
    return is_windowed and getattr(layer, "data_format", "") == "channels_last"


# ---- matching tensors and weights ----------------------------------------------------


def _check_shapes(arrays: Mapping[str, Any], wanted: Mapping[str, Shape]) -> None:
    wrong = [
        f"{printable(name)} is {arrays[name].shape}, the model's {shape}"
        for name, shape in wanted.items()
        if arrays[name].shape != shape
    ]
    if wrong:
        raise _mismatch(f"in {len(wrong)} place(s): {_listed(wrong, '; ')}")


def _check_type(variable: Variable, array: np.ndarray) -> None:
    kinds = {"b": 0, "u": 1, "i": 1, "f": 2, "V": 2}
    old, new = variable.unsynced_array.dtype.kind, array.dtype.kind
    if kinds.get(new, 3) > kinds.get(old, 2):
        raise _mismatch(f"{variable.path!r} holds {variable.dtype}, not {array.dtype}")


def _fitting(
    arrays: Mapping[str, np.ndarray], wanted: Mapping[str, Shape]
) -> dict[str, np.ndarray]:
    fitting = {
        name: array
        for name, array in arrays.items()
        if name in wanted and array.shape == wanted[name]
    }
    count = len({*arrays, *wanted}) - len(fitting)
    if count:
        left = sorted(map(printable, {*arrays, *wanted} - fitting.keys()))
        warnings.warn(
            f"{count} mismatch(es) were skipped: {_listed(left)}.", stacklevel=6
        )
    return fitting


Group = tuple[str, ...]  # names of tensors of one module


def _groups(names: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return the names of tensors by module and by the name within it.

    The layers of a stacked LSTM of PyTorch are separate modules here.
    """
    groups: dict[str, dict[str, str]] = defaultdict(dict)
    for name in names:
        prefix, _, last = name.rpartition(".")
        match = _RNN.fullmatch(last)
        if match:
            prefix, last = f"{prefix}.{match[2]}", f"{match[1]}0{match[3] or ''}"
        groups[prefix][last] = name
    return groups


def _by_order(
    arrays: Mapping[str, np.ndarray], wanted: Mapping[str, Shape], is_ordered: bool
) -> dict[str, np.ndarray]:
    """Return the arrays under the model's names: by kind, size and order."""
    shapes = {name: array.shape for name, array in arrays.items()}
    theirs, ours = _by_kind(shapes), _by_kind(wanted)
    surplus = [
        group
        for kind, groups in theirs.items()
        for group in groups[len(ours.get(kind, [])) :]
    ]
    missing = [
        group
        for kind, groups in ours.items()
        for group in groups[len(theirs.get(kind, [])) :]
    ]
    if surplus or missing:
        raise _mismatch(_difference(surplus, missing, shapes, wanted))
    if not is_ordered:
        theirs = {kind: _sorted(groups) for kind, groups in theirs.items()}
    return {
        our_name: arrays[their_names[last]]
        for kind, groups in ours.items()
        for our_names, their_names in zip(groups, theirs[kind], strict=True)
        for last, our_name in our_names.items()
    }


def _by_kind(shapes: Mapping[str, Shape]) -> dict[Any, list[dict[str, str]]]:
    kinds: dict[Any, list[dict[str, str]]] = defaultdict(list)
    for names in _groups(shapes).values():
        kind = tuple(sorted((last, shapes[name]) for last, name in names.items()))
        kinds[kind].append(names)
    return kinds


def _sorted(groups: list[dict[str, str]]) -> list[dict[str, str]]:
    """Put modules in the order of the numbers in their names; refuse other names."""
    firsts = [next(iter(names.values())) for names in groups]
    if len({re.sub(r"\d+", "0", name) for name in firsts}) > 1:
        raise _mismatch(
            f"{_listed(list(map(printable, firsts)))} have the same shapes, and their "
            "file has no order. Rename the tensors as the model's are called "
            "(ganglion.saving.state_dict shows how) and load them with "
            "ganglion.saving.load_state_dict"
        )
    numbers = [tuple(map(int, re.findall(r"\d+", name))) for name in firsts]
    order = sorted(range(len(groups)), key=numbers.__getitem__)
    return [groups[number] for number in order]


def _difference(
    surplus: list[dict[str, str]],
    missing: list[dict[str, str]],
    theirs: Mapping[str, Shape],
    wanted: Mapping[str, Shape],
) -> str:
    texts = []
    for groups, shapes, start in (
        (surplus, theirs, "the model has no place for"),
        (missing, wanted, "nothing fits the model's"),
    ):
        names = [name for group in groups for name in group.values()]
        if names:
            shown = [f"{printable(name)} {shapes[name]}" for name in names]
            texts.append(f"{start} {_listed(shown)}")
    return "; ".join(texts)


def _listed(words: list[str], comma: str = ", ") -> str:
    more = f"{comma}and {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
    return comma.join(words[:_SHOWN]) + more


def _mismatch(text: str) -> MismatchError:
    return MismatchError(
        f"the weights do not fit the model: {text}. Nothing was changed."
    )
