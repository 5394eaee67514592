"""Points at which formulas go wrong, and slopes there: ours, and TensorFlow's.

Zeros of both signs, ties, the places where functions bend, saturation, what overflows,
infinities and NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ganglion import ops
from ganglion.compiler.ir.gradient import gradients
from ganglion.compiler.ir.graph import Input, evaluate

INF, NAN = np.inf, np.nan
_POSITIVE = [0.0, 1e-30, 1e-6, 0.5, 1.0, 2.0, 3.0, 6.0, 20.0, 100.0, 1e4, 1e30, INF]
POINTS = np.array([sign * x for x in _POSITIVE for sign in (1, -1)] + [NAN])
PAIRS = tuple(np.meshgrid(POINTS, POINTS, indexing="ij"))
ROWS = np.array(
    [
        [0.0, 0.0, 0.0, 0.0],
        [0.0, -0.0, 0.0, -0.0],
        [1.0, 1.0, 1.0, 1.0],
        [2.0, 2.0, -1.0, -1.0],
        [-3.0, 0.0, 3.0, 0.0],
        [20.0, -20.0, 0.0, 0.0],
        [100.0, 100.0, -100.0, 0.0],
        [1e4, -1e4, 1e4, 0.0],
        [-1e4, -1e4, -1e4, -1e4],
        [0.0, 0.0, 0.0, 1.0],
        [1e-30, -1e-30, 0.0, 0.0],
        [0.5, 0.25, -0.5, 2.0],
    ]
)


def our_slopes(
    function: Callable[..., Any], arrays: list[np.ndarray]
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return what a function gives, and the slopes of its sum, each element weighed."""
    inputs = [Input(f"x{i}", x.shape, x.dtype) for i, x in enumerate(arrays)]
    result = function(*inputs)
    floats = [x for x in inputs if x.dtype.kind == "f"]
    known = dict(zip(inputs, arrays, strict=True))
    if result.dtype.kind != "f":
        return evaluate([result], known)[0], []
    loss = ops.sum(result * _weights(result.shape, result.dtype))
    slopes = gradients(loss, floats)
    reached = [x for x in floats if x in slopes]
    value, *results = evaluate([result, *(slopes[x] for x in reached)], known)
    by_input = dict(zip(reached, results, strict=True))
    return value, [by_input.get(x, np.zeros(x.shape)) for x in floats]


def their_slopes(
    function: Callable[..., Any], arrays: list[np.ndarray]
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the same of a function of Keras on TensorFlow."""
    import tensorflow as tf

    inputs = [tf.constant(x) for x in arrays]
    floats = [x for x in inputs if x.dtype.is_floating]
    with tf.GradientTape() as tape:
        for x in floats:
            tape.watch(x)
        result = tf.convert_to_tensor(function(*inputs))
        if not result.dtype.is_floating:
            return result.numpy(), []
        weights = _weights(tuple(result.shape), result.dtype.as_numpy_dtype)
        loss = tf.reduce_sum(result * weights)
    slopes = tape.gradient(loss, floats, unconnected_gradients="zero")
    return result.numpy(), [tf.convert_to_tensor(x).numpy() for x in slopes]


def _weights(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    return np.random.default_rng(9).uniform(0.5, 1.5, shape).astype(dtype)


def differences(
    name: str,
    function: tuple[Callable[..., Any], Callable[..., Any]],
    arrays: list[np.ndarray],
    relative: float,
    explained: Callable[..., Any] | None = None,
) -> list[str]:
    """Compare values and slopes with Keras; name each point at which they differ.

    A slope means nothing where the value is no number. Points for which ``explained``
    is true may differ.
    """
    with np.errstate(all="ignore"):
        value, slopes = our_slopes(function[0], arrays)
        right, right_slopes = their_slopes(function[1], arrays)
        allowed = explained(*arrays) if explained else False
    assert value.shape == right.shape, (name, value.shape, right.shape)
    texts = _differing(f"{name}", value, right, arrays, relative, allowed)
    for number, (slope, other) in enumerate(zip(slopes, right_slopes, strict=True)):
        unknown = np.isnan(right) if right.shape == slope.shape else False
        title = f"slope {number} of {name}"
        skipped = allowed | np.asarray(unknown)
        texts += _differing(title, slope, other, arrays, relative, skipped)
    return texts


def _differing(
    title: str,
    ours: np.ndarray,
    theirs: np.ndarray,
    arrays: list[np.ndarray],
    relative: float,
    skipped: Any,
) -> list[str]:
    close = np.isclose(ours, theirs, rtol=relative, atol=relative / 10, equal_nan=True)
    wrong = ~close & ~np.broadcast_to(skipped, close.shape)
    texts = []
    for at in zip(*np.nonzero(np.atleast_1d(wrong)), strict=True):
        fits = [x for x in arrays if x.shape == wrong.shape]
        where = [float(x[at]) for x in fits] if fits else [int(i) for i in at]
        texts.append(f"{title} at {where}: {ours[at]}, Keras has {theirs[at]}")
    return texts
