"""Keras' names for a choice of precision; see `ganglion.config.set_dtype_policy`.

>>> from ganglion import mixed_precision
>>> mixed_precision.set_global_policy("mixed_bfloat16")
>>> mixed_precision.global_policy().name
'mixed_bfloat16'
>>> mixed_precision.set_global_policy("float32")
"""

from ganglion.config import dtype_policy, set_dtype_policy
from ganglion.dtypes import DTypePolicy
from ganglion.oldpaths import attribute_of
from ganglion.optimizers import LossScaleOptimizer

Policy = DTypePolicy
global_policy = dtype_policy
set_global_policy = set_policy = set_dtype_policy
__path__: list[str] = []  # Keras 2.1 had more below it
__getattr__ = attribute_of("ganglion.mixed_precision")

__all__ = [
    "DTypePolicy",
    "LossScaleOptimizer",
    "Policy",
    "dtype_policy",
    "global_policy",
    "set_dtype_policy",
    "set_global_policy",
]
