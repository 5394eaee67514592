"""The arguments of a layer's call: arrays become values, `training` finds its way."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from ganglion import keras2, tree
from ganglion.compiler.ir.graph import Value
from ganglion.layers.mask_passing import call_signature
from ganglion.masks import get_keras_mask, set_keras_mask
from ganglion.variables import Scope, Variable, read


def lifted(leaf: Any) -> Any:
    """Turn arrays of numbers and variables among the arguments into values."""
    if isinstance(leaf, Value) or not hasattr(leaf, "__array__"):
        return leaf
    if not isinstance(leaf, Variable):
        # Also what other libraries call tensors, series and numbers.
        leaf = leaf if isinstance(leaf, np.ndarray) else np.asarray(leaf)
        if leaf.dtype.kind in "OSUT":
            return leaf  # texts, for layers that run on the host
    return masked_as(leaf, read(leaf))


def masked_as(before: Any, value: Value) -> Value:
    """Give a value the mask of what it was made from."""
    mask = get_keras_mask(before)
    if mask is not None:
        set_keras_mask(value, read(mask))
    return value


def check_first(layer: Any, args: Any) -> None:
    """Refuse Python's numbers where arrays are meant: `[1, 2] * 2` is no product."""
    for leaf in tree.flatten(args[:1]):
        if isinstance(leaf, (bool, int, float, complex, str)):
            raise ValueError(
                f'Layer "{layer.name}" was called on {args[0]!r:.80}: a layer takes '
                "arrays and tensors, so wrap it in `np.array(...)`."
            )


def check_others(args: Any) -> None:
    """Refuse Python's values behind the inputs: by position, they look like data."""
    for leaf in tree.flatten(args[1:]):
        if isinstance(leaf, (bool, int, float, complex, str)) and not keras2.active():
            raise ValueError(
                "Only input tensors may be passed as positional arguments. Pass this "
                f"value by the name of its argument: {leaf!r:.80} (of type "
                f"{type(leaf).__name__})."
            )


def training_by_name(
    layer: Any, args: Any, kwargs: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """Name the arguments from `training` on, if it is given by its position."""
    parameters = call_signature(layer).parameters
    names = list(parameters)
    if "training" not in names[1 : len(args)]:
        return args, kwargs
    if parameters["training"].kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD:
        return args, kwargs
    at = names.index("training")
    return args[:at], {**dict(zip(names[at:], args[at:], strict=False)), **kwargs}


def resolve_training(layer: Any, kwargs: dict[str, Any], scope: Scope) -> None:
    """Set `training` for this call, and for the layers that it calls.

    As in Keras: what is given counts, then what the call around it has, then the
    default of this `call`.
    """
    parameter = call_signature(layer).parameters.get("training")
    given = kwargs.get("training")
    if isinstance(given, (bool, int, np.bool_)):
        scope.training, scope.told = bool(given), True
    elif parameter is not None and scope.told:
        kwargs["training"] = scope.training
    elif parameter is not None and isinstance(parameter.default, bool):
        scope.training, scope.told = parameter.default, True
        kwargs["training"] = parameter.default
    if parameter is None:
        kwargs.pop("training", None)  # it applies to the layers below


def resolve_context(layer: Any, kwargs: dict[str, Any], scope: Scope) -> None:
    """Pass arguments that layers registered on to this `call` and to those below."""
    names = layer._call_context_args - {"training"}
    if not names:
        return
    own = {name: kwargs[name] for name in names if kwargs.get(name) is not None}
    scope.context = {**scope.context, **own}
    parameters = call_signature(layer).parameters
    for name in names:
        if name not in parameters:
            kwargs.pop(name, None)
        elif name in scope.context:
            kwargs[name] = scope.context[name]
