"""`ganglion.ops`: NumPy and neural network functions for layers, losses and metrics.

They work on arrays at once, on Keras tensors symbolically, and inside of a model they
become nodes of its graph.

>>> import numpy as np
>>> relu(np.array([-1.0, 2.0], "float32"))
array([0., 2.], dtype=float32)
"""

from ganglion.compiler.ir.graph import register_operators as _register_operators
from ganglion.ops import (
    activation,
    choices,
    control,
    creation,
    indexing,
    linalg,
    nn,
    numpy,
    reduction,
    shapes,
    while_loops,
    windows,
)
from ganglion.ops.activation import *
from ganglion.ops.choices import *
from ganglion.ops.control import *
from ganglion.ops.creation import *
from ganglion.ops.dispatch import op
from ganglion.ops.indexing import *
from ganglion.ops.linalg import *
from ganglion.ops.nn import *
from ganglion.ops.numpy import *
from ganglion.ops.reduction import *
from ganglion.ops.shapes import *
from ganglion.ops.while_loops import *
from ganglion.ops.windows import *

# What the operators of traced values mean: `a + b` is `add(a, b)`.
_OPERATORS = """
    add subtract multiply divide floor_divide mod power matmul equal not_equal less
    less_equal greater greater_equal logical_and logical_or logical_not negative
    absolute getitem reshape squeeze
"""
_register_operators({name: globals()[name] for name in _OPERATORS.split()})

__all__ = ["op"]
__all__ += activation.__all__
__all__ += choices.__all__
__all__ += control.__all__
__all__ += creation.__all__
__all__ += indexing.__all__
__all__ += linalg.__all__
__all__ += nn.__all__
__all__ += numpy.__all__
__all__ += reduction.__all__
__all__ += shapes.__all__
__all__ += while_loops.__all__
__all__ += windows.__all__
