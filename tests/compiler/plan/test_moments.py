"""A bias that batch norm takes away again is never added."""

import numpy as np
import pytest
from step_programs import step_of

from ganglion.compiler.cpu import backend
from ganglion.compiler.cpu.pipeline import build
from ganglion.compiler.ir.graph import Constant, Graph, Input, Program
from ganglion.compiler.ir.pointwise import add, divide, multiply, subtract
from ganglion.compiler.ir.shaping import broadcast, reshape, sum_

pytest.importorskip("llvmlite", reason="llvmlite is not installed")


def test_a_bias_that_batch_norm_takes_away_is_never_added():
    plan = build(step_of("mnist-cnn", rows=256, batch=128)[0])
    name = "mnist-cnn/conv2d/bias"
    readers = [
        kernel for kernel in plan.kernels if name in {b.name for b in kernel.reads()}
    ]
    assert {reader.shape for reader in readers} == {
        (24,)
    }  # for the mean, and its update


@pytest.mark.parametrize("turned", [False, True])
def test_means_by_another_axis_keep_the_bias(turned):
    """Only what was added along the same axis goes away."""
    x, b = Input("x", (64, 96, 96), "float32"), Input("b", (96,), "float32")
    value = add(x, broadcast(b, shape=x.shape))
    number = broadcast(Constant(np.float32(64 * 96)), shape=(96,))
    mean = divide(sum_(value, axes=(0, 1)), number)
    kept = broadcast(mean, shape=x.shape)
    squares = multiply(subtract(value, kept), subtract(value, kept))
    by = broadcast(reshape(mean, shape=(96, 1)), shape=x.shape) if turned else kept
    outputs = {"away": subtract(value, by), "squares": sum_(squares, axes=(0, 1))}
    program = Program(Graph.of("away", [x, b], outputs), ("x", "b"), (), ("away",))
    rng = np.random.default_rng(0)
    data = {v.name: rng.normal(size=v.shape).astype("float32") for v in (x, b)}
    exact = data["x"].astype("float64") + data["b"]
    means = exact.mean((0, 1))
    result = backend.compile(program).run(data, {}, 1)["away"][0]
    expected = exact - (means[:, None] if turned else means)
    np.testing.assert_allclose(result, expected, atol=1e-5)
