"""`ganglion.ops`: NumPy and neural network functions for layers, losses and metrics.

They work on arrays at once, on Keras tensors symbolically, and inside of a model they
become nodes of its graph.

>>> import numpy as np
>>> relu(np.array([-1.0, 2.0], "float32"))
array([0., 2.], dtype=float32)
"""

from ganglion.compiler.ir.graph import register_operators as _register_operators
from ganglion.dtypes import register_cast as _register_cast
from ganglion.ops import (
    activation,
    adaptive,
    algebra,
    bitwise,
    choices,
    complex_numbers,
    control,
    creation,
    crossentropies,
    ctc,
    custom,
    elementary,
    fourier,
    image,
    indexing,
    joining,
    linalg,
    nn,
    numpy,
    patches,
    products,
    reduction,
    shapes,
    while_loops,
    window_functions,
    windows,
)
from ganglion.ops.activation import *
from ganglion.ops.adaptive import *
from ganglion.ops.algebra import *
from ganglion.ops.bitwise import *
from ganglion.ops.choices import *
from ganglion.ops.complex_numbers import *
from ganglion.ops.control import *
from ganglion.ops.creation import *
from ganglion.ops.crossentropies import *
from ganglion.ops.ctc import *
from ganglion.ops.custom import *
from ganglion.ops.dispatch import op
from ganglion.ops.elementary import *
from ganglion.ops.fourier import *
from ganglion.ops.indexing import *
from ganglion.ops.joining import *
from ganglion.ops.linalg import *
from ganglion.ops.nn import *
from ganglion.ops.numpy import *
from ganglion.ops.order import nan_reduction, quantiles, segments, sorting
from ganglion.ops.order.nan_reduction import *
from ganglion.ops.order.quantiles import *
from ganglion.ops.order.segments import *
from ganglion.ops.order.sorting import *
from ganglion.ops.patches import *
from ganglion.ops.products import *
from ganglion.ops.reduction import *
from ganglion.ops.shapes import *
from ganglion.ops.while_loops import *
from ganglion.ops.window_functions import *
from ganglion.ops.windows import *

__all__ = ["image", "op"]
__all__ += activation.__all__
__all__ += adaptive.__all__
__all__ += algebra.__all__
__all__ += bitwise.__all__
__all__ += choices.__all__
__all__ += complex_numbers.__all__
__all__ += control.__all__
__all__ += creation.__all__
__all__ += crossentropies.__all__
__all__ += ctc.__all__
__all__ += custom.__all__
__all__ += elementary.__all__
__all__ += fourier.__all__
__all__ += indexing.__all__
__all__ += joining.__all__
__all__ += linalg.__all__
__all__ += nan_reduction.__all__
__all__ += nn.__all__
__all__ += numpy.__all__
__all__ += patches.__all__
__all__ += products.__all__
__all__ += quantiles.__all__
__all__ += reduction.__all__
__all__ += segments.__all__
__all__ += shapes.__all__
__all__ += sorting.__all__
__all__ += while_loops.__all__
__all__ += window_functions.__all__
__all__ += windows.__all__

# The functions of the operators and methods of values: `a + b` is `add(a, b)`.
_register_operators({name: globals()[name] for name in __all__})
_register_cast(cast)
