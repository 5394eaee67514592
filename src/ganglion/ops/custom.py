"""Functions with gradients of the user's, and slopes of functions (`jvp`)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ganglion import tree
from ganglion.compiler.ir import custom
from ganglion.compiler.ir.gradient import backpropagate
from ganglion.compiler.ir.graph import Input, Value
from ganglion.compiler.ir.shaping import fill, is_float, sum_
from ganglion.ops.dispatch import astype, op, stretch
from ganglion.variables import Variable, read

__all__ = ["custom_gradient", "jvp"]


def custom_gradient(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose gradient is given by the function itself.

    It returns its result and a function that maps the gradient of the result to those
    of the arguments.

    >>> @custom_gradient
    ... def clipped(x):
    ...     return x, lambda upstream: upstream * 0.5
    >>> clipped(np.ones(2, "float32"))
    array([1., 1.], dtype=float32)
    """

    @op
    @functools.wraps(f)
    def differentiated(*args: Any, **kwargs: Any) -> Any:
        args = tree.map_leaves(_lifted, args)
        inputs = [leaf for leaf in tree.flatten(args) if isinstance(leaf, Value)]
        result, gradient = f(*args, **kwargs)
        values = [read(leaf) for leaf in tree.flatten(result)]

        def with_rule(number: int) -> Value:
            def rule(upstream: Value) -> list[Value | None]:
                # It is linear in its argument: an output at a time is enough.
                each = [fill(0, value) for value in values]
                each[number] = upstream
                parts = tree.flatten(gradient(*each))
                if len(parts) != len(inputs):
                    raise ValueError(
                        f"The gradient of `{f.__name__}` returned {len(parts)} arrays, "
                        f"but the function has {len(inputs)} tensors as arguments."
                    )
                return [None if part is None else read(part) for part in parts]

            return custom.custom_gradient(values[number], *inputs, rule=rule)

        return tree.pack(result, [with_rule(n) for n in range(len(values))])

    return differentiated


def _lifted(leaf: Any) -> Any:
    is_tensor = isinstance(leaf, (np.ndarray, np.generic, Variable, float))
    return read(leaf) if is_tensor else leaf


@op
def jvp(fun: Callable, primals: Any, tangents: Any, has_aux: bool = False) -> Any:
    """Return `fun(*primals)`, and how it changes along the tangents.

    >>> import numpy as np
    >>> value, slope = jvp(lambda x: x * x, (np.float32(3.0),), (np.float32(1.0),))
    >>> float(value), float(slope)
    (9.0, 6.0)
    """
    points = [read(x) for x in tree.flatten(primals)]
    directions = [
        astype(tangent, point.dtype)
        for tangent, point in zip(tree.flatten(tangents), points, strict=True)
    ]
    result = fun(*tree.pack(primals, points))
    outputs, aux = result if has_aux else (result, None)
    leaves = [read(leaf) for leaf in tree.flatten(outputs)]
    slopes = [_slope_along(leaf, points, directions) for leaf in leaves]
    answer: Any = tree.pack(outputs, leaves), tree.pack(outputs, slopes)
    return (*answer, aux) if has_aux else answer


def _slope_along(
    output: Value, points: Sequence[Value], directions: Sequence[Value]
) -> Value:
    """Differentiate twice: a gradient is linear in what it is the gradient of."""
    if not is_float(output.dtype):
        return fill(0, output)
    seed = Input("seed", output.shape, output.dtype)  # what follows is linear in it
    slopes = backpropagate({output: seed}, points)
    total: Any = None
    for point, direction in zip(points, directions, strict=True):
        if point in slopes:
            product = slopes[point] * stretch(direction, point.shape)
            part = sum_(product, axes=tuple(range(product.ndim)))
            total = part if total is None else total + part
    if total is None:
        return fill(0, output)
    along = backpropagate({total: fill(1, total)}, [seed])
    return along.get(seed, fill(0, output))
