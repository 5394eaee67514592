"""How masks pass through the call of a layer: into its arguments, onto its outputs."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

from ganglion import tree
from ganglion.compiler.ir.graph import Value
from ganglion.masks import get_keras_mask, masks_of, set_keras_mask
from ganglion.symbolic import KerasTensor


def call_signature(layer: Any) -> inspect.Signature:
    """Return the signature of a layer's `call`, without `self`."""
    return _signature(type(layer).call)


@cache
def _signature(method: Callable[..., Any]) -> inspect.Signature:
    signature = inspect.signature(method)
    return signature.replace(parameters=list(signature.parameters.values())[1:])


def fill_masks(layer: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """Add the masks of the inputs to `kwargs`; return the first input and its mask.

    As in Keras, a `call` with one tensor has its mask as `mask`, one with several that
    of each as `<name>_mask`, unless they are given.
    """
    arguments = _arguments(layer, args, kwargs)
    if arguments is None:
        return None, None  # `call` itself is about to say what is wrong
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
    """Return the defaults of all arguments but the first, None if one has none.

    Most layers are called on one tensor, for which binding takes longer than the call.
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
