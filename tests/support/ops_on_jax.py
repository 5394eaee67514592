"""The calls of `ops_cases_numpy` in Keras on JAX: values and slopes, into a file.

A process of its own, since Keras has one backend: python ops_on_jax.py FILE.npz
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "cases"))

import numpy as np
from ops_cases import Call
from ops_cases_numpy import NUMPY_CALLS


def weights(shape: tuple[int, ...]) -> np.ndarray:
    """Return how much each element of a result counts in the sum that is derived."""
    return np.cos(np.arange(np.prod(shape, dtype=int))).reshape(shape).astype("float32")


def loss(parts: Any, total: Any, add_up: Any) -> Any:
    """Add up the floats of a result, weighted."""
    for part in parts:
        if part.dtype == "float32":
            total = total + add_up(part * weights(part.shape))
    return total


def float_arrays(call: Call) -> list[int]:
    """Return which arguments are arrays of floats."""
    return [
        number
        for number, x in enumerate(call.args)
        if isinstance(x, np.ndarray) and x.dtype == "float32" and np.isfinite(x).all()
    ]


def _slopes(call: Call, function: Any) -> dict[int, np.ndarray]:
    import jax
    import jax.numpy as jnp

    chosen = float_arrays(call)

    def scalar(*arrays: Any) -> Any:
        args = list(call.args)
        for number, array in zip(chosen, arrays, strict=True):
            args[number] = array
        parts = jax.tree.leaves(function(*args, **call.kwargs))
        return loss(parts, jnp.float32(0), jnp.sum)

    slopes = jax.grad(scalar, tuple(range(len(chosen))))(
        *(call.args[number] for number in chosen)
    )
    return dict(zip(chosen, map(np.asarray, slopes), strict=True))


def main() -> None:
    """Run every call, or each of so many; slopes that JAX refuses are left out."""
    os.environ |= {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    import jax
    import keras

    results: dict[str, np.ndarray] = {}
    each = int(sys.argv[2])
    for number, call in list(enumerate(NUMPY_CALLS))[::each]:
        function = getattr(keras.ops, call.name)
        parts = jax.tree.leaves(function(*call.args, **call.kwargs))
        for place, part in enumerate(parts):
            results[f"{number}/{place}"] = np.asarray(part)
        try:
            for place, slope in _slopes(call, function).items():
                results[f"slope {number}/{place}"] = slope
        except Exception as error:  # no gradient there
            print(call.name, type(error).__name__)
    np.savez(sys.argv[1], **results)


if __name__ == "__main__":
    main()
