"""A ReLU before a pool: the gradient is masked by the pool's result, bit for bit."""

import numpy as np
import pytest
from cpu_checks import check, pure

from ganglion.compiler.cpu.passes.pools import mask_pooled
from ganglion.compiler.ir.graph import Graph, Input
from ganglion.compiler.ir.pointwise import less, maximum, multiply, where
from ganglion.compiler.ir.pooling import max_pool, max_pool_back
from ganglion.compiler.ir.shaping import fill, sum_

EVEN = {"window": (2, 2), "strides": (2, 2), "pairs": ((0, 0), (0, 0))}
OVERLAPPING = {"window": (3, 2), "strides": (2, 1), "pairs": ((1, 1), (0, 1))}


def drawn(shape):
    """Return numbers of which many are equal, and many are zero."""
    return np.random.default_rng(3).integers(-2, 3, shape).astype(np.float32)


def step(attrs, outputs, level=0, images=(4, 6, 8, 24)):
    """Return a pool of a ReLU with its gradient, and the arrays it runs on."""
    x = Input("x", images, np.float32)
    relu = maximum(x, fill(level, x))
    y = max_pool(relu, **attrs)
    dy = Input("dy", y.shape, np.float32)
    back = max_pool_back(relu, y, dy, **attrs)
    dx = where(less(fill(level, x), x), back, fill(0, x))
    graph = Graph.of("step", [x, dy], {"y": y, **outputs(x, dx)})
    draw = np.random.default_rng(5)
    arrays = {"x": drawn(images), "dy": draw.normal(size=y.shape).astype(np.float32)}
    return pure(graph), arrays


def summed(x, dx):
    """Sums by channel, which are added up over windows."""
    axes = tuple(range(dx.ndim - 1))
    return {"one": sum_(dx, axes=axes), "two": sum_(multiply(dx, x), axes=axes)}


def masks(program):
    """Return the shapes that are masked by what is above zero."""
    nodes = mask_pooled(program.graph).nodes
    return {node.shape for node in nodes if node.op is where}


@pytest.mark.parametrize("outputs", [summed, lambda x, dx: {"dx": dx}])
@pytest.mark.parametrize("attrs", [EVEN, OVERLAPPING])
def test_masked_where_the_result_is_positive(attrs, outputs):
    program, arrays = step(attrs, outputs)
    assert masks(program) == {arrays["dy"].shape}
    check(program, arrays, {}, rtol=1e-5, atol=1e-4)


def test_nothing_goes_to_windows_with_something_unknown():
    program, arrays = step(EVEN, summed)
    arrays["x"][0, 0, 0, 3] = np.nan
    check(program, arrays, {}, rtol=1e-5, atol=1e-4)


def test_another_level_is_left_alone():
    program, arrays = step(EVEN, summed, level=1)
    assert masks(program) == {arrays["x"].shape}
    check(program, arrays, {}, rtol=1e-5, atol=1e-4)
