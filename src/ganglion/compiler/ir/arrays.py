"""Further reductions (maxima, running sums) and movements (slices, padding)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ganglion.compiler.ir.graph import Case, Node, Op, Shape, ShapeError, Value
from ganglion.compiler.ir.pointwise import cast, divide, equal, multiply
from ganglion.compiler.ir.shaping import (
    Typed,
    check_axes,
    drawn,
    keep_axes,
    reduced,
    sum_,
)

Pairs = tuple[tuple[int, int], ...]


def _distinct(shape: Shape, /, **attrs: Any) -> Callable[[np.random.Generator], Case]:
    """Draw values that are not close to each other, so that maxima are stable."""

    def draw(rng: np.random.Generator) -> Case:
        count = int(np.prod(shape))
        return [rng.permutation(count).reshape(shape) * 0.37 - 2], attrs

    return draw


def _max_infer(x: Value, axes: Shape) -> Typed:
    typed = reduced(x, axes)
    if any(x.shape[axis] == 0 for axis in axes):
        raise ShapeError(f"the maximum of no elements, {x.type_text}")
    return typed


def _max_gradient(node: Node, g: Value) -> list[Value | None]:
    (x,), axes = node.inputs, node.attrs["axes"]
    winners = cast(equal(x, keep_axes(node, axes, x.shape)), dtype=x.dtype.name)
    share = keep_axes(divide(g, sum_(winners, axes=axes)), axes, x.shape)
    return [multiply(winners, share)]


max_: Op = Op(
    "max",
    "reduction",
    _max_infer,
    lambda x, axes: np.max(x, axis=axes),
    _distinct((3, 4, 2), axes=(1,)),
    _max_gradient,
)


def _argmax_infer(x: Value, axis: int) -> Typed:
    return _max_infer(x, (axis,))[0], np.dtype("int32")


argmax: Op = Op(
    "argmax",
    "reduction",
    _argmax_infer,
    lambda x, axis: np.argmax(x, axis=axis).astype("int32"),
    _distinct((3, 4, 2), axis=1),
)


def _same_type(x: Value, axes: Shape) -> Typed:
    check_axes(x, axes)
    return x.shape, x.dtype


def _cumsum_gradient(node: Node, g: Value) -> list[Value | None]:
    axis = node.attrs["axis"]
    summed = cumsum(reverse(g, axes=(axis,)), axis=axis)
    return [reverse(summed, axes=(axis,))]


cumsum: Op = Op(
    "cumsum",
    "reduction",
    lambda x, axis: _same_type(x, (axis,)),
    lambda x, axis: np.cumsum(x, axis=axis, dtype=x.dtype),
    drawn((3, 4), axis=1),
    _cumsum_gradient,
)


def _slice_infer(x: Value, starts: Shape, stops: Shape, steps: Shape) -> Typed:
    if not len(starts) == len(stops) == len(steps) == x.ndim:
        raise ShapeError(f"needs one start, stop and step per axis of {x.type_text}")
    for start, stop, step, size in zip(starts, stops, steps, x.shape, strict=True):
        if not (0 <= start <= stop <= size and step >= 1):
            raise ShapeError(f"slice {start}:{stop}:{step} leaves an axis of {size}")
    spans = zip(starts, stops, steps, strict=True)
    return tuple(len(range(*span)) for span in spans), x.dtype


def _slice_meaning(x: np.ndarray, **spans: Shape) -> np.ndarray:
    parts = zip(spans["starts"], spans["stops"], spans["steps"], strict=True)
    return x[tuple(slice(*part) for part in parts)]


def _slice_gradient(node: Node, g: Value) -> list[Value | None]:
    starts, steps = node.attrs["starts"], node.attrs["steps"]
    sizes = zip(starts, steps, g.shape, node.inputs[0].shape, strict=True)
    # The gradient is spread by the step, and the rest of the axis padded with zeros.
    pairs = tuple(
        (start, full - start - max((count - 1) * step + 1, 0))
        if count
        else (start, full - start)
        for start, step, count, full in sizes
    )
    return [pad(g, pairs=pairs, interior=tuple(s - 1 for s in steps), value=0.0)]


slice_: Op = Op(
    "slice",
    "movement",
    _slice_infer,
    _slice_meaning,
    drawn((5, 7), starts=(1, 0), stops=(4, 6), steps=(1, 2)),
    _slice_gradient,
)


def _pad_infer(x: Value, pairs: Pairs, interior: Shape, value: float) -> Typed:
    if len(pairs) != x.ndim or len(interior) != x.ndim:
        raise ShapeError(f"needs one pair per axis of {x.type_text}, got {pairs}")
    if any(n < 0 for n in (*(n for pair in pairs for n in pair), *interior)):
        raise ShapeError(f"negative padding, {pairs}; slice instead")
    sizes = zip(x.shape, pairs, interior, strict=True)
    return tuple(n + lo + hi + max(n - 1, 0) * i for n, (lo, hi), i in sizes), x.dtype


def _pad_meaning(
    x: np.ndarray, pairs: Pairs, interior: Shape, value: float
) -> np.ndarray:
    sizes = zip(x.shape, pairs, interior, strict=True)
    shape = tuple(n + lo + hi + max(n - 1, 0) * i for n, (lo, hi), i in sizes)
    out = np.full(shape, value, x.dtype)
    ends = zip(pairs, shape, interior, strict=True)
    out[tuple(slice(lo, n - hi, i + 1) for (lo, hi), n, i in ends)] = x
    return out


def _pad_gradient(node: Node, g: Value) -> list[Value | None]:
    pairs, interior = node.attrs["pairs"], node.attrs["interior"]
    stops = tuple(n - hi for n, (_, hi) in zip(g.shape, pairs, strict=True))
    starts = tuple(lo for lo, _ in pairs)
    return [slice_(g, starts=starts, stops=stops, steps=tuple(i + 1 for i in interior))]


pad: Op = Op(
    "pad",
    "movement",
    _pad_infer,
    _pad_meaning,
    drawn((3, 2), pairs=((1, 0), (2, 1)), interior=(0, 1), value=0.5),
    _pad_gradient,
)


def _concat_infer(*inputs: Value, axis: int) -> Typed:
    first = inputs[0]
    check_axes(first, (axis,))
    for other in inputs[1:]:
        aligned = len(other.shape) == first.ndim and all(
            a == b or i == axis
            for i, (a, b) in enumerate(zip(first.shape, other.shape, strict=True))
        )
        if not aligned or other.dtype != first.dtype:
            raise ShapeError(
                f"{first.type_text} and {other.type_text} do not join on axis {axis}"
            )
    total = sum(value.shape[axis] for value in inputs)
    return (*first.shape[:axis], total, *first.shape[axis + 1 :]), first.dtype


def _concat_gradient(node: Node, g: Value) -> list[Value | None]:
    axis, start = node.attrs["axis"], 0
    parts: list[Value | None] = []
    for value in node.inputs:
        starts, stops = [0] * g.ndim, list(g.shape)
        starts[axis], stops[axis] = start, start + value.shape[axis]
        start = stops[axis]
        steps = (1,) * g.ndim
        parts.append(slice_(g, starts=tuple(starts), stops=tuple(stops), steps=steps))
    return parts


concat: Op = Op(
    "concat",
    "movement",
    _concat_infer,
    lambda *arrays, axis: np.concatenate(arrays, axis),
    lambda rng: ([rng.uniform(-2, 2, (3, n)) for n in (2, 1, 4)], {"axis": 1}),
    _concat_gradient,
)
reverse: Op = Op(
    "reverse",
    "movement",
    _same_type,
    lambda x, axes: np.flip(x, axes),
    drawn((3, 4), axes=(1,)),
    lambda node, g: [reverse(g, axes=node.attrs["axes"])],
)
iota: Op = Op(
    "iota",
    "movement",
    lambda size, dtype: ((size,), np.dtype(dtype)),
    lambda size, dtype: np.arange(size, dtype=dtype),
    lambda rng: ([], {"size": 5, "dtype": "int32"}),
)
