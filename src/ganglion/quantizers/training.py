"""Quantization-aware training: fake quantization, and float8."""

from __future__ import annotations

from typing import Any

from ganglion import ops
from ganglion.compiler.ir.host import host_op
from ganglion.dtypes import finfo, standardize_dtype
from ganglion.ops.dispatch import astype, op, result_type


@op
def fake_quant_with_min_max_vars(
    inputs: Any,
    min_vals: Any,
    max_vals: Any,
    num_bits: int = 8,
    narrow_range: bool = False,
    axis: int | None = None,
) -> Any:
    """Round to the numbers that `num_bits` can represent between two ends.

    The ends may be learned: they receive the gradients of inputs beyond them. With
    `axis`, every channel along it has its own ends.
    """
    x = ops.convert_to_tensor(inputs)
    kind = result_type(x.dtype, "float32")
    shape = [1] * len(x.shape)
    if axis is not None:
        shape[axis] = -1
    ends = [ops.cast(end, kind) for end in (min_vals, max_vals)]
    low, high = (ops.reshape(end, shape if axis is not None else ()) for end in ends)
    first, last = int(narrow_range), 2 ** int(num_bits) - 1
    scale = (high - low) / (last - first)
    zero = ops.round(ops.clip(first - low / scale, first, last))
    nudged = [ops.stop_gradient((end - zero) * scale) for end in (first, last)]
    scale = ops.stop_gradient(scale)
    wide = ops.cast(x, kind)
    # Gradients pass where x lies between the ends, and go to the end it lies beyond.
    is_low, is_high = ops.less(wide, nudged[0]), ops.greater(wide, nudged[1])
    passing = ops.where(is_low, low, ops.where(is_high, high, wide))
    inside = ops.clip(wide, *nudged) - nudged[0]
    steps = ops.floor(inside / scale - ops.floor(-nudged[0] / scale + 0.5) + 0.5)
    rounded = ops.stop_gradient(steps * scale - passing) + passing
    return ops.cast(rounded, standardize_dtype(x.dtype))


def compute_float8_scale(amax: Any, scale: Any, dtype_max: Any, margin: int = 0) -> Any:
    """Return the scale that brings the largest value to the end of a float8 type."""
    old = ops.reciprocal(scale)
    new = ops.divide(ops.divide(dtype_max, amax), 2**margin)
    new = ops.where(ops.greater(amax, 0.0), new, old)
    return ops.reciprocal(ops.where(ops.isfinite(amax), new, old))


def compute_float8_amax_history(x: Any, amax_history: Any) -> Any:
    """Return the largest values of the last calls, this one's first."""
    newest = ops.cast(ops.max(ops.abs(x)), amax_history.dtype)
    older = ops.roll(amax_history, shift=-1)
    return ops.concatenate([ops.reshape(newest, (1,)), older[1:]], axis=0)


# No backend computes in float8: it is a rounding, which the host does.
_rounded = host_op(
    "rounded_to_float8",
    lambda x, dtype: (x.shape, x.dtype),
    lambda x, dtype: x.astype("float32").astype(dtype).astype(x.dtype),
    lambda node, g: [g],
)


@op
def quantize_and_dequantize(
    inputs: Any, scale: Any, quantized_dtype: Any, compute_dtype: Any
) -> Any:
    """Return inputs as a float8 type would hold them, times a scale."""
    name, kind = standardize_dtype(quantized_dtype), standardize_dtype(compute_dtype)
    most = float(finfo(name).max)
    factor = ops.cast(scale, kind)
    x = ops.clip(ops.divide(inputs, factor), -most, most)
    return ops.multiply(_rounded(astype(x, kind), dtype=name), factor)
