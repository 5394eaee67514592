"""The arguments of a layer's call: arrays become values, `training` finds its way.

Masks come with the tensors: into the arguments of `call`, and onto its outputs.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from ganglion import keras2, tree
from ganglion.compiler.ir.graph import Value
from ganglion.symbolic import KerasTensor
from ganglion.tensors import get_keras_mask, masks_of, set_keras_mask
from ganglion.variables import Scope, Variable, read


def call_signature(layer: Any) -> inspect.Signature:
    """Return the signature of a layer's `call`, without `self`."""
    return _signature(type(layer).call)


@cache
def _signature(method: Callable[..., Any]) -> inspect.Signature:
    signature = inspect.signature(method)
    return signature.replace(parameters=list(signature.parameters.values())[1:])


def lifted(leaf: Any) -> Any:
    """Turn arrays of numbers and variables among the arguments into values."""
    if isinstance(leaf, Value) or not hasattr(leaf, "__array__"):
        return leaf
    if not isinstance(leaf, Variable):
        # Other libraries' tensors, series and numbers are data, too.
        leaf = leaf if isinstance(leaf, np.ndarray) else np.asarray(leaf)
        if leaf.dtype.kind in "OSUT":
            return leaf  # texts, for layers that run on the host
    return masked_as(leaf, read(leaf))


def masked_as(before: Any, value: Value) -> Value:
    """Give a value the mask of the value that it was computed from."""
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


def check_inputs_of_build(layer: Any, shapes: dict[str, Any]) -> None:
    """Refuse a call without an input whose shape `build` needs."""
    wanted = inspect.signature(layer.build).parameters.values()
    for parameter in wanted:
        is_open = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        has_value = is_open or parameter.default is not parameter.empty
        if not has_value and parameter.name not in shapes:
            raise TypeError(
                f'Layer "{layer.name}", a {type(layer).__name__} layer, was called '
                f"without the input `{parameter.name.removesuffix('_shape')}`."
            )


def check_others(args: Any) -> None:
    """Refuse Python's values after the inputs: by position, they look like data."""
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

    As in Keras: an explicit argument comes first, then that of the call around it, then
    the default of this `call`.
    """
    parameter = call_signature(layer).parameters.get("training")
    explicit = kwargs.get("training")
    if isinstance(explicit, (bool, int, np.bool_)):
        scope.training, scope.training_is_set = bool(explicit), True
    elif parameter is not None and scope.training_is_set:
        kwargs["training"] = scope.training
    elif parameter is not None and isinstance(parameter.default, bool):
        scope.training, scope.training_is_set = parameter.default, True
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


# ---- masks -----------------------------------------------------------------------


def is_unmasked(args: Any, kwargs: dict[str, Any]) -> bool:
    """Return whether a call is on a single tensor without a mask, as most are."""
    if len(args) != 1 or kwargs.keys() - {"training"}:
        return False
    return isinstance(args[0], Value) and get_keras_mask(args[0]) is None


def fill_masks(layer: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """Add the masks of the inputs to `kwargs`; return the first input and its mask.

    As in Keras, a `call` with one tensor has its mask as `mask`, one with several that
    of each as `<name>_mask`, unless they are given.
    """
    arguments = _arguments(layer, args, kwargs)
    if arguments is None:
        return None, None  # `call` itself will raise a better error
    tensors = {name: value for name, value in arguments.items() if _is_tensor(value)}
    names = {name: f"{name}_mask" for name in tensors}
    if len(tensors) == 1:
        names = dict.fromkeys(tensors, "mask")
    for name, mask_name in names.items():
        if mask_name in arguments and arguments[mask_name] is None:
            kwargs[mask_name] = masks_of(tensors[name])
    first = next(iter(arguments.values()), None)
    mask = kwargs.get("mask")
    return first, masks_of(first) if mask is None else mask


def _arguments(layer: Any, args: Any, kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """Return the arguments of `call` by name, None if it cannot take these."""
    signature = call_signature(layer)
    known = dict(kwargs)
    if "training" not in signature.parameters:
        known.pop("training", None)  # it applies to the layers below
    others = _defaults_of_others(type(layer).call)
    if others is not None and len(args) == 1 and others.keys() >= known.keys():
        return {next(iter(signature.parameters)): args[0], **others, **known}
    try:
        bound = signature.bind(*args, **known)
    except TypeError:
        return None
    bound.apply_defaults()
    return bound.arguments


@cache
def _defaults_of_others(method: Callable[..., Any]) -> dict[str, Any] | None:
    """Return the defaults of all arguments but the first, None if any has none.

    Most layers are called on a single tensor: binding takes longer than the call.
    """
    parameters = list(_signature(method).parameters.values())
    first, others = next(iter(parameters), None), parameters[1:]
    plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    if first is None or first.kind is not first.POSITIONAL_OR_KEYWORD:
        return None
    if any(p.kind not in plain or p.default is p.empty for p in others):
        return None
    return {parameter.name: parameter.default for parameter in others}


def pass_mask_on(layer: Any, first: Any, outputs: Any, previous: Any) -> None:
    """Give the outputs their masks, or warn of masks that end here."""
    tensors = [x for x in tree.flatten(outputs) if _is_tensor(x)]
    are_masked = [get_keras_mask(tensor) is not None for tensor in tensors]
    if not layer.supports_masking:
        if not any(are_masked) and any(m is not None for m in tree.flatten(previous)):
            _warn_once(layer)
        return
    if all(are_masked):
        return
    masks = tree.flatten(layer.compute_mask(first, previous))
    for tensor, mask in zip(tensors, masks, strict=False):
        if mask is not None and get_keras_mask(tensor) is None:
            set_keras_mask(tensor, mask)


def _warn_once(layer: Any) -> None:
    if layer._warned_of_mask:
        return
    layer._warned_of_mask = True
    where = f" ({layer.created})" if layer.created.file else ""
    warnings.warn(
        f"Layer '{layer.name}' (of type {type(layer).__name__}) was passed an input "
        "with a mask attached to it, but does not support masking: the mask ends here, "
        f"layers behind it do not see it{where}.",
        stacklevel=2,
    )


def _is_tensor(x: Any) -> bool:
    """Return whether this is a tensor or a structure of tensors (or None) alone."""
    if isinstance(x, (list, tuple, dict)):
        leaves = tree.flatten(x)
        return bool(leaves) and all(leaf is None or _is_tensor(leaf) for leaf in leaves)
    return isinstance(x, (Value, KerasTensor))
