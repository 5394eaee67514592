"""clone_model: a model of the same shape with new weights, optionally by layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ganglion import tree
from ganglion.layers import Input, InputLayer, Layer
from ganglion.models.model import Functional, Model
from ganglion.models.sequential import Sequential
from ganglion.serialization import plain_config
from ganglion.symbolic import KerasTensor

Clone = Callable[[Any], Any]


def clone_model(
    model: Model,
    input_tensors: Any = None,
    clone_function: Clone | None = None,
    call_function: Callable[..., Any] | None = None,
    recursive: bool = False,
    **kwargs: Any,
) -> Model:
    """Return a model of the same shape with new weights, compiled if the model is.

    Args:
        model: The model.
        input_tensors: Keras tensors that the clone is to start from.
        clone_function: Makes the clone of each layer; it may be another layer.
        call_function: Calls the clone of a layer, as `call_function(layer, *args)`;
            for functional models.
        recursive: Whether layers of models inside of the model are cloned one by one,
            too, instead of those models as a whole.
        **kwargs: Clones that are there already, as `cache`.
    """
    cache = kwargs.pop("cache", {})
    if kwargs:
        raise ValueError(f"clone_model does not know {', '.join(sorted(kwargs))}.")
    for name, function in (
        ("clone_function", clone_function),
        ("call_function", call_function),
    ):
        if function is not None and not callable(function):
            raise ValueError(f"`{name}` must be a function, got {function!r}.")
    is_graph = isinstance(model, (Sequential, Functional))
    options = (input_tensors, clone_function, call_function)
    if all(option is None for option in options) and not (recursive and is_graph):
        clone = _from_config(model)
    elif not is_graph:
        raise ValueError(
            f"{type(model).__name__} is a subclass of Model: only Sequential and "
            "functional models can be cloned layer by layer. Leave the arguments out."
        )
    elif isinstance(model, Sequential):
        if call_function is not None:
            raise ValueError(
                "`call_function` is for functional models: the layers of a Sequential "
                "are listed, not called."
            )
        copied = _cloning(clone_function, None, recursive, cache)
        clone = _clone_sequential(model, copied, input_tensors)
    else:
        copied = _cloning(clone_function, call_function, recursive, cache)
        clone = _clone_functional(model, copied, call_function, input_tensors)
    compiled = model.get_compile_config()
    if compiled is not None:
        clone.compile_from_config(compiled)
    return clone


def _from_config(model: Model) -> Model:
    config = model.get_config()
    ends = {k: v for k, v in config.items() if k in ("input_layers", "output_layers")}
    clone: Model = type(model).from_config(plain_config(config) | ends)
    return clone


def _cloning(
    clone_function: Clone | None,
    call_function: Callable[..., Any] | None,
    recursive: bool,
    cache: dict[int, Any],
) -> Clone:
    """Return a function that clones a layer, and a shared layer once."""

    def cloned(layer: Any) -> Any:
        if id(layer) not in cache:
            is_graph = isinstance(layer, (Sequential, Functional))
            if recursive and is_graph:
                calls = None if isinstance(layer, Sequential) else call_function
                cache[id(layer)] = clone_model(
                    layer,
                    clone_function=clone_function,
                    call_function=calls,
                    recursive=True,
                    cache=cache,
                )
            elif clone_function is not None:
                cache[id(layer)] = clone_function(layer)
            else:
                cache[id(layer)] = type(layer).from_config(layer.get_config())
        return cache[id(layer)]

    return cloned


def _clone_sequential(model: Sequential, cloned: Clone, input_tensors: Any) -> Model:
    layers = [cloned(layer) for layer in model.layers]
    first = model._input_layer
    if input_tensors is not None:
        tensors = tree.flatten(input_tensors)
        if len(tensors) != 1 or not isinstance(tensors[0], KerasTensor):
            raise ValueError(
                f"`input_tensors` must be one Keras tensor, got {input_tensors!r}."
            )
        layers = [tensors[0], *layers]
    elif first is not None:
        layers = [_input_like(first.output), *layers]
    return Sequential(layers, name=model.name, trainable=model.trainable)


def _clone_functional(
    model: Model,
    cloned: Clone,
    call_function: Callable[..., Any] | None,
    input_tensors: Any,
) -> Model:
    network = model._functional("layers")
    if input_tensors is None:
        input_tensors = tree.map_leaves(_input_like, network.inputs)
    else:
        _check_tensors(input_tensors, model.input)
    known = dict(zip(network.flat_inputs, tree.flatten(input_tensors), strict=True))
    for call in network.calls:
        is_layer = isinstance(call.operation, Layer)
        operation = cloned(call.operation) if is_layer else call.operation
        args, kwargs = call.arguments(known)
        if call_function is None:
            outputs = operation(*args, **kwargs)
        else:
            outputs = call_function(operation, *args, **kwargs)
        known.update(
            zip(tree.flatten(call.outputs), tree.flatten(outputs), strict=True)
        )
    outputs = tree.map_leaves(lambda tensor: known[tensor], network.outputs)
    kind = type(model) if type(model).__init__ is Model.__init__ else Functional
    return kind(input_tensors, outputs, name=model.name)


def _check_tensors(input_tensors: Any, expected: Any) -> None:
    for tensor in tree.flatten(input_tensors):
        if not isinstance(tensor, KerasTensor):
            raise ValueError(f"`input_tensors` must be Keras tensors, got {tensor!r}.")
    try:
        tree.assert_same_structure(input_tensors, expected)
    except ValueError as error:
        raise ValueError(
            f"`input_tensors` must have the same structure as model.input. {error}"
        ) from error


def _input_like(tensor: KerasTensor) -> KerasTensor:
    operation = None if tensor.call is None else tensor.call.operation
    name = operation.name if isinstance(operation, InputLayer) else tensor.name
    return Input(batch_shape=tensor.shape, dtype=tensor.dtype, name=name)
