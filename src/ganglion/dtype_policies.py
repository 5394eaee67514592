"""Policies of types by Keras' names; see `ganglion.config.set_dtype_policy`.

>>> from ganglion import dtype_policies
>>> dtype_policies.get("mixed_bfloat16").variable_dtype
'float32'
"""

from __future__ import annotations

import re
from collections.abc import Iterator, MutableMapping
from typing import Any

from ganglion import oldpaths
from ganglion.config import dtype_policy
from ganglion.dtypes import (
    AWQDTypePolicy,
    DTypePolicy,
    FloatDTypePolicy,
    GPTQDTypePolicy,
    Int4DTypePolicy,
    QuantizedDTypePolicy,
    QuantizedFloat8DTypePolicy,
    policy_by_name,
    standardize_dtype,
)
from ganglion.serialization import (
    deserialize_keras_object,
    export,
    serialize_keras_object,
)

__all__ = [
    "AWQDTypePolicy",
    "DTypePolicy",
    "DTypePolicyMap",
    "FloatDTypePolicy",
    "GPTQDTypePolicy",
    "Int4DTypePolicy",
    "QuantizedDTypePolicy",
    "QuantizedFloat8DTypePolicy",
    "deserialize",
    "get",
    "serialize",
]

export("keras", "Policy")(DTypePolicy)
export("keras")(FloatDTypePolicy)
for _policy in (
    AWQDTypePolicy,
    GPTQDTypePolicy,
    Int4DTypePolicy,
    QuantizedDTypePolicy,
    QuantizedFloat8DTypePolicy,
):
    export("keras.dtype_policies")(_policy)


@export("keras.dtype_policies")
class DTypePolicyMap(DTypePolicy, MutableMapping):
    """Policies by the paths of layers, or by patterns of them.

    >>> policies = DTypePolicyMap("float32", {})
    >>> policies["encoder/.*"] = "mixed_bfloat16"
    >>> policies["encoder/dense"].name, policies["decoder"].name
    ('mixed_bfloat16', 'float32')
    """

    def __init__(
        self,
        default_policy: Any = None,
        policy_map: dict[str, DTypePolicy] | None = None,
    ) -> None:
        if isinstance(default_policy, DTypePolicyMap):
            raise ValueError("`default_policy` cannot be a `DTypePolicyMap`.")
        if policy_map is not None and not isinstance(policy_map, dict):
            raise TypeError(
                f"If specified, `policy_map` must be a dict, got {policy_map!r} of "
                f"type {type(policy_map)}."
            )
        self._default_policy_arg = default_policy
        self._default_policy = get(default_policy)
        self._policy_map = policy_map or {}

    @property
    def name(self) -> str:
        return f"map_{self.default_policy.name}"

    @property
    def default_policy(self) -> DTypePolicy:
        """The policy of layers that are not in the map."""
        return self._default_policy

    @property
    def compute_dtype(self) -> str:
        return self.default_policy.compute_dtype

    @property
    def variable_dtype(self) -> str:
        return self.default_policy.variable_dtype

    @property
    def quantization_mode(self) -> str | None:
        return self.default_policy.quantization_mode

    def __getitem__(self, key: str) -> DTypePolicy:
        if key in self._policy_map:
            return self._policy_map[key]
        fitting = [name for name in self._policy_map if re.fullmatch(name, key)]
        if len(fitting) > 1:
            raise ValueError(
                f"Path '{key}' matches multiple dtype policy specification keys: "
                f"{fitting}. Make sure that each path matches at most one of them."
            )
        return self._policy_map[fitting[0]] if fitting else self.default_policy

    def __setitem__(self, key: str, policy: Any) -> None:
        if key in self._policy_map:
            raise ValueError(
                f"{key} already exist in the DTypePolicyMap with value "
                f"{self._policy_map[key]}: delete it before it is set again."
            )
        try:
            self._policy_map[key] = get(policy)
        except (TypeError, ValueError):
            raise ValueError(
                "Cannot interpret the assigned value by `keras.dtype_policies.get`: "
                f"{policy!r} of type {type(policy)}."
            ) from None

    def __delitem__(self, key: str) -> None:
        del self._policy_map[key]

    def __contains__(self, key: object) -> bool:
        return key in self._policy_map

    def __len__(self) -> int:
        return len(self._policy_map)

    def __iter__(self) -> Iterator[str]:
        return iter(self._policy_map)

    def get_config(self) -> dict[str, Any]:
        default = self._default_policy_arg
        policies = {name: get(policy) for name, policy in self._policy_map.items()}
        if default is None:  # the policy of whoever loads it
            policies = {name: _without_source(p) for name, p in policies.items()}
        return {
            "default_policy": serialize_keras_object(default),
            "policy_map": serialize_keras_object(policies),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Any:
        """Make a map from its configuration."""
        values = {
            name: deserialize_keras_object(value, custom_objects)
            for name, value in config.items()
        }
        return cls(**values)

    def __eq__(self, other: object) -> bool:
        return self is other

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        mapping = [(key, policy.name) for key, policy in self._policy_map.items()]
        return (
            f"<DTypePolicyMap at {hex(id(self))} "
            f"default_policy={self.default_policy.name}, mapping={mapping}>"
        )


def _without_source(policy: DTypePolicy) -> Any:
    """Return the entry of a policy that takes its types from the global policy."""
    entry = serialize_keras_object(policy)
    name = "source_name" if "source_name" in entry["config"] else "name"
    return {**entry, "config": {**entry["config"], name: None}}


def get(identifier: Any) -> DTypePolicy:
    """Return a policy by its name, from its entry or a type; None: the global one."""
    if identifier is None:
        return dtype_policy()
    if isinstance(identifier, DTypePolicy):
        return identifier
    if isinstance(identifier, dict):
        return deserialize(identifier)
    if isinstance(identifier, str):
        return policy_by_name(identifier)
    try:
        return DTypePolicy(standardize_dtype(identifier))
    except ValueError:
        raise ValueError(
            "Cannot interpret `dtype` argument. Expected a string or an instance of "
            f"DTypePolicy. Received: dtype={identifier}"
        ) from None


def serialize(dtype_policy: DTypePolicy) -> Any:
    """Return plain data that rebuilds a policy."""
    return serialize_keras_object(dtype_policy)


def deserialize(config: Any, custom_objects: Any = None) -> Any:
    """Rebuild a policy from its entry."""
    return deserialize_keras_object(config, custom_objects)


__getattr__ = oldpaths.attribute_of(__name__)
