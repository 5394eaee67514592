"""Models as plain data in Keras' own shape, and back."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

from ganglion import serialization, tree
from ganglion.layers import InputLayer, Layer
from ganglion.models import Functional, Model, Sequential, keras_ops
from ganglion.models.functional import Network
from ganglion.models.reader import GraphReader, Place, layer_from
from ganglion.serialization import deserialize_keras_object, serialize_keras_object
from ganglion.symbolic import Call, Function, KerasTensor, is_symbolic
from ganglion.variables import Variable

_COMPILE_ARGUMENTS = (
    "optimizer",
    "loss",
    "loss_weights",
    "metrics",
    "weighted_metrics",
    "steps_per_execution",
    "jit_compile",
)
# Arguments of the Layer base, which a subclass need not accept.
_BASE_ARGUMENTS = ("name", "trainable", "dtype")


# ---- writing ---------------------------------------------------------------------


def functional_config(model: Model) -> dict[str, Any]:
    """Return what rebuilds a model that was made of Keras tensors."""
    network = model._network
    if network is None or not _takes_tensors(type(model)):
        return Layer.get_config(model)
    return _GraphWriter(network).config(model)


class _GraphWriter:
    """Writes the layers and calls of a network."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._nodes = _nodes_of(network)
        self._stand_ins: dict[KerasTensor, InputLayer] = {}
        for one in network.flat_inputs:
            if one.call is None or not isinstance(one.call.operation, InputLayer):
                # The model starts in the middle of another: it gets an input there.
                made = InputLayer(batch_shape=one.shape, dtype=one.dtype)
                self._stand_ins[one] = made
        self._check_names()

    def config(self, model: Model) -> dict[str, Any]:
        network = self._network
        entries = [self._entry(one) for one in self._stand_ins.values()]
        entries += [self._entry(one) for one in network.operations]
        return {
            "name": model.name,
            "trainable": model.trainable,
            "layers": entries,
            "input_layers": tree.map_leaves(self._end, network.inputs),
            "output_layers": tree.map_leaves(self._end, network.outputs),
        }

    def _check_names(self) -> None:
        names = [one.name for one in self._network.operations]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(
                f"Several layers are called {', '.join(twice)}, so the model cannot "
                "be saved: give each its own `name`."
            )

    def _entry(self, operation: Any) -> dict[str, Any]:
        calls = self._nodes.get(id(operation), [])
        if isinstance(operation, Function):
            entry, args, kwargs = keras_ops.entry_of(calls[0])
            entry = {**entry, "config": serialization.plain_config(entry["config"])}
            nodes = [self._node(args, kwargs)]
        else:
            entry = serialize_keras_object(operation)
            nodes = [self._node(call.args, call.kwargs) for call in calls]
        return {**entry, "name": operation.name, "inbound_nodes": nodes}

    def _node(self, args: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
        return {
            "args": [self._argument(one) for one in args],
            "kwargs": {key: self._argument(one) for key, one in kwargs.items()},
        }

    def _argument(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [self._argument(one) for one in value]
        if isinstance(value, dict):
            return {key: self._argument(one) for key, one in value.items()}
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
            "keras_history": list(self._place(value)),
        }
        return {"class_name": "__keras_tensor__", "config": plain}

    def _place(self, tensor: KerasTensor) -> Place:
        if tensor in self._stand_ins:
            return self._stand_ins[tensor].name, 0, 0
        call = tensor.call
        assert call is not None
        calls = self._nodes.get(id(call.operation), [call])
        return (
            call.operation.name,
            calls.index(call) if call in calls else 0,
            (tensor.index),
        )

    def _end(self, tensor: KerasTensor) -> list[Any]:
        name, node, index = self._place(tensor)
        call = tensor.call
        if call is not None and isinstance(call.operation, Functional):
            # Keras counts the calls of nested models from one here, and only here.
            node += 1
        return [name, node, index]


def _nodes_of(network: Network) -> dict[int, list[Call]]:
    """Return the calls of each layer and op, in the order in which they were made."""
    inside = set(network.calls)
    found: dict[int, list[Call]] = {}
    for operation in network.operations:
        if isinstance(operation, Function):
            made = [one for one in network.calls if one.operation is operation]
        else:
            made = [one for one in operation._calls if one in inside]
        found[id(operation)] = made
    return found


def sequential_config(model: Sequential) -> dict[str, Any]:
    """Return what rebuilds a Sequential model."""
    config = Layer.get_config(model)
    if _has_own_init(type(model), Sequential):
        return config
    layers: list[Layer] = [] if model._input_layer is None else [model._input_layer]
    made = {key: config[key] for key in _BASE_ARGUMENTS}
    made["layers"] = [serialize_keras_object(one) for one in [*layers, *model.layers]]
    if model._input_layer is not None:
        made["build_input_shape"] = list(model._input_layer.batch_shape)
    return made


def _has_own_init(cls: type, base: type) -> bool:
    return cls.__init__ is not base.__init__  # type: ignore[misc]


def _takes_tensors(cls: type) -> bool:
    """Return whether a class is made from `inputs` and `outputs`, as `Model` is."""
    if not _has_own_init(cls, Model):
        return True
    kinds = {one.kind for one in inspect.signature(cls.__init__).parameters.values()}  # type: ignore[misc]
    return {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD} <= kinds


def compile_config(model: Any) -> dict[str, Any] | None:
    """Return the arguments of `compile` as plain data.

    What cannot be written (a lambda as a loss) costs the arguments, not the model.
    """
    given = model._compile_arguments
    try:
        return {
            "optimizer": serialize_keras_object(model.optimizer),
            **serialization.plain_config(
                {name: one for name, one in given.items() if name != "optimizer"}
            ),
        }
    except (TypeError, ValueError) as error:
        warnings.warn(
            f'The model "{model.name}" is saved without the arguments of `compile`: '
            f"{error} After loading, call `compile` again.",
            stacklevel=2,
        )
        return None


# ---- reading ---------------------------------------------------------------------


def compile_from_config(model: Any, config: dict[str, Any]) -> None:
    """Compile a model as the configuration says; make the optimizer's slots."""
    if type(model).compile is not Model.compile:
        warnings.warn(
            f'The model "{model.name}" has a `compile` of its own, so it was loaded '
            "without compiling: define `compile_from_config`, or call `compile`.",
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
    kept = {key: one for key, one in entry["config"].items() if key not in dropped}
    return {**entry, "config": kept}


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
        return _sequential_from(cls, config)
    if {"layers", "input_layers", "output_layers"} <= config.keys():
        return GraphReader(config).model(cls)
    return _subclass_from(cls, config)


def _sequential_from(cls: Any, config: dict[str, Any]) -> Sequential:
    layers = [layer_from(entry) for entry in config["layers"]]
    model: Sequential = cls(layers, name=config.get("name"))
    model._trainable = bool(config.get("trainable", True))
    shape = config.get("build_input_shape")
    if not model.built and isinstance(shape, (list, tuple)):
        model.build(tuple(shape))
    return model


def _subclass_from(cls: Any, config: dict[str, Any]) -> Any:
    """Make a subclass; what the base knows may be missing from its `__init__`."""
    arguments = {key: deserialize_keras_object(one) for key, one in config.items()}
    parameters = inspect.signature(cls.__init__).parameters
    kinds = {one.kind for one in parameters.values()}
    rest: dict[str, Any] = {}
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        for name in _BASE_ARGUMENTS:
            if name in arguments and name not in parameters:
                rest[name] = arguments.pop(name)
    try:
        made = cls(**arguments)
    except TypeError as error:
        raise TypeError(
            f"{cls.__name__} cannot be made from its configuration "
            f"{sorted(arguments)}: {error}. Define `get_config` and `from_config`."
        ) from error
    made.name = rest.get("name") or made.name
    made._trainable = bool(rest.get("trainable", made._trainable))
    return made
