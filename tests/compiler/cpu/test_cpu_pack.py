"""Products of large matrices: blocks are packed, to the same bits as without."""

from dataclasses import replace

import numpy as np
import pytest
from cpu_checks import check, compiled, pure, ran, same
from hypothesis import given, settings
from hypothesis import strategies as st

from ganglion.compiler.cpu.emit import emit_plan
from ganglion.compiler.cpu.pipeline import build
from ganglion.compiler.cpu.products import packing
from ganglion.compiler.cpu.tuning import CPU
from ganglion.compiler.cuda import pipeline as cuda_pipeline
from ganglion.compiler.cuda.target import GpuSpec
from ganglion.compiler.ir.contraction import matmul
from ganglion.compiler.ir.graph import Graph, Input
from ganglion.compiler.ir.pointwise import exp
from ganglion.compiler.ir.shaping import sum_, transpose
from ganglion.compiler.plan.kernels import Contract

SMALL = {"packed_bytes": 0, "packed_in_batch": 0, "packed_transposed": 0}
SMALL |= {"fewest_packed_rows": 1, "prefetched_left": 0}
NEVER = {"packed_bytes": 2**60, "packed_transposed": 2**60}
BLOCKS = {"packed_columns": 64, "packed_block_rows": 56, "merged_rows": 112}
BLOCKS |= {"packed_grain": 1, "inner_block": 32}

pytestmark = pytest.mark.usefixtures("listed_zeros", "own_tiles")


@pytest.fixture
def tuned():
    """Return a function that replaces what packed products are tuned by."""
    with pytest.MonkeyPatch.context() as patch:

        def tune(**numbers):
            patch.setattr(packing, "CPU", replace(CPU, **numbers))

        yield tune


def turned(value, is_transposed):
    axes = (*range(value.ndim - 2), value.ndim - 1, value.ndim - 2)
    return transpose(value, axes=axes) if is_transposed else value


def product(rows, inner, columns, layout="nn", dtype="float32", batch=()):
    """Return a product, its operands transposed or not, and what it runs on."""
    shapes = (rows, inner), (inner, columns)
    shapes = [
        (*batch, *(shape[::-1] if turn == "t" else shape))
        for shape, turn in zip(shapes, layout, strict=True)
    ]
    x, w = (Input(n, s, dtype) for n, s in zip("xw", shapes, strict=True))
    left, right = (
        turned(v, t == "t") for v, t in zip((exp(x), w), layout, strict=True)
    )
    draw = np.random.default_rng(rows + inner + columns)
    arrays = {v.name: draw.normal(size=v.shape).astype(dtype) for v in (x, w)}
    return pure(Graph.of("product", [x, w], {"y": matmul(left, right)})), arrays


def packed(program, build=build):
    """Return the kernels' number, and the buffer for packed blocks."""
    plan = build(program)
    (kernel,) = [k for k in plan.kernels if isinstance(k, Contract)]
    return len(plan.kernels), kernel.packed


def unpacked_result(tune, program, arrays):
    tune(**NEVER)
    assert packed(program)[1] is None
    return ran(compiled(program, 1), arrays, {}, 1)


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize(
    ("rows", "inner", "columns"),
    [(16, 1, 16), (28, 32, 64), (29, 33, 65), (57, 70, 129), (130, 48, 97)],
)
def test_packing_changes_no_bit(tuned, rows, inner, columns, layout):
    program, arrays = product(rows, inner, columns, layout)
    expected = unpacked_result(tuned, program, arrays)
    tuned(**SMALL, **BLOCKS)
    assert packed(program)[1] is not None
    for threads in (1, 2, 5):
        same(ran(compiled(program, threads), arrays, {}, 1), expected)
    check(program, arrays, {}, rtol=1e-4, atol=1e-4)


@given(
    sizes=st.tuples(*[st.integers(16, 150)] * 3),
    layout=st.sampled_from(["nn", "nt", "tn", "tt"]),
    blocks=st.sampled_from([{}, BLOCKS]),
    dtype=st.sampled_from(["float32", "float64"]),
)
@settings(max_examples=12, deadline=None)
def test_products_of_any_size(sizes, layout, blocks, dtype):
    with pytest.MonkeyPatch.context() as patch:

        def tune(**numbers):
            patch.setattr(packing, "CPU", replace(CPU, **numbers))

        program, arrays = product(*sizes, layout, dtype)
        expected = unpacked_result(tune, program, arrays)
        tune(**SMALL, **blocks)
        same(ran(compiled(program, 3), arrays, {}, 1), expected)


def test_rows_that_are_the_batch_run_together(tuned):
    rows = 8 * 256
    program, arrays = product(rows, 20, 40)
    expected = unpacked_result(tuned, program, arrays)
    tuned(**SMALL, merged_rows=700)
    (kernel,) = [k for k in build(program).kernels if isinstance(k, Contract)]
    assert kernel.batch
    assert kernel.packed
    for threads in (1, 3):
        same(ran(compiled(program, threads), arrays, {}, 1), expected)


def test_batches_of_products(tuned):
    program, arrays = product(30, 24, 40, "nt", batch=(3, 2))
    expected = unpacked_result(tuned, program, arrays)
    tuned(**SMALL, **BLOCKS)
    assert packed(program)[1] is not None
    for threads in (1, 4):
        same(ran(compiled(program, threads), arrays, {}, 1), expected)


@pytest.mark.parametrize(("rows", "columns"), [(28, 64), (45, 70), (120, 200)])
@pytest.mark.parametrize("zeros", [0, 2, 3])
def test_zeros_of_the_data_are_left_out_where_they_are_many(
    tuned, rows, columns, zeros
):
    x, w = Input("x", (rows, 50), "float32"), Input("w", (50, columns), "float32")
    program = pure(Graph.of("product", [x, w], {"y": matmul(x, w)}))
    draw = np.random.default_rng(rows)
    arrays = {v.name: draw.normal(size=v.shape).astype("f4") for v in (x, w)}
    if zeros:
        arrays["x"][: rows // 2, np.arange(50) % zeros > 0] = 0
    expected = unpacked_result(tuned, program, arrays)
    tuned(**SMALL, **BLOCKS)
    (kernel,) = [k for k in build(program).kernels if isinstance(k, Contract)]
    assert kernel.packed
    assert kernel.nonzeros
    for threads in (1, 2):
        same(ran(compiled(program, threads), arrays, {}, 1), expected)
    check(program, arrays, {}, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("inner", [50, CPU.blocked_inner + 5])
@pytest.mark.parametrize("of_data", [True, False])
def test_sums_of_columns_beside_the_product(tuned, inner, of_data):
    x, g = Input("x", (inner, 70), "float32"), Input("g", (inner, 90), "float32")
    left = transpose(x if of_data else exp(x), axes=(1, 0))
    slope = exp(g)
    outputs = {"w": matmul(left, slope), "b": sum_(slope, axes=(0,))}
    program = pure(Graph.of("gradients", [x, g], outputs))
    draw = np.random.default_rng(inner)
    arrays = {v.name: draw.normal(size=v.shape).astype("f4") for v in (x, g)}
    if of_data:
        arrays["x"][: inner // 2] = 0
    expected = unpacked_result(tuned, program, arrays)
    tuned(**SMALL, **BLOCKS | {"inner_block": CPU.inner_block})
    (kernel,) = [k for k in build(program).kernels if isinstance(k, Contract)]
    assert kernel.packed
    assert kernel.sums
    assert bool(kernel.nonzeros) is of_data
    for threads in (1, 2):
        same(ran(compiled(program, threads), arrays, {}, 1), expected)


def test_only_large_products_are_packed():
    columns = CPU.packed_bytes // (4 * 512)
    assert packed(product(64, 512, columns)[0])[1] is not None
    assert packed(product(64, 512, columns - 1)[0])[1] is None
    assert packed(product(CPU.fewest_packed_rows - 1, 512, columns)[0])[1] is None


def test_a_batch_of_smaller_ones_is_packed():
    batch = (CPU.packed_bytes // CPU.packed_in_batch,)
    columns = CPU.packed_in_batch // (4 * 128)
    assert packed(product(64, 128, columns, batch=batch)[0])[1] is not None
    assert packed(product(64, 128, columns - 1, batch=batch)[0])[1] is None


@pytest.mark.parametrize("gains", [True, False])
def test_a_transposed_right_matrix_is_copied_unless_it_is_large(monkeypatch, gains):
    monkeypatch.setattr(packing, "gains_from_copies", lambda: gains)
    columns = (CPU.packed_transposed if gains else CPU.packed_bytes) // (4 * 256)
    kernels, blocks = packed(product(64, 256, columns, "nt")[0])
    assert blocks is not None
    copied, blocks = packed(product(64, 256, columns - 1, "nt")[0])
    assert (copied, blocks) == (kernels + 1, None)


def test_gpus_pack_by_themselves(tuned):
    tuned(**SMALL)
    program, _ = product(64, 48, 64)
    plan = cuda_pipeline.build(program, GpuSpec()).plan
    assert packed(program, lambda _: plan)[1] is None


def test_one_text_for_all_tiles_of_a_type(tuned):
    tuned(**SMALL)
    program, _ = product(64, 48, 64)
    (text,) = [t for t in emit_plan(build(program))[0].values() if "@tile" in t]
    assert text.count("define internal void @tile14x2(") == 1


def test_one_text_for_products_of_all_sizes(tuned):
    tuned(**SMALL)
    sizes = [(64, 48, 64), (130, 240, 70)]
    layouts = ["nn", "nt", "tn", "tt"]
    names = [
        {name for name, text in emit_plan(build(product(*size, layout)[0]))[0].items()
         if "@tile" in text}
        for layout in layouts
        for size in sizes
    ]  # fmt: skip
    assert names[::2] == names[1::2]
    assert len(set.union(*names)) == len(layouts)


def test_along_a_long_inner_axis_few_rows_are_not_packed():
    inner, most = CPU.blocked_inner, CPU.prefetched_left
    columns = CPU.packed_bytes // (4 * inner)
    assert packed(product(most, inner, columns, "tn")[0])[1] is None
    assert packed(product(most + 1, inner, columns, "tn")[0])[1] is not None
    assert packed(product(most, inner - 16, columns + 16, "tn")[0])[1] is not None
    assert packed(product(64, inner, columns, "nn")[0])[1] is not None


@pytest.mark.parametrize("rows", [1, 2, 8, 15])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_few_rows_by_a_transposed_matrix_need_no_copy_of_it(tuned, rows, batch):
    tuned(**SMALL | {"fewest_packed_rows": CPU.fewest_packed_rows})
    program, arrays = product(rows, 70, 100, "nt", batch=batch)
    names = [kernel.name for kernel in build(program).kernels]
    assert "pack" not in names
    expected = ran(compiled(program, 1), arrays, {}, 1)
    same(ran(compiled(program, 3), arrays, {}, 1), expected)
    check(program, arrays, {}, rtol=1e-4, atol=1e-4)
