"""Checks for every primitive: inference agrees with meaning, gradients with slopes."""

from __future__ import annotations

import numpy as np

from ganglion.compiler.ir import pointwise as p
from ganglion.compiler.ir import shaping
from ganglion.compiler.ir.gradient import gradients
from ganglion.compiler.ir.graph import Constant, Input, Op, Value, evaluate
from ganglion.compiler.ir.shaping import is_float


def inputs_for(drawn: list[np.ndarray]) -> list[Input]:
    return [Input(f"x{i}", item.shape, item.dtype) for i, item in enumerate(drawn)]


def assert_inferred(op: Op, drawn: list[np.ndarray], attrs: dict) -> np.ndarray:
    result = np.asarray(op.meaning(*drawn, **attrs))
    node = op(*inputs_for(drawn), **attrs)
    assert (node.shape, node.dtype) == (result.shape, result.dtype)
    return result


def weighted_sum(node: Value, seed: int) -> Value:
    weights = np.random.default_rng(seed + 1000).uniform(-1, 1, node.shape)
    product = p.multiply(node, Constant(weights))
    return shaping.sum_(product, axes=tuple(range(node.ndim)))


def slopes(loss: Value, known: dict[Value, np.ndarray], source: Value) -> np.ndarray:
    """Return d loss / d one by central differences, one element at a time."""
    step = 1e-5
    actual = np.zeros(source.shape)
    for place in np.ndindex(*source.shape):
        ends = []
        for sign in (1, -1):
            moved = known[source].copy()
            moved[place] += sign * step
            ends.append(evaluate([loss], {**known, source: moved})[0])
        actual[place] = (ends[0] - ends[1]) / (2 * step)
    return actual


def assert_gradients(op: Op, drawn: list[np.ndarray], attrs: dict, seed: int) -> None:
    result = inputs_for(drawn)
    loss = weighted_sum(op(*result, **attrs), seed)
    floats = [item for item in result if is_float(item.dtype)]
    known = dict(zip(result, drawn, strict=True))
    actual = gradients(loss, floats)
    assert set(actual) == set(floats)
    for leaf in floats:
        assert (actual[leaf].shape, actual[leaf].dtype) == (leaf.shape, leaf.dtype)
        (value,) = evaluate([actual[leaf]], known)
        # Differences of step 1e-5 are good to about 1e-10 x the third derivative.
        np.testing.assert_allclose(
            value, slopes(loss, known, leaf), rtol=1e-6, atol=1e-6
        )
