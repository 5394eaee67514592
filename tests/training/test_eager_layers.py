"""Every layer has the same gradients in an eager tape as in a compiled function."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from layer_cases import CASES, Case

import ganglion
from ganglion import layers, ops

ONE_OF_EACH = {case.layer: case for case in CASES}


@pytest.mark.parametrize("case", ONE_OF_EACH.values(), ids=ONE_OF_EACH.keys())
def test_eager_and_traced_gradients_are_equal(case: Case) -> None:
    ganglion.utils.set_random_seed(3)
    layer = case.make(layers)
    inputs = case.inputs(seed=1)
    case.call(layer, inputs)
    start = [variable.numpy() for variable in layer.variables]

    def gradients() -> Any:
        with ganglion.GradientTape() as tape:
            outputs = case.call(layer, inputs, training=case.training)
            loss = sum(
                ops.sum(ops.sin(ops.cast(leaf, "float32")))
                for leaf in ganglion.tree.flatten(outputs)
            )
        return loss, tape.gradient(loss, layer.trainable_variables)

    eager = gradients()
    for variable, array in zip(layer.variables, start, strict=True):
        variable.assign(array)  # seeds and moving averages
    before = ganglion.config.backend_choice()
    ganglion.config.set_backend("numpy")
    try:
        traced = ganglion.function(gradients)()
    finally:
        ganglion.config.set_backend(before)
    pairs = zip(*map(ganglion.tree.flatten, (eager, traced)), strict=True)
    for mine, expected in pairs:
        assert (mine is None) == (expected is None)
        if mine is not None:
            np.testing.assert_allclose(mine, expected, rtol=1e-4, atol=1e-5)
