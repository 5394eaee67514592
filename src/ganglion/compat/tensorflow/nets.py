"""`tf.nn`: what differs from our ops in more than its name."""

from __future__ import annotations

from typing import Any

import numpy as np

from ganglion import ops
from ganglion.compat.tensorflow.arrays import known
from ganglion.compat.tensorflow.objects import SparseTensor
from ganglion.tensors import as_tensor


def _data_format(name: str | None) -> str:
    """Return Keras' name of a layout such as `NHWC` or `NCW`."""
    return "channels_first" if name is not None and name[1] == "C" else "channels_last"


def _sizes(numbers: Any, name: str) -> Any:
    """Return the rows and columns of TensorFlow's [1, rows, columns, 1]."""
    if isinstance(numbers, int):
        return numbers
    sizes = [int(number) for number in numbers]
    if len(sizes) >= 4:
        if sizes[0] != 1 or sizes[-1] != 1:
            raise ValueError(f"tf.nn: {name}={sizes} must be 1 for rows and channels.")
        sizes = sizes[1:-1]
    return tuple(sizes) if len(sizes) > 1 else sizes[0]


def _padding(padding: Any) -> str:
    if not isinstance(padding, str):
        raise NotImplementedError(
            "tf.nn: padding by numbers is not supported here; call tf.pad, and give "
            "padding='VALID'."
        )
    return padding.lower()


def conv1d(
    input: Any,  # noqa: A002
    filters: Any,
    stride: Any,
    padding: Any,
    data_format: str | None = "NWC",
    dilations: Any = None,
) -> Any:
    """Return the convolution of sequences with filters."""
    return ops.conv(
        input,
        filters,
        strides=stride if isinstance(stride, int) else int(stride[len(stride) // 2]),
        padding=_padding(padding),
        data_format=_data_format(data_format),
        dilation_rate=dilations or 1,
    )


def convolution(
    input: Any,  # noqa: A002 (TensorFlow's name)
    filters: Any,
    strides: Any = None,
    padding: Any = "VALID",
    data_format: str | None = None,
    dilations: Any = None,
) -> Any:
    """Return the convolution of sequences, images or volumes with filters."""
    if not isinstance(padding, str):
        input, padding = ops.pad(input, padding), "VALID"  # noqa: A001
    return ops.conv(
        input,
        filters,
        strides=1 if strides is None else _sizes(strides, "strides"),
        padding=_padding(padding),
        data_format=_data_format(data_format),
        dilation_rate=1 if dilations is None else _sizes(dilations, "dilations"),
    )


def silu(features: Any, beta: Any = 1.0) -> Any:
    """Return x times its sigmoid, of x times `beta`."""
    return features * ops.sigmoid(beta * ops.convert_to_tensor(features))


def conv2d_transpose(
    input: Any,  # noqa: A002
    filters: Any,
    output_shape: Any,
    strides: Any,
    padding: Any = "SAME",
    data_format: str | None = "NHWC",
) -> Any:
    """Return the images whose convolution would have made the input."""
    result = ops.conv_transpose(
        input,
        filters,
        strides=_sizes(strides, "strides"),
        padding=_padding(padding),
        data_format=_data_format(data_format),
    )
    wanted = [int(size) for size in output_shape]
    if list(result.shape[1:]) != wanted[1:]:
        raise ValueError(
            f"tf.nn.conv2d_transpose: these strides and this padding give images of "
            f"{list(result.shape[1:])}, not of output_shape={wanted}."
        )
    return result


def depth_to_space(input: Any, block_size: int) -> Any:  # noqa: A002
    """Return images with blocks of channels laid out as squares of pixels."""
    rows, columns, channels = input.shape[1:]
    size, count = block_size, -1 if input.shape[0] is None else input.shape[0]
    inner = channels // size**2
    blocks = ops.reshape(input, (count, rows, columns, size, size, inner))
    pixels = ops.transpose(blocks, (0, 1, 3, 2, 4, 5))
    return ops.reshape(pixels, (count, rows * size, columns * size, inner))


def space_to_depth(input: Any, block_size: int) -> Any:  # noqa: A002
    """Return images with squares of pixels laid out as channels."""
    rows, columns, channels = input.shape[1:]
    size, count = block_size, -1 if input.shape[0] is None else input.shape[0]
    shape = (count, rows // size, size, columns // size, size, channels)
    blocks = ops.transpose(ops.reshape(input, shape), (0, 1, 3, 2, 4, 5))
    return ops.reshape(blocks, (count, rows // size, columns // size, -1))


def depthwise_conv2d(
    input: Any,  # noqa: A002
    filter: Any,  # noqa: A002
    strides: Any,
    padding: Any,
    data_format: str | None = "NHWC",
    dilations: Any = None,
) -> Any:
    """Return the convolution of every channel with separate filters."""
    return ops.depthwise_conv(
        input,
        filter,
        strides=_sizes(strides, "strides"),
        padding=_padding(padding),
        data_format=_data_format(data_format),
        dilation_rate=1 if dilations is None else _sizes(dilations, "dilations"),
    )


def max_pool(
    input: Any,  # noqa: A002
    ksize: Any,
    strides: Any,
    padding: Any,
    data_format: str | None = None,
) -> Any:
    """Return the largest number of each window, along one to three axes."""
    return _pool(ops.max_pool, input, ksize, strides, padding, data_format)


def avg_pool(
    input: Any,  # noqa: A002
    ksize: Any,
    strides: Any,
    padding: Any,
    data_format: str | None = None,
) -> Any:
    """Return the mean of each window, along one to three axes."""
    return _pool(ops.average_pool, input, ksize, strides, padding, data_format)


def _pool(
    function: Any, x: Any, size: Any, strides: Any, padding: Any, data_format: Any
) -> Any:
    return function(
        x,
        _sizes(size, "ksize"),
        _sizes(strides, "strides"),
        _padding(padding),
        _data_format(data_format),
    )


def embedding_lookup(params: Any, ids: Any) -> Any:
    """Return rows of a table by their numbers."""
    return ops.take(params, ids, axis=0)


def l2_loss(t: Any) -> Any:
    """Return half the sum of squares."""
    return ops.divide(ops.sum(ops.square(t)), 2.0)


def l2_normalize(x: Any, axis: Any = None, epsilon: float = 1e-12) -> Any:
    """Return vectors of length one; of all numbers where no axis is given."""
    squares = ops.sum(ops.square(x), axis, keepdims=True)
    return ops.multiply(x, ops.rsqrt(ops.maximum(squares, epsilon)))


def softmax_cross_entropy_with_logits(labels: Any, logits: Any, axis: int = -1) -> Any:
    """Return the cross-entropy of each row, from logits."""
    return ops.categorical_crossentropy(labels, logits, from_logits=True, axis=axis)


def sparse_softmax_cross_entropy_with_logits(labels: Any, logits: Any) -> Any:
    """Return the cross-entropy of each row, from logits and numbers of classes."""
    return ops.sparse_categorical_crossentropy(labels, logits, from_logits=True)


def weighted_cross_entropy_with_logits(
    labels: Any, logits: Any, pos_weight: Any
) -> Any:
    """Return the cross-entropy of every number, from logits; true ones weigh more."""
    weight = ops.add(1.0, ops.multiply(ops.subtract(pos_weight, 1.0), labels))
    wrong = ops.multiply(ops.subtract(1.0, labels), logits)
    return ops.add(wrong, ops.multiply(weight, ops.softplus(ops.negative(logits))))


def sigmoid_cross_entropy_with_logits(labels: Any, logits: Any) -> Any:
    """Return the cross-entropy of every number by itself, from logits."""
    positive = ops.relu(logits)
    small = ops.log1p(ops.exp(ops.negative(ops.abs(logits))))
    return ops.add(ops.subtract(positive, ops.multiply(logits, labels)), small)


def local_response_normalization(
    input: Any,  # noqa: A002
    depth_radius: int = 5,
    bias: float = 1.0,
    alpha: float = 1.0,
    beta: float = 0.5,
) -> Any:
    """Return numbers divided by those of the channels around them."""
    width = 2 * int(depth_radius) + 1
    around = ops.pad(
        ops.square(input),
        [(0, 0)] * (len(input.shape) - 1) + [(depth_radius, depth_radius)],
    )
    channels = int(input.shape[-1])
    total = sum(around[..., start : start + channels] for start in range(width))
    return ops.divide(input, ops.power(bias + alpha * total, beta))


def compute_average_loss(
    per_example_loss: Any, sample_weight: Any = None, global_batch_size: Any = None
) -> Any:
    """Return the sum of losses, divided by the number of rows."""
    losses = per_example_loss
    if sample_weight is not None:
        losses = ops.multiply(losses, sample_weight)
    count = losses.shape[0] if global_batch_size is None else global_batch_size
    return ops.divide(ops.sum(losses), ops.cast(count, losses.dtype))


def scale_regularization_loss(regularization_loss: Any) -> Any:
    """Return the sum of penalties: one replica bears all of it."""
    return ops.sum(regularization_loss)


def log_poisson_loss(
    targets: Any,
    log_input: Any,
    compute_full_loss: bool = False,
) -> Any:
    """Return the loss of Poisson counts, given the logarithm of their mean."""
    loss = ops.exp(log_input) - log_input * targets
    if not compute_full_loss:
        return loss
    stirling = targets * ops.log(targets) - targets + 0.5 * ops.log(6.2831855 * targets)
    is_small = ops.logical_and(targets >= 0, targets <= 1)
    return loss + ops.where(is_small, ops.zeros_like(targets), stirling)


def crelu(features: Any, axis: int = -1) -> Any:
    """Return the positive and the negative part, side by side."""
    return ops.relu(ops.concatenate([features, ops.negative(features)], axis))


def separable_conv2d(
    input: Any,  # noqa: A002
    depthwise_filter: Any,
    pointwise_filter: Any,
    strides: Any,
    padding: Any,
    data_format: str | None = "NHWC",
    dilations: Any = None,
) -> Any:
    """Return a convolution of each channel, then one across them."""
    apart = depthwise_conv2d(
        input, depthwise_filter, strides, padding, data_format, dilations
    )
    return convolution(apart, pointwise_filter, 1, "VALID", data_format)


def batch_normalization(
    x: Any, mean: Any, variance: Any, offset: Any, scale: Any, variance_epsilon: float
) -> Any:
    """Return numbers moved and scaled by what is stretched to their shape."""
    factor = ops.rsqrt(ops.add(variance, variance_epsilon))
    factor = factor if scale is None else ops.multiply(factor, scale)
    shift = ops.multiply(ops.negative(mean), factor)
    shift = shift if offset is None else ops.add(shift, offset)
    return ops.add(ops.multiply(x, factor), shift)


def ctc_loss(
    labels: Any,
    logits: Any,
    label_length: Any,
    logit_length: Any,
    logits_time_major: bool = True,
    blank_index: int | None = None,
) -> Any:
    """Return the loss of sequences of labels without times, for every row."""
    outputs = ops.swapaxes(logits, 0, 1) if logits_time_major else logits
    classes = int(outputs.shape[-1])
    blank = 0 if blank_index is None else int(blank_index) % classes
    return ops.ctc_loss(labels, outputs, label_length, logit_length, mask_index=blank)


def ctc_greedy_decoder(
    inputs: Any,
    sequence_length: Any,
    merge_repeated: bool = True,
    blank_index: int | None = None,
) -> Any:
    """Return the labels of the likeliest class of every step, and their scores."""
    blank = -1 if blank_index is None else int(blank_index)
    return _decoded(
        inputs, sequence_length, merge_repeated=merge_repeated, mask_index=blank
    )


def ctc_beam_search_decoder(
    inputs: Any,
    sequence_length: Any,
    beam_width: int = 100,
    top_paths: int = 1,
    merge_repeated: bool = False,
) -> Any:
    """Return the likeliest labels of every row, and the logs of how likely."""
    return _decoded(
        inputs,
        sequence_length,
        strategy="beam_search",
        beam_width=beam_width,
        top_paths=top_paths,
        merge_repeated=merge_repeated,
        mask_index=-1,
    )


def _decoded(inputs: Any, lengths: Any, mask_index: int, **options: Any) -> Any:
    """Decode scores with the steps in front, into sparse tensors of labels."""
    blank = mask_index % int(inputs.shape[-1])
    decoded, scores = ops.ctc_decode(
        ops.swapaxes(inputs, 0, 1), lengths, mask_index=blank, **options
    )
    return [_sparse(known(path, "nn.ctc_decoder")) for path in decoded], scores


def _sparse(labels: Any) -> SparseTensor:
    """Return labels that are filled up with -1 as those that count."""
    counts = (labels >= 0).sum(axis=1)
    shape = np.array([len(labels), counts.max(initial=0)], np.int64)
    places = np.argwhere(labels >= 0)
    values = labels[labels >= 0].astype(np.int64)
    return SparseTensor(as_tensor(places), as_tensor(values), as_tensor(shape))
