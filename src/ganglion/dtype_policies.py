"""Policies of types by Keras' names; see `ganglion.config.set_dtype_policy`.

>>> from ganglion import dtype_policies
>>> dtype_policies.get("mixed_bfloat16").variable_dtype
'float32'
"""

from __future__ import annotations

from typing import Any

from ganglion.config import DTypePolicy, dtype_policy

__all__ = ["DTypePolicy", "get"]


def get(identifier: Any = None) -> DTypePolicy:
    """Return a policy by its name; the global one if there is none."""
    if identifier is None:
        return dtype_policy()
    return DTypePolicy(str(getattr(identifier, "name", identifier)))
