"""Structured primitives: matrix products, gathers, and convolutions.

Images are channels-last with any number of spatial axes: x is (N, *spatial, C_in), a
kernel is (*kernel, C_in / groups, C_out). `conv`, `conv_transpose` (its gradient to x)
and `conv_kernel` (its gradient to the kernel) are bilinear, and the gradients of each
are the other two.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ganglion.compiler.ir.arrays import Pairs
from ganglion.compiler.ir.graph import Case, Node, Op, Shape, ShapeError, Value
from ganglion.compiler.ir.shaping import BOOL, Typed, in_rows, is_float, transpose


def _same_float(*inputs: Value) -> np.dtype:
    first = inputs[0].dtype
    if not is_float(first) or any(value.dtype != first for value in inputs):
        names = ", ".join(value.dtype.name for value in inputs)
        raise ShapeError(f"needs floats of one type, got {names}")
    return first


def _same_numbers(a: Value, b: Value) -> np.dtype:
    if a.dtype == BOOL or a.dtype != b.dtype:
        raise ShapeError(f"needs numbers of one type, got {a.dtype}, {b.dtype}")
    return a.dtype


def _matmul_infer(a: Value, b: Value) -> Typed:
    dtype = _same_numbers(a, b)
    if a.ndim < 2 or a.ndim != b.ndim or a.shape[:-2] != b.shape[:-2]:
        raise ShapeError(f"{a.shape} and {b.shape} are not matching stacks of matrices")
    if a.shape[-1] != b.shape[-2]:
        raise ShapeError(
            f"inner sizes differ, {a.shape[-1]} of {a.shape} and {b.shape[-2]} "
            f"of {b.shape}"
        )
    return (*a.shape[:-1], b.shape[-1]), dtype


def flipped(x: Value) -> Value:
    """Return x with its last two axes swapped."""
    return transpose(x, axes=(*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


matmul: Op = Op(
    "matmul",
    "contraction",
    _matmul_infer,
    lambda a, b: np.matmul(in_rows(a), in_rows(b)),
    lambda rng: ([rng.uniform(-2, 2, (2, 3, 4)), rng.uniform(-2, 2, (2, 4, 5))], {}),
    lambda node, g: [
        matmul(g, flipped(node.inputs[1])),
        matmul(flipped(node.inputs[0]), g),
    ],
)


def _gather_infer(table: Value, index: Value) -> Typed:
    if table.ndim < 1 or not np.issubdtype(index.dtype, np.integer):
        raise ShapeError(
            f"needs a table of rows and integers, got {table.type_text} "
            f"and {index.type_text}"
        )
    return (*index.shape, *table.shape[1:]), table.dtype


def _gather_meaning(table: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Gather rows; for indices out of range, NaN, or the first row of integers.

    A compiled step cannot raise: the result of a wrong index must be visible, and the
    same on every backend.
    """
    exists = (index >= 0) & (index < len(table))
    if exists.all():
        return table[index]
    if not len(table):
        picked = np.zeros((*index.shape, *table.shape[1:]), table.dtype)
    else:
        picked = table[np.where(exists, index, 0)]
    if is_float(table.dtype):
        picked[~exists] = np.nan
    return picked


def _rows_domain(rng: np.random.Generator) -> Case:
    return [rng.uniform(-2, 2, (5, 3)), rng.integers(0, 5, (2, 4))], {}


gather: Op = Op(
    "gather",
    "gather",
    _gather_infer,
    _gather_meaning,
    _rows_domain,
    lambda node, g: [
        scatter_add(g, node.inputs[1], rows=node.inputs[0].shape[0]),
        None,
    ],
)


def _scatter_infer(updates: Value, index: Value, rows: int) -> Typed:
    if updates.shape[: index.ndim] != index.shape:
        raise ShapeError(f"{updates.shape} does not start with {index.shape}")
    return (rows, *updates.shape[index.ndim :]), updates.dtype


def _scatter_meaning(updates: np.ndarray, index: np.ndarray, rows: int) -> np.ndarray:
    """Add rows at indices; those out of range are ignored."""
    out = np.zeros((rows, *updates.shape[index.ndim :]), updates.dtype)
    exists = (index >= 0) & (index < rows)
    np.add.at(out, index[exists], updates[exists])
    return out


scatter_add: Op = Op(
    "scatter_add",
    "gather",
    _scatter_infer,
    _scatter_meaning,
    lambda rng: (
        [rng.uniform(-2, 2, (2, 4, 3)), rng.integers(0, 5, (2, 4))],
        {"rows": 5},
    ),
    lambda node, g: [gather(g, node.inputs[1]), None],
)


def spatial_out(
    n: Shape, kernel: Shape, strides: Shape, pairs: Pairs, dilation: Shape
) -> Shape:
    """Return the spatial shape of the result of a window that slides over ``n``."""
    sizes = zip(n, kernel, strides, pairs, dilation, strict=True)
    out = tuple(
        (size + lo + hi - (k - 1) * d - 1) // s + 1 for size, k, s, (lo, hi), d in sizes
    )
    if any(size < 1 for size in out):
        raise ShapeError(
            "Computed output size would be zero or negative: a window of "
            f"{kernel} (dilation {dilation}) does not fit into {n}; use "
            "padding='same' or a smaller kernel or pool"
        )
    return out


def taps(
    kernel: Shape, out: Shape, strides: Shape, dilation: Shape
) -> Iterator[tuple[Shape, tuple[slice, ...]]]:
    """Yield each tap of a kernel, with the slices of the padded input that it meets."""
    for tap in np.ndindex(*kernel):
        where = zip(tap, out, strides, dilation, strict=True)
        spans = (slice(t * d, t * d + (n - 1) * s + 1, s) for t, n, s, d in where)
        yield tap, (slice(None), *spans)


def pad_spatial(x: np.ndarray, pairs: Pairs, value: float = 0.0) -> np.ndarray:
    """Pad the spatial axes of (N, *spatial, C)."""
    return np.pad(in_rows(x), ((0, 0), *pairs, (0, 0)), constant_values=value)


def unpad_spatial(x: np.ndarray, pairs: Pairs) -> np.ndarray:
    """Remove the padding of `pad_spatial`."""
    spans = tuple(
        slice(lo, n - hi) for (lo, hi), n in zip(pairs, x.shape[1:-1], strict=True)
    )
    return x[(slice(None), *spans)]


def _check_conv(x: Value, w: Value, groups: int) -> None:
    if x.ndim != w.ndim or x.ndim < 3:
        raise ShapeError(
            f"images {x.shape} and kernel {w.shape} have different numbers of axes"
        )
    if w.shape[-1] % groups:
        raise ShapeError(f"{w.shape[-1]} filters do not split into {groups} groups")
    if x.shape[-1] != w.shape[-2] * groups:
        raise ShapeError(
            f"images have {x.shape[-1]} channels, kernel {w.shape} with {groups} "
            f"groups needs {w.shape[-2] * groups}"
        )


def _conv_infer(
    x: Value, w: Value, strides: Shape, pairs: Pairs, dilation: Shape, groups: int
) -> Typed:
    dtype = _same_float(x, w)
    _check_conv(x, w, groups)
    out = spatial_out(x.shape[1:-1], w.shape[:-2], strides, pairs, dilation)
    return (x.shape[0], *out, w.shape[-1]), dtype


def _mix(a: np.ndarray, w: np.ndarray, groups: int) -> np.ndarray:
    """Multiply the channels of `a` by a tap (C_in / groups, C_out), group by group."""
    if groups == 1:
        return a @ w
    per_group = a.reshape(*a.shape[:-1], groups, a.shape[-1] // groups)
    taps_of = w.reshape(w.shape[0], groups, w.shape[1] // groups)
    out = np.einsum("...gi,igo->...go", per_group, taps_of)
    return out.reshape(*a.shape[:-1], w.shape[1])


def _swapped(w: np.ndarray, groups: int) -> np.ndarray:
    """Swap the input and output channels of a tap, within each group."""
    per_group = w.reshape(w.shape[0], groups, w.shape[1] // groups)
    transposed = per_group.transpose(2, 1, 0)
    return transposed.reshape(transposed.shape[0], groups * w.shape[0])


def _conv_meaning(
    x: np.ndarray,
    w: np.ndarray,
    strides: Shape,
    pairs: Pairs,
    dilation: Shape,
    groups: int,
) -> np.ndarray:
    kernel, w = w.shape[:-2], in_rows(w)
    out_shape = spatial_out(x.shape[1:-1], kernel, strides, pairs, dilation)
    padded = pad_spatial(x, pairs)
    out = np.zeros((x.shape[0], *out_shape, w.shape[-1]), x.dtype)
    positions = list(taps(kernel, out_shape, strides, dilation))
    joined = 1 if groups > 1 else _taps_at_once(len(positions), out, x.shape[-1])
    for start in range(0, len(positions), joined):
        tap, window = positions[start]
        if joined == 1:
            out += _mix(padded[window], w[tap], groups)
            continue
        part = positions[start : start + joined]
        windows = np.concatenate([padded[window] for _, window in part], axis=-1)
        out += windows @ np.concatenate([w[tap] for tap, _ in part])
    return out


def _taps_at_once(taps: int, out: np.ndarray, channels: int) -> int:
    """Return how many taps of a large window to combine in a product.

    With few channels, hundreds of products would each read and write the result. Small
    windows are computed tap by tap.
    """
    if taps <= 64:
        return 1
    rows = math.prod(out.shape[:-1])
    return max(1, min(256, (1 << 24) // max(rows, 1)) // channels)


def _conv_transpose_meaning(
    dy: np.ndarray,
    w: np.ndarray,
    spatial: Shape,
    strides: Shape,
    pairs: Pairs,
    dilation: Shape,
    groups: int,
) -> np.ndarray:
    dy, w = in_rows(dy), in_rows(w)
    full = tuple(n + lo + hi for n, (lo, hi) in zip(spatial, pairs, strict=True))
    padded = np.zeros((dy.shape[0], *full, w.shape[-2] * groups), dy.dtype)
    for tap, window in taps(w.shape[:-2], dy.shape[1:-1], strides, dilation):
        padded[window] += _mix(dy, _swapped(w[tap], groups), groups)
    return unpad_spatial(padded, pairs)


def _conv_kernel_meaning(
    x: np.ndarray,
    dy: np.ndarray,
    kernel: Shape,
    strides: Shape,
    pairs: Pairs,
    dilation: Shape,
    groups: int,
) -> np.ndarray:
    padded = pad_spatial(x, pairs)
    cin, cout = x.shape[-1] // groups, dy.shape[-1]
    rows = math.prod(dy.shape[:-1])
    rows_out = in_rows(dy).reshape(rows, groups, cout // groups)
    out = np.zeros((*kernel, cin, cout), x.dtype)
    for tap, window in taps(kernel, dy.shape[1:-1], strides, dilation):
        rows_in = padded[window].reshape(rows, groups, cin)
        if groups == 1:
            out[tap] = rows_in[:, 0].T @ rows_out[:, 0]
        else:
            product = np.einsum("ngi,ngo->igo", rows_in, rows_out)
            out[tap] = product.reshape(cin, cout)
    return out


def _conv_transpose_infer(dy: Value, w: Value, spatial: Shape, **window: Any) -> Typed:
    dtype = _same_float(dy, w)
    groups = window["groups"]
    x = Value((dy.shape[0], *spatial, w.shape[-2] * groups), dtype)
    expected, _ = _conv_infer(x, w, **window)
    if expected != dy.shape:
        raise ShapeError(f"{dy.shape} is not what a convolution of {x.shape} leaves")
    return x.shape, dtype


def _conv_kernel_infer(x: Value, dy: Value, kernel: Shape, **window: Any) -> Typed:
    dtype = _same_float(x, dy)
    w = Value((*kernel, x.shape[-1] // window["groups"], dy.shape[-1]), dtype)
    expected, _ = _conv_infer(x, w, **window)
    if expected != dy.shape:
        raise ShapeError(f"{dy.shape} is not what a convolution of {x.shape} leaves")
    return w.shape, dtype


def _window(node: Node) -> dict[str, Any]:
    return {k: node.attrs[k] for k in ("strides", "pairs", "dilation", "groups")}


def _conv_gradient(node: Node, g: Value) -> list[Value | None]:
    (x, w), window = node.inputs, _window(node)
    return [
        conv_transpose(g, w, spatial=x.shape[1:-1], **window),
        conv_kernel(x, g, kernel=w.shape[:-2], **window),
    ]


def _conv_transpose_gradient(node: Node, g: Value) -> list[Value | None]:
    (dy, w), window = node.inputs, _window(node)
    return [conv(g, w, **window), conv_kernel(g, dy, kernel=w.shape[:-2], **window)]


def _conv_kernel_gradient(node: Node, g: Value) -> list[Value | None]:
    (x, dy), window = node.inputs, _window(node)
    return [
        conv_transpose(dy, g, spatial=x.shape[1:-1], **window),
        conv(x, g, **window),
    ]


_SAMPLE_WINDOW: dict[str, Any] = {
    "strides": (2, 1),
    "pairs": ((1, 0), (1, 1)),
    "dilation": (1, 2),
    "groups": 2,
}


def _conv_domain(*which: str, **attrs: Any) -> Any:
    # x (2,6,5,4) and w (3,2,2,6) under the sample window give y (2,3,5,6).
    shapes = {"x": (2, 6, 5, 4), "w": (3, 2, 2, 6), "y": (2, 3, 5, 6)}

    def draw(rng: np.random.Generator) -> Case:
        arrays = [rng.uniform(-1, 1, shapes[argument]) for argument in which]
        return arrays, attrs | _SAMPLE_WINDOW

    return draw


conv: Op = Op(
    "conv",
    "contraction",
    _conv_infer,
    _conv_meaning,
    _conv_domain("x", "w"),
    _conv_gradient,
)
conv_transpose: Op = Op(
    "conv_transpose",
    "contraction",
    _conv_transpose_infer,
    _conv_transpose_meaning,
    _conv_domain("y", "w", spatial=(6, 5)),
    _conv_transpose_gradient,
)
conv_kernel: Op = Op(
    "conv_kernel",
    "contraction",
    _conv_kernel_infer,
    _conv_kernel_meaning,
    _conv_domain("x", "y", kernel=(3, 2)),
    _conv_kernel_gradient,
)
