"""JAX's derivatives of functions with many results: `jacrev`, `hessian`, `vjp`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ganglion import tree
from ganglion.gradients import GradientTape, fresh

Argnums = int | Sequence[int]


def jacrev(fun: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Any]:
    """Return a function that gives the slope of each result by each element.

    It is `jacfwd`, too: the numbers are the same.
    """
    numbers = [argnums] if isinstance(argnums, int) else list(argnums)

    @functools.wraps(fun)
    def differentiated(*args: Any, **kwargs: Any) -> Any:
        arguments = list(args)
        with GradientTape(watch_accessed_variables=False) as tape:
            for number in numbers:
                arguments[number] = tree.map_leaves(fresh, arguments[number])
            sources = [arguments[number] for number in numbers]
            tape.watch(sources)
            result = fun(*arguments, **kwargs)
        if isinstance(result, (tuple, list, dict)):
            raise NotImplementedError(
                "jax.jacrev, jax.jacfwd, jax.hessian: the function must return one "
                "array; join several with `jax.numpy.concatenate`."
            )
        slopes = tape.jacobian(result, sources, unconnected_gradients="zero")
        return slopes[0] if isinstance(argnums, int) else tuple(slopes)

    return differentiated


def hessian(fun: Callable[..., Any], argnums: int = 0) -> Callable[..., Any]:
    """Return a function that gives the second derivatives of another."""
    if not isinstance(argnums, int):
        raise NotImplementedError(
            "jax.hessian: `argnums` must be one number; join the arguments with "
            "`jax.numpy.concatenate`."
        )
    return jacrev(jacrev(fun, argnums), argnums)


def vjp(fun: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """Return the result, and a function from its gradient to those of the arguments."""
    with GradientTape(persistent=True, watch_accessed_variables=False) as tape:
        arguments = tree.map_leaves(fresh, list(primals))
        tape.watch(arguments)
        result = fun(*arguments)

    def pulled_back(cotangent: Any) -> tuple[Any, ...]:
        grads = tape.gradient(result, arguments, cotangent, "zero")
        return tuple(grads)

    return result, pulled_back
