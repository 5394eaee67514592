"""`keras.legacy.interfaces`: Keras 2's decorators around its own layers and optimizers.

They turned arguments of Keras 1 into those of Keras 2. Here each class reads the old
spellings by itself, so that these decorators change nothing.

>>> @legacy_dense_support
... def make(units):
...     return units
>>> make(3)
3
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_DECORATED = """add_weight
batchnorm conv1d conv2d conv3d convlstm2d cropping2d cropping3d
deconv2d dense dropout embedding gaussiandropout gaussiannoise generator_methods
get_updates global_pooling input lambda model_constructor pooling1d pooling2d pooling3d
prelu recurrent separable_conv2d spatialdropout1d spatialdropoutNd upsampling1d
upsampling2d upsampling3d zeropadding2d zeropadding3d"""


def _unchanged(function: F) -> F:
    return function


legacy_dense_support = _unchanged
globals().update((f"legacy_{name}_support", _unchanged) for name in _DECORATED.split())
