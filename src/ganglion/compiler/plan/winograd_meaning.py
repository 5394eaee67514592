"""What Winograd's kernels stand for, in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ganglion.compiler.ir.table import OPS
from ganglion.compiler.plan.kernels import Kernel, Shape, View
from ganglion.compiler.plan.lower_winograd import (
    Tiling,
    WinogradConv,
    WinogradGrads,
    WinogradKernel,
    WinogradSpread,
    WinogradWeights,
    panels,
)
from ganglion.compiler.plan.winograd_matrices import matrices

See = Callable[[View, Shape], np.ndarray]


def interpret(kernel: Kernel, see: See) -> None:
    """Do what a kernel stands for: only the weights' transform is Winograd's own.

    A convolution takes the transformed weights back and convolves; a gradient to the
    weights is one that the last transform takes to the right one.
    """
    if isinstance(kernel, WinogradWeights):
        weights = see(kernel.source, kernel.shape).astype(np.float64)
        made = _both(matrices(kernel.shape[0], kernel.span).weights, weights)
        flat = see(View.whole(kernel.target), kernel.target.shape)
        for piece, panel in _packed(flat, kernel.span, *kernel.shape[2:]):
            piece[...] = made[..., panel]
    elif isinstance(kernel, WinogradConv):
        _interpret_conv(kernel, see)
    elif isinstance(kernel, WinogradGrads):
        _interpret_grads(kernel, see)
    elif isinstance(kernel, WinogradKernel):
        sums = see(View.whole(kernel.sums), kernel.sums.shape).astype(np.float64)
        whole = sums.sum(0).reshape(kernel.span, kernel.span, *sums.shape[2:])
        back = matrices(kernel.shape[0], kernel.span).weights.T
        made = _both(back, whole[..., : kernel.shape[3]])
        see(View.whole(kernel.target), kernel.shape)[...] = made


def _interpret_conv(kernel: WinogradConv, see: See) -> None:
    tiling = kernel.tiling
    ends = [tiling.inputs, tiling.outputs]
    spreads = isinstance(kernel, WinogradSpread)
    source, target = reversed(ends) if spreads else ends
    flat = see(View.whole(kernel.weights), kernel.weights.shape)
    made = np.zeros((tiling.span, tiling.span, source[3], target[3]))
    for piece, panel in _packed(flat, tiling.span, source[3], target[3]):
        made[..., panel] = piece
    weights = _both(np.linalg.pinv(tiling.matrices.weights), made)
    images = see(kernel.images, source).astype(np.float64)
    attrs = _window(tiling)
    if spreads:
        attrs["spatial"] = target[1:3]
        weights = weights.transpose(0, 1, 3, 2)
    op = OPS["conv_transpose" if spreads else "conv"]
    see(View.whole(kernel.target), target)[...] = op.meaning(images, weights, **attrs)


def _interpret_grads(kernel: WinogradGrads, see: See) -> None:
    tiling = kernel.tiling
    images = see(kernel.images, tiling.inputs).astype(np.float64)
    grads = see(kernel.grads, tiling.outputs).astype(np.float64)
    taps = (tiling.taps, tiling.taps)
    exact = OPS["conv_kernel"].meaning(images, grads, kernel=taps, **_window(tiling))
    lifted = _both(np.linalg.pinv(tiling.matrices.weights).T, exact)
    sums = see(View.whole(kernel.sums), kernel.sums.shape)
    sums[...] = 0
    sums[0, ..., : tiling.outputs[3]] = lifted.reshape(tiling.places, *lifted.shape[2:])


def _both(matrix: np.ndarray, weights: np.ndarray) -> np.ndarray:
    return np.einsum("ia,jb,abcd->ijcd", matrix, matrix, weights)


def _packed(flat: np.ndarray, span: int, rows: int, channels: int) -> Any:
    """Yield what each panel holds of transformed weights, and of which channels."""
    for start, widths in panels(channels):
        wide = sum(widths)
        at = span * span * rows * start
        piece = flat[at : at + span * span * rows * wide]
        piece = piece.reshape(span, span, rows, wide)
        yield piece[..., : channels - start], slice(start, min(start + wide, channels))


def _window(tiling: Tiling) -> dict[str, Any]:
    pairs = tuple(
        (lo, n + tiling.taps - 1 - size - lo)
        for lo, n, size in zip(
            tiling.before, tiling.outputs[1:3], tiling.inputs[1:3], strict=True
        )
    )
    return {"strides": (1, 1), "pairs": pairs, "dilation": (1, 1), "groups": 1}
