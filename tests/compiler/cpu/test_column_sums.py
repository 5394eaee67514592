"""Products add up the columns of what they read: gradients of biases."""

import numpy as np
import pytest
from cpu_checks import check, pure
from test_cpu_inner_blocks import use_blocks

from ganglion.compiler.cpu.pipeline import build
from ganglion.compiler.ir.contraction import flipped, matmul
from ganglion.compiler.ir.graph import Graph, Input, Program
from ganglion.compiler.ir.pointwise import exp
from ganglion.compiler.ir.shaping import reshape, sum_
from ganglion.compiler.plan.kernels import Contract

pytestmark = pytest.mark.usefixtures("listed_zeros", "own_tiles")

Case = tuple[Program, dict[str, np.ndarray]]


def dense_back(
    units: int, slopes: tuple[int, ...], both: bool = False, data: bool = False
) -> Case:
    """Return the gradients of a layer's weights and bias, of so many axes of slopes."""
    rows, columns = int(np.prod(slopes[:-1])), slopes[-1]
    x, g = Input("x", (rows, units), "float32"), Input("g", slopes, "float32")
    slope = exp(g)
    inputs = x if data else exp(x)  # zeros of the data are left out
    weights = matmul(flipped(inputs), reshape(slope, shape=(rows, columns)))
    outputs = {"w": weights, "b": sum_(slope, axes=tuple(range(len(slopes) - 1)))}
    if both:
        outputs["s"] = sum_(slope, axes=(0,))
    draw = np.random.default_rng(rows + columns)
    arrays = {v.name: draw.normal(size=v.shape).astype("f4") for v in (x, g)}
    return pure(Graph.of("back", [x, g], outputs)), arrays


def sums_in_products(program: Program) -> int:
    kernels = build(program).kernels
    return sum(isinstance(k, Contract) and k.sums is not None for k in kernels)


@pytest.mark.parametrize("block", [0, 16])
@pytest.mark.parametrize(
    ("units", "slopes"),
    [(20, (60, 70)), (27, (50, 64)), (17, (4, 24, 40)), (30, (5, 13, 100))],
)
def test_a_product_adds_up_columns(monkeypatch, units, slopes, block):
    if block:
        use_blocks(monkeypatch, 16, block)
    program, arrays = dense_back(units, slopes)
    assert sums_in_products(program) == 1
    check(program, arrays, {}, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("block", [0, 16])
@pytest.mark.parametrize("zeros", [0.0, 0.9])
def test_zeros_of_the_data_are_left_out_all_the_same(monkeypatch, zeros, block):
    if block:
        use_blocks(monkeypatch, 16, block)
    program, arrays = dense_back(20, (50, 600), data=True)
    x = arrays["x"]
    arrays["x"] = np.where(np.random.default_rng(1).random(x.shape) < zeros, 0, x)
    (product,) = (k for k in build(program).kernels if isinstance(k, Contract))
    assert product.sums
    assert product.nonzeros
    check(program, arrays, {}, rtol=2e-5, atol=2e-5)


def test_sums_over_other_axes_stay_loops():
    program, arrays = dense_back(17, (4, 24, 40), both=True)
    assert sums_in_products(program) == 1
    check(program, arrays, {}, rtol=2e-5, atol=2e-5)


def test_a_small_right_operand_is_no_place_for_sums():
    program, arrays = dense_back(90, (30, 20))
    assert sums_in_products(program) == 0
    check(program, arrays, {}, rtol=2e-5, atol=2e-5)
