"""`ganglion.losses`: what training minimises, as classes, functions and names.

>>> get("mse") is mean_squared_error
True
"""

from __future__ import annotations

from ganglion.losses import class_numbers, classification, regression
from ganglion.losses.base import (
    Loss,
    LossFunctionWrapper,
    Reduction,
    deserialize,
    get,
    serialize,
)
from ganglion.losses.class_numbers import *
from ganglion.losses.classification import *
from ganglion.losses.regression import *

__all__ = [
    "Loss",
    "LossFunctionWrapper",
    "Reduction",
    "deserialize",
    "get",
    "serialize",
]
__all__ += [*class_numbers.__all__, *classification.__all__, *regression.__all__]
