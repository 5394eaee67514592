"""`keras.backend`, as in Keras 2: `K.mean`, `K.floatx`, `K.clear_session`.

Each name is today's function under its old name; what worked on TensorFlow sessions
and graphs is gone and says so.
"""

from __future__ import annotations

import builtins
import importlib
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ganglion import activations, config, keras2, ops, random, tree, utils
from ganglion.activations import (
    elu,
    hard_sigmoid,
    sigmoid,
    softmax,
    softplus,
    softsign,
    tanh,
)
from ganglion.backend.graphs import cast, function, gradients, placeholder, shape
from ganglion.backend.old_ops import (
    batch_normalization,
    conv2d_transpose,
    conv3d,
    cumprod,
    depthwise_conv2d,
    equal,
    eye,
    foldl,
    foldr,
    greater,
    greater_equal,
    is_sparse,
    is_variable,
    less,
    less_equal,
    local_conv1d,
    local_conv2d,
    map_fn,
    maximum,
    minimum,
    moving_average_update,
    multiply_last_axes,
    normalize_batch_in_training,
    not_equal,
    one_hot,
    ones_like,
    pool3d,
    pool_by_mode,
    prod,
    random_normal_variable,
    random_uniform_variable,
    reshape,
    reverse,
    separable_conv2d,
    slice,  # noqa: A004
    spatial_3d_padding,
    stop_gradient,
    tile,
    to_dense,
    zeros_like,
)
from ganglion.compat.unsupported import stand_in
from ganglion.config import data_format_of as standardize_data_format
from ganglion.config import (
    epsilon,
    floatx,
    image_data_format,
    set_epsilon,
    set_floatx,
    set_image_data_format,
)
from ganglion.dtypes import is_float_dtype, is_int_dtype, standardize_dtype
from ganglion.layers import Dot, UpSampling2D
from ganglion.layers.rnn.loop import rnn as rnn
from ganglion.ops import (
    abs,  # noqa: A004 (Keras' name)
    all,  # noqa: A004
    any,  # noqa: A004
    arange,
    binary_crossentropy,
    categorical_crossentropy,
    convert_to_numpy,
    convert_to_tensor,
    cos,
    exp,
    is_tensor,
    log,
    logsumexp,
    mean,
    ndim,
    round,  # noqa: A004
    sign,
    sin,
    sparse_categorical_crossentropy,
    square,
    squeeze,
    stack,
    std,
    sum,  # noqa: A004
    transpose,
    var,
)
from ganglion.ops.dispatch import result_type
from ganglion.optimizers.graph_updates import (
    Assignment,
    are_handed_over,
    recalled,
)
from ganglion.random import truncated_normal
from ganglion.scopes import name_scope as name_scope
from ganglion.symbolic import KerasTensor as KerasTensor
from ganglion.symbolic import any_symbolic, infer, record
from ganglion.symbolic import is_symbolic as is_keras_tensor

# In `keras.src.backend`, where layers written after Keras' own look for them.
from ganglion.tensors import get_keras_mask as get_keras_mask
from ganglion.tensors import set_keras_mask as set_keras_mask
from ganglion.variables import Variable, current_scope


def backend() -> str:
    """Return which of Keras' backends a script is to be written for."""
    return config.backend() if config.stands_for_keras() else "ganglion"


def image_dim_ordering() -> str:
    """Return Keras 1's name for the order of the axes: `tf` has the channels last."""
    keras2.note("`K.image_dim_ordering`", "`keras.config.image_data_format`")
    return "tf" if image_data_format() == "channels_last" else "th"


def set_image_dim_ordering(dim_ordering: str) -> None:
    """Choose the order of the axes by Keras 1's names, `tf` and `th`."""
    keras2.note("`K.set_image_dim_ordering`", "`keras.config.set_image_data_format`")
    if dim_ordering not in ("tf", "th"):
        raise ValueError(f"`dim_ordering` is 'tf' or 'th', not {dim_ordering!r}.")
    is_last = dim_ordering == "tf"
    set_image_data_format("channels_last" if is_last else "channels_first")


def compute_output_spec(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return the Keras tensors that a function of Keras tensors gives."""
    return infer(fn, args, kwargs, stretches=True)


def clear_session(free_memory: bool = True) -> None:
    """Count names and numbers from the start again, and free unused memory."""
    _uids.clear()
    keras2.set_learning_phase(None)
    utils.clear_session(free_memory)


def max(x: Any, axis: Any = None, keepdims: bool = False) -> Any:  # noqa: A001
    """Find the largest element over axes."""
    return ops.max(x, axis=axis, keepdims=keepdims)


def min(x: Any, axis: Any = None, keepdims: bool = False) -> Any:  # noqa: A001
    """Find the smallest element over axes."""
    return ops.min(x, axis=axis, keepdims=keepdims)


def argmax(x: Any, axis: int = -1) -> Any:
    """Return the index of the largest element, along the last axis by default."""
    return ops.argmax(x, axis=axis)


def argmin(x: Any, axis: int = -1) -> Any:
    """Return the index of the smallest element, along the last axis by default."""
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
    """Multiply the matrices of each row of the batch; `axes` are those to sum over.

    Of more than three axes, Keras before 2.3 multiplied the last two, row by row of the
    others, as scripts for it expect.
    """
    if axes is None:
        axes = (len(x.shape) - 1, len(y.shape) - 2 if len(y.shape) > 2 else 1)
    if len(x.shape) == len(y.shape) == 2:
        return ops.sum(x * y, axis=1, keepdims=True)
    if builtins.max(_rank(x), _rank(y)) > 3 and keras2.is_own_keras():
        return multiply_last_axes(x, y, axes)
    return Dot(axes)([x, y])


def gather(reference: Any, indices: Any) -> Any:
    """Pick rows."""
    return ops.take(reference, indices, axis=0)


def permute_dimensions(x: Any, pattern: Any) -> Any:
    """Reorder the axes."""
    return ops.transpose(x, pattern)


def switch(condition: Any, then_expression: Any, else_expression: Any) -> Any:
    """Choose element by element; a condition with fewer axes, by the first of them."""
    choices = [x() if callable(x) else x for x in (then_expression, else_expression)]
    rank = builtins.max(_rank(x) for x in choices)
    if _rank(condition):
        for _ in range(_rank(condition), rank):
            condition = ops.expand_dims(condition, -1)
    return ops.where(ops.cast(condition, "bool"), *choices)


def _rank(x: Any) -> int:
    return len(getattr(x, "shape", ()))


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
    return ops.shape(x)


def get_variable_shape(x: Any) -> Any:
    """Return the shape, by its name in older versions of Keras 2."""
    return int_shape(x)


def dtype(x: Any) -> str:
    """Return the type's name; numbers of an optimizer are variables in Keras 2."""
    return floatx() if isinstance(x, float) else str(x.dtype)


def variable(value: Any, dtype: Any = None, name: str | None = None) -> Variable:
    """Make a variable."""
    array = np.asarray(value, dtype or floatx())
    new = recalled(lambda: Variable(array, name=name))
    new.in_graph = keras2.is_own_keras()
    return new


def constant(
    value: Any, dtype: Any = None, shape: Any = None, name: str | None = None
) -> np.ndarray:
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
    """Draw evenly from a range; integers, if the type is one of these."""
    if dtype is not None and is_int_dtype(dtype):
        return random.randint(shape, int(minval), int(maxval), dtype, seed)
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


def symbolic(func: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function as it is; in Keras 2.3 it built its part of the graph."""
    return func


def get_uid(prefix: str = "") -> int:
    """Return a number that grows with each call for a prefix."""
    _uids[prefix] = _uids.get(prefix, 0) + 1
    return _uids[prefix]


_uids: dict[str, int] = {}


def update(x: Variable, new_x: Any) -> Any:
    """Replace a variable's value; in a list of updates, when these are made."""
    if are_handed_over() or is_keras_tensor(new_x):
        return Assignment(x, new_x)
    return x.assign(new_x)


def update_add(x: Variable, increment: Any) -> Any:
    """Add to a variable; in a list of updates, when these are made."""
    if are_handed_over() or is_keras_tensor(increment):
        return Assignment(x, x + increment)
    return x.assign_add(increment)


def update_sub(x: Variable, decrement: Any) -> Any:
    """Subtract from a variable; in a list of updates, when these are made."""
    if are_handed_over() or is_keras_tensor(decrement):
        return Assignment(x, x - decrement)
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


def relu(
    x: Any, alpha: float = 0.0, max_value: float | None = None, threshold: float = 0.0
) -> Any:
    """Return x where it is positive, else a slope, with a limit and a threshold."""
    return activations.relu(x, alpha, max_value, threshold)


def bias_add(x: Any, bias: Any, data_format: str | None = None) -> Any:
    """Add one number per channel."""
    if config.data_format_of(data_format) == "channels_first" and len(bias.shape) == 1:
        bias = ops.reshape(bias, (bias.shape[0], *[1] * (len(x.shape) - 2)))
    return x + bias


def conv1d(
    x: Any,
    kernel: Any,
    strides: int = 1,
    padding: str = "valid",
    data_format: str | None = None,
    dilation_rate: int = 1,
) -> Any:
    """Slide a kernel over sequences."""
    return ops.conv(x, kernel, strides, padding, data_format, dilation_rate)


def conv2d(
    x: Any,
    kernel: Any,
    strides: Any = (1, 1),
    padding: str = "valid",
    data_format: str | None = None,
    dilation_rate: Any = (1, 1),
) -> Any:
    """Slide a kernel over images."""
    return ops.conv(x, kernel, strides, padding, data_format, dilation_rate)


def pool2d(
    x: Any,
    pool_size: Any,
    strides: Any = (1, 1),
    padding: str = "valid",
    data_format: str | None = None,
    pool_mode: str = "max",
) -> Any:
    """Take the largest element or the average of windows of images."""
    return pool_by_mode(pool_mode, x, pool_size, strides, padding, data_format)


def resize_images(
    x: Any,
    height_factor: int,
    width_factor: int,
    data_format: str | None = None,
    interpolation: str = "nearest",
) -> Any:
    """Enlarge images by whole factors."""
    factors = (height_factor, width_factor)
    return UpSampling2D(factors, data_format, interpolation)(x)


def spatial_2d_padding(
    x: Any, padding: Any = ((1, 1), (1, 1)), data_format: str | None = None
) -> Any:
    """Put zeros around images."""
    if config.data_format_of(data_format) == "channels_first":
        return ops.pad(x, ((0, 0), (0, 0), *padding))
    return ops.pad(x, ((0, 0), *padding, (0, 0)))


def temporal_padding(x: Any, padding: Any = (1, 1)) -> Any:
    """Put zeros before and after sequences."""
    return ops.pad(x, ((0, 0), tuple(padding), (0, 0)))


def dropout(x: Any, level: float, noise_shape: Any = None, seed: Any = None) -> Any:
    """Set elements to zero at random, and enlarge the rest."""
    return random.dropout(x, level, noise_shape, seed)


def learning_phase() -> int:
    """Return 1 while a training step is traced, else 0, or as it was set."""
    scope, phase = current_scope(), keras2.learning_phase()
    if scope is None or (scope.depth == 0 and phase is not None):
        return int(bool(phase))
    return int(scope.training)


def set_learning_phase(value: int) -> None:
    """Fix whether layers train that are called on Keras tensors from now on.

    A layer keeps the phase that it was called in, as in Keras 2: also in `fit` with 0,
    and in `predict` with 1. With `tf.keras`, `fit` and `predict` say it.
    """
    keras2.note(
        "`K.set_learning_phase`", "`layer(x, training=...)`", changes_defaults=False
    )
    if value not in (0, 1):
        raise ValueError(f"Expected learning phase to be 0 or 1, not {value!r}.")
    if keras2.is_own_keras():
        keras2.set_learning_phase(bool(value))
    elif value:
        raise ValueError(
            "`K.set_learning_phase(1)` is not supported: call the model or the layer "
            "with `training=True`."
        )


def ctc_batch_cost(
    y_true: Any, y_pred: Any, input_length: Any, label_length: Any
) -> Any:
    """Return CTC's loss of every row; the last class of `y_pred` is the blank."""
    keras2.note("`K.ctc_batch_cost`", "`keras.losses.CTC`", changes_defaults=False)
    losses = ops.ctc_loss(
        ops.cast(y_true, "int32"),
        ops.log(y_pred + epsilon()),
        ops.cast(ops.squeeze(label_length, -1), "int32"),
        ops.cast(ops.squeeze(input_length, -1), "int32"),
        mask_index=int(y_pred.shape[-1]) - 1,
    )
    return ops.expand_dims(losses, 1)


def ctc_decode(
    y_pred: Any,
    input_length: Any,
    greedy: bool = True,
    beam_width: int = 100,
    top_paths: int = 1,
) -> Any:
    """Return the likeliest labels of every row, filled with -1, and how likely."""
    keras2.note("`K.ctc_decode`", "`keras.ops.ctc_decode`", changes_defaults=False)
    decoded, scores = ops.ctc_decode(
        ops.log(y_pred + epsilon()),
        ops.cast(input_length, "int32"),
        strategy="greedy" if greedy else "beam_search",
        beam_width=beam_width,
        top_paths=top_paths,
        mask_index=int(y_pred.shape[-1]) - 1,
    )
    return [decoded[path] for path in range(1 if greedy else top_paths)], scores


def in_top_k(predictions: Any, targets: Any, k: int) -> Any:
    """Return whether the class of each row is among the k most probable ones."""
    return ops.in_top_k(targets, predictions, k)


def get_session() -> Any:
    """Return a session of TensorFlow 1 that runs initializers only."""
    return importlib.import_module("ganglion.compat.tensorflow.runtime").Session()


def _get_available_gpus() -> list[str]:
    """Return the names of the GPUs, as in Keras 2."""
    return ["/device:GPU:0"] if config.backend_in_use() == "cuda" else []


def set_session(session: Any) -> None:
    """Accept how TensorFlow 1's session was configured: there is none here."""


def in_train_phase(x: Any, alt: Any, training: Any = None) -> Any:
    """Return x while training, else the alternative; both may be functions."""
    if training is None and _is_open_phase():
        if any_symbolic(x, alt):
            return record(in_train_phase, (x, alt), {})
        raise ValueError(
            "`K.in_train_phase` outside of a step: whether it trains is only known "
            "inside of a layer's `call`, or of a loss. Call it there."
        )
    is_training = learning_phase() if training is None else training
    chosen = x if is_training else alt
    return chosen() if callable(chosen) else chosen


def _is_open_phase() -> bool:
    return current_scope() is None and keras2.learning_phase() is None


def in_test_phase(x: Any, alt: Any, training: Any = None) -> Any:
    """Return x while not training, else the alternative; both may be functions."""
    return in_train_phase(alt, x, training)


def __getattr__(name: str) -> Any:
    if name in ("tf", "control_flow_ops") and config.stands_for_keras():
        return importlib.import_module("ganglion.compat.tensorflow.namespaces").load("")
    if name == "tensorflow_backend":
        return importlib.import_module(f"{__name__}.{name}")
    return stand_in("ganglion.backend", name, globals())


__all__ = [name for name in globals() if not name.startswith("_")]
