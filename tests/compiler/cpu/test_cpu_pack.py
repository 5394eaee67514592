"""Products with a transposed matrix: its panels are packed as needed."""

import numpy as np
import pytest
from cpu_checks import check, pure

from ganglion.compiler.cpu.pipeline import build
from ganglion.compiler.cuda import pipeline as cuda_pipeline
from ganglion.compiler.cuda.target import GpuSpec
from ganglion.compiler.ir.contraction import matmul
from ganglion.compiler.ir.graph import Graph, Input
from ganglion.compiler.ir.pointwise import exp
from ganglion.compiler.ir.shaping import transpose
from ganglion.compiler.plan.kernels import Contract
from ganglion.compiler.plan.lower import PACKED_ROWS, PANEL


def product(rows, inner, columns, dtype="float32"):
    """Return x·wᵀ, and the arrays it runs on."""
    x, w = Input("x", (rows, inner), dtype), Input("w", (columns, inner), dtype)
    y = matmul(exp(x), transpose(w, axes=(1, 0)))  # of data, zeros would be left out
    draw = np.random.default_rng(rows + inner + columns)
    arrays = {v.name: draw.normal(size=v.shape).astype(dtype) for v in (x, w)}
    return pure(Graph.of("product", [x, w], {"y": y})), arrays


def gpu_plan(program):
    return cuda_pipeline.build(program, GpuSpec()).plan


def kernels(program, build=build):
    """Return how many kernels there are, and the panels of the product."""
    plan = build(program)
    (kernel,) = [k for k in plan.kernels if isinstance(k, Contract)]
    return len(plan.kernels), kernel.packed


@pytest.mark.parametrize("inner", [16, 17, 40, 2])
@pytest.mark.parametrize("columns", [64, 65, 70, 129])
@pytest.mark.parametrize("rows", [PACKED_ROWS, 53])
def test_panels_are_packed_where_they_are_used(rows, inner, columns):
    program, arrays = product(rows, inner, columns)
    before_used, packed = kernels(program)
    assert packed is not None
    assert packed.shape == (-(-columns // PANEL), inner, PANEL)
    check(program, arrays, {}, rtol=1e-5, atol=1e-4)
    assert kernels(program, gpu_plan) == (before_used + 1, None)


def test_where_zeros_of_the_data_are_left_out():
    x, w = Input("x", (40, 50), "float32"), Input("w", (70, 50), "float32")
    graph = Graph.of("product", [x, w], {"y": matmul(x, transpose(w, axes=(1, 0)))})
    draw = np.random.default_rng(1)
    arrays = {v.name: draw.normal(size=v.shape).astype("f4") for v in (x, w)}
    arrays["x"][:, ::3] = 0
    (kernel,) = [k for k in build(pure(graph)).kernels if isinstance(k, Contract)]
    assert kernel.packed
    assert kernel.nonzeros
    check(pure(graph), arrays, {}, rtol=1e-5, atol=1e-4)


def test_in_double_precision():
    program, arrays = product(40, 33, 67, "float64")
    assert kernels(program)[1] is not None
    check(program, arrays, {}, rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize(("rows", "columns"), [(200, 64), (8, 64), (PACKED_ROWS, 31)])
def test_others_are_transposed_before(rows, columns):
    program, arrays = product(rows, 24, columns)
    assert kernels(program)[1] is None
    check(program, arrays, {}, rtol=1e-5, atol=1e-4)
