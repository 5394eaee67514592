"""`keras.backend`, as old scripts know it: `K.mean`, `K.floatx`, `K.clear_session`.

Each name is today's function under its old name; what worked on TensorFlow sessions
and graphs is gone and says so.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ganglion import ops, random
from ganglion.activations import (
    elu,
    hard_sigmoid,
    relu,
    sigmoid,
    softmax,
    softplus,
    softsign,
    tanh,
)
from ganglion.config import (
    epsilon,
    floatx,
    image_data_format,
    set_epsilon,
    set_floatx,
    set_image_data_format,
)
from ganglion.losses import (
    binary_crossentropy,
    categorical_crossentropy,
    sparse_categorical_crossentropy,
)
from ganglion.ops import (
    abs,  # noqa: A004 (Keras' name)
    argmax,
    argmin,
    cast,
    clip,
    concatenate,
    cos,
    cumsum,
    equal,
    exp,
    expand_dims,
    greater,
    greater_equal,
    less,
    less_equal,
    log,
    logsumexp,
    maximum,
    minimum,
    not_equal,
    one_hot,
    ones_like,
    reshape,
    round,  # noqa: A004
    sign,
    sin,
    sqrt,
    square,
    squeeze,
    stack,
    stop_gradient,
    tile,
    transpose,
    zeros_like,
)
from ganglion.variables import Variable, reset_names


def backend() -> str:
    """Return the name old scripts compare with: ours is neither of theirs."""
    return "ganglion"


def clear_session() -> None:
    """Count layer names from the start again."""
    reset_names()


def sum(x: Any, axis: Any = None, keepdims: bool = False) -> Any:  # noqa: A001
    """Add up over axes."""
    return ops.sum(x, axis=axis, keepdims=keepdims)


def mean(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Average over axes."""
    return ops.mean(x, axis=axis, keepdims=keepdims)


def max(x: Any, axis: Any = None, keepdims: bool = False) -> Any:  # noqa: A001
    """Find the largest element over axes."""
    return ops.max(x, axis=axis, keepdims=keepdims)


def min(x: Any, axis: Any = None, keepdims: bool = False) -> Any:  # noqa: A001
    """Find the smallest element over axes."""
    return ops.min(x, axis=axis, keepdims=keepdims)


def std(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the standard deviation over axes."""
    return ops.std(x, axis=axis, keepdims=keepdims)


def var(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Return the variance over axes."""
    return ops.var(x, axis=axis, keepdims=keepdims)


def any(x: Any, axis: Any = None, keepdims: bool = False) -> Any:  # noqa: A001
    """Tell whether any element over axes is true."""
    return ops.any(x, axis=axis, keepdims=keepdims)


def all(x: Any, axis: Any = None, keepdims: bool = False) -> Any:  # noqa: A001
    """Tell whether all elements over axes are true."""
    return ops.all(x, axis=axis, keepdims=keepdims)


def pow(x: Any, a: Any) -> Any:  # noqa: A001
    """Raise to a power."""
    return ops.power(x, a)


def dot(x: Any, y: Any) -> Any:
    """Multiply matrices."""
    return ops.dot(x, y)


def gather(reference: Any, indices: Any) -> Any:
    """Pick rows."""
    return ops.take(reference, indices, axis=0)


def permute_dimensions(x: Any, pattern: Any) -> Any:
    """Reorder the axes."""
    return ops.transpose(x, pattern)


def switch(condition: Any, then_expression: Any, else_expression: Any) -> Any:
    """Choose element by element."""
    chosen = [
        one() if callable(one) else one for one in (then_expression, else_expression)
    ]
    return ops.where(condition, *chosen)


def flatten(x: Any) -> Any:
    """Put all elements into one row."""
    return ops.reshape(x, (-1,))


def batch_flatten(x: Any) -> Any:
    """Put the elements of each row of the batch into one row."""
    return ops.reshape(x, (ops.shape(x)[0], -1))


def l2_normalize(x: Any, axis: int | None = None) -> Any:
    """Scale to length one along an axis."""
    return ops.normalize(x, axis=-1 if axis is None else axis)


def shape(x: Any) -> Any:
    """Return the shape."""
    return ops.shape(x)


def int_shape(x: Any) -> Any:
    """Return the shape, None where unknown."""
    return ops.shape(x)


def ndim(x: Any) -> int:
    """Return the number of axes."""
    return len(ops.shape(x))


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

_GONE = (
    "function",
    "gradients",
    "placeholder",
    "get_session",
    "set_session",
    "learning_phase",
    "set_learning_phase",
    "tensorflow_backend",
    "rnn",
)


def __getattr__(name: str) -> Any:
    if name in _GONE:
        raise AttributeError(
            f"keras.backend.{name} worked on TensorFlow sessions and graphs, which "
            "Ganglion does not have: write it as a Layer or a loss with `ganglion.ops`."
        )
    raise AttributeError(f"keras.backend has no function {name!r}; see `ganglion.ops`.")


__all__ = [name for name in globals() if not name.startswith("_")]
