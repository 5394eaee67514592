"""Windows that slide over images: convolution, transposed convolution, pooling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ganglion import config
from ganglion.compiler.ir import contraction, pooling
from ganglion.compiler.ir import pointwise as p
from ganglion.compiler.ir import shaping as s
from ganglion.compiler.ir.graph import Constant, ShapeError, Value
from ganglion.ops.dispatch import astype, common_type, floating, op, stretch
from ganglion.ops.numpy import divide
from ganglion.variables import read

__all__ = [
    "average_pool", "conv", "conv_transpose", "depthwise_conv", "max_pool",
    "separable_conv",
]  # fmt: skip

Pairs = tuple[tuple[int, int], ...]


def same_pairs(
    n: tuple[int, ...],
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilation: tuple[int, ...],
) -> Pairs:
    """Return the 'same' padding, the odd element at the end.

    >>> same_pairs((4,), (3,), (2,), (1,))
    ((0, 1),)
    """
    pairs = []
    for size, k, stride, d in zip(n, kernel, strides, dilation, strict=True):
        reach = (k - 1) * d + 1
        total = max((-(-size // stride) - 1) * stride + reach - size, 0)
        pairs.append((total // 2, total - total // 2))
    return tuple(pairs)


def _pairs(
    padding: Any,
    n: tuple[int, ...],
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilation: tuple[int, ...],
) -> Pairs:
    padding = str(padding).lower()
    if padding == "valid":
        return ((0, 0),) * len(n)
    if padding == "same":
        return same_pairs(n, kernel, strides, dilation)
    if padding == "causal" and len(n) == 1:
        return (((kernel[0] - 1) * dilation[0], 0),)
    raise ValueError(f"Unknown padding {padding!r}: use 'valid' or 'same'.")


def window_counts(
    n: Sequence[int],
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilation: tuple[int, ...],
    padding: str,
) -> list[int]:
    """Return how many windows there are along each axis.

    >>> window_counts([9, 9], (3, 3), (2, 1), (1, 1), "valid")
    [4, 7]
    """
    axes = zip(n, kernel, strides, dilation, strict=True)
    if padding != "valid":  # "same" and "causal" leave no element out
        return [-(-size // stride) for size, _, stride, _ in axes]
    return [(size - (k - 1) * d - 1) // stride + 1 for size, k, stride, d in axes]


def spread(number: Any, rank: int, name: str) -> tuple[int, ...]:
    """Return one size per spatial axis from a number or a sequence.

    >>> spread(3, 2, "kernel_size")
    (3, 3)
    """
    if isinstance(number, (int, np.integer)):
        sizes = (int(number),) * rank
    else:
        sizes = tuple(int(n) for n in number)
    if len(sizes) != rank or any(size < 1 for size in sizes):
        raise ValueError(f"`{name}` must be {rank} positive numbers, not {number!r}.")
    return sizes


def with_channels_last(
    images: Any, data_format: str | None
) -> tuple[Value, Callable[[Value], Value]]:
    """Return images with their channels last, and what puts them back in place.

    The primitives support a single layout: the other is a transpose, which the compiler
    takes away where two of them meet.
    """
    x = read(images)
    if config.data_format_of(data_format) == "channels_last":
        return x, lambda outputs: outputs
    last, first = (0, *range(2, x.ndim), 1), (0, x.ndim - 1, *range(1, x.ndim - 1))
    return s.transpose(x, axes=last), lambda outputs: s.transpose(outputs, axes=first)


def _check_channels(images: Value, channels: int, groups: int = 1) -> None:
    """Refuse images with another number of channels than the kernel."""
    if images.shape[-1] != channels * groups:
        raise ShapeError(
            "The number of input channels must match the kernel: the images "
            f"{images.shape} have {images.shape[-1]}, the kernel takes {channels}"
            + (f" in each of {groups} groups." if groups > 1 else ".")
        )


@op
def conv(
    inputs: Any,
    kernel: Any,
    strides: Any = 1,
    padding: str = "valid",
    data_format: str | None = None,
    dilation_rate: Any = 1,
) -> Any:
    """Convolve images with a kernel (*sizes, C_in / groups, C_out)."""
    images, in_place = with_channels_last(inputs, data_format)
    x, w = _same_type(images, kernel)
    rank = x.ndim - 2
    strides = spread(strides, rank, "strides")
    dilation = spread(dilation_rate, rank, "dilation_rate")
    groups = max(x.shape[-1] // max(w.shape[-2], 1), 1)
    _check_channels(x, w.shape[-2], groups)
    pairs = _pairs(padding, x.shape[1:-1], w.shape[:-2], strides, dilation)
    out = contraction.conv(
        x, w, strides=strides, pairs=pairs, dilation=dilation, groups=groups
    )
    return in_place(astype(out, _result_type(images, kernel)))


def _result_type(*operands: Any) -> np.dtype:
    """Return the type of a convolution: integers stay whole, as in Keras."""
    values = [read(x) for x in operands]
    if all(value.dtype.kind in "iu" for value in values):
        return common_type(values)
    return common_type([floating(value) for value in values])


def _same_type(x: Any, w: Any) -> tuple[Value, Value]:
    """Return images and kernel as floats of one type, wide enough to be exact."""
    kind = _result_type(x, w)
    kind = kind if s.is_float(kind) else np.dtype("float64")
    return astype(x, kind), astype(w, kind)


@op
def depthwise_conv(
    inputs: Any,
    kernel: Any,
    strides: Any = 1,
    padding: str = "valid",
    data_format: str | None = None,
    dilation_rate: Any = 1,
) -> Any:
    """Convolve each channel alone, with a kernel (*sizes, C_in, multiplier)."""
    value = read(kernel)
    *sizes, channels, multiplier = value.shape
    _check_channels(with_channels_last(inputs, data_format)[0], channels)
    flat = s.reshape(value, shape=(*sizes, 1, channels * multiplier))
    return conv(inputs, flat, strides, padding, data_format, dilation_rate)


@op
def separable_conv(
    inputs: Any,
    depthwise_kernel: Any,
    pointwise_kernel: Any,
    strides: Any = 1,
    padding: str = "valid",
    data_format: str | None = None,
    dilation_rate: Any = 1,
) -> Any:
    """Convolve each channel alone, then mix the channels pixel by pixel."""
    spread_out = depthwise_conv(
        inputs, depthwise_kernel, strides, padding, data_format, dilation_rate
    )
    return conv(spread_out, pointwise_kernel, data_format=data_format)


@op
def conv_transpose(
    inputs: Any,
    kernel: Any,
    strides: Any = 1,
    padding: str = "valid",
    output_padding: Any = None,
    data_format: str | None = None,
    dilation_rate: Any = 1,
) -> Any:
    """Run a convolution backwards, with a kernel (*sizes, C_out, C_in)."""
    images, in_place = with_channels_last(inputs, data_format)
    x, w = _same_type(images, kernel)
    rank = x.ndim - 2
    strides = spread(strides, rank, "strides")
    dilation = spread(dilation_rate, rank, "dilation_rate")
    extra = None if output_padding is None else _numbers(output_padding, rank)
    _check_channels(x, w.shape[-1])
    spatial, pairs = transposed_window(
        x.shape[1:-1], w.shape[:-2], strides, dilation, padding, extra
    )
    out = contraction.conv_transpose(
        x, w, spatial=spatial, strides=strides, pairs=pairs, dilation=dilation, groups=1
    )
    return in_place(astype(out, _result_type(images, kernel)))


def _numbers(number: Any, rank: int) -> tuple[int, ...]:
    return (int(number),) * rank if np.ndim(number) == 0 else tuple(map(int, number))


def transposed_window(
    n: tuple[int, ...],
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilation: tuple[int, ...],
    padding: str,
    extra: tuple[int, ...] | None,
) -> tuple[tuple[int, ...], Pairs]:
    """Return the output size and the padding of the convolution that is undone."""
    padding = str(padding).lower()
    if padding not in ("valid", "same"):
        raise ValueError(f"Unknown padding {padding!r}: use 'valid' or 'same'.")
    spatial = []
    for axis, (size, k, stride, d) in enumerate(
        zip(n, kernel, strides, dilation, strict=True)
    ):
        reach = (k - 1) * d + 1
        if extra is not None:
            cropped = 2 * (reach // 2) if padding == "same" else 0
            spatial.append((size - 1) * stride + reach - cropped + extra[axis])
        elif padding == "same":
            spatial.append(size * stride)
        else:
            spatial.append(size * stride + max(reach - stride, 0))
    return tuple(spatial), _pairs(padding, tuple(spatial), kernel, strides, dilation)


@op
def max_pool(
    inputs: Any,
    pool_size: Any,
    strides: Any = None,
    padding: str = "valid",
    data_format: str | None = None,
) -> Any:
    """Take the largest element of each window."""
    images, in_place = with_channels_last(inputs, data_format)
    x, window = _pooled(images, pool_size, strides, padding)
    return in_place(pooling.max_pool(x, **window))


@op
def average_pool(
    inputs: Any,
    pool_size: Any,
    strides: Any = None,
    padding: str = "valid",
    data_format: str | None = None,
) -> Any:
    """Average each window, leaving the padding out."""
    images, in_place = with_channels_last(inputs, data_format)
    x, window = _pooled(images, pool_size, strides, padding)
    total = pooling.sum_pool(x, **window)
    counts = _counts(x.shape[1:-1], **window).astype(x.dtype)
    if np.all(counts == counts.flat[0]):
        return in_place(divide(total, float(counts.flat[0])))
    return in_place(p.divide(total, stretch(Constant(counts), total.shape)))


def _counts(
    n: tuple[int, ...], window: tuple[int, ...], strides: tuple[int, ...], pairs: Pairs
) -> np.ndarray:
    """Count what each window holds besides padding: a product over the axes."""
    counts = np.ones(())
    for size, k, stride, (low, high) in zip(n, window, strides, pairs, strict=True):
        start = np.arange(0, low + size + high - k + 1, stride) - low
        inside = np.minimum(start + k, size) - np.maximum(start, 0)
        counts = np.multiply.outer(counts, inside)
    return counts[None, ..., None]


def _pooled(
    images: Value, pool_size: Any, strides: Any, padding: str
) -> tuple[Value, dict[str, Any]]:
    x = floating(images)
    rank = x.ndim - 2
    size = spread(pool_size, rank, "pool_size")
    step = size if strides is None else spread(strides, rank, "strides")
    pairs = _pairs(padding, x.shape[1:-1], size, step, (1,) * rank)
    return x, {"window": size, "strides": step, "pairs": pairs}
