"""About how long a kernel takes: enough to tell the small from the large."""

from __future__ import annotations

import math

from ganglion.compiler.plan.kernels import (
    Apply,
    Contract,
    Expr,
    Indirect,
    Kernel,
    Loop,
    Shuffled,
    Uniform,
    walk,
)
from ganglion.compiler.plan.sparsity import NonzeroBits, Nonzeros

# Nanoseconds of one core, roughly: what decides is a factor of ten, not of two.
CALL, MAC, ELEMENT, FUNCTION, DRAW, SHUFFLE, BYTE = (
    20.0,
    0.025,
    0.04,
    0.7,
    4.0,
    60.0,
    0.1,
)
TINY = 2000.0  # sharing less than this costs more than it saves
_FUNCTIONS = {"exp", "log", "tanh", "sigmoid", "erf", "power", "log1p", "expm1"}
_FUNCTIONS |= {"sin", "cos", "divide", "sqrt"}
_LANES = 16


def work(kernel: Kernel) -> float:
    """Return about how many nanoseconds a kernel takes on one core."""
    if isinstance(kernel, Loop):
        places = math.prod(kernel.shape)
        each = sum(_cost(one) for one in walk(kernel.expr))
        # A short last axis leaves most lanes of a vector empty.
        narrow = _LANES / min(_LANES, max(kernel.shape[-1:] or (1,)))
        return CALL + places * each * min(narrow, 8.0)
    if isinstance(kernel, Contract):
        groups = (kernel.batch, kernel.rows, kernel.columns, kernel.inner)
        macs = math.prod(axis.size for group in groups for axis in group)
        width = kernel.columns[-1].size if kernel.columns else 1
        return CALL + macs * MAC * _LANES / min(_LANES, max(width, 1))
    if isinstance(kernel, Nonzeros):
        axes = (*kernel.batch, kernel.rows, kernel.inner)
        return CALL + ELEMENT * math.prod(axis.size for axis in axes)
    if isinstance(kernel, NonzeroBits):
        return CALL + ELEMENT * kernel.source.size
    every = {*kernel.reads(), *kernel.writes()}
    return CALL + BYTE * sum(one.nbytes for one in every)


def _cost(expr: Expr) -> float:
    if isinstance(expr, Shuffled):
        return SHUFFLE
    if isinstance(expr, Uniform):
        return DRAW
    if isinstance(expr, Apply) and expr.op in _FUNCTIONS:
        return FUNCTION
    return 2 * ELEMENT if isinstance(expr, Indirect) else ELEMENT
