"""Models as plain data in Keras' own format, and back; clones and files of models."""

from __future__ import annotations

import inspect
import warnings
from collections import deque
from collections.abc import Iterator
from typing import Any

from ganglion import keras2, serialization, tree
from ganglion.layers import InputLayer, Layer
from ganglion.models import keras_ops
from ganglion.models.functional import Network
from ganglion.models.model import Functional, Model
from ganglion.models.sequential import Sequential
from ganglion.serialization import (
    arguments_from,
    deserialize_keras_object,
    plain_config,
    serialize_keras_object,
)
from ganglion.symbolic import Call, Function, KerasTensor, is_symbolic
from ganglion.variables import Variable

_COMPILE_ARGUMENTS = (
    "optimizer", "loss", "loss_weights", "metrics", "weighted_metrics",
    "steps_per_execution", "jit_compile",
)  # fmt: skip
# Arguments of the Layer base, which a subclass need not accept.
_BASE_ARGUMENTS = ("name", "trainable", "dtype")

TensorRef = tuple[str, int, int]  # the name of a layer, its n-th call, the n-th output


# ---- writing ---------------------------------------------------------------------


def functional_config(model: Model) -> dict[str, Any]:
    """Return what rebuilds a model of Keras tensors."""
    if model._network is None or not _takes_tensors(type(model)):
        return Layer.get_config(model)
    return _GraphWriter(model._network).config(model)


class _GraphWriter:
    """Writes the layers and calls of a network."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._calls = _calls_of(network)
        self._stand_ins = network.stand_ins
        names = [operation.name for operation in network.operations]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(
                f"Several layers are called {', '.join(twice)}, so the model cannot "
                "be saved: give each its own `name`."
            )

    def config(self, model: Model) -> dict[str, Any]:
        network = self._network
        operations = [*self._stand_ins.values(), *network.operations]
        return {
            "name": model.name,
            "trainable": model.trainable,
            "layers": [self._entry(operation) for operation in operations],
            "input_layers": tree.map_leaves(self._end, network.inputs),
            "output_layers": tree.map_leaves(self._end, network.outputs),
        }

    def _entry(self, operation: Any) -> dict[str, Any]:
        calls = self._calls.get(id(operation), [])
        if isinstance(operation, Function):
            entry, args, kwargs = keras_ops.entry_of(calls[0])
            entry = {**entry, "config": plain_config(entry["config"])}
            nodes = [self._node(args, kwargs)]
        else:
            entry = serialize_keras_object(operation)
            nodes = [self._node(call.args, call.kwargs) for call in calls]
        # In place: a layer that is met again marks its first entry as shared.
        entry.update(name=operation.name, inbound_nodes=nodes)
        return entry

    def _node(self, args: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
        return {"args": self._argument(args), "kwargs": self._argument(kwargs)}

    def _argument(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [self._argument(part) for part in value]
        if isinstance(value, dict):
            return {key: self._argument(part) for key, part in value.items()}
        if isinstance(value, Variable):
            raise ValueError(
                "The model cannot be saved: outside of any layer, an op works on the "
                f"variable {value.path!r}. Put it into a Layer."
            )
        if not is_symbolic(value):
            return serialize_keras_object(value)
        plain = {
            "shape": list(value.shape),
            "dtype": value.dtype,
            "keras_history": list(self._reference(value)),
        }
        return {"class_name": "__keras_tensor__", "config": plain}

    def _reference(self, tensor: KerasTensor) -> TensorRef:
        if tensor in self._stand_ins:
            return self._stand_ins[tensor].name, 0, 0
        call = tensor.call
        assert call is not None
        calls = self._calls.get(id(call.operation), [call])
        number = calls.index(call) if call in calls else 0
        return call.operation.name, number, tensor.index

    def _end(self, tensor: KerasTensor) -> list[Any]:
        name, number, index = self._reference(tensor)
        call = tensor.call
        if call is not None and isinstance(call.operation, Functional):
            # Keras counts the calls of nested models from 1 here, and only here.
            number += 1
        return [name, number, index]


def _calls_of(network: Network) -> dict[int, list[Call]]:
    """Return the calls of each layer and op, in the order of the calls."""
    inside = set(network.calls)
    return {
        id(operation): [call for call in network.calls if call.operation is operation]
        if isinstance(operation, Function)
        else [call for call in operation._calls if call in inside]
        for operation in network.operations
    }


def sequential_config(model: Sequential) -> dict[str, Any]:
    """Return what rebuilds a Sequential model."""
    config = Layer.get_config(model)
    if _has_own_init(type(model), Sequential):
        return config
    layers = [*([model._input_layer] if model._input_layer else []), *model.layers]
    plain = {key: config[key] for key in _BASE_ARGUMENTS}
    plain["layers"] = [serialize_keras_object(layer) for layer in layers]
    if model._input_layer is not None:
        plain["build_input_shape"] = list(model._input_layer.batch_shape)
    return plain


def _has_own_init(cls: type, base: type) -> bool:
    return cls.__init__ is not base.__init__  # type: ignore[misc]


def _takes_tensors(cls: type) -> bool:
    """Return whether a class is created from `inputs` and `outputs`, as `Model` is."""
    if not _has_own_init(cls, Model):
        return True
    parameters = inspect.signature(cls.__init__).parameters.values()  # type: ignore[misc]
    kinds = {parameter.kind for parameter in parameters}
    return {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD} <= kinds


def compile_config(model: Model) -> dict[str, Any] | None:
    """Return the arguments of `compile` as plain data.

    What cannot be written (a lambda as a loss) costs the arguments, not the model.
    """
    arguments = dict(model._compile_arguments)
    arguments.pop("optimizer", None)
    try:
        optimizer = serialize_keras_object(model.optimizer)
        return {"optimizer": optimizer, **plain_config(arguments)}
    except (TypeError, ValueError) as error:
        warnings.warn(
            f'The model "{model.name}" is saved without the arguments of `compile`: '
            f"{error} After loading, call `compile` again.",
            stacklevel=2,
        )
        return None


# ---- reading ---------------------------------------------------------------------


def compile_from_config(model: Model, config: dict[str, Any]) -> None:
    """Compile a model by its configuration; create the optimizer's slots."""
    if type(model).compile is not Model.compile:
        warnings.warn(
            "`compile()` was not called as part of model loading because the model's "
            f"`compile()` method is custom. Define `compile_from_config` in the class "
            f'of "{model.name}", or call `compile`.',
            stacklevel=2,
        )
        return
    arguments = {
        name: deserialize_keras_object(_without_old(config[name]))
        for name in _COMPILE_ARGUMENTS
        if name in config
    }
    model.compile(**arguments)
    if model.built and model.optimizer is not None:
        model.prepare_training()


def _without_old(entry: Any) -> Any:
    """Leave out arguments of optimizers that Keras 2 wrote and Keras 3 dropped."""
    if not isinstance(entry, dict) or not isinstance(entry.get("config"), dict):
        return entry
    dropped = ("jit_compile", "is_legacy_optimizer")
    config = {key: v for key, v in entry["config"].items() if key not in dropped}
    return {**entry, "config": config}


def model_from_config(cls: type, config: dict[str, Any], custom_objects: Any) -> Any:
    """Rebuild a model of a class from its configuration."""
    if custom_objects:
        with serialization.custom_object_scope(custom_objects):
            return model_from_config(cls, config, None)
    if isinstance(config, list):  # a Sequential of Keras 1
        config = {"name": None, "layers": config}
    if not isinstance(config, dict):
        raise TypeError(f"a configuration is a dictionary, not {config!r:.80}")
    if issubclass(cls, Sequential) and "layers" in config:
        if "name" not in config:
            raise ValueError(
                "A Sequential model configuration must be a dictionary containing the "
                f"'name' and 'layers' keys, got {', '.join(map(repr, config))}."
            )
        return _sequential_from(cls, config)
    if {"layers", "input_layers", "output_layers"} <= config.keys():
        return _GraphReader(config).model(cls)
    return _subclass_from(cls, config)


def _sequential_from(cls: Any, config: dict[str, Any]) -> Sequential:
    layers = [_layer_from(entry) for entry in config["layers"]]
    model: Sequential = cls(layers, name=config.get("name"))
    model._trainable = bool(config.get("trainable", True))
    shape = config.get("build_input_shape")
    if not model.built and isinstance(shape, (list, tuple)):
        model.build(tuple(shape))
    return model


def _subclass_from(cls: Any, config: dict[str, Any]) -> Any:
    """Make a subclass; its `__init__` may lack arguments of the base class."""
    arguments = arguments_from(config)
    parameters = inspect.signature(cls.__init__).parameters
    kinds = {parameter.kind for parameter in parameters.values()}
    rest: dict[str, Any] = {}
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        for name in _BASE_ARGUMENTS:
            if name in arguments and name not in parameters:
                rest[name] = arguments.pop(name)
    try:
        model = cls(**arguments)
    except TypeError as error:
        raise TypeError(
            f"{cls.__name__} cannot be made from its configuration "
            f"{sorted(arguments)}: {error}. Define `get_config` and `from_config`."
        ) from error
    model.name = rest.get("name") or model.name
    model._trainable = bool(rest.get("trainable", model._trainable))
    return model


def _layer_from(entry: dict[str, Any]) -> Layer:
    if not isinstance(entry, dict) or "config" not in entry:
        raise ValueError(
            f"Expected a dictionary containing a 'config' key, got {entry!r:.80}."
        )
    layer = deserialize_keras_object(entry)
    if not isinstance(layer, Layer):
        raise TypeError(f"a layer is expected, not {layer!r:.80}")
    return layer


class _GraphReader:
    """Calls the layers of a configuration on each other again."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = dict(config)
        self._operations: dict[str, Any] = {}
        self._outputs: dict[tuple[str, int], list[KerasTensor]] = {}
        self._waiting: dict[str, deque[Any]] = {}
        entries = self._config.pop("layers")
        self._is_old = all("module" not in entry for entry in entries)
        for entry in entries:
            self._add(entry)

    def model(self, cls: Any) -> Model:
        """Return the model, as an object of this class."""
        self._call_all()
        config = self._config
        inputs = self._ends(config.pop("input_layers"))
        outputs = self._ends(config.pop("output_layers"))
        name = config.pop("name", None)
        trainable = config.pop("trainable", None)
        config.pop("dtype", None)
        rest = arguments_from(config)
        model: Model = cls(inputs=inputs, outputs=outputs, name=name, **rest)
        model._trainable = trainable is None or bool(trainable)
        return model

    def _add(self, entry: dict[str, Any]) -> None:
        name = entry.get("name") or entry["config"]["name"]
        if name in self._operations:
            raise ValueError(f"two layers have the same name {name!r}")
        if keras_ops.is_operation(entry):
            config = arguments_from(entry["config"])
            self._operations[name] = keras_ops.operation_from(entry, config)
        else:
            self._operations[name] = layer = _layer_from(entry)
            if isinstance(layer, InputLayer):
                self._outputs[name, 0] = [layer.output]
        nodes = [node for node in entry.get("inbound_nodes", []) if node]
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
                raise ValueError(self._disconnected())

    def _disconnected(self) -> str:
        """Return why no layer can be called any more: some is missing, or a loop."""
        wanted = [
            ref[0]
            for nodes in self._waiting.values()
            for node in nodes
            for ref in self._references(node)
        ]
        missing = [name for name in wanted if name not in self._operations]
        if missing:
            return f"Missing node: {missing[0]}, which other layers are called on"
        names = ", ".join(list(self._waiting)[:8])
        return (
            "the layers are not connected, or connected in a loop: nothing leads from "
            f"the inputs to {names}"
        )

    def _is_ready(self, node: Any) -> bool:
        return all(ref[:2] in self._outputs for ref in self._references(node))

    def _references(self, node: Any) -> Iterator[TensorRef]:
        """Yield the tensors that a call needs, in the new or the old spelling."""
        if isinstance(node, dict) and node.get("class_name") == "__keras_tensor__":
            yield _history(node)
        elif isinstance(node, list) and _is_old_reference(node):
            name, number, index = node[:3]
            # Keras 2 counted the calls of a nested model from 1.
            first = 1 if isinstance(self._operations.get(name), Model) else 0
            yield name, max(number - first, 0), index
        elif isinstance(node, (list, dict)):
            for part in node.values() if isinstance(node, dict) else node:
                yield from self._references(part)

    def _call(self, name: str, node: Any) -> None:
        if isinstance(node, dict):
            args = [self._argument(value) for value in node.get("args", [])]
            kwargs = {k: self._argument(v) for k, v in node.get("kwargs", {}).items()}
        else:
            tensors = [self._tensor(ref) for ref in self._references(node)]
            args = [tensors if len(tensors) > 1 else tensors[0]]
            kwargs = {}
            for *_, extra in (part for part in node if len(part) == 4):
                kwargs.update(arguments_from(extra))
        outputs = self._operations[name](*args, **kwargs)
        number = sum(known == name for known, _ in self._outputs)
        self._outputs[name, number] = tree.flatten(outputs)

    def _argument(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._argument(part) for part in value]
        if isinstance(value, dict) and value.get("class_name") == "__keras_tensor__":
            return self._tensor(_history(value))
        if isinstance(value, dict) and "class_name" not in value:
            return {key: self._argument(part) for key, part in value.items()}
        return deserialize_keras_object(value)

    def _tensor(self, reference: TensorRef) -> KerasTensor:
        name, number, index = reference
        outputs = self._outputs.get((name, number))
        if outputs is None or not 0 <= index < len(outputs):
            raise ValueError(f"there is no output {index} of call {number} of {name!r}")
        return outputs[index]

    def _ends(self, structure: Any) -> Any:
        """Return the tensors that a structure of [name, call, output] names."""
        if isinstance(structure, dict):
            return {key: self._ends(part) for key, part in structure.items()}
        if not isinstance(structure, (list, tuple)):
            raise TypeError(f"[layer, call, output] is expected, not {structure!r:.80}")
        if len(structure) == 3 and isinstance(structure[0], str):
            name, number, index = structure
            # We once wrote 0 for those of subclasses.
            if number > 0 and isinstance(self._operations.get(name), Functional):
                number -= 1
            return self._tensor((name, number, index))
        ends = [self._ends(part) for part in structure]
        # Keras 2 wrote a single tensor as a list.
        if self._is_old and len(ends) == 1:
            return ends[0]
        return tuple(ends) if isinstance(structure, tuple) else ends


def _is_old_reference(node: list[Any]) -> bool:
    return len(node) in (3, 4) and [type(part) for part in node[:3]] == [str, int, int]


def _history(entry: dict[str, Any]) -> TensorRef:
    name, number, index = entry["config"]["keras_history"]
    return name, number, index


# ---- clones and files --------------------------------------------------------------


def save_model(
    model: Model,
    filepath: Any,
    overwrite: bool = True,
    zipped: bool | None = None,
    **kwargs: Any,
) -> None:
    """Save an entire model, including its optimizer, as a `.keras` file."""
    model.save(filepath, overwrite=overwrite, zipped=zipped, **kwargs)


def load_model(
    filepath: Any,
    custom_objects: Any = None,
    compile: bool = True,  # noqa: A002 (Keras' name)
    safe_mode: bool = True,
) -> Any:
    """Load a model that `save` wrote, here or in Keras; nothing in it is executed."""
    from ganglion import saving

    return saving.load_model(filepath, custom_objects, compile, safe_mode)


def model_of_entry(config: dict[str, Any], custom_objects: Any = None) -> Any:
    """Rebuild a model from Keras 2's entry: the class's name and the configuration."""
    keras2.note("`model_from_config`", "`Model.from_config`", changes_defaults=False)
    cls = Sequential if config["class_name"] == "Sequential" else Functional
    with serialization.custom_object_scope(custom_objects or {}):
        return cls.from_config(config["config"])


def model_from_json(json_string: str, custom_objects: Any = None) -> Any:
    """Rebuild a model from the text that `to_json` gave."""
    from ganglion import saving

    return saving.model_from_json(json_string, custom_objects)
