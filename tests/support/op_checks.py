"""What holds of every primitive: inference agrees with meaning, slopes agree."""

from __future__ import annotations

import numpy as np

from ganglion.compiler.ir import pointwise as p
from ganglion.compiler.ir import shaping
from ganglion.compiler.ir.gradient import gradients
from ganglion.compiler.ir.graph import Constant, Input, Op, Value
from ganglion.compiler.ir.shaping import is_float
from ganglion.compiler.ir.simplify import evaluate


def inputs_for(drawn: list[np.ndarray]) -> list[Input]:
    return [Input(f"x{i}", one.shape, one.dtype) for i, one in enumerate(drawn)]


def assert_inferred(op: Op, drawn: list[np.ndarray], attrs: dict) -> np.ndarray:
    result = np.asarray(op.meaning(*drawn, **attrs))
    node = op(*inputs_for(drawn), **attrs)
    assert (node.shape, node.dtype) == (result.shape, result.dtype)
    return result


def weighted_sum(node: Value, seed: int) -> Value:
    weights = np.random.default_rng(seed + 1000).uniform(-1, 1, node.shape)
    product = p.multiply(node, Constant(weights))
    return shaping.sum_(product, axes=tuple(range(node.ndim)))


def slopes(loss: Value, known: dict[Value, np.ndarray], one: Value) -> np.ndarray:
    """Return d loss / d one by central differences, one element at a time."""
    step = 1e-5
    found = np.zeros(one.shape)
    for place in np.ndindex(*one.shape):
        ends = []
        for sign in (1, -1):
            moved = known[one].copy()
            moved[place] += sign * step
            ends.append(evaluate([loss], {**known, one: moved})[0])
        found[place] = (ends[0] - ends[1]) / (2 * step)
    return found


def assert_gradients(op: Op, drawn: list[np.ndarray], attrs: dict, seed: int) -> None:
    made = inputs_for(drawn)
    loss = weighted_sum(op(*made, **attrs), seed)
    floats = [one for one in made if is_float(one.dtype)]
    known = dict(zip(made, drawn, strict=True))
    found = gradients(loss, floats)
    assert set(found) == set(floats)
    for one in floats:
        assert (found[one].shape, found[one].dtype) == (one.shape, one.dtype)
        (value,) = evaluate([found[one]], known)
        # Differences of step 1e-5 are good to about 1e-10 x the third derivative.
        np.testing.assert_allclose(
            value, slopes(loss, known, one), rtol=1e-6, atol=1e-6
        )
