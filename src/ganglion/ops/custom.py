"""Functions with a gradient of the user's own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from ganglion import tree
from ganglion.compiler.ir import custom
from ganglion.compiler.ir.graph import Value
from ganglion.compiler.ir.shaping import fill
from ganglion.ops.dispatch import op
from ganglion.variables import Variable, read

__all__ = ["custom_gradient"]


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
