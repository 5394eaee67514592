"""Products of few columns, rows or inner indices, and their own ways to be computed."""

from dataclasses import replace

import numpy as np
import pytest
from cpu_checks import arrays_of, check, compiled, pure, ran, same

from ganglion.compiler.cpu.emit import form_of
from ganglion.compiler.cpu.pipeline import build
from ganglion.compiler.cpu.products import small_gemm
from ganglion.compiler.cpu.tuning import CPU
from ganglion.compiler.ir.contraction import matmul
from ganglion.compiler.ir.graph import Graph, Input
from ganglion.compiler.ir.pointwise import exp
from ganglion.compiler.ir.shaping import transpose
from ganglion.compiler.plan.kernels import Contract
from ganglion.compiler.plan.lowering import COLUMN_ROWS


def product(rows, inner, columns, dtype="float32", *, layout="nn", batch=()):
    """Return a product of matrices, of which some lie transposed in memory."""
    sizes = [(rows, inner), (inner, columns)]
    pairs = zip("xw", sizes, layout, strict=True)
    order = (*range(len(batch)), len(batch) + 1, len(batch))
    inputs, operands = [], []
    for name, size, letter in pairs:
        shape = (*batch, *(size[::-1] if letter == "t" else size))
        inputs.append(Input(name, shape, dtype))
        value = exp(inputs[-1]) if name == "x" else inputs[-1]
        operands.append(transpose(value, axes=order) if letter == "t" else value)
    return pure(Graph.of("product", inputs, {"y": matmul(*operands)}))


def contraction(program):
    (kernel,) = (k for k in build(program).kernels if isinstance(k, Contract))
    return kernel


def tuned(monkeypatch, **settings):
    monkeypatch.setattr(small_gemm, "CPU", replace(small_gemm.CPU, **settings))


def equal_for_any_threads(program, arrays):
    """Return the results of one thread, which two and three have, too."""
    first, *others = (ran(compiled(program, n), arrays, {}, 1) for n in (1, 2, 3))
    for result in others:
        same(result, first)
    return first


# ---- few inner indices ---------------------------------------------------------------


@pytest.mark.parametrize("inner", [1, 3, 16])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.usefixtures("copied_columns")
def test_results_of_few_inner_indices_are_stored_line_by_line(
    monkeypatch, inner, dtype
):
    program = product(45, inner, 300, dtype, layout="tn")
    arrays = arrays_of(program)
    kernel = contraction(program)
    assert not small_gemm.goes_by_panels(kernel)
    assert small_gemm.Sizes.of(kernel).width == 300
    check(program, arrays, {}, rtol=1e-5, atol=1e-4)
    by_lines = equal_for_any_threads(program, arrays)
    tuned(monkeypatch, stored_inner=0)
    assert small_gemm.goes_by_panels(kernel)
    same(by_lines, ran(compiled(program, 1), arrays, {}, 1))


# ---- a row times a wide matrix -------------------------------------------------------


@pytest.mark.parametrize("inner", [3, 8, 13, 30])
@pytest.mark.parametrize("columns", [4096, 5003])
def test_a_row_streams_a_wide_matrix_piece_by_piece(monkeypatch, inner, columns):
    program = product(1, inner, columns)
    arrays = arrays_of(program)
    kernel = contraction(program)
    assert small_gemm.kind_of(kernel)[0].streams
    assert small_gemm.Sizes.of(kernel).across == -(-columns // CPU.streamed_piece[0])
    check(program, arrays, {}, rtol=1e-5, atol=1e-4)
    streamed = equal_for_any_threads(program, arrays)
    tuned(monkeypatch, streamed_columns=10**6)
    assert not small_gemm.kind_of(kernel)[0].streams
    same(streamed, ran(compiled(program, 1), arrays, {}, 1))


# ---- many short rows -----------------------------------------------------------------


@pytest.mark.parametrize("columns", [1, 2, 3, 16, 37])
def test_rows_that_are_prefetched_have_the_same_bits(monkeypatch, columns):
    program = product(203, 20, columns)
    arrays = arrays_of(program)
    kernel = contraction(program)
    plain = ran(compiled(program, 1), arrays, {}, 1)
    assert not small_gemm.kind_of(kernel)[0].ahead
    tuned(monkeypatch, own_cache=kernel.left.buffer.nbytes)
    assert small_gemm.kind_of(kernel)[0].ahead
    same(plain, equal_for_any_threads(program, arrays))


@pytest.mark.parametrize("shape", [(400, 20, 65), (40, 600, 16)])
def test_wide_products_and_long_rows_are_not_prefetched(monkeypatch, shape):
    tuned(monkeypatch, own_cache=0)
    assert not small_gemm.kind_of(contraction(product(*shape)))[0].ahead


# ---- few columns ---------------------------------------------------------------------

TALL = [(1, 9), (2, 8), (3, 5), (16, 16), (17, 33), (70, 7), (130, 129), (300, 8)]


@pytest.mark.parametrize("shape", TALL)
@pytest.mark.parametrize("columns", CPU.dotted_columns)
@pytest.mark.parametrize("layout", ["nn", "nt"])
def test_few_columns_are_summed_along_rows(shape, columns, layout):
    program = product(*shape, columns, layout=layout)
    arrays = arrays_of(program)
    # Few rows of a transposed matrix are columns, each for itself.
    swapped = layout == "nt" and columns > 1 and shape[0] <= COLUMN_ROWS
    found = small_gemm.kind_of(contraction(program))[0].dotted
    assert found == (1 if swapped else columns)
    check(program, arrays, {}, rtol=1e-5, atol=1e-4)
    equal_for_any_threads(program, arrays)


@pytest.mark.parametrize("columns", CPU.dotted_columns)
@pytest.mark.parametrize("batch", [(3,), (9,), (2, 5)])
def test_few_columns_in_a_batch(columns, batch):
    program = product(21, 19, columns, batch=batch)
    assert small_gemm.kind_of(contraction(program))[0].dotted == columns
    check(program, arrays_of(program), {}, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("columns", CPU.dotted_columns)
def test_the_bits_of_a_row_do_not_depend_on_the_others(columns):
    """Nor does it matter whether a tile begins with it, or what the others hold."""
    arrays = arrays_of(product(75, 21, columns))

    def result(first, last):
        some = {"x": arrays["x"][first:last], "w": arrays["w"]}
        _, results = ran(compiled(product(last - first, 21, columns), 1), some, {}, 1)
        return results["y"][0]

    whole = result(0, 75)
    arrays["x"][11:] = np.inf
    np.testing.assert_array_equal(result(0, 75)[:11], whole[:11])
    np.testing.assert_array_equal(result(4, 11), whole[4:11])
    np.testing.assert_array_equal(result(7, 8), whole[7:8])


@pytest.mark.parametrize("rows", [1, 2, COLUMN_ROWS])
@pytest.mark.parametrize("batch", [(), (3,), (2, 9)])
@pytest.mark.parametrize("shape", [(8, 2), (19, 70), (64, 130)])
def test_few_rows_of_a_transposed_matrix_are_columns(rows, batch, shape):
    program = product(rows, *shape, layout="nt", batch=batch)
    kernels = [k.name for k in build(program).kernels]
    assert "pack" not in kernels
    assert "dots" not in kernels
    kernel = contraction(program)
    assert small_gemm.kind_of(kernel)[0].dotted == 1
    arrays = arrays_of(program)
    check(program, arrays, {}, rtol=1e-5, atol=1e-4)
    equal_for_any_threads(program, arrays)


@pytest.mark.parametrize("rows", [1, 3])
def test_few_rows_of_doubles(rows):
    program = product(rows, 33, 20, "float64", layout="nt")
    check(program, arrays_of(program), {}, rtol=1e-12, atol=1e-12)


def test_one_text_serves_all_sizes_of_a_column():
    keys = {form_of(contraction(product(*shape, 1))).key for shape in TALL}
    assert len(keys) == 1


@pytest.mark.parametrize(
    "program",
    [
        product(40, 20, 3),
        product(40, 4, 1),
        product(40, 20, 1, "float64"),
        product(40, 20, 1, layout="tn"),
    ],
    ids=["three columns", "short rows", "doubles", "transposed"],
)
def test_other_products_have_tiles(program):
    assert not small_gemm.kind_of(contraction(program))[0].dotted
