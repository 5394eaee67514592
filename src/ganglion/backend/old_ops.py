"""More of Keras 2's `keras.backend`: loops, convolutions, normalization, variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ganglion import config, ops, random
from ganglion.optimizers.graph_updates import Assignment, are_handed_over
from ganglion.variables import Variable

# ---- loops and parts -----------------------------------------------------------------


def map_fn(
    fn: Callable[[Any], Any], elems: Any, name: str | None = None, dtype: Any = None
) -> Any:
    """Return what a function makes of every row."""
    results = ops.map(fn, elems)
    return results if dtype is None else ops.cast(results, dtype)


def foldl(
    fn: Callable[[Any, Any], Any],
    elems: Any,
    initializer: Any = None,
    name: str | None = None,
) -> Any:
    """Return what a function makes of its last result and each row, from the first."""
    rows = list(elems) if initializer is None else [initializer, *elems]
    total = rows[0]
    for row in rows[1:]:
        total = fn(total, row)
    return total


def foldr(
    fn: Callable[[Any, Any], Any],
    elems: Any,
    initializer: Any = None,
    name: str | None = None,
) -> Any:
    """Return what a function makes of its last result and each row, from the last."""
    return foldl(fn, ops.flip(elems, 0), initializer)


def multiply_last_axes(x: Any, y: Any, axes: Any) -> Any:
    """Return `K.batch_dot` of more than three axes, as before Keras 2.3.

    The axes before the last two belong to the batch; the smaller tensor gets axes of
    one after its own, which the result does not have.
    """
    x_rank, y_rank = len(x.shape), len(y.shape)
    rank = max(x_rank, y_rank)
    first, second = (axes, axes) if isinstance(axes, int) else axes
    first, second = first % x_rank, second % y_rank
    if min(first, second) < rank - 2:
        raise ValueError(
            f"`K.batch_dot` of {x_rank} and {y_rank} axes sums over one of the last "
            f"two of each, not over {axes}: transpose them with `K.permute_dimensions`."
        )
    x = ops.expand_dims(x, tuple(range(x_rank, rank)))
    y = ops.expand_dims(y, tuple(range(y_rank, rank)))
    product = ops.matmul(
        x if first == rank - 1 else ops.swapaxes(x, -1, -2),
        ops.swapaxes(y, -1, -2) if second == rank - 1 else y,
    )
    start = x_rank - 1 if x_rank < y_rank else x_rank + y_rank - 3
    return ops.squeeze(product, tuple(range(start, start + abs(x_rank - y_rank))))


def reverse(x: Any, axes: Any) -> Any:
    """Return a tensor with some axes in reverse order."""
    return ops.flip(x, axis=axes)


def slice(x: Any, start: Any, size: Any) -> Any:  # noqa: A001 (Keras' name)
    """Return a part of a tensor; a size of -1 is all that is left."""
    sizes = zip(x.shape, start, size, strict=True)
    shape = [total - begin if n == -1 else n for total, begin, n in sizes]
    return ops.slice(x, tuple(start), tuple(shape))


def equal(x: Any, y: Any) -> Any:
    """Return where two tensors are equal."""
    return ops.equal(x, y)


def not_equal(x: Any, y: Any) -> Any:
    """Return where two tensors differ."""
    return ops.not_equal(x, y)


def greater(x: Any, y: Any) -> Any:
    """Return where the first tensor is larger."""
    return ops.greater(x, y)


def greater_equal(x: Any, y: Any) -> Any:
    """Return where the first tensor is not smaller."""
    return ops.greater_equal(x, y)


def less(x: Any, y: Any) -> Any:
    """Return where the first tensor is smaller."""
    return ops.less(x, y)


def less_equal(x: Any, y: Any) -> Any:
    """Return where the first tensor is not larger."""
    return ops.less_equal(x, y)


def maximum(x: Any, y: Any) -> Any:
    """Return the larger of each pair of elements."""
    return ops.maximum(x, y)


def minimum(x: Any, y: Any) -> Any:
    """Return the smaller of each pair of elements."""
    return ops.minimum(x, y)


def one_hot(indices: Any, num_classes: int) -> Any:
    """Return a row with a single one for each whole number."""
    return ops.one_hot(indices, num_classes)


def reshape(x: Any, shape: Any) -> Any:
    """Give the same elements a new shape; one size may be -1."""
    return ops.reshape(x, shape)


def tile(x: Any, n: Any) -> Any:
    """Repeat a whole tensor along its axes."""
    return ops.tile(x, n)


def stop_gradient(variables: Any) -> Any:
    """Return a tensor that no gradient flows through, or a list of such."""
    if isinstance(variables, (list, tuple)):
        return [ops.stop_gradient(variable) for variable in variables]
    return ops.stop_gradient(variables)


def ones_like(x: Any, dtype: Any = None, name: str | None = None) -> Any:
    """Return ones in the shape of a tensor."""
    return ops.ones_like(x, dtype)


def zeros_like(x: Any, dtype: Any = None, name: str | None = None) -> Any:
    """Return zeros in the shape of a tensor."""
    return ops.zeros_like(x, dtype)


def eye(size: Any, dtype: Any = None, name: str | None = None) -> Any:
    """Return the identity matrix, or one of as many rows and columns as given."""
    rows, columns = size if isinstance(size, (list, tuple)) else (size, size)
    return ops.eye(rows, columns, dtype=dtype)


def prod(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Multiply elements over axes."""
    return ops.prod(x, axis=axis, keepdims=keepdims)


def cumprod(x: Any, axis: int = 0) -> Any:
    """Return products of all elements up to each."""
    return ops.cumprod(x, axis=axis)


def to_dense(tensor: Any) -> Any:
    """Return a tensor: all are dense."""
    return tensor


def is_sparse(tensor: Any) -> bool:
    """Return whether a tensor is sparse: none is."""
    return False


# ---- convolutions --------------------------------------------------------------------


def conv3d(
    x: Any,
    kernel: Any,
    strides: Any = (1, 1, 1),
    padding: str = "valid",
    data_format: str | None = None,
    dilation_rate: Any = (1, 1, 1),
) -> Any:
    """Slide a kernel over volumes."""
    return ops.conv(x, kernel, strides, padding, data_format, dilation_rate)


def conv2d_transpose(
    x: Any,
    kernel: Any,
    output_shape: Any,
    strides: Any = (1, 1),
    padding: str = "valid",
    data_format: str | None = None,
    dilation_rate: Any = (1, 1),
) -> Any:
    """Slide a kernel the other way round; the output has the shape that is asked."""
    result = ops.conv_transpose(
        x, kernel, strides, padding, None, data_format, dilation_rate
    )
    wanted = tuple(output_shape)[1:]
    if any(
        n is not None and n != m for n, m in zip(wanted, result.shape[1:], strict=True)
    ):
        raise ValueError(
            f"K.conv2d_transpose: the output is {tuple(result.shape)}, not "
            f"{tuple(output_shape)}. Use `Conv2DTranspose(output_padding=)`."
        )
    return result


def depthwise_conv2d(
    x: Any,
    depthwise_kernel: Any,
    strides: Any = (1, 1),
    padding: str = "valid",
    data_format: str | None = None,
    dilation_rate: Any = (1, 1),
) -> Any:
    """Slide a kernel over each channel."""
    return ops.depthwise_conv(
        x, depthwise_kernel, strides, padding, data_format, dilation_rate
    )


def separable_conv2d(
    x: Any,
    depthwise_kernel: Any,
    pointwise_kernel: Any,
    strides: Any = (1, 1),
    padding: str = "valid",
    data_format: str | None = None,
    dilation_rate: Any = (1, 1),
) -> Any:
    """Slide a kernel over each channel, then one across them."""
    return ops.separable_conv(
        x,
        depthwise_kernel,
        pointwise_kernel,
        strides,
        padding,
        data_format,
        dilation_rate,
    )


def pool3d(
    x: Any,
    pool_size: Any,
    strides: Any = (1, 1, 1),
    padding: str = "valid",
    data_format: str | None = None,
    pool_mode: str = "max",
) -> Any:
    """Take the largest element or the average of windows of volumes."""
    return pool_by_mode(pool_mode, x, pool_size, strides, padding, data_format)


def pool_by_mode(pool_mode: str, *arguments: Any) -> Any:
    """Pool by the name of the way, as Keras 2's functions do."""
    pools = {"max": ops.max_pool, "avg": ops.average_pool}
    if pool_mode not in pools:
        raise ValueError(f"`pool_mode` is 'max' or 'avg', not {pool_mode!r}.")
    return pools[pool_mode](*arguments)


def local_conv1d(
    inputs: Any, kernel: Any, kernel_size: Any, strides: Any, data_format: Any = None
) -> Any:
    """Slide over sequences, with a separate kernel for every position."""
    if config.data_format_of(data_format) == "channels_first":
        inputs = ops.swapaxes(inputs, 1, 2)
    (width,), (step,) = kernel_size, strides
    places = kernel.shape[0]
    windows = ops.stack([inputs[:, i * step : i * step + width] for i in range(places)])
    return _with_own_kernels(windows, kernel)


def local_conv2d(
    inputs: Any,
    kernel: Any,
    kernel_size: Any,
    strides: Any,
    output_shape: Any,
    data_format: Any = None,
) -> Any:
    """Slide over images, with a separate kernel for every position."""
    is_first = config.data_format_of(data_format) == "channels_first"
    inputs = ops.transpose(inputs, (0, 2, 3, 1)) if is_first else inputs
    (height, width), (down, right) = kernel_size, strides
    rows, columns = output_shape
    windows = ops.stack(
        [
            inputs[:, i * down : i * down + height, j * right : j * right + width]
            for i in range(rows)
            for j in range(columns)
        ]
    )
    if is_first:  # as Keras flattens windows
        windows = ops.transpose(windows, (0, 1, 4, 2, 3))
    flat = _with_own_kernels(windows, kernel)
    result = ops.reshape(flat, (ops.shape(flat)[0], rows, columns, kernel.shape[-1]))
    return ops.transpose(result, (0, 3, 1, 2)) if is_first else result


def _with_own_kernels(windows: Any, kernel: Any) -> Any:
    """Multiply windows (places, batch, ...) by one matrix for every place."""
    places, batch = ops.shape(windows)[:2]
    flat = ops.reshape(windows, (places, batch, kernel.shape[1]))
    return ops.swapaxes(ops.matmul(flat, kernel), 0, 1)


def spatial_3d_padding(
    x: Any, padding: Any = ((1, 1), (1, 1), (1, 1)), data_format: str | None = None
) -> Any:
    """Put zeros around volumes."""
    if config.data_format_of(data_format) == "channels_first":
        return ops.pad(x, ((0, 0), (0, 0), *padding))
    return ops.pad(x, ((0, 0), *padding, (0, 0)))


# ---- normalization and variables -----------------------------------------------------


def batch_normalization(
    x: Any,
    mean: Any,
    var: Any,
    beta: Any,
    gamma: Any,
    axis: int = -1,
    epsilon: float = 1e-3,
) -> Any:
    """Return numbers of mean zero and variance one, scaled and shifted."""
    shape = [1] * len(x.shape)
    shape[axis] = -1

    def along(part: Any) -> Any:
        is_vector = len(part.shape) == 1
        return ops.reshape(part, tuple(shape)) if is_vector else part

    normed = (x - along(mean)) / ops.sqrt(along(var) + epsilon)
    normed = normed if gamma is None else normed * along(gamma)
    return normed if beta is None else normed + along(beta)


def normalize_batch_in_training(
    x: Any, gamma: Any, beta: Any, reduction_axes: Any, epsilon: float = 1e-3
) -> tuple[Any, Any, Any]:
    """Normalize by the mean and the variance of a batch; return them, too."""
    axes = tuple(reduction_axes)
    mean, var = ops.moments(x, axes=axes, keepdims=True)
    shape = tuple(1 if axis in axes else -1 for axis in range(len(x.shape)))
    shift, scale = (
        None if part is None else ops.reshape(part, shape) for part in (beta, gamma)
    )
    normed = batch_normalization(x, mean, var, shift, scale, epsilon=epsilon)
    return normed, ops.squeeze(mean, axes), ops.squeeze(var, axes)


def moving_average_update(x: Variable, value: Any, momentum: float) -> Any:
    """Move a variable towards a value; in a layer's call, when updates are made."""
    moved = x * momentum + value * (1.0 - momentum)
    return Assignment(x, moved) if are_handed_over() else x.assign(moved)


def random_normal_variable(
    shape: Any,
    mean: float,
    scale: float,
    dtype: Any = None,
    name: str | None = None,
    seed: Any = None,
) -> Variable:
    """Return a variable of normal random numbers."""
    numbers = random.normal(tuple(shape), mean, scale, dtype, seed)
    return Variable(np.asarray(numbers), dtype=dtype, name=name)


def random_uniform_variable(
    shape: Any,
    low: float,
    high: float,
    dtype: Any = None,
    name: str | None = None,
    seed: Any = None,
) -> Variable:
    """Return a variable of random numbers between two bounds."""
    numbers = random.uniform(tuple(shape), low, high, dtype, seed)
    return Variable(np.asarray(numbers), dtype=dtype, name=name)


def is_variable(x: Any) -> bool:
    """Return whether this is a variable."""
    return isinstance(x, Variable)
