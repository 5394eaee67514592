"""Objects to plain data and back as Keras 2 did it: a class name and its arguments.

>>> from ganglion import regularizers
>>> entry = serialize_keras_object(regularizers.L2(0.5))
>>> entry
{'class_name': 'L2', 'config': {'l2': 0.5}}
>>> deserialize_keras_object(entry).l2
0.5
"""

from __future__ import annotations

from typing import Any

from ganglion.serialization import (
    custom_object_scope,
    find_class,
    get_registered_name,
    plain_config,
)
from ganglion.serialization import (
    deserialize_keras_object as deserialize_entry,
)

__all__ = ["deserialize_keras_object", "serialize_keras_object"]


def serialize_keras_object(instance: Any) -> Any:
    """Return the class name and the configuration of an object; a function's name."""
    if instance is None:
        return None
    if hasattr(instance, "get_config"):
        name = get_registered_name(type(instance))
        return {"class_name": name, "config": plain_config(instance.get_config())}
    if hasattr(instance, "__name__"):
        return get_registered_name(instance)
    raise ValueError(f"{instance!r} cannot be written: it has no `get_config`.")


def deserialize_keras_object(
    identifier: Any,
    module_objects: dict[str, Any] | None = None,
    custom_objects: dict[str, Any] | None = None,
    printable_module_name: str = "object",
) -> Any:
    """Return the object that a class name with a configuration, or a name, means.

    Names are looked for among the custom objects, what is registered, the objects of
    the module, and Keras' own.
    """
    if identifier is None:
        return None
    known = {**(module_objects or {}), **(custom_objects or {})}
    with custom_object_scope(known):
        if isinstance(identifier, dict):
            if "class_name" not in identifier or "config" not in identifier:
                raise ValueError(
                    f"No {printable_module_name}: a dictionary needs `class_name` and "
                    f"`config`, got {identifier!r}."
                )
            return deserialize_entry(identifier)
        if not isinstance(identifier, str):
            if callable(identifier):
                return identifier
            raise ValueError(f"{identifier!r} is no {printable_module_name}.")
        obj = find_class({"class_name": identifier, "config": {}})
    return obj() if isinstance(obj, type) else obj
