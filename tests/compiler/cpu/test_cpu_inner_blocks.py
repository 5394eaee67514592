"""Products with a long inner axis go through it block by block, to the same bits."""

from dataclasses import replace

import numpy as np
import pytest
from cpu_checks import check, compiled, pure, ran, same

from ganglion.compiler import cache
from ganglion.compiler.cpu import jit
from ganglion.compiler.cpu.emit import emit_plan
from ganglion.compiler.cpu.pipeline import build
from ganglion.compiler.cpu.products import gemm
from ganglion.compiler.cpu.tuning import CPU
from ganglion.compiler.ir.contraction import matmul
from ganglion.compiler.ir.graph import Graph, Input, Program
from ganglion.compiler.ir.pointwise import exp
from ganglion.compiler.ir.shaping import transpose
from ganglion.compiler.plan.kernels import Contract

pytestmark = pytest.mark.usefixtures("listed_zeros", "own_tiles")


def product(
    rows: int, inner: int, columns: int, dtype: str = "float32"
) -> tuple[Program, dict[str, np.ndarray]]:
    x, w = Input("x", (rows, inner), dtype), Input("w", (inner, columns), dtype)
    y = matmul(exp(x), w)  # of data, zeros would be left out
    draw = np.random.default_rng(rows + inner + columns)
    arrays = {v.name: draw.normal(size=v.shape).astype(dtype) for v in (x, w)}
    return pure(Graph.of("product", [x, w], {"y": y})), arrays


def use_blocks(monkeypatch: pytest.MonkeyPatch, inner: int, size: int) -> None:
    blocks = replace(CPU, blocked_inner=inner, inner_block=size)
    monkeypatch.setattr(gemm, "CPU", blocks)
    # What was compiled before has other blocks, or is another version's.
    version = f"{cache.generator()}, blocks of {size}"
    monkeypatch.setattr(cache, "generator", lambda: version)
    jit.forget_functions()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("rows", "inner", "columns"), [(17, 48, 70), (90, 41, 33), (31, 33, 200)]
)
def test_blocks_change_no_bit(monkeypatch, rows, inner, columns, dtype):
    program, arrays = product(rows, inner, columns, dtype)
    at_once = ran(compiled(program, 1), arrays, {}, 1)
    texts = emit_plan(build(program))[0].keys()
    use_blocks(monkeypatch, inner, 16)
    assert emit_plan(build(program))[0].keys() != texts
    for threads in (1, 3):
        same(ran(compiled(program, threads), arrays, {}, 1), at_once)


@pytest.mark.parametrize("columns", [40, 600])
def test_zeros_of_the_data_are_left_out_all_the_same(monkeypatch, columns):
    x, w = Input("x", (24, 50), "float32"), Input("w", (50, columns), "float32")
    program = pure(Graph.of("product", [x, w], {"y": matmul(x, w)}))
    draw = np.random.default_rng(columns)
    arrays = {v.name: draw.normal(size=v.shape).astype("f4") for v in (x, w)}
    sparse = {**arrays, "x": np.where(np.arange(50) % 3, 0, arrays["x"])}
    half = {**arrays, "x": np.concatenate([sparse["x"][:12], arrays["x"][12:]])}
    cases = (arrays, sparse, half)
    at_once = [ran(compiled(program, 1), data, {}, 1) for data in cases]
    use_blocks(monkeypatch, 50, 16)
    for data, expected in zip(cases, at_once, strict=True):
        same(ran(compiled(program, 2), data, {}, 1), expected)


def test_a_long_product_agrees_with_the_reference():
    program, arrays = product(70, CPU.blocked_inner + 3, 70)
    (text,) = [t for t in emit_plan(build(program))[0].values() if "prefetch" in t]
    assert f"{CPU.inner_block}" in text
    check(program, arrays, {}, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("left_transposed", [False, True])
def test_threads_share_long_sums_with_few_results(left_transposed):
    shape = (2080, 24) if left_transposed else (24, 2080)
    x, w = Input("x", shape, "float32"), Input("w", (2080, 40), "float32")
    left = transpose(exp(x), axes=(1, 0)) if left_transposed else exp(x)
    program = pure(Graph.of("product", [x, w], {"y": matmul(left, w)}))
    (shared,) = [k for k in build(program).kernels if isinstance(k, Contract)]
    assert shared.parallel == 8
    draw = np.random.default_rng(0)
    arrays = {v.name: draw.normal(size=v.shape).astype("f4") for v in (x, w)}
    alone = ran(compiled(program, 1), arrays, {}, 1)
    same(ran(compiled(program, 3), arrays, {}, 1), alone)
    check(program, arrays, {}, rtol=1e-4, atol=1e-3)
