"""JAX's transformations and loops: `jit`, `vmap`, `lax.scan` and others."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import ganglion
from ganglion import ops, symbolic, tree
from ganglion.tensors import as_tensor


def jit(fun: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Compile a function; static arguments are recognised without being named."""
    known = {
        "static_argnums",
        "static_argnames",
        "donate_argnums",
        "donate_argnames",
        "inline",
        "device",
        "backend",
    }
    if set(options) - known:
        raise TypeError(f"jax.jit: {min(set(options) - known)!r} is not supported.")
    if fun is None:
        return functools.partial(jit, **options)
    return ganglion.function(fun)


def vmap(fun: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0) -> Any:
    """Return a function that is called for every row of its arguments."""

    def over_rows(*args: Any, **kwargs: Any) -> Any:
        axes = list(in_axes) if isinstance(in_axes, (tuple, list)) else None
        if axes is None:
            axes = [in_axes] * len(args)
        if any(not isinstance(axis, (int, type(None))) for axis in axes):
            raise NotImplementedError(
                "jax.vmap: `in_axes` must be a number or None for each argument; move "
                "the axes of single leaves with `jax.numpy.moveaxis`."
            )
        pairs = [*zip(args, axes, strict=True)]
        rows = [_axis_first(arg, axis) for arg, axis in pairs if axis is not None]
        named = {key: _axis_first(value, 0) for key, value in kwargs.items()}

        def called(parts: Any) -> Any:
            waiting, keywords = iter(parts[0]), parts[1]
            positional = [arg if axis is None else next(waiting) for arg, axis in pairs]
            return fun(*positional, **keywords)

        return _put_axes(ops.vectorized_map(called, (rows, named)), out_axes)

    return over_rows


def _axis_first(structure: Any, axis: int) -> Any:
    def moved(leaf: Any) -> Any:
        return leaf if axis == 0 else ops.moveaxis(leaf, axis, 0)

    return tree.map_leaves(moved, structure)


def _put_axes(results: Any, axes: Any) -> Any:
    """Move the rows of results to an axis, or to one for each of several results."""
    if isinstance(axes, (tuple, list)):
        pairs = zip(results, axes, strict=True)
        return tuple(_put_axes(result, axis) for result, axis in pairs)
    if not isinstance(axes, int):
        raise NotImplementedError(
            "jax.vmap: `out_axes` must be a number, or one for each result; take a row "
            "of what does not depend on it."
        )
    if axes == 0:
        return results
    return tree.map_leaves(lambda leaf: ops.moveaxis(leaf, 0, axes), results)


def unchanged(x: Any, *args: Any, **kwargs: Any) -> Any:
    """Return x: there is one device, and nothing runs asynchronously."""
    return x


def hint(*args: Any, **kwargs: Any) -> None:
    """Ignore an option of JAX's runtime, which changes no result."""


def leaky_relu(x: Any, negative_slope: float = 1e-2) -> Any:
    """Return x, negative numbers times a slope, which is another one than Keras'."""
    return ops.leaky_relu(x, negative_slope)


def fori_loop(lower: Any, upper: Any, body_fun: Any, init_val: Any) -> Any:
    """Return the state after a function was called for every number of a range."""
    return ops.fori_loop(lower, upper, body_fun, init_val)


def while_loop(cond_fun: Any, body_fun: Any, init_val: Any) -> Any:
    """Return the state after a function was called as long as a condition holds."""
    (state,) = ops.while_loop(cond_fun, lambda x: (body_fun(x),), (init_val,))
    return state


def cond(pred: Any, true_fun: Any, false_fun: Any, *operands: Any) -> Any:
    """Return the result of one of two functions."""
    return ops.cond(pred, lambda: true_fun(*operands), lambda: false_fun(*operands))


def array(x: Any, dtype: Any = None) -> Any:
    """Return a tensor in JAX's types, which have no numbers of 64 bits by default."""
    tensor = ops.convert_to_tensor(x, dtype=None if dtype is None else name_of(dtype))
    if dtype is None and isinstance(tensor, np.ndarray):
        narrow = {"float64": "float32", "int64": "int32", "uint64": "uint32"}
        name = tensor.dtype.name
        return as_tensor(tensor.astype(narrow.get(name, name), copy=False))
    return tensor


def name_of(dtype: Any) -> str:
    """Return the name of a type."""
    return dtype if isinstance(dtype, str) else np.dtype(dtype).name


class Device(NamedTuple):
    """The attributes of a device that scripts read."""

    platform: str
    id: int = 0
    process_index: int = 0

    @property
    def device_kind(self) -> str:
        """The kind of the device."""
        return self.platform

    def __str__(self) -> str:
        return f"{self.platform}:{self.id}"


def devices(backend: str | None = None) -> list[Device]:
    """Return the devices: one."""
    return [Device(default_backend())]


def default_backend() -> str:
    """Return the kind of the device."""
    from ganglion.compiler import registry

    return "gpu" if registry.unavailable_reason("cuda") is None else "cpu"


def device_count() -> int:
    """Return how many devices train: one."""
    return 1


def eval_shape(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return what a function would return, as shapes and types."""
    shapes = tree.map_leaves(_keras_tensor, (list(args), kwargs))
    return symbolic.infer(fun, shapes[0], shapes[1])


def _keras_tensor(leaf: Any) -> Any:
    is_array = hasattr(leaf, "shape") and hasattr(leaf, "dtype")
    return symbolic.KerasTensor(leaf.shape, leaf.dtype) if is_array else leaf


def top_k(operand: Any, k: int) -> list[Any]:
    """Return the largest elements of each row, and where they are."""
    return list(ops.top_k(operand, k))


def clamp(min: Any, x: Any, max: Any) -> Any:  # noqa: A002
    """Return x within limits, which come before and after it."""
    return ops.clip(x, min, max)


def dynamic_update_slice(operand: Any, update: Any, start_indices: Any) -> Any:
    """Return an array with a block replaced, from these indices on."""
    return ops.slice_update(operand, start_indices, update)


def switch(index: Any, branches: Any, *operands: Any) -> Any:
    """Return the result of the function of a number; numbers outside are moved in."""
    return ops.switch(ops.clip(index, 0, len(branches) - 1), branches, *operands)


def segment_sum(data: Any, segment_ids: Any, num_segments: int | None = None) -> Any:
    """Return the sums of rows with the same number."""
    return ops.segment_sum(data, segment_ids, num_segments)


def array_equal(a1: Any, a2: Any) -> Any:
    """Return whether two arrays have the same shape and elements."""
    if tuple(np.shape(a1)) != tuple(np.shape(a2)):
        return ops.convert_to_tensor(False)
    return ops.all(ops.equal(a1, a2))


def full(shape: Any, fill_value: Any, dtype: Any = None) -> Any:
    """Return an array of one number, in its type unless another is given."""
    value = array(fill_value, dtype)
    return ops.broadcast_to(value, shape)
