"""What the arguments of a layer's `__init__` mean, whatever the layer."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from ganglion import config, keras2
from ganglion.serialization import (
    deserialize_keras_object,
    serialize_keras_object,
)

# Arguments that Keras 2 accepted on every layer, to say the shape of the input.
_INPUT_HINTS = ("input_shape", "batch_input_shape", "input_dim", "batch_size")


def dtype_name(dtype: Any) -> str:
    """Return the type's name, from a name, a NumPy type or a Keras policy."""
    if dtype is None:
        return config.floatx()
    if isinstance(dtype, dict):
        dtype = dtype.get("config", {}).get("name", config.floatx())
    name = getattr(dtype, "name", dtype)
    if name == config.MIXED:  # weights are float32; how to multiply is a global choice
        return config.DTypePolicy(name).variable_dtype
    try:
        found = np.dtype(name)
    except TypeError:
        found = None
    # Whole numbers are the type of an Input, not of weights. NumPy knows "bfloat16", as
    # a kind of its own, as soon as another library has told it.
    is_whole = found is not None and found.kind in "biu"
    if found is None or not (is_whole or found.name in config.FLOAT_TYPES):
        raise ValueError(
            f"Type {name!r} is not supported; use one of "
            f"{', '.join(config.FLOAT_TYPES)}."
        )
    return found.name


def checked_name(name: Any) -> str | None:
    """Return the name of a layer; refuse what is none."""
    if name is not None and not isinstance(name, str):
        raise ValueError(f"`name` must be a string, got {name!r}.")
    return name


def checked_trainable(trainable: Any) -> bool:
    """Return whether a layer learns; refuse what is neither True nor False."""
    if not isinstance(trainable, (bool, np.bool_)):
        raise ValueError(f"`trainable` must be True or False, got {trainable!r}.")
    return bool(trainable)


def input_hint_from(kwargs: dict[str, Any]) -> tuple[int | None, ...] | None:
    """Take Keras 2's `input_shape=` and its kin out of a layer's arguments."""
    given = {key: kwargs.pop(key) for key in _INPUT_HINTS if key in kwargs}
    if not given:
        return None
    old = next(iter(given))
    keras2.note(
        f"`{old}=` on a layer", "an `Input(shape)` before it", changes_defaults=False
    )
    batch = given.get("batch_size")
    if "batch_input_shape" in given:
        return tuple(given["batch_input_shape"])
    if "input_shape" in given:
        shape = given["input_shape"]
        return (batch, *((shape,) if isinstance(shape, int) else shape))
    return (batch, given["input_dim"]) if "input_dim" in given else None


def bound_arguments(cls: type, args: Any, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of `__init__` by name, defaults included."""
    signature = inspect.signature(cls.__init__)  # type: ignore[misc]
    try:
        bound = signature.bind(None, *args, **kwargs)
    except TypeError:
        return {}  # `__init__` itself is about to say what is wrong
    bound.apply_defaults()
    values = dict(list(bound.arguments.items())[1:])
    for name, parameter in signature.parameters.items():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            values.update(values.pop(name, {}))
        elif parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            values.pop(name, None)
    hints = {*_INPUT_HINTS} - {*signature.parameters}  # `input_dim` of an Embedding
    return {k: v for k, v in values.items() if k not in hints | {"weights"}}


def arguments_of(layer: Any) -> dict[str, Any]:
    """Return the arguments that `get_config` of the base class is to give.

    A class that writes its own `get_config` adds what its own `__init__` takes.
    """
    kinds = type(layer).__mro__
    writer = next(one for one in kinds if "get_config" in vars(one))
    if writer.__module__.startswith("ganglion."):
        values: dict[str, Any] = layer._init_values
        return values
    ours = next(one for one in kinds if one.__module__.startswith("ganglion."))
    parameters = inspect.signature(ours.__init__).parameters  # type: ignore[misc]
    rest = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {
        name: getattr(layer, name)
        for name, one in list(parameters.items())[1:]
        if one.kind not in rest and name != "autocast" and hasattr(layer, name)
    }


def as_plain_data(value: Any) -> Any:
    """Return objects and functions as their files have them; what has no name stays."""
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        kind = tuple if isinstance(value, tuple) else list
        return kind(as_plain_data(one) for one in value)
    if isinstance(value, dict):
        return {key: as_plain_data(one) for key, one in value.items()}
    try:
        plain = serialize_keras_object(value)
        if isinstance(plain, dict) and plain.get("class_name") == "function":
            deserialize_keras_object(plain)  # unknown, unless it is registered
    except (TypeError, ValueError):  # saving says so, where it is saved
        return value
    return plain


def refuse_unknown(cls: type, given: dict[str, Any]) -> None:
    """Refuse arguments that no constructor of a layer knows, with the nearest name."""
    known: dict[str, Any] = {}
    for one in cls.__mro__[:-1]:
        known |= inspect.signature(one.__init__).parameters  # type: ignore[misc]
    names = [one for one in known if one not in ("self", "args", "kwargs")]
    first, *_ = unknown = sorted(given)
    raise TypeError(
        f"{cls.__name__} does not know the argument(s) {', '.join(unknown)}. "
        f"{config.closest(first, names)}"
    )
