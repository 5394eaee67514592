"""`keras.backend`, as old scripts know it: `K.mean`, `K.floatx`, `K.clear_session`.

Each name is today's function under its old name; what worked on TensorFlow sessions
and graphs is gone and says so.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np

from ganglion import ops, random, utils
from ganglion.activations import (
    elu,
    hard_sigmoid,
    sigmoid,
    softmax,
    softplus,
    softsign,
    tanh,
)
from ganglion.backend.layers import (
    bias_add,
    conv1d,
    conv2d,
    dropout,
    in_test_phase,
    in_train_phase,
    learning_phase,
    pool2d,
    relu,
    resize_images,
    set_learning_phase,
    spatial_2d_padding,
    temporal_padding,
)
from ganglion.compat.unsupported import explain
from ganglion.config import (
    epsilon,
    floatx,
    image_data_format,
    set_epsilon,
    set_floatx,
    set_image_data_format,
)
from ganglion.layers import Dot
from ganglion.ops import (
    abs,  # noqa: A004 (Keras' name)
    all,  # noqa: A004
    any,  # noqa: A004
    arange,
    binary_crossentropy,
    cast,
    categorical_crossentropy,
    cos,
    equal,
    exp,
    eye,
    greater,
    greater_equal,
    in_top_k,
    is_tensor,
    less,
    less_equal,
    log,
    logsumexp,
    maximum,
    mean,
    minimum,
    ndim,
    not_equal,
    one_hot,
    ones_like,
    reshape,
    round,  # noqa: A004
    shape,
    sign,
    sin,
    sparse_categorical_crossentropy,
    square,
    squeeze,
    stack,
    std,
    stop_gradient,
    sum,  # noqa: A004
    tile,
    transpose,
    var,
    zeros_like,
)
from ganglion.random import truncated_normal
from ganglion.symbolic import is_symbolic as is_keras_tensor
from ganglion.variables import Variable


def backend() -> str:
    """Return the name old scripts compare with: ours is neither of theirs."""
    return "ganglion"


def clear_session(free_memory: bool = True) -> None:
    """Count names and numbers from the start again, and free what nobody uses."""
    _uids.clear()
    utils.clear_session(free_memory)


def max(x: Any, axis: Any = None, keepdims: bool = False) -> Any:  # noqa: A001
    """Find the largest element over axes."""
    return ops.max(x, axis=axis, keepdims=keepdims)


def min(x: Any, axis: Any = None, keepdims: bool = False) -> Any:  # noqa: A001
    """Find the smallest element over axes."""
    return ops.min(x, axis=axis, keepdims=keepdims)


def argmax(x: Any, axis: int = -1) -> Any:
    """Return the place of the largest element, along the last axis by default."""
    return ops.argmax(x, axis=axis)


def argmin(x: Any, axis: int = -1) -> Any:
    """Return the place of the smallest element, along the last axis by default."""
    return ops.argmin(x, axis=axis)


def cumsum(x: Any, axis: int = 0) -> Any:
    """Add up along an axis, the first by default."""
    return ops.cumsum(x, axis=axis)


def concatenate(tensors: Any, axis: int = -1) -> Any:
    """Join arrays, along the last axis by default."""
    return ops.concatenate(tensors, axis=axis)


def expand_dims(x: Any, axis: int = -1) -> Any:
    """Add an axis of one, at the end by default."""
    return ops.expand_dims(x, axis)


def repeat_elements(x: Any, rep: int, axis: int) -> Any:
    """Repeat each element along an axis."""
    return ops.repeat(x, rep, axis=axis)


def repeat(x: Any, n: int) -> Any:
    """Repeat each row n times: (rows, features) becomes (rows, n, features)."""
    return ops.repeat(ops.expand_dims(x, 1), n, axis=1)


def clip(x: Any, min_value: Any, max_value: Any) -> Any:
    """Limit the elements to a range."""
    return ops.clip(x, min_value, max_value)


def sqrt(x: Any) -> Any:
    """Return the square root, 0 for negative elements."""
    return ops.sqrt(ops.maximum(x, 0.0))


def pow(x: Any, a: Any) -> Any:  # noqa: A001
    """Raise to a power."""
    return ops.power(x, a)


def dot(x: Any, y: Any) -> Any:
    """Multiply matrices."""
    return ops.dot(x, y)


def batch_dot(x: Any, y: Any, axes: Any = None) -> Any:
    """Multiply the matrices of each row of the batch; `axes` are those to sum over."""
    if axes is None:
        axes = (len(x.shape) - 1, len(y.shape) - 2 if len(y.shape) > 2 else 1)
    if len(x.shape) == len(y.shape) == 2:
        return ops.sum(x * y, axis=1, keepdims=True)
    return Dot(axes)([x, y])


def gather(reference: Any, indices: Any) -> Any:
    """Pick rows."""
    return ops.take(reference, indices, axis=0)


def permute_dimensions(x: Any, pattern: Any) -> Any:
    """Reorder the axes."""
    return ops.transpose(x, pattern)


def switch(condition: Any, then_expression: Any, else_expression: Any) -> Any:
    """Choose element by element."""
    choices = (then_expression, else_expression)
    return ops.where(condition, *(x() if callable(x) else x for x in choices))


def flatten(x: Any) -> Any:
    """Put all elements into one row."""
    return ops.reshape(x, (-1,))


def batch_flatten(x: Any) -> Any:
    """Put the elements of each row of the batch into one row."""
    return ops.reshape(x, (ops.shape(x)[0], -1))


def l2_normalize(x: Any, axis: int | None = None) -> Any:
    """Scale to length one along an axis, by default over all elements."""
    squares = ops.sum(ops.square(x), axis=axis, keepdims=True)
    return x * ops.rsqrt(ops.maximum(squares, 1e-12))


def int_shape(x: Any) -> Any:
    """Return the shape, None where unknown."""
    return shape(x)


def dtype(x: Any) -> str:
    """Return the type's name."""
    return str(x.dtype)


def variable(value: Any, dtype: Any = None, name: str | None = None) -> Variable:
    """Make a variable."""
    return Variable(np.asarray(value, dtype or floatx()), name=name)


def constant(value: Any, dtype: Any = None, shape: Any = None) -> np.ndarray:
    """Make an array."""
    array = np.asarray(value, dtype or floatx())
    return array if shape is None else np.broadcast_to(array, shape).copy()


def zeros(shape: Any, dtype: Any = None, name: str | None = None) -> Variable:
    """Make a variable of zeros."""
    return variable(np.zeros(shape), dtype, name)


def ones(shape: Any, dtype: Any = None, name: str | None = None) -> Variable:
    """Make a variable of ones."""
    return variable(np.ones(shape), dtype, name)


def random_normal(
    shape: Any,
    mean: float = 0.0,
    stddev: float = 1.0,
    dtype: Any = None,
    seed: Any = None,
) -> Any:
    """Draw from a normal distribution."""
    return random.normal(shape, mean, stddev, dtype, seed)


def random_uniform(
    shape: Any,
    minval: float = 0.0,
    maxval: float = 1.0,
    dtype: Any = None,
    seed: Any = None,
) -> Any:
    """Draw evenly from a range."""
    return random.uniform(shape, minval, maxval, dtype, seed)


def random_binomial(
    shape: Any, p: float = 0.0, dtype: Any = None, seed: Any = None
) -> Any:
    """Draw ones with probability p, else zeros."""
    return ops.cast(random.uniform(shape, seed=seed) < p, dtype or floatx())


random_bernoulli = random_binomial


def get_value(x: Any) -> np.ndarray:
    """Return a variable as an array."""
    return np.array(x)


def set_value(x: Variable, value: Any) -> None:
    """Replace a variable's value."""
    x.assign(value)


def eval(x: Any) -> np.ndarray:  # noqa: A001
    """Return a variable or array as an array."""
    return np.array(x)


def get_uid(prefix: str = "") -> int:
    """Return a number that grows with each call for a prefix."""
    _uids[prefix] = _uids.get(prefix, 0) + 1
    return _uids[prefix]


_uids: dict[str, int] = {}


def update(x: Variable, new_x: Any) -> Any:
    """Replace a variable's value."""
    return x.assign(new_x)


def update_add(x: Variable, increment: Any) -> Any:
    """Add to a variable."""
    return x.assign_add(increment)


def update_sub(x: Variable, decrement: Any) -> Any:
    """Subtract from a variable."""
    return x.assign_sub(decrement)


def batch_get_value(tensors: Any) -> list[np.ndarray]:
    """Return variables as arrays."""
    return [get_value(tensor) for tensor in tensors]


def batch_set_value(tuples: Any) -> None:
    """Replace the values of variables."""
    for tensor, value in tuples:
        set_value(tensor, value)


def count_params(x: Any) -> int:
    """Return the number of elements."""
    return int(np.prod(x.shape))


def cast_to_floatx(x: Any) -> Any:
    """Turn an array into the float type of new weights."""
    return np.asarray(x, floatx())


def identity(x: Any, name: str | None = None) -> Any:
    """Return the same again."""
    return x


def print_tensor(x: Any, message: str = "") -> Any:
    """Print an array and return it; a compiled step prints nothing, and says so."""
    if isinstance(x, (np.ndarray, Variable)):
        print(message, np.asarray(x), file=sys.stderr)
    else:
        warnings.warn(
            "`print_tensor` prints nothing inside of a model, whose steps are "
            "compiled: call the layers on arrays to look inside.",
            stacklevel=2,
        )
    return x


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"{explain('ganglion.backend', name, globals())} See also `ganglion.ops`."
    )


__all__ = [name for name in globals() if not name.startswith("_")]
