"""Operators with weights, and those of images, as layers; images are channels first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ganglion import layers, ops
from ganglion.export.onnx.parsing import OnnxNode
from ganglion.system import budget

if TYPE_CHECKING:
    from ganglion.export.onnx.importer import Importer

Values = Sequence[Any]
Pairs = tuple[tuple[int, int], ...]
_FIRST = "channels_first"


def weight(value: Any, what: str) -> np.ndarray:
    """Return the array of a weight, which must be in the file."""
    array = getattr(value, "array", None)
    if array is None:
        raise ValueError(f"its {what} is computed, not a weight of the file")
    return np.asarray(array)


def optional(values: Values, position: int) -> Any:
    """Return an input that may be left out."""
    return values[position] if len(values) > position else None


def _of_rank(name: str, rank: int) -> Any:
    kind = getattr(layers, f"{name}{rank}D", None) or getattr(
        layers, name.replace("#", f"{rank}D"), None
    )
    if kind is None:
        raise ValueError(f"{rank} spatial axes are not supported")
    return kind


# ---- windows -------------------------------------------------------------------------


def _spatial(x: Any, axes: int) -> tuple[int | None, ...]:
    if len(x.shape) != axes + 2:
        raise ValueError(f"images of shape {tuple(x.shape)} do not have {axes} axes")
    return tuple(x.shape[2:])


def window_of(node: OnnxNode, x: Any, kernel: Sequence[int]) -> tuple[str, Pairs]:
    """Return the padding of a window, by Keras' name or as pairs."""
    attrs, rank = node.attrs, len(kernel)
    mode = attrs.get("auto_pad", "NOTSET")
    if mode == "SAME_UPPER":
        return "same", ()
    if mode == "VALID":
        return "valid", ((0, 0),) * rank
    if mode == "SAME_LOWER":
        return "valid", _same_lower(node, x, kernel)
    pads = attrs.get("pads", (0,) * (2 * rank))
    if len(pads) != 2 * rank:
        raise ValueError(f"its pads {pads} do not fit {rank} axes")
    return "valid", tuple(zip(pads[:rank], pads[rank:], strict=True))


def _by_name(
    node: OnnxNode, x: Any, kernel: Sequence[int], padding: str, pairs: Pairs
) -> tuple[str, Pairs]:
    """Return the padding by Keras' name if it has a name."""
    is_same = any(map(any, pairs)) and pairs == _same_upper(node, x, kernel)
    return ("same", ()) if is_same else (padding, pairs)


def _same_upper(node: OnnxNode, x: Any, kernel: Sequence[int]) -> Pairs | None:
    """Return the border that Keras' "same" means, None where that is not known."""
    ones, sizes = (1,) * len(kernel), _spatial(x, len(kernel))
    strides = node.attrs.get("strides", ones)
    dilations = node.attrs.get("dilations", ones)
    pairs = []
    for n, k, s, d in zip(sizes, kernel, strides, dilations, strict=True):
        if n is None and s > 1:
            return None
        reach = (k - 1) * d + 1
        total = reach - 1 if n is None else max((-(-n // s) - 1) * s + reach - n, 0)
        pairs.append((total // 2, total - total // 2))
    return tuple(pairs)


def _same_lower(node: OnnxNode, x: Any, kernel: Sequence[int]) -> Pairs:
    pairs = _same_upper(node, x, kernel)
    if pairs is None:
        raise ValueError("SAME_LOWER of images of unknown size is not supported")
    return tuple((hi, lo) for lo, hi in pairs)


def padded(x: Any, pairs: Pairs, value: float = 0.0) -> Any:
    """Return images with a border."""
    if not any(map(any, pairs)):
        return x
    if value == 0.0 and all(n >= 0 for pair in pairs for n in pair):
        rank = len(pairs)
        border = pairs[0] if rank == 1 else pairs
        return _of_rank("ZeroPadding", rank)(border, data_format=_FIRST)(x)
    return ops.pad(x, ((0, 0), (0, 0), *pairs), constant_values=value)


def _conv(f: Importer, node: OnnxNode, values: Values) -> Any:
    x, kernel = values[0], weight(values[1], "kernel")
    bias = optional(values, 2)
    rank, window = kernel.ndim - 2, kernel.shape[2:]
    _spatial(x, rank)
    padding, pairs = _by_name(node, x, window, *window_of(node, x, window))
    make = partial(
        _of_rank("Conv", rank),
        kernel.shape[0],
        kernel.shape[2:],
        strides=node.attrs.get("strides", (1,) * rank),
        padding=padding,
        data_format=_FIRST,
        dilation_rate=node.attrs.get("dilations", (1,) * rank),
        groups=node.attrs.get("group", 1),
        use_bias=bias is not None,
    )
    weights = [kernel.transpose(*range(2, rank + 2), 1, 0)]
    weights += [] if bias is None else [weight(bias, "bias")]
    return f.called(f.layer(node, node.inputs[1:], make), padded(x, pairs), weights)


def _conv_transpose(f: Importer, node: OnnxNode, values: Values) -> Any:
    x, kernel = values[0], weight(values[1], "kernel")
    bias, attrs, rank = optional(values, 2), node.attrs, kernel.ndim - 2
    if attrs.get("group", 1) != 1 or "output_shape" in attrs:
        raise ValueError("groups and `output_shape` are not supported")
    padding, pairs = window_of(node, x, kernel.shape[2:])
    strides = attrs.get("strides", (1,) * rank)
    extra = attrs.get("output_padding", (0,) * rank)
    make = partial(
        _of_rank("Conv#Transpose", rank),
        kernel.shape[1],
        kernel.shape[2:],
        strides=strides,
        padding=padding,
        data_format=_FIRST,
        dilation_rate=attrs.get("dilations", (1,) * rank),
        use_bias=bias is not None,
    )
    weights = [kernel.transpose(*range(2, rank + 2), 1, 0)]
    weights += [] if bias is None else [weight(bias, "bias")]
    y = f.called(f.layer(node, node.inputs[1:], make), x, weights)
    if padding == "same":
        return y
    # Keras lets windows that are narrower than their strides fill the strides.
    dilations = attrs.get("dilations", (1,) * rank)
    sizes = zip(strides, kernel.shape[2:], dilations, strict=True)
    filled = [max(s - (k - 1) * d - 1, 0) for s, k, d in sizes]
    ends = tuple(
        (-lo, more - hi - beyond)
        for (lo, hi), more, beyond in zip(pairs, extra, filled, strict=True)
    )
    return _cut_or_padded(y, ends, bias is not None)


def _cut_or_padded(y: Any, ends: Pairs, has_bias: bool) -> Any:
    """Return images with rows removed from (negative) or added to their ends."""
    taken = tuple((max(-lo, 0), max(-hi, 0)) for lo, hi in ends)
    put = tuple((max(lo, 0), max(hi, 0)) for lo, hi in ends)
    if any(map(any, put)) and has_bias:
        raise ValueError("output padding beyond the windows is not supported")
    if any(map(any, taken)):
        if len(taken) == 1:  # Keras' layer supports channels last only
            ((low, high),) = taken
            y = y[:, :, low : -high or None]
        else:
            y = _of_rank("Cropping", len(taken))(taken, data_format=_FIRST)(y)
    return padded(y, put)


# ---- pools ---------------------------------------------------------------------------


def _pool_padding(
    node: OnnxNode, x: Any, window: Sequence[int], strides: Sequence[int]
) -> tuple[str, Pairs]:
    padding, pairs = window_of(node, x, window)
    if node.attrs.get("ceil_mode") and padding == "valid":
        pairs = tuple(
            (lo, hi + _ceil_rest(n, lo, hi, k, s))
            for n, (lo, hi), k, s in zip(
                _spatial(x, len(window)), pairs, window, strides, strict=True
            )
        )
    return padding, pairs


def _ceil_rest(size: int | None, low: int, high: int, window: int, stride: int) -> int:
    """Return how many rows the last window reaches beyond the image, if it is kept.

    A window that would begin after the image is dropped.
    """
    if size is None:
        raise ValueError("`ceil_mode` of images of unknown size is not supported")
    rest = (size + low + high - window) % stride
    last = size + low + high - window - rest + stride  # where it begins
    return stride - rest if rest and last < size + low else 0


def _max_pool(f: Importer, node: OnnxNode, values: Values) -> Any:
    x, window = values[0], node.attrs["kernel_shape"]
    rank = len(window)
    strides = node.attrs.get("strides", (1,) * rank)
    if set(node.attrs.get("dilations", (1,))) != {1}:
        raise ValueError("dilations are not supported")
    border = _pool_padding(node, x, window, strides)
    padding, pairs = _by_name(node, x, window, *border)
    layer = _of_rank("MaxPooling", rank)(
        window, strides, padding, _FIRST, name=f.unique(f.word(node))
    )
    if any(map(any, pairs)):
        x = padded(x, pairs, float("-inf"))
    return layer(x)


def _average_pool(f: Importer, node: OnnxNode, values: Values) -> Any:
    x, window = values[0], node.attrs["kernel_shape"]
    rank, attrs = len(window), node.attrs
    strides = attrs.get("strides", (1,) * rank)
    if set(attrs.get("dilations", (1,))) != {1}:
        raise ValueError("dilations are not supported")
    padding, pairs = _pool_padding(node, x, window, strides)
    if not attrs.get("count_include_pad"):  # nor does it count in Keras' "same"
        padding, pairs = _by_name(node, x, window, padding, pairs)
    elif padding == "same":
        padding, pairs = "valid", _same_upper(node, x, window) or ()
        if not pairs:
            raise ValueError("SAME_UPPER of images of unknown size is not supported")
    layer = _of_rank("AveragePooling", rank)(
        window, strides, padding, _FIRST, name=f.unique(f.word(node))
    )
    if not any(map(any, pairs)):
        return layer(x)
    if attrs.get("count_include_pad") and not attrs.get("ceil_mode"):
        return layer(padded(x, pairs))
    return layer(padded(x, pairs)) * _share(node, x, window, strides, pairs)


def _share(
    node: OnnxNode, x: Any, window: Sequence[int], strides: Any, pairs: Pairs
) -> np.ndarray:
    """Return the factors of averages whose windows reach beyond the image."""
    sizes = _spatial(x, len(window))
    if None in sizes:
        raise ValueError("borders that do not count need images of known size")
    known = tuple(size or 0 for size in sizes)
    padded = [n + lo + hi for n, (lo, hi) in zip(known, pairs, strict=True)]
    budget.take(8 * math.prod(padded), "the borders of a pool")
    counted = np.ones((1, 1, *known), "float32")
    if node.attrs.get("count_include_pad"):  # what `ceil_mode` adds does not count
        rank = len(window)
        pads = node.attrs.get("pads", (0,) * (2 * rank))
        own = tuple(zip(pads[:rank], pads[rank:], strict=True))
        counted = np.pad(counted, ((0, 0), (0, 0), *own), constant_values=1)
        pairs = tuple(
            (0, hi - before) for (_, hi), (_, before) in zip(pairs, own, strict=True)
        )
    border = np.pad(counted, ((0, 0), (0, 0), *pairs))
    share = ops.average_pool(border, window, strides, "valid", _FIRST)
    return 1 / np.asarray(share)


def _global_pool(name: str) -> Any:
    """Return the importer of a pool over entire images."""

    def build(f: Importer, node: OnnxNode, values: Values) -> Any:
        (x,) = values
        kind = _of_rank(name, len(x.shape) - 2)
        layer = kind(data_format=_FIRST, keepdims=True, name=f.unique(f.word(node)))
        return layer(x)

    return build


# ---- products ------------------------------------------------------------------------


def _gemm(f: Importer, node: OnnxNode, values: Values) -> Any:
    x, right, bias = values[0], values[1], optional(values, 2)
    attrs = node.attrs
    alpha, beta = attrs.get("alpha", 1.0), attrs.get("beta", 1.0)
    is_layer = hasattr(right, "array") and hasattr(x, "_keras_history")
    is_layer = is_layer and not attrs.get("transA") and alpha == 1.0
    size = right.shape[0 if attrs.get("transB") else 1]
    has_vector = bias is None or (
        hasattr(bias, "array") and bias.array.size in (1, size) and beta == 1.0
    )
    if is_layer and has_vector:
        kernel = weight(right, "kernel")
        weights = [kernel.T if attrs.get("transB") else kernel]
        if bias is not None:
            weights.append(np.broadcast_to(bias.array.reshape(-1), (size,)))
        make = partial(layers.Dense, size, use_bias=bias is not None)
        return f.called(f.layer(node, node.inputs[1:], make), x, weights)
    left, right = f.tensor(x), f.tensor(right)
    left = ops.transpose(left) if attrs.get("transA") else left
    right = ops.transpose(right) if attrs.get("transB") else right
    product = ops.matmul(left, right) * alpha
    return product if bias is None else product + f.tensor(bias) * beta


def _matmul(f: Importer, node: OnnxNode, values: Values) -> Any:
    x, right = values
    is_dense = getattr(right, "is_weight", False) and right.array.ndim == 2
    if not is_dense or hasattr(x, "array") or len(x.shape) < 2:
        return f.weighted("matmul", node, values)
    kernel = right.array
    bias = f.joined_bias(node, kernel.shape[1])
    make = partial(layers.Dense, kernel.shape[1], use_bias=bias is not None)
    names, weights = [node.inputs[1]], [kernel]
    if bias is not None:
        names, weights = [*names, bias[0]], [*weights, bias[1]]
    result = f.called(f.layer(node, names, make), x, weights)
    if bias is not None:
        f.alias(node, result)
    return result


def _gather(f: Importer, node: OnnxNode, values: Values) -> Any:
    table, index = values
    axis = node.attrs.get("axis", 0)
    is_table = getattr(table, "is_weight", False) and table.array.ndim == 2
    if is_table and axis == 0 and not hasattr(index, "array"):
        make = partial(layers.Embedding, *table.array.shape)
        return f.called(f.layer(node, [node.inputs[0]], make), index, [table.array])
    rows = f.tensor(index)
    return ops.take(f.tensor(table), rows, axis=axis)


# ---- norms ---------------------------------------------------------------------------


def _batch_norm(f: Importer, node: OnnxNode, values: Values) -> Any:
    if node.attrs.get("training_mode"):
        raise ValueError("it is written for training: export the model in eval mode")
    x = values[0]
    weights = [weight(value, "statistics") for value in values[1:5]]
    make = partial(
        layers.BatchNormalization,
        axis=1,
        momentum=node.attrs.get("momentum", 0.9),
        epsilon=node.attrs.get("epsilon", 1e-5),
    )
    return f.called(f.layer(node, node.inputs[1:], make), x, weights)


def _layer_norm(f: Importer, node: OnnxNode, values: Values) -> Any:
    x, scale, bias = values[0], weight(values[1], "scale"), optional(values, 2)
    rank = len(x.shape)
    axes = list(range(node.attrs.get("axis", -1) % rank, rank))
    make = partial(
        layers.LayerNormalization,
        axis=axes,
        epsilon=node.attrs.get("epsilon", 1e-5),
        center=bias is not None,
    )
    shape = tuple(x.shape[axis] for axis in axes)
    weights = [np.broadcast_to(scale, shape)]
    weights += [] if bias is None else [np.broadcast_to(weight(bias, "bias"), shape)]
    return f.called(f.layer(node, node.inputs[1:], make), x, weights)


def _group_norm(f: Importer, node: OnnxNode, values: Values) -> Any:
    x, scale, bias = values[0], weight(values[1], "scale"), weight(values[2], "bias")
    groups = node.attrs.get("num_groups", x.shape[1])
    if scale.shape != (x.shape[1],):
        raise ValueError("a scale for each group (opset 18) is not supported")
    epsilon = node.attrs.get("epsilon", 1e-5)
    make = partial(layers.GroupNormalization, groups, axis=1, epsilon=epsilon)
    return f.called(f.layer(node, node.inputs[1:], make), x, [scale, bias])


def _prelu(f: Importer, node: OnnxNode, values: Values) -> Any:
    x, slope = values[0], weight(values[1], "slope")
    rank = len(x.shape)
    if slope.ndim == rank and slope.shape[0] != 1:
        return ops.where(x < 0, x * slope, x)
    slope = slope.reshape((1,) * (rank - slope.ndim) + slope.shape)[0]
    shared = [axis + 1 for axis, size in enumerate(slope.shape) if size == 1]
    make = partial(layers.PReLU, shared_axes=shared or None)
    return f.called(f.layer(node, node.inputs[1:], make), x, [slope])


def _dropout(f: Importer, node: OnnxNode, values: Values) -> Any:
    rate = node.attrs.get("ratio", 0.5)
    if optional(values, 1) is not None:
        rate = float(weight(values[1], "ratio").item())
    return layers.Dropout(rate, name=f.unique(f.word(node)))(values[0])


# ---- sizes of images -----------------------------------------------------------------


def _resize(f: Importer, node: OnnxNode, values: Values) -> Any:
    """Enlarge images by integer factors."""
    x, rank = values[0], len(values[0].shape) - 2
    factors = _factors(node, values, x)
    mode = node.attrs.get("mode", "nearest")
    where = node.attrs.get("coordinate_transformation_mode", "half_pixel")
    rounding = node.attrs.get("nearest_mode", "round_prefer_floor")
    is_plain = where == "asymmetric" and rounding == "floor"
    is_plain |= where.endswith("half_pixel") and rounding.startswith("round")
    if mode == "nearest" and (is_plain or node.op == "Upsample"):
        size = factors[0] if rank == 1 else factors
        if rank == 2:
            return layers.UpSampling2D(size, data_format=_FIRST)(x)
        for axis, factor in enumerate(factors):
            x = ops.repeat(x, factor, axis=axis + 2)
        return x
    if mode == "linear" and rank == 2 and where.endswith("half_pixel"):
        return layers.UpSampling2D(factors, _FIRST, "bilinear")(x)
    raise ValueError(f"the mode {mode!r:.40} with {where!r:.40} is not supported")


def _factors(node: OnnxNode, values: Values, x: Any) -> tuple[int, ...]:
    is_upsample = node.op == "Upsample" or len(values) == 2
    scales, sizes = optional(values, 1 if is_upsample else 2), optional(values, 3)
    if scales is not None and scales.array.size:
        numbers = scales.array.tolist()
    elif sizes is not None:
        numbers = [
            1.0 if n in (size, None) or axis < 2 else size / n
            for axis, (size, n) in enumerate(
                zip(sizes.array.tolist(), x.shape, strict=True)
            )
        ]
    else:
        numbers = node.attrs.get("scales", ())
    factors = [int(number) for number in numbers]
    if (
        len(factors) != len(x.shape)
        or factors != list(numbers)
        or factors[:2] != [1, 1]
    ):
        raise ValueError(f"only whole factors of images are supported, not {numbers}")
    return tuple(factors[2:])


LAYERS = {
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "GlobalAveragePool": _global_pool("GlobalAveragePooling"),
    "GlobalMaxPool": _global_pool("GlobalMaxPooling"),
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Gather": _gather,
    "BatchNormalization": _batch_norm,
    "LayerNormalization": _layer_norm,
    "InstanceNormalization": _group_norm,
    "GroupNormalization": _group_norm,
    "PRelu": _prelu,
    "Dropout": _dropout,
    "Resize": _resize,
    "Upsample": _resize,
}
