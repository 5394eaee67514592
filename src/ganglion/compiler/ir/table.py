"""The table of all primitive ops, by name.

>>> sorted(OPS)[:3]
['absolute', 'add', 'arccos']
"""

from __future__ import annotations

from ganglion.compiler.ir import (
    arrays,
    contraction,
    pointwise,
    pooling,
    random,
    shaping,
)
from ganglion.compiler.ir.graph import Op

_MODULES = (shaping, pointwise, arrays, contraction, pooling, random)

OPS: dict[str, Op] = {
    var.name: var
    for module in _MODULES
    for var in vars(module).values()
    if isinstance(var, Op)
}
