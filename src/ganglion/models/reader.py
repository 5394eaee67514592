"""Functional models from their configuration: layers called on each other again."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from ganglion import tree
from ganglion.layers import InputLayer, Layer
from ganglion.models import Functional, Model, keras_ops
from ganglion.serialization import deserialize_keras_object
from ganglion.symbolic import KerasTensor

Place = tuple[str, int, int]  # the name of a layer, its n-th call, the n-th output


def layer_from(entry: dict[str, Any]) -> Layer:
    """Return the layer that an entry describes."""
    made = deserialize_keras_object(entry)
    if not isinstance(made, Layer):
        raise TypeError(f"a layer is expected, not {made!r:.80}")
    return made


class GraphReader:
    """Calls the layers of a configuration on each other again."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = dict(config)
        self._made: dict[str, Any] = {}
        self._outputs: dict[tuple[str, int], list[KerasTensor]] = {}
        self._waiting: dict[str, deque[Any]] = {}
        entries = self._config.pop("layers")
        self._is_old = all("module" not in entry for entry in entries)
        for entry in entries:
            self._add(entry)

    def model(self, cls: Any) -> Model:
        """Return the model, made as an object of this class."""
        self._call_all()
        config = self._config
        inputs = self._ends(config.pop("input_layers"))
        outputs = self._ends(config.pop("output_layers"))
        name = config.pop("name", None)
        trainable = config.pop("trainable", None)
        config.pop("dtype", None)
        rest = {key: deserialize_keras_object(one) for key, one in config.items()}
        made: Model = cls(inputs=inputs, outputs=outputs, name=name, **rest)
        made._trainable = trainable is None or bool(trainable)
        return made

    def _add(self, entry: dict[str, Any]) -> None:
        name = entry.get("name") or entry["config"]["name"]
        if name in self._made:
            raise ValueError(f"two layers have the same name {name!r}")
        if keras_ops.is_operation(entry):
            config = {
                key: deserialize_keras_object(one)
                for key, one in entry["config"].items()
            }
            self._made[name] = keras_ops.operation_from(entry, config)
        else:
            self._made[name] = layer = layer_from(entry)
            if isinstance(layer, InputLayer):
                self._outputs[name, 0] = [layer.output]
        nodes = [one for one in entry.get("inbound_nodes", []) if one]
        if nodes:
            self._waiting[name] = deque(nodes)

    def _call_all(self) -> None:
        """Make each call as soon as its inputs exist; the calls of a layer in order."""
        while self._waiting:
            before = sum(map(len, self._waiting.values()))
            for name, nodes in list(self._waiting.items()):
                while nodes and self._is_ready(nodes[0]):
                    self._call(name, nodes.popleft())
                if not nodes:
                    del self._waiting[name]
            if sum(map(len, self._waiting.values())) == before:
                raise ValueError(
                    "the layers are not connected: nothing leads from the inputs to "
                    f"{', '.join(list(self._waiting)[:8])}"
                )

    def _is_ready(self, node: Any) -> bool:
        return all(one[:2] in self._outputs for one in self._places(node))

    def _places(self, node: Any) -> Iterator[Place]:
        """Yield the tensors that a call needs, in the new or the old spelling."""
        if isinstance(node, dict) and node.get("class_name") == "__keras_tensor__":
            yield _history(node)
        elif isinstance(node, dict):
            for one in node.values():
                yield from self._places(one)
        elif isinstance(node, list) and _is_old_place(node):
            name, number, index = node[:3]
            # Keras 2 counted the calls of a nested model from one.
            first = 1 if isinstance(self._made.get(name), Model) else 0
            yield name, max(number - first, 0), index
        elif isinstance(node, list):
            for one in node:
                yield from self._places(one)

    def _call(self, name: str, node: Any) -> None:
        if isinstance(node, dict):
            args = [self._argument(one) for one in node.get("args", [])]
            kwargs = {k: self._argument(v) for k, v in node.get("kwargs", {}).items()}
        else:
            tensors = [self._tensor(place) for place in self._places(node)]
            args = [tensors if len(tensors) > 1 else tensors[0]]
            kwargs = {}
            for *_, extra in (one for one in node if len(one) == 4):
                kwargs.update(
                    {k: deserialize_keras_object(v) for k, v in extra.items()}
                )
        outputs = self._made[name](*args, **kwargs)
        number = sum(1 for known, _ in self._outputs if known == name)
        self._outputs[name, number] = tree.flatten(outputs)

    def _argument(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._argument(one) for one in value]
        if isinstance(value, dict) and value.get("class_name") == "__keras_tensor__":
            return self._tensor(_history(value))
        if isinstance(value, dict) and "class_name" not in value:
            return {key: self._argument(one) for key, one in value.items()}
        return deserialize_keras_object(value)

    def _tensor(self, place: Place) -> KerasTensor:
        name, number, index = place
        found = self._outputs.get((name, number))
        if found is None or not 0 <= index < len(found):
            raise ValueError(f"there is no output {index} of call {number} of {name!r}")
        return found[index]

    def _ends(self, structure: Any) -> Any:
        """Return the tensors that a structure of [name, call, output] names."""
        if isinstance(structure, dict):
            return {key: self._ends(one) for key, one in structure.items()}
        if not isinstance(structure, (list, tuple)):
            raise TypeError(f"[layer, call, output] is expected, not {structure!r:.80}")
        if len(structure) == 3 and isinstance(structure[0], str):
            name, number, index = structure
            if isinstance(self._made.get(name), Functional):
                number -= 1
            return self._tensor((name, number, index))
        found = [self._ends(one) for one in structure]
        # Keras 2 wrote a single tensor as a list of one.
        if self._is_old and len(found) == 1:
            return found[0]
        return tuple(found) if isinstance(structure, tuple) else found


def _is_old_place(node: list[Any]) -> bool:
    return len(node) in (3, 4) and [type(one) for one in node[:3]] == [str, int, int]


def _history(entry: dict[str, Any]) -> Place:
    name, number, index = entry["config"]["keras_history"]
    return name, number, index
