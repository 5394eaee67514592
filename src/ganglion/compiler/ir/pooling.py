"""Pooling primitives over channels-last images, any number of spatial axes.

`max_pool` pads with the lowest number, `sum_pool` with zero; an average is a sum
divided by a constant number of elements.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ganglion.compiler.ir.arrays import Pairs, pad, slice_
from ganglion.compiler.ir.contraction import (
    pad_spatial,
    spatial_out,
    taps,
    unpad_spatial,
)
from ganglion.compiler.ir.graph import Case, Node, Op, Shape, ShapeError, Value
from ganglion.compiler.ir.pointwise import equal, where
from ganglion.compiler.ir.shaping import Typed, fill, is_float


def _ones(window: Shape) -> Shape:
    return (1,) * len(window)


def _pool_infer(x: Value, window: Shape, strides: Shape, pairs: Pairs) -> Typed:
    if not is_float(x.dtype) or x.ndim != len(window) + 2:
        raise ShapeError(f"a window of {window} does not fit {x.type_text}")
    out = spatial_out(x.shape[1:-1], window, strides, pairs, _ones(window))
    return (x.shape[0], *out, x.shape[-1]), x.dtype


def _sum_pool_meaning(
    x: np.ndarray, window: Shape, strides: Shape, pairs: Pairs
) -> np.ndarray:
    out = spatial_out(x.shape[1:-1], window, strides, pairs, _ones(window))
    padded = pad_spatial(x, pairs)
    parts = taps(window, out, strides, _ones(window))
    total = np.zeros((x.shape[0], *out, x.shape[-1]), x.dtype)
    for _, span in parts:
        total += padded[span]
    return total


def _max_pool_meaning(
    x: np.ndarray, window: Shape, strides: Shape, pairs: Pairs
) -> np.ndarray:
    out = spatial_out(x.shape[1:-1], window, strides, pairs, _ones(window))
    padded = pad_spatial(x, pairs, value=-np.inf)
    best = np.full((x.shape[0], *out, x.shape[-1]), -np.inf, x.dtype)
    for _, span in taps(window, out, strides, _ones(window)):
        best = np.maximum(best, padded[span])
    return best


def _spread_infer(
    dy: Value, spatial: Shape, window: Shape, strides: Shape, pairs: Pairs
) -> Typed:
    x = Value((dy.shape[0], *spatial, dy.shape[-1]), dy.dtype)
    if _pool_infer(x, window, strides, pairs)[0] != dy.shape:
        raise ShapeError(f"{dy.shape} is not what pooling of {x.shape} leaves")
    return x.shape, x.dtype


def _spread_meaning(
    dy: np.ndarray, spatial: Shape, window: Shape, strides: Shape, pairs: Pairs
) -> np.ndarray:
    full = tuple(n + lo + hi for n, (lo, hi) in zip(spatial, pairs, strict=True))
    padded = np.zeros((dy.shape[0], *full, dy.shape[-1]), dy.dtype)
    for _, span in taps(window, dy.shape[1:-1], strides, _ones(window)):
        padded[span] += dy
    return unpad_spatial(padded, pairs)


def _max_pool_back_infer(x: Value, y: Value, dy: Value, **window: Any) -> Typed:
    typed = _spread_infer(dy, x.shape[1:-1], **window)
    if typed[0] != x.shape or y.shape != dy.shape:
        raise ShapeError(f"{x.shape}, {y.shape} and {dy.shape} do not belong together")
    return typed


def _max_pool_back_meaning(
    x: np.ndarray,
    y: np.ndarray,
    dy: np.ndarray,
    window: Shape,
    strides: Shape,
    pairs: Pairs,
) -> np.ndarray:
    padded = pad_spatial(x, pairs, value=-np.inf)
    back = np.zeros(padded.shape, dy.dtype)
    waiting = np.ones(y.shape, bool)  # until the first maximum of a window
    for _, span in taps(window, y.shape[1:-1], strides, _ones(window)):
        wins = waiting & (padded[span] == y)
        back[span] += np.where(wins, dy, 0)
        waiting &= ~wins
    return unpad_spatial(back, pairs)


_SAMPLE: dict[str, Any] = {
    "window": (2, 3),
    "strides": (2, 1),
    "pairs": ((0, 1), (1, 1)),
}
# An image of (2, 5, 4, 2) pools to (2, 3, 4, 2) under the sample window.
_X, _Y = (2, 5, 4, 2), (2, 3, 4, 2)


def _images(rng: np.random.Generator) -> np.ndarray:
    """Draw images without ties, so that maxima are stable."""
    return rng.permutation(int(np.prod(_X))).reshape(_X) * 0.1 - 4


def _max_pool_back_domain(rng: np.random.Generator) -> Case:
    x = _images(rng)
    return [x, _max_pool_meaning(x, **_SAMPLE), rng.uniform(-1, 1, _Y)], _SAMPLE


def _max_pool_gradient(node: Node, g: Value) -> list[Value | None]:
    return [max_pool_back(node.inputs[0], node, g, **node.attrs)]


def _max_pool_back_gradient(node: Node, g: Value) -> list[Value | None]:
    """Return what lies in `g` where each window has its first maximum.

    Where it lies is a step of `x` and `y`, through which nothing flows back.
    """
    x, y, _ = node.inputs
    pairs = ((0, 0), *node.attrs["pairs"], (0, 0))
    x = pad(x, pairs=pairs, interior=(0,) * x.ndim, value=-np.inf)
    g = pad(g, pairs=pairs, interior=(0,) * x.ndim, value=0.0)
    window, strides = node.attrs["window"], node.attrs["strides"]
    spans = [span for _, span in taps(window, y.shape[1:-1], strides, _ones(window))]
    picked = fill(0, y)
    for span in reversed(spans):  # so that the first maximum has the last word
        picked = where(equal(_part(x, span), y), _part(g, span), picked)
    return [None, None, picked]


def _part(x: Value, spans: tuple[slice, ...]) -> Value:
    pairs = zip((*spans, slice(None)), x.shape, strict=True)
    indices = [span.indices(size) for span, size in pairs]
    starts, stops, steps = zip(*indices, strict=True)
    return slice_(x, starts=starts, stops=stops, steps=steps)


def _sum_pool_gradient(node: Node, g: Value) -> list[Value | None]:
    return [sum_pool_back(g, spatial=node.inputs[0].shape[1:-1], **node.attrs)]


def _sum_pool_back_gradient(node: Node, g: Value) -> list[Value | None]:
    attrs = {k: node.attrs[k] for k in ("window", "strides", "pairs")}
    return [sum_pool(g, **attrs)]


max_pool: Op = Op(
    "max_pool",
    "pool",
    _pool_infer,
    _max_pool_meaning,
    lambda rng: ([_images(rng)], _SAMPLE),
    _max_pool_gradient,
)
max_pool_back: Op = Op(
    "max_pool_back",
    "pool",
    _max_pool_back_infer,
    _max_pool_back_meaning,
    _max_pool_back_domain,
    _max_pool_back_gradient,
)
sum_pool: Op = Op(
    "sum_pool",
    "pool",
    _pool_infer,
    _sum_pool_meaning,
    lambda rng: ([rng.uniform(-2, 2, _X)], _SAMPLE),
    _sum_pool_gradient,
)
sum_pool_back: Op = Op(
    "sum_pool_back",
    "pool",
    _spread_infer,
    _spread_meaning,
    lambda rng: ([rng.uniform(-2, 2, _Y)], _SAMPLE | {"spatial": (5, 4)}),
    _sum_pool_back_gradient,
)
